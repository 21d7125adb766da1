/* Per batch, realloc of 10 blocks of 4,096 bytes fails. "keep" leaves the old blocks, which
 * are still live; "free" gives them back. */
#include "batch.h"

static struct site sites[] = {SITE(fail_to_grow)};
static volatile size_t huge = PTRDIFF_MAX;
static int keeps;

NOINLINE void fail_to_grow(void) {
    void *p = malloc(4096);
    if (realloc(p, huge))
        _exit(72);
    if (keeps)
        keep(&sites[0], p, 4096);
    else
        free(p);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 10; i++)
        fail_to_grow();
}

int main(int argc, char **argv) {
    keeps = mode_is(argc, argv, "keep");
    return BATCHES(batch, sites);
}
