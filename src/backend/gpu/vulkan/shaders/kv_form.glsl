/* kv_form.glsl - where values are in the pages of a KV cache (kernels/kv_layout.h). */
#define KV_PAGE 64u
#define KV_GROUP 16u

struct KvForm { /* ae_gpu_kv_form */
    uint type, head_dim, n_rope, width, key_half, value_half, n_planes, value_planes, rope_groups, groups, value_groups;
    uint plane_bytes, value_bytes, value_at, scale_at, n_scales, n_bytes;
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
    return f.value_at + (place * f.value_groups + g) * KV_GROUP;
}

uint kv_scale_at(KvForm f, uint i, uint place)
{
    return f.scale_at + (i * KV_PAGE + place) * 4u;
}

/* Returns the bytes of a plane of a key, or of a latent row, and of a value. */
uint kv_key_row(KvForm f)
{
    return f.key_half != 0 ? (f.head_dim + 1) / 2 : (f.n_rope + f.head_dim) * f.width;
}

uint kv_value_row(KvForm f)
{
    return f.value_half != 0 ? (f.head_dim + 1) / 2 : f.head_dim * f.width;
}

uint kv_saved_at(KvForm f, uint i, uint place)
{
    const uint key = kv_key_row(f), value = kv_value_row(f), keys = f.n_planes * key, n = keys + f.value_planes * value;
    const uint rope = f.n_rope * f.width;
    if (i >= n) return kv_scale_at(f, (i - n) / 4, place) + (i - n) % 4;
    if (i >= keys) {
        const uint inside = (i - keys) % value;
        return (i - keys) / value * f.value_bytes + kv_value_at(f, inside / KV_GROUP, place) + inside % KV_GROUP;
    }
    uint at = i % key;
    if (at >= rope) at += f.rope_groups * KV_GROUP - rope; /* skips the padding of the rotated part */
    return kv_key_at(f, i / key, at / KV_GROUP, place) + at % KV_GROUP;
}

/* Returns the bits of byte i of a saved row that belong to codes. */
uint kv_saved_bits(KvForm f, uint i)
{
    const uint keys = f.n_planes * kv_key_row(f), n = keys + f.value_planes * kv_value_row(f);
    const bool is_last = (f.key_half != 0 && i + 1 == keys) || (f.value_half != 0 && i + 1 == n);
    return is_last && f.head_dim % 2 != 0 ? 15u : 255u;
}
