/* Leaves 100 blocks of 64 bytes among 100,000 that are freed at once, per batch. */
#include "batch.h"

static struct site sites[] = {SITE(leaky)};

NOINLINE void pair(void) { free(malloc(64)); }
NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100000; i++) {
        pair();
        if (i % 1000 == 0)
            leaky();
    }
}

int main(void) { return BATCHES(batch, sites); }
