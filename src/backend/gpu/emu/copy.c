/* copy.c - asynchronous copies to shared memory, done as late as the rules allow. See launch.h.
 *
 * Until then the target holds other bytes, which AddressSanitizer forbids to touch.
 */
#include <string.h>

#include "backend/gpu/emu/engine.h"
#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p) ASAN_POISON_MEMORY_REGION(p, 16)
#define UNPOISON(p) ASAN_UNPOISON_MEMORY_REGION(p, 16)
#else
#define POISON(p) ((void)0)
#define UNPOISON(p) ((void)0)
#endif

#if defined(AE_EMU_TSAN) /* these calls are visible to ThreadSanitizer */
static void *(*const volatile set)(void *, int, size_t) = memset;
static void *(*const volatile copy)(void *, const void *, size_t) = memcpy;
#else
#define set memset
#define copy memcpy
#endif

static bool grow(ae_emu_engine *e, ae_emu_thread *thread)
{
    const uint32_t room = thread->room ? 2 * thread->room : 16;
#if defined(AE_EMU_TSAN) /* the list stays from block to block, and no thread of the kernel owns it */
    __tsan_switch_to_fiber(e->host_tsan, __tsan_switch_to_fiber_no_sync);
    ae_emu_copy *copies = ae_realloc(thread->copies, room, sizeof *copies);
    __tsan_switch_to_fiber(thread->tsan, __tsan_switch_to_fiber_no_sync);
#else
    (void)e;
    ae_emu_copy *copies = ae_realloc(thread->copies, room, sizeof *copies);
#endif
    if (!copies) return false;
    thread->copies = copies, thread->room = room;
    return true;
}

void ae_emu_copy16(void *shared, const void *global, const char *file, int line)
{
    ae_emu_engine *e = ae_emu_current();
    ae_emu_thread *self = ae_emu_self(e);
    if ((uintptr_t)global % 16) ae_emu_misaligned(global, 16, file, line);
    if ((uintptr_t)shared % 16) ae_emu_misaligned(shared, 16, file, line);
    const uintptr_t at = (uintptr_t)shared - (uintptr_t)e->view.shared;
    if (at >= e->n_shared || e->n_shared - at < 16)
        ae_emu_fail(e, "thread %u: ae_copy16 leaves the %u bytes of shared memory (%s:%d)", e->view.thread, e->n_shared,
                    ae_emu_name(file), line);
    if (self->n_copies == self->room && !grow(e, self))
        ae_emu_fail(e, "there is not enough memory for the copies of thread %u", e->view.thread);
    self->copies[self->n_copies++] = (ae_emu_copy){shared, global, self->group};
    UNPOISON(shared); /* of two copies to one place, the later one counts */
    set(shared, 0xa5, 16);
    POISON(shared);
}

void ae_emu_copy_until(ae_emu_thread *thread, uint32_t group)
{
    uint32_t n = 0;
    for (; n < thread->n_copies && thread->copies[n].group < group; n++) {
        UNPOISON(thread->copies[n].to);
        copy(thread->copies[n].to, thread->copies[n].from, 16);
    }
    thread->n_copies -= n;
    for (uint32_t i = 0; n && i < thread->n_copies; i++) thread->copies[i] = thread->copies[i + n];
}

void ae_emu_copy_commit(const char *file, int line)
{
    if (ae_emu_is_there && !ae_emu_is_there(file, line)) return;
    ae_emu_self(ae_emu_current())->group++;
}

void ae_emu_copy_wait(uint32_t n, const char *file, int line)
{
    if (ae_emu_is_there && !ae_emu_is_there(file, line)) return;
    ae_emu_thread *self = ae_emu_self(ae_emu_current());
    if (self->n_copies && self->group > n) ae_emu_copy_until(self, self->group - n);
}
