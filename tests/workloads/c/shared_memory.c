/* Children that live in their parent's memory.
 * "spawn": the parent keeps one block of 64 bytes per batch and starts 20 programs by
 * posix_spawn, which leave nothing.
 * "vfork": a child of vfork keeps one block of 64 bytes per batch and ends.
 * "clone": so does a child of clone(CLONE_VM), which its parent waits for by itself.
 * "exec": a child of clone(CLONE_VM) keeps one block and becomes another program. */
#define _GNU_SOURCE
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static int execs;
static char stack[256 << 10] __attribute__((aligned(16)));
extern char **environ;

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        _exit(72);
}

static void spawns(int n) {
    (void)n;
    leaky();
    char *words[] = {"true", NULL};
    for (int i = 0; i < 20; i++) {
        pid_t child;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ))
            _exit(73);
        wait_for(child);
    }
}

static void vforks(int n) {
    (void)n;
    pid_t child = vfork();
    if (child == 0) {
        leaky();
        _exit(0);
    }
    wait_for(child);
}

static int lives_in_the_same_memory(void *argument) {
    (void)argument;
    leaky();
    if (execs)
        execl("/bin/true", "true", (char *)NULL);
    _exit(execs);
}

static void clones(int n) {
    (void)n;
    wait_for(clone(lives_in_the_same_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL));
}

int main(int argc, char **argv) {
    execs = mode_is(argc, argv, "exec");
    void (*batch)(int) = mode_is(argc, argv, "spawn")   ? spawns
                         : mode_is(argc, argv, "vfork") ? vforks
                                                        : clones;
    return BATCHES(batch, sites);
}
