#define _GNU_SOURCE
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

double ae_time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads up to two integers from a small file; "max" counts as -1. Returns how many were read. */
static int read_numbers(const char *path, long long out[2])
{
    char text[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    int count = 0;
    char *p = text;
    while (count < 2) {
        while (*p == ' ' || *p == '\n') p++;
        if (!*p) break;
        if (!strncmp(p, "max", 3)) {
            out[count++] = -1;
            p += 3;
        } else {
            char *end;
            out[count] = strtoll(p, &end, 10);
            if (end == p) break;
            count++;
            p = end;
        }
    }
    return count;
}

int ae_os_n_cores(void)
{
    int n = 0;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    if (n < 1) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (n < 1) n = 1;
    long long v[2];
    if (read_numbers("/sys/fs/cgroup/cpu.max", v) == 2 && v[0] > 0 && v[1] > 0) {
        long long quota = (v[0] + v[1] - 1) / v[1];
        if (quota >= 1 && quota < n) n = (int)quota;
    }
    return n;
}

uint64_t ae_os_memory_available(void)
{
    uint64_t available = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f) {
        char line[128];
        unsigned long long kib;
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = (uint64_t)kib * 1024;
        fclose(f);
    }
    long long limit[2], used[2];
    if (read_numbers("/sys/fs/cgroup/memory.max", limit) >= 1 && limit[0] > 0 &&
        read_numbers("/sys/fs/cgroup/memory.current", used) >= 1 && used[0] >= 0) {
        uint64_t left = limit[0] > used[0] ? (uint64_t)(limit[0] - used[0]) : 0;
        if (!available || left < available) available = left;
    }
    return available;
}

static aerie_status read_whole(ae_file_map *map, int fd, const char *path, aerie_error *error)
{
    /* aligned, so that what is aligned in the file (tensors) is aligned in memory too */
    size_t room = map->bytes > SIZE_MAX - 64 ? 0 : (map->bytes + 64) & ~(size_t)63;
    uint8_t *data = room ? aligned_alloc(64, room) : NULL;
    if (!data) return ae_fail(error, AERIE_ERROR_MEMORY, "%s: not enough memory to read its %zu bytes", path, map->bytes);
    size_t done = 0;
    while (done < map->bytes) {
        ssize_t n = read(fd, data + done, map->bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const char *why = n < 0 ? strerror(errno) : "it ended early";
            free(data);
            return ae_fail(error, AERIE_ERROR_IO, "%s: read failed after %zu of %zu bytes: %s", path, done, map->bytes, why);
        }
        done += (size_t)n;
    }
    map->data = data;
    return AERIE_OK;
}

aerie_status ae_file_map_open(ae_file_map *map, const char *path, bool use_mmap, aerie_error *error)
{
    *map = (ae_file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ae_fail(error, AERIE_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    aerie_status status = AERIE_OK;
    if (fstat(fd, &st) != 0) {
        status = ae_fail(error, AERIE_ERROR_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = ae_fail(error, AERIE_ERROR_IO, "%s: not a regular file%s", path, S_ISDIR(st.st_mode) ? " but a directory" : "");
    } else {
        map->bytes = (size_t)st.st_size;
        if (use_mmap && map->bytes) {
            void *p = mmap(NULL, map->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
            if (p != MAP_FAILED) {
                map->data = p;
                map->mapped = true;
            }
        }
        if (!map->data) status = read_whole(map, fd, path, error);
    }
    close(fd);
    return status;
}

void ae_file_map_close(ae_file_map *map)
{
    if (map->data && map->mapped) munmap((void *)map->data, map->bytes);
    else free((void *)map->data);
    *map = (ae_file_map){0};
}

#define HUGE_BYTES ((size_t)2 << 20)

static size_t pages_round(size_t bytes)
{
    return (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
}

void *ae_os_pages_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * HUGE_BYTES) return NULL;
    size_t want = pages_round(bytes ? bytes : 1), total = want + HUGE_BYTES;
    char *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    /* give back what lies outside the aligned part */
    size_t head = (HUGE_BYTES - ((uintptr_t)p & (HUGE_BYTES - 1))) & (HUGE_BYTES - 1);
    if (head) munmap(p, head);
    if (total - head - want) munmap(p + head + want, total - head - want);
    madvise(p + head, want, MADV_HUGEPAGE);
    return p + head;
}

void ae_os_pages_free(void *pages, size_t bytes)
{
    if (pages) munmap(pages, pages_round(bytes ? bytes : 1));
}

bool ae_os_ask_for_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}
