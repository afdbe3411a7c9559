/* os.h - the operating system, as far as the library needs it: files, large memory, time, cores.
 *
 * Owns the handles it gives out. Nothing here knows of models. Linux and other POSIX systems.
 */
#ifndef AE_BASE_OS_H
#define AE_BASE_OS_H

#include "base/err.h"

/* Returns monotonic time in seconds (for durations only). */
double ae_time_now(void);

/* Allocates a byte that is 1 in this process and 0 in its fork()ed children; returns NULL if the system cannot do that. Reading
 * the byte needs no system call. */
const volatile unsigned char *ae_os_origin_create(void);
void ae_os_origin_free(const volatile unsigned char *origin);

/* ---- Limits (resources.c) ------------------------------------------------------------------------ */

#define AE_MAX_CPUS 8192 /* CPU numbers are below this */

/* CPUs of this process, and how many threads to run on them. */
typedef struct ae_os_cpus {
    uint32_t n_allowed; /* in the affinity mask */
    uint32_t n_cores;   /* physical cores of the allowed CPUs: SMT siblings count once */
    double quota;       /* CPUs that control groups grant; 0 = no limit */
    uint32_t n_threads; /* cores, or the quota rounded up if it is less; >= 1 */
} ae_os_cpus;

void ae_os_cpus_get(ae_os_cpus *out);
/* The same, but reads the system's files below `root` ("": the real ones) and takes the affinity mask, for tests. */
void ae_os_cpus_below(const char *root, const bool allowed[AE_MAX_CPUS], ae_os_cpus *out);
/* Returns n_threads of ae_os_cpus_get. */
int ae_os_n_cores(void);
/* Restricts this thread, and the threads that it starts later, to the wanted CPUs; false if none of them is allowed. */
bool ae_os_cpus_restrict(const bool wanted[AE_MAX_CPUS]);

/* Returns the physical memory still available to this process, in bytes: the lesser of what the system can provide and what
 * control groups leave. File caches count as free. 0: unknown. */
uint64_t ae_os_memory_available(void);
uint64_t ae_os_memory_available_below(const char *root);
/* Returns the memory limit that control groups set for this process, in bytes; 0 = no limit, or more than the machine has. */
uint64_t ae_os_memory_limit(void);
uint64_t ae_os_memory_limit_below(const char *root);
/* Returns the machine's physical memory in bytes; 0: unknown. */
uint64_t ae_os_memory_total(void);

/* ---- Files (file.c) --------------------------------------------------------------------------- */

/* Identifies a file, so that opening its path again can detect that it was replaced. */
typedef struct ae_file_id {
    uint64_t device, inode, bytes;
    int64_t changed_s, changed_ns;
} ae_file_id;

static inline bool ae_file_id_same(const ae_file_id *a, const ae_file_id *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->changed_s == b->changed_s &&
           a->changed_ns == b->changed_ns;
}

/* Opens a regular file for reading; *fd is -1 on failure. Errors: IO with path and reason. */
aerie_status ae_file_open(int *fd, ae_file_id *id, const char *path, aerie_error *error);
void ae_file_close(int fd); /* -1 is fine */
/* Returns whether the path exists, whatever kind of file it is. */
bool ae_file_exists(const char *path);
/* Reads exactly n bytes at `offset` into out; any thread. Errors: IO with `path`, offset and reason, also if the file ends
 * early. */
aerie_status ae_file_read(int fd, const char *path, uint64_t offset, void *out, size_t n, aerie_error *error);

/* Returns whether both paths lead to one existing file, through links of any kind. NULL is not a path. */
bool ae_file_same(const char *a, const char *b);
/* Finds the path of the file that writing to `path` changes: follows symbolic links at its end, also to a file that does not
 * exist yet. Free *out with ae_free. Errors: IO (too many links), MEMORY. */
aerie_status ae_file_resolve(char **out, const char *path, aerie_error *error);

typedef enum ae_file_advice {
    AE_FILE_SOON, /* will be read: the system may fetch it */
    AE_FILE_DONE, /* will not be read again: the system may forget it */
} ae_file_advice;
void ae_file_advise(int fd, uint64_t offset, size_t n, ae_file_advice advice);

/* pread: bytes read, 0 at the end, -1 with errno. May read less. */
long long ae_os_pread(int fd, void *out, size_t n, uint64_t offset);

/* A whole file, read-only: mapped, or read into heap memory where mapping fails or is unwanted. Or the head of a file: as many
 * of its first bytes as were requested. */
typedef struct ae_file_map {
    const uint8_t *data; /* [bytes]; only the first `readable` may be touched */
    size_t bytes, readable;
    bool mapped; /* data points to the file's own pages */
    bool head;   /* opened by ae_file_map_open_head */
    int fd;      /* the open file of a head that is not sealed; otherwise -1 */
    ae_file_id id;
} ae_file_map;

/* Errors: IO with path and reason (missing, unreadable, a directory, ...), MEMORY. */
aerie_status ae_file_map_open(ae_file_map *map, const char *path, bool use_mmap, aerie_error *error);
/* Reserves address space for the whole file and reads nothing yet. */
aerie_status ae_file_map_open_head(ae_file_map *map, const char *path, aerie_error *error);
/* Reads on until the first n bytes (n <= bytes) are readable. Errors: IO, MEMORY. */
aerie_status ae_file_map_need(ae_file_map *map, const char *path, size_t n, aerie_error *error);
/* Closes the file of a head: no more of it will be read. */
void ae_file_map_seal(ae_file_map *map);
void ae_file_map_close(ae_file_map *map);

/* ---- Memory ----------------------------------------------------------------------------------- */

/* Allocates large zeroed memory, aligned to 2 MiB, and requests huge pages; NULL when out of memory. */
void *ae_os_pages_alloc(size_t bytes);
void ae_os_pages_free(void *pages, size_t bytes);

/* Evicts bytes from the CPU's caches, so that their next use reads memory; returns false where programs cannot do that. */
bool ae_os_cache_forget(const void *bytes, size_t n);

/* Asks the kernel for permission to use x86 matrix tiles (AMX) in all threads of this process; returns false if the CPU has
 * none or the kernel refuses. Asking again is harmless. */
bool ae_os_ask_for_tiles(void);

#endif
