/* Opens a library per batch that calls a function of the first one; the arguments are the paths of all
 * of them, each of which stays open. */
#include <dlfcn.h>

#include "batch.h"

static struct site sites[] = {SITE(none)};
static char **libraries;

static NOINLINE void batch(int n) {
    int (*binds)(int);
    void *library = libraries[n] ? dlopen(libraries[n], RTLD_LAZY) : NULL;
    if (!library)
        _exit(72);
    *(void **)&binds = dlsym(library, "binds");
    if (binds(n) != (n + 1) * 2)
        _exit(73);
}

int main(int argc, char **argv) {
    libraries = argv + 1;
    if (argc < 2 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))
        return 72;
    return BATCHES(batch, sites);
}
