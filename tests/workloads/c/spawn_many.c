/* Keeps 1,000 bytes and starts 200 programs by posix_spawn, one after the other. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink;
extern char **environ;

__attribute__((noinline)) void parent_leaks(void) { sink = malloc(1000); }

int main(void) {
    parent_leaks();
    for (int i = 0; i < 200; i++) {
        char *words[] = {"true", NULL};
        int status;
        pid_t child;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ))
            _exit(72);
        if (waitpid(child, &status, 0) != child || status != 0)
            _exit(73);
    }
    return 0;
}
