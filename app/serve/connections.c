/* connections.c - implements connections.h. */
#define _POSIX_C_SOURCE 200809L
#include "serve/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>

static void write_address(char out[48], const struct sockaddr *address)
{
    const char *text = NULL;
    if (address && address->sa_family == AF_INET)
        text = inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, out, 48);
    else if (address && address->sa_family == AF_INET6)
        text = inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, out, 48);
    if (!text) snprintf(out, 48, "unix");
}

serve_connection *serve_connection_open(serve_connections *all, int socket, const struct sockaddr *address)
{
    serve_connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->all = all;
    c->socket = socket;
    c->deadline = app_now() + SERVE_HEAD_SECONDS;
    write_address(c->address, address);
    pthread_mutex_lock(&all->lock);
    c->next = all->first;
    if (all->first) all->first->before = c;
    all->first = c;
    all->n++;
    pthread_mutex_unlock(&all->lock);
    return c;
}

void serve_connection_close(serve_connection *c)
{
    serve_connections *all = c->all;
    pthread_mutex_lock(&all->lock);
    if (c->before) c->before->next = c->next;
    else all->first = c->next;
    if (c->next) c->next->before = c->before;
    all->n--;
    pthread_mutex_unlock(&all->lock);
    free(c);
}

void serve_connection_deadline(serve_connection *c, double seconds)
{
    if (!c) return;
    pthread_mutex_lock(&c->all->lock);
    c->deadline = seconds > 0 ? app_now() + seconds : 0;
    pthread_mutex_unlock(&c->all->lock);
}

void serve_connections_check(serve_connections *all)
{
    const double now = app_now();
    pthread_mutex_lock(&all->lock); /* an open socket, since it is closed only after serve_connection_close */
    for (serve_connection *c = all->first; c; c = c->next) {
        if (!c->deadline || c->deadline > now) continue;
        shutdown(c->socket, SHUT_RDWR);
        c->deadline = 0;
    }
    pthread_mutex_unlock(&all->lock);
}
