/* parts.c - lists the parts of a network and gives each its place on the device (parts.h). fill.c reads their values. */
#include "engine/weights/parts.h"
#include "backend/alloc_fail.h"

#include <math.h>

#include "quant/types.h"

aerie_status ae_parts_init(ae_parts *parts, ae_backend *backend, const ae_gguf *gguf, const ae_bound *bound, size_t max,
                           aerie_error *error)
{
    *parts = (ae_parts){.devices = {backend}, .n_devices = 1, .gguf = gguf, .bound = bound};
    parts->items = max < UINT32_MAX ? ae_alloc(max, sizeof *parts->items) : NULL;
    if (!parts->items) return ae_fail_memory(error, "the table of weights", max * sizeof *parts->items);
    parts->max = (uint32_t)max;
    return AERIE_OK;
}

uint8_t ae_parts_add_device(ae_parts *parts, ae_backend *backend)
{
    AE_ASSERT(parts->n_devices < AE_MAX_DEVICES);
    parts->devices[parts->n_devices] = backend;
    return (uint8_t)parts->n_devices++;
}

void ae_parts_free(ae_parts *parts)
{
    for (uint32_t i = 0; i < parts->n; i++) {
        ae_backend *backend = parts->devices[parts->items[i].device];
        if (parts->items[i].use) backend->ops->weight_free(backend, *parts->items[i].weight);
    }
    for (uint32_t i = 0; i < parts->n_blocks; i++) {
        const ae_parts_block *block = &parts->blocks[i];
        ae_backend *backend = parts->devices[block->device];
        if (block->memory) backend->ops->free(backend, block->memory, block->bytes);
    }
    ae_free(parts->blocks);
    ae_free(parts->items);
    *parts = (ae_parts){0};
}

static void add(ae_parts *parts, const ae_part *part)
{
    AE_ASSERT(parts->n < parts->max);
    ae_part *own = &parts->items[parts->n++];
    *own = *part;
    own->device = parts->on;
    own->of_ffn = parts->of_ffn;
    if (!part->tensor) return;
    own->scale = ae_model_scale(parts->gguf, parts->bound, part->tensor);
    if (part->use & AE_WEIGHT_LOOKUP) own->row_scale = own->scale;
    if (own->scale && own->scale->ne[0] == 1) own->i_scale = 0; /* one scale for all matrices */
}

void ae_parts_weight(ae_parts *parts, ae_tensor_ref tensor, unsigned use, ae_weight **field)
{
    if (tensor) add(parts, &(ae_part){.tensor = tensor, .use = use, .n_rows = (uint32_t)tensor->ne[1], .weight = field});
}

void ae_parts_vector(ae_parts *parts, ae_tensor_ref tensor, float **field)
{
    if (tensor) ae_parts_range(parts, tensor, 0, (uint32_t)(tensor->ne[0] * tensor->ne[1] * tensor->ne[2]), field);
}

void ae_parts_range(ae_parts *parts, ae_tensor_ref tensor, uint64_t first, uint32_t n, float **field)
{
    if (tensor) add(parts, &(ae_part){.tensor = tensor, .first = first, .n_elements = n, .vector = field});
}

void ae_parts_numbers(ae_parts *parts, const float *numbers, uint32_t n, float **field)
{
    add(parts, &(ae_part){.numbers = numbers, .n_elements = n, .vector = field});
}

void ae_parts_ones(ae_parts *parts, uint32_t n, float **field)
{
    add(parts, &(ae_part){.n_elements = n, .vector = field});
}

void ae_parts_rows(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field)
{
    if (tensor)
        add(parts, &(ae_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = first, .n_rows = n, .i_scale = i,
                              .weight = field});
}

void ae_parts_runs(ae_parts *parts, const ae_part_run *runs, uint32_t n)
{
    ae_part *part = &parts->items[parts->n - 1];
    if (n == 1) { /* single matrices may be used in place */
        part->first += runs->first;
        return;
    }
    part->runs = runs;
    part->n_runs = n;
}

void ae_parts_reciprocals(ae_parts *parts)
{
    parts->items[parts->n - 1].reciprocal = true;
}

uint64_t ae_part_at(const ae_part *part, uint32_t i, uint32_t *n)
{
    for (uint32_t k = 0; k < part->n_runs; k++) {
        const ae_part_run *run = &part->runs[k];
        if (i < run->n) {
            if (*n > run->n - i) *n = run->n - i;
            return part->first + run->first + i;
        }
        i -= run->n;
    }
    return part->first + i;
}

void ae_parts_expert(ae_parts *parts, ae_tensor_ref tensor, uint32_t i, uint64_t first, uint32_t n, ae_weight **field)
{
    if (tensor)
        add(parts, &(ae_part){.tensor = tensor, .use = AE_WEIGHT_MATMUL, .first = first, .n_rows = n,
                              .is_expert = true, .i_scale = i, .weight = field});
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
    return stays ? type : AE_TYPE_F16; /* a block holds values of one direction only, so its type cannot be kept */
}

static ae_weight_source source_of(const ae_part *part)
{
    ae_tensor_ref t = part->tensor;
    if (part->transposed)
        return (ae_weight_source){.type = ae_part_type(part), .n_out = (uint32_t)t->ne[0], .n_in = part->n_rows,
                                  .use = AE_WEIGHT_MATMUL};
    const size_t at = part->first * ae_type_row_bytes(t->type, (uint64_t)t->ne[0]);
    return (ae_weight_source){.type = t->type, .n_out = part->n_rows, .n_in = (uint32_t)t->ne[0],
                              .data = t->data && !part->runs ? (const uint8_t *)t->data + at : NULL,
                              .use = part->use | (part->is_expert ? AE_WEIGHT_EXPERT : 0u)};
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
        if (part->use && in_place && !part->runs) part->use |= AE_WEIGHT_IN_PLACE;
        part->bytes = bytes_of(part, parts->devices[part->device]);
        parts->bytes_on[part->device] += part->bytes;
        parts->bytes += part->bytes;
    }
}

size_t ae_part_pass_bytes(const ae_part *part)
{
    if (part->use && !(part->use & AE_WEIGHT_MATMUL)) return 0;
    return part->bytes ? part->bytes : part->n_rows * ae_type_row_bytes(part->tensor->type, (uint64_t)part->tensor->ne[0]);
}

aerie_status ae_parts_read_scale(const ae_parts *parts, ae_gguf_reader *reader, ae_tensor_ref scale, uint32_t i, float *x,
                                 aerie_error *error)
{
    uint8_t bytes[4];
    AE_TRY(ae_gguf_read(reader, scale, ae_type_row_bytes(scale->type, i), bytes, ae_type_row_bytes(scale->type, 1), error));
    ae_type_get(scale->type)->decode(bytes, x, 1);
    if (isfinite(*x)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor %.*s: value %u is infinite or not a number; the file is damaged",
                   ae_gguf_path(parts->gguf), (int)scale->name.n, scale->name.data, i);
}

static void *memory_of(const ae_parts *parts, const ae_part *part)
{
    return (char *)parts->blocks[part->block].memory + part->offset;
}

static aerie_status create_weight(ae_parts *parts, ae_gguf_reader *reader, const ae_part *part, aerie_error *error)
{
    ae_weight_source source = source_of(part);
    float scale, row_scale;
    if (part->scale) AE_TRY(ae_parts_read_scale(parts, reader, part->scale, part->i_scale, &scale, error));
    if (part->row_scale) AE_TRY(ae_parts_read_scale(parts, reader, part->row_scale, 0, &row_scale, error));
    source.scale = part->scale ? &scale : NULL;
    source.row_scale = part->row_scale ? &row_scale : NULL;
    ae_backend *backend = parts->devices[part->device];
    return backend->ops->weight_create(backend, &source, memory_of(parts, part), part->weight, error);
}

/* Places a device's parts, starting with a new block. */
static void place_on(ae_parts *parts, uint8_t device)
{
    ae_backend *backend = parts->devices[device];
    const size_t most = backend->ops->max_block ? backend->ops->max_block(backend) : SIZE_MAX;
    parts->blocks[parts->n_blocks++].device = device;
    for (uint32_t i = 0; i < parts->n; i++) {
        ae_part *part = &parts->items[i];
        ae_parts_block *block = &parts->blocks[parts->n_blocks - 1];
        if (part->device != device) continue;
        if (block->bytes && part->bytes && (block->bytes >= most || part->bytes > most - block->bytes)) {
            block = &parts->blocks[parts->n_blocks++];
            block->device = device;
        }
        part->block = parts->n_blocks - 1;
        part->offset = block->bytes;
        block->bytes += part->bytes;
    }
}

/* Allocates as few blocks of device memory as possible, so that small parts do not take a huge page each. */
static aerie_status take_blocks(ae_parts *parts, aerie_error *error)
{
    const size_t room = (size_t)parts->n + parts->n_devices;
    parts->blocks = ae_alloc(room, sizeof *parts->blocks);
    if (!parts->blocks) return ae_fail_memory(error, "the table of weights", room * sizeof *parts->blocks);
    for (uint32_t i = 0; i < parts->n_devices; i++) place_on(parts, (uint8_t)i);
    for (uint32_t i = 0; i < parts->n_blocks; i++) {
        ae_parts_block *block = &parts->blocks[i];
        ae_backend *backend = parts->devices[block->device];
        block->memory = backend->ops->alloc(backend, block->bytes);
        if (block->memory) continue;
        const bool large = backend->ops->max_block && block->bytes > backend->ops->max_block(backend);
        return ae_backend_fail_alloc(backend, "the weights", large ? block->bytes : parts->bytes_on[block->device], error);
    }
    return AERIE_OK;
}

aerie_status ae_parts_create(ae_parts *parts, aerie_error *error)
{
    AE_TRY(take_blocks(parts, error));
    ae_gguf_reader reader = ae_gguf_reader_open(parts->gguf);
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < parts->n && status == AERIE_OK; i++) {
        const ae_part *part = &parts->items[i];
        if (part->use) status = create_weight(parts, &reader, part, error);
        else *part->vector = memory_of(parts, part);
    }
    ae_gguf_reader_close(&reader);
    return status;
}
