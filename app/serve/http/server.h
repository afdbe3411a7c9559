/* server.h - what all parts of the server share.
 *
 * Threads: one per connection reads a request, makes tokens of it, submits it and writes the answer as it comes; one per loaded
 * model steps its session; the main thread waits for signals and ends connections whose time is over. A thread of a connection
 * waits only for its own request and its own client; the stepping thread waits for nobody.
 * Owns: the server's state. Does not own: HTTP (http.h), models and sessions (models.h), answers (job.h).
 */
#ifndef AERIE_APP_SERVE_HTTP_SERVER_H
#define AERIE_APP_SERVE_HTTP_SERVER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "setup/load.h"
#include "serve/http/memory.h"

#define SERVE_LOG_SECONDS 1 /* that the end waits for who reads the log */

typedef struct serve_keys {
    char (*items)[512]; /* [n] each filled up with zeros */
    size_t n, capacity;
    atomic_uint *n_running; /* [n] answers that a key has on their way */
    char (*metrics)[512];   /* of --metrics-key, filled up likewise; NULL: there is none */
} serve_keys;

#define SERVE_MAX_NOTES 64

/* What the log has been told of what is left out of requests: each only once. */
typedef struct serve_notes {
    pthread_mutex_t lock;
    char items[SERVE_MAX_NOTES][96]; /* [n] */
    size_t n;
} serve_notes;

typedef struct serve_server {
    const app_options *options;
    const app_serve_options *o; /* options->serve */
    struct serve_models *models;
    struct serve_connections *connections;
    serve_keys keys;
    serve_notes notes;
    serve_memory memory;
    sem_t work;             /* places for requests that are read, templated and tokenized */
    sem_t large_work;       /* for those with a large body, for which the others do not wait */
    atomic_bool draining;   /* nothing new is accepted */
    atomic_bool stopping;   /* answers end now */
    atomic_bool failed;     /* the first model could not be loaded */
    atomic_uint n_calls;    /* requests that are being answered */
    atomic_ullong n_ids;
    double started;
    uint64_t socket_device, socket_inode; /* of its Unix socket; 0: it has none with a path */
    bool loopback;          /* listens on a loopback address or a Unix socket */
    bool keep_reasoning;    /* --reasoning-format none */
} serve_server;

/* What is wrong with a request. Dialects write it in their own shape. */
typedef struct serve_error {
    int status; /* of HTTP; 0: nothing is wrong */
    char text[640];
    char param[64];     /* the field; "": none */
    const char *code;   /* a word for programs, such as "model_not_found"; NULL: none */
    int retry_after;    /* seconds; 0: no such header */
    bool memory;        /* it lacked memory */
} serve_error;

/* Fill it in and return false. */
bool serve_fail(serve_error *error, int status, const char *param, const char *format, ...) APP_PRINTF(4, 5);
bool serve_fail_memory(serve_error *error);
/* The library's sentence: its status as HTTP's. */
bool serve_fail_library(serve_error *error, aerie_status status, const aerie_error *why, const char *param);
/* "invalid_request_error" and its like, as OpenAI has them. */
const char *serve_error_type(int status);

/* A fresh id into out [48]: "chatcmpl-" and 24 letters; returns out. */
const char *serve_id(serve_server *server, const char *prefix, char out[48]);
/* Adds the JSON text and releases it. false: out of memory, also if json is NULL. */
bool serve_json_add(app_text *out, json_t *json);

#endif
