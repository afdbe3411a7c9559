/* apart.c - implements apart.h. Decodes with the library's internal function, because the public interface does not give
 * pixels. */
#define _GNU_SOURCE
#include "serve/request/apart.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "image/image.h"

/* The header that goes to the child before the image's bytes. */
typedef struct question {
    uint64_t n;
    aerie_image_limits limits;
} question;

/* The header that comes back before the pixels. */
typedef struct answer {
    int32_t status; /* aerie_status */
    uint32_t width, height;
    char text[160];
} answer;

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define HAS_SHADOW 1 /* a build with a sanitizer, which needs terabytes of addresses */
#else
#define HAS_SHADOW 0
#endif

enum { CHILD_SECONDS = 20, CHILD_BASE = 256 << 20 };

/* ---- The child -------------------------------------------------------------------------------------------------- */

static bool read_all(int fd, void *to, size_t n)
{
    for (uint8_t *at = to; n;) {
        const ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got, n -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    for (const uint8_t *at = from; n;) {
        const ssize_t put = send(fd, at, n, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += put, n -= (size_t)put;
    }
    return true;
}

static void limit(int what, rlim_t most)
{
    struct rlimit old;
    if (getrlimit(what, &old) == 0 && old.rlim_max < most) most = old.rlim_max;
    (void)setrlimit(what, &(struct rlimit){most, most});
}

/* Limits what the child can do from now on. */
static void confine(const question *q)
{
    (void)close_range(1, ~0u, 0);
    limit(RLIMIT_NOFILE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CHILD_SECONDS);
    if (q->limits.max_memory && !HAS_SHADOW) limit(RLIMIT_AS, (rlim_t)q->limits.max_memory + q->n + CHILD_BASE);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

int app_decode_image(void)
{
    question q;
    answer a = {0};
    aerie_error error = {0};
    ae_image image = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (!read_all(0, &q, sizeof q) || q.n > SIZE_MAX / 2) return 1;
    confine(&q);
    const ae_image_limits limits = {q.limits.max_bytes, q.limits.max_pixels, q.limits.max_side, q.limits.max_ratio,
                                    q.limits.max_memory};
    uint8_t *data = malloc(q.n ? q.n : 1);
    if (!data || !read_all(0, data, q.n)) return 1;
    a.status = (int32_t)ae_image_decode(&image, data, q.n, &limits, &error);
    a.width = image.width, a.height = image.height;
    snprintf(a.text, sizeof a.text, "%.159s", error.text);
    const bool told = write_all(0, &a, sizeof a) &&
                      (a.status || write_all(0, image.rgb, (size_t)image.width * image.height * 3));
    ae_image_free(&image);
    free(data);
    return told ? 0 : 1;
}

/* ---- The parent ------------------------------------------------------------------------------------------------- */

static aerie_status fail(aerie_error *error, aerie_status status, const char *text)
{
    error->status = status;
    snprintf(error->text, sizeof error->text, "%s", text);
    return status;
}

/* Starts the child, with its end of the socket as standard input. */
static int start(int theirs, pid_t *pid)
{
    static char name[] = "aerie", word[] = APP_DECODE_IMAGE;
    char *const words[] = {name, word, NULL};
    char path[4096], *no_secrets[2] = {NULL, NULL}; /* an empty environment, because the parent's may hold keys */
    const char *libraries = getenv("LD_LIBRARY_PATH");
    if (libraries && snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", libraries) < (int)sizeof path) no_secrets[0] = path;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none;
    sigemptyset(&none);
    int bad = posix_spawn_file_actions_init(&files);
    if (bad) return bad;
    bad = posix_spawnattr_init(&how);
    if (!bad) {
        posix_spawn_file_actions_adddup2(&files, theirs, 0);
        posix_spawnattr_setsigmask(&how, &none);
        posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
        bad = posix_spawn(pid, "/proc/self/exe", &files, &how, words, no_secrets);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    return bad;
}

/* Sends or receives n bytes. Returns false if the child has ended or nobody wants the image. */
static bool move(int fd, const void *out, void *in, size_t n, bool (*wanted)(void *), void *user)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {fd, out ? POLLOUT : POLLIN, 0};
        const int ready = poll(&p, 1, 500);
        if (ready < 0 && errno != EINTR) return false;
        if (ready <= 0) {
            if (!wanted(user)) return false;
            continue;
        }
        const ssize_t done = out ? send(fd, (const uint8_t *)out + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : recv(fd, (uint8_t *)in + at, n - at, MSG_DONTWAIT);
        if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (done <= 0) return false;
        at += (size_t)done;
    }
    return true;
}

/* Reads the answer of a child that has received its question. */
static aerie_status take(int fd, aerie_image **image, const aerie_image_limits *limits, bool (*wanted)(void *),
                         bool (*may_take)(void *, size_t), void *user, aerie_error *error)
{
    static const char gone[] = "the image could not be decoded: its decoder broke off";
    answer a;
    if (!move(fd, NULL, &a, sizeof a, wanted, user)) return fail(error, AERIE_ERROR_FORMAT, gone);
    a.text[sizeof a.text - 1] = '\0';
    for (char *c = a.text; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    if (a.status) return fail(error, (aerie_status)a.status, a.text);
    /* an attacker may control the child by now, so its answer is checked like a file */
    const uint64_t pixels = (uint64_t)a.width * a.height;
    if (!pixels || a.width > limits->max_side || a.height > limits->max_side || pixels > limits->max_pixels)
        return fail(error, AERIE_ERROR_FORMAT, gone);
    const size_t bytes = (size_t)pixels * 3;
    if (!may_take(user, bytes)) return fail(error, AERIE_ERROR_MEMORY, "there is not enough memory for the image");
    uint8_t *rgb = malloc(bytes);
    if (!rgb) return fail(error, AERIE_ERROR_MEMORY, "there is not enough memory for the image");
    aerie_status status = AERIE_OK;
    if (!move(fd, NULL, rgb, bytes, wanted, user)) status = fail(error, AERIE_ERROR_FORMAT, gone);
    if (status == AERIE_OK) status = aerie_image_copy(image, a.width, a.height, rgb, error);
    free(rgb);
    return status;
}

aerie_status apart_decode(aerie_image **image, const uint8_t *data, size_t n, const aerie_image_limits *limits,
                          bool (*wanted)(void *user), bool (*may_take)(void *user, size_t bytes), void *user,
                          aerie_error *error)
{
    const question q = {n, *limits};
    int ends[2];
    pid_t pid;
    *image = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return fail(error, AERIE_ERROR_MEMORY, "no socket for the process that decodes images");
    const int bad = start(ends[1], &pid);
    close(ends[1]);
    aerie_status status;
    if (bad) {
        status = fail(error, AERIE_ERROR_MEMORY, "the process that decodes images cannot be started");
    } else {
        if (move(ends[0], &q, NULL, sizeof q, wanted, user)) (void)move(ends[0], data, NULL, n, wanted, user);
        status = take(ends[0], image, limits, wanted, may_take, user, error);
        kill(pid, SIGKILL); /* it has nothing more to send */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close(ends[0]);
    if (status != AERIE_OK && !wanted(user)) status = fail(error, AERIE_ERROR_CANCELLED, "nobody waits for the image");
    return status;
}
