/* compress.cu - what DeepSeek-V4's layers and Qwen 4's add: coefficients of a row's streams (ae_hyper), rotation of parts of
 * heads (ae_rotate), compressed rows (ae_compress), a memory of n-grams (ae_ngrams, ae_trail, ae_accord). The arithmetic and
 * its order are those of cpu/ref/compress.c and rows.c. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/rope.h"

/* ---- Streams: a warp has a row --------------------------------------------------------------------------- */

AE_DEV float load(const uint8_t *shared, uint32_t i) { return AE_LOAD_SHARED(float, shared + i * 4); }
AE_DEV void store(uint8_t *shared, uint32_t i, float v) { AE_STORE_SHARED(float, shared + i * 4, v); }

AE_DEV float sigmoid(float x)
{
    return 1.0f / (1.0f + ae_expf(-x));
}

/* Divides n numbers, `step` apart from `at` on, by their sum plus eps. */
AE_DEV void divide(uint8_t *shared, uint32_t at, uint32_t n, uint32_t step, float eps)
{
    float sum = 0;
    for (uint32_t k = 0; k < n; k++) sum += load(shared, at + k * step);
    for (uint32_t k = 0; k < n; k++) store(shared, at + k * step, load(shared, at + k * step) / (sum + eps));
}

AE_DEV void softmax(uint8_t *shared, uint32_t at, uint32_t n, float eps)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        const float x = load(shared, at + k);
        top = x > top ? x : top;
    }
    for (uint32_t k = 0; k < n; k++) {
        const float e = ae_expf(load(shared, at + k) - top);
        sum += e;
        store(shared, at + k, e);
    }
    for (uint32_t k = 0; k < n; k++) store(shared, at + k, load(shared, at + k) / sum + eps);
}

/* Normalizes the n x n matrix at c: lane k < n has row k or column k. */
AE_DEV void mix_matrix(const ae_gpu_hyper_args &a, uint8_t *shared, uint32_t lane)
{
    const uint32_t n = a.n, c = 2 * n;
    ae_sync_warp();
    if (lane < n) softmax(shared, c + lane * n, n, a.eps);
    ae_sync_warp();
    if (lane < n) divide(shared, c + lane, n, n, a.eps);
    for (uint32_t i = 1; i < a.n_iterations; i++) {
        ae_sync_warp();
        if (lane < n) divide(shared, c + lane * n, n, 1, a.eps);
        ae_sync_warp();
        if (lane < n) divide(shared, c + lane, n, n, a.eps);
    }
    ae_sync_warp();
}

AE_KERNEL(hyper_rows, ae_gpu_hyper_args, 32)
{
    AE_SHARED(shared);
    const bool apart = a.magnitude > 0.0f;
    const uint32_t n = a.n, lane = ae_thread(), n_all = !a.n_iterations ? n : apart ? 2 * n : n * (2 + n);
    float *x = a.x + static_cast<size_t>(ae_block_x()) * a.x_stride;
    for (uint32_t k = lane; k < n_all; k += 32) {
        const float v = x[k] * a.scale[k < n ? 0 : k < 2 * n ? 1 : 2] + a.base[k];
        store(shared, k, k < n ? sigmoid(v) + a.eps : k >= 2 * n ? v
                         : apart ? a.magnitude * sigmoid(v) + a.eps : 2.0f * sigmoid(v));
    }
    if (a.n_iterations && !apart) mix_matrix(a, shared, lane); /* else each lane reads what it has written */
    for (uint32_t k = lane; k < n_all; k += 32) x[k] = load(shared, k);
}

/* ---- Rotation -------------------------------------------------------------------------------------------- */

/* One thread per pair of a head. */
AE_KERNEL(rotate_heads, ae_gpu_rotate_args, 128)
{
    const uint32_t half = a.n_rot / 2, i = ae_block_y() * 128 + ae_thread(), row = ae_block_x();
    if (i >= a.n_heads * half) return;
    const uint32_t pair = i % half;
    float *x = a.x + (static_cast<size_t>(row) * a.n_heads + i / half) * a.head_dim + a.first;
    const uint32_t at_a = a.neox ? pair : 2 * pair, at_b = a.neox ? pair + half : 2 * pair + 1;
    const float c = a.cos[static_cast<size_t>(row) * half + pair], own = a.sin[static_cast<size_t>(row) * half + pair];
    const float s = a.back ? -own : own, xa = x[at_a], xb = x[at_b];
    x[at_a] = xa * c - xb * s;
    x[at_b] = xa * s + xb * c;
}

/* ---- Compressed rows ------------------------------------------------------------------------------------- */

/* Returns where the store has a head's block of a position's row, at the position's place; NULL: it has no such head. */
AE_DEV float *kept_at(const ae_gpu_compress_args &a, uint32_t row, int32_t slot, uint32_t head)
{
    const uint32_t i = static_cast<uint32_t>(slot) / AE_KV_PAGE, place = static_cast<uint32_t>(slot) % AE_KV_PAGE;
    if (slot < 0 || i >= a.table_stride) return nullptr;
    const uint32_t page = static_cast<uint32_t>(a.tables[static_cast<size_t>(a.seq[row]) * a.table_stride + i]);
    if (page >= a.kv.n_pages) return nullptr;
    uint8_t *block = ae_gpu_kv_block(&a.kv, page, head);
    return reinterpret_cast<float *>(block + ae_gpu_kv_value_at(&a.kv.form, 0, place));
}

AE_DEV bool has_row(const ae_gpu_compress_args &a, uint32_t row)
{
    return !a.n_actual || row < *a.n_actual;
}

/* Grid: rows, heads that a row keeps. */
AE_KERNEL(keep_rows, ae_gpu_compress_args, 128)
{
    const uint32_t row = ae_block_x(), head = ae_block_y();
    if (!has_row(a, row)) return;
    float *to = kept_at(a, row, a.slot[row], head);
    const float *x = a.x + (static_cast<size_t>(row) * a.n_heads + head) * a.dim;
    for (uint32_t i = ae_thread(); to && i < a.dim; i += 128) to[i] = x[i];
}

/* Returns the slot of a position on the path of a row. */
AE_DEV int32_t slot_at(const ae_gpu_compress_args &a, uint32_t row, int32_t at)
{
    const int32_t n_inplace = a.n_inplace[row];
    return at < n_inplace ? at : a.path[static_cast<size_t>(row) * a.path_stride + at - n_inplace];
}

/* Reads value i and the score of position `at`, which is in the row's own block or in the one before. */
AE_DEV void member(const ae_gpu_compress_args &a, uint32_t row, int32_t at, bool own, uint32_t i, float *v, float *s)
{
    const int32_t slot = slot_at(a, row, at);
    const uint32_t part = a.n_parts > 1 && own, entry = static_cast<uint32_t>(at) % a.every;
    const float *value = kept_at(a, row, slot, part);
    *v = value ? value[i] : 0.0f;
    if (!a.ape) return;
    const float *score = kept_at(a, row, slot, a.n_parts + part);
    *s = (score ? score[i] : 0.0f) + a.ape[(static_cast<size_t>(entry) * a.n_parts + part) * a.dim + i];
}

/* Grid: rows, ranges of 128 values. */
AE_KERNEL(compress_rows, ae_gpu_compress_args, 128)
{
    const uint32_t row = ae_block_x(), i = ae_block_y() * 128 + ae_thread();
    if (!has_row(a, row) || i >= a.dim) return;
    const int32_t pos = a.pos[row], every = static_cast<int32_t>(a.every), own = pos + 1 - every;
    const int32_t first = a.n_parts > 1 && own ? own - every : own;
    float top = -INFINITY, sum = 0, y = 0, v = 0, s = 0;
    if ((pos + 1) % every) {
        a.y[static_cast<size_t>(row) * a.dim + i] = 0;
        return;
    }
    for (int32_t at = first; at <= pos; at++) {
        member(a, row, at, at >= own, i, &v, &s);
        top = s > top ? s : top;
        y += v;
    }
    if (!a.ape) { /* the mean */
        a.y[static_cast<size_t>(row) * a.dim + i] = y / static_cast<float>(pos + 1 - first);
        return;
    }
    y = 0;
    for (int32_t at = first; at <= pos; at++) {
        member(a, row, at, at >= own, i, &v, &s);
        const float e = ae_expf(s - top);
        y = ae_fma(e, v, y);
        sum += e;
    }
    a.y[static_cast<size_t>(row) * a.dim + i] = y / sum;
}

/* ---- A memory of n-grams ---------------------------------------------------------------------------------- */

/* Grid: rows, heads. */
AE_KERNEL(trail_rows, ae_gpu_compress_args, 128)
{
    const uint32_t row = ae_block_x(), head = ae_block_y();
    if (!has_row(a, row)) return;
    for (uint32_t i = ae_thread(); i < a.dim; i += 128) {
        const float *weight = a.ape + (static_cast<size_t>(head) * a.dim + i) * a.n_taps;
        float s = 0;
        for (uint32_t j = 0; j < a.n_taps; j++) {
            const int32_t pos = a.pos[row] - static_cast<int32_t>((a.n_taps - 1 - j) * a.step);
            const float *x = pos < 0 ? nullptr : kept_at(a, row, slot_at(a, row, pos), head);
            if (x) s = ae_fma(weight[j], x[i], s);
        }
        a.y[(static_cast<size_t>(row) * a.n_heads + head) * a.dim + i] = ae_siluf(s);
    }
}

AE_KERNEL(keep_tokens, ae_gpu_ngrams_args, 128)
{
    const uint32_t row = ae_block_x() * 128 + ae_thread();
    if (row >= a.at.n_rows || !has_row(a.at, row)) return;
    float *to = kept_at(a.at, row, a.at.slot[row], 0);
    if (to) *to = static_cast<float>(a.tokens[row] < 0 ? a.end : a.tokens[row]);
}

AE_KERNEL(hash_tokens, ae_gpu_ngrams_args, AE_MAX_NGRAM_HEADS)
{
    const uint32_t row = ae_block_x(), k = ae_thread(), n = (a.n_tokens - 1) * a.n_each;
    if (!has_row(a.at, row) || k >= n) return;
    uint64_t mixed = 0;
    bool ended = false;
    for (uint32_t j = 0; j < 2 + k / a.n_each; j++) {
        const int32_t pos = a.at.pos[row] - static_cast<int32_t>(j);
        int32_t token = a.end;
        if (!ended && pos >= 0) {
            const float *kept = kept_at(a.at, row, slot_at(a.at, row, pos), 0);
            if (kept) token = static_cast<int32_t>(*kept);
        }
        ended = ended || (j && token == a.end);
        mixed ^= static_cast<uint64_t>(static_cast<int64_t>(token)) * a.factors[j];
    }
    a.y[static_cast<size_t>(row) * n + k] = static_cast<int32_t>(mixed % a.sizes[k] + a.offsets[k]);
}

/* One warp per part of a row; half of its lanes compute a chain each. */
AE_KERNEL(accord_parts, ae_gpu_accord_args, 32)
{
    const uint32_t row = ae_block_x(), part = ae_block_y(), lane = ae_thread();
    const size_t at = (static_cast<size_t>(row) * a.n_parts + part) * a.dim;
    float own = 0, s = 0;
    for (uint32_t i = lane; lane < 16 && i < a.dim; i += 16) own = ae_fma(a.x[at + i], a.x2[at + i], own);
    for (uint32_t i = 0; i < 16; i++) s += ae_shfl(own, i);
    s *= a.scale;
    const float size = fabsf(s) > 1e-6f ? fabsf(s) : 1e-6f, root = sqrtf(size), g = s > 0 ? root : s < 0 ? -root : s;
    if (!lane) a.y[row * a.y_stride + part] = sigmoid(g);
}
