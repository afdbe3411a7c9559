/* remote.h - fetches an image by its URL, only from hosts that the operator named, and only from public addresses.
 * Owns the check of a URL against the list of hosts, the check of each address, the limits of size and time. Does not own what
 * the bytes mean.
 * Invariants: requests go only to hosts in the list, also after a redirect, which has to stay on the host and must not leave
 * https. The address that is checked is the one that is connected to, so a name that later resolves to another address gains
 * nothing. No proxy, cookie, password or header of a client is used. URLs never appear in messages. Does not depend on the rest
 * of the program. */
#ifndef AERIE_APP_SERVE_REQUEST_REMOTE_H
#define AERIE_APP_SERVE_REQUEST_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct remote_settings {
    const char *hosts; /* "a.example, *.b.example, c.example:8443"; without a port: 443, or 80 with `plain` */
    bool plain;        /* http: URLs are allowed */
    size_t max_bytes;  /* of an image */
    long milliseconds; /* limit of the total time, including redirects */
    /* Returns whether an address may be connected to; NULL: remote_is_public. */
    bool (*may_reach)(const struct sockaddr *address);
    /* Called for each n bytes before they are stored, and every second with 0; returns false to end the transfer. */
    bool (*may_grow)(void *user, size_t n);
    void *user;
} remote_settings;

/* Returns whether the program was built with libcurl. The first call is not thread-safe. */
bool remote_possible(void);

/* Returns whether the list is valid; if not, writes its first invalid word to bad [64]. */
bool remote_check_hosts(const char *hosts, char bad[64]);

/* Fetches an image. Returns its bytes, which the caller releases by free, or NULL with the reason in why [160]. */
uint8_t *remote_get(const char *url, const remote_settings *settings, size_t *n, char why[160]);

/* Returns whether an address is on the public internet: not loopback, private, link-local, shared, reserved or multicast, nor
 * an
 * IPv6 address that stands for an IPv4 address. */
bool remote_is_public(const struct sockaddr *address);

#endif
