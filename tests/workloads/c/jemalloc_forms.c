/* What jemalloc has beside the C library's functions, under the prefix PREFIX. With TWO, as
 * much again comes from the C library's allocator, through its own names. */
#include "batch.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(PREFIX, name)

extern void *NAME(mallocx)(size_t, int);
extern void *NAME(rallocx)(void *, size_t, int);
extern size_t NAME(xallocx)(void *, size_t, size_t, int);
extern void NAME(dallocx)(void *, int);
extern void NAME(sdallocx)(void *, size_t, int);
extern void *NAME(malloc)(size_t);
extern void NAME(free)(void *);

static struct site sites[] = {SITE(extended), SITE(moved), SITE(in_place), SITE(usual), SITE(libc)};

NOINLINE void *extended(void) { return NAME(mallocx)(1000, 0); }
NOINLINE void *moved(void) { return NAME(rallocx)(NAME(mallocx)(100, 0), 5000, 0); }

/* 1,001 bytes do not fit where 1,000 lie in a class of 1,024? They do; a megabyte does not. */
NOINLINE void *in_place(void) {
    void *p = NAME(mallocx)(1000, 0);
    NAME(xallocx)(p, 1001, 0, 0);
    NAME(xallocx)(p, 1 << 20, 0, 0);
    return p;
}
NOINLINE void *usual(void) { return NAME(malloc)(700); }
#ifdef TWO
NOINLINE void *libc(void) { return malloc(2000); }
#endif

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++) {
        keep(&sites[0], extended(), 1000);
        keep(&sites[1], moved(), 5000);
        keep(&sites[2], in_place(), 1001);
        keep(&sites[3], usual(), 700);
#ifdef TWO
        keep(&sites[4], libc(), 2000);
        free(libc());
#endif
        NAME(dallocx)(extended(), 0);
        NAME(sdallocx)(extended(), 1000, 0);
        NAME(free)(usual());
    }
}

int main(void) { return BATCHES(batch, sites); }
