/* Leaves 100 blocks of 64 bytes per batch from an allocator that the program itself defines
 * and exports. */
#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static _Alignas(16) unsigned char heap[1 << 26];
static size_t used;

NOINLINE void *malloc(size_t n) {
    size_t at = __atomic_fetch_add(&used, (n + 15) & ~(size_t)15, __ATOMIC_RELAXED);
    return at + n <= sizeof heap ? heap + at : NULL;
}

NOINLINE void free(void *p) { (void)p; }

NOINLINE void *calloc(size_t n, size_t size) { return malloc(n * size); }

NOINLINE void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    if (p && q)
        memmove(q, p, n);
    return q;
}

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        leaky();
}

int main(void) { return BATCHES(batch, sites); }
