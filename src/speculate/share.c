/* share.c - implements share.h. */
#include "speculate/share.h"

#include <string.h>

#include "base/mem.h"

#define SLACK 1.125       /* factor by which a party may exceed its share, so that parties with about the same needs do not have
                           * to take turns */
#define FREE 0.5          /* all other parties together may always add this part of the first party's pass */
#define FIRST 4           /* credit of a new party, in passes of the first party */
#define LEAST_CHUNK 8     /* least rows of a prompt's chunk; a sequence whose credit pays for fewer waits */
#define LEAST_DRAFTS 8    /* drafted nodes that every party may have */
#define RECENT 2          /* seconds after the last shared pass for which a single party's drafts stay limited */
#define TILE 4            /* this many rows of a sequence attend to a position at the cost of one row */
#define MEMORY 0.98       /* factor by which a pass's weight in the fit shrinks with each later pass */
#define PRIOR 0.5         /* the current numbers weigh as much in the fit as this many passes */
#define LEAST_PASSES 8    /* measured passes before the fit is used */
#define ODD_TIME 2.5      /* a measured time counts at most as this multiple of the expected one: the rest was a disturbance */

aerie_status ae_share_init(ae_share *share, uint32_t n_most, const ae_share_cost *given, aerie_error *error)
{
    *share = (ae_share){.n_most = n_most, .cost = *given, .fixed = given->pass > 0, .alone = RECENT};
    share->parts = ae_alloc(n_most, sizeof *share->parts);
    share->parties = ae_alloc(n_most, sizeof *share->parties);
    share->before = ae_alloc(n_most, sizeof *share->before);
    if (share->parts && share->parties && share->before) return AERIE_OK;
    ae_share_free(share);
    return ae_fail_memory(error, "the shares of a pass", n_most * sizeof *share->parts);
}

void ae_share_free(ae_share *share)
{
    ae_free(share->parts);
    ae_free(share->parties);
    ae_free(share->before);
    share->parts = NULL;
    share->parties = share->before = NULL;
}

/* ---- What a sequence adds ------------------------------------------------------------------------------------- */

static double attended(uint32_t n_context, uint32_t n_rows)
{
    return n_rows ? n_context * (1 + (double)(n_rows - 1) / TILE) : 0;
}

static double added(const ae_share *share, uint32_t n_context, uint32_t n_rows)
{
    return share->cost.row * n_rows + share->cost.context * attended(n_context, n_rows);
}

/* Solves the fit; with few measurements its result stays close to the present numbers. */
static void solve(ae_share *share, double scale)
{
    const double usual[3] = {1, 8, 4096}, now[3] = {share->cost.pass, share->cost.row, share->cost.context};
    double m[3][4];
    for (int i = 0; i < 3; i++) {
        const double prior = PRIOR * scale * usual[i] * usual[i];
        for (int k = 0; k < 3; k++) m[i][k] = share->a[i][k] + (i == k ? prior : 0);
        m[i][3] = share->b[i] + prior * now[i];
    }
    for (int i = 0; i < 3; i++) /* positive definite: no pivots are needed */
        for (int j = i + 1; j < 3; j++) {
            const double f = m[j][i] / m[i][i];
            for (int k = i; k < 4; k++) m[j][k] -= f * m[i][k];
        }
    double x[3];
    for (int i = 2; i >= 0; i--) {
        x[i] = m[i][3];
        for (int k = i + 1; k < 3; k++) x[i] -= m[i][k] * x[k];
        x[i] /= m[i][i];
    }
    if (!(x[0] > 0) || !(x[0] < 1e6)) return;
    share->cost.pass = x[0];
    share->cost.row = x[1] < x[0] / 256 ? x[0] / 256 : x[1] < x[0] ? x[1] : x[0];
    share->cost.context = x[2] > 0 ? x[2] : 0;
}

static void fit(ae_share *share, double n_rows, double n_attended, double seconds)
{
    if (!(seconds > 0 && seconds < 1e6)) return;
    if (!share->n_passes++) { /* an eighth of a pass for 8 rows and 4,096 positions each, until more is known */
        share->cost.pass = seconds / (1 + n_rows / 16 + n_attended / 8192);
        share->cost.row = share->cost.pass / 16;
        share->cost.context = share->cost.pass / 8192;
    }
    const double expected = share->cost.pass + share->cost.row * n_rows + share->cost.context * n_attended;
    const double x[3] = {1, n_rows, n_attended};
    if (share->known && seconds > ODD_TIME * expected) seconds = ODD_TIME * expected;
    const double scale = 1 / (seconds * seconds); /* scales the equations so that relative errors are minimized */
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) share->a[i][k] = MEMORY * share->a[i][k] + scale * x[i] * x[k];
        share->b[i] = MEMORY * share->b[i] + scale * x[i] * seconds;
    }
    solve(share, scale);
    share->known = share->n_passes >= LEAST_PASSES;
}

/* ---- A pass --------------------------------------------------------------------------------------------------------- */

void ae_share_begin(ae_share *share)
{
    ae_share_party *old = share->before;
    share->n_divided++;
    share->before = share->parties;
    share->n_before = share->n_parties;
    share->parties = old;
    share->n_parties = share->n_parts = 0;
}

uint32_t ae_share_add(ae_share *share, uint64_t client, uint64_t group, uint64_t last, uint32_t n_context, uint32_t n_rows)
{
    const uint32_t i = share->n_parts++;
    uint32_t p = 0;
    while (p < share->n_parties && (share->parties[p].client != client || share->parties[p].group != group)) p++;
    if (p == share->n_parties) {
        uint32_t k = 0;
        while (k < share->n_before && (share->before[k].client != client || share->before[k].group != group)) k++;
        const bool is_new = k == share->n_before;
        share->parties[share->n_parties++] = (ae_share_party){.client = client, .group = group, .is_new = is_new,
                                                              .credit = is_new ? 0 : share->before[k].credit};
    }
    share->parts[i] = (ae_share_part){.client = client, .group = group, .last = last, .n_context = n_context,
                                      .n_wanted = n_rows, .n_rows = n_rows, .n_drafts = UINT32_MAX, .i_party = p};
    share->parties[p].n_parts++;
    return i;
}

/* Gives clients equal weights, and the groups of a client equal parts of the client's weight. */
static void weigh(ae_share *share)
{
    for (uint32_t p = 0; p < share->n_parties; p++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < share->n_parties; k++) n += share->parties[k].client == share->parties[p].client;
        share->parties[p].weight = 1.0 / n;
    }
}

/* Returns the party's sequence that has waited longest among those without assigned rows (n_rows UINT32_MAX); NULL: there is
 * none. */
static ae_share_part *next_of(ae_share *share, uint32_t i_party)
{
    ae_share_part *best = NULL;
    for (uint32_t i = 0; i < share->n_parts; i++) {
        ae_share_part *p = &share->parts[i];
        if (p->i_party == i_party && p->n_rows == UINT32_MAX && (!best || p->last < best->last)) best = p;
    }
    return best;
}

/* Assigns rows to the party's sequences, as many as the party's credit pays for. given: seconds added to the credit in this
 * pass. */
static void limit(ae_share *share, uint32_t i_party, double given)
{
    ae_share_party *party = &share->parties[i_party];
    double left = party->credit, most = given;
    for (uint32_t i = 0; i < share->n_parts; i++)
        if (share->parts[i].i_party == i_party) share->parts[i].n_rows = UINT32_MAX;
    for (ae_share_part *p; (p = next_of(share, i_party));) {
        const double all = added(share, p->n_context, p->n_wanted);
        const uint32_t least = p->n_wanted < LEAST_CHUNK ? p->n_wanted : LEAST_CHUNK;
        const double some = added(share, p->n_context, least);
        most = some > most ? some : most;
        p->n_rows = left >= all ? p->n_wanted : 0;
        if (left < all && left >= some && least < p->n_wanted) { /* a chunk of its prompt */
            const double one = added(share, p->n_context, least + 1) - added(share, p->n_context, least);
            const double n = least + (left - some) / one;
            p->n_rows = n < p->n_wanted ? (uint32_t)n : p->n_wanted;
        }
        left -= added(share, p->n_context, p->n_rows);
    }
    if (party->credit > most) party->credit = most; /* credit beyond what one sequence needs is dropped */
}

/* Limits the drafts of each sequence. */
static void limit_drafts(ae_share *share)
{
    double most = share->cost.pass;
    for (uint32_t i = 0; i < share->n_parts; i++) {
        const ae_share_part *p = &share->parts[i];
        share->parties[p->i_party].n_in += p->n_rows > 0;
        most += added(share, p->n_context, p->n_rows);
    }
    most /= share->n_parties;
    for (uint32_t i = 0; i < share->n_parts; i++) {
        ae_share_part *p = &share->parts[i];
        const uint32_t n_in = share->parties[p->i_party].n_in ? share->parties[p->i_party].n_in : 1;
        const double n = most / (share->cost.row + share->cost.context * p->n_context / TILE);
        p->n_drafts = (n < LEAST_DRAFTS ? LEAST_DRAFTS : n < 4096 ? (uint32_t)n : 4096) / n_in;
    }
}

void ae_share_divide(ae_share *share)
{
    const ae_share_party *least = NULL;
    const bool known = share->fixed || share->known;
    if (share->n_parties < 2 || !known) {
        for (uint32_t p = 0; p < share->n_parties; p++) share->parties[p].credit = 0;
        if (known && share->n_parties && share->alone < RECENT) limit_drafts(share);
        return;
    }
    share->alone = 0;
    weigh(share);
    for (uint32_t i = 0; i < share->n_parts; i++) {
        const ae_share_part *p = &share->parts[i];
        share->parties[p->i_party].wanted += added(share, p->n_context, p->n_wanted);
    }
    for (uint32_t p = 0; p < share->n_parties; p++)
        if (!least || share->parties[p].wanted < least->wanted) least = &share->parties[p];
    const double q = share->cost.pass + least->wanted;
    double others = 0;
    for (uint32_t p = 0; p < share->n_parties; p++) others += &share->parties[p] == least ? 0 : share->parties[p].weight;
    for (uint32_t p = 0; p < share->n_parties; p++) {
        ae_share_party *party = &share->parties[p];
        const double part = SLACK * party->weight / least->weight * party->wanted / (share->cost.pass + party->wanted);
        const double freely = FREE * party->weight / others, given = q * (part > freely ? part : freely);
        party->limited = party != least && party->wanted > given;
        party->credit = party->limited ? party->credit + given * (party->is_new ? FIRST : 1) : 0;
        if (party->limited) limit(share, p, given);
    }
    limit_drafts(share);
}

void ae_share_saw(ae_share *share, const uint32_t *n_rows, double seconds)
{
    double rows = 0, context = 0;
    for (uint32_t i = 0; i < share->n_parts; i++) {
        const ae_share_part *p = &share->parts[i];
        ae_share_party *party = &share->parties[p->i_party];
        rows += n_rows[i];
        context += attended(p->n_context, n_rows[i]);
        if (party->limited && n_rows[i])
            party->credit -= added(share, p->n_context, n_rows[i]);
    }
    if (share->n_parties < 2) share->alone += seconds;
    if (!share->fixed) fit(share, rows, context, seconds);
}
