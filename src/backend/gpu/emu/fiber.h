/* fiber.h - stacks of their own, and the change from one to another.
 *
 * Owns the stacks, each above a guard page. AddressSanitizer is told of each change; the caller tells ThreadSanitizer.
 */
#ifndef AE_BACKEND_GPU_EMU_FIBER_H
#define AE_BACKEND_GPU_EMU_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#define AE_EMU_UCONTEXT 1
#endif

typedef struct ae_emu_fiber {
#ifdef AE_EMU_UCONTEXT
    ucontext_t context;
#else
    void *sp; /* while it does not run */
#endif
    uint8_t *map; /* guard page and stack; NULL: the host thread's own stack */
    const void *bottom;
    size_t bytes;
    void *fake;                  /* AddressSanitizer's */
    struct ae_emu_fiber *before; /* ran before this one */
    struct ae_emu_fiber *next;   /* in a list of the owner's */
    uint32_t thread;             /* index of the thread that runs in the fiber; for the owner */
} ae_emu_fiber;

/* Makes a fiber whose stack runs `entry` from the first change to it. entry must not return. Returns false if memory is
 * short. */
bool ae_emu_fiber_init(ae_emu_fiber *fiber, void (*entry)(void));
void ae_emu_fiber_free(ae_emu_fiber *fiber);
/* Changes from the running fiber to another; returns when something changes back, or never if `from` has ended. */
void ae_emu_fiber_change(ae_emu_fiber *from, ae_emu_fiber *to, bool last);
/* Must be the first call in an entry. */
void ae_emu_fiber_entered(ae_emu_fiber *fiber);

#endif
