/* pairs SECONDS: for each line on its input, allocates and frees for so long on one thread,
   and prints nanoseconds per malloc/free pair. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void pair(void) {
    void *block = malloc(64);
    /* The compiler must not drop the pair. */
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    char line;
    printf("ready\n");
    fflush(stdout);
    while (read(0, &line, 1) == 1) {
        double start = now(), end;
        long n_pairs = 0;
        do {
            for (int i = 0; i < 1000; i++) pair();
            n_pairs += 1000;
            end = now();
        } while (end - start < seconds);
        printf("%.2f\n", (end - start) * 1e9 / n_pairs);
        fflush(stdout);
    }
    return 0;
}
