/* http.h - requests over HTTP, received by libmicrohttpd.
 * Owns the listening socket, connections and their deadlines, headers, keys, origins and the access log. Does not own the
 * meaning of paths (routes.c).
 * An answer is repeatable if its request has the header "Aerie-Repeat: ID CREATED SEED": its bytes then depend only on the
 * request and on that header. ID (24 letters and digits) and CREATED (seconds since 1970) become those of the answer, SEED
 * serves requests without a seed. A repeatable answer has no timings, cached tokens or signs of life, and if it fails, its
 * stream breaks off.
 * Invariants: a header or body that has not arrived by its deadline ends the connection, even if bytes still trickle in. A body
 * longer than --max-body is never stored. Bytes with ambiguous framing are refused (framing.h). Of a request's text the log
 * contains only the path, and the types of parts that were left out, such as web_search. */
#ifndef AERIE_APP_SERVE_HTTP_HTTP_H
#define AERIE_APP_SERVE_HTTP_HTTP_H

#include "serve/http/server.h"

/* Writes up to `most` more bytes of an answer and returns their number. 0: end of the answer; -1: the client is gone, or the
 * answer cannot be completed.
 */
typedef ptrdiff_t serve_read(void *user, char *out, size_t most);

/* The header Aerie-Repeat without its id, which is in serve_call.id. */
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
    const char *host; /* the host that the request names, or NULL */
    char *authority;  /* owned; the host of a target of the form http://authority/path; NULL if the target is a path */
    char method[16];
    app_text body;
    int socket;
    uint64_t number; /* number of the request on its connection, from 1 */
    bool interim;    /* HTTP/1.1: interim responses are allowed */
    size_t i_key; /* index of its API key; SIZE_MAX: none */
    bool counted; /* the call is counted in keys.n_running */
    serve_use use; /* the memory that it holds */
    sem_t *work;   /* the server's semaphore that must be held during expensive computations */
    double start;
    char id[48]; /* for the log and X-Request-Id; the answer's id ends with the same letters */
    serve_repeat repeat;
    uint64_t n_prompt, n_cached, n_generated; /* tokens so far */
    /* the answer */
    bool replied;
    int status;
    const char *type, *allow;
    app_text text;
    serve_read *read; /* NULL: text is the answer */
    uint64_t size;    /* total bytes that `read` will return; UINT64_MAX: unknown */
    void (*release)(void *user);
    void *user;
    int retry_after;
    bool not_ready; /* serve_error has it */
    const void *uses; /* the model that the request has taken (serve_models_take); NULL: none */
    void (*let_go)(void *user); /* serve_reply_may_let_go; NULL: the answer cannot */
    pthread_mutex_t reading;    /* held while `read` runs, if there is let_go */
    struct serve_call *next_sending, **sending; /* in the server's list; sending NULL: not in it */
    /* the fields below belong to http.c */
    size_t n_discarded;
    bool closes; /* the connection is closed after the answer */
    struct serve_connection *of;
    serve_error refused;
} serve_call;

typedef void serve_handler(serve_call *call);

/* Who may use a path if there are API keys. */
typedef enum serve_access {
    SERVE_FOR_KEYS,
    SERVE_FOR_ALL,      /* no key is needed */
    SERVE_FOR_WATCHERS, /* shows all requests: needs --metrics-key, or the API key if there is only one */
    SERVE_FOR_BOTH,     /* shows an API key its own requests, and --metrics-key all of them */
} serve_access;

typedef struct serve_route {
    const char *method, *path; /* a path that ends in '*' is a prefix */
    serve_handler *handler;
    serve_access access;
} serve_route;

/* The part of a server that is not HTTP: aerie serve runs models, aerie router forwards requests. */
typedef struct serve_service {
    const serve_route *routes; /* [n_routes] */
    size_t n_routes;
    void (*start)(serve_server *server); /* once it listens */
    void (*tick)(serve_server *server);  /* called a few times per second by the main thread */
    bool (*stuck)(serve_server *server); /* whether the service manager should restart the server */
    void (*stop)(serve_server *server);  /* cancels what is still running after --grace */
} serve_service;

/* Runs the service until a signal arrives: sets up what all servers have, listens, answers, and waits for running answers. The
 * caller has set options, o, service and started, and models or router. `prepare` (NULL: none) is called before the port is
 * opened. Returns an exit status. */
int serve_run(serve_server *server, int (*prepare)(serve_server *server));

/* Returns an error as JSON in a dialect's format. */
typedef json_t *serve_error_shape(const serve_error *error);
/* Returns the error format of a path, which may be unknown; NULL: OpenAI's. */
serve_error_shape *serve_route_shape(const char *path);
/* Returns the path that this one was probably meant to be; NULL if there is none like it. */
const char *serve_route_nearest(const serve_service *service, const char *path);
/* Returns what to use instead of a path of OpenAI's that this server does not have; NULL: the path is none of these. */
const char *serve_route_instead(const char *path);
/* Returns the service's route, or NULL. *allow is then the list of methods that the path accepts (static storage), or NULL if
 * the path is unknown. */
const serve_route *serve_route_find(const serve_service *service, const char *method, const char *path, const char **allow);

/* Takes ownership of the text. */
void serve_reply(serve_call *call, int status, const char *type, app_text *text);
/* Takes ownership of the JSON. json NULL means out of memory: replies with 503. */
void serve_reply_json(serve_call *call, int status, json_t *json);
void serve_reply_error(serve_call *call, const serve_error *error);
void serve_reply_stream(serve_call *call, const char *type, serve_read *read, void (*release)(void *), void *user);
/* Replies with status 200 and an answer whose size is known. */
void serve_reply_sized(serve_call *call, const char *type, uint64_t size, serve_read *read, void (*release)(void *),
                       void *user);
/* For an answer that is read while it is sent and uses a model until all is sent: let_go(user) shall make the rest at once, if
 * that needs no waiting, and then release the model. It is called between two calls of `read`, by another thread. */
void serve_reply_may_let_go(serve_call *call, void (*let_go)(void *user));
/* Makes answers that use the model let go of it, if their clients do not read them just now. */
void serve_calls_let_go(serve_server *server, const void *model);
/* If the error is a lack of memory caused by --max-request-memory, changes its text to say so. */
void serve_memory_say(const serve_call *call, serve_error *error);
/* Returns the value of ?name=, or NULL. */
const char *serve_call_query(const serve_call *call, const char *name);
/* Frees the body. */
void serve_body_free(serve_call *call);
/* Returns whether the client has disconnected. */
bool serve_call_gone(const serve_call *call);
/* Returns whether the client has stopped sending. It may be gone then, which shows only when something is sent to it:
 * serve_call_gone sends a probe until the answer has begun; after that the answer itself shows it. */
bool serve_call_half_closed(const serve_call *call);
/* Seconds from the half close to the first probe, and between further probes. */
#define SERVE_PROBE_SECONDS 0.05
#define SERVE_PROBES_SECONDS 0.5

/* Returns the value of a request header, valid during the call; NULL: absent. */
const char *serve_call_header(const serve_call *call, const char *name);


/* ---- keys.c ------------------------------------------------------------------------------------------- */

int serve_keys_read(serve_keys *keys, const app_serve_options *options);
void serve_keys_free(serve_keys *keys);
/* Returns whether the presented key (NULL: none) may use call->route, and sets call->i_key. Takes constant time, so that timing
 * reveals nothing about the keys. */
bool serve_keys_allow(serve_call *call, const char *presented, serve_error *error);
/* Returns aerie_request.scope for requests with this key (SIZE_MAX: none) and "cache_salt" (NULL: none); 0: the common scope,
 * if keys need not be kept apart. The scope is the same in every process, and cannot be produced without the key, whatever the
 * salt.
 */
uint64_t serve_keys_scope(const serve_server *server, size_t i_key, const char *salt);
/* Returns aerie_request.client: a number for the call's API key, or for its address (of IPv6 the first 64 bits) if there is no
 * key; 0 for a Unix socket. */
uint64_t serve_keys_client(const serve_call *call);
/* Returns whether requests with this Host header are allowed. */
bool serve_host_allowed(const serve_server *server, const char *host);
/* Returns whether a request without an Origin is allowed, judging by its headers Sec-Fetch-Site and -Mode. open: the route
 * needs no key. */
bool serve_site_allowed(const serve_server *server, const char *site, const char *mode, bool open);
/* Returns whether a page from this origin may use the server. *cors: the page is from another origin and needs CORS headers. */
bool serve_origin_allowed(const serve_server *server, const char *origin, const char *host, bool *cors);

#endif
