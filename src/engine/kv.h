/* kv.h - the paged KV cache: which slot of which sequence holds what, and who may write it.
 *
 * Owns: the device's page store, the page tables, the reference counts. Does not own: the values,
 * which the forward pass writes through the tables.
 *
 * A page holds AE_KV_PAGE positions of all layers. A sequence has a table of pages and numbers its
 * slots through it; committed position p sits in slot p. States of a slot, and the one function
 * that makes each transition:
 *
 *                     ae_kv_reserve                    ae_kv_commit
 *        [free] -------------------------> [draft] -----------------------> [live]
 *          ^                                  |                              |  ^
 *          |      ae_kv_commit (the rest),    |                              |  | ae_kv_reserve copies the
 *          |<----- ae_kv_truncate ------------+                ae_kv_share   |  | page before it is written
 *          |                                                                 v  |
 *          +<---------------- ae_kv_truncate ----------------------------- [shared]
 *
 *   free    no page, or a page slot behind n_reserved: its bytes mean nothing.
 *   draft   slots [n_live, n_reserved): the pass may write them; nothing but that pass's own rows
 *           reads them. A path of drafts becomes live by moving into slots n_live, n_live + 1, ...
 *   live    slots [0, n_live): exact, never written again while live.
 *   shared  live, in a page that several tables hold (count > 1): never written by anyone.
 *
 * Invariants
 *   1. A page is in a free list or has count = number of tables that hold it.
 *   2. Slots of a table below n_live were computed from exactly this sequence's tokens.
 *   3. A page that covers a draft slot has count 1.
 *   4. After ae_kv_commit or ae_kv_truncate no draft slot exists: rejected rows leave no trace (law:
 *      the live rows equal those of a run that never drafted).
 */
#ifndef AE_ENGINE_KV_H
#define AE_ENGINE_KV_H

#include "backend/backend.h"

typedef struct ae_kv ae_kv;

typedef struct ae_kv_options {
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t n_seqs;
    uint32_t n_slots; /* per sequence, drafts included */
    ae_kv_type type;
} ae_kv_options;

/* Device bytes of a cache, for planning. SIZE_MAX when it cannot be counted. */
size_t ae_kv_plan_bytes(const ae_backend *backend, const ae_kv_options *options);
aerie_status ae_kv_create(ae_kv **out, ae_backend *backend, const ae_kv_options *options, aerie_error *error);
void ae_kv_free(ae_kv *kv);

uint32_t ae_kv_n_live(const ae_kv *kv, uint32_t seq);
ae_kv_store *ae_kv_pages(const ae_kv *kv);
/* [n_pages of the sequence] page numbers; valid until the next change of the sequence. */
const int32_t *ae_kv_table(const ae_kv *kv, uint32_t seq);

/* Make slots [n_live, n_live + n) writable. LIMIT when n_slots would be passed; nothing changes then. */
aerie_status ae_kv_reserve(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n, aerie_error *error);
/* The next n_chain drafts become live where they are; then those in slots path[0..n) (ascending) become the
 * positions behind them. All other drafts are dropped. */
void ae_kv_commit(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n_chain, const int32_t *path, uint32_t n);
/* Keep positions [0, n); n <= n_live. Drafts are dropped, pages without a live slot freed. */
void ae_kv_truncate(ae_kv *kv, uint32_t seq, uint32_t n);
/* Drops a page of live slots and numbers those behind it anew, 64 lower: for caches with a window. Drafts are dropped. */
void ae_kv_forget(ae_kv *kv, uint32_t seq, uint32_t i_page);
/* `to` (emptied first) gets positions [0, n) of `from`: whole pages shared, the last part copied.
 * n is cut to what `from` has live. */
void ae_kv_share(ae_kv *kv, ae_stream *stream, uint32_t to, uint32_t from, uint32_t n);

/* For tests: bytes of one slot's K and V, and their values. */
size_t ae_kv_slot_bytes(const ae_kv *kv);
void ae_kv_read(const ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t slot, void *out);
/* For tests: checks invariants 1 and 3. */
bool ae_kv_is_sound(const ae_kv *kv);

#endif
