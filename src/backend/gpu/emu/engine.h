/* engine.h - inside the emulation: what engine.c, warp.c and copy.c share of a launch under way. */
#ifndef AE_BACKEND_GPU_EMU_ENGINE_H
#define AE_BACKEND_GPU_EMU_ENGINE_H

#include "backend/gpu/emu/fiber.h"
#include "backend/gpu/emu/launch.h"

#if defined(AE_EMU_TSAN) /* these files themselves are compiled without ThreadSanitizer */
#include <sanitizer/tsan_interface.h>
#endif

#define AE_EMU_MAX_WARPS (AE_EMU_MAX_THREADS / 32)
#define AE_EMU_BARS 16 /* most numbers of barriers for ae_bar_wait; number 0 is ae_sync's */

typedef enum ae_emu_state {
    AE_EMU_FRESH, /* not yet begun */
    AE_EMU_READY, /* ready to run */
    AE_EMU_AT_WARP,
    AE_EMU_AT_BARRIER, /* ae_sync */
    AE_EMU_AT_BAR,     /* ae_bar_wait */
    AE_EMU_DONE,
} ae_emu_state;

typedef enum ae_emu_op {
    AE_EMU_SYNC_WARP,
    AE_EMU_SHFL,
    AE_EMU_MMA_16,
    AE_EMU_MMA_32,
    AE_EMU_BAR_WAIT,
    AE_EMU_BAR_POST,
    AE_EMU_SYNC,
} ae_emu_op;

/* An asynchronous copy that is still pending. */
typedef struct ae_emu_copy {
    void *to;
    const void *from;
    uint32_t group;
} ae_emu_copy;

typedef struct ae_emu_thread {
    ae_emu_fiber *fiber; /* in which it began */
    const char *file;    /* the place in the kernel at which the thread waits */
    int line;
    uint32_t bar;   /* AE_EMU_AT_BAR: its id */
    uint32_t a[4], b[2]; /* fragments of a product */
    int32_t c[4];
    ae_emu_copy *copies; /* [n_copies], oldest first */
    uint32_t n_copies, room, group;
    void *tsan; /* ThreadSanitizer's fiber */
} ae_emu_thread;

/* The first thread at a meeting, and the place to which all others must come. It is copied here because a comparison with
 * what a thread has just written about itself would wait for that to reach the cache. */
typedef struct ae_emu_meeting {
    const char *file; /* NULL: nobody has come */
    int line;
    uint32_t op, thread;
} ae_emu_meeting;

typedef struct ae_emu_warp {
    uint32_t n;                         /* threads of the warp: 32, or fewer in the last warp */
    uint32_t next;                      /* index in lanes[] of the next lane in this pass over the warp */
    uint32_t n_at_warp;                 /* threads in this state */
    bool open;                          /* some thread can run */
    uint32_t turn;                      /* meetings so far */
    uint8_t lanes[32];                  /* their order in this pass */
    ae_emu_meeting meeting;             /* the current one */
    ae_emu_slate slates[2];             /* [turn % 2]: a lane reads after a meeting and before it comes to the next one, so two
                                         * are enough */
} ae_emu_warp;

/* A barrier with a number. */
typedef struct ae_emu_bar_state {
    uint32_t n, n_came; /* threads that the barrier waits for; threads that have arrived */
    uint32_t turn;      /* how often the barrier has been completed */
} ae_emu_bar_state;

struct ae_emu_engine {
    ae_emu_view view; /* must come first: ae_emu_now points to it */
    const ae_emu_kernel *kernel;
    const void *args;
    char *report;
    bool failed;
    uint32_t n_shared, n_threads, n_warps;
    uint64_t random; /* 0: ascending order */
    uint32_t ahead;  /* chance, in sixteenths, that a warp runs on after one of its operations */
    ae_emu_fiber host, *running, *idle, *all; /* idle: a list linked by next; all: an array [n_fibers], at most
                                               * AE_EMU_MAX_THREADS + 2 */
    uint32_t n_fibers;
    uint32_t at; /* in order[] */
    uint32_t n_at_barrier, n_done;
    uint32_t n_bars; /* calls of ae_bar_wait and ae_bar_post in this block */
    ae_emu_meeting barrier;     /* the current one */
    uint32_t turn;              /* barriers so far */
    void *host_tsan;
    uint32_t n_blocks, n_light; /* blocks of this launch; blocks that ThreadSanitizer takes for one thread */
    /* Of the other blocks each thread has a fiber, and ThreadSanitizer a thread, that no other thread of a launch uses. They
     * stay from launch to launch, since launches are ordered: to make them is dear. [TSAN_BLOCKS * AE_EMU_MAX_THREADS] */
    ae_emu_fiber *own;
    void **own_tsan;
    char *begin, *end; /* addresses that represent the launch's begin and end for ThreadSanitizer */
    char *meetings;    /* the same for the block's barrier, warps and bars: [2 * (1 + AE_EMU_MAX_WARPS + AE_EMU_BARS)] */
    ae_emu_bar_state bars[AE_EMU_BARS];
    uint8_t order[AE_EMU_MAX_WARPS];
    uint8_t states[AE_EMU_MAX_THREADS]; /* ae_emu_state */
    ae_emu_warp warps[AE_EMU_MAX_WARPS];
    ae_emu_thread threads[AE_EMU_MAX_THREADS];
};

static inline ae_emu_engine *ae_emu_current(void)
{
    return (ae_emu_engine *)(void *)ae_emu_now;
}

static inline ae_emu_thread *ae_emu_self(ae_emu_engine *e)
{
    return &e->threads[e->view.thread];
}

/* Returns the last part of a path, for reports. */
const char *ae_emu_name(const char *path);
/* Ends the launch with a report. */
void ae_emu_fail(ae_emu_engine *e, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Makes the thread wait until all lanes of its warp have called this. */
void ae_emu_meet_warp(ae_emu_engine *e, ae_emu_op op, const char *file, int line);
/* warp.c: computes the product that all lanes of a warp have called. */
void ae_emu_multiply(ae_emu_thread lanes[32], ae_emu_op op);
/* copy.c: performs the copies of the groups before `group`. */
void ae_emu_copy_until(ae_emu_thread *thread, uint32_t group);

#endif
