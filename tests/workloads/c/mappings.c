/* Maps memory without an allocator, in the way that the first argument names. What is left
 * mapped is booked in maps(), in whole pages. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>

#include "batch.h"

#define MIB (1L << 20)
#define PAGE 4096L

static struct site sites[] = {SITE(maps)};
static char *mode;

static char *map(size_t n, int protection, int flags) {
    return mmap(NULL, n, protection, flags | MAP_ANONYMOUS, -1, 0);
}

static char *own(size_t n) { return map(n, PROT_READ | PROT_WRITE, MAP_PRIVATE); }

static void left(long pieces, long bytes) {
    sites[0].blocks += pieces;
    sites[0].bytes += bytes;
}

static int is(const char *name) { return strcmp(mode, name) == 0; }

static void once(void) {
    if (is("keep")) {
        own(MIB);
        left(1, MIB);
    } else if (is("raw")) {
        syscall(SYS_mmap, NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        left(1, MIB);
    } else if (is("hole")) {
        char *p = own(10 * PAGE);
        munmap(p + 3 * PAGE, 4 * PAGE);
        left(2, 6 * PAGE);
    } else if (is("pieces")) {
        char *p = own(10 * PAGE);
        munmap(p + 3 * PAGE, 4 * PAGE);
        munmap(p, 3 * PAGE);
        munmap(p + 7 * PAGE, 3 * PAGE);
    } else if (is("rounding")) {
        munmap(own(5000), 8192);
        munmap(own(8192), 5000);
    } else if (is("moved")) {
        mremap(own(MIB), MIB, 4 * MIB, MREMAP_MAYMOVE);
        left(1, 4 * MIB);
    } else if (is("moved-unmapped")) {
        munmap(mremap(own(MIB), MIB, 4 * MIB, MREMAP_MAYMOVE), 4 * MIB);
    } else if (is("shrunk")) {
        char *p = mremap(own(MIB), MIB, 4 * MIB, MREMAP_MAYMOVE);
        mremap(p, 4 * MIB, MIB, 0);
        left(1, MIB);
    } else if (is("twice")) {
        /* Shared memory; not the program's own. */
        mremap(map(MIB, PROT_READ | PROT_WRITE, MAP_SHARED), 0, MIB, MREMAP_MAYMOVE);
    } else if (is("committed")) {
        char *p = map(64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
        for (long i = 0; i < 64; i++)
            mmap(p + i * MIB, MIB, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
        left(64, 64 * MIB);
    } else if (is("reserved")) {
        map(1L << 30, PROT_NONE, MAP_PRIVATE);
    } else if (is("failed")) {
        char *p = own(MIB);
        munmap(p + 1, PAGE);
        mremap(p, MIB, 1L << 50, MREMAP_MAYMOVE);
        left(1, MIB);
    }
}

NOINLINE void maps(void) { once(); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < (is("reserved") || is("committed") ? 1 : 10); i++)
        maps();
}

int main(int argc, char **argv) {
    mode = argc > 1 ? argv[1] : "";
    /* The tool is to see an allocator and a call of it. */
    void *volatile p = malloc(1);
    free(p);
    return BATCHES(batch, sites);
}
