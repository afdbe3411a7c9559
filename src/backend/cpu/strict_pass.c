/* strict_pass.c - remembers the passes between pass_begin and pass_end, so that "cpu-strict" finds what would go wrong when
 * another device replays a recorded pass (backend.h).
 *
 * Owns: for each of the newest keys of a stream, the operations of its first pass: their names, and a hash of their arguments.
 * The hash covers what a recording keeps: numbers, addresses, and the contents of (host) arrays. It does not cover what lies
 * on the device. A later pass of the same key with another operation, other arguments, or more or fewer operations notes a
 * fault, and so does an operation that passes data between host and device. A pass in which something failed is forgotten. */
#include "backend/cpu/strict.h"

#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/hash.h"

#define MAX_PASSES 256 /* keys that are remembered */

typedef struct operation {
    const char *name; /* static storage */
    uint64_t hash;
} operation;

typedef struct pass {
    uint64_t key;
    operation *operations; /* [n] */
    size_t n, capacity;
    bool is_known; /* it has ended once */
} pass;

struct ae_cpu_passes {
    pass passes[MAX_PASSES];
    uint32_t n_used;   /* passes begun for the first time; the newest MAX_PASSES of them are remembered */
    pass *now;         /* the current pass; NULL: none */
    size_t n_seen;     /* its operations so far */
    bool failed;       /* an operation failed, so the pass is not compared with others */
};

void ae_cpu_passes_free(ae_cpu_passes *passes)
{
    for (uint32_t i = 0; passes && i < MAX_PASSES; i++) ae_free(passes->passes[i].operations);
    ae_free(passes);
}

static pass *pass_of(ae_cpu_passes *p, uint64_t key)
{
    const uint32_t n = p->n_used < MAX_PASSES ? p->n_used : MAX_PASSES;
    for (uint32_t i = 0; i < n; i++)
        if (p->passes[i].key == key) return &p->passes[i];
    pass *oldest = &p->passes[p->n_used++ % MAX_PASSES];
    *oldest = (pass){.key = key, .operations = oldest->operations, .capacity = oldest->capacity};
    return oldest;
}

void ae_cpu_pass_check_begin(ae_stream *stream, uint64_t key)
{
    if (!stream->passes && !(stream->passes = ae_alloc(1, sizeof *stream->passes))) {
        ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "not enough memory to remember passes");
        return;
    }
    ae_cpu_passes *p = stream->passes;
    if (p->now) ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "a pass begins inside another one; please report");
    p->now = pass_of(p, key);
    if (!p->now->is_known) p->now->n = 0;
    p->n_seen = 0;
    p->failed = stream->fault.status != AERIE_OK;
}

static void fail_pass(ae_stream *stream)
{
    stream->passes->failed = true;
}

void ae_cpu_pass_check_end(ae_stream *stream)
{
    ae_cpu_passes *p = stream->passes;
    if (!p || !p->now) return;
    pass *now = p->now;
    p->now = NULL;
    if (p->failed || stream->fault.status != AERIE_OK) return;
    if (now->is_known && p->n_seen != now->n)
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "a pass ended after %zu operations; an earlier one with the same "
                        "key had %zu, the next of them %s; please report", p->n_seen, now->n, now->operations[p->n_seen].name);
    now->is_known = true;
}

bool ae_cpu_pass_is_checked(const ae_stream *stream)
{
    return stream->passes && stream->passes->now;
}

void ae_cpu_pass_check_host(ae_stream *stream, const char *name)
{
    if (!ae_cpu_pass_is_checked(stream)) return;
    ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "%s inside a pass, which a device that replays passes would leave "
                    "out; please report", name);
    fail_pass(stream);
}

void ae_cpu_pass_check(ae_stream *stream, const char *name, uint64_t hash)
{
    ae_cpu_passes *p = stream->passes;
    const size_t i = p->n_seen++;
    pass *now = p->now;
    if (p->failed || stream->fault.status != AERIE_OK) {
        p->failed = true;
    } else if (!now->is_known) {
        operation *list = ae_grow(now->operations, i, &now->capacity, sizeof *list);
        if (!list) {
            ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "not enough memory to remember a pass of %zu operations",
                            i);
            return;
        }
        now->operations = list;
        now->operations[now->n++] = (operation){name, hash};
    } else if (i >= now->n) {
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "operation %zu of a pass is %s; an earlier pass with the same "
                        "key had %zu operations; please report", i, name, now->n);
    } else if (strcmp(now->operations[i].name, name)) {
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "operation %zu of a pass is %s; in an earlier pass with the "
                        "same key it was %s; please report", i, name, now->operations[i].name);
    } else if (now->operations[i].hash != hash) {
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "operation %zu of a pass, %s, has other arguments than in an "
                        "earlier pass with the same key; please report", i, name);
    }
}

/* ---- Hashes of arguments ---------------------------------------------------------------------------------- */

/* Fields one by one: the bytes between them have no defined value. */
#define HASH_OF(field) h = ae_hash64(h, &a->field, sizeof a->field)
#define HASH_2(x, y) HASH_OF(x), HASH_OF(y)
#define HASH_3(x, y, z) HASH_2(x, y), HASH_OF(z)
#define HASH_4(w, x, y, z) HASH_2(w, x), HASH_2(y, z)
#define HASH_5(v, w, x, y, z) HASH_2(v, w), HASH_3(x, y, z)
#define HASH_6(u, v, w, x, y, z) HASH_3(u, v, w), HASH_3(x, y, z)

uint64_t ae_cpu_hash_matmul(const ae_matmul *a)
{
    uint64_t h = 0;
    HASH_6(n_rows, input, x, x2, x_stride, norm);
    HASH_6(norm_bias, norm_eps, glu, glu_limit, up_limit, n_weights);
    for (uint32_t i = 0; i < a->n_weights; i++)
        HASH_5(out[i].weight, out[i].bias, out[i].y, out[i].y_stride, out[i].add);
    return h;
}

static uint64_t hash_list(uint64_t h, ae_weight *const *weights, uint32_t n)
{
    return weights ? ae_hash64(h, weights, n * sizeof *weights) : ae_hash64(h, &weights, sizeof weights);
}

uint64_t ae_cpu_hash_head_matmul(const ae_head_matmul *a)
{
    uint64_t h = 0;
    HASH_5(n_rows, n_heads, x, x_stride, x_step);
    HASH_3(y, y_stride, y_step);
    return hash_list(h, a->weights, a->n_heads);
}

uint64_t ae_cpu_hash_norm(const ae_norm *a)
{
    uint64_t h = 0;
    HASH_5(n_rows, n_groups, dim, x, x_stride);
    HASH_5(weight, eps, each_group, layer, bias);
    return h;
}

uint64_t ae_cpu_hash_axpy(const ae_axpy *a)
{
    uint64_t h = 0;
    HASH_3(n, dim, a);
    HASH_4(x, x_stride, y, y_stride);
    return h;
}

uint64_t ae_cpu_hash_map(const ae_map *a)
{
    uint64_t h = 0;
    HASH_6(kind, n_rows, dim, x, x_stride, a);
    HASH_6(x2, x2_stride, n_groups, glu, glu_limit, up_limit);
    HASH_5(b, c, d, x3, weight);
    return h;
}

uint64_t ae_cpu_hash_mix(const ae_row_mix *a)
{
    uint64_t h = 0;
    HASH_6(n_rows, dim, n_in, n_out, x, start);
    HASH_6(x_stride, x_step, start_stride, start_step, coef, coef_stride);
    HASH_5(out_step, in_step, y, y_stride, y_step);
    return h;
}

uint64_t ae_cpu_hash_hyper(const ae_hyper *a)
{
    uint64_t h = 0;
    HASH_4(n_rows, n, x, x_stride);
    HASH_5(scale, base, eps, n_iterations, magnitude);
    return h;
}

uint64_t ae_cpu_hash_rotate(const ae_rotate *a)
{
    uint64_t h = 0;
    HASH_5(n_rows, n_heads, head_dim, first, n_rot);
    HASH_5(kind, back, cos, sin, x);
    return h;
}

uint64_t ae_cpu_hash_moe(const ae_moe *a)
{
    uint64_t h = 0;
    HASH_5(routing.n_experts, routing.n_used, routing.gate, routing.renorm, routing.scale);
    HASH_4(routing.n_groups, routing.n_groups_used, routing.n_full, n_each);
    HASH_6(n_rows, x, norm, norm_eps, glu, shared_glu);
    h = ae_hash64(h, &a->up_limit, sizeof a->up_limit);
    HASH_6(glu_limit, shared_limit, router, router_norm, router_scale, latent);
    HASH_6(router_bias, bias, weigh_input, gate_bias, up_bias, down_bias);
    HASH_6(out_scale, shared_gate, shared_up, shared_down, shared_router, y);
    HASH_5(part, hidden, shared_hidden, hidden_stride, shared_stride);
    HASH_2(table, tokens);
    HASH_2(given, given_stride);
    const uint32_t n = a->n_each > 1 ? a->routing.n_experts / a->n_each : a->routing.n_experts;
    h = hash_list(h, a->gate, n);
    h = hash_list(h, a->up, n);
    return hash_list(h, a->down, n);
}

uint64_t ae_cpu_hash_rope_table(const ae_rope_table *a)
{
    uint64_t h = 0;
    HASH_5(n_rows, n_rot, pos, freq, magnitude);
    HASH_3(cos, sin, every);
    return h;
}

static uint64_t hash_places(uint64_t h, const ae_places *a)
{
    HASH_6(n_rows, seq, pos, slot, n_inplace, path);
    HASH_6(path_stride, tables, table_stride, n_actual, head_rows, first);
    return h;
}

uint64_t ae_cpu_hash_rope_kv(const ae_rope_kv *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_6(kv, layer, n_heads, n_kv_heads, head_dim, n_rot);
    HASH_6(kind, cos, sin, q, k, v);
    HASH_5(q_norm, k_norm, norm_row, norm_layer, norm_last);
    HASH_3(v_norm, norm_eps, q_scale);
    return h;
}

uint64_t ae_cpu_hash_attention(const ae_attention *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_6(kv, layer, n_heads, n_kv_heads, head_dim, n_rope);
    HASH_4(scale, softcap, window, chunked);
    HASH_5(sinks, slopes, bias, q, y);
    if (a->more) {
        HASH_5(more->pos, more->path, more->path_stride, more->tables, more->kv);
        HASH_OF(more->layer);
    }
    return h;
}

uint64_t ae_cpu_hash_compress(const ae_compress *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_5(kv, layer, dim, n_parts, every);
    HASH_3(x, ape, y);
    return h;
}

uint64_t ae_cpu_hash_ngrams(const ae_ngrams *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_6(kv, layer, tokens, end, n_tokens, n_each);
    h = ae_hash64(h, a->factors, sizeof a->factors);
    h = ae_hash64(h, a->sizes, sizeof a->sizes);
    h = ae_hash64(h, a->offsets, sizeof a->offsets);
    HASH_OF(y);
    return h;
}

uint64_t ae_cpu_hash_trail(const ae_trail *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_6(kv, layer, n_heads, dim, n_taps, step);
    HASH_3(x, weight, y);
    return h;
}

uint64_t ae_cpu_hash_accord(const ae_accord *a)
{
    uint64_t h = 0;
    HASH_6(n_rows, n_parts, dim, x, x2, scale);
    HASH_2(y, y_stride);
    return h;
}

uint64_t ae_cpu_hash_select(const ae_select *a)
{
    uint64_t h = hash_places(0, a->places);
    HASH_5(kv, layer, n_heads, n_most, every);
    HASH_4(n_groups, block, n_local, pooled);
    HASH_5(q, weight, pos, n_inplace, path);
    return h;
}

uint64_t ae_cpu_hash_copy(const ae_copy *a)
{
    uint64_t h = 0;
    HASH_6(n, dim, x, x_stride, rows, y);
    HASH_2(y_stride, to);
    if (a->host_rows && !a->rows) h = ae_hash64(h, a->host_rows, a->n * sizeof *a->host_rows);
    return h;
}

uint64_t ae_cpu_hash_state_absorb(const ae_state_pass *a)
{
    uint64_t h = 0;
    HASH_4(store, n_rows, parent, n_runs);
    HASH_4(runs, visits, accepted, stride);
    return h;
}

uint64_t ae_cpu_hash_conv(const ae_conv *a)
{
    uint64_t h = ae_cpu_hash_state_absorb(a->pass);
    HASH_6(layer, x, x2, x_stride, weight, bias);
    HASH_6(silu, gate, y, y_stride, weight_2, weight_3);
    HASH_2(first, n);
    return h;
}

uint64_t ae_cpu_hash_recur(const ae_recur *a)
{
    uint64_t h = ae_cpu_hash_state_absorb(a->pass);
    HASH_6(layer, c, c_stride, a, b, ab_stride);
    HASH_6(ab_group, decay, dt_bias, skip, y, y_stride);
    HASH_3(keys, keys_stride, bound);
    HASH_6(k, v, first, k_k, k_a, bonus);
    return h;
}

uint64_t ae_cpu_hash_gated_norm(const ae_gated_norm *a)
{
    uint64_t h = 0;
    HASH_5(n_rows, n_groups, dim, x, x_stride);
    HASH_6(z, z_stride, weight, by_group, gate_first, eps);
    HASH_6(sigmoid, layer, times, bias, bonus, v);
    return h;
}

uint64_t ae_cpu_hash_kv_commit(const ae_kv_commit_args *a)
{
    uint64_t h = 0;
    HASH_4(kv, n_runs, begin, move);
    return h;
}

uint64_t ae_cpu_hash_numbers(const uint64_t *numbers, size_t n)
{
    return ae_hash64(0, numbers, n * sizeof *numbers);
}
