/* head_ref.c - see head_ref.h. Sources: arXiv 2401.15077 (EAGLE), 2503.01840 (EAGLE-3), 2605.09992 (3.1), 2401.10774 (Medusa),
 * 2309.00071 (YaRN), 2104.09864 (the rotation). */
#include "head_ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/types.h"

typedef struct row {
    int parent;
    int64_t position;
    /* [n_layers][n_kv_heads * head_dim], rotated keys; values; [n_embd] x 3; [n_draft] */
    double *k, *v, *feature, *hidden, *normed, *logits;
} row;

struct head_ref {
    const ae_dhead *head;
    ae_tensor_ref embedding, output; /* the head's own or the target's */
    bool borrowed_output;            /* its rows are the target's tokens */
    row *rows;
    int n_rows;
};

/* ---- Linear algebra ----------------------------------------------------------------------------------- */

static double *numbers(size_t n)
{
    return calloc(n ? n : 1, sizeof(double));
}

/* Row i of a matrix (or the vector itself, i = 0) as doubles. */
static bool decode_row(ae_tensor_ref t, int64_t i, double *out)
{
    const size_t n = (size_t)t->ne[0];
    float *x = malloc(n * sizeof *x);
    if (!x) return false;
    ae_type_get(t->type)->decode(t->data + (size_t)i * ae_type_row_bytes(t->type, n), x, n);
    for (size_t k = 0; k < n; k++) out[k] = (double)x[k];
    free(x);
    return true;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* y = W x + b; bias may be NULL. */
static bool linear(ae_tensor_ref w, ae_tensor_ref bias, const double *x, double *y)
{
    const size_t n_in = (size_t)w->ne[0], n_out = (size_t)w->ne[1];
    double *r = numbers(n_in > n_out ? n_in : n_out);
    bool ok = r != NULL;
    for (size_t i = 0; i < n_out && ok; i++) {
        ok = decode_row(w, (int64_t)i, r);
        if (ok) y[i] = dot(r, x, n_in);
    }
    if (ok && bias) {
        ok = decode_row(bias, 0, r);
        for (size_t i = 0; i < n_out && ok; i++) y[i] += r[i];
    }
    free(r);
    return ok;
}

/* RMS norm of n elements: y = w x / sqrt(mean(x^2) + eps). */
static void rms(const double *x, const double *w, double eps, size_t n, double *y)
{
    const double scale = 1 / sqrt(dot(x, x, n) / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}

static bool norm(const head_ref *r, ae_tensor_ref weight, const double *x, size_t n, double *y)
{
    double *w = numbers(n);
    const bool ok = w && decode_row(weight, 0, w);
    if (ok) rms(x, w, (double)r->head->hparams.layer.norm_eps, n, y);
    free(w);
    return ok;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* ---- Rotation ------------------------------------------------------------------------------------------- */

/* Radians per position of the pair (2i, 2i+1). */
static double frequency(const ae_dhead *head, uint32_t i)
{
    const ae_rope *h = &head->hparams.layer.ropes[0];
    const double d = h->n_rot, base = (double)h->base, factor = (double)h->factor, two_pi = 2 * acos(-1.0);
    double theta = pow(base, -2 * (double)i / d);
    if (h->divisors) theta /= (double)h->divisors[i];
    if (h->scaling == AE_ROPE_SCALING_LINEAR) return theta / factor;
    if (h->scaling != AE_ROPE_SCALING_YARN) return theta;
    const double length = h->n_ctx_orig;
    double low = 0, high = 0; /* pairs that turn 32 times and once over the original context */
    if (length > 0) {
        low = fmax(0, floor(d / 2 * log(length / (32 * two_pi)) / log(base)));
        high = fmin(d - 1, ceil(d / 2 * log(length / (1 * two_pi)) / log(base)));
    }
    const double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
    return (1 - ramp) * theta + ramp * theta / factor;
}

static void rotate(const ae_dhead *head, double *x, uint32_t n_heads, int64_t position)
{
    const ae_hparams *h = &head->hparams.layer;
    const ae_rope *rope = &h->ropes[0];
    const bool yarn = rope->scaling == AE_ROPE_SCALING_YARN && rope->n_ctx_orig;
    const double size = yarn ? 1 + 0.1 * log((double)rope->factor) : 1;
    for (uint32_t j = 0; j < n_heads; j++)
        for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
            double *pair = x + (size_t)j * h->head_dim + 2 * i;
            const double angle = (double)position * frequency(head, i), a = pair[0], b = pair[1];
            pair[0] = size * (a * cos(angle) - b * sin(angle));
            pair[1] = size * (a * sin(angle) + b * cos(angle));
        }
}

/* ---- The layer -------------------------------------------------------------------------------------------- */

static bool head_norms(const head_ref *r, ae_tensor_ref weight, double *x, uint32_t n_heads)
{
    const uint32_t d = r->head->hparams.layer.head_dim;
    bool ok = true;
    for (uint32_t j = 0; j < n_heads && weight && ok; j++) ok = norm(r, weight, x + (size_t)j * d, d, x + (size_t)j * d);
    return ok;
}

static bool sees(const head_ref *r, int64_t from, int64_t to)
{
    const ae_dhead_hparams *h = &r->head->hparams;
    return !h->window || from - to < (int64_t)h->window || to < (int64_t)h->n_sinks;
}

/* softmax over the ancestors of row i and itself, for one head's query; out [head_dim]. */
static void attend(const head_ref *r, int i, uint32_t layer, uint32_t j, const double *q, double *out)
{
    const ae_hparams *h = &r->head->hparams.layer;
    const size_t at = ((size_t)layer * h->n_kv_heads + j / (h->n_heads / h->n_kv_heads)) * h->head_dim, d = h->head_dim;
    double sum = 0, most = -INFINITY;
    memset(out, 0, d * sizeof *out);
    for (int pass = 0; pass < 2; pass++)
        for (int p = i; p >= 0; p = r->rows[p].parent) {
            const row *other = &r->rows[p];
            if (!sees(r, r->rows[i].position, other->position)) continue;
            const double score = dot(q, other->k + at, d) / sqrt((double)d);
            if (pass == 0) {
                most = fmax(most, score);
                continue;
            }
            const double w = exp(score - most);
            sum += w;
            for (size_t k = 0; k < d; k++) out[k] += w * other->v[at + k];
        }
    for (size_t k = 0; k < d; k++) out[k] /= sum;
}

/* y [n_embd] = Wo attention(c); keys and values of row i are set. */
static bool attention(const head_ref *r, int i, uint32_t layer, const double *c, double *y)
{
    const ae_dhead *head = r->head;
    const ae_layer *l = &head->layers[layer];
    const ae_hparams *h = &head->hparams.layer;
    row *self = &r->rows[i];
    const size_t kv = (size_t)h->n_kv_heads * h->head_dim;
    double *k = self->k + layer * kv, *v = self->v + layer * kv;
    double *q = numbers((size_t)h->n_heads * h->head_dim), *out = numbers((size_t)h->n_heads * h->head_dim);
    bool ok = q && out && linear(l->wq, l->bq, c, q) && linear(l->wk, l->bk, c, k) && linear(l->wv, l->bv, c, v) &&
              head_norms(r, l->q_norm, q, h->n_heads) && head_norms(r, l->k_norm, k, h->n_kv_heads);
    if (ok) {
        rotate(head, q, h->n_heads, self->position);
        rotate(head, k, h->n_kv_heads, self->position);
        for (uint32_t j = 0; j < h->n_heads; j++)
            attend(r, i, layer, j, q + (size_t)j * h->head_dim, out + (size_t)j * h->head_dim);
        ok = linear(l->wo, l->bo, out, y);
    }
    free(q);
    free(out);
    return ok;
}

/* z += W_down (silu(W_gate n) * W_up n), n = norm(z) */
static bool feed_forward(const head_ref *r, uint32_t layer, double *z)
{
    const ae_layer *l = &r->head->layers[layer];
    const ae_hparams *h = &r->head->hparams.layer;
    double *n = numbers(h->n_embd), *y = numbers(h->n_embd), *gate = numbers(h->n_ff), *up = numbers(h->n_ff);
    bool ok = n && y && gate && up && norm(r, l->ffn_norm, z, h->n_embd, n) && linear(l->w_gate, l->b_gate, n, gate) &&
              linear(l->w_up, l->b_up, n, up);
    for (uint32_t i = 0; i < h->n_ff && ok; i++) gate[i] = silu(gate[i]) * up[i];
    ok = ok && linear(l->w_down, l->b_down, gate, y);
    for (uint32_t i = 0; i < h->n_embd && ok; i++) z[i] += y[i];
    free(n), free(y), free(gate), free(up);
    return ok;
}

/* ---- A row --------------------------------------------------------------------------------------------------- */

/* The taps [n_taps * n_target_embd] through the norms before fc, into out. */
static bool fc_norms(const head_ref *r, const double *taps, double *out)
{
    const ae_dhead_hparams *h = &r->head->hparams;
    const size_t all = (size_t)h->n_taps * h->n_target_embd;
    memcpy(out, taps, all * sizeof *out);
    if (h->fc_norm == AE_FC_NORM_NONE) return true;
    if (h->fc_norm == AE_FC_NORM_JOINT) return norm(r, r->head->fc_norm[0], taps, all, out);
    double *w = numbers(all);
    bool ok = w != NULL;
    for (uint32_t i = 0; i < h->n_taps && ok; i++) { /* one tensor for each, or one with all */
        const size_t at = (size_t)i * h->n_target_embd;
        if (r->head->fc_norm[1]) ok = decode_row(r->head->fc_norm[i], 0, w + at);
        else if (i == 0) ok = decode_row(r->head->fc_norm[0], 0, w);
        if (ok) rms(taps + at, w + at, (double)h->layer.norm_eps, h->n_target_embd, out + at);
    }
    free(w);
    return ok;
}

/* EAGLE-3: g, then c = norm(e) | norm(g); self->hidden becomes the residual. */
static bool enter_eagle3(const head_ref *r, row *self, const double *e, const double *taps, double *c)
{
    const ae_dhead *head = r->head;
    const ae_dhead_hparams *h = &head->hparams;
    const size_t n = h->layer.n_embd;
    bool ok = true;
    if (taps) {
        double *x = numbers((size_t)h->n_taps * h->n_target_embd);
        ok = x && fc_norms(r, taps, x) && linear(head->fc, head->fc_bias, x, self->feature);
        free(x);
    } else {
        const row *parent = &r->rows[self->parent];
        memcpy(self->feature, h->feedback_normed ? parent->normed : parent->hidden, n * sizeof(double));
    }
    ok = ok && norm(r, head->embd_norm, e, n, c) && norm(r, head->hidden_norm, self->feature, n, c + n);
    memcpy(self->hidden, h->norm_before_residual ? c + n : self->feature, n * sizeof(double));
    return ok;
}

/* EAGLE-1/2: x = fc(e | f), which is the layer's input and the residual. */
static bool enter_eagle(const head_ref *r, row *self, const double *e, const double *feature, double *c)
{
    const ae_dhead *head = r->head;
    const size_t n = head->hparams.layer.n_embd, nt = head->hparams.n_target_embd;
    double *x = numbers(n + nt);
    if (!x) return false;
    memcpy(x, e, n * sizeof *x);
    memcpy(x + n, feature ? feature : r->rows[self->parent].hidden, nt * sizeof *x);
    const bool ok = linear(head->fc, head->fc_bias, x, self->feature);
    memcpy(c, self->feature, n * sizeof *c);
    memcpy(self->hidden, self->feature, n * sizeof *c);
    free(x);
    return ok;
}

static bool leave(const head_ref *r, row *self)
{
    const ae_dhead *head = r->head;
    const size_t n = head->hparams.layer.n_embd;
    double *w = numbers(n);
    bool ok = w != NULL;
    if (head->out_norm) ok = ok && norm(r, head->out_norm, self->hidden, n, self->normed);
    else memcpy(self->normed, self->hidden, n * sizeof(double));
    for (uint32_t i = 0; i < head->hparams.n_draft && ok; i++) {
        ok = decode_row(r->output, r->borrowed_output && head->to_target ? head->to_target[i] : (int64_t)i, w);
        if (ok) self->logits[i] = dot(w, self->normed, n);
    }
    free(w);
    return ok;
}

static bool compute(const head_ref *r, int i, int32_t token, const double *features)
{
    const size_t n = r->head->hparams.layer.n_embd;
    row *self = &r->rows[i];
    double *e = numbers(n), *c = numbers(2 * n), *y = numbers(n);
    bool ok = e && c && y && decode_row(r->embedding, token, e);
    ok = ok && (r->head->hparams.kind == AE_DHEAD_EAGLE3 ? enter_eagle3 : enter_eagle)(r, self, e, features, c);
    for (uint32_t layer = 0; layer < r->head->hparams.n_layers && ok; layer++) {
        if (layer) ok = norm(r, r->head->layers[layer].attn_norm, self->hidden, n, c);
        ok = ok && attention(r, i, layer, c, y);
        for (size_t k = 0; k < n && ok; k++) self->hidden[k] += y[k];
        ok = ok && feed_forward(r, layer, self->hidden);
    }
    ok = ok && leave(r, self);
    free(e), free(c), free(y);
    return ok;
}

static void free_row(row *x)
{
    free(x->k), free(x->v), free(x->feature), free(x->hidden), free(x->normed), free(x->logits);
}

int head_ref_add(head_ref *ref, int parent, int32_t token, const double *features)
{
    const ae_dhead_hparams *h = &ref->head->hparams;
    const size_t n = h->layer.n_embd, kv = (size_t)h->n_layers * h->layer.n_kv_heads * h->layer.head_dim;
    if (parent < 0 && !features) return -1;
    row *rows = realloc(ref->rows, ((size_t)ref->n_rows + 1) * sizeof *rows);
    if (!rows) return -1;
    ref->rows = rows;
    row *x = &rows[ref->n_rows];
    *x = (row){parent, parent < 0 ? 0 : rows[parent].position + 1, numbers(kv), numbers(kv), numbers(n), numbers(n), numbers(n),
               numbers(h->n_draft)};
    if (x->k && x->v && x->feature && x->hidden && x->normed && x->logits && compute(ref, ref->n_rows, token, features))
        return ref->n_rows++;
    free_row(x);
    return -1;
}

int head_ref_text(head_ref *ref, const int32_t *tokens, const double *features, int n)
{
    const size_t width = (size_t)ref->head->hparams.n_taps * ref->head->hparams.n_target_embd;
    int last = -1;
    for (int i = 0; i < n; i++)
        if ((last = head_ref_add(ref, last, tokens[i + 1], features + (size_t)i * width)) < 0) break;
    return last;
}

int head_ref_chain(head_ref *ref, int parent, const int32_t *tokens, int n)
{
    for (int i = 0; i < n && parent >= 0; i++) parent = head_ref_add(ref, parent, tokens[i], NULL);
    return parent;
}

/* ---- The rest -------------------------------------------------------------------------------------------------- */

head_ref *head_ref_create(const ae_dhead *head, const ae_model *target)
{
    head_ref *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->head = head;
    r->borrowed_output = !head->output;
    r->embedding = head->embedding ? head->embedding : target ? target->embedding : NULL;
    r->output = head->output ? head->output : target ? target->output : NULL;
    return r;
}

void head_ref_free(head_ref *ref)
{
    if (!ref) return;
    for (int i = 0; i < ref->n_rows; i++) free_row(&ref->rows[i]);
    free(ref->rows);
    free(ref);
}

const double *head_ref_feature(const head_ref *ref, int i)
{
    return ref->rows[i].feature;
}

const double *head_ref_hidden(const head_ref *ref, int i)
{
    return ref->rows[i].hidden;
}

const double *head_ref_normed(const head_ref *ref, int i)
{
    return ref->rows[i].normed;
}

const double *head_ref_logits(const head_ref *ref, int i)
{
    return ref->rows[i].logits;
}

bool head_ref_medusa(head_ref *ref, uint32_t j, const double *feature, double *hidden, double *logits)
{
    const ae_dhead *head = ref->head;
    const ae_dhead_hparams *h = &head->hparams;
    double *y = numbers(h->layer.n_embd);
    bool ok = y != NULL;
    memcpy(hidden, feature, h->layer.n_embd * sizeof *hidden);
    for (uint32_t b = 0; b < h->n_blocks && ok; b++) {
        ok = linear(head->medusa_w[j][b], head->medusa_b[j][b], hidden, y);
        for (uint32_t i = 0; i < h->layer.n_embd && ok; i++) hidden[i] += silu(y[i]);
    }
    free(y);
    return ok && linear(head->medusa_out[j], NULL, hidden, logits);
}
