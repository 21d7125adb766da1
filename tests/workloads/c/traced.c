/* Runs the program that its arguments name, under ptrace, as a parent that asks for nothing: it
 * passes signals on and ends as the program ends. */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    pid_t child = fork();
    if (child < 0 || argc < 2)
        return 72;
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(argv[1], argv + 1);
        _exit(73);
    }
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        ptrace(PTRACE_CONT, child, 0, signal == SIGTRAP ? 0 : signal);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 74;
}
