/* memory.c - device memory and pinned memory of the driver "vulkan". See vulkan.h.
 *
 * Owns blocks: each allocation is a buffer with memory of its own. Kernels get addresses; copies need the buffer, which is
 * found by the address. Where the host sees device memory (processors, integrated GPUs), fills write there; else they go
 * through a staging block and a queue submission of their own. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ALIGN 256 /* bytes */

/* A block's buffer is larger than what is used of it, by less than 2 * ALIGN. */
size_t ae_vk_max_block(const ae_gpu_device *d)
{
    return d->max_block > 4 * ALIGN ? (size_t)d->max_block - 4 * ALIGN : 0;
}

aerie_status ae_vk_block_create(ae_gpu_device *d, uint32_t kind, size_t n, ae_vk_block *out, aerie_error *error)
{
    const ae_vk_calls *vk = &d->call;
    ae_vk_block b = {.n = n};
    size_t bytes;
    *out = b;
    if (!ae_add_size(n, 2 * ALIGN, &bytes) || bytes > d->max_block)
        return ae_fail(error, AERIE_ERROR_MEMORY, "a block of %zu bytes; this device allows %llu", n,
                       (unsigned long long)d->max_block);
    const VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes / 4 * 4,
                                       .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                                VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    AE_VK_TRY(vk->CreateBuffer(d->device, &buffer, NULL, &b.buffer), "vkCreateBuffer", error);
    VkMemoryRequirements need;
    vk->GetBufferMemoryRequirements(d->device, b.buffer, &need);
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags,
                                         .allocationSize = need.size, .memoryTypeIndex = d->types[kind]};
    VkResult result = vk->AllocateMemory(d->device, &memory, NULL, &b.memory);
    const char *call = "vkAllocateMemory";
    if (result == VK_SUCCESS) {
        result = vk->BindBufferMemory(d->device, b.buffer, b.memory, 0);
        call = "vkBindBufferMemory";
    }
    void *host = NULL;
    if (result == VK_SUCCESS && (kind != AE_VK_LOCAL || d->mapped)) {
        result = vk->MapMemory(d->device, b.memory, 0, VK_WHOLE_SIZE, 0, &host);
        call = "vkMapMemory";
    }
    if (result != VK_SUCCESS) {
        ae_vk_block_destroy(d, &b);
        return ae_vk_fail(result, call, error);
    }
    const VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = b.buffer};
    const uint64_t at = vk->GetBufferDeviceAddress(d->device, &address);
    b.address = (at + ALIGN - 1) / ALIGN * ALIGN;
    b.offset = b.address - at;
    b.host = host ? (uint8_t *)host + b.offset : NULL;
    *out = b;
    return AERIE_OK;
}

void ae_vk_block_destroy(ae_gpu_device *d, ae_vk_block *block)
{
    if (block->buffer) d->call.DestroyBuffer(d->device, block->buffer, NULL);
    if (block->memory) d->call.FreeMemory(d->device, block->memory, NULL);
    *block = (ae_vk_block){0};
}

/* ---- Lists of blocks -------------------------------------------------------------------------------- */

static uint64_t start_of(const ae_vk_block *b, bool pinned)
{
    return pinned ? (uint64_t)(uintptr_t)b->host : b->address;
}

/* Returns how many blocks begin at `address` or before. */
static size_t place_of(const ae_vk_blocks *blocks, uint64_t address, bool pinned)
{
    size_t low = 0, high = blocks->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (start_of(&blocks->block[middle], pinned) <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

const ae_vk_block *ae_vk_find(const ae_vk_blocks *blocks, uint64_t address, size_t n, bool pinned)
{
    const size_t i = place_of(blocks, address, pinned);
    const ae_vk_block *b = i ? &blocks->block[i - 1] : NULL;
    if (!b) return NULL;
    const uint64_t at = address - start_of(b, pinned);
    return at <= b->n && n <= b->n - at ? b : NULL;
}

static bool blocks_add(ae_vk_blocks *blocks, const ae_vk_block *b, bool pinned)
{
    ae_vk_block *room = ae_grow(blocks->block, blocks->n, &blocks->room, sizeof *room);
    if (!room) return false;
    blocks->block = room;
    const size_t at = place_of(blocks, start_of(b, pinned), pinned);
    memmove(&room[at + 1], &room[at], (blocks->n - at) * sizeof *room);
    room[at] = *b;
    blocks->n++;
    return true;
}

/* Takes the block that begins at `address` out of the list. */
static bool blocks_take(ae_vk_blocks *blocks, uint64_t address, bool pinned, ae_vk_block *out)
{
    const size_t i = place_of(blocks, address, pinned);
    if (!i || start_of(&blocks->block[i - 1], pinned) != address) return false;
    *out = blocks->block[i - 1];
    memmove(&blocks->block[i - 1], &blocks->block[i], (blocks->n - i) * sizeof *out);
    blocks->n--;
    return true;
}

/* ---- Fills ------------------------------------------------------------------------------------------ */

/* Runs the commands of a fill, which have been recorded, and waits for them. */
static aerie_status fill_run(ae_gpu_device *d, aerie_error *error)
{
    const ae_vk_calls *vk = &d->call;
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1,
                                 .pCommandBuffers = &d->fill_commands};
    AE_VK_TRY(vk->ResetFences(d->device, 1, &d->fill_fence), "vkResetFences", error);
    pthread_mutex_lock(&d->mutex);
    pthread_mutex_lock(&d->shared->mutex);
    const VkResult result = vk->QueueSubmit(d->queue, 1, &submit, d->fill_fence);
    pthread_mutex_unlock(&d->shared->mutex);
    const aerie_status status = result == VK_SUCCESS ? AERIE_OK : ae_vk_lose(d, result, "vkQueueSubmit", error);
    pthread_mutex_unlock(&d->mutex);
    if (status != AERIE_OK) return status;
    return ae_vk_wait_fence(d, d->fill_fence, error);
}

static aerie_status fill_begin(ae_gpu_device *d, aerie_error *error)
{
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    AE_VK_TRY(d->call.ResetCommandBuffer(d->fill_commands, 0), "vkResetCommandBuffer", error);
    AE_VK_TRY(d->call.BeginCommandBuffer(d->fill_commands, &begin), "vkBeginCommandBuffer", error);
    return AERIE_OK;
}

/* Makes the fill visible to everything that is submitted after it. */
static aerie_status fill_end(ae_gpu_device *d, aerie_error *error)
{
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    d->call.CmdPipelineBarrier(d->fill_commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1,
                               &barrier, 0, NULL, 0, NULL);
    AE_VK_TRY(d->call.EndCommandBuffer(d->fill_commands), "vkEndCommandBuffer", error);
    return fill_run(d, error);
}

static aerie_status zero_block(ae_gpu_device *d, const ae_vk_block *b)
{
    if (b->host) {
        memset(b->host, 0, b->n);
        return AERIE_OK;
    }
    pthread_mutex_lock(&d->fill_mutex);
    aerie_status status = fill_begin(d, NULL);
    if (status == AERIE_OK) {
        d->call.CmdFillBuffer(d->fill_commands, b->buffer, 0, VK_WHOLE_SIZE, 0);
        status = fill_end(d, NULL);
    }
    pthread_mutex_unlock(&d->fill_mutex);
    return status;
}

/* Copies n bytes, at most as many as the staging block has, to `offset` of a block. The caller holds the fills' lock. */
static aerie_status fill_piece(ae_gpu_device *d, VkBuffer to, uint64_t offset, const uint8_t *host, size_t n,
                               aerie_error *error)
{
    const VkBufferCopy copy = {d->staging.offset, offset, n};
    memcpy(d->staging.host, host, n);
    AE_TRY(fill_begin(d, error));
    d->call.CmdCopyBuffer(d->fill_commands, d->staging.buffer, to, 1, &copy);
    return fill_end(d, error);
}

aerie_status ae_vk_fill(ae_gpu_device *d, void *to, const void *host, size_t n, aerie_error *error)
{
    const uint64_t address = (uint64_t)(uintptr_t)to;
    ae_vk_block b = {0};
    aerie_status status = AERIE_OK;
    if (!n) return AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    const ae_vk_block *found = ae_vk_find(&d->blocks, address, n, false);
    if (found) b = *found;
    pthread_mutex_unlock(&d->mutex);
    if (!found) return ae_fail(error, AERIE_ERROR_INTERNAL, "vulkan: %zu bytes outside all blocks are filled", n);
    if (b.host) {
        memcpy(b.host + (address - b.address), host, n);
        return AERIE_OK;
    }
    pthread_mutex_lock(&d->fill_mutex);
    for (size_t done = 0, piece; done < n && status == AERIE_OK; done += piece) {
        piece = n - done < d->staging.n ? n - done : d->staging.n;
        status = fill_piece(d, b.buffer, b.offset + (address - b.address) + done, (const uint8_t *)host + done, piece, error);
    }
    pthread_mutex_unlock(&d->fill_mutex);
    return status;
}

/* ---- The driver's calls ----------------------------------------------------------------------------- */

void ae_vk_memory_info(ae_gpu_device *d, uint64_t *n_free, uint64_t *n_total)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                           .pNext = d->has_budget ? &budget : NULL};
    d->library.GetPhysicalDeviceMemoryProperties2(d->physical, &p);
    *n_total = d->heap_bytes;
    const uint64_t used = atomic_load(&d->shared->n_used);
    *n_free = used < d->heap_bytes ? d->heap_bytes - used : 0;
    if (!d->has_budget) return;
    const uint64_t most = budget.heapBudget[d->heap], in_use = budget.heapUsage[d->heap];
    if (most) *n_free = most > in_use ? most - in_use : 0;
    if (*n_free > *n_total) *n_free = *n_total;
}

static void *take(ae_gpu_device *d, uint32_t kind, ae_vk_blocks *blocks, size_t bytes)
{
    const bool pinned = kind == AE_VK_HOST;
    ae_vk_block b;
    if (ae_vk_block_create(d, kind, bytes ? bytes : 1, &b, NULL) != AERIE_OK) return NULL;
    const bool ok = pinned || zero_block(d, &b) == AERIE_OK;
    pthread_mutex_lock(&d->mutex);
    const bool stuck = !ok && ae_vk_is_stuck(d), added = (ok || stuck) && blocks_add(blocks, &b, pinned);
    if (ok && added && !pinned) atomic_fetch_add(&d->shared->n_used, b.n);
    pthread_mutex_unlock(&d->mutex);
    if (ok && added) return pinned ? b.host : (void *)(uintptr_t)b.address;
    if (!stuck) ae_vk_block_destroy(d, &b);
    return NULL;
}

/* Waits for the queue, since no command may use freed memory. Memory that a hanging device may use stays in the list. */
static void give(ae_gpu_device *d, ae_vk_blocks *blocks, void *memory, bool pinned)
{
    ae_vk_block b = {0};
    if (!memory) return;
    pthread_mutex_lock(&d->mutex);
    (void)ae_vk_drain(d, NULL);
    if (!ae_vk_is_stuck(d) && blocks_take(blocks, (uint64_t)(uintptr_t)memory, pinned, &b) && !pinned)
        atomic_fetch_sub(&d->shared->n_used, b.n);
    pthread_mutex_unlock(&d->mutex);
    ae_vk_block_destroy(d, &b);
}

void *ae_vk_alloc(ae_gpu_device *d, size_t bytes) { return take(d, AE_VK_LOCAL, &d->blocks, bytes); }
void ae_vk_free(ae_gpu_device *d, void *memory) { give(d, &d->blocks, memory, false); }
void *ae_vk_alloc_pinned(ae_gpu_device *d, size_t bytes) { return take(d, AE_VK_HOST, &d->pinned, bytes); }
void ae_vk_free_pinned(ae_gpu_device *d, void *memory) { give(d, &d->pinned, memory, true); }

#endif
