/* controller.h - how much to draft, and how much of it to verify, decided from measurements; possibly nothing.
 *
 * Drafts come in two kinds. N-gram drafts (AE_KIND_OFFER) cost next to nothing; tokens that a grammar forces count among them.
 * Network drafts (AE_KIND_DRAFT) run a network, level by level. A pass has up to three decisions, each for all of its
 * sequences:
 *   begin    whether to ask for n-gram drafts, and whether a network may run
 *   plan     given the n-gram drafts: which sequences the network drafts for, and how many levels
 *   choose   given all trees: which nodes are verified
 * Each takes the option with most expected tokens per second; plain decoding is one of the options.
 *
 * The controller keeps, per session and measured on the real passes: T(n), the seconds of a target pass over n rows, for any n
 * and per bucket of context length; the seconds of n-gram drafts, of a draft's first level and of a further one, by number of
 * sequences; how often drafts are accepted, by depth and by sequence; and a calibration of tree.p against what was accepted.
 * There is no model of the machine and no sweep at start. Order statistics filter noise (speculate/control/timing.h). When the
 * whole machine becomes slower or faster, the drift follows it: the stored times are times at one speed of the machine.
 *
 * If there are several networks, one drafts in a round: the one whose rounds brought most tokens for their time. The others are
 * tried again now and then (choose_drafter.h).
 *
 * Besides the estimates, each kind of draft has an exploration budget (ae_book) in units of plain passes. Its gains are added;
 * its costs and the upkeep of its state are subtracted, whether or not anything was verified. A kind whose budget is empty is
 * paused. Every pass adds a little, so a paused kind is tried again, less often after each failure, and can never cost more
 * than that share of the total time.
 *
 * Timings affect speed only; no choice made here can change an output (law 1).
 */
#ifndef AE_SPECULATE_CONTROL_CONTROLLER_H
#define AE_SPECULATE_CONTROL_CONTROLLER_H

#include "base/err.h"
#include "engine/tree.h"
#include "speculate/control/timing.h"

#define AE_T_BUCKETS 4 /* mean context below 512, 2048, 8192, above */
#define AE_BELIEFS 16
#define AE_RATIOS 7

typedef struct ae_controller_options {
    uint32_t n_max;   /* draft depth, and nodes of a chain */
    uint32_t n_min;   /* fewer kept nodes than this are not verified */
    uint32_t n_seqs;  /* most sequences of a pass */
    bool fixed;       /* verify all that is drafted: for tests */
    bool offers, drafts; /* which kinds there are */
    uint32_t n_networks; /* networks, of which one drafts in a round; 0 counts as 1 */
    uint32_t n_warm;  /* rounds that a paused network needs to get ready */
} ae_controller_options;

typedef enum ae_draft_kind { AE_KIND_OFFER, AE_KIND_DRAFT } ae_draft_kind;

/* Measured over expected seconds of the last passes or drafts. */
typedef struct ae_ratios {
    float ratio[AE_RATIOS]; /* a ring */
    uint32_t n_seen;
} ae_ratios;

/* The exploration budget of a kind of draft. */
typedef struct ae_book {
    double credit;      /* what it may still lose, in plain passes */
    double trial;       /* gain of the current trial */
    uint32_t n_failed;  /* trials lost in a row */
    uint32_t n_idle;    /* rounds since it was used */
    bool resting;       /* paused */
    uint32_t n_warming; /* rounds until it may be used after a pause */
} ae_book;

/* How often tokens were accepted, by the probability that the drafter gave them; decayed. */
typedef struct ae_beliefs {
    double tries[AE_BELIEFS], hits[AE_BELIEFS]; /* bins of tree.p */
} ae_beliefs;

/* One of the networks: the costs and gains of its drafts, and its standing among the others (choose_drafter.h). */
typedef struct ae_network {
    ae_curve first, level;           /* seconds of a first level and of a further one, by number of sequences */
    ae_line first_now, level_now;    /* these curves in this round */
    ae_beliefs beliefs;
    double depth_tries[AERIE_MAX_DRAFT + 1], depth_hits[AERIE_MAX_DRAFT + 1]; /* levels that ran, parent accepted */
    ae_ratios ratios;                /* of its drafts' times */
    ae_book book;
    double tokens, passes;           /* tokens per sequence of its rounds, and their time in plain passes; decayed */
    uint32_t n_rounds;               /* rounds of its current trial */
    uint32_t n_wait, n_lost;         /* rounds until its next trial; trials lost in a row */
} ae_network;

typedef struct ae_controller {
    ae_controller_options options;
    ae_curve pass[AE_T_BUCKETS + 1]; /* seconds by rows; the last curve: passes with prompts in them */
    ae_curve offer;                  /* seconds of n-gram drafts by number of sequences */
    ae_line pass_now;                /* expected seconds of this round's pass by rows */
    ae_network networks[AERIE_MAX_DRAFTERS], *net; /* net: the network that drafts in this round */
    ae_network *best;                /* equal to net, except while another one is tried */
    double plain_seconds, expected;  /* of this round's pass without any draft, and with the chosen ones */
    double worth;                    /* the baseline: tokens that a pass without any draft is worth */
    uint32_t n_rows, n_drawing;      /* of this round */
    double took[2];                  /* [ae_draft_kind] seconds that drafts as in this round usually take */
    double gain;                     /* expected gain of the last choice over a plain pass, as a factor */
    bool plain;                      /* this round measures plain decoding */
    uint32_t last_plain;             /* the clock at the last such round */
    uint32_t clock;                  /* rounds, with or without drafts */
    ae_beliefs offered;              /* of n-gram drafts */
    ae_book offers;
    ae_ratios pass_ratios;           /* of passes that verified drafts */
    ae_ratios drift_ratios;          /* of passes over numbers of rows that are well known */
    double drift;                    /* the machine's present times over the stored ones */
    double plain_drift;              /* the drift when plain decoding was measured last */
    double odd_drift;                /* the drift according to the last plain passes that do not agree with it */
    uint32_t n_odd, last_agreed;     /* number of these in a row; the clock at the last one that did agree */
    bool probing;                    /* the last plan only measures what a network costs */
    struct ae_reached *nodes;        /* [n_seqs * AERIE_MAX_DRAFT] while choosing */
    uint64_t *kept;                  /* [n_seqs] kept nodes of each tree */
    struct ae_chance **order;        /* [n_seqs] while planning */
} ae_controller;

aerie_status ae_controller_init(ae_controller *c, const ae_controller_options *options, aerie_error *error);
void ae_controller_free(ae_controller *c);

/* A pass before its drafts. */
typedef struct ae_round {
    uint32_t n_rows, n_drawing; /* rows without any draft; sequences that draw a token, with or without drafts */
    uint32_t n_context;         /* mean tokens of its sequences */
    bool prompts;               /* some rows belong to prompts */
} ae_round;

/* Acceptance of one sequence's drafts; all zero at its start. */
typedef struct ae_acceptance {
    float tries, hits; /* decayed, of first levels */
} ae_acceptance;

/* A sequence that can use a draft. */
typedef struct ae_chance {
    ae_acceptance *acceptance;
    ae_tree *tree;     /* first the n-gram draft, then the network's too, then what pays to verify; may be empty */
    uint32_t max_depth;
    uint32_t n_levels; /* (out) levels to run for it; 0: none. Then set to those that were drafted, at least 1 */
    /* internal */
    float gain;
    float believed[AERIE_MAX_DRAFT + 1]; /* estimated probability of the best drafted chain by depth, before it was cut */
} ae_chance;

/* Once per pass, before anything else. Returns whether n-gram drafts pay now. */
bool ae_controller_begin(ae_controller *c, const ae_round *round);
/* Records the time of n-gram drafts for n sequences. */
void ae_controller_saw_offers(ae_controller *c, uint32_t n, double seconds);
/* After the n-gram drafts, if there were any: decides how many levels a network runs for each of n sequences. False: for none.
 * */
bool ae_controller_plan(ae_controller *c, const ae_round *round, ae_chance *chances, uint32_t n);
/* Records a draft of n_levels for n sequences: seconds of the first level, and of all others together. */
void ae_controller_saw_draft(ae_controller *c, uint32_t n, uint32_t n_levels, double first, double others);
/* Path probability below which a node does not pay for its row. 0 while nothing is known. */
float ae_controller_floor(const ae_controller *c, const ae_round *round);
/* Cuts the trees of n sequences to what pays to verify; may leave nothing. spent: seconds of the network for these drafts. */
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
    double upkeep;            /* seconds of a network's state, besides its drafts */
    double start;             /* seconds in which a network ran text that it had missed, once */
} ae_result;

/* After every pass. */
void ae_controller_saw_round(ae_controller *c, const ae_round *round, const ae_result *result);

/* Whether all networks are paused for the next rounds, so that they need not keep their state. */
bool ae_controller_rests(const ae_controller *c);
/* Expected gain of chains of a network over plain decoding, as a factor; each sequence drafts as far as it pays. 0: the network
 * never ran. Rates of acceptance are taken `sway` standard deviations above what was seen. */
double ae_controller_expected(const ae_controller *c, const ae_network *net, double sway);
/* The network that drafts in this round, if any does. *awake: a bit for each network that is active: it may draft in the next
 * rounds. */
uint32_t ae_controller_network(const ae_controller *c, uint32_t *awake);

#endif
