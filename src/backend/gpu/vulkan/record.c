/* record.c - recordings of the driver "vulkan": a command buffer that may be submitted any number of times, and the arguments
 * of its launches. See vulkan.h. Owns nothing but what a recording has. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include "base/mem.h"

#define ARGS_BYTES ((size_t)64 << 10) /* bytes of a block of arguments; more than one launch needs */

aerie_status ae_vk_record_args(ae_gpu_device *d, size_t n, uint64_t *address, uint8_t **host, aerie_error *error)
{
    ae_gpu_recording *r = d->recording;
    if (!r->n_args || n > r->args[r->n_args - 1].n - r->n_used) {
        ae_vk_block *args = ae_grow(r->args, r->n_args, &r->room, sizeof *args);
        if (!args) return ae_fail_memory(error, "a recorded pass", (r->n_args + 1) * sizeof *args);
        r->args = args;
        AE_TRY(ae_vk_block_create(d, AE_VK_ARGS, n > ARGS_BYTES ? n : ARGS_BYTES, &args[r->n_args], error));
        r->n_args++;
        r->n_used = 0;
    }
    const ae_vk_block *b = &r->args[r->n_args - 1];
    *address = b->address + r->n_used;
    *host = b->host + r->n_used;
    r->n_used += n;
    return AERIE_OK;
}

static void destroy(ae_gpu_device *d, ae_gpu_recording *r)
{
    for (size_t i = 0; i < r->n_args; i++) ae_vk_block_destroy(d, &r->args[i]);
    if (r->commands) d->call.FreeCommandBuffers(d->device, d->pool, 1, &r->commands);
    ae_free(r->args);
    ae_free(r);
}

/* A recording has barriers between its own commands; this barrier orders the recording after earlier commands. */
static void order_start(ae_gpu_device *d, const ae_gpu_recording *r)
{
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    d->call.CmdPipelineBarrier(r->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1,
                               &barrier, 0, NULL, 0, NULL);
}

static aerie_status begin(ae_gpu_device *d, ae_gpu_recording *r, aerie_error *error)
{
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = d->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1};
    const VkCommandBufferBeginInfo start = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    AE_VK_TRY(d->call.AllocateCommandBuffers(d->device, &info, &r->commands), "vkAllocateCommandBuffers", error);
    AE_VK_TRY(d->call.BeginCommandBuffer(r->commands, &start), "vkBeginCommandBuffer", error);
    order_start(d, r);
    return AERIE_OK;
}

aerie_status ae_vk_record_begin(ae_gpu_device *d, aerie_error *error)
{
    ae_gpu_recording *r = ae_alloc(1, sizeof *r);
    if (!r) return ae_fail_memory(error, "a recorded pass", sizeof *r);
    pthread_mutex_lock(&d->mutex);
    aerie_status status = d->recording ? ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: a recording is under way")
                                       : begin(d, r, error);
    if (status == AERIE_OK) d->recording = r;
    else destroy(d, r);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

aerie_status ae_vk_record_end(ae_gpu_device *d, ae_gpu_recording **out, aerie_error *error)
{
    aerie_status status = AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    ae_gpu_recording *r = d->recording;
    d->recording = NULL;
    *out = NULL;
    if (!r) status = ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: no recording is under way");
    else {
        const VkResult result = d->call.EndCommandBuffer(r->commands);
        if (result == VK_SUCCESS) *out = r;
        else {
            status = ae_vk_lose(d, result, "vkEndCommandBuffer", error);
            destroy(d, r);
        }
    }
    pthread_mutex_unlock(&d->mutex);
    return status;
}

void ae_vk_recording_free(ae_gpu_device *d, ae_gpu_recording *r)
{
    if (!r) return;
    pthread_mutex_lock(&d->mutex);
    (void)ae_vk_drain(d, NULL); /* it may still run */
    if (ae_vk_is_stuck(d)) {
        r->next = d->left;
        d->left = r;
    } else {
        destroy(d, r);
    }
    pthread_mutex_unlock(&d->mutex);
}

void ae_vk_recordings_free(ae_gpu_device *d)
{
    for (ae_gpu_recording *r = d->left, *next; r; r = next) {
        next = r->next;
        destroy(d, r);
    }
    d->left = NULL;
}

#endif
