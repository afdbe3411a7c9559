/* weight_mma.c - packs weights for the products by matrix instructions. See kernels/args_mma.h for the form.
 *
 * Owns the form's bytes; the memory is the caller's. Packing goes through the integer view of each type (quant/types.h) and is
 * exact. */
#include "backend/gpu/weight_mma.h"

#include <string.h>

#include "base/mem.h"
#include "quant/types.h"
#include "quant/unit.h"

typedef struct form {
    uint32_t type; /* ae_type */
    bool wide, has_min, has_table;
    uint32_t bits, codes, high, scales; /* bytes of the parts of a record */
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

/* The codes of 32 k of a row as the words of its four lanes: nibbles, and two bits of each code above them. */
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

/* Block b of 32 k of row `row` of the granule. */
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
        const uint16_t upper = (uint16_t)(bits >> 16); /* a power of two from 2^-128 on: the others are zero */
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

/* The index of each value of a type with a table. */
static void index_of(const form *f, uint8_t index[256])
{
    const int8_t *values = f->type == AE_TYPE_MXFP4 ? ae_quant_fp4_values : ae_quant_iq4_values;
    memset(index, 0, 256);
    for (int i = 15; i >= 0; i--) index[(uint8_t)values[i]] = (uint8_t)i;
}

static void pack_row(const form *f, const uint8_t index[256], const uint8_t *plain, uint32_t n_in, uint32_t row, uint8_t *granule)
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
    uint32_t c, run, team, stages, blocks;
} variant;

/* [type][c = 1, 2, 4, 8] */
static const variant variants[AE_MMA_N_TYPES * 4] = {
#define VARIANT(name, NAME, c, run, team, stages, blocks) {AE_GPU_mma_##name##_##c, c, run, team, stages, blocks},
    AE_MMA_ALL_32(VARIANT)
    AE_MMA_ALL_256(VARIANT)
#undef VARIANT
};

static uint32_t shared_bytes(const form *f, const variant *v)
{
    const uint32_t n = v->run / (f->wide ? 8 : 2);
    return AE_MMA_SHARED((uint32_t)record_bytes(f) * n, (f->wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD) * n, v->c, v->team, v->stages);
}

/* Blocks in y of a launch: as many as run at once, each of which goes through its share of the granules. */
static uint32_t resident(const ae_gpu_backend *backend, const form *f, const variant *v, uint32_t tiles)
{
    const uint32_t by_shared = backend->facts.max_shared_bytes / shared_bytes(f, v), n = by_shared < v->blocks ? by_shared : v->blocks;
    const uint32_t all = backend->facts.n_multiprocessors * n;
    return all > tiles ? all / tiles : 1;
}

bool ae_gpu_mma_takes(const ae_weight_source *source, const ae_gpu_facts *facts)
{
    const form *f = form_of(source->type);
    if (!f || !facts->int8_mma || !source->n_in || source->n_in % (f->wide ? 256 : 32)) return false;
    const variant *v = variants + (f - forms) * 4;
    for (uint32_t i = 0; i < 4; i++)
        if (shared_bytes(f, &v[i]) > facts->max_shared_bytes) return false;
    return true;
}

/* Jobs of one type and one number of rows. */
static void launch(ae_stream *stream, const form *f, const ae_gpu_rows *rows, const ae_gpu_job *const *jobs, uint32_t n_jobs)
{
    const uint32_t n_rows = jobs[0]->n_rows, i = n_rows <= 8 ? 0 : n_rows <= 16 ? 1 : n_rows <= 32 ? 2 : 3;
    const variant *v = &variants[(f - forms) * 4 + i];
    const uint32_t teams = AE_MMA_WARPS / v->team;
    const uint8_t *x = f->wide ? rows->r256 : rows->r32;
    ae_mma_args args = {.n_jobs = n_jobs, .n_rows = n_rows, .n_records = n_records(f, rows->n_in)};
    args.group_bytes = f->wide ? AE_MMA_GROUP_BYTES_256(rows->n_in) : AE_MMA_GROUP_BYTES(rows->n_in);
    uint32_t end = 0;
    for (uint32_t j = 0; j < n_jobs; j++) {
        const ae_gpu_job *job = jobs[j];
        end += ((job->n_out + 15) / 16 + teams - 1) / teams * teams;
        args.job[j] = (ae_mma_job){.weight = job->weight, .rows = x + (size_t)(job->first_row / 8) * args.group_bytes,
                                   .y = job->y, .bias = job->bias, .n_out = job->n_out, .y_stride = (uint32_t)job->y_stride,
                                   .end = end, .add = job->add, .has_scale = job->has_scale, .scale = job->scale};
    }
    const uint32_t tiles = (n_rows + 8 * v->c - 1) / (8 * v->c), most = resident(stream->backend, f, v, tiles);
    ae_gpu_launch(stream, v->kernel, tiles, end / teams < most ? end / teams : most, 1, shared_bytes(f, v), &args);
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
