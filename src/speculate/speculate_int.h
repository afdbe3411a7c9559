/* speculate_int.h - the loop's state, and what its files do for each other.
 *
 * speculate.c owns the state and the order of a pass; start.c begins sequences, plan.c gives them rows and pages,
 * draft.c fills their trees, walk.c draws, tells and commits.
 */
#ifndef AE_SPECULATE_SPECULATE_INT_H
#define AE_SPECULATE_SPECULATE_INT_H

#include "speculate/constrained.h"
#include "speculate/speculate.h"
#include "speculate/control/clock_trial.h"

typedef struct spec_slot {
    bool active, ignore_eog;
    bool follows;       /* its sampler is lent, and it keeps its positions when it ends (ae_spec_follow) */
    uint64_t number;    /* of its start: lower is older */
    uint64_t scope;     /* of its newest sequence, also after it has ended */
    bool forgotten;     /* ae_spec_forget */
    uint32_t leader;    /* the slot that computes what this one waits for; NO_SLOT: none */
    uint64_t leader_number;
    uint32_t n_awaited; /* first tokens that both have */
    bool preempted;     /* its pages were taken away; it runs again when there is room for all its tokens */
    uint32_t turn;      /* position of the prompt to which a later request may return; 0: none */
    uint32_t n_told;    /* positions of which `row` was told */
    ae_spec_row *row; /* NULL: nobody is told of the rows */
    void *row_user;
    int32_t *tokens; /* [n_ctx + 1] prompt and output; what the KV cache holds is a prefix of it */
    size_t n_tokens;
    uint32_t n_predict;
    uint32_t n_answered; /* tokens of the answer that the request came with */
    ae_sampler *sampler;
    ae_constraint *constraint; /* NULL: any text; kept for the next request with the same grammar */
    aerie_stats stats;
    double start_time;
    /* this pass */
    uint32_t n_chain, first_chain, first_tree;
    bool decoding;        /* all pending tokens are in the pass: a token will be drawn */
    double draft_seconds;
    uint32_t i_chance;    /* in this pass; UINT32_MAX: it had none */
    ae_acceptance acceptance;
    ae_tree tree;
    /* what its walk drew, and the path that it took */
    size_t n_before; /* tokens */
    ae_walked walked;
} spec_slot;

#define NO_SLOT UINT32_MAX
#define AE_SPEC_SNAPSHOT_EVERY 4096 /* positions, of recurrent state */

struct ae_spec {
    ae_engine *engine;
    ae_drafter *drafter;
    ae_spec_options options;
    ae_controller controller;
    const ae_vocab *vocab;
    uint32_t n_ctx, n_slots, n_active;
    spec_slot *slots; /* [n_slots] */
    uint32_t *order;  /* [n_active] active slots, oldest first */
    uint64_t n_started;
    ae_token_trie *trie; /* made for the first grammar */
    float *masked;       /* [n_vocab] with it */
    /* this pass */
    ae_round round;
    ae_result result;
    double draft_seconds;       /* of offers and network */
    ae_draft_request *requests; /* [n_slots] */
    ae_draft_request *asked;    /* [n_slots] those of them for which the network drafts */
    ae_chance *chances;         /* [n_slots] of the requests */
    uint32_t *walking;          /* [n_slots] slots that the device draws for, then those that a thread of the host does */
    ae_engine_walk *walks;      /* [n_slots] of the former */
    ae_walked *walked;          /* [n_slots] what came of them */
    ae_trial trial[2];          /* [ae_draft_kind] */
    int32_t *seen_rows;         /* [largest pass] */
    uint32_t n_pages_left;      /* of the KV cache, for trees: what no chunk of the pass needs */
    uint32_t n_tree_rows;       /* nodes that fit the pass */
    double row_seconds;         /* a row's share of the last passes with prompts; 0: none yet */
};

/* ---- speculate.c ---- */

aerie_status ae_spec_out_of_step(uint32_t slot, aerie_error *error);
/* The sequence ends; its pages are still the slot's. */
void ae_spec_finish(ae_spec *spec, spec_slot *s, aerie_stop stop);
/* What the cache holds of a sequence goes to the prefix tree. */
void ae_spec_release(ae_spec *spec, uint32_t i_slot);

/* The network will not be asked for drafts in the next rounds. */
static inline bool ae_spec_rests(const ae_spec *spec)
{
    return ae_trial_rests(&spec->trial[AE_KIND_DRAFT]) || ae_controller_rests(&spec->controller);
}

/* ---- plan.c ---- */

/* What each slot brings to the pass: a chunk of what is pending. Room is kept for a tree on every slot that
 * decodes. */
void ae_spec_plan(ae_spec *spec);
/* How long a pass over prompts took, for the bound on pauses. */
void ae_spec_saw_prompts(ae_spec *spec, uint32_t n_rows, double seconds);

/* ---- draft.c ---- */

/* Drafts for all slots that decode, cut to what is worth verifying. offers, network: whether they may be asked. */
aerie_status ae_spec_propose(ae_spec *spec, bool offers, bool network, aerie_error *error);

/* ---- walk.c ---- */

/* Draws for all slots that decode; nobody is told of the tokens yet. */
aerie_status ae_spec_walk(ae_spec *spec, aerie_error *error);
/* Tells of what the walk drew, until somebody wants no more; then the KV cache keeps what was accepted. */
aerie_status ae_spec_deliver(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user, aerie_error *error);
/* The chunk's rows and those of the accepted path are true now: the cache keeps them, the drafter may learn from them. */
aerie_status ae_spec_commit(ae_spec *spec, uint32_t i_slot, const int32_t *path, uint32_t n_path, aerie_error *error);

/* ---- start.c ---- */

/* Where a sequence can begin. */
typedef struct origin {
    uint32_t slot;             /* the free slot that has most tokens in common: its drafter knows them */
    uint32_t donor, n_same;    /* the slot, free or not, that has most */
    uint32_t source, n_source; /* the running slot whose live positions can be shared, if the prefix tree has fewer */
    uint32_t leader, n_leader; /* the running slot that will compute most of the prompt before long */
    bool stranger;             /* the slot's newest sequence was of another scope */
} origin;

/* The slot, whose cache is emptied, gets what there is of its first n_most tokens: from the prefix tree, or from positions
 * [0, n_source) of a running slot if these are more. The drafter is told. */
void ae_spec_reuse(ae_spec *spec, uint32_t i_slot, const int32_t *tokens, uint32_t n_most, const origin *from);

#endif
