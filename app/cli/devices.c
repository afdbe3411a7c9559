/* devices.c - --device, -ngl, --tensor-split and --list-devices: which devices run the model. Asks the library's internals
 * (device/device.h), because aerie.h does not list devices. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "device/device.h"

/* Resolves -ngl: how many layers may be on the device; 0: none, UINT32_MAX: all. */
static int settle_layers(const app_options *options, uint32_t *n_layers)
{
    const char *text = options->gpu_layers;
    char *end;
    *n_layers = UINT32_MAX;
    if (!text || strcmp(text, "auto") == 0 || strcmp(text, "all") == 0) return APP_DONE;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < -1)
        return app_error(APP_USAGE, "-ngl takes a whole number, auto or all; found '%s'", text);
    if (n >= 0) *n_layers = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return APP_DONE;
}

/* Resolves -ts: numbers separated by commas, or by slashes as in llama.cpp. */
static int settle_shares(app_options *options)
{
    static float shares[AE_MAX_DEVICES]; /* model_params points to it; a process has only one split */
    const char *at = options->tensor_split;
    char *end;
    size_t n = 0;
    for (; at; at = *end ? end + 1 : NULL) {
        errno = 0;
        const float share = strtof(at, &end);
        if (end == at || errno || (*end && *end != ',' && *end != '/') || !(share >= 0 && share < 1e30f))
            return app_error(APP_USAGE, "--tensor-split takes numbers from 0 on with commas between, such as 3,1; found '%s'",
                             options->tensor_split);
        if (n == AE_MAX_DEVICES)
            return app_error(APP_USAGE, "--tensor-split has more than %d numbers; a model can use at most %d devices",
                             AE_MAX_DEVICES, AE_MAX_DEVICES);
        shares[n++] = share;
    }
    options->model_params.tensor_split = n ? shares : NULL;
    options->model_params.n_tensor_split = n;
    return APP_DONE;
}

/* Checks that each device of the list exists. */
static int check_names(const char *names)
{
    aerie_error error = {0};
    char name[16];
    for (const char *at = names;; at = strchr(at, ',') + 1) {
        const size_t n = strcspn(at, ",");
        if (!n) return app_error(APP_USAGE, "--device has an empty name in '%s'; --list-devices lists devices", names);
        if (n >= sizeof name) return app_error(APP_USAGE, "there is no device '%.*s'; --list-devices lists them", (int)n, at);
        memcpy(name, at, n);
        name[n] = '\0';
        if (ae_device_check(name, &error) != AERIE_OK) return app_error(APP_USAGE, "%s", error.text);
        if (!at[n]) return APP_DONE;
    }
}

int app_device_settle(app_options *options)
{
    static char names[256]; /* model_params points to it; a process has only one list */
    const char *given = options->device;
    uint32_t n_layers;
    int bad = settle_layers(options, &n_layers);
    if (!bad) bad = settle_shares(options);
    if (bad) return bad;
    if (options->cpu_moe) options->model_params.n_cpu_moe = UINT32_MAX;
    options->model_params.placements = options->placements.items;
    options->model_params.n_placements = options->placements.n;
    if (given && !*given) return app_error(APP_USAGE, "--device needs the name of a device; --list-devices lists them");
    if (!n_layers || (given && strcmp(given, "none") == 0)) given = "cpu"; /* llama.cpp's words for it */
    if (!given || strcmp(given, "cpu") == 0) { /* nothing to share out */
        options->model_params.tensor_split = NULL;
        options->model_params.n_tensor_split = 0;
    }
    if (!given) {
        const char *said = getenv("AERIE_BACKEND");
        if ((options->gpu_layers || options->placements.n) && !options->quiet && !(said && *said))
            app_note("%s has no effect without --device: the model runs on the CPU", options->gpu_layers ? "-ngl" : "-ot");
        return APP_DONE;
    }
    if (strlen(given) >= sizeof names) return app_error(APP_USAGE, "--device has a list of %zu bytes", strlen(given));
    for (size_t i = 0; i <= strlen(given); i++) names[i] = (char)tolower((unsigned char)given[i]); /* llama.cpp: CUDA0 */
    bad = check_names(names);
    if (bad) return bad;
    options->model_params.backend = names;
    if (n_layers && n_layers < UINT32_MAX) options->model_params.n_gpu_layers = n_layers;
    return APP_DONE;
}

int app_list_devices(void)
{
    static ae_device_info devices[AE_DEVICES_MAX];
    const uint32_t n = ae_device_list(devices, AE_DEVICES_MAX);
    char free_text[32], total_text[32];
    for (uint32_t i = 0; i < n; i++) {
        const ae_device_info *d = &devices[i];
        if (!d->usable) app_print("%-6s cannot be used: %s\n", d->name, d->text);
        else if (!d->n_total) app_print("%-6s %s\n", d->name, d->text);
        else
            app_print("%-6s %s; %s of %s free\n", d->name, d->text, app_bytes(free_text, d->n_free),
                      app_bytes(total_text, d->n_total));
    }
    return APP_DONE;
}

bool app_is_on_gpu(const aerie_model_info *info)
{
    const char *name = info->cpu_level; /* the backend's name instead of a level */
    return strncmp(name, "cuda", 4) == 0 || strncmp(name, "vulkan", 6) == 0 || strcmp(name, "emu") == 0;
}

bool app_device_check(const char *name, aerie_error *error)
{
    return ae_device_check(name, error) == AERIE_OK;
}

const char *app_gpu_drivers(void)
{
    return ae_device_drivers();
}
