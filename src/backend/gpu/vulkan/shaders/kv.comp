#version 460
/* kv.comp - moving the values of a KV cache. KIND: 0 kv_page, 1 kv_moves, 2 kv_save, 3 kv_restore. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_form.glsl"

layout(local_size_x = 128) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer PageArgs { /* ae_gpu_kv_page_args */
    uint64_t from, to, n_bytes;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer MovesArgs { /* ae_gpu_kv_moves_args */
    uint64_t pages, heads, begin, move, page_bytes;
    uint n_places;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer SlotArgs { /* ae_gpu_kv_slot_args */
    uint64_t page, heads, saved;
    uint place;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Heads { KvHead v[]; };

void copy_page(PageArgs a)
{
    const uint64_t n = a.n_bytes / 16ul, step = uint64_t(GRID_X) * 128ul;
    for (uint64_t i = uint64_t(BLOCK_X) * 128ul + THREAD; i < n; i += step)
        U32x4(a.to + i * 16ul).v[0] = U32x4(a.from + i * 16ul).v[0];
}

/* Returns the byte offset of unit i of the row of a place: the groups of the key, those of the value, then the scales. */
uint unit_at(KvForm f, uint i, uint place)
{
    const uint n = f.scale_at / (KV_PAGE * KV_GROUP), n_keys = f.n_planes * f.groups;
    if (i >= n) return kv_scale_at(f, i - n, place);
    if (i < n_keys) return kv_key_at(f, i / f.groups, i % f.groups, place);
    i -= n_keys;
    return i / f.value_groups * f.value_bytes + kv_value_at(f, i % f.value_groups, place);
}

/* A work-group moves one head of one layer. A thread makes all moves of its units, in order, so no thread waits for another. */
void move_places(MovesArgs a)
{
    const KvHead head = Heads(a.heads).v[BLOCK_X];
    const KvForm f = head.form;
    const uint n = f.scale_at / (KV_PAGE * KV_GROUP), n_units = n + f.n_scales;
    const int begin = I32(a.begin).v[BLOCK_Y], end = I32(a.begin).v[BLOCK_Y + 1];
    for (uint i = THREAD; i < n_units; i += 128)
        for (int m = begin; m < end; m++) {
            const uint from = uint(I32(a.move).v[2 * m]), to = uint(I32(a.move).v[2 * m + 1]);
            if (from >= a.n_places || to >= a.n_places) continue;
            const uint64_t x = a.pages + uint64_t(from / KV_PAGE) * a.page_bytes + head.at + unit_at(f, i, from % KV_PAGE);
            const uint64_t y = a.pages + uint64_t(to / KV_PAGE) * a.page_bytes + head.at + unit_at(f, i, to % KV_PAGE);
            if (i < n) U32x4(y).v[0] = U32x4(x).v[0];
            else U32(y).v[0] = U32(x).v[0];
        }
}

void copy_slot(SlotArgs a)
{
    const KvHead head = Heads(a.heads).v[BLOCK_X];
    for (uint i = THREAD; i < head.row_bytes; i += 128) {
        const uint64_t page = a.page + head.at + kv_saved_at(head.form, i, a.place), saved = a.saved + head.saved_at + i;
        if (KIND == 2) U8(saved).v[0] = uint8_t(uint(U8(page).v[0]) & kv_saved_bits(head.form, i));
        else U8(page).v[0] = U8(saved).v[0];
    }
}

void main()
{
    if (KIND == 0) copy_page(PageArgs(push.args));
    else if (KIND == 1) move_places(MovesArgs(push.args));
    else copy_slot(SlotArgs(push.args));
}
