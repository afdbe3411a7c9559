/* mkmmproj.c - see mkmmproj.h. Tensors and keys as llama.cpp's converters write them. */
#include "mkmmproj.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"
#include "quant/types.h"

#define MAX_TENSORS 256
enum { WIDTH = 48, HEADS = 2, FF = 84, BLOCKS = 3, PATCH = 4 };

typedef struct tensor {
    char name[96];
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

typedef struct kind {
    const char *name, *type;
    uint32_t side, merge;
    bool rms;         /* no biases but those of projectors, gated blocks */
    bool fused;       /* one tensor of queries, keys and values */
    bool patch_bias, pre, post, frames, cls, scales, heads, bare, biased, windows;
    bool start;       /* a norm of patches before positions are added */
    bool qk_norms;    /* norms of queries and keys by head */
    bool lines;       /* learned positions are [lines][columns] */
    bool each;        /* `norm` is one of patches */
    bool plain;       /* no biases in the projector, no row breaks */
    bool feature;     /* reads the last block but one */
    bool grids;       /* pictures are cut into grids */
    uint32_t features; /* a bit for each block whose output is projected with others'; 0: none */
    uint32_t version, queries; /* of a resampler; 0: there is none */
    uint32_t least, most; /* keys: pixels of a picture; 0: none */
    const char *post_name; /* NULL: v.post_ln */
    uint32_t n_table; /* learned positions; 0: none */
    uint32_t deep;    /* a bit for each block */
    const char *activation; /* key, or NULL */
    const char *key;  /* of merge */
    const char *norm, *project, *project2;
    bool norm_bias;
} kind;

static const kind kinds[] = {
    {"gemma3", "gemma3", 32, 2, .patch_bias = true, .post = true, .n_table = 64, .activation = "clip.use_gelu",
     .key = "clip.vision.projector.scale_factor"},
    {"glm4v", "glm4v", 32, 2, true, .fused = true, .patch_bias = true, .post = true, .frames = true, .start = true,
     .n_table = 36, .activation = "clip.use_silu", .key = "clip.vision.spatial_merge_size"},
    {"glmocr", "glm4v", 32, 2, true, .fused = true, .patch_bias = true, .post = true, .frames = true, .biased = true,
     .qk_norms = true, .activation = "clip.use_silu", .key = "clip.vision.spatial_merge_size"},
    {"kimivl", "kimivl", 32, 2, .patch_bias = true, .post = true, .n_table = 36, .activation = "clip.use_gelu",
     .key = "clip.vision.projector.scale_factor", .norm = "mm.input_norm", .norm_bias = true, .each = true, .project = "mm.1",
     .project2 = "mm.2"},
    {"kimik25", "kimik25", 32, 2, .fused = true, .patch_bias = true, .post = true, .n_table = 36, .lines = true,
     .activation = "clip.use_gelu", .key = "clip.vision.projector.scale_factor", .norm = "mm.input_norm", .norm_bias = true,
     .each = true, .project = "mm.1", .project2 = "mm.2"},
    {"paddleocr", "paddleocr", 32, 2, .least = 9 * 64 + 3, .most = 100 * 64 + 7, .patch_bias = true, .post = true,
     .n_table = 36, .activation = "clip.use_gelu", .norm = "mm.input_norm", .norm_bias = true, .each = true, .project = "mm.1",
     .project2 = "mm.2"},
    {"dotsocr", "dots_ocr", 0, 2, true, .least = 4 * 64, .most = 900 * 64, .patch_bias = true, .pre = true, .post = true,
     .post_name = "mm.post_norm", .activation = "clip.use_silu", .key = "clip.vision.projector.scale_factor",
     .norm = "mm.input_norm", .norm_bias = true, .each = true, .project = "mm.0", .project2 = "mm.2"},
    {"mlp", "mlp", 32, 1, .pre = true, .cls = true, .feature = true, .n_table = 65, .project = "mm.0", .project2 = "mm.2"},
    {"llava16", "mlp", 32, 1, .pre = true, .cls = true, .feature = true, .grids = true, .n_table = 65, .project = "mm.0",
     .project2 = "mm.2"},
    {"granitevision", "mlp", 32, 1, .patch_bias = true, .grids = true, .features = 11, .n_table = 64,
     .activation = "clip.use_gelu", .project = "mm.0", .project2 = "mm.2"},
    {"lightonocr", "lightonocr", 64, 2, true, .pre = true, .plain = true, .activation = "clip.use_silu",
     .key = "clip.vision.spatial_merge_size", .project = "mm.1", .project2 = "mm.2"},
    {"idefics3", "idefics3", 32, 2, .patch_bias = true, .post = true, .n_table = 64, .activation = "clip.use_gelu",
     .key = "clip.vision.projector.scale_factor"},
    {"pixtral", "pixtral", 64, 1, true, .pre = true, .activation = "clip.use_silu", .key = "clip.vision.spatial_merge_size",
     .project = "mm.1", .project2 = "mm.2"},
    {"pixtral-merge", "pixtral", 64, 2, true, .pre = true, .activation = "clip.use_silu",
     .key = "clip.vision.spatial_merge_size", .project = "mm.1", .project2 = "mm.2"},
    {"qwen3vl", "qwen3vl_merger", 32, 2, .fused = true, .patch_bias = true, .post = true, .frames = true, .n_table = 36,
     .deep = 5, .activation = "clip.use_gelu", .key = "clip.vision.spatial_merge_size", .project = "mm.0", .project2 = "mm.2"},
    {"qwen35", "qwen3vl_merger", 32, 2, .fused = true, .patch_bias = true, .post = true, .frames = true, .n_table = 36,
     .activation = "clip.use_gelu", .key = "clip.vision.spatial_merge_size", .project = "mm.0", .project2 = "mm.2"},
    {"qwen2vl", "qwen2vl_merger", 32, 2, .post = true, .frames = true, .key = "clip.vision.spatial_merge_size",
     .project = "mm.0", .project2 = "mm.2"},
    {"qwen2.5vl", "qwen2.5vl_merger", 32, 2, true, .post = true, .frames = true, .biased = true, .windows = true,
     .activation = "clip.use_silu", .key = "clip.vision.spatial_merge_size", .project = "mm.0", .project2 = "mm.2"},
    {"minicpmv", "resampler", 32, 1, .patch_bias = true, .post = true, .n_table = 4900, .version = 3, .queries = 7,
     .activation = "clip.use_gelu"},
    {"minicpmv25", "resampler", 32, 1, .patch_bias = true, .post = true, .n_table = 100, .version = 2, .queries = 5,
     .activation = "clip.use_gelu"},
    {"gemma4v", "gemma4v", 24, 3, true, .heads = true, .n_table = 120, .key = "clip.vision.projector.scale_factor"},
    {"gemma4uv", "gemma4uv", 24, 3, true, .bare = true, .patch_bias = true, .n_table = 120,
     .key = "clip.vision.projector.scale_factor"},
    {"internvl", "internvl", 32, 2, .patch_bias = true, .cls = true, .scales = true, .n_table = 65,
     .activation = "clip.use_gelu", .key = "clip.vision.projector.scale_factor", .norm = "mm.model.mlp.0",
     .norm_bias = true, .project = "mm.model.mlp.1", .project2 = "mm.model.mlp.3"},
    {"lfm2", "lfm2", 32, 2, .patch_bias = true, .post = true, .n_table = 36, .activation = "clip.use_gelu",
     .key = "clip.vision.projector.scale_factor", .norm = "mm.input_norm", .norm_bias = true, .project = "mm.1",
     .project2 = "mm.2"},
};

/* Bounds of a product, as Gemma 4's small models have them. */
static void bounds(making *m, const char *name)
{
    static const char *const parts[] = {"input_min", "input_max", "output_min", "output_max"};
    char full[96];
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof full, "%s.%s", name, parts[i]);
        add(m, full, false, 1, 1, 1, 1, 1);
    }
}

static void list_attention(making *m, const kind *k, int i)
{
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_out"};
    const bool bias = !k->rms || k->biased;
    char name[64];
    for (int p = k->fused ? 3 : 0; p < 4; p++) {
        snprintf(name, sizeof name, "v.blk.%d.%s", i, parts[p]);
        pair(m, name, bias, false, WIDTH, WIDTH);
        if (k->heads) bounds(m, name);
    }
    snprintf(name, sizeof name, "v.blk.%d.attn_qkv", i);
    if (k->fused) pair(m, name, bias, false, WIDTH, 3 * WIDTH);
    for (int p = 0; k->qk_norms && p < 2; p++) {
        snprintf(name, sizeof name, "v.blk.%d.attn_%c_norm", i, "qk"[p]);
        pair(m, name, false, true, WIDTH / HEADS, 0);
    }
    for (int p = 0; k->heads && p < 2; p++) {
        snprintf(name, sizeof name, "v.blk.%d.attn_%c_norm", i, "qk"[p]);
        pair(m, name, false, true, WIDTH / HEADS, 0);
        snprintf(name, sizeof name, "v.blk.%d.%s_post_norm", i, p ? "ffn" : "attn");
        pair(m, name, false, true, WIDTH, 0);
    }
}

static void list_blocks(making *m, const kind *k, uint32_t n_out)
{
    const int64_t side = k->merge * k->merge * WIDTH;
    char name[64];
    for (int i = 0; i < BLOCKS; i++) {
        list_attention(m, k, i);
        for (int p = 1; p < 3; p++) {
            snprintf(name, sizeof name, "v.blk.%d.ln%d", i, p);
            pair(m, name, !k->rms, true, WIDTH, 0);
            snprintf(name, sizeof name, "v.blk.%d.ls%d", i, p);
            if (k->scales) pair(m, name, false, true, WIDTH, 0);
        }
        for (int p = k->rms ? 0 : 1; p < 3; p++) {
            snprintf(name, sizeof name, "v.blk.%d.ffn_%s", i, p == 0 ? "gate" : p == 1 ? "up" : "down");
            pair(m, name, !k->rms || k->biased, false, p == 2 ? FF : WIDTH, p == 2 ? WIDTH : FF);
            if (k->heads) bounds(m, name);
        }
        if (!(k->deep >> i & 1)) continue;
        snprintf(name, sizeof name, "v.deepstack.%d.norm", i);
        pair(m, name, true, true, side, 0);
        snprintf(name, sizeof name, "v.deepstack.%d.fc1", i);
        pair(m, name, true, false, side, side);
        snprintf(name, sizeof name, "v.deepstack.%d.fc2", i);
        pair(m, name, true, false, side, n_out);
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
        const float edge = strstr(t->name, "_min") ? -1.0f : strstr(t->name, "_max") ? 1.25f : 0;
        for (int64_t k = 0; k < n; k++) {
            const float x = edge != 0 ? edge : (t->norm ? 1.0f : 0.0f) + gain * draw(&state);
            AE_TRY(ae_gguf_writer_data(w, &x, sizeof x, error));
        }
    }
    return AERIE_OK;
}

static aerie_status write_keys(ae_gguf_writer *w, const kind *k, uint32_t n_out, aerie_error *error)
{
    static const float mean[] = {0.5f, 0.45f, 0.4f}, std[] = {0.5f, 0.25f, 0.3f};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"clip.vision.image_size", k->side}, {"clip.vision.patch_size", PATCH},
                   {"clip.vision.embedding_length", WIDTH}, {"clip.vision.feed_forward_length", k->bare ? 0 : FF},
                   {"clip.vision.block_count", k->bare ? 0 : BLOCKS}, {"clip.vision.projection_dim", k->version ? 0 : n_out},
                   {"clip.vision.attention.head_count", k->bare ? 0 : HEADS}, {k->key, k->merge}};
    const int32_t feature = BLOCKS - 1;
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", "clip", error));
    AE_TRY(ae_gguf_writer_string(w, "general.type", "mmproj", error));
    AE_TRY(ae_gguf_writer_bool(w, "clip.has_vision_encoder", true, error));
    AE_TRY(ae_gguf_writer_string(w, "clip.projector_type", k->type, error));
    if (k->activation) AE_TRY(ae_gguf_writer_bool(w, k->activation, true, error));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].key) AE_TRY(ae_gguf_writer_u32(w, numbers[i].key, numbers[i].value, error));
    if (k->feature) AE_TRY(ae_gguf_writer_array(w, "clip.vision.feature_layer", AE_GGUF_I32, &feature, 1, error));
    if (k->grids) {
        const int32_t grids[] = {32, 64, 64, 32, 64, 64, 96, 32, 32, 96};
        AE_TRY(ae_gguf_writer_array(w, "clip.vision.image_grid_pinpoints", AE_GGUF_I32, grids, 10, error));
        AE_TRY(ae_gguf_writer_string(w, "clip.vision.mm_patch_merge_type", "spatial_unpad", error));
    }
    if (k->features) {
        int32_t list[BLOCKS + 1];
        size_t n = 0;
        for (int32_t i = 0; i <= BLOCKS; i++)
            if (k->features >> i & 1) list[n++] = i;
        AE_TRY(ae_gguf_writer_array(w, "clip.vision.feature_layer", AE_GGUF_I32, list, n, error));
    }
    if (k->version) AE_TRY(ae_gguf_writer_i32(w, "clip.minicpmv_version", (int32_t)k->version, error));
    if (k->version) AE_TRY(ae_gguf_writer_u32(w, "clip.minicpmv_query_num", k->queries, error));
    if (k->least) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.image_min_pixels", k->least, error));
    if (k->least) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.image_max_pixels", k->most, error));
    if (!strcmp(k->type, "idefics3")) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.preproc_image_size", 3 * k->side, error));
    if (k->windows) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.n_wa_pattern", 2, error));
    if (k->windows) AE_TRY(ae_gguf_writer_u32(w, "clip.vision.window_size", 4 * PATCH, error));
    const bool coarse = k->pre || k->start || k->qk_norms || !strncmp(k->type, "kimi", 4);
    AE_TRY(ae_gguf_writer_f32(w, "clip.vision.attention.layer_norm_epsilon", coarse ? 1e-5f : 1e-6f, error));
    AE_TRY(ae_gguf_writer_array(w, "clip.vision.image_mean", AE_GGUF_F32, mean, 3, error));
    return ae_gguf_writer_array(w, "clip.vision.image_std", AE_GGUF_F32, std, 3, error);
}

static void list_gated(making *m, const kind *k, uint32_t n_out)
{
    add(m, "mm.patch_merger.weight", false, 4, k->merge, k->merge, WIDTH, n_out);
    add(m, "mm.patch_merger.bias", false, 1, n_out, 1, 1, 1);
    pair(m, "mm.model.fc", false, false, n_out, n_out);
    pair(m, "mm.post_norm", true, true, n_out, 0);
    pair(m, "mm.gate", false, false, n_out, 52);
    pair(m, "mm.up", false, false, n_out, 52);
    pair(m, "mm.down", false, false, 52, n_out);
}

static void list_resampler(making *m, const kind *k, uint32_t n_out)
{
    add(m, "resampler.query", false, 2, n_out, k->queries, 1, 1);
    add(m, "resampler.pos_embed_k", false, 2, n_out, 1, 1, 1); /* read by no program */
    add(m, "resampler.kv.weight", false, 2, WIDTH, n_out, 1, 1);
    pair(m, "resampler.attn.q", true, false, n_out, n_out);
    pair(m, "resampler.attn.k", true, false, n_out, n_out);
    pair(m, "resampler.attn.v", true, false, n_out, n_out);
    pair(m, "resampler.attn.out", true, false, n_out, n_out);
    pair(m, "resampler.ln_q", true, true, n_out, 0);
    pair(m, "resampler.ln_kv", true, true, n_out, 0);
    pair(m, "resampler.ln_post", true, true, n_out, 0);
    add(m, "resampler.proj.weight", false, 2, n_out, n_out, 1, 1);
}

static void list_projector(making *m, const kind *k, uint32_t n_out)
{
    const int64_t side = k->merge * k->merge * WIDTH;
    const bool unfold = k->pre && k->rms && !k->each;
    const int64_t mid = unfold ? n_out : side;
    if (k->version) {
        list_resampler(m, k, n_out);
    } else if (!strcmp(k->type, "gemma3")) {
        add(m, "mm.soft_emb_norm.weight", true, 1, WIDTH, 1, 1, 1);
        add(m, "mm.input_projection.weight", false, 2, n_out, WIDTH, 1, 1);
    } else if (!strcmp(k->type, "idefics3")) {
        add(m, "mm.model.fc.weight", false, 2, side, n_out, 1, 1);
    } else if (!strcmp(k->type, "glm4v")) {
        list_gated(m, k, n_out);
    } else if (k->heads || k->bare) {
        add(m, "mm.input_projection.weight", false, 2, WIDTH, n_out, 1, 1);
    } else {
        if (unfold && k->merge > 1) add(m, "mm.input_norm.weight", true, 1, WIDTH, 1, 1, 1);
        if (unfold && k->merge > 1) add(m, "mm.patch_merger.weight", false, 2, side, WIDTH, 1, 1);
        if (k->norm) pair(m, k->norm, k->norm_bias, true, k->each ? WIDTH : side, 0);
        int64_t n_features = 0;
        for (uint32_t bits = k->features; bits; bits &= bits - 1) n_features++;
        pair(m, k->project, !k->plain, false, (unfold ? WIDTH : side) * (n_features ? n_features : 1), mid);
        pair(m, k->project2, !k->plain, false, mid, n_out);
        if (k->grids) add(m, "model.image_newline", false, 1, n_out, 1, 1, 1);
        if (unfold && !k->plain) add(m, "v.token_embd.img_break", false, 1, n_out, 1, 1, 1);
    }
    if (k->heads) add(m, "v.std_bias", false, 1, WIDTH, 1, 1, 1);
    if (k->heads) add(m, "v.std_scale", true, 1, WIDTH, 1, 1, 1);
}

static void list_start(making *m, const kind *k)
{
    const int64_t patch = k->bare ? PATCH * k->merge : PATCH;
    if (k->bare) add(m, "v.patch_embd.weight", false, 2, 3 * patch * patch, WIDTH, 1, 1);
    else add(m, "v.patch_embd.weight", false, 4, patch, patch, 3, WIDTH);
    if (k->frames) add(m, "v.patch_embd.weight.1", false, 4, patch, patch, 3, WIDTH);
    if (k->patch_bias) add(m, "v.patch_embd.bias", false, 1, WIDTH, 1, 1, 1);
    if (k->cls) add(m, "v.class_embd", false, 1, WIDTH, 1, 1, 1);
    for (int i = 1; k->bare && i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "v.patch_norm.%d", i);
        pair(m, name, true, true, i == 1 ? 3 * patch * patch : WIDTH, 0);
    }
    if (k->pre) pair(m, "v.pre_ln", !k->rms, true, WIDTH, 0);
    if (k->start) pair(m, "v.norm_embd", false, true, WIDTH, 0);
    if (k->lines) add(m, "v.position_embd.weight", false, 3, WIDTH, 6, 6, 1);
    else if (k->n_table && (k->heads || k->bare)) add(m, "v.position_embd.weight", false, 3, WIDTH, k->n_table, 2, 1);
    else if (k->n_table) add(m, "v.position_embd.weight", false, 2, WIDTH, k->n_table, 1, 1);
}

aerie_status mkmmproj_write(const char *name, uint32_t n_out, const char *path, aerie_error *error)
{
    const kind *k = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) k = &kinds[i];
    if (!k)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "there is no random mmproj of type %s; dotsocr, gemma3, gemma4v, gemma4uv, "
                       "glm4v, glmocr, granitevision, idefics3, internvl, kimivl, kimik25, lfm2, lightonocr, llava16, "
                       "minicpmv, minicpmv25, mlp, paddleocr, pixtral, pixtral-merge, qwen2vl, qwen2.5vl, qwen3vl and "
                       "qwen35 are there", name);
    ae_gguf_writer *w;
    making *m = ae_alloc(1, sizeof *m);
    if (!m) return ae_fail_memory(error, "a list of tensors", sizeof *m);
    list_start(m, k);
    if (!k->bare) list_blocks(m, k, n_out);
    if (k->post) pair(m, k->post_name ? k->post_name : "v.post_ln", !k->rms, true, WIDTH, 0);
    list_projector(m, k, n_out);
    aerie_status status = ae_gguf_writer_create(&w, path, error);
    if (status == AERIE_OK) {
        status = write_keys(w, k, n_out, error);
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
