/* Eight threads allocate and free all the time; the first thread makes 25 children per batch
 * meanwhile, each of which allocates, frees and ends. Nothing stays. A lock that a fork copies
 * while somebody holds it would keep a child for ever. */
#include <pthread.h>
#include <sys/wait.h>

#include "batch.h"

enum { THREADS = 8, CHILDREN = 25 };
static struct site sites[] = {SITE(churns), SITE(child_churns)};
static pthread_barrier_t start, end;
static int is_over;

NOINLINE void churns(void) {
    void *volatile p = malloc(64);
    free(p);
}

NOINLINE void child_churns(void) {
    void *volatile p = malloc(100);
    free(p);
}

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
            churns();
            usleep(100);
        }
        pthread_barrier_wait(&end);
    }
    return argument;
}

static void batch(int n) {
    (void)n;
    is_over = 0;
    pthread_barrier_wait(&start);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            child_churns();
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            _exit(72);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_barrier_wait(&end);
}

int main(void) {
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL))
            _exit(73);
    }
    return BATCHES(batch, sites);
}
