/* A child that is made before READY keeps 100 blocks of 64 bytes per batch; the parent keeps
 * none of its own. "late": the child is made in the first batch. */
#include <sys/mman.h>

#include "batch.h"

static const struct site none = SITE(leaky);
/* Shared, so that the parent can tell what the child did. */
static struct site *site;
static int ask[2], answer[2];

NOINLINE void leaky(void) { keep(site, malloc(64), 64); }

static void child(void) {
    char byte;
    close(ask[1]);
    while (read(ask[0], &byte, 1) == 1) {
        for (int i = 0; i < 100; i++)
            leaky();
        batch_say(answer[1], "\n", 1);
    }
    _exit(0);
}

static void make_child(void) {
    pid_t pid;
    if (pipe(ask) || pipe(answer) || (pid = fork()) < 0)
        _exit(72);
    if (pid == 0)
        child();
    close(ask[0]);
}

static void batch(int n) {
    (void)n;
    char byte;
    void *volatile p = malloc(1000);
    free(p);
    if (!ask[1])
        make_child();
    batch_say(ask[1], "\n", 1);
    if (read(answer[0], &byte, 1) != 1)
        _exit(73);
}

int main(int argc, char **argv) {
    int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_ANONYMOUS;
    site = mmap(NULL, sizeof *site, access, kind, -1, 0);
    if (site == MAP_FAILED)
        _exit(74);
    *site = none;
    if (!mode_is(argc, argv, "late"))
        make_child();
    return batches(batch, site, 1);
}
