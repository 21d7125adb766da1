/* Threads that work in step with the batches: all of them start with a batch, and the batch ends
 * when the last of them is done. */
#include <pthread.h>

#include "batch.h"

static pthread_barrier_t step_start, step_end;
static void (*step_work)(int thread);

static void *step_thread(void *number) {
    for (;;) {
        pthread_barrier_wait(&step_start);
        step_work((int)(intptr_t)number);
        pthread_barrier_wait(&step_end);
    }
    return NULL;
}

/* Makes `n` threads, each of which calls `work` with its number, from zero, once in each step. */
static inline void step_threads(int n, const pthread_attr_t *attributes, void (*work)(int)) {
    step_work = work;
    pthread_barrier_init(&step_start, NULL, (unsigned)n + 1);
    pthread_barrier_init(&step_end, NULL, (unsigned)n + 1);
    for (intptr_t i = 0; i < n; i++) {
        pthread_t id;
        if (pthread_create(&id, attributes, step_thread, (void *)i))
            _exit(72);
    }
}

/* A batch that is one step and nothing else. */
static inline void step(int n) {
    (void)n;
    pthread_barrier_wait(&step_start);
    pthread_barrier_wait(&step_end);
}
