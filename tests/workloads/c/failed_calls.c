/* Leaves nothing: 1,000 each of malloc, calloc and mmap fail per batch. */
#include <sys/mman.h>

#include "batch.h"

static struct site sites[] = {SITE(fail)};
static volatile size_t huge = PTRDIFF_MAX, half = SIZE_MAX / 2, none = 0;

NOINLINE void fail(void) {
    if (malloc(huge) || calloc(half, 4))
        _exit(72);
    if (mmap(NULL, none, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        _exit(72);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 1000; i++)
        fail();
}

int main(void) { return BATCHES(batch, sites); }
