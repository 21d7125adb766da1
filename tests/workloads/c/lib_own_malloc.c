/* A library that brings an allocator of its own and leaks from it. */
#include <stddef.h>

static _Alignas(16) char heap[16 << 20];
static size_t used;

__attribute__((noinline)) void *malloc(size_t n) {
    void *p = heap + used;
    used += (n + 15) & ~(size_t)15;
    return p;
}
__attribute__((noinline)) void free(void *p) { (void)p; }

void *leaky_library(size_t n) {
    free(malloc(n));
    return malloc(n);
}
