/* cost.h - the cost model: the time that passes, n-gram drafts and a network's drafts take.
 *
 * T(n), the seconds of a target pass over n rows, is measured on the real passes, in buckets of context length. What a
 * network's drafts cost is the seconds of a first level and of each further level, by number of sequences. For a network that
 * makes all levels in one pass further levels cost nothing. The time to read text that it had not seen is not part of it.
 *
 * When the whole machine becomes slower or faster, the drift follows: stored times refer to one speed of the machine, so that
 * times measured in a slow minute can be compared with those measured in a fast one.
 *
 * Owns its curves (timing.h). Does not own decisions. Times passed in are as measured; times returned are at the stored speed,
 * and only their ratios matter.
 */
#ifndef AE_SPECULATE_CONTROL_COST_H
#define AE_SPECULATE_CONTROL_COST_H

#include "speculate/control/timing.h"

#define AE_T_BUCKETS 4 /* mean context below 512, 2048, 8192, above */
#define AE_RATIOS 7

/* A pass before its drafts. */
typedef struct ae_round {
    uint32_t n_rows, n_drawing; /* rows without drafts; sequences that draw a token, with or without drafts */
    uint32_t n_context;         /* mean length of its sequences in tokens */
    bool prompts;               /* some rows belong to prompts */
} ae_round;

/* Measured over expected seconds of the latest passes or drafts. */
typedef struct ae_ratios {
    float ratio[AE_RATIOS]; /* a ring */
    uint32_t n_seen;
} ae_ratios;


/* What a network's drafts cost. */
typedef struct ae_network_cost {
    ae_curve first, level;        /* seconds of a first level, and of each further one, by number of sequences */
    ae_line first_now, level_now; /* values of these curves for this round */
    ae_ratios ratios;             /* of its drafts' times */
} ae_network_cost;

typedef struct ae_cost {
    ae_curve pass[AE_T_BUCKETS + 1]; /* seconds by rows; the last curve: passes with prompts in them */
    ae_curve ngrams;                  /* seconds of n-gram drafts by number of sequences */
    /* now: expected seconds of this round's pass by rows; hope: the same if old measurements no longer hold */
    ae_line now, hope;
    double usual;                    /* factor by which the latest passes that verify drafts differ from these lines */
    /* seconds of whole rounds over the sum of their parts: rounds without a network's draft, and with one */
    ae_ratios whole[2];
    double extra;                    /* the resulting factor for rounds with a network's draft */
    bool known;                      /* some pass was measured */
    uint32_t last_drafts;            /* the clock at the last pass that verified drafts */
    uint32_t n_plain;                /* rows of this round without drafts */
    double plain, worth;             /* this round without drafts: its seconds, and the tokens that its rows are worth */
    uint32_t clock, last_plain;      /* rounds; the clock at the last one that measured plain decoding */
    ae_ratios pass_ratios;           /* ratios of passes that verified drafts */
    ae_ratios drift_ratios;          /* ratios of passes over numbers of rows that are well known */
    double drift;                    /* the machine's present times over the stored ones */
    double usual_drift;              /* a slow mean of the drift at plain passes: a drift that creeps means nothing */
    double plain_drift;              /* the drift when plain decoding was last measured */
    double odd_drift;                /* the drift according to the latest plain passes that disagree with it */
    uint32_t n_odd, last_agreed;     /* how many of these came in a row; the clock at the last pass that agreed with the
                                      * drift */
} ae_cost;

void ae_cost_init(ae_cost *c);
/* Before a round: sets `now`, `plain` and `worth`. */
void ae_cost_begin(ae_cost *c, const ae_round *r);
/* Returns whether this round should be plain because the time of plain decoding is unknown, old or doubtful. gain: present gain
 * of speculation, as a factor. */
bool ae_cost_plain_is_due(const ae_cost *c, const ae_round *r, double gain);
void ae_cost_saw_plain(ae_cost *c);
/* Expected seconds of this round's pass over n rows. hope: old measurements count less. */
double ae_cost_pass(const ae_cost *c, double n_rows, bool hope);
/* Records a pass over n_rows rows. Returns its seconds at the stored speed. */
double ae_cost_saw_pass(ae_cost *c, const ae_round *r, uint32_t n_rows, double seconds);
/* Records a whole round: its seconds over those of its pass and drafts. network: it had a network's draft. */
void ae_cost_saw_whole(ae_cost *c, bool network, double ratio);
/* Records n-gram drafts for n sequences. Returns the seconds that they usually take. */
double ae_cost_saw_ngrams(ae_cost *c, uint32_t n, double seconds);
/* Expected seconds of n-gram drafts for n sequences; 0 while nothing is known. */
double ae_cost_ngrams(const ae_cost *c, uint32_t n);

/* Called before a round. */
void ae_network_cost_begin(ae_network_cost *p, uint32_t clock);
/* Returns whether the cost has been measured. */
bool ae_network_cost_known(const ae_network_cost *p);
/* Expected seconds of drafts for some number of sequences. */
typedef struct ae_level_cost {
    double first, level; /* of the first level, and of each further one */
} ae_level_cost;

static inline double ae_level_cost_of(ae_level_cost cost, uint32_t n_levels)
{
    return cost.first + (n_levels - 1) * cost.level;
}

/* Expected seconds of drafts for n sequences; 0 while the cost is unknown. */
ae_level_cost ae_network_cost_at(const ae_network_cost *p, double n);
/* The same for n_levels levels. */
double ae_network_cost_of(const ae_network_cost *p, double n, uint32_t n_levels);
/* Records a draft of n_levels levels for n sequences: seconds of the first level, and of all others together, at the stored
 * speed. Returns what such a draft usually takes. */
double ae_network_cost_saw(ae_network_cost *p, uint32_t clock, uint32_t n, uint32_t n_levels, double first, double others);

#endif
