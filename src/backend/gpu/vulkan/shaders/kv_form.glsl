/* kv_form.glsl - where values lie in the pages of a KV cache (kernels/kv_layout.h). */
#define KV_PAGE 64u
#define KV_GROUP 16u

struct KvForm { /* ae_gpu_kv_form */
    uint type, head_dim, n_rope, width, n_planes, value_planes, rope_groups, groups, plane_bytes, value_at, scale_at, has_scales;
    uint n_bytes;
};

struct KvView { /* ae_gpu_kv_view */
    uint64_t base, page_bytes;
    uint n_pages;
    KvForm form;
};

struct KvHead { /* ae_gpu_kv_head */
    KvForm form;
    uint row_bytes;
    uint64_t at, saved_at;
};

uint64_t kv_block(KvView view, uint page, uint head)
{
    return view.base + uint64_t(page) * view.page_bytes + uint64_t(head) * view.form.n_bytes;
}

uint kv_key_at(KvForm f, uint plane, uint g, uint place)
{
    return ((plane * f.groups + g) * KV_PAGE + place) * KV_GROUP;
}

uint kv_value_at(KvForm f, uint g, uint place)
{
    return f.value_at + (place * f.groups + g) * KV_GROUP;
}

uint kv_scale_at(KvForm f, uint i, uint place)
{
    return f.scale_at + (i * KV_PAGE + place) * 4u;
}

uint kv_saved_at(KvForm f, uint i, uint place)
{
    const uint part = (f.n_rope + f.head_dim) * f.width, n_parts = f.n_planes + f.value_planes, which = i / part;
    if (which >= n_parts) return kv_scale_at(f, (i - n_parts * part) / 4, place) + (i - n_parts * part) % 4;
    uint at = i - which * part;
    const uint rope = f.n_rope * f.width;
    if (at >= rope) at += f.rope_groups * KV_GROUP - rope; /* skips the rotated part's padding */
    const uint g = at / KV_GROUP, inside = at % KV_GROUP;
    if (which >= f.n_planes) return (which - f.n_planes) * f.plane_bytes + kv_value_at(f, g, place) + inside;
    return kv_key_at(f, which, g, place) + inside;
}
