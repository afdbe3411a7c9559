/* expert_cost.c - what passes of a model with experts cost, beside the number of distinct experts that their rows choose.
 *
 *     expert_cost [-n LIST] [-r N] [-t N] [--seed N] MODEL.gguf
 *         -n LIST   rows of a pass, the first of them 1, up to 64 (default 1,2,3,4,6,8,12,16,24,32,48)
 *         -r N      rounds; each has every number of rows once, with tokens of its own (default 24)
 *         -t N      threads (default: one per core)
 *
 * Rows are random tokens after one position: they share few experts. Three passes over the same rows: one counts experts, one
 * is timed, and one is timed without routed experts. The model: what the pass without routed experts takes at n, and for each
 * distinct expert of a layer what an expert takes at n = 1. Times are medians over rounds, counts are means. A line of
 * tab-separated figures per number of rows.
 *
 * Exit status 0, 1 (could not measure), 2 (command line), 3 (the file cannot be read or has no experts).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/session_int.h"
#include "base/mem.h"
#include "base/os.h"

enum { MOST_SIZES = 24, MOST_ROUNDS = 1000 };

typedef struct cost {
    aerie_model *model;
    aerie_session *session;
    const ae_weight **experts; /* [n_experts] of each routed expert of all layers the matrix that is called up, by address */
    bool *met;                 /* [n_experts] in the pass at hand */
    size_t n_experts;
    ae_pass_mode mode; /* without routed experts */
    uint32_t sizes[MOST_SIZES];
    size_t n_sizes;
    uint32_t n_rounds, n_threads;
    uint64_t random;
    double seconds[2][MOST_SIZES][MOST_ROUNDS]; /* whole, without routed experts */
    double distinct[MOST_SIZES];                /* sum over rounds */
} cost;

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "expert_cost: %s%s\nusage: expert_cost [-n LIST] [-r N] [-t N] MODEL.gguf\n", what, value);
    return 2;
}

/* ---- Which experts ------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const ae_weight *const *)a, y = (uintptr_t) * (const ae_weight *const *)b;
    return (x > y) - (x < y);
}

static void on_product(void *user, const ae_weight *weight, const float *x, size_t x_stride, uint32_t n_rows, uint32_t n_in)
{
    cost *c = user;
    const ae_weight **found = bsearch(&weight, c->experts, c->n_experts, sizeof *c->experts, by_address);
    (void)x, (void)x_stride, (void)n_rows, (void)n_in;
    if (found) c->met[found - c->experts] = true;
}

static aerie_status list_experts(cost *c, aerie_error *error)
{
    const ae_hparams *h = &c->model->model->hparams;
    const size_t most = (size_t)h->n_layers * h->experts.n;
    uint8_t *lacks = ae_alloc(h->n_layers, 1);
    c->experts = ae_alloc(most + 1, sizeof *c->experts);
    c->met = ae_alloc(most + 1, sizeof *c->met);
    c->mode.lacks = lacks;
    if (!c->experts || !c->met || !lacks) return ae_fail_memory(error, "the experts", most * sizeof *c->experts);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_net_layer *layer = &c->model->net->layers[i];
        if (!layer->e_up) continue;
        lacks[i] = AE_LACKS_EXPERTS;
        for (uint32_t e = 0; e < h->experts.n; e++) c->experts[c->n_experts++] = layer->e_up[e];
    }
    if (!c->n_experts) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the model has no experts");
    qsort(c->experts, c->n_experts, sizeof *c->experts, by_address);
    return AERIE_OK;
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static uint32_t draw(cost *c)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->random >> 33);
}

/* One pass over tentative rows, none of which is kept. */
static aerie_status pass(cost *c, const ae_tree *rows, const ae_pass_mode *mode, double *seconds, aerie_error *error)
{
    ae_engine *engine = c->session->engine;
    uint32_t first;
    ae_engine_rows_clear(engine);
    AE_TRY(ae_engine_add_tree(engine, 0, rows, &first, error));
    ae_engine_set_mode(engine, mode);
    AE_TRY(ae_engine_pass(engine, error));
    *seconds = ae_engine_pass_seconds(engine);
    return ae_engine_commit(engine, 0, 0, NULL, 0);
}

/* The position that rows hang on. */
static aerie_status begin(cost *c, aerie_error *error)
{
    ae_engine *engine = c->session->engine;
    uint32_t row;
    ae_engine_rows_clear(engine);
    AE_TRY(ae_engine_add_chain(engine, 0, &(int32_t){7}, 1, AE_EXPORT_NONE, &row, error));
    AE_TRY(ae_engine_pass(engine, error));
    return ae_engine_commit(engine, 0, 1, NULL, 0);
}

static aerie_status visit(cost *c, size_t i_size, uint32_t round, aerie_error *error)
{
    const ae_backend_ops *ops = c->model->backend->ops;
    ae_stream *stream = ae_engine_stream(c->session->engine);
    const uint32_t n_vocab = (uint32_t)ae_vocab_n_tokens(c->model->vocab);
    const bool swap = round % 2;
    ae_tree rows = {0};
    double seconds;
    while (rows.n < c->sizes[i_size]) ae_tree_add(&rows, -1, (int32_t)(draw(c) % n_vocab), 1.0f);
    memset(c->met, 0, c->n_experts * sizeof *c->met);
    ops->watch(stream, on_product, c);
    const aerie_status status = pass(c, &rows, NULL, &seconds, error);
    ops->watch(stream, NULL, NULL);
    AE_TRY(status);
    for (size_t i = 0; i < c->n_experts; i++) c->distinct[i_size] += c->met[i];
    for (uint32_t k = 0; k < 2; k++) {
        const bool without = k != swap;
        AE_TRY(pass(c, &rows, without ? &c->mode : NULL, &c->seconds[without][i_size][round], error));
    }
    return AERIE_OK;
}

static aerie_status measure(cost *c, aerie_error *error)
{
    AE_TRY(begin(c, error));
    for (size_t i = 0; i < c->n_sizes; i++) AE_TRY(visit(c, i, 0, error)); /* warms up */
    memset(c->distinct, 0, sizeof c->distinct);
    for (uint32_t round = 0; round < c->n_rounds; round++)
        for (size_t i = 0; i < c->n_sizes; i++) AE_TRY(visit(c, i, round, error));
    return AERIE_OK;
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, uint32_t n)
{
    qsort(seconds, n, sizeof *seconds, by_size);
    return 1e3 * (n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2);
}

static void print(cost *c)
{
    double first = 0, first_without = 0, expert = 0;
    printf("n\tms\twithout_ms\tdistinct\tus_per_expert\tratio\twithout_ratio\tmodel_ratio\tmore_percent\n");
    for (size_t i = 0; i < c->n_sizes; i++) {
        const double whole = median(c->seconds[0][i], c->n_rounds), without = median(c->seconds[1][i], c->n_rounds);
        const double n_experts = c->distinct[i] / c->n_rounds;
        if (i == 0) first = whole, first_without = without, expert = (whole - without) / n_experts;
        const double model = without + expert * n_experts;
        printf("%u\t%.3f\t%.3f\t%.1f\t%.2f\t%.3f\t%.3f\t%.3f\t%.1f\n", (unsigned)c->sizes[i], whole, without, n_experts,
               1e3 * (whole - without) / n_experts, whole / first, without / first_without, model / first,
               100 * (whole / model - 1));
    }
}

/* ---- Command line ------------------------------------------------------------------------------------------------ */

static bool parse_count(const char *word, uint32_t most, uint32_t *value, char **end)
{
    const unsigned long n = strtoul(word, end, 10);
    *value = (uint32_t)n;
    return *word >= '0' && *word <= '9' && n >= 1 && n <= most;
}

static bool parse_sizes(cost *c, const char *word)
{
    char *end = NULL;
    for (c->n_sizes = 0; c->n_sizes < MOST_SIZES; word = end + 1) {
        if (!parse_count(word, AERIE_MAX_DRAFT, &c->sizes[c->n_sizes++], &end)) return false;
        if (*end != ',') return !*end && c->sizes[0] == 1;
    }
    return false;
}

int main(int argc, char **argv)
{
    static cost c = {.n_rounds = 24, .random = 1};
    const char *path = NULL;
    char *end = NULL;
    aerie_error error = {0};
    c.n_threads = (uint32_t)ae_os_n_cores();
    parse_sizes(&c, "1,2,3,4,6,8,12,16,24,32,48");
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' && path) return usage("one file, not also ", argv[i]);
        if (argv[i][0] != '-') {
            path = argv[i];
            continue;
        }
        if (i + 1 == argc) return usage("a value is missing after ", argv[i]);
        const char *name = argv[i++];
        bool good = false;
        if (!strcmp(name, "-n")) good = parse_sizes(&c, argv[i]);
        else if (!strcmp(name, "-r")) good = parse_count(argv[i], MOST_ROUNDS, &c.n_rounds, &end) && !*end;
        else if (!strcmp(name, "-t")) good = parse_count(argv[i], 1024, &c.n_threads, &end) && !*end;
        if (!good) return usage("no such option, or not with this value: ", name);
    }
    if (!path) return usage("a model is needed", "");
    aerie_model_params mp = aerie_model_params_default();
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = 128, p.n_batch = AERIE_MAX_DRAFT, p.n_threads = c.n_threads;
    p.spec.type = AERIE_SPEC_MOE; /* room for trees */
    int bad = 3;
    if (aerie_model_load(&c.model, path, &mp, &error) == AERIE_OK && list_experts(&c, &error) == AERIE_OK) {
        bad = aerie_session_create(&c.session, c.model, &p, &error) != AERIE_OK || measure(&c, &error) != AERIE_OK;
        if (!bad) print(&c);
    }
    if (bad) fprintf(stderr, "expert_cost: %s\n", error.text);
    aerie_session_free(c.session);
    aerie_model_free(c.model);
    ae_free(c.experts);
    ae_free(c.met);
    ae_free((void *)c.mode.lacks);
    return bad;
}
