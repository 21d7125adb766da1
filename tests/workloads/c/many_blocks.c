/* The first batch keeps 2,000,000 blocks of 16 bytes, more than small tables hold; each later
 * batch leaves 100 blocks of 64 bytes in leaky(). */
#include "batch.h"

static struct site sites[] = {SITE(crowd), SITE(leaky)};

NOINLINE void crowd(void) { keep(&sites[0], malloc(16), 16); }

NOINLINE void leaky(void) { keep(&sites[1], malloc(64), 64); }

static void batch(int n) {
    if (n == 1)
        for (int i = 0; i < 2000000; i++)
            crowd();
    else
        for (int i = 0; i < 100; i++)
            leaky();
}

int main(void) { return BATCHES(batch, sites); }
