/* Every batch gains 100 bytes in gains_100() and 200 in gains_200(), and gives back one block
 * of 150 bytes of those that the first batch made in shrinks(): +150 bytes net. */
#include "batch.h"

static struct site sites[] = {SITE(gains_100), SITE(shrinks), SITE(gains_200)};
static void *stock[64];

NOINLINE void gains_100(void) { keep(&sites[0], malloc(100), 100); }

NOINLINE void gains_200(void) { keep(&sites[2], malloc(200), 200); }

NOINLINE void shrinks(void) {
    for (int i = 0; i < 64; i++)
        stock[i] = keep(&sites[1], malloc(150), 150);
}

static void batch(int n) {
    if (n == 1)
        shrinks();
    gains_100();
    gains_200();
    drop(&sites[1], 150);
    free(stock[n - 1]);
}

int main(void) { return BATCHES(batch, sites); }
