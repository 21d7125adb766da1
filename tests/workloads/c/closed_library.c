/* Per batch, opens the library that the first argument names, leaves 100 blocks of 64 bytes in
 * its leaky_library(), and closes it. "late": from the fourth batch on. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky_library)};
static const char *path;
static int first = 1;

static void batch(int n) {
    void *volatile p = malloc(1);
    free(p);
    if (n < first)
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    if (!library)
        _exit(72);
    void *(*leak)(size_t);
    *(void **)&leak = dlsym(library, "leaky_library");
    for (int i = 0; i < 100; i++)
        keep(&sites[0], leak(64), 64);
    dlclose(library);
}

int main(int argc, char **argv) {
    path = argc > 1 ? argv[1] : "";
    if (argc > 2)
        first = 4;
    return BATCHES(batch, sites);
}
