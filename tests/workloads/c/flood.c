/* Leaves nothing: threads malloc and free flat out. The first argument is the number of
 * pairs per thread and batch, the second the number of threads. */
#include "step.h"

static struct site sites[] = {SITE(pair)};
static long pairs, threads;

NOINLINE void pair(void) { free(malloc(16)); }

static void work(int thread) {
    (void)thread;
    for (long i = 0; i < pairs; i++)
        pair();
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 72;
    pairs = atol(argv[1]);
    threads = atol(argv[2]);
    step_threads((int)threads, NULL, work);
    return BATCHES(step, sites);
}
