// Per batch, 100 times bar() calls foo(), which leaves an int behind.
#include "../c/batch.h"

static struct site sites[] = {SITE(foo)};

NOINLINE int *foo() {
    int *made = new int;
    keep(&sites[0], made, sizeof *made);
    return made;
}

NOINLINE int bar() { return *foo() + 1; }

static void batch(int n) {
    volatile int sum = n;
    for (int i = 0; i < 100; i++)
        sum = sum + bar();
}

int main() { return BATCHES(batch, sites); }
