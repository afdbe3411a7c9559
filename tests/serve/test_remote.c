/* test_remote.c - images by URL: which addresses and hosts may be reached, redirects, limits. Its servers listen on a loopback
 * address, which the guard refuses unless the test replaces it; what must not be connected to counts its connections. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "serve/request/remote.h"

/* ---- A server -------------------------------------------------------------------------------------------------- */

typedef struct server {
    int fd;
    unsigned port;
    atomic_int n_seen;
    pthread_t thread;
} server;

static void answer(int fd, const server *s, const char *path)
{
    char head[512];
    const char *body = "picture";
    if (strncmp(path, "/ok", 3) == 0) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n%s", body);
    else if (strncmp(path, "/empty", 6) == 0) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    else if (strncmp(path, "/to-ok", 6) == 0) snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: /ok\r\n\r\n");
    else if (strncmp(path, "/loop", 5) == 0) snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: /loop\r\n\r\n");
    else if (strncmp(path, "/to-other", 9) == 0)
        snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: http://localhost:%u/ok\r\n\r\n", s->port);
    else if (strncmp(path, "/to-file", 8) == 0)
        snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n");
    else if (strncmp(path, "/large", 6) == 0) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n");
    else if (strncmp(path, "/endless", 8) == 0) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\n\r\n");
    else if (strncmp(path, "/silent", 7) == 0) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    else snprintf(head, sizeof head, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    ssize_t n = write(fd, head, strlen(head));
    if (strncmp(path, "/endless", 8) == 0)
        while (n > 0) n = send(fd, head, sizeof head, MSG_NOSIGNAL);
    if (strncmp(path, "/silent", 7) == 0) n = read(fd, head, sizeof head); /* until the client has gone */
    (void)n;
}

static void *serve(void *user)
{
    server *s = user;
    for (int fd; (fd = accept(s->fd, NULL, NULL)) >= 0; close(fd)) {
        char request[2048] = {0}, *path;
        size_t n = 0;
        atomic_fetch_add(&s->n_seen, 1);
        while (n + 1 < sizeof request && !strstr(request, "\r\n\r\n")) {
            const ssize_t got = read(fd, request + n, sizeof request - 1 - n);
            if (got <= 0) break;
            n += (size_t)got;
        }
        path = strchr(request, ' ');
        if (path) answer(fd, s, path + 1);
    }
    return NULL;
}

static void start(server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    *s = (server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(s->fd >= 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &n), 0);
    s->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end(server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
}

/* ---- Tests ----------------------------------------------------------------------------------------------------- */

static bool all(const struct sockaddr *address)
{
    (void)address;
    return true;
}

/* Fetches path from the host under which the server is known here. sentence NULL: it has to arrive. */
static void want(const server *s, const char *hosts, const char *url_host, const char *path, remote_settings set,
                 const char *sentence)
{
    char url[1024], list[1024], why[160] = "";
    size_t n = 0;
    snprintf(url, sizeof url, "http://%s:%u%s", url_host, s->port, path);
    snprintf(list, sizeof list, "%s:%u", hosts, s->port);
    set.hosts = list;
    set.plain = true;
    if (!set.max_bytes) set.max_bytes = 1000;
    if (!set.milliseconds) set.milliseconds = 600000;
    uint8_t *data = remote_get(url, &set, &n, why);
    if (!sentence && (!data || n != 7 || memcmp(data, "picture", 7))) fail_msg("%s: '%s'", url, why);
    if (sentence && (data || !strstr(why, sentence))) fail_msg("%s: '%s' is not '%s'", url, why, sentence);
    free(data);
}

static void fetches_what_the_list_allows(void **state)
{
    (void)state;
    const remote_settings open = {.may_reach = all};
    server s;
    if (!remote_possible()) skip();
    start(&s);
    want(&s, "127.0.0.1", "127.0.0.1", "/ok", open, NULL);
    want(&s, "a.example, LOCALHOST", "localhost", "/ok", open, NULL);
    want(&s, "127.0.0.1", "127.0.0.1", "/to-ok", open, NULL);
    want(&s, "127.0.0.1", "127.0.0.1", "/missing", open, "with status 404");
    want(&s, "127.0.0.1", "127.0.0.1", "/empty", open, "without bytes");
    want(&s, "127.0.0.1", "127.0.0.1", "/loop", open, "with status 302");
    const int before = atomic_load(&s.n_seen);
    want(&s, "a.example", "127.0.0.1", "/ok", open, "from that host");
    want(&s, "*.0.0.1.x", "127.0.0.1", "/ok", open, "from that host");
    want(&s, "127.0.0.1", "user@127.0.0.1", "/ok", open, "user name");
    assert_int_equal(atomic_load(&s.n_seen), before);
    want(&s, "127.0.0.1", "127.0.0.1", "/to-other", open, "that host");
    want(&s, "127.0.0.1", "127.0.0.1", "/to-file", open, "malformed");
    want(&s, "127.0.0.1,localhost", "127.0.0.1", "/to-other", open, "that host"); /* the port belongs to the second alone */
    assert_int_equal(atomic_load(&s.n_seen), before + 2);
    end(&s);
}

static void keeps_its_limits(void **state)
{
    (void)state;
    server s;
    if (!remote_possible()) skip();
    start(&s);
    want(&s, "127.0.0.1", "127.0.0.1", "/large", (remote_settings){.may_reach = all}, "more than 1000 bytes");
    want(&s, "127.0.0.1", "127.0.0.1", "/endless", (remote_settings){.may_reach = all}, "more than 1000 bytes");
    want(&s, "127.0.0.1", "127.0.0.1", "/silent", (remote_settings){.may_reach = all, .milliseconds = 100}, "in 100 ms");
    end(&s);
}

/* The name may resolve to anything: what counts is the address of the connection. */
static void never_connects_to_private_addresses(void **state)
{
    (void)state;
    server s;
    if (!remote_possible()) skip();
    start(&s);
    static const char *const names[] = {"127.0.0.1", "localhost", "0x7f.1", "2130706433", "0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char hosts[512];
        /* curl writes numbers as addresses before it looks for them in the list */
        snprintf(hosts, sizeof hosts, "%s:%u,127.0.0.1:%u,0.0.0.0", names[i], s.port, s.port);
        want(&s, hosts, names[i], "/ok", (remote_settings){0}, "an address that this server does not connect to");
    }
    assert_int_equal(atomic_load(&s.n_seen), 0);
    end(&s);
}

static void knows_public_addresses(void **state)
{
    (void)state;
    static const char *const open[] = {"1.1.1.1", "8.8.8.8", "100.63.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.255",
                                       "2606:4700::1", "2a00::1", "2001:200::1"};
    static const char *const closed[] = {"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.255.0.1",
                                         "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1",
                                         "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7",
                                         "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1",
                                         "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1",
                                         "2001::1", "2001:db8::1", "2002:808:808::1", "3fff::1", "fc00::1", "fd12::1",
                                         "fe80::1", "fec0::1", "ff02::1"};
    for (size_t i = 0; i < sizeof open / sizeof *open + sizeof closed / sizeof *closed; i++) {
        const bool want = i < sizeof open / sizeof *open;
        const char *text = want ? open[i] : closed[i - sizeof open / sizeof *open];
        struct sockaddr_in in = {.sin_family = AF_INET};
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
        const bool six = strchr(text, ':') != NULL;
        assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, text, six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr), 1);
        if (remote_is_public(six ? (struct sockaddr *)&in6 : (struct sockaddr *)&in) != want) fail_msg("%s", text);
    }
    assert_false(remote_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}

static void reads_lists_of_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a.example,*.b.example", " a.example:8443 , b ", "1.2.3.4:80"};
    static const char *const bad[] = {"", " ,", "*", "*.", "a b/c", "https://a", "a:0", "a:99999", "a:1234567", ":80", "a/b",
                                      "[::1]"};
    char word[64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(remote_check_hosts(good[i], word));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (remote_check_hosts(bad[i], word)) fail_msg("'%s' is a list", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_public_addresses), cmocka_unit_test(reads_lists_of_hosts),
        cmocka_unit_test(fetches_what_the_list_allows), cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(never_connects_to_private_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
