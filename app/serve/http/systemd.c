/* systemd.c - implements systemd.h. */
#define _GNU_SOURCE
#include "serve/http/systemd.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/app.h"

enum { FIRST_GIVEN = 3 };

int serve_socket_given(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strtol(n, NULL, 10) < 1) return -1;
    fcntl(FIRST_GIVEN, F_SETFD, FD_CLOEXEC);
    return FIRST_GIVEN;
}

void serve_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, strlen(path));
    if (*path == '@') address.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    const socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    /* Never waits. If nobody listens, or nobody reads and the queue of the socket is full, the datagram is lost: systemd then
     * ends a start that did not become ready in time, or restarts a server whose watchdog was not fed; STOPPING is only
     * displayed. */
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, n) < 0) {
    }
    close(fd);
}

void serve_watchdog(bool lives)
{
    static double last; /* only the main thread uses it */
    const char *every = getenv("WATCHDOG_USEC");
    const double seconds = every ? app_number(every, NULL) / 1e6 : 0;
    if (seconds <= 0 || !lives || app_now() - last < seconds / 3) return;
    last = app_now();
    serve_notify("WATCHDOG=1");
}
