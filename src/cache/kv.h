/* kv.h - the paged KV cache: which slot of which sequence holds what, and when it may be written.
 *
 * Owns: the devices' page stores, the page tables and their copies on the devices, the reference counts, the prefix tree. Does
 * not own: the values, which the forward pass writes through the tables.
 *
 * Layers may be on several devices. Tables and counts are the same for all of them; each has a store for its own layers and
 * copies of the tables.
 *
 * A page holds AE_KV_PAGE positions of all layers. All sequences take their pages from one pool, as they need them. A
 * sequence has a table of pages and numbers its slots through it; committed position p is in slot p. What layers with a
 * window keep is in a part of the page, which the page may lose (below). States of a slot, and the one function that makes
 * each transition:
 *
 *                     ae_kv_reserve                    ae_kv_commit
 *        [free] -------------------------> [draft] -----------------------> [live]
 *          ^                                  |                              |  ^
 *          |      ae_kv_commit (the rest),    |                  ae_kv_share |  | ae_kv_reserve copies the
 *          |<----- ae_kv_truncate ------------+                  ae_kv_keep  |  | page before it is written
 *          |                                                     ae_kv_adopt v  |
 *          +<---------------- ae_kv_truncate ----------------------------- [shared]
 *
 *   free    no page, or a slot of a page that is not reserved: its bytes have no meaning.
 *   draft   slots [n_live, n_reserved): the pass may write them; nothing but that pass's own rows
 *           reads them. A path of drafts becomes live by moving into slots n_live, n_live + 1, ...
 *   live    slots [0, n_live): exact, never written again while live.
 *   shared  live, in a page with other holders (count > 1): never written by anyone.
 *
 * The prefix tree keeps pages of sequences that have ended. A node is a page with the tokens of its positions; its parent
 * is the page before it, and first pages have a key. A node of fewer than AE_KV_PAGE tokens has no children. When the
 * pool has no free page, pages that only the tree holds are given up, least recently used first, leaves before their parents.
 *
 * Windows. Layers that see no more than `window` positions keep their keys and values in parts, of a store of their own; a page
 * has a part or none. A sequence needs the parts of those pages that its next row, or one of AE_KV_PAGE positions before
 * it, can see. A part that no sequence needs stays as long as no other page wants it: least recently needed ones go first,
 * those of ae_kv_retain after all others. A sequence can be cut, shared or found again only at a position whose whole window
 * has its parts: its landing.
 *
 * Invariants
 *   1. A page is in the free list, or its count is the number of its holders: tables, and the tree if it is a node.
 *   2. Slots of a table below n_live were computed from exactly this sequence's tokens and adapters; so were the positions of
 *      a node from the tokens on its path and those of its key.
 *   3. A page that covers a draft slot has count 1.
 *   4. After ae_kv_commit or ae_kv_truncate no draft slot exists: rejected rows leave no trace (law:
 *      the live rows equal those of a run that never drafted).
 *   5. A table that holds a node's page holds the pages of the node's ancestors too.
 *   6. All pages from the first that the row at n_live sees have parts.
 *
 * Every function that writes a table checks in all builds that it stays inside it. INTERNAL: it would not have, and nothing
 * has changed.
 */
#ifndef AE_CACHE_KV_H
#define AE_CACHE_KV_H

#include "backend/backend.h"

typedef struct ae_kv ae_kv;

/* What a sequence was computed with besides its tokens, and who owns it. Sequences with different keys share nothing: with
 * different adapters their rows differ, and with different scopes a hit in the cache would reveal another owner's text. */
typedef struct ae_kv_key {
    uint64_t adapters; /* 0: none */
    uint64_t scope;    /* 0: the common scope */
} ae_kv_key;

static inline bool ae_kv_key_equal(ae_kv_key a, ae_kv_key b)
{
    return a.adapters == b.adapters && a.scope == b.scope;
}

/* A device that holds the cache of some layers, and the stream for its operations. */
typedef struct ae_cache_device {
    ae_backend *backend;
    ae_stream *stream;
} ae_cache_device;

typedef struct ae_kv_options {
    uint32_t n_layers;
    const ae_kv_layer *layers; /* [n_layers], copied */
    uint32_t n_seqs;
    uint32_t n_slots; /* slots of a sequence, drafts included */
    ae_kv_type type;
    /* pages of the pool, raised to what one sequence may need; 0: enough for all sequences at their longest */
    uint32_t n_pages;
    const uint32_t *windows; /* [n_layers] positions that a row sees in each layer, 0: all; NULL: no layer has a window */
    uint32_t n_batch;        /* with windows: slots that all sequences together reserve at a time */
    uint32_t n_retained;     /* with windows: number of windows that ae_kv_retain can keep */
    uint32_t n_devices;      /* 0: all layers are on the backend given to ae_kv_create, and operations go to the stream that a
                              * call names. Otherwise they go to the streams of `devices`, and streams in calls are ignored. */
    const ae_cache_device *devices; /* [n_devices]; planning does not use the streams */
    const uint8_t *device_of;       /* [n_layers] device of each layer; ascending */
} ae_kv_options;

/* Returns the bytes that a cache takes, for planning. on [n_devices], if it is not NULL, gets the bytes on each device. Returns
 * SIZE_MAX if they overflow. */
size_t ae_kv_plan_bytes(const ae_backend *backend, const ae_kv_options *options, size_t *on);
aerie_status ae_kv_create(ae_kv **out, ae_backend *backend, const ae_kv_options *options, aerie_error *error);
void ae_kv_free(ae_kv *kv);

uint32_t ae_kv_n_live(const ae_kv *kv, uint32_t seq);
/* Arguments of operations on a device's layers; all NULL if the device has no layer. */
typedef struct ae_kv_view {
    ae_kv_store *pages; /* layers without a window, in the order of the options */
    ae_kv_store *parts; /* layers with a window; NULL: there are none */
    const int32_t *tables;      /* (device) [n_seqs][ae_kv_table_stride] page numbers of each sequence, as last uploaded */
    const int32_t *part_tables; /* (device) the same shape, for layers with a window: the parts of pages that the sequence
                                 * needs, 0 elsewhere */
} ae_kv_view;
ae_kv_view ae_kv_on(const ae_kv *kv, uint32_t i_device);
/* Returns the store of the first device's layers without a window. */
ae_kv_store *ae_kv_pages(const ae_kv *kv);

/* ---- Page tables on the device ---- */

uint32_t ae_kv_table_stride(const ae_kv *kv);
/* Sends both tables of a sequence to the devices. Must be called before each pass with rows of that sequence. */
void ae_kv_upload_table(ae_kv *kv, ae_stream *stream, uint32_t seq);

/* Returns how many pages can be taken now: free ones, and those that only the prefix tree holds. */
uint32_t ae_kv_n_available(const ae_kv *kv);
/* Pages of the pool. */
uint32_t ae_kv_n_pages(const ae_kv *kv);
/* Returns how many pages ae_kv_reserve would take for n slots after the live ones. */
uint32_t ae_kv_n_missing(const ae_kv *kv, uint32_t seq, uint32_t n);
/* Makes slots [n_live, n_live + n) writable; gives up pages of the prefix tree if needed. LIMIT: n_slots would be exceeded, or
 * the pool has too few pages; then nothing changes. */
aerie_status ae_kv_reserve(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n, aerie_error *error);
/* Makes drafts live: the next n_chain ones where they are; then those in slots path[0..n) (ascending) become the positions
 * after them. All other drafts are dropped. Rows that have to move may wait for those of other sequences: every function of
 * this cache that touches rows on the device, and ae_kv_upload_table before a pass, moves them first. */
aerie_status ae_kv_commit(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n_chain, const int32_t *path, uint32_t n);
/* Moves the rows that commits have left waiting, for all sequences in one operation. */
void ae_kv_settle(ae_kv *kv, ae_stream *stream);
/* Returns where the sequence can be cut: the last such position up to n. Without windows that is n itself. */
uint32_t ae_kv_landing(const ae_kv *kv, uint32_t seq, uint32_t n);
/* Keeps positions [0, n); n is a landing. Drafts are dropped, pages without a live slot released. */
aerie_status ae_kv_truncate(ae_kv *kv, uint32_t seq, uint32_t n);
/* Keeps the windows that the sequence sees at n_live longer than others, so that this sequence, or one with the same beginning,
 * can land there. */
void ae_kv_retain(ae_kv *kv, uint32_t seq);
/* Returns whether there are fewer parts for windows than pages, so that a sequence may lose some. */
bool ae_kv_loses_parts(const ae_kv *kv);
/* Drops a page of live slots and renumbers those after it, 64 lower: for drafter heads with a window, whose rows do not depend
 * on positions. Drops drafts. INTERNAL if layers have windows. */
aerie_status ae_kv_forget(ae_kv *kv, uint32_t seq, uint32_t i_page);
/* Empties `to` and gives it positions [0, n) of `from`: whole pages are shared, the rest of the last page is copied. n is
 * reduced to what `from` has live and to its landing, and to whole pages if there is no page for the copy. */
aerie_status ae_kv_share(ae_kv *kv, ae_stream *stream, uint32_t to, uint32_t from, uint32_t n);

/* ---- prefix.c: the prefix tree -------------------------------------------------------------------- */

/* Adds the live positions of a sequence to the tree; tokens [n_live]. The sequence keeps them too. If the tree already has a
 * page of the same tokens, the sequence releases its own and uses the tree's: their bytes are equal. If another sequence also
 * holds the released page, the tree takes nothing from there on. */
void ae_kv_keep(ae_kv *kv, uint32_t seq, ae_kv_key key, const int32_t *tokens);
/* Returns how many of tokens[0..n), from the first on, a sequence could take from the tree: a landing. */
uint32_t ae_kv_match(const ae_kv *kv, ae_kv_key key, const int32_t *tokens, uint32_t n);
/* Empties the sequence and gives it what the tree holds of tokens[0..n): whole pages are shared, the rest of the last page is
 * copied. Returns n_live. */
uint32_t ae_kv_adopt(ae_kv *kv, ae_stream *stream, uint32_t seq, ae_kv_key key, const int32_t *tokens, uint32_t n);
/* Drops everything that only the tree holds. */
void ae_kv_forget_prefixes(ae_kv *kv);

/* Returns the number of canonical bytes of positions [0, n), which do not depend on the device's layout: first those of layers
 * without a window, for all positions; then those of the other layers, for positions from `first` on (a whole number of pages;
 * the parts before it are lost). */
size_t ae_kv_saved_bytes(const ae_kv *kv, uint32_t n, uint32_t first);
/* Returns the `first` with which a sequence can be saved; n is a landing. */
uint32_t ae_kv_saved_first(const ae_kv *kv, uint32_t seq, uint32_t n);
/* A piece of such bytes, for positions [begin, end): layers without a window from position begin on, the other layers from
 * begin or `first` on, whichever is later. */
typedef struct ae_kv_bytes {
    uint8_t *pages, *parts;
} ae_kv_bytes;
/* Finds the piece that begins at `begin` within all bytes [ae_kv_saved_bytes(kv, n, first)]. */
ae_kv_bytes ae_kv_bytes_at(const ae_kv *kv, uint32_t n, uint32_t first, uint32_t begin, const void *all);
/* Writes the bytes of positions [begin, end). */
void ae_kv_save(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t first, uint32_t begin, uint32_t end, ae_kv_bytes out);
/* Returns the `first` with which tokens[0..n) can be saved from the tree; n is a result of ae_kv_match. */
uint32_t ae_kv_prefix_first(const ae_kv *kv, ae_kv_key key, const int32_t *tokens, uint32_t n);
void ae_kv_read_prefix(ae_kv *kv, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first,
                       uint32_t begin, uint32_t end, ae_kv_bytes out); /* as ae_kv_save does */
/* Puts positions [begin, end) of such bytes into the tree, as if a sequence of these tokens had ended. begin must be a whole
 * number of pages, and so must end unless it is n. Pages that the tree already has stay. Returns false if the tree lacks
 * positions before begin, or if pages ran out, in which case the rest is left out. */
bool ae_kv_write_prefix(ae_kv *kv, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first,
                        uint32_t begin, uint32_t end, ae_kv_bytes bytes);
/* Returns the canonical bytes of a position in layers without a window, or in the others. */
size_t ae_kv_store_bytes(const ae_kv *kv, bool parts);

/* For tests: the canonical bytes of a slot's keys and values in all layers, with zeros for lost parts. */
size_t ae_kv_slot_bytes(const ae_kv *kv);
void ae_kv_read(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t slot, void *out);
/* For tests: writes a reserved slot; INTERNAL for any other slot. */
aerie_status ae_kv_write(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t slot, const void *bytes);
/* For tests: whether invariants 1, 3, 5 and 6 hold. */
bool ae_kv_is_sound(const ae_kv *kv);

#endif
