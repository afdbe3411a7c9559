/* memory.c - implements memory.h. */
#include "serve/http/memory.h"

#include <malloc.h>

#include "base/os.h" /* available memory, which aerie.h reports only in the plan of a model */

#define MIB ((uint64_t)1 << 20)

enum { KEEP_BYTES = 256 * 1024 };

/* Returns how far the total may rise for a request that holds `mine` bytes: the last part of the limit is reserved for requests
 * that hold little. */
static uint64_t most_for(uint64_t most, uint64_t mine)
{
    return mine > MIB ? most - most / 8 : mine > MIB / 16 ? most - most / 16 : most;
}

uint64_t serve_memory_available(void)
{
    return ae_os_memory_available();
}

void serve_memory_create(serve_memory *memory, uint32_t mib)
{
    const uint64_t available = mib ? 0 : ae_os_memory_available();
#ifdef __GLIBC__ /* blocks of at least KEEP_BYTES return to the system when freed, whatever is allocated above them */
    mallopt(M_MMAP_THRESHOLD, KEEP_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
#endif
    memory->share = mib ? 0 : available ? available / 2 : 1024 * MIB;
    atomic_init(&memory->most, mib ? mib * MIB : memory->share);
}

void serve_memory_tidy(serve_memory *memory)
{
    const uint64_t available = memory->share ? ae_os_memory_available() : 0;
    if (available) {
        const uint64_t reachable = atomic_load(&memory->used) + available / 2;
        atomic_store(&memory->most, reachable < memory->share ? reachable : memory->share);
    }
#ifdef __GLIBC__
    if (atomic_exchange(&memory->returns, false)) malloc_trim(0);
#endif
}

static void note_peak(serve_use *use, uint64_t bytes)
{
    unsigned long long peak = atomic_load(&use->peak);
    while (bytes > peak && !atomic_compare_exchange_weak(&use->peak, &peak, bytes)) {
    }
}

void serve_use_force(serve_use *use, size_t bytes)
{
    note_peak(use, atomic_fetch_add(&use->bytes, bytes) + bytes);
    atomic_fetch_add(&use->of->used, bytes);
}

bool serve_use_add(serve_use *use, size_t bytes)
{
    serve_memory *memory = use->of;
    const uint64_t most = atomic_load(&memory->most);
    if (bytes <= most) {
        const uint64_t mine = atomic_fetch_add(&use->bytes, bytes) + bytes;
        const uint64_t all = atomic_fetch_add(&memory->used, bytes) + bytes;
        if (all <= most_for(most, mine)) {
            note_peak(use, mine);
            return true;
        }
        atomic_fetch_sub(&use->bytes, bytes);
        atomic_fetch_sub(&memory->used, bytes);
    }
    if (!atomic_exchange(&use->refused, true)) atomic_fetch_add(&memory->n_refused, 1);
    return false;
}

/* Subtracts at most what was counted: jansson may free memory here that was allocated in another thread. */
void serve_use_drop(serve_use *use, size_t bytes)
{
    unsigned long long held = atomic_load(&use->bytes), gone;
    do gone = bytes < held ? bytes : held;
    while (!atomic_compare_exchange_weak(&use->bytes, &held, held - gone));
    atomic_fetch_sub(&use->of->used, gone);
}

void serve_use_end(serve_use *use)
{
    serve_use_drop(use, SIZE_MAX);
    if (atomic_load(&use->peak) >= MIB) atomic_store(&use->of->returns, true);
}

void *serve_use_grow(serve_use *use, void *items, size_t n, size_t *capacity, size_t size)
{
    const size_t before = *capacity, wanted = before ? 2 * before : 64; /* grows as app_grow does */
    if (n < before) return items;
    if (!serve_use_add(use, (wanted - before) * size)) return NULL;
    void *grown = app_grow(items, n, capacity, size);
    if (!grown) serve_use_drop(use, (wanted - before) * size);
    return grown;
}

bool serve_use_json(void *user, ptrdiff_t bytes, bool must)
{
    serve_use *use = user;
    if (bytes < 0) serve_use_drop(use, (size_t)-bytes);
    else if (must) serve_use_force(use, (size_t)bytes);
    else return serve_use_add(use, (size_t)bytes);
    return true;
}
