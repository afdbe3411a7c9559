/* attention_query.glsl - a query and its scores, for attention.comp and select.comp. After kv_form.glsl.
 *
 * A work-group of 64 has one query; a thread has one position at a time. KIND 0: the cache has f16 or f32; else codes. */
#define KV_QUERY 16256.0

KvForm f;
uint64_t my_block;       /* of this thread's position */
uint my_place;

shared float query[640];
shared int codes[640];
shared float parts[64];

/* ---- Maxima over the work-group --------------------------------------------------------------------- */

float larger(float x, float y)
{
    return x > y ? x : y;
}

/* Returns the largest value; never a NaN if least is none. */
float largest(float x, float least)
{
    const uint t = THREAD;
    barrier();
    parts[t] = larger(x, least);
    for (uint h = 32; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = larger(parts[t], parts[t + h]);
    }
    barrier();
    return parts[0];
}

/* ---- The query -------------------------------------------------------------------------------------- */

/* Butterflies of query[first ..] of n elements, in blocks of the largest power of two that divides n. */
void turn(uint first, uint n)
{
    for (uint h = 1; h < (n & (~n + 1)); h *= 2) {
        barrier();
        for (uint p = THREAD; p < n / 2; p += 64) {
            const uint i = first + (p & ~(h - 1)) * 2 + (p & (h - 1));
            const float u = query[i], v = query[i + h];
            query[i] = u + v;
            query[i + h] = u - v;
        }
    }
    barrier();
}

/* Codes of n values of the query from `first` on; returns their scale. */
float quantize_query(uint first, uint n)
{
    float top = 0.0;
    turn(first, n);
    for (uint i = THREAD; i < n; i += 64) top = larger(abs(query[first + i]), top);
    top = largest(top, 0.0);
    const bool some = top > 1e-30;
    const float inv = some ? ae_div(KV_QUERY, top) : 0.0;
    for (uint i = THREAD; i < n; i += 64) {
        const float x = query[first + i], y = x * inv;
        codes[first + i] = !some ? 0 : y != y ? -16256 : ae_round_magic(x, inv);
    }
    barrier();
    return some ? ae_div(top, KV_QUERY) : 0.0;
}

float block_of(uint n)
{
    return float(n & (~n + 1));
}

/* ---- Scores ----------------------------------------------------------------------------------------- */

/* Dot of `n` elements of the key from group `group` on with the query from `first` on. */
float dot_floats(float sum, uint group, uint first, uint n)
{
    const uint each = KV_GROUP / f.width;
    for (uint i = 0; i < n; i += each) {
        const uvec4 four = U32x4(my_block + kv_key_at(f, 0, group + i / each, my_place)).v[0];
        if (f.width == 4) {
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (i + e < n) sum = ae_fma(uintBitsToFloat(four[e]), query[first + i + e], sum);
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++) {
                const vec2 two = unpackHalf2x16(four[e]);
                if (i + 2 * e < n) sum = ae_fma(two.x, query[first + i + 2 * e], sum);
                if (i + 2 * e + 1 < n) sum = ae_fma(two.y, query[first + i + 2 * e + 1], sum);
            }
        }
    }
    return sum;
}

/* Returns the level that a code of 4 bits stands for (AE_KV4_LEVELS). */
int level_of(uint code)
{
    const int levels[8] = int[](6, 18, 31, 44, 58, 75, 96, 127);
    return code < 8u ? -levels[7u - code] : levels[code - 8u];
}

/* Returns the dot product with the whole key, in codes of 4 bits. */
int dot_halves()
{
    int sum = 0;
    for (uint i = 0; i < f.head_dim; i += 32) {
        const uvec4 four = U32x4(my_block + kv_key_at(f, 0, i / 32, my_place)).v[0];
        for (uint e = 0; e < 32; e++)
            if (i + e < f.head_dim) sum += level_of(four[e / 8] >> e % 8 * 4 & 15u) * codes[i + e];
    }
    return sum;
}

int dot_codes(uint plane, uint group, uint first, uint n)
{
    int sum = 0;
    for (uint i = 0; i < n; i += 16) {
        const uvec4 four = U32x4(my_block + kv_key_at(f, plane, group + i / 16, my_place)).v[0];
        [[unroll]] for (uint e = 0; e < 16; e++)
            if (i + e < n) sum += bitfieldExtract(int(four[e / 4]), int(e % 4 * 8), 8) * codes[first + i + e];
    }
    return sum;
}

float dot_planes(uint group, uint first, uint n)
{
    const float high = float(dot_codes(0, group, first, n));
    return f.n_planes == 1 ? high : ae_fma(high, 128.0, float(dot_codes(1, group, first, n)));
}

float scale_at(uint i)
{
    return F32(my_block + kv_scale_at(f, i, my_place)).v[0];
}

/* factors: of the codes of the latent or only part, and of the rotated part */
float score(vec2 factors)
{
    if (KIND == 0) return dot_floats(dot_floats(0.0, 0, 0, f.n_rope), f.rope_groups, f.n_rope, f.head_dim);
    const float dot = f.key_half != 0 ? float(dot_halves()) : dot_planes(f.rope_groups, f.n_rope, f.head_dim);
    if (f.n_rope == 0) return dot * (scale_at(0) * factors.x);
    const float rotated = dot_planes(0, 0, f.n_rope);
    return ae_fma(dot, scale_at(0) * factors.x, rotated * (scale_at(1) * factors.y));
}
