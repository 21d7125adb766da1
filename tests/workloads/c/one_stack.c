/* Two threads at once leave 20,000 blocks of 4 bytes each per batch from one and the same
 * stack. */
#include "step.h"

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(4), 4); }

static void work(int thread) {
    (void)thread;
    for (int i = 0; i < 20000; i++)
        leaky();
}

int main(void) {
    step_threads(2, NULL, work);
    return BATCHES(step, sites);
}
