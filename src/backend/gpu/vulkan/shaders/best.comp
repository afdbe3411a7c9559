#version 460
/* best.comp - the best logits of rows, and the sum of their weights (kernels/draw.cu). KIND: 0 best_one, 1 best_some, 2
 * best_total.
 *
 * Keys are unique and ordered as candidates are, so the result does not depend on how a row is cut into blocks. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;

#define BEST 64u
#define CHUNK 1024u
#define TOTAL_CHUNK 4096u

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_best_args */
    uint64_t logits, in_, out_, results;
    uint n_logits, n_in, k;
    uint rows[64];
};

Args a;
uint64_t row;
shared uint64_t keys[CHUNK];

bool is_candidate(float x)
{
    return x >= -3.402823466e38;
}

uint64_t key_of(float x, uint id)
{
    if (!is_candidate(x)) return 0ul;
    const uint bits = x == 0.0 ? 0u : floatBitsToUint(x); /* -0 is 0 */
    const uint order = bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
    return uint64_t(order) << 32 | uint64_t(0xFFFFFFFFu - id);
}

uint id_of(uint64_t key)
{
    return 0xFFFFFFFFu - uint(key & 0xFFFFFFFFul);
}

float logit_at(uint i)
{
    return F32(row + uint64_t(i) * 4ul).v[0];
}

/* Returns element i of the row that this launch searches. */
uint64_t key_at(uint i)
{
    if (a.in_ == 0ul) return i < a.n_logits ? key_of(logit_at(i), i) : 0ul;
    return i < a.n_in ? U64(a.in_).v[BLOCK_Y * a.n_in + i] : 0ul;
}

uint64_t result_at()
{
    return a.results + uint64_t(BLOCK_Y) * (2 * a.k + 1) * 4ul;
}

void write_result(uint i, uint64_t key)
{
    U32 result = U32(result_at());
    result.v[1 + i] = key != 0ul ? id_of(key) : 0u;
    result.v[1 + a.k + i] = key != 0ul ? floatBitsToUint(logit_at(id_of(key))) : 0u;
}

void best_one()
{
    const uint t = THREAD, first = BLOCK_X * CHUNK;
    uint64_t best = 0ul;
    for (uint i = t; i < CHUNK; i += 256) {
        const uint64_t key = key_at(first + i);
        best = key > best ? key : best;
    }
    keys[t] = best;
    for (uint h = 128; h >= 1; h /= 2) {
        barrier();
        if (t < h && keys[t + h] > keys[t]) keys[t] = keys[t + h];
    }
    if (t != 0) return;
    best = keys[0];
    if (a.results != 0ul) {
        U32(result_at()).v[0] = best != 0ul ? 1u : 0u;
        write_result(0, best);
    } else U64(a.out_).v[BLOCK_Y * GRID_X + BLOCK_X] = best;
}

/* One stage of a bitonic network over the first n keys: those j apart are ordered, downwards in runs of `run`. */
void stage(uint n, uint j, uint run)
{
    for (uint p = THREAD; p < n / 2; p += 256) {
        const uint i = 2 * p - (p & (j - 1));
        const uint64_t x = keys[i], y = keys[i + j];
        if ((x < y) != ((i & run) != 0)) {
            keys[i] = y;
            keys[i + j] = x;
        }
    }
    barrier();
}

/* The best of each two lists becomes list i of half as many: the larger ones of a list and the other one backwards are the best
 * of both, and form a bitonic sequence. */
void merge_lists(uint n_lists)
{
    const uint n = n_lists / 2 * BEST;
    uint64_t kept[2];
    for (uint s = 0; s < 2; s++) {
        const uint p = THREAD + s * 256, list = p / BEST * 2 * BEST, i = p % BEST;
        kept[s] = 0ul;
        if (p >= n) continue;
        const uint64_t x = keys[list + i], y = keys[list + 2 * BEST - 1 - i];
        kept[s] = x > y ? x : y;
    }
    barrier();
    for (uint s = 0; s < 2; s++)
        if (THREAD + s * 256 < n) keys[THREAD + s * 256] = kept[s];
    barrier();
    for (uint j = BEST / 2; j >= 1; j /= 2) stage(n, j, CHUNK);
}

void best_some()
{
    const uint t = THREAD, first = BLOCK_X * CHUNK;
    for (uint i = t; i < CHUNK; i += 256) keys[i] = key_at(first + i);
    barrier();
    if (a.in_ == 0ul) {
        for (uint run = 2; run < BEST; run *= 2)
            for (uint j = run / 2; j >= 1; j /= 2) stage(CHUNK, j, run);
        for (uint j = BEST / 2; j >= 1; j /= 2) stage(CHUNK, j, CHUNK);
    }
    for (uint n = CHUNK / BEST; n > 1; n /= 2) merge_lists(n);
    if (t >= BEST) return;
    const uint64_t key = keys[t];
    if (a.results == 0ul) {
        U64(a.out_).v[(BLOCK_Y * GRID_X + BLOCK_X) * BEST + t] = key;
        return;
    }
    if (t >= a.k) return;
    const uint64_t next = t + 1 < a.k ? keys[t + 1] : 0ul;
    if (key != 0ul && next == 0ul) U32(result_at()).v[0] = t + 1;
    if (key == 0ul && t == 0) U32(result_at()).v[0] = 0;
    write_result(t, key);
}

/* The sums of the weights of a row, relative to its best logit, in units of 2^-40, block by block. A weight is e^x * 2^40 cut
 * to an integer: the bits of a float up to 2^40, shifted. */
void best_total()
{
    const uint t = THREAD, begin = BLOCK_X * TOTAL_CHUNK, end = min(begin + TOTAL_CHUNK, a.n_logits);
    const float top = uintBitsToFloat(U32(result_at()).v[1 + a.k]);
    uint64_t sum = 0ul;
    for (uint i = begin + t; i < end; i += 256) {
        const float x = logit_at(i);
        if (!is_candidate(x)) continue;
        const uint bits = floatBitsToUint(ae_expf(x - top));
        const int shift = int(bits >> 23 & 255u) - 150 + 40;
        const uint64_t m = uint64_t(bits & 0x7fffffu | 0x800000u);
        sum += shift >= 0 ? m << uint(shift) : shift > -25 ? m >> uint(-shift) : 0ul;
    }
    keys[t] = sum;
    for (uint h = 128; h >= 1; h /= 2) {
        barrier();
        if (t < h) keys[t] = keys[t] + keys[t + h];
    }
    if (t == 0) U64(a.out_).v[BLOCK_Y * GRID_X + BLOCK_X] = keys[0];
}

void main()
{
    a = Args(push.args);
    row = a.logits + uint64_t(a.rows[BLOCK_Y]) * a.n_logits * 4ul;
    if (KIND == 0) best_one();
    else if (KIND == 1) best_some();
    else best_total();
}
