/* pairs SECONDS [DEPTH]: for each line on its input, allocates and frees for so long on one
   thread, under so many frames, and prints nanoseconds per malloc/free pair. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void pair(void) {
    void *block = malloc(64);
    /* The compiler must not drop the pair. */
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

/* Answers nanoseconds per pair. */
static double measure(double seconds) {
    double start = now(), end;
    long n_pairs = 0;
    do {
        for (int i = 0; i < 1000; i++) pair();
        n_pairs += 1000;
        end = now();
    } while (end - start < seconds);
    return (end - start) * 1e9 / n_pairs;
}

/* Two functions, so that not all frames have the same call site. */
static double even(int depth, double seconds);

__attribute__((noinline)) static double odd(int depth, double seconds) {
    double ns = depth > 0 ? even(depth - 1, seconds) : measure(seconds);
    /* No jump in the place of a call. */
    __asm__ volatile("" : : : "memory");
    return ns;
}

__attribute__((noinline)) static double even(int depth, double seconds) {
    double ns = depth > 0 ? odd(depth - 1, seconds) : measure(seconds);
    __asm__ volatile("" : : : "memory");
    return ns;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int depth = argc > 2 ? atoi(argv[2]) : 0;
    char line;
    printf("ready\n");
    fflush(stdout);
    while (read(0, &line, 1) == 1) {
        printf("%.2f\n", odd(depth, seconds));
        fflush(stdout);
    }
    return 0;
}
