/* Threads malloc and free flat out while another one opens a library with a large unwind table, in the
 * third batch, and for as many pairs after that; it then leaves 100 blocks of 64 bytes per batch by way
 * of a function in there. The arguments are the library's path, the pairs of each thread per batch, and
 * the number of threads. */
#include <dlfcn.h>
#include <pthread.h>

#include "batch.h"

enum { MOST_THREADS = 8, OPENED_IN = 3 };

static struct site sites[] = {SITE(pair), SITE(f_123456)};
static const char *path;
static long pairs, n_threads;
static int is_open;
static void (*calls)(void (*)(void));

NOINLINE void pair(void) { free(malloc(16)); }

NOINLINE void leaves_one(void) { keep(&sites[1], malloc(64), 64); }

static void *flood(void *unused) {
    while (!__atomic_load_n(&is_open, __ATOMIC_ACQUIRE))
        pair();
    for (long i = 0; i < pairs; i++)
        pair();
    return unused;
}

static NOINLINE void batch(int n) {
    pthread_t threads[MOST_THREADS];
    __atomic_store_n(&is_open, n != OPENED_IN, __ATOMIC_RELEASE);
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, flood, NULL) != 0)
            _exit(72);
    if (n == OPENED_IN) {
        void *library = dlopen(path, RTLD_LAZY);
        if (!library)
            _exit(73);
        *(void **)&calls = dlsym(library, "f_123456");
    }
    __atomic_store_n(&is_open, 1, __ATOMIC_RELEASE);
    for (int i = 0; n >= OPENED_IN && i < 100; i++)
        calls(leaves_one);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 72;
    path = argv[1];
    pairs = atol(argv[2]);
    n_threads = atol(argv[3]);
    return n_threads <= MOST_THREADS ? BATCHES(batch, sites) : 72;
}
