/* Per batch 100 calloc of 5,000 bytes, 100 posix_memalign of 3,000 and 100 reallocarray of 700.
 * C libraries make them by calling malloc, aligned_alloc and realloc, or by jumping there. "keep"
 * leaves 300 blocks and 870,000 bytes, "free" nothing. */
#define _GNU_SOURCE
#include "batch.h"

static struct site sites[] = {SITE(zeroed), SITE(aligned), SITE(array)};
static int keeps;

NOINLINE void zeroed(void) {
    void *p = calloc(1, 5000);
    if (keeps)
        keep(&sites[0], p, 5000);
    else
        free(p);
}

NOINLINE void aligned(void) {
    void *p = NULL;
    if (posix_memalign(&p, 64, 3000))
        _exit(72);
    if (keeps)
        keep(&sites[1], p, 3000);
    else
        free(p);
}

NOINLINE void array(void) {
    void *p = reallocarray(NULL, 7, 100);
    if (keeps)
        keep(&sites[2], p, 700);
    else
        free(p);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        zeroed();
        aligned();
        array();
    }
}

int main(int argc, char **argv) {
    keeps = mode_is(argc, argv, "keep");
    return BATCHES(batch, sites);
}
