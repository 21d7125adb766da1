/* Per batch, leaves 100 blocks of 64 bytes by way of code that it generated, which has no name:
 * main > batch > through > the code > leaky. */
#include <sys/mman.h>

#include "batch.h"

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static void (*generated)(void (*)(void));

NOINLINE void through(void) {
    generated(leaky);
    __asm__ volatile("");
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        through();
}

int main(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (page == MAP_FAILED)
        return 72;
    *(void **)&generated = memcpy(page, code, sizeof code);
    return BATCHES(batch, sites);
}
