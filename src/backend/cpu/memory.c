/* memory.c - device memory of the CPU backend: the host's own, zeroed, in large pages where it is large; guarded for
 * cpu-strict. */
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/os.h"

/* From this size on, blocks come from mmap: the system zeroes their pages, and allocates each only when it is first written. */
#define PAGES_FROM ((size_t)2 << 20)

void *ae_cpu_alloc(ae_backend *backend, size_t bytes)
{
    ae_cpu_guard *guard = ((ae_cpu_backend *)backend)->guard;
    if (guard) return ae_cpu_guard_alloc(guard, bytes);
    return bytes >= PAGES_FROM ? ae_os_pages_alloc(bytes) : ae_alloc_aligned(1, bytes);
}

void ae_cpu_free(ae_backend *backend, void *memory, size_t bytes)
{
    ae_cpu_guard *guard = ((ae_cpu_backend *)backend)->guard;
    if (!memory) return;
    if (guard) ae_cpu_guard_free(guard, memory);
    else if (bytes >= PAGES_FROM) ae_os_pages_free(memory, bytes);
    else ae_free(memory);
}

aerie_status ae_cpu_fill(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error)
{
    (void)backend, (void)error;
    memcpy(device, host, n);
    return AERIE_OK;
}

void ae_cpu_memory_info(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total)
{
    (void)backend;
    *n_free = ae_os_memory_available();
    *n_total = ae_os_memory_total();
}

void ae_cpu_copy_in(ae_stream *stream, void *device, const void *host, size_t n)
{
    (void)stream;
    memcpy(device, host, n);
}

void ae_cpu_copy_out(ae_stream *stream, void *host, const void *device, size_t n)
{
    (void)stream;
    memcpy(host, device, n);
}

const void *ae_cpu_view(ae_stream *stream, const void *device, void *room, size_t n)
{
    (void)stream, (void)room, (void)n;
    return device;
}
