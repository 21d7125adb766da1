/* Leaves blocks behind at the ends of paths that are hard to walk. Each path has its function; what
 * is left there, per batch, the account says. Meant to be compiled with optimization and without
 * frame pointers. With an argument, only the path of that name is gone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "batch.h"

enum { SHORT_A, LONG_B, IN_SIGNAL, ALIGNED, VARIABLE, WIDE, DEEP, SORTED, GENERATED, BARE, THREAD, EDGE, VDSO };
static struct site sites[] = {SITE(path_aa), SITE(path_bbb), SITE(on_signal), SITE(aligned),
                              SITE(variable), SITE(wide),    SITE(deep),      SITE(compare),
                              SITE(generated), SITE(bare),   SITE(in_thread),
                              SITE(on_edge),   SITE(in_vdso)};

/* Keeps what is in front of it from being a jump to what comes. */
#define STAY __asm__ volatile("" ::: "memory")

__attribute__((always_inline)) static inline void leave(int site, size_t n, int times) {
    for (int i = 0; i < times; i++)
        keep(&sites[site], malloc(n), n);
}

NOINLINE void path_aa(void) { keep(&sites[SHORT_A], malloc(10), 10); STAY; }
NOINLINE void path_a(void) { path_aa(); STAY; }
NOINLINE void path_bbb(void) { keep(&sites[LONG_B], malloc(20), 20); STAY; }
NOINLINE void path_bb(void) { path_bbb(); STAY; }
NOINLINE void path_b(void) { path_bb(); STAY; }

NOINLINE void on_signal(int signal) {
    (void)signal;
    leave(IN_SIGNAL, 33, 3);
    STAY;
}

NOINLINE void raises(void) {
    raise(SIGUSR1);
    STAY;
}

NOINLINE void aligned(int x) {
    alignas(64) volatile char room[256];
    room[x & 255] = 1;
    leave(ALIGNED, 40, 2);
    STAY;
}

NOINLINE void variable(int n) {
    volatile char room[n];
    room[n - 1] = 1;
    leave(VARIABLE, 50, 2);
    STAY;
}

/* Frames of more than a page. */
NOINLINE void wide(int depth) {
    volatile char room[5000];
    room[depth] = 1;
    if (depth > 0)
        wide(depth - 1);
    else
        leave(WIDE, 60, 2);
    STAY;
}

NOINLINE void deep(int depth) {
    if (depth > 0)
        deep(depth - 1);
    else
        leave(DEEP, 70, 2);
    STAY;
}

NOINLINE int compare(const void *a, const void *b) {
    leave(SORTED, 80, 1);
    STAY;
    return *(const int *)a - *(const int *)b;
}

NOINLINE void sorts(void) {
    int two[] = {2, 1};
    qsort(two, 2, sizeof *two, compare);
    STAY;
}

NOINLINE void generated(void) {
    leave(GENERATED, 90, 2);
    STAY;
}

/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char thunk[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static void (*call)(void (*)(void));

/* Its frame has pages without memory, as an array has that nothing was written to. */
NOINLINE void calls_generated(void) {
    char room[5 * 4096];
    uintptr_t page = ((uintptr_t)room + 4095) & ~(uintptr_t)4095;
    madvise((void *)page, 4 * 4096, MADV_DONTNEED);
    call(generated);
    __asm__ volatile("" : : "r"(room) : "memory");
}

NOINLINE void bare(void) {
    leave(BARE, 100, 2);
    STAY;
}

/* No unwind table says how this is left, and the frame pointer is used for something else. It is zero,
 * as at the start of a thread. */
__asm__(".text\n"
        ".type bare_call, @function\n"
        "bare_call:\n"
        "    push %rbp\n"
        "    xor %ebp, %ebp\n"
        "    sub $32, %rsp\n"
        "    call *%rdi\n"
        "    add $32, %rsp\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size bare_call, . - bare_call\n");
void bare_call(void (*function)(void));

NOINLINE void calls_bare(void) {
    bare_call(bare);
    STAY;
}

NOINLINE void *in_thread(void *unused) {
    leave(THREAD, 110, 2);
    STAY;
    return unused;
}

NOINLINE void on_edge(void) {
    leave(EDGE, 120, 2);
    STAY;
}

/* The caller's frame pointer is the first word of a page, the page below has never been touched,
 * and this frame reaches beyond it. */
NOINLINE int edge(void) {
    volatile char room[9000];
    if ((uintptr_t)__builtin_frame_address(0) % 4096 != 0)
        return 0;
    room[0] = 1;
    on_edge();
    STAY;
    return 1;
}

NOINLINE int shifted(int n) {
    volatile char room[n];
    room[n - 1] = 1;
    return edge() + (room[n - 1] - 1);
}

NOINLINE void *edges(void *unused) {
    for (int n = 16; n <= 8192; n += 16)
        if (shifted(n))
            return unused;
    _exit(73);
}

NOINLINE void in_vdso(void) {
    leave(VDSO, 130, 1);
    STAY;
}

enum { TRAP_FLAG = 0x100, VDSO_SIZE = 0x2000, TRAPS = 20 };
static int n_traps;

/* Comes after each instruction: in the first ones of the vDSO, which has no file. */
NOINLINE void on_trap(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal;
    (void)info;
    if ((unsigned long)registers[REG_RIP] - getauxval(AT_SYSINFO_EHDR) < VDSO_SIZE) {
        in_vdso();
        n_traps++;
    }
    if (n_traps == TRAPS)
        registers[REG_EFL] &= ~TRAP_FLAG;
    STAY;
}

NOINLINE void reads_clock(void) {
    struct timespec now;
    n_traps = 0;
    /* Not in the red zone. */
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
                     "pushf\n\t"
                     "orq %0, (%%rsp)\n\t"
                     "popf\n\t"
                     "lea 128(%%rsp), %%rsp"
                     :
                     : "i"(TRAP_FLAG)
                     : "memory", "cc");
    clock_gettime(CLOCK_MONOTONIC, &now);
    STAY;
}

NOINLINE void starts_thread(void *(*main)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, main, NULL) != 0)
        _exit(72);
    pthread_join(thread, NULL);
    STAY;
}

static const char *only;

static int wants(const char *path) { return !only || strcmp(only, path) == 0; }

static NOINLINE void batch(int n) {
    if (wants("short"))
        path_a();
    if (wants("long"))
        path_b();
    if (wants("signal"))
        raises();
    if (wants("aligned"))
        aligned(n);
    if (wants("variable"))
        variable(100 + n % 2);
    if (wants("wide"))
        wide(30);
    if (wants("sorted"))
        sorts();
    if (wants("generated"))
        calls_generated();
    if (wants("thread"))
        starts_thread(in_thread);
    if (wants("edge"))
        starts_thread(edges);
    if (only && wants("deep"))
        deep(300);
    if (only && wants("bare"))
        calls_bare();
    if (only && wants("vdso"))
        reads_clock();
    STAY;
}

int main(int argc, char **argv) {
    only = argc > 1 ? argv[1] : NULL;
    signal(SIGUSR1, on_signal);
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &trap, NULL);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, thunk, sizeof thunk);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    call = (void (*)(void (*)(void)))page;
    return BATCHES(batch, sites);
}
