/* Leaves 100 blocks of 64 bytes per batch, from an allocator whose malloc is chosen when the
 * program is loaded (IFUNC). */
#include "batch.h"

static struct site sites[] = {SITE(leaky)};

static void *chosen(size_t n) { return malloc(n); }
static void *(*choose(void))(size_t) { return chosen; }
void *je_malloc(size_t n) __attribute__((ifunc("choose")));
void je_free(void *p) { free(p); }

NOINLINE void leaky(void) { keep(&sites[0], je_malloc(64), 64); }

static void batch(int n) {
    (void)n;
    je_free(malloc(1));
    for (int i = 0; i < 100; i++)
        leaky();
}

int main(void) { return BATCHES(batch, sites); }
