/* A resource whose `handle_close` keeps a block of 40 bytes: per batch 100 of them, one half called
 * through a function that is deep in the stack. */
#include "batch.h"

static struct site sites[] = {SITE(logs), SITE(closes), SITE(closes_deep)};
static char handles[200];

NOINLINE void logs(struct site *closer) {
    void *p = keep(&sites[0], malloc(40), 40);
    (void)p;
    __atomic_fetch_add(&closer->blocks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&closer->bytes, 40, __ATOMIC_RELAXED);
}

NOINLINE void *handle_open(size_t size, int number) {
    (void)size;
    return handles + number;
}

NOINLINE int handle_close(void *handle, struct site *closer) {
    logs(closer);
    return handle != handles;
}

NOINLINE int closes(int number) {
    return handle_close(handle_open(1, number), &sites[1]) + 1;
}

NOINLINE int closes_deep(int number) {
    volatile char large[20000];
    large[0] = large[19999] = (char)number;
    return handle_close(handle_open(1, number), &sites[2]) + large[0];
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 50; i++) {
        closes(i);
        closes_deep(i + 100);
    }
}

int main(void) { return BATCHES(batch, sites); }
