// Leaves nothing: per batch operator new fails 100 times and its exception is caught. Ends
// with 72 when one was not.
#include <new>

#include "../c/batch.h"

static struct site sites[] = {SITE(fails)};
static volatile size_t huge = size_t(1) << 62;
static char *volatile result;

NOINLINE void fails() {
    try {
        result = new char[huge];
    } catch (const std::bad_alloc &) {
        return;
    }
    _exit(72);
}

static void batch(int) {
    for (int i = 0; i < 100; i++)
        fails();
}

int main() { return BATCHES(batch, sites); }
