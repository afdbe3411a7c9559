/* draw.cu - the best logits of rows, and the sum of their weights: the part of a row that the host's samplers need
 * (sample/candidates.c).
 *
 * Keys are unique and ordered as candidates are, so the result does not depend on how a row is cut into blocks. */
#include <float.h>

#include "backend/gpu/kernels/args_draw.h"
#include "backend/gpu/kernels/kernel.h"
#include "base/math/fmath.h"

AE_DEV uint64_t key_of(float x, uint32_t id)
{
    if (!(x >= -FLT_MAX)) return 0;
    const uint32_t bits = ae_as_bits(x + 0.0f); /* -0 is 0 */
    const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | (0xFFFFFFFFu - id);
}

AE_DEV uint32_t id_of(uint64_t key)
{
    return 0xFFFFFFFFu - (uint32_t)key;
}

AE_DEV const float *row_of(const ae_gpu_best_args *a)
{
    return a->logits + (size_t)a->rows[ae_block_y()] * a->n_logits;
}

/* Returns element i of the row that this launch searches. */
AE_DEV uint64_t key_at(const ae_gpu_best_args *a, const float *row, uint32_t i)
{
    if (!a->in) return i < a->n_logits ? key_of(row[i], i) : 0;
    return i < a->n_in ? a->in[(size_t)ae_block_y() * a->n_in + i] : 0;
}

/* Writes candidate i of the row's result. */
AE_DEV void write_result(const ae_gpu_best_args *a, const float *row, uint32_t i, uint64_t key)
{
    uint32_t *result = a->results + (size_t)ae_block_y() * (2 * a->k + 1);
    result[1 + i] = key ? id_of(key) : 0;
    result[1 + a->k + i] = key ? ae_as_bits(row[id_of(key)]) : 0;
}

AE_KERNEL(best_one, ae_gpu_best_args, 256)
{
    AE_SHARED(shared);
    uint64_t *keys = (uint64_t *)shared; /* [8] by warp */
    const float *row = row_of(&a);
    const uint32_t t = ae_thread(), first = ae_block_x() * AE_GPU_BEST_CHUNK;
    uint64_t best = 0;
    for (uint32_t i = t; i < AE_GPU_BEST_CHUNK; i += 256) best = ae_max(best, key_at(&a, row, first + i));
    best = ae_fold<ae_larger>(best, 16, 1);
    if (t % 32 == 0) AE_STORE_SHARED(uint64_t, keys + t / 32, best);
    ae_sync();
    if (t) return;
    for (uint32_t i = 1; i < 8; i++) best = ae_max(best, AE_LOAD_SHARED(uint64_t, keys + i));
    if (a.results) {
        a.results[(size_t)ae_block_y() * (2 * a.k + 1)] = best != 0;
        write_result(&a, row, 0, best);
    } else {
        a.out[(size_t)ae_block_y() * ae_grid_x() + ae_block_x()] = best;
    }
}

/* Puts the larger of two keys first, or last if `up`. */
AE_DEV void order_two(uint64_t *keys, uint32_t i, uint32_t j, bool up)
{
    const uint64_t x = AE_LOAD_SHARED(uint64_t, keys + i), y = AE_LOAD_SHARED(uint64_t, keys + j);
    if ((x < y) == up) return;
    AE_STORE_SHARED(uint64_t, keys + i, y);
    AE_STORE_SHARED(uint64_t, keys + j, x);
}

/* Runs one stage of a bitonic network over the first n keys: compares keys that are j apart, and orders them downwards in runs
 * of `run`, alternating. */
AE_DEV void stage(uint64_t *keys, uint32_t n, uint32_t j, uint32_t run)
{
    for (uint32_t p = ae_thread(); p < n / 2; p += 256) {
        const uint32_t i = 2 * p - (p & (j - 1)); /* j and run are powers of two */
        order_two(keys, i, i + j, (i & run) != 0);
    }
    ae_sync();
}

/* Sorts lists of AE_GPU_BEST keys, each best first. */
AE_DEV void sort_lists(uint64_t *keys)
{
    for (uint32_t run = 2; run < AE_GPU_BEST; run *= 2)
        for (uint32_t j = run / 2; j; j /= 2) stage(keys, AE_GPU_BEST_CHUNK, j, run);
    for (uint32_t j = AE_GPU_BEST / 2; j; j /= 2) stage(keys, AE_GPU_BEST_CHUNK, j, AE_GPU_BEST_CHUNK);
}

/* Merges lists in pairs, and halves their number: list i becomes the best of two. The larger ones of one list and the other one
 * backwards are the best of both, and form a bitonic sequence. */
AE_DEV void merge_lists(uint64_t *keys, uint32_t n_lists)
{
    uint64_t kept[AE_GPU_BEST_CHUNK / 2 / 256];
    const uint32_t n = n_lists / 2 * AE_GPU_BEST;
    AE_UNROLL
    for (uint32_t s = 0; s < AE_GPU_BEST_CHUNK / 2 / 256; s++) {
        const uint32_t p = ae_thread() + s * 256, list = p / AE_GPU_BEST * 2 * AE_GPU_BEST, i = p % AE_GPU_BEST;
        kept[s] = p < n ? ae_max(AE_LOAD_SHARED(uint64_t, keys + list + i),
                                 AE_LOAD_SHARED(uint64_t, keys + list + 2 * AE_GPU_BEST - 1 - i)) : 0;
    }
    ae_sync();
    AE_UNROLL
    for (uint32_t s = 0; s < AE_GPU_BEST_CHUNK / 2 / 256; s++)
        if (ae_thread() + s * 256 < n) AE_STORE_SHARED(uint64_t, keys + ae_thread() + s * 256, kept[s]);
    ae_sync();
    for (uint32_t j = AE_GPU_BEST / 2; j; j /= 2) stage(keys, n, j, AE_GPU_BEST_CHUNK);
}

AE_KERNEL(best_some, ae_gpu_best_args, 256)
{
    AE_SHARED(shared);
    uint64_t *keys = (uint64_t *)shared; /* [AE_GPU_BEST_CHUNK] */
    const float *row = row_of(&a);
    const uint32_t t = ae_thread(), first = ae_block_x() * AE_GPU_BEST_CHUNK;
    for (uint32_t i = t; i < AE_GPU_BEST_CHUNK; i += 256) AE_STORE_SHARED(uint64_t, keys + i, key_at(&a, row, first + i));
    ae_sync();
    if (!a.in) sort_lists(keys);
    for (uint32_t n = AE_GPU_BEST_CHUNK / AE_GPU_BEST; n > 1; n /= 2) merge_lists(keys, n);
    if (t >= AE_GPU_BEST) return;
    const uint64_t key = AE_LOAD_SHARED(uint64_t, keys + t);
    if (!a.results) {
        a.out[((size_t)ae_block_y() * ae_grid_x() + ae_block_x()) * AE_GPU_BEST + t] = key;
        return;
    }
    if (t >= a.k) return;
    uint32_t *n = a.results + (size_t)ae_block_y() * (2 * a.k + 1);
    const uint64_t next = t + 1 < a.k ? AE_LOAD_SHARED(uint64_t, keys + t + 1) : 0;
    if (key && !next) *n = t + 1;
    if (!key && !t) *n = 0;
    write_result(&a, row, t, key);
}

/* Computes the sums of a row's weights, relative to its best logit, in units of 2^-40 (sample/sampler_int.h), block by
 * block. */
AE_KERNEL(best_total, ae_gpu_best_args, 256)
{
    AE_SHARED(shared);
    uint64_t *sums = (uint64_t *)shared; /* [256] */
    const float *row = row_of(&a);
    const uint32_t t = ae_thread(), begin = ae_block_x() * AE_GPU_TOTAL_CHUNK;
    const uint32_t end = ae_min(begin + AE_GPU_TOTAL_CHUNK, a.n_logits);
    const float top = ae_as_float(a.results[(size_t)ae_block_y() * (2 * a.k + 1) + 1 + a.k]);
    uint64_t sum = 0;
    for (uint32_t i = begin + t; i < end; i += 256)
        if (row[i] >= -FLT_MAX) sum += (uint64_t)(int64_t)(ae_expf(row[i] - top) * 0x1p40f);
    AE_STORE_SHARED(uint64_t, sums + t, sum);
    for (uint32_t m = 128; m; m /= 2) {
        ae_sync();
        if (t < m)
            AE_STORE_SHARED(uint64_t, sums + t, AE_LOAD_SHARED(uint64_t, sums + t) + AE_LOAD_SHARED(uint64_t, sums + t + m));
    }
    if (!t) a.out[(size_t)ae_block_y() * ae_grid_x() + ae_block_x()] = AE_LOAD_SHARED(uint64_t, sums);
}
