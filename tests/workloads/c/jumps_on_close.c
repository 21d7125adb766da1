/* `handle_close` leaves by a jump, so that the return that a probe awaits never comes. Where it would
 * have returned to lies then what `works` is returned to by, from code that is new in every batch. */
#include <setjmp.h>
#include <sys/mman.h>

#include "batch.h"

#define STRETCH ((size_t)4 << 20)

static struct site sites[] = {SITE(logs), SITE(works)};
static char handle[16];
static jmp_buf before;

NOINLINE void *handle_open(size_t size) {
    (void)size;
    return handle;
}
NOINLINE void handle_close(void *closed) {
    if (closed)
        longjmp(before, 1);
}

NOINLINE void logs(void) {
    keep(&sites[0], malloc(40), 40);
    sites[1].blocks++;
    sites[1].bytes += 40;
}

/* Both have a frame of the same size. */
NOINLINE void closes(void (*close)(void *)) {
    close(handle_open(8));
    __asm__ volatile("");
}
NOINLINE void works(void (*generated)(void (*)(void))) {
    generated(logs);
    __asm__ volatile("");
}

static void batch(int n) {
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    (void)n;
    void *page = mmap(NULL, STRETCH, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        _exit(72);
    memcpy(page, code, sizeof code);
    if (!setjmp(before))
        closes(handle_close);
    void (*generated)(void (*)(void));
    memcpy(&generated, &page, sizeof generated);
    works(generated);
}

int main(void) { return BATCHES(batch, sites); }
