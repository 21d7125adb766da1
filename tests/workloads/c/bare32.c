/* A 32-bit program that needs no C library of its own: says READY and waits. */
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

void _start(void) {
    call(4, 1, (long)"READY 0\n", 8);
    for (;;)
        call(29, 0, 0, 0);
}
