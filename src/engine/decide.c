/* decide.c - the two kinds of decision heads, in plain double arithmetic on the host (decide.h).
 *
 * Owns the head's weights, and for a text the memory that is taken for it, with scratch for each thread. Threads share work by
 * results, so they change none.
 */
#include "engine/decide.h"

#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "quant/types.h"

/* A matrix [n_out][n_in] with its bias [n_out], or a norm's weights and bias [n_in] x 2; b may be NULL. */
typedef struct head_pair {
    const float *w, *b;
    uint32_t n_in, n_out;
} head_pair;

typedef struct head_attn {
    head_pair q, k, v, o;
} head_attn;

typedef struct head_block { /* see ae_decision_block */
    head_pair memory_norm, self_norm, cross_norm, ffn_norm, up, down;
    head_attn self, cross;
} head_block;

typedef enum head_act { HEAD_RELU, HEAD_GELU } head_act;

/* Memory of one text, taken and dropped like a stack. */
typedef struct head_room {
    ae_pool *pool;
    void **taken;        /* [n_taken] */
    size_t n_taken, capacity;
    double *scratch;     /* [workers][n_scratch] */
    size_t n_scratch;
    uint32_t n_heads;
    double eps;
} head_room;

#define ROWS 16u /* of an item */
#define OUTS 64u

/* ---- Memory ------------------------------------------------------------------------------------------ */

/* n: the most rows that attention reads. End it after a failure, too. */
static aerie_status head_room_begin(head_room *room, ae_pool *pool, uint32_t n, uint32_t n_embd, uint32_t n_heads, float eps,
                                    aerie_error *error)
{
    const uint32_t n_workers = ae_pool_n_workers(pool);
    *room = (head_room){.pool = pool, .n_scratch = (size_t)n + n_embd, .n_heads = n_heads, .eps = (double)eps};
    room->scratch = ae_alloc(room->n_scratch * n_workers, sizeof *room->scratch);
    return room->scratch ? AERIE_OK
                         : ae_fail_memory(error, "a decision", room->n_scratch * n_workers * sizeof *room->scratch);
}

/* What is taken after a mark is dropped together. */
static size_t head_mark(const head_room *room) { return room->n_taken; }

static void head_drop(head_room *room, size_t mark)
{
    while (room->n_taken > mark) ae_free(room->taken[--room->n_taken]);
}

static void head_room_end(head_room *room)
{
    head_drop(room, 0);
    ae_free(room->taken);
    ae_free(room->scratch);
    *room = (head_room){0};
}

/* Returns zeroed memory for n numbers of 4 bytes; NULL when out of memory. */
static void *head_take(head_room *room, size_t n)
{
    void **taken = ae_grow(room->taken, room->n_taken, &room->capacity, sizeof *taken);
    if (!taken) return NULL;
    room->taken = taken;
    void *block = ae_alloc(n, 4);
    if (block) taken[room->n_taken++] = block;
    return block;
}

/* ---- Rows -------------------------------------------------------------------------------------------- */

static double head_dot(const float *a, const float *b, size_t n)
{
    double s[8] = {0};
    size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (size_t j = 0; j < 8; j++) s[j] += (double)a[k + j] * (double)b[k + j];
    for (size_t j = 0; k + j < n; j++) s[j] += (double)a[k + j] * (double)b[k + j];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void head_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}

/* Returns the error function by a series of terms of one sign: erf x = 2 / sqrt(pi) e^(-x^2) sum 2^k x^(2k+1) / (2k+1)!! */
static double erf_of(double x)
{
    const double a = fabs(x), xx = 2 * a * a;
    double term = a, sum = a;
    if (a > 6) return x > 0 ? 1 : -1;
    for (int k = 1; k < 200 && term > 1e-17 * sum; k++) sum += term *= xx / (2 * k + 1);
    const double y = 1.1283791670955126 * ae_exp(-a * a) * sum;
    return x < 0 ? -y : y;
}

static void head_activate(float *x, size_t n, head_act kind)
{
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        if (kind == HEAD_RELU) x[i] = v < 0 ? 0 : x[i];
        else x[i] = (float)(0.5 * v * (1 + erf_of(v * 0.70710678118654752)));
    }
}

typedef struct rows_job {
    const head_room *room;
    const head_pair *p;
    const float *x;
    float *y;
    uint32_t n, n_parts; /* rows; items that share some rows */
} rows_job;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void norm_item(void *context, uint32_t item, uint32_t i_worker)
{
    const rows_job *j = context;
    const uint32_t n = j->p->n_in, end = least(j->n, (item + 1) * ROWS);
    (void)i_worker;
    for (uint32_t r = item * ROWS; r < end; r++) {
        const float *x = j->x + (size_t)r * n;
        double mean = 0, square = 0;
        for (uint32_t i = 0; i < n; i++) mean += (double)x[i];
        mean /= n;
        for (uint32_t i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double by = 1 / sqrt(square / n + j->room->eps);
        for (uint32_t i = 0; i < n; i++) {
            const double bias = j->p->b ? (double)j->p->b[i] : 0;
            j->y[(size_t)r * n + i] = (float)(((double)x[i] - mean) * by * (double)j->p->w[i] + bias);
        }
    }
}

/* Norms rows x [n][n_in] to y, which may be x. */
static void head_norm(head_room *room, const head_pair *p, const float *x, uint32_t n, float *y)
{
    rows_job job = {room, p, x, y, n, 1};
    ae_pool_run(room->pool, norm_item, &job, (n + ROWS - 1) / ROWS);
}

static void times_item(void *context, uint32_t item, uint32_t i_worker)
{
    const rows_job *j = context;
    const uint32_t first = item / j->n_parts * ROWS, end = least(j->n, first + ROWS), n_in = j->p->n_in, n_out = j->p->n_out;
    const uint32_t out = item % j->n_parts * OUTS, out_end = least(n_out, out + OUTS);
    (void)i_worker;
    for (uint32_t o = out; o < out_end; o++) {
        const double bias = j->p->b ? (double)j->p->b[o] : 0;
        const float *w = j->p->w + (size_t)o * n_in;
        for (uint32_t r = first; r < end; r++)
            j->y[(size_t)r * n_out + o] = (float)(head_dot(w, j->x + (size_t)r * n_in, n_in) + bias);
    }
}

/* Multiplies rows x [n][n_in] to y [n][n_out]. */
static void head_times(head_room *room, const head_pair *p, const float *x, uint32_t n, float *y)
{
    rows_job job = {room, p, x, y, n, (p->n_out + OUTS - 1) / OUTS};
    ae_pool_run(room->pool, times_item, &job, (n + ROWS - 1) / ROWS * job.n_parts);
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

typedef struct attend_job {
    const head_room *room;
    const float *q, *k, *v; /* [n][h], [m][h] x 2 */
    float *out;             /* [n][h] */
    uint32_t m, h;
} attend_job;

/* One head of one row. */
static void attend_item(void *context, uint32_t item, uint32_t i_worker)
{
    const attend_job *j = context;
    const uint32_t n_heads = j->room->n_heads, h = j->h, d = h / n_heads, row = item / n_heads, at = item % n_heads * d;
    double *p = j->room->scratch + i_worker * j->room->n_scratch, *sum = p + j->m, most = -HUGE_VAL, all = 0;
    const float *q = j->q + (size_t)row * h + at;
    const double by = 1 / sqrt((double)d);
    for (uint32_t i = 0; i < j->m; i++) {
        p[i] = head_dot(q, j->k + (size_t)i * h + at, d) * by;
        most = p[i] > most ? p[i] : most;
    }
    for (uint32_t k = 0; k < d; k++) sum[k] = 0;
    for (uint32_t i = 0; i < j->m; i++) {
        const double w = ae_exp(p[i] - most);
        const float *v = j->v + (size_t)i * h + at;
        all += w;
        for (uint32_t k = 0; k < d; k++) sum[k] += w * (double)v[k];
    }
    for (uint32_t k = 0; k < d; k++) j->out[(size_t)row * h + at + k] = (float)(sum[k] / all);
}

/* Attention of rows x [n] to rows y [m], all of which each sees: out [n]. MEMORY. */
static aerie_status head_attend(head_room *room, const head_attn *a, const float *x, uint32_t n, const float *y, uint32_t m,
                                float *out, aerie_error *error)
{
    const uint32_t h = a->q.n_out;
    const size_t mark = head_mark(room);
    float *q = head_take(room, (size_t)n * h), *mixed = head_take(room, (size_t)n * h);
    float *k = head_take(room, (size_t)m * h), *v = head_take(room, (size_t)m * h);
    if (!q || !mixed || !k || !v) return ae_fail_memory(error, "a decision", (size_t)m * h * sizeof *k);
    head_times(room, &a->q, x, n, q);
    head_times(room, &a->k, y, m, k);
    head_times(room, &a->v, y, m, v);
    attend_job job = {room, q, k, v, mixed, m, h};
    ae_pool_run(room->pool, attend_item, &job, n * room->n_heads);
    head_times(room, &a->o, mixed, n, out);
    head_drop(room, mark);
    return AERIE_OK;
}

/* x [n] += the feed-forward block of x, normed. MEMORY. */
static aerie_status head_ffn(head_room *room, const head_block *b, float *x, uint32_t n, head_act kind,
                             aerie_error *error)
{
    const uint32_t h = b->up.n_in, f = b->up.n_out;
    const size_t mark = head_mark(room);
    float *normed = head_take(room, (size_t)n * h), *wide = head_take(room, (size_t)n * f);
    if (!normed || !wide) return ae_fail_memory(error, "a decision", (size_t)n * f * sizeof *wide);
    head_norm(room, &b->ffn_norm, x, n, normed);
    head_times(room, &b->up, normed, n, wide);
    head_activate(wide, (size_t)n * f, kind);
    head_times(room, &b->down, wide, n, normed);
    head_add(x, normed, (size_t)n * h);
    head_drop(room, mark);
    return AERIE_OK;
}

/* ---- The head ---------------------------------------------------------------------------------------- */

struct ae_decider {
    const ae_model *model;
    ae_arena arena; /* weights */
    head_block *blocks;
    head_pair types, score_norm, scorer, out;
    head_pair hidden_norm, summary_norm, field_norm, option_norm;
    head_pair memory, question, option_question, global, option_context, option_lexical, scales;
};

/* ---- Weights ----------------------------------------------------------------------------------------- */

/* Reads a tensor times its scale; NULL stays NULL. */
static aerie_status read_tensor(ae_decider *d, const ae_gguf_tensor *t, const float **to, aerie_error *error)
{
    if (!t) return AERIE_OK;
    const size_t n = (size_t)(t->ne[0] * t->ne[1]);
    const ae_tensor_ref beside = ae_model_scale(d->model->gguf, d->model->bound, t);
    float *x = ae_arena_alloc(&d->arena, n, sizeof *x), scale = 1.0f;
    if (!x) return ae_fail_memory(error, "a decision head", n * sizeof *x);
    AE_TRY(ae_model_read_f32(d->model, t, x, n, error));
    if (beside) AE_TRY(ae_model_read_f32(d->model, beside, &scale, 1, error));
    for (size_t i = 0; beside && i < n; i++) x[i] *= scale;
    *to = x;
    return AERIE_OK;
}

static aerie_status read_pair(ae_decider *d, const ae_decision_pair *p, head_pair *to, aerie_error *error)
{
    if (!p->w) return AERIE_OK;
    to->n_in = (uint32_t)p->w->ne[0];
    to->n_out = (uint32_t)p->w->ne[1];
    AE_TRY(read_tensor(d, p->w, &to->w, error));
    return read_tensor(d, p->b, &to->b, error);
}

/* Reads q, k and v, of which q may have the rows of all three. */
static aerie_status read_attn(ae_decider *d, const ae_decision_attn *a, head_attn *to, aerie_error *error)
{
    AE_TRY(read_pair(d, &a->q, &to->q, error));
    AE_TRY(read_pair(d, &a->k, &to->k, error));
    AE_TRY(read_pair(d, &a->v, &to->v, error));
    if (a->q.w && !a->k.w) {
        const uint32_t n = to->q.n_in;
        to->q.n_out = n;
        to->k = (head_pair){to->q.w + (size_t)n * n, to->q.b + n, n, n};
        to->v = (head_pair){to->q.w + (size_t)2 * n * n, to->q.b + 2 * n, n, n};
    }
    return read_pair(d, &a->o, &to->o, error);
}

static aerie_status read_block(ae_decider *d, const ae_decision_block *b, head_block *to, aerie_error *error)
{
    AE_TRY(read_pair(d, &b->memory_norm, &to->memory_norm, error));
    AE_TRY(read_pair(d, &b->self_norm, &to->self_norm, error));
    AE_TRY(read_attn(d, &b->self, &to->self, error));
    AE_TRY(read_pair(d, &b->cross_norm, &to->cross_norm, error));
    AE_TRY(read_attn(d, &b->cross, &to->cross, error));
    AE_TRY(read_pair(d, &b->ffn_norm, &to->ffn_norm, error));
    AE_TRY(read_pair(d, &b->up, &to->up, error));
    return read_pair(d, &b->down, &to->down, error);
}

static aerie_status read_head(ae_decider *d, aerie_error *error)
{
    const ae_decision *t = d->model->decision;
    const uint32_t n = d->model->hparams.decision.n_blocks;
    const struct {
        const ae_decision_pair *from;
        head_pair *to;
    } pairs[] = {{&t->types, &d->types}, {&t->score_norm, &d->score_norm}, {&t->scorer, &d->scorer}, {&t->out, &d->out},
                 {&t->hidden_norm, &d->hidden_norm}, {&t->summary_norm, &d->summary_norm}, {&t->field_norm, &d->field_norm},
                 {&t->option_norm, &d->option_norm}, {&t->memory, &d->memory}, {&t->question, &d->question},
                 {&t->option_question, &d->option_question}, {&t->global, &d->global},
                 {&t->option_context, &d->option_context}, {&t->option_lexical, &d->option_lexical},
                 {&t->scales, &d->scales}};
    d->blocks = ae_arena_alloc(&d->arena, n, sizeof *d->blocks);
    if (!d->blocks) return ae_fail_memory(error, "a decision head", n * sizeof *d->blocks);
    for (uint32_t i = 0; i < n; i++) AE_TRY(read_block(d, &t->blocks[i], &d->blocks[i], error));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) AE_TRY(read_pair(d, pairs[i].from, pairs[i].to, error));
    return AERIE_OK;
}

aerie_status ae_decider_create(ae_decider **out, const ae_model *model, aerie_error *error)
{
    *out = NULL;
    ae_decider *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "a decision head", sizeof *d);
    d->model = model;
    ae_arena_init(&d->arena, 1 << 16);
    const aerie_status status = read_head(d, error);
    if (status == AERIE_OK) *out = d;
    else ae_decider_free(d);
    return status;
}

void ae_decider_free(ae_decider *d)
{
    if (!d) return;
    ae_arena_free(&d->arena);
    ae_free(d);
}

size_t ae_decider_plan_bytes(const ae_model *model, uint32_t n_ctx, uint32_t n_threads)
{
    const ae_decision_hparams *d = &model->hparams.decision;
    const size_t e = model->hparams.n_embd, h = d->n_embd;
    if (!d->kind) return 0;
    const size_t weights = 6 * h * e + 5 * h * h + d->n_blocks * (8 * h * h + 2 * h * d->n_ff);
    return (weights + (e + 5 * h) * n_ctx) * sizeof(float) + (size_t)n_ctx * n_threads * sizeof(double);
}

/* ---- Spans ------------------------------------------------------------------------------------------- */

static bool is_question(uint8_t span)
{
    return span == AE_SPAN_NOUL || span == AE_SPAN_CHOICE || span == AE_SPAN_SCORE;
}

/* Returns the end of the span that begins at `at`. */
static uint32_t span_end(const uint8_t *spans, uint32_t at, uint32_t n)
{
    uint32_t end = at + 1;
    while (end < n && spans[end] == spans[at]) end++;
    return end;
}

static aerie_status count_joint(const uint8_t *spans, uint32_t n, uint32_t *n_options, aerie_error *error)
{
    uint32_t n_questions = 0, n_own = 0;
    for (uint32_t at = 0; at < n; at = span_end(spans, at, n)) {
        if (is_question(spans[at])) {
            if (n_questions && !n_own)
                return ae_fail(error, AERIE_ERROR_ARGUMENT, "question %u has no option", n_questions - 1);
            n_questions++;
            n_own = 0;
        } else if (spans[at] == AE_SPAN_OPTION) {
            if (!n_questions)
                return ae_fail(error, AERIE_ERROR_ARGUMENT, "the option at token %u comes before any question", at);
            n_own++;
            ++*n_options;
        }
    }
    if (n_questions && !n_own) return ae_fail(error, AERIE_ERROR_ARGUMENT, "question %u has no option", n_questions - 1);
    return n_questions ? AERIE_OK : ae_fail(error, AERIE_ERROR_ARGUMENT, "no token belongs to a question");
}

aerie_status ae_decider_count(const ae_model *model, const uint8_t *spans, uint32_t n, uint32_t *n_options, aerie_error *error)
{
    bool asks = false;
    *n_options = 0;
    for (uint32_t i = 0; i < n; i++)
        if (spans[i] >= AE_SPANS)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "the span of token %u is %u; 0 to %d are possible", i, spans[i],
                           AE_SPANS - 1);
    if (model->hparams.decision.kind == AE_DECISION_JOINT) return count_joint(spans, n, n_options, error);
    for (uint32_t i = 0; i < n; i++) {
        asks |= is_question(spans[i]);
        *n_options += spans[i] == AE_SPAN_OPTION;
    }
    if (!asks) return ae_fail(error, AERIE_ERROR_ARGUMENT, "no token belongs to a question");
    return *n_options ? AERIE_OK : ae_fail(error, AERIE_ERROR_ARGUMENT, "the question has no option");
}

/* ---- MARKS ------------------------------------------------------------------------------------------- */

/* x += attention among rows, for the rows of `kept` (n_kept of them, moved to the front), or for all if it is NULL. */
static aerie_status run_marks_block(ae_decider *d, head_room *r, const head_block *b, float *x, uint32_t n,
                                    const uint32_t *kept, uint32_t n_kept, aerie_error *error)
{
    const uint32_t e = d->model->hparams.n_embd, m = kept ? n_kept : n;
    float *normed = head_take(r, (size_t)n * e), *wanted = normed, *added = head_take(r, (size_t)m * e);
    if (kept) wanted = head_take(r, (size_t)m * e);
    if (!normed || !wanted || !added) return ae_fail_memory(error, "a decision", (size_t)n * e * sizeof *x);
    head_norm(r, &b->self_norm, x, n, normed);
    for (uint32_t i = 0; kept && i < m; i++) {
        memcpy(wanted + (size_t)i * e, normed + (size_t)kept[i] * e, e * sizeof *x);
        memmove(x + (size_t)i * e, x + (size_t)kept[i] * e, e * sizeof *x); /* i <= kept[i] */
    }
    AE_TRY(head_attend(r, &b->self, wanted, m, normed, n, added, error));
    head_add(x, added, (size_t)m * e);
    return head_ffn(r, b, x, m, HEAD_RELU, error);
}

static aerie_status run_marks(ae_decider *d, head_room *r, const uint8_t *spans, uint32_t n, float *x, float *scores,
                              uint32_t n_options, aerie_error *error)
{
    static const uint8_t columns[AE_SPANS] = {[AE_SPAN_CHOICE] = 0, [AE_SPAN_SCORE] = 1, [AE_SPAN_NOUL] = 2};
    const uint32_t e = d->model->hparams.n_embd, n_blocks = d->model->hparams.decision.n_blocks;
    uint32_t *marks = head_take(r, n_options), at = 0, m = 0;
    float *normed = head_take(r, (size_t)n_options * e), *judged = head_take(r, (size_t)n_options * e);
    if (!marks || !normed || !judged) return ae_fail_memory(error, "a decision", 2 * (size_t)n_options * e * sizeof *x);
    while (!is_question(spans[at])) at++;
    for (uint32_t i = 0; i < n; i++) {
        if (spans[i] == AE_SPAN_OPTION) marks[m++] = i;
        head_add(x + (size_t)i * e, d->types.w + (size_t)columns[spans[at]] * e, e);
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        const size_t mark = head_mark(r);
        AE_TRY(run_marks_block(d, r, &d->blocks[i], x, n, i + 1 == n_blocks ? marks : NULL, m, error));
        head_drop(r, mark);
    }
    head_norm(r, &d->score_norm, x, m, normed);
    head_times(r, &d->scorer, normed, m, judged);
    head_activate(judged, (size_t)m * e, HEAD_GELU);
    head_times(r, &d->out, judged, m, scores);
    return AERIE_OK;
}

/* ---- JOINT ------------------------------------------------------------------------------------------- */

/* What a text asks, and its vectors; e = n_embd of the model, h of the head. */
typedef struct asked {
    uint32_t n, n_questions, n_options;
    const int32_t *tokens;
    uint32_t *begin, *end;  /* [n_options] tokens of an option */
    uint32_t *owner;        /* [n_options] its question */
    uint32_t *q_begin, *q_end, *q_type; /* [n_questions]; the type is a row of the head's table */
    float *hidden;          /* [n][e] */
    float *memory;          /* [n][h] */
    float *question;        /* [n_questions][e] means of hidden rows */
    float *context, *lexical; /* [n_options][e] means of hidden rows, of rows of the output head */
    float *options;         /* [n_options][h] */
    float *fields;          /* [n_questions][h] */
} asked;

static bool take_room(asked *a, head_room *r, uint32_t n_options, uint32_t e, uint32_t h)
{
    const uint32_t o = n_options; /* no question is without an option */
    uint32_t **lists[] = {&a->begin, &a->end, &a->owner, &a->q_begin, &a->q_end, &a->q_type};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!(*lists[i] = head_take(r, o))) return false;
    a->memory = head_take(r, (size_t)a->n * h);
    a->question = head_take(r, (size_t)o * e);
    a->context = head_take(r, (size_t)o * e);
    a->lexical = head_take(r, (size_t)o * e);
    a->options = head_take(r, (size_t)o * h);
    a->fields = head_take(r, (size_t)o * h);
    return a->memory && a->question && a->context && a->lexical && a->options && a->fields;
}

static void find_spans(asked *a, const uint8_t *spans)
{
    for (uint32_t at = 0, end; at < a->n; at = end) {
        end = span_end(spans, at, a->n);
        if (is_question(spans[at])) {
            a->q_begin[a->n_questions] = at;
            a->q_end[a->n_questions] = end;
            a->q_type[a->n_questions++] = spans[at] - AE_SPAN_NOUL;
        } else if (spans[at] == AE_SPAN_OPTION) {
            a->begin[a->n_options] = at;
            a->end[a->n_options] = end;
            a->owner[a->n_options++] = a->n_questions - 1;
        }
    }
}

/* Computes the means of rows [begin, end), in order of position. */
static void mean_rows(const float *rows, uint32_t begin, uint32_t end, uint32_t width, float *to)
{
    for (uint32_t k = 0; k < width; k++) {
        double sum = 0;
        for (uint32_t i = begin; i < end; i++) sum += (double)rows[(size_t)i * width + k];
        to[k] = (float)(sum / (end - begin));
    }
}

/* Computes the means of the output head's rows for the tokens of each option. */
static aerie_status read_lexical(const ae_decider *d, const asked *a, head_room *r, aerie_error *error)
{
    const ae_tensor_ref t = d->model->output, beside = ae_model_scale(d->model->gguf, d->model->bound, t);
    const uint32_t e = d->model->hparams.n_embd;
    const size_t bytes = ae_type_row_bytes(t->type, e), mark = head_mark(r);
    float *row = head_take(r, e), scale = 1.0f;
    double *sum = head_take(r, 2 * (size_t)e);
    uint8_t *data = head_take(r, (bytes + 3) / 4);
    ae_gguf_reader reader = ae_gguf_reader_open(d->model->gguf);
    aerie_status status = row && sum && data ? AERIE_OK : ae_fail_memory(error, "a row of the output head", bytes);
    if (status == AERIE_OK && beside) status = ae_model_read_f32(d->model, beside, &scale, 1, error);
    for (uint32_t o = 0; o < a->n_options && status == AERIE_OK; o++) {
        memset(sum, 0, e * sizeof *sum);
        for (uint32_t i = a->begin[o]; i < a->end[o] && status == AERIE_OK; i++) {
            status = ae_gguf_read(&reader, t, (size_t)a->tokens[i] * bytes, data, bytes, error);
            if (status != AERIE_OK) break;
            ae_type_get(t->type)->decode(data, row, e);
            for (uint32_t k = 0; k < e; k++) sum[k] += (double)row[k];
        }
        for (uint32_t k = 0; k < e; k++)
            a->lexical[(size_t)o * e + k] = (float)(sum[k] * (double)scale / (a->end[o] - a->begin[o]));
    }
    ae_gguf_reader_close(&reader);
    head_drop(r, mark);
    return status;
}

/* options = context + lexical + their question's part */
static aerie_status begin_options(const ae_decider *d, const asked *a, head_room *r, aerie_error *error)
{
    const uint32_t h = d->memory.n_out;
    const size_t mark = head_mark(r);
    float *part = head_take(r, (size_t)a->n_options * h), *asks = head_take(r, (size_t)a->n_questions * h);
    if (!part || !asks) return ae_fail_memory(error, "a decision", (size_t)a->n_options * h * sizeof *part);
    head_times(r, &d->option_context, a->context, a->n_options, a->options);
    head_times(r, &d->option_lexical, a->lexical, a->n_options, part);
    head_add(a->options, part, (size_t)a->n_options * h);
    head_times(r, &d->option_question, a->question, a->n_questions, asks);
    for (uint32_t o = 0; o < a->n_options; o++) head_add(a->options + (size_t)o * h, asks + (size_t)a->owner[o] * h, h);
    head_drop(r, mark);
    return AERIE_OK;
}

/* x [n_x] += attention to the text's rows, which the block may norm */
static aerie_status read_text(head_room *r, const head_block *b, const asked *a, float *x, uint32_t n_x, uint32_t h,
                              aerie_error *error)
{
    float *normed = head_take(r, (size_t)n_x * h), *added = head_take(r, (size_t)n_x * h), *memory = a->memory;
    if (b->memory_norm.w) memory = head_take(r, (size_t)a->n * h);
    if (!normed || !added || !memory) return ae_fail_memory(error, "a decision", (size_t)a->n * h * sizeof *x);
    if (b->memory_norm.w) head_norm(r, &b->memory_norm, a->memory, a->n, memory);
    head_norm(r, &b->cross_norm, x, n_x, normed);
    AE_TRY(head_attend(r, &b->cross, normed, n_x, memory, a->n, added, error));
    head_add(x, added, (size_t)n_x * h);
    return AERIE_OK;
}

static aerie_status run_joint_block(const ae_decider *d, const asked *a, head_room *r, uint32_t i, aerie_error *error)
{
    const uint32_t h = d->memory.n_out;
    const head_block *b = &d->blocks[i];
    const bool routes = i < d->model->hparams.decision.n_routing;
    float *x = routes ? a->options : a->fields;
    const uint32_t n = routes ? a->n_options : a->n_questions;
    if (!routes) {
        float *normed = head_take(r, (size_t)n * h), *added = head_take(r, (size_t)n * h);
        if (!normed || !added) return ae_fail_memory(error, "a decision", (size_t)n * h * sizeof *x);
        head_norm(r, &b->self_norm, x, n, normed);
        AE_TRY(head_attend(r, &b->self, normed, n, normed, n, added, error));
        head_add(x, added, (size_t)n * h);
    }
    AE_TRY(read_text(r, b, a, x, n, h, error));
    return head_ffn(r, b, x, n, HEAD_GELU, error);
}

/* Computes into `to` what a question's options are together: their mean, weighted by how well they fit the question. */
static aerie_status summarize(const asked *a, head_room *r, uint32_t question, uint32_t h, float *to, aerie_error *error)
{
    const size_t mark = head_mark(r);
    double *weights = head_take(r, 2 * (size_t)a->n_options), most = -HUGE_VAL, all = 0;
    if (!weights) return ae_fail_memory(error, "a decision", a->n_options * sizeof *weights);
    for (uint32_t o = 0; o < a->n_options; o++) {
        if (a->owner[o] != question) continue;
        weights[o] = head_dot(a->options + (size_t)o * h, a->fields + (size_t)question * h, h) / sqrt((double)h);
        most = weights[o] > most ? weights[o] : most;
    }
    for (uint32_t o = 0; o < a->n_options; o++)
        if (a->owner[o] == question) all += weights[o] = ae_exp(weights[o] - most);
    for (uint32_t k = 0; k < h; k++) {
        double sum = 0;
        for (uint32_t o = 0; o < a->n_options; o++)
            if (a->owner[o] == question) sum += weights[o] / all * (double)a->options[(size_t)o * h + k];
        to[k] = (float)sum;
    }
    head_drop(r, mark);
    return AERIE_OK;
}

/* fields = question + summary of its options + the text's end + the question's type */
static aerie_status begin_fields(const ae_decider *d, const asked *a, head_room *r, aerie_error *error)
{
    const uint32_t e = d->model->hparams.n_embd, h = d->memory.n_out, n = a->n_questions;
    const size_t mark = head_mark(r);
    float *summary = head_take(r, (size_t)n * h), *end = head_take(r, h);
    if (!summary || !end) return ae_fail_memory(error, "a decision", (size_t)n * h * sizeof *summary);
    head_times(r, &d->question, a->question, n, a->fields);
    for (uint32_t q = 0; q < n; q++) AE_TRY(summarize(a, r, q, h, summary + (size_t)q * h, error));
    head_norm(r, &d->summary_norm, summary, n, summary);
    head_times(r, &d->global, a->hidden + (size_t)(a->n - 1) * e, 1, end);
    for (uint32_t q = 0; q < n; q++) {
        float *field = a->fields + (size_t)q * h;
        head_add(field, summary + (size_t)q * h, h);
        head_add(field, end, h);
        head_add(field, d->types.w + (size_t)a->q_type[q] * h, h);
    }
    head_drop(r, mark);
    return AERIE_OK;
}

/* Returns the cosine of the angle between two vectors; shorter ones than 1e-12 count as that long. */
static double cosine(const float *a, const float *b, uint32_t n)
{
    const double aa = sqrt(head_dot(a, a, n)), bb = sqrt(head_dot(b, b, n));
    return head_dot(a, b, n) / ((aa > 1e-12 ? aa : 1e-12) * (bb > 1e-12 ? bb : 1e-12));
}

/* Scores the options by their words' likeness to question and end, and by the head's own judgement. */
static aerie_status score_options(const ae_decider *d, const asked *a, head_room *r, float *scores, aerie_error *error)
{
    const uint32_t e = d->model->hparams.n_embd, h = d->memory.n_out, n = a->n_options;
    float *features = head_take(r, (size_t)n * 4 * h), *judged = head_take(r, (size_t)n * h);
    float *anchor = head_take(r, e), *rest = head_take(r, n);
    if (!features || !judged || !anchor || !rest)
        return ae_fail_memory(error, "a decision", (size_t)n * 5 * h * sizeof *features);
    head_norm(r, &d->field_norm, a->fields, a->n_questions, a->fields);
    head_norm(r, &d->option_norm, a->options, n, a->options);
    for (uint32_t o = 0; o < n; o++) {
        const float *field = a->fields + (size_t)a->owner[o] * h, *option = a->options + (size_t)o * h;
        float *to = features + (size_t)o * 4 * h;
        for (uint32_t k = 0; k < h; k++) {
            to[k] = field[k];
            to[h + k] = option[k];
            to[2 * h + k] = field[k] * option[k];
            to[3 * h + k] = fabsf(field[k] - option[k]);
        }
    }
    head_times(r, &d->scorer, features, n, judged);
    head_activate(judged, (size_t)n * h, HEAD_GELU);
    head_times(r, &d->out, judged, n, rest);
    for (uint32_t o = 0; o < n; o++) {
        const float *end = a->hidden + (size_t)(a->n - 1) * e, *question = a->question + (size_t)a->owner[o] * e;
        for (uint32_t k = 0; k < e; k++) anchor[k] = question[k] + end[k];
        const double prior = cosine(a->lexical + (size_t)o * e, anchor, e);
        const double joint = cosine(a->fields + (size_t)a->owner[o] * h, a->options + (size_t)o * h, h);
        scores[o] = (float)((double)d->scales.w[0] * prior +
                            (double)d->scales.w[2] * ((double)d->scales.w[1] * joint + (double)rest[o]));
    }
    return AERIE_OK;
}

static aerie_status run_joint(ae_decider *d, head_room *r, asked *a, const uint8_t *spans, uint32_t n_options,
                              float *scores, aerie_error *error)
{
    const uint32_t e = d->model->hparams.n_embd, h = d->memory.n_out;
    const ae_decision_hparams *sizes = &d->model->hparams.decision;
    if (!take_room(a, r, n_options, e, h)) return ae_fail_memory(error, "a decision", (size_t)a->n * h * sizeof(float));
    find_spans(a, spans);
    head_norm(r, &d->hidden_norm, a->hidden, a->n, a->hidden);
    head_times(r, &d->memory, a->hidden, a->n, a->memory);
    for (uint32_t q = 0; q < a->n_questions; q++)
        mean_rows(a->hidden, a->q_begin[q], a->q_end[q], e, a->question + (size_t)q * e);
    for (uint32_t o = 0; o < a->n_options; o++)
        mean_rows(a->hidden, a->begin[o], a->end[o], e, a->context + (size_t)o * e);
    AE_TRY(read_lexical(d, a, r, error));
    AE_TRY(begin_options(d, a, r, error));
    for (uint32_t i = 0; i < sizes->n_blocks; i++) {
        const size_t mark = head_mark(r);
        if (i == sizes->n_routing) AE_TRY(begin_fields(d, a, r, error));
        AE_TRY(run_joint_block(d, a, r, i, error));
        head_drop(r, mark);
    }
    if (sizes->n_routing == sizes->n_blocks) AE_TRY(begin_fields(d, a, r, error));
    return score_options(d, a, r, scores, error);
}

aerie_status ae_decider_run(ae_decider *d, ae_pool *pool, const int32_t *tokens, const uint8_t *spans, uint32_t n, float *rows,
                            float *scores, aerie_error *error)
{
    const ae_decision_hparams *sizes = &d->model->hparams.decision;
    head_room r;
    uint32_t n_options;
    AE_TRY(ae_decider_count(d->model, spans, n, &n_options, error));
    AE_TRY(head_room_begin(&r, pool, n, sizes->n_embd, sizes->n_heads, sizes->eps, error));
    asked a = {.n = n, .tokens = tokens, .hidden = rows};
    const aerie_status status = sizes->kind == AE_DECISION_JOINT
                                    ? run_joint(d, &r, &a, spans, n_options, scores, error)
                                    : run_marks(d, &r, spans, n, rows, scores, n_options, error);
    head_room_end(&r);
    return status;
}
