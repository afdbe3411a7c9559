/* test_radv.c - the shaders of the driver "vulkan" as AMD's compiler makes them, without a card: Mesa's RADV compiles for a
 * chip that is not there. No register may be spilled, bytes are multiplied by the chip's own dots, and nothing rounds an fma
 * twice.
 *
 * RADV_FORCE_FAMILY names the chip, as Mesa does (gfx1100 unless it is set); a process sees one. Skipped where Mesa's RADV is
 * not installed, or does not know the chip. With AERIE_TEST_EVERY above 1: all integer products, and every eighth of the other
 * kernels, from another one on for each chip.
 * Nothing runs: there are no fences, no queue, no results. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#ifdef AE_GPU_VULKAN

#include "backend/gpu/vulkan/vulkan.h"
#include "base/mem.h"
#include "every.h"

#define ICD "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json" /* Debian: mesa-vulkan-drivers */

static ae_gpu_device *device;
static bool has_dots, fuses; /* of the chip: dots of four bytes; fma as an instruction that the shaders use */

static PFN_vkCreateComputePipelines create_really;
static PFN_vkGetPipelineExecutableStatisticsKHR statistics_of;
static PFN_vkGetPipelineExecutableInternalRepresentationsKHR forms_of;

/* The driver's pipelines, created so that they keep the compiler's statistics. */
static VKAPI_ATTR VkResult VKAPI_CALL create(VkDevice d, VkPipelineCache cache, uint32_t n,
                                             const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *a,
                                             VkPipeline *out)
{
    VkComputePipelineCreateInfo info = *infos;
    assert_int_equal(n, 1);
    info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    return create_really(d, cache, 1, &info, a, out);
}

/* ---- The chip ------------------------------------------------------------------------------------------- */

static aerie_status create_device(ae_gpu_device *d, aerie_error *error)
{
    const float priority = 1;
    const char *const extension = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR looks = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE};
    VkPhysicalDeviceVulkan13Features f13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &looks};
    VkPhysicalDeviceVulkan12Features f12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f13};
    VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11};
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1,
                                           .pQueuePriorities = &priority};
    d->library.GetPhysicalDeviceFeatures2(d->physical, &features);
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
                                     .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue, .enabledExtensionCount = 1,
                                     .ppEnabledExtensionNames = &extension};
    AE_VK_TRY(d->library.CreateDevice(d->physical, &info, NULL, &d->device), "vkCreateDevice", error);
    PFN_vkVoidFunction symbol;
#define FIND(to, name)                                              \
    symbol = d->library.GetDeviceProcAddr(d->device, name);        \
    if (!symbol) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "RADV lacks " name); \
    memcpy(&(to), &symbol, sizeof(to));
#define ENTER(name) FIND(d->call.name, "vk" #name)
    AE_VK_DEVICE(ENTER)
    FIND(statistics_of, "vkGetPipelineExecutableStatisticsKHR")
    FIND(forms_of, "vkGetPipelineExecutableInternalRepresentationsKHR")
    create_really = d->call.CreateComputePipelines;
    d->call.CreateComputePipelines = create;
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 16};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .pushConstantRangeCount = 1, .pPushConstantRanges = &push};
    AE_VK_TRY(d->call.CreatePipelineLayout(d->device, &layout, NULL, &d->layout), "vkCreatePipelineLayout", error);
    return AERIE_OK;
}

static aerie_status open_chip(aerie_error *error)
{
    static ae_gpu_device d;
    VkPhysicalDevice devices[AE_VK_MAX_DEVICES];
    uint32_t n;
    AE_TRY(ae_vk_library_load(&d.library, error));
    AE_TRY(ae_vk_devices(&d.library, devices, &n, error));
    if (!n) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "RADV does not know the chip %s", getenv("RADV_FORCE_FAMILY"));
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    d.physical = devices[0];
    d.floats.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
    p.pNext = &d.floats;
    d.library.GetPhysicalDeviceProperties2(d.physical, &p);
    print_message("%s\n", p.properties.deviceName);
    AE_TRY(create_device(&d, error));
    /* As the examination would find it: RDNA 2 and 3 fuse, no AMD chip divides exactly. */
    const char *chip = getenv("RADV_FORCE_FAMILY");
    fuses = !strncmp(chip, "gfx11", 5) || !strncmp(chip, "navi2", 5);
    has_dots = fuses || !strcmp(chip, "vega20");
    d.fma = !fuses;
    d.div = 1;
    device = &d;
    return AERIE_OK;
}

/* ---- What the compiler made ------------------------------------------------------------------------------- */

static uint64_t statistic(const VkPipelineExecutableStatisticKHR *s, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(s[i].name, name)) return s[i].value.u64;
    fail_msg("RADV tells no \"%s\"", name);
    return 0;
}

/* The assembly; the caller frees it. */
static char *assembly_of(VkPipeline pipeline)
{
    const VkPipelineExecutableInfoKHR which = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutableInternalRepresentationKHR forms[8];
    uint32_t n = 8;
    char *assembly = NULL;
    memset(forms, 0, sizeof forms);
    for (int i = 0; i < 8; i++) forms[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    assert_int_equal(forms_of(device->device, &which, &n, forms), VK_SUCCESS);
    for (uint32_t i = 0; i < n; i++) assert_non_null(forms[i].pData = calloc(forms[i].dataSize + 1, 1));
    assert_int_equal(forms_of(device->device, &which, &n, forms), VK_SUCCESS);
    for (uint32_t i = 0; i < n; i++) {
        if (strstr(forms[i].name, "ssembl")) assembly = forms[i].pData;
        else free(forms[i].pData);
    }
    assert_non_null(assembly);
    return assembly;
}

static unsigned count(const char *text, const char *part)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) n++;
    return n;
}

static bool check_kernel(const char *name, const ae_vk_variant *variant)
{
    aerie_error error = {0};
    VkPipeline pipeline;
    VkPipelineExecutableStatisticKHR s[64];
    uint32_t n = 64;
    if (ae_vk_pipeline_create(device, variant, &pipeline, &error) != AERIE_OK) fail_msg("%s: %s", name, error.text);
    const VkPipelineExecutableInfoKHR which = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    memset(s, 0, sizeof s);
    for (int i = 0; i < 64; i++) s[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    assert_int_equal(statistics_of(device->device, &which, &n, s), VK_SUCCESS);
    char *text = assembly_of(pipeline);
    const unsigned n_spilled = (unsigned)(statistic(s, n, "Spilled SGPRs") + statistic(s, n, "Spilled VGPRs"));
    const unsigned n_scratch = (unsigned)statistic(s, n, "Scratch size"), n_twice = count(text, "v_mac_f32");
    const unsigned n_dots = count(text, "v_dot4"), n_fused = count(text, "v_fmac_f32") + count(text, "v_fma_f32");
    const bool dots = !strcmp(variant->shader, "product");
    print_message("%-22s %3u VGPRs, %3u SGPRs, %5u bytes of code, %2u dots, %3u fma, %u spilled, %u bytes of scratch\n", name,
                  (unsigned)statistic(s, n, "VGPRs"), (unsigned)statistic(s, n, "SGPRs"),
                  (unsigned)statistic(s, n, "Code size"), n_dots, n_fused, n_spilled, n_scratch);
    /* The steps of recurrent layers keep the states that a tree comes back to in scratch memory, the state itself in registers.
     * Known limit: with more than 128 values for each of Mamba-1's channels (models have 16) RDNA 3 spills. */
    const bool steps = !strcmp(variant->shader, "recur_steps"), known = !strcmp(name, "scan_steps_64");
    const unsigned held = steps ? AE_STATE_BUFFERS * variant->size * (unsigned)sizeof(float) * 64 : 0; /* of 64 lanes */
    const bool fits = known || (!n_spilled && n_scratch == held);
    const bool ok = fits && (!fuses || !n_twice) && (!dots || !has_dots || n_dots >= 8);
    if (!ok) print_error("%s: spilled %u, scratch %u, v_mac_f32 %u, dots %u\n", name, n_spilled, n_scratch, n_twice, n_dots);
    free(text);
    device->call.DestroyPipeline(device->device, pipeline, NULL);
    return ok;
}

static void test_every_kernel(void **state)
{
    (void)state;
    const char *chip = getenv("RADV_FORCE_FAMILY");
    const uint32_t turn = !strncmp(chip, "gfx11", 5) ? 0 : !strncmp(chip, "navi", 4) ? 3 : 6;
    unsigned n_kernels = 0, n_bad = 0;
    for (uint32_t i = 0; i < AE_GPU_N_KERNELS; i++) {
        const ae_vk_variant *variant;
        const char *name = ae_vk_kernel(i, &variant);
        if (!name || (test_every() > 1 && i % 8 != turn && strcmp(variant->shader, "product") != 0)) continue;
        n_kernels++;
        n_bad += !check_kernel(name, variant);
    }
    assert_true(n_kernels > (test_every() > 1 ? 10 : 40));
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    aerie_error error = {0};
    if (access(ICD, R_OK)) {
        printf("skip: there is no " ICD " (Debian: mesa-vulkan-drivers)\n");
        return 77;
    }
    setenv("VK_ICD_FILENAMES", ICD, 1);
    setenv("RADV_FORCE_FAMILY", "gfx1100", 0);
    setenv("MESA_SHADER_CACHE_DISABLE", "true", 1); /* a kept pipeline has no assembly */
    if (open_chip(&error) != AERIE_OK) {
        printf("skip: %s\n", error.text);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kernel)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->call.DestroyPipelineLayout(device->device, device->layout, NULL);
    device->call.DestroyDevice(device->device, NULL);
    ae_vk_library_release(&device->library);
    return failed;
}

#else

int main(void)
{
    puts("skip: this build has no Vulkan driver");
    return 77;
}

#endif
