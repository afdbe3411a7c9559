/* test_gpu_mma.c - each kernel of the products by mma, also those of experts, in the emulation, against the reference: all
 * variants, also those that only a large device would choose, with any number of blocks and any order of threads. And each of
 * their barriers is needed: without it some order of threads gives other results. device_barriers.inc does this for all other
 * kernels. */
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
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/weight_mma.h"
#include "base/mem.h"
#include "every.h"
#include "kernels_data.inc"

typedef struct kernel {
    ae_emu_kernel run;
    uint32_t type;
    uint32_t c, team, run_blocks, stages;
    bool of_experts;
} kernel;

#define DECLARE(name, NAME, c, team, run, stages, most) \
    void ae_emu_mma_##name##_##c##_##team(const void *a); \
    extern const ae_emu_facts ae_emu_facts_mma_##name##_##c##_##team;
AE_MMA_ALL_32(DECLARE)
AE_MMA_ALL_256(DECLARE)
#define DECLARE_EXPERTS(name, c) \
    void ae_emu_experts_mma_##name##_##c(const void *a); \
    extern const ae_emu_facts ae_emu_facts_experts_mma_##name##_##c;
#define DECLARE_BOTH(name, ...) DECLARE_EXPERTS(name, 1) DECLARE_EXPERTS(name, 4)
AE_MMA_TYPES(DECLARE_BOTH)

#define EXPERTS(name, NAME, c, team, run, stages) \
    {{"experts_mma_" #name "_" #c, ae_emu_experts_mma_##name##_##c, &ae_emu_facts_experts_mma_##name##_##c}, \
     AE_TYPE_##NAME, c, team, run, stages, true},
#define EXPERTS_1_8(...)
#define EXPERTS_1_4(...) EXPERTS(__VA_ARGS__)
#define EXPERTS_1_1(...)
#define EXPERTS_2_2(...)
#define EXPERTS_2_1(...)
#define EXPERTS_4_1(...) EXPERTS(__VA_ARGS__)

static const kernel kernels[] = {
#define ENTER(name, NAME, c, team, run, stages, most) \
    {{"mma_" #name "_" #c "_" #team, ae_emu_mma_##name##_##c##_##team, &ae_emu_facts_mma_##name##_##c##_##team}, \
     AE_TYPE_##NAME, c, team, run, stages, false}, \
    EXPERTS_##c##_##team(name, NAME, c, team, run, stages)
    AE_MMA_ALL_32(ENTER)
    AE_MMA_ALL_256(ENTER)
};
#define N_KERNELS (sizeof kernels / sizeof *kernels)

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
    uint32_t n_out, stride;
    uint8_t *plain, *packed;
    float *before, *y, *want, *bias; /* [n_rows][stride], [n_out]; before: what y is before the product */
    bool has_bias, has_scale, add;
    float scale;
} job_data;

/* A launch, with what it must give. */
typedef struct product {
    const kernel *k;
    uint32_t n_in, n_rows, n_jobs, grid[3], shared;
    ae_act act;
    uint8_t *rows;
    job_data jobs[2];
    ae_mma_args args;
    ae_gpu_active active;
    uint32_t n_active;
    ae_gpu_expert_args experts; /* instead of args */
} product;

static void job_make(product *p, job_data *j, uint32_t n_out, weights_kind kind)
{
    const uint32_t type = p->k->type, n = p->n_rows * (n_out + 3);
    *j = (job_data){.n_out = n_out, .stride = p->k->of_experts ? n_out : n_out + 3, .has_bias = below(2),
                    .has_scale = p->k->of_experts || below(2), .add = !p->k->of_experts && below(2), .scale = uniform(-2, 2)};
    j->plain = random_rows(type, n_out, p->n_in, kind), j->packed = get(1, ae_gpu_mma_bytes(type, n_out, p->n_in));
    j->before = get(n, 4), j->y = get(n, 4), j->want = get(n, 4), j->bias = get(n_out, 4);
    const ae_weight w = {.type = type, .n_out = n_out, .n_in = p->n_in, .dot = ae_type_get(type)->dot,
                         .row_bytes = ae_type_row_bytes(type, p->n_in), .has_scale = j->has_scale, .scale = j->scale,
                         .plain = j->plain};
    ae_gpu_mma_pack(type, p->n_in, j->plain, 0, n_out, j->packed);
    for (uint32_t i = 0; i < n; i++) j->before[i] = j->want[i] = uniform(-1, 1);
    for (uint32_t i = 0; i < n_out; i++) j->bias[i] = uniform(-1, 1);
    const ae_mm_out out = {.y = j->want, .stride = j->stride, .bias = j->has_bias ? j->bias : NULL, .add = j->add};
    ae_ref_mm_plain(&w, &p->act, &out, 0, n_out);
}

/* Makes the outputs of each job, and the arguments but for the numbers of blocks. */
static void jobs_make(product *p, const uint32_t n_out[2], bool any_weights)
{
    const uint32_t teams = AE_MMA_WARPS / p->k->team;
    uint32_t end = 0;
    p->experts.rows.r32 = p->experts.rows.r256 = p->rows;
    p->experts.active = &p->active, p->experts.n_active = &p->n_active, p->experts.n_jobs = p->n_jobs;
    p->experts.n_records = p->args.n_records, p->experts.group_bytes = p->args.group_bytes;
    p->active.n_rows = p->n_rows, p->n_active = 1;
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        job_data *j = &p->jobs[i];
        job_make(p, j, n_out[i], any_weights && !below(3) ? (weights_kind)below(W_KINDS) : W_RANDOM);
        end += ((n_out[i] + 15) / 16 + teams - 1) / teams * teams;
        p->args.job[i] = (ae_mma_job){.weight = j->packed, .rows = p->rows, .y = j->y, .bias = j->has_bias ? j->bias : NULL,
                                      .n_out = n_out[i], .y_stride = j->stride, .end = end, .add = j->add,
                                      .has_scale = j->has_scale, .scale = j->scale};
        ae_gpu_expert_job *to = &p->experts.job[i];
        to->base = j->packed, to->y = j->y, to->bias = p->args.job[i].bias, to->n_out = n_out[i], to->end = end;
        to->scale[0] = j->scale;
    }
    p->grid[0] = (p->n_rows + 8 * p->k->c - 1) / (8 * p->k->c), p->grid[1] = end / teams, p->grid[2] = 1;
    p->args.each = 1;
}

/* any_weights: also those that make all results zero or NaN. */
static void product_make(product *p, const kernel *k, uint32_t n_in, uint32_t n_rows, uint32_t n_jobs, act_kind kind,
                         const uint32_t n_out[2], bool any_weights)
{
    const bool wide = ae_type_get(k->type)->dot == AE_DOT_256;
    const uint32_t records = k->run_blocks / (wide ? 8 : 2);
    uint32_t t = 0;
    while (types[t] != k->type) t++;
    *p = (product){.k = k, .n_in = n_in, .n_rows = n_rows, .n_jobs = n_jobs, .act = act_make(n_rows, n_in, kind)};
    p->rows = wide ? rows_256(&p->act) : rows_32(&p->act);
    p->args = (ae_mma_args){.n_jobs = n_jobs, .n_rows = n_rows, .n_records = wide ? n_in / 256 : AE_MMA_PAIRS(n_in),
                            .group_bytes = wide ? AE_MMA_GROUP_BYTES_256(n_in) : AE_MMA_GROUP_BYTES(n_in)};
    p->shared = AE_MMA_SHARED(record_bytes[t] * records, (wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD) * records, k->c, k->team,
                              k->stages);
    jobs_make(p, n_out, any_weights);
}

/* Blocks in y. */
static void blocks_set(product *p, uint32_t n_blocks)
{
    const uint32_t n = p->grid[1];
    p->grid[1] = n_blocks, p->args.each = n / n_blocks, p->args.more = n % n_blocks;
}

/* How many outputs differ from the reference's; 1 if a rule is broken, and report says which. */
static uint32_t product_run(product *p, uint64_t seed, char report[AE_EMU_REPORT])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_jobs; i++) memcpy(p->jobs[i].y, p->jobs[i].before, p->n_rows * (p->jobs[i].n_out + 3) * 4);
    if (!ae_emu_run(engine, &p->k->run, p->grid, p->shared, seed, p->k->of_experts ? (void *)&p->experts : &p->args, report))
        return 1;
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        const job_data *j = &p->jobs[i];
        for (uint32_t at = 0; at < p->n_rows * (j->n_out + 3); at++)
            n += memcmp(&j->y[at], &j->want[at], 4) && !(isnan(j->y[at]) && isnan(j->want[at]));
    }
    return n;
}

static void product_free(product *p)
{
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        job_data *j = &p->jobs[i];
        ae_free(j->plain), ae_free(j->packed), ae_free(j->before), ae_free(j->y), ae_free(j->want), ae_free(j->bias);
    }
    ae_free(p->rows);
    act_free(&p->act);
}

static void check(const kernel *k, uint64_t seed)
{
    static product p;
    const bool wide = ae_type_get(k->type)->dot == AE_DOT_256;
    const uint32_t n_in = wide ? 256 * (1 + below(5)) : 32 * (1 + below(40)), most_out = 16 * AE_MMA_WARPS / k->team * 3;
    const uint32_t n_rows = 1 + below(below(3) ? 8 * k->c : 20 * k->c), n_jobs = 1 + below(2);
    const uint32_t n_out[2] = {1 + below(most_out), 1 + below(most_out)};
    char report[AE_EMU_REPORT];
    product_make(&p, k, n_in, n_rows, n_jobs, below(3) ? A_RANDOM : (act_kind)below(A_HUGE), n_out, true);
    p.args.early = below(2);
    if (!k->of_experts) blocks_set(&p, 1 + below(p.grid[1]));
    const uint32_t bad = product_run(&p, seed, report);
    if (bad)
        print_error("%s, n_in %u, %u rows, %u jobs, %u blocks, early %u, seed %u: %u outputs differ; %s\n", k->run.name, n_in,
                    n_rows, n_jobs, p.grid[1], p.args.early, (unsigned)seed, bad, report);
    product_free(&p);
    assert_int_equal(bad, 0);
}

static void test_products(void **state)
{
    (void)state;
    uint32_t i = 0;
    for (uint64_t seed = 0; seed < 6; seed++)
        for (size_t k = 0; k < N_KERNELS; k++)
            if (i++ % (uint32_t)AE_TEST_EVERY == 0) check(&kernels[k], seed);
}

/* ---- Each barrier is needed ----------------------------------------------------------------------- */

/* A sanitizer would end the process at what a missing barrier does. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define MAX_PLACES 16
#define N_ORDERS 48

static struct place {
    const char *file;
    int line;
} places[MAX_PLACES];
static uint32_t n_places, left_out;

static bool is_there(const char *file, int line)
{
    uint32_t i = 0;
    while (i < n_places && (places[i].line != line || strcmp(places[i].file, file))) i++;
    if (i == n_places && n_places < MAX_PLACES) places[n_places++] = (struct place){file, line};
    return i != left_out;
}

/* A product in which each warp fills each of its stages at least twice; *n: barriers. Returns how many are not missed. */
static uint32_t check_barriers(const kernel *k, uint32_t *n)
{
    static product p;
    char report[AE_EMU_REPORT];
    uint32_t n_unnoticed = 0;
    product_make(&p, k, 32 * k->run_blocks * 2 * k->stages * k->team, 8 * k->c, 1, A_RANDOM,
                 (const uint32_t[2]){16 * AE_MMA_WARPS / k->team, 0}, false);
    n_places = 0, left_out = MAX_PLACES;
    ae_emu_is_there = is_there;
    assert_int_equal(product_run(&p, 0, report), 0);
    for (left_out = 0; left_out < n_places; left_out++) {
        uint64_t order = 0;
        while (order < N_ORDERS && !product_run(&p, order, report)) order++;
        if (order < N_ORDERS) continue;
        print_error("not missed: kernel %s, %s:%d\n", k->run.name, places[left_out].file, places[left_out].line);
        n_unnoticed++;
    }
    ae_emu_is_there = NULL;
    product_free(&p);
    *n += n_places;
    return n_unnoticed;
}

static void test_each_barrier_is_needed(void **state)
{
    uint32_t n_unnoticed = 0, n = 0, n_kernels = 0;
    (void)state;
    for (size_t k = 0; k < N_KERNELS; k += (size_t)AE_TEST_EVERY, n_kernels++) n_unnoticed += check_barriers(&kernels[k], &n);
    print_message("%u kernels with %u barriers, %u not missed\n", n_kernels, n, n_unnoticed);
    assert_int_equal(n_unnoticed, 0);
}
#else
static void test_each_barrier_is_needed(void **state)
{
    (void)state;
    skip();
}
#endif

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_each_barrier_is_needed)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
#else
int main(void)
{
    printf("skipped: this build has no emulation of GPUs\n");
    return 77;
}
#endif
