/* connections.h - open connections and until when each may take what it is doing.
 *
 * libmicrohttpd counts idle time only, which a byte now and then defeats: these deadlines are absolute. A connection whose
 * deadline has passed is shut down, and its own thread then ends it.
 */
#ifndef AERIE_APP_SERVE_CONNECTIONS_H
#define AERIE_APP_SERVE_CONNECTIONS_H

#include <sys/socket.h>

#include "serve/serve.h"

enum {
    SERVE_HEAD_SECONDS = 10,  /* for the first header of a connection */
    SERVE_IDLE_SECONDS = 60,  /* for each later one, from the end of the answer before it */
    SERVE_BODY_SECONDS = 60,  /* for a body */
    SERVE_HEAD_BYTES = 32 << 10, /* memory of a connection: request line and header, and then a block of the answer */
    SERVE_STACK_BYTES = 2 << 20, /* of a connection's thread */
};

typedef struct serve_connection {
    struct serve_connection *next, *before;
    struct serve_connections *all;
    int socket;
    double deadline; /* 0: none */
    char address[48];
} serve_connection;

typedef struct serve_connections {
    pthread_mutex_t lock;
    serve_connection *first;
    size_t n;
} serve_connections;

/* NULL when out of memory: the connection then has no deadline of its own. address may be NULL. */
serve_connection *serve_connection_open(serve_connections *all, int socket, const struct sockaddr *address);
void serve_connection_close(serve_connection *connection);
/* From now, in seconds; 0: none. connection may be NULL. */
void serve_connection_deadline(serve_connection *connection, double seconds);
/* Ends those whose time is over. */
void serve_connections_check(serve_connections *all);

/* ---- The only other calls of libmicrohttpd, in http.c ----------------------------------------------------- */

void *serve_daemon_start(serve_server *server, int listening);
int serve_daemon_quiesce(void *daemon);
void serve_daemon_stop(void *daemon);

#endif
