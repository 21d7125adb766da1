/* Leaves 100 blocks of 64 bytes, 6,400 bytes, per batch in leaky(). */
#include "batch.h"

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        leaky();
}

int main(void) { return BATCHES(batch, sites); }
