/* Eight workers make 1,000 blocks of 256 bytes each per batch, and the first thread frees all
 * of them: nothing stays, in total and of any stack. */
#include "step.h"

enum { THREADS = 8, BLOCKS = 1000 };
static struct site sites[] = {SITE(makes)};
static void *blocks[THREADS][BLOCKS];

NOINLINE void *makes(void) { return malloc(256); }

static void work(int thread) {
    for (int i = 0; i < BLOCKS; i++)
        blocks[thread][i] = makes();
}

static void batch(int n) {
    step(n);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < BLOCKS; j++)
            free(blocks[i][j]);
}

int main(void) {
    step_threads(THREADS, NULL, work);
    return BATCHES(batch, sites);
}
