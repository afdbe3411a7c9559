/* systemd.h - systemd's interface for services: socket activation, readiness, the watchdog. Without systemd the functions do
 * nothing. The protocol consists of environment variables and datagrams (sd_notify(3), sd_listen_fds(3)). */
#ifndef AERIE_APP_SERVE_HTTP_SYSTEMD_H
#define AERIE_APP_SERVE_HTTP_SYSTEMD_H

#include <stdbool.h>

/* Returns the listening socket that systemd passed to the process, or -1. */
int serve_socket_given(void);
/* Sends a state such as "READY=1" to systemd. */
void serve_notify(const char *state);
/* Notifies the watchdog, if there is one, while `lives` is true. Must be called about every second. */
void serve_watchdog(bool lives);

#endif
