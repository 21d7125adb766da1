/* Four workers that are made before READY keep 100 blocks of 64 bytes each per batch, in one
 * function: two are copies of their parent, two are this program again, at other addresses. */
#define _GNU_SOURCE

#include "batch.h"

enum { WORKERS = 4 };
static struct site sites[] = {SITE(leaky)};
/* Where a worker is asked and answers; the same numbers in each of them. */
enum { ASK = 50, ANSWER = 51 };
static int ask[WORKERS], answer[WORKERS];

NOINLINE void leaky(void) {
    static void *volatile last;
    last = malloc(64);
}

NOINLINE void work(void) {
    char byte;
    while (read(ASK, &byte, 1) == 1) {
        for (int i = 0; i < 100; i++)
            leaky();
        batch_say(ANSWER, "\n", 1);
    }
    _exit(0);
}

NOINLINE void make_worker(int i, char *program) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        _exit(72);
    pid_t child = fork();
    if (child < 0)
        _exit(73);
    if (child == 0) {
        char *words[] = {program, "worker", NULL};
        /* The other ends belong to the parent: a worker ends with it. */
        for (int fd = 3; fd < ASK; fd++)
            if (fd != to[0] && fd != from[1])
                close(fd);
        if (dup2(to[0], ASK) < 0 || dup2(from[1], ANSWER) < 0)
            _exit(74);
        if (i % 2 == 0)
            work();
        execv("/proc/self/exe", words);
        _exit(75);
    }
    close(to[0]);
    close(from[1]);
    ask[i] = to[1];
    answer[i] = from[0];
}

static void batch(int n) {
    char byte;
    (void)n;
    for (int i = 0; i < WORKERS; i++)
        batch_say(ask[i], "\n", 1);
    for (int i = 0; i < WORKERS; i++)
        if (read(answer[i], &byte, 1) != 1)
            _exit(76);
    sites[0].blocks += 100 * WORKERS;
    sites[0].bytes += 6400 * WORKERS;
}

int main(int argc, char **argv) {
    if (mode_is(argc, argv, "worker"))
        work();
    for (int i = 0; i < WORKERS; i++)
        make_worker(i, argv[0]);
    return BATCHES(batch, sites);
}
