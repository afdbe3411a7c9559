/* select.cu - which positions a row attends to, where a layer chooses them by index keys (ae_select in backend/attention.h).
 * Scores are those of cpu/ref/attention.c, the choice is that of cpu/ref/choose.c: both are exact, whatever the order.
 *
 * A choice is that of a row, or of a row's group of heads.
 * Scores: a block has one choice and every n_splits-th chunk of its positions, and goes over the heads in tiles, in ascending
 * order; the sums so far are in the choice's scores. A row that sees no more than it may choose is left alone.
 * Blocks of positions get the highest score of their positions.
 * Choice: a block has one. What is chosen among, blocks or positions of which all or every so-manyth count, are items. */
#include "backend/gpu/kernels/attention/codes.h"

/* Choice i of the launch. */
typedef struct index_row {
    uint32_t choice, row, n; /* n: number of positions that the row sees */
    uint32_t first_head, end_head;
    bool all;                /* the row sees no more positions than it may choose */
    int32_t n_inplace, seq;
} index_row;

/* Returns false if there is no such row, or no such choice. */
AE_DEV bool index_row_of(const ae_gpu_select_args &s, uint32_t i, index_row *r)
{
    const ae_gpu_attention_args &a = s.keys;
    const uint32_t each = a.n_heads / s.n_groups;
    r->choice = s.first + i;
    r->row = r->choice % a.n_rows;
    r->first_head = r->choice / a.n_rows * each;
    r->end_head = r->first_head + each;
    if (r->end_head > a.n_heads || r->row >= (a.n_actual ? ae_min(a.n_rows, *a.n_actual) : a.n_rows)) return false;
    r->n = ae_min(static_cast<uint32_t>(a.pos[r->row]) + 1, s.n_seen);
    r->all = !a.n_heads || r->n / s.every <= s.n_most;
    r->n_inplace = a.n_inplace[r->row];
    r->seq = a.seq[r->row];
    return true;
}

/* Returns the slot of a position. */
AE_DEV int32_t slot_of(const ae_gpu_select_args &s, const index_row *r, int32_t pos)
{
    const int32_t *path = s.keys.path + static_cast<size_t>(r->row) * s.keys.path_stride;
    return pos < r->n_inplace ? pos : path[pos - r->n_inplace];
}

/* weight: the head's weight, or NULL if there are no weights. */
AE_DEV float add_head(float sum, const float *weight, float dot)
{
    const float least = weight ? 0.0f : -INFINITY;
    return ae_fma(weight ? *weight : 1.0f, dot > least ? dot : least, sum);
}

AE_DEV const float *weights_of(const ae_gpu_select_args &s, const index_row *r)
{
    return s.weight ? s.weight + static_cast<size_t>(r->row) * s.keys.n_heads : NULL;
}

/* ---- Scores over codes ---------------------------------------------------------------------------------- */

/* Makes heads from `first` on the queries of the tile. */
AE_DEV void take_heads(const ae_gpu_select_args &s, attn_tile *t, const index_row *r, uint32_t first)
{
    const uint32_t i = ae_thread(), left = r->end_head - first;
    t->n = left < Q ? left : Q; /* the tile before ended with a barrier, and load_queries has one before it reads these */
    if (i < t->n) AE_STORE_SHARED(uint32_t, t->shared + t->room.index + i * 4, r->row * s.keys.n_heads + first + i);
    load_queries(s.keys, t);
    ae_sync();
}

/* Adds a tile's heads to the scores of a chunk. */
AE_DEV void add_tile(const ae_gpu_select_args &s, const attn_tile *t, const index_row *r, uint32_t first, uint32_t chunk,
                     float *score)
{
    const uint32_t pos = chunk * AE_KV_PAGE + ae_thread();
    const float *weight = weights_of(s, r);
    if (ae_thread() >= AE_KV_PAGE || pos >= r->n) return;
    float sum = first > r->first_head ? score[pos] : 0.0f;
    for (uint32_t q = 0; q < t->n; q++) {
        const uint8_t *dot = t->shared + t->room.score + (q * AE_ATTENTION_SCORES + ae_thread()) * 4;
        sum = add_head(sum, weight ? weight + first + q : NULL, AE_LOAD_SHARED(float, dot));
    }
    score[pos] = sum;
}

template <int PLANES> AE_DEV void score_codes(const ae_gpu_select_args &s, uint8_t *shared)
{
    index_row r;
    attn_tile t;
    if (!index_row_of(s, ae_block_x(), &r) || r.all || ae_block_y() * AE_KV_PAGE >= r.n) return;
    float *score = s.scores + static_cast<size_t>(ae_block_x()) * s.score_stride;
    t.room = ae_gpu_attention_room_codes(&s.keys.kv.form);
    t.shared = shared;
    t.head = 0;
    for (uint32_t first = r.first_head; first < r.end_head; first += Q) {
        take_heads(s, &t, &r, first);
        for (uint32_t chunk = ae_block_y(); chunk * AE_KV_PAGE < r.n; chunk += ae_grid_y()) {
            attn_group g;
            g.state = make_int4(0, static_cast<int32_t>(r.n) - 1, r.n_inplace, r.seq);
            g.row = static_cast<int32_t>(r.row);
            g.lo = static_cast<int32_t>(chunk * AE_KV_PAGE);
            g.hi = ae_min(g.state.y, g.lo + AE_KV_PAGE - 1);
            g.in_place = g.hi < r.n_inplace;
            scores<PLANES, true>(s.keys, &t, &g, static_cast<int32_t>(chunk));
            ae_sync();
            add_tile(s, &t, &r, first, chunk, score);
            ae_sync();
        }
    }
}

AE_KERNEL(select_scores_q8, ae_gpu_select_args, ATTN_THREADS(3))
{
    AE_SHARED(shared);
    score_codes<1>(a, shared);
}

AE_KERNEL(select_scores_f16, ae_gpu_select_args, ATTN_THREADS(3))
{
    AE_SHARED(shared);
    score_codes<2>(a, shared);
}

/* ---- Scores over f32 ------------------------------------------------------------------------------------ */

/* Returns the chain over n elements of a key, from its group `first` on. */
AE_DEV float dot_floats(const ae_gpu_kv_form *f, const uint8_t *block, uint32_t place, uint32_t first, const float *q,
                        uint32_t n, float sum)
{
    for (uint32_t i = 0; i < n; i += 4) {
        const uint4 k = ae_load16(block + ae_gpu_kv_key_at(f, 0, first + i / 4, place));
        const uint32_t word[4] = {k.x, k.y, k.z, k.w};
        AE_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (i + e < n) sum = ae_fma(ae_as_float(word[e]), q[i + e], sum);
    }
    return sum;
}

/* A thread has a position. */
AE_KERNEL(select_scores_f32, ae_gpu_select_args, AE_ATTENTION_WARPS * 32)
{
    const ae_gpu_kv_form f = a.keys.kv.form;
    const uint32_t n_threads = AE_ATTENTION_WARPS * 32, dim = f.n_rope + f.head_dim;
    index_row r;
    if (!index_row_of(a, ae_block_x(), &r) || r.all) return;
    const float *weight = weights_of(a, &r);
    const float *queries = a.keys.q + static_cast<size_t>(r.row) * a.keys.n_heads * dim;
    for (uint32_t pos = ae_block_y() * n_threads + ae_thread(); pos < r.n; pos += ae_grid_y() * n_threads) {
        const int32_t slot = slot_of(a, &r, static_cast<int32_t>(pos));
        const int32_t page = a.keys.tables[static_cast<size_t>(r.seq) * a.keys.table_stride + slot / AE_KV_PAGE];
        const uint8_t *block = ae_gpu_kv_block(&a.keys.kv, static_cast<uint32_t>(page), 0);
        const uint32_t place = static_cast<uint32_t>(slot) % AE_KV_PAGE;
        float sum = 0;
        for (uint32_t h = r.first_head; h < r.end_head; h++) {
            const float *q = queries + static_cast<size_t>(h) * dim;
            const float rotated = dot_floats(&f, block, place, 0, q, f.n_rope, 0.0f);
            const float dot = dot_floats(&f, block, place, f.rope_groups, q + f.n_rope, f.head_dim, rotated);
            sum = add_head(sum, weight ? weight + h : NULL, dot);
        }
        a.scores[static_cast<size_t>(ae_block_x()) * a.score_stride + pos] = sum;
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------------------- */

/* One thread per block of positions. The newest n_local blocks come before all others. */
AE_KERNEL(select_blocks, ae_gpu_select_args, AE_GPU_SELECT_THREADS)
{
    index_row r;
    if (!index_row_of(a, ae_block_x(), &r) || r.all) return;
    float *score = a.scores + static_cast<size_t>(ae_block_x()) * a.score_stride;
    const uint32_t n_blocks = (r.n + a.block - 1) / a.block, b = ae_block_y() * AE_GPU_SELECT_THREADS + ae_thread();
    if (b >= n_blocks) return;
    const uint32_t end = ae_min((b + 1) * a.block, r.n);
    float best = b + a.n_local >= n_blocks ? INFINITY : -INFINITY;
    for (uint32_t pos = b * a.block; pos < end; pos++) best = score[pos] > best ? score[pos] : best;
    score[a.n_seen + b] = best;
}

/* ---- The choice ----------------------------------------------------------------------------------------- */

#define THREADS AE_GPU_SELECT_THREADS
#define DIGITS 16u /* values of a 4-bit digit; digits are counted from the highest one down */

/* Returns numbers in the order of the scores; a NaN is the lowest, and both zeros are equal. */
AE_DEV uint32_t key_of(float score)
{
    const float x = score + 0.0f;
    const uint32_t bits = ae_as_bits(x);
    if (x != x) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The n items to choose from; number i has the score at (i + 1) * every - 1. */
typedef struct items {
    const float *score;
    uint32_t n, n_most, every;
} items;

AE_DEV items items_of(const ae_gpu_select_args &s, const index_row *r)
{
    const float *score = s.scores + static_cast<size_t>(ae_block_x()) * s.score_stride;
    items t;
    t.score = s.block && !s.pooled ? score + s.n_seen : score;
    t.n = s.pooled ? r->n / s.block : s.block ? (r->n + s.block - 1) / s.block : r->n / s.every;
    t.n_most = s.block ? s.n_most / s.block : s.n_most;
    t.every = s.pooled ? s.block : s.every;
    return t;
}

AE_DEV uint32_t key_at(const items *t, uint32_t i)
{
    return key_of(t->score[(i + 1) * t->every - 1]);
}

/* Returns where thread t counts a digit; after the counts there is room for each digit's total. */
AE_DEV uint8_t *count_at(uint8_t *shared, uint32_t digit, uint32_t t)
{
    return shared + (digit * THREADS + t) * 4;
}

/* Counts the digits at `shift` of those keys whose known bits equal those of prefix. */
AE_DEV void count_digits(uint8_t *shared, const items *of, uint32_t known, uint32_t prefix, uint32_t shift)
{
    const uint32_t t = ae_thread(), digit = t / (THREADS / DIGITS), part = t % (THREADS / DIGITS);
    uint32_t sum = 0;
    for (uint32_t d = 0; d < DIGITS; d++) AE_STORE_SHARED(uint32_t, count_at(shared, d, t), 0);
    for (uint32_t i = t; i < of->n; i += THREADS) {
        const uint32_t key = key_at(of, i);
        if ((key & known) != prefix) continue;
        uint8_t *own = count_at(shared, key >> shift & (DIGITS - 1), t);
        AE_STORE_SHARED(uint32_t, own, AE_LOAD_SHARED(uint32_t, own) + 1);
    }
    ae_sync();
    for (uint32_t i = 0; i < DIGITS; i++) sum += AE_LOAD_SHARED(uint32_t, count_at(shared, digit, part * DIGITS + i));
    sum = ae_fold<ae_add>(sum, THREADS / DIGITS / 2, 1);
    if (!part) AE_STORE_SHARED(uint32_t, count_at(shared, DIGITS, digit), sum);
    ae_sync();
}

/* Finds the lowest key that is chosen, and how many of the keys equal to it are chosen. */
AE_DEV uint32_t find_least(uint8_t *shared, const items *of, uint32_t *n_equal)
{
    uint32_t prefix = 0, known = 0, k = of->n_most;
    for (uint32_t shift = 32; shift; ) {
        shift -= 4;
        count_digits(shared, of, known, prefix, shift);
        uint32_t d = DIGITS - 1, here;
        while ((here = AE_LOAD_SHARED(uint32_t, count_at(shared, DIGITS, d))) < k) k -= here, d--;
        prefix |= d << shift;
        known |= (DIGITS - 1) << shift; /* the next totals come after a barrier */
    }
    *n_equal = k;
    return prefix;
}

/* Writes the slots of the positions after the last pool, following those of the chosen ones, and how many there are. */
AE_DEV void write_rest(const ae_gpu_select_args &s, const index_row *r, const items *of, int32_t *path)
{
    const uint32_t begin = of->n * s.block, at = of->n_most * s.block, n = r->n - begin;
    for (uint32_t i = ae_thread(); i < n; i += THREADS) path[at + i] = slot_of(s, r, static_cast<int32_t>(begin + i));
    if (!ae_thread()) s.pos[r->choice] = static_cast<int32_t>(at + n) - 1;
}

/* Writes slot number i of the chosen items' positions, of which `item` has this one. */
AE_DEV void write_slot(const ae_gpu_select_args &s, const index_row *r, uint32_t item, uint32_t i, int32_t *path)
{
    const uint32_t pos = s.block ? item * s.block + i % s.block : (item + 1) * s.every - 1;
    if (pos < r->n) path[i] = slot_of(s, r, static_cast<int32_t>(pos));
}

/* Writes the chosen items in ascending order. A thread looks at a range of them and lists what it chooses; then all write
 * slots side by side, or itself writes an item's slots where there are more items than room. */
AE_DEV void write_chosen(const ae_gpu_select_args &s, const index_row *r, uint8_t *shared, int32_t *path)
{
    const items of = items_of(s, r);
    uint8_t *list = shared + THREADS / 32 * 4; /* behind the totals of ae_sum_before */
    const bool lists = of.n_most <= (AE_GPU_SELECT_SHARED - THREADS / 32 * 4) / 4;
    uint32_t n_equal, n_above = 0, n_same = 0;
    const uint32_t least = find_least(shared, &of, &n_equal), each = (of.n + THREADS - 1) / THREADS;
    const uint32_t begin = ae_min(ae_thread() * each, of.n), end = ae_min(begin + each, of.n);
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t key = key_at(&of, i);
        n_above += key > least;
        n_same += key == least;
    }
    const uint32_t size = s.block ? s.block : 1, before = ae_sum_before(shared, n_same);
    uint32_t same = before, at = ae_sum_before(shared, n_above) + ae_min(before, n_equal);
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t key = key_at(&of, i);
        if (key < least || (key == least && same++ >= n_equal)) continue;
        if (lists) AE_STORE_SHARED(uint32_t, list + at * 4, i);
        for (uint32_t k = 0; !lists && k < size; k++) write_slot(s, r, i, at * size + k, path);
        if (++at < of.n_most || s.pooled) continue;
        s.pos[r->choice] = static_cast<int32_t>((at - 1) * size + ae_min(size, r->n - i * size)) - 1; /* of the last one */
    }
    ae_sync();
    for (uint32_t i = ae_thread(); lists && i < of.n_most * size; i += THREADS)
        write_slot(s, r, AE_LOAD_SHARED(uint32_t, list + i / size * 4), i, path);
    if (s.pooled) write_rest(s, r, &of, path);
}

AE_KERNEL(select_choose, ae_gpu_select_args, AE_GPU_SELECT_THREADS)
{
    AE_SHARED(shared);
    index_row r;
    if (!index_row_of(a, ae_block_x(), &r)) return;
    int32_t *path = a.path + static_cast<size_t>(r.choice) * a.n_most;
    const int32_t n = static_cast<int32_t>(ae_min(r.n / a.every, a.n_most));
    if (!ae_thread()) a.n_inplace[r.choice] = r.all && !a.listed ? r.n_inplace : 0;
    if (!r.all) {
        write_chosen(a, &r, shared, path);
        return;
    }
    if (!ae_thread()) a.pos[r.choice] = n - 1; /* the row keeps its places, or lists them */
    const int32_t skipped = a.listed ? 0 : r.n_inplace, every = static_cast<int32_t>(a.every);
    for (int32_t i = static_cast<int32_t>(ae_thread()); i < n - skipped; i += THREADS)
        path[i] = slot_of(a, &r, (skipped + i + 1) * every - 1);
}
