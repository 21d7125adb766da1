/* Leaves nothing: per batch 1,000 blocks go back by free_sized and 1,000 by
 * free_aligned_sized, which are looked up at run time because C libraries before C23 have
 * neither. Exits with 77 when they are absent. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "batch.h"

static struct site sites[] = {SITE(sized), SITE(aligned_sized)};
static void (*free_with_size)(void *, size_t);
static void (*free_with_alignment)(void *, size_t, size_t);

NOINLINE void sized(void) { free_with_size(malloc(100), 100); }

NOINLINE void aligned_sized(void) { free_with_alignment(aligned_alloc(64, 128), 64, 128); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 1000; i++) {
        sized();
        aligned_sized();
    }
}

int main(void) {
    *(void **)&free_with_size = dlsym(RTLD_DEFAULT, "free_sized");
    *(void **)&free_with_alignment = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!free_with_size || !free_with_alignment)
        return 77;
    return BATCHES(batch, sites);
}
