/* kv.c - the KV store of the CPU backend: pages of keys and values in memory, in the layouts of kernels.h.
 *
 * Owns: the pages. Not the tables (cache/kv.c), not what is written to the places (attention.c). A place is read
 * and moved as a row per head: K, then V, then their scales if the type has them. A row that is key and value (one_row) has no
 * V and one scale; a page has such rows one after the other, since attention copies them to pages of K and V
 * (ae_cpu_row_spread). */
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/saved.h"

/* floats of the widest place: keys and values of a head, or a latent row, in f32 */
#define MAX_ROW (AE_MAX_LATENT + AE_MAX_LATENT_ROPE)
_Static_assert(MAX_ROW >= 2 * AE_MAX_HEAD_DIM, "keys and values fit");

static size_t head_bytes(ae_kv_type type, const ae_kv_layer *l)
{
    if (l->plain || l->one_row) return AE_KV_PAGE * ae_kv_row_bytes(type, l);
    return l->n_rope ? ae_latent_bytes(type, l->head_dim, l->n_rope) : ae_kv_head_bytes(type, l->head_dim);
}

/* Returns the bytes of a page of all layers. */
static size_t page_bytes(const ae_kv_shape *s)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) bytes += head_bytes(s->type, &s->layers[i]) * s->layers[i].n_heads;
    return bytes;
}

size_t ae_cpu_kv_bytes(const ae_backend *backend, const ae_kv_shape *s)
{
    (void)backend;
    size_t bytes;
    return ae_mul_size(s->n_pages, page_bytes(s), &bytes) ? bytes : SIZE_MAX;
}

/* Sets where the layers are in a page and in the bytes of a slot. */
static void lay_out(ae_kv_store *kv, const ae_kv_shape *shape)
{
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        const ae_kv_layer *l = &shape->layers[i];
        kv->layers[i] = (ae_cpu_kv_layer){*l, head_bytes(shape->type, l), ae_kv_row_bytes(shape->type, l), kv->page_bytes};
        kv->page_bytes += kv->layers[i].head_bytes * l->n_heads;
        kv->slot_bytes += kv->layers[i].row_bytes * l->n_heads;
    }
}

/* Returns whether rows fit the buffers of the functions that handle them one by one. */
static bool fits(const ae_kv_layer *l)
{
    return l->head_dim <= (l->n_rope ? AE_MAX_LATENT : AE_MAX_HEAD_DIM) && l->n_rope <= AE_MAX_LATENT_ROPE;
}

aerie_status ae_cpu_kv_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error)
{
    *out = NULL;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        if (!fits(&shape->layers[i]))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "attention heads of %u values (%u rotated apart); %d, or %d and %d, "
                           "are possible", shape->layers[i].head_dim, shape->layers[i].n_rope, AE_MAX_HEAD_DIM, AE_MAX_LATENT,
                           AE_MAX_LATENT_ROPE);
    const size_t bytes = ae_cpu_kv_bytes(backend, shape);
    ae_kv_store *kv = ae_alloc(1, sizeof *kv);
    if (kv) kv->layers = ae_alloc(shape->n_layers ? shape->n_layers : 1, sizeof *kv->layers);
    if (!kv || !kv->layers || bytes == SIZE_MAX || !(kv->data = ae_cpu_alloc(backend, bytes ? bytes : 1))) {
        if (kv) ae_free(kv->layers);
        ae_free(kv);
        return ae_fail_memory(error, "the KV cache", bytes);
    }
    kv->n_layers = shape->n_layers;
    kv->n_pages = shape->n_pages;
    kv->type = shape->type;
    kv->bytes = bytes ? bytes : 1;
    lay_out(kv, shape);
    *out = kv;
    return AERIE_OK;
}

void ae_cpu_kv_free(ae_backend *backend, ae_kv_store *kv)
{
    if (!kv) return;
    ae_cpu_free(backend, kv->data, kv->bytes);
    ae_free(kv->layers);
    ae_free(kv);
}

void ae_cpu_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n)
{
    (void)stream, (void)n; /* the whole page is one block: simpler and as fast */
    memcpy(kv->data + (size_t)to * kv->page_bytes, kv->data + (size_t)from * kv->page_bytes, kv->page_bytes);
}

static void get_f16(const uint16_t *page, uint32_t place, uint32_t head_dim, uint16_t *row)
{
    const uint16_t *k = page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    for (uint32_t i = 0; i < head_dim; i++) row[i] = k[i * 16];
    memcpy(row + head_dim, page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim, head_dim * 2);
}

static void put_f16(uint16_t *page, uint32_t place, uint32_t head_dim, const uint16_t *row)
{
    uint16_t *k = page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    for (uint32_t i = 0; i < head_dim; i++) k[i * 16] = row[i];
    memcpy(page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim, row + head_dim, head_dim * 2);
}

static void get_f32(const float *page, uint32_t place, uint32_t head_dim, float *row)
{
    memcpy(row, page + (size_t)place * head_dim, head_dim * sizeof *row);
    memcpy(row + head_dim, page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim, head_dim * sizeof *row);
}

static void put_f32(float *page, uint32_t place, uint32_t head_dim, const float *row)
{
    memcpy(page + (size_t)place * head_dim, row, head_dim * sizeof *row);
    memcpy(page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim, row + head_dim, head_dim * sizeof *row);
}

/* Returns one of the two codes in a byte. */
static uint8_t half_get(uint8_t byte, bool high) { return high ? byte >> 4 : byte & 15; }

static void half_put(uint8_t *byte, bool high, uint8_t code)
{
    *byte = (uint8_t)(high ? (*byte & 15) | code << 4 : (*byte & 240) | code);
}

static void get_keys(uint32_t bits, const uint8_t *page, uint32_t place, uint32_t head_dim, uint8_t *row)
{
    for (uint32_t i = 0; bits == 4 && i < head_dim; i++)
        half_put(&row[i / 2], i & 1, half_get(page[ae_kv4_k_at(head_dim, place, i)], i & 4));
    for (uint32_t p = 0; p < bits / 8; p++, page += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) *row++ = page[ae_kv8_k_at(head_dim, place, i)];
}

static void get_values(uint32_t bits, const uint8_t *page, uint32_t place, uint32_t head_dim, uint8_t *row)
{
    for (uint32_t i = 0; bits == 4 && i < head_dim; i++)
        half_put(&row[i / 2], i & 1, half_get(page[ae_kv4_v_at(head_dim, place, i)], i & 16));
    for (uint32_t p = 0; p < bits / 8; p++, page += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) *row++ = page[ae_kv_v_at(head_dim, place, i)];
}

static void put_keys(uint32_t bits, uint8_t *page, uint32_t place, uint32_t head_dim, const uint8_t *row)
{
    for (uint32_t i = 0; bits == 4 && i < head_dim; i++)
        half_put(&page[ae_kv4_k_at(head_dim, place, i)], i & 4, half_get(row[i / 2], i & 1));
    for (uint32_t p = 0; p < bits / 8; p++, page += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) page[ae_kv8_k_at(head_dim, place, i)] = *row++;
}

static void put_values(uint32_t bits, uint8_t *page, uint32_t place, uint32_t head_dim, const uint8_t *row)
{
    for (uint32_t i = 0; bits == 4 && i < head_dim; i++)
        half_put(&page[ae_kv4_v_at(head_dim, place, i)], i & 16, half_get(row[i / 2], i & 1));
    for (uint32_t p = 0; p < bits / 8; p++, page += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) page[ae_kv_v_at(head_dim, place, i)] = *row++;
}

/* Reads the codes of a place: planes of the key, planes of the value, then the scales of both. The last byte of an odd number
 * of 4-bit codes has one half that is not a code and is 0. */
static void get_codes(ae_kv_type type, const uint8_t *page, uint32_t place, uint32_t head_dim, uint8_t *row)
{
    const uint32_t kb = ae_kv_key_bits(type), vb = ae_kv_value_bits(type);
    const float *d = ae_kv_scales(page, type, head_dim);
    uint8_t *values = row + ae_kv_code_bytes(kb, head_dim), *scales = values + ae_kv_code_bytes(vb, head_dim);
    memset(row, 0, (size_t)(scales - row));
    get_keys(kb, page, place, head_dim, row);
    get_values(vb, page + ae_kv_key_bytes(type, head_dim), place, head_dim, values);
    memcpy(scales, d + place, sizeof *d);
    memcpy(scales + sizeof *d, d + AE_KV_PAGE + place, sizeof *d);
}

static void put_codes(ae_kv_type type, uint8_t *page, uint32_t place, uint32_t head_dim, const uint8_t *row)
{
    const uint32_t kb = ae_kv_key_bits(type), vb = ae_kv_value_bits(type);
    const uint8_t *values = row + ae_kv_code_bytes(kb, head_dim), *scales = values + ae_kv_code_bytes(vb, head_dim);
    float *d = ae_kv_scales(page, type, head_dim);
    put_keys(kb, page, place, head_dim, row);
    put_values(vb, page + ae_kv_key_bytes(type, head_dim), place, head_dim, values);
    memcpy(d + place, scales, sizeof *d);
    memcpy(d + AE_KV_PAGE + place, scales + sizeof *d, sizeof *d);
}

/* Reads the codes of a place, plane by plane, rotated part first; then the scales of the latent and of the rotated part. */
static void get_latent(ae_kv_type type, const uint8_t *page, uint32_t place, const ae_kv_layer *l, uint8_t *row)
{
    const uint32_t n_planes = ae_latent_planes(type), rope = AE_LATENT_DIM(l->n_rope), dim = rope + AE_LATENT_DIM(l->head_dim);
    const float *d = ae_latent_scales(page, n_planes, l->head_dim, l->n_rope);
    for (uint32_t p = 0; p < n_planes; p++, page += AE_KV_PAGE * dim) {
        for (uint32_t i = 0; i < l->n_rope; i++) *row++ = page[ae_kv8_k_at(dim, place, i)];
        for (uint32_t i = 0; i < l->head_dim; i++) *row++ = page[ae_kv8_k_at(dim, place, rope + i)];
    }
    memcpy(row, d + place, sizeof *d);
    memcpy(row + sizeof *d, d + AE_KV_PAGE + place, sizeof *d);
}

static void put_latent(ae_kv_type type, uint8_t *page, uint32_t place, const ae_kv_layer *l, const uint8_t *row)
{
    const uint32_t n_planes = ae_latent_planes(type), rope = AE_LATENT_DIM(l->n_rope), dim = rope + AE_LATENT_DIM(l->head_dim);
    float *d = ae_latent_scales(page, n_planes, l->head_dim, l->n_rope);
    for (uint32_t p = 0; p < n_planes; p++, page += AE_KV_PAGE * dim) {
        for (uint32_t i = 0; i < l->n_rope; i++) page[ae_kv8_k_at(dim, place, i)] = *row++;
        for (uint32_t i = 0; i < l->head_dim; i++) page[ae_kv8_k_at(dim, place, rope + i)] = *row++;
    }
    memcpy(d + place, row, sizeof *d);
    memcpy(d + AE_KV_PAGE + place, row + sizeof *d, sizeof *d);
}

static void place_get(ae_kv_type type, const ae_kv_layer *l, const void *page, uint32_t place, void *row)
{
    const uint32_t head_dim = l->head_dim, n = head_dim + l->n_rope;
    const size_t bytes = ae_kv_row_bytes(type, l);
    if (l->plain || l->one_row) memcpy(row, (const uint8_t *)page + place * bytes, bytes);
    else if (l->n_rope && type == AE_KV_F32) memcpy(row, (const float *)page + (size_t)place * n, n * sizeof(float));
    else if (l->n_rope) get_latent(type, page, place, l, row);
    else if (ae_kv_key_bits(type)) get_codes(type, page, place, head_dim, row);
    else if (type == AE_KV_F32) get_f32(page, place, head_dim, row);
    else get_f16(page, place, head_dim, row);
}

static void place_put(ae_kv_type type, const ae_kv_layer *l, void *page, uint32_t place, const void *row)
{
    const uint32_t head_dim = l->head_dim, n = head_dim + l->n_rope;
    const size_t bytes = ae_kv_row_bytes(type, l);
    if (l->plain || l->one_row) memcpy((uint8_t *)page + place * bytes, row, bytes);
    else if (l->n_rope && type == AE_KV_F32) memcpy((float *)page + (size_t)place * n, row, n * sizeof(float));
    else if (l->n_rope) put_latent(type, page, place, l, row);
    else if (ae_kv_key_bits(type)) put_codes(type, page, place, head_dim, row);
    else if (type == AE_KV_F32) put_f32(page, place, head_dim, row);
    else put_f16(page, place, head_dim, row);
}

/* How a row that is key and value lies in a page: n bytes and its scale. */
typedef struct one_row {
    ae_kv_type type;
    size_t n, scale_bytes;
} one_row;

static one_row one_row_of(ae_kv_type type, uint32_t head_dim)
{
    const size_t scale = ae_kv_key_bits(type) ? sizeof(float) : 0;
    return (one_row){ae_kv_row_type(type), ae_kv_row_bytes(type, &(ae_kv_layer){1, head_dim, 0, false, true}) - scale, scale};
}

/* In ae_cpu_row_store `work` is a page of which place 0 is used. */
_Static_assert(AE_ATTN_WORK >= ((size_t)AE_KV_PAGE + 1) * AE_MAX_HEAD_DIM * sizeof(float), "K and the first row of V fit");

void ae_cpu_row_store(const ae_kernels *kernels, ae_kv_type type, uint32_t head_dim, const float *x, void *work, void *page,
                      uint32_t place)
{
    const one_row r = one_row_of(type, head_dim);
    float pair[2 * AE_MAX_HEAD_DIM]; /* f32 is the widest */
    const uint8_t *from = (const uint8_t *)pair;
    uint8_t *to = (uint8_t *)page + place * (r.n + r.scale_bytes);
    kernels->kv_write[r.type](x, x, head_dim, work, 0);
    place_get(r.type, &(ae_kv_layer){1, head_dim, 0, false, false}, work, 0, pair);
    memcpy(to, from, r.n);
    memcpy(to + r.n, from + 2 * r.n, r.scale_bytes);
}

void ae_cpu_row_spread(ae_kv_type type, uint32_t head_dim, const void *from, uint32_t from_place, void *to, uint32_t to_place)
{
    const one_row r = one_row_of(type, head_dim);
    const uint8_t *row = (const uint8_t *)from + from_place * (r.n + r.scale_bytes);
    float pair[2 * AE_MAX_HEAD_DIM];
    uint8_t *both = (uint8_t *)pair;
    memcpy(both, row, r.n);
    memcpy(both + r.n, row, r.n);
    memcpy(both + 2 * r.n, row + r.n, r.scale_bytes);
    memcpy(both + 2 * r.n + r.scale_bytes, row + r.n, r.scale_bytes);
    place_put(r.type, &(ae_kv_layer){1, head_dim, 0, false, false}, to, to_place, pair);
}

void ae_cpu_kv_commit(ae_stream *stream, const ae_kv_commit_args *args)
{
    (void)stream;
    const ae_kv_store *kv = args->kv;
    float row[MAX_ROW];
    for (int32_t i = args->begin[0]; i < args->begin[args->n_runs]; i++) {
        const ae_kv_move m = args->move[i];
        for (uint32_t layer = 0; layer < kv->n_layers; layer++) {
            const ae_cpu_kv_layer *l = &kv->layers[layer];
            const uint8_t *from = kv_page(kv, m.from / AE_KV_PAGE, layer);
            uint8_t *to = kv_page(kv, m.to / AE_KV_PAGE, layer);
            for (uint32_t h = 0; h < l->shape.n_heads; h++, from += l->head_bytes, to += l->head_bytes) {
                place_get(kv->type, &l->shape, from, (uint32_t)m.from % AE_KV_PAGE, row);
                place_put(kv->type, &l->shape, to, (uint32_t)m.to % AE_KV_PAGE, row);
            }
        }
    }
}

size_t ae_cpu_kv_slot_bytes(const ae_kv_store *kv)
{
    return kv->slot_bytes;
}

void ae_cpu_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out)
{
    (void)stream;
    float row[MAX_ROW]; /* an aligned copy, since `out` may be at any address */
    uint8_t *to = out;
    for (uint32_t layer = 0; layer < kv->n_layers; layer++) {
        const ae_cpu_kv_layer *l = &kv->layers[layer];
        const uint8_t *page = kv_page(kv, table[slot / AE_KV_PAGE], layer);
        const size_t n = l->row_bytes;
        for (uint32_t h = 0; h < l->shape.n_heads; h++, page += l->head_bytes, to += n) {
            place_get(kv->type, &l->shape, page, (uint32_t)slot % AE_KV_PAGE, row);
            memcpy(to, row, n);
        }
    }
}

void ae_cpu_kv_write(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes)
{
    (void)stream;
    float row[MAX_ROW]; /* an aligned copy, since `bytes` may be at any address */
    const uint8_t *from = bytes;
    for (uint32_t layer = 0; layer < kv->n_layers; layer++) {
        const ae_cpu_kv_layer *l = &kv->layers[layer];
        uint8_t *page = kv_page(kv, table[slot / AE_KV_PAGE], layer);
        const size_t n = l->row_bytes;
        for (uint32_t h = 0; h < l->shape.n_heads; h++, page += l->head_bytes, from += n) {
            memcpy(row, from, n);
            place_put(kv->type, &l->shape, page, (uint32_t)slot % AE_KV_PAGE, row);
        }
    }
}
