#version 460
/* select.comp - which positions a row attends to, where a layer chooses them by index keys. KIND: 0 scores over f32, 1 scores
 * over codes, 2 the choice. The arithmetic is that of cpu/ref/attention.c and choose.c.
 *
 * A work-group has one row: for scores every n_splits-th chunk of its positions, one head after the other; the sums so far are
 * in the row's scores. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_form.glsl"
#include "attention_query.glsl"

layout(local_size_x = 64) in;

#define DIGITS 16u /* of 4 bits, from the highest on */

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_select_args */
    KvView kv;
    uint64_t seq, pos, last, n_inplace, path, tables, n_actual, sinks, slopes, q, y, parts, arrivals;
    uint path_stride, table_stride, n_rows, n_heads, n_kv_heads, window, chunked;
    float scale, softcap;
    uint n_tiles, n_splits, merge_apart, max_parts, n_warps;
    uint64_t weight, scores, to_pos, to_inplace, to_path;
    uint first_row, n_most, n_seen;
};

Args a;
uint row, n;       /* n: positions that the row sees */
int in_place, sequence;
uint64_t score_at; /* of the row's scores */

shared uint counts[DIGITS * 64];
shared uint totals[DIGITS];
shared uint numbers[64];

/* False: there is no such row. */
bool begin()
{
    row = a.first_row + BLOCK_X;
    if (row >= a.n_rows || (a.n_actual != 0ul && row >= U32(a.n_actual).v[0])) return false;
    n = min(uint(I32(a.pos).v[row]) + 1, a.n_seen);
    in_place = I32(a.n_inplace).v[row];
    sequence = I32(a.seq).v[row];
    score_at = a.scores + uint64_t(BLOCK_X) * a.n_seen * 4ul;
    return true;
}

int slot_of(uint p)
{
    if (int(p) < in_place) return int(p);
    return I32(a.path + uint64_t(row) * a.path_stride * 4ul).v[p - uint(in_place)];
}

/* ---- Scores ----------------------------------------------------------------------------------------- */

void find_place(uint p)
{
    const uint slot = uint(slot_of(p));
    const int page = I32(a.tables + uint64_t(sequence) * a.table_stride * 4ul).v[slot / KV_PAGE];
    my_place = slot % KV_PAGE;
    my_block = kv_block(a.kv, uint(page), 0);
}

/* Loads the query of a head; returns the factors of its codes. */
vec2 load_query(uint head)
{
    const uint dim = f.n_rope + f.head_dim;
    F32 q = F32(a.q + (uint64_t(row) * a.n_heads + head) * dim * 4ul);
    barrier();
    for (uint i = THREAD; i < dim; i += 64) query[i] = q.v[i];
    barrier();
    if (KIND == 0) return vec2(0.0);
    vec2 factors;
    factors.x = quantize_query(f.n_rope, f.head_dim) * ae_div(1.0, block_of(f.head_dim));
    factors.y = quantize_query(0, f.n_rope) * ae_div(1.0, block_of(f.n_rope));
    return factors;
}

void score_row()
{
    F32 to = F32(score_at);
    for (uint head = 0; head < a.n_heads; head++) {
        const vec2 factors = load_query(head);
        const float weight = F32(a.weight + uint64_t(row) * a.n_heads * 4ul).v[head];
        for (uint p = BLOCK_Y * KV_PAGE + THREAD; p < n; p += gl_NumWorkGroups.y * KV_PAGE) {
            find_place(p);
            const float dot = score(factors), sum = head == 0 ? 0.0 : to.v[p];
            to.v[p] = ae_fma(weight, dot > 0.0 ? dot : 0.0, sum);
        }
    }
}

/* ---- The choice ------------------------------------------------------------------------------------- */

/* Numbers in the order of the scores; a NaN is the lowest, and the zeros are equal. */
uint key_at(uint p)
{
    const uint bits = floatBitsToUint(F32(score_at).v[p]);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0u;
    if ((bits & 0x7fffffffu) == 0u) return 0x80000000u;
    return bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
}

/* Counts the digits at `shift` of the keys whose known bits are those of prefix. */
void count_digits(uint known, uint prefix, uint shift)
{
    const uint t = THREAD;
    for (uint d = 0; d < DIGITS; d++) counts[d * 64 + t] = 0u;
    for (uint p = t; p < n; p += 64) {
        const uint key = key_at(p);
        if ((key & known) == prefix) counts[(key >> shift & (DIGITS - 1)) * 64 + t]++;
    }
    barrier();
    if (t < DIGITS) {
        uint sum = 0u;
        for (uint i = 0; i < 64; i++) sum += counts[t * 64 + i];
        totals[t] = sum;
    }
    barrier();
}

/* The k-th highest key (k from 1), and how many that are equal to it are among the k highest. */
uint find_least(uint k, out uint n_equal)
{
    uint prefix = 0u, known = 0u;
    for (uint shift = 32; shift != 0; ) {
        shift -= 4;
        count_digits(known, prefix, shift);
        uint d = DIGITS - 1;
        while (d > 0 && totals[d] < k) {
            k -= totals[d];
            d--;
        }
        prefix |= d << shift;
        known |= (DIGITS - 1) << shift;
        barrier(); /* before the next counts */
    }
    n_equal = k;
    return prefix;
}

/* The sum of v over the threads before this one. */
uint sum_before(uint v)
{
    uint sum = 0u;
    barrier();
    numbers[THREAD] = v;
    barrier();
    for (uint i = 0; i < THREAD; i++) sum += numbers[i];
    return sum;
}

/* Writes the slots of the chosen positions, in ascending order; a thread has a range of positions. */
void write_chosen(I32 path)
{
    uint n_equal, n_above = 0u, n_same = 0u;
    const uint least = find_least(a.n_most, n_equal), each = (n + 63) / 64;
    const uint first = min(THREAD * each, n), end = min(first + each, n);
    for (uint p = first; p < end; p++) {
        const uint key = key_at(p);
        if (key > least) n_above++;
        if (key == least) n_same++;
    }
    uint same = sum_before(n_same);
    uint at = sum_before(n_above) + min(same, n_equal);
    for (uint p = first; p < end; p++) {
        const uint key = key_at(p);
        const bool chosen = key > least || (key == least && same < n_equal);
        if (key == least) same++;
        if (chosen) path.v[at++] = slot_of(p);
    }
}

void choose()
{
    const bool all = n <= a.n_most; /* it keeps all positions then */
    I32 path = I32(a.to_path + uint64_t(row) * a.n_most * 4ul);
    if (THREAD == 0) {
        I32(a.to_pos).v[row] = int((all ? n : a.n_most) - 1);
        I32(a.to_inplace).v[row] = all ? in_place : 0;
    }
    if (!all) {
        write_chosen(path);
        return;
    }
    for (int i = int(THREAD); i < int(n) - in_place; i += 64)
        path.v[i] = I32(a.path + uint64_t(row) * a.path_stride * 4ul).v[i];
}

void main()
{
    a = Args(push.args);
    f = a.kv.form;
    if (!begin()) return;
    if (KIND == 2) choose();
    else if (n > a.n_most) score_row();
}
