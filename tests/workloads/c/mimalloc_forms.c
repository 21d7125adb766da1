/* What mimalloc offers under its own names. */
#include "batch.h"

extern void *mi_malloc(size_t), *mi_zalloc(size_t), *mi_calloc(size_t, size_t);
extern void *mi_mallocn(size_t, size_t), *mi_realloc(void *, size_t), *mi_malloc_small(size_t);
extern void *mi_malloc_aligned(size_t, size_t), *mi_new(size_t), *mi_heap_get_default(void);
extern void *mi_heap_malloc(void *, size_t), *mi_heap_realloc(void *, void *, size_t);
extern void mi_free(void *), mi_free_size(void *, size_t), mi_free_aligned(void *, size_t);

static struct site sites[] = {SITE(plain), SITE(arrays), SITE(grown), SITE(heaps), SITE(news)};

NOINLINE void *plain(int i) { return i % 2 ? mi_malloc(100) : i % 4 ? mi_zalloc(100) : mi_malloc_small(100); }
NOINLINE void *arrays(int i) { return i % 2 ? mi_calloc(10, 20) : mi_mallocn(20, 10); }
NOINLINE void *grown(void) { return mi_realloc(mi_malloc_aligned(100, 64), 3000); }
NOINLINE void *heaps(void) {
    void *heap = mi_heap_get_default();
    return mi_heap_realloc(heap, mi_heap_malloc(heap, 50), 700);
}
NOINLINE void *news(void) { return mi_new(48); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        keep(&sites[0], plain(i), 100);
        keep(&sites[1], arrays(i), 200);
        keep(&sites[2], grown(), 3000);
        keep(&sites[3], heaps(), 700);
        keep(&sites[4], news(), 48);
        mi_free(plain(i));
        mi_free_size(news(), 48);
        mi_free_aligned(mi_malloc_aligned(64, 64), 64);
    }
}

int main(void) { return BATCHES(batch, sites); }
