/* Memory of an accelerator, by the functions of CUDA. */
#include "batch.h"

extern int cudaMalloc(void **, size_t), cudaMallocManaged(void **, size_t, unsigned);
extern int cudaMallocAsync(void **, size_t, void *), cudaMallocHost(void **, size_t);
extern int cudaMallocPitch(void **, size_t *, size_t, size_t), cuMemAlloc_v2(void **, size_t);
extern int cudaFree(void *), cudaFreeAsync(void *, void *), cudaFreeHost(void *), cuMemFree_v2(void *);

static struct site sites[] = {SITE(device),  SITE(managed), SITE(stream),
                              SITE(pinned), SITE(pitched), SITE(driver)};

NOINLINE void *device(void) {
    void *p = NULL;
    (void)cudaMalloc(&p, (size_t)1 << 41);
    return cudaMalloc(&p, 1 << 20) ? NULL : p;
}
NOINLINE void *managed(void) {
    void *p = NULL;
    return cudaMallocManaged(&p, 3000, 1) ? NULL : p;
}
NOINLINE void *stream(void) {
    void *p = NULL;
    return cudaMallocAsync(&p, 5000, NULL) ? NULL : p;
}
NOINLINE void *pinned(void) {
    void *p = NULL;
    return cudaMallocHost(&p, 7000) ? NULL : p;
}
NOINLINE void *pitched(void) {
    void *p = NULL;
    size_t pitch;
    return cudaMallocPitch(&p, &pitch, 100, 30) ? NULL : p;
}
NOINLINE void *driver(void) {
    void *p = NULL;
    return cuMemAlloc_v2(&p, 9000) ? NULL : p;
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 20; i++) {
        keep(&sites[0], device(), 1 << 20);
        keep(&sites[1], managed(), 3000);
        keep(&sites[2], stream(), 5000);
        keep(&sites[3], pinned(), 7000);
        keep(&sites[4], pitched(), 3000);
        keep(&sites[5], driver(), 9000);
        cudaFree(device());
        cudaFree(managed());
        cudaFreeAsync(stream(), NULL);
        cudaFreeHost(pinned());
        cudaFree(pitched());
        cuMemFree_v2(driver());
    }
}

int main(void) { return BATCHES(batch, sites); }
