/* server.h - the server's state and its errors, which all parts of the server share.
 *
 * Threads: one per connection reads a request, tokenizes it, submits it and writes the answer as tokens arrive; one per loaded
 * model steps its session; the main thread waits for signals and ends connections whose deadline has passed. A connection's
 * thread waits only for its own request and client; the stepping thread waits for no other thread.
 * Owns the server's state. Does not own HTTP (http.h), models and sessions (models.h), or answers (job.h).
 */
#ifndef AERIE_APP_SERVE_HTTP_SERVER_H
#define AERIE_APP_SERVE_HTTP_SERVER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "setup/load.h"
#include "serve/http/memory.h"

#define SERVE_LOG_SECONDS 1 /* how long the server waits at its end for the reader of the log */

typedef struct serve_keys {
    char (*items)[512]; /* [n] keys, each padded with zeros */
    size_t n, capacity;
    atomic_uint *n_running; /* [n] requests in progress, by key */
    char (*metrics)[512];   /* key of --metrics-key, padded with zeros; NULL: none */
} serve_keys;

#define SERVE_MAX_NOTES 64

/* Notes about parts of requests that were left out; each is logged only once. */
typedef struct serve_notes {
    pthread_mutex_t lock;
    char items[SERVE_MAX_NOTES][96]; /* [n] */
    size_t n;
} serve_notes;

typedef struct serve_server {
    const app_options *options;
    const app_serve_options *o; /* options->serve */
    const struct serve_service *service; /* the paths, and the work beside HTTP */
    struct serve_models *models;         /* set by aerie serve, else NULL */
    struct router *router;               /* set by aerie router, else NULL */
    struct serve_connections *connections;
    pthread_mutex_t sending_lock;
    struct serve_call *sending; /* answers that are being sent and can let go of a model (http.h) */
    serve_keys keys;
    serve_notes notes;
    serve_memory memory;
    sem_t work;             /* limits how many requests are parsed, rendered and tokenized at a time */
    sem_t large_work;       /* the same for large bodies, so that other requests do not wait for them */
    sem_t fetch_work;       /* limits how many requests fetch an image at a time; they hold none of the semaphores above */
    atomic_bool draining;   /* no new requests are accepted */
    atomic_bool stopping;   /* running answers are being cancelled */
    atomic_bool failed;     /* the first model could not be loaded */
    atomic_uint n_calls;    /* requests that are being answered */
    atomic_ullong n_ids;
    double started;
    uint64_t socket_device, socket_inode; /* identify the Unix socket's path; 0: it has none */
    atomic_bool sees;       /* a model that reads images has been loaded */
    bool loopback;          /* the server listens on a loopback address or a Unix socket */
    bool keep_reasoning;    /* --reasoning-format none */
} serve_server;

/* Returns the largest allowed body in bytes: with images it is larger. */
static inline size_t serve_most_body(const serve_server *server)
{
    const uint32_t given = server->o->max_body;
    return (size_t)(given ? given : atomic_load(&server->sees) ? 64 : 8) << 20;
}

/* An error of a request. Each dialect writes it in its own format. */
typedef struct serve_error {
    int status; /* HTTP status; 0: no error */
    char text[640];
    char param[64];     /* name of the field; "" if none */
    const char *code;   /* an identifier for programs, such as "model_not_found"; NULL: none */
    int retry_after;    /* seconds for the header Retry-After; 0: none */
    bool memory;        /* the cause is a lack of memory */
    bool not_ready;     /* the server does not answer yet, or no longer; a router then waits or uses another server */
} serve_error;

/* Fills the error in and returns false. */
bool serve_fail(serve_error *error, int status, const char *param, const char *format, ...) APP_PRINTF(4, 5);
/* Fills in status 503 for a server that is loading its model or shutting down; a router recognizes it by Aerie-Ready. */
bool serve_fail_not_ready(serve_error *error, int retry_after, const char *why);
/* Fills in a lack of memory and returns false. */
bool serve_fail_memory(serve_error *error);
/* Fills in an error of the library, with its message and the HTTP status that corresponds to its status, and returns false. */
bool serve_fail_library(serve_error *error, aerie_status status, const aerie_error *why, const char *param);
/* Returns OpenAI's error type for an HTTP status, such as "invalid_request_error". */
const char *serve_error_type(int status);

/* Writes a new id, the prefix and 24 random letters and digits, to out [48], and returns out. */
const char *serve_id(serve_server *server, const char *prefix, char out[48]);
/* Adds the JSON as text and releases it. Returns false when out of memory, also if json is NULL. */
bool serve_json_add(app_text *out, json_t *json);

#endif
