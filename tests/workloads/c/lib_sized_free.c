/* A library that brings the C23 deallocators, each by calling free. */
#include <stdlib.h>

void free_sized(void *p, size_t n) {
    (void)n;
    free(p);
}

void free_aligned_sized(void *p, size_t alignment, size_t n) {
    (void)alignment;
    (void)n;
    free(p);
}
