/* Maps the objects that it is given, says so, and waits for its end. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!dlopen(argv[i], RTLD_NOW)) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
