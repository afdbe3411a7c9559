/* fiber.c - stacks of their own, and the change from one to another. See fiber.h.
 *
 * On x86-64 and arm64 a change saves what the ABI lets a function keep and takes a few nanoseconds; elsewhere ucontext does it.
 * Two things about CPUs matter. A change by `ret` would be mispredicted each time, so on x86-64 it is a jump; then the
 * returns after it are predicted, too, since the fibers of a warp mostly wait at the same place. And stacks that all began at
 * the same address modulo a power of two would share a few sets of the caches, so each one begins at an offset of its own.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "backend/gpu/emu/fiber.h"

#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define GUARD_BYTES ((size_t)64 << 10) /* a multiple of any page */
#if defined(AE_EMU_TSAN)
#define STACK_BYTES ((size_t)32 << 10) /* there are thousands */
#elif defined(ASAN) || !defined(NDEBUG)
#define STACK_BYTES ((size_t)256 << 10)
#else
#define STACK_BYTES ((size_t)64 << 10)
#endif

#if defined(AE_EMU_TSAN) || defined(AE_EMU_UCONTEXT)
#define COLOURS 0u /* different offsets of the beginning of a stack, in cache lines */
#else
#define COLOURS 256u
#endif
#define LINE 64
#define MAP_BYTES (GUARD_BYTES + STACK_BYTES + COLOURS * LINE)

/* Saves the registers that a callee must preserve, stores the stack pointer to *from, and continues at `to`. */
#if defined(__x86_64__)
static inline __attribute__((always_inline)) void ae_emu_stack_change(void **from, void *to)
{
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t" /* the red zone */
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\tpushq %%rbp\n\tpushq %%rbx\n\t"
                     "movq %%rsp, (%0)\n\t"
                     "movq %1, %%rsp\n\t"
                     "popq %%rbx\n\tpopq %%rbp\n\tpopq %%rax\n\t"
                     "jmp *%%rax\n"
                     "1:\n\tleaq 128(%%rsp), %%rsp"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15", "cc", "memory");
}
#elif defined(__aarch64__)
void ae_emu_stack_change(void **from, void *to);
__asm__(".text\n"
        ".globl ae_emu_stack_change\n"
        ".hidden ae_emu_stack_change\n"
        ".type ae_emu_stack_change, %function\n"
        "ae_emu_stack_change:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size ae_emu_stack_change, .-ae_emu_stack_change\n");
#endif

/* Prepares the stack so that it looks as if a change had left it at the beginning of entry. */
static void prepare(ae_emu_fiber *fiber, void (*entry)(void))
{
#ifdef AE_EMU_UCONTEXT
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->map + GUARD_BYTES, fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, entry, 0);
#else
    const size_t colour = (uintptr_t)fiber->map / MAP_BYTES * 21 % (COLOURS + 1); /* mappings mostly lie side by side */
    uint64_t *top = (uint64_t *)(void *)(fiber->map + MAP_BYTES - colour * LINE);
#if defined(__x86_64__)
    top -= 2, top[0] = (uint64_t)(uintptr_t)entry, top[1] = 0; /* the return address of entry itself is 0 */
    top -= 2, top[0] = 0, top[1] = 0;
#else
    top -= 20, top[11] = (uint64_t)(uintptr_t)entry; /* x30 */
#endif
    fiber->sp = top;
#endif
}

bool ae_emu_fiber_init(ae_emu_fiber *fiber, void (*entry)(void))
{
    memset(fiber, 0, sizeof *fiber);
    uint8_t *map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return false;
    if (mprotect(map, GUARD_BYTES, PROT_NONE)) {
        munmap(map, MAP_BYTES);
        return false;
    }
    fiber->map = map, fiber->bottom = map + GUARD_BYTES, fiber->bytes = MAP_BYTES - GUARD_BYTES;
    prepare(fiber, entry);
    return true;
}

void ae_emu_fiber_free(ae_emu_fiber *fiber)
{
    if (!fiber->map) return;
#ifdef ASAN
    ASAN_UNPOISON_MEMORY_REGION(fiber->bottom, fiber->bytes); /* unpoisons the frames of a fiber that never returned */
#endif
    munmap(fiber->map, MAP_BYTES);
    fiber->map = NULL;
}

static void arrived(ae_emu_fiber *fiber)
{
#ifdef ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fiber->fake, &bottom, &bytes);
    fiber->before->bottom = bottom, fiber->before->bytes = bytes; /* sets the bounds of the host's stack, which are not known
                                                                   * before; those of other fibers are */
#else
    (void)fiber;
#endif
}

void ae_emu_fiber_entered(ae_emu_fiber *fiber)
{
    arrived(fiber);
}

__attribute__((noinline)) void ae_emu_fiber_change(ae_emu_fiber *from, ae_emu_fiber *to, bool last)
{
    to->before = from;
#ifdef ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake, to->bottom, to->bytes);
#else
    (void)last;
#endif
#ifdef AE_EMU_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    ae_emu_stack_change(&from->sp, to->sp);
#endif
    arrived(from);
}
