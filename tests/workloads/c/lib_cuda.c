/* The allocation functions of CUDA's runtime and driver, without a device: addresses are given
 * out and never used. The runtime calls the driver, and malloc for its own lists. */
#include <stdint.h>
#include <stdlib.h>

static uintptr_t next = 0x700000000000;

__attribute__((noinline)) int cuMemAlloc_v2(uintptr_t *out, size_t n) {
    if (n > (size_t)1 << 40)
        return 2;
    free(malloc(40));
    *out = __atomic_fetch_add(&next, (n + 511) & ~(size_t)511, __ATOMIC_RELAXED);
    return 0;
}
__attribute__((noinline)) int cuMemFree_v2(uintptr_t p) { return p ? 0 : 1; }
int cudaMalloc(void **out, size_t n) { return cuMemAlloc_v2((uintptr_t *)out, n); }
int cudaMallocManaged(void **out, size_t n, unsigned f) { return (void)f, cudaMalloc(out, n); }
int cudaMallocAsync(void **out, size_t n, void *s) { return (void)s, cudaMalloc(out, n); }
int cudaMallocHost(void **out, size_t n) { return (*out = malloc(n)) ? 0 : 2; }
int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 511) & ~(size_t)511;
    return cudaMalloc(out, *pitch * height);
}
int cudaFree(void *p) { return cuMemFree_v2((uintptr_t)p); }
int cudaFreeAsync(void *p, void *s) { return (void)s, cudaFree(p); }
int cudaFreeHost(void *p) { return free(p), 0; }
