/* One batch of work: viewers SOCKET. Twelve viewers watch a vehicle each. Nine say goodbye,
   three close the browser. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int watch(const struct sockaddr_un *addr, unsigned char vehicle, int polite) {
    int service = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(service, (const struct sockaddr *)addr, sizeof *addr)) return 0;
    if (write(service, &vehicle, 1) != 1) return 0;
    char text[4096];
    if (read(service, text, sizeof text) <= 0) return 0;
    if (polite && write(service, "", 1) != 1) return 0;
    /* The other direction stays open: reading it to its end waits for the service. */
    shutdown(service, SHUT_WR);
    while (read(service, text, sizeof text) > 0) {}
    close(service);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", argv[1]);
    for (unsigned char vehicle = 0; vehicle < 12; vehicle++) {
        if (!watch(&addr, vehicle, vehicle % 4 != 3)) {
            perror("viewers");
            return 1;
        }
    }
    return 0;
}
