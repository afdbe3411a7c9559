/* log.c - messages of a program that must not wait for their reader (app.h).
 * Owns a queue of whole lines, and the thread that writes them to standard error in order. A pipe that nobody reads, or a
 * stopped terminal, blocks only that thread. Lines for which there is no room are counted, and a line at their place says how
 * many are missing. */
#define _POSIX_C_SOURCE 200809L
#include "shared/app.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE_BYTES = 1 << 20, NOTICE_BYTES = 160 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a line was added, or lines were written */
    char bytes[QUEUE_BYTES]; /* ring of lines, each with its newline */
    size_t first, n;         /* index of the oldest byte; number of bytes */
    uint64_t n_missing;      /* lines lost since the last notice */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool is_on;
static atomic_ullong n_lost;

/* Appends bytes to the ring. Called under the lock; there must be room. */
static void add(const char *bytes, size_t n)
{
    const size_t at = (queue.first + queue.n) % QUEUE_BYTES, to_end = QUEUE_BYTES - at, part = n < to_end ? n : to_end;
    memcpy(queue.bytes + at, bytes, part);
    memcpy(queue.bytes, bytes + part, n - part);
    queue.n += n;
}

/* Appends a notice that lines are missing, if there is room for it and for `more` bytes. Called under the lock. */
static void add_notice(size_t more)
{
    char text[NOTICE_BYTES];
    if (!queue.n_missing || QUEUE_BYTES - queue.n < NOTICE_BYTES + more) return;
    add(text, (size_t)snprintf(text, sizeof text, "aerie: %llu line%s of the log %s lost here, because nobody read the log\n",
                               (unsigned long long)queue.n_missing, app_plural(queue.n_missing),
                               queue.n_missing == 1 ? "was" : "were"));
    queue.n_missing = 0;
}

bool app_log_put(const char *line, size_t n)
{
    if (!atomic_load(&is_on)) return false;
    pthread_mutex_lock(&queue.lock);
    add_notice(n);
    if (!n || queue.n_missing || QUEUE_BYTES - queue.n < n) {
        queue.n_missing++;
        atomic_fetch_add(&n_lost, 1);
    } else {
        add(line, n);
        pthread_cond_broadcast(&queue.changed);
    }
    pthread_mutex_unlock(&queue.lock);
    return true;
}

/* Writes all bytes, however long it takes. */
static void write_part(const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t written = write(STDERR_FILENO, bytes + at, n - at);
        struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (written > 0) at += (size_t)written;
        else if (written < 0 && errno == EAGAIN) (void)poll(&fd, 1, -1);
        else if (written == 0 || errno != EINTR) return; /* the reader is gone, so no further line can be written */
    }
}

static void *write_lines(void *unused)
{
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        if (!queue.n) add_notice(0);
        if (!queue.n) {
            pthread_cond_wait(&queue.changed, &queue.lock);
            continue;
        }
        /* written one by one, since other programs may write to the same pipe */
        const char *from = queue.bytes + queue.first;
        const size_t to_end = QUEUE_BYTES - queue.first, most = queue.n < to_end ? queue.n : to_end;
        const char *end = memchr(from, '\n', most);
        const size_t n = end ? (size_t)(end - from) + 1 : most;
        pthread_mutex_unlock(&queue.lock);
        write_part(from, n);
        pthread_mutex_lock(&queue.lock);
        queue.first = (queue.first + n) % QUEUE_BYTES;
        queue.n -= n;
        if (!queue.n) pthread_cond_broadcast(&queue.changed);
    }
    return unused;
}

bool app_log_start(void)
{
    pthread_t thread;
    sigset_t all, before;
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return false;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* setting the system's clock must not matter */
    bool ok = pthread_cond_init(&queue.changed, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    ok = ok && pthread_create(&thread, NULL, write_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) pthread_detach(thread); /* it may never end */
    atomic_store(&is_on, ok);
    return ok;
}

void app_log_flush(double seconds)
{
    struct timespec end;
    if (!atomic_load(&is_on)) return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const long long ns = end.tv_nsec + (long long)(seconds * 1e9);
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&queue.lock);
    while (queue.n && pthread_cond_timedwait(&queue.changed, &queue.lock, &end) != ETIMEDOUT) {}
    pthread_mutex_unlock(&queue.lock);
}

uint64_t app_log_n_lost(void)
{
    return atomic_load(&n_lost);
}
