/* router.h - aerie router: one address for several servers, any of which may fail.
 * Owns the list of servers, what is known about each, and the choice of a server for a request. forward.h forwards requests.
 * serve/http is the HTTP side towards clients, libcurl the one towards servers. Invariants: a request runs on one server at a
 * time; a server that is down gets none. Bytes that a client has received are final: a server that continues an answer must
 * first give the same bytes again (forward.h). Threads: one per server checks it; connections' threads choose servers; all
 * use router.lock. */
#ifndef AERIE_APP_ROUTER_ROUTER_H
#define AERIE_APP_ROUTER_ROUTER_H

#include "serve/http/http.h"

#define ROUTER_MAX_SERVERS 64

typedef struct router_model {
    char *name;           /* owned */
    char fingerprint[24]; /* fingerprint of its file; "": not loaded yet */
    char build[32];
} router_model;

typedef struct router_target {
    struct router *router;
    const char *name; /* as it was given */
    char *base;       /* "http://host:port", to which paths are appended; owned */
    char *path;       /* path of its Unix socket; owned; NULL: it uses TCP */
    pthread_t thread; /* checks it */
    bool has_thread;
    /* under router.lock */
    bool up;
    uint64_t n_losses; /* how often it went down, by which requests notice that theirs is lost */
    uint32_t n_active;
    uint64_t n_requests, n_failed;
    char why[256]; /* why it is down; "": not checked yet */
} router_target;

typedef struct router {
    serve_server *server;
    char id[48]; /* identifies this router in its /health, so that it does not use itself as a server */
    const app_router_options *o;
    char key[560]; /* Authorization header of the router's own requests; "": none. Set before threads start */
    router_target targets[ROUTER_MAX_SERVERS]; /* [n] */
    size_t n;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a server came up, or the router ends; waits use the monotonic clock */
    bool ends;
    router_model *models; /* [n_models] each as the first server with it reported it */
    size_t n_models, capacity;
    struct router_affinity *affinity;
    atomic_ullong n_replays, n_failed, n_canaries, n_differences;
    atomic_uint n_canaries_running;
} router;

/* Chooses a server that is up and not in `avoid` (a bit per server), and counts the request for it. hashes [n]: of the
 * request's beginnings, the longest last (affinity.h). Returns NULL if there is none. */
router_target *router_take(router *r, const uint64_t *hashes, size_t n, uint64_t avoid, uint64_t *n_losses);
/* Ends the use that router_take began, with its n_losses. unreachable: the server did not answer, and counts as down until it
 * answers a check. */
void router_give(router *r, router_target *target, uint64_t n_losses, bool unreachable, const char *why);
/* Returns whether the server went down after router_take. */
bool router_is_lost(router *r, const router_target *target, uint64_t n_losses);
/* Waits at most this many seconds until a server comes up. */
void router_wait(router *r, double seconds);
/* Returns whether the router ends. */
bool router_ends(router *r);

/* ---- check.c ---- */

/* Starts and ends the threads that check servers. */
bool router_checks_start(router *r);
void router_checks_stop(router *r);

#endif
