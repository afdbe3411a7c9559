/* fail_alloc.c - see fail_alloc.h. Linked with --wrap for each function named __wrap_*.
 *
 * Owns the set of blocks handed out while armed: an open-addressed table of addresses, so that
 * frees of older blocks, or of blocks from other libraries, are told apart.
 */
#include "fail_alloc.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *block);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *block);

static struct {
    pthread_mutex_t lock;
    bool armed, forever, hit;
    long nth, calls;
    size_t largest;
    uintptr_t *table; /* [capacity], 0 = empty; capacity is a power of two */
    size_t capacity, live;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t slot_of(uintptr_t address)
{
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15u >> 20) & (state.capacity - 1);
    while (state.table[i] && state.table[i] != address) i = (i + 1) & (state.capacity - 1);
    return i;
}

static void remember(uintptr_t address)
{
    if (2 * (state.live + 1) > state.capacity) {
        uintptr_t *old = state.table;
        size_t n = state.capacity;
        state.capacity = n ? 2 * n : 1024;
        state.table = __real_calloc(state.capacity, sizeof *state.table);
        if (!state.table) {
            fputs("fail_alloc: out of memory for its own table\n", stderr);
            exit(1);
        }
        for (size_t i = 0; i < n; i++)
            if (old[i]) state.table[slot_of(old[i])] = old[i];
        __real_free(old);
    }
    state.table[slot_of(address)] = address;
    state.live++;
}

/* Removes an address, and moves later ones of its run so that searches still find them. */
static bool forget(uintptr_t address)
{
    if (!state.live) return false;
    size_t i = slot_of(address);
    if (!state.table[i]) return false;
    state.table[i] = 0;
    state.live--;
    for (size_t k = (i + 1) & (state.capacity - 1); state.table[k]; k = (k + 1) & (state.capacity - 1)) {
        uintptr_t moved = state.table[k];
        state.table[k] = 0;
        state.table[slot_of(moved)] = moved;
    }
    return true;
}

void fail_alloc_arm(long nth, bool forever)
{
    pthread_mutex_lock(&state.lock);
    state.armed = true;
    state.forever = forever;
    state.hit = false;
    state.nth = nth;
    state.calls = 0;
    state.largest = 0;
    state.live = 0;
    for (size_t i = 0; i < state.capacity; i++) state.table[i] = 0;
    pthread_mutex_unlock(&state.lock);
}

bool fail_alloc_disarm(void)
{
    pthread_mutex_lock(&state.lock);
    state.armed = false;
    bool hit = state.hit;
    pthread_mutex_unlock(&state.lock);
    return hit;
}

long fail_alloc_calls(void)
{
    return state.calls;
}

size_t fail_alloc_live(void)
{
    return state.live;
}

size_t fail_alloc_largest(void)
{
    return state.largest;
}

/* Counts a call; true if it is to fail. */
static bool must_fail(size_t bytes)
{
    bool fail = false;
    pthread_mutex_lock(&state.lock);
    if (state.armed) {
        state.calls++;
        if (bytes > state.largest) state.largest = bytes;
        fail = state.nth > 0 && (state.calls == state.nth || (state.forever && state.calls > state.nth));
        state.hit = state.hit || fail;
    }
    pthread_mutex_unlock(&state.lock);
    return fail;
}

static void *hand_out(void *block)
{
    if (!block) return NULL;
    pthread_mutex_lock(&state.lock);
    if (state.armed) remember((uintptr_t)block);
    pthread_mutex_unlock(&state.lock);
    return block;
}

static bool take_back(void *block)
{
    pthread_mutex_lock(&state.lock);
    bool known = forget((uintptr_t)block); /* also when disarmed: clean-up may come later */
    pthread_mutex_unlock(&state.lock);
    return known;
}

void *__wrap_malloc(size_t bytes)
{
    return must_fail(bytes) ? NULL : hand_out(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) bytes = SIZE_MAX;
    return must_fail(bytes) ? NULL : hand_out(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return must_fail(bytes) ? NULL : hand_out(__real_aligned_alloc(alignment, bytes));
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (must_fail(bytes)) return NULL;
    /* removed first: another thread may get the same address at once */
    bool known = block && take_back(block);
    void *moved = __real_realloc(block, bytes);
    if (moved) return hand_out(moved);
    if (known) hand_out(block);
    return NULL;
}

void __wrap_free(void *block)
{
    if (block) take_back(block);
    __real_free(block);
}
