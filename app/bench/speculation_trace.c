/* speculation_trace.c - aerie bench spec --trace: writes a line of JSON for each pass of each drafter's session.
 * Owns the file. Names are those of aerie_pass (aerie_measure.h), times are in seconds; n-gram and network drafts have separate
 * names. Includes passes that put prompts into the caches, since the controller learns from them, too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_measure.h"
#include "bench/speculation.h"

typedef struct bench_trace {
    bench_spec *bench;
    size_t i_drafter;
    bool failed; /* a line is not whole */
} bench_trace;

int bench_trace_open(bench_spec *b)
{
    const char *path = b->options.bench.trace;
    if (!path) return APP_DONE;
    b->traces = calloc(b->n_drafters, sizeof *b->traces);
    if (!b->traces) return app_error_memory("the trace");
    b->trace = fopen(path, "w");
    return b->trace ? APP_DONE : app_error(APP_FAILED, "cannot write '%s': %s", path, strerror(errno));
}

static json_t *line_of(const bench_trace *t, const aerie_pass *p)
{
    const bench_spec *b = t->bench;
    const bench_drafter *d = &b->drafters[t->i_drafter];
    return json_pack("{ss ss si sb ss sf si sI si si si si sb}", "drafter", d->name, "file", d->file, "n_max", (int)d->n_max,
                     "is_tree", d->tree != AERIE_TREE_OFF,
                     "group", b->group ? b->group : "", "temperature", (double)b->temperature, "np", (int)b->n_seqs,
                     "number", (json_int_t)p->number, "n_sequences", (int)p->n_sequences, "n_drawing", (int)p->n_drawing,
                     "n_rows", (int)p->n_rows, "n_context", (int)p->n_context, "prompts", (int)p->prompts);
}

static json_t *drafts_of(const aerie_pass *p)
{
    return json_pack("{si si si si si si si si si}", "network", (int)p->network, "n_asked", (int)p->n_asked,
                     "n_levels", (int)p->n_levels, "n_proposed", (int)p->n_proposed,
                     "n_verified_ngram", (int)p->n_verified[0], "n_verified_network", (int)p->n_verified[1],
                     "n_accepted_ngram", (int)p->n_accepted[0], "n_accepted_network", (int)p->n_accepted[1],
                     "n_tokens", (int)p->n_tokens);
}

static json_t *times_of(const aerie_pass *p)
{
    return json_pack("{sf sf sf sf sf sf sf sb sb}", "plain_seconds", p->plain_seconds,
                     "expected_seconds", p->expected_seconds, "expected_tokens", p->expected_tokens,
                     "target_seconds", p->target_seconds, "draft_seconds", p->draft_seconds, "seconds", p->seconds,
                     "budget", p->budget, "measures_plain", (int)p->measures_plain, "explores", (int)p->explores);
}

static void on_pass(void *user, const aerie_pass *p)
{
    bench_trace *t = user;
    json_t *line = line_of(t, p), *drafts = drafts_of(p), *times = times_of(p);
    const bool whole = line && drafts && times && json_object_update(line, drafts) == 0 && json_object_update(line, times) == 0;
    if (!whole || json_dumpf(line, t->bench->trace, JSON_COMPACT | JSON_REAL_PRECISION(9))) t->failed = true;
    putc('\n', t->bench->trace); /* closing the file reports failed writes */
    json_decref(line), json_decref(drafts), json_decref(times);
}

int bench_trace_session(bench_spec *b, size_t i)
{
    aerie_error error = {0};
    if (!b->trace) return APP_DONE;
    b->traces[i] = (bench_trace){b, i, b->traces[i].failed};
    return app_report(APP_WORKING, aerie_session_watch_passes(b->drafted[i], on_pass, &b->traces[i], &error), &error);
}

int bench_trace_close(bench_spec *b)
{
    bool failed = false;
    if (!b->trace) return APP_DONE;
    for (size_t i = 0; i < b->n_drafters; i++) failed |= b->traces[i].failed;
    failed |= ferror(b->trace) != 0;
    failed |= fclose(b->trace) != 0;
    b->trace = NULL;
    free(b->traces);
    b->traces = NULL;
    return failed ? app_error(APP_FAILED, "cannot write all of '%s': %s", b->options.bench.trace, strerror(errno)) : APP_DONE;
}
