/* A pool over one piece of memory, and a resource whose functions call malloc and free with
 * other pointers than they hand out. */
#include "batch.h"

static struct site sites[] = {SITE(pooled), SITE(rows), SITE(handles), SITE(usual)};
static _Alignas(16) char pool[64 << 20];
static size_t used;

NOINLINE void *pool_get(int tag, size_t n) {
    (void)tag;
    void *p = pool + used;
    used += (n + 15) & ~(size_t)15;
    return p;
}
NOINLINE void *pool_rows(size_t n, size_t size) { return pool_get(0, n * size); }
NOINLINE void pool_put(void *p) { (void)p; }

NOINLINE int handle_open(unsigned size, void **out) {
    if (size == 0)
        return 1;
    char *p = malloc(size + 16);
    *out = p + 16;
    return 0;
}
NOINLINE void handle_close(void *p) { free((char *)p - 16); }

NOINLINE void *pooled(void) { return pool_get(1, 100); }
NOINLINE void *rows(void) { return pool_rows(7, 30); }
NOINLINE void *handles(void) {
    void *p = NULL;
    handle_open(0, &p);
    return handle_open(500, &p) ? NULL : p;
}
NOINLINE void *usual(void) { return malloc(60); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        keep(&sites[0], pooled(), 100);
        keep(&sites[1], rows(), 210);
        keep(&sites[2], handles(), 500);
        keep(&sites[3], usual(), 60);
        pool_put(pooled());
        pool_put(rows());
        handle_close(handles());
        free(usual());
    }
}

int main(void) { return BATCHES(batch, sites); }
