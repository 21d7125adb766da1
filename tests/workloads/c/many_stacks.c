/* Per batch, leaves one block of 16 bytes in each of 2^n stacks, n being the first argument, 17 at the
 * most: on each of 17 levels one of two functions calls the next. */
#include "batch.h"

static struct site sites[] = {SITE(deepest)};
static unsigned n_stacks = 1u << 17;

NOINLINE void deepest(unsigned path) {
    (void)path;
    keep(&sites[0], malloc(16), 16);
}

#define LEVEL(level, next_left, next_right)                                                        \
    NOINLINE void left_##level(unsigned path) {                                                    \
        path >> level & 1 ? next_left(path) : next_right(path);                                    \
    }                                                                                              \
    NOINLINE void right_##level(unsigned path) {                                                   \
        path >> level & 1 ? next_left(path) : next_right(path);                                    \
    }

LEVEL(0, deepest, deepest)
LEVEL(1, left_0, right_0)
LEVEL(2, left_1, right_1)
LEVEL(3, left_2, right_2)
LEVEL(4, left_3, right_3)
LEVEL(5, left_4, right_4)
LEVEL(6, left_5, right_5)
LEVEL(7, left_6, right_6)
LEVEL(8, left_7, right_7)
LEVEL(9, left_8, right_8)
LEVEL(10, left_9, right_9)
LEVEL(11, left_10, right_10)
LEVEL(12, left_11, right_11)
LEVEL(13, left_12, right_12)
LEVEL(14, left_13, right_13)
LEVEL(15, left_14, right_14)
LEVEL(16, left_15, right_15)

static void batch(int n) {
    (void)n;
    for (unsigned path = 0; path < n_stacks; path++)
        left_16(path);
}

int main(int argc, char **argv) {
    if (argc > 1)
        n_stacks = 1u << atoi(argv[1]);
    return BATCHES(batch, sites);
}
