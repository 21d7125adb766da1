/* Leaves 100 blocks of 64 bytes per batch in leaky(), under a seccomp filter that allows only what
 * the program itself needs. With the argument "kill" any other call ends the process; otherwise
 * it fails with ENOSYS. */
#include "batch.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct site sites[] = {SITE(leaky)};

NOINLINE void leaky(void) { keep(&sites[0], malloc(64), 64); }

static void batch(int n) {
    (void)n;
    for (int i = 0; i < 100; i++)
        leaky();
}

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    int kills = argc > 1 && !strcmp(argv[1], "kill");
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),
        ALLOW(SYS_write),
        ALLOW(SYS_openat),
        ALLOW(SYS_getpid),
        ALLOW(SYS_getrandom),
        ALLOW(SYS_mmap),
        ALLOW(SYS_munmap),
        ALLOW(SYS_mremap),
        ALLOW(SYS_brk),
        ALLOW(SYS_futex),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K,
                 kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 72;
    return BATCHES(batch, sites);
}
