/* Leaves 100 blocks of 64 bytes per batch in leaky_library(), a function of a library that
 * is opened at run time; the first argument is its path. */
#include <dlfcn.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky_library)};
static void *(*leak)(size_t);

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        keep(&sites[0], leak(64), 64);
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library)
        return 72;
    *(void **)&leak = dlsym(library, "leaky_library");
    return leak ? BATCHES(batch, sites) : 72;
}
