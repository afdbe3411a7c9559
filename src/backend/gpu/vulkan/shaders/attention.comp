#version 460
/* attention.comp - attention over all kinds of caches. KIND: 0 f16 and f32, 1 codes (q4_0, q8_0, i16, latent rows of 8 and 15
 * bits), 2 merges the parts of queries whose chunks were distributed (attention_merge).
 *
 * A work-group has one query (a tile of one, kernels/args_attention.h); thread j has position j of a chunk for the scores, and
 * elements j, j + 64 .. of the values. The arithmetic is that of cpu/ref/attention.c. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_form.glsl"
#include "attention_query.glsl"

layout(local_size_x = 64) in;

#define FEW_CHUNKS 2 /* up to this many chunks are walked by one work-group */
#define EACH 8u      /* elements of a thread: 512 of a head */
#define KV_WEIGHT 16383.0
#define BIAS_REACH 128 /* AE_BIAS_REACH, AE_BIAS_PAD, AE_BIAS_ROW */
#define BIAS_PAD 16
#define BIAS_ROW 288

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_attention_args */
    KvView kv;
    uint64_t seq, pos, last, n_inplace, path, tables, n_actual, sinks, slopes, bias, first, q, y, parts;
    uint64_t more_pos, more_path, more_tables, more_base, more_page_bytes, arrivals;
    uint path_stride, table_stride, more_stride, head_rows, n_rows, n_heads, n_kv_heads, window, chunked;
    float scale, softcap;
    uint n_tiles, n_splits, merge_apart, max_parts, n_warps;
};

Args a;
uint kv_head, i_query, row;      /* i_query: row * n_heads + head */
uint seen_at;                    /* the row's entry of pos, n_inplace and path */
int own_first, n_own;            /* of a row with further rows: its list begins with these positions */
int first_seen, own_pos, in_place, sequence; /* own_pos: the last position that it sees */
int at_pos;                      /* its own position */

shared float weight[64];
shared int weight_code[64];
shared uint64_t value_at[64];    /* the address of each position's value */

/* Returns the sum of the weights over position % 16, then ae_sum16. */
float sum_weights()
{
    const uint t = THREAD;
    barrier();
    if (t < 16) {
        float sum = 0.0;
        for (uint j = t; j < 64; j += 16) sum = sum + weight[j];
        parts[t] = sum;
    }
    for (uint h = 8; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = parts[t] + parts[t + h];
    }
    barrier();
    return parts[0];
}

/* ---- Values ----------------------------------------------------------------------------------------- */

/* Bytes from a position's value to its element e, in a plane; with codes of 4 bits e counts bytes. Without value_planes, values
 * are read from the keys. */
uint element_at(uint plane, uint e)
{
    const uint each = KV_GROUP / f.width;
    if (f.value_planes != 0) return plane * f.value_bytes + e * f.width;
    return ((plane * f.groups + e / each) * KV_PAGE) * KV_GROUP + e % each * f.width;
}

float value_float(uint j, uint at)
{
    return f.width == 4 ? F32(value_at[j] + at).v[0] : ae_half(uint(U16(value_at[j] + at).v[0]));
}

float weighted_floats(uint e, uint begin, uint end)
{
    const uint at = element_at(0, e);
    float o = 0.0;
    for (uint j = begin; j < end; j++) o = ae_fma(weight[j], value_float(j, at), o);
    return o;
}

int weighted_codes(uint plane, uint e, uint begin, uint end)
{
    const uint at = element_at(plane, f.value_half != 0 ? e / 2 : e);
    int sum = 0;
    if (f.value_half != 0) {
        for (uint j = begin; j < end; j++)
            sum += weight_code[j] * level_of(uint(U8(value_at[j] + at).v[0]) >> e % 2 * 4 & 15u);
        return sum;
    }
    for (uint j = begin; j < end; j++) sum += weight_code[j] * int(I8(value_at[j] + at).v[0]);
    return sum;
}

/* Codes of the weights times the values' scales; returns their scale. */
float quantize_weights(bool sees)
{
    const float x = sees ? weight[THREAD] * scale_at(f.value_planes != 0 ? 1 : 0) : 0.0;
    const float top = largest(x, 0.0);
    const bool some = top > 1e-30;
    weight_code[THREAD] = ae_round_magic(x, some ? ae_div(KV_WEIGHT, top) : 0.0);
    barrier();
    return some ? top * ae_div(1.0, KV_WEIGHT) : 0.0;
}

/* ---- Chunks ----------------------------------------------------------------------------------------- */

/* Returns the slot of position p. */
int slot_of(int p)
{
    return p < in_place ? p : I32(a.path + uint64_t(seen_at) * a.path_stride * 4ul).v[uint(p - in_place)];
}

/* Entry i of the list of a row with further rows, which begins with the n_own positions from own_first on. */
void find_listed(int i)
{
    const bool own = i < n_own;
    const int slot = own ? slot_of(own_first + i) : I32(a.more_path + uint64_t(row) * a.more_stride * 4ul).v[uint(i - n_own)];
    const int page = I32(own ? a.tables : a.more_tables).v[uint(sequence) * a.table_stride + uint(slot) / KV_PAGE];
    my_place = uint(slot) % KV_PAGE;
    my_block = own ? a.kv.base + uint64_t(uint(page)) * a.kv.page_bytes
                   : a.more_base + uint64_t(uint(page)) * a.more_page_bytes;
}

/* Finds the place of position p of the query's sequence. */
void find_place(int p)
{
    if (a.more_pos != 0ul) {
        find_listed(p);
        return;
    }
    const int slot = slot_of(p);
    const int page = I32(a.tables).v[uint(sequence) * a.table_stride + uint(slot) / KV_PAGE];
    my_place = uint(slot) % KV_PAGE;
    my_block = kv_block(a.kv, uint(page), kv_head);
}

/* One chunk: its maximum, sum and o. */
void attend(int chunk, vec2 factors, out float m, out float l, out float o[EACH])
{
    const int begin = max(chunk * int(KV_PAGE), first_seen), end = min(chunk * int(KV_PAGE) + 63, own_pos);
    const uint t = THREAD, b = uint(begin) % KV_PAGE, e = uint(end) % KV_PAGE + 1;
    const bool sees = t >= b && t < e;
    float s = 0.0;
    if (sees) {
        find_place(chunk * int(KV_PAGE) + int(t));
        s = score(factors);
        if (a.softcap != 0.0) s = ae_softcapf(s, a.softcap);
        if (a.slopes != 0ul) {
            const float slope = F32(a.slopes).v[i_query % a.n_heads];
            if (slope != 0.0) s = ae_fma(-slope, float(abs(at_pos - (chunk * int(KV_PAGE) + int(t)))), s);
        }
        if (a.bias != 0ul) {
            const int at = clamp(chunk * int(KV_PAGE) + int(t) - at_pos + BIAS_REACH + BIAS_PAD, 0, BIAS_ROW - 16);
            s = s + F32(a.bias + uint64_t(i_query % a.n_heads) * BIAS_ROW * 4ul).v[uint(at)];
        }
    }
    m = largest(sees ? s : -AE_INFINITY, -AE_INFINITY);
    weight[t] = sees ? ae_attn_exp(s - m) : 0.0;
    const bool apart = f.value_planes != 0;
    if (sees) value_at[t] = my_block + (apart ? kv_value_at(f, 0, my_place) : kv_key_at(f, 0, f.rope_groups, my_place));
    l = sum_weights();
    const uint value_planes = apart ? f.value_planes : f.n_planes;
    float d = 0.0;
    if (KIND == 1) d = quantize_weights(sees);
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint k = t + 64 * i;
        o[i] = 0.0;
        if (k >= f.head_dim) continue;
        if (KIND == 0) o[i] = weighted_floats(k, b, e);
        else {
            const float high = float(weighted_codes(0, k, b, e));
            o[i] = (value_planes == 1 ? high : ae_fma(high, 128.0, float(weighted_codes(1, k, b, e)))) * d;
        }
    }
    barrier(); /* weights and addresses have been read */
}

/* The part of the query that is merged so far. */
float big_m, big_l, big_o[EACH];

void join(bool is_first, float m, float l, float o[EACH])
{
    if (is_first) {
        big_m = m;
        big_l = l;
        big_o = o;
        return;
    }
    const float top = larger(big_m, m), x = ae_attn_exp(big_m - top), y = ae_attn_exp(m - top);
    big_m = top;
    big_l = ae_fma(big_l, x, l * y);
    [[unroll]] for (uint i = 0; i < EACH; i++)
        if (THREAD + 64 * i < f.head_dim) big_o[i] = ae_fma(big_o[i], x, o[i] * y);
}

/* Writes the result, which may have to be turned back. */
void finish()
{
    float factor;
    if (a.sinks == 0ul) factor = ae_div(1.0, big_l);
    else {
        const float sink = F32(a.sinks).v[i_query % a.n_heads], top = larger(big_m, sink), x = ae_attn_exp(big_m - top);
        factor = ae_div(x, ae_fma(big_l, x, ae_attn_exp(sink - top)));
    }
    F32 y = F32(a.y + uint64_t(i_query) * f.head_dim * 4ul);
    const bool turned = f.value_half != 0 || (f.value_planes == 0 && f.n_scales != 0);
    barrier();
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint k = THREAD + 64 * i;
        if (k >= f.head_dim) continue;
        if (turned) query[k] = big_o[i] * factor;
        else y.v[k] = big_o[i] * factor;
    }
    if (!turned) return;
    turn(0, f.head_dim);
    const float back = ae_div(1.0, block_of(f.head_dim));
    for (uint k = THREAD; k < f.head_dim; k += 64) y.v[k] = query[k] * back;
}

uint64_t part_of(uint chunk)
{
    const uint part = 4 + (f.head_dim + 3) / 4 * 4;
    return a.parts + (uint64_t(i_query) * a.max_parts + chunk) * part * 4ul;
}

void put_part(uint chunk, float m, float l, float o[EACH])
{
    F32 part = F32(part_of(chunk));
    if (THREAD == 0) {
        part.v[0] = m;
        part.v[1] = l;
    }
    [[unroll]] for (uint i = 0; i < EACH; i++)
        if (THREAD + 64 * i < f.head_dim) part.v[4 + THREAD + 64 * i] = o[i];
}

void merge(uint n_chunks)
{
    for (uint c = 0; c < n_chunks; c++) {
        F32 part = F32(part_of(c));
        float o[EACH];
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            const uint k = THREAD + 64 * i;
            o[i] = k < f.head_dim ? part.v[4 + k] : 0.0;
        }
        join(c == 0, part.v[0], part.v[1], o);
    }
    finish();
}

/* ---- A query ---------------------------------------------------------------------------------------- */

/* Returns false if the work-group has nothing to do */
bool begin()
{
    const uint group = a.n_heads / a.n_kv_heads, i = BLOCK_X % a.n_tiles;
    row = i / group;
    kv_head = BLOCK_X / a.n_tiles % a.n_kv_heads;
    i_query = row * a.n_heads + kv_head * group + i % group;
    if (a.n_actual != 0ul && row >= U32(a.n_actual).v[0]) return false;
    seen_at = kv_head * a.head_rows + row;
    const int at = I32(a.pos).v[seen_at];
    at_pos = at;
    own_pos = a.last != 0ul ? I32(a.last).v[row] : at;
    in_place = I32(a.n_inplace).v[seen_at];
    sequence = I32(a.seq).v[row];
    const int window = int(a.window);
    first_seen = window == 0 || at < window ? 0 : a.chunked != 0 ? at / window * window : at - window + 1;
    if (a.first != 0ul) first_seen = max(first_seen, I32(a.first).v[row]);
    if (a.more_pos != 0ul) {
        own_first = first_seen;
        n_own = own_pos - first_seen + 1;
        first_seen = 0;
        own_pos = n_own + I32(a.more_pos).v[row];
    }
    return true;
}

/* Loads the query; returns the factors of its codes. */
vec2 load_query()
{
    const uint n = f.n_rope + f.head_dim;
    F32 q = F32(a.q + uint64_t(i_query) * n * 4ul);
    for (uint i = THREAD; i < n; i += 64) query[i] = KIND == 0 ? q.v[i] * a.scale : q.v[i];
    barrier();
    if (KIND == 0) return vec2(0.0);
    vec2 factors = vec2(0.0);
    factors.x = quantize_query(f.n_rope, f.head_dim) * ae_div(a.scale, block_of(f.head_dim));
    if (f.n_rope != 0) factors.y = quantize_query(0, f.n_rope) * ae_div(a.scale, block_of(f.n_rope));
    return factors;
}

void main()
{
    a = Args(push.args);
    f = a.kv.form;
    if (!begin()) return;
    const int first = first_seen / int(KV_PAGE), last = own_pos / int(KV_PAGE), n_chunks = last - first + 1;
    const uint split = BLOCK_X / (a.n_tiles * a.n_kv_heads);
    const bool to_parts = n_chunks > FEW_CHUNKS && n_chunks <= int(a.max_parts) && a.n_splits > 1;
    if (KIND == 2) {
        if (to_parts) merge(uint(n_chunks));
        return;
    }
    const int n_active = to_parts ? min(n_chunks, int(a.n_splits)) : 1;
    if (int(split) >= n_active) return;
    const vec2 factors = load_query();
    for (int c = first + int(split); c <= last; c += n_active) {
        float m, l, o[EACH];
        attend(c, factors, m, l, o);
        if (to_parts) put_part(uint(c - first), m, l, o);
        else join(c == first, m, l, o);
    }
    if (!to_parts) finish();
}
