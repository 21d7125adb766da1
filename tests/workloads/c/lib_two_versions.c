/* Two versions of malloc in one library, as symbol versioning has it; the default is the
 * second. A bump allocator whose free does nothing. */
#include <stddef.h>

static _Alignas(16) unsigned char heap[1 << 26];
static size_t used;

void *malloc_old(size_t n) {
    (void)n;
    return NULL;
}

void *malloc_new(size_t n) {
    size_t at = __atomic_fetch_add(&used, (n + 15) & ~(size_t)15, __ATOMIC_RELAXED);
    return at + n <= sizeof heap ? heap + at : NULL;
}

__asm__(".symver malloc_old, malloc@V1");
__asm__(".symver malloc_new, malloc@@V2");

void free(void *p) { (void)p; }
