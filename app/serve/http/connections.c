/* connections.c - implements connections.h. */
#define _GNU_SOURCE
#include "serve/http/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
    OWN_DESCRIPTORS = 40, /* standard streams, models that are being loaded, the listening socket ... */
    ASLEEP_SECONDS = 2,   /* a longer gap between two checks means that the process did not run */
    GRACE_SECONDS = 1,    /* extra time for a connection whose bytes have arrived but were not read yet */
};

/* ---- Addresses -------------------------------------------------------------------------------------------- */

static void write_address(serve_connection *c, const struct sockaddr *address)
{
    const char *text = NULL;
    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *a = (const void *)address;
        text = inet_ntop(AF_INET, &a->sin_addr, c->address, sizeof c->address);
        c->who[0] = 1;
        c->who[1] = a->sin_addr.s_addr;
    } else if (address && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)address;
        text = inet_ntop(AF_INET6, &a->sin6_addr, c->address, sizeof c->address);
        c->who[0] = IN6_IS_ADDR_V4MAPPED(&a->sin6_addr) ? 1 : 2;
        if (c->who[0] == 1) memcpy(&c->who[1], a->sin6_addr.s6_addr + 12, 4);
        else memcpy(&c->who[1], a->sin6_addr.s6_addr, 8); /* a subscriber usually gets a whole /64 */
    }
    if (!text) snprintf(c->address, sizeof c->address, "unix");
}

static bool is_same(const serve_connection *a, const serve_connection *b)
{
    return a->who[0] && a->who[0] == b->who[0] && a->who[1] == b->who[1];
}

/* ---- Room, under the lock --------------------------------------------------------------------------------- */

static void end(serve_connections *all, serve_connection *c)
{
    shutdown(c->socket, SHUT_RDWR);
    c->is_ending = true;
    c->deadline = 0;
    all->n--;
    all->n_ending++;
}

/* Returns whether b should be closed before a (NULL: none): connections that have never sent a request go first, then the
 * oldest. */
static bool goes_before(const serve_connection *b, const serve_connection *a)
{
    if (!a || a->has_asked != b->has_asked) return !a || a->has_asked;
    return b->since < a->since;
}

/* Closes one idle connection, from the address of `like` (NULL: any address). Returns false if there is none. */
static bool make_room(serve_connections *all, const serve_connection *like)
{
    serve_connection *goes = NULL;
    for (serve_connection *c = all->first; c; c = c->next)
        if (!c->is_busy && !c->is_ending && (!like || is_same(c, like)) && goes_before(c, goes)) goes = c;
    if (goes) end(all, goes), all->n_evicted++;
    return goes != NULL;
}

static bool has_room(serve_connections *all, const serve_connection *like)
{
    uint32_t n_like = 0;
    for (const serve_connection *c = all->first; c && all->most_per_address; c = c->next)
        n_like += !c->is_ending && is_same(c, like);
    if (all->most_per_address && n_like >= all->most_per_address && !make_room(all, like)) return false;
    return all->n < all->most || make_room(all, NULL);
}

/* ---- Connections ------------------------------------------------------------------------------------------ */

serve_connection *serve_connection_open(serve_connections *all, int socket, const struct sockaddr *address)
{
    const struct timespec moment = {0, 2000000};
    serve_connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->all = all;
    c->socket = socket;
    c->since = app_now();
    c->deadline = c->since + SERVE_HEAD_SECONDS;
    write_address(c, address);
    pthread_mutex_lock(&all->lock);
    const bool ok = has_room(all, c), is_flood = all->n_ending > serve_connections_spare(all->most) / 2;
    if (ok) {
        c->next = all->first;
        if (all->first) all->first->before = c;
        all->first = c;
        all->n++;
    } else {
        all->n_refused++;
    }
    pthread_mutex_unlock(&all->lock);
    if (is_flood) nanosleep(&moment, NULL); /* lets closing connections free their descriptors */
    if (ok) return c;
    free(c);
    return NULL;
}

void serve_connection_close(serve_connection *c)
{
    serve_connections *all = c->all;
    pthread_mutex_lock(&all->lock);
    if (c->before) c->before->next = c->next;
    else all->first = c->next;
    if (c->next) c->next->before = c->before;
    if (c->is_ending) all->n_ending--;
    else all->n--;
    pthread_mutex_unlock(&all->lock);
    free(c);
}

/* Called under the lock. */
static void set_deadline(serve_connection *c, double seconds)
{
    c->deadline = seconds > 0 && !c->is_ending ? app_now() + seconds : 0;
    c->is_waited_for = false;
}

void serve_connection_busy(serve_connection *c, bool busy, double seconds)
{
    if (!c) return;
    pthread_mutex_lock(&c->all->lock);
    c->is_busy = busy;
    c->has_asked = true;
    c->since = app_now();
    set_deadline(c, seconds);
    pthread_mutex_unlock(&c->all->lock);
}

void serve_connection_deadline(serve_connection *c, double seconds)
{
    if (!c) return;
    pthread_mutex_lock(&c->all->lock);
    set_deadline(c, seconds);
    pthread_mutex_unlock(&c->all->lock);
}

/* Returns whether bytes have arrived that the connection's thread has not read yet. Says so at most once per deadline. */
static bool has_bytes(serve_connection *c)
{
    struct pollfd fd = {.fd = c->socket, .events = POLLIN};
    if (c->is_waited_for || poll(&fd, 1, 0) <= 0 || !(fd.revents & POLLIN)) return false;
    c->is_waited_for = true;
    return true;
}

void serve_connections_check(serve_connections *all)
{
    pthread_mutex_lock(&all->lock); /* sockets stay open meanwhile: they are closed after serve_connection_close */
    const double now = app_now(), gap = all->checked ? now - all->checked : 0, asleep = gap > ASLEEP_SECONDS ? gap : 0;
    all->checked = now;
    for (serve_connection *c = all->first; c; c = c->next) {
        if (!c->deadline) continue;
        c->deadline += asleep;
        if (c->deadline > now) continue;
        if (has_bytes(c)) c->deadline = now + GRACE_SECONDS;
        else end(all, c);
    }
    pthread_mutex_unlock(&all->lock);
}

uint32_t serve_connections_most(uint32_t wanted)
{
    struct rlimit limit;
    const rlim_t needed = 2 * (rlim_t)wanted + serve_connections_spare(wanted) + OWN_DESCRIPTORS; /* a request has one too */
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) return wanted;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > needed ? needed : limit.rlim_max;
    if (limit.rlim_cur > before && setrlimit(RLIMIT_NOFILE, &limit)) limit.rlim_cur = before;
    if (limit.rlim_cur >= needed) return wanted;
    const rlim_t taken = OWN_DESCRIPTORS + serve_connections_spare(0);
    const rlim_t room = limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
    const uint32_t most = room * 2 / 5 ? (uint32_t)(room * 2 / 5) : 1;
    app_note("at most %u connections at a time instead of --max-connections %u: this process may open only %llu files (ulimit "
             "-n, or systemd's LimitNOFILE), and --max-connections needs %llu",
             (unsigned)most, (unsigned)wanted, (unsigned long long)limit.rlim_cur, (unsigned long long)needed);
    return most;
}
