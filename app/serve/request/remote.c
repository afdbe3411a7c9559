/* remote.c - implements remote.h with libcurl. */
#define _GNU_SOURCE
#include "serve/request/remote.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- Addresses -------------------------------------------------------------------------------------------------- */

/* Returns whether an IPv4 address is public: not among the special-purpose addresses (IANA's registry), and not multicast. */
static bool is_public_4(uint32_t a)
{
    static const struct {
        uint32_t prefix;
        int bits;
    } special[] = {{0x00000000, 8}, {0x0A000000, 8}, {0x64400000, 10}, {0x7F000000, 8}, {0xA9FE0000, 16}, {0xAC100000, 12},
                   {0xC0000000, 24}, {0xC0000200, 24}, {0xC0586300, 24}, {0xC0A80000, 16}, {0xC6120000, 15},
                   {0xC6336400, 24}, {0xCB007100, 24}, {0xE0000000, 3}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if ((a ^ special[i].prefix) >> (32 - special[i].bits) == 0) return false;
    return true;
}

/* Returns whether an IPv6 address is global unicast; false for addresses that contain an IPv4 address (Teredo, 6to4; NAT64 is
 * not global unicast) and for those reserved for documentation. */
static bool is_public_6(const uint8_t a[16])
{
    const uint32_t high = (uint32_t)a[0] << 24 | (uint32_t)a[1] << 16 | (uint32_t)a[2] << 8 | a[3];
    if (a[0] >> 5 != 1) return false;           /* 2000::/3 */
    if (high >> 9 == 0x20010000 >> 9) return false; /* 2001::/23 */
    if (high == 0x20010DB8) return false;
    if (high >> 16 == 0x2002) return false;
    return high >> 12 != 0x3FFF0;               /* 3fff::/20 */
}

bool remote_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return is_public_4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, address, sizeof in);
        return is_public_6(in.sin6_addr.s6_addr);
    }
    return false;
}

/* ---- Hosts ------------------------------------------------------------------------------------------------------ */

/* Returns the length of the next word of a list, which begins at *at; 0 at the end. */
static size_t next_host(const char **at)
{
    *at += strspn(*at, ", ");
    return strcspn(*at, ", ");
}

/* Returns the length of a word without its port. *port: 0 without one, -1 if it is invalid. */
static size_t split_port(const char *word, size_t n, long *port)
{
    size_t end = n;
    *port = 0;
    while (end && word[end - 1] >= '0' && word[end - 1] <= '9') end--;
    if (!end || word[end - 1] != ':') return n;
    *port = n - end >= 1 && n - end <= 5 ? strtol(word + end, NULL, 10) : -1;
    if (*port > 65535 || *port == 0) *port = -1;
    return end - 1;
}

bool remote_check_hosts(const char *hosts, char bad[64])
{
    size_t n, n_words = 0;
    for (const char *at = hosts; (n = next_host(&at)); at += n, n_words++) {
        long port;
        const size_t n_host = split_port(at, n, &port), star = n > 2 && at[0] == '*' && at[1] == '.' ? 2 : 0;
        bool ok = port >= 0 && n_host > star && n_host < 254;
        for (size_t i = star; ok && i < n_host; i++)
            ok = (at[i] >= 'a' && at[i] <= 'z') || (at[i] >= 'A' && at[i] <= 'Z') || (at[i] >= '0' && at[i] <= '9') ||
                 at[i] == '-' || at[i] == '.' || at[i] == '_';
        snprintf(bad, 64, "%.*s", (int)(n < 63 ? n : 63), at);
        if (!ok) return false;
    }
    bad[0] = n_words ? bad[0] : '\0';
    return n_words > 0;
}

/* Returns whether a list contains a host with this port. */
static bool has_host(const char *hosts, const char *host, long port, bool usual)
{
    size_t n, n_host = strlen(host);
    if (n_host && host[n_host - 1] == '.') n_host--;
    for (const char *at = hosts; (n = next_host(&at)); at += n) {
        long own;
        const size_t length = split_port(at, n, &own);
        if (own ? own != port : !usual) continue;
        if (length > 1 && at[0] == '*') { /* whole labels before it */
            const size_t rest = length - 1;
            if (n_host > rest && strncasecmp(host + n_host - rest, at + 1, rest) == 0) return true;
        } else if (length == n_host && strncasecmp(host, at, length) == 0) {
            return true;
        }
    }
    return false;
}

#ifndef APP_CURL

bool remote_possible(void)
{
    return false;
}

uint8_t *remote_get(const char *url, const remote_settings *settings, size_t *n, char why[160])
{
    (void)url, (void)settings, (void)n;
    snprintf(why, 160, "this aerie was built without libcurl");
    (void)has_host;
    return NULL;
}

#else

#include <curl/curl.h>
#include <unistd.h>

enum { MAX_URL = 4096, MAX_REDIRECTS = 3 };

bool remote_possible(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

typedef struct transfer {
    const remote_settings *settings;
    uint8_t *data;
    size_t n, capacity;
    double end;      /* of its time */
    bool private;    /* an address was refused */
    bool too_large, refused;
    char host[256];
} transfer;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

/* Opens every connection; the address that it checks is the one that is connected to. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    transfer *t = user;
    bool (*may)(const struct sockaddr *) = t->settings->may_reach ? t->settings->may_reach : remote_is_public;
    if (purpose != CURLSOCKTYPE_IPCXN || !may(&address->addr)) {
        t->private = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *user)
{
    transfer *t = user;
    n *= one;
    if (n > t->settings->max_bytes - t->n) {
        t->too_large = true;
        return 0;
    }
    if (t->n + n > t->capacity) {
        size_t capacity = t->capacity ? t->capacity * 2 : 65536;
        while (capacity < t->n + n) capacity *= 2;
        if (t->settings->may_grow && !t->settings->may_grow(t->settings->user, capacity - t->capacity)) {
            t->refused = true;
            return 0;
        }
        uint8_t *grown = realloc(t->data, capacity);
        if (!grown) {
            t->refused = true;
            return 0;
        }
        t->data = grown;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    return n;
}

static int on_progress(void *user, curl_off_t total, curl_off_t got, curl_off_t up, curl_off_t sent)
{
    transfer *t = user;
    (void)total, (void)got, (void)up, (void)sent;
    if (t->settings->may_grow && !t->settings->may_grow(t->settings->user, 0)) t->refused = true;
    return t->refused;
}

/* Parses a URL, and checks scheme, host and port. */
static bool check_url(CURLU *parts, transfer *t, const char *url, bool first, char why[160])
{
    char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
    bool ok = strlen(url) < MAX_URL && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
              curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (!ok) snprintf(why, 160, "the URL of an image is malformed or longer than %d characters", MAX_URL);
    if (ok && curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK)
        ok = false, snprintf(why, 160, "a URL with a user name is not fetched");
    const bool https = ok && strcmp(scheme, "https") == 0, http = ok && strcmp(scheme, "http") == 0;
    if (ok && !https && !(http && t->settings->plain))
        ok = false, snprintf(why, 160, "this server fetches images by https%s only", t->settings->plain ? " and http" : "");
    const long number = ok ? strtol(port, NULL, 10) : 0;
    if (ok && !has_host(t->settings->hosts, host, number, number == (https ? 443 : 80)))
        ok = false, snprintf(why, 160, "this server does not fetch images from that host; send a data: URL");
    if (ok && !first && strcasecmp(host, t->host))
        ok = false, snprintf(why, 160, "the image is behind a redirect to another host");
    if (ok) snprintf(t->host, sizeof t->host, "%s", host);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    return ok;
}

static void set_up(CURL *curl, CURLU *parts, transfer *t, struct curl_slist *headers)
{
    const double left = t->end - now();
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_CURLU, parts);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, t->settings->plain ? "http,https" : "https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left > 1 ? (long)left : 1L);
    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->settings->max_bytes);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "aerie");
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

/* Writes the reason why a transfer failed. */
static void say(const transfer *t, CURLcode rc, long code, char why[160])
{
    const char *host = t->host;
    if (t->refused) snprintf(why, 160, "the transfer of the image was given up");
    else if (t->private) snprintf(why, 160, "the host %.60s has an address that this server does not connect to", host);
    else if (t->too_large || rc == CURLE_FILESIZE_EXCEEDED)
        snprintf(why, 160, "the image at %.60s has more than %zu bytes", host, t->settings->max_bytes);
    else if (rc == CURLE_OPERATION_TIMEDOUT)
        snprintf(why, 160, "%.60s did not send the image in %ld ms", host, t->settings->milliseconds);
    else if (rc != CURLE_OK) snprintf(why, 160, "the image cannot be fetched from %.60s: %.60s", host, curl_easy_strerror(rc));
    else snprintf(why, 160, "%.60s answers the request for the image with status %ld", host, code);
}

/* Sends requests until there is no redirect. */
static bool run(CURL *curl, CURLU *parts, transfer *t, const char *url, struct curl_slist *headers, char why[160])
{
    char *next = NULL;
    bool done = false;
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        long code = 0;
        char *to = NULL;
        if (!check_url(parts, t, next ? next : url, i == 0, why)) break;
        set_up(curl, parts, t, headers);
        t->n = 0;
        const CURLcode rc = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
        curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &to);
        if (rc == CURLE_OK && code >= 301 && code <= 308 && to && i < MAX_REDIRECTS) {
            const bool leaves = strncasecmp(next ? next : url, "https:", 6) == 0 && strncasecmp(to, "https:", 6);
            free(next);
            next = strdup(to);
            if (next && !leaves) continue;
            snprintf(why, 160, "the image is behind a redirect that cannot be followed");
            break;
        }
        done = rc == CURLE_OK && code == 200;
        if (!done) say(t, rc, code, why);
        break;
    }
    free(next);
    return done;
}

uint8_t *remote_get(const char *url, const remote_settings *settings, size_t *n, char why[160])
{
    transfer t = {.settings = settings, .end = now() + (double)settings->milliseconds};
    CURL *curl = curl_easy_init();
    CURLU *parts = curl_url();
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: image/jpeg, image/png, image/webp");
    snprintf(why, 160, "there is not enough memory");
    const bool done = curl && parts && headers && run(curl, parts, &t, url, headers, why);
    curl_slist_free_all(headers);
    if (curl) curl_easy_cleanup(curl);
    if (parts) curl_url_cleanup(parts);
    if (!done || !t.data) {
        if (done) snprintf(why, 160, "%.60s sends an image without bytes", t.host);
        free(t.data);
        return NULL;
    }
    *n = t.n;
    return t.data;
}

#endif
