/* listen.c - what all servers have: their setup, the listening socket, and the main loop: signals, draining, shutdown. */
#define _GNU_SOURCE
#include "serve/http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "serve/http/connections.h"
#include "serve/http/systemd.h"

enum { BACKLOG = 512, TICK_NS = 200 * 1000 * 1000, END_SECONDS = 10, LOCK_TRIES = 200, MAX_FETCHES = 4 };

/* ---- The socket ---------------------------------------------------------------------------------------------- */

static bool is_path(const char *host)
{
    const size_t n = strlen(host);
    return n > 5 && strcmp(host + n - 5, ".sock") == 0;
}

/* Opens and locks the folder of a socket's path; returns -1 if it cannot be opened. Under this lock servers look for each other
 * and take paths; it ends when the folder is closed or the process ends. After LOCK_TRIES it gives up the lock and goes on. */
static int lock_folder(const char *path)
{
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const struct timespec pause = {0, TICK_NS / 20};
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB); i++) nanosleep(&pause, NULL);
    return fd;
}

static void unlock_folder(int fd)
{
    if (fd >= 0) close(fd);
}

/* Returns whether the path is free: it does not exist, or is a socket that an ended server left behind. If false, errno is
 * set. */
static bool is_free(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st)) return errno == ENOENT;
    const int fd = S_ISSOCK(st.st_mode) ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    const bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    errno = EADDRINUSE;
    return refused;
}

/* Binds a temporary path, listens, and only then renames it, so that no other server takes the socket for one that was left
 * behind.
 */
static int listen_at_path(serve_server *server, const struct sockaddr_un *address)
{
    struct sockaddr_un other = {.sun_family = AF_UNIX};
    struct stat st;
    const char *path = address->sun_path, *slash = strrchr(path, '/');
    const int n_folder = slash ? (int)(slash - path) + 1 : 0;
    if (!is_free(address)) return -1;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int n = snprintf(other.sun_path, sizeof other.sun_path, "%.*s.aerie-%lx", n_folder, path, (unsigned long)getpid());
    bool ok = n > 0 && (size_t)n < sizeof other.sun_path;
    if (!ok) other = *address; /* the temporary path would be too long: bind the path itself */
    const bool moves = strcmp(other.sun_path, path) != 0;
    unlink(other.sun_path);
    ok = bind(fd, (struct sockaddr *)&other, sizeof other) == 0 && listen(fd, BACKLOG) == 0 &&
         lstat(other.sun_path, &st) == 0 && (!moves || rename(other.sun_path, path) == 0);
    if (ok) {
        server->socket_device = st.st_dev;
        server->socket_inode = st.st_ino;
        return fd;
    }
    const int why = errno;
    if (moves) unlink(other.sun_path);
    close(fd);
    errno = why;
    return -1;
}

static int listen_unix(serve_server *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return app_error(-1, "--host: the path '%s' is too long for a socket", path);
    strcpy(address.sun_path, path);
    const int lock = lock_folder(path), fd = listen_at_path(server, &address), why = errno;
    unlock_folder(lock);
    if (fd < 0) return app_error(-1, "cannot listen on '%s': %s", path, strerror(why));
    app_note("listening on %s", path);
    return fd;
}

/* Removes the socket's path unless another server has taken it. The inode shows that: while this socket is open, no other file
 * can have the same one. */
static void remove_path(const serve_server *server)
{
    struct stat st;
    const char *path = server->o->host;
    if (!server->socket_inode) return;
    const int lock = lock_folder(path);
    if (lstat(path, &st) == 0 && st.st_dev == server->socket_device && st.st_ino == server->socket_inode) unlink(path);
    unlock_folder(lock);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

static int listen_at(serve_server *server, const struct addrinfo *a)
{
    const int on = 1;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        server->loopback = is_loopback(a->ai_addr);
        return fd;
    }
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Returns the listening socket, or -1 after a message. */
static int open_socket(serve_server *server)
{
    const char *host = server->o->host ? server->o->host : "127.0.0.1";
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    int fd = serve_socket_given();
    if (fd >= 0) {
        app_note("listening on the socket passed by systemd");
        return fd;
    }
    if (is_path(host)) {
        server->loopback = true;
        return listen_unix(server, host);
    }
    snprintf(port, sizeof port, "%u", (unsigned)server->o->port);
    const int bad = getaddrinfo(host, port, &hints, &list);
    if (bad) return app_error(-1, "--host '%s': %s", host, gai_strerror(bad));
    errno = 0;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = listen_at(server, a);
    freeaddrinfo(list);
    if (fd < 0 && errno == EADDRNOTAVAIL)
        return app_error(-1, "cannot listen on %s: it is not an address of this machine; --host takes one that is, or 0.0.0.0 "
                         "(:: for IPv6) for all of them", host);
    if (fd < 0 && errno == EACCES)
        return app_error(-1, "cannot listen on %s port %s: %s; ports from 1024 need no rights: --port 8080", host, port,
                         strerror(errno));
    if (fd < 0) return app_error(-1, "cannot listen on %s port %s: %s; --port chooses another", host, port, strerror(errno));
    const char *open = strchr(host, ':') ? "[" : "", *end = *open ? "]" : "";
    app_note("listening on http://%s%s%s:%u", open, host, end, port_of(fd));
    if (!server->loopback && !server->keys.n)
        app_note("anyone who can reach %s can use the server; use --api-key-file to require a key", host);
    return fd;
}

/* ---- Main loop ----------------------------------------------------------------------------------------------- */

static void signals_of_ours(sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(set, SIGHUP); /* nohup ignores it */
}

/* Waits at most one tick for a signal of the set and returns it; 0: none came. */
static int next_signal(const sigset_t *set)
{
    const struct timespec tick = {0, TICK_NS};
    const int got = sigtimedwait(set, NULL, &tick);
    return got > 0 ? got : 0;
}

static volatile sig_atomic_t end_status;

static void end_now(int signal_number)
{
    (void)signal_number;
    _exit(end_status);
}

static void call_at_end(int signal_number)
{
    const struct sigaction action = {.sa_handler = end_now};
    sigset_t set;
    sigaction(signal_number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Called first at shutdown: the process ends after this time even if something hangs. */
static void end_within(unsigned seconds, int status)
{
    end_status = status;
    call_at_end(SIGALRM);
    alarm(seconds);
}

/* Makes sure that the process ends, now that only memory remains to be freed: if a pass does not end or a client does not
 * disconnect, the process ends after END_SECONDS or at the next signal. */
static void end_for_sure(void)
{
    alarm(END_SECONDS);
    call_at_end(SIGTERM);
    call_at_end(SIGINT);
}

/* Waits until running requests have ended, the grace time is over, or another signal arrives. */
static void drain(serve_server *server, const sigset_t *set)
{
    const double end = app_now() + server->o->grace;
    while (atomic_load(&server->n_calls) && app_now() < end) {
        if (next_signal(set)) {
            app_note("second signal: stopping at once");
            app_log_flush(SERVE_LOG_SECONDS);
            _exit(APP_DONE);
        }
        serve_connections_check(server->connections);
        serve_watchdog(!server->service->stuck(server));
        serve_memory_tidy(&server->memory);
    }
    const unsigned n = atomic_load(&server->n_calls);
    if (n) app_note("%u answer%s did not end within --grace %u s and %s cut off", n, app_plural(n), (unsigned)server->o->grace,
                    n == 1 ? "is" : "are");
    atomic_store(&server->stopping, true);
    server->service->stop(server);
    end_for_sure();
}

/* Listens and answers until a signal arrives and running requests have ended. */
static int run_http(serve_server *server)
{
    sigset_t set;
    int got = 0;
    signals_of_ours(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* in all threads: the main loop fetches them */
    const int listening = open_socket(server);
    if (listening < 0) return APP_FAILED;
    void *daemon = serve_daemon_start(server, listening);
    if (!daemon) {
        close(listening);
        return app_error(APP_FAILED, "the HTTP server could not be started");
    }
    server->service->start(server);
    while (!(got = next_signal(&set)) && !atomic_load(&server->failed)) {
        serve_connections_check(server->connections);
        server->service->tick(server);
        serve_watchdog(!server->service->stuck(server));
        serve_memory_tidy(&server->memory);
    }
    end_within(server->o->grace + END_SECONDS, got ? APP_DONE : APP_BAD_FILE);
    const int quiet_socket = serve_daemon_quiesce(daemon); /* closed first, so that a load balancer uses another server */
    remove_path(server);
    if (quiet_socket >= 0) close(quiet_socket);
    atomic_store(&server->draining, true);
    serve_notify("STOPPING=1");
    if (got) {
        app_note("%s: shutting down; running answers have %u s to finish", got == SIGINT ? "Ctrl-C" : strsignal(got),
                 (unsigned)server->o->grace);
        drain(server, &set);
    }
    serve_daemon_stop(daemon);
    return atomic_load(&server->failed) ? APP_BAD_FILE : APP_DONE;
}

int serve_run(serve_server *server, int (*prepare)(serve_server *server))
{
    serve_connections connections = {0};
    const app_serve_options *o = server->o;
    const uint32_t n_work = o->n_threads_http ? o->n_threads_http : server->options->n_threads;
    server->connections = &connections;
    app_note_times();
    app_json_watch(); /* before there are threads */
    json_object_seed(0);
    serve_memory_create(&server->memory, o->max_memory);
    pthread_mutex_init(&connections.lock, NULL);
    pthread_mutex_init(&server->sending_lock, NULL);
    pthread_mutex_init(&server->notes.lock, NULL);
    sem_init(&server->work, 0, n_work ? n_work : 1);
    sem_init(&server->large_work, 0, n_work > 2 ? n_work / 2 : 1);
    sem_init(&server->fetch_work, 0, MAX_FETCHES);
    app_log_start();
    connections.most = serve_connections_most(o->max_connections);
    connections.most_per_address = o->max_per_address == UINT32_MAX ? (connections.most + 1) / 2 : o->max_per_address;
    int bad = prepare ? prepare(server) : APP_DONE;
    if (!bad) bad = serve_keys_read(&server->keys, o);
    if (!bad) bad = run_http(server);
    serve_keys_free(&server->keys);
    sem_destroy(&server->work);
    sem_destroy(&server->large_work);
    sem_destroy(&server->fetch_work);
    pthread_mutex_destroy(&server->notes.lock);
    pthread_mutex_destroy(&connections.lock);
    pthread_mutex_destroy(&server->sending_lock);
    return bad;
}
