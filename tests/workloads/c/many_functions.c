/* 200,000 functions, f_0 to f_199999, each with an unwind table, calling leaves(). Written in assembly,
 * which takes seconds where a compiler takes minutes. Per batch 100 blocks of 64 bytes are left by way
 * of f_123456. */
#include "batch.h"

static struct site sites[] = {SITE(f_123456)};

NOINLINE void leaves(void) {
    void *p = malloc(64);
    keep(&sites[0], p, 64);
}

__asm__(".text\n"
        ".altmacro\n"
        ".macro function number\n"
        ".type f_\\number, @function\n"
        "f_\\number:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbx, -16\n"
        "    sub $16, %rsp\n"
        "    .cfi_def_cfa_offset 32\n"
        "    call leaves\n"
        "    add $16, %rsp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    pop %rbx\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size f_\\number, . - f_\\number\n"
        ".endm\n"
        ".set number, 0\n"
        ".rept 200000\n"
        "function %number\n"
        ".set number, number + 1\n"
        ".endr\n"
        ".noaltmacro\n");
void f_123456(void);

static NOINLINE void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        f_123456();
}

int main(void) { return BATCHES(batch, sites); }
