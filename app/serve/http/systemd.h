/* systemd.h - what systemd tells a service and is told by it: a socket that is passed on, readiness, the watchdog. Without
 * systemd all of it does nothing. The protocol is an environment variable and a datagram (sd_notify(3), sd_listen_fds(3)).
 */
#ifndef AERIE_APP_SERVE_HTTP_SYSTEMD_H
#define AERIE_APP_SERVE_HTTP_SYSTEMD_H

#include <stdbool.h>

/* The listening socket that was passed on, or -1. */
int serve_socket_given(void);
/* "READY=1" and its like. */
void serve_notify(const char *state);
/* Tells the watchdog, if there is one, that the server lives; to be called every second or so. */
void serve_watchdog(bool lives);

#endif
