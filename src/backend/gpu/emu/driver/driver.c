/* driver.c - the emulated device: memory, the queue and recordings of driver.h on the host.
 *
 * Owns device memory (each block is allocated separately, so that AddressSanitizer finds accesses outside it) and recordings.
 * The queue runs everything at once when it is given. A kernel that breaks a rule of kernel.h loses the device. For tests, by
 * the environment, read when the device is opened:
 *   AERIE_EMU_SEED    order of blocks, warps and lanes, another one for each launch; 0 or nothing: ascending
 *   AERIE_EMU_CHIP    75, 80, 86 or 90 (the default): the device has the limits of a chip of this compute capability (86: also
 *                     of 8.9 and 12.0), and so gets the kernels that such a chip gets
 *   AERIE_EMU_MEMORY  bytes of device memory; nothing: as much as the machine has
 *   AERIE_EMU_LOSE    the device is lost at this launch, the first being 1; 0 or nothing: at none
 *   AERIE_EMU_GONE    1: once a device was lost, none can be opened any more
 *   AERIE_EMU_FAIL    N or N-M: these calls of the queue fail, and the device goes on. Calls are counted over all devices that
 *                     the process opens, the first being 1. N-M:launch: only calls of this kind are counted and fail
 *   AERIE_EMU_HANG    this launch never ends, and nothing after it begins; 0 or nothing: every launch ends
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/driver.h"
#include "backend/gpu/emu/launch.h"
#include "backend/gpu/kernels/list.h"
#include "backend/gpu/limit.h"
#include "base/mem.h"
#include "base/os.h"

#define ALIGN 256 /* bytes */

static atomic_bool is_gone; /* a device was lost, and AERIE_EMU_GONE is 1 */
static _Atomic uint64_t n_calls; /* of the queue */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CLOSE_OFF(p, n) ASAN_POISON_MEMORY_REGION(p, n) /* what is left of an allocation after its last byte */
#else
#define CLOSE_OFF(p, n) ((void)(p), (void)(n))
#endif

/* For each kernel: the function that a thread runs, and the sizes that it was compiled for. */
#define DECLARE(name, args, threads) \
    void ae_emu_##name(const void *a); \
    extern const ae_emu_facts ae_emu_facts_##name;
AE_GPU_KERNELS(DECLARE)
#undef DECLARE

typedef struct listed {
    ae_emu_kernel kernel;
    uint32_t n_threads, n_args; /* as list.h says */
} listed;

static const listed list[] = {
#define ENTER(name, args, threads) {{#name, ae_emu_##name, &ae_emu_facts_##name}, threads, sizeof(args)},
    AE_GPU_KERNELS(ENTER)
#undef ENTER
    {{0}, 0, 0},
};

typedef enum kind { LAUNCH, COPY, ZERO } kind;

typedef struct step {
    kind kind;
    uint32_t kernel, grid[3], n_shared; /* LAUNCH */
    void *args;                         /* a copy */
    void *to;                           /* COPY, ZERO */
    const void *from;
    size_t n; /* bytes */
} step;

struct ae_gpu_recording {
    step *steps; /* [n] */
    size_t n, room;
};

struct ae_gpu_device {
    ae_emu_engine *engine;
    pthread_mutex_t mutex; /* of n_used */
    uint64_t n_used, n_total;
    uint64_t seed, n_launches;
    uint64_t lose; /* number of the launch that loses the device; 0: none does */
    uint64_t fail, fail_last; /* numbers of the first and the last call that fails; 0: none does */
    char fail_kind[16];       /* which calls are counted; "": all */
    uint64_t hang; /* number of the launch that never ends; 0: all end */
    double limit;  /* most seconds of a wait; 0: no limit */
    double marks[AE_GPU_MARKS]; /* seconds */
    ae_gpu_recording *recording; /* under way */
    bool lost;
    aerie_error fault; /* why */
};

/* The header before each allocation in memory. */
typedef union head {
    struct {
        size_t bytes;
        void *memory; /* as calloc returned it */
    } is;
    uint8_t room[ALIGN];
} head;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static aerie_status emu_count(uint32_t *n, aerie_error *error)
{
    (void)error;
    *n = 1;
    return AERIE_OK;
}

static void emu_close(ae_gpu_device *d)
{
    if (!d) return;
    ae_emu_engine_free(d->engine);
    pthread_mutex_destroy(&d->mutex);
    ae_free(d);
}

static void read_failing(ae_gpu_device *d)
{
    const char *text = getenv("AERIE_EMU_FAIL"), *last = text ? strchr(text, '-') : NULL;
    const char *only = text ? strchr(text, ':') : NULL;
    snprintf(d->fail_kind, sizeof d->fail_kind, "%s", only ? only + 1 : "");
    d->fail = number("AERIE_EMU_FAIL", 0);
    d->fail_last = last ? strtoull(last + 1, NULL, 10) : d->fail;
}

/* What the choice of kernels depends on (cuda.c): matrix instructions, early starts, and the shared memory of a block. */
static aerie_status chip_set(ae_gpu_facts *facts, aerie_error *error)
{
    const uint64_t chip = number("AERIE_EMU_CHIP", 90);
    *facts = (ae_gpu_facts){.name = "emulation of CUDA on the host", .n_multiprocessors = 4,
                            .int8_mma = chip >= 80, .early = chip >= 90};
    facts->max_shared_bytes = chip == 75 ? 65536 : chip == 80 ? 166912 : chip == 86 ? 101376 : AE_EMU_MAX_SHARED;
    if (chip == 75 || chip == 80 || chip == 86 || chip == 90) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "emu: AERIE_EMU_CHIP is %" PRIu64 ", not 75, 80, 86 or 90", chip);
}

static aerie_status emu_open(uint32_t i, ae_gpu_device **out, ae_gpu_facts *facts, aerie_error *error)
{
    *out = NULL;
    if (i) return ae_fail(error, AERIE_ERROR_ARGUMENT, "emu: there is no device %u; there is device 0", i);
    if (atomic_load(&is_gone)) return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: the device is gone");
    AE_TRY(chip_set(facts, error));
    ae_gpu_device *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "an emulated device", sizeof *d);
    pthread_mutex_init(&d->mutex, NULL);
    d->engine = ae_emu_engine_create();
    if (!d->engine) {
        emu_close(d);
        return ae_fail_memory(error, "the fibers of an emulated device", 0);
    }
    d->seed = number("AERIE_EMU_SEED", 0);
    d->lose = number("AERIE_EMU_LOSE", 0);
    d->hang = number("AERIE_EMU_HANG", 0);
    read_failing(d);
    d->limit = ae_gpu_limit(AE_GPU_LIMIT);
    d->n_total = number("AERIE_EMU_MEMORY", ae_os_memory_total());
    *out = d;
    return AERIE_OK;
}

static void emu_memory_info(ae_gpu_device *d, uint64_t *n_free, uint64_t *n_total)
{
    const uint64_t there = ae_os_memory_available();
    pthread_mutex_lock(&d->mutex);
    *n_free = d->n_total - d->n_used;
    pthread_mutex_unlock(&d->mutex);
    if (there && there < *n_free) *n_free = there;
    *n_total = d->n_total;
}

/* calloc does not write to large blocks, of which sessions of tiny models use little. */
static void *allocate(size_t bytes)
{
    size_t whole;
    if (!ae_add_size(bytes, sizeof(head) + ALIGN, &whole)) return NULL;
    uint8_t *memory = calloc(1, whole);
    if (!memory) return NULL;
    uint8_t *start = memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
    head *h = (head *)(void *)start;
    h->is.bytes = bytes, h->is.memory = memory;
    CLOSE_OFF((uint8_t *)(h + 1) + bytes, (size_t)(memory + whole - (uint8_t *)(h + 1)) - bytes);
    return h + 1;
}

static void *emu_alloc(ae_gpu_device *d, size_t bytes)
{
    void *block = NULL;
    pthread_mutex_lock(&d->mutex);
    const bool fits = bytes <= d->n_total - d->n_used;
    if (fits) d->n_used += bytes;
    pthread_mutex_unlock(&d->mutex);
    if (fits && (block = allocate(bytes)) != NULL) return block;
    pthread_mutex_lock(&d->mutex);
    if (fits) d->n_used -= bytes;
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static void emu_free(ae_gpu_device *d, void *memory)
{
    if (!memory) return;
    head *h = (head *)memory - 1;
    pthread_mutex_lock(&d->mutex);
    d->n_used -= h->is.bytes;
    pthread_mutex_unlock(&d->mutex);
    free(h->is.memory);
}

static void *emu_alloc_pinned(ae_gpu_device *d, size_t bytes)
{
    (void)d;
    return ae_alloc_aligned(1, bytes);
}

static void emu_free_pinned(ae_gpu_device *d, void *memory)
{
    (void)d;
    ae_free(memory);
}

static aerie_status fault(const ae_gpu_device *d, aerie_error *error)
{
    if (!d->lost) return AERIE_OK;
    if (error) *error = d->fault;
    return AERIE_ERROR_INTERNAL;
}

/* Counts a call of the queue, and fails those that shall fail. */
static aerie_status count(const ae_gpu_device *d, const char *call, aerie_error *error)
{
    if (!d->fail || (*d->fail_kind && strcmp(d->fail_kind, call))) return AERIE_OK;
    const uint64_t n = atomic_fetch_add(&n_calls, 1) + 1;
    if (n < d->fail || n > d->fail_last) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: call %" PRIu64 ", %s, failed", n, call);
}

static aerie_status emu_fill(ae_gpu_device *d, void *to, const void *host, size_t n, aerie_error *error)
{
    AE_TRY(fault(d, error));
    memcpy(to, host, n);
    return AERIE_OK;
}

/* ---- The queue ---------------------------------------------------------------------------------------------------------- */

/* Returns whether a launch hangs; everything in the queue after it waits. */
static bool hangs(const ae_gpu_device *d)
{
    return d->hang && d->n_launches >= d->hang;
}

static aerie_status step_run(ae_gpu_device *d, const step *s, aerie_error *error)
{
    AE_TRY(fault(d, error));
    if (hangs(d)) return AERIE_OK;
    if (s->kind == COPY) {
        memcpy(s->to, s->from, s->n);
    } else if (s->kind == ZERO) {
        memset(s->to, 0, s->n);
    } else if (++d->n_launches == d->lose) {
        ae_fail(&d->fault, AERIE_ERROR_INTERNAL, "emu: the device was lost at launch %" PRIu64, d->lose);
        d->lost = true;
        atomic_store(&is_gone, number("AERIE_EMU_GONE", 0) == 1);
        return fault(d, error);
    } else if (!hangs(d)) {
        char report[AE_EMU_REPORT];
        const uint64_t seed = d->seed ? d->seed + d->n_launches * 0x9e3779b97f4a7c15u : 0;
        if (!ae_emu_run(d->engine, &list[s->kernel].kernel, s->grid, s->n_shared, seed, s->args, report)) {
            ae_fail(&d->fault, AERIE_ERROR_INTERNAL, "emu: %s", report);
            d->lost = true;
            return fault(d, error);
        }
    }
    return AERIE_OK;
}

/* Adds a step to the current recording, or runs it. */
static aerie_status step_take(ae_gpu_device *d, const step *s, size_t n_args, aerie_error *error)
{
    ae_gpu_recording *r = d->recording;
    if (!r) return step_run(d, s, error);
    step *steps = ae_grow(r->steps, r->n, &r->room, sizeof *steps);
    if (!steps) return ae_fail_memory(error, "a recording", (r->n + 1) * sizeof *steps);
    r->steps = steps;
    step *kept = &steps[r->n];
    *kept = *s;
    if (n_args) {
        kept->args = ae_alloc(1, n_args);
        if (!kept->args) return ae_fail_memory(error, "the arguments of a launch", n_args);
        memcpy(kept->args, s->args, n_args);
    }
    r->n++;
    return AERIE_OK;
}

static aerie_status emu_copy_in(ae_gpu_device *d, void *to, const void *pinned, size_t n, aerie_error *error)
{
    AE_TRY(count(d, "copy_in", error));
    return step_take(d, &(step){.kind = COPY, .to = to, .from = pinned, .n = n}, 0, error);
}

static aerie_status emu_copy_out(ae_gpu_device *d, void *pinned, const void *from, size_t n, aerie_error *error)
{
    AE_TRY(count(d, "copy_out", error));
    return step_take(d, &(step){.kind = COPY, .to = pinned, .from = from, .n = n}, 0, error);
}

static aerie_status emu_zero(ae_gpu_device *d, void *to, size_t n, aerie_error *error)
{
    AE_TRY(count(d, "zero", error));
    return step_take(d, &(step){.kind = ZERO, .to = to, .n = n}, 0, error);
}

static aerie_status emu_launch(ae_gpu_device *d, uint32_t i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                               aerie_error *error)
{
    if ((size_t)i + 1 >= sizeof list / sizeof list[0])
        return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: there is no kernel %u", i);
    const listed *l = &list[i];
    if (l->n_threads != l->kernel.facts->n_threads || l->n_args != l->kernel.facts->n_args)
        return ae_fail(error, AERIE_ERROR_INTERNAL,
                       "emu: kernel %s has %u threads and %u bytes of arguments in list.h, %u and %u where it is defined",
                       l->kernel.name, l->n_threads, l->n_args, l->kernel.facts->n_threads, l->kernel.facts->n_args);
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: kernel %s has a grid of %u x %u x %u", l->kernel.name, grid[0],
                       grid[1], grid[2]);
    if (n_shared > AE_EMU_MAX_SHARED)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: kernel %s asks for %u bytes of shared memory of %u", l->kernel.name,
                       n_shared, AE_EMU_MAX_SHARED);
    AE_TRY(count(d, "launch", error));
    step s = {.kind = LAUNCH, .kernel = i, .grid = {grid[0], grid[1], grid[2]}, .n_shared = n_shared,
              .args = (void *)(uintptr_t)args};
    return step_take(d, &s, l->n_args, error);
}

static aerie_status emu_mark(ae_gpu_device *d, uint32_t i, aerie_error *error)
{
    if (d->recording) return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: a mark cannot be recorded");
    AE_TRY(count(d, "mark", error));
    AE_TRY(fault(d, error));
    d->marks[i % AE_GPU_MARKS] = ae_time_now();
    return AERIE_OK;
}

static double emu_elapsed(ae_gpu_device *d, uint32_t from, uint32_t to)
{
    return d->marks[to % AE_GPU_MARKS] - d->marks[from % AE_GPU_MARKS];
}

static aerie_status emu_sync(ae_gpu_device *d, aerie_error *error)
{
    if (d->recording) return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: nobody can wait for what is being recorded");
    const double start = ae_time_now();
    while (hangs(d) && !d->lost) {
        if (ae_gpu_pause(start, d->limit)) continue;
        ae_gpu_hung(d->limit, &d->fault);
        d->lost = true;
    }
    AE_TRY(fault(d, error));
    return count(d, "sync", error);
}

/* ---- Recordings --------------------------------------------------------------------------------------------------------- */

static void emu_recording_free(ae_gpu_device *d, ae_gpu_recording *r)
{
    (void)d;
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) ae_free(r->steps[i].args);
    ae_free(r->steps);
    ae_free(r);
}

static aerie_status emu_record_begin(ae_gpu_device *d, aerie_error *error)
{
    if (d->recording) return ae_fail(error, AERIE_ERROR_INTERNAL, "emu: a recording is under way");
    AE_TRY(count(d, "record_begin", error));
    d->recording = ae_alloc(1, sizeof *d->recording);
    return d->recording ? AERIE_OK : ae_fail_memory(error, "a recording", sizeof *d->recording);
}

static aerie_status emu_record_end(ae_gpu_device *d, ae_gpu_recording **out, aerie_error *error)
{
    const aerie_status status = count(d, "record_end", error);
    *out = d->recording;
    d->recording = NULL;
    if (status != AERIE_OK) {
        emu_recording_free(d, *out);
        *out = NULL;
        return status;
    }
    return *out ? AERIE_OK : ae_fail(error, AERIE_ERROR_INTERNAL, "emu: no recording is under way");
}

static aerie_status emu_replay(ae_gpu_device *d, ae_gpu_recording *r, aerie_error *error)
{
    AE_TRY(count(d, "replay", error));
    for (size_t i = 0; i < r->n; i++) AE_TRY(step_run(d, &r->steps[i], error));
    return AERIE_OK;
}

const ae_gpu_driver ae_gpu_driver_emu = {
    .name = "emu",
    .count = emu_count,
    .open = emu_open,
    .close = emu_close,
    .memory_info = emu_memory_info,
    .alloc = emu_alloc,
    .free = emu_free,
    .alloc_pinned = emu_alloc_pinned,
    .free_pinned = emu_free_pinned,
    .fill = emu_fill,
    .copy_in = emu_copy_in,
    .copy_out = emu_copy_out,
    .zero = emu_zero,
    .launch = emu_launch,
    .mark = emu_mark,
    .elapsed = emu_elapsed,
    .sync = emu_sync,
    .record_begin = emu_record_begin,
    .record_end = emu_record_end,
    .replay = emu_replay,
    .recording_free = emu_recording_free,
};
