/* pipeline.c - the shaders of the driver "vulkan": which shader runs which kernel, pipelines, launches. See vulkan.h.
 *
 * Owns the table of kernels. A pipeline is made when its kernel is launched for the first time, because a device may take a
 * second for one, and no model needs all. Kernels that need matrix instructions are not in the table; the host side does not
 * launch them on devices that lack these. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

/* The shaders repeat these constants of C: a change on one side only fails here. */
#define REPEATED(what, value) _Static_assert((what) == (value), "the shaders say " #value " for " #what)
REPEATED(AE_STATE_DELTA, 1); /* state.glsl */
REPEATED(AE_STATE_MAMBA2, 2);
REPEATED(AE_STATE_KDA, 3);
REPEATED(AE_STATE_WKV6, 4);
REPEATED(AE_STATE_WKV7, 5);
REPEATED(AE_STATE_MAMBA1, 6);
REPEATED(AE_STATE_MAX_TAPS, 8);
REPEATED(AE_STATE_MAX_KEY, 256); /* recur_steps.comp */
REPEATED(AE_STATE_BUFFERS, 8);
REPEATED(AE_GPU_STATE_COLUMNS, 8);
REPEATED(AE_GPU_GATE_SIGMOID, 1); /* recurrent.comp */
REPEATED(AE_GPU_GATE_ITSELF, 2);
REPEATED(AE_MAP_SCALE, 1); /* rows.comp */
REPEATED(AE_MAP_SOFTCAP, 2);
REPEATED(AE_MAP_GLU, 3);
REPEATED(AE_MAP_GATE, 4);
REPEATED(AE_MAP_CLAMP, 5);
REPEATED(AE_MAP_XIELU, 6);
REPEATED(AE_MAP_TIMES, 7);
REPEATED(AE_MAP_BETWEEN, 8);
REPEATED(AE_MAP_LERP, 9);
REPEATED(AE_MAP_LERP_BY, 10);
REPEATED(AE_MAP_BLEND, 11);
REPEATED(AE_MAP_CUTOFF, 12);
REPEATED(AE_MAP_MATCH, 13);
REPEATED(AE_MAP_SOFTMAX, 14);
REPEATED(AE_MAX_STREAMS, 8);
REPEATED(AE_GPU_MAP_BLOCK, 1024);
REPEATED(AE_GPU_COPY_ROWS, 900);
REPEATED(AE_GLU_SILU, 0); /* common.glsl */
REPEATED(AE_GLU_GELU, 1);
REPEATED(AE_GLU_RELU2, 2);
REPEATED(AE_GLU_SIGMOID, 3);
REPEATED(AE_GLU_OAI, 4);
REPEATED(AE_GLU_SILU_CLAMPED, 5);
REPEATED(AE_GLU_RELU, 6);
REPEATED(AE_GLU_SILU_LIMITED, 7);
REPEATED(AE_GLU_SOFTPLUS, 8);
REPEATED(AE_GLU_GELU_ERF, 9);
REPEATED(AE_GLU_LINEAR, 10);
REPEATED(AE_GLU_SITU, 11);
/* The offset of one member and the size of structs with many members, as `scalar` lays them out. */
REPEATED(sizeof(ae_gpu_kv_form), 68);
REPEATED(sizeof(ae_gpu_kv_view), 88); /* without gaps, which `scalar` would fill */
REPEATED(sizeof(ae_gpu_kv_head), 88);
REPEATED(offsetof(ae_gpu_rope_kv_args, part_floats), 236);
REPEATED(offsetof(ae_gpu_attention_args, n_warps), 308);
REPEATED(offsetof(ae_gpu_select_args, weight), 312);
REPEATED(offsetof(ae_gpu_select_args, n_seen), 360);
REPEATED(offsetof(ae_gpu_select_args, listed), 388);
REPEATED(AE_BIAS_REACH, 128);
REPEATED(AE_BIAS_PAD, 16);
REPEATED(AE_BIAS_ROW, 288);
REPEATED(sizeof(ae_gpu_state_view), 72);
REPEATED(sizeof(ae_gpu_state_rows), 48);
REPEATED(sizeof(ae_state_run), 20);
REPEATED(sizeof(ae_state_visit), 12);
REPEATED(offsetof(ae_gpu_recur_args, y), 184);
REPEATED(offsetof(ae_gpu_recur_args, bound), 276);
REPEATED(offsetof(ae_gpu_conv_args, y), 176);
REPEATED(offsetof(ae_gpu_conv_args, n), 200);
REPEATED(offsetof(ae_gpu_gated_norm_args, gate), 80);
REPEATED(offsetof(ae_gpu_map_args, limit), 72);
REPEATED(offsetof(ae_gpu_activation_args, factor) - offsetof(ae_gpu_activation_args, up_limit), 4);
REPEATED(offsetof(ae_gpu_compress_args, every), 184);
REPEATED(offsetof(ae_gpu_ngrams_args, tokens), 208);
REPEATED(offsetof(ae_gpu_ngrams_args, factors), 240);
REPEATED(offsetof(ae_gpu_mix_args, in_step), 104);
REPEATED(offsetof(ae_gpu_norm_args, eps), 48);
REPEATED(offsetof(ae_gpu_copy_host_args, rows), 56);

/* Kernels by id, the bytes of their arguments, and their shader with what it is specialized to; see each shader. */
static const struct {
    const char *name;
    size_t n_args;
    ae_vk_variant variant;
} kernels[AE_GPU_N_KERNELS + 1] = {
#define KERNEL(name, args, ...) [AE_GPU_##name] = {#name, sizeof(args), {__VA_ARGS__}}
#define INTEGERS(form, kind, slots) \
    KERNEL(product_##form, ae_gpu_product_args, "product", kind, 0, slots), \
    KERNEL(experts_##form, ae_gpu_expert_args, "product", kind, 1, slots)
#define FLOATS(form, kind) \
    KERNEL(experts_##form, ae_gpu_expert_args, "product_float", kind, 0, 0), \
    KERNEL(product_##form, ae_gpu_product_args, "product_float", kind, AE_GPU_FLOAT_OUT(AE_GPU_PLAIN), 0), \
    KERNEL(product_##form##_wide, ae_gpu_product_args, "product_float", kind, AE_GPU_FLOAT_OUT(AE_GPU_WIDE), 0), \
    KERNEL(product_##form##_narrow, ae_gpu_product_args, "product_float", kind, AE_GPU_FLOAT_OUT(AE_GPU_NARROW), 0)
#define STATE(name, args, kind) KERNEL(name, args, "recurrent", kind, 0, 0)
#define STEPS(name, kind) \
    KERNEL(name##_16, ae_gpu_recur_args, "recur_steps", kind, 16, 0), \
    KERNEL(name##_32, ae_gpu_recur_args, "recur_steps", kind, 32, 0), \
    KERNEL(name##_64, ae_gpu_recur_args, "recur_steps", kind, 64, 0)
#define BEST(name, kind) KERNEL(name, ae_gpu_best_args, "best", kind, 0, 0)
#define ROPE(name) KERNEL(name, ae_gpu_rope_kv_args, "rope", 1, 0, 0)
#define SELECT(name, kind) KERNEL(name, ae_gpu_select_args, "select", kind, 0, 0)
#define ATTENTION(name, kind) KERNEL(name, ae_gpu_attention_args, "attention", kind, 0, 0)
    KERNEL(activation, ae_gpu_activation_args, "activation", 0, 0, 0),
    INTEGERS(32, AE_GPU_FORM_32, 8),
    INTEGERS(32_min, AE_GPU_FORM_32_MIN, 16),
    INTEGERS(32_two, AE_GPU_FORM_32_TWO, 16),
    INTEGERS(256, AE_GPU_FORM_256, 8),
    INTEGERS(256_min, AE_GPU_FORM_256_MIN, 8),
    FLOATS(f32, AE_GPU_FORM_F32),
    FLOATS(f16, AE_GPU_FORM_F16),
    FLOATS(bf16, AE_GPU_FORM_BF16),
    KERNEL(lookup, ae_gpu_lookup_args, "lookup", 0, 0, 0),
    KERNEL(norm_groups, ae_gpu_norm_args, "rows", 0, AE_GPU_NORM_GROUPS, 0),
    KERNEL(norm_rows, ae_gpu_norm_args, "rows", 1, 0, 0),
    KERNEL(axpy_rows, ae_gpu_axpy_args, "rows", 2, 0, 0),
    KERNEL(map_rows, ae_gpu_map_args, "rows", 3, 0, 0),
    KERNEL(map_whole_rows, ae_gpu_map_args, "rows", 6, 0, 0),
    KERNEL(mix_rows, ae_gpu_mix_args, "rows", 7, 0, 0),
    KERNEL(copy_rows, ae_gpu_copy_args, "rows", 4, 0, 0),
    KERNEL(copy_host_rows, ae_gpu_copy_host_args, "rows", 5, 0, 0),
    KERNEL(rope_angles, ae_gpu_rope_table_args, "rope", 0, 0, 0),
    ROPE(rope_heads),
    ROPE(rope_heads_64),
    ROPE(rope_heads_128),
    ROPE(rope_heads_256),
    KERNEL(hyper_rows, ae_gpu_hyper_args, "compress", 0, 0, 0),
    KERNEL(rotate_heads, ae_gpu_rotate_args, "compress", 1, 0, 0),
    KERNEL(keep_rows, ae_gpu_compress_args, "compress", 2, 0, 0),
    KERNEL(compress_rows, ae_gpu_compress_args, "compress", 3, 0, 0),
    KERNEL(trail_rows, ae_gpu_compress_args, "compress", 4, 0, 0),
    KERNEL(keep_tokens, ae_gpu_ngrams_args, "compress", 5, 0, 0),
    KERNEL(hash_tokens, ae_gpu_ngrams_args, "compress", 6, 0, 0),
    KERNEL(accord_parts, ae_gpu_accord_args, "compress", 7, 0, 0),
    KERNEL(kv_page, ae_gpu_kv_page_args, "kv", 0, 0, 0),
    KERNEL(kv_moves, ae_gpu_kv_moves_args, "kv", 1, 0, 0),
    KERNEL(kv_save, ae_gpu_kv_slot_args, "kv", 2, 0, 0),
    KERNEL(kv_restore, ae_gpu_kv_slot_args, "kv", 3, 0, 0),
    ATTENTION(attention_f16_4, 0),
    ATTENTION(attention_f32_4, 0),
    ATTENTION(attention_q8, 1),
    ATTENTION(attention_i16, 1),
    ATTENTION(attention_i16_q8, 1),
    ATTENTION(attention_q8_i16, 1),
    ATTENTION(attention_q4, 1),
    ATTENTION(attention_q8_q4, 1),
    ATTENTION(attention_i16_q4, 1),
    ATTENTION(attention_latent_q8, 1),
    ATTENTION(attention_latent_f16, 1),
    ATTENTION(attention_row_q4, 1),
    ATTENTION(attention_merge_8, 2),
    SELECT(select_scores_f32, 0),
    SELECT(select_scores_q8, 1),
    SELECT(select_scores_f16, 1),
    SELECT(select_choose, 2),
    SELECT(select_blocks, 3),
    KERNEL(route, ae_gpu_route_args, "moe", 0, 0, 0),
    KERNEL(group, ae_gpu_group_args, "moe", 1, 0, 0),
    KERNEL(combine, ae_gpu_combine_args, "moe", 2, 0, 0),
    STATE(conv_runs, ae_gpu_conv_args, 0),
    STATE(conv_rows, ae_gpu_conv_args, 1),
    STATE(conv_move, ae_gpu_conv_args, 2),
    STATE(recur_prepare, ae_gpu_recur_args, 3),
    STATE(recur_records, ae_gpu_recur_args, 4),
    STATE(gated_norm_groups, ae_gpu_gated_norm_args, 5),
    STATE(gated_norm_rows, ae_gpu_gated_norm_args, 6),
    STEPS(recur_steps, AE_GPU_STEPS_RECUR),
    STEPS(keyed_steps, AE_GPU_STEPS_KEYED),
    STEPS(wkv7_steps, AE_GPU_STEPS_WKV7),
    STEPS(scan_steps, AE_GPU_STEPS_SCAN),
    BEST(best_one, 0),
    BEST(best_some, 1),
    BEST(best_total, 2),
};

const char *ae_vk_kernel(uint32_t i, const ae_vk_variant **variant)
{
    *variant = &kernels[i].variant;
    return kernels[i].name;
}

static aerie_status create_module(ae_gpu_device *d, const char *name, VkShaderModule *out, aerie_error *error)
{
    size_t i = 0, n;
    while (i < ae_vk_n_images && strcmp(ae_vk_images[i].name, name) != 0) i++;
    if (i == ae_vk_n_images)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "the embedded shaders lack %s: this build is not complete", name);
    n = (size_t)(ae_vk_images[i].end - ae_vk_images[i].bytes) / 4;
    uint32_t *words = ae_vk_spirv_prepare((const uint32_t *)(const void *)ae_vk_images[i].bytes, &n, &d->floats, error);
    if (!words) return error ? error->status : AERIE_ERROR_MEMORY;
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = n * 4,
                                           .pCode = words};
    const VkResult result = d->call.CreateShaderModule(d->device, &info, NULL, out);
    ae_free(words);
    return result == VK_SUCCESS ? AERIE_OK : ae_vk_fail(result, "vkCreateShaderModule", error);
}

aerie_status ae_vk_pipeline_create(ae_gpu_device *d, const ae_vk_variant *variant, VkPipeline *out, aerie_error *error)
{
    const uint32_t values[] = {d->fma, d->div, variant->kind, variant->size, variant->slots};
    enum { N_VALUES = sizeof values / sizeof values[0] };
    VkSpecializationMapEntry entries[N_VALUES];
    VkShaderModule module;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_VALUES; i++)
        if (i < 4 || values[i]) entries[n++] = (VkSpecializationMapEntry){i, i * sizeof values[0], sizeof values[0]};
    AE_TRY(create_module(d, variant->shader, &module, error));
    const VkSpecializationInfo special = {n, entries, sizeof values, values};
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = d->layout,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module, .pName = "main", .pSpecializationInfo = &special}};
    const VkResult result = d->call.CreateComputePipelines(d->device, VK_NULL_HANDLE, 1, &info, NULL, out);
    d->call.DestroyShaderModule(d->device, module, NULL);
    return result == VK_SUCCESS ? AERIE_OK : ae_vk_fail(result, "vkCreateComputePipelines", error);
}

static aerie_status launch(ae_gpu_device *d, uint32_t i, const uint32_t grid[3], const void *args, aerie_error *error)
{
    if (!d->pipelines[i]) AE_TRY(ae_vk_shared_pipeline(d, i, &kernels[i].variant, &d->pipelines[i], error));
    return ae_vk_dispatch(d, d->pipelines[i], grid, args, kernels[i].n_args, error);
}

aerie_status ae_vk_launch(ae_gpu_device *d, uint32_t i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                          aerie_error *error)
{
    (void)n_shared; /* shaders declare their own */
    if (i >= AE_GPU_N_KERNELS || !kernels[i].name)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the Vulkan driver lacks this operation; --device cpu runs it");
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = launch(d, i, grid, args, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

#endif
