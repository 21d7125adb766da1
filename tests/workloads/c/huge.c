/* From the third batch on, each leaves one untouched block of 5 GiB: sizes and sums that need
 * more than 32 bits. */
#include "batch.h"

static struct site sites[] = {SITE(reserve)};

NOINLINE void reserve(void) { keep(&sites[0], malloc(5ul << 30), 5ul << 30); }

static void batch(int n) {
    if (n >= 3)
        reserve();
}

int main(void) { return BATCHES(batch, sites); }
