/* kv_int.h - the KV cache's state, shared by kv.c (tables and pages) and kv_prefix.c (the tree). */
#ifndef AE_ENGINE_KV_INT_H
#define AE_ENGINE_KV_INT_H

#include "engine/kv.h"

typedef struct kv_seq {
    int32_t *table; /* [max_pages] */
    uint32_t n_pages, n_live, n_reserved;
} kv_seq;

#define AE_KV_NONE (-1)

/* A page as a node of the prefix tree; indices are page numbers or AE_KV_NONE. */
typedef struct kv_node {
    uint32_t n_tokens;          /* 0: the page is no node */
    int32_t parent;             /* NONE: the root */
    int32_t child, next, prev;  /* first child; siblings */
    int32_t newer, older;       /* by last use */
} kv_node;

struct ae_kv {
    ae_backend *backend;
    ae_kv_store *store;
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
    int32_t root_child;    /* first page of some sequence */
    int32_t newest, oldest;
    uint32_t n_idle;       /* nodes that only the tree holds */
};

/* A page with one holder, AE_KV_NONE when there is none to be had. */
int32_t ae_kv_page_take(ae_kv *kv);
void ae_kv_page_hold(ae_kv *kv, int32_t page);
void ae_kv_page_drop(ae_kv *kv, int32_t page);
/* kv_prefix.c: frees the least recently used page that only the tree holds; false: there is none. */
bool ae_kv_evict(ae_kv *kv);
/* kv_prefix.c: for ae_kv_is_sound. */
bool ae_kv_prefix_is_sound(const ae_kv *kv);

#endif
