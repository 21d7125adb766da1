/* Leaves nothing: what a batch allocates, in several ways and sizes, it frees. */
#include "batch.h"

static struct site sites[] = {SITE(work)};

NOINLINE void work(int i) {
    char *p = malloc((size_t)i + 1), *q = calloc(3, (size_t)i + 1);
    p = realloc(p, 2 * (size_t)i + 1);
    free(p);
    free(q);
    free(NULL);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 1000; i++)
        work(i);
}

int main(void) { return BATCHES(batch, sites); }
