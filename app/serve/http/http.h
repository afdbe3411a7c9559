/* http.h - requests over HTTP, received by libmicrohttpd.
 *
 * Owns the listening socket, connections and their deadlines, headers, keys, origins and the access log. Does not own the
 * meaning of paths (routes.c).
 * An answer is repeatable if its request has the header "Aerie-Repeat: ID CREATED SEED": its bytes are then a function of the
 * request and of that header. ID (24 letters and digits) and CREATED (seconds since 1970) are those of the answer, SEED is for
 * requests that give none; timings, cached tokens and signs of life are left out, and an answer that fails ends without an end.
 * Invariants: a header or body that has not arrived by its deadline ends the connection, even if bytes still trickle in. A body
 * longer than --max-body is never kept. Bytes with ambiguous framing are refused (framing.h). The log holds only the path of a
 * request's text, and the types of what was left out, such as web_search.
 */
#ifndef AERIE_APP_SERVE_HTTP_HTTP_H
#define AERIE_APP_SERVE_HTTP_HTTP_H

#include "serve/http/server.h"

/* Writes up to `most` more bytes of an answer and returns their number. 0: end of the answer; -1: the client is gone, or the
 * answer cannot be completed.
 */
typedef ptrdiff_t serve_read(void *user, char *out, size_t most);

/* Content of the header Aerie-Repeat; the id is in serve_call.id. */
typedef struct serve_repeat {
    bool on;
    uint64_t created, seed;
} serve_repeat;

/* One request and its answer. */
typedef struct serve_call {
    serve_server *server;
    void *connection;
    const struct serve_route *route;
    const char *path; /* valid while the request is answered */
    const char *host; /* the host that the request names; NULL: none */
    char *authority;  /* owned; host of a target of the form http://authority/path; NULL: the target is a path */
    char method[16];
    app_text body;
    int socket;
    uint64_t number; /* number of the request on its connection, from 1 */
    bool interim;    /* HTTP/1.1: interim responses are allowed */
    size_t i_key; /* index of its API key; SIZE_MAX: none */
    bool counted; /* it is counted in keys.n_running */
    serve_use use; /* the memory that it holds */
    sem_t *work;   /* semaphore of the server to hold while doing work that takes much processor time */
    double start;
    char id[48]; /* for the log and X-Request-Id; the answer's id has the same letters */
    serve_repeat repeat;
    uint64_t n_prompt, n_cached, n_generated; /* tokens so far */
    /* the answer */
    bool replied;
    int status;
    const char *type, *allow;
    app_text text;
    serve_read *read; /* NULL: text is the answer */
    uint64_t size;    /* bytes that read will return in all; UINT64_MAX: not known */
    void (*release)(void *user);
    void *user;
    int retry_after;
    bool not_ready; /* serve_error has it */
    /* the fields below belong to http.c */
    size_t n_discarded;
    bool closes; /* the connection ends with the answer */
    struct serve_connection *of;
    serve_error refused;
} serve_call;

typedef void serve_handler(serve_call *call);

/* Who may use a path if there are API keys. */
typedef enum serve_access {
    SERVE_FOR_KEYS,
    SERVE_FOR_ALL,      /* no key is needed */
    SERVE_FOR_WATCHERS, /* shows all requests: needs --metrics-key, or the only API key */
    SERVE_FOR_BOTH,     /* shows an API key its own requests, and --metrics-key all of them */
} serve_access;

typedef struct serve_route {
    const char *method, *path; /* a path that ends in '*' is a prefix */
    serve_handler *handler;
    serve_access access;
} serve_route;

/* The part of a server that is not HTTP: aerie serve runs models, aerie router passes requests on. */
typedef struct serve_service {
    const serve_route *routes; /* [n_routes] */
    size_t n_routes;
    void (*start)(serve_server *server); /* once it listens */
    void (*tick)(serve_server *server);  /* some times a second, on the main thread */
    bool (*stuck)(serve_server *server); /* whether the service manager should start it again */
    void (*stop)(serve_server *server);  /* ends what still runs after --grace */
} serve_service;

/* Runs the service until a signal arrives: sets up what all servers have, listens, answers, and waits for running answers.
 * The caller has set options, o, service and started, and models or router. `prepare` (NULL: nothing) runs before the port is
 * opened. Returns an exit status.
 */
int serve_run(serve_server *server, int (*prepare)(serve_server *server));

/* Returns an error as JSON in a dialect's format. */
typedef json_t *serve_error_shape(const serve_error *error);
/* Returns the error format of a path, which may be unknown; NULL: OpenAI's. */
serve_error_shape *serve_route_shape(const char *path);
/* Returns the service's route; NULL: none. Then *allow holds the methods that the path accepts (static storage); NULL: no such
 * path. */
const serve_route *serve_route_find(const serve_service *service, const char *method, const char *path, const char **allow);

/* Takes ownership of the text. */
void serve_reply(serve_call *call, int status, const char *type, app_text *text);
/* Takes ownership of the JSON. json NULL means out of memory: replies with 503. */
void serve_reply_json(serve_call *call, int status, json_t *json);
void serve_reply_error(serve_call *call, const serve_error *error);
void serve_reply_stream(serve_call *call, const char *type, serve_read *read, void (*release)(void *), void *user);
/* The same for an answer of known size, with status 200. */
void serve_reply_sized(serve_call *call, const char *type, uint64_t size, serve_read *read, void (*release)(void *),
                       void *user);
/* If the error is a lack of memory and --max-request-memory is the cause, replaces its text to say so. */
void serve_memory_say(const serve_call *call, serve_error *error);
/* Returns the value of ?name=, or NULL. */
const char *serve_call_query(const serve_call *call, const char *name);
/* Frees the body. */
void serve_body_free(serve_call *call);
/* Whether the client has disconnected. */
bool serve_call_gone(const serve_call *call);
/* Whether the client has stopped sending. It may be gone then, which shows only when something is sent to it: serve_call_gone
 * sends a probe until the answer has begun; then sending the answer shows it.
 */
bool serve_call_half_closed(const serve_call *call);
/* Seconds from the half close to the first probe, and between further probes. */
#define SERVE_PROBE_SECONDS 0.05
#define SERVE_PROBES_SECONDS 0.5

/* Returns the value of a header of the request, valid while it is answered; NULL: none. */
const char *serve_call_header(const serve_call *call, const char *name);


/* ---- keys.c ------------------------------------------------------------------------------------------- */

int serve_keys_read(serve_keys *keys, const app_serve_options *options);
void serve_keys_free(serve_keys *keys);
/* Whether the presented key (NULL: none) may use call->route. Sets call->i_key. Takes constant time, so that timing reveals
 * nothing about the keys.
 */
bool serve_keys_allow(serve_call *call, const char *presented, serve_error *error);
/* Returns aerie_request.scope for requests with this key (SIZE_MAX: none) and "cache_salt" (NULL: none); 0: the common scope,
 * if keys need not be kept apart. The scope is the same in every process, and cannot be produced without the key, whatever the
 * salt.
 */
uint64_t serve_keys_scope(const serve_server *server, size_t i_key, const char *salt);
/* Returns aerie_request.client: a number for the call's API key, else for its address (of IPv6 the first 64 bits); 0: a Unix
 * socket's. */
uint64_t serve_keys_client(const serve_call *call);
/* Whether requests with this Host header are allowed. */
bool serve_host_allowed(const serve_server *server, const char *host);
/* Whether a request without an Origin is allowed, by its headers Sec-Fetch-Site and -Mode; open: the route needs no key. */
bool serve_site_allowed(const serve_server *server, const char *site, const char *mode, bool open);
/* Whether a page of this origin may use the server. *cors: it is from another origin and needs CORS headers. */
bool serve_origin_allowed(const serve_server *server, const char *origin, const char *host, bool *cors);

#endif
