/* Memory of OpenSSL's allocator. */
#include "batch.h"

extern void *CRYPTO_malloc(size_t, const char *, int), *CRYPTO_zalloc(size_t, const char *, int);
extern void *CRYPTO_realloc(void *, size_t, const char *, int);
extern void *CRYPTO_clear_realloc(void *, size_t, size_t, const char *, int);
extern void CRYPTO_free(void *, const char *, int), CRYPTO_clear_free(void *, size_t, const char *, int);

static struct site sites[] = {SITE(plain), SITE(zeroed), SITE(regrown), SITE(cleared)};

NOINLINE void *plain(void) { return CRYPTO_malloc(100, "", 0); }
NOINLINE void *zeroed(void) { return CRYPTO_zalloc(200, "", 0); }
NOINLINE void *regrown(void) { return CRYPTO_realloc(plain(), 700, "", 0); }
NOINLINE void *cleared(void) { return CRYPTO_clear_realloc(CRYPTO_malloc(10, "", 0), 10, 900, "", 0); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 50; i++) {
        keep(&sites[1], zeroed(), 200);
        keep(&sites[2], regrown(), 700);
        keep(&sites[3], cleared(), 900);
        CRYPTO_free(plain(), "", 0);
        CRYPTO_clear_free(zeroed(), 200, "", 0);
        CRYPTO_realloc(plain(), 0, "", 0);
    }
}

int main(void) { return BATCHES(batch, sites); }
