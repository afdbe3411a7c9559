/* os.c - reads, pages, time and matrix tiles by calls of Linux and POSIX (os.h). CPUs and memory of the process are in
 * resources.c, files in file.c. */
#define _GNU_SOURCE
#include "base/os.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

double ae_time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Does nothing but the call, so that tests can replace this function to make reads fail. */
long long ae_os_pread(int fd, void *out, size_t n, uint64_t offset)
{
    return pread(fd, out, n, (off_t)offset);
}

enum { ORIGIN_BYTES = 4096 };

const volatile unsigned char *ae_os_origin_create(void)
{
#ifdef MADV_WIPEONFORK
    unsigned char *page = mmap(NULL, ORIGIN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    if (madvise(page, ORIGIN_BYTES, MADV_WIPEONFORK) == 0) {
        *page = 1;
        return page;
    }
    munmap(page, ORIGIN_BYTES);
#endif
    return NULL;
}

void ae_os_origin_free(const volatile unsigned char *origin)
{
    if (origin) munmap((void *)(uintptr_t)origin, ORIGIN_BYTES);
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
    /* unmap the bytes outside the aligned part */
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

#if defined(__x86_64__)
bool ae_os_cache_forget(const void *bytes, size_t n)
{
    unsigned a, b, c, d;
    /* without CLFLUSHOPT each flush waits for the previous one */
    const bool at_once = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
    for (const char *p = bytes, *end = p + n; p < end; p += 64) {
        if (at_once) __asm__ volatile("clflushopt (%0)" ::"r"(p) : "memory");
        else __asm__ volatile("clflush (%0)" ::"r"(p) : "memory");
    }
    __asm__ volatile("mfence" ::: "memory");
    return true;
}
#else
bool ae_os_cache_forget(const void *bytes, size_t n)
{
    (void)bytes, (void)n;
    return false;
}
#endif

bool ae_os_ask_for_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}
