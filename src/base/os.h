/* os.h - the operating system, as far as the library needs it: files, large memory, time, cores.
 *
 * Owns the handles it gives out. Nothing here knows of models. Linux and other POSIX systems.
 */
#ifndef AE_BASE_OS_H
#define AE_BASE_OS_H

#include "base/err.h"

/* Monotonic time in seconds (for durations only). */
double ae_time_now(void);

/* Cores that this process may use: affinity mask, then the cgroup's CPU quota (rounded up). >= 1 */
int ae_os_n_cores(void);

/* Physical memory still available to this process, in bytes (cgroup limit respected); 0 = unknown. */
uint64_t ae_os_memory_available(void);

/* A whole file, read-only: mapped, or read into heap memory where mapping fails or is unwanted. */
typedef struct ae_file_map {
    const uint8_t *data; /* [bytes] */
    size_t bytes;
    bool mapped; /* false: heap memory */
} ae_file_map;

/* Errors: IO with path and reason (missing, unreadable, a directory, ...), MEMORY. */
aerie_status ae_file_map_open(ae_file_map *map, const char *path, bool use_mmap, aerie_error *error);
void ae_file_map_close(ae_file_map *map);

/* Large zeroed memory, 2 MiB aligned, huge pages asked for; NULL when out of memory. */
void *ae_os_pages_alloc(size_t bytes);
void ae_os_pages_free(void *pages, size_t bytes);

/* Asks the kernel for leave to use x86 matrix tiles (AMX) in all threads of this process; false where there are
 * none or it refuses. Asking again is harmless. */
bool ae_os_ask_for_tiles(void);

#endif
