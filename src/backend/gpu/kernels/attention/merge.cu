/* merge.cu - merges the parts of queries in a launch of its own: a warp has one query of a tile. */
#include "backend/gpu/kernels/attention/merge.h"

/* Merges block i of Q / 4 of a tile. */
template <int Q> AE_DEV void merge(const ae_gpu_attention_args &a, uint8_t *shared)
{
    attn_tile t;
    t.room = ae_gpu_attention_room_merge(&a.kv.form, Q);
    t.shared = shared;
    if (!attn_begin<Q>(a, ae_block_x() / (Q / 4), a.n_splits, &t) || !t.to_parts) return;
    if (ae_thread() < 32) attn_share_states(&t);
    ae_sync();
    uint8_t *turned = ae_gpu_kv_is_turned(&a.kv.form) ? shared + t.room.score : nullptr;
    attn_merge(a, &t, turned, ae_block_x() % (Q / 4) * 4, Q);
}

AE_KERNEL(attention_merge_8, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32)
{
    AE_SHARED(shared);
    merge<8>(a, shared);
}

AE_KERNEL(attention_merge_16, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32)
{
    AE_SHARED(shared);
    merge<16>(a, shared);
}
