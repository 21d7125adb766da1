/* One function with a frame of ROOM bytes, named FUNCTION. Built twice, its code differs in the
 * size of its frame and in nothing else. */
#include <stdlib.h>

void *FUNCTION(size_t n) {
    volatile char room[ROOM];
    room[0] = 1;
    void *p = malloc(n);
    room[0] = 2;
    return p;
}
