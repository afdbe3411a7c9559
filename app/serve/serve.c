/* serve.c - the command aerie serve: its own options, keys, the models, and then the server (listen.c). */
#define _POSIX_C_SOURCE 200809L
#include "serve/http/server.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "serve/dialects/handlers.h"
#include "serve/request/remote.h"

/* ---- The command ---------------------------------------------------------------------------------------------------- */

static int check_folder(const char *option, const char *path, int rights)
{
    struct stat there;
    if (!path || (!stat(path, &there) && (S_ISDIR(there.st_mode) || (errno = ENOTDIR, false)) && !access(path, rights)))
        return APP_DONE;
    return app_error(APP_FAILED, "%s %s: %s; a folder is needed that this user may use", option, path, strerror(errno));
}

static int check_options(serve_server *server)
{
    const char *scope = server->o->prefix_scope;
    if (scope && strcmp(scope, "key") && strcmp(scope, "all"))
        return app_error(APP_USAGE, "--prefix-scope takes key or all; found '%s'", scope);
    const char *format = server->o->reasoning_format;
    int unusable = check_folder("--slot-save-path", server->o->slot_save_path, R_OK | X_OK);
    if (!unusable && server->o->cache_disk) {
        (void)mkdir(server->o->cache_disk, 0700); /* the check tells whether it is there */
        unusable = check_folder("--cache-disk", server->o->cache_disk, R_OK | W_OK | X_OK);
    }
    if (unusable) return unusable;
    const char *hosts = server->o->image_url_hosts;
    char bad[64];
    if (hosts && !remote_check_hosts(hosts, bad))
        return app_error(APP_USAGE, "--image-url-hosts takes names of hosts, as in 'a.example,*.b.example,c.example:8443'; "
                         "found '%s'", bad);
    if (server->o->image_url_http && !hosts) return app_error(APP_USAGE, "--image-url-http needs --image-url-hosts");
    if (hosts && !remote_possible())
        return app_error(APP_FAILED, "this aerie was built without libcurl, which --image-url-hosts needs: install it (Debian: "
                         "libcurl4-openssl-dev) and build again");
    if (format) server->keep_reasoning = strcmp(format, "none") == 0;
    if (format && !server->keep_reasoning && strcmp(format, "auto") && strcmp(format, "deepseek"))
        return app_error(APP_USAGE, "--reasoning-format takes none, auto or deepseek; found '%s'", format);
    return APP_DONE;
}

/* Runs a process other than the first of several that run one model (--machines): it has no clients, and computes its part
 * until the first process ends. */
static int follow(const serve_models *models, const app_options *options)
{
    app_options own = *options;
    app_models loaded;
    uint32_t rank;
    if (!options->machines) return APP_DONE;
    if (models->n != 1) return app_error(APP_USAGE, "--machines runs one model; %zu are given", models->n);
    own.model = models->items[0].path;
    return aerie_machines_started(&rank) && rank ? app_models_load(&loaded, &own, false, APP_NEED_MODEL) : APP_DONE;
}

static int prepare(serve_server *server)
{
    if (server->o->slot_save_path) serve_slots_clean(server->o->slot_save_path);
    const int bad = serve_models_create(server->models, server);
    return bad ? bad : follow(server->models, server->options);
}

static void start(serve_server *server)
{
    serve_models_start(server->models);
}

static void tick(serve_server *server)
{
    serve_models_sleep(server->models);
    serve_models_mend(server->models);
}

static bool stuck(serve_server *server)
{
    return serve_models_stuck(server->models);
}

static void stop(serve_server *server)
{
    serve_models_stop(server->models);
}

int app_serve(const app_options *options)
{
    serve_models models = {0};
    const serve_service service = {
        .routes = serve_routes, .n_routes = serve_n_routes, .start = start, .tick = tick, .stuck = stuck, .stop = stop};
    serve_server server = {
        .options = options, .o = &options->serve, .service = &service, .models = &models, .started = app_now()};
    int bad = check_options(&server);
    if (bad) return bad;
    bad = serve_run(&server, prepare);
    serve_models_free(&models);
    app_log_flush(SERVE_LOG_SECONDS);
    return bad;
}
