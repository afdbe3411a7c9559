/* tower_types.c - the table of types of vision encoders (tower.h). Owns nothing.
 *
 * Source: the published models' code and processors, and the names that llama.cpp's converters write. */
#include <string.h>

#include "model/tower.h"

static const ae_tower_type types[] = {
    {.name = "dots_ocr", .size = AE_TOWER_SMART, .merge = AE_TOWER_SHUFFLE, .turn = AE_TOWER_TURN_YX, .turn_base = 10000.0f,
     .merge_key = "projector.scale_factor", .n_merge = 2, .n_least = 4, .n_most = 14400, .pixel_keys = true, .bicubic = true,
     .rms = true, .gated = true, .post_norm = "mm.post_norm", .patch_norm = "mm.input_norm",
     .patch_eps = 1e-6f, .project = "mm.0", .project2 = "mm.2", .begin = "<|img|>", .end = "<|endofimg|>",
     .placeholder = {"<|img|><|imgpad|><|endofimg|>"}},
    {.name = "gemma3", .size = AE_TOWER_SQUARE, .merge = AE_TOWER_POOL, .positions = AE_TOWER_POS_TABLE,
     .merge_key = "projector.scale_factor", .n_merge = 4, .group = true, .norm = "mm.soft_emb_norm",
     .project = "mm.input_projection", .begin = "<start_of_image>", .end = "<end_of_image>",
     .placeholder = {"<start_of_image>"}},
    {.name = "gemma4v", .size = AE_TOWER_BUDGET, .merge = AE_TOWER_POOL, .positions = AE_TOWER_POS_AXES,
     .turn = AE_TOWER_TURN_XY, .turn_base = 100.0f, .merge_key = "projector.scale_factor", .n_merge = 3, .n_least = 70,
     .n_most = 280, .bicubic = true, .rms = true, .gated = true, .unit = true, .clamped = true, .head_norms = true,
     .group = true, .norm = "", .project = "mm.input_projection", .begin = "<|image>", .end = "<image|>",
     .placeholder = {"<|image|>"}},
    {.name = "gemma4uv", .size = AE_TOWER_BUDGET, .merge = AE_TOWER_POOL, .positions = AE_TOWER_POS_AXES,
     .merge_key = "projector.scale_factor", .n_merge = 3, .n_least = 70, .n_most = 280, .bicubic = true, .rms = true,
     .gated = true, .clamped = true, .bare = true, .group = true, .norm = "", .project = "mm.input_projection",
     .begin = "<|image>", .end = "<image|>", .placeholder = {"<|image|>"}},
    {.name = "glm4v", .size = AE_TOWER_SMART, .merge = AE_TOWER_UNFOLD, .positions = AE_TOWER_POS_BICUBIC,
     .positions_optional = true, .turn = AE_TOWER_TURN_YX, .turn_base = 10000.0f, .merge_key = "spatial_merge_size",
     .n_merge = 2, .n_least = 8, .n_most = 6144, .small = AE_TOWER_SMALL_BOTH, .bicubic = true, .rms = true, .gated = true,
     .frames = true, .start_norm = true, .grid = true, .merger = "mm.patch_merger", .merger_kernel = true,
     .project = "mm.model.fc", .gated_project = true, .begin = "<|begin_of_image|>", .end = "<|end_of_image|>",
     .placeholder = {"<|begin_of_image|><|image|><|end_of_image|>"}},
    {.name = "idefics3", .size = AE_TOWER_TILES, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_TABLE,
     .merge_key = "projector.scale_factor", .n_merge = 4, .lanczos = true, .project = "mm.model.fc", .begin = "",
     .end = "<fake_token_around_image>", .placeholder = {"<image>"}},
    {.name = "internvl", .size = AE_TOWER_GRID, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_TABLE,
     .merge_key = "projector.scale_factor", .n_merge = 2, .bicubic = true, .cls = true,
     .norm = "mm.model.mlp.0", .norm_layer = true, .project = "mm.model.mlp.1", .project2 = "mm.model.mlp.3",
     .begin = "<img>", .end = "</img>", .placeholder = {"<IMG_CONTEXT>", "<image>"}},
    {.name = "kimivl", .size = AE_TOWER_FIT, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_BICUBIC,
     .turn = AE_TOWER_TURN_MIXED, .turn_base = 10000.0f, .merge_key = "projector.scale_factor", .n_merge = 2, .n_most = 1024,
     .bicubic = true, .patch_norm = "mm.input_norm", .patch_eps = 1e-5f, .project = "mm.1", .project2 = "mm.2",
     .begin = "<|media_start|>image<|media_content|>", .end = "<|media_end|>",
     .placeholder = {"<|media_start|>image<|media_content|><|media_pad|><|media_end|>"}},
    {.name = "kimik25", .size = AE_TOWER_FIT, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_BICUBIC,
     .turn = AE_TOWER_TURN_HALVES, .turn_base = 10000.0f, .merge_key = "projector.scale_factor", .n_merge = 2,
     .n_most = 4096, .pixel_keys = true, .bicubic = true, .patch_norm = "mm.input_norm", .patch_eps = 1e-5f, .project = "mm.1",
     .project2 = "mm.2", .begin = "<|media_begin|>image<|media_content|>", .end = "<|media_end|>",
     .placeholder = {"<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"}},
    {.name = "lfm2", .size = AE_TOWER_GRID_SMART, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_ANTIALIAS,
     .merge_key = "projector.scale_factor", .n_merge = 2, .n_least = 64, .n_most = 256, .small = AE_TOWER_SMALL_FLOOR,
     .norm = "mm.input_norm", .norm_layer = true, .norm_optional = true, .project = "mm.1", .project2 = "mm.2",
     .begin = "<|image_start|>", .end = "<|image_end|>", .placeholder = {"<image>"}},
    {.name = "lightonocr", .size = AE_TOWER_ANY, .merge = AE_TOWER_UNFOLD, .turn = AE_TOWER_TURN_SHARED,
     .turn_base = 10000.0f, .merge_key = "spatial_merge_size", .n_merge = 2, .bicubic = true, .rms = true, .gated = true,
     .patch_norm = "mm.input_norm", .merger = "mm.patch_merger", .project = "mm.1", .project2 = "mm.2", .begin = "",
     .end = "", .placeholder = {"<|image_pad|>"}},
    {.name = "mlp", .size = AE_TOWER_PAD, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_TABLE, .n_merge = 1,
     .colour = {122, 116, 104}, .bicubic = true, .cls = true, .cls_optional = true, .last_but_one = true, .project = "mm.0",
     .project2 = "mm.2", .begin = "", .end = "", .placeholder = {"<image>"}},
    {.name = "paddleocr", .size = AE_TOWER_SMART, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_BILINEAR,
     .turn = AE_TOWER_TURN_YX, .turn_base = 10000.0f, .n_merge = 2, .n_least = 188, .n_most = 3600,
     .small = AE_TOWER_SMALL_EACH, .pixel_keys = true, .bicubic = true, .grid = true, .patch_norm = "mm.input_norm",
     .patch_eps = 1e-5f, .project = "mm.1", .project2 = "mm.2", .begin = "<|IMAGE_START|>", .end = "<|IMAGE_END|>",
     .placeholder = {"<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"}},
    {.name = "pixtral", .size = AE_TOWER_ANY, .merge = AE_TOWER_UNFOLD, .turn = AE_TOWER_TURN_SHARED, .turn_base = 10000.0f,
     .merge_key = "spatial_merge_size", .n_merge = 1, .bicubic = true, .rms = true, .gated = true,
     .patch_norm = "mm.input_norm", .merger = "mm.patch_merger", .project = "mm.1", .project2 = "mm.2", .begin = "",
     .end = "[IMG_END]", .placeholder = {"[IMG]"}},
    {.name = "qwen2vl_merger", .size = AE_TOWER_SMART, .merge = AE_TOWER_SHUFFLE, .turn = AE_TOWER_TURN_YX,
     .turn_base = 10000.0f, .merge_key = "spatial_merge_size", .n_merge = 2, .n_least = 8, .n_most = 4096, .bicubic = true,
     .frames = true, .grid = true, .project = "mm.0", .project2 = "mm.2", .begin = "<|vision_start|>",
     .end = "<|vision_end|>", .placeholder = {"<|vision_start|><|image_pad|><|vision_end|>"}},
    {.name = "qwen2.5vl_merger", .size = AE_TOWER_SMART, .merge = AE_TOWER_SHUFFLE, .turn = AE_TOWER_TURN_YX,
     .turn_base = 10000.0f, .merge_key = "spatial_merge_size", .n_merge = 2, .n_least = 8, .n_most = 4096, .bicubic = true,
     .rms = true, .gated = true, .frames = true, .windows = true, .grid = true, .project = "mm.0", .project2 = "mm.2",
     .begin = "<|vision_start|>", .end = "<|vision_end|>", .placeholder = {"<|vision_start|><|image_pad|><|vision_end|>"}},
    {.name = "qwen3vl_merger", .size = AE_TOWER_SMART, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_ALIGNED,
     .turn = AE_TOWER_TURN_YX, .turn_base = 10000.0f, .merge_key = "spatial_merge_size", .n_merge = 2, .n_least = 64,
     .n_most = 4096, .bicubic = true, .frames = true, .deep = true, .grid = true, .project = "mm.0", .project2 = "mm.2",
     .begin = "<|vision_start|>", .end = "<|vision_end|>", .placeholder = {"<|vision_start|><|image_pad|><|vision_end|>"}},
    {.name = "resampler", .size = AE_TOWER_SLICES, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_BUCKETS, .n_merge = 1,
     .bicubic = true, .resampler = true, .project = "resampler.proj", .begin = "", .end = "",
     .placeholder = {"(<image>./</image>)", "<image>./</image>"}},
};
#define N_TYPES (sizeof types / sizeof *types)

const char *ae_tower_known(void)
{
    return "dots_ocr, gemma3, gemma4v, gemma4uv, glm4v, idefics3, internvl, kimivl, kimik25, lfm2, lightonocr, mlp, paddleocr, "
           "pixtral, qwen2vl_merger, qwen2.5vl_merger, qwen3vl_merger, resampler";
}

const ae_tower_type *ae_tower_type_find(const char *name, size_t n)
{
    /* the same encoder, in a file that also has one for audio */
    if (n == 8 && !memcmp(name, "qwen2.5o", 8)) name = "qwen2.5vl_merger", n = 16;
    for (size_t i = 0; i < N_TYPES; i++)
        if (strlen(types[i].name) == n && !memcmp(types[i].name, name, n)) return &types[i];
    return NULL;
}
