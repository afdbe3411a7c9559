/* engine.c - runs the threads of a block in turn. See launch.h.
 *
 * A fiber calls thread after thread until one waits; then the next one begins in another fiber. So a kernel whose threads never
 * meet runs by plain calls. A warp's lanes run in passes: each lane once, up to where it waits. When all lanes have come to one
 * operation of the warp it is done and the next pass may begin; when all threads have come to one ae_sync, all go on.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "backend/gpu/emu/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#if defined(AE_EMU_TSAN)
#include <sys/mman.h>
#endif

#define NONE UINT32_MAX
#if defined(AE_EMU_TSAN) || defined(__SANITIZE_ADDRESS__) /* each launch has shared memory of exactly its size */
#define KEEPS_SHARED 0
#define SHARED_BYTES(e) (e)->n_shared
#else
#define KEEPS_SHARED 1
#define SHARED_BYTES(e) AE_EMU_MAX_SHARED
#endif
#define TSAN_BLOCKS 4 /* most blocks of a launch whose threads ThreadSanitizer distinguishes; it takes the threads of all others
                       * for a single one */

/* The library's only thread-local variable: a kernel reads its indices as CUDA's variables, without an argument that could
 * carry them, and several host threads may each run a launch. */
__thread ae_emu_view *ae_emu_now __attribute__((tls_model("initial-exec")));

bool (*ae_emu_is_there)(const char *file, int line);

static const char *const op_names[] = {"ae_sync_warp", "ae_shfl", "ae_mma_s8_k16", "ae_mma_s8",
                                       "ae_bar_wait", "ae_bar_post", "ae_sync"};

const char *ae_emu_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- Changes of fibers -------------------------------------------------------------------------------------------------- */

static void change(ae_emu_engine *e, ae_emu_fiber *to, bool last)
{
    ae_emu_fiber *from = e->running;
    e->running = to;
    ae_emu_fiber_change(from, to, last);
}

static void to_host(ae_emu_engine *e, bool last)
{
#if defined(AE_EMU_TSAN)
    __tsan_switch_to_fiber(e->host_tsan, __tsan_switch_to_fiber_no_sync);
#endif
    change(e, &e->host, last);
}

void ae_emu_fail(ae_emu_engine *e, const char *format, ...)
{
    const uint32_t *b = e->view.block;
    int n = snprintf(e->report, AE_EMU_REPORT, "kernel %s, block %u %u %u: ", e->kernel->name, b[0], b[1], b[2]);
    if (n < 0 || n >= AE_EMU_REPORT) n = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(e->report + n, (size_t)(AE_EMU_REPORT - n), format, list);
    va_end(list);
    e->failed = true;
#if defined(AE_EMU_TSAN)
    __tsan_release(e->end);
#endif
    to_host(e, true);
    __builtin_unreachable();
}

static void fiber_main(void);

static void thread_enter(ae_emu_engine *e, uint32_t t)
{
    e->view.thread = t;
#if defined(AE_EMU_TSAN)
    __tsan_switch_to_fiber(e->threads[t].tsan, __tsan_switch_to_fiber_no_sync);
#endif
}

#if defined(AE_EMU_TSAN)
/* The index in own[] of thread t of the running block. */
static size_t own_index(const ae_emu_engine *e, uint32_t t)
{
    return (size_t)(e->n_blocks - 1) * AE_EMU_MAX_THREADS + t;
}
#endif

/* Returns a fiber that will run thread t; NULL: not enough memory. */
static ae_emu_fiber *fiber_take(ae_emu_engine *e, uint32_t t)
{
    ae_emu_fiber *f = e->idle;
#if defined(AE_EMU_TSAN)
    thread_enter(e, t);
    if (!e->n_light) {
        f = &e->own[own_index(e, t)];
        if (!f->map && !ae_emu_fiber_init(f, fiber_main)) return NULL;
        f->thread = t;
        return f;
    }
#endif
    if (f) {
        e->idle = f->next;
    } else {
        f = &e->all[e->n_fibers]; /* there are as many fibers as threads that wait, and two more */
        if (!ae_emu_fiber_init(f, fiber_main)) return NULL;
        e->n_fibers++;
    }
    f->thread = t;
    return f;
}

/* Sets the states of n threads. */
static void states_set(ae_emu_engine *e, uint32_t first, uint32_t n, ae_emu_state state)
{
#if defined(AE_EMU_TSAN) /* which would see memset */
    volatile uint8_t *states = e->states;
    for (uint32_t i = 0; i < n; i++) states[first + i] = (uint8_t)state;
#else
    memset(e->states + first, (int)state, n);
#endif
}

/* ---- Scheduling --------------------------------------------------------------------------------------------------- */

static uint64_t random_next(ae_emu_engine *e)
{
    e->random ^= e->random << 13, e->random ^= e->random >> 7, e->random ^= e->random << 17;
    return e->random;
}

static void shuffle(ae_emu_engine *e, uint8_t *items, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = (uint32_t)((random_next(e) >> 32) * i >> 32);
        const uint8_t item = items[i - 1];
        items[i - 1] = items[j], items[j] = item;
    }
}

static void pass_begin(ae_emu_engine *e, ae_emu_warp *w)
{
    w->next = 0;
    if (e->random) shuffle(e, w->lanes, w->n);
}

static void round_begin(ae_emu_engine *e)
{
    e->at = 0;
    if (e->random) shuffle(e, e->order, e->n_warps);
}

static const char *state_name(uint8_t state)
{
    return state == AE_EMU_DONE ? "has returned" : state == AE_EMU_AT_BAR ? "waits at ae_bar_wait" : "waits at ae_sync";
}

/* Called when every lane has run: performs the warp's operation if all lanes have reached it. Returns true if the warp can go
 * on at once. */
static bool warp_settle(ae_emu_engine *e, uint32_t at)
{
    ae_emu_warp *w = &e->warps[at];
    const ae_emu_thread *lanes = &e->threads[at * 32];
    const uint8_t *states = &e->states[at * 32];
    for (uint32_t i = 0; e->n_bars && i < w->n; i++)
        if (states[i] == AE_EMU_READY) { /* another lane of this pass completed the barrier of this one */
            pass_begin(e, w);
            return true;
        }
    if (!w->n_at_warp) {
        w->open = false;
        return false;
    }
    if (w->n_at_warp < 32)
        for (uint32_t i = 0; i < 32; i++) {
            const ae_emu_meeting *f = &w->meeting;
            if (i >= w->n)
                ae_emu_fail(e, "thread %u comes to %s (%s:%d) in a warp of %u threads", f->thread, op_names[f->op],
                            ae_emu_name(f->file), f->line, w->n);
            if (states[i] != AE_EMU_AT_WARP)
                ae_emu_fail(e, "thread %u comes to %s (%s:%d), but thread %u %s (%s:%d)", f->thread, op_names[f->op],
                            ae_emu_name(f->file), f->line, at * 32 + i, state_name(states[i]),
                            lanes[i].file ? ae_emu_name(lanes[i].file) : "-", lanes[i].line);
        }
    if (w->meeting.op == AE_EMU_MMA_16 || w->meeting.op == AE_EMU_MMA_32)
        ae_emu_multiply(&e->threads[at * 32], (ae_emu_op)w->meeting.op);
    states_set(e, at * 32, 32, AE_EMU_READY);
    w->n_at_warp = 0, w->meeting.file = NULL, w->turn++;
    w->slates[w->turn % 2].folded = false;
    pass_begin(e, w);
    return e->ahead >= 16 || (e->ahead && (random_next(e) >> 32) % 16 < e->ahead);
}

/* Reports a deadlock: which threads wait, and for what. */
static void stuck(ae_emu_engine *e) __attribute__((noreturn));
static void stuck(ae_emu_engine *e)
{
    const ae_emu_thread *bar = NULL, *sync = NULL;
    for (uint32_t i = e->n_threads; i-- > 0;) {
        if (e->states[i] == AE_EMU_AT_BAR) bar = &e->threads[i];
        if (e->states[i] == AE_EMU_AT_BARRIER) sync = &e->threads[i];
    }
    if (bar)
        ae_emu_fail(e, "thread %u waits at ae_bar_wait (%s:%d) of barrier %u for %u threads, but %u have come",
                    (unsigned)(bar - e->threads), ae_emu_name(bar->file), bar->line, bar->bar, e->bars[bar->bar].n,
                    e->bars[bar->bar].n_came);
    ae_emu_fail(e, "thread %u waits at ae_sync (%s:%d), but %u threads have returned", (unsigned)(sync - e->threads),
                ae_emu_name(sync->file), sync->line, e->n_done);
}

/* Called when no warp can go on: completes the barrier of the block if all threads have reached it. Returns false if all have
 * returned. */
static bool barrier_settle(ae_emu_engine *e)
{
    if (e->n_done == e->n_threads) {
        for (uint32_t i = 0; e->n_bars && i < AE_EMU_BARS; i++)
            if (e->bars[i].n_came)
                ae_emu_fail(e, "all threads have returned, but %u have come to barrier %u of %u threads", e->bars[i].n_came, i,
                            e->bars[i].n);
        return false;
    }
    if (e->n_at_barrier != e->n_threads) stuck(e);
    states_set(e, 0, e->n_threads, AE_EMU_READY);
    for (uint32_t i = 0; i < e->n_warps; i++) {
        e->warps[i].open = true;
        pass_begin(e, &e->warps[i]);
    }
    e->n_at_barrier = 0, e->barrier.file = NULL, e->turn++;
    return true;
}

/* Returns the thread that runs next; NONE if the block has finished. */
static uint32_t pick(ae_emu_engine *e)
{
    for (;;) {
        for (; e->at < e->n_warps; e->at++) {
            const uint32_t at = e->order[e->at];
            ae_emu_warp *w = &e->warps[at];
            if (!w->open) continue;
            do {
                while (w->next < w->n) {
                    const uint32_t t = at * 32 + w->lanes[w->next++];
                    if (e->states[t] <= AE_EMU_READY) return t;
                }
            } while (warp_settle(e, at));
        }
        bool open = false;
        for (uint32_t i = 0; i < e->n_warps && !open; i++) open = e->warps[i].open;
        if (!open && !barrier_settle(e)) return NONE;
        round_begin(e);
    }
}

/* ---- Threads ------------------------------------------------------------------------------------------------------------ */

static void thread_run(ae_emu_engine *e, uint32_t t)
{
    ae_emu_thread *thread = &e->threads[t];
    thread->fiber = e->running;
    thread_enter(e, t);
#if defined(AE_EMU_TSAN)
    __tsan_acquire(e->begin);
#endif
    e->kernel->run(e->args);
    if (thread->n_copies) ae_emu_copy_until(thread, UINT32_MAX);
#if defined(AE_EMU_TSAN)
    __tsan_release(e->end);
#endif
    e->states[t] = AE_EMU_DONE, thread->file = NULL, thread->line = 0;
    e->n_done++;
}

/* Whether the fibers of the running block belong to one thread each. */
static bool is_own(const ae_emu_engine *e)
{
#if defined(AE_EMU_TSAN)
    return !e->n_light;
#else
    (void)e;
    return false;
#endif
}

static void fiber_main(void)
{
    ae_emu_engine *e = ae_emu_current();
    ae_emu_fiber *self = e->running;
    ae_emu_fiber_entered(self);
    for (;;) {
        thread_run(e, self->thread);
        const uint32_t t = pick(e);
        ae_emu_fiber *to = t == NONE ? NULL : e->threads[t].fiber;
        if (t != NONE && e->states[t] == AE_EMU_FRESH) {
#if defined(AE_EMU_TSAN)
            to = fiber_take(e, t);
            if (!to) ae_emu_fail(e, "there is not enough memory for another fiber");
#else
            self->thread = t;
            continue;
#endif
        } else if (to) {
            thread_enter(e, t);
        }
        if (!is_own(e)) self->next = e->idle, e->idle = self;
        if (to) change(e, to, false);
        else to_host(e, false);
    }
}

/* Blocks the running thread; other threads run until it may continue. */
static void wait(ae_emu_engine *e)
{
    const uint32_t self = e->view.thread;
    ae_emu_warp *w = &e->warps[self / 32];
    if (w->next < w->n) { /* a shortcut for the usual result of pick */
        const uint32_t lane = self / 32 * 32 + w->lanes[w->next];
        if (e->states[lane] == AE_EMU_READY) {
            w->next++;
            thread_enter(e, lane);
            change(e, e->threads[lane].fiber, false);
            return;
        }
    }
    const uint32_t t = pick(e);
    if (t == self) return; /* it cannot be NONE, since this thread has not returned */
    if (e->states[t] == AE_EMU_FRESH) {
        ae_emu_fiber *f = fiber_take(e, t);
        if (!f) ae_emu_fail(e, "there is not enough memory for another fiber");
        change(e, f, false);
        return;
    }
    thread_enter(e, t);
    change(e, e->threads[t].fiber, false);
}

static void arrive(ae_emu_engine *e, ae_emu_meeting *at, ae_emu_op op, const char *file, int line)
{
    ae_emu_thread *self = ae_emu_self(e);
    self->file = file, self->line = line;
    if (!at->file)
        *at = (ae_emu_meeting){file, line, op, e->view.thread};
    else if (at->op != op || at->line != line || (at->file != file && strcmp(at->file, file) != 0))
        ae_emu_fail(e, "thread %u comes to %s (%s:%d), but thread %u to %s (%s:%d)", at->thread, op_names[at->op],
                    ae_emu_name(at->file), at->line, e->view.thread, op_names[op], ae_emu_name(file), line);
}

void ae_emu_meet_warp(ae_emu_engine *e, ae_emu_op op, const char *file, int line)
{
    ae_emu_warp *w = &e->warps[e->view.thread / 32];
    arrive(e, &w->meeting, op, file, line);
    e->states[e->view.thread] = AE_EMU_AT_WARP;
    w->n_at_warp++;
#if defined(AE_EMU_TSAN) /* two addresses, used alternately: when a lane runs ahead, its later accesses must not count as
                          * ordered before those of other lanes */
    char *meeting = &e->meetings[2 * (1 + e->view.thread / 32) + w->turn % 2];
    __tsan_release(meeting);
#endif
    wait(e);
#if defined(AE_EMU_TSAN)
    __tsan_acquire(meeting);
#endif
}

void ae_emu_sync(const char *file, int line)
{
    ae_emu_engine *e = ae_emu_current();
    if (ae_emu_is_there && !ae_emu_is_there(file, line)) return;
    arrive(e, &e->barrier, AE_EMU_SYNC, file, line);
    e->states[e->view.thread] = AE_EMU_AT_BARRIER;
    e->n_at_barrier++;
#if defined(AE_EMU_TSAN)
    char *meeting = &e->meetings[e->turn % 2];
    __tsan_release(meeting);
#endif
    wait(e);
#if defined(AE_EMU_TSAN)
    __tsan_acquire(meeting);
#endif
}

/* Called when n threads have arrived: lets those that wait continue. */
static void bar_complete(ae_emu_engine *e, uint32_t id)
{
    for (uint32_t i = 0; i < e->n_threads; i++) {
        if (e->states[i] != AE_EMU_AT_BAR || e->threads[i].bar != id) continue;
        e->states[i] = AE_EMU_READY;
        ae_emu_warp *w = &e->warps[i / 32];
        if (w->open) continue;
        w->open = true;
        pass_begin(e, w);
    }
    e->bars[id].n_came = 0, e->bars[id].turn++;
}

void ae_emu_bar(uint32_t id, uint32_t n, bool waits, const char *file, int line)
{
    ae_emu_engine *e = ae_emu_current();
    if (ae_emu_is_there && !ae_emu_is_there(file, line)) {
        if (!waits) return;
        waits = false;
    }
    const ae_emu_op op = waits ? AE_EMU_BAR_WAIT : AE_EMU_BAR_POST;
    if (!id || id >= AE_EMU_BARS || !n || n % 32 || n > e->n_threads)
        ae_emu_fail(e, "thread %u comes to barrier %u of %u threads (%s:%d)", e->view.thread, id, n, ae_emu_name(file), line);
    ae_emu_meet_warp(e, op, file, line);
    ae_emu_thread *self = ae_emu_self(e);
    ae_emu_bar_state *bar = &e->bars[id];
    e->n_bars++;
    if (bar->n_came && bar->n != n)
        ae_emu_fail(e, "thread %u comes to barrier %u of %u threads (%s:%d), but others to that of %u", e->view.thread, id, n,
                    ae_emu_name(file), line, bar->n);
    bar->n = n, bar->n_came++;
#if defined(AE_EMU_TSAN)
    char *meeting = &e->meetings[2 * (1 + AE_EMU_MAX_WARPS + id) + bar->turn % 2];
    __tsan_release(meeting);
#endif
    if (bar->n_came == n) {
        bar_complete(e, id);
    } else if (waits) {
        e->states[e->view.thread] = AE_EMU_AT_BAR, self->bar = id;
        wait(e);
    }
#if defined(AE_EMU_TSAN)
    if (waits) __tsan_acquire(meeting);
#endif
}

void ae_emu_misaligned(const void *p, size_t to, const char *file, int line)
{
    ae_emu_engine *e = ae_emu_current();
    ae_emu_fail(e, "thread %u: address %p is not a multiple of %zu (%s:%d)", e->view.thread, p, to, ae_emu_name(file), line);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------------- */

static void fibers_free(ae_emu_engine *e)
{
    for (uint32_t i = 0; i < e->n_fibers; i++) ae_emu_fiber_free(&e->all[i]);
#if defined(AE_EMU_TSAN)
    for (size_t i = 0; e->own && i < TSAN_BLOCKS * AE_EMU_MAX_THREADS; i++) ae_emu_fiber_free(&e->own[i]);
    for (size_t i = 0; e->own_tsan && i < TSAN_BLOCKS * AE_EMU_MAX_THREADS; i++) {
        if (e->own_tsan[i]) __tsan_destroy_fiber(e->own_tsan[i]);
        e->own_tsan[i] = NULL;
    }
#endif
    e->n_fibers = 0, e->idle = NULL;
    for (uint32_t i = 0; i < AE_EMU_MAX_THREADS; i++) e->threads[i].n_copies = 0;
}

/* Fills the shared memory of a block with 0xFF. ThreadSanitizer needs new memory for each block, with the addresses of the
 * meetings before it: blocks are concurrent, and no access of one may be ordered by another. */
static bool shared_begin(ae_emu_engine *e)
{
#if defined(AE_EMU_TSAN)
    uint8_t *map = mmap(NULL, 4096 + e->n_shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return false;
    e->meetings = (char *)map, e->view.shared = map + 4096;
    volatile uint8_t *shared = e->view.shared;
    for (uint32_t i = 0; i < e->n_shared; i++) shared[i] = 0xff;
    __tsan_release(e->begin);
    for (uint32_t i = 0; i < e->n_threads; i++) {
        void **own = e->n_light ? &e->host_tsan : &e->own_tsan[own_index(e, i)];
        if (!*own) *own = __tsan_create_fiber(0);
        e->threads[i].tsan = *own;
    }
    return true;
#else
    if (!e->view.shared) e->view.shared = ae_alloc(1, SHARED_BYTES(e));
    if (!e->view.shared) return false;
    memset(e->view.shared, 0xff, e->n_shared);
    return true;
#endif
}

static void shared_end(ae_emu_engine *e, bool last)
{
#if defined(AE_EMU_TSAN)
    (void)last;
    if (e->meetings) munmap(e->meetings, 4096 + e->n_shared);
    e->meetings = NULL, e->view.shared = NULL;
    for (uint32_t i = 0; i < e->n_threads; i++) {
        if (e->threads[i].tsan == e->host_tsan) e->threads[i].tsan = NULL;
        if (e->threads[i].tsan && e->states[i] != AE_EMU_DONE) { /* it was abandoned */
            __tsan_switch_to_fiber(e->threads[i].tsan, __tsan_switch_to_fiber_no_sync);
            __tsan_release(e->end);
            __tsan_switch_to_fiber(e->host_tsan, __tsan_switch_to_fiber_no_sync);
        }
        e->threads[i].tsan = NULL;
    }
#else
    if (!last || KEEPS_SHARED) return;
    ae_free(e->view.shared);
    e->view.shared = NULL;
#endif
}

static bool block_run(ae_emu_engine *e)
{
#if defined(AE_EMU_TSAN)
    if (e->n_blocks++ >= TSAN_BLOCKS) e->n_light++;
#endif
    if (!shared_begin(e)) {
        snprintf(e->report, AE_EMU_REPORT, "kernel %s: there is not enough memory for a block", e->kernel->name);
        return false;
    }
    states_set(e, 0, e->n_threads, AE_EMU_FRESH);
    for (uint32_t i = 0; i < e->n_warps; i++) {
        ae_emu_warp *w = &e->warps[i];
        w->n_at_warp = 0, w->open = true, w->meeting.file = NULL, w->turn = 0, w->slates[0].folded = false;
        pass_begin(e, w);
    }
    if (e->n_bars) memset(e->bars, 0, sizeof e->bars);
    e->n_bars = 0;
    e->n_at_barrier = 0, e->n_done = 0, e->barrier.file = NULL, e->turn = 0, e->failed = false;
    round_begin(e);
    static const uint8_t chances[4] = {0, 8, 15, 16};
    e->ahead = e->random ? chances[random_next(e) >> 62] : 16;
    e->running = &e->host;
    ae_emu_fiber *f = fiber_take(e, pick(e));
    if (!f) {
        snprintf(e->report, AE_EMU_REPORT, "kernel %s: there is not enough memory for a fiber", e->kernel->name);
        return false;
    }
    change(e, f, false);
    shared_end(e, e->failed);
    return !e->failed;
}

static uint64_t seed_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) | 1;
}

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static bool grid_run(ae_emu_engine *e)
{
    const uint32_t *grid = e->view.grid;
    const uint64_t n = (uint64_t)grid[0] * grid[1] * grid[2];
    uint64_t at = 0, stride = 1;
    if (e->random && n > 1) { /* any order is allowed; this one needs no list */
        at = random_next(e) % n, stride = random_next(e) % n;
        while (divisor(stride, n) != 1) stride++;
    }
    bool ok = true;
    for (uint64_t i = 0; i < n && ok; i++, at = (at + stride) % n) {
        e->view.block[0] = (uint32_t)(at % grid[0]);
        e->view.block[1] = (uint32_t)(at / grid[0] % grid[1]);
        e->view.block[2] = (uint32_t)(at / grid[0] / grid[1]);
        ok = block_run(e);
    }
    return ok;
}

bool ae_emu_run(ae_emu_engine *e, const ae_emu_kernel *kernel, const uint32_t grid[3], uint32_t n_shared, uint64_t seed,
                const void *args, char *report)
{
    const uint32_t n = kernel->facts->n_threads;
    report[0] = 0;
    if (!n || n > AE_EMU_MAX_THREADS || n_shared > AE_EMU_MAX_SHARED) {
        snprintf(report, AE_EMU_REPORT,
                 "kernel %s: a block has 1 to %u threads and up to %u bytes of shared memory, not %u and %u", kernel->name,
                 AE_EMU_MAX_THREADS, AE_EMU_MAX_SHARED, n, n_shared);
        return false;
    }
    ae_emu_view *outer = ae_emu_now;
    ae_emu_now = &e->view;
    e->kernel = kernel, e->args = args, e->report = report;
    e->n_shared = n_shared, e->n_threads = n, e->n_warps = (n + 31) / 32;
    e->random = seed ? seed_mix(seed) : 0;
    memcpy(e->view.grid, grid, sizeof e->view.grid);
    for (uint32_t i = 0; i < e->n_warps; i++) {
        e->order[i] = (uint8_t)i;
        e->warps[i].n = n - i * 32 < 32 ? n - i * 32 : 32;
        for (uint32_t j = 0; j < 32; j++) e->warps[i].lanes[j] = (uint8_t)j;
    }
#if defined(AE_EMU_TSAN)
    char launch[2];
    e->host_tsan = __tsan_get_current_fiber();
    e->begin = &launch[0], e->end = &launch[1], e->n_blocks = 0, e->n_light = 0;
#endif
    const bool ok = grid_run(e);
    shared_end(e, true);
#if defined(AE_EMU_TSAN)
    __tsan_acquire(e->end);
#endif
    if (!ok) fibers_free(e);
    ae_emu_now = outer;
    return ok;
}

void ae_emu_engine_free(ae_emu_engine *e)
{
    if (!e) return;
    fibers_free(e);
    for (uint32_t i = 0; i < AE_EMU_MAX_THREADS; i++) ae_free(e->threads[i].copies);
    ae_free(e->view.shared);
    ae_free(e->all);
#if defined(AE_EMU_TSAN)
    ae_free(e->own);
    ae_free(e->own_tsan);
#endif
    ae_free(e);
}

ae_emu_engine *ae_emu_engine_create(void)
{
    ae_emu_engine *e = ae_alloc(1, sizeof *e);
    if (!e) return NULL;
    e->all = ae_alloc(AE_EMU_MAX_THREADS + 2, sizeof *e->all);
#if defined(AE_EMU_TSAN)
    e->own = ae_alloc(TSAN_BLOCKS * AE_EMU_MAX_THREADS, sizeof *e->own);
    e->own_tsan = ae_alloc(TSAN_BLOCKS * AE_EMU_MAX_THREADS, sizeof *e->own_tsan);
    if (!e->own || !e->own_tsan) {
        ae_emu_engine_free(e);
        return NULL;
    }
#endif
    if (KEEPS_SHARED) e->view.shared = ae_alloc(1, AE_EMU_MAX_SHARED);
    if (e->all && (!KEEPS_SHARED || e->view.shared)) return e;
    ae_emu_engine_free(e);
    return NULL;
}
