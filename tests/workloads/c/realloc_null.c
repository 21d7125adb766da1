/* Leaves 100 blocks of 123 bytes per batch, made by realloc of a null pointer. The pointer
 * comes through a parameter, so that no compiler makes it a malloc. */
#include "batch.h"

static struct site sites[] = {SITE(grow)};

NOINLINE void *grow(void *p, size_t n) { return realloc(p, n); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        keep(&sites[0], grow(NULL, 123), 123);
}

int main(void) { return BATCHES(batch, sites); }
