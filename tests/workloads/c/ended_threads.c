/* Starts ten detached threads per batch, with stacks of 256 KiB, and waits until they are gone.
 * "raw": they leave by the system call, so that the C library keeps what it made for each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>

#include "batch.h"

enum { THREADS = 10 };
static struct site sites[] = {SITE(starts)};
static int raw;

static void *thread(void *argument) {
    if (raw)
        syscall(SYS_exit, 0);
    return argument;
}

NOINLINE void starts(void) {
    pthread_t id;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&id, &attributes, thread, NULL))
        _exit(72);
}

/* Have all of them ended? Read without a stream, which would allocate. */
static int is_alone(void) {
    static char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return strstr(text, "Threads:\t1\n") != NULL;
}

static void batch(int n) {
    (void)n;
    void *volatile p = malloc(1);
    free(p);
    for (int i = 0; i < THREADS; i++)
        starts();
    while (!is_alone())
        usleep(1000);
}

int main(int argc, char **argv) {
    raw = mode_is(argc, argv, "raw");
    return BATCHES(batch, sites);
}
