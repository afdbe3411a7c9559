/* controller.h - how much to draft, and how much of it to verify, decided from measurements; possibly nothing.
 *
 * Drafts come in two kinds. N-gram drafts (AE_KIND_NGRAM) cost next to nothing; tokens that a grammar forces count among them.
 * Network drafts (AE_KIND_NETWORK) run a network. A pass is planned for all of its sequences together:
 *   begin    which network may draft, and whether n-grams are asked
 *   plan     given the n-gram drafts: which sequences the network drafts for, and how many levels
 *   choose   given all trees: which nodes are verified
 * Each takes the option with most expected tokens per second. Plain decoding, n-grams alone, a network alone and both together
 * are all options, and all of them are judged by the same two things: what they take (cost.h), and what is expected to
 * be accepted (rates.h). Expected gains steer. Realised ones only correct the estimates: every verdict goes into the rates
 * of acceptance, every time into the costs.
 *
 * Something that is not expected to pay is still tried if it would pay at the upper end of the estimates, and if the budget
 * allows it. The budget is what may be lost against plain decoding, in plain passes. A session begins with AE_BUDGET_FIRST.
 * Each pass adds AE_BUDGET_SHARE. What a pass with drafts took beyond a plain one, less what its verified tokens were worth
 * (as estimated after the verdict), is subtracted; a gain is added, and no more than AE_BUDGET_MOST is kept. A debt beyond
 * AE_BUDGET_DEBT is forgiven, and drafts that pay even at the lower end of the estimates are not charged, so this is not a
 * hard bound: tests/unit/test_controller_best.c measures what is lost at worst.
 *
 * Owned: costs, rates of acceptance and the budget of a session. Not owned: drafters, trees. There is no model of the machine,
 * and no sweep at start. Timings affect speed only; no choice made here can change an output (law 1).
 */
#ifndef AE_SPECULATE_CONTROL_CONTROLLER_H
#define AE_SPECULATE_CONTROL_CONTROLLER_H

#include "base/err.h"
#include "engine/tree.h"
#include "speculate/control/rates.h"
#include "speculate/control/cost.h"

#define AE_BUDGET_FIRST 1.0
#define AE_BUDGET_MOST 1.0
#define AE_BUDGET_DEBT 0.5
#define AE_BUDGET_SHARE 0.003
#define AE_BUDGET_SHARE_BEST 0.01

typedef struct ae_controller_options {
    uint32_t n_max;   /* draft depth, and nodes of a chain */
    uint32_t n_min;   /* fewer kept nodes than this are not verified */
    uint32_t n_seqs;  /* most sequences of a pass */
    bool fixed;       /* verify everything that is drafted: for tests */
    bool ngrams, drafts; /* which kinds of drafters exist */
    uint32_t n_networks; /* number of networks, of which one drafts in a round; 0 counts as 1 */
    uint32_t n_warm;  /* rounds that a paused network needs to get ready */
} ae_controller_options;

typedef enum ae_draft_kind { AE_KIND_NGRAM, AE_KIND_NETWORK } ae_draft_kind;

/* One of the networks. */
typedef struct ae_network {
    ae_network_cost cost;
    ae_rates rates;
    double upkeep;       /* seconds per round that its state takes while it is not paused */
    double gain, most;   /* expected tokens per second in this round, relative to plain decoding, and their upper end */
    uint32_t n_idle;     /* rounds since it drafted */
    uint32_t n_tried;    /* verdicts on its first levels, until they are forgotten */
    uint32_t n_pause;    /* rounds until the network may be tried although another drafter is better */
    bool paused;         /* it keeps no state */
    uint32_t n_warming;  /* rounds until it may draft after a pause */
} ae_network;

typedef struct ae_controller {
    ae_controller_options options;
    ae_cost cost;
    ae_rates ngrams;     /* acceptance of n-gram drafts */
    double ngram_gain;   /* mean gain per round of asking for n-gram drafts, in plain passes */
    uint32_t ngram_idle, ngram_pause; /* rounds since n-grams were last asked; rounds until they are asked again */
    ae_network networks[AERIE_MAX_DRAFTERS], *net; /* net: the one that may draft in this round */
    uint32_t n_trial;    /* further rounds in which net drafts although another one is expected to be better */
    double budget;       /* what may still be lost against plain decoding, in plain passes */
    /* this round */
    /* n_asked, n_levels: sequences that the network drafts for, and how many levels */
    uint32_t n_rows, n_drawing, n_asked, n_levels;
    double usual, spread; /* mean acceptance of first levels over all sequences, and its variance between them */
    bool plain;          /* this round measures plain decoding */
    /* standard deviations above the mean at which this round's drafts are judged; 0: they are expected to pay */
    double sway;
    double took[2];      /* [ae_draft_kind] usual seconds of drafts like this round's */
    double spent, measured; /* measured seconds of this round's drafts and of its pass */
    bool sure;           /* the drafts pay even at the lower end of the estimates, so they need no budget */
    bool exploring;      /* this round's drafts are paid from the budget */
    double otherwise;    /* expected gain of the alternative to this round's drafts, as a factor */
    double sure_gain;    /* gain of the best trusted network; at least 1 */
    /* seconds of the pass with the chosen nodes: expected, and measured unless it was disturbed */
    double expected, pass;
    double tokens;       /* tokens that the pass with the chosen nodes is expected to bring */
    double gain;         /* expected gain of the last choice over a plain pass, as a factor */
    double worth[2];     /* [ae_draft_kind] tokens expected of the verified nodes, by the estimates after the verdict */
    struct ae_reached *nodes;        /* [n_seqs * AERIE_MAX_DRAFT] while choosing */
    uint64_t *kept;                  /* [n_seqs] kept nodes of each tree */
    struct ae_chance **order;        /* [n_seqs] while planning */
} ae_controller;

aerie_status ae_controller_init(ae_controller *c, const ae_controller_options *options, aerie_error *error);
void ae_controller_free(ae_controller *c);

/* Acceptance of one sequence's drafts; all zero at its start. */
typedef struct ae_acceptance {
    float tries, hits; /* of first levels, decayed */
} ae_acceptance;

/* A sequence that can use a draft. */
typedef struct ae_chance {
    ae_acceptance *acceptance;
    ae_tree *tree;     /* first the n-gram draft, then also the network's, then only the nodes that pay; may be empty */
    uint32_t max_depth;
    uint32_t n_levels; /* out: levels to draft for it, 0 for none; afterwards set to the number drafted, at least 1 */
    /* internal */
    float gain;
    float expected[AERIE_MAX_DRAFT + 1]; /* estimated probability of the best drafted chain by depth, before it was cut */
} ae_chance;

/* Once per pass, before anything else. Returns whether n-gram drafts pay now. */
bool ae_controller_begin(ae_controller *c, const ae_round *round);
/* Notes that a sequence begins: paused n-grams are asked once in its first round, since they may know its text. */
void ae_controller_new_text(ae_controller *c);
/* Records the time of n-gram drafts for n sequences. */
void ae_controller_saw_ngrams(ae_controller *c, uint32_t n, double seconds);
/* Called after the n-gram drafts, if there were any: decides how many levels a network runs for each of n sequences. Returns
 * false if for none. */
bool ae_controller_plan(ae_controller *c, const ae_round *round, ae_chance *chances, uint32_t n);
/* Records a draft of n_levels for n sequences: seconds of the first level, and of all others together. */
void ae_controller_saw_draft(ae_controller *c, uint32_t n, uint32_t n_levels, double first, double others);
/* Path probability below which a node does not pay for its row; 0 while nothing is known. */
float ae_controller_floor(const ae_controller *c, const ae_round *round);
/* Cuts the trees of n sequences to the nodes that pay to verify, possibly none. spent: seconds that the network took for these
 * drafts. */
void ae_controller_choose(ae_controller *c, const ae_round *round, double spent, ae_chance *chances, uint32_t n);

/* Records the time of a pass over n_rows rows, drafts included. */
void ae_controller_saw_pass(ae_controller *c, const ae_round *round, uint32_t n_rows, double seconds);
/* Records the verdict on a sequence's tree: path[0..n_accepted) are the accepted nodes. */
void ae_controller_saw_verdict(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted);

/* The outcome of a pass; arrays by ae_draft_kind. */
typedef struct ae_result {
    bool used[2];             /* the kind ran in this pass, verified or not */
    uint32_t n_nodes[2];      /* verified nodes */
    uint32_t n_accepted[2];   /* accepted nodes; those that both kinds proposed count as n-gram drafts */
    double upkeep;            /* seconds that a network's state takes, besides its drafts */
    double start;             /* seconds in which a network read text that it had not seen; counted once */
    double seconds;           /* seconds of the whole round; 0: unknown */
} ae_result;

/* After every pass. */
void ae_controller_saw_round(ae_controller *c, const ae_round *round, const ae_result *result);

/* Returns whether all networks are paused in the next rounds, so that they need not keep their state. */
bool ae_controller_is_paused(const ae_controller *c);
/* Returns the network that drafts in this round, if any does. *active has a bit for each network that may draft in the next
 * rounds. */
uint32_t ae_controller_network(const ae_controller *c, uint32_t *active);

#endif
