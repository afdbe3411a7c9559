/* weight.c - weights of the GPU backends: chooses the form of each weight, and fills it.
 * A weight for products has the layout of the matrix instructions if its type has one (weight_mma.h), else a generic form. A
 * table for lookups keeps the file's rows or the generic form; beside the matrix layout that is a second copy. Rows of the
 * source are never used in place. Owns the weight's record; the device memory belongs to the caller. */
#include "backend/gpu/weight.h"

#include <string.h>

#include "backend/gpu/weight_mma.h"
#include "base/mem.h"
#include "quant/types.h"

/* The forms of a weight, and the device bytes of each. If `table` is 0, lookups use the form for products. */
typedef struct forms {
    ae_gpu_form product_form, table_form;
    size_t product, table;
} forms;

static forms forms_of(const ae_gpu_backend *backend, const ae_weight_source *source)
{
    forms f = {0};
    const ae_gpu_form generic = ae_gpu_generic_form(source->type);
    const size_t generic_bytes = ae_gpu_generic_bytes(backend, source->type, source->n_out, source->n_in);
    if (source->use & AE_WEIGHT_MATMUL) {
        const bool mma = ae_gpu_mma_takes(source, &backend->facts);
        f.product_form = mma ? AE_GPU_FORM_MMA : generic;
        f.product = mma ? ae_gpu_mma_bytes(source->type, source->n_out, source->n_in) : generic_bytes;
    }
    if (source->use & AE_WEIGHT_LOOKUP) {
        const bool file = f.product_form != generic && ae_gpu_file_form(source->type);
        const size_t rows = (source->n_out * ae_type_row_bytes(source->type, source->n_in) + 63) & ~(size_t)63;
        f.table_form = file ? AE_GPU_FORM_FILE : generic;
        if (f.table_form != f.product_form) f.table = file ? rows : generic_bytes;
    }
    return f;
}

size_t ae_gpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source)
{
    const forms f = forms_of(ae_gpu(backend), source);
    return f.product + f.table;
}

aerie_status ae_gpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error)
{
    const ae_type_info *info = ae_type_get(source->type);
    *out = NULL;
    if (!info || !info->decode || (source->use & AE_WEIGHT_MATMUL && info->dot == AE_DOT_NONE))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "tensor type %s cannot hold weights",
                       ae_type_name(source->type) ? ae_type_name(source->type) : "(unknown)");
    ae_weight *w = ae_alloc(1, sizeof *w);
    if (!w) return ae_fail_memory(error, "a weight", sizeof *w);
    const forms f = forms_of(ae_gpu(backend), source);
    w->type = source->type;
    w->n_out = source->n_out;
    w->n_in = source->n_in;
    w->form = f.product_form;
    w->table_form = f.table_form;
    w->product = memory;
    w->table = (uint8_t *)memory + (f.table ? f.product : 0);
    w->has_scale = source->scale != NULL, w->scale = source->scale ? *source->scale : 1.0f;
    w->has_row_scale = source->row_scale != NULL, w->row_scale = source->row_scale ? *source->row_scale : 1.0f;
    *out = w;
    return AERIE_OK;
}

static aerie_status fill_form(ae_gpu_backend *b, const ae_weight *w, ae_gpu_form form, uint8_t *device, const void *rows,
                              uint32_t first, uint32_t n, aerie_error *error)
{
    const size_t row_bytes = ae_type_row_bytes(w->type, w->n_in);
    if (form == AE_GPU_FORM_FILE) return b->driver->fill(b->device, device + first * row_bytes, rows, n * row_bytes, error);
    if (form == AE_GPU_FORM_MMA) return ae_gpu_mma_fill(b, w->type, w->n_out, w->n_in, device, rows, first, n, error);
    return ae_gpu_generic_fill(b, w->type, w->n_out, w->n_in, device, rows, first, n, error);
}

aerie_status ae_gpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error)
{
    ae_gpu_backend *b = ae_gpu(backend);
    if (weight->form != AE_GPU_FORM_NONE) AE_TRY(fill_form(b, weight, weight->form, weight->product, rows, first, n, error));
    if (weight->table_form == AE_GPU_FORM_NONE || weight->form == weight->table_form) return AERIE_OK;
    return fill_form(b, weight, weight->table_form, weight->table, rows, first, n, error);
}

void ae_gpu_weight_free(ae_backend *backend, ae_weight *weight)
{
    (void)backend;
    ae_free(weight);
}

uint32_t ae_gpu_weight_wants(const ae_weight *weight)
{
    if (weight->form == AE_GPU_FORM_256_MIN) return AE_GPU_WANT_256 | AE_GPU_WANT_16;
    switch (ae_type_get(weight->type)->dot) {
    case AE_DOT_32: return AE_GPU_WANT_32;
    case AE_DOT_256: return AE_GPU_WANT_256;
    default: return AE_GPU_WANT_X;
    }
}
