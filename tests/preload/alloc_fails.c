/* alloc_fails.c - preloaded, makes chosen allocations of the whole process fail, those of its libraries too. The file that
 * ALLOC_FAILS names is shared with the test, which may change it at any time: three numbers of 64 bits, how many allocations
 * there are to the next that fails (0: none does), how many fail then, one after another, and how many there were in all.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

typedef struct control {
    _Atomic int64_t left, n_fail, calls;
} control;

static _Atomic(control *) shared;

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("ALLOC_FAILS");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof(control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED) atomic_store(&shared, at);
}

/* Counts an allocation; true if it is to fail. left goes on below zero while they fail, and stops at -n_fail. */
static bool fails(void)
{
    control *c = atomic_load(&shared);
    if (!c) return false;
    atomic_fetch_add(&c->calls, 1);
    int64_t left = atomic_load(&c->left);
    do {
        if (left == 0 || left <= -atomic_load(&c->n_fail)) return false;
    } while (!atomic_compare_exchange_weak(&c->left, &left, left == 1 ? -1 : left - 1));
    if (left > 1) return false;
    errno = ENOMEM;
    return true;
}

SHOWN void *malloc(size_t bytes);
SHOWN void *calloc(size_t n, size_t size);
SHOWN void *realloc(void *block, size_t bytes);
SHOWN void *aligned_alloc(size_t alignment, size_t bytes);
SHOWN int posix_memalign(void **block, size_t alignment, size_t bytes);

/* Found once; dlsym itself does not allocate where it finds something. */
#define NEXT(name)                                                                                                             \
    static _Atomic(void *) found_##name;                                                                                       \
    void *symbol = atomic_load(&found_##name);                                                                                 \
    if (!symbol) {                                                                                                             \
        symbol = dlsym(RTLD_NEXT, #name);                                                                                      \
        atomic_store(&found_##name, symbol);                                                                                   \
    }                                                                                                                          \
    *(void **)&next = symbol;

void *malloc(size_t bytes)
{
    void *(*next)(size_t);
    NEXT(malloc)
    return fails() ? NULL : next(bytes);
}

void *calloc(size_t n, size_t size)
{
    void *(*next)(size_t, size_t);
    NEXT(calloc)
    return fails() ? NULL : next(n, size);
}

void *realloc(void *block, size_t bytes)
{
    void *(*next)(void *, size_t);
    NEXT(realloc)
    return fails() ? NULL : next(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *(*next)(size_t, size_t);
    NEXT(aligned_alloc)
    return fails() ? NULL : next(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int (*next)(void **, size_t, size_t);
    NEXT(posix_memalign)
    return fails() ? ENOMEM : next(block, alignment, bytes);
}
