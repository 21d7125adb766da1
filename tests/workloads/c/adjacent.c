/* Per batch, each of twenty small functions that lie side by side leaves one block: 8 bytes the first,
 * 16 the second, and so on. */
#include "batch.h"

#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) \
    do(13) do(14) do(15) do(16) do(17) do(18) do(19)

#define ITS_SITE(n) SITE(f##n),
static struct site sites[] = {EACH(ITS_SITE)};
static void *last;

/* What follows the call is one instruction or two. */
#define ITS_FUNCTION(n)                                                                            \
    NOINLINE void f##n(void) { last = malloc(8 * (n + 1)); }
EACH(ITS_FUNCTION)

#define ITS_CALL(n)                                                                                \
    f##n();                                                                                        \
    keep(&sites[n], last, 8 * (n + 1));

static NOINLINE void batch(int n) {
    (void)n;
    EACH(ITS_CALL)
}

int main(void) { return BATCHES(batch, sites); }
