/* rows.c - implements rows.h. */
#include "engine/rows.h"

void ae_rows_layout(ae_layout *l, size_t n_batch, size_t n_outputs, ae_rows_kind kind, ae_rows *r)
{
    const bool head = kind == AE_ROWS_HEAD || kind == AE_ROWS_STEPS;
    const size_t n_head = head ? n_batch : 0, n_steps = kind == AE_ROWS_STEPS ? n_batch : 0;
    const size_t n_encoded = kind == AE_ROWS_ENCODER ? n_batch : 0;
    const size_t n_placed = kind == AE_ROWS_PLACED ? n_batch : 0;
    const size_t n_sourced = kind == AE_ROWS_SOURCED ? n_batch : 0;
    r->count = ae_layout_add(l, 2, sizeof *r->count);
    r->token = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->pos = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->seq = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->slot = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->n_inplace = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->parent = ae_layout_add(l, n_batch, sizeof(int32_t));
    r->rope_pos = ae_layout_add(l, n_head, sizeof(int32_t));
    r->fed_from = ae_layout_add(l, n_head, sizeof(int32_t));
    r->chain_first = ae_layout_add(l, n_steps, sizeof(int32_t));
    r->chain_last = ae_layout_add(l, n_steps, sizeof(int32_t));
    r->chain_fed = ae_layout_add(l, n_steps, sizeof(int32_t));
    r->last = ae_layout_add(l, head ? 0 : n_batch, sizeof(int32_t));
    r->type = ae_layout_add(l, n_encoded, sizeof(int32_t));
    r->place = ae_layout_add(l, n_placed, sizeof(int32_t));
    r->near = ae_layout_add(l, n_encoded, sizeof(int32_t));
    r->first = ae_layout_add(l, n_sourced, sizeof(int32_t));
    r->cross = ae_layout_add(l, n_sourced, sizeof(int32_t));
    r->out_rows = ae_layout_add(l, n_outputs, sizeof(int32_t));
    r->out_fed = ae_layout_add(l, head ? n_outputs : 0, sizeof(int32_t));
    r->path = ae_layout_add(l, n_batch * AERIE_MAX_DRAFT, sizeof(int32_t));
}

void ae_rows_send(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, const ae_backend_ops *ops,
                  ae_stream *stream)
{
    host->count[0] = n_rows;
    host->count[1] = n_outputs;
    const char *begin = (const char *)host->count, *end = (const char *)(host->path + (size_t)n_rows * AERIE_MAX_DRAFT);
    ops->upload(stream, device->count, begin, (size_t)(end - begin));
}

void ae_rows_send_tables(const ae_rows *host, uint32_t n_rows, ae_kv *kv, ae_stream *stream)
{
    for (uint32_t r = 0; r < n_rows; r++)
        if (!r || host->seq[r - 1] != host->seq[r]) ae_kv_upload_table(kv, stream, (uint32_t)host->seq[r]);
}

void ae_rows_upload(const ae_rows *host, const ae_rows *device, uint32_t n_rows, uint32_t n_outputs, ae_kv *kv,
                    const ae_backend_ops *ops, ae_stream *stream)
{
    ae_rows_send(host, device, n_rows, n_outputs, ops, stream);
    ae_rows_send_tables(host, n_rows, kv, stream);
}

ae_places ae_rows_places_on(const ae_rows *device, uint32_t n_rows, const ae_kv *kv, uint32_t i_device)
{
    return (ae_places){n_rows, device->seq, device->pos, device->slot, device->n_inplace, device->path, AERIE_MAX_DRAFT,
                       ae_kv_on(kv, i_device).tables, ae_kv_table_stride(kv), device->count, NULL, 0, NULL};
}

ae_places ae_rows_places(const ae_rows *device, uint32_t n_rows, const ae_kv *kv)
{
    return ae_rows_places_on(device, n_rows, kv, 0);
}
