/* The second batch never ends; the others leave nothing. For timeouts and for killing a
 * program in the middle of a batch. */
#include "batch.h"

static struct site sites[] = {SITE(batch)};

static void batch(int n) {
    free(malloc(64));
    while (n == 2)
        pause();
}

int main(void) { return BATCHES(batch, sites); }
