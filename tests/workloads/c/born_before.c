/* 10,000 blocks of 1,024 bytes are made before READY; each batch frees 100 of them. A tool
 * that attaches after READY never saw them made. */
#include "batch.h"

static struct site sites[] = {SITE(prepare)};
static void *blocks[10000];
static int n_freed;

NOINLINE void prepare(void) {
    for (int i = 0; i < 10000; i++)
        blocks[i] = keep(&sites[0], malloc(1024), 1024);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        drop(&sites[0], 1024);
        free(blocks[n_freed++]);
    }
}

int main(void) {
    prepare();
    return BATCHES(batch, sites);
}
