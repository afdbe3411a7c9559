/* driver.c - the driver "vulkan": its table. See vulkan.h. Owns nothing. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

static aerie_status vulkan_count(uint32_t *n, aerie_error *error)
{
    ae_vk_library library;
    VkPhysicalDevice devices[AE_VK_MAX_DEVICES];
    *n = 0;
    AE_TRY(ae_vk_library_load(&library, error));
    const aerie_status status = ae_vk_devices(&library, devices, n, error);
    ae_vk_library_release(&library);
    return status;
}

const ae_gpu_driver ae_gpu_driver_vulkan = {
    .name = "vulkan",
    .count = vulkan_count,
    .open = ae_vk_open,
    .close = ae_vk_close,
    .memory_info = ae_vk_memory_info,
    .alloc = ae_vk_alloc,
    .free = ae_vk_free,
    .alloc_pinned = ae_vk_alloc_pinned,
    .free_pinned = ae_vk_free_pinned,
    .fill = ae_vk_fill,
    .copy_in = ae_vk_copy_in,
    .copy_out = ae_vk_copy_out,
    .zero = ae_vk_zero,
    .launch = ae_vk_launch,
    .mark = ae_vk_mark,
    .elapsed = ae_vk_elapsed,
    .sync = ae_vk_sync,
    .record_begin = ae_vk_record_begin,
    .record_end = ae_vk_record_end,
    .replay = ae_vk_replay,
    .recording_free = ae_vk_recording_free,
};

#endif
