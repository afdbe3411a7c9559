/* weight.c - the CPU backend's weights: chooses the form of each, fills it, and multiplies by weights in place.
 * A matrix for products is packed (kernels.h) if its type has a packed form for which the level has a kernel; else it
 * keeps the file's layout, like tables for lookups. A weight with the file's layout is used in place if the file is mapped, and
 * copied otherwise. A weight in place whose type has a packed form is packed into scratch, a panel at a time, whenever a
 * product needs it: the same kernels read the same bytes, so the output is the same; the cost is packing in every pass. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

static ae_mm_fn *packed_kernel(const ae_kernels *k, const ae_weight_source *source, ae_packed *packed)
{
    if (!(source->use & AE_WEIGHT_MATMUL) || !ae_pack_plan(source->type, source->n_out, source->n_in, packed)) return NULL;
    const int wide_codes = packed->code_bits == 8;
    return ae_type_get(source->type)->dot == AE_DOT_32 ? k->mm_p16_32[wide_codes] : k->mm_p16_256[wide_codes];
}

static ae_mm_fn *plain_kernel(const ae_kernels *k, uint32_t type)
{
    switch (type) {
    case AE_TYPE_F32: return k->mm_f32;
    case AE_TYPE_F16: return k->mm_f16;
    case AE_TYPE_BF16: return k->mm_bf16;
    default: return k->mm_plain;
    }
}

/* Bytes of each part of a weight's memory, in order. */
typedef struct parts {
    size_t codes, scales, plain;
} parts;

static parts parts_of(const ae_weight_source *source, const ae_packed *packed, bool is_packed)
{
    const bool in_place = source->use & AE_WEIGHT_IN_PLACE && source->data;
    parts p = {0};
    if (is_packed && !in_place) {
        p.codes = ae_code_bytes(packed);
        p.scales = packed->scale_stride * packed->n_panels;
    }
    if (!source->data && (!is_packed || source->use & AE_WEIGHT_LOOKUP))
        p.plain = (source->n_out * ae_type_row_bytes(source->type, source->n_in) + 63) & ~(size_t)63;
    return p;
}

size_t ae_cpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source)
{
    ae_packed packed;
    const bool is_packed = packed_kernel(&ae_cpu(backend)->kernels, source, &packed) != NULL;
    const parts p = parts_of(source, &packed, is_packed);
    return p.codes + p.scales + p.plain;
}

aerie_status ae_cpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error)
{
    const ae_kernels *k = &ae_cpu(backend)->kernels;
    const ae_type_info *info = ae_type_get(source->type);
    *out = NULL;
    if (!info || !info->decode || (source->use & AE_WEIGHT_MATMUL && info->dot == AE_DOT_NONE))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "tensor type %s cannot hold weights",
                       ae_type_name(source->type) ? ae_type_name(source->type) : "(unknown)");
    ae_weight *w = ae_alloc(1, sizeof *w);
    if (!w) return ae_fail_memory(error, "a weight", sizeof *w);
    w->type = source->type;
    w->n_out = source->n_out;
    w->n_in = source->n_in;
    w->dot = info->dot;
    w->row_bytes = ae_type_row_bytes(source->type, source->n_in);
    w->tiles_from = AE_NO_TILES;
    w->has_scale = source->scale != NULL, w->scale = source->scale ? *source->scale : 1.0f;
    w->has_row_scale = source->row_scale != NULL, w->row_scale = source->row_scale ? *source->row_scale : 1.0f;
    w->mm = packed_kernel(k, source, &w->packed);
    const parts p = parts_of(source, &w->packed, w->mm != NULL);
    if (p.plain) w->own = (uint8_t *)memory + p.codes + p.scales;
    w->plain = p.plain ? w->own : source->data;
    if (!w->mm) {
        w->packed = (ae_packed){0};
        w->mm = plain_kernel(k, source->type);
    } else if (p.codes) {
        w->packed.codes = memory;
        w->packed.scales = w->packed.codes + p.codes;
        if (!(source->use & AE_WEIGHT_LOOKUP)) w->plain = NULL;
    } else {
        w->in_place = true;
    }
    const aerie_status status = w->packed.code_bits ? ae_cpu_choose((ae_cpu_backend *)backend, w, error) : AERIE_OK;
    if (status == AERIE_OK) *out = w;
    else ae_free(w);
    return status;
}

aerie_status ae_cpu_weight_fill(ae_backend *backend, ae_weight *w, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error)
{
    (void)backend, (void)error; /* none of these functions fails */
    AE_ASSERT(first % AE_PANEL == 0 && n <= w->n_out - first && (n % AE_PANEL == 0 || first + n == w->n_out));
    if (w->own) memcpy(w->own + first * w->row_bytes, rows, n * w->row_bytes);
    if (w->packed.codes)
        ae_pack_panels(w->type, rows, w->n_out, w->n_in, &w->packed, first / AE_PANEL, ae_weight_n_panels(first + n));
    return AERIE_OK;
}

void ae_cpu_weight_free(ae_backend *backend, ae_weight *weight)
{
    (void)backend;
    ae_free(weight);
}

/* Returns the size of the codes of one panel, when they are in order. */
static size_t code_bytes_of(const ae_packed *p)
{
    return (size_t)p->n_blocks * p->code_bits * AE_LINE;
}

size_t ae_weight_panel_bytes(uint32_t n_in)
{
    size_t most = 0;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        ae_packed p;
        if (ae_pack_plan(type, AE_PANEL, n_in, &p) && code_bytes_of(&p) + p.scale_stride > most)
            most = code_bytes_of(&p) + p.scale_stride;
    }
    return most;
}

void ae_weight_multiply(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end,
                        uint8_t *panel)
{
    ae_mm_fn *mm = act->n_rows >= w->tiles_from ? w->mm_tiles : w->mm;
    if (!w->in_place) {
        mm(w, act, out, begin, end);
        return;
    }
    ae_weight one = *w; /* its only panel is the one in scratch */
    one.packed.codes = panel;
    one.packed.scales = panel + code_bytes_of(&w->packed);
    one.packed.n_panels = 1;
    one.packed.in_order = true;
    for (uint32_t o = begin; o < end; o += AE_PANEL) {
        ae_mm_out to = *out;
        to.y += o;
        if (to.bias) to.bias += o;
        one.n_out = end - o < AE_PANEL ? end - o : AE_PANEL;
        ae_pack_panels(w->type, w->plain + o * w->row_bytes, one.n_out, w->n_in, &one.packed, 0, 1);
        mm(&one, act, &to, 0, one.n_out);
    }
}
