/* A signal comes after each instruction of a function, and its handler leaves a block of 24 bytes. The
 * function is one of a library that is opened for each batch, so that what it calls is bound anew; the
 * arguments are the path of the library and the name of the function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>

#include "batch.h"

enum { TRAP_FLAG = 0x100 };

static struct site sites[] = {SITE(on_trap)};
static const char *path, *name;

/* Keeps what is in front of it from being a jump to what comes. */
#define STAY __asm__ volatile("" ::: "memory")

/* Changes the processor's flags, on the stack below the red zone. */
#define FLAGS(change, number)                      \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t"  \
                     ".cfi_adjust_cfa_offset 128\n\t" \
                     "pushf\n\t"                   \
                     ".cfi_adjust_cfa_offset 8\n\t" \
                     change "\n\t"                 \
                     "popf\n\t"                    \
                     ".cfi_adjust_cfa_offset -8\n\t" \
                     "lea 128(%%rsp), %%rsp\n\t"   \
                     ".cfi_adjust_cfa_offset -128" \
                     :                             \
                     : "i"(number)                 \
                     : "memory", "cc")

NOINLINE void on_trap(int signal) {
    (void)signal;
    keep(&sites[0], malloc(24), 24);
    STAY;
}

NOINLINE void stepped(int (*function)(int), int n) {
    FLAGS("orq %0, (%%rsp)", TRAP_FLAG);
    function(n);
    FLAGS("andq %0, (%%rsp)", ~TRAP_FLAG);
    STAY;
}

static NOINLINE void batch(int n) {
    (void)n;
    int (*function)(int);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        _exit(72);
    *(void **)&function = dlsym(library, name);
    stepped(function, 100);
    dlclose(library);
    STAY;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 72;
    path = argv[1];
    name = argv[2];
    signal(SIGTRAP, on_trap);
    return BATCHES(batch, sites);
}
