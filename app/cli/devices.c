/* devices.c - --device, -ngl and --list-devices: which device runs the model. What devices there are is known to the library's
 * internals alone (device/device.h). */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "device/device.h"

/* -ngl: whether layers may lie on a GPU. */
static int settle_layers(const app_options *options, bool *some)
{
    const char *text = options->gpu_layers;
    char *end;
    *some = true;
    if (!text || strcmp(text, "auto") == 0 || strcmp(text, "all") == 0) return APP_DONE;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < -1)
        return app_error(APP_USAGE, "-ngl takes a whole number, auto or all; found '%s'", text);
    *some = n != 0;
    return APP_DONE;
}

int app_device_settle(app_options *options)
{
    static char name[16]; /* model_params points to it; a process has one device */
    const char *given = options->device;
    bool some;
    aerie_error error = {0};
    const int bad = settle_layers(options, &some);
    if (bad) return bad;
    if (given && !*given) return app_error(APP_USAGE, "--device needs the name of a device; --list-devices lists them");
    if (given && strchr(given, ','))
        return app_error(APP_USAGE, "--device takes one device: aerie runs a model on one; found '%s'", given);
    if (!some || (given && strcmp(given, "none") == 0)) given = "cpu"; /* llama.cpp's words for it */
    if (!given) {
        const char *said = getenv("AERIE_BACKEND");
        if (options->gpu_layers && !options->quiet && !(said && *said))
            app_note("-ngl has no effect without --device: the model runs on the processor");
        return APP_DONE;
    }
    if (strlen(given) >= sizeof name)
        return app_error(APP_USAGE, "there is no device '%s'; --list-devices lists them", given);
    for (size_t i = 0; i <= strlen(given); i++) name[i] = (char)tolower((unsigned char)given[i]); /* llama.cpp: CUDA0 */
    if (ae_device_check(name, &error) != AERIE_OK) return app_error(APP_USAGE, "%s", error.text);
    options->model_params.backend = name;
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
    const char *name = info->cpu_level; /* the backend's, instead of a level */
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
