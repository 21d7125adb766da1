/* Opens every library that its arguments name, maps memory in pieces that do not merge, and
 * has 500 threads, each of which leaves a block of 64 bytes per batch. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "batch.h"

enum { THREADS = 500, PIECES = 200 };

static struct site sites[] = {SITE(leaky)};
static pthread_barrier_t start, end;

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        leaky();
        pthread_barrier_wait(&end);
    }
    return argument;
}

static void batch(int n) {
    (void)n;
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
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
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, &small, thread, NULL))
            return 73;
    }
    return BATCHES(batch, sites);
}
