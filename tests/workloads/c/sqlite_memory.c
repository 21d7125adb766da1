/* Memory that SQLite hands to its callers; what it makes for itself is given back. */
#include "batch.h"

extern void *sqlite3_malloc(int), *sqlite3_realloc(void *, int);
extern char *sqlite3_mprintf(const char *, ...);
extern void sqlite3_free(void *);
extern int sqlite3_open(const char *, void **), sqlite3_close(void *);
extern int sqlite3_exec(void *, const char *, void *, void *, char **);

static struct site sites[] = {SITE(handed_out), SITE(regrown)};

NOINLINE void *handed_out(void) { return sqlite3_malloc(100); }
NOINLINE void *regrown(void) { return sqlite3_realloc(sqlite3_malloc(50), 700); }
NOINLINE void works(void) {
    void *database = NULL;
    char *error = NULL;
    if (sqlite3_open(":memory:", &database))
        _exit(72);
    sqlite3_exec(database, "create table t(a); insert into t values(1)", NULL, NULL, NULL);
    sqlite3_exec(database, "no statement", NULL, NULL, &error);
    sqlite3_free(error);
    sqlite3_free(sqlite3_mprintf("%d and more text than fits a short string", 12));
    sqlite3_close(database);
}

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 50; i++) {
        keep(&sites[0], handed_out(), 100);
        keep(&sites[1], regrown(), 700);
        sqlite3_free(handed_out());
        works();
    }
}

int main(void) { return BATCHES(batch, sites); }
