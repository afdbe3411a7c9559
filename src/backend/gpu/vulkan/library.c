/* library.c - loads libvulkan.so.1, makes an instance, and lists physical devices. See vulkan.h. Owns nothing: each device has
 * functions and an instance of its own. The library itself stays loaded, since drivers do not expect to be unloaded. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libvulkan.so.1"
#define NO_DRIVER "no Vulkan driver is installed (Debian's package mesa-vulkan-drivers has those for AMD, Intel and the " \
                  "CPU); --device cpu runs on the CPU"

static const struct {
    VkResult result;
    const char *name;
} names[] = {
#define NAME(result) {result, #result}
    NAME(VK_NOT_READY), NAME(VK_TIMEOUT), NAME(VK_INCOMPLETE), NAME(VK_ERROR_OUT_OF_HOST_MEMORY),
    NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY), NAME(VK_ERROR_INITIALIZATION_FAILED), NAME(VK_ERROR_DEVICE_LOST),
    NAME(VK_ERROR_MEMORY_MAP_FAILED), NAME(VK_ERROR_LAYER_NOT_PRESENT), NAME(VK_ERROR_EXTENSION_NOT_PRESENT),
    NAME(VK_ERROR_FEATURE_NOT_PRESENT), NAME(VK_ERROR_INCOMPATIBLE_DRIVER), NAME(VK_ERROR_TOO_MANY_OBJECTS),
    NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE), NAME(VK_ERROR_UNKNOWN),
#undef NAME
};

aerie_status ae_vk_fail(VkResult result, const char *call, aerie_error *error)
{
    const bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
                        result == VK_ERROR_TOO_MANY_OBJECTS;
    const char *name = "an error without a name";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].result == result) name = names[i].name;
    return ae_fail(error, memory ? AERIE_ERROR_MEMORY : AERIE_ERROR_INTERNAL, "%s: %s (%d)", call, name, (int)result);
}

/* Returns the name of the first function that is missing; NULL: all were found. */
static const char *find_functions(ae_vk_library *l)
{
    PFN_vkVoidFunction symbol;
#define FIND(name)                                   \
    symbol = l->get(l->instance, "vk" #name);        \
    if (!symbol) return "vk" #name;                  \
    memcpy(&l->name, &symbol, sizeof l->name);
    if (!l->instance) {
        AE_VK_GLOBALS(FIND)
        return NULL;
    }
    AE_VK_INSTANCE(FIND)
#undef FIND
    return NULL;
}

static aerie_status start(ae_vk_library *l, aerie_error *error)
{
    uint32_t version = 0;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, LIBRARY " is not here: " NO_DRIVER);
    void *get = dlsym(library, "vkGetInstanceProcAddr");
    if (!get) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, LIBRARY " lacks vkGetInstanceProcAddr");
    memcpy(&l->get, &get, sizeof l->get);
    const char *missing = find_functions(l);
    if (missing)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, LIBRARY " is too old: it lacks %s; Vulkan 1.3 is needed", missing);
    AE_VK_TRY(l->EnumerateInstanceVersion(&version), "vkEnumerateInstanceVersion", error);
    if (version < VK_API_VERSION_1_3)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, LIBRARY " is too old: it is for Vulkan %u.%u, and 1.3 is needed",
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "aerie",
                                   .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    const VkResult result = l->CreateInstance(&info, NULL, &l->instance);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, NO_DRIVER);
    if (result != VK_SUCCESS) {
        ae_vk_fail(result, "vkCreateInstance", error);
        if (error) error->status = AERIE_ERROR_UNSUPPORTED;
        return AERIE_ERROR_UNSUPPORTED;
    }
    missing = find_functions(l);
    return missing ? ae_fail(error, AERIE_ERROR_UNSUPPORTED, LIBRARY " lacks %s", missing) : AERIE_OK;
}

aerie_status ae_vk_library_load(ae_vk_library *out, aerie_error *error)
{
    *out = (ae_vk_library){0};
    const aerie_status status = start(out, error);
    if (status != AERIE_OK) ae_vk_library_release(out);
    return status;
}

void ae_vk_library_release(ae_vk_library *library)
{
    if (library->instance && library->DestroyInstance) library->DestroyInstance(library->instance, NULL);
    *library = (ae_vk_library){0};
}

/* Real GPUs come first. */
static uint32_t rank_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return 4;
    default: return 3;
    }
}

aerie_status ae_vk_devices(const ae_vk_library *library, VkPhysicalDevice out[AE_VK_MAX_DEVICES], uint32_t *n,
                           aerie_error *error)
{
    uint32_t rank[AE_VK_MAX_DEVICES];
    *n = AE_VK_MAX_DEVICES;
    const VkResult result = library->EnumeratePhysicalDevices(library->instance, n, out);
    if (result == VK_ERROR_INITIALIZATION_FAILED || result == VK_ERROR_INCOMPATIBLE_DRIVER) *n = 0; /* no driver at all */
    else if (result != VK_SUCCESS && result != VK_INCOMPLETE) return ae_vk_fail(result, "vkEnumeratePhysicalDevices", error);
    for (uint32_t i = 0; i < *n; i++) {
        VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
        library->GetPhysicalDeviceProperties2(out[i], &p);
        const VkPhysicalDevice device = out[i];
        const uint32_t own = rank_of(p.properties.deviceType);
        uint32_t at = i;
        for (; at && rank[at - 1] > own; at--) { /* insertion keeps the driver's order among equals */
            out[at] = out[at - 1];
            rank[at] = rank[at - 1];
        }
        out[at] = device;
        rank[at] = own;
    }
    return AERIE_OK;
}

#endif
