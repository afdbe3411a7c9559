/* connections.h - open connections: their limits, their deadlines, and the framing of what they send.
 * libmicrohttpd's timeout counts idle time only, so a client could hold a connection by sending a byte now and then. The
 * deadlines here are absolute. A connection whose deadline has passed is shut down, and its own thread then ends it. Time in
 * which the server did not run (SIGSTOP, a suspended machine) does not count, and bytes that arrived meanwhile are read before
 * the deadline applies.
 * When the limit of connections is reached, in total or for one address, the oldest connection is closed that is between
 * requests or has not sent a whole header. If there is none, the new connection is refused.
 * Owns the list and the framing of each connection. Once a connection's thread runs, only that thread touches the framing. */
#ifndef AERIE_APP_SERVE_HTTP_CONNECTIONS_H
#define AERIE_APP_SERVE_HTTP_CONNECTIONS_H

#include <sys/socket.h>

#include "serve/http/framing.h"
#include "serve/http/server.h"

enum {
    SERVE_HEAD_SECONDS = 10,  /* deadline for the first header of a connection */
    SERVE_IDLE_SECONDS = 60,  /* deadline for each later header, counted from the end of the answer before it */
    SERVE_BODY_SECONDS = 60,  /* deadline for a body */
    SERVE_HEAD_BYTES = 32 << 10, /* memory of a connection: the request line and the header, later a block of the answer */
    SERVE_STACK_BYTES = 2 << 20, /* stack of a connection's thread */
};

typedef struct serve_connection {
    struct serve_connection *next, *before; /* the newest is the first */
    struct serve_connections *all;
    int socket;
    double deadline; /* 0: none */
    double since;    /* when it was opened, or when its last request began or ended */
    bool is_busy;    /* a request is being read or answered */
    bool has_asked;  /* it has sent a complete header */
    bool is_ending;  /* its socket was shut down */
    bool is_waited_for; /* its deadline was extended because unread bytes had arrived */
    char address[48];
    uint64_t who[2]; /* family (0: Unix socket) and address, for the limit per address; of IPv6 the first 64 bits */
    serve_framing framing;
    /* the fields below belong to the connection's thread */
    bool is_cut;       /* no more input is read */
    bool half_closed;  /* the client has stopped sending, and may be gone */
    double next_probe; /* when to check again whether the client is still there */
} serve_connection;

typedef struct serve_connections {
    pthread_mutex_t lock;
    serve_connection *first;
    size_t n, n_ending;  /* open connections; connections that were shut down but have not ended */
    uint32_t most, most_per_address; /* limits; most_per_address 0: none */
    double checked;      /* time of the last serve_connections_check; 0: none yet */
    uint64_t n_refused, n_evicted;
} serve_connections;

/* Returns NULL if there is no room or no memory; the caller then closes the socket. address may be NULL. */
serve_connection *serve_connection_open(serve_connections *all, int socket, const struct sockaddr *address);
void serve_connection_close(serve_connection *connection);
/* Notes that a request begins or ends, and sets the deadline for what comes next, in seconds from now (0: none). */
void serve_connection_busy(serve_connection *connection, bool busy, double seconds);
/* Sets the deadline, in seconds from now; 0: none. connection may be NULL. */
void serve_connection_deadline(serve_connection *connection, double seconds);
/* Returns how many connections may still be ending, in addition to the `most` open ones. */
static inline uint32_t serve_connections_spare(uint32_t most)
{
    return most / 2 + 16;
}
/* Ends connections whose deadline has passed. */
void serve_connections_check(serve_connections *all);
/* Returns how many connections the process has descriptors for: `wanted`, or fewer, which is then logged. */
uint32_t serve_connections_most(uint32_t wanted);

/* ---- intake.c: checks input before libmicrohttpd reads it ------------------------------------------------------- */

/* Passes all bytes that are read from the socket to the connection's framing before libmicrohttpd gets them. connection NULL
 * ends that. */
void serve_intake_watch(int socket, serve_connection *connection);

/* ---- The only other calls of libmicrohttpd, in http.c ----------------------------------------------------- */

void *serve_daemon_start(serve_server *server, int listening);
int serve_daemon_quiesce(void *daemon);
void serve_daemon_stop(void *daemon);

#endif
