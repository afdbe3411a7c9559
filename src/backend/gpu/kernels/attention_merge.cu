/* attention_merge.cu - joins the parts of queries in a launch of its own: a warp has one query. Two blocks have a tile of 8. */
#include "backend/gpu/kernels/attention_merge.h"

AE_KERNEL(attention_merge, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32)
{
    AE_SHARED(shared);
    attn_tile t;
    t.room = ae_gpu_attention_room_merge(&a.kv.form);
    t.shared = shared;
    const uint32_t n_splits = attn_by_warps(a) ? a.n_warp_splits : a.n_splits;
    if (!attn_begin<8>(a, ae_block_x() / 2, n_splits, &t) || !t.to_parts) return;
    if (ae_thread() < 32) attn_share_states(&t);
    ae_sync();
    uint8_t *turned = a.kv.form.n_rope && a.kv.form.has_scales ? shared + t.room.score : nullptr;
    attn_merge(a, &t, turned, ae_block_x() % 2 * AE_ATTENTION_WARPS, 8);
}
