/* controller.h - how much to draft and how much of it to verify: from measurements, down to nothing.
 *
 * Keeps, per session: T(n), the seconds of a target pass over n rows, per bucket of context length; the
 * seconds of a drafted token; and a calibration of the drafter's beliefs, tree.p against what was really
 * accepted. Everything is measured on the real passes: no model of the machine, no sweep at start.
 *
 * Other programs take the cores now and then, so a time is the lower quartile of the last few seen, and what was seen less than
 * three times or long ago only bounds T(n) from above: one slow pass never rules a depth out for good. Plain decoding,
 * which everything is compared with, is measured again from time to time.
 *
 * The choice (DESIGN section 3): sort the nodes of all drafted trees by calibrated path probability, keep
 * the prefix of n nodes that maximises (sequences + expected accepted) / (draft time + T(rows + n)). Chain, tree
 * and "do not speculate" are the same scan, n = 0 being plain decoding; many sequences at once share one T. A second guard
 * looks at results alone: when rounds that speculated gave fewer tokens a second than plain ones would have, speculation
 * rests for a while and is then tried again.
 *
 * Timings steer speed only; no choice made here can change an output (law 1).
 */
#ifndef AE_SPEC_CONTROLLER_H
#define AE_SPEC_CONTROLLER_H

#include "engine/tree.h"

#define AE_T_ROWS 129   /* passes of 1..128 rows are told apart */
#define AE_T_BUCKETS 4  /* context below 512, 2048, 8192, above */
#define AE_BELIEFS 16
#define AE_SAMPLES 7    /* times that a typical one is taken of */

typedef struct ae_controller_options {
    uint32_t n_max;   /* draft depth, and nodes of a chain */
    uint32_t n_min;   /* fewer kept nodes than this are not verified */
    bool fixed;       /* verify all that is drafted: for tests */
    bool free_draft;  /* proposing costs next to nothing */
} ae_controller_options;

/* The last times that something took. */
typedef struct ae_samples {
    float seconds[AE_SAMPLES]; /* a ring */
    float typical;             /* their lower quartile; 0 = none seen */
    uint32_t n_seen, last;     /* last: the round of the newest one */
} ae_samples;

typedef struct ae_controller {
    ae_controller_options options;
    ae_samples pass[AE_T_BUCKETS][AE_T_ROWS]; /* [bucket][n_rows] */
    ae_samples draft_step;                    /* of a drafted level */
    uint32_t clock;                           /* rounds, drafted for or not */
    double belief_tries[AE_BELIEFS], belief_hits[AE_BELIEFS]; /* decayed counts by tree.p */
    double depth_tries[AE_TREE_MAX + 1], depth_hits[AE_TREE_MAX + 1]; /* by depth, given the parent was accepted */
    /* results of rounds that speculated, decayed: tokens, and those that plain decoding would have made in the same time */
    double spec_tokens, plain_tokens;
    uint32_t rest;        /* rounds left without speculation */
    uint32_t rest_length; /* of the next rest */
    uint32_t n_probes;    /* rounds left that draft only to see what it brings now */
    uint32_t n_rounds;
} ae_controller;

void ae_controller_init(ae_controller *c, const ae_controller_options *options);

/* A pass about to be drafted for: its rows without any draft, sequences that draw a token in it (drafted for or not), and
 * the longest of their contexts. */
typedef struct ae_round {
    uint32_t n_rows, n_drawing, n_context;
} ae_round;

/* Depth worth drafting now for n_drafting sequences; 0 = none. Once per pass. */
uint32_t ae_controller_depth(ae_controller *c, const ae_round *round, uint32_t n_drafting);
/* Path probability below which a node is not worth drafting: what it would add is less than its time. 0 while nothing is
 * known. */
float ae_controller_floor(const ae_controller *c, const ae_round *round);
/* Cut the trees of n sequences to what is worth verifying; may leave nothing. draft_seconds: what proposing them took. */
void ae_controller_choose(const ae_controller *c, const ae_round *round, double draft_seconds, ae_tree *const *trees,
                          uint32_t n);

/* A pass of decode rows took this long. */
void ae_controller_saw_pass(ae_controller *c, uint32_t n_rows, uint32_t n_context, double seconds);
/* n_levels drafted levels took this long. */
void ae_controller_saw_draft(ae_controller *c, uint32_t n_levels, double seconds);
/* The verdict on a tree: path[0..n_accepted) are the accepted nodes. */
void ae_controller_saw_verdict(ae_controller *c, const ae_tree *tree, const int32_t *path, uint32_t n_accepted);
/* A pass of n_rows in all that speculated: drafted levels, tokens emitted by its sequences, seconds of drafts and pass. */
void ae_controller_saw_round(ae_controller *c, const ae_round *round, uint32_t n_rows, uint32_t n_levels, uint32_t n_tokens,
                             double seconds);

/* Expected seconds of a pass; for tests and statistics. */
double ae_controller_pass_seconds(const ae_controller *c, uint32_t n_rows, uint32_t n_context);

#endif
