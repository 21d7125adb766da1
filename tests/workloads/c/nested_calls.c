/* Per batch 100 calloc of 5,000 bytes and 100 posix_memalign of 3,000. Some C libraries make
 * them by calling malloc and aligned_alloc. "keep" leaves 200 blocks and 800,000 bytes,
 * "free" nothing. */
#include "batch.h"

static struct site sites[] = {SITE(zeroed), SITE(aligned)};
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

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        zeroed();
        aligned();
    }
}

int main(int argc, char **argv) {
    keeps = mode_is(argc, argv, "keep");
    return BATCHES(batch, sites);
}
