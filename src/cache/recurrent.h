/* recurrent.h - the recurrent state of sequences: which plane and records hold what, and where a sequence can land.
 *
 * Owns: the devices' planes and records, the snapshots and the tokens that they belong to. The rules of a pass are in
 * backend/recurrent.h.
 *
 * A sequence has a plane, the state after its first n_plane positions, and accepted records, root side first, of the
 * positions after those: n_plane + n_accepted positions are live. A KV cache rolls back by forgetting slots; a plane cannot.
 * So a sequence that is cut lands
 *   on n itself, if n is not below n_plane: records are forgotten;
 *   else on the nearest snapshot at or before n whose tokens are the sequence's own; else on 0.
 * The caller computes again from there. A snapshot is a copy of a plane with the tokens that led to it, exactly compared, so
 * any sequence may land on any snapshot: that is also how prefixes are shared. When all places are taken, the least recently
 * used snapshot is given up.
 *
 * States of a sequence: whole (what the fields say is true) and running (a pass has begun and was not committed: the plane
 * may have moved on). A running sequence takes no rows; landing on a snapshot or on 0 makes it whole.
 */
#ifndef AE_CACHE_RECURRENT_H
#define AE_CACHE_RECURRENT_H

#include "cache/kv.h"

typedef struct ae_state ae_state;

typedef struct ae_state_options {
    uint32_t n_layers;
    const ae_state_layer *layers; /* [n_layers], lent while it is created */
    uint32_t n_seqs;
    uint32_t n_slots;     /* positions of a sequence */
    uint32_t n_records;   /* most tentative rows of a sequence in a pass */
    uint32_t n_snapshots; /* places for snapshots, for all sequences together */
    uint32_t n_devices;   /* as in ae_kv_options; 0: uses the backend given to ae_state_create, and the streams of the calls */
    const ae_cache_device *devices; /* [n_devices] */
    const uint8_t *device_of;       /* [n_layers] ascending */
} ae_state_options;

/* Returns host and device bytes. on [n_devices], if it is not NULL, gets the bytes on each device. Returns SIZE_MAX if they
 * overflow. */
size_t ae_state_plan_bytes(const ae_backend *backend, const ae_state_options *options, size_t *on);
aerie_status ae_state_create(ae_state **out, ae_backend *backend, const ae_state_options *options, aerie_error *error);
void ae_state_free(ae_state *state);

uint32_t ae_state_n_records(const ae_state *state);
uint32_t ae_state_n_live(const ae_state *state, uint32_t seq);

/* ---- A pass: begin, add the sequences in the order of their rows, run, commit each of them ---- */

void ae_state_begin(ae_state *state);
/* Adds rows [first, first + n) of the pass as a committed chain of the sequence. INTERNAL: the sequence is running, already has
 * rows, or has too few slots. */
aerie_status ae_state_add_chain(ae_state *state, uint32_t seq, uint32_t first, uint32_t n);
/* Adds rows [first, first + n), which come after those of the chain, as a tree on it; parent[n] are indices into the tree, -1:
 * the chain's end. INTERNAL: as above, or there are more rows than records. */
aerie_status ae_state_add_tree(ae_state *state, uint32_t seq, uint32_t first, const int32_t *parent, uint32_t n);
/* Starts the pass: its sequences are running from now on. row_parent [n_rows] (device), as in ae_state_pass. */
const ae_state_pass *ae_state_run_pass(ae_state *state, ae_stream *stream, uint32_t n_rows, const int32_t *row_parent);
/* Returns the number of sequences in the pass. */
uint32_t ae_state_n_runs(const ae_state *state);
/* The same pass on another device; row_parent is on that device. */
const ae_state_pass *ae_state_pass_on(ae_state *state, uint32_t i_device, const int32_t *row_parent);
/* Accepts all n_chain rows and nodes[0..n) of the tree, from the root down; chain [n_chain] and path [n] are their tokens.
 * INTERNAL: other rows ran; then nothing has changed. */
aerie_status ae_state_commit(ae_state *state, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n,
                             const int32_t *chain, const int32_t *path);

/* ---- Landing ---- */

/* Returns where `seq` would land if it were cut to n positions. */
uint32_t ae_state_landing(const ae_state *state, uint32_t seq, uint32_t n);
/* Cuts the sequence to n positions, or fewer; returns where it landed. */
uint32_t ae_state_truncate(ae_state *state, ae_stream *stream, uint32_t seq, uint32_t n);
/* Gives `to` the state on which `from` would land if it were cut to n; returns its position. */
uint32_t ae_state_share(ae_state *state, ae_stream *stream, uint32_t to, uint32_t from, uint32_t n);
/* Returns the length of the longest snapshot of the first n tokens; 0: there is none. Only snapshots with this key count
 * (kv.h). */
uint32_t ae_state_match(const ae_state *state, ae_kv_key key, const int32_t *tokens, uint32_t n);
/* Gives the sequence the state of that snapshot, under the sequence's own key; returns the position. */
uint32_t ae_state_adopt(ae_state *state, ae_stream *stream, uint32_t seq, const int32_t *tokens, uint32_t n);
/* Sets the key of an empty sequence; the default is {0, 0}. */
void ae_state_set_key(ae_state *state, uint32_t seq, ae_kv_key key);
/* Keeps the state at the live position as a snapshot. Returns false if there are no places for snapshots, or if the sequence is
 * running. */
bool ae_state_snapshot(ae_state *state, ae_stream *stream, uint32_t seq);
void ae_state_forget_snapshots(ae_state *state);

/* Reads or writes the state at the live position as canonical bytes, for saved sequences and tests. INTERNAL for a running
 * sequence. */
size_t ae_state_bytes(const ae_state *state);
aerie_status ae_state_read(ae_state *state, ae_stream *stream, uint32_t seq, void *out);
/* Replaces what the sequence holds by the state after tokens[0..n), given as these bytes. */
aerie_status ae_state_write(ae_state *state, ae_stream *stream, uint32_t seq, const int32_t *tokens, uint32_t n,
                            const void *bytes);
/* Reads the snapshot of exactly these tokens. Returns false if there is none. */
bool ae_state_read_snapshot(ae_state *state, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, void *out);
/* Makes a snapshot of such bytes, in place of the least recently used one. Returns false if there are no places for
 * snapshots. */
bool ae_state_write_snapshot(ae_state *state, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n,
                             const void *bytes);
/* Returns the store of the first device. */
ae_state_store *ae_state_store_get(const ae_state *state);

#endif
