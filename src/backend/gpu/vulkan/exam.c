/* exam.c - compares a device's arithmetic with the CPU's when it is opened. See exam.h.
 *
 * Vulkan promises correctly rounded sums and products, but neither fma nor division nor square roots (docs/gpu.md). shaders/
 * exam.comp computes every operation that results depend on, over edge values and random bits. Where fma differs, it is
 * computed by doubles, and where division or square roots differ, by integers; if anything still differs, the device is
 * refused.
 *   AERIE_VULKAN_REPAIRS=1  repairs are used though the device does not need them: for tests */
#include "backend/gpu/vulkan/exam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/arithmetic.h"
#include "base/math/rng.h"
#include "base/mem.h"
#include "quant/types.h"

#define N AE_VK_EXAM_N

enum { FMA = 4, DIVIDE, ROOT, HALF, EXP = 11, SILU, MAGIC, ERROR, DOUBLE_LOW, DOUBLE_HIGH, NARROW, DOT };

static const struct {
    const char *name;
    bool is_float;
} operations[AE_VK_EXAM_OPERATIONS] = {
    {"addition", true}, {"subtraction", true}, {"multiplication", true}, {"multiplication and addition", true}, {"fma", true},
    {"division", true}, {"square root", true}, {"f16 to f32", true}, {"f32 to f16", false}, {"integer to f32", true},
    {"comparison", true}, {"exp", true}, {"SiLU", true}, {"rounding to an integer", false}, {"rounding errors", true},
    {"double precision", false}, {"double precision", false}, {"f64 to f32", true}, {"dot products of bytes", false},
};

const char *ae_vk_exam_name(uint32_t i)
{
    return i < AE_VK_EXAM_OPERATIONS ? operations[i].name : "?";
}

/* ---- Inputs and results ----------------------------------------------------------------------------- */

/* Zeros, ones, subnormal and normal limits, infinities, a NaN, 2^23, ties of f16. */
static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x00800001, 0x3f800000, 0xbf800000,
    0x3f800001, 0x3f7fffff, 0x40000000, 0x3f000000, 0x34000000, 0x33800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
    0x7fc00000, 0x4b000000, 0x4b000001, 0x4b400000, 0x5f000000, 0x38800000, 0x387fc000, 0x33000000, 0x33000001, 0x477fefff,
    0x477ff000, 0x42b00000, 0xc2ae0000, 0x3eaaaaab, 0x40490fdb, 0x00000e01,
};
#define N_EDGES (sizeof edges / sizeof edges[0])

void ae_vk_exam_inputs(uint32_t *a, uint32_t *b, uint32_t *c)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t r[4];
        ae_philox(0x76756c6b616e, i, 0, r);
        a[i] = i < N_EDGES * N_EDGES ? edges[i % N_EDGES] : r[0];
        b[i] = i < N_EDGES * N_EDGES ? edges[i / N_EDGES] : r[1];
        c[i] = i % 2 ? r[2] : edges[r[2] % N_EDGES];
        if (i < N_EDGES * N_EDGES || i % 4 < 2) continue;
        a[i] = (a[i] & 0x83ffffff) | 0x3c000000; /* sums of similar numbers, which cancel or tie */
        b[i] = (b[i] & 0x83ffffff) | 0x3c000000;
        float x, y, z;
        memcpy(&x, &a[i], 4), memcpy(&y, &b[i], 4);
        z = -(x * y);
        if (i % 4 == 2) memcpy(&c[i], &z, 4);
        else c[i] = (c[i] & 0x80ffffff) | 0x3f000000;
    }
}

static float as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint32_t as_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static int32_t dot(uint32_t x, uint32_t y)
{
    int32_t sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (int8_t)(x >> i) * (int8_t)(y >> i);
    return sum;
}

static void expect_one(uint32_t ua, uint32_t ub, uint32_t uc, uint32_t results[AE_VK_EXAM_OPERATIONS])
{
    const float a = as_float(ua), b = as_float(ub), c = as_float(uc);
    const float small = as_float((ua & 0x807fffff) | 0x40000000), inv = as_float((ub & 0x7fffff) | 0x41800000);
    const double d = (double)a * 1.1, e = (double)b * 1.3, sum = d * e + (double)c;
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    const uint32_t all[AE_VK_EXAM_OPERATIONS] = {
        as_bits(a + b), as_bits(a - b), as_bits(a * b), as_bits(a * b + c), as_bits(fmaf(a, b, c)), as_bits(a / b),
        as_bits(sqrtf(a)), as_bits(ae_f16_to_f32((uint16_t)ua)), a == a ? ae_f32_to_f16(a) : 0x7E00,
        as_bits((float)(int32_t)ua), as_bits(a > b ? a : b), as_bits(ae_expf(a)), as_bits(ae_siluf(a)),
        (uint32_t)ae_round_magic(small, inv), as_bits(fmaf(small, inv, AE_EXP_MAGIC - ae_add_magic(small, inv))),
        (uint32_t)bits, (uint32_t)(bits >> 32), as_bits((float)(d + e)), (uint32_t)dot(ua, ub) + uc};
    memcpy(results, all, sizeof all);
}

void ae_vk_exam_expect(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *results)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t one[AE_VK_EXAM_OPERATIONS];
        expect_one(a[i], b[i], c[i], one);
        for (uint32_t j = 0; j < AE_VK_EXAM_OPERATIONS; j++) results[j * N + i] = one[j];
    }
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

static bool is_nan_double(uint32_t low, uint32_t high)
{
    return (high & 0x7fffffff) > 0x7ff00000 || ((high & 0x7fffffff) == 0x7ff00000 && low);
}

uint32_t ae_vk_exam_compare(const uint32_t *want, const uint32_t *got)
{
    uint32_t differing = 0;
    for (uint32_t j = 0; j < AE_VK_EXAM_OPERATIONS; j++)
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t x = want[j * N + i], y = got[j * N + i];
            if (x == y || (operations[j].is_float && is_nan(x) && is_nan(y))) continue;
            const uint32_t low = DOUBLE_LOW * N + i, high = DOUBLE_HIGH * N + i;
            const bool is_double = j == DOUBLE_LOW || j == DOUBLE_HIGH;
            if (is_double && is_nan_double(want[low], want[high]) && is_nan_double(got[low], got[high])) continue;
            differing |= 1u << j;
        }
    return differing;
}

uint32_t ae_vk_exam_repairs(uint32_t differing)
{
    const uint32_t by_fma = 1u << FMA | 1u << EXP | 1u << SILU | 1u << MAGIC | 1u << ERROR;
    const uint32_t by_division = 1u << DIVIDE | 1u << ROOT | 1u << SILU;
    return (differing & by_fma ? 1u : 0u) | (differing & by_division ? 2u : 0u);
}

#ifdef AE_GPU_VULKAN

/* ---- On a device ------------------------------------------------------------------------------------ */

typedef struct exam_args {
    uint64_t a, b, c, results;
    uint32_t n;
} exam_args;

/* Host arrays, one after the other: three operands, then the expected results. */
typedef struct paper {
    uint32_t *a, *b, *c, *want;
} paper;

/* Finds the operations that differ with the current settings of the device's fma and div. */
static aerie_status sit(ae_gpu_device *d, const paper *p, const ae_vk_block *room, uint32_t *differing, aerie_error *error)
{
    const uint32_t grid[3] = {N / 64, 1, 1};
    const exam_args args = {room->address, room->address + N * 4, room->address + 2 * N * 4, room->address + 3 * N * 4, N};
    VkPipeline pipeline;
    memcpy(room->host, p->a, 3 * N * sizeof *p->a);
    memset(room->host + 3 * N * 4, 0xFF, AE_VK_EXAM_OPERATIONS * N * 4);
    AE_TRY(ae_vk_pipeline_create(d, &(ae_vk_variant){.shader = "exam"}, &pipeline, error));
    pthread_mutex_lock(&d->mutex);
    aerie_status status = ae_vk_dispatch(d, pipeline, grid, &args, sizeof args, error);
    if (status == AERIE_OK) status = ae_vk_drain(d, error);
    pthread_mutex_unlock(&d->mutex);
    if (!d->hung) d->call.DestroyPipeline(d->device, pipeline, NULL);
    if (status != AERIE_OK) return status;
    *differing = ae_vk_exam_compare(p->want, (const uint32_t *)(const void *)(room->host + 3 * N * 4));
    return AERIE_OK;
}

static aerie_status refuse(uint32_t differing, const char *name, aerie_error *error)
{
    uint32_t i = 0;
    while (i + 1 < AE_VK_EXAM_OPERATIONS && !(differing >> i & 1)) i++;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%.100s does not compute like the CPU (%s%s), so its output would differ; "
                   "--device cpu runs on the CPU", name, ae_vk_exam_name(i),
                   differing & (differing - 1) ? " and others" : "");
}

static aerie_status sit_all(ae_gpu_device *d, const paper *p, const ae_vk_block *room, const char *name, aerie_error *error)
{
    const char *said = getenv("AERIE_VULKAN_REPAIRS");
    uint32_t differing = 0, repairs = said && !strcmp(said, "1") ? 3 : 0;
    for (int i = 0; i < 3; i++) {
        d->fma = repairs & 1;
        d->div = repairs >> 1;
        AE_TRY(sit(d, p, room, &differing, error));
        if (!differing) return AERIE_OK;
        const uint32_t more = repairs | ae_vk_exam_repairs(differing);
        if (more == repairs) break;
        repairs = more;
    }
    return refuse(differing, name, error);
}

aerie_status ae_vk_exam(ae_gpu_device *d, const char *name, aerie_error *error)
{
    const size_t bytes = (3 + AE_VK_EXAM_OPERATIONS) * N * sizeof(uint32_t);
    ae_vk_block room;
    paper p = {.a = ae_alloc(bytes, 1)};
    if (!p.a) return ae_fail_memory(error, "the examination of a device", bytes);
    p.b = p.a + N, p.c = p.b + N, p.want = p.c + N;
    ae_vk_exam_inputs(p.a, p.b, p.c);
    ae_vk_exam_expect(p.a, p.b, p.c, p.want);
    aerie_status status = ae_vk_block_create(d, AE_VK_HOST, bytes, &room, error);
    if (status == AERIE_OK) {
        status = sit_all(d, &p, &room, name, error);
        if (!d->hung) ae_vk_block_destroy(d, &room); /* else the device may still write to it */
    }
    ae_free(p.a);
    return status;
}

#endif
