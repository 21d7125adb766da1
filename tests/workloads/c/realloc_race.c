/* Four threads realloc a block up and down while four others malloc and free blocks of the
 * size that a realloc gives up, so that an address changes its owner at once. "leak": the
 * second group leaves every thousandth block. All blocks are freed at the end of the batch. */
#include <pthread.h>

#include "batch.h"

static struct site sites[] = {SITE(one)};
enum { THREADS = 8, ROUNDS = 10000 };
static int leaks;
static pthread_barrier_t start, end;

NOINLINE void resize(void) {
    char *p = malloc(16);
    for (int i = 0; i < ROUNDS; i++)
        p = realloc(p, (i & 1) ? 4096 : 16);
    free(p);
}

NOINLINE void *one(void) { return malloc(16); }

NOINLINE void pairs(void) {
    for (int i = 0; i < ROUNDS; i++) {
        void *q = one();
        if (leaks && i % 1000 == 0)
            keep(&sites[0], q, 16);
        else
            free(q);
    }
}

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        ((intptr_t)argument & 1) ? resize() : pairs();
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void batch(int n) {
    (void)n;
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
}

int main(int argc, char **argv) {
    leaks = mode_is(argc, argv, "leak");
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, (void *)i))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
