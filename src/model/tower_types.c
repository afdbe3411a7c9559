/* tower_types.c - the table of types of vision encoders (tower.h). Owns nothing.
 *
 * Source: the published models' code and processors, and the names that llama.cpp's converters write. */
#include <string.h>

#include "model/tower.h"

static const ae_tower_type types[] = {
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
    {.name = "idefics3", .size = AE_TOWER_TILES, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_TABLE,
     .merge_key = "projector.scale_factor", .n_merge = 4, .lanczos = true, .project = "mm.model.fc", .begin = "",
     .end = "<fake_token_around_image>", .placeholder = {"<image>"}},
    {.name = "internvl", .size = AE_TOWER_GRID, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_TABLE,
     .merge_key = "projector.scale_factor", .n_merge = 2, .bicubic = true, .cls = true,
     .norm = "mm.model.mlp.0", .norm_layer = true, .project = "mm.model.mlp.1", .project2 = "mm.model.mlp.3",
     .begin = "<img>", .end = "</img>", .placeholder = {"<IMG_CONTEXT>", "<image>"}},
    {.name = "lfm2", .size = AE_TOWER_GRID_SMART, .merge = AE_TOWER_SHUFFLE, .positions = AE_TOWER_POS_ANTIALIAS,
     .merge_key = "projector.scale_factor", .n_merge = 2, .n_least = 64, .n_most = 256, .norm = "mm.input_norm",
     .norm_layer = true, .norm_optional = true, .project = "mm.1", .project2 = "mm.2", .begin = "<|image_start|>",
     .end = "<|image_end|>", .placeholder = {"<image>"}},
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
};
#define N_TYPES (sizeof types / sizeof *types)

const char *ae_tower_known(void)
{
    return "gemma3, gemma4v, gemma4uv, idefics3, internvl, lfm2, pixtral, qwen2vl_merger, qwen2.5vl_merger, qwen3vl_merger";
}

const ae_tower_type *ae_tower_type_find(const char *name, size_t n)
{
    /* the same encoder, in a file that also has one for sound */
    if (n == 8 && !memcmp(name, "qwen2.5o", 8)) name = "qwen2.5vl_merger", n = 16;
    for (size_t i = 0; i < N_TYPES; i++)
        if (strlen(types[i].name) == n && !memcmp(types[i].name, name, n)) return &types[i];
    return NULL;
}
