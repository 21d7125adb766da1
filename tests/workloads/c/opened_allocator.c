/* Opens a library that has an allocator of its own, or a second C library, and leaves 100
 * blocks of 64 bytes per batch by its function. Arguments: how to open it, and its path. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky_library)};
static const char *path;
static void *(*leak)(size_t);

static void open_it(void *library) {
    if (!library)
        _exit(72);
    *(void **)&leak = dlsym(library, "leaky_library");
    if (!leak)
        _exit(72);
}

static void batch(int n) {
    if (!leak && n == 4)
        open_it(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
    for (int i = 0; leak && i < 100; i++)
        keep(&sites[0], leak(64), 64);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 72;
    path = argv[2];
    if (mode_is(argc, argv, "deep"))
        open_it(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
    else if (mode_is(argc, argv, "apart"))
        open_it(dlmopen(LM_ID_NEWLM, path, RTLD_NOW));
    return BATCHES(batch, sites);
}
