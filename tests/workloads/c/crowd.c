/* Opens every library that its arguments name, maps memory in pieces that do not merge, and
 * has 500 threads, each of which leaves a block of 64 bytes per batch. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "step.h"

enum { THREADS = 500, PIECES = 200 };

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void work(int thread) {
    (void)thread;
    leaky();
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW))
            return 72;
    for (int i = 0; i < PIECES; i++)
        mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    step_threads(THREADS, &small, work);
    return BATCHES(step, sites);
}
