/* Functions that are hard to leave while a signal comes to them, and a call that is bound when it is
 * made first. Meant to be compiled with optimization and without frame pointers, and linked with
 * -z lazy. */
#include <stdalign.h>
#include <unistd.h>

/* Realigns its stack where that varies: its caller's is kept in a register until it is saved. */
int realigns(int n) {
    alignas(64) volatile char room[64];
    volatile char more[n];
    room[n & 63] = 1;
    more[n - 1] = room[n & 63];
    return getppid() + more[n - 1];
}

/* So does assembly of cryptography: where the caller's stack is, is in memory at the stack pointer. */
__asm__(".text\n"
        ".globl remembers\n"
        ".type remembers, @function\n"
        "remembers:\n"
        "    .cfi_startproc\n"
        "    mov %rsp, %rax\n"
        "    .cfi_def_cfa %rax, 8\n"
        "    push %rbp\n"
        "    .cfi_offset %rbp, -16\n"
        "    mov $0x1230, %ebp\n"
        "    sub $72, %rsp\n"
        "    and $-64, %rsp\n"
        "    mov %rax, 40(%rsp)\n"
        /* The CFA is what is in memory at %rsp plus 40, plus eight. */
        "    .cfi_escape 0x0f, 5, 0x77, 40, 0x06, 0x23, 8\n"
        "    call getppid@PLT\n"
        "    mov 40(%rsp), %rdx\n"
        "    .cfi_def_cfa %rdx, 8\n"
        "    mov -8(%rdx), %rbp\n"
        "    .cfi_restore %rbp\n"
        "    mov %rdx, %rsp\n"
        "    .cfi_def_cfa_register %rsp\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size remembers, . - remembers\n");
