/* Keeps 100 blocks of 1,000 bytes, then replaces itself; the new image keeps 100 blocks of 64
 * bytes in another function and ends. "thread": another thread than the first does the exec,
 * while the first sits in a system call. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile sink[100];
static char **arguments;

__attribute__((noinline)) void first_leaks(void) {
    for (int i = 0; i < 100; i++)
        sink[i] = malloc(1000);
}

__attribute__((noinline)) void second_leaks(void) {
    for (int i = 0; i < 100; i++)
        sink[i] = malloc(64);
}

static void *execs(void *argument) {
    char *again[] = {arguments[0], "second", NULL};
    execv("/proc/self/exe", again);
    _exit(72);
    return argument;
}

int main(int argc, char **argv) {
    arguments = argv;
    if (argc > 1 && strcmp(argv[1], "second") == 0) {
        second_leaks();
        return 0;
    }
    first_leaks();
    if (argc > 1 && strcmp(argv[1], "thread") == 0) {
        pthread_t id;
        if (pthread_create(&id, NULL, execs, NULL))
            _exit(73);
        for (;;)
            pause();
    }
    execs(NULL);
}
