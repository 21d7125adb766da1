// Per batch, 50 blocks of 64 bytes are left by each of two instances of one template, whose names
// differ behind the first parenthesis alone.
#include "../c/batch.h"

static struct site sites[] = {SITE(instances)};

static void first() {}
static int second(int n) { return n; }

template <class F> NOINLINE void exec(F *) { keep(&sites[0], malloc(64), 64); }

NOINLINE void instances() {
    exec(first);
    exec(second);
}

static void batch(int) {
    for (int i = 0; i < 50; i++)
        instances();
}

int main() { return BATCHES(batch, sites); }
