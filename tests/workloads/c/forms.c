/* Per batch, from every function of the C library's allocator: blocks that are left, and as
 * many that are given back. Works with any allocator that offers these. */
#include "batch.h"

static struct site sites[] = {SITE(plain), SITE(zeroed), SITE(grown), SITE(aligned), SITE(small)};

NOINLINE void *plain(size_t n) { return malloc(n); }
NOINLINE void *zeroed(size_t n) { return calloc(n / 8, 8); }
NOINLINE void *grown(size_t n) { return realloc(malloc(16), n); }
NOINLINE void *aligned(size_t n) {
    void *p = NULL;
    return posix_memalign(&p, 64, n) ? NULL : p;
}
NOINLINE void *small(size_t n) { return malloc(n); }

static void batch(int number) {
    (void)number;
    for (int i = 0; i < 50; i++) {
        keep(&sites[0], plain(1000), 1000);
        keep(&sites[1], zeroed(2000), 2000);
        keep(&sites[2], grown(3000), 3000);
        keep(&sites[3], aligned(4096), 4096);
        free(plain(1000));
        free(zeroed(200000));
        free(grown(300000));
        free(aligned(4096));
    }
    /* Requested bytes count, not what an allocator rounds them up to. */
    for (int i = 0; i < 1000; i++)
        keep(&sites[4], small(12), 12);
}

int main(void) { return BATCHES(batch, sites); }
