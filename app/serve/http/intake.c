/* intake.c - checks the bytes of connections before libmicrohttpd reads them.
 * libmicrohttpd reports names and values of headers, but neither the bytes they were parsed from nor the bytes around chunks,
 * and it has no hook between the socket and its parser. So this file defines recv(), the only function by which the library
 * reads sockets; dynamic and static linking both prefer it to the C library's. If a version of libmicrohttpd reads by another
 * function, the framing sees no header, and http.c refuses every request: no unchecked request is answered.
 * Owns the table from sockets to connections. A connection is entered before its thread starts and removed before its socket is
 * closed, so the table needs no lock. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>

#include "serve/http/connections.h"

enum { MOST_SOCKETS = 1 << 20 }; /* usual limit of descriptors; http.c refuses requests from sockets above it */

static _Atomic(serve_connection *) watched[MOST_SOCKETS];

/* In C it has another name, since <sys/socket.h> defines an inline recv() if _FORTIFY_SOURCE is on. */
__attribute__((visibility("default"))) ssize_t serve_recv(int fd, void *bytes, size_t n, int flags) __asm__("recv");

/* Replaces the rest of a wrong header so that it is complete: libmicrohttpd then reports the request, and http.c can refuse it.
 * Nothing more is read from the connection. */
static ssize_t cut(serve_connection *c, char *bytes, size_t n_before, size_t got, size_t room)
{
    const size_t n = strlen(c->framing.ending);
    if (room - n_before < n) return (ssize_t)got; /* no room: the request is refused when libmicrohttpd reports it */
    memcpy(bytes + n_before, c->framing.ending, n);
    c->is_cut = true;
    return (ssize_t)(n_before + n);
}

ssize_t serve_recv(int fd, void *bytes, size_t n, int flags)
{
    serve_connection *c = fd >= 0 && fd < MOST_SOCKETS ? atomic_load(&watched[fd]) : NULL;
    if (c && c->is_cut) return 0;
    const ssize_t got = recvfrom(fd, bytes, n, flags, NULL, NULL);
    if (!c || got <= 0 || flags & MSG_PEEK) return got;
    const bool was_wrong = c->framing.wrong != NULL;
    const size_t n_before = serve_framing_feed(&c->framing, bytes, (size_t)got);
    return !was_wrong && c->framing.ending ? cut(c, bytes, n_before, (size_t)got, n) : got;
}

void serve_intake_watch(int socket, serve_connection *connection)
{
    if (socket >= 0 && socket < MOST_SOCKETS) atomic_store(&watched[socket], connection);
}
