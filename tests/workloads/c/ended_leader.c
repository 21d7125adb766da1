/* Leaves 100 blocks of 64 bytes per batch, in a second thread. The first thread ends in the first
 * batch. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static pthread_t first;
static pthread_barrier_t farewell;

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    if (n == 1) {
        pthread_barrier_wait(&farewell);
        pthread_join(first, NULL);
    }
    for (int i = 0; i < 100; i++)
        leaky();
}

static void *work(void *argument) {
    (void)argument;
    exit(BATCHES(batch, sites));
}

int main(void) {
    pthread_t id;
    first = pthread_self();
    pthread_barrier_init(&farewell, NULL, 2);
    if (pthread_create(&id, NULL, work, NULL))
        return 72;
    pthread_barrier_wait(&farewell);
    pthread_exit(NULL);
}
