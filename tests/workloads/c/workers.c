/* Four worker threads leave 100 blocks of 64 bytes each per batch, 25,600 bytes together;
 * the main thread allocates nothing. */
#include "step.h"

static struct site sites[] = {SITE(leaky)};
enum { THREADS = 4 };

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void work(int thread) {
    (void)thread;
    for (int i = 0; i < 100; i++)
        leaky();
}

int main(void) {
    step_threads(THREADS, NULL, work);
    return BATCHES(step, sites);
}
