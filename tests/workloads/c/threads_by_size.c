/* Eight threads at once; in each batch thread i leaves blocks of 16 * (i + 1) bytes from its
 * own function: 1,000 of each. */
#include "step.h"

static struct site sites[] = {SITE(t0), SITE(t1), SITE(t2), SITE(t3),
                              SITE(t4), SITE(t5), SITE(t6), SITE(t7)};
enum { THREADS = 8, BLOCKS = 1000 };

#define WORKER(i)                                                                              \
    NOINLINE void t##i(void) { keep(&sites[i], malloc(16 * (i + 1)), 16 * (i + 1)); }
WORKER(0) WORKER(1) WORKER(2) WORKER(3) WORKER(4) WORKER(5) WORKER(6) WORKER(7)
static void (*const leave[])(void) = {t0, t1, t2, t3, t4, t5, t6, t7};

static void work(int thread) {
    for (int i = 0; i < BLOCKS; i++)
        leave[thread]();
}

int main(void) {
    step_threads(THREADS, NULL, work);
    return BATCHES(step, sites);
}
