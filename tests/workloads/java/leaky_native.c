/* The native side of Generated.java: leaves a block of this size. */
#include <stdlib.h>

static void *volatile last;

__attribute__((noinline)) void java_leaks(size_t n) { last = malloc(n); }

/* What jni.h declares, without the need for it: environment, class, a long. */
void Java_Generated_leak(void *environment, void *class, long long size) {
    (void)environment;
    (void)class;
    java_leaks((size_t)size);
}
