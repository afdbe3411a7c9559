/* device.c - opens and closes devices of the driver "vulkan": what a device must have, which memory and which queue are used.
 * See vulkan.h. Owns nothing. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/limit.h"
#include "base/mem.h"

#define STAGING_BYTES ((size_t)4 << 20)
#define MOST_SHARED (1u << 20)  /* shaders have shared memory of their own, so what the host side asks for is not looked at */
#define LEAST_SHARED 22528u     /* bytes that the largest of them needs (rope.comp) */
#define LEAST_THREADS 256u
#define MULTIPROCESSORS 32u     /* Vulkan does not tell their number; this only chooses shapes of launches */

/* ---- What a device is ------------------------------------------------------------------------------- */

/* Chains of structs that a device fills in. */
typedef struct facts {
    VkPhysicalDeviceProperties2 properties;
    VkPhysicalDeviceMaintenance3Properties sizes;
    VkPhysicalDeviceDriverProperties driver;
    VkPhysicalDeviceFloatControlsProperties floats;
    VkPhysicalDeviceFeatures2 features;
    VkPhysicalDeviceVulkan11Features f11;
    VkPhysicalDeviceVulkan12Features f12;
    VkPhysicalDeviceVulkan13Features f13;
} facts;

static void ask(const ae_vk_library *l, VkPhysicalDevice physical, facts *f)
{
    memset(f, 0, sizeof *f);
    f->properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    l->GetPhysicalDeviceProperties2(physical, &f->properties);
    if (f->properties.properties.apiVersion < VK_API_VERSION_1_3) return; /* a device of an older API does not know the
                                                                           * structs */
    f->sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
    f->driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    f->floats.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
    f->properties.pNext = &f->sizes;
    f->sizes.pNext = &f->driver;
    f->driver.pNext = &f->floats;
    l->GetPhysicalDeviceProperties2(physical, &f->properties);
    f->features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->f11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    f->f12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    f->f13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    f->features.pNext = &f->f11;
    f->f11.pNext = &f->f12;
    f->f12.pNext = &f->f13;
    l->GetPhysicalDeviceFeatures2(physical, &f->features);
}

/* Returns what the device lacks, for a message; NULL: nothing. */
static const char *missing_of(const facts *f)
{
    const VkPhysicalDeviceFeatures *f10 = &f->features.features;
    const VkPhysicalDeviceLimits *limits = &f->properties.properties.limits;
    const struct {
        VkBool32 has;
        const char *name;
    } needs[] = {
        {f->properties.properties.apiVersion >= VK_API_VERSION_1_3, "Vulkan 1.3"},
        {f->f12.bufferDeviceAddress, "bufferDeviceAddress"},
        {f->f12.timelineSemaphore, "timelineSemaphore"},
        {f->f12.scalarBlockLayout, "scalarBlockLayout"},
        {f->f12.shaderInt8, "shaderInt8"},
        {f->f12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
        {f->f11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
        {f->f13.shaderIntegerDotProduct, "shaderIntegerDotProduct"},
        {f->f13.maintenance4, "maintenance4"},
        {f10->shaderInt16, "shaderInt16"},
        {f10->shaderInt64, "shaderInt64"},
        {f10->shaderFloat64, "shaderFloat64"},
        {limits->maxComputeSharedMemorySize >= LEAST_SHARED, "22 KiB of shared memory"},
        {limits->maxComputeWorkGroupInvocations >= LEAST_THREADS, "work-groups of 256"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (!needs[i].has) return needs[i].name;
    return NULL;
}

/* Finds the first queue family that computes. */
static aerie_status find_family(ae_gpu_device *d, const facts *f, aerie_error *error)
{
    VkQueueFamilyProperties families[16];
    uint32_t n = 16;
    d->library.GetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
    for (d->family = 0; d->family < n; d->family++)
        if (families[d->family].queueCount && families[d->family].queueFlags & VK_QUEUE_COMPUTE_BIT) break;
    if (d->family == n)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%.100s has no queue that computes",
                       f->properties.properties.deviceName);
    const uint32_t bits = families[d->family].timestampValidBits; /* counters with fewer valid bits would wrap */
    d->tick = bits == 64 ? (double)f->properties.properties.limits.timestampPeriod * 1e-9 : 0;
    return AERIE_OK;
}

/* ---- Memory types ----------------------------------------------------------------------------------- */

/* Returns the first type with these properties, in the largest heap if `large`; UINT32_MAX: there is none. */
static uint32_t find_type(const VkPhysicalDeviceMemoryProperties *m, VkMemoryPropertyFlags wanted, bool large)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
        const VkMemoryType *t = &m->memoryTypes[i];
        const VkMemoryPropertyFlags never = VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
                                            VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;
        if ((t->propertyFlags & wanted) != wanted || t->propertyFlags & never) continue;
        if (best == UINT32_MAX || (large && m->memoryHeaps[t->heapIndex].size >
                                                m->memoryHeaps[m->memoryTypes[best].heapIndex].size))
            best = i;
    }
    return best;
}

static aerie_status find_types(ae_gpu_device *d, aerie_error *error)
{
    const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    d->library.GetPhysicalDeviceMemoryProperties2(d->physical, &p);
    const VkPhysicalDeviceMemoryProperties *m = &p.memoryProperties;
    const char *map = getenv("AERIE_VULKAN_MAP");
    uint32_t local = find_type(m, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, true);
    const uint32_t cached = find_type(m, seen | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, false), host = find_type(m, seen, false);
    const uint32_t both = find_type(m, seen | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, true);
    if (host == UINT32_MAX || local == UINT32_MAX)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this device has no memory that can be used");
    d->heap = m->memoryTypes[local].heapIndex;
    d->heap_bytes = m->memoryHeaps[d->heap].size;
    /* Uses host-visible memory where it covers the whole heap: no copies are needed then. */
    if (both != UINT32_MAX && m->memoryTypes[both].heapIndex == d->heap) local = both;
    d->mapped = local == both && !(map && !strcmp(map, "0"));
    d->types[AE_VK_LOCAL] = local;
    d->types[AE_VK_HOST] = cached != UINT32_MAX ? cached : host;
    d->types[AE_VK_ARGS] = both != UINT32_MAX ? both : host;
    return AERIE_OK;
}

/* ---- Opening ---------------------------------------------------------------------------------------- */

/* Returns the bytes of the largest allocation; AERIE_VULKAN_BLOCK: no more than that, for tests. */
static uint64_t most_of(const facts *f)
{
    const char *said = getenv("AERIE_VULKAN_BLOCK");
    const uint64_t least = (uint64_t)8 << 20, limit = said ? strtoull(said, NULL, 10) : UINT64_MAX;
    const uint64_t most = f->sizes.maxMemoryAllocationSize;
    return limit < least ? least : limit < most ? limit : most;
}

static bool has_extension(const ae_gpu_device *d, const char *name)
{
    uint32_t n = 0;
    bool has = false;
    if (d->library.EnumerateDeviceExtensionProperties(d->physical, NULL, &n, NULL) != VK_SUCCESS || !n) return false;
    VkExtensionProperties *all = ae_alloc(n, sizeof *all);
    if (!all) return false;
    if (d->library.EnumerateDeviceExtensionProperties(d->physical, NULL, &n, all) == VK_SUCCESS)
        for (uint32_t i = 0; i < n; i++) has = has || !strcmp(all[i].extensionName, name);
    ae_free(all);
    return has;
}

static aerie_status create_device(ae_gpu_device *d, aerie_error *error)
{
    const float priority = 1;
    const char *const extensions[] = {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME};
    VkPhysicalDeviceVulkan13Features f13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
                                            .shaderIntegerDotProduct = VK_TRUE, .maintenance4 = VK_TRUE};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f13, .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE, .scalarBlockLayout = VK_TRUE, .shaderInt8 = VK_TRUE, .storageBuffer8BitAccess = VK_TRUE};
    VkPhysicalDeviceVulkan11Features f11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12,
                                            .storageBuffer16BitAccess = VK_TRUE};
    const VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f11,
        .features = {.shaderInt16 = VK_TRUE, .shaderInt64 = VK_TRUE, .shaderFloat64 = VK_TRUE}};
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = d->family, .queueCount = 1, .pQueuePriorities = &priority};
    d->has_budget = has_extension(d, extensions[0]);
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
                                     .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = d->has_budget, .ppEnabledExtensionNames = extensions};
    AE_VK_TRY(d->library.CreateDevice(d->physical, &info, NULL, &d->device), "vkCreateDevice", error);
    PFN_vkVoidFunction symbol;
#define FIND(name)                                                        \
    symbol = d->library.GetDeviceProcAddr(d->device, "vk" #name);        \
    if (!symbol) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the driver lacks vk" #name); \
    memcpy(&d->call.name, &symbol, sizeof d->call.name);
    AE_VK_DEVICE(FIND)
#undef FIND
    d->call.GetDeviceQueue(d->device, d->family, 0, &d->queue);
    return AERIE_OK;
}

static aerie_status create_layout(ae_gpu_device *d, aerie_error *error)
{
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 16}; /* shaders/common.glsl */
    const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1, .pPushConstantRanges = &push};
    AE_VK_TRY(d->call.CreatePipelineLayout(d->device, &info, NULL, &d->layout), "vkCreatePipelineLayout", error);
    return AERIE_OK;
}

static aerie_status create_semaphore(ae_gpu_device *d, aerie_error *error)
{
    const VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                                .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
    AE_VK_TRY(d->call.CreateSemaphore(d->device, &info, NULL, &d->semaphore), "vkCreateSemaphore", error);
    return AERIE_OK;
}

static void describe(const facts *f, ae_gpu_facts *out)
{
    const VkPhysicalDeviceProperties *p = &f->properties.properties;
    const bool processor = p->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const int n = (int)strcspn(f->driver.driverInfo, "("); /* "Mesa 22.3.6 (LLVM 15.0.6)" */
    snprintf(out->name, sizeof out->name, "%.60s, Vulkan %u.%u, driver %.*s", p->deviceName,
             VK_API_VERSION_MAJOR(p->apiVersion) % 100, VK_API_VERSION_MINOR(p->apiVersion) % 1000,
             n && f->driver.driverInfo[n - 1] == ' ' ? (n < 20 ? n - 1 : 20) : n < 20 ? n : 20, f->driver.driverInfo);
    out->n_multiprocessors = processor ? 1 : MULTIPROCESSORS;
    out->max_shared_bytes = MOST_SHARED;
    out->single_queries = true;
    out->narrow_codes = true;
}

aerie_status ae_vk_set_up(ae_vk_shared *s, uint32_t i, aerie_error *error)
{
    VkPhysicalDevice devices[AE_VK_MAX_DEVICES];
    ae_gpu_device *d = &s->common;
    facts f;
    uint32_t n;
    AE_TRY(ae_vk_library_load(&d->library, error));
    AE_TRY(ae_vk_devices(&d->library, devices, &n, error));
    if (i >= n) return ae_fail(error, AERIE_ERROR_ARGUMENT, "vulkan: there is no device %u", i);
    d->physical = devices[i];
    ask(&d->library, d->physical, &f);
    const char *missing = missing_of(&f);
    if (missing)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%.100s cannot be used: its Vulkan driver lacks %s; --device cpu runs "
                       "on the CPU", f.properties.properties.deviceName, missing);
    const VkPhysicalDeviceLimits *limits = &f.properties.properties.limits;
    memcpy(d->max_groups, limits->maxComputeWorkGroupCount, sizeof d->max_groups);
    d->max_block = most_of(&f);
    d->floats = f.floats;
    /* No limit for devices that are CPUs: a pass may take them minutes. */
    d->limit = f.properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? 0 : AE_GPU_LIMIT;
    AE_TRY(find_family(d, &f, error));
    AE_TRY(find_types(d, error));
    AE_TRY(create_device(d, error));
    AE_TRY(create_layout(d, error));
    AE_TRY(create_semaphore(d, error));
    describe(&f, &s->facts);
    s->facts.max_block = ae_vk_max_block(d);
    return AERIE_OK;
}

/* ---- Users ------------------------------------------------------------------------------------------ */

bool ae_vk_user_destroy(ae_gpu_device *d)
{
    ae_vk_settle(d);
    const bool stuck = !ae_vk_comes_back(d);
    uint64_t n_used = 0;
    for (size_t i = 0; i < d->blocks.n; i++) n_used += d->blocks.block[i].n;
    if (!stuck) {
        ae_vk_recordings_free(d);
        ae_vk_block_destroy(d, &d->staging);
        ae_vk_queue_destroy(d);
        for (size_t i = 0; i < d->blocks.n; i++) ae_vk_block_destroy(d, &d->blocks.block[i]);
        for (size_t i = 0; i < d->pinned.n; i++) ae_vk_block_destroy(d, &d->pinned.block[i]);
        atomic_fetch_sub(&d->shared->n_used, n_used);
    }
    ae_free(d->blocks.block);
    ae_free(d->pinned.block);
    pthread_mutex_destroy(&d->mutex);
    pthread_mutex_destroy(&d->fill_mutex);
    ae_free(d);
    return !stuck;
}

aerie_status ae_vk_user_create(ae_vk_shared *s, ae_gpu_device **out, aerie_error *error)
{
    *out = NULL;
    ae_gpu_device *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "a Vulkan device", sizeof *d);
    *d = s->common;
    d->shared = s;
    d->limit = ae_gpu_limit(s->common.limit);
    pthread_mutex_init(&d->mutex, NULL);
    pthread_mutex_init(&d->fill_mutex, NULL);
    aerie_status status = ae_vk_queue_create(d, error);
    if (status == AERIE_OK && !d->mapped) status = ae_vk_block_create(d, AE_VK_HOST, STAGING_BYTES, &d->staging, error);
    if (status == AERIE_OK) *out = d;
    else (void)ae_vk_user_destroy(d);
    return status;
}

aerie_status ae_vk_open(uint32_t i, ae_gpu_device **out, ae_gpu_facts *facts_out, aerie_error *error)
{
    ae_vk_shared *s;
    *out = NULL;
    AE_TRY(ae_vk_shared_get(i, &s, error));
    *facts_out = s->facts;
    const aerie_status status = ae_vk_user_create(s, out, error);
    if (status != AERIE_OK) ae_vk_shared_release(s);
    return status;
}

/* What a hanging device may still use stays, and so does the device. */
void ae_vk_close(ae_gpu_device *d)
{
    if (!d) return;
    ae_vk_shared *s = d->shared;
    if (ae_vk_user_destroy(d)) ae_vk_shared_release(s);
}

#endif
