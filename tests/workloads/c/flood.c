/* Leaves nothing: threads malloc and free flat out. The first argument is the number of
 * pairs per thread and batch, the second the number of threads. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(pair)};
static pthread_barrier_t start, end;
static long pairs, threads;

NOINLINE void pair(void) { free(malloc(16)); }

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        for (long i = 0; i < pairs; i++)
            pair();
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
    if (argc != 3)
        return 72;
    pairs = atol(argv[1]);
    threads = atol(argv[2]);
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    for (long i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
