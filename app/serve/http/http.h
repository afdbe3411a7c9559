/* http.h - requests over HTTP, by libmicrohttpd.
 *
 * Owns: the listening socket, connections and their deadlines, headers, keys, origins, the access log. Does not own: what paths
 * mean (routes.c). Invariants: a header or body that does not come in time ends its connection, however slowly it comes; a body
 * longer than --max-body is never kept; bytes whose framing is not certain are no request (framing.h); no line of the log holds
 * text of a request but its path and the types of what is left out of it, such as web_search.
 */
#ifndef AERIE_APP_SERVE_HTTP_HTTP_H
#define AERIE_APP_SERVE_HTTP_HTTP_H

#include "serve/http/server.h"

/* Up to `most` more bytes of a body; 0: its end; -1: the client is gone, or the body cannot be completed. */
typedef ptrdiff_t serve_read(void *user, char *out, size_t most);

/* One request and its answer. */
typedef struct serve_call {
    serve_server *server;
    void *connection;
    const struct serve_route *route;
    const char *path; /* valid while the request is answered */
    const char *host; /* by which the client calls the server; NULL: it does not say */
    char *authority;  /* owned: of a request for http://authority/path; NULL: it is for a path */
    char method[16];
    app_text body;
    int socket;
    uint64_t number; /* of the request on its connection, from 1 */
    bool interim;    /* HTTP/1.1: an interim answer is possible */
    size_t i_key; /* its API key; SIZE_MAX: none */
    bool counted; /* among the key's requests */
    serve_use use; /* the memory that it holds */
    sem_t *work;   /* of the server: a place is needed for what takes much of the processor */
    double start;
    char id[48]; /* of the log and X-Request-Id; the answer's own has the same letters */
    uint64_t n_prompt, n_cached, n_generated; /* tokens, as far as it has come */
    /* the answer */
    bool replied;
    int status;
    const char *type, *allow;
    app_text text;
    serve_read *read; /* NULL: the text */
    uint64_t size;    /* bytes that it reads in all; UINT64_MAX: nobody knows yet */
    void (*release)(void *user);
    void *user;
    int retry_after;
    /* of http.c */
    size_t n_discarded;
    bool closes; /* the connection ends with the answer */
    struct serve_connection *of;
    serve_error refused;
} serve_call;

typedef void serve_handler(serve_call *call);

/* Who may use a path where there are keys. */
typedef enum serve_access {
    SERVE_FOR_KEYS,
    SERVE_FOR_ALL,      /* no key is needed */
    SERVE_FOR_WATCHERS, /* it tells of all requests: --metrics-key, or the only API key */
    SERVE_FOR_BOTH,     /* it tells API keys of their own requests, --metrics-key of all */
} serve_access;

typedef struct serve_route {
    const char *method, *path; /* a path that ends in '*' is the beginning of one */
    serve_handler *handler;
    serve_access access;
} serve_route;

/* The shape of errors at a path, which may be none of ours; NULL: OpenAI's. */
typedef json_t *serve_error_shape(const serve_error *error);
serve_error_shape *serve_route_shape(const char *path);
/* The route, or NULL with *allow the methods (static storage) that the path takes; NULL: there is no such path. */
const serve_route *serve_route_find(const char *method, const char *path, const char **allow);

/* Takes the text over. */
void serve_reply(serve_call *call, int status, const char *type, app_text *text);
/* Takes the JSON over; NULL: not enough memory. */
void serve_reply_json(serve_call *call, int status, json_t *json);
void serve_reply_error(serve_call *call, const serve_error *error);
void serve_reply_stream(serve_call *call, const char *type, serve_read *read, void (*release)(void *), void *user);
/* The same with status 200 of an answer whose bytes are known. */
void serve_reply_sized(serve_call *call, const char *type, uint64_t size, serve_read *read, void (*release)(void *),
                       void *user);
/* Adds to an error for want of memory that it was the limit of what requests may hold, if that is so. */
void serve_memory_say(const serve_call *call, serve_error *error);
/* Value of ?name=, or NULL. */
const char *serve_call_query(const serve_call *call, const char *name);
/* The body is not needed any more. */
void serve_body_free(serve_call *call);
/* Has the client gone? */
bool serve_call_gone(const serve_call *call);
/* Does the client send no more? Then it may be gone, which only sending something shows: serve_call_gone asks it, but once the
 * answer has begun, that is up to the answer. */
bool serve_call_half_closed(const serve_call *call);
/* How often a client that sends no more is asked whether it is there: after this time first, then each time after the other. */
#define SERVE_PROBE_SECONDS 0.05
#define SERVE_PROBES_SECONDS 0.5

/* Listens and answers until a signal comes and what runs has ended. */
int serve_http_run(serve_server *server);
/* "libmicrohttpd 0.9.75", or NULL in a program that was built without. */
const char *serve_http_version(void);

/* ---- keys.c ------------------------------------------------------------------------------------------- */

int serve_keys_read(serve_keys *keys, const app_serve_options *options);
void serve_keys_free(serve_keys *keys);
/* Whether the key that was presented (NULL: none) opens call->route; sets call->i_key. In a time that tells nothing about the
 * keys. */
bool serve_keys_allow(serve_call *call, const char *presented, serve_error *error);
/* aerie_request.scope of a key's requests (SIZE_MAX: none) with this "cache_salt" (NULL: none): 0 where nobody has to be told
 * apart. The same in every process; nobody who does not know a key can make its scope, whatever salt he takes. */
uint64_t serve_keys_scope(const serve_server *server, size_t i_key, const char *salt);
/* Is the name (to a ',' or the end) in a list with commas, or is the list "*"? Case does not count. */
bool serve_list_has(const char *list, const char *name, size_t n);
/* May a client call the server by this Host header? */
bool serve_host_allowed(const serve_server *server, const char *host);
/* The same by the headers Sec-Fetch-Site and -Mode of a request without an Origin; open: of a route that needs no key. */
bool serve_site_allowed(const serve_server *server, const char *site, const char *mode, bool open);
/* May a page of this origin use the server? *cors: it is another site's, to which headers say so. */
bool serve_origin_allowed(const serve_server *server, const char *origin, const char *host, bool *cors);

#endif
