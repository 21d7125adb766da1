/* "threads": four threads make 24 children each at the same time, in turn a copy that keeps 100
 * bytes, another program, and this program again by vfork, which keeps 100 bytes as well.
 * "chain": forty generations, of which each keeps 7 bytes and makes the next. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, CHILDREN = 24, GENERATIONS = 40 };
static void *volatile sink;

__attribute__((noinline)) void leaks(size_t n) { sink = malloc(n); }

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        _exit(72);
}

static void *thread(void *argument) {
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = i % 3 == 2 ? vfork() : fork();
        if (child == 0) {
            if (i % 3 == 1)
                execl("/bin/true", "true", (char *)NULL);
            if (i % 3 == 2)
                execl("/proc/self/exe", "generations", "child", (char *)NULL);
            if (i % 3 == 0)
                leaks(100);
            _exit(i % 3 == 0 ? 0 : 73);
        }
        wait_for(child);
    }
    return argument;
}

static void generation(int n) {
    leaks(7);
    if (n == 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        generation(n - 1);
        _exit(0);
    }
    wait_for(child);
}

int main(int argc, char **argv) {
    pthread_t ids[THREADS];
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        leaks(100);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "chain") == 0) {
        generation(GENERATIONS);
        return 0;
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&ids[i], NULL, thread, NULL))
            _exit(74);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
