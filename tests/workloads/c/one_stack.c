/* Two threads at once leave 20,000 blocks of 4 bytes each per batch from one and the same
 * stack. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static pthread_barrier_t start, end;

NOINLINE void leaky(void) { keep(&sites[0], malloc(4), 4); }

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        for (int i = 0; i < 20000; i++)
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
    pthread_barrier_init(&start, NULL, 3);
    pthread_barrier_init(&end, NULL, 3);
    for (int i = 0; i < 2; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
