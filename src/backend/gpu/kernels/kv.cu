/* kv.cu - moving the values of a KV cache: whole pages, places of accepted drafts, slots as they are saved. */
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"

AE_KERNEL(kv_page, ae_gpu_kv_page_args, 256)
{
    const uint64_t n = a.bytes / 16, step = (uint64_t)ae_grid_x() * 256;
    for (uint64_t i = (uint64_t)ae_block_x() * 256 + ae_thread(); i < n; i += step)
        ((uint4 *)a.to)[i] = ae_load16((const uint4 *)a.from + i);
}

/* Returns the byte offset of unit i of the row of a place: the groups of the key, those of the value, then the scales. */
AE_DEV uint32_t unit_at(const ae_gpu_kv_form *f, uint32_t i, uint32_t place)
{
    const uint32_t n = f->scale_at / (AE_KV_PAGE * AE_GPU_KV_GROUP), n_keys = f->n_planes * f->groups;
    if (i >= n) return ae_gpu_kv_scale_at(f, i - n, place);
    if (i < n_keys) return ae_gpu_kv_key_at(f, i / f->groups, i % f->groups, place);
    i -= n_keys;
    return i / f->value_groups * f->value_bytes + ae_gpu_kv_value_at(f, i % f->value_groups, place);
}

/* A block moves one head of one layer. A thread makes all moves of its units, in order, so no thread waits for another. */
AE_KERNEL(kv_moves, ae_gpu_kv_moves_args, 64)
{
    const ae_gpu_kv_head *head = &a.heads[ae_block_x()];
    const ae_gpu_kv_form f = head->form;
    const uint32_t n = f.scale_at / (AE_KV_PAGE * AE_GPU_KV_GROUP), n_units = n + f.n_scales;
    const int32_t begin = a.begin[ae_block_y()], end = a.begin[ae_block_y() + 1];
    for (uint32_t i = ae_thread(); i < n_units; i += 64)
        for (int32_t m = begin; m < end; m++) {
            const uint32_t from = (uint32_t)a.move[m].from, to = (uint32_t)a.move[m].to;
            if (from >= a.n_places || to >= a.n_places) continue;
            const uint8_t *x = a.pages + from / AE_KV_PAGE * a.page_bytes + head->at + unit_at(&f, i, from % AE_KV_PAGE);
            uint8_t *y = a.pages + to / AE_KV_PAGE * a.page_bytes + head->at + unit_at(&f, i, to % AE_KV_PAGE);
            if (i < n) *(uint4 *)y = *(const uint4 *)x;
            else *(uint32_t *)y = *(const uint32_t *)x;
        }
}

AE_KERNEL(kv_save, ae_gpu_kv_slot_args, 128)
{
    const ae_gpu_kv_head *head = &a.heads[ae_block_x()];
    const ae_gpu_kv_form f = head->form;
    for (uint32_t i = ae_thread(); i < head->row_bytes; i += 128)
        a.bytes[head->saved_at + i] = a.page[head->at + ae_gpu_kv_saved_at(&f, i, a.place)] & ae_gpu_kv_saved_bits(&f, i);
}

AE_KERNEL(kv_restore, ae_gpu_kv_slot_args, 128)
{
    const ae_gpu_kv_head *head = &a.heads[ae_block_x()];
    const ae_gpu_kv_form f = head->form;
    for (uint32_t i = ae_thread(); i < head->row_bytes; i += 128)
        a.page[head->at + ae_gpu_kv_saved_at(&f, i, a.place)] = a.bytes[head->saved_at + i];
}
