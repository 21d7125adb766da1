/* Two coroutines on one thread. The program's own malloc, around the C library's, switches to
 * the second one in the middle of a call of the first: it allocates and frees 100 blocks of
 * 32 bytes there, leaves one of 48, and switches back. The first leaves 64 bytes each time. */
#include <ucontext.h>

#include "batch.h"

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

enum { STACK = 64 << 10, TIMES = 50 };
static struct site sites[] = {SITE(first), SITE(second)};
static char stacks[2][STACK] __attribute__((aligned(4096)));
static ucontext_t outside, one, two;
static int switches;

NOINLINE void *malloc(size_t n) {
    if (switches && n == 64) {
        switches = 0;
        swapcontext(&one, &two);
    }
    return __libc_malloc(n);
}

NOINLINE void free(void *p) { __libc_free(p); }

NOINLINE void first(void) {
    switches = 1;
    keep(&sites[0], malloc(64), 64);
}

NOINLINE void second(void) { keep(&sites[1], malloc(48), 48); }

static void run_one(void) {
    for (;;) {
        for (int i = 0; i < TIMES; i++)
            first();
        swapcontext(&one, &outside);
    }
}

static void run_two(void) {
    for (;;) {
        for (int i = 0; i < 100; i++)
            free(malloc(32));
        second();
        swapcontext(&two, &one);
    }
}

static void prepare(ucontext_t *context, char *stack, void (*run)(void)) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK;
    makecontext(context, run, 0);
}

static void batch(int n) {
    (void)n;
    swapcontext(&outside, &one);
}

/* The argument says whose stack is the upper one. */
int main(int argc, char **argv) {
    int first_is_upper = mode_is(argc, argv, "upper");
    prepare(&one, stacks[first_is_upper], run_one);
    prepare(&two, stacks[!first_is_upper], run_two);
    return BATCHES(batch, sites);
}
