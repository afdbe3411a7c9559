/* speculate_int.h - the loop's state, and the functions that its files share.
 *
 * speculate.c owns the state and the order of a pass; start.c begins sequences, park.c takes them out of their slots and puts
 * them back, plan.c gives them rows and pages, draft.c fills their trees, walk.c draws tokens, reports them and commits their
 * rows. The states of a slot are described in speculate.h.
 */
#ifndef AE_SPECULATE_SPECULATE_INT_H
#define AE_SPECULATE_SPECULATE_INT_H

#include "speculate/constrained.h"
#include "speculate/control/waves.h"
#include "speculate/speculate.h"

typedef struct spec_slot {
    bool active, ignore_eog;
    bool follows;       /* the sampler is lent, and the slot keeps its positions when the sequence ends (ae_spec_follow) */
    uint64_t number;    /* start number: a lower one is older */
    uint64_t scope;     /* scope of the slot's newest sequence, also after it has ended */
    uint64_t client, group; /* whose it is (share.h) */
    uint64_t last_pass; /* the last pass in which the slot had rows */
    bool forgotten;     /* ae_spec_forget was called since the last ae_spec_follow */
    uint32_t leader;    /* the slot that computes the prefix that this one waits for; NO_SLOT: none */
    uint64_t leader_number; /* start number of the awaited sequence */
    uint32_t n_awaited; /* length of the awaited prefix, which both have */
    bool preempted;     /* the slot's pages were taken away; it resumes when there is room for all its tokens */
    uint32_t turn;      /* position of the prompt to which a later request may return; 0: none */
    uint32_t n_told;    /* positions that were reported to `row` */
    bool reads_logits;  /* as in ae_spec_request */
    ae_spec_row *row; /* NULL: none */
    void *row_user;
    const ae_media *media; /* [n_media] lent; the contents of the rows whose token is below 0 */
    uint32_t n_media;
    int32_t *tokens; /* [n_ctx + 1] prompt and output; the KV cache holds a prefix of them */
    size_t n_tokens;
    uint32_t n_predict;
    ae_spec_limits limits;
    uint32_t n_answered; /* tokens of the answer that the request came with */
    struct ae_canvas *canvas; /* denoise.h; NULL: the model generates from left to right */
    ae_sampler *sampler;
    ae_constraint *constraint; /* NULL: any text; kept for the next request with the same grammar */
    ae_reasoning *reasoning;   /* NULL: reasoning has no limit */
    aerie_stats stats;
    double start_time;
    /* this pass */
    uint32_t n_chain, first_chain, first_tree;
    uint32_t i_part;      /* the slot's number in the shares of the pass; NO_SLOT: none */
    uint32_t n_most_drafts;
    bool decoding;        /* all pending tokens are in the pass, so a token will be drawn */
    double draft_seconds;
    uint32_t i_chance;    /* the slot's element of ae_spec.chances; UINT32_MAX: none */
    ae_acceptance acceptance;
    ae_tree tree;
    /* results of its walk: the tokens drawn and the path taken */
    size_t n_before; /* n_tokens before the walk */
    ae_walked walked;
    bool walks;      /* the slot's walk runs on the host and has not ended */
    int32_t at;      /* the node from which the walk draws next; -1: the root */
} spec_slot;

#define NO_SLOT UINT32_MAX
#define AE_SPEC_WARM 16   /* rounds in which a network that was paused gets its state ready */
#define AE_SPEC_SNAPSHOT_EVERY 4096 /* positions between two snapshots of recurrent state */

struct ae_spec {
    ae_engine *engine;
    ae_drafter *drafter;
    ae_spec_options options;
    ae_controller controller;
    ae_waves *waves; /* NULL: the model does not run in a pipeline */
    struct ae_denoiser *denoiser; /* denoise.h; NULL: the model generates from left to right */
    const ae_vocab *vocab;
    uint32_t n_ctx, n_slots, n_active;
    spec_slot *slots; /* [n_slots] */
    uint32_t *order;  /* [n_active] active slots, oldest first */
    uint64_t n_started;
    ae_share share;
    uint32_t *share_rows; /* [n_slots] rows by part of the pass */
    ae_token_trie *trie; /* created when the first grammar is used */
    float *masked;       /* [n_vocab] created together with the trie */
    /* this pass */
    ae_round round;
    ae_result result;
    double draft_seconds;       /* seconds of n-gram drafts and network drafts */
    ae_draft_request *requests; /* [n_slots] */
    ae_draft_request *asked;    /* [n_slots] the requests for which the network drafts */
    ae_chance *chances;         /* [n_slots] by request */
    uint32_t *walking;          /* [n_slots] slots of a walk: the device's; then those on the host, with a grammar last */
    ae_engine_walk *walks;      /* [n_slots] input of the device's walks */
    ae_walked *walked;          /* [n_slots] results of the device's walks */
    int32_t *seen_rows;         /* [largest pass] */
    uint32_t n_pages_left;      /* pages of the KV cache that no chunk of the pass needs: room for trees */
    uint32_t n_tree_rows;       /* tree nodes that fit the pass */
    uint32_t n_in_pass;         /* slots with rows in it */
    uint32_t n_proposed;        /* drafted nodes before they were cut */
    aerie_pass_callback *watch; /* NULL: nobody watches passes */
    void *watch_user;
    uint64_t n_passes;
    aerie_pass_tree *trees;     /* [n_trees] trees of this pass so far; [n_slots] are created for the first watcher */
    uint32_t n_trees, n_emitted;
    double row_seconds;         /* smoothed time per row of passes with prompts; 0: none yet */
};

/* ---- speculate.c ---- */

aerie_status ae_spec_out_of_step(uint32_t slot, aerie_error *error);
/* Ends the sequence. The slot keeps its pages until ae_spec_release. */
void ae_spec_finish(ae_spec *spec, spec_slot *s, aerie_stop stop);
/* Frees the slot and removes it from the order of active ones; its contents are not touched. */
void ae_spec_leave(ae_spec *spec, spec_slot *s);
/* Hands the sequence's positions in the cache to the prefix tree. A slot that follows (ae_spec_follow) keeps them. */
void ae_spec_release(ae_spec *spec, uint32_t i_slot);

/* Returns whether the network is paused: no drafts are requested from it in the next rounds. */
static inline bool ae_spec_is_paused(const ae_spec *spec)
{
    return ae_controller_is_paused(&spec->controller);
}

/* Returns the position after the last row that is not a token, from which on a drafter may read; 0: there is no such row. */
static inline uint32_t ae_spec_media_end(const spec_slot *s)
{
    return s->n_media ? s->media[s->n_media - 1].first + s->media[s->n_media - 1].n : 0;
}

/* ---- plan.c ---- */

/* Decides what each slot brings to the pass: a chunk of its pending tokens. Keeps room for a tree on every slot that
 * decodes. */
void ae_spec_plan(ae_spec *spec);
/* Records the time of a pass over prompts, for the bound on pauses. */
void ae_spec_saw_prompts(ae_spec *spec, uint32_t n_rows, double seconds);

/* ---- draft.c ---- */

/* Drafts for all slots that decode and cuts the trees to what pays to verify. */
aerie_status ae_spec_propose(ae_spec *spec, aerie_error *error);

/* ---- walk.c ---- */

/* Draws for all slots that decode. Tokens are not reported yet. */
aerie_status ae_spec_walk(ae_spec *spec, aerie_error *error);
/* Reports the tokens that the walk drew, until the sequence ends. Then commits the accepted rows to the KV cache. */
aerie_status ae_spec_deliver(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user, aerie_error *error);
/* Commits the rows of the chunk and of the accepted path to the KV cache; the drafter may learn from them. */
aerie_status ae_spec_commit(ae_spec *spec, uint32_t i_slot, const int32_t *path, uint32_t n_path, aerie_error *error);

/* ---- watch.c ---- */

/* Records the verdict on the slot's tree: the first n_path nodes of its walk were accepted. */
void ae_spec_note_verdict(ae_spec *spec, uint32_t i_slot, uint32_t n_path);
/* Reports the pass that has ended to the watcher. */
void ae_spec_tell_pass(ae_spec *spec, double target_seconds);

/* ---- start.c ---- */

/* The cached parts from which a new sequence can be computed. */
typedef struct origin {
    uint32_t slot;             /* the free slot with most tokens in common, which its drafter knows already */
    uint32_t donor, n_same;    /* the slot, free or not, with most tokens in common, and their number */
    uint32_t source, n_source; /* the running slot with most live positions to share, and their number */
    uint32_t leader, n_leader; /* the running slot that will compute most of the prompt, and how much */
    bool new_scope;            /* the slot's newest sequence had another scope */
    uint32_t n_again;          /* most positions of the cache that may be computed again to bring the drafter up to date */
} origin;

#define AE_SPEC_AGAIN 32

/* n_again of a sequence: at most half of what is still to be generated (n_predict 0: no limit). */
static inline uint32_t ae_spec_again(uint32_t n_predict, uint32_t n_generated)
{
    const uint32_t half = n_predict > n_generated ? (n_predict - n_generated) / 2 : 0;
    return n_predict && half < AE_SPEC_AGAIN ? half : AE_SPEC_AGAIN;
}

/* Finds the origin of a new sequence of these tokens; a free slot must exist. */
origin ae_spec_origin(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, size_t n_tokens);
/* Empties the slot's cache and fills it with up to n_most first tokens: from the prefix tree, or from positions [0, n_source)
 * of a running slot if these are more. Tells the drafter, which starts without the positions that it would need to see again if
 * these are more than n_again. */
void ae_spec_reuse(ae_spec *spec, uint32_t i_slot, const int32_t *tokens, uint32_t n_most, const origin *from);

#endif
