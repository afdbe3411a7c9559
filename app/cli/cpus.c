/* cpus.c - chooses the CPUs that the program runs on, and the number of its threads. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

#include "base/os.h" /* affinity and limits of this process, which aerie.h does not report */

/* Reads a mask of up to AE_MAX_CPUS bits in hex, with or without 0x; bit i sets wanted[i]. */
static bool parse_mask(const char *text, bool wanted[AE_MAX_CPUS])
{
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) text += 2;
    const size_t n = strlen(text);
    if (n == 0 || n > AE_MAX_CPUS / 4) return false;
    for (size_t i = 0; i < n; i++) {
        const char digit[2] = {text[n - 1 - i], '\0'};
        if (!isxdigit((unsigned char)digit[0])) return false;
        const long bits = strtol(digit, NULL, 16);
        for (size_t k = 0; k < 4; k++) {
            if (bits >> k & 1) wanted[4 * i + k] = true;
        }
    }
    return true;
}

/* Reads "lo-hi", of which one number may be left out, or a single number, and sets wanted[lo..hi]. */
static bool parse_range(const char *text, bool wanted[AE_MAX_CPUS])
{
    unsigned long lo = 0, hi = AE_MAX_CPUS - 1;
    const char *p = text;
    char *end = NULL;
    if (isdigit((unsigned char)*p)) {
        lo = strtoul(p, &end, 10);
        p = end;
        if (*p == '\0') hi = lo;
    }
    if (*p == '-') {
        p++;
        if (isdigit((unsigned char)*p)) {
            hi = strtoul(p, &end, 10);
            p = end;
        }
    }
    if (!end || *p || lo > hi || hi >= AE_MAX_CPUS) return false;
    for (unsigned long i = lo; i <= hi; i++) wanted[i] = true;
    return true;
}

int app_cpus_settle(app_options *options)
{
    bool wanted[AE_MAX_CPUS] = {false};
    if (options->cpu_mask && !parse_mask(options->cpu_mask, wanted)) {
        return app_error(APP_USAGE, "--cpu-mask takes a number in hex, bit i for CPU i; found '%s'", options->cpu_mask);
    }
    if (options->cpu_range && !parse_range(options->cpu_range, wanted)) {
        return app_error(APP_USAGE, "--cpu-range takes numbers of CPUs, like 0-3; found '%s'", options->cpu_range);
    }
    if ((options->cpu_mask || options->cpu_range) && !ae_os_cpus_restrict(wanted)) {
        return app_error(APP_USAGE, "this process may use none of the requested CPUs (%s)",
                         options->cpu_mask ? options->cpu_mask : options->cpu_range);
    }
    ae_os_cpus cpus;
    ae_os_cpus_get(&cpus);
    const bool asked = options->n_threads > 0;
    char quota[64] = "no quota";
    if (cpus.quota > 0) snprintf(quota, sizeof quota, "a quota of %.2f CPUs", cpus.quota);
    if (!asked) options->n_threads = cpus.n_threads;
    else if (options->n_threads > cpus.n_allowed && cpus.n_allowed && !(options->command->bit & APP_DOCTOR))
        app_note("warning: -t %u is more threads than the %u CPU%s that this process may use, which slows all of them down; "
                 "-t 0 chooses", (unsigned)options->n_threads, (unsigned)cpus.n_allowed, app_plural(cpus.n_allowed));
    if (options->verbose) {
        app_note("threads: %u%s; CPUs allowed: %u, cores among them: %u, %s", (unsigned)options->n_threads,
                 asked ? " (requested)" : "", (unsigned)cpus.n_allowed, (unsigned)cpus.n_cores, quota);
    }
    return APP_DONE;
}
