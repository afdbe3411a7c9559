/* inflate.c - see inflate.h. Owns: which tensors grow, and the key that says so. */
#include "inflate.h"

#include <stdio.h>
#include <string.h>

typedef struct growth {
    const char *path; /* for messages */
    uint32_t n_copies;
    int64_t n_ff;
    uint32_t n_gates, n_ups, n_downs; /* matrices met */
} growth;

static bool ends(ae_gguf_string name, const char *text)
{
    const size_t n = strlen(text);
    return name.n >= n && !memcmp(name.data + name.n - n, text, n);
}

/* Dimension d of the tensor must be the feed-forward length. */
static aerie_status check_length(const growth *g, const ae_gguf_tensor *t, int d, aerie_error *error)
{
    if (t->ne[d] == g->n_ff) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "%s: tensor \"%.*s\" has %lld neurons and the metadata says %lld: no feed-forward "
                   "layer of the kind that can be inflated",
                   g->path, (int)(t->name.n < 80 ? t->name.n : 80), t->name.data, (long long)t->ne[d],
                   (long long)g->n_ff);
}

static aerie_status grow(void *context, ae_rewrite_tensor *t, aerie_error *error)
{
    growth *g = context;
    const ae_gguf_string name = t->from->name;
    const bool gate = ends(name, "ffn_gate.weight"), up = ends(name, "ffn_up.weight"),
               down = ends(name, "ffn_down.weight");
    g->n_gates += gate;
    g->n_ups += up;
    g->n_downs += down;
    if (down) {
        t->column_copies = g->n_copies;
        return check_length(g, t->from, 0, error);
    }
    if (gate || up) {
        t->row_copies = g->n_copies;
        return check_length(g, t->from, 1, error);
    }
    if (!ends(name, "ffn_gate.bias") && !ends(name, "ffn_up.bias")) return AERIE_OK;
    t->row_copies = g->n_copies;
    return check_length(g, t->from, 0, error);
}

/* The key of the feed-forward length, and its value. */
static aerie_status find_length(const ae_gguf *gguf, char key[160], uint32_t *n_ff, aerie_error *error)
{
    ae_gguf_string arch = {0};
    uint32_t n_experts = 0;
    AE_TRY(ae_gguf_get_string(gguf, "general.architecture", true, &arch, error));
    if (arch.n > 64)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the architecture's name is too long", ae_gguf_path(gguf));
    snprintf(key, 160, "%.*s.expert_count", (int)arch.n, arch.data);
    AE_TRY(ae_gguf_get_u32(gguf, key, false, &n_experts, error));
    if (n_experts)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s has %u experts; only dense models can be inflated",
                       ae_gguf_path(gguf), n_experts);
    snprintf(key, 160, "%.*s.feed_forward_length", (int)arch.n, arch.data);
    return ae_gguf_get_u32(gguf, key, true, n_ff, error);
}

static aerie_status plan(ae_rewrite **rewrite, const ae_gguf *gguf, growth *g, const inflate_options *o,
                         ae_rewrite_key *key, aerie_error *error)
{
    ae_rewrite_settings s = ae_rewrite_settings_default(o->mix);
    if (o->n_copies < 1 || o->n_copies > INFLATE_MOST)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a neuron can stand 1 to %d times, not %u", INFLATE_MOST,
                       o->n_copies);
    g->n_ff = key->value;
    if (__builtin_mul_overflow(key->value, o->n_copies, &key->value) || key->value > INT32_MAX)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%s: %lld neurons cannot stand %u times each", g->path,
                       (long long)g->n_ff, o->n_copies);
    s.allow_requantize = true;
    s.keys = key;
    s.n_keys = 1;
    s.shape = grow;
    s.shape_context = g;
    s.copy_group = o->group ? o->group : 256;
    s.copies_carry = !o->plain;
    s.only_copied = o->keep_rest;
    AE_TRY(ae_rewrite_plan(rewrite, gguf, &s, error));
    if (g->n_gates && g->n_gates == g->n_ups && g->n_ups == g->n_downs) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "%s holds %u ffn_gate, %u ffn_up and %u ffn_down matrices; a model that can be "
                   "inflated has as many of each",
                   g->path, g->n_gates, g->n_ups, g->n_downs);
}

aerie_status inflate(const inflate_options *o, const char *in, const char *out, uint64_t *n_params, aerie_error *error)
{
    const ae_gguf_options how = {.index_only = true};
    char name[160];
    ae_rewrite_key key = {name, 0};
    growth g = {.path = in, .n_copies = o->n_copies};
    ae_gguf *gguf = NULL;
    ae_rewrite *rewrite = NULL;
    AE_TRY(ae_gguf_open(&gguf, in, &how, error));
    aerie_status status = find_length(gguf, name, &key.value, error);
    if (status == AERIE_OK) status = plan(&rewrite, gguf, &g, o, &key, error);
    if (status == AERIE_OK) status = ae_rewrite_begin(rewrite, out, error);
    if (status == AERIE_OK) status = ae_rewrite_run(rewrite, o->n_threads, NULL, NULL, error);
    if (status == AERIE_OK && n_params) {
        *n_params = 0;
        for (size_t i = 0; i < ae_rewrite_n_tensors(rewrite); i++) {
            const int64_t *ne = ae_rewrite_tensor_at(rewrite, i)->ne;
            *n_params += (uint64_t)(ne[0] * ne[1] * ne[2] * ne[3]);
        }
    }
    ae_rewrite_free(rewrite);
    ae_gguf_close(gguf);
    return status;
}
