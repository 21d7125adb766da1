// Leaves nothing: in each batch 30 threads new and delete 5,000 ints each, with yields in
// between.
#include <pthread.h>
#include <sched.h>

#include "../c/batch.h"

static struct site sites[] = {SITE(churn)};
enum { THREADS = 30 };
static pthread_barrier_t start, end;

NOINLINE void churn(unsigned seed) {
    for (int i = 0; i < 5000; i++) {
        delete new int;
        seed = seed * 1103515245 + 12345;
        if ((seed >> 16) % 64 == 0)
            sched_yield();
    }
}

static void *thread(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        churn((unsigned)(intptr_t)argument);
        pthread_barrier_wait(&end);
    }
    return nullptr;
}

static void batch(int) {
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
}

int main() {
    pthread_barrier_init(&start, nullptr, THREADS + 1);
    pthread_barrier_init(&end, nullptr, THREADS + 1);
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, nullptr, thread, (void *)i))
            _exit(72);
    }
    return BATCHES(batch, sites);
}
