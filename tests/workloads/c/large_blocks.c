/* Leaves 10 blocks of a mapping's size per batch, one of them grown by realloc. */
#include "batch.h"

static struct site sites[] = {SITE(large)};

NOINLINE void large(int i) {
    void *p = malloc(1 << 20);
    if (i == 0)
        p = realloc(p, 8 << 20);
    keep(&sites[0], p, i == 0 ? 8 << 20 : 1 << 20);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 10; i++)
        large(i);
}

int main(void) { return BATCHES(batch, sites); }
