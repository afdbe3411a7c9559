/* mmproj.c - converts the vision encoder and projector of a Hugging Face folder to an mmproj file, by the table of
 * mmproj_types.c (mmproj.h). Owns the choice of tensors and the keys clip.*. Sizes come from the tensors if these show them,
 * else from vision_config; the colours' means and deviations from preprocessor_config.json. Does not own running encoders
 * (engine/tower/), or the text model of the same folder (model.c). Invariants: every tensor of encoder and projector is
 * written, or refused by name, and the new file binds like any mmproj file before it gets its final name. Sources: as in
 * mmproj.h. */
#include "convert/tower/mmproj.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/tower.h"
#include "quant/types.h"

#define MAX_BLOCKS 128

static const char *const colour_files[] = {"processor_config.json", "preprocessor_config.json"};

static aerie_status fail_config(const ae_convert *c, const char *key, const char *what)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' %s", c->config_path, key, what);
}

static aerie_status fail_shape(const ae_convert *c, const ae_st_tensor *t, const char *what)
{
    char shape[128];
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; %s is needed", c->path, t->name,
                   ae_convert_shape(t, shape), what);
}

/* ---- Sizes ----------------------------------------------------------------------------------------------------------- */

/* Reads a number of vision_config (c->layer), and only from there: the text model's numbers have the same names. */
static aerie_status get(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value)
{
    const json_t *json = json_object_get(c->layer, key);
    if (!json || json_is_null(json)) return AERIE_OK;
    return ae_convert_u32(c, key, lo, hi, value);
}

/* Reads the width of the text model. */
static aerie_status read_width(ae_convert *c)
{
    static const char *const parts[] = {"text_config", "llm_config"};
    const json_t *found = json_object_get(c->config, "hidden_size");
    for (size_t i = 0; i < 2; i++) {
        const json_t *own = json_object_get(json_object_get(c->config, parts[i]), "hidden_size");
        if (json_is_integer(own)) found = own;
    }
    const json_int_t n = json_integer_value(found);
    if (n < 1 || n > 1 << 20)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the text model's 'hidden_size' is missing or no width",
                       c->config_path);
    c->tower.n_out = (uint32_t)n;
    return AERIE_OK;
}

static const ae_st_tensor *find_kind(const ae_convert *c, ae_mmproj_rule_kind kind)
{
    const ae_st_tensor *t = NULL;
    for (const ae_mmproj_rule *r = c->tower_family->rules; r->from && !t; r++)
        if (r->kind == kind) t = ae_convert_look(c, r->from);
    return t;
}

/* Reads the encoder's width (n_embd) and the side of a patch from the shape of the kernel that embeds patches. */
static aerie_status read_kernel(ae_convert *c)
{
    static const ae_mmproj_rule_kind kinds[] = {AE_MMPROJ_KERNEL, AE_MMPROJ_FRAMES, AE_MMPROJ_PIXELS, AE_MMPROJ_COLOURS};
    ae_convert_tower *m = &c->tower;
    const ae_st_tensor *t = NULL;
    size_t k = 0;
    while (k < 4 && !(t = find_kind(c, kinds[k]))) k++;
    if (!t)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: contains no kernel of patches for a vision encoder of type %s",
                       c->path, c->tower_family->type);
    const bool flat = k >= 2, frames = k == 1;
    const uint64_t *s = t->shape, area = flat ? (t->n_dims == 2 ? s[1] / 3 : 0) : t->n_dims >= 4 ? s[t->n_dims - 1] : 0;
    m->patch = flat ? (uint32_t)sqrt((double)area) : (uint32_t)area;
    if (flat && (area > 1 << 20 || s[1] % 3 || (uint64_t)m->patch * m->patch != area))
        return fail_shape(c, t, "[width, 3 p p]");
    if (!flat && (t->n_dims != (frames ? 5 : 4) || s[1] != 3 || (frames && s[2] != 2) || s[t->n_dims - 2] != area ||
                  area > 1024))
        return fail_shape(c, t, frames ? "[width, 3, 2, p, p]" : "[width, 3, p, p]");
    if (!m->patch || s[0] < 1 || s[0] > 1 << 20) return fail_shape(c, t, "a kernel of patches");
    m->n_embd = (uint32_t)s[0];
    return AERIE_OK;
}

/* Computes the side of an image from the number of positions, if there is one for each patch. */
static aerie_status read_side(ae_convert *c)
{
    const ae_convert_tower *m = &c->tower;
    const ae_st_tensor *t = find_kind(c, AE_MMPROJ_TABLE);
    const bool cls = c->tower_family->features ? ae_convert_look(c, "tower.embeddings.class_embedding") != NULL
                                               : find_kind(c, AE_MMPROJ_VECTOR) && !strcmp(c->tower_family->type, "internvl");
    c->tower.image_size = c->tower_family->image_size;
    if (c->tower_family->sideless) return AERIE_OK;
    if (c->tower.image_size) return get(c, "image_size", 1, 1 << 16, &c->tower.image_size);
    if (!t || t->n_dims < 2) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: contains no positions of patches", c->path);
    const uint64_t n = t->shape[t->n_dims - 2] - cls, root = n < 1 << 24 ? (uint64_t)sqrt((double)n) : 0;
    if (!root || root * root != n) return fail_shape(c, t, "a square number of positions");
    c->tower.image_size = (uint32_t)root * m->patch;
    return AERIE_OK;
}

/* Reads how many patches each side of a token has. */
static aerie_status read_merge(ae_convert *c)
{
    const ae_mmproj_family *f = c->tower_family;
    ae_convert_tower *m = &c->tower;
    const uint32_t side = m->image_size / m->patch;
    m->merge = f->n_merge;
    if (f->merge_from) AE_TRY(ae_convert_u32(c, f->merge_from, 1, 64, &m->merge));
    const json_t *fixed = ae_convert_value(c, f->merge_to ? "merge_kernel_size" : "spatial_merge_size");
    for (size_t i = 0; i < json_array_size(fixed); i++)
        if (json_integer_value(json_array_get(fixed, i)) != m->merge)
            return fail_config(c, "merge_kernel_size", "is not that of the published models");
    if (!f->merge_to && json_is_integer(fixed) && json_integer_value(fixed) != m->merge)
        return fail_config(c, "spatial_merge_size", "is not that of the published models");
    if (!strcmp(f->type, "internvl")) {
        double ratio = 0.5;
        AE_TRY(ae_convert_real(c, json_object_get(c->config, "downsample_ratio"), "downsample_ratio", 1.0 / 64, 1, &ratio));
        m->merge = (uint32_t)(1 / ratio);
    } else if (!strcmp(f->type, "gemma3")) {
        uint32_t n = 256;
        AE_TRY(ae_convert_u32(c, "mm_tokens_per_image", 1, 1 << 20, &n));
        const uint32_t root = (uint32_t)sqrt((double)n);
        if (root * root != n || side % root)
            return fail_config(c, "mm_tokens_per_image", "is not a square number of tokens that patches can be merged to");
        m->merge = side / root;
    } else if (!strcmp(f->type, "gemma4uv")) { /* the kernel reads all patches of a token at once */
        if (m->patch % m->merge) return fail_config(c, f->merge_from, "does not divide the kernel's side");
        m->patch /= m->merge;
    }
    return AERIE_OK;
}

/* Reads the sizes that the tensors of block 0 show, and counts blocks. */
static aerie_status read_blocks(ae_convert *c)
{
    const ae_mmproj_family *f = c->tower_family;
    ae_convert_tower *m = &c->tower;
    static const char *const ups[] = {"mlp.fc0.weight", "mlp.fc1.weight", "mlp.up_proj.weight", "mlp.up_proj.linear.weight",
                                      "mlp.linear_fc1.weight", "feed_forward.up_proj.weight"};
    static const char *const heads[] = {"num_attention_heads", "num_heads", "vt_num_attention_heads"};
    char prefix[64], name[128];
    if (!f->blocks) return AERIE_OK;
    for (size_t found = 1; found; m->n_layers += found > 0) {
        const size_t n = (size_t)snprintf(prefix, sizeof prefix, f->blocks, m->n_layers);
        found = 0;
        for (size_t i = 0; i < c->n_entries; i++) found += strncmp(c->entries[i].name, prefix, n) == 0;
        if (found && m->n_layers == MAX_BLOCKS)
            return ae_fail(c->error, AERIE_ERROR_LIMIT, "%s: more than %d blocks in a vision encoder", c->path, MAX_BLOCKS);
    }
    snprintf(prefix, sizeof prefix, f->blocks, 0);
    const ae_st_tensor *up = NULL;
    for (size_t i = 0; i < sizeof ups / sizeof *ups && !up; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, ups[i]);
        up = ae_convert_look(c, name);
    }
    if (!up || up->n_dims != 2 || up->shape[0] > 1 << 20)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: block 0 of the vision encoder has no feed-forward matrix", c->path);
    m->n_ff = (uint32_t)up->shape[0];
    m->n_heads = f->n_heads;
    for (size_t i = 0; i < 3; i++) AE_TRY(get(c, heads[i], 1, 1024, &m->n_heads));
    if (m->n_embd % m->n_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: a width of %u cannot be cut into %u heads", c->config_path, m->n_embd,
                       m->n_heads);
    m->head_dim = m->n_embd / m->n_heads;
    return get(c, "head_dim", 1, 1024, &m->head_dim);
}

/* Reads after which blocks the projector reads: LLaVA's last but one, or Granite Vision's list. Blocks after the last of these
 * are left out. */
static aerie_status read_features(ae_convert *c)
{
    ae_convert_tower *m = &c->tower;
    const json_t *layer = json_object_get(c->config, "vision_feature_layer");
    const size_t n = json_is_array(layer) ? json_array_size(layer) : 1;
    json_int_t last = -1;
    if (n < 1 || n > 8) return fail_config(c, "vision_feature_layer", "is not a list of 1 to 8 blocks");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(layer) ? json_array_get(layer, i) : layer;
        json_int_t k = one && !json_is_null(one) ? json_integer_value(one) : -2;
        if (k < 0) k += (json_int_t)m->n_layers + 1;
        if (k <= last || k > m->n_layers || (one && !json_is_null(one) && !json_is_integer(one)))
            return fail_config(c, "vision_feature_layer", "is not one of the encoder's blocks, or an ascending list of them");
        last = k;
        m->features[i] = (uint32_t)k;
    }
    if (last < 1) return fail_config(c, "vision_feature_layer", "names no block");
    m->n_features = (uint32_t)n;
    m->n_layers = (uint32_t)last;
    return AERIE_OK;
}

/* The row of a class is dropped if there is one, and no other row is. */
static aerie_status check_select(const ae_convert *c)
{
    const char *how = json_string_value(json_object_get(c->config, "vision_feature_select_strategy"));
    const bool cls = ae_convert_look(c, "tower.embeddings.class_embedding") != NULL;
    if (strcmp(how ? how : "default", cls ? "default" : "full") == 0) return AERIE_OK;
    return fail_config(c, "vision_feature_select_strategy",
                       cls ? "is not \"default\"" : "is not \"full\", but the encoder has no row of a class to drop");
}

static aerie_status check_word(const ae_convert *c, const json_t *from, const char *key, const char *wanted)
{
    const char *word = json_string_value(json_object_get(from, key));
    if (!word || !strcmp(word, wanted) || (!strcmp(wanted, "gelu_pytorch_tanh") && !strcmp(word, "gelu_new"))) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is \"%.40s\", but mmproj files of type %s run with %s",
                   c->config_path, key, word, c->tower_family->type, wanted);
}

/* Refuses settings that files of this type cannot express. */
static aerie_status check_config(const ae_convert *c)
{
    const ae_mmproj_family *f = c->tower_family;
    const json_t *layer = json_object_get(c->config, "vision_feature_layer");
    const char *kind = json_string_value(json_object_get(c->layer, "model_type"));
    if (f->activation_key) AE_TRY(check_word(c, c->layer, f->activation_key, f->activation));
    AE_TRY(check_word(c, c->config, "projector_hidden_act", "gelu"));
    if (f->features) AE_TRY(check_select(c));
    if (!f->features && layer && !json_is_null(layer) && json_integer_value(layer) != -1)
        return fail_config(c, "vision_feature_layer", "names an inner layer of the vision encoder; only -1, its output, can be "
                                                      "converted");
    if (!strcmp(f->type, "pixtral") && kind && strcmp(kind, "pixtral"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: the vision encoder is of type \"%.40s\"; of this class only "
                       "pixtral can be converted", c->config_path, kind);
    return AERIE_OK;
}

/* ---- Detecting --------------------------------------------------------------------------------------------------------- */

static aerie_status fail_unknown(ae_convert *c, const char *class)
{
    ae_buf known = {0};
    ae_mmproj_classes(&known);
    ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: there is no vision encoder of class \"%.60s\" that can be converted; known "
            "are %s", c->config_path, class ? class : "", known.data ? known.data : "");
    ae_buf_free(&known);
    return AERIE_ERROR_UNSUPPORTED;
}

static aerie_status mmproj_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {
        {"model.", ""}, {"language_model.model.", "language_model."}, {"vision_tower.vision_model.", "tower."},
        {"vision_tower.", "tower."}, {"vision_model.", "tower."}, {"visual.", "tower."}, {"vision_embedder.", "tower."},
        {"tower.multimodal_embedder.", "projector."}, {"multi_modal_projector.", "projector."}, {"connector.", "projector."},
        {"embed_vision.", "projector."}, {"vision_encoder.", "tower."}, {"vision_projection.", "projector."},
        {"tower.vision_model.", "tower."}, {"mlp_AR.", "projector."}, {"mm_projector.", "projector."}};
    *mine = c->options.mmproj;
    if (!*mine) return AERIE_OK;
    const char *class = json_string_value(json_array_get(json_object_get(c->config, "architectures"), 0));
    c->layer = json_object_get(c->config, "vision_config");
    const char *encoder = json_string_value(json_object_get(c->layer, "model_type"));
    c->tower_family = class ? ae_mmproj_find(class, encoder) : NULL;
    if (!c->tower_family) return fail_unknown(c, class);
    if (!json_is_object(c->layer))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'vision_config' is missing", c->config_path);
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    c->tower.class = class;
    c->tower.type = c->tower_family->type;
    AE_TRY(read_width(c));
    AE_TRY(read_kernel(c));
    AE_TRY(read_side(c));
    AE_TRY(read_merge(c));
    AE_TRY(read_blocks(c));
    if (c->tower_family->features) AE_TRY(read_features(c));
    return check_config(c);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------------- */

/* Adds a kernel, or (COLOURS) a matrix with a kernel's columns. frame: the first or second of two. */
static aerie_status add_kernel(ae_convert *c, const ae_mmproj_rule *r, const ae_st_tensor *t, const char *to, uint64_t frame)
{
    const bool last = r->kind == AE_MMPROJ_PIXELS || r->kind == AE_MMPROJ_COLOURS; /* the channel comes last */
    const uint64_t n_rows = t->n_dims > 1 ? t->shape[0] : 1, n = t->n / n_rows, n_frames = r->kind == AE_MMPROJ_FRAMES ? 2 : 1,
                   columns = n / n_frames, area = columns / 3, p = (uint64_t)sqrt((double)area);
    if (!columns || columns > UINT32_MAX / 2 || columns % 3 || p * p != area || n % n_frames)
        return fail_shape(c, t, "3 channels of squares");
    uint32_t *from = ae_arena_alloc(&c->arena, columns, sizeof *from);
    if (!from) return ae_convert_no_memory(c, "the order of pixels");
    for (uint64_t i = 0; i < columns; i++) {
        const uint64_t channel = i / area, pixel = i % area;
        from[i] = (uint32_t)(last ? pixel * 3 + channel : (channel * n_frames + frame) * area + pixel);
    }
    ae_convert_item item = {.name = to, .from = t, .rows = t->n_dims > 1 ? n_rows : 0, .row_step = n, .columns = columns,
                            .column_from = from, .f32 = t->n_dims < 2, .floating = true};
    if (r->kind != AE_MMPROJ_COLOURS) item.kernel = (uint32_t)p;
    return ae_convert_add(c, &item);
}

/* Adds queries, keys and values of a matrix or bias that has them one after another. */
static aerie_status add_split(ae_convert *c, const ae_st_tensor *t, const char *to)
{
    const uint64_t part = t->shape[0] / 3, columns = t->n_dims == 2 ? t->shape[1] : part;
    if (t->n_dims < 1 || t->n_dims > 2 || !part || t->shape[0] % 3) return fail_shape(c, t, "[3 rows, columns]");
    const char *at = strstr(to, "%c");
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "%.*s%c%s", (int)(at - to), to, "qkv"[i], at + 2);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .rows = t->n_dims == 2 ? part : 0,
                                                    .columns = columns, .first = (uint64_t)i * (t->n / 3)}));
    }
    return AERIE_OK;
}

/* Adds queries, keys and values in one, the first two in another order of each head's rows (QUARTERS). */
static aerie_status add_quarters(ae_convert *c, const ae_st_tensor *t, const char *to)
{
    const uint64_t n = t->n_dims ? t->shape[0] : 0, d = c->tower.head_dim;
    if (t->n_dims > 2 || !n || n > UINT32_MAX || n % 3 || n / 3 != (uint64_t)c->tower.n_heads * d || d % 4)
        return fail_shape(c, t, "queries, keys and values of heads that can be cut into quarters");
    uint32_t *from = ae_arena_alloc(&c->arena, n, sizeof *from);
    if (!from) return ae_convert_no_memory(c, "the order of rows");
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = i % d, half = at / (d / 2), pair = at % (d / 2) / 2, part = at % 2;
        from[i] = (uint32_t)(i < n / 3 * 2 ? i - at + pair * 4 + half * 2 + part : i);
    }
    const bool matrix = t->n_dims == 2;
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = matrix ? n : 0,
                                                .columns = matrix ? t->shape[1] : n, .row_from = matrix ? from : NULL,
                                                .column_from = matrix ? NULL : from});
}

/* Adds a kernel that merges patches. */
static aerie_status add_merger(ae_convert *c, const ae_st_tensor *t, const char *to)
{
    const uint64_t *s = t->shape;
    if (t->n_dims != 4 || s[2] != s[3] || !s[2] || s[2] > 64) return fail_shape(c, t, "[n, width, m, m]");
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = s[0], .columns = s[1] * s[2] * s[3],
                                                .kernel = (uint32_t)s[2], .floating = true});
}

static aerie_status add_table(ae_convert *c, const ae_mmproj_rule *r, const ae_st_tensor *t, const char *to)
{
    const uint64_t *s = t->shape;
    ae_convert_item item = {.name = to, .from = t, .f32 = true};
    if (t->n_dims < 2 || t->n_dims > 3) return fail_shape(c, t, "a table of positions");
    item.rows = s[t->n_dims - 2], item.columns = s[t->n_dims - 1];
    if (r->kind == AE_MMPROJ_FLAT && t->n_dims == 3) item.rows *= s[0];
    else if (t->n_dims == 3 && s[0] > 1) item.n_stack = s[0];
    if (r->kind == AE_MMPROJ_AXES) {
        if (t->n_dims != 3 || s[1] != 2) return fail_shape(c, t, "[positions, 2, width]");
        item.n_stack = 2, item.rows = s[0], item.stack_step = s[2], item.row_step = 2 * s[2];
    }
    return ae_convert_add(c, &item);
}

static bool is_infinite(const ae_st_tensor *t)
{
    float x = 0;
    return t->n == 1 && ae_convert_floats(t, 0, &x, 1) && isinf(x);
}

static aerie_status add_tensor(ae_convert *c, const ae_mmproj_rule *r, const ae_st_tensor *t, const char *to)
{
    const uint64_t *s = t->shape;
    switch (r->kind) {
    case AE_MMPROJ_KERNEL: case AE_MMPROJ_PIXELS: case AE_MMPROJ_COLOURS: return add_kernel(c, r, t, to, 0);
    case AE_MMPROJ_FRAMES: {
        char second[96];
        snprintf(second, sizeof second, "%s.1", to);
        AE_TRY(add_kernel(c, r, t, to, 0));
        return add_kernel(c, r, t, second, 1);
    }
    case AE_MMPROJ_SPLIT: return add_split(c, t, to);
    case AE_MMPROJ_QUARTERS: return add_quarters(c, t, to);
    case AE_MMPROJ_MERGER: return add_merger(c, t, to);
    case AE_MMPROJ_TABLE: case AE_MMPROJ_FLAT: case AE_MMPROJ_AXES: return add_table(c, r, t, to);
    case AE_MMPROJ_VECTOR:
        if (is_infinite(t)) return AERIE_OK; /* a product without bounds: the file leaves them out */
        return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = t->n, .f32 = true});
    default: break;
    }
    if (t->n_dims != 1 && t->n_dims != 2) return fail_shape(c, t, "a matrix or a row of numbers");
    ae_convert_item item = {.name = to, .from = t, .rows = t->n_dims == 2 ? s[0] : 0, .columns = s[t->n_dims - 1],
                            .f32 = r->kind == AE_MMPROJ_F32, .floating = r->kind == AE_MMPROJ_FLOAT};
    if (r->kind == AE_MMPROJ_PLUS_ONE) item.change = AE_CONVERT_PLUS_ONE;
    if (r->kind == AE_MMPROJ_TURNED) {
        item.how = AE_CONVERT_ROTATED, item.head_dim = item.n_rot = c->tower.head_dim;
        if (s[0] % item.head_dim || item.head_dim % 2) return fail_shape(c, t, "a whole number of heads");
    }
    return ae_convert_add(c, &item);
}

/* Applies rules; in, out: prefixes of the two names. */
static aerie_status apply(ae_convert *c, const ae_mmproj_rule *rules, const char *in, const char *out)
{
    static const char *const parts[] = {".weight", ".bias"};
    for (const ae_mmproj_rule *r = rules; r->from; r++) {
        for (size_t i = 0; i < (r->exact ? 1 : 2); i++) {
            char from[160], to[88];
            snprintf(from, sizeof from, "%s%s%s", in, r->from, r->exact ? "" : parts[i]);
            snprintf(to, sizeof to, "%s%s%s", out, r->to, r->exact ? "" : parts[i]);
            const ae_st_tensor *t = ae_convert_take(c, from);
            if (t) AE_TRY(add_tensor(c, r, t, to));
        }
    }
    return AERIE_OK;
}

/* Adds the projections whose rows are added in the text model's first layers; the list gives the block before each. */
static aerie_status plan_deep(ae_convert *c)
{
    static const ae_mmproj_rule rules[] = {{"norm", "norm", AE_MMPROJ_PLAIN, false},
                                           {"linear_fc1", "fc1", AE_MMPROJ_PLAIN, false},
                                           {"linear_fc2", "fc2", AE_MMPROJ_PLAIN, false},
                                           {NULL, NULL, AE_MMPROJ_PLAIN, false}};
    const json_t *list = json_object_get(c->layer, "deepstack_visual_indexes");
    for (size_t i = 0; i < json_array_size(list) && i < AE_TOWER_DEEP; i++) {
        const json_int_t block = json_integer_value(json_array_get(list, i));
        char in[64], out[64], norm[96];
        if (block < 0 || block >= (json_int_t)c->tower.n_layers)
            return fail_config(c, "deepstack_visual_indexes", "names a block that is not there");
        c->tower.deep[block] = true;
        snprintf(in, sizeof in, "tower.deepstack_merger_list.%zu.", i);
        snprintf(out, sizeof out, "v.deepstack.%u.", (unsigned)block);
        snprintf(norm, sizeof norm, "%snorm.weight", in);
        if (!ae_convert_look(c, norm))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'deepstack_visual_indexes' names block %u, but there is no "
                           "tensor %s", c->config_path, (unsigned)block, norm);
        AE_TRY(apply(c, rules, in, out));
    }
    return AERIE_OK;
}

/* Reads the id of a token from tokenizer_config.json or tokenizer.json; -1: there is none. */
static aerie_status find_token(const ae_convert *c, const char *text, json_int_t *id)
{
    json_t *file, *entry;
    const char *key;
    size_t i;
    *id = -1;
    AE_TRY(ae_convert_read_json(c, "tokenizer_config.json", &file));
    json_object_foreach(json_object_get(file, "added_tokens_decoder"), key, entry) {
        const char *content = json_string_value(json_object_get(entry, "content"));
        unsigned long n = 0;
        if (content && !strcmp(content, text) && sscanf(key, "%9lu", &n) == 1) *id = (json_int_t)n;
    }
    json_decref(file);
    if (*id >= 0) return AERIE_OK;
    AE_TRY(ae_convert_read_json(c, "tokenizer.json", &file));
    json_array_foreach(json_object_get(file, "added_tokens"), i, entry) {
        const char *content = json_string_value(json_object_get(entry, "content"));
        if (content && !strcmp(content, text) && json_is_integer(json_object_get(entry, "id")))
            *id = json_integer_value(json_object_get(entry, "id"));
    }
    json_decref(file);
    return AERIE_OK;
}

/* Adds the embedding of the token that ends a line. */
static aerie_status plan_break(ae_convert *c)
{
    const ae_st_tensor *t = ae_convert_look(c, "language_model.embed_tokens.weight");
    json_int_t id;
    if (!t) t = ae_convert_look(c, "embed_tokens.weight");
    AE_TRY(find_token(c, "[IMG_BREAK]", &id));
    if (id < 0)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json and tokenizer_config.json have no token [IMG_BREAK], "
                       "whose embedding the mmproj file needs", c->path);
    if (!t || t->n_dims != 2 || (uint64_t)id >= t->shape[0])
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: there is no embedding of token %lld, [IMG_BREAK]", c->path,
                       (long long)id);
    return ae_convert_add(c, &(ae_convert_item){.name = "v.token_embd.img_break", .from = t, .columns = t->shape[1],
                                                .first = (uint64_t)id * t->shape[1]});
}

/* Whether a tensor belongs to what comes after the blocks that are read. */
static bool is_after(const ae_convert *c, const char *name)
{
    unsigned i = 0;
    return !strncmp(name, "tower.post_layernorm.", 21) ||
           (sscanf(name, "tower.encoder.layers.%9u.", &i) == 1 && i >= c->tower.n_layers);
}

/* Checks that every tensor of encoder and projector was taken. SigLIP's head is only for classification, and the other
 * exceptions are buffers that follow from sizes. */
static aerie_status check_unused(const ae_convert *c)
{
    static const char *const starts[] = {"tower.", "projector.", "mlp1."}, *const unneeded[] = {
        "tower.head.", "position_ids", "inv_freq", "rotary_", "packing_position_embedding", "pos_emb.time_weight"};
    for (size_t i = 0; i < c->n_entries; i++) {
        const ae_convert_entry *e = &c->entries[i];
        bool ours = false;
        for (size_t k = 0; k < 3; k++) ours |= strncmp(e->name, starts[k], strlen(starts[k])) == 0;
        for (size_t k = 0; k < sizeof unneeded / sizeof *unneeded; k++) ours = ours && !strstr(e->name, unneeded[k]);
        if (c->tower_family->features) ours = ours && !is_after(c, e->name);
        if (ours && !e->used)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has no place in an mmproj file of type %s; --skip "
                           "leaves it out", c->path, e->tensor->name, c->tower.type);
    }
    return AERIE_OK;
}

static aerie_status mmproj_plan(ae_convert *c)
{
    const ae_mmproj_family *f = c->tower_family;
    char in[64], out[32];
    static const ae_mmproj_rule_kind kinds[] = {AE_MMPROJ_KERNEL, AE_MMPROJ_FRAMES, AE_MMPROJ_PIXELS, AE_MMPROJ_COLOURS};
    const ae_st_tensor *kernel = NULL;
    for (size_t i = 0; i < 4 && !kernel; i++) kernel = find_kind(c, kinds[i]);
    c->out_type = c->options.type;
    if (c->out_type == AE_CONVERT_TYPE_AUTO)
        c->out_type = kernel && kernel->dtype == AE_ST_BF16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    AE_TRY(apply(c, f->rules, "", ""));
    for (uint32_t i = 0; i < c->tower.n_layers; i++) {
        snprintf(in, sizeof in, f->blocks, i);
        snprintf(out, sizeof out, "v.blk.%u.", i);
        AE_TRY(apply(c, f->block_rules, in, out));
    }
    AE_TRY(plan_deep(c));
    if (f->breaks) AE_TRY(plan_break(c));
    return check_unused(c);
}

/* ---- Keys -------------------------------------------------------------------------------------------------------------- */

/* Finds a value of the image processor: in processor_config.json's image_processor, or at the top level of either file; NULL:
 * there is none. The caller releases *file by json_decref. */
static aerie_status find_processed(const ae_convert *c, const char *key, json_t **file, const json_t **value)
{
    *value = NULL;
    for (size_t i = 0; i < 2; i++) {
        AE_TRY(ae_convert_read_json(c, colour_files[i], file));
        *value = json_object_get(json_object_get(*file, "image_processor"), key);
        if (!*value) *value = json_object_get(*file, key);
        if (*value && !json_is_null(*value)) return AERIE_OK;
        json_decref(*file);
        *file = NULL, *value = NULL;
    }
    return AERIE_OK;
}

static aerie_status put_colours(ae_convert_keys *k, const ae_convert *c, const char *key, double usual)
{
    json_t *file;
    const json_t *list;
    float x[3] = {(float)usual, (float)usual, (float)usual};
    char name[48];
    aerie_status status = find_processed(c, key, &file, &list);
    if (status == AERIE_OK && !list && usual < 0)
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither %s nor %s has '%s'", c->path, colour_files[1],
                         colour_files[0], key);
    if (status == AERIE_OK && list && json_array_size(list) != 3)
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' of the picture processor is not a list of 3 numbers", c->path,
                         key);
    for (size_t i = 0; i < 3 && status == AERIE_OK && list; i++) {
        double v = 0;
        status = ae_convert_real(c, json_array_get(list, i), key, -1000, 1000, &v);
        x[i] = (float)v;
    }
    json_decref(file);
    snprintf(name, sizeof name, "vision.%s", key);
    if (status == AERIE_OK) ae_convert_put_array(k, name, AE_GGUF_F32, x, 3);
    return status;
}

/* Writes a number of the image processor, or of config.json, under a key, unless it is absent. */
static aerie_status put_limit(ae_convert_keys *k, const ae_convert *c, const char *inner, const char *processed,
                              const char *configured, const char *to)
{
    json_t *file;
    const json_t *value;
    AE_TRY(find_processed(c, processed, &file, &value));
    if (inner) value = json_object_get(value, inner);
    if (!json_is_integer(value) && configured) value = json_object_get(c->config, configured);
    const json_int_t n = json_integer_value(value);
    json_decref(file);
    if (n > 0 && n <= INT32_MAX) ae_convert_put_u32(k, to, (uint32_t)n);
    return k->status;
}

/* Writes n, where all layers but every n-th have windows. */
static aerie_status put_windows(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *list = json_object_get(c->layer, "fullatt_block_indexes");
    const json_int_t n = json_integer_value(json_array_get(list, 0)) + 1;
    uint32_t window = 112;
    size_t n_full = 0;
    AE_TRY(get(c, "window_size", 1, 1 << 16, &window));
    for (uint32_t i = 0; i < c->tower.n_layers && n > 0; i++) {
        bool full = false;
        for (size_t j = 0; j < json_array_size(list); j++) full |= json_integer_value(json_array_get(list, j)) == i;
        n_full += full;
        if (full != (((json_int_t)i + 1) % n == 0)) n_full = 1 << 20;
    }
    if (!json_is_array(list) || n < 1 || n > 128 || n_full != json_array_size(list))
        return fail_config(c, "fullatt_block_indexes", "is not every n-th block, which is all that a file can say");
    ae_convert_put_u32(k, "vision.n_wa_pattern", (uint32_t)n);
    if (window != 112) ae_convert_put_u32(k, "vision.window_size", window);
    return k->status;
}

/* LLaVA: after which blocks rows are read, and LLaVA 1.6: into which grids pictures are cut, whose sides config.json has as
 * height and width, and a file the other way round. */
static aerie_status put_features(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_tower *m = &c->tower;
    const json_t *list = json_object_get(c->config, "image_grid_pinpoints");
    int32_t sides[2 * AE_TOWER_GRIDS], features[8];
    const size_t n = json_array_size(list);
    for (uint32_t i = 0; i < m->n_features; i++) features[i] = (int32_t)m->features[i];
    ae_convert_put_array(k, "vision.feature_layer", AE_GGUF_I32, features, m->n_features);
    if (strcmp(m->class, "LlavaNextForConditionalGeneration")) return k->status;
    if (n < 1 || n > AE_TOWER_GRIDS) return fail_config(c, "image_grid_pinpoints", "is not a list of 1 to 64 sizes");
    for (size_t i = 0; i < 2 * n; i++) {
        const json_t *pair = json_array_get(list, i / 2);
        const json_int_t side = json_integer_value(json_array_get(pair, 1 - i % 2));
        if (json_array_size(pair) != 2 || side < 1 || side > 1 << 20)
            return fail_config(c, "image_grid_pinpoints", "is not a list of heights and widths");
        sides[i] = (int32_t)side;
    }
    ae_convert_put_array(k, "vision.image_grid_pinpoints", AE_GGUF_I32, sides, 2 * n);
    ae_convert_put_text(k, "vision.mm_patch_merge_type", "spatial_unpad");
    return k->status;
}

static aerie_status put_type(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_tower *m = &c->tower;
    if (!strcmp(m->type, "idefics3"))
        AE_TRY(put_limit(k, c, "longest_edge", "size", NULL, "vision.preproc_image_size"));
    if (!strcmp(m->type, "internvl")) {
        AE_TRY(put_limit(k, c, NULL, "min_patches", "min_dynamic_patch", "vision.preproc_min_tiles"));
        AE_TRY(put_limit(k, c, NULL, "max_patches", "max_dynamic_patch", "vision.preproc_max_tiles"));
    }
    if (c->tower_family->pixels) {
        AE_TRY(put_limit(k, c, NULL, "min_pixels", NULL, "vision.image_min_pixels"));
        AE_TRY(put_limit(k, c, NULL, "max_pixels", NULL, "vision.image_max_pixels"));
    }
    if (c->tower_family->features) AE_TRY(put_features(k, c));
    if (!strcmp(m->type, "qwen2.5vl_merger")) AE_TRY(put_windows(k, c));
    if (!strcmp(m->type, "qwen3vl_merger"))
        ae_convert_put_array(k, "vision.is_deepstack_layers", AE_GGUF_BOOL, m->deep, m->n_layers);
    return k->status;
}

static aerie_status mmproj_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_mmproj_family *f = c->tower_family;
    const ae_convert_tower *m = &c->tower;
    const bool unit = strncmp(m->type, "gemma4", 6) == 0;
    char merge[64];
    double eps = f->eps;
    ae_convert_keys k = {.w = w, .arch = "clip", .error = c->error};
    if (f->eps_key) AE_TRY(ae_convert_real(c, json_object_get(c->layer, f->eps_key), f->eps_key, 1e-12, 0.1, &eps));
    ae_convert_put_general(&k, c);
    ae_convert_put_name(&k, "general.type", "mmproj");
    ae_convert_put_bool(&k, "has_vision_encoder", true);
    ae_convert_put_text(&k, unit ? "vision.projector_type" : "projector_type", m->type);
    if (f->activation && strncmp(f->activation, "gelu", 4) == 0 && !unit) ae_convert_put_bool(&k, "use_gelu", true);
    if (f->activation && !strcmp(f->activation, "silu")) ae_convert_put_bool(&k, "use_silu", true);
    ae_convert_put_u32(&k, "vision.image_size", m->image_size);
    ae_convert_put_u32(&k, "vision.patch_size", m->patch);
    ae_convert_put_u32(&k, "vision.embedding_length", m->n_embd);
    ae_convert_put_u32(&k, "vision.feed_forward_length", m->n_ff);
    ae_convert_put_u32(&k, "vision.block_count", m->n_layers);
    ae_convert_put_u32(&k, "vision.attention.head_count", m->n_heads);
    if (m->n_heads && m->head_dim * m->n_heads != m->n_embd) ae_convert_put_u32(&k, "vision.attention.head_dim", m->head_dim);
    ae_convert_put_u32(&k, "vision.projection_dim", m->n_out);
    ae_convert_put_f32(&k, "vision.attention.layer_norm_epsilon", eps);
    snprintf(merge, sizeof merge, "vision.%s", f->merge_to ? f->merge_to : "");
    if (f->merge_to) ae_convert_put_u32(&k, merge, m->merge);
    AE_TRY(put_colours(&k, c, "image_mean", unit ? 0 : -1));
    AE_TRY(put_colours(&k, c, "image_std", unit ? 1 : -1));
    return put_type(&k, c);
}

/* Binds the file like any mmproj file, which detects missing tensors and wrong shapes. */
static aerie_status mmproj_check(ae_convert *c)
{
    ae_tower_model *tower;
    aerie_error error = {0};
    const char *part = ae_gguf_writer_part(c->writer);
    const aerie_status status = ae_tower_model_load(&tower, part, false, &error);
    ae_tower_model_free(status == AERIE_OK ? tower : NULL);
    if (status == AERIE_OK) return AERIE_OK;
    /* the message without the path, since the file will not exist */
    const char *why = strncmp(error.text, part, strlen(part)) ? error.text : error.text + strlen(part);
    why += strspn(why, ": ");
    return ae_fail(c->error, status, "%s: what it makes cannot be loaded: %s", c->path, why);
}

const ae_convert_kind ae_convert_mmproj_kind = {mmproj_detect, mmproj_plan, mmproj_keys, mmproj_check};
