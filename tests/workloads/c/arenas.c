/* Leaves nothing: each batch starts 16 threads that malloc and free 100 bytes, and ends them. The
 * C library gives each an arena of its own, with its 64 MiB of address space. "stay": the
 * threads of the first batch stay, and later batches start none. */
#include <pthread.h>

#include "batch.h"

enum { THREADS = 16 };
static struct site sites[] = {SITE(pair)};
static pthread_barrier_t start;
static int stays;

NOINLINE void pair(void) { free(malloc(100)); }

static void *thread(void *argument) {
    pair();
    pthread_barrier_wait(&start);
    while (stays)
        pause();
    return argument;
}

static void batch(int n) {
    pthread_t ids[THREADS];
    if (stays && n > 1) {
        pair();
        return;
    }
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, thread, NULL))
            _exit(72);
    pthread_barrier_wait(&start);
    for (int i = 0; i < THREADS && !stays; i++)
        pthread_join(ids[i], NULL);
}

int main(int argc, char **argv) {
    stays = mode_is(argc, argv, "stay");
    return BATCHES(batch, sites);
}
