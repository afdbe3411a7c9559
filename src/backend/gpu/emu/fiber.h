/* fiber.h - stacks of their own, and the change from one to another.
 *
 * Owns the stacks, each above a guard page. AddressSanitizer learns of each change; ThreadSanitizer is the caller's matter.
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
    uint32_t thread;             /* index, for the owner, of the thread that runs in it */
} ae_emu_fiber;

/* A stack on which `entry` begins at the first change to it. entry must not return. False: not enough memory. */
bool ae_emu_fiber_init(ae_emu_fiber *fiber, void (*entry)(void));
/* The same again for one that is idle, on a stack without traces of what ran there, as ThreadSanitizer sees them. */
bool ae_emu_fiber_renew(ae_emu_fiber *fiber, void (*entry)(void));
void ae_emu_fiber_free(ae_emu_fiber *fiber);
/* From the running fiber to another; returns when something changes back, or never, if it is the last of `from`. */
void ae_emu_fiber_change(ae_emu_fiber *from, ae_emu_fiber *to, bool last);
/* The first call of an entry. */
void ae_emu_fiber_entered(ae_emu_fiber *fiber);

#endif
