/* share.h - which sequences have rows in a pass, and how many, where requests of several parties share passes.
 *
 * A party is a group of one client's requests (aerie_request.client, group). Parties have weights: clients equal ones, and the
 * groups of a client equal parts of its weight. What a sequence adds to a pass is counted in seconds of
 * T = pass + row * rows + context * (positions that are attended), whose three numbers are fitted to the passes that ran. With
 * one party nothing is limited. With several:
 *   - The party that wants least runs in full. Q is what a pass with it alone would take.
 *   - Each other party is given in each pass the part of its own round that takes Q, where a round is a pass with it alone in
 *     full; more or less by its weight against the first one's. So all are slowed down by the same factor against running
 *     alone, below the sum of all weights over their own: of two equal parties each by less than two, whatever the other sends.
 *     A new party has FIRST times that at once, so that a short prompt is not cut.
 *   - Sequences for which that is not enough miss the pass; those that have missed most go first. Prompts take smaller chunks.
 *   - What parties draft takes no longer than the pass would take without drafts; each has an equal part of that, shared out
 * among its sequences. A party that is alone keeps to this for RECENT seconds more, since the next party waits for the pass
 * that runs.
 * Where parties want about the same (SLACK), or what others add is little beside Q (FREE), nobody misses a pass.
 *
 * Owns accounts of parties with active sequences, and the fit. Does not own slots, rows or pages. Which rows run together
 * changes no byte (law 1), so times may decide it.
 */
#ifndef AE_SPECULATE_SHARE_H
#define AE_SPECULATE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ae_share_cost {
    double pass, row, context; /* seconds of a pass without rows; seconds that each row adds, and each attended position */
} ae_share_cost;

/* A sequence in this pass. */
typedef struct ae_share_part {
    uint64_t client, group;
    uint64_t last;             /* the last pass in which the party had rows */
    uint32_t n_context, n_wanted;
    uint32_t n_rows, n_drafts; /* limits of this pass; n_drafts UINT32_MAX: no limit */
    uint32_t i_party;
} ae_share_part;

typedef struct ae_share_party {
    uint64_t client, group;
    double credit;             /* seconds of passes that the party may still use */
    double weight, wanted;     /* in this pass: the party's weight, and the seconds that its sequences would add in full */
    uint32_t n_parts, n_in;    /* the party's sequences; those of them that have rows in this pass */
    bool is_new, limited;
} ae_share_party;

typedef struct ae_share {
    uint32_t n_most, n_parts, n_parties; /* room for sequences; sequences and parties of this pass */
    uint32_t n_before;         /* parties of the previous pass */
    ae_share_part *parts;      /* [n_most] */
    ae_share_party *parties;   /* [n_most] of this pass */
    ae_share_party *before;    /* [n_most] parties of the previous pass */
    ae_share_cost cost;
    bool fixed;                /* `cost` was given and is not fitted */
    bool known;                /* `cost` comes from enough measured passes */
    double a[3][3], b[3];      /* normal equations of the fit of `cost` */
    uint64_t n_passes;         /* passes that were measured */
    uint64_t n_divided;        /* all passes */
    double alone;              /* seconds of passes since the last one with several parties */
} ae_share;

/* n_most: most sequences. given: costs, for tests; NULL or all zeros: costs are measured. Errors: MEMORY. */
aerie_status ae_share_init(ae_share *share, uint32_t n_most, const ae_share_cost *given, aerie_error *error);
void ae_share_free(ae_share *share);

/* Before each pass: begin, then add for each sequence that can have rows, then divide. */
void ae_share_begin(ae_share *share);
/* last: the pass in which the sequence last had rows. n_context: tokens in its cache. n_rows: rows that it wants, without
 * drafts. Returns its index in parts. */
uint32_t ae_share_add(ae_share *share, uint64_t client, uint64_t group, uint64_t last, uint32_t n_context, uint32_t n_rows);
void ae_share_divide(ae_share *share);
/* Called after the pass. n_rows [n_parts]: the rows of each part, drafts included. seconds: the time of the pass. */
void ae_share_saw(ae_share *share, const uint32_t *n_rows, double seconds);

#endif
