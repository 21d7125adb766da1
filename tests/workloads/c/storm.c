/* storm N: keeps 1,000 bytes, then makes N children, ten at a time, that become this program
 * again, every other one by vfork; child i keeps one block of 16 * (i + 1) bytes and ends.
 * storm N forks: the children stay what they are. The parent then keeps 500 bytes more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink;

__attribute__((noinline)) void child_leaks(int i) { sink = malloc(16 * ((size_t)i + 1)); }

__attribute__((noinline)) void parent_leaks(size_t n) { sink = malloc(n); }

static void wait_for_one(void) {
    int status;
    if (wait(&status) < 0 || status != 0)
        _exit(72);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 0, forks = argc > 2 && strcmp(argv[2], "forks") == 0;
    if (argc > 2 && strcmp(argv[2], "child") == 0) {
        child_leaks(n);
        return 0;
    }
    parent_leaks(1000);
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        char *words[] = {argv[0], number, "child", NULL};
        if (i >= 10)
            wait_for_one();
        pid_t child = !forks && i % 2 ? vfork() : fork();
        if (child == 0) {
            if (!forks)
                execv("/proc/self/exe", words);
            else
                child_leaks(i);
            _exit(forks ? 0 : 73);
        }
        if (child < 0)
            _exit(74);
    }
    for (int i = 0; i < n && i < 10; i++)
        wait_for_one();
    parent_leaks(500);
    return 0;
}
