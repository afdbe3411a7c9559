/* remote.h - fetches an image by its URL, from hosts that the operator named, and from public addresses alone.
 *
 * Owns: the check of a URL against the list of hosts, the check of each address, limits of size and time. Does not own: what
 * the bytes are.
 * Invariants: nothing is asked of a host that the list does not have, also after a redirect, which has to stay on the host and
 * may not leave https; the address that is checked is the one that the connection is made to, so a name that resolves to
 * something else the next time gains nothing; no proxy, cookie, password or header of a client is used; URLs never appear in
 * messages. Works without the rest of the program.
 */
#ifndef AERIE_APP_SERVE_REQUEST_REMOTE_H
#define AERIE_APP_SERVE_REQUEST_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct remote_settings {
    const char *hosts; /* "a.example, *.b.example, c.example:8443"; without a port: 443, and 80 with `plain` */
    bool plain;        /* http: URLs are fetched, too */
    size_t max_bytes;  /* of an image */
    long milliseconds; /* for all of it, redirects included */
    /* Whether an address may be connected to; NULL: remote_is_public. */
    bool (*may_reach)(const struct sockaddr *address);
    /* Called for each n bytes before they are kept, and every second with 0; false ends the transfer. */
    bool (*may_grow)(void *user, size_t n);
    void *user;
} remote_settings;

/* Whether the program can: it was built with libcurl. Not thread-safe the first time. */
bool remote_possible(void);

/* Whether the list is valid; otherwise its first word that is not a host is written to bad [64]. */
bool remote_check_hosts(const char *hosts, char bad[64]);

/* Fetches an image. Returns its bytes, released by free, or NULL with a sentence in why [160]. */
uint8_t *remote_get(const char *url, const remote_settings *settings, size_t *n, char why[160]);

/* Whether an address belongs to the public internet: not loopback, private, link-local, shared, reserved or multicast, nor an
 * IPv6 address that stands for an IPv4 address. */
bool remote_is_public(const struct sockaddr *address);

#endif
