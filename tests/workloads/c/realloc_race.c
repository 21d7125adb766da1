/* Four threads realloc a block up and down while four others malloc and free blocks of the
 * size that a realloc gives up, so that an address changes its owner at once. "leak": the
 * second group leaves every thousandth block. All blocks are freed at the end of the batch. */
#include "step.h"

static struct site sites[] = {SITE(one)};
enum { THREADS = 8, ROUNDS = 10000 };
static int leaks;

NOINLINE void resize(void) {
    char *p = malloc(16);
    for (int i = 0; i < ROUNDS; i++)
        p = realloc(p, (i & 1) ? 4096 : 16);
    free(p);
}

NOINLINE void *one(void) { return malloc(16); }

NOINLINE void pairs(void) {
    for (int i = 0; i < ROUNDS; i++) {
        void *q = one();
        if (leaks && i % 1000 == 0)
            keep(&sites[0], q, 16);
        else
            free(q);
    }
}

static void work(int thread) {
    (thread & 1) ? resize() : pairs();
}

int main(int argc, char **argv) {
    leaks = mode_is(argc, argv, "leak");
    step_threads(THREADS, NULL, work);
    return BATCHES(step, sites);
}
