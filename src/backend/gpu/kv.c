/* kv.c - the KV store of the GPU backends: pages of keys and values on the device, in the layout of kernels/kv_layout.h.
 * Owns the pages. The tables belong to cache/kv.c, and rope.c writes the rows. One allocation on the device has the pages, the
 * kernels' description of each head, and a buffer for saving or restoring one slot. */
#include "backend/gpu/kv.h"
#include "backend/alloc_fail.h"

#include "base/shape_limits.h"

#define PAGE_ALIGN 256    /* the distance between pages is a multiple of this many bytes */
#define PAGE_BLOCKS 1024u /* most blocks of a launch that copies a page */

static size_t align_up(size_t n)
{
    return (n + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
}

/* Lays out the layers in a page and in the bytes of a saved slot. Fills `layers` [n_layers] and `heads` (host) [n_blocks] where
 * they are not NULL. */
static void lay_out_pages(ae_kv_store *kv, const ae_kv_shape *shape, ae_gpu_kv_layer *layers, ae_gpu_kv_head *heads)
{
    size_t at = 0, saved_at = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        const ae_kv_layer *l = &shape->layers[i];
        const ae_kv_type type = l->one_row ? ae_kv_row_type(shape->type) : shape->type;
        const ae_gpu_kv_form form = l->plain ? ae_gpu_kv_form_plain(l->head_dim)
                                             : ae_gpu_kv_form_of(type, l->head_dim, l->n_rope, l->one_row);
        const uint32_t row_bytes = ae_gpu_kv_row_bytes(&form);
        if (layers) layers[i] = (ae_gpu_kv_layer){form, l->n_heads, at};
        for (uint32_t h = 0; h < l->n_heads; h++, n++, at += form.bytes, saved_at += row_bytes)
            if (heads) heads[n] = (ae_gpu_kv_head){form, row_bytes, at, saved_at};
    }
    kv->n_layers = shape->n_layers;
    kv->n_pages = shape->n_pages;
    kv->n_blocks = n;
    kv->page_bytes = align_up(at);
    kv->slot_bytes = saved_at;
}

/* Places the parts of the store's memory at `base`, and returns their size; `base` may be NULL. Returns SIZE_MAX if they are
 * too large. */
static size_t lay_out_memory(ae_kv_store *kv, uint8_t *base)
{
    size_t pages, bytes;
    const size_t heads = align_up(kv->n_blocks * sizeof *kv->heads);
    if (!ae_mul_size(kv->n_pages, kv->page_bytes, &pages) || !ae_add_size(pages, heads + align_up(kv->slot_bytes), &bytes))
        return SIZE_MAX;
    if (!base) return bytes;
    kv->pages = base;
    kv->heads = (ae_gpu_kv_head *)(void *)(base + pages);
    kv->slot = base + pages + heads;
    return bytes;
}

size_t ae_gpu_kv_bytes(const ae_backend *backend, const ae_kv_shape *shape)
{
    ae_kv_store kv = {0};
    (void)backend;
    lay_out_pages(&kv, shape, NULL, NULL);
    return lay_out_memory(&kv, NULL);
}

static aerie_status check_shape(const ae_kv_shape *shape, aerie_error *error)
{
    for (uint32_t i = 0; i < shape->n_layers; i++)
        if (shape->layers[i].head_dim > AE_MAX_HEAD_DIM || shape->layers[i].n_rope > AE_MAX_LATENT_ROPE)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "attention heads of %u values (%u rotated apart); %d (and %d) are "
                           "possible", shape->layers[i].head_dim, shape->layers[i].n_rope, AE_MAX_HEAD_DIM, AE_MAX_LATENT_ROPE);
    return AERIE_OK;
}

/* Allocates the store's memory on the device and uploads the description of the heads. */
static aerie_status allocate(ae_kv_store *kv, const ae_kv_shape *shape, aerie_error *error)
{
    const size_t bytes = lay_out_memory(kv, NULL);
    const ae_gpu_backend *b = kv->backend;
    ae_gpu_kv_head *heads = ae_alloc(kv->n_blocks ? kv->n_blocks : 1, sizeof *heads);
    kv->layers = ae_alloc(shape->n_layers ? shape->n_layers : 1, sizeof *kv->layers);
    if (heads && kv->layers && bytes != SIZE_MAX) kv->memory = b->driver->alloc(b->device, bytes ? bytes : 1);
    if (!kv->memory) {
        ae_free(heads);
        return ae_backend_fail_alloc(&b->base, "the KV cache", bytes, error);
    }
    lay_out_memory(kv, kv->memory);
    lay_out_pages(kv, shape, kv->layers, heads);
    const aerie_status status = kv->n_blocks ? b->driver->fill(b->device, kv->heads, heads, kv->n_blocks * sizeof *heads, error)
                                             : AERIE_OK;
    ae_free(heads);
    return status;
}

aerie_status ae_gpu_kv_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error)
{
    *out = NULL;
    AE_TRY(check_shape(shape, error));
    ae_kv_store *kv = ae_alloc(1, sizeof *kv);
    if (!kv) return ae_fail_memory(error, "the KV cache", sizeof *kv);
    kv->backend = ae_gpu(backend);
    lay_out_pages(kv, shape, NULL, NULL);
    const aerie_status status = allocate(kv, shape, error);
    if (status != AERIE_OK) ae_gpu_kv_free(backend, kv);
    else *out = kv;
    return status;
}

void ae_gpu_kv_free(ae_backend *backend, ae_kv_store *kv)
{
    const ae_gpu_backend *b = ae_gpu(backend);
    if (!kv) return;
    if (kv->memory) b->driver->free(b->device, kv->memory);
    ae_free(kv->layers);
    ae_free(kv);
}

/* Copies the whole page, which is one block without gaps. */
void ae_gpu_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n)
{
    const size_t wanted = (kv->page_bytes + 4095) / 4096;
    const uint32_t blocks = wanted < PAGE_BLOCKS ? (uint32_t)wanted : PAGE_BLOCKS;
    if (!n || (uint32_t)from >= kv->n_pages || (uint32_t)to >= kv->n_pages) return;
    ae_gpu_launch(stream, AE_GPU_kv_page, blocks, 1, 1, 0,
                  &(ae_gpu_kv_page_args){kv->pages + (size_t)from * kv->page_bytes, kv->pages + (size_t)to * kv->page_bytes,
                                         kv->page_bytes});
}

void ae_gpu_kv_commit(ae_stream *stream, const ae_kv_commit_args *args)
{
    const ae_kv_store *kv = args->kv;
    ae_gpu_launch(stream, AE_GPU_kv_moves, kv->n_blocks, args->n_runs, 1, 0,
                  &(ae_gpu_kv_moves_args){.pages = kv->pages, .heads = kv->heads, .begin = args->begin,
                                          .move = args->move, .page_bytes = kv->page_bytes,
                                          .n_places = kv->n_pages * AE_KV_PAGE});
}

size_t ae_gpu_kv_slot_bytes(const ae_kv_store *kv)
{
    return kv->slot_bytes;
}

static ae_gpu_kv_slot_args slot_args(const ae_kv_store *kv, const int32_t *table, int32_t slot)
{
    return (ae_gpu_kv_slot_args){kv->pages + (size_t)table[slot / AE_KV_PAGE] * kv->page_bytes, kv->heads, kv->slot,
                                 (uint32_t)slot % AE_KV_PAGE};
}

void ae_gpu_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out)
{
    const ae_gpu_kv_slot_args args = slot_args(kv, table, slot);
    ae_gpu_launch(stream, AE_GPU_kv_save, kv->n_blocks, 1, 1, 0, &args);
    if (kv->slot_bytes) ae_gpu_download(stream, out, kv->slot, kv->slot_bytes);
}

void ae_gpu_kv_write(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes)
{
    const ae_gpu_kv_slot_args args = slot_args(kv, table, slot);
    if (kv->slot_bytes) ae_gpu_upload(stream, kv->slot, bytes, kv->slot_bytes);
    ae_gpu_launch(stream, AE_GPU_kv_restore, kv->n_blocks, 1, 1, 0, &args);
}
