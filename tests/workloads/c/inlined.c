/* Leaves 100 blocks of 64 bytes, 6,400 bytes, per batch in leaky(), which has no code of its own: it
 * is inlined into around(). */
#include "batch.h"

static struct site sites[] = {SITE(leaky)};

static inline __attribute__((always_inline)) void leaky(void) { keep(&sites[0], malloc(64), 64); }

NOINLINE void around(void) { leaky(); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        around();
}

int main(void) { return BATCHES(batch, sites); }
