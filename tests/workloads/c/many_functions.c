/* Per batch 100 blocks of 64 bytes are left by way of one of 200,000 functions. */
#include "batch.h"

static struct site sites[] = {SITE(f_123456)};

NOINLINE void leaves(void) {
    void *p = malloc(64);
    keep(&sites[0], p, 64);
}

#include "functions.h"

void f_123456(void);

static NOINLINE void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        f_123456();
}

int main(void) { return BATCHES(batch, sites); }
