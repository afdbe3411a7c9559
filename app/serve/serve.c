/* serve.c - aerie serve: the options that are its own, keys, the models, and then the life of the server (listen.c). */
#define _POSIX_C_SOURCE 200809L
#include "serve/http/server.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "serve/http/connections.h"
#include "serve/dialects/handlers.h"

/* ---- The command ---------------------------------------------------------------------------------------------------- */

static int check_options(serve_server *server)
{
    const char *scope = server->o->prefix_scope;
    if (scope && strcmp(scope, "key") && strcmp(scope, "all"))
        return app_error(APP_USAGE, "--prefix-scope takes key or all; found '%s'", scope);
    const char *format = server->o->reasoning_format, *folder = server->o->slot_save_path;
    struct stat there;
    if (folder && (stat(folder, &there) || (!S_ISDIR(there.st_mode) && (errno = ENOTDIR))))
        return app_error(APP_FAILED, "--slot-save-path %s: %s", folder, strerror(errno));
    if (format) server->keep_reasoning = strcmp(format, "none") == 0;
    if (format && !server->keep_reasoning && strcmp(format, "auto") && strcmp(format, "deepseek"))
        return app_error(APP_USAGE, "--reasoning-format takes none, auto or deepseek; found '%s'", format);
    return APP_DONE;
}

/* What a process does that is not the first of several which run one model (--machines): it has no clients, and computes its
 * part until the first process ends. */
static int follow(const serve_models *models, const app_options *options)
{
    app_options own = *options;
    app_models loaded;
    uint32_t rank;
    if (!options->machines) return APP_DONE;
    if (models->n != 1) return app_error(APP_USAGE, "--machines runs one model; %zu are given", models->n);
    own.model = models->items[0].path;
    return aerie_machines_started(&rank) && rank ? app_models_load(&loaded, &own, false) : APP_DONE;
}

int app_serve(const app_options *options)
{
    serve_models models = {0};
    serve_connections connections = {0};
    serve_server server = {
        .options = options, .o = &options->serve, .models = &models, .connections = &connections, .started = app_now()};
    const uint32_t n_work = options->serve.n_threads_http ? options->serve.n_threads_http : options->n_threads;
    int bad = check_options(&server);
    if (bad) return bad;
    app_note_times();
    if (server.o->slot_save_path) serve_slots_clean(server.o->slot_save_path);
    app_json_watch(); /* before there are threads */
    json_object_seed(0);
    serve_memory_create(&server.memory, server.o->max_memory);
    pthread_mutex_init(&connections.lock, NULL);
    pthread_mutex_init(&server.notes.lock, NULL);
    sem_init(&server.work, 0, n_work ? n_work : 1);
    sem_init(&server.large_work, 0, n_work > 2 ? n_work / 2 : 1);
    app_log_start();
    connections.most = serve_connections_most(server.o->max_connections);
    connections.most_per_address =
        server.o->max_per_address == UINT32_MAX ? (connections.most + 1) / 2 : server.o->max_per_address;
    bad = serve_models_create(&models, &server);
    if (!bad) bad = follow(&models, options);
    if (!bad) bad = serve_keys_read(&server.keys, server.o);
    if (!bad) bad = serve_http_run(&server);
    serve_models_free(&models);
    serve_keys_free(&server.keys);
    sem_destroy(&server.work);
    pthread_mutex_destroy(&server.notes.lock);
    sem_destroy(&server.large_work);
    pthread_mutex_destroy(&connections.lock);
    app_log_flush(SERVE_LOG_SECONDS);
    return bad;
}
