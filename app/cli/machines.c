/* machines.c - --machines and related options: the processes that run a model together. The library connects them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "cli/commands.h"

#define MOST 64 /* processes of a group */

/* Reads --split: whole numbers separated by commas. */
static int settle_shares(const char *text, aerie_machines *m)
{
    static uint32_t shares[MOST]; /* model_params points to it; a process has only one group */
    const char *at = text;
    char *end;
    for (m->n_shares = 0; at; at = *end ? end + 1 : NULL) {
        errno = 0;
        const unsigned long share = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : (end = (char *)at, 0);
        if (end == at || errno || (*end && *end != ',') || share > 1000 || m->n_shares == MOST)
            return app_error(APP_USAGE,
                             "--split takes up to %d whole numbers from 0 to 1000, separated by commas, such as 3,2,2,1; found "
                             "'%s'", MOST, text);
        shares[m->n_shares++] = (uint32_t)share;
    }
    m->shares = shares;
    return APP_DONE;
}

/* Clears the options for files that only the first process reads and writes, so that the others need not have these files. */
static void keep_nothing(app_options *o)
{
    uint32_t rank = 0;
    if (!aerie_machines_started(&rank) || !rank) return;
    o->run.prompt_cache = NULL;
    o->run.prompt_cache_all = o->run.prompt_cache_ro = false;
    o->serve.slot_save_path = o->serve.cache_disk = NULL;
}

/* Reads "2x4": 2 stages of 4 processes each. n: the number of processes, of which the last stages may have one less; 0: 2 *
 * 4. */
static bool read_stages(const char *name, uint32_t n, aerie_machines *m)
{
    unsigned stages, each;
    int end = 0;
    if (sscanf(name, "%2ux%2u%n", &stages, &each, &end) != 2 || name[end] || strspn(name, "0123456789x") != strlen(name))
        return false;
    const uint32_t all = n ? n : stages * each;
    if (!stages || !each || all > MOST || all < stages || (all + stages - 1) / stages != each) return false;
    m->kind = AERIE_MACHINES_PIPELINE;
    m->n_stages = stages;
    return true;
}

uint32_t app_machines_n(const char *given)
{
    const char *colon = strchr(given, ':');
    char *end = NULL;
    unsigned stages, each;
    if (!colon) return sscanf(given, "%2ux%2u", &stages, &each) == 2 ? stages * each : 0;
    const unsigned long n = colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    return end && !*end && n <= MOST ? (uint32_t)n : 0;
}

int app_machines_settle(app_options *options)
{
    static aerie_machines machines; /* as the shares */
    const bool inspects = options->command->bit == APP_INSPECT;
    char name[16] = "";
    const char *given = options->machines, *colon = given ? strchr(given, ':') : NULL;
    const size_t n = colon ? (size_t)(colon - given) : given ? strlen(given) : 0;
    machines = aerie_machines_default();
    if (!given) {
        if (!options->split && !options->machines_insecure && !options->machines_verify) return APP_DONE;
        return app_error(APP_USAGE, "%s belongs to --machines, which is not given",
                         options->split ? "--split" : options->machines_insecure ? "--machines-insecure" : "--machines-verify");
    }
    if (n < sizeof name) memcpy(name, given, n);
    const uint32_t n_processes = inspects ? app_machines_n(given) : aerie_machines_started(NULL);
    const bool known = aerie_machines_kind_parse(name, &machines.kind) || read_stages(name, n_processes, &machines);
    if (!known || (colon && !inspects))
        return app_error(APP_USAGE, "--machines takes auto, split or pipeline%s, or stages x processes of each, as 2x3 for 5 "
                         "or 6 processes; found '%s'",
                         inspects ? ", with a number of processes as in split:4" : "", given);
    const int bad = settle_shares(options->split, &machines);
    if (bad) return bad;
    machines.insecure = options->machines_insecure;
    machines.verify = options->machines_verify;
    machines.limit = options->machines_limit;
    if (!inspects) keep_nothing(options);
    options->model_params.machines = &machines;
    return APP_DONE;
}
