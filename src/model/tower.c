/* tower.c - reads the keys and tensors of mmproj files (tower.h). tower_types.c has the types. */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/kind.h"
#include "model/bind.h"

#define MAX_IMAGE 4096
#define MAX_PATCH 64
#define MAX_MERGE 8
#define MAX_TILES 64
#define MAX_TOKENS 16384
#define MAX_POSITIONS 65536
#define MAX_SIDE 256 /* of a square table */
#define MAX_QUERIES 1024

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

/* Reads three finite numbers. */
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
        int64_t whole; /* writers in other languages make a list of integers of [0, 0, 0] */
        if (ae_gguf_kv_int(kv, i, &whole)) v = (double)whole;
        else if (!ae_gguf_kv_float(kv, i, &v)) v = NAN;
        if (!(fabs(v) < 1e4))
            return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: element %llu of %s is not a number", ae_gguf_path(gguf),
                           (unsigned long long)i, t->name);
        x[i] = (float)v;
    }
    return AERIE_OK;
}

static aerie_status find_type(tower_binder *t)
{
    const ae_gguf *gguf = t->m->gguf;
    ae_gguf_string name = {0};
    bool sees = false;
    AE_TRY(ae_role_need(gguf, AE_ROLE_MMPROJ, t->b.error));
    AE_TRY(ae_gguf_get_bool(gguf, "clip.has_vision_encoder", false, &sees, t->b.error));
    if (!sees)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: it has no vision encoder (clip.has_vision_encoder)",
                       ae_gguf_path(gguf));
    AE_TRY(ae_gguf_get_string(gguf, "clip.projector_type", false, &name, t->b.error));
    if (!name.n) AE_TRY(ae_gguf_get_string(gguf, "clip.vision.projector_type", true, &name, t->b.error));
    t->m->type = ae_tower_type_find(name.data, name.n);
    if (t->m->type) return AERIE_OK;
    return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: projector type \"%.*s\" is unknown; known are %s",
                   ae_gguf_path(gguf), (int)(name.n < 32 ? name.n : 32), name.data, ae_tower_known());
}

/* The keys choose GELU, SiLU or, if both are false, quick GELU. Which GELU is meant depends on the type. */
static aerie_status read_activation(tower_binder *t, ae_layer_spec *s)
{
    const ae_tower_type *type = t->m->type;
    bool gelu = false, silu = false;
    AE_TRY(ae_gguf_get_bool(t->m->gguf, "clip.use_gelu", false, &gelu, t->b.error));
    AE_TRY(ae_gguf_get_bool(t->m->gguf, "clip.use_silu", false, &silu, t->b.error));
    if (gelu && silu)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: clip.use_gelu and clip.use_silu are both true; one activation is "
                       "possible", ae_gguf_path(t->m->gguf));
    if (type->head_norms) gelu = !silu; /* files of these types set neither key */
    s->activation = gelu ? t->m->n_cls ? AE_ACTIVATION_GELU_ERF : AE_ACTIVATION_GELU
                    : silu ? AE_ACTIVATION_SILU : AE_ACTIVATION_OAI;
    s->shared_limit = INFINITY; /* without a limit, OAI's activation is quick GELU */
    if (s->activation == AE_ACTIVATION_OAI && type->gated)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: quick GELU in gated blocks is not known; clip.use_gelu or "
                       "clip.use_silu must be true", ae_gguf_path(t->m->gguf));
    return AERIE_OK;
}

static aerie_status read_heads(tower_binder *t)
{
    ae_tower_model *m = t->m;
    ae_hparams *h = &m->hparams;
    uint32_t n_kv = 0;
    AE_TRY(get(t, "attention.head_count", true, 1, 1024, &h->n_heads));
    n_kv = h->n_heads;
    AE_TRY(get(t, "attention.head_count_kv", false, h->n_heads, h->n_heads, &n_kv));
    if (h->n_embd % h->n_heads)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: a width of %u cannot be cut into %u heads", ae_gguf_path(m->gguf),
                       h->n_embd, h->n_heads);
    h->head_dim = h->n_embd / h->n_heads;
    AE_TRY(get(t, "attention.head_dim", false, 2, AE_MAX_HEAD_DIM, &h->head_dim));
    if (h->head_dim % (m->type->turn ? 4 : 2) || h->head_dim < 2 || h->head_dim > AE_MAX_HEAD_DIM)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: heads of %u elements are not possible", ae_gguf_path(m->gguf),
                       h->head_dim);
    h->n_kv_heads = h->n_heads;
    h->attn_scale = m->type->head_norms ? 1.0f : 1.0f / sqrtf((float)h->head_dim);
    return AERIE_OK;
}

/* Reads the width of feed-forward blocks. Some files of the oldest type with limits do not have it, so it is the tensor's. */
static aerie_status read_ff(tower_binder *t)
{
    ae_hparams *h = &t->m->hparams;
    AE_TRY(get(t, "feed_forward_length", true, 0, 65536, &h->n_ff));
    const ae_gguf_tensor *up = ae_gguf_tensor_find(t->m->gguf, "v.blk.0.ffn_up.weight");
    if (!h->n_ff && up && up->ne[0] > 0 && up->ne[0] <= 65536 && up->ne[1] > 0 && up->ne[1] <= 65536)
        h->n_ff = (uint32_t)(up->ne[0] == h->n_embd ? up->ne[1] : up->ne[0]);
    if (h->n_ff) return AERIE_OK;
    return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: clip.vision.feed_forward_length is 0", ae_gguf_path(t->m->gguf));
}

static aerie_status read_colours(tower_binder *t)
{
    ae_tower_model *m = t->m;
    AE_TRY(get_colours(t, "image_mean", m->mean));
    AE_TRY(get_colours(t, "image_std", m->std));
    for (int c = 0; c < 3; c++) {
        if (!(m->std[c] > 1e-6f))
            return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: clip.vision.image_std has %g; it must be positive",
                           ae_gguf_path(m->gguf), (double)m->std[c]);
        if (m->type->unit) m->mean[c] = m->std[c] = 0.5f;
    }
    return AERIE_OK;
}

/* Reads the file's own limits on the pixels of a picture; some models allow more than is possible here. */
static aerie_status read_pixel_limits(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t unit = m->patch * m->merge;
    const double possible = (double)MAX_TOKENS * unit * unit;
    uint32_t least = 0, most = 0;
    AE_TRY(get(t, "image_min_pixels", false, 1, UINT32_MAX, &least));
    AE_TRY(get(t, "image_max_pixels", false, unit * unit, UINT32_MAX, &most));
    if (least) m->least_pixels = least;
    if (most) m->most_pixels = most < possible ? most : possible;
    if (m->least_pixels > m->most_pixels)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: pictures of %.0f to %.0f pixels (clip.vision.image_min_pixels, "
                       "image_max_pixels) are not possible", ae_gguf_path(m->gguf), m->least_pixels, m->most_pixels);
    m->n_least = (uint32_t)(m->least_pixels / unit / unit);
    m->n_most = (uint32_t)(m->most_pixels / unit / unit);
    return AERIE_OK;
}

/* Reads the sizes of patches and tokens, and how many of them a picture has. */
static aerie_status read_sizes(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const bool sized = m->type->positions == AE_TOWER_POS_TABLE || m->type->size == AE_TOWER_ANY ||
                       m->type->size == AE_TOWER_SLICES;
    AE_TRY(get(t, "image_size", true, sized ? 1 : 0, MAX_IMAGE, &m->image_size));
    AE_TRY(get(t, "patch_size", true, 1, MAX_PATCH, &m->patch));
    m->merge = m->type->n_merge;
    m->n_features = 1;
    if (m->type->merge_key) AE_TRY(get(t, m->type->merge_key, false, 1, MAX_MERGE, &m->merge));
    AE_TRY(get(t, "preproc_image_size", false, 1, MAX_IMAGE, &m->longest));
    if (!m->longest) m->longest = m->image_size;
    m->n_least = m->type->n_least, m->n_most = m->type->n_most;
    m->tiles_least = m->type->size == AE_TOWER_GRID_SMART ? 2 : 1;
    m->tiles_most = m->type->size == AE_TOWER_GRID_SMART ? 10 : 12;
    AE_TRY(get(t, "preproc_min_tiles", false, 1, MAX_TILES, &m->tiles_least));
    AE_TRY(get(t, "preproc_max_tiles", false, m->tiles_least, MAX_TILES, &m->tiles_most));
    const uint32_t unit = m->patch * m->merge;
    const bool square = m->type->size == AE_TOWER_SQUARE || m->type->size == AE_TOWER_PAD ||
                        m->type->size == AE_TOWER_TILES || m->type->size == AE_TOWER_GRID;
    if (m->type->size == AE_TOWER_GRID_SMART) m->image_size = unit > 512 ? unit : 512 / unit * unit; /* of a tile */
    if ((square || m->type->size == AE_TOWER_ANY) && (m->image_size < unit || (square && m->image_size % unit)))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT,
                       "%s: a picture of %u pixels is not a whole number of tokens of %u x %u patches "
                       "of %u", ae_gguf_path(m->gguf), m->image_size, m->merge, m->merge, m->patch);
    m->least_pixels = (double)m->n_least * unit * unit, m->most_pixels = (double)m->n_most * unit * unit;
    if (m->type->pixel_keys) AE_TRY(read_pixel_limits(t));
    if (m->type->bare) m->patch *= m->merge, m->merge = 1;
    return AERIE_OK;
}

static aerie_status make_layers(tower_binder *t)
{
    ae_tower_model *m = t->m;
    ae_hparams *h = &m->hparams;
    uint32_t pattern = 0, window = 112;
    ae_layer_spec spec = {.mixer = AE_MIXER_ATTENTION, .n_heads = h->n_heads, .n_kv_heads = h->n_heads,
                          .head_dim = h->head_dim, .rope = h->n_ropes ? 0 : AE_NO_ROPE, .attn_scale = h->attn_scale,
                          .ffn = AE_FFN_DENSE, .n_ff = h->n_ff, .v_norm = m->type->head_norms};
    if (m->type->windows) AE_TRY(get(t, "n_wa_pattern", true, 1, 128, &pattern));
    if (m->type->windows) AE_TRY(get(t, "window_size", false, m->patch * m->merge, MAX_IMAGE, &window));
    m->window = window / (m->patch * m->merge);
    if (m->type->windows && !m->window) /* the default may be too small */
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: a window of %u pixels holds no token of %u pixels",
                       ae_gguf_path(m->gguf), window, m->patch * m->merge);
    AE_TRY(read_activation(t, &spec));
    m->layers = ae_arena_alloc(&m->arena, h->n_layers, sizeof *m->layers);
    m->blocks = ae_arena_alloc(&m->arena, h->n_layers, sizeof *m->blocks);
    if (!m->layers || !m->blocks)
        return ae_fail_memory(t->b.error, "the blocks of a vision encoder", h->n_layers * sizeof *m->layers);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        m->layers[i] = (ae_layer){.out_scale = 1.0f, .spec = spec};
        m->layers[i].spec.kv_from = (int)i;
        m->blocks[i] = (ae_tower_block){.windowed = m->type->windows && (i + 1) % pattern};
    }
    return AERIE_OK;
}

/* Reads the sizes into which LLaVA 1.6 and Granite Vision cut pictures: width and height of each. */
static aerie_status read_grids(tower_binder *t)
{
    static const char key[] = "clip.vision.image_grid_pinpoints";
    ae_tower_model *m = t->m;
    const ae_gguf_kv *kv = ae_gguf_kv_find(m->gguf, key);
    ae_gguf_string how = {0};
    if (!kv || (kv->type == AE_GGUF_ARRAY && !kv->n)) return AERIE_OK;
    if (kv->type != AE_GGUF_ARRAY || kv->n % 2 || kv->n > 2 * AE_TOWER_GRIDS)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: %s is not a list of 1 to %d pairs of sides", ae_gguf_path(m->gguf),
                       key, AE_TOWER_GRIDS);
    for (uint64_t i = 0; i < kv->n; i++) {
        int64_t side = 0;
        if (!ae_gguf_kv_int(kv, i, &side) || side < 1 || side % m->image_size || side / m->image_size > MAX_TILES)
            return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: element %llu of %s is not 1 to %d times the square's side of "
                           "%u pixels", ae_gguf_path(m->gguf), (unsigned long long)i, key, MAX_TILES, m->image_size);
        m->grids[i / 2][i % 2] = (uint32_t)side / m->image_size;
    }
    m->n_grids = (uint32_t)kv->n / 2;
    for (uint32_t i = 0; i < m->n_grids; i++)
        if (m->grids[i][0] * m->grids[i][1] > MAX_TILES)
            return ae_fail(t->b.error, AERIE_ERROR_LIMIT, "%s: %s has a grid of %u x %u tiles; %d tiles are possible",
                           ae_gguf_path(m->gguf), key, m->grids[i][0], m->grids[i][1], MAX_TILES);
    AE_TRY(ae_gguf_get_string(m->gguf, "clip.vision.mm_patch_merge_type", false, &how, t->b.error));
    const bool newline = ae_gguf_tensor_find(m->gguf, "model.image_newline") || ae_gguf_tensor_find(m->gguf, "v.image_newline");
    const bool unpad = how.n == 13 && !memcmp(how.data, "spatial_unpad", 13);
    if (how.n && !unpad && !(how.n == 4 && !memcmp(how.data, "flat", 4)))
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: clip.vision.mm_patch_merge_type is \"%.*s\"; \"flat\" and "
                       "\"spatial_unpad\" are known", ae_gguf_path(m->gguf), (int)(how.n < 32 ? how.n : 32), how.data);
    m->unpad = unpad || (!how.n && newline);
    return AERIE_OK;
}

/* LLaVA uses the last block but one of its encoder, which in most cases is CLIP with 24 blocks. Newer files name the block by
 * the key feature_layer and have no later ones; older files have 23 blocks, or all of them. Granite Vision's name several. */
static aerie_status read_features(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const ae_gguf_kv *kv = ae_gguf_kv_find(m->gguf, "clip.vision.feature_layer");
    AE_TRY(read_grids(t));
    if (!kv) {
        if (m->n_cls && m->hparams.n_layers == 24) m->hparams.n_layers = 23;
        return AERIE_OK;
    }
    bool fits = kv->type == AE_GGUF_ARRAY && kv->n >= 1 && kv->n <= AE_TOWER_FEATURES;
    int64_t n = -1;
    for (uint64_t i = 0; fits && i < kv->n; i++) {
        const int64_t before = n;
        fits = ae_gguf_kv_int(kv, i, &n) && n > before && n >= 0 && n <= m->hparams.n_layers;
        if (fits) m->features[i] = (uint32_t)n;
    }
    if (!fits || n < 1)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: clip.vision.feature_layer is not an ascending list of 1 to %d of "
                       "%u blocks", ae_gguf_path(m->gguf), AE_TOWER_FEATURES, m->hparams.n_layers);
    m->n_features = (uint32_t)kv->n;
    m->hparams.n_layers = (uint32_t)n;
    return AERIE_OK;
}

/* Reads what only files with a resampler have. They give no width of rows, so it is the projector's. */
static aerie_status read_resampler(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const ae_gguf_tensor *last = ae_gguf_tensor_find(m->gguf, "resampler.proj.weight");
    uint32_t version = 2;
    AE_TRY(ae_gguf_get_u32(m->gguf, "clip.minicpmv_version", false, &version, t->b.error));
    AE_TRY(ae_gguf_get_u32(m->gguf, "clip.minicpmv_query_num", false, &m->n_query, t->b.error));
    if (version != 100045 && (version < 2 || version > 6))
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: clip.minicpmv_version is %u; 2 to 6 and 100045 are known",
                       ae_gguf_path(m->gguf), version);
    if (!m->n_query) m->n_query = version == 2 ? 96 : 64;
    if (m->n_query > MAX_QUERIES)
        return ae_fail(t->b.error, AERIE_ERROR_LIMIT, "%s: clip.minicpmv_query_num is %u; 1 to %d are possible",
                       ae_gguf_path(m->gguf), m->n_query, MAX_QUERIES);
    m->nested = version == 2;
    if (!last || last->ne[1] < 1 || last->ne[1] > AE_MAX_EMBD || last->ne[1] % AE_TOWER_HEAD ||
        (m->n_out && m->n_out != last->ne[1]))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor resampler.proj.weight is missing, or its width is not a "
                       "multiple of %d, or not that of clip.vision.projection_dim (%u)", ae_gguf_path(m->gguf), AE_TOWER_HEAD,
                       m->n_out);
    m->n_out = (uint32_t)last->ne[1];
    return AERIE_OK;
}

static aerie_status read_keys(tower_binder *t)
{
    ae_tower_model *m = t->m;
    ae_hparams *h = &m->hparams;
    m->n_cls = m->type->cls && (!m->type->cls_optional || ae_gguf_tensor_find(m->gguf, "v.class_embd"));
    AE_TRY(read_sizes(t));
    AE_TRY(get(t, "embedding_length", true, 2, 8192, &h->n_embd));
    AE_TRY(get(t, "projection_dim", true, m->type->resampler ? 0 : 1, AE_MAX_EMBD, &m->n_out));
    if (m->type->resampler) AE_TRY(read_resampler(t));
    if (!m->type->bare) {
        AE_TRY(get(t, "block_count", true, 1, 128, &h->n_layers));
        if (m->type->last_but_one) AE_TRY(read_features(t));
        AE_TRY(read_heads(t));
        AE_TRY(read_ff(t));
    }
    AE_TRY(ae_gguf_get_f32(m->gguf, "clip.vision.attention.layer_norm_epsilon", true, &h->norm_eps, t->b.error));
    if (!(h->norm_eps > 0.0f && h->norm_eps < 1.0f))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: the norm's epsilon is %g; it must lie between 0 and 1",
                       ae_gguf_path(m->gguf), (double)h->norm_eps);
    AE_TRY(read_colours(t));
    h->arch = "clip";
    h->post_eps = h->norm_eps;
    /* the largest encoder of the type has layer norms */
    h->layer_norm = !m->type->rms && (!m->n_cls || ae_gguf_tensor_find(m->gguf, "v.blk.0.ln1.bias"));
    h->embedding_scale = h->residual_scale = h->logit_scale = 1.0f;
    const bool neox = m->type->turn == AE_TOWER_TURN_YX || m->type->turn == AE_TOWER_TURN_XY;
    if (m->type->turn) h->ropes[h->n_ropes++] = (ae_rope){.neox = neox, .n_rot = h->head_dim, .base = m->type->turn_base,
                                                          .factor = 1.0f};
    return m->type->bare ? AERIE_OK : make_layers(t);
}

aerie_status ae_tower_model_limit(ae_tower_model *m, uint32_t n_least, uint32_t n_most, aerie_error *error)
{
    const uint32_t unit = m->patch * m->merge, longest = m->image_size / unit;
    const uint32_t least = n_least ? n_least : m->n_least, most = n_most ? n_most : m->n_most;
    if (!n_least && !n_most) return AERIE_OK;
    if (m->type->size == AE_TOWER_SQUARE || m->type->size == AE_TOWER_PAD || m->type->size == AE_TOWER_TILES ||
        m->type->size == AE_TOWER_GRID)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "pictures of type %s have one size: tokens of a picture cannot be limited",
                       m->type->name);
    if ((m->type->size == AE_TOWER_ANY || m->type->size == AE_TOWER_FIT) && n_least)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "pictures of type %s are never enlarged: no least number of tokens is "
                       "possible", m->type->name);
    if (m->type->size == AE_TOWER_ANY) {
        uint32_t side = longest;
        while (side > 1 && side * side > n_most) side--;
        m->image_size = side * unit; /* side of a square with as many tokens */
        return AERIE_OK;
    }
    if (least > MAX_TOKENS || most > MAX_TOKENS || least > most)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a picture of %u to %u tokens (--image-min-tokens, --image-max-tokens); 1 "
                       "to %u are possible, in this order, and %u to %u usual", least, most, MAX_TOKENS, m->type->n_least,
                       m->type->n_most);
    m->n_least = least;
    m->n_most = most;
    if (n_least) m->least_pixels = (double)least * unit * unit;
    if (n_most) m->most_pixels = (double)most * unit * unit;
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

/* Returns whether an old file has exchanged the names of up and down. */
static bool is_swapped(tower_binder *t, uint32_t i)
{
    const ae_hparams *h = &t->m->hparams;
    snprintf(t->name, sizeof t->name, "v.blk.%u.ffn_down.weight", i);
    const ae_gguf_tensor *down = ae_gguf_tensor_find(t->m->gguf, t->name);
    return !t->m->type->gated && h->n_embd != h->n_ff && down && down->ne[0] == h->n_embd;
}

static aerie_status bind_attention(tower_binder *t, uint32_t i)
{
    const ae_hparams *h = &t->m->hparams;
    const uint32_t e = h->n_embd, q = h->n_heads * h->head_dim;
    ae_layer *l = &t->m->layers[i];
    AE_TRY(bind_layer(t, i, "attn_qkv.weight", false, 3 * q, e, &l->wqkv));
    AE_TRY(bind_layer(t, i, "attn_qkv.bias", false, 0, 3 * q, &l->bqkv));
    if (!l->wqkv) {
        l->bqkv = NULL;
        AE_TRY(bind_layer(t, i, "attn_q.weight", true, q, e, &l->wq));
        AE_TRY(bind_layer(t, i, "attn_k.weight", true, q, e, &l->wk));
        AE_TRY(bind_layer(t, i, "attn_v.weight", true, q, e, &l->wv));
        AE_TRY(bind_layer(t, i, "attn_q.bias", false, 0, q, &l->bq));
        AE_TRY(bind_layer(t, i, "attn_k.bias", false, 0, q, &l->bk));
        AE_TRY(bind_layer(t, i, "attn_v.bias", false, 0, q, &l->bv));
    }
    AE_TRY(bind_layer(t, i, "attn_out.weight", true, e, q, &l->wo));
    AE_TRY(bind_layer(t, i, "attn_out.bias", false, 0, e, &l->bo));
    snprintf(t->name, sizeof t->name, "v.blk.%u.attn_q_norm.weight", i);
    const ae_gguf_tensor *norm = ae_gguf_tensor_find(t->m->gguf, t->name);
    if (!norm && !t->m->type->head_norms) return AERIE_OK;
    const bool by_head = t->m->type->head_norms || norm->ne[0] == h->head_dim;
    l->spec.qk_norm = by_head ? AE_QK_NORM_HEAD : AE_QK_NORM_ROW;
    AE_TRY(bind_layer(t, i, "attn_q_norm.weight", true, 0, by_head ? h->head_dim : q, &l->q_norm));
    return bind_layer(t, i, "attn_k_norm.weight", true, 0, by_head ? h->head_dim : q, &l->k_norm);
}

/* Binds the projections of merged patches whose rows are added between the text model's layers. */
static aerie_status bind_deep(tower_binder *t, uint32_t i)
{
    ae_tower_model *m = t->m;
    ae_tower_block *b = &m->blocks[i];
    const uint32_t side = m->merge * m->merge * m->hparams.n_embd;
    static const char *const names[] = {"norm", "fc1", "fc2"};
    const struct {
        uint32_t n_out;
        ae_tensor_ref *weight, *bias;
    } parts[] = {{0, &b->deep_norm, &b->deep_norm_b}, {side, &b->deep_1, &b->deep_1_b}, {m->n_out, &b->deep_2, &b->deep_2_b}};
    snprintf(t->name, sizeof t->name, "v.deepstack.%u.norm.weight", i);
    if (!ae_gguf_tensor_find(m->gguf, t->name)) return AERIE_OK;
    if (!m->type->deep)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: %s belongs to no vision encoder of type %s", ae_gguf_path(m->gguf),
                       t->name, m->type->name);
    if (m->n_deep == AE_TOWER_DEEP)
        return ae_fail(t->b.error, AERIE_ERROR_LIMIT, "%s: more than %d blocks with rows for the text's layers",
                       ae_gguf_path(m->gguf), AE_TOWER_DEEP);
    b->i_deep = m->n_deep++;
    for (int k = 0; k < 3; k++) {
        snprintf(t->name, sizeof t->name, "v.deepstack.%u.%s.weight", i, names[k]);
        AE_TRY(bind(t, t->name, true, parts[k].n_out, side, parts[k].weight));
        snprintf(t->name, sizeof t->name, "v.deepstack.%u.%s.bias", i, names[k]);
        AE_TRY(bind(t, t->name, k == 0, 0, k == 2 ? m->n_out : side, parts[k].bias));
    }
    return AERIE_OK;
}

/* Reads the bounds of the product with the tensor NAME.weight. */
static aerie_status read_clamp(tower_binder *t, const char *name, ae_tower_clamp *c)
{
    static const char *const kinds[] = {"input_min", "input_max", "output_min", "output_max"};
    float *const places[] = {&c->in_least, &c->in_most, &c->out_least, &c->out_most};
    const ae_model reader = {.gguf = t->m->gguf};
    char full[160];
    for (int k = 0; k < 4; k++) {
        ae_tensor_ref one;
        *places[k] = k % 2 ? INFINITY : -INFINITY;
        snprintf(full, sizeof full, "%s.%s", name, kinds[k]);
        AE_TRY(ae_bind(&t->b, full, false, 0, 1, &one));
        if (!one) continue;
        AE_TRY(ae_model_read_f32(&reader, one, places[k], 1, t->b.error));
        if (isnan(*places[k])) return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor %s is not a number",
                                              ae_gguf_path(t->m->gguf), full);
        c->set = true;
    }
    return AERIE_OK;
}

static aerie_status read_clamps(tower_binder *t, uint32_t i)
{
    static const char *const names[AE_TOWER_PRODUCTS] = {"attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up",
                                                         "ffn_down"};
    char name[64];
    for (int k = 0; k < AE_TOWER_PRODUCTS; k++) {
        snprintf(name, sizeof name, "v.blk.%u.%s", i, names[k]);
        AE_TRY(read_clamp(t, name, &t->m->blocks[i].clamp[k]));
    }
    return AERIE_OK;
}

static aerie_status bind_block(tower_binder *t, uint32_t i)
{
    const ae_hparams *h = &t->m->hparams;
    const uint32_t e = h->n_embd, f = h->n_ff;
    const bool swapped = is_swapped(t, i);
    ae_layer *l = &t->m->layers[i];
    ae_tower_block *b = &t->m->blocks[i];
    AE_TRY(bind_layer(t, i, "ln1.weight", true, 0, e, &l->attn_norm));
    AE_TRY(bind_layer(t, i, "ln1.bias", h->layer_norm, 0, e, &l->attn_norm_b));
    AE_TRY(bind_layer(t, i, "ln2.weight", true, 0, e, &l->ffn_norm));
    AE_TRY(bind_layer(t, i, "ln2.bias", h->layer_norm, 0, e, &l->ffn_norm_b));
    AE_TRY(bind_attention(t, i));
    AE_TRY(bind_layer(t, i, "attn_post_norm.weight", t->m->type->head_norms, 0, e, &l->attn_post_norm));
    AE_TRY(bind_layer(t, i, "ffn_post_norm.weight", t->m->type->head_norms, 0, e, &l->ffn_post_norm));
    AE_TRY(bind_layer(t, i, "ls1.weight", false, 0, e, &b->scale[0]));
    AE_TRY(bind_layer(t, i, "ls2.weight", false, 0, e, &b->scale[1]));
    AE_TRY(bind_layer(t, i, "out_scale.weight", false, 0, e, &b->out_scale));
    if (t->m->type->gated) AE_TRY(bind_layer(t, i, "ffn_gate.weight", true, f, e, &l->w_gate));
    if (t->m->type->gated) AE_TRY(bind_layer(t, i, "ffn_gate.bias", false, 0, f, &l->b_gate));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_down.weight" : "ffn_up.weight", true, f, e, &l->w_up));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_down.bias" : "ffn_up.bias", false, 0, f, &l->b_up));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_up.weight" : "ffn_down.weight", true, e, f, &l->w_down));
    AE_TRY(bind_layer(t, i, swapped ? "ffn_up.bias" : "ffn_down.bias", false, 0, e, &l->b_down));
    if (t->m->type->clamped) AE_TRY(read_clamps(t, i));
    return bind_deep(t, i);
}

/* Binds a kernel [n_embd][3][p][p] as a matrix; it may also be written as one. */
static aerie_status bind_kernel(tower_binder *t, const char *name, ae_gguf_tensor *view)
{
    ae_tower_model *m = t->m;
    const ae_gguf_tensor *k = ae_gguf_tensor_find(m->gguf, name);
    const uint32_t n = 3 * m->patch * m->patch;
    const bool kernel = k && k->ne[0] == m->patch && k->ne[1] == m->patch && k->ne[2] == 3 && k->ne[3] == m->hparams.n_embd;
    const bool matrix = k && k->ne[0] == n && k->ne[1] == m->hparams.n_embd && k->ne[2] == 1 && k->ne[3] == 1;
    if (!kernel && !(matrix && m->type->bare))
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing, or its shape is not [%u, %u, 3, %u]",
                       ae_gguf_path(m->gguf), name, m->patch, m->patch, m->hparams.n_embd);
    if (k->type != AE_TYPE_F32 && k->type != AE_TYPE_F16 && k->type != AE_TYPE_BF16)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s; F32, F16 and BF16 are possible",
                       ae_gguf_path(m->gguf), name, ae_type_name(k->type));
    *view = *k;
    view->ne[0] = n;
    view->ne[1] = m->hparams.n_embd;
    view->ne[2] = view->ne[3] = 1;
    return AERIE_OK;
}

static aerie_status bind_patches(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t e = m->hparams.n_embd;
    AE_TRY(bind_kernel(t, "v.patch_embd.weight", &m->patch_view));
    if (m->type->frames) AE_TRY(bind_kernel(t, "v.patch_embd.weight.1", &m->frame_view));
    AE_TRY(bind(t, "v.patch_embd.bias", m->type->bare, 0, e, &m->patch_bias));
    if (m->n_cls) AE_TRY(bind(t, "v.class_embd", true, 0, e, &m->cls));
    if (m->type->start_norm) AE_TRY(bind(t, "v.norm_embd.weight", false, 0, e, &m->start_norm));
    if (m->type->start_norm) AE_TRY(bind(t, "v.norm_embd.bias", false, 0, e, &m->start_norm_b));
    for (uint32_t i = 0; m->type->bare && i < 3; i++) {
        const uint32_t width = i ? e : 3 * m->patch * m->patch;
        snprintf(t->name, sizeof t->name, "v.patch_norm.%u.weight", i + 1);
        AE_TRY(bind(t, t->name, true, 0, width, &m->bare_norm[i]));
        snprintf(t->name, sizeof t->name, "v.patch_norm.%u.bias", i + 1);
        AE_TRY(bind(t, t->name, true, 0, width, &m->bare_norm_b[i]));
    }
    return AERIE_OK;
}

static aerie_status bind_positions(tower_binder *t)
{
    static const char name[] = "v.position_embd.weight";
    ae_tower_model *m = t->m;
    const ae_tower_positions kind = m->type->positions;
    const ae_gguf_tensor *table = ae_gguf_tensor_find(m->gguf, name);
    const uint32_t side = m->image_size / m->patch;
    if (kind == AE_TOWER_POS_NONE || (!table && m->type->positions_optional)) return AERIE_OK;
    /* some tables are [lines][columns][n_embd] */
    const bool lines = kind == AE_TOWER_POS_BICUBIC && table && table->ne[2] > 1 && table->ne[2] == table->ne[1] &&
                       table->ne[2] <= MAX_SIDE;
    const uint64_t n = kind == AE_TOWER_POS_TABLE ? side * side + m->n_cls
                       : table ? (uint64_t)table->ne[1] * (lines ? (uint64_t)table->ne[2] : 1) : 0;
    const uint32_t root = (uint32_t)sqrt((double)n);
    if (!n || n > MAX_POSITIONS)
        return ae_fail(t->b.error, n ? AERIE_ERROR_LIMIT : AERIE_ERROR_FORMAT,
                       "%s: tensor %s is missing or has %llu positions; 1 to %u are possible", ae_gguf_path(m->gguf), name,
                       (unsigned long long)n, MAX_POSITIONS);
    if (kind != AE_TOWER_POS_TABLE && kind != AE_TOWER_POS_AXES && (uint64_t)root * root != n)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor %s has %llu positions; a square number is expected",
                       ae_gguf_path(m->gguf), name, (unsigned long long)n);
    m->n_positions = (uint32_t)n;
    if (lines) return ae_bind_stack(&t->b, name, true, root, root, m->hparams.n_embd, &m->positions);
    return ae_bind_stack(&t->b, name, true, kind == AE_TOWER_POS_AXES ? 2 : 1, m->n_positions, m->hparams.n_embd,
                         &m->positions);
}

/* Binds "NAME.weight" and "NAME.bias". */
static aerie_status bind_pair(tower_binder *t, const char *name, bool required, bool needs_bias, uint32_t n_out, uint32_t n_in,
                              ae_tensor_ref *weight, ae_tensor_ref *bias)
{
    snprintf(t->name, sizeof t->name, "%s.weight", name);
    AE_TRY(bind(t, t->name, required, n_out, n_in, weight));
    snprintf(t->name, sizeof t->name, "%s.bias", name);
    return bind(t, t->name, needs_bias && *weight, 0, n_out ? n_out : n_in, bias);
}

/* Binds the weights that merge patches: a matrix, or a kernel [n_out][n_embd][merge][merge] seen as one. */
static aerie_status bind_merger(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t k = m->merge, e = m->hparams.n_embd;
    ae_tensor_ref none;
    if (!m->type->merger_kernel)
        return k > 1 ? bind_pair(t, m->type->merger, true, false, e, k * k * e, &m->merger, &none) : AERIE_OK;
    snprintf(t->name, sizeof t->name, "%s.weight", m->type->merger);
    const ae_gguf_tensor *kernel = ae_gguf_tensor_find(m->gguf, t->name);
    if (!kernel || kernel->ne[0] != k || kernel->ne[1] != k || kernel->ne[2] != e || kernel->ne[3] != m->n_out)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing, or its shape is not [%u, %u, %u, %u]",
                       ae_gguf_path(m->gguf), t->name, k, k, e, m->n_out);
    if (kernel->type != AE_TYPE_F32 && kernel->type != AE_TYPE_F16 && kernel->type != AE_TYPE_BF16)
        return ae_fail(t->b.error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s; F32, F16 and BF16 are possible",
                       ae_gguf_path(m->gguf), t->name, ae_type_name(kernel->type));
    m->merger_view = *kernel;
    m->merger_view.ne[0] = (int64_t)k * k * e, m->merger_view.ne[1] = m->n_out;
    m->merger_view.ne[2] = m->merger_view.ne[3] = 1;
    m->merger = &m->merger_view;
    snprintf(t->name, sizeof t->name, "%s.bias", m->type->merger);
    return bind(t, t->name, false, 0, m->n_out, &m->merger_b);
}

/* Binds the gated block at the end of a projector. */
static aerie_status bind_gated(tower_binder *t)
{
    static const char *const names[] = {"mm.gate", "mm.up", "mm.down"};
    ae_tower_model *m = t->m;
    const ae_gguf_tensor *gate = ae_gguf_tensor_find(m->gguf, "mm.gate.weight");
    if (!gate || gate->ne[1] < 1 || gate->ne[1] > 65536)
        return ae_fail(t->b.error, AERIE_ERROR_FORMAT, "%s: tensor mm.gate.weight is missing, or its width is not 1 to 65,536",
                       ae_gguf_path(m->gguf));
    m->n_gated = (uint32_t)gate->ne[1];
    AE_TRY(bind_pair(t, "mm.post_norm", true, false, 0, m->n_out, &m->gated_norm, &m->gated_norm_b));
    for (int i = 0; i < 3; i++)
        AE_TRY(bind_pair(t, names[i], true, false, i == 2 ? m->n_out : m->n_gated, i == 2 ? m->n_gated : m->n_out, &m->gated[i],
                         &m->gated_b[i]));
    return AERIE_OK;
}

static aerie_status bind_resampler(tower_binder *t)
{
    static const char *const norms[] = {"resampler.ln_q", "resampler.ln_kv", "resampler.ln_post"};
    static const char *const parts[] = {"resampler.attn.q", "resampler.attn.k", "resampler.attn.v", "resampler.attn.out"};
    ae_tower_model *m = t->m;
    ae_tower_resampler *r = &m->resampler;
    const uint32_t o = m->n_out;
    AE_TRY(ae_bind_stack(&t->b, "resampler.query", true, 1, m->n_query, o, &r->query));
    AE_TRY(bind(t, "resampler.kv.weight", true, o, m->hparams.n_embd, &r->narrow));
    for (int i = 0; i < 3; i++) AE_TRY(bind_pair(t, norms[i], true, true, 0, o, &r->norm[i], &r->norm_b[i]));
    for (int i = 0; i < 4; i++) AE_TRY(bind_pair(t, parts[i], true, true, o, o, &r->w[i], &r->b[i]));
    return bind(t, "resampler.proj.weight", true, o, o, &m->project);
}

static aerie_status bind_projector(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const ae_tower_type *type = m->type;
    const uint32_t e = m->hparams.n_embd, o = m->n_out, kk = type->merge == AE_TOWER_POOL ? 1 : m->merge * m->merge;
    const uint32_t merged = m->n_features * kk * e;
    const bool layered = type->patch_eps > 0;
    uint32_t width = merged;
    ae_tensor_ref none;
    m->n_mid = o;
    if (type->resampler) return bind_resampler(t);
    if (type->patch_norm)
        AE_TRY(bind_pair(t, type->patch_norm, layered || m->merge > 1, layered, 0, e, &m->patch_norm, &m->patch_norm_b));
    if (type->norm && *type->norm)
        AE_TRY(bind_pair(t, type->norm, !type->norm_optional, type->norm_layer, 0, merged, &m->norm, &m->norm_b));
    if (type->merger) AE_TRY(bind_merger(t));
    if (type->merger) width = type->merger_kernel ? o : e;
    if (type->project2) {
        snprintf(t->name, sizeof t->name, "%s.weight", type->project);
        const ae_gguf_tensor *first = ae_gguf_tensor_find(m->gguf, t->name);
        if (first && first->ne[1] > 0 && first->ne[1] <= 65536) m->n_mid = (uint32_t)first->ne[1];
        AE_TRY(bind_pair(t, type->project2, true, false, o, m->n_mid, &m->project2, &m->project2_b));
    }
    if (type->size == AE_TOWER_SQUARE) AE_TRY(bind_pair(t, type->project, true, false, e, o, &m->project, &none));
    else AE_TRY(bind_pair(t, type->project, true, false, m->n_mid, width, &m->project, &m->project_b));
    if (type->gated_project) AE_TRY(bind_gated(t));
    if (m->unpad) AE_TRY(bind(t, "model.image_newline", false, 0, o, &m->newline));
    if (m->unpad && !m->newline) AE_TRY(bind(t, "v.image_newline", true, 0, o, &m->newline));
    if (type->clamped) AE_TRY(read_clamp(t, type->project, &m->clamp));
    if (type->head_norms) AE_TRY(bind(t, "v.std_bias", false, 0, e, &m->std_bias));
    if (type->head_norms) AE_TRY(bind(t, "v.std_scale", m->std_bias != NULL, 0, e, &m->std_scale));
    return type->patch_norm && !layered ? bind(t, "v.token_embd.img_break", false, 0, o, &m->row_break) : AERIE_OK;
}

static aerie_status bind_tensors(tower_binder *t)
{
    ae_tower_model *m = t->m;
    const uint32_t e = m->hparams.n_embd;
    AE_TRY(bind_patches(t));
    AE_TRY(bind_positions(t));
    AE_TRY(bind(t, "v.pre_ln.weight", m->type->turn == AE_TOWER_TURN_SHARED, 0, e, &m->pre_norm));
    AE_TRY(bind(t, "v.pre_ln.bias", false, 0, e, &m->pre_norm_b));
    const char *post = m->type->post_norm ? m->type->post_norm : "v.post_ln";
    AE_TRY(bind_pair(t, post, m->type->frames || m->type->post_norm, m->type->frames && !m->type->rms, 0, e, &m->post_norm,
                     &m->post_norm_b));
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
