/* Per batch: keeps 100 blocks of 1,000 bytes and a mapping of 32 MiB, then makes a child that
 * gives all of them back, makes 10 blocks of 48 bytes, and ends. Nothing of that is the
 * parent's. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
enum { BLOCKS = 100, MAPPING = 32 << 20 };
static void *blocks[BLOCKS];

NOINLINE void leaky(int i) { blocks[i] = keep(&sites[0], malloc(1000), 1000); }

NOINLINE void *maps(void) {
    void *p = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(72);
    return p;
}

NOINLINE void child_leaks(void) { keep(&sites[0], malloc(48), 48); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < BLOCKS; i++)
        leaky(i);
    void *mapping = maps();
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        munmap(mapping, MAPPING);
        for (int i = 0; i < 10; i++)
            child_leaks();
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        _exit(73);
}

int main(void) { return BATCHES(batch, sites); }
