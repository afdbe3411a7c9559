/* connections.h - open connections: how many there may be, until when each may take what it is doing, and what it has sent.
 *
 * libmicrohttpd counts idle time only, which a byte now and then defeats: these deadlines are absolute. A connection whose
 * deadline has passed is shut down, and its own thread then ends it. Time in which the server did not run (SIGSTOP, a machine
 * that sleeps) does not count, and what has come meanwhile is read before the clock decides.
 * Where there are as many connections as there may be, in all or from one address, the oldest one that is between requests or
 * has not sent a whole header makes room; if there is none, the new one is refused.
 * Owns: the list, and the framing of each connection, which its own thread alone touches once it runs.
 */
#ifndef AERIE_APP_SERVE_HTTP_CONNECTIONS_H
#define AERIE_APP_SERVE_HTTP_CONNECTIONS_H

#include <sys/socket.h>

#include "serve/http/framing.h"
#include "serve/http/server.h"

enum {
    SERVE_HEAD_SECONDS = 10,  /* for the first header of a connection */
    SERVE_IDLE_SECONDS = 60,  /* for each later one, from the end of the answer before it */
    SERVE_BODY_SECONDS = 60,  /* for a body */
    SERVE_HEAD_BYTES = 32 << 10, /* memory of a connection: request line and header, and then a block of the answer */
    SERVE_STACK_BYTES = 2 << 20, /* of a connection's thread */
};

typedef struct serve_connection {
    struct serve_connection *next, *before; /* the newest is the first */
    struct serve_connections *all;
    int socket;
    double deadline; /* 0: none */
    double since;    /* of the last request's end, or of its beginning */
    bool is_busy;    /* a request is read or answered */
    bool has_asked;  /* some header was complete */
    bool is_ending;  /* it was shut down */
    bool is_waited_for; /* its time is over, but bytes of it had come */
    char address[48];
    uint64_t who[2]; /* what counts as one address: of IPv6 the first 64 bits; 0: none (a Unix socket) */
    serve_framing framing;
    /* of its own thread */
    bool is_cut;       /* what it sends is not read any more */
    bool half_closed;  /* the client sends no more, and may be gone */
    double next_probe; /* when it is asked again whether it is there */
} serve_connection;

typedef struct serve_connections {
    pthread_mutex_t lock;
    serve_connection *first;
    size_t n, n_ending;  /* those that were shut down are counted apart */
    uint32_t most, most_per_address; /* 0: any number from one address */
    double checked;      /* when the clock was looked at last */
    uint64_t n_refused, n_evicted;
} serve_connections;

/* NULL: there is no room or no memory for it, and it is to be shut down. address may be NULL. */
serve_connection *serve_connection_open(serve_connections *all, int socket, const struct sockaddr *address);
void serve_connection_close(serve_connection *connection);
/* A request begins or ends, with a deadline for what comes next, in seconds from now; 0: none. */
void serve_connection_busy(serve_connection *connection, bool busy, double seconds);
/* From now, in seconds; 0: none. connection may be NULL. */
void serve_connection_deadline(serve_connection *connection, double seconds);
/* How many there may be that were shut down and have not ended yet, beside `most`. */
static inline uint32_t serve_connections_spare(uint32_t most)
{
    return most / 2 + 16;
}
/* Ends those whose time is over. */
void serve_connections_check(serve_connections *all);
/* How many connections the process has descriptors for: `wanted`, or fewer with a line that says so. */
uint32_t serve_connections_most(uint32_t wanted);

/* ---- intake.c: what libmicrohttpd reads, seen before it has it -------------------------------------------------- */

/* From now on, and until it is NULL again, what is read from the socket goes through the connection's framing. */
void serve_intake_watch(int socket, serve_connection *connection);

/* ---- The only other calls of libmicrohttpd, in http.c ----------------------------------------------------- */

void *serve_daemon_start(serve_server *server, int listening);
int serve_daemon_quiesce(void *daemon);
void serve_daemon_stop(void *daemon);

#endif
