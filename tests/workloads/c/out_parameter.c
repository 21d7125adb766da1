/* Leaves 100 blocks of 4,096 bytes per batch from posix_memalign, which stores the pointer
 * for its caller. 100 further calls are refused and leave the caller's pointer alone. */
#include "batch.h"

static struct site sites[] = {SITE(aligned)};
static volatile size_t bad_alignment = 3;

NOINLINE void aligned(void) {
    void *p = NULL;
    if (posix_memalign(&p, 64, 4096))
        _exit(72);
    keep(&sites[0], p, 4096);
}

NOINLINE void refused(void) {
    void *p = (void *)0x1234;
    if (!posix_memalign(&p, bad_alignment, 4096) || p != (void *)0x1234)
        _exit(72);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        aligned();
    for (int i = 0; i < 100; i++)
        refused();
}

int main(void) { return BATCHES(batch, sites); }
