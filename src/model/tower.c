/* tower.c - mmproj files: their keys and tensors, and the table of types (tower.h). */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/bind.h"

static const ae_tower_type types[] = {
    {"gemma3", AE_TOWER_SQUARE, AE_TOWER_POOL, 4, false, false, false, false, true, "<start_of_image>", "<end_of_image>",
     "<start_of_image>"},
    {"idefics3", AE_TOWER_TILES, AE_TOWER_SHUFFLE, 4, false, true, false, false, false, "", "<fake_token_around_image>",
     "<image>"},
    {"pixtral", AE_TOWER_ANY, AE_TOWER_UNFOLD, 1, true, false, true, true, false, "", "[IMG_END]", "[IMG]"},
};
#define N_TYPES (sizeof types / sizeof *types)

const char *ae_tower_known(void)
{
    return "gemma3, idefics3, pixtral";
}

#define MAX_IMAGE 4096
#define MAX_PATCH 64
#define MAX_MERGE 8
#define MAX_POSITIONS 65536

typedef struct tower_binder {
    ae_binder b;
    ae_tower_model *m;
    char name[96];
} tower_binder;

/* ---- Keys ------------------------------------------------------------------------------------------------------ */

static aerie_status get(tower_binder *t, const char *key, bool required, uint32_t least, uint32_t most, uint32_t *value)
{
    const ae_gguf *gguf = t->m->gguf;
    snprintf(t->name, sizeof t->name, "clip.vision.%s", key);
    const bool absent = !required && !ae_gguf_kv_find(gguf, t->name);
    AE_TRY(ae_gguf_get_u32(gguf, t->name, required, value, t->b.error));
    if (absent || (*value >= least && *value <= most)) return AERIE_OK;
    return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: %s is %u; %u to %u are possible", ae_gguf_path(gguf), t->name, *value,
                   least, most);
}

/* Three finite numbers. */
static aerie_status get_colours(tower_binder *t, const char *key, float *x)
{
    const ae_gguf *gguf = t->m->gguf;
    snprintf(t->name, sizeof t->name, "clip.vision.%s", key);
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, t->name);
    if (!kv || kv->type != AE_GGUF_ARRAY || kv->n != 3)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: %s is missing or not a list of 3 numbers", ae_gguf_path(gguf),
                       t->name);
    for (uint64_t i = 0; i < 3; i++) {
        double v;
        if (!ae_gguf_kv_float(kv, i, &v) || !(fabs(v) < 1e4))
            return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: element %llu of %s is not a number", ae_gguf_path(gguf),
                           (unsigned long long)i, t->name);
        x[i] = (float)v;
    }
    return AERIE_OK;
}

static aerie_status find_type(tower_binder *t)
{
    const ae_gguf *gguf = t->m->gguf;
    ae_gguf_string arch = {0}, name = {0};
    bool sees = false;
    AE_TRY(ae_gguf_get_string(gguf, "general.architecture", true, &arch, t->b.error));
    if (arch.n != 4 || memcmp(arch.data, "clip", 4))
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: a model of architecture \"%.*s\", not a vision encoder "
                       "(\"clip\", an mmproj file)", ae_gguf_path(gguf), (int)(arch.n < 32 ? arch.n : 32), arch.data);
    AE_TRY(ae_gguf_get_bool(gguf, "clip.has_vision_encoder", false, &sees, t->b.error));
    if (!sees)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: it has no vision encoder (clip.has_vision_encoder)",
                       ae_gguf_path(gguf));
    AE_TRY(ae_gguf_get_string(gguf, "clip.projector_type", false, &name, t->b.error));
    if (!name.n) AE_TRY(ae_gguf_get_string(gguf, "clip.vision.projector_type", true, &name, t->b.error));
    for (size_t i = 0; i < N_TYPES; i++)
        if (strlen(types[i].name) == name.n && !memcmp(types[i].name, name.data, name.n)) t->m->type = &types[i];
    if (t->m->type) return AERIE_OK;
    return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: projector type \"%.*s\" is unknown; known are %s",
                   ae_gguf_path(gguf), (int)(name.n < 32 ? name.n : 32), name.data, ae_tower_known());
}

static aerie_status read_activation(tower_binder *t, ae_activation *a)
{
    bool gelu = false, silu = false;
    AE_TRY(ae_gguf_get_bool(t->m->gguf, "clip.use_gelu", false, &gelu, t->b.error));
    AE_TRY(ae_gguf_get_bool(t->m->gguf, "clip.use_silu", false, &silu, t->b.error));
    if (gelu != silu) {
        *a = gelu ? AE_ACTIVATION_GELU : AE_ACTIVATION_SILU;
        return AERIE_OK;
    }
    return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED,
                   "%s: clip.use_gelu and clip.use_silu are both %s; one of them must be true "
                   "(quick GELU is not known)", ae_gguf_path(t->m->gguf), gelu ? "true" : "false");
}

static aerie_status read_keys(tower_binder *t)
{
    ae_tower_model *m = t->m;
    ae_hparams *h = &m->hparams;
    ae_activation activation = AE_ACTIVATION_GELU;
    uint32_t n_kv = 0;
    AE_TRY(get(t, "image_size", true, 1, MAX_IMAGE, &m->image_size));
    AE_TRY(get(t, "patch_size", true, 1, MAX_PATCH, &m->patch));
    AE_TRY(get(t, "embedding_length", true, 2, 8192, &h->n_embd));
    AE_TRY(get(t, "feed_forward_length", true, 1, 65536, &h->n_ff));
    AE_TRY(get(t, "block_count", true, 1, 128, &h->n_layers));
    AE_TRY(get(t, "projection_dim", true, 1, AE_MAX_EMBD, &m->n_out));
    AE_TRY(get(t, "attention.head_count", true, 1, 1024, &h->n_heads));
    n_kv = h->n_heads;
    AE_TRY(get(t, "attention.head_count_kv", false, h->n_heads, h->n_heads, &n_kv));
    if (h->n_embd % h->n_heads)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: a width of %u cannot be cut into %u heads", ae_gguf_path(m->gguf),
                       h->n_embd, h->n_heads);
    h->head_dim = h->n_embd / h->n_heads;
    AE_TRY(get(t, "attention.head_dim", false, 2, AE_MAX_HEAD_DIM, &h->head_dim));
    if (h->head_dim % 2 || h->head_dim < 2 || h->head_dim > AE_MAX_HEAD_DIM ||
        (m->type->size == AE_TOWER_ANY && h->head_dim % 4))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: heads of %u elements are not possible", ae_gguf_path(m->gguf),
                       h->head_dim);
    AE_TRY(ae_gguf_get_f32(m->gguf, "clip.vision.attention.layer_norm_epsilon", true, &h->norm_eps, t->b.error));
    if (!(h->norm_eps > 0.0f && h->norm_eps < 1.0f))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: the norm's epsilon is %g; it must lie between 0 and 1",
                       ae_gguf_path(m->gguf), (double)h->norm_eps);
    AE_TRY(get_colours(t, "image_mean", m->mean));
    AE_TRY(get_colours(t, "image_std", m->std));
    for (int c = 0; c < 3; c++)
        if (!(m->std[c] > 1e-6f))
            return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: clip.vision.image_std has %g; it must be positive",
                           ae_gguf_path(m->gguf), (double)m->std[c]);
    m->merge = m->type->n_merge;
    AE_TRY(get(t, m->type->merge == AE_TOWER_UNFOLD ? "spatial_merge_size" : "projector.scale_factor", false, 1, MAX_MERGE,
               &m->merge));
    AE_TRY(get(t, "preproc_image_size", false, 1, MAX_IMAGE, &m->longest));
    if (!m->longest) m->longest = m->image_size;
    const uint32_t unit = m->patch * m->merge;
    if (m->image_size < unit || (m->type->size != AE_TOWER_ANY && m->image_size % unit))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT,
                       "%s: a picture of %u pixels is no whole number of tokens of %u x %u patches "
                       "of %u", ae_gguf_path(m->gguf), m->image_size, m->merge, m->merge, m->patch);
    AE_TRY(read_activation(t, &activation));
    h->arch = "clip";
    h->n_kv_heads = h->n_heads;
    h->layer_norm = !m->type->rms;
    h->embedding_scale = h->residual_scale = h->logit_scale = 1.0f;
    h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
    if (m->type->size == AE_TOWER_ANY) h->ropes[h->n_ropes++] = (ae_rope){.n_rot = h->head_dim, .base = 10000.0f,
                                                                          .factor = 1.0f};
    m->layers = ae_arena_alloc(&m->arena, h->n_layers, sizeof *m->layers);
    if (!m->layers) return ae_fail_memory(t->b.error, "the blocks of a vision encoder", h->n_layers * sizeof *m->layers);
    for (uint32_t i = 0; i < h->n_layers; i++)
        m->layers[i] = (ae_layer){
            .out_scale = 1.0f,
            .spec = {.mixer = AE_MIXER_ATTENTION, .n_heads = h->n_heads, .n_kv_heads = h->n_heads, .head_dim = h->head_dim,
                     .rope = h->n_ropes ? 0 : AE_NO_ROPE, .attn_scale = h->attn_scale, .kv_from = (int)i, .ffn = AE_FFN_DENSE,
                     .n_ff = h->n_ff, .activation = activation}};
    return AERIE_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

static aerie_status bind(tower_binder *t, const char *name, bool required, uint32_t n_out, uint32_t n_in, ae_tensor_ref *out)
{
    return ae_bind(&t->b, name, required, n_out, n_in, out);
}

static aerie_status bind_layer(tower_binder *t, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                               ae_tensor_ref *out)
{
    snprintf(t->name, sizeof t->name, "v.blk.%u.%s", i, part);
    return ae_bind(&t->b, t->name, required, n_out, n_in, out);
}

/* Old files exchange the names of up and down. */
static bool is_swapped(tower_binder *t, uint32_t i)
{
    const ae_hparams *h = &t->m->hparams;
    snprintf(t->name, sizeof t->name, "v.blk.%u.ffn_down.weight", i);
    const ae_gguf_tensor *down = ae_gguf_tensor_find(t->m->gguf, t->name);
    return !t->m->type->gated && h->n_embd != h->n_ff && down && down->ne[0] == h->n_embd;
}

static aerie_status bind_block(tower_binder *t, uint32_t i)
{
    const ae_hparams *h = &t->m->hparams;
    const uint32_t e = h->n_embd, f = h->n_ff, q = h->n_heads * h->head_dim;
    const bool rms = t->m->type->rms, swapped = is_swapped(t, i);
    ae_layer *l = &t->m->layers[i];
    AE_TRY(bind_layer(t, i, "ln1.weight", true, 0, e, &l->attn_norm));
    AE_TRY(bind_layer(t, i, "ln1.bias", !rms, 0, e, &l->attn_norm_b));
    AE_TRY(bind_layer(t, i, "ln2.weight", true, 0, e, &l->ffn_norm));
    AE_TRY(bind_layer(t, i, "ln2.bias", !rms, 0, e, &l->ffn_norm_b));
    AE_TRY(bind_layer(t, i, "attn_q.weight", true, q, e, &l->wq));
    AE_TRY(bind_layer(t, i, "attn_k.weight", true, q, e, &l->wk));
    AE_TRY(bind_layer(t, i, "attn_v.weight", true, q, e, &l->wv));
    AE_TRY(bind_layer(t, i, "attn_out.weight", true, e, q, &l->wo));
    AE_TRY(bind_layer(t, i, "attn_q.bias", false, 0, q, &l->bq));
    AE_TRY(bind_layer(t, i, "attn_k.bias", false, 0, q, &l->bk));
    AE_TRY(bind_layer(t, i, "attn_v.bias", false, 0, q, &l->bv));
    AE_TRY(bind_layer(t, i, "attn_out.bias", false, 0, e, &l->bo));
    if (t->m->type->gated) AE_TRY(bind_layer(t, i, "ffn_gate.weight", true, f, e, &l->w_gate));
    if (t->m->type->gated) AE_TRY(bind_layer(t, i, "ffn_gate.bias", false, 0, f, &l->b_gate));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_down.weight" : "ffn_up.weight", true, f, e, &l->w_up));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_down.bias" : "ffn_up.bias", false, 0, f, &l->b_up));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_up.weight" : "ffn_down.weight", true, e, f, &l->w_down));
    return bind_layer(t, i, swapped ? "ffn_up.bias" : "ffn_down.bias", false, 0, e, &l->b_down);
}

/* The kernel [n_embd][3][p][p] is a matrix. */
static aerie_status bind_patches(tower_binder *t)
{
    ae_tower_model *m = t->m;
    static const char name[] = "v.patch_embd.weight";
    const ae_gguf_tensor *k = ae_gguf_tensor_find(m->gguf, name);
    const uint32_t n = 3 * m->patch * m->patch;
    if (!k || k->ne[0] != m->patch || k->ne[1] != m->patch || k->ne[2] != 3 || k->ne[3] != m->hparams.n_embd)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing, or its shape is not [%u, %u, 3, %u]",
                       ae_gguf_path(m->gguf), name, m->patch, m->patch, m->hparams.n_embd);
    if (k->type != AE_TYPE_F32 && k->type != AE_TYPE_F16 && k->type != AE_TYPE_BF16)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s; F32, F16 and BF16 are possible",
                       ae_gguf_path(m->gguf), name, ae_type_name(k->type));
    m->patch_view = *k;
    m->patch_view.ne[0] = n;
    m->patch_view.ne[1] = m->hparams.n_embd;
    m->patch_view.ne[2] = m->patch_view.ne[3] = 1;
    return bind(t, "v.patch_embd.bias", false, 0, m->hparams.n_embd, &m->patch_bias);
}

static aerie_status bind_projector(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t e = m->hparams.n_embd, o = m->n_out, side = m->merge * m->merge * e;
    switch (m->type->merge) {
    case AE_TOWER_POOL:
        AE_TRY(bind(t, "mm.soft_emb_norm.weight", true, 0, e, &m->in_norm));
        return bind(t, "mm.input_projection.weight", true, e, o, &m->project); /* stored by input */
    case AE_TOWER_SHUFFLE:
        AE_TRY(bind(t, "mm.model.fc.weight", true, o, side, &m->project));
        return bind(t, "mm.model.fc.bias", false, 0, o, &m->project_b);
    case AE_TOWER_UNFOLD: break;
    }
    AE_TRY(bind(t, "mm.input_norm.weight", m->merge > 1, 0, e, &m->in_norm));
    if (m->merge > 1) AE_TRY(bind(t, "mm.patch_merger.weight", true, e, side, &m->merger));
    AE_TRY(bind(t, "mm.1.weight", true, o, e, &m->project));
    AE_TRY(bind(t, "mm.1.bias", false, 0, o, &m->project_b));
    AE_TRY(bind(t, "mm.2.weight", true, o, o, &m->project2));
    AE_TRY(bind(t, "mm.2.bias", false, 0, o, &m->project2_b));
    return bind(t, "v.token_embd.img_break", false, 0, o, &m->row_break);
}

static aerie_status bind_tensors(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t e = m->hparams.n_embd;
    AE_TRY(bind_patches(t));
    if (m->type->size != AE_TOWER_ANY) {
        const uint32_t side = m->image_size / m->patch;
        m->n_positions = side * side;
        if (m->n_positions > MAX_POSITIONS)
            return ae_fail(t->b.error, AERIE_ERROR_LIMIT, "%s: pictures of %u patches; %u are possible", ae_gguf_path(m->gguf),
                           m->n_positions, MAX_POSITIONS);
        AE_TRY(bind(t, "v.position_embd.weight", true, m->n_positions, e, &m->positions));
    }
    AE_TRY(bind(t, "v.pre_ln.weight", m->type->size == AE_TOWER_ANY, 0, e, &m->pre_norm));
    AE_TRY(bind(t, "v.pre_ln.bias", false, 0, e, &m->pre_norm_b));
    AE_TRY(bind(t, "v.post_ln.weight", false, 0, e, &m->post_norm));
    AE_TRY(bind(t, "v.post_ln.bias", false, 0, e, &m->post_norm_b));
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) AE_TRY(bind_block(t, i));
    return bind_projector(t);
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

aerie_status ae_tower_model_load(ae_tower_model **out, const char *path, bool index_only, aerie_error *error)
{
    ae_gguf *gguf;
    *out = NULL;
    AE_TRY(ae_gguf_open(&gguf, path, &(ae_gguf_options){.index_only = index_only}, error));
    return ae_tower_model_bind(out, gguf, error);
}

aerie_status ae_tower_model_bind(ae_tower_model **out, ae_gguf *gguf, aerie_error *error)
{
    static const ae_arch arch = {.name = "clip"};
    *out = NULL;
    ae_tower_model *m = ae_alloc(1, sizeof *m);
    if (!m) {
        ae_gguf_close(gguf);
        return ae_fail_memory(error, "a vision encoder", sizeof *m);
    }
    ae_arena_init(&m->arena, 4096);
    m->gguf = gguf;
    tower_binder t = {.b = {.gguf = m->gguf, .arch = &arch, .error = error}, .m = m};
    aerie_status status = find_type(&t);
    if (status == AERIE_OK) status = read_keys(&t);
    if (status == AERIE_OK) status = bind_tensors(&t);
    if (status == AERIE_OK) *out = m;
    else ae_tower_model_free(m);
    return status;
}

void ae_tower_model_free(ae_tower_model *model)
{
    if (!model) return;
    ae_gguf_close(model->gguf);
    ae_arena_free(&model->arena);
    ae_free(model);
}
