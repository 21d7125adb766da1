/* The batch protocol of every workload, and the account that a workload keeps of itself.
 *
 * Protocol: prints "READY <pid>" once; for each newline on standard input runs one batch and
 * prints "DONE <n>". When the newline comes after an "r", DONE goes to the file that
 * BATCH_REPLY names as well: a command that asks for a batch has no other way to hear of it.
 *
 * Account: with BATCH_TRUTH in the environment, appends one JSON line to that file before
 * READY (batch 0) and before every DONE: the live blocks and bytes of each site. A tester
 * compares these with what it measured.
 *
 * Nothing here allocates: read and write are used instead of streams, and kept pointers go
 * to a static array.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

/* Live blocks and requested bytes of the stacks that contain one function. */
struct site {
    const char *function;
    long blocks;
    long bytes;
};

#define SITE(name) {#name, 0, 0}

static void *batch_sink[1 << 23];
static size_t batch_n_sunk;

/* Keeps `p` reachable for ever and books it at `site`. NULL ends the program: the account
 * would be wrong. Safe from several threads. */
static inline void *keep(struct site *site, void *p, size_t n) {
    if (!p) {
        static const char no_memory[] = "workload: out of memory\n";
        (void)!write(2, no_memory, sizeof no_memory - 1);
        _exit(70);
    }
    batch_sink[__atomic_fetch_add(&batch_n_sunk, 1, __ATOMIC_RELAXED)] = p;
    __atomic_fetch_add(&site->blocks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&site->bytes, (long)n, __ATOMIC_RELAXED);
    return p;
}

/* Books a block at `site` as given back. The caller frees it. */
static inline void drop(struct site *site, size_t n) {
    __atomic_fetch_sub(&site->blocks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&site->bytes, (long)n, __ATOMIC_RELAXED);
}

static inline void batch_say(int fd, const char *text, int n) {
    if (write(fd, text, (size_t)n) != n)
        _exit(71);
}

static inline int batch_open(const char *variable, int flags) {
    const char *path = getenv(variable);
    return path ? open(path, flags, 0600) : -1;
}

static inline void batch_account(int fd, int n, const struct site *sites, int n_sites) {
    static char line[4096];
    int used = snprintf(line, sizeof line, "{\"batch\":%d,\"sites\":{", n);
    for (int i = 0; i < n_sites; i++)
        used += snprintf(line + used, sizeof line - (size_t)used,
                         "%s\"%s\":{\"blocks\":%ld,\"bytes\":%ld}", i ? "," : "",
                         sites[i].function, sites[i].blocks, sites[i].bytes);
    used += snprintf(line + used, sizeof line - (size_t)used, "}}\n");
    if (fd >= 0)
        batch_say(fd, line, used);
}

/* Runs batches until standard input ends. */
static inline int batches(void (*batch)(int n), const struct site *sites, int n_sites) {
    char text[64];
    int truth = batch_open("BATCH_TRUTH", O_WRONLY | O_CREAT | O_APPEND);
    int reply = batch_open("BATCH_REPLY", O_RDWR);
    int n = 0, wants_reply = 0;

    batch_account(truth, 0, sites, n_sites);
    batch_say(1, text, snprintf(text, sizeof text, "READY %d\n", (int)getpid()));
    while (read(0, text, 1) == 1) {
        if (text[0] == 'r')
            wants_reply = 1;
        if (text[0] != '\n')
            continue;
        batch(++n);
        batch_account(truth, n, sites, n_sites);
        int used = snprintf(text, sizeof text, "DONE %d\n", n);
        batch_say(1, text, used);
        if (wants_reply && reply >= 0)
            batch_say(reply, text, used);
        wants_reply = 0;
    }
    return 0;
}

#define BATCHES(batch, sites) batches(batch, sites, (int)(sizeof sites / sizeof sites[0]))

/* Which form of the workload is asked for: its first argument. */
static inline int mode_is(int argc, char **argv, const char *mode) {
    return argc > 1 && strcmp(argv[1], mode) == 0;
}
