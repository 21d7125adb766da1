/* Leaves 100 blocks of 64 bytes per batch, while the process holds mappings whose names are
 * not paths of files: a deleted memfd with spaces in its name, a deleted file, shared
 * anonymous memory, an io_uring, and where the kernel can name anonymous memory, a name. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        leaky();
}

static void *map(int fd, int flags, long long offset) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, fd, offset);
    if (p == MAP_FAILED)
        _exit(72);
    return p;
}

static void deleted_file(void) {
    char path[] = "/tmp/odd mapping XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) || ftruncate(fd, 4096))
        _exit(72);
    map(fd, MAP_SHARED, 0);
}

static void memory_file(void) {
    int fd = memfd_create("a b\nc", 0);
    if (fd < 0 || ftruncate(fd, 4096))
        _exit(72);
    map(fd, MAP_SHARED, 0);
}

static void ring(void) {
    struct io_uring_params params = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
    /* Refused inside many containers; the other odd names are there all the same. */
    if (fd >= 0)
        map(fd, MAP_SHARED, IORING_OFF_SQ_RING);
}

int main(void) {
    memory_file();
    deleted_file();
    map(open("/dev/zero", O_RDWR), MAP_SHARED, 0);
    ring();
#ifdef PR_SET_VMA
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, map(-1, MAP_PRIVATE | MAP_ANONYMOUS, 0), 4096, "a b c");
#endif
    return BATCHES(batch, sites);
}
