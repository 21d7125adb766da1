/* Has more parts of executable mappings than the kernel's table for walking stacks takes, by the time
 * that it is ready. Leaves 100 blocks of 64 bytes, 6,400 bytes, per batch in leaky(). */
#include <sys/mman.h>

#include "batch.h"

/* Each mapping takes some ten parts, since its length and its address are odd. */
enum { MAPPINGS = 30000, LENGTH = 1023 * 4096 };
static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        leaky();
}

int main(void) {
    int fd = open("/proc/self/exe", O_RDONLY);
    for (int i = 0; i < MAPPINGS; i++)
        if (mmap(NULL, LENGTH, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
            return 71;
    return BATCHES(batch, sites);
}
