/* Eight threads allocate and free all the time; the first thread makes 25 children per batch
 * meanwhile, each of which allocates, frees and ends. Nothing stays. A lock that a fork copies
 * while somebody holds it would keep a child for ever. */
#include <sys/wait.h>

#include "step.h"

enum { THREADS = 8, CHILDREN = 25 };
static struct site sites[] = {SITE(churns), SITE(child_churns)};
static int is_over;

NOINLINE void churns(void) {
    void *volatile p = malloc(64);
    free(p);
}

NOINLINE void child_churns(void) {
    void *volatile p = malloc(100);
    free(p);
}

static void work(int thread) {
    (void)thread;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        churns();
        usleep(100);
    }
}

static void batch(int n) {
    (void)n;
    is_over = 0;
    pthread_barrier_wait(&step_start);
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
    pthread_barrier_wait(&step_end);
}

int main(void) {
    step_threads(THREADS, NULL, work);
    return BATCHES(batch, sites);
}
