/* launch.h - a launch of an emulated kernel: what the kernel calls, and what runs it.
 *
 * Owns: fibers, which an engine keeps from launch to launch. Does not own: device memory and the queue (driver/).
 * Invariant: there is no state outside the engine but ae_emu_now, which is set while a launch runs on this host thread. So
 * several host threads may use an engine each.
 * A kernel that breaks a rule of kernel.h ends its launch; the engine stays usable.
 */
#ifndef AE_BACKEND_GPU_EMU_LAUNCH_H
#define AE_BACKEND_GPU_EMU_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AE_EMU_MAX_THREADS 1024u /* of a block */
#define AE_EMU_MAX_SHARED 232448u /* bytes of a block's shared memory, as with compute capability 9.0 */
#define AE_EMU_REPORT 320         /* bytes of a report about a broken rule */

/* The sizes that a kernel was compiled for. */
typedef struct ae_emu_facts {
    uint32_t n_threads;
    uint32_t n_args; /* bytes */
} ae_emu_facts;

/* ---- What runs kernels ----------------------------------------------------------------------------------------------- */

typedef struct ae_emu_kernel {
    const char *name;
    void (*run)(const void *args); /* one thread */
    const ae_emu_facts *facts;
} ae_emu_kernel;

typedef struct ae_emu_engine ae_emu_engine;

ae_emu_engine *ae_emu_engine_create(void); /* NULL: not enough memory */
void ae_emu_engine_free(ae_emu_engine *engine);

/* Runs a kernel over a grid. The seed determines the order of blocks, warps and lanes; 0: ascending, each warp as far as it
 * gets. Returns false if a rule was broken or memory ran out; `report` [AE_EMU_REPORT] then says where and how. */
bool ae_emu_run(ae_emu_engine *engine, const ae_emu_kernel *kernel, const uint32_t grid[3], uint32_t n_shared, uint64_t seed,
                const void *args, char *report);

/* For tests, which set it while no launch runs: asked for each ae_sync, ae_sync_warp, ae_bar_wait, ae_bar_post, ae_copy_commit
 * and ae_copy_wait of a thread; where it says false the thread goes on as if the call were not in the kernel (a wait for a
 * numbered barrier becomes a post, so that the others' count is right). NULL: all are there. */
extern bool (*ae_emu_is_there)(const char *file, int line);

/* ---- What kernels call, by emu.h ------------------------------------------------------------------------------------- */

/* The values of the current launch that a kernel reads. */
typedef struct ae_emu_view {
    uint8_t *shared; /* [n_shared] */
    uint32_t thread; /* number in the block of the thread that is running */
    uint32_t block[3], grid[3];
} ae_emu_view;

extern __thread ae_emu_view *ae_emu_now __attribute__((tls_model("initial-exec")));

/* file and line: where the kernel calls this. */
void ae_emu_sync(const char *file, int line);
void ae_emu_sync_warp(const char *file, int line);
void ae_emu_bar(uint32_t id, uint32_t n, bool waits, const char *file, int line);
/* Where the lanes of a warp leave values for each other: a lane writes its own, calls ae_emu_exchange and reads. */
typedef struct ae_emu_slate {
    uint64_t lanes[2 * 32]; /* 16 bytes each at most, side by side */
    bool folded;            /* the values have become those of a fold (ae_fold) */
} ae_emu_slate;

ae_emu_slate *ae_emu_slate_now(void);
/* Copies a value of 4 n bytes to or from a slate; ThreadSanitizer does not see it. */
void ae_emu_slate_copy(void *to, const void *from, size_t n);
void ae_emu_exchange(const char *file, int line);
/* Computes c [4] += A B over k of 16 or 32; a [k / 8], b [k / 16]. */
void ae_emu_mma(int32_t *c, const uint32_t *a, const uint32_t *b, int k, const char *file, int line);
void ae_emu_copy16(void *shared, const void *global, const char *file, int line);
void ae_emu_copy_commit(const char *file, int line);
void ae_emu_copy_wait(uint32_t n, const char *file, int line);
void ae_emu_misaligned(const void *p, size_t to, const char *file, int line) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
