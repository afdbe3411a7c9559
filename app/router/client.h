/* client.h - sends a request to a server with libcurl.
 * Owns one transfer. While the caller waits in client_step, bytes of the answer are passed to its function on its thread. One
 * thread at a time. */
#ifndef AERIE_APP_ROUTER_CLIENT_H
#define AERIE_APP_ROUTER_CLIENT_H

#include "router/router.h"

typedef struct client client;

/* The state of a transfer. */
typedef enum client_state {
    CLIENT_RUNS,
    CLIENT_ENDED, /* the answer is complete */
    CLIENT_LOST,  /* the server cannot be reached, or its answer is incomplete (client_why) */
} client_state;

/* Receives more bytes of the answer's body. Returns false to end the transfer as lost. */
typedef bool client_sink(void *user, const char *bytes, size_t n);

typedef struct client_request {
    const char *method; /* "GET", "POST" */
    const char *path;   /* with query */
    const char *body;   /* [n_body] body of a POST, borrowed until the end */
    size_t n_body;
    const char *const *headers; /* [n_headers] "Name: value", copied */
    size_t n_headers;
    double seconds; /* seconds for the whole transfer; 0: no limit */
    client_sink *sink;
    void *user;
} client_request;

/* Initializes libcurl; must be called before threads start. Returns false if the program was built without it. */
bool client_possible(void);
/* NULL: out of memory. */
client *client_start(const router_target *target, const client_request *request);
/* Waits at most this many seconds; returns as soon as bytes have arrived or the transfer has ended. */
client_state client_step(client *c, double seconds);
/* Called by the sink, which then returns true: stops the flow of bytes until client_resume, for a client that reads slowly. */
void client_pause(client *c);
void client_resume(client *c);
/* Returns the HTTP status; 0: the header has not arrived. */
int client_status(const client *c);
/* Return Content-Type, "" without one; Retry-After in seconds, 0 without one. Valid once client_status is not 0. */
const char *client_type(const client *c);
int client_retry_after(const client *c);
/* Returns whether the server says that it is loading its model or shutting down. Valid once client_status is not 0. */
bool client_not_ready(const client *c);
/* Returns why the transfer was lost. */
const char *client_why(const client *c);
void client_end(client *c);

#endif
