/* kv_int.h - the KV cache's state, shared by kv.c (tables and pages), window.c (parts of layers with windows) and
 * prefix.c (the tree). */
#ifndef AE_CACHE_KV_INT_H
#define AE_CACHE_KV_INT_H

#include "cache/kv.h"

typedef struct kv_seq {
    int32_t *table; /* [max_pages] */
    uint32_t n_pages, n_live, n_reserved;
    uint32_t need_begin, need_end; /* range of the pages whose parts the sequence needs */
} kv_seq;

#define AE_KV_NONE (-1)

/* A page as a node of the prefix tree; indices are page numbers or AE_KV_NONE. */
typedef struct kv_node {
    ae_kv_key key;               /* the key of the node's path; only in first pages */
    uint32_t n_tokens;          /* 0: the page is not a node */
    int32_t parent;             /* NONE: a first page */
    int32_t child, next, prev;  /* first child; siblings */
    int32_t newer, older;       /* by last use */
} kv_node;

/* The part of a page for layers with windows. Parts that no sequence needs are in one of two lists, by last need. */
typedef struct kv_part {
    int32_t page; /* NONE: free */
    int32_t newer, older;
    bool retained;
} kv_part;

typedef struct kv_idle {
    int32_t newest, oldest;
} kv_idle;

typedef struct kv_moves {
    int32_t *begin;         /* [n_seqs + 1] */
    ae_kv_move *move;       /* [max_moves] in the store of pages */
    ae_kv_move *part_move;  /* [max_moves] in the store of parts; only with windows */
} kv_moves;

/* The stores and tables on a device; the backend is NULL if the device has no layers. */
typedef struct kv_device {
    ae_backend *backend;
    ae_stream *stream;       /* NULL: the stream of the call */
    ae_kv_store *store, *part_store; /* part_store is NULL if none of its layers has a window */
    void *memory;            /* one block that holds the arrays below */
    size_t bytes;
    int32_t *tables, *part_tables; /* [n_seqs][max_pages]; part_tables only with windows */
    kv_moves moves;
} kv_device;

struct ae_kv {
    kv_device devices[AE_MAX_DEVICES];
    uint32_t n_devices;
    void *memory;
    uint32_t n_seqs, n_slots, max_pages, n_pages;
    kv_seq *seqs;       /* [n_seqs] */
    int32_t *tables;    /* [n_seqs][max_pages] */
    uint32_t *count;    /* [n_pages] holders of the page */
    int32_t *free_list; /* [n_free] */
    uint32_t n_free;
    /* the prefix tree */
    kv_node *nodes;        /* [n_pages] */
    int32_t *node_tokens;  /* [n_pages][AE_KV_PAGE] */
    int32_t root_child;    /* the first of the tree's first pages */
    int32_t newest, oldest;
    uint32_t n_idle;       /* nodes that only the tree holds */
    /* windows: how many positions a row sees, and the number of parts; `window` is 0 if no layer has one */
    uint32_t window, n_parts;
    int32_t *part_of;     /* [n_pages] part of each page, or NONE */
    uint32_t *n_needs;    /* [n_pages] number of sequences that need the page's part */
    kv_part *parts;       /* [n_parts] */
    int32_t *free_parts;  /* [n_free_parts] */
    uint32_t n_free_parts;
    kv_idle idle[2];      /* parts that no sequence needs: [0] those not retained, [1] retained ones */
    int32_t *part_table;  /* [max_pages] */
    /* rows that commits have moved in the tables, but not yet on the devices */
    kv_moves moves;
    uint32_t n_runs, n_moves, max_moves;
};

/* Returns the next device with layers after d. d NULL: the first one. Returns NULL if there is none left. */
static inline kv_device *ae_kv_next_device(ae_kv *kv, const kv_device *d)
{
    for (uint32_t i = d ? (uint32_t)(d - kv->devices) + 1 : 0; i < kv->n_devices; i++)
        if (kv->devices[i].backend) return &kv->devices[i];
    return NULL;
}
static inline ae_stream *ae_kv_stream_of(const kv_device *d, ae_stream *stream)
{
    return d->stream ? d->stream : stream;
}
/* window.c: reading and writing positions as canonical bytes through a (host) table of pages. */
void ae_kv_stores_read(ae_kv *kv, ae_stream *stream, bool parts, const int32_t *table, uint32_t slot, uint8_t *out);
void ae_kv_stores_write(ae_kv *kv, ae_stream *stream, bool parts, const int32_t *table, uint32_t slot, const uint8_t *bytes);

/* Takes a page with one holder; returns AE_KV_NONE if no page is left. */
int32_t ae_kv_page_take(ae_kv *kv);
void ae_kv_page_hold(ae_kv *kv, int32_t page);
void ae_kv_page_drop(ae_kv *kv, int32_t page);
/* Copies n slots of a page that is in use to a new page; returns AE_KV_NONE if no page is left. */
int32_t ae_kv_page_copy(ae_kv *kv, ae_stream *stream, int32_t from, uint32_t n);

/* window.c: returns the first page that the row at position n sees. */
static inline uint32_t ae_kv_first_page(const ae_kv *kv, uint32_t n)
{
    return n < kv->window ? 0 : (n + 1 - kv->window) / AE_KV_PAGE;
}
static inline bool ae_kv_has_part(const ae_kv *kv, int32_t page)
{
    return !kv->window || kv->part_of[page] >= 0;
}
/* Gives a part to a page that has none. Returns false if no part is left. */
bool ae_kv_part_take(ae_kv *kv, int32_t page);
/* Frees the page's part, if it has one. */
void ae_kv_part_drop(ae_kv *kv, int32_t page);
/* Moves a part from one page to another. */
void ae_kv_part_pass(ae_kv *kv, int32_t from, int32_t to);
/* Records that one more sequence, or one less, needs the page's part. */
void ae_kv_part_need(ae_kv *kv, int32_t page);
void ae_kv_part_unneed(ae_kv *kv, int32_t page);
/* Updates which parts the sequence needs for n_live, among its first n_pages pages. */
void ae_kv_seq_need(ae_kv *kv, kv_seq *s, uint32_t n_pages);
/* Returns the parts of the sequence's pages [n_pages of the sequence], 0 for pages whose part it does not need. Valid until the
 * next call. */
const int32_t *ae_kv_part_table(ae_kv *kv, uint32_t seq);
/* For ae_kv_is_sound. */
bool ae_kv_window_is_sound(const ae_kv *kv);

/* A search for a landing: the caller shows pages, from the last one, (n - 1) / AE_KV_PAGE, downwards, until the landing is
 * found. */
typedef struct kv_landing {
    uint32_t n, first;
} kv_landing;
static inline kv_landing ae_kv_landing_begin(const ae_kv *kv, uint32_t n)
{
    return (kv_landing){n, kv->window ? ae_kv_first_page(kv, n) : UINT32_MAX};
}
/* Shows page i, whose number is `page`. Returns true if the page before it must be shown too. */
static inline bool ae_kv_landing_step(const ae_kv *kv, kv_landing *l, uint32_t i, int32_t page)
{
    if (i >= l->first && !ae_kv_has_part(kv, page)) *l = ae_kv_landing_begin(kv, i * AE_KV_PAGE);
    return i > l->first;
}

/* prefix.c: frees the least recently used page that only the tree holds. Returns false if there is none. */
bool ae_kv_evict(ae_kv *kv);
/* prefix.c: for ae_kv_is_sound. */
bool ae_kv_prefix_is_sound(const ae_kv *kv);

#endif
