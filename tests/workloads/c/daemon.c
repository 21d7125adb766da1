/* Becomes a daemon as the textbook has it: forks twice, in a session of its own, and goes on
 * when both of its ancestors have ended. Each keeps something: the first 1,000 bytes, the one
 * between 200, the daemon 100 blocks of 64 bytes. "stays": it goes on until a signal ends it. */
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static void *volatile sink;

__attribute__((noinline)) void first_leaks(void) { sink = malloc(1000); }

__attribute__((noinline)) void second_leaks(void) { sink = malloc(200); }

__attribute__((noinline)) void daemon_leaks(void) {
    for (int i = 0; i < 100; i++)
        sink = malloc(64);
}

int main(int argc, char **argv) {
    (void)argv;
    first_leaks();
    pid_t first = getpid(), child = fork();
    if (child != 0)
        return child < 0;
    pid_t second = getpid();
    second_leaks();
    setsid();
    child = fork();
    if (child != 0)
        return child < 0;
    while (getppid() == second || getppid() == first)
        usleep(1000);
    daemon_leaks();
    if (argc > 1)
        pause();
    return 0;
}
