/* Leaves 100 aligned_alloc and 100 memalign of 640 bytes per batch; 100 malloc are freed. In
 * some C libraries several of these names are one address. */
#include <malloc.h>

#include "batch.h"

static struct site sites[] = {SITE(standard), SITE(old)};

NOINLINE void standard(void) { keep(&sites[0], aligned_alloc(64, 640), 640); }

NOINLINE void old(void) { keep(&sites[1], memalign(64, 640), 640); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        standard();
        old();
        free(malloc(64));
    }
}

int main(void) { return BATCHES(batch, sites); }
