/* metrics.c - implements metrics.h. */
#include "serve/metrics.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "serve/models.h"

static const double short_bounds[SERVE_N_LATENCIES - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                                           0.15,  0.2,    0.3,   0.5,  1,     2.5,  10};
static const double long_bounds[SERVE_N_LATENCIES - 1] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2.5,
                                                          5,    10,    30,   60,  120,  300, 600};

static size_t bucket(const double *bounds, double seconds)
{
    size_t i = 0;
    while (i < SERVE_N_LATENCIES - 1 && seconds > bounds[i]) i++;
    return i;
}

void serve_latency_count(uint32_t *counts, double seconds)
{
    counts[bucket(short_bounds, seconds)]++;
}

static void observe(serve_histogram *h, double seconds)
{
    h->counts[bucket(long_bounds, seconds)]++;
    h->sum += seconds;
}

void serve_figures_add(serve_figures *f, const serve_choice *c)
{
    const aerie_stats *s = &c->stats;
    f->n_prompt += s->n_prompt;
    f->n_cached += s->n_cached;
    f->n_generated += s->n_generated;
    f->n_passes += s->n_passes;
    f->n_preempted += s->n_preempted;
    f->n_drafts += s->tried_at[0];
    f->n_drafted += s->n_drafted;
    f->n_accepted += s->n_accepted;
    for (size_t i = 0; i < AERIE_MAX_DRAFT; i++) {
        f->accepted_at[i] += s->accepted_at[i];
        f->drafted_at[i] += s->drafted_at[i];
        f->tried_at[i] += s->tried_at[i];
    }
    f->prompt_seconds += s->prompt_seconds;
    f->decode_seconds += s->decode_seconds;
    if (s->error.status != AERIE_OK || s->stop == AERIE_STOP_NONE) f->n_errors++;
    else if (s->stop == AERIE_STOP_CALLER) f->n_aborted++;
    else if (s->stop == AERIE_STOP_LENGTH || s->stop == AERIE_STOP_CONTEXT) f->n_length++;
    else f->n_stopped++;
    if ((uint64_t)s->n_prompt + s->n_generated > f->n_most) f->n_most = (uint64_t)s->n_prompt + s->n_generated;
    if (c->first_token > 0) observe(&f->first_token, c->first_token - c->job->submitted);
    observe(&f->whole, app_now() - c->job->submitted);
    for (size_t i = 0; i < SERVE_N_LATENCIES; i++) f->between.counts[i] += c->latencies[i];
    if (c->last_token > c->first_token) f->between.sum += c->last_token - c->first_token;
}

/* ---- The text ------------------------------------------------------------------------------------------------- */

/* A model's figures at one moment. */
typedef struct scene {
    const char *name;
    serve_figures f;
    uint32_t n_running, n_waiting;
    bool loaded;
} scene;

typedef struct page {
    app_text text;
    bool failed;
    const scene *scenes; /* [n] */
    size_t n;
} page;

static void put(page *p, const char *format, ...) APP_PRINTF(2, 3);
static void put(page *p, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line || !app_text_add(&p->text, line, (size_t)n)) p->failed = true;
}

/* A name as the value of a label. */
static void put_label(page *p, const char *name)
{
    put(p, "model_name=\"");
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') put(p, "\\%c", *name);
        else if (*name == '\n') put(p, "\\n");
        else put(p, "%c", *name);
    }
    put(p, "\"");
}

static void head(page *p, const char *name, const char *type, const char *help)
{
    put(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

typedef double figure(const scene *s);

static void table(page *p, const char *name, const char *type, const char *help, figure *value)
{
    head(p, name, type, help);
    for (size_t i = 0; i < p->n; i++) {
        put(p, "%s{", name);
        put_label(p, p->scenes[i].name);
        put(p, "} %.10g\n", value(&p->scenes[i]));
    }
}

static void by_depth(page *p, const char *name, const char *help, size_t offset)
{
    head(p, name, "counter", help);
    for (size_t i = 0; i < p->n; i++) {
        const uint64_t *at = (const uint64_t *)(const void *)((const char *)&p->scenes[i].f + offset);
        for (size_t k = 0; k < AERIE_MAX_DRAFT; k++) {
            if (!p->scenes[i].f.drafted_at[k]) continue;
            put(p, "%s{", name);
            put_label(p, p->scenes[i].name);
            put(p, ",position=\"%zu\"} %llu\n", k, (unsigned long long)at[k]);
        }
    }
}

static void by_reason(page *p)
{
    static const char name[] = "vllm:request_success_total";
    head(p, name, "counter", "Answers by how they ended.");
    for (size_t i = 0; i < p->n; i++) {
        const serve_figures *f = &p->scenes[i].f;
        const struct {
            const char *reason;
            uint64_t n;
        } rows[] = {{"stop", f->n_stopped}, {"length", f->n_length}, {"abort", f->n_aborted}, {"error", f->n_errors}};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            put(p, "%s{", name);
            put_label(p, p->scenes[i].name);
            put(p, ",finished_reason=\"%s\"} %llu\n", rows[k].reason, (unsigned long long)rows[k].n);
        }
    }
}

static void histogram(page *p, const char *name, const char *help, const double *bounds, size_t offset)
{
    head(p, name, "histogram", help);
    for (size_t i = 0; i < p->n; i++) {
        const serve_histogram *h = (const void *)((const char *)&p->scenes[i].f + offset);
        uint64_t n = 0;
        for (size_t k = 0; k < SERVE_N_LATENCIES; k++) {
            char bound[32] = "+Inf";
            n += h->counts[k];
            if (k < SERVE_N_LATENCIES - 1) snprintf(bound, sizeof bound, "%g", bounds[k]);
            put(p, "%s_bucket{", name);
            put_label(p, p->scenes[i].name);
            put(p, ",le=\"%s\"} %llu\n", bound, (unsigned long long)n);
        }
        put(p, "%s_sum{", name);
        put_label(p, p->scenes[i].name);
        put(p, "} %.10g\n%s_count{", h->sum, name);
        put_label(p, p->scenes[i].name);
        put(p, "} %llu\n", (unsigned long long)n);
    }
}

static double n_running(const scene *s)
{
    return s->n_running;
}
static double n_waiting(const scene *s)
{
    return s->n_waiting;
}
static double is_loaded(const scene *s)
{
    return s->loaded;
}
static double n_prompt(const scene *s)
{
    return (double)s->f.n_prompt;
}
static double n_processed(const scene *s)
{
    return (double)(s->f.n_prompt - s->f.n_cached);
}
static double n_cached(const scene *s)
{
    return (double)s->f.n_cached;
}
static double n_generated(const scene *s)
{
    return (double)s->f.n_generated;
}
static double n_preempted(const scene *s)
{
    return (double)s->f.n_preempted;
}
static double n_drafts(const scene *s)
{
    return (double)s->f.n_drafts;
}
static double n_drafted(const scene *s)
{
    return (double)s->f.n_drafted;
}
static double n_accepted(const scene *s)
{
    return (double)s->f.n_accepted;
}
static double n_passes(const scene *s)
{
    return (double)s->f.n_passes;
}
static double prompt_seconds(const scene *s)
{
    return s->f.prompt_seconds;
}
static double decode_seconds(const scene *s)
{
    return s->f.decode_seconds;
}
static double prompt_rate(const scene *s)
{
    return app_rate(n_processed(s), s->f.prompt_seconds);
}
static double decode_rate(const scene *s)
{
    return app_rate((double)s->f.n_generated, s->f.decode_seconds);
}
static double n_most(const scene *s)
{
    return (double)s->f.n_most;
}

static void write_all(page *p)
{
    table(p, "vllm:num_requests_running", "gauge", "Answers that are being generated.", n_running);
    table(p, "vllm:num_requests_waiting", "gauge", "Requests that wait for a place.", n_waiting);
    table(p, "aerie:model_loaded", "gauge", "Whether the model is loaded.", is_loaded);
    table(p, "vllm:prompt_tokens_total", "counter", "Prompt tokens, cached ones included.", n_prompt);
    table(p, "vllm:generation_tokens_total", "counter", "Generated tokens.", n_generated);
    table(p, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.", n_prompt);
    table(p, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", n_cached);
    table(p, "vllm:num_preemptions_total", "counter", "Sequences that gave up their KV pages for a while.", n_preempted);
    by_reason(p);
    histogram(p, "vllm:time_to_first_token_seconds", "Seconds from submission to the first token.", long_bounds,
              offsetof(serve_figures, first_token));
    histogram(p, "vllm:e2e_request_latency_seconds", "Seconds from submission to the end.", long_bounds,
              offsetof(serve_figures, whole));
    histogram(p, "vllm:inter_token_latency_seconds", "Seconds from token to token.", short_bounds,
              offsetof(serve_figures, between));
    table(p, "vllm:spec_decode_num_drafts_total", "counter", "Drafts verified.", n_drafts);
    table(p, "vllm:spec_decode_num_draft_tokens_total", "counter", "Drafted tokens verified.", n_drafted);
    table(p, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.", n_accepted);
    by_depth(p, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafted tokens accepted, by depth from 0.",
             offsetof(serve_figures, accepted_at));
    by_depth(p, "aerie:spec_decode_num_tried_per_pos_total", "Passes whose accepted path came to a draft of this depth.",
             offsetof(serve_figures, tried_at));
    table(p, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens processed.", n_processed);
    table(p, "llamacpp:prompt_seconds_total", "counter", "Seconds of prompt processing.", prompt_seconds);
    table(p, "llamacpp:tokens_predicted_total", "counter", "Generated tokens.", n_generated);
    table(p, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds of generation, of all answers.", decode_seconds);
    table(p, "llamacpp:n_decode_total", "counter", "Passes after the prompt, of all answers.", n_passes);
    table(p, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens per second and answer.", prompt_rate);
    table(p, "llamacpp:predicted_tokens_seconds", "gauge", "Generated tokens per second and answer.", decode_rate);
    table(p, "llamacpp:requests_processing", "gauge", "Answers that are being generated.", n_running);
    table(p, "llamacpp:requests_deferred", "gauge", "Requests that wait for a place.", n_waiting);
    table(p, "llamacpp:n_tokens_max", "counter", "Tokens of the longest sequence.", n_most);
}

void serve_get_metrics(serve_call *call)
{
    serve_models *models = call->server->models;
    scene *scenes = calloc(models->n + 1, sizeof *scenes);
    page p = {.scenes = scenes, .n = models->n, .failed = !scenes};
    for (size_t i = 0; scenes && i < models->n; i++) {
        serve_model *m = &models->items[i];
        scenes[i].loaded = serve_model_state(models, m) == SERVE_READY;
        scenes[i].name = m->name;
        pthread_mutex_lock(&m->lock);
        scenes[i].f = m->figures;
        scenes[i].n_running = m->n_active < m->n_seqs ? m->n_active : m->n_seqs;
        scenes[i].n_waiting = m->n_active - scenes[i].n_running;
        pthread_mutex_unlock(&m->lock);
    }
    if (!p.failed) write_all(&p);
    free(scenes);
    if (p.failed) {
        app_text_free(&p.text);
        serve_reply_json(call, 503, NULL);
        return;
    }
    serve_reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", &p.text);
}
