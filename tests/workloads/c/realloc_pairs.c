/* Leaves nothing. Per batch 1,000 blocks are grown by realloc and freed: "small" stays in
 * the heap (8 to 16 bytes), "large" crosses the size from which glibc maps blocks. */
#include "batch.h"

static struct site sites[] = {SITE(grow_and_free)};
static size_t before = 8, after = 16;

NOINLINE void grow_and_free(void) {
    char *p = malloc(before);
    p = realloc(p, after);
    free(p);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 1000; i++)
        grow_and_free();
}

int main(int argc, char **argv) {
    if (mode_is(argc, argv, "large")) {
        before = 100;
        after = 300000;
    }
    return BATCHES(batch, sites);
}
