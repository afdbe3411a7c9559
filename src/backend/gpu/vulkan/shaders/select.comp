#version 460
/* select.comp - which positions a row attends to, where a layer chooses them by index keys. KIND: 0 scores over f32, 1 scores
 * over codes, 2 the choice, 3 scores of blocks. The arithmetic is that of cpu/ref/attention.c and choose.c.
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
    uint64_t seq, pos, last, n_inplace, path, tables, n_actual, sinks, slopes, bias, first, q, y, parts;
    uint64_t more_pos, more_path, more_tables, more_base, more_page_bytes, arrivals;
    uint path_stride, table_stride, more_stride, head_rows, n_rows, n_heads, n_kv_heads, window, chunked;
    float scale, softcap;
    uint n_tiles, n_splits, merge_apart, max_parts, n_warps;
    uint64_t weight, scores, to_pos, to_inplace, to_path;
    uint first_choice, n_most, n_seen, score_stride, n_groups, block, n_local, pooled, every, listed;
};

Args a;
uint choice, row, n; /* n: positions that the row sees */
uint first_head, end_head;
bool all;          /* it sees no more than it may choose */
int in_place, sequence;
uint64_t score_at; /* of the row's scores */

shared uint counts[DIGITS * 64];
shared uint totals[DIGITS];
shared uint numbers[64];

/* Returns false if there is no such row. */
bool begin()
{
    const uint each = a.n_heads / a.n_groups;
    choice = a.first_choice + BLOCK_X;
    row = choice % a.n_rows;
    first_head = choice / a.n_rows * each;
    end_head = first_head + each;
    if (end_head > a.n_heads || (a.n_actual != 0ul && row >= U32(a.n_actual).v[0])) return false;
    n = min(uint(I32(a.pos).v[row]) + 1, a.n_seen);
    in_place = I32(a.n_inplace).v[row];
    sequence = I32(a.seq).v[row];
    all = a.n_heads == 0 || n / a.every <= a.n_most;
    score_at = a.scores + uint64_t(BLOCK_X) * a.score_stride * 4ul;
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
    for (uint head = first_head; head < end_head; head++) {
        const vec2 factors = load_query(head);
        const bool plain = a.weight == 0ul;
        const float weight = plain ? 1.0 : F32(a.weight + uint64_t(row) * a.n_heads * 4ul).v[head];
        const float least = plain ? -AE_INFINITY : 0.0;
        for (uint p = BLOCK_Y * KV_PAGE + THREAD; p < n; p += gl_NumWorkGroups.y * KV_PAGE) {
            find_place(p);
            const float dot = score(factors), sum = head == first_head ? 0.0 : to.v[p];
            to.v[p] = ae_fma(weight, dot > least ? dot : least, sum);
        }
    }
}

/* ---- The choice ------------------------------------------------------------------------------------- */

/* The items to choose among: items, blocks or positions of which all or every so-manyth count. */
uint n_items, n_chosen;

/* Numbers in the order of the scores; a NaN is the lowest, and the zeros are equal. */
uint key_at(uint i)
{
    const uint bits = floatBitsToUint(F32(score_at).v[a.pooled != 0 ? (i + 1) * a.block - 1 : a.block != 0 ? a.n_seen + i
                                       : (i + 1) * a.every - 1]);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0u;
    if ((bits & 0x7fffffffu) == 0u) return 0x80000000u;
    return bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
}

/* Counts the digits at `shift` of the keys whose known bits are those of prefix. */
void count_digits(uint known, uint prefix, uint shift)
{
    const uint t = THREAD;
    for (uint d = 0; d < DIGITS; d++) counts[d * 64 + t] = 0u;
    for (uint i = t; i < n_items; i += 64) {
        const uint key = key_at(i);
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

/* Returns the k-th highest key (k from 1), and how many that are equal to it are among the k highest. */
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

/* Returns the sum of v over the threads before this one. */
uint sum_before(uint v)
{
    uint sum = 0u;
    barrier();
    numbers[THREAD] = v;
    barrier();
    for (uint i = 0; i < THREAD; i++) sum += numbers[i];
    return sum;
}

/* Writes the slots of chosen item number `at`, and after the last one how many positions there are. */
void write_item(uint item, uint at, I32 path)
{
    const uint size = a.block != 0 ? a.block : 1u, first = a.block != 0 ? item * size : (item + 1) * a.every - 1;
    const uint most = min(size, n - first);
    for (uint i = 0; i < most; i++) path.v[at * size + i] = slot_of(first + i);
    if (at + 1 == n_chosen && a.pooled == 0) I32(a.to_pos).v[choice] = int(at * size + most) - 1;
}

/* In ascending order; a thread has a range of items. */
void write_chosen(I32 path)
{
    n_items = a.pooled != 0 ? n / a.block : a.block != 0 ? (n + a.block - 1) / a.block : n / a.every;
    n_chosen = a.block != 0 ? a.n_most / a.block : a.n_most;
    uint n_equal, n_above = 0u, n_same = 0u;
    const uint least = find_least(n_chosen, n_equal), each = (n_items + 63) / 64;
    const uint first = min(THREAD * each, n_items), end = min(first + each, n_items);
    for (uint i = first; i < end; i++) {
        const uint key = key_at(i);
        if (key > least) n_above++;
        if (key == least) n_same++;
    }
    uint same = sum_before(n_same);
    uint at = sum_before(n_above) + min(same, n_equal);
    for (uint i = first; i < end; i++) {
        const uint key = key_at(i);
        const bool is_chosen = key > least || (key == least && same < n_equal);
        if (key == least) same++;
        if (is_chosen) write_item(i, at++, path);
    }
    if (a.pooled != 0) { /* the positions after the last pool */
        const uint begin = n_items * a.block, to = n_chosen * a.block;
        for (uint i = THREAD; i < n - begin; i += 64) path.v[to + i] = slot_of(begin + i);
        if (THREAD == 0) I32(a.to_pos).v[choice] = int(to + n - begin) - 1;
    }
}

void choose()
{
    I32 path = I32(a.to_path + uint64_t(choice) * a.n_most * 4ul);
    const int most = int(min(n / a.every, a.n_most)), skipped = a.listed != 0 ? 0 : in_place;
    if (THREAD == 0) I32(a.to_inplace).v[choice] = all && a.listed == 0 ? in_place : 0;
    if (!all) {
        write_chosen(path);
        return;
    }
    if (THREAD == 0) I32(a.to_pos).v[choice] = most - 1; /* it keeps its places, or lists them */
    for (int i = int(THREAD); i < most - skipped; i += 64) path.v[i] = slot_of(uint(skipped + i + 1) * a.every - 1);
}

/* A thread has a block of positions. The newest n_local ones come before all others. */
void score_blocks()
{
    F32 of = F32(score_at);
    const uint n_blocks = (n + a.block - 1) / a.block;
    for (uint b = BLOCK_Y * 64 + THREAD; b < n_blocks; b += gl_NumWorkGroups.y * 64) {
        float best = b + a.n_local >= n_blocks ? AE_INFINITY : -AE_INFINITY;
        for (uint p = b * a.block; p < min((b + 1) * a.block, n); p++) best = of.v[p] > best ? of.v[p] : best;
        of.v[a.n_seen + b] = best;
    }
}

void main()
{
    a = Args(push.args);
    f = a.kv.form;
    if (!begin()) return;
    if (KIND == 2) choose();
    else if (KIND == 3) {
        if (!all) score_blocks();
    } else if (!all) score_row();
}
