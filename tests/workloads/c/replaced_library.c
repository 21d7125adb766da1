/* Per batch, opens two libraries in turn, leaves 10 blocks of 64 bytes in a function of each, and
 * closes them. The arguments are their paths. The second one gets the place that the first one had:
 * the same call is made with another frame. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

#include "batch.h"

static struct site sites[] = {SITE(frame_small), SITE(frame_large)};
static char **paths;

static void *leave(int i) {
    void *library = dlopen(paths[i], RTLD_NOW);
    if (!library)
        _exit(72);
    void *(*leak)(size_t);
    *(void **)&leak = dlsym(library, sites[i].function);
    for (int n = 0; n < 10; n++)
        keep(&sites[i], leak(64), 64);
    void *place = *(void **)&leak;
    dlclose(library);
    return place;
}

static void batch(int n) {
    (void)n;
    void *place = leave(0);
    if (leave(1) != place)
        _exit(73);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 72;
    paths = argv + 1;
    /* On one processor: what a tracer remembers there is of the other library. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    return BATCHES(batch, sites);
}
