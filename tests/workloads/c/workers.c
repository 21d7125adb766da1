/* Four worker threads leave 100 blocks of 64 bytes each per batch, 25,600 bytes together;
 * the main thread allocates nothing. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static pthread_barrier_t start, end;
enum { THREADS = 4 };

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        for (int i = 0; i < 100; i++)
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

int main(void) {
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
