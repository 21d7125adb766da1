/* Code without unwind tables in one stretch of memory, of two kinds: what keeps a frame pointer, and from
 * the second batch on trampolines as python3 -X perf makes them, which do not. Each calls a function that
 * leaves a block of 32 bytes. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "batch.h"

enum { PAGE = 4096, STRETCH = 2 << 20, N_TRAMPOLINES = 3 };

static struct site sites[] = {SITE(by_frame_pointer), SITE(by_trampoline)};

/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char thunk[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* sub rsp, 8; call rdi; add rsp, 8; ret */
static const unsigned char trampoline[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};

static unsigned char *code;

/* Keeps what is in front of it from being a jump to what comes. */
#define STAY __asm__ volatile("" ::: "memory")

NOINLINE void by_frame_pointer(void) {
    keep(&sites[0], malloc(32), 32);
    STAY;
}

NOINLINE void by_trampoline(void) {
    keep(&sites[1], malloc(32), 32);
    STAY;
}

/* Calls code with a function, and uses the frame pointer for something else meanwhile. */
__asm__(".text\n"
        ".type with_number, @function\n"
        "with_number:\n"
        "    .cfi_startproc\n"
        "    push %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    mov $0x1230, %ebp\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    call *%rax\n"
        "    pop %rbp\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size with_number, . - with_number\n");
void with_number(void *code, void (*function)(void));

static void make(unsigned char *page, const unsigned char *what, size_t n, int times) {
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(72);
    for (int i = 0; i < times; i++)
        memcpy(page + 16 * i, what, n);
    if (mprotect(page, PAGE, PROT_READ | PROT_EXEC) != 0)
        _exit(72);
}

static NOINLINE void batch(int n) {
    if (n == 2)
        make(code + PAGE, trampoline, sizeof trampoline, N_TRAMPOLINES);
    with_number(code, by_frame_pointer);
    if (n >= 2)
        with_number(code + PAGE + 16 * (n % N_TRAMPOLINES), by_trampoline);
    STAY;
}

int main(void) {
    unsigned char *room =
        mmap(NULL, 2 * STRETCH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return 72;
    code = room + STRETCH - (uintptr_t)room % STRETCH;
    make(code, thunk, sizeof thunk, 1);
    return BATCHES(batch, sites);
}
