/* Eight threads at once; in each batch thread i leaves blocks of 16 * (i + 1) bytes from its
 * own function: 1,000 of each. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(t0), SITE(t1), SITE(t2), SITE(t3),
                              SITE(t4), SITE(t5), SITE(t6), SITE(t7)};
enum { THREADS = 8, BLOCKS = 1000 };

#define WORKER(i)                                                                              \
    NOINLINE void t##i(void) { keep(&sites[i], malloc(16 * (i + 1)), 16 * (i + 1)); }
WORKER(0) WORKER(1) WORKER(2) WORKER(3) WORKER(4) WORKER(5) WORKER(6) WORKER(7)
static void (*const work[])(void) = {t0, t1, t2, t3, t4, t5, t6, t7};

static pthread_barrier_t start, end;

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        for (int i = 0; i < BLOCKS; i++)
            work[(intptr_t)argument]();
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void batch(int n) {
    (void)n;
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
}

int main(void) {
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, (void *)i))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
