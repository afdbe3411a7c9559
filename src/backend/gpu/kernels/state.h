/* state.h - where recurrent layers keep their state, records and rows. For kernels only (recurrent.cu, recur_steps.cu).
 * Owns nothing. backend/recurrent.h explains the terms, args_state.h the layout of a record. */
#ifndef AE_BACKEND_GPU_KERNELS_STATE_H
#define AE_BACKEND_GPU_KERNELS_STATE_H

#include "backend/gpu/kernels/args_state.h"
#include "backend/gpu/kernels/kernel.h"

/* Returns accepted record i of a run. */
AE_DEV float *accepted_of(const ae_gpu_state_view *v, const ae_gpu_state_rows *rows, uint32_t i_run, uint32_t i)
{
    const uint32_t record = rows->accepted[(size_t)i_run * rows->stride + i];
    return v->record + ((uint64_t)rows->runs[i_run].seq * v->n_records + record) * v->record_floats;
}

AE_DEV float *record_of(const ae_gpu_state_view *v, const ae_state_run *run, uint32_t i)
{
    return v->record + ((uint64_t)run->seq * v->n_records + i) * v->record_floats;
}

/* Returns the parts of a record after its channels. */
AE_DEV float *record_k(const ae_gpu_state_view *v, float *record) { return record + v->n_channels; }
AE_DEV float *record_d(const ae_gpu_state_view *v, float *record)
{
    return record_k(v, record) + (size_t)v->n_groups * v->key_dim;
}
AE_DEV float *record_alpha(const ae_gpu_state_view *v, float *record)
{
    return record_d(v, record) + (size_t)v->n_heads * v->value_dim;
}
AE_DEV float *record_written(const ae_gpu_state_view *v, float *record) { return record_alpha(v, record) + v->n_alphas; }
AE_DEV float *record_e(const ae_gpu_state_view *v, float *record) { return record_written(v, record) + v->n_alphas; }

AE_DEV bool is_wkv(const ae_gpu_state_view *v) { return v->kind == AE_STATE_WKV6 || v->kind == AE_STATE_WKV7; }

/* The offsets of k, q and v in a row. */
typedef struct channels {
    float *k, *q, *v;
} channels;

AE_DEV channels channels_of(const ae_gpu_recur_args *a, uint32_t row)
{
    const size_t keys = (size_t)a->view.n_groups * a->view.key_dim, values = (size_t)a->view.n_heads * a->view.value_dim;
    const size_t at = (size_t)row * a->c_stride;
    float *c = a->c + at;
    channels in;
    if (is_wkv(&a->view)) {
        in.k = a->k + at, in.q = c, in.v = a->v + at;
    } else if (a->view.kind == AE_STATE_MAMBA1) {
        in.k = (float *)a->keys + (size_t)row * a->keys_stride;
        in.q = in.k + keys, in.v = c;
    } else if (a->view.kind == AE_STATE_MAMBA2) {
        in.k = c + values, in.q = c + values + keys, in.v = c;
    } else {
        in.k = c + keys, in.q = c, in.v = c + 2 * keys;
    }
    return in;
}

#endif
