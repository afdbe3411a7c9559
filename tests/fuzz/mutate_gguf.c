/* mutate_gguf.c - damaged GGUF files by the thousand, always the same ones for the same seed.
 *
 *     mutate_gguf N SEED [file...]
 *
 * Takes small generated files (and the files given), finds with the reader itself where their
 * counts, lengths, types, dimensions and offsets stand, damages one to four things at a time and
 * hands the mutant to `use`. Prints "N mutants: A opened, B refused". Exit status 1 with a
 * sentence that names the mutant when something does not hold: a broken promise of gguf.h, an
 * allocation out of proportion, a leak, more than two seconds for one mutant.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "fail_alloc.h"
#include "gguf_make.h"

/* ---- What is done with a mutant --------------------------------------------------------------- */

typedef enum outcome { REFUSED, OPENED, BROKEN } outcome;
/* Opens and uses bytes[n]; for BROKEN sets *why. Another use (loading a model) goes in beside this one. */
typedef outcome use_fn(const uint8_t *bytes, size_t n, const char **why);

static outcome use_gguf(const uint8_t *bytes, size_t n, const char **why)
{
    ae_gguf *gguf;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, bytes, n, "mutant.gguf", &error);
    if (status != AERIE_OK) {
        bool told = !gguf && error.status == status && strstr(error.text, "mutant.gguf: ");
        *why = "it was refused without a proper error record";
        if (status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED || status == AERIE_ERROR_LIMIT) return told ? REFUSED : BROKEN;
        *why = "it was refused with a status that does not suit";
        return BROKEN;
    }
    *why = gguf_check_all(gguf, bytes, n);
    ae_gguf_close(gguf);
    return *why ? BROKEN : OPENED;
}

/* ---- Where things stand in a good file -------------------------------------------------------- */

typedef enum field_kind { COUNT, LENGTH, VALUE_TYPE, TENSOR_TYPE, DIMENSION, OFFSET, NAME, VALUE } field_kind;

typedef struct field {
    size_t at;
    uint32_t bytes;
    field_kind kind;
} field;

typedef struct base_file {
    uint8_t *data; /* [n] owned */
    size_t n, n_meta; /* n_meta: bytes before tensor data */
    field *fields;    /* [n_fields] owned */
    size_t n_fields, capacity;
} base_file;

static void add_field(base_file *b, const void *at, uint32_t bytes, field_kind kind)
{
    if (b->n_fields == b->capacity) {
        b->capacity = b->capacity ? 2 * b->capacity : 64;
        b->fields = realloc(b->fields, b->capacity * sizeof *b->fields);
        if (!b->fields) exit(1);
    }
    b->fields[b->n_fields++] = (field){(size_t)((const uint8_t *)at - b->data), bytes, kind};
}

static void add_kv_fields(base_file *b, const ae_gguf_kv *kv)
{
    const char *type = kv->key.data + kv->key.n;
    add_field(b, kv->key.data - 8, 8, LENGTH);
    add_field(b, type, 4, VALUE_TYPE);
    if (kv->key.n) add_field(b, kv->key.data, (uint32_t)kv->key.n, NAME);
    if (kv->type == AE_GGUF_ARRAY) {
        add_field(b, type + 4, 4, VALUE_TYPE);
        add_field(b, type + 8, 8, COUNT);
    }
    ae_gguf_string text;
    size_t cursor = 0;
    for (int i = 0; i < 64 && ae_gguf_kv_next_string(kv, &cursor, &text); i++) add_field(b, text.data - 8, 8, LENGTH);
    if (kv->type != AE_GGUF_ARRAY && kv->type != AE_GGUF_STRING) add_field(b, kv->data, (uint32_t)kv->bytes, VALUE);
}

static void add_tensor_fields(base_file *b, const ae_gguf_tensor *t)
{
    const char *p = t->name.data + t->name.n;
    add_field(b, t->name.data - 8, 8, LENGTH);
    if (t->name.n) add_field(b, t->name.data, (uint32_t)t->name.n, NAME);
    add_field(b, p, 4, COUNT);
    for (uint32_t i = 0; i < t->n_dims; i++) add_field(b, p + 4 + 8 * i, 8, DIMENSION);
    add_field(b, p + 4 + 8 * t->n_dims, 4, TENSOR_TYPE);
    add_field(b, p + 8 + 8 * t->n_dims, 8, OFFSET);
    if (t->offset < b->n_meta) b->n_meta = (size_t)t->offset;
}

/* Takes over data. False if it is not a good GGUF file. */
static bool base_init(base_file *b, uint8_t *data, size_t n, const char *name)
{
    ae_gguf *gguf;
    aerie_error error;
    *b = (base_file){.data = data, .n = n, .n_meta = n};
    if (ae_gguf_open_memory(&gguf, data, n, name, &error) != AERIE_OK) {
        fprintf(stderr, "mutate_gguf: %s\n", error.text);
        return false;
    }
    add_field(b, data + 4, 4, COUNT);
    add_field(b, data + 8, 8, COUNT);
    add_field(b, data + 16, 8, COUNT);
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) add_kv_fields(b, ae_gguf_kv_at(gguf, i));
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) add_tensor_fields(b, ae_gguf_tensor_at(gguf, i));
    ae_gguf_close(gguf);
    return true;
}

/* ---- Damage ----------------------------------------------------------------------------------- */

typedef struct mutant {
    uint8_t *data; /* [n] */
    size_t n, capacity;
} mutant;

static uint64_t below(uint64_t *state, uint64_t n)
{
    return n ? gguf_make_random(state) % n : 0;
}

static uint64_t odd_number(uint64_t *state, size_t n)
{
    static const uint64_t list[] = {
        0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 255, 256, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000u, 0xffffffffu,
        0x100000000u, 0x100000001u, 0x40000000001u, 0x1fffffffffffffffu, 0x2000000000000000u, 0x2000000000000001u,
        0x3fffffffffffffffu, 0x4000000000000000u, 0x7fffffffffffffe0u, 0x7fffffffffffffffu, 0x8000000000000000u,
        0xffffffffffffffe0u, 0xfffffffffffffff8u, 0xffffffffffffffffu,
    };
    switch (below(state, 4)) {
    case 0: return n + below(state, 65) - 32;
    case 1: return gguf_make_random(state) >> below(state, 64);
    default: return list[below(state, sizeof list / sizeof list[0])];
    }
}

static const field *pick(const base_file *b, uint64_t *state, field_kind kind, bool any)
{
    size_t first = below(state, b->n_fields);
    for (size_t i = 0; i < b->n_fields; i++) {
        const field *f = &b->fields[(first + i) % b->n_fields];
        if (any || f->kind == kind) return f;
    }
    return NULL;
}

static void put(mutant *m, const field *f, uint64_t value)
{
    size_t bytes = f->bytes < 8 ? f->bytes : 8;
    if (f->at + bytes <= m->n) memcpy(m->data + f->at, &value, bytes);
}

static uint64_t get(const mutant *m, const field *f)
{
    uint64_t value = 0;
    size_t bytes = f->bytes < 8 ? f->bytes : 8;
    if (f->at + bytes <= m->n) memcpy(&value, m->data + f->at, bytes);
    return value;
}

/* Replaces `cut` bytes at `at` by bytes[n]. */
static void splice(mutant *m, size_t at, size_t cut, const uint8_t *bytes, size_t n)
{
    if (at > m->n || cut > m->n - at || m->n - cut + n > m->capacity) return;
    memmove(m->data + at + n, m->data + at + cut, m->n - at - cut);
    if (n) memcpy(m->data + at, bytes, n);
    m->n = m->n - cut + n;
}

/* One field gets what another of its kind holds: overlapping tensors, equal names, swapped types. */
static void copy_field(mutant *m, const base_file *b, uint64_t *state, field_kind kind)
{
    const field *from = pick(b, state, kind, false), *to = pick(b, state, kind, false);
    if (!from || !to || from->at + from->bytes > b->n || to->at + to->bytes > m->n) return;
    if (kind == NAME && from->bytes != to->bytes && to->at >= 8) {
        uint64_t n = from->bytes;
        memcpy(m->data + to->at - 8, &n, sizeof n);
        splice(m, to->at, to->bytes, b->data + from->at, from->bytes);
    } else {
        memcpy(m->data + to->at, b->data + from->at, from->bytes < to->bytes ? from->bytes : to->bytes);
    }
}

static void damage(mutant *m, const base_file *b, const base_file *other, uint64_t *state)
{
    size_t region = below(state, 4) ? b->n_meta : m->n;
    size_t at = below(state, region < m->n ? region : m->n), length = 1 + below(state, 40);
    const field *f = pick(b, state, COUNT, true);
    switch (below(state, 13)) {
    case 0:
        if (at < m->n) m->data[at] ^= (uint8_t)(1u << below(state, 8));
        break;
    case 1: m->n = below(state, 2) ? at : f->at < m->n ? f->at : m->n; break;
    case 2: put(m, f, odd_number(state, m->n)); break;
    case 3: put(m, f, get(m, f) + below(state, 9) - 4); break;
    case 4:
        if ((f = pick(b, state, VALUE_TYPE, false))) put(m, f, below(state, 15));
        break;
    case 5:
        if ((f = pick(b, state, TENSOR_TYPE, false))) put(m, f, below(state, 46));
        break;
    case 6:
        if ((f = pick(b, state, DIMENSION, false))) put(m, f, odd_number(state, m->n));
        break;
    case 7:
        if ((f = pick(b, state, OFFSET, false))) put(m, f, odd_number(state, m->n) & ~(uint64_t)31);
        break;
    case 8: copy_field(m, b, state, below(state, 2) ? OFFSET : NAME); break;
    case 9: copy_field(m, b, state, below(state, 2) ? LENGTH : VALUE_TYPE); break;
    case 10: { /* a piece of a file, here or elsewhere, over or between what stands there */
        size_t from = below(state, other->n), n = below(state, 4) ? length : below(state, other->n_meta);
        if (n > other->n - from) n = other->n - from;
        splice(m, at, below(state, 2) && n <= m->n - at ? n : 0, other->data + from, n);
        break;
    }
    case 11: splice(m, at, length, NULL, 0); break;
    default:
        for (size_t i = 0; i < length && at + i < m->n; i++) m->data[at + i] = (uint8_t)gguf_make_random(state);
        break;
    }
}

/* ---- The run ---------------------------------------------------------------------------------- */

/* The mutant in a block of exactly its size, so that a sanitizer sees the first byte read too far. */
static bool try_mutant(const mutant *m, use_fn *use, uint64_t number, uint64_t count[2])
{
    const char *why = "";
    uint8_t *bytes = malloc(m->n ? m->n : 1);
    if (!bytes) exit(1);
    memcpy(bytes, m->data, m->n);
    double start = ae_time_now();
    fail_alloc_arm(0, false);
    outcome result = use(bytes, m->n, &why);
    fail_alloc_disarm();
    double seconds = ae_time_now() - start;
    free(bytes);
    if (result != BROKEN) {
        count[result]++;
        why = fail_alloc_live() ? "memory was left behind"
              : fail_alloc_largest() > 4 * m->n + 4096 ? "an allocation was more than 4 times the file"
              : seconds > 2 ? "it took more than two seconds" : NULL;
    }
    if (why) fprintf(stderr, "mutate_gguf: mutant %" PRIu64 " (%zu bytes): %s\n", number, m->n, why);
    return !why;
}

static uint8_t *read_all(const char *path, size_t *n)
{
    ae_file_map map;
    aerie_error error;
    if (ae_file_map_open(&map, path, false, &error) != AERIE_OK) {
        fprintf(stderr, "mutate_gguf: %s\n", error.text);
        return NULL;
    }
    uint8_t *data = malloc(map.bytes ? map.bytes : 1);
    if (data) memcpy(data, map.data, map.bytes);
    *n = map.bytes;
    ae_file_map_close(&map);
    return data;
}

#define N_SAMPLES 16

static int run(uint64_t n, uint64_t seed, base_file *bases, size_t n_bases, use_fn *use)
{
    uint64_t count[2] = {0}, broken = 0;
    mutant m = {0};
    for (size_t i = 0; i < n_bases; i++)
        if (2 * bases[i].n + 65536 > m.capacity) m.capacity = 2 * bases[i].n + 65536;
    m.data = malloc(m.capacity);
    if (!m.data) return 1;
    for (uint64_t i = 0; i < n && broken < 10; i++) {
        uint64_t state = seed * 0x9e3779b97f4a7c15u + i; /* each mutant stands alone: it can be made again */
        const base_file *b = &bases[below(&state, n_bases)], *other = &bases[below(&state, n_bases)];
        memcpy(m.data, b->data, b->n);
        m.n = b->n;
        for (uint64_t k = 1 + below(&state, 4); k > 0; k--) damage(&m, b, other, &state);
        broken += !try_mutant(&m, use, i, count);
    }
    free(m.data);
    printf("%" PRIu64 " mutants: %" PRIu64 " opened, %" PRIu64 " refused\n", count[OPENED] + count[REFUSED],
           count[OPENED], count[REFUSED]);
    return broken ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: mutate_gguf N SEED [file...]\n", stderr);
        return 2;
    }
    uint64_t n = strtoull(argv[1], NULL, 10), seed = strtoull(argv[2], NULL, 10);
    size_t n_bases = 0, n_most = N_SAMPLES + (size_t)(argc - 3);
    base_file *bases = calloc(n_most, sizeof *bases);
    int status = bases ? 0 : 1;
    for (size_t i = 0; i < n_most && status == 0; i++) {
        uint8_t *data;
        size_t bytes;
        const char *name = i < N_SAMPLES ? "sample" : argv[3 + i - N_SAMPLES];
        if (i < N_SAMPLES) {
            ae_buf buf = {0};
            gguf_make_sample(&buf, seed * N_SAMPLES + i);
            data = (uint8_t *)buf.data; /* malloc'd: as good as read_all's */
            bytes = buf.n;
        } else {
            data = read_all(name, &bytes);
        }
        status = data && base_init(&bases[n_bases++], data, bytes, name) ? 0 : 1;
    }
    if (status == 0) status = run(n, seed, bases, n_bases, use_gguf);
    for (size_t i = 0; i < n_bases; i++) {
        free(bases[i].data);
        free(bases[i].fields);
    }
    free(bases);
    return status;
}
