/* vulkan.h - inside the driver "vulkan": the loaded library, a device, its blocks of memory, its queue, its pipelines.
 *
 * library.c loads the library and lists physical devices, device.c opens one, shared.c lets models share it, memory.c has its
 * memory, queue.c its queue, pipeline.c the shaders, spirv.c what is added to them, exam.c the comparison with the CPU.
 *
 * An ae_gpu_device is what one model has of a device: memory, batches, recordings, marks. Vulkan's device, its queue and its
 * pipelines belong to an ae_vk_shared, which all models on that device use, so that each shader is compiled once. Any thread
 * may call the driver; the mutex of an ae_gpu_device covers all that changes after it is opened, that of the ae_vk_shared the
 * queue; it is taken last. A device that hangs is given up (limit.h): memory that it may still use stays in the lists until the
 * ae_gpu_device is closed, and is never freed if it still hangs then.
 */
#ifndef AE_BACKEND_GPU_VULKAN_VULKAN_H
#define AE_BACKEND_GPU_VULKAN_VULKAN_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/gpu/driver.h"

#ifdef AE_GPU_VULKAN

#define VK_NO_PROTOTYPES
#include <pthread.h>
#include <stdatomic.h>
#include <vulkan/vulkan_core.h>

#include "backend/gpu/kernels/list.h"

/* ---- The library ------------------------------------------------------------------------------------ */

#define AE_VK_GLOBALS(X) X(EnumerateInstanceVersion) X(CreateInstance)
#define AE_VK_INSTANCE(X) \
    X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2) \
    X(GetPhysicalDeviceMemoryProperties2) X(GetPhysicalDeviceQueueFamilyProperties) X(EnumerateDeviceExtensionProperties) \
    X(CreateDevice) X(GetDeviceProcAddr) X(DestroyInstance)
#define AE_VK_DEVICE(X) \
    X(DestroyDevice) X(GetDeviceQueue) X(DeviceWaitIdle) X(QueueSubmit) X(CreateSemaphore) X(DestroySemaphore) \
    X(WaitSemaphores) X(GetSemaphoreCounterValue) X(CreateFence) X(DestroyFence) X(ResetFences) X(WaitForFences) \
    X(GetFenceStatus) X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements) X(GetBufferDeviceAddress) \
    X(AllocateMemory) X(FreeMemory) X(BindBufferMemory) X(MapMemory) X(CreateCommandPool) X(DestroyCommandPool) \
    X(AllocateCommandBuffers) X(FreeCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) X(ResetCommandBuffer) \
    X(CmdBindPipeline) X(CmdPushConstants) X(CmdDispatch) X(CmdCopyBuffer) X(CmdFillBuffer) X(CmdPipelineBarrier) \
    X(CmdResetQueryPool) X(CmdWriteTimestamp) X(CreateQueryPool) X(DestroyQueryPool) X(GetQueryPoolResults) \
    X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) X(DestroyPipelineLayout) \
    X(CreateComputePipelines) X(DestroyPipeline)

#define AE_VK_FIELD(name) PFN_vk##name name;
typedef struct ae_vk_library {
    PFN_vkGetInstanceProcAddr get;
    AE_VK_GLOBALS(AE_VK_FIELD)
    AE_VK_INSTANCE(AE_VK_FIELD)
    VkInstance instance;
} ae_vk_library;
typedef struct ae_vk_calls {
    AE_VK_DEVICE(AE_VK_FIELD)
} ae_vk_calls;
#undef AE_VK_FIELD

#define AE_VK_MAX_DEVICES 16

/* Loads the library and creates an instance, which the caller releases. Errors: UNSUPPORTED, with the reason. */
aerie_status ae_vk_library_load(ae_vk_library *out, aerie_error *error);
/* Releases the library, after all its devices; a struct of zeros is allowed. */
void ae_vk_library_release(ae_vk_library *library);
/* Lists the devices that can compute: real GPUs first, CPUs last. */
aerie_status ae_vk_devices(const ae_vk_library *library, VkPhysicalDevice out[AE_VK_MAX_DEVICES], uint32_t *n,
                           aerie_error *error);
/* Fills *error with the failure of a call ("vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)"), and returns MEMORY or
 * INTERNAL. */
aerie_status ae_vk_fail(VkResult result, const char *call, aerie_error *error);

/* ---- Devices ---------------------------------------------------------------------------------------- */

/* A buffer with its own memory. */
typedef struct ae_vk_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t address;  /* address of the part that is used, 256-byte aligned */
    uint64_t offset;   /* offset of that part in the buffer */
    size_t n;          /* bytes */
    uint8_t *host;     /* that part mapped for the host; NULL if it is not mapped */
} ae_vk_block;

/* Blocks in ascending order of address (device memory) or of host pointer (pinned memory). */
typedef struct ae_vk_blocks {
    ae_vk_block *block; /* [n] */
    size_t n, room;
} ae_vk_blocks;

#define AE_VK_BATCHES 4
#define AE_VK_BATCH_ARGS ((size_t)256 << 10) /* bytes for the arguments of a batch */
#define AE_VK_BATCH_COMMANDS 256             /* a batch is submitted once it has this many commands */

/* Commands that are submitted together, and the arguments of their launches. */
typedef struct ae_vk_batch {
    VkCommandBuffer commands;
    ae_vk_block args;
    size_t n_args;      /* bytes in use */
    uint32_t n_commands;
    uint64_t value;     /* the device's semaphore has this value when the batch is done */
    bool is_open;
} ae_vk_batch;

struct ae_gpu_recording {
    VkCommandBuffer commands;
    ae_vk_block *args;  /* [n_args], the last one with n_used bytes in use */
    size_t n_args, room, n_used;
    ae_gpu_recording *next; /* recordings that are left */
};

enum { AE_VK_LOCAL, AE_VK_HOST, AE_VK_ARGS, AE_VK_KINDS }; /* kinds of memory */

typedef struct ae_vk_shared ae_vk_shared;

struct ae_gpu_device {
    ae_vk_shared *shared;  /* NULL: the handles are the caller's (tests) */
    /* Handles and facts, the same for all that share the device, which owns them: */
    ae_vk_library library;
    ae_vk_calls call;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    uint32_t types[AE_VK_KINDS]; /* memory types */
    bool mapped;                 /* device memory is mapped for the host */
    bool has_budget;
    uint32_t heap;
    uint64_t heap_bytes, max_block;
    uint32_t max_groups[3];
    double tick;                 /* seconds of a timestamp tick; 0: no timestamps */
    VkPhysicalDeviceFloatControlsProperties floats;
    uint32_t fma, div;           /* specialization constants of the shaders, which the examination chose */
    VkPipelineLayout layout;
    VkSemaphore semaphore;       /* counts submissions to the queue that are done */

    pthread_mutex_t mutex;       /* protects the fields below */
    ae_vk_blocks blocks, pinned;
    VkCommandPool pool;
    ae_vk_batch batches[AE_VK_BATCHES];
    uint32_t batch;              /* the open batch, or the next one */
    uint64_t submitted;          /* the semaphore has this value when everything that this model submitted is done */
    ae_gpu_recording *recording; /* under way */
    VkQueryPool queries;         /* VK_NULL_HANDLE: no timestamps */
    double marks[AE_GPU_MARKS];  /* times in seconds, if there are no timestamps */
    VkPipeline pipelines[AE_GPU_N_KERNELS + 1]; /* those of `shared` that this model has launched */
    aerie_error fault;           /* if its status is not OK, the device is lost; says why */
    double limit;                /* longest wait in seconds; 0: no limit (limit.h) */
    bool hung;                   /* a wait exceeded the limit; the device is treated as faulty */
    ae_gpu_recording *left;      /* recordings that a hanging device may still run; freed when it is closed */

    pthread_mutex_t fill_mutex;  /* protects the fields below; taken before `mutex` */
    VkCommandPool fill_pool;
    VkCommandBuffer fill_commands;
    VkFence fill_fence;
    ae_vk_block staging;         /* a buffer for devices whose memory is not mapped; else empty */
};

/* An opened device, which is closed when its last user is. */
struct ae_vk_shared {
    ae_gpu_device common;        /* what each user begins as */
    ae_gpu_facts facts;
    char key[128];               /* which device, and the environment's settings that are part of `common` */
    uint32_t n_users;            /* protected by the lock of the list, as is `next` */
    ae_vk_shared *next;
    atomic_bool is_dead;         /* it was lost or given up: who comes later opens another */
    atomic_uint_fast64_t n_used; /* bytes of device memory */

    pthread_mutex_t mutex;       /* protects the queue and `submitted` */
    uint64_t submitted;          /* the semaphore has this value when everything submitted is done */
    pthread_mutex_t compiling;   /* protects `pipelines`; a model that has its pipelines need not wait for it */
    VkPipeline pipelines[AE_GPU_N_KERNELS + 1]; /* created when they are first launched */
};

#define AE_VK_TRY(call, name, error)                                    \
    do {                                                                \
        const VkResult vk_result = (call);                              \
        if (vk_result != VK_SUCCESS) return ae_vk_fail(vk_result, name, error); \
    } while (0)

/* Marks the device as lost, for all that share it, if the result says so. Returns the failure in any case. */
aerie_status ae_vk_lose(ae_gpu_device *d, VkResult result, const char *call, aerie_error *error);

/* Values of a shader's specialization constants (shaders/common.glsl). */
typedef struct ae_vk_variant {
    const char *shader; /* its name, "product" */
    uint32_t kind, size, slots;
} ae_vk_variant;

/* device.c */
aerie_status ae_vk_open(uint32_t i, ae_gpu_device **out, ae_gpu_facts *facts, aerie_error *error);
void ae_vk_close(ae_gpu_device *d);
/* Opens Vulkan's device i, and fills s->common and the facts that need no examination. The caller destroys *s in any case. */
aerie_status ae_vk_set_up(ae_vk_shared *s, uint32_t i, aerie_error *error);
/* Makes a user of the device, which has its handles. */
aerie_status ae_vk_user_create(ae_vk_shared *s, ae_gpu_device **out, aerie_error *error);
/* Returns false if the device still uses what the user has, which is not freed then. */
bool ae_vk_user_destroy(ae_gpu_device *d);

/* shared.c */
/* Returns device i with one more user: opens and examines it if no other model uses it. */
aerie_status ae_vk_shared_get(uint32_t i, ae_vk_shared **out, aerie_error *error);
/* Ends a use; the last one closes the device. */
void ae_vk_shared_release(ae_vk_shared *s);
/* Returns the pipeline of kernel i, compiled when it is first asked for. */
aerie_status ae_vk_shared_pipeline(ae_gpu_device *d, uint32_t i, const ae_vk_variant *variant, VkPipeline *out,
                                   aerie_error *error);

/* memory.c */
/* Returns the largest size of a block, in bytes. */
size_t ae_vk_max_block(const ae_gpu_device *d);
aerie_status ae_vk_block_create(ae_gpu_device *d, uint32_t kind, size_t n, ae_vk_block *out, aerie_error *error);
void ae_vk_block_destroy(ae_gpu_device *d, ae_vk_block *block);
/* Returns the block that contains the n bytes at `address`, which is a host pointer if `pinned`; NULL if none does. */
const ae_vk_block *ae_vk_find(const ae_vk_blocks *blocks, uint64_t address, size_t n, bool pinned);
void ae_vk_memory_info(ae_gpu_device *d, uint64_t *n_free, uint64_t *n_total);
void *ae_vk_alloc(ae_gpu_device *d, size_t bytes);
void ae_vk_free(ae_gpu_device *d, void *memory);
void *ae_vk_alloc_pinned(ae_gpu_device *d, size_t bytes);
void ae_vk_free_pinned(ae_gpu_device *d, void *memory);
aerie_status ae_vk_fill(ae_gpu_device *d, void *to, const void *host, size_t n, aerie_error *error);

/* queue.c */
aerie_status ae_vk_queue_create(ae_gpu_device *d, aerie_error *error);
void ae_vk_queue_destroy(ae_gpu_device *d);
/* Waits until all that the model has submitted is done. The caller holds the mutex. */
aerie_status ae_vk_drain(ae_gpu_device *d, aerie_error *error);
/* The same before closing, also if the device is lost; leaves out what was not submitted. */
void ae_vk_settle(ae_gpu_device *d);
/* Returns whether a device that was given up may still use its memory. The caller holds the mutex. */
bool ae_vk_is_stuck(ae_gpu_device *d);
/* Waits once more, before closing, for a device that was given up. Returns false if it still hangs; then nothing may be
 * freed. */
bool ae_vk_comes_back(ae_gpu_device *d);
/* Waits for a fence. The caller holds the fills' lock, but not the mutex. */
aerie_status ae_vk_wait_fence(ae_gpu_device *d, VkFence fence, aerie_error *error);
aerie_status ae_vk_copy_in(ae_gpu_device *d, void *to, const void *pinned, size_t n, aerie_error *error);
aerie_status ae_vk_copy_out(ae_gpu_device *d, void *pinned, const void *from, size_t n, aerie_error *error);
aerie_status ae_vk_zero(ae_gpu_device *d, void *to, size_t n, aerie_error *error);
/* Launches a pipeline. */
aerie_status ae_vk_dispatch(ae_gpu_device *d, VkPipeline pipeline, const uint32_t grid[3], const void *args, size_t n_args,
                            aerie_error *error);
aerie_status ae_vk_mark(ae_gpu_device *d, uint32_t i, aerie_error *error);
double ae_vk_elapsed(ae_gpu_device *d, uint32_t from, uint32_t to);
aerie_status ae_vk_sync(ae_gpu_device *d, aerie_error *error);

/* record.c */
/* Takes n bytes for arguments from the memory of the current recording. */
aerie_status ae_vk_record_args(ae_gpu_device *d, size_t n, uint64_t *address, uint8_t **host, aerie_error *error);
aerie_status ae_vk_record_begin(ae_gpu_device *d, aerie_error *error);
aerie_status ae_vk_record_end(ae_gpu_device *d, ae_gpu_recording **out, aerie_error *error);
aerie_status ae_vk_replay(ae_gpu_device *d, ae_gpu_recording *r, aerie_error *error);
void ae_vk_recording_free(ae_gpu_device *d, ae_gpu_recording *r);
/* Frees the recordings in `left`. The device must be idle. */
void ae_vk_recordings_free(ae_gpu_device *d);

/* pipeline.c */
/* Returns the name and the shader of kernel i of AE_GPU_KERNELS; NULL: the driver lacks it. */
const char *ae_vk_kernel(uint32_t i, const ae_vk_variant **variant);
aerie_status ae_vk_pipeline_create(ae_gpu_device *d, const ae_vk_variant *variant, VkPipeline *out, aerie_error *error);
aerie_status ae_vk_launch(ae_gpu_device *d, uint32_t i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                          aerie_error *error);

/* spirv.c */
/* Returns a copy of a shader in which no operation on floats may be contracted, and which has those modes of floats.h that the
 * device supports. *n: its words, before and after. The caller frees the copy with ae_free. */
uint32_t *ae_vk_spirv_prepare(const uint32_t *words, size_t *n, const VkPhysicalDeviceFloatControlsProperties *floats,
                              aerie_error *error);

/* exam.c */
/* Chooses d->fma and d->div. Errors: UNSUPPORTED, with the reason, if the device does not compute like the CPU. */
aerie_status ae_vk_exam(ae_gpu_device *d, const char *name, aerie_error *error);

/* The shaders as the build compiled them (cmake/vulkan.cmake). */
typedef struct ae_vk_image {
    const char *name;
    const unsigned char *bytes, *end;
} ae_vk_image;
extern const ae_vk_image ae_vk_images[]; /* [ae_vk_n_images] */
extern const size_t ae_vk_n_images;

#endif
#endif
