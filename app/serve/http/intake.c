/* intake.c - what libmicrohttpd reads from connections, seen before it has it.
 *
 * libmicrohttpd shows names and values of headers, but neither the bytes that it made them of nor those around chunks, and
 * it has no hook between the socket and its parser. So the program defines recv() itself, the one call by which the library
 * reads sockets, and dynamic as well as static linking takes this definition before that of the C library. Should a
 * libmicrohttpd ever read by another call, the framing sees no header at all, and http.c refuses every request with a
 * sentence: nothing that was not looked at is answered.
 * Owns: the table from sockets to connections. A connection is entered before its thread starts and removed before its
 * socket is closed, so no lock is needed.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>

#include "serve/http/connections.h"

#ifdef APP_HTTP

enum { MOST_SOCKETS = 1 << 20 }; /* the system's usual limit of descriptors; those above are refused */

static _Atomic(serve_connection *) watched[MOST_SOCKETS];

/* Under its own name in C it would collide with the definition that <sys/socket.h> has where _FORTIFY_SOURCE is on. */
__attribute__((visibility("default"))) ssize_t serve_recv(int fd, void *bytes, size_t n, int flags) __asm__("recv");

/* A header that is wrong ends where the fault is: libmicrohttpd then tells of it, and http.c refuses it. Nothing more is
 * read. */
static ssize_t cut(serve_connection *c, char *bytes, size_t n_before, size_t got, size_t room)
{
    const size_t n = strlen(c->framing.ending);
    if (room - n_before < n) return (ssize_t)got; /* it is refused later */
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

#endif
