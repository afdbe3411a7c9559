/* weight_mma.c - packs weights into the layout that the matrix instructions read (kernels/args_mma.h), and launches their
 * products.
 * Owns nothing: writes into the caller's memory. Packs what quant/types.h gives as codes and scales, without rounding. */
#include "backend/gpu/weight_mma.h"

#include <string.h>

#include "base/mem.h"
#include "quant/types.h"
#include "quant/unit.h"

typedef struct form {
    uint32_t type; /* ae_type */
    bool wide, has_min, has_table;
    uint32_t bits, codes, high, scales; /* bytes of each part of a record */
} form;

static const form forms[AE_MMA_N_TYPES] = {
#define FORM(name, NAME, wide, bits, codes, high, scales) \
    {AE_TYPE_##NAME, wide, wide ? scales == 320 : scales == 128, \
     AE_TYPE_##NAME == AE_TYPE_IQ4_NL || AE_TYPE_##NAME == AE_TYPE_IQ4_XS || AE_TYPE_##NAME == AE_TYPE_MXFP4, bits, codes, \
     high, scales},
    AE_MMA_TYPES(FORM)
#undef FORM
};

static const form *form_of(uint32_t type)
{
    for (uint32_t i = 0; i < AE_MMA_N_TYPES; i++)
        if (forms[i].type == type) return &forms[i];
    return NULL;
}

static size_t record_bytes(const form *f)
{
    return f->codes + f->high + f->scales;
}

static uint32_t n_records(const form *f, uint32_t n_in)
{
    return f->wide ? n_in / 256 : AE_MMA_PAIRS(n_in);
}

static size_t granule_bytes(const form *f, uint32_t n_in)
{
    return n_records(f, n_in) * record_bytes(f);
}

/* ---- Packing ------------------------------------------------------------------------------------ */

/* Splits the codes of 32 k of a row into the words of its four lanes: nibbles, and the two bits of each code above them. */
static void split(const form *f, const uint8_t index[256], const int8_t code[32], uint32_t nibbles[4], uint32_t high[4][2])
{
    for (uint32_t t = 0; t < 4; t++) {
        nibbles[t] = high[t][0] = high[t][1] = 0;
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t j = 0; j < 4; j++) {
                const uint8_t byte = (uint8_t)code[16 * h + 4 * t + j], c = f->has_table ? index[byte] : byte;
                nibbles[t] |= (c & 15u) << (f->has_table ? 16 * h + 4 * j : 8 * j + 4 * h);
                high[t][h] |= (c >> 4 & 3u) << 8 * j;
            }
    }
}

/* Packs block b of 32 k of row `row` of the granule. */
static void put_codes(const form *f, const uint8_t index[256], const int8_t code[32], uint32_t row, uint32_t b, uint8_t *record)
{
    const uint32_t g = row % 8, upper = row / 8, half = b % 2, pair = b / 2;
    uint32_t nibbles[4], high[4][2];
    if (f->bits == 8) {
        for (uint32_t w = 0; w < 8; w++)
            memcpy(record + half * 512 + (g * 4 + w % 4) * 16 + w / 4 * 8 + upper * 4, code + 4 * w, 4);
        return;
    }
    split(f, index, code, nibbles, high);
    for (uint32_t t = 0; t < 4; t++) {
        const uint32_t lane = g * 4 + t;
        memcpy(record + pair * 512 + lane * 16 + half * 8 + upper * 4, &nibbles[t], 4);
        if (!f->high) continue;
        uint8_t *at = record + f->codes + (f->bits == 6 ? pair / 2 * 512 + lane * 16 + pair % 2 * 8 + half * 4
                                           : f->wide    ? lane * 16 + pair * 4
                                                        : lane * 4);
        uint32_t word;
        memcpy(&word, at, 4);
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * h + upper;
            if (f->bits == 6) word |= high[t][h] << 2 * i;
            else word |= (high[t][h] & 0x01010101u) << (4 * half + i);
        }
        memcpy(at, &word, 4);
    }
}

static void put_half(uint8_t *to, float value)
{
    const uint16_t bits = ae_f32_to_f16(value);
    memcpy(to, &bits, 2);
}

static void put_scales_32(const form *f, const ae_unit *unit, uint32_t row, uint32_t half, uint8_t *scales)
{
    uint8_t *at = scales + row % 8 * (f->has_min ? 16 : 8) + half * 4 + row / 8 * 2;
    if (f->type == AE_TYPE_MXFP4) {
        uint32_t bits;
        memcpy(&bits, &unit->d[0], 4);
        const uint16_t upper = (uint16_t)(bits >> 16); /* the scale is a power of two, at least 2^-128, so its lower 16 bits are
                                                        * zero */
        memcpy(at, &upper, 2);
        return;
    }
    put_half(at, unit->d[0]);
    if (f->has_min) put_half(at + 8, unit->m);
}

static void put_scales_256(const form *f, const ae_unit *unit, uint32_t row, uint8_t *scales)
{
    const uint32_t g = row % 8, upper = row / 8;
    uint8_t *sub = scales + (f->has_min ? 64 : 32);
    put_half(scales + g * (f->has_min ? 8 : 4) + upper * 2, unit->d[0]);
    if (f->has_min) put_half(scales + g * 8 + 4 + upper * 2, unit->dmin);
    if (ae_type_sub_block(f->type) == 16) {
        for (uint32_t j = 0; j < 16; j++) sub[upper * 128 + g * 16 + j] = (uint8_t)unit->sub[j];
        return;
    }
    for (uint32_t j = 0; j < 8; j++) {
        sub[g * 16 + upper * 8 + j] = (uint8_t)unit->sub[2 * j];
        if (f->has_min) sub[128 + g * 16 + j / 4 * 8 + upper * 4 + j % 4] = (uint8_t)unit->submin[2 * j];
    }
}

/* Finds the table index of each value that a type with a table can have. */
static void index_of(const form *f, uint8_t index[256])
{
    const int8_t *values = f->type == AE_TYPE_MXFP4 ? ae_quant_fp4_values : ae_quant_iq4_values;
    memset(index, 0, 256);
    for (int i = 15; i >= 0; i--) index[(uint8_t)values[i]] = (uint8_t)i;
}

static void pack_row(const form *f, const uint8_t index[256], const uint8_t *plain, uint32_t n_in, uint32_t row,
                     uint8_t *granule)
{
    const uint32_t n_units = n_in / (f->wide ? 256 : 32);
    ae_unit unit;
    for (uint32_t u = 0; u < n_units; u++) {
        ae_unit_unpack(f->type, plain, u, &unit);
        uint8_t *record = granule + (f->wide ? u : u / 2) * record_bytes(f), *scales = record + f->codes + f->high;
        if (f->wide) {
            for (uint32_t b = 0; b < 8; b++) put_codes(f, index, unit.code + 32 * b, row, b, record);
            put_scales_256(f, &unit, row, scales);
        } else {
            put_codes(f, index, unit.code, row, u % 2, record);
            put_scales_32(f, &unit, row, u % 2, scales);
        }
    }
}

size_t ae_gpu_mma_pack(uint32_t type, uint32_t n_in, const void *rows, uint32_t first, uint32_t n, uint8_t *to)
{
    const form *f = form_of(type);
    const size_t bytes = granule_bytes(f, n_in), row_bytes = ae_type_row_bytes(type, n_in);
    uint8_t index[256];
    index_of(f, index);
    memset(to, 0, (n + 15) / 16 * bytes);
    for (uint32_t i = 0; i < n; i++)
        pack_row(f, index, (const uint8_t *)rows + i * row_bytes, n_in, i % 16, to + i / 16 * bytes);
    return first / 16 * bytes;
}

size_t ae_gpu_mma_bytes(uint32_t type, uint32_t n_out, uint32_t n_in)
{
    const form *f = form_of(type);
    return f ? (((size_t)n_out + 15) / 16 * granule_bytes(f, n_in) + 255) / 256 * 256 : 0;
}

aerie_status ae_gpu_mma_fill(ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in, uint8_t *device,
                             const void *rows, uint32_t first, uint32_t n, aerie_error *error)
{
    const size_t bytes = granule_bytes(form_of(type), n_in), row_bytes = ae_type_row_bytes(type, n_in);
    const size_t most = ((size_t)4 << 20) / bytes, some = most ? most * 16 : 16; /* rows at a time */
    (void)n_out;
    const size_t room = ((some < n ? some : n) + 15) / 16 * bytes;
    uint8_t *packed = ae_alloc(1, room);
    if (!packed) return ae_fail_memory(error, "packing a weight", room);
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < n && status == AERIE_OK; i += (uint32_t)some) {
        const uint32_t m = n - i < some ? n - i : (uint32_t)some;
        const size_t at = ae_gpu_mma_pack(type, n_in, (const uint8_t *)rows + i * row_bytes, first + i, m, packed);
        status = backend->driver->fill(backend->device, device + at, packed, (m + 15) / 16 * bytes, error);
    }
    ae_free(packed);
    return status;
}

/* ---- Products ----------------------------------------------------------------------------------- */

typedef struct variant {
    ae_gpu_kernel kernel;
    uint32_t c, team, run, stages, most;
} variant;

typedef enum choice { ONE_8, ONE_4, ONE_1, TWO_2, TWO_1, FOUR_1 } choice; /* 8, 16 or 32 rows, warps of a team */

#define CHOICE(c, team) \
    ((c) == 1 ? ((team) == 8 ? ONE_8 : (team) == 4 ? ONE_4 : ONE_1) : (c) == 2 ? ((team) == 2 ? TWO_2 : TWO_1) : FOUR_1)

/* [type][choice] */
static const variant variants[AE_MMA_N_TYPES][AE_MMA_N_VARIANTS] = {
#define VARIANT(name, NAME, c, team, run, stages, most) \
    [AE_MMA_##NAME][CHOICE(c, team)] = {AE_GPU_mma_##name##_##c##_##team, c, team, run, stages, most},
    AE_MMA_ALL_32(VARIANT)
    AE_MMA_ALL_256(VARIANT)
#undef VARIANT
};

static uint32_t shared_bytes(const form *f, const variant *v)
{
    const uint32_t n = v->run / (f->wide ? 8 : 2), row_record = f->wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD;
    return AE_MMA_SHARED((uint32_t)record_bytes(f) * n, row_record * n, v->c, v->team, v->stages);
}

/* Returns the variant for n_granules and n_rows, of those that fit in shared memory; NULL: none does. */
static const variant *choose(const form *f, const ae_gpu_facts *facts, uint32_t n_granules, uint32_t n_rows)
{
    static const choice next[] = {ONE_8, ONE_4, TWO_1, ONE_1, TWO_2, FOUR_1};
    const variant *of_type = variants[f - forms];
    const uint64_t load = (uint64_t)n_granules * ((n_rows + 7) / 8), n = facts->n_multiprocessors; /* granules for 8 rows */
    choice best;
    if (n_rows <= 8) best = 2 * load < 5 * n ? ONE_8 : load < 6 * n || facts->early ? ONE_4 : ONE_1;
    else if (load < 10 * n) best = load < 2 * n ? ONE_8 : load < 5 * n ? ONE_4 : TWO_2;
    else best = n_rows <= 16 || load < 40 * n ? TWO_1 : FOUR_1;
    if (shared_bytes(f, &of_type[best]) <= facts->max_shared_bytes) return &of_type[best];
    for (uint32_t i = 0; i < AE_MMA_N_VARIANTS; i++)
        if (shared_bytes(f, &of_type[next[i]]) <= facts->max_shared_bytes) return &of_type[next[i]];
    return NULL;
}

/* Returns the number of blocks in y of a launch: as many as run at once; each works through its share of the granules. */
static uint32_t n_resident(const ae_gpu_facts *facts, uint32_t shared, const variant *v, uint32_t n_tiles)
{
    const uint32_t by_shared = facts->max_shared_bytes / shared, n = by_shared < v->most ? by_shared : v->most;
    const uint32_t all = facts->n_multiprocessors * n;
    return all > n_tiles ? all / n_tiles : 1;
}

bool ae_gpu_mma_takes(const ae_weight_source *source, const ae_gpu_facts *facts)
{
    const form *f = form_of(source->type);
    if (!f || (source->use & AE_WEIGHT_EXPERT && shared_bytes(f, &variants[f - forms][ONE_4]) > facts->max_shared_bytes))
        return false;
    return facts->int8_mma && source->n_in && source->n_in % (f->wide ? 256 : 32) == 0 && choose(f, facts, 1, 1);
}

/* Launches the jobs, which have one type and one number of rows. */
static void launch(ae_stream *stream, const form *f, const ae_gpu_rows *rows, const ae_gpu_job *const *jobs, uint32_t n_jobs)
{
    const ae_gpu_facts *facts = &stream->backend->facts;
    const uint32_t n_rows = jobs[0]->n_rows;
    uint32_t n_granules = 0, end = 0;
    for (uint32_t j = 0; j < n_jobs; j++) n_granules += (jobs[j]->n_out + 15) / 16;
    const variant *v = choose(f, facts, n_granules, n_rows);
    const uint32_t teams = AE_MMA_WARPS / v->team, n_tiles = (n_rows + 8 * v->c - 1) / (8 * v->c), shared = shared_bytes(f, v);
    const uint8_t *x = f->wide ? rows->r256 : rows->r32;
    ae_mma_args args = {.n_jobs = n_jobs, .n_rows = n_rows, .n_records = n_records(f, rows->n_in),
                        .early = facts->early};
    args.group_bytes = f->wide ? AE_MMA_GROUP_BYTES_256(rows->n_in) : AE_MMA_GROUP_BYTES(rows->n_in);
    for (uint32_t j = 0; j < n_jobs; j++) {
        const ae_gpu_job *job = jobs[j];
        end += ((job->n_out + 15) / 16 + teams - 1) / teams * teams;
        args.job[j] = (ae_mma_job){.weight = job->weight, .rows = x + (size_t)(job->first_row / 8) * args.group_bytes,
                                   .y = job->y, .bias = job->bias, .n_out = job->n_out, .y_stride = (uint32_t)job->y_stride,
                                   .end = end, .add = job->add, .has_scale = job->has_scale, .scale = job->scale};
    }
    const uint32_t n = end / teams, most = n_resident(facts, shared, v, n_tiles), n_blocks = n < most ? n : most;
    args.each = n / n_blocks, args.more = n % n_blocks;
    ae_gpu_launch(stream, v->kernel, n_tiles, n_blocks, 1, shared, &args);
}

void ae_gpu_mma_run(ae_stream *stream, const ae_gpu_rows *rows, const ae_gpu_job *jobs, uint32_t n_jobs)
{
    for (uint32_t i = 0; i < n_jobs; i++) {
        const ae_gpu_job *some[AE_MMA_JOBS];
        uint32_t n = 0;
        bool done = false;
        for (uint32_t j = 0; j < i && !done; j++) done = jobs[j].type == jobs[i].type && jobs[j].n_rows == jobs[i].n_rows;
        if (done) continue;
        for (uint32_t j = i; j < n_jobs; j++) {
            if (jobs[j].type != jobs[i].type || jobs[j].n_rows != jobs[i].n_rows) continue;
            some[n++] = &jobs[j];
            if (n < AE_MMA_JOBS) continue;
            launch(stream, form_of(jobs[i].type), rows, some, n);
            n = 0;
        }
        if (n) launch(stream, form_of(jobs[i].type), rows, some, n);
    }
}

/* ---- Products of experts (moe.c) ---------------------------------------------------------------- */

/* [type][tiles of 8 rows, of 32] */
static const ae_gpu_kernel experts_kernels[AE_MMA_N_TYPES][2] = {
#define EXPERTS(name, NAME, ...) [AE_MMA_##NAME] = {AE_GPU_experts_mma_##name##_1, AE_GPU_experts_mma_##name##_4},
    AE_MMA_TYPES(EXPERTS)
#undef EXPERTS
};

ae_gpu_mma_experts ae_gpu_mma_experts_of(const ae_gpu_facts *facts, uint32_t type, uint32_t n_in, uint32_t n_rows)
{
    const form *f = form_of(type);
    const variant *of_type = variants[f - forms];
    const bool many = n_rows > 8 && shared_bytes(f, &of_type[FOUR_1]) <= facts->max_shared_bytes;
    const variant *v = &of_type[many ? FOUR_1 : ONE_4];
    return (ae_gpu_mma_experts){.kernel = experts_kernels[f - forms][many], .n_rows = 8 * v->c, .teams = AE_MMA_WARPS / v->team,
                                .n_shared = shared_bytes(f, v), .n_records = n_records(f, n_in),
                                .group_bytes = f->wide ? AE_MMA_GROUP_BYTES_256(n_in) : AE_MMA_GROUP_BYTES(n_in)};
}
