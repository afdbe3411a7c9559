/* check.c - --self-check: checks whether the head predicts what the target does, and whether another interpretation of the
 * checkpoint would predict it better. The target runs over a text once, which gives the token that it would choose after each
 * position. The head predicts the same from true features and the text's own tokens (teacher forcing): one step ahead from a
 * true row, and two and three steps ahead from rows that it produced itself. Wrong taps, a wrong start of the residual and a
 * wrong order of rows of q and k show at the first step, wrong feedback from the second on. What options decide is not
 * searched. Another interpretation is used only if it clearly gives the target's choices more probability at the same positions
 * (three standard deviations of the mean difference of log-probabilities), because probabilities react long before answers do:
 * on a real head, taps that are off by one layer cost 0.04 of the answers, which 364 positions do not distinguish from
 * chance. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/checkpoint/checkpoint.h"
#include "device/device.h"
#include "convert/head/check_text.h"
#include "draft/head/engine.h"
#include "text/token/vocab.h"

#define DEPTHS AE_CONVERT_DEPTHS
#define MAX_TOKENS 512
#define MIN_TOKENS 32

typedef struct score {
    uint32_t n;            /* number of positions */
    double *log_p;         /* [n][DEPTHS] log-probability of the target's choice; 0 if the head has no row for it */
    uint32_t sums[DEPTHS];
} score;

typedef struct checker {
    ae_convert *c;
    ae_backend *backend;
    ae_model *model;
    ae_vocab *vocab; /* the model's */
    ae_net *net;
    uint32_t n_threads, n_tokens;
    ae_tokens tokens;
    int32_t own[MAX_TOKENS]; /* the target's choice after token i */
    bool has_own;
    ae_gguf_writer *turned; /* a file with rows in the other order, which never gets a final name; NULL: not written yet */
} checker;

static int32_t best(const float *x, uint32_t n)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > x[top]) top = i;
    }
    return (int32_t)top;
}

/* ---- The target ----------------------------------------------------------------------------------------- */

static aerie_status load_target(checker *k)
{
    const ae_load_options load = {.n_threads = k->n_threads};
    const ae_convert_options *o = &k->c->options;
    AE_TRY(ae_backend_open(&k->backend, NULL, o->cpu_level, k->c->error));
    AE_TRY(ae_model_load(&k->model, o->target, NULL, k->c->error));
    AE_TRY(ae_vocab_create(&k->vocab, k->model->gguf, k->c->error));
    return ae_net_create(&k->net, k->model, k->backend, &load, k->c->error);
}

static aerie_status read_text(checker *k)
{
    const ae_convert_options *o = &k->c->options;
    const ae_encode_options how = {.add_special = true};
    const char *text = o->check_text ? o->check_text : ae_convert_check_text;
    AE_TRY(
        ae_vocab_encode(k->vocab, text, o->check_text ? o->n_check_text : strlen(text), how, &k->tokens, k->c->error));
    k->n_tokens = k->tokens.n < MAX_TOKENS ? (uint32_t)k->tokens.n : MAX_TOKENS;
    if (k->n_tokens >= MIN_TOKENS) return AERIE_OK;
    return ae_fail(k->c->error, AERIE_ERROR_ARGUMENT, "%s: %u tokens are too few for --self-check; %d to %d are used",
                   o->check_path ? o->check_path : "the text", (unsigned)k->n_tokens, MIN_TOKENS, MAX_TOKENS);
}

/* Runs the target over the text and exports the head's taps. The first run also finds the target's choices. */
static aerie_status run_target(checker *k, const ae_dhead *head, ae_engine **out)
{
    const ae_dhead_hparams *h = &head->hparams;
    uint32_t first;
    ae_engine_options options = {.n_ctx = k->n_tokens, .n_seqs = 1, .n_batch = k->n_tokens,
                                 .n_outputs = k->n_tokens, .n_threads = k->n_threads, .n_taps = h->n_taps};
    memcpy(options.taps, h->taps, h->n_taps * sizeof *h->taps);
    AE_TRY(ae_engine_create(out, k->net, &options, k->c->error));
    ae_engine_rows_clear(*out);
    AE_TRY(ae_engine_add_chain(*out, 0, k->tokens.data, k->n_tokens, k->has_own ? AE_EXPORT_NONE : AE_EXPORT_ALL, &first,
                               k->c->error));
    AE_TRY(ae_engine_pass(*out, k->c->error));
    for (uint32_t i = 0; !k->has_own && i < k->n_tokens; i++)
        k->own[i] = best(ae_engine_logits(*out, first + i), k->model->hparams.n_vocab);
    k->has_own = true;
    return ae_engine_sync(*out, k->c->error);
}

/* ---- The head ------------------------------------------------------------------------------------------- */

/* Returns the row of the head's output for a token; n_draft if it has none. */
static uint32_t row_of(const ae_dhead_net *net, int32_t token)
{
    uint32_t row = 0;
    if (!net->to_target) return (uint32_t)token < net->n_draft ? (uint32_t)token : net->n_draft;
    while (row < net->n_draft && net->to_target[row] != token) row++;
    return row;
}

static void note_answer(const checker *k, ae_dhead_engine *e, uint32_t out, uint32_t place, uint32_t depth, score *s)
{
    const ae_dhead_net *net = ae_dhead_engine_net(e);
    const float *x = ae_dhead_logits(e, out);
    const uint32_t top = (uint32_t)best(x, net->n_draft), row = row_of(net, k->own[place + 1 + depth]);
    double sum = 0, *log_p = &s->log_p[place * DEPTHS + depth];
    for (uint32_t i = 0; i < net->n_draft; i++) sum += exp((double)x[i] - (double)x[top]);
    *log_p = row < net->n_draft ? (double)x[row] - (double)x[top] - log(sum) : 0;
    s->sums[depth] += row == top;
}

static aerie_status out_of_step(const checker *k)
{
    return ae_fail(k->c->error, AERIE_ERROR_INTERNAL, "self-check: the head's cache is out of step; please report");
}

static aerie_status ask_eagle(const checker *k, const ae_engine *target, ae_dhead_engine *e, score *s)
{
    const int32_t *tokens = k->tokens.data;
    for (uint32_t p = 0; p < s->n; p++) {
        uint32_t out = 0;
        AE_TRY(ae_convert_step(k->c, "checking", p, s->n));
        ae_dhead_clear(e);
        if (ae_dhead_add_true(e, 0, ae_engine_features(target, p), &tokens[p + 1], 1, true, &out) != AERIE_OK)
            return out_of_step(k);
        AE_TRY(ae_dhead_run_true(e, k->c->error));
        AE_TRY(ae_dhead_sync(e, k->c->error));
        note_answer(k, e, out, p, 0, s);
        for (uint32_t depth = 1; depth < DEPTHS; depth++) {
            ae_dhead_clear(e);
            if (ae_dhead_add_drafted(e, 0, (int32_t)depth - 2, tokens[p + 1 + depth], &out) == AE_DHEAD_NO_ROW)
                return out_of_step(k);
            ae_dhead_run_drafted(e);
            AE_TRY(ae_dhead_sync(e, k->c->error));
            note_answer(k, e, out, p, depth, s);
        }
        ae_dhead_drop_drafted(e, 0);
    }
    return AERIE_OK;
}

static aerie_status ask_medusa(const checker *k, const ae_engine *target, ae_dhead_engine *e, score *s)
{
    const uint32_t n_heads = ae_dhead_engine_net(e)->head->hparams.n_medusa;
    for (uint32_t p = 0; p < s->n; p++) {
        AE_TRY(ae_convert_step(k->c, "checking", p, s->n));
        AE_TRY(ae_dhead_run_medusa(e, ae_engine_features(target, p), 1, k->c->error));
        AE_TRY(ae_dhead_sync(e, k->c->error));
        for (uint32_t j = 0; j < n_heads && j < DEPTHS; j++) note_answer(k, e, j, p, j, s);
    }
    return AERIE_OK;
}

static aerie_status ask(checker *k, const ae_dhead *head, score *s)
{
    const ae_dhead_net_options net_options = {.load = {.n_threads = k->n_threads}};
    const ae_dhead_engine_options options = {.n_ctx = k->n_tokens, .n_seqs = 1, .n_batch = 1};
    ae_engine *target = NULL;
    ae_dhead_net *net = NULL;
    ae_dhead_engine *e = NULL;
    aerie_status status = run_target(k, head, &target);
    if (status == AERIE_OK) status = ae_dhead_net_create(&net, head, k->net, &net_options, k->c->error);
    if (status == AERIE_OK) status = ae_dhead_engine_create(&e, net, target, &options, k->c->error);
    if (status == AERIE_OK)
        status = head->hparams.kind == AE_DHEAD_MEDUSA ? ask_medusa(k, target, e, s) : ask_eagle(k, target, e, s);
    ae_dhead_engine_free(e);
    ae_dhead_net_free(net);
    ae_engine_free(target);
    return status;
}

/* Measures the head with the interpretation `how`. */
static aerie_status measure(checker *k, const ae_convert_head *how, score *s)
{
    ae_convert *c = k->c;
    const char *path = ae_gguf_writer_part(c->writer);
    ae_dhead *head;
    if (how->pairs != c->head.pairs) {
        if (!k->turned) {
            c->head.pairs = how->pairs;
            const aerie_status status = ae_convert_write(c, &k->turned);
            c->head.pairs = !how->pairs;
            if (status != AERIE_OK) return status;
        }
        path = ae_gguf_writer_part(k->turned);
    }
    s->n = k->n_tokens - DEPTHS - 1;
    memset(s->sums, 0, sizeof s->sums);
    if (!s->log_p) s->log_p = calloc((size_t)s->n * DEPTHS, sizeof *s->log_p);
    if (!s->log_p) return ae_convert_no_memory(c, "the self-check");
    AE_TRY(ae_dhead_load(&head, path, k->c->error));
    if (how->kind == AE_DHEAD_EAGLE3) {
        memcpy(head->hparams.taps, how->taps, how->n_taps * sizeof *how->taps);
        head->hparams.norm_before_residual = how->norm_before_residual;
        head->hparams.feedback_normed = how->feedback_post && !how->n_parallel;
    }
    const aerie_status status = ask(k, head, s);
    ae_dhead_free(head);
    return status;
}

/* ---- The search ------------------------------------------------------------------------------------------ */

/* Returns whether `other` clearly gives the target's choices more probability than `now` does, at depths from..to. */
static bool is_better(const score *now, const score *other, uint32_t from, uint32_t to)
{
    double sum = 0, squares = 0;
    const double n = (double)now->n * (to - from + 1);
    for (uint32_t p = 0; p < now->n; p++) {
        for (uint32_t d = from; d <= to; d++) {
            const double more = other->log_p[p * DEPTHS + d] - now->log_p[p * DEPTHS + d];
            sum += more;
            squares += more * more;
        }
    }
    const double mean = sum / n, variance = squares / n - mean * mean;
    return mean > 0.005 && mean > 3 * sqrt(fmax(variance, 0) / n); /* a NaN is not better */
}

/* Replaces *how by `other` if that is better. */
static aerie_status try_other(checker *k, ae_convert_head *how, score *now, const ae_convert_head *other, uint32_t from,
                              uint32_t to, bool *changed)
{
    score s = {0};
    aerie_status status = measure(k, other, &s);
    if (status == AERIE_OK && is_better(now, &s, from, to)) {
        const score old = *now;
        *how = *other;
        *now = s;
        s = old;
        *changed = true;
    }
    free(s.log_p);
    return status;
}

/* Moves all taps one layer down or up. Returns false if a tap would leave the target. */
static bool shift(ae_convert_head *how, int by)
{
    for (uint32_t i = 0; i < how->n_taps; i++) {
        if ((by < 0 && how->taps[i] == 0) || (by > 0 && how->taps[i] == how->n_target_layers)) return false;
        how->taps[i] += (uint32_t)by;
    }
    return true;
}

static aerie_status search_once(checker *k, ae_convert_head *how, score *now, bool *changed)
{
    const ae_convert_options *o = &k->c->options;
    const bool three = how->kind == AE_DHEAD_EAGLE3;
    const ae_convert_head from = *how;
    for (int by = -1; by <= 1 && three && !how->no_aux && o->taps_are != AE_CONVERT_TAPS_LIST; by += 2) {
        ae_convert_head other = from;
        if (shift(&other, by)) AE_TRY(try_other(k, how, now, &other, 0, 0, changed));
    }
    if (three && o->norm_before_residual == AE_CONVERT_AUTO) {
        ae_convert_head other = *how;
        other.norm_before_residual = !other.norm_before_residual;
        AE_TRY(try_other(k, how, now, &other, 0, 0, changed));
    }
    if (o->pairs == AE_CONVERT_AUTO) {
        ae_convert_head other = *how;
        other.pairs = !other.pairs;
        AE_TRY(try_other(k, how, now, &other, 0, 0, changed));
    }
    if (three && !how->n_parallel && o->feedback_post == AE_CONVERT_AUTO) {
        ae_convert_head other = *how;
        other.feedback_post = !other.feedback_post;
        AE_TRY(try_other(k, how, now, &other, 1, DEPTHS - 1, changed));
    }
    return AERIE_OK;
}

/* Reports which parts are now interpreted differently from the rules of feature_layers.c and detect.c. */
static void say_change(const ae_convert *c, const ae_convert_head *was, const ae_convert_head *is)
{
    if (was->n_taps && was->taps[0] != is->taps[0])
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "self-check: the taps are one layer %s than the config seemed to say",
                 is->taps[0] < was->taps[0] ? "lower" : "higher");
    if (was->norm_before_residual != is->norm_before_residual)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "self-check: the residual starts from the %s feature",
                       is->norm_before_residual ? "normed" : "raw");
    if (was->pairs != is->pairs)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "self-check: the rows of q and k %s",
                 is->pairs ? "are in the order of neighbours already" : "are rotated by halves");
    if (was->feedback_post != is->feedback_post)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "self-check: the output is fed back %s the final norm",
                   is->feedback_post ? "after" : "before");
}

static aerie_status search(checker *k)
{
    ae_convert *c = k->c;
    const ae_convert_head was = c->head;
    ae_convert_head how = was;
    score now = {0};
    aerie_status status = measure(k, &how, &now);
    bool changed = how.kind != AE_DHEAD_MEDUSA;
    c->check.n_depths = how.kind == AE_DHEAD_MEDUSA && how.n_medusa < DEPTHS ? how.n_medusa : DEPTHS;
    for (uint32_t d = 0; d < DEPTHS && status == AERIE_OK; d++) c->check.before[d] = (double)now.sums[d] / now.n;
    for (int round = 0; round < 3 && changed && status == AERIE_OK; round++) {
        changed = false;
        status = search_once(k, &how, &now, &changed);
        c->check.changed |= changed;
    }
    for (uint32_t d = 0; d < DEPTHS && status == AERIE_OK; d++) c->check.agreement[d] = (double)now.sums[d] / now.n;
    c->check.n = now.n;
    free(now.log_p);
    if (status != AERIE_OK || !c->check.changed) return status;
    c->head = how;
    if (was.n_taps && was.taps[0] != how.taps[0]) c->head.taps_from = "self-check";
    say_change(c, &was, &how);
    ae_gguf_writer_free(c->writer);
    c->writer = NULL;
    return ae_convert_write(c, &c->writer);
}

static aerie_status self_check(ae_convert *c)
{
    checker k = {.c = c, .n_threads = c->options.n_threads ? c->options.n_threads : (uint32_t)ae_os_n_cores()};
    aerie_status status = load_target(&k);
    if (status == AERIE_OK) status = read_text(&k);
    if (status == AERIE_OK) status = search(&k);
    ae_gguf_writer_free(k.turned);
    ae_tokens_free(&k.tokens);
    ae_net_free(k.net);
    ae_vocab_free(k.vocab);
    ae_model_free(k.model);
    ae_backend_close(k.backend);
    return status;
}

aerie_status ae_convert_head_check(ae_convert *c)
{
    ae_dhead *head;
    AE_TRY(ae_dhead_load(&head, ae_gguf_writer_part(c->writer), c->error));
    const aerie_status status = c->target ? ae_dhead_fits(head, c->target, c->error) : AERIE_OK;
    c->head_kind = ae_dhead_kind_name(head);
    ae_dhead_free(head);
    if (status == AERIE_OK && c->options.self_check && ae_dhead_has_blocks(c->head.kind)) {
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "--self-check tries no block drafters: aerie bench spec shows whether "
                   "one is accepted");
        return AERIE_OK;
    }
    return status == AERIE_OK && c->options.self_check ? self_check(c) : status;
}
