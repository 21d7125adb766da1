/* The service: streams the status of vehicles to whoever watches.
   fleet SOCKET listens on a Unix socket and serves one viewer after the other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libroute.h"

enum { STEPS = 5 };

static int send_status(int viewer, struct route_stream *stream, int step) {
    char *status = route_stream_status(stream, step);
    ssize_t sent = write(viewer, status, strlen(status) + 1);
    free(status);
    return sent > 0;
}

/* One viewer watches one vehicle until it says goodbye (a zero) or is gone. */
static void watch(int viewer, int vehicle) {
    struct route_stream *stream = route_stream_open(vehicle);
    for (int step = 0; step < STEPS && send_status(viewer, stream, step); step++) {}
    char goodbye;
    if (read(viewer, &goodbye, 1) == 1)
        route_stream_close(stream);
    else
        route_stream_abandon(stream);
    /* The viewer that waits for the end of file knows that its stream is done with. */
    close(viewer);
}

static void serve(int listener) {
    for (;;) {
        int viewer = accept(listener, NULL, NULL);
        if (viewer < 0) continue;
        unsigned char vehicle;
        if (read(viewer, &vehicle, 1) == 1)
            watch(viewer, vehicle);
        else
            close(viewer);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", argv[1]);
    unlink(addr.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&addr, sizeof addr) || listen(listener, 64)) {
        perror(argv[1]);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    serve(listener);
}
