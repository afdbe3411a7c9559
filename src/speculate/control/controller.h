/* controller.h - how much to draft and how much of it to verify: from measurements, down to nothing.
 *
 * Drafts come in two kinds. Offers cost next to nothing (n-grams); drafts run a network, level by level. A pass has up to three
 * decisions, each for all of its sequences together:
 *   begin    whether offers are asked for, and whether a network may run
 *   plan     given the offers: which sequences the network drafts for, and how many levels
 *   choose   given all trees: which nodes are verified
 * Each takes what promises most tokens a second, plain decoding being one of the choices.
 *
 * Kept per session, all of it measured on the real passes: T(n), the seconds of a target pass over n rows, for any n and per
 * bucket of context length; seconds of offers, of a draft's first level and of a further one, by number of sequences; how
 * often drafts are accepted by depth, and by sequence; and a calibration of beliefs, tree.p against what was really
 * accepted. No model of the machine, no sweep at start. Noise is met by order statistics (speculate/control/timing.h); a
 * machine that becomes slower or faster as a whole by the drift: what is kept are times at one speed of it.
 *
 * Of several networks one drafts in a round: the one whose rounds brought most tokens for their time. The others are tried
 * again now and then (choose_drafter.h).
 *
 * Besides the estimates there is an account for each kind of draft: its gain and its cost in units of plain passes, whether or
 * not anything was verified, and the upkeep of its state. A kind whose account is empty rests. Every pass adds a little, so a
 * kind that gains nothing is tried again, more rarely each time, and can never cost more than that share of the whole.
 *
 * Timings steer speed only; no choice made here can change an output (law 1).
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
    uint32_t n_seqs;  /* of a pass, at most */
    bool fixed;       /* verify all that is drafted: for tests */
    bool offers, drafts; /* the kinds that there are */
    uint32_t n_networks; /* that may draft, one in a round; 0 counts as 1 */
    uint32_t n_warm;  /* rounds that a network which rested needs to get ready */
} ae_controller_options;

typedef enum ae_draft_kind { AE_KIND_OFFER, AE_KIND_DRAFT } ae_draft_kind;

/* Measured over expected seconds, of the last few. */
typedef struct ae_ratios {
    float ratio[AE_RATIOS]; /* a ring */
    uint32_t n_seen;
} ae_ratios;

/* What a kind may still lose, in plain passes. */
typedef struct ae_book {
    double credit;
    double trial;       /* gain of the current trial */
    uint32_t n_failed;  /* trials in a row that lost */
    uint32_t n_idle;    /* rounds since it was used */
    bool resting;
    uint32_t n_warming; /* rounds until it may be used, after it rested */
} ae_book;

/* How often tokens that a drafter was so sure of were right; decayed. */
typedef struct ae_beliefs {
    double tries[AE_BELIEFS], hits[AE_BELIEFS]; /* by tree.p */
} ae_beliefs;

/* One of the networks: what its drafts cost and bring, and how it stands among the others (choose_drafter.h). */
typedef struct ae_network {
    ae_curve first, level;           /* by sequences */
    ae_line first_now, level_now;    /* what these say in this round */
    ae_beliefs beliefs;
    double depth_tries[AERIE_MAX_DRAFT + 1], depth_hits[AERIE_MAX_DRAFT + 1]; /* levels that ran, parent accepted */
    ae_ratios ratios;                /* of its drafts' times */
    ae_book book;
    double tokens, passes;           /* per sequence of its rounds, and what they took in plain passes; decayed */
    uint32_t n_rounds;               /* of its trial */
    uint32_t n_wait, n_lost;         /* rounds until the next one; trials lost in a row */
} ae_network;

typedef struct ae_controller {
    ae_controller_options options;
    ae_curve pass[AE_T_BUCKETS + 1]; /* by rows; the last: passes with prompts in them */
    ae_curve offer;                  /* by sequences */
    ae_line pass_now;                /* what the passes say in this round */
    ae_network networks[AERIE_MAX_DRAFTERS], *net; /* net: whose turn it is to draft; */
    ae_network *best;                /* ... another only when it is tried */
    double plain_seconds, expected;  /* of this round's pass without any draft, and with those chosen */
    double worth;                    /* of a pass without any draft, in tokens */
    uint32_t n_rows, n_drawing;      /* of this round */
    double took[2];                  /* [ae_draft_kind] seconds of this round's drafts, as such drafts usually take */
    double gain;                     /* expected of the last choice: times plain */
    bool plain;                      /* this round: plain decoding is measured again */
    uint32_t last_plain;             /* the clock then */
    uint32_t clock;                  /* rounds, drafted for or not */
    ae_beliefs offered;              /* of offers */
    ae_book offers;
    ae_ratios pass_ratios;           /* of passes that verified drafts */
    ae_ratios drift_ratios;          /* of passes over numbers of rows that are well known, */
    double drift;                    /* how much longer all takes at present than what is kept says, ... */
    double plain_drift;              /* ... and when plain decoding was measured last */
    double odd_drift;                /* what the last plain passes say that do not agree with the drift, ... */
    uint32_t n_odd, last_agreed;     /* ... how many of them in a row, and the clock at the last one that did */
    bool probing;                    /* the last plan asked only what a network costs */
    struct ae_reached *nodes;        /* [n_seqs * AERIE_MAX_DRAFT] while choosing */
    uint64_t *kept;                  /* [n_seqs] of each tree */
    struct ae_chance **order;        /* [n_seqs] while planning */
} ae_controller;

aerie_status ae_controller_init(ae_controller *c, const ae_controller_options *options, aerie_error *error);
void ae_controller_free(ae_controller *c);

/* A pass about to be drafted for. */
typedef struct ae_round {
    uint32_t n_rows, n_drawing; /* rows without any draft; sequences that draw a token in it, drafted for or not */
    uint32_t n_context;         /* mean of its sequences */
    bool prompts;               /* some rows are of prompts */
} ae_round;

/* How well drafts did for one sequence; all zero at its start. */
typedef struct ae_acceptance {
    float tries, hits; /* decayed, of first levels */
} ae_acceptance;

/* A sequence that has a use for a draft. */
typedef struct ae_chance {
    ae_acceptance *acceptance;
    ae_tree *tree;     /* of offers, then of drafts too, then what is worth verifying; may be empty */
    uint32_t max_depth;
    uint32_t n_levels; /* (out) to be run for it; 0: none. Then set to what was drafted, at least 1 */
    /* internal */
    float gain;
    float believed[AERIE_MAX_DRAFT + 1]; /* of the best drafted chain, by depth, before it was cut */
} ae_chance;

/* Once per pass, before anything else: whether offers are worth their time now. */
bool ae_controller_begin(ae_controller *c, const ae_round *round);
/* n offers took so long. */
void ae_controller_saw_offers(ae_controller *c, uint32_t n, double seconds);
/* After the offers, if there were any: how many levels a network runs for each of n sequences. False: for none. */
bool ae_controller_plan(ae_controller *c, const ae_round *round, ae_chance *chances, uint32_t n);
/* A draft for n sequences ran n_levels: seconds of the first, and of all others together. */
void ae_controller_saw_draft(ae_controller *c, uint32_t n, uint32_t n_levels, double first, double others);
/* Path probability below which a node is not worth a row. 0 while nothing is known. */
float ae_controller_floor(const ae_controller *c, const ae_round *round);
/* Cut the trees of n sequences to what is worth verifying; may leave nothing. spent: seconds of a network, for these drafts. */
void ae_controller_choose(ae_controller *c, const ae_round *round, double spent, ae_chance *chances, uint32_t n);

/* A pass over n_rows in all took this long. */
void ae_controller_saw_pass(ae_controller *c, const ae_round *round, uint32_t n_rows, double seconds);
/* The verdict on a sequence's tree: path[0..n_accepted) are the accepted nodes. */
void ae_controller_saw_verdict(ae_controller *c, const ae_chance *chance, const int32_t *path, uint32_t n_accepted);

/* What became of a pass; [2] by ae_draft_kind. */
typedef struct ae_result {
    bool used[2];             /* offers were asked for, a network ran: verified or not */
    uint32_t n_nodes[2];      /* verified, ... */
    uint32_t n_accepted[2];   /* ... and accepted; what both proposed is the offer's */
    double upkeep;            /* seconds that a network's state took, besides its drafts, ... */
    double start;             /* ... and that it took to run text that it had missed, once */
} ae_result;

/* After every pass. */
void ae_controller_saw_round(ae_controller *c, const ae_round *round, const ae_result *result);

/* No network will be asked for in the next rounds: it need not keep anything. */
bool ae_controller_rests(const ae_controller *c);
/* What chains of a network promise, each sequence drafting as far as pays: times plain; 0: it never ran. Rates of acceptance
 * are taken so many standard deviations above what was seen. */
double ae_controller_expected(const ae_controller *c, const ae_network *net, double sway);
/* The network that drafts in this round, if any does. *awake: a bit for each that may draft in the next rounds. */
uint32_t ae_controller_network(const ae_controller *c, uint32_t *awake);

#endif
