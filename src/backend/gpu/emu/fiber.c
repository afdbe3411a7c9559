/* fiber.c - stacks of their own, and the change from one to another. See fiber.h.
 *
 * On x86-64 and arm64 a change saves what the ABI lets a function keep and takes a few nanoseconds; elsewhere ucontext does it.
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
#define STACK_BYTES ((size_t)32 << 10) /* each thread's stack is mapped afresh */
#elif defined(ASAN) || !defined(NDEBUG)
#define STACK_BYTES ((size_t)256 << 10)
#else
#define STACK_BYTES ((size_t)64 << 10)
#endif

/* Saves the registers that a callee must preserve, stores the stack pointer to *from, and continues at `to`. */
#if defined(__x86_64__)
void ae_emu_stack_change(void **from, void *to);
__asm__(".text\n"
        ".globl ae_emu_stack_change\n"
        ".hidden ae_emu_stack_change\n"
        ".type ae_emu_stack_change, @function\n"
        "ae_emu_stack_change:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size ae_emu_stack_change, .-ae_emu_stack_change\n");
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
    uint64_t *top = (uint64_t *)(void *)(fiber->map + GUARD_BYTES + STACK_BYTES);
#if defined(__x86_64__)
    top -= 2, top[0] = (uint64_t)(uintptr_t)entry, top[1] = 0; /* the return address of entry itself is 0 */
    top -= 6;
#else
    top -= 20, top[11] = (uint64_t)(uintptr_t)entry; /* x30 */
#endif
    fiber->sp = top;
#endif
}

bool ae_emu_fiber_init(ae_emu_fiber *fiber, void (*entry)(void))
{
    memset(fiber, 0, sizeof *fiber);
    uint8_t *map = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return false;
    if (mprotect(map, GUARD_BYTES, PROT_NONE)) {
        munmap(map, GUARD_BYTES + STACK_BYTES);
        return false;
    }
    fiber->map = map, fiber->bottom = map + GUARD_BYTES, fiber->bytes = STACK_BYTES;
    prepare(fiber, entry);
    return true;
}

bool ae_emu_fiber_renew(ae_emu_fiber *fiber, void (*entry)(void))
{
    if (mmap(fiber->map + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return false;
    fiber->fake = NULL;
    prepare(fiber, entry);
    return true;
}

void ae_emu_fiber_free(ae_emu_fiber *fiber)
{
    if (!fiber->map) return;
#ifdef ASAN
    ASAN_UNPOISON_MEMORY_REGION(fiber->bottom, fiber->bytes); /* unpoisons the frames of a fiber that never returned */
#endif
    munmap(fiber->map, GUARD_BYTES + STACK_BYTES);
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

void ae_emu_fiber_change(ae_emu_fiber *from, ae_emu_fiber *to, bool last)
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
