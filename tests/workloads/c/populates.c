/* Changes its memory map without end, so that whoever wants to write to its code waits. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 256 << 20 };

int main(void) {
    free(malloc(1));
    printf("READY %d\n", (int)getpid());
    fflush(stdout);
    for (;;) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
        void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (p == MAP_FAILED)
            return 74;
        munmap(p, SIZE);
    }
}
