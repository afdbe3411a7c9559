#define _GNU_SOURCE
#include "base/os.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* Nothing but the call: what a test replaces to make reads fail. */
long long ae_os_pread(int fd, void *out, size_t n, uint64_t offset)
{
    return pread(fd, out, n, (off_t)offset);
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
