/* queue.c - what is given to a device's queue: copies, zeroing, launches, marks. See vulkan.h.
 *
 * Owns batches. Commands are collected in a batch, which is submitted when it is full and when somebody waits. Each command
 * waits for the one before it. While a recording is under way (record.c) commands go to it instead. All functions but
 * ae_vk_drain take the device's lock. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <string.h>

#include "backend/gpu/limit.h"
#include "base/os.h"

#define ARGS_ALIGN 64

aerie_status ae_vk_lose(ae_gpu_device *d, VkResult result, const char *call, aerie_error *error)
{
    aerie_error why = {0};
    const aerie_status status = ae_vk_fail(result, call, &why);
    if (result == VK_ERROR_DEVICE_LOST && d->fault.status == AERIE_OK) d->fault = why;
    if (result == VK_ERROR_DEVICE_LOST) atomic_store(&d->shared->is_dead, true);
    if (error) *error = why;
    return status;
}

/* Returns from the function with the error if a call has failed; the device may be lost then. */
#define TRY_LIVE(d, what, name, error)                                            \
    do {                                                                          \
        const VkResult vk_result = (what);                                        \
        if (vk_result != VK_SUCCESS) return ae_vk_lose(d, vk_result, name, error); \
    } while (0)

static aerie_status check_alive(const ae_gpu_device *d, aerie_error *error)
{
    if (d->fault.status != AERIE_OK && error) *error = d->fault;
    return d->fault.status;
}

/* ---- Batches ---------------------------------------------------------------------------------------- */

static aerie_status create_batch(ae_gpu_device *d, ae_vk_batch *b, aerie_error *error)
{
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = d->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1};
    AE_VK_TRY(d->call.AllocateCommandBuffers(d->device, &info, &b->commands), "vkAllocateCommandBuffers", error);
    return ae_vk_block_create(d, AE_VK_ARGS, AE_VK_BATCH_ARGS, &b->args, error);
}

aerie_status ae_vk_queue_create(ae_gpu_device *d, aerie_error *error)
{
    const ae_vk_calls *vk = &d->call;
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = d->family};
    const VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                           .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = AE_GPU_MARKS};
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
                                     .flags = VK_FENCE_CREATE_SIGNALED_BIT}; /* no fill is under way */
    AE_VK_TRY(vk->CreateCommandPool(d->device, &pool, NULL, &d->pool), "vkCreateCommandPool", error);
    AE_VK_TRY(vk->CreateCommandPool(d->device, &pool, NULL, &d->fill_pool), "vkCreateCommandPool", error);
    AE_VK_TRY(vk->CreateFence(d->device, &fence, NULL, &d->fill_fence), "vkCreateFence", error);
    if (d->tick > 0)
        AE_VK_TRY(vk->CreateQueryPool(d->device, &queries, NULL, &d->queries), "vkCreateQueryPool", error);
    const VkCommandBufferAllocateInfo fill = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = d->fill_pool, .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    AE_VK_TRY(vk->AllocateCommandBuffers(d->device, &fill, &d->fill_commands), "vkAllocateCommandBuffers", error);
    for (uint32_t i = 0; i < AE_VK_BATCHES; i++) AE_TRY(create_batch(d, &d->batches[i], error));
    return AERIE_OK;
}

void ae_vk_queue_destroy(ae_gpu_device *d)
{
    const ae_vk_calls *vk = &d->call;
    for (uint32_t i = 0; i < AE_VK_BATCHES; i++) ae_vk_block_destroy(d, &d->batches[i].args);
    if (d->queries) vk->DestroyQueryPool(d->device, d->queries, NULL);
    if (d->fill_fence) vk->DestroyFence(d->device, d->fill_fence, NULL);
    if (d->fill_pool) vk->DestroyCommandPool(d->device, d->fill_pool, NULL);
    if (d->pool) vk->DestroyCommandPool(d->device, d->pool, NULL);
}

static uint64_t nanoseconds(double seconds)
{
    return seconds > 0 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

/* Returns the semaphore's value: submissions that are done; UINT64_MAX: the query failed. */
static uint64_t progress_of(ae_gpu_device *d)
{
    uint64_t value = 0;
    return d->call.GetSemaphoreCounterValue(d->device, d->semaphore, &value) == VK_SUCCESS ? value : UINT64_MAX;
}

/* Gives up the device. */
static aerie_status give_up(ae_gpu_device *d, aerie_error *error)
{
    d->hung = true;
    atomic_store(&d->shared->is_dead, true);
    if (d->fault.status == AERIE_OK) ae_gpu_hung(d->limit, &d->fault);
    return check_alive(d, error);
}

static aerie_status wait_for(ae_gpu_device *d, uint64_t value, aerie_error *error)
{
    const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1,
                                      .pSemaphores = &d->semaphore, .pValues = &value};
    for (uint64_t seen = progress_of(d);;) {
        const VkResult result = d->call.WaitSemaphores(d->device, &wait, nanoseconds(d->limit));
        if (result != VK_TIMEOUT) return result == VK_SUCCESS ? AERIE_OK : ae_vk_lose(d, result, "vkWaitSemaphores", error);
        const uint64_t now = progress_of(d);
        if (now == seen) return give_up(d, error);
        seen = now;
    }
}

aerie_status ae_vk_wait_fence(ae_gpu_device *d, VkFence fence, aerie_error *error)
{
    for (uint64_t seen = progress_of(d);;) {
        const VkResult result = d->call.WaitForFences(d->device, 1, &fence, VK_TRUE, nanoseconds(d->limit));
        const uint64_t now = progress_of(d);
        const bool done = result != VK_TIMEOUT, stands = now == seen;
        aerie_status status = AERIE_OK;
        seen = now;
        if (result == VK_SUCCESS) return AERIE_OK;
        if (!done && !stands) continue;
        pthread_mutex_lock(&d->mutex);
        status = done ? ae_vk_lose(d, result, "vkWaitForFences", error) : give_up(d, error);
        pthread_mutex_unlock(&d->mutex);
        return status;
    }
}

bool ae_vk_is_stuck(ae_gpu_device *d)
{
    return d->hung && (progress_of(d) < d->submitted || d->call.GetFenceStatus(d->device, d->fill_fence) == VK_NOT_READY);
}

bool ae_vk_comes_back(ae_gpu_device *d)
{
    const double start = ae_time_now();
    while (ae_vk_is_stuck(d))
        if (!ae_gpu_pause(start, d->limit)) return false;
    d->hung = false;
    return true;
}

void ae_vk_settle(ae_gpu_device *d)
{
    if (!d->hung) (void)wait_for(d, d->submitted, NULL);
}

/* Submits commands; when they are done the semaphore has the value d->submitted. */
static aerie_status submit(ae_gpu_device *d, VkCommandBuffer commands, aerie_error *error)
{
    ae_vk_shared *s = d->shared;
    uint64_t value;
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                    .signalSemaphoreValueCount = 1, .pSignalSemaphoreValues = &value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .pNext = &timeline, .commandBufferCount = 1,
                               .pCommandBuffers = &commands, .signalSemaphoreCount = 1, .pSignalSemaphores = &d->semaphore};
    pthread_mutex_lock(&s->mutex); /* values must rise in the order of the queue */
    value = s->submitted + 1;
    const VkResult result = d->call.QueueSubmit(d->queue, 1, &info, VK_NULL_HANDLE);
    if (result == VK_SUCCESS) s->submitted = d->submitted = value;
    pthread_mutex_unlock(&s->mutex);
    return result == VK_SUCCESS ? AERIE_OK : ae_vk_lose(d, result, "vkQueueSubmit", error);
}

/* Submits the batch, if it is open. */
static aerie_status flush(ae_gpu_device *d, aerie_error *error)
{
    ae_vk_batch *b = &d->batches[d->batch];
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    if (!b->is_open) return AERIE_OK;
    b->is_open = false;
    d->batch = (d->batch + 1) % AE_VK_BATCHES;
    d->call.CmdPipelineBarrier(b->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                               NULL, 0, NULL);
    TRY_LIVE(d, d->call.EndCommandBuffer(b->commands), "vkEndCommandBuffer", error);
    AE_TRY(submit(d, b->commands, error));
    b->value = d->submitted;
    return AERIE_OK;
}

aerie_status ae_vk_drain(ae_gpu_device *d, aerie_error *error)
{
    AE_TRY(check_alive(d, error));
    AE_TRY(flush(d, error));
    return wait_for(d, d->submitted, error);
}

/* Returns an open batch for a command with n bytes of arguments. */
static aerie_status open_batch(ae_gpu_device *d, size_t n, ae_vk_batch **out, aerie_error *error)
{
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    ae_vk_batch *b = &d->batches[d->batch];
    AE_TRY(check_alive(d, error));
    if (b->is_open && (b->n_commands >= AE_VK_BATCH_COMMANDS || n > AE_VK_BATCH_ARGS - b->n_args)) AE_TRY(flush(d, error));
    b = &d->batches[d->batch];
    *out = b;
    if (b->is_open) return AERIE_OK;
    AE_TRY(wait_for(d, b->value, error));
    TRY_LIVE(d, d->call.ResetCommandBuffer(b->commands, 0), "vkResetCommandBuffer", error);
    TRY_LIVE(d, d->call.BeginCommandBuffer(b->commands, &begin), "vkBeginCommandBuffer", error);
    b->n_args = 0;
    b->n_commands = 0;
    b->is_open = true;
    return AERIE_OK;
}

/* Returns the command buffer for a command, and space for the n bytes of its arguments. */
static aerie_status take_commands(ae_gpu_device *d, size_t n, VkCommandBuffer *commands, uint64_t *address, uint8_t **host,
                                  aerie_error *error)
{
    ae_vk_batch *b;
    n = (n + ARGS_ALIGN - 1) / ARGS_ALIGN * ARGS_ALIGN;
    if (d->recording) {
        *commands = d->recording->commands;
        return n ? ae_vk_record_args(d, n, address, host, error) : AERIE_OK;
    }
    AE_TRY(open_batch(d, n, &b, error));
    *commands = b->commands;
    b->n_commands++;
    if (!n) return AERIE_OK;
    *address = b->args.address + b->n_args;
    *host = b->args.host + b->n_args;
    b->n_args += n;
    return AERIE_OK;
}

/* Records a barrier: the next command waits for the previous ones. */
static void order(ae_gpu_device *d, VkCommandBuffer commands)
{
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                         VK_ACCESS_TRANSFER_WRITE_BIT};
    d->call.CmdPipelineBarrier(commands, stages, stages, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* ---- Copies ----------------------------------------------------------------------------------------- */

static aerie_status copy(ae_gpu_device *d, void *device, const void *pinned, size_t n, bool in, aerie_error *error)
{
    const uint64_t address = (uint64_t)(uintptr_t)device, host = (uint64_t)(uintptr_t)pinned;
    VkCommandBuffer commands;
    const ae_vk_block *there = ae_vk_find(&d->blocks, address, n, false), *here = ae_vk_find(&d->pinned, host, n, true);
    if (!there || !here) return ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: a copy of %zu bytes outside all blocks", n);
    AE_TRY(take_commands(d, 0, &commands, NULL, NULL, error));
    const uint64_t there_at = there->offset + (address - there->address);
    const uint64_t here_at = here->offset + (host - (uint64_t)(uintptr_t)here->host);
    const VkBufferCopy region = {in ? here_at : there_at, in ? there_at : here_at, n};
    d->call.CmdCopyBuffer(commands, in ? here->buffer : there->buffer, in ? there->buffer : here->buffer, 1, &region);
    order(d, commands);
    return AERIE_OK;
}

aerie_status ae_vk_copy_in(ae_gpu_device *d, void *to, const void *pinned, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = copy(d, to, pinned, n, true, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

aerie_status ae_vk_copy_out(ae_gpu_device *d, void *pinned, const void *from, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = copy(d, (void *)(uintptr_t)from, pinned, n, false, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

/* Zeroes whole words; the host side asks for nothing else. */
static aerie_status zero(ae_gpu_device *d, uint64_t address, size_t n, aerie_error *error)
{
    VkCommandBuffer commands;
    const ae_vk_block *b = ae_vk_find(&d->blocks, address, n, false);
    if (!b || address % 4 || n % 4)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: zeroing %zu bytes that are not words of a block", n);
    AE_TRY(take_commands(d, 0, &commands, NULL, NULL, error));
    d->call.CmdFillBuffer(commands, b->buffer, b->offset + (address - b->address), n, 0);
    order(d, commands);
    return AERIE_OK;
}

aerie_status ae_vk_zero(ae_gpu_device *d, void *to, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = zero(d, (uint64_t)(uintptr_t)to, n, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

/* ---- Launches --------------------------------------------------------------------------------------- */

aerie_status ae_vk_dispatch(ae_gpu_device *d, VkPipeline pipeline, const uint32_t grid[3], const void *args, size_t n_args,
                            aerie_error *error)
{
    struct {
        uint64_t args;
        uint32_t first_x, grid_x;
    } push = {.grid_x = grid[0]}; /* shaders/common.glsl */
    VkCommandBuffer commands;
    uint8_t *host = NULL;
    if (grid[1] > d->max_groups[1] || grid[2] > d->max_groups[2])
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a grid of %u x %u x %u work-groups, and this device allows %u x %u",
                       grid[0], grid[1], grid[2], d->max_groups[1], d->max_groups[2]);
    AE_TRY(take_commands(d, n_args, &commands, &push.args, &host, error));
    memcpy(host, args, n_args);
    d->call.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    for (uint32_t n; push.first_x < grid[0]; push.first_x += n) {
        n = grid[0] - push.first_x < d->max_groups[0] ? grid[0] - push.first_x : d->max_groups[0];
        d->call.CmdPushConstants(commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
        d->call.CmdDispatch(commands, n, grid[1], grid[2]);
    }
    order(d, commands);
    return AERIE_OK;
}

/* ---- Marks ------------------------------------------------------------------------------------------ */

static aerie_status mark(ae_gpu_device *d, uint32_t i, aerie_error *error)
{
    VkCommandBuffer commands;
    if (d->recording) return ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: a mark cannot be recorded");
    if (!d->queries) {
        AE_TRY(ae_vk_drain(d, error));
        d->marks[i] = ae_time_now();
        return AERIE_OK;
    }
    AE_TRY(take_commands(d, 0, &commands, NULL, NULL, error));
    d->call.CmdResetQueryPool(commands, d->queries, i, 1);
    d->call.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, d->queries, i);
    d->marks[i] = 1; /* there is one */
    return AERIE_OK;
}

aerie_status ae_vk_mark(ae_gpu_device *d, uint32_t i, aerie_error *error)
{
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = mark(d, i % AE_GPU_MARKS, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

/* Reads the time of a mark in ticks. Returns false if there is none yet. */
static bool read_mark(ae_gpu_device *d, uint32_t i, uint64_t *ticks)
{
    return d->marks[i] > 0 && d->call.GetQueryPoolResults(d->device, d->queries, i, 1, sizeof *ticks, ticks, sizeof *ticks,
                                                          VK_QUERY_RESULT_64_BIT) == VK_SUCCESS;
}

double ae_vk_elapsed(ae_gpu_device *d, uint32_t from, uint32_t to)
{
    uint64_t begin = 0, end = 0;
    double seconds = 0;
    from %= AE_GPU_MARKS;
    to %= AE_GPU_MARKS;
    pthread_mutex_lock(&d->mutex);
    if (!d->queries) seconds = d->marks[to] - d->marks[from];
    else if (read_mark(d, from, &begin) && read_mark(d, to, &end) && end > begin) seconds = (double)(end - begin) * d->tick;
    pthread_mutex_unlock(&d->mutex);
    return seconds;
}

aerie_status ae_vk_sync(ae_gpu_device *d, aerie_error *error)
{
    pthread_mutex_lock(&d->mutex);
    const aerie_status status =
        d->recording ? ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: nobody can wait for what is being recorded")
                     : ae_vk_drain(d, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

/* Recordings are submitted between batches. */
static aerie_status replay(ae_gpu_device *d, ae_gpu_recording *r, aerie_error *error)
{
    AE_TRY(check_alive(d, error));
    AE_TRY(flush(d, error));
    return submit(d, r->commands, error);
}

aerie_status ae_vk_replay(ae_gpu_device *d, ae_gpu_recording *r, aerie_error *error)
{
    pthread_mutex_lock(&d->mutex);
    const aerie_status status = replay(d, r, error);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

#endif
