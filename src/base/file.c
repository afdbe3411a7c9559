/* file.c - opens files, maps whole files or their heads into memory, and reads parts by offset (os.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"

#define HEAD_STEP ((size_t)1 << 20) /* bytes read at a time while the head of a file grows */

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "a special file";
}

aerie_status ae_file_open(int *fd, ae_file_id *id, const char *path, aerie_error *error)
{
    struct stat st;
    *id = (ae_file_id){0};
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not wait for a writer */
    if (*fd < 0) return ae_fail(error, AERIE_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    aerie_status status = AERIE_OK;
    if (fstat(*fd, &st) != 0)
        status = ae_fail(error, AERIE_ERROR_IO, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = ae_fail(error, AERIE_ERROR_IO, "%s: not a regular file but %s", path, file_kind(st.st_mode));
    if (status != AERIE_OK) {
        ae_file_close(*fd);
        *fd = -1;
        return status;
    }
    *id = (ae_file_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                       (int64_t)st.st_mtim.tv_nsec};
    return AERIE_OK;
}

bool ae_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

void ae_file_close(int fd)
{
    if (fd >= 0) close(fd);
}

aerie_status ae_file_read(int fd, const char *path, uint64_t offset, void *out, size_t n, aerie_error *error)
{
    size_t done = 0;
    while (done < n) {
        const long long got = ae_os_pread(fd, (char *)out + done, n - done, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return ae_fail(error, AERIE_ERROR_IO, "%s: reading %zu bytes at byte %llu failed after %zu: %s", path, n,
                           (unsigned long long)offset, done, got < 0 ? strerror(errno) : "the file ends there");
        done += (size_t)got;
    }
    return AERIE_OK;
}

bool ae_file_same(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

aerie_status ae_file_resolve(char **out, const char *path, aerie_error *error)
{
    enum { MAX_LINKS = 40 }; /* Linux's limit */
    char *at = ae_strndup(path, strlen(path));
    *out = NULL;
    for (int i = 0; at && i < MAX_LINKS; i++) {
        char target[4096];
        const ssize_t n = readlink(at, target, sizeof target);
        if (n < 0) { /* not a link, or it does not exist yet */
            *out = at;
            return AERIE_OK;
        }
        const char *slash = target[0] == '/' ? NULL : strrchr(at, '/');
        const size_t folder = slash ? (size_t)(slash - at) + 1 : 0;
        char *next = (size_t)n < sizeof target ? ae_alloc(folder + (size_t)n + 1, 1) : NULL;
        if (next) {
            memcpy(next, at, folder);
            memcpy(next + folder, target, (size_t)n);
        }
        ae_free(at);
        at = next;
    }
    if (!at) return ae_fail_memory(error, "a path", strlen(path));
    ae_free(at);
    return ae_fail(error, AERIE_ERROR_IO, "%s: symbolic links form a loop", path);
}

void ae_file_advise(int fd, uint64_t offset, size_t n, ae_file_advice advice)
{
#if defined(POSIX_FADV_WILLNEED)
    (void)posix_fadvise(fd, (off_t)offset, (off_t)n, advice == AE_FILE_SOON ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED);
#else
    (void)fd, (void)offset, (void)n, (void)advice;
#endif
}

/* ---- Whole files ---------------------------------------------------------------------------------- */

static aerie_status read_whole(ae_file_map *map, int fd, const char *path, aerie_error *error)
{
    /* aligned, so that tensors that are aligned in the file are aligned in memory too */
    size_t room = map->bytes > SIZE_MAX - 64 ? 0 : (map->bytes + 64) & ~(size_t)63;
    uint8_t *data = room ? aligned_alloc(64, room) : NULL;
    if (!data) return ae_fail(error, AERIE_ERROR_MEMORY, "%s: not enough memory to read its %zu bytes", path, map->bytes);
    const aerie_status status = ae_file_read(fd, path, 0, data, map->bytes, error);
    if (status == AERIE_OK) map->data = data;
    else free(data);
    return status;
}

aerie_status ae_file_map_open(ae_file_map *map, const char *path, bool use_mmap, aerie_error *error)
{
    *map = (ae_file_map){.fd = -1};
    int fd;
    AE_TRY(ae_file_open(&fd, &map->id, path, error));
    aerie_status status = AERIE_OK;
    map->bytes = map->readable = (size_t)map->id.bytes;
    if (use_mmap && map->bytes) {
        void *p = mmap(NULL, map->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) {
            map->data = p;
            map->mapped = true;
        }
    }
    if (!map->data) status = read_whole(map, fd, path, error);
    ae_file_close(fd);
    return status;
}

aerie_status ae_file_map_open_head(ae_file_map *map, const char *path, aerie_error *error)
{
    *map = (ae_file_map){.head = true};
    AE_TRY(ae_file_open(&map->fd, &map->id, path, error));
    map->bytes = (size_t)map->id.bytes;
    /* reserves address space for the whole file; memory is used only for the bytes that are read */
    void *p = mmap(NULL, map->bytes ? map->bytes : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        ae_file_map_seal(map);
        return ae_fail(error, AERIE_ERROR_MEMORY, "%s: no address space for its %zu bytes", path, map->bytes);
    }
    map->data = p;
    return AERIE_OK;
}

aerie_status ae_file_map_need(ae_file_map *map, const char *path, size_t n, aerie_error *error)
{
    if (n <= map->readable) return AERIE_OK;
    size_t end = map->bytes - n > HEAD_STEP ? n + HEAD_STEP : map->bytes;
    if (end < map->bytes) end &= ~(HEAD_STEP - 1); /* mprotect works on whole pages */
    uint8_t *to = (uint8_t *)map->data + map->readable;
    if (mprotect(to, end - map->readable, PROT_READ | PROT_WRITE) != 0)
        return ae_fail(error, AERIE_ERROR_MEMORY, "%s: not enough memory to read %zu bytes of it", path, end);
    AE_TRY(ae_file_read(map->fd, path, map->readable, to, end - map->readable, error));
    map->readable = end;
    return AERIE_OK;
}

void ae_file_map_seal(ae_file_map *map)
{
    if (!map->head) return;
    ae_file_close(map->fd);
    map->fd = -1;
}

void ae_file_map_close(ae_file_map *map)
{
    if (map->data) {
        ae_file_map_seal(map);
        if (map->mapped || map->head) munmap((void *)map->data, map->bytes ? map->bytes : 1);
        else free((void *)map->data);
    }
    *map = (ae_file_map){.fd = -1};
}
