/* forms.c - the number of stages of `--machines auto`: from the messages that the map of ranks counts, the links that are
 * measured at the start, and the time that the weights take.
 *
 *   seconds = stages x reading + rounds x latency + bytes / bandwidth + what is handed from stage to stage, likewise
 *
 * In a split all ranks read their part of the weights at the same time. Stages run one after another, and each has the layers
 * that its share pays for, so every further stage takes as long as the whole split would. What is handed on is counted with the
 * latency of a round of all ranks, which crosses the slowest link. Any form gives the same bytes, so a bad measurement costs
 * speed alone. Owns nothing.
 */
#include "session/group/forms.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"

/* ---- The model ------------------------------------------------------------------------------------------------------- */

static double seconds_of(const ae_group_link *link, uint32_t n_rounds, uint64_t bytes)
{
    return n_rounds * link->latency + (link->bandwidth > 0 ? (double)bytes / link->bandwidth : 0);
}

double ae_group_seconds(const ae_group_form *f, double reading, const ae_group_link *apart)
{
    return f->n_stages * reading + seconds_of(&f->link, f->n_inner, f->inner) + seconds_of(apart, f->n_handed, f->handed);
}

const ae_group_form *ae_group_best_form(const ae_group_form *forms, uint32_t n_forms, double reading)
{
    const ae_group_form *best = NULL;
    double least = 0;
    for (uint32_t i = 0; i < n_forms; i++) {
        const double seconds = ae_group_seconds(&forms[i], reading, &forms[0].link);
        if (!forms[i].is_cut || (best && !(seconds < 0.95 * least))) continue;
        best = &forms[i], least = seconds;
    }
    return best;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------------- */

/* Adds what rank r of a form sends and receives; *most: the bytes of the stage's other ranks, at most. */
static aerie_status add_rank(ae_group_form *f, const ae_model *model, uint32_t r, uint32_t n, const uint32_t *shares,
                             bool codes, uint64_t *most, aerie_error *error)
{
    ae_comm comm = {.rank = r, .n_ranks = n};
    ae_ranks *map;
    AE_TRY(ae_ranks_create(&map, model, &comm, f->n_stages, shares, error));
    const ae_ranks_counts c = ae_ranks_count(map, model, codes);
    const ae_receivers in = ae_ranks_of(map, map->stage);
    const uint64_t handed = (uint64_t)ae_ranks_stream_width(&model->hparams) * sizeof(float);
    const bool gets = f->n_stages > 1 && (map->begin[map->stage] < map->begin[map->stage + 1] || !map->stage);
    const uint64_t inner = c.row_bytes - (gets && c.row_bytes >= handed ? handed : 0);
    f->is_cut = f->is_cut && !map->n_whole;
    *most = r == in.first || inner > *most ? inner : *most;
    if (!r) f->n_handed = c.n_handed, f->handed = c.n_handed * handed;
    if (r == in.first) f->n_inner += c.n_inner;
    if (r + 1 == in.first + in.n) f->inner += *most;
    ae_ranks_free(map);
    return AERIE_OK;
}

aerie_status ae_group_list_forms(ae_group_form *forms, uint32_t *n_forms, const ae_model *model, uint32_t n,
                                 const uint32_t *shares, bool codes, aerie_error *error)
{
    *n_forms = 0;
    for (uint32_t s = 1; s <= n; s++) {
        uint64_t most = 0;
        if (n % s || (*n_forms + 1 == AE_GROUP_FORMS && s < n)) continue; /* the last place is the pipeline's */
        ae_group_form *f = &forms[(*n_forms)++];
        *f = (ae_group_form){.n_stages = s, .is_cut = true};
        for (uint32_t r = 0; r < n; r++) AE_TRY(add_rank(f, model, r, n, shares, codes, &most, error));
    }
    return AERIE_OK;
}

/* ---- Links ------------------------------------------------------------------------------------------------------------- */

#define N_SMALL 12
#define N_LARGE 4
#define SMALL 16u    /* floats that each rank has */
#define LARGE 16384u

/* Returns the shortest time of some rounds, in each of which every rank of the stage has n floats. */
static double round_seconds(ae_comm *comm, ae_receivers stage, uint32_t n, uint32_t n_rounds, float *room)
{
    ae_slices slices = {{0}, {0}};
    double least = 1e9;
    for (uint32_t r = stage.first; r < stage.first + stage.n; r++) slices.first[r] = (r - stage.first) * n, slices.n[r] = n;
    for (uint32_t i = 0; i < n_rounds; i++) {
        const double start = ae_time_now();
        ae_comm_gather(comm, &(ae_comm_part){room, (size_t)stage.n * n, sizeof *room, 1, &slices}, 1, stage);
        const double seconds = ae_time_now() - start;
        least = seconds < least ? seconds : least;
    }
    return least;
}

static ae_receivers stage_of(const ae_comm *comm, uint32_t n_stages)
{
    const uint32_t each = comm->n_ranks / n_stages;
    return (ae_receivers){comm->rank / each * each, each};
}

typedef struct times {
    double small[AE_GROUP_FORMS], large[AE_GROUP_FORMS];
} times;

aerie_status ae_group_measure_links(ae_comm *comm, ae_group_form *forms, uint32_t n_forms, aerie_error *error)
{
    times all[AE_MAX_RANKS] = {{{0}, {0}}};
    ae_slices slices = {{0}, {0}};
    const size_t bytes = (size_t)comm->n_ranks * LARGE * sizeof(float);
    float *room = ae_alloc(1, bytes);
    if (!room) return ae_fail_memory(error, "what ranks exchange", bytes);
    aerie_status status = ae_comm_reserve(comm, bytes > sizeof all ? bytes : sizeof all, error);
    for (uint32_t i = 0; status == AERIE_OK && i < n_forms; i++) {
        const ae_receivers stage = stage_of(comm, forms[i].n_stages);
        if (stage.n == 1) continue;
        all[comm->rank].small[i] = round_seconds(comm, stage, SMALL, N_SMALL, room);
        all[comm->rank].large[i] = round_seconds(comm, stage, LARGE, N_LARGE, room);
    }
    ae_free(room);
    for (uint32_t r = 0; r < comm->n_ranks; r++) slices.first[r] = r, slices.n[r] = 1;
    if (status != AERIE_OK) return status;
    ae_comm_gather(comm, &(ae_comm_part){all, comm->n_ranks, sizeof *all, 1, &slices}, 1, ae_to_all(comm));
    for (uint32_t i = 0; i < n_forms; i++) {
        const uint32_t n = comm->n_ranks / forms[i].n_stages;
        double small = 0, large = 0;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
            small = all[r].small[i] > small ? all[r].small[i] : small;
            large = all[r].large[i] > large ? all[r].large[i] : large;
        }
        forms[i].link = (ae_group_link){.latency = small};
        if (large > small) forms[i].link.bandwidth = (double)(n - 1) * (LARGE - SMALL) * sizeof(float) / (large - small);
    }
    return ae_comm_status(comm, error);
}
