/* Makes one child after the other without end, each of which allocates, frees and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    printf("READY %d\n", getpid());
    fflush(stdout);
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            void *volatile p = malloc(100);
            free(p);
            _exit(0);
        }
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 72;
    }
}
