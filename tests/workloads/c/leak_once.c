/* Leaves 100 blocks of 64 bytes and ends at once: over before any tool could attach late. */
#include <stdlib.h>

static void *volatile sink[100];

__attribute__((noinline)) void leak_once(void) {
    for (int i = 0; i < 100; i++)
        sink[i] = malloc(64);
}

int main(void) {
    leak_once();
    return 0;
}
