/* affinity.h - remembers which server has seen the beginning of a request.
 * The beginning of a prompt is in the prefix cache of the server that last computed it. The router does not parse requests: it
 * divides the text after "messages", "prompt" or "input" in the body into blocks and hashes each together with all before it.
 * The table maps these hashes to servers; it has a fixed size, and new entries replace old ones. Not thread-safe; callers hold
 * router.lock. */
#ifndef AERIE_APP_ROUTER_AFFINITY_H
#define AERIE_APP_ROUTER_AFFINITY_H

#include <stddef.h>
#include <stdint.h>

enum { ROUTER_BLOCK = 256, ROUTER_MAX_BLOCKS = 256 };

typedef struct router_affinity router_affinity;

/* NULL: out of memory. */
router_affinity *router_affinity_create(void);
void router_affinity_free(router_affinity *a);
/* Writes the hashes of the beginnings of body [n], the shortest first, to out, and returns their number. key (NULL: none) is a
 * part of the hashes: as in the servers' caches, two keys share no beginning. */
size_t router_affinity_hash(const char *body, size_t n, const char *key, uint64_t out[ROUTER_MAX_BLOCKS]);
/* Returns the server that has seen the longest of the beginnings, or -1. */
int router_affinity_find(const router_affinity *a, const uint64_t *hashes, size_t n);
/* Records that this server has these beginnings in its cache. */
void router_affinity_note(router_affinity *a, const uint64_t *hashes, size_t n, int server);

#endif
