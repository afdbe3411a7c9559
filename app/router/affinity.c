/* affinity.c - implements affinity.h. */
#define _GNU_SOURCE /* memmem */
#include "router/affinity.h"

#include <stdlib.h>
#include <string.h>

enum { N_ENTRIES = 1 << 16 }; /* a power of two; enough for 16 MiB of text */

typedef struct entry {
    uint64_t hash; /* 0: none */
    int server;
} entry;

struct router_affinity {
    entry entries[N_ENTRIES];
};

router_affinity *router_affinity_create(void)
{
    return calloc(1, sizeof(router_affinity));
}

void router_affinity_free(router_affinity *a)
{
    free(a);
}

/* FNV-1a, over 64 bits. */
static uint64_t hash_more(uint64_t hash, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

/* Returns where the text of the conversation begins. */
static size_t find_text(const char *body, size_t n)
{
    static const char *const names[] = {"\"messages\"", "\"prompt\"", "\"input\""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = n ? memmem(body, n, names[i], strlen(names[i])) : NULL;
        if (at) return (size_t)(at - body);
    }
    return 0;
}

size_t router_affinity_hash(const char *body, size_t n, const char *key, uint64_t out[ROUTER_MAX_BLOCKS])
{
    uint64_t hash = 0xcbf29ce484222325u;
    size_t n_out = 0;
    if (key) hash = hash_more(hash, key, strlen(key) + 1);
    for (size_t at = find_text(body, n); n - at >= ROUTER_BLOCK && n_out < ROUTER_MAX_BLOCKS; at += ROUTER_BLOCK) {
        hash = hash_more(hash, body + at, ROUTER_BLOCK);
        out[n_out++] = hash ? hash : 1;
    }
    return n_out;
}

int router_affinity_find(const router_affinity *a, const uint64_t *hashes, size_t n)
{
    while (n-- > 0) {
        const entry *e = &a->entries[hashes[n] % N_ENTRIES];
        if (e->hash == hashes[n]) return e->server;
    }
    return -1;
}

void router_affinity_note(router_affinity *a, const uint64_t *hashes, size_t n, int server)
{
    for (size_t i = 0; i < n; i++) a->entries[hashes[i] % N_ENTRIES] = (entry){hashes[i], server};
}
