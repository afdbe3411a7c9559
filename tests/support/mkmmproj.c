/* mkmmproj.c - see mkmmproj.h. Tensors and keys as llama.cpp's converters write them. */
#include "mkmmproj.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"
#include "quant/types.h"

#define MAX_TENSORS 96
enum { WIDTH = 48, HEADS = 2, FF = 84, BLOCKS = 3, PATCH = 4 };

typedef struct tensor {
    char name[64];
    int64_t ne[4];
    uint32_t n_dims;
    bool norm;
} tensor;

typedef struct making {
    tensor list[MAX_TENSORS];
    size_t n;
} making;

static void add(making *m, const char *name, bool norm, uint32_t n_dims, int64_t a, int64_t b, int64_t c, int64_t d)
{
    tensor *t = &m->list[m->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->n_dims = n_dims;
    t->norm = norm;
    t->ne[0] = a, t->ne[1] = b, t->ne[2] = c, t->ne[3] = d;
}

static void pair(making *m, const char *name, bool bias, bool norm, int64_t n_in, int64_t n_out)
{
    char full[64];
    snprintf(full, sizeof full, "%.56s.weight", name);
    if (norm) add(m, full, true, 1, n_in, 1, 1, 1);
    else add(m, full, false, 2, n_in, n_out, 1, 1);
    snprintf(full, sizeof full, "%.56s.bias", name);
    if (bias) add(m, full, false, 1, norm ? n_in : n_out, 1, 1, 1);
}

static void list_blocks(making *m, bool rms)
{
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_out"};
    char name[64];
    for (int i = 0; i < BLOCKS; i++) {
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "v.blk.%d.%s", i, parts[k]);
            pair(m, name, !rms, false, WIDTH, WIDTH);
        }
        for (int k = 1; k < 3; k++) {
            snprintf(name, sizeof name, "v.blk.%d.ln%d", i, k);
            pair(m, name, !rms, true, WIDTH, 0);
        }
        snprintf(name, sizeof name, "v.blk.%d.ffn_up", i);
        pair(m, name, !rms, false, WIDTH, FF);
        snprintf(name, sizeof name, "v.blk.%d.ffn_gate", i);
        if (rms) pair(m, name, false, false, WIDTH, FF);
        snprintf(name, sizeof name, "v.blk.%d.ffn_down", i);
        pair(m, name, !rms, false, FF, WIDTH);
    }
}

static float draw(uint64_t *state)
{
    const uint64_t bits = mk_random(state);
    float x = 0;
    for (int i = 0; i < 4; i++) x += (float)(bits >> (16 * i) & 0xFFFF) * 0x1p-16f;
    return (x - 2.0f) * 1.7320508f; /* variance 1 */
}

static aerie_status write_data(const making *m, ae_gguf_writer *w, aerie_error *error)
{
    uint64_t state = 77;
    for (size_t i = 0; i < m->n; i++) {
        const tensor *t = &m->list[i];
        const int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        const float gain = t->n_dims == 1 ? 0.2f : t->n_dims == 4 ? 0.2f : strstr(t->name, "position") ? 0.5f : 0.17f;
        for (int64_t k = 0; k < n; k++) {
            const float x = (t->norm ? 1.0f : 0.0f) + gain * draw(&state);
            AE_TRY(ae_gguf_writer_data(w, &x, sizeof x, error));
        }
    }
    return AERIE_OK;
}

static aerie_status write_keys(ae_gguf_writer *w, const char *type, bool rms, uint32_t n_out, uint32_t side, uint32_t merge,
                               aerie_error *error)
{
    static const float mean[] = {0.5f, 0.45f, 0.4f}, std[] = {0.5f, 0.25f, 0.3f};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"clip.vision.image_size", side}, {"clip.vision.patch_size", PATCH}, {"clip.vision.embedding_length", WIDTH},
                   {"clip.vision.feed_forward_length", FF}, {"clip.vision.block_count", BLOCKS},
                   {"clip.vision.projection_dim", n_out}, {"clip.vision.attention.head_count", HEADS},
                   {rms ? "clip.vision.spatial_merge_size" : "clip.vision.projector.scale_factor", merge}};
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", "clip", error));
    AE_TRY(ae_gguf_writer_string(w, "general.type", "mmproj", error));
    AE_TRY(ae_gguf_writer_bool(w, "clip.has_vision_encoder", true, error));
    AE_TRY(ae_gguf_writer_string(w, "clip.projector_type", type, error));
    AE_TRY(ae_gguf_writer_bool(w, rms ? "clip.use_silu" : "clip.use_gelu", true, error));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        AE_TRY(ae_gguf_writer_u32(w, numbers[i].key, numbers[i].value, error));
    if (!strcmp(type, "idefics3")) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.preproc_image_size", 3 * side, error));
    AE_TRY(ae_gguf_writer_f32(w, "clip.vision.attention.layer_norm_epsilon", rms ? 1e-5f : 1e-6f, error));
    AE_TRY(ae_gguf_writer_array(w, "clip.vision.image_mean", AE_GGUF_F32, mean, 3, error));
    return ae_gguf_writer_array(w, "clip.vision.image_std", AE_GGUF_F32, std, 3, error);
}

static void list_projector(making *m, const char *type, uint32_t n_out, uint32_t merge)
{
    if (!strcmp(type, "gemma3")) {
        add(m, "mm.soft_emb_norm.weight", true, 1, WIDTH, 1, 1, 1);
        add(m, "mm.input_projection.weight", false, 2, n_out, WIDTH, 1, 1);
    } else if (!strcmp(type, "idefics3")) {
        add(m, "mm.model.fc.weight", false, 2, WIDTH * merge * merge, n_out, 1, 1);
    } else {
        if (merge > 1) add(m, "mm.input_norm.weight", true, 1, WIDTH, 1, 1, 1);
        if (merge > 1) add(m, "mm.patch_merger.weight", false, 2, WIDTH * merge * merge, WIDTH, 1, 1);
        pair(m, "mm.1", true, false, WIDTH, n_out);
        pair(m, "mm.2", true, false, n_out, n_out);
        add(m, "v.token_embd.img_break", false, 1, n_out, 1, 1, 1);
    }
}

aerie_status mkmmproj_write(const char *name, uint32_t n_out, const char *path, aerie_error *error)
{
    const bool merges = !strcmp(name, "pixtral-merge"), rms = merges || !strcmp(name, "pixtral");
    const char *type = rms ? "pixtral" : name;
    if (!rms && strcmp(type, "gemma3") && strcmp(type, "idefics3"))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "there is no random mmproj of type %s; gemma3, idefics3, pixtral and "
                       "pixtral-merge are there", name);
    const uint32_t merge = rms ? 1 + merges : 2, side = rms ? 64 : 4 * 2 * PATCH;
    ae_gguf_writer *w;
    making *m = ae_alloc(1, sizeof *m);
    if (!m) return ae_fail_memory(error, "a list of tensors", sizeof *m);
    add(m, "v.patch_embd.weight", false, 4, PATCH, PATCH, 3, WIDTH);
    if (!rms) add(m, "v.patch_embd.bias", false, 1, WIDTH, 1, 1, 1);
    if (rms) pair(m, "v.pre_ln", false, true, WIDTH, 0);
    else add(m, "v.position_embd.weight", false, 2, WIDTH, (int64_t)(side / PATCH) * (side / PATCH), 1, 1);
    list_blocks(m, rms);
    if (!rms) pair(m, "v.post_ln", true, true, WIDTH, 0);
    list_projector(m, type, n_out, merge);
    aerie_status status = ae_gguf_writer_create(&w, path, error);
    if (status == AERIE_OK) {
        status = write_keys(w, type, rms, n_out, side, merge, error);
        for (size_t i = 0; i < m->n && status == AERIE_OK; i++)
            status = ae_gguf_writer_tensor(w, m->list[i].name, AE_TYPE_F32, m->list[i].n_dims, m->list[i].ne, error);
        if (status == AERIE_OK) status = ae_gguf_writer_begin(w, error);
        if (status == AERIE_OK) status = write_data(m, w, error);
        if (status == AERIE_OK) status = ae_gguf_writer_finish(w, error);
        ae_gguf_writer_free(w);
    }
    ae_free(m);
    return status;
}
