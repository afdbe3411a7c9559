/* test_gpu_mma.c - each kernel of the products by mma, in the emulation, against the reference: all variants, also those that
 * only a large device would choose, with any number of blocks and any order of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#ifdef AE_GPU_EMU
#include "backend/cpu/ref/ref.h"
#include "backend/gpu/emu/launch.h"
#include "backend/gpu/weight_mma.h"
#include "base/mem.h"
#include "every.h"
#include "kernels_data.inc"

typedef struct kernel {
    ae_emu_kernel run;
    uint32_t type, bytes; /* bytes: of a record */
    uint32_t c, team, run_blocks, stages;
} kernel;

#define DECLARE(name, NAME, c, team, run, stages, most) \
    void ae_emu_mma_##name##_##c##_##team(const void *a); \
    extern const ae_emu_facts ae_emu_facts_mma_##name##_##c##_##team;
AE_MMA_ALL_32(DECLARE)
AE_MMA_ALL_256(DECLARE)

static const kernel kernels[] = {
#define ENTER(name, NAME, c, team, run, stages, most) \
    {{"mma_" #name "_" #c "_" #team, ae_emu_mma_##name##_##c##_##team, &ae_emu_facts_mma_##name##_##c##_##team}, \
     AE_TYPE_##NAME, 0, c, team, run, stages},
    AE_MMA_ALL_32(ENTER)
    AE_MMA_ALL_256(ENTER)
};

static const uint32_t record_bytes[AE_MMA_N_TYPES] = {
#define BYTES(name, NAME, wide, bits, codes, high, scales) codes + high + scales,
    AE_MMA_TYPES(BYTES)
};
static const uint32_t types[AE_MMA_N_TYPES] = {
#define TYPE(name, NAME, ...) AE_TYPE_##NAME,
    AE_MMA_TYPES(TYPE)
};

static ae_emu_engine *engine;

/* ---- Activations in the form of mma_rows.h ------------------------------------------------------ */

static void put_block(uint8_t *record, uint32_t i, uint32_t half, const int8_t *q)
{
    for (uint32_t w = 0; w < 8; w++) memcpy(record + AE_MMA_Q_AT(i, half, w), q + 4 * w, 4);
}

static uint8_t *rows_32(const ae_act *act)
{
    const uint32_t n_blocks = act->n_in / 32;
    uint8_t *rows = get(AE_MMA_GROUPS(act->n_rows), AE_MMA_GROUP_BYTES(act->n_in));
    memset(rows, 0x5A, (size_t)AE_MMA_GROUPS(act->n_rows) * AE_MMA_GROUP_BYTES(act->n_in));
    for (uint32_t r = 0; r < act->n_rows; r++)
        for (uint32_t b = 0; b < (n_blocks + 1) / 2 * 2; b++) {
            uint8_t *record = rows + (size_t)(r / 8) * AE_MMA_GROUP_BYTES(act->n_in) + b / 2 * AE_MMA_RECORD;
            const bool exists = b < n_blocks;
            const float dx = exists ? act->d32[(size_t)r * n_blocks + b] : 0.0f;
            const float s = exists ? act->s32[(size_t)r * n_blocks + b] : 0.0f;
            if (exists) put_block(record, r % 8, b % 2, act->q32 + r * ae_act_stride(act->n_in) + 32 * b);
            memcpy(record + AE_MMA_DX_AT(r % 8, b % 2), &dx, 4);
            memcpy(record + AE_MMA_S_AT(r % 8, b % 2), &s, 4);
        }
    return rows;
}

static uint8_t *rows_256(const ae_act *act)
{
    const uint32_t n_units = act->n_in / 256;
    uint8_t *rows = get(AE_MMA_GROUPS(act->n_rows), AE_MMA_GROUP_BYTES_256(act->n_in));
    memset(rows, 0x5A, (size_t)AE_MMA_GROUPS(act->n_rows) * AE_MMA_GROUP_BYTES_256(act->n_in));
    for (uint32_t r = 0; r < act->n_rows; r++)
        for (uint32_t u = 0; u < n_units; u++) {
            uint8_t *record = rows + (size_t)(r / 8) * AE_MMA_GROUP_BYTES_256(act->n_in) + u * AE_MMA_RECORD_256;
            for (uint32_t b = 0; b < 8; b++) {
                const int8_t *q = act->q256 + r * ae_act_stride(act->n_in) + 256 * u + 32 * b;
                const int16_t *sums = act->bsum + (size_t)r * act->n_in / 16 + 16 * u + 2 * b;
                const int32_t sum = sums[0] + sums[1], high = (sum + 64) >> 7;
                put_block(record + b / 2 * 512, r % 8, b % 2, q);
                record[AE_MMA_SUMS_256 + r % 8 * 16 + b] = (uint8_t)(sum - 128 * high);
                record[AE_MMA_SUMS_256 + r % 8 * 16 + 8 + b] = (uint8_t)high;
            }
            memcpy(record + AE_MMA_DX_256 + r % 8 * 4, &act->d256[(size_t)r * n_units + u], 4);
        }
    return rows;
}

/* ---- One product -------------------------------------------------------------------------------- */

typedef struct job_data {
    uint32_t n_out;
    uint8_t *plain, *packed;
    float *y, *want, *bias; /* [n_rows][n_out + 3], [n_out] */
    ae_mm_out out;
} job_data;

static void job_make(job_data *j, ae_mma_job *job, const ae_act *act, uint32_t type, uint32_t n_out)
{
    const weights_kind kind = below(3) ? W_RANDOM : (weights_kind)below(W_KINDS);
    const uint32_t stride = n_out + 3;
    const bool has_bias = below(2), has_scale = below(2), add = below(2);
    ae_weight w = {.type = type, .n_out = n_out, .n_in = act->n_in, .dot = ae_type_get(type)->dot,
                   .row_bytes = ae_type_row_bytes(type, act->n_in), .has_scale = has_scale, .scale = uniform(-2, 2)};
    *j = (job_data){n_out, random_rows(type, n_out, act->n_in, kind), get(1, ae_gpu_mma_bytes(type, n_out, act->n_in)),
                    get((size_t)act->n_rows * stride, 4), get((size_t)act->n_rows * stride, 4), get(n_out, 4), {0}};
    w.plain = j->plain;
    ae_gpu_mma_pack(type, act->n_in, j->plain, 0, n_out, j->packed);
    for (uint32_t i = 0; i < act->n_rows * stride; i++) j->y[i] = j->want[i] = uniform(-1, 1);
    for (uint32_t i = 0; i < n_out; i++) j->bias[i] = uniform(-1, 1);
    const ae_mm_out out = {.y = j->want, .stride = stride, .bias = has_bias ? j->bias : NULL, .add = add};
    ae_ref_mm_plain(&w, act, &out, 0, n_out);
    *job = (ae_mma_job){.weight = j->packed, .y = j->y, .bias = out.bias, .n_out = n_out, .y_stride = stride, .add = add,
                        .has_scale = has_scale, .scale = w.scale};
}

static uint32_t n_different(const job_data *j, uint32_t n_rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows * (j->n_out + 3); i++)
        n += memcmp(&j->y[i], &j->want[i], 4) && !(isnan(j->y[i]) && isnan(j->want[i]));
    return n;
}

static void check(const kernel *k, uint64_t seed)
{
    uint32_t t = 0;
    while (types[t] != k->type) t++;
    const bool wide = ae_type_get(k->type)->dot == AE_DOT_256;
    const uint32_t n_in = wide ? 256 * (1 + below(5)) : 32 * (1 + below(40));
    const uint32_t n_rows = 1 + below(below(3) ? 8 * k->c : 20 * k->c);
    const uint32_t n_jobs = 1 + below(2), teams = AE_MMA_WARPS / k->team, records = k->run_blocks / (wide ? 8 : 2);
    ae_act act = act_make(n_rows, n_in, below(3) ? A_RANDOM : (act_kind)below(A_HUGE));
    uint8_t *rows = wide ? rows_256(&act) : rows_32(&act);
    job_data jobs[2];
    ae_mma_args args = {.n_jobs = n_jobs, .n_rows = n_rows, .n_records = wide ? n_in / 256 : AE_MMA_PAIRS(n_in),
                        .group_bytes = wide ? AE_MMA_GROUP_BYTES_256(n_in) : AE_MMA_GROUP_BYTES(n_in), .early = below(2)};
    uint32_t end = 0;
    for (uint32_t j = 0; j < n_jobs; j++) {
        const uint32_t n_out = 1 + below(16 * teams * 3);
        job_make(&jobs[j], &args.job[j], &act, k->type, n_out);
        end += ((n_out + 15) / 16 + teams - 1) / teams * teams;
        args.job[j].rows = rows, args.job[j].end = end;
    }
    const uint32_t n = end / teams, y = 1 + below(n), grid[3] = {(n_rows + 8 * k->c - 1) / (8 * k->c), y, 1};
    args.each = n / y, args.more = n % y;
    const uint32_t shared = AE_MMA_SHARED(record_bytes[t] * records, (wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD) * records, k->c,
                                          k->team, k->stages);
    char report[AE_EMU_REPORT];
    const bool ok = ae_emu_run(engine, &k->run, grid, shared, seed, &args, report);
    if (!ok) print_error("%s\n", report);
    uint32_t bad = 0;
    for (uint32_t j = 0; j < n_jobs; j++) {
        bad += n_different(&jobs[j], n_rows);
        ae_free(jobs[j].plain), ae_free(jobs[j].packed), ae_free(jobs[j].y), ae_free(jobs[j].want), ae_free(jobs[j].bias);
    }
    if (bad)
        print_error("%s, n_in %u, %u rows, %u jobs, %u blocks, early %u, seed %u: %u outputs differ\n", k->run.name, n_in,
                    n_rows,
                    n_jobs, y, args.early, (unsigned)seed, bad);
    ae_free(rows);
    act_free(&act);
    assert_true(ok && !bad);
}

static void test_products(void **state)
{
    (void)state;
    uint32_t i = 0;
    for (uint64_t seed = 0; seed < 6; seed++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            if (i++ % (uint32_t)AE_TEST_EVERY == 0) check(&kernels[k], seed);
}

static int setup(void **state)
{
    (void)state;
    engine = ae_emu_engine_create();
    return !engine;
}

static int teardown(void **state)
{
    (void)state;
    ae_emu_engine_free(engine);
    return 0;
}

int main(void)
{
    (void)random_floats, (void)weight_make, (void)weight_free, (void)tiles_of, (void)mm_of; /* only the CPU's tests use these */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
#else
int main(void)
{
    printf("skipped: this build has no emulation of GPUs\n");
    return 77;
}
#endif
