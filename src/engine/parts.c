#include "engine/parts.h"

#include "quant/types.h"

aerie_status ae_parts_init(ae_parts *parts, ae_backend *backend, const ae_gguf *gguf, size_t max, aerie_error *error)
{
    *parts = (ae_parts){.backend = backend, .gguf = gguf};
    parts->items = max < UINT32_MAX ? ae_alloc(max, sizeof *parts->items) : NULL;
    if (!parts->items) return ae_fail_memory(error, "the table of weights", max * sizeof *parts->items);
    parts->max = (uint32_t)max;
    return AERIE_OK;
}

void ae_parts_free(ae_parts *parts)
{
    for (uint32_t i = 0; i < parts->n; i++)
        if (parts->items[i].use) parts->backend->ops->weight_free(parts->backend, *parts->items[i].weight);
    if (parts->memory) parts->backend->ops->free(parts->backend, parts->memory, parts->bytes);
    ae_free(parts->items);
    *parts = (ae_parts){0};
}

static void add(ae_parts *parts, const ae_part *part)
{
    AE_ASSERT(parts->n < parts->max);
    parts->items[parts->n++] = *part;
}

void ae_parts_weight(ae_parts *parts, ae_tensor_ref tensor, unsigned use, ae_weight **field)
{
    if (tensor) add(parts, &(ae_part){.tensor = tensor, .use = use, .n_rows = (uint32_t)tensor->ne[1], .weight = field});
}

void ae_parts_vector(ae_parts *parts, ae_tensor_ref tensor, float **field)
{
    if (tensor) ae_parts_range(parts, tensor, 0, (uint32_t)(tensor->ne[0] * tensor->ne[1]), field);
}

void ae_parts_range(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, float **field)
{
    if (tensor) add(parts, &(ae_part){.tensor = tensor, .first = first, .n_elements = n, .vector = field});
}

void ae_parts_ones(ae_parts *parts, uint32_t n, float **field)
{
    add(parts, &(ae_part){.n_elements = n, .vector = field});
}

void ae_parts_rows(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, ae_weight **field)
{
    if (tensor)
        add(parts, &(ae_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = first, .n_rows = n, .weight = field});
}

void ae_parts_expert(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, ae_weight **field)
{
    if (tensor)
        add(parts, &(ae_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = first, .n_rows = n,
                              .is_expert = true, .weight = field});
}

void ae_parts_transposed(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, ae_weight **field)
{
    if (tensor)
        add(parts, &(ae_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = first, .n_rows = n, .transposed = true,
                              .weight = field});
}

uint32_t ae_part_type(const ae_part *part)
{
    const uint32_t type = part->tensor->type;
    const bool stays = !part->transposed || type == AE_TYPE_F32 || type == AE_TYPE_BF16;
    return stays ? type : AE_TYPE_F16; /* blocks of the other direction cannot be turned */
}

static ae_weight_source source_of(const ae_part *part)
{
    ae_tensor_ref t = part->tensor;
    if (part->transposed)
        return (ae_weight_source){ae_part_type(part), (uint32_t)t->ne[0], part->n_rows, NULL, AE_WEIGHT_MATMUL};
    const size_t at = part->first * ae_type_row_bytes(t->type, (uint64_t)t->ne[0]);
    return (ae_weight_source){t->type, part->n_rows, (uint32_t)t->ne[0], t->data ? (const uint8_t *)t->data + at : NULL,
                              part->use};
}

static size_t bytes_of(const ae_part *part, const ae_backend *backend)
{
    if (!part->use) return (part->n_elements * sizeof(float) + 63) & ~(size_t)63;
    const ae_weight_source source = source_of(part);
    return backend->ops->weight_bytes(backend, &source);
}

void ae_parts_place(ae_parts *parts, bool in_place)
{
    for (uint32_t i = 0; i < parts->n; i++) {
        ae_part *part = &parts->items[i];
        if (part->use && in_place) part->use |= AE_WEIGHT_IN_PLACE;
        part->bytes = bytes_of(part, parts->backend);
        part->offset = parts->bytes;
        parts->bytes += part->bytes;
    }
}

size_t ae_part_pass_bytes(const ae_part *part)
{
    if (part->use && !(part->use & AE_WEIGHT_MATMUL)) return 0;
    return part->bytes ? part->bytes : part->n_rows * ae_type_row_bytes(part->tensor->type, (uint64_t)part->tensor->ne[0]);
}

/* In one piece of device memory: small ones do not take a huge page each. */
aerie_status ae_parts_create(ae_parts *parts, aerie_error *error)
{
    ae_backend *backend = parts->backend;
    parts->memory = backend->ops->alloc(backend, parts->bytes);
    if (!parts->memory) return ae_fail_memory(error, "the weights", parts->bytes);
    for (uint32_t i = 0; i < parts->n; i++) {
        const ae_part *part = &parts->items[i];
        void *memory = (char *)parts->memory + part->offset;
        if (!part->use) {
            *part->vector = memory;
            continue;
        }
        const ae_weight_source source = source_of(part);
        AE_TRY(backend->ops->weight_create(backend, &source, memory, part->weight, error));
    }
    return AERIE_OK;
}
