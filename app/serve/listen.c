/* listen.c - the listening socket, and the life of the server: signals, draining, the end. */
#define _GNU_SOURCE
#include "serve/http/http.h"

#ifdef APP_HTTP

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
#include "serve/models/models.h"
#include "serve/http/systemd.h"

enum { BACKLOG = 512, TICK_NS = 200 * 1000 * 1000, END_SECONDS = 10, LOCK_TRIES = 200 };

/* ---- The socket ---------------------------------------------------------------------------------------------- */

static bool is_path(const char *host)
{
    const size_t n = strlen(host);
    return n > 5 && strcmp(host + n - 5, ".sock") == 0;
}

/* The folder of a socket's path, locked against other servers for as long as it is open; -1: it cannot be. Servers look for
 * each other and take paths under this lock, which ends with its process. Who holds it for long is not waited for. */
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

/* Nothing is there, or what a server that has ended has left behind. Else false, with errno. */
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

/* A socket gets its path when it listens already, so nobody takes it for one that was left behind. */
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
    if (!ok) other = *address; /* a longer name has no room: then as it is */
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

/* Removes the path, if it is still this server's: another one may have taken it. While the socket is open, no other can have
 * its inode. */
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

/* The socket, or -1 with a message. */
static int open_socket(serve_server *server)
{
    const char *host = server->o->host ? server->o->host : "127.0.0.1";
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    int fd = serve_socket_given();
    if (fd >= 0) {
        app_note("listening on the socket that was passed on");
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
    if (fd < 0) return app_error(-1, "cannot listen on %s port %s: %s; --port chooses another", host, port, strerror(errno));
    const char *open = strchr(host, ':') ? "[" : "", *end = *open ? "]" : "";
    app_note("listening on http://%s%s%s:%u", open, host, end, port_of(fd));
    if (!server->loopback && !server->keys.n)
        app_note("anyone who can reach %s can use the server: --api-key-file asks for a key", host);
    return fd;
}

/* ---- Life ---------------------------------------------------------------------------------------------------- */

static void signals_of_ours(sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(set, SIGHUP); /* nohup */
}

/* Waits for one of them, at most a tick; 0: none came. */
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

/* The first thing of the end: whatever hangs from here on, the process ends after this time. */
static void end_within(unsigned seconds, int status)
{
    end_status = status;
    call_at_end(SIGALRM);
    alarm(seconds);
}

/* What is left to do is to free memory. If a pass does not end, or a client does not go, the server ends all the same: after a
 * while, or at the next signal. */
static void end_for_sure(void)
{
    alarm(END_SECONDS);
    call_at_end(SIGTERM);
    call_at_end(SIGINT);
}

/* Until what runs has ended, the time is over, or another signal comes. */
static void drain(serve_server *server, const sigset_t *set)
{
    const double end = app_now() + server->o->grace;
    while (atomic_load(&server->n_calls) && app_now() < end) {
        if (next_signal(set)) {
            app_note("a second signal: ending at once");
            app_log_flush(SERVE_LOG_SECONDS);
            _exit(APP_DONE);
        }
        serve_connections_check(server->connections);
        serve_watchdog(!serve_models_stuck(server->models));
        serve_memory_tidy(&server->memory);
    }
    const unsigned n = atomic_load(&server->n_calls);
    if (n) app_note("%u answers have not ended within --grace %u s and are cut off", n, (unsigned)server->o->grace);
    atomic_store(&server->stopping, true);
    serve_models_stop(server->models);
    end_for_sure();
}

int serve_http_run(serve_server *server)
{
    sigset_t set;
    int got = 0;
    signals_of_ours(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* of all threads: this one asks for them */
    const int listening = open_socket(server);
    if (listening < 0) return APP_FAILED;
    void *daemon = serve_daemon_start(server, listening);
    if (!daemon) {
        close(listening);
        return app_error(APP_FAILED, "the HTTP server could not be started");
    }
    serve_models_start(server->models);
    while (!(got = next_signal(&set)) && !atomic_load(&server->failed)) {
        serve_connections_check(server->connections);
        serve_models_sleep(server->models);
        serve_watchdog(!serve_models_stuck(server->models));
        serve_memory_tidy(&server->memory);
    }
    end_within(server->o->grace + END_SECONDS, got ? APP_DONE : APP_BAD_FILE);
    const int quiet_socket = serve_daemon_quiesce(daemon); /* closed first: a balancer goes elsewhere */
    remove_path(server);
    if (quiet_socket >= 0) close(quiet_socket);
    atomic_store(&server->draining, true);
    serve_notify("STOPPING=1");
    if (got) {
        app_note("%s: running answers may end within %u s", got == SIGINT ? "Ctrl-C" : strsignal(got),
                 (unsigned)server->o->grace);
        drain(server, &set);
    }
    serve_daemon_stop(daemon);
    return atomic_load(&server->failed) ? APP_BAD_FILE : APP_DONE;
}

#else

int serve_http_run(serve_server *server)
{
    (void)server; /* serve_http_version() is NULL, and nobody calls this */
    return APP_FAILED;
}

#endif
