/* Eight workers make 1,000 blocks of 256 bytes each per batch, and the first thread frees all
 * of them: nothing stays, in total and of any stack. */
#include <pthread.h>

#include "batch.h"

enum { THREADS = 8, BLOCKS = 1000 };
static struct site sites[] = {SITE(makes)};
static pthread_barrier_t start, end;
static void *blocks[THREADS][BLOCKS];

NOINLINE void *makes(void) { return malloc(256); }

static void *thread(void *argument) {
    void **own = argument;
    for (;;) {
        pthread_barrier_wait(&start);
        for (int i = 0; i < BLOCKS; i++)
            own[i] = makes();
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void batch(int n) {
    (void)n;
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < BLOCKS; j++)
            free(blocks[i][j]);
}

int main(void) {
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, blocks[i]))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
