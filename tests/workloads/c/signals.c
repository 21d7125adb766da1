/* Signals to a child that stands still before its first instruction, because it is held.
 *
 * The first batch makes a child, waits until it stands still, and sends it a signal; the
 * second looks what became of it. "continue": the child goes on at once, keeps 50 blocks of 32
 * bytes and ends. "stop": it must come to stand still again, and does the same when it is
 * continued. "end": it must have ended by the signal. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};
static int sent;
static int *may_go;
static pid_t child;

NOINLINE void leaky(void) { keep(&sites[0], malloc(32), 32); }

/* Read without a stream, which would allocate. */
static int is_stopped(void) {
    static char text[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return strstr(text, ") T ") != NULL;
}

static void wait_until_stopped(void) {
    while (!is_stopped())
        usleep(1000);
}

static void ends_with(int status) {
    int how;
    if (waitpid(child, &how, 0) != child || how != status)
        _exit(72);
}

static void make_child(void) {
    if ((child = fork()) < 0)
        _exit(73);
    if (child == 0) {
        while (!__atomic_load_n(may_go, __ATOMIC_ACQUIRE))
            usleep(1000);
        for (int i = 0; i < 50; i++)
            leaky();
        _exit(0);
    }
    wait_until_stopped();
}

static void batch(int n) {
    if (n == 1) {
        make_child();
        kill(child, sent);
    }
    if (n == 2 && sent == SIGSTOP)
        wait_until_stopped();
    if (n == (sent == SIGCONT ? 1 : 2)) {
        __atomic_store_n(may_go, sent != SIGTERM, __ATOMIC_RELEASE);
        kill(child, SIGCONT);
        ends_with(sent == SIGTERM ? SIGTERM : 0);
    }
}

int main(int argc, char **argv) {
    sent = mode_is(argc, argv, "continue") ? SIGCONT
           : mode_is(argc, argv, "stop")   ? SIGSTOP
                                           : SIGTERM;
    int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_ANONYMOUS;
    may_go = mmap(NULL, sizeof *may_go, access, kind, -1, 0);
    if (may_go == MAP_FAILED)
        _exit(74);
    return BATCHES(batch, sites);
}
