/* metrics.c - implements metrics.h. */
#include "serve/models/metrics.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http/connections.h"
#include "serve/models/models.h"

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
    f->n_parked += s->n_parked;
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

typedef enum figure {
    N_RUNNING,
    N_WAITING,
    IS_LOADED,
    KV_USE,
    N_PROMPT,
    N_PROCESSED,
    N_CACHED,
    N_GENERATED,
    N_PREEMPTED,
    N_PARKED,
    N_DRAFTS,
    N_DRAFTED,
    N_ACCEPTED,
    N_PASSES,
    PROMPT_SECONDS,
    DECODE_SECONDS,
    PROMPT_RATE,
    DECODE_RATE,
    N_MOST,
    N_CONVERSATIONS,
    CONVERSATIONS_RAM,
    CONVERSATIONS_DISK,
    N_RESTORED,
    N_RESTORED_TOKENS,
    N_DAMAGED,
    N_NOTED,
    N_FIGURES
} figure;

/* A model's figures at one moment. */
typedef struct scene {
    const char *name;
    serve_figures f;
    double at[N_FIGURES];
    uint32_t kv_page, kv_pages;
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

/* Writes a name as the value of a label. */
static void put_label(page *p, const char *name)
{
    put(p, "model_name=\"");
    for (size_t length, n = strlen(name); n; name += length, n -= length) {
        uint32_t code;
        length = app_utf8_char(name, n, &code);
        if (!length) put(p, "\\\\x%02x", (unsigned char)*name), length = 1; /* files may have any name, but the page is UTF-8 */
        else if (*name == '"' || *name == '\\') put(p, "\\%c", *name);
        else if (*name == '\n') put(p, "\\n");
        else put(p, "%.*s", (int)length, name);
    }
    put(p, "\"");
}

static void head(page *p, const char *name, const char *type, const char *help)
{
    put(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void table(page *p, const char *name, const char *type, const char *help, figure which)
{
    head(p, name, type, help);
    for (size_t i = 0; i < p->n; i++) {
        put(p, "%s{", name);
        put_label(p, p->scenes[i].name);
        put(p, "} %.10g\n", p->scenes[i].at[which]);
    }
}

static void by_depth(page *p, const char *name, const char *help, size_t offset)
{
    head(p, name, "counter", help);
    for (size_t i = 0; i < p->n; i++) {
        const uint64_t *at = (const uint64_t *)(const void *)((const char *)&p->scenes[i].f + offset);
        for (size_t k = 0; k < AERIE_MAX_DRAFT; k++) {
            if (k && !p->scenes[i].f.drafted_at[k]) continue; /* the first one is listed before any draft, so that a series
                                                               * begins at 0 */
            put(p, "%s{", name);
            put_label(p, p->scenes[i].name);
            put(p, ",position=\"%zu\"} %llu\n", k, (unsigned long long)at[k]);
        }
    }
}

/* Writes the size of the KV cache, by which balancers route. */
static void cache_config(page *p)
{
    static const char name[] = "vllm:cache_config_info";
    head(p, name, "gauge", "Positions of a page of the KV cache, and its pages.");
    for (size_t i = 0; i < p->n; i++) {
        put(p, "%s{", name);
        put_label(p, p->scenes[i].name);
        put(p, ",block_size=\"%u\",num_gpu_blocks=\"%u\"} 1\n", (unsigned)p->scenes[i].kv_page,
            (unsigned)p->scenes[i].kv_pages);
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

static void write_all(page *p)
{
    table(p, "vllm:num_requests_running", "gauge", "Answers that are being generated.", N_RUNNING);
    table(p, "vllm:num_requests_waiting", "gauge", "Requests that wait for a place.", N_WAITING);
    table(p, "vllm:kv_cache_usage_perc", "gauge", "Part of the KV cache that running answers hold, 1 at most.", KV_USE);
    table(p, "vllm:gpu_cache_usage_perc", "gauge", "The same by vLLM's older name.", KV_USE);
    cache_config(p);
    table(p, "aerie:model_loaded", "gauge", "Whether the model is loaded.", IS_LOADED);
    table(p, "vllm:prompt_tokens_total", "counter", "Prompt tokens, cached ones included.", N_PROMPT);
    table(p, "vllm:generation_tokens_total", "counter", "Generated tokens.", N_GENERATED);
    table(p, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.", N_PROMPT);
    table(p, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", N_CACHED);
    table(p, "vllm:num_preemptions_total", "counter", "Sequences that gave up their KV pages for a while.", N_PREEMPTED);
    table(p, "aerie:slots_given_total", "counter", "Times that an answer gave its slot to one that waited.", N_PARKED);
    by_reason(p);
    histogram(p, "vllm:time_to_first_token_seconds", "Seconds from submission to the first token.", long_bounds,
              offsetof(serve_figures, first_token));
    histogram(p, "vllm:e2e_request_latency_seconds", "Seconds from submission to the end.", long_bounds,
              offsetof(serve_figures, whole));
    histogram(p, "vllm:inter_token_latency_seconds", "Seconds from token to token.", short_bounds,
              offsetof(serve_figures, between));
    table(p, "vllm:spec_decode_num_drafts_total", "counter", "Drafts verified.", N_DRAFTS);
    table(p, "vllm:spec_decode_num_draft_tokens_total", "counter", "Drafted tokens verified.", N_DRAFTED);
    table(p, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.", N_ACCEPTED);
    by_depth(p, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafted tokens accepted, by depth from 0.",
             offsetof(serve_figures, accepted_at));
    by_depth(p, "aerie:spec_decode_num_tried_per_pos_total", "Passes whose accepted path came to a draft of this depth.",
             offsetof(serve_figures, tried_at));
    table(p, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens processed.", N_PROCESSED);
    table(p, "llamacpp:prompt_seconds_total", "counter", "Seconds of prompt processing.", PROMPT_SECONDS);
    table(p, "llamacpp:tokens_predicted_total", "counter", "Generated tokens.", N_GENERATED);
    table(p, "llamacpp:tokens_predicted_seconds_total", "counter", "Seconds of generation, of all answers.", DECODE_SECONDS);
    table(p, "llamacpp:n_decode_total", "counter", "Passes after the prompt, of all answers.", N_PASSES);
    table(p, "llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens per second and answer.", PROMPT_RATE);
    table(p, "llamacpp:predicted_tokens_seconds", "gauge", "Generated tokens per second and answer.", DECODE_RATE);
    table(p, "llamacpp:requests_processing", "gauge", "Answers that are being generated.", N_RUNNING);
    table(p, "llamacpp:requests_deferred", "gauge", "Requests that wait for a place.", N_WAITING);
    table(p, "llamacpp:n_tokens_max", "counter", "Tokens of the longest sequence.", N_MOST);
    table(p, "aerie:conversations", "gauge", "Conversations kept beyond the KV cache.", N_CONVERSATIONS);
    table(p, "aerie:conversations_ram_bytes", "gauge", "... what they take of memory (--cache-ram).", CONVERSATIONS_RAM);
    table(p, "aerie:conversations_disk_bytes", "gauge", "... what their files take (--cache-disk).", CONVERSATIONS_DISK);
    table(p, "aerie:conversations_uncopied_tokens", "gauge", "... whose tokens are not copied out of it yet.",
          N_NOTED);
    table(p, "aerie:conversations_restored_total", "counter", "Requests that got one back.", N_RESTORED);
    table(p, "aerie:conversations_restored_tokens_total", "counter", "Tokens that need not be computed again.",
          N_RESTORED_TOKENS);
    table(p, "aerie:conversations_damaged_total", "counter", "Files that could not be used, and were removed.", N_DAMAGED);
}

static void counter(page *p, const char *name, const char *help, uint64_t value)
{
    head(p, name, "counter", help);
    put(p, "%s %llu\n", name, (unsigned long long)value);
}

static void of_server(page *p, const serve_server *server)
{
    serve_connections *all = server->connections;
    pthread_mutex_lock(&all->lock);
    const uint64_t n = all->n, n_refused = all->n_refused, n_evicted = all->n_evicted;
    pthread_mutex_unlock(&all->lock);
    head(p, "aerie:connections", "gauge", "Open connections.");
    put(p, "aerie:connections %llu\n", (unsigned long long)n);
    counter(p, "aerie:connections_evicted_total", "Connections without a request that made room for others.", n_evicted);
    counter(p, "aerie:connections_refused_total", "Connections for which there was no room.", n_refused);
    head(p, "aerie:request_memory_bytes", "gauge", "Memory that requests on their way hold.");
    put(p, "aerie:request_memory_bytes %llu\n", atomic_load(&server->memory.used));
    head(p, "aerie:request_memory_limit_bytes", "gauge", "What they may hold (--max-request-memory).");
    put(p, "aerie:request_memory_limit_bytes %llu\n", atomic_load(&server->memory.most));
    counter(p, "aerie:requests_beyond_memory_total", "Requests that --max-request-memory refused.",
            atomic_load(&server->memory.n_refused));
    counter(p, "aerie:log_lines_lost_total", "Lines of the log that were lost, because nobody read them.", app_log_n_lost());
}

static void take_scene(serve_models *models, serve_model *m, scene *s)
{
    serve_figures *f = &s->f;
    s->name = m->name;
    s->at[IS_LOADED] = serve_model_state(models, m) == SERVE_READY;
    s->kv_page = s->at[IS_LOADED] > 0 ? atomic_load(&m->kv_page) : 0;
    s->kv_pages = s->at[IS_LOADED] > 0 ? atomic_load(&m->kv_pages) : 0;
    s->at[KV_USE] = s->kv_pages ? (double)atomic_load(&m->kv_used) / s->kv_pages : 0;
    pthread_mutex_lock(&m->lock);
    *f = m->figures;
    const serve_conversation_figures kept = serve_conversations_count(m->conversations);
    s->at[N_RUNNING] = m->n_active < m->n_seqs ? m->n_active : m->n_seqs;
    s->at[N_WAITING] = m->n_active - s->at[N_RUNNING];
    pthread_mutex_unlock(&m->lock);
    s->at[N_PROMPT] = (double)f->n_prompt;
    s->at[N_PROCESSED] = (double)(f->n_prompt - f->n_cached);
    s->at[N_CACHED] = (double)f->n_cached;
    s->at[N_GENERATED] = (double)f->n_generated;
    s->at[N_PREEMPTED] = (double)f->n_preempted;
    s->at[N_PARKED] = (double)f->n_parked;
    s->at[N_DRAFTS] = (double)f->n_drafts;
    s->at[N_DRAFTED] = (double)f->n_drafted;
    s->at[N_ACCEPTED] = (double)f->n_accepted;
    s->at[N_PASSES] = (double)f->n_passes;
    s->at[PROMPT_SECONDS] = f->prompt_seconds;
    s->at[DECODE_SECONDS] = f->decode_seconds;
    s->at[PROMPT_RATE] = app_rate(s->at[N_PROCESSED], f->prompt_seconds);
    s->at[DECODE_RATE] = app_rate(s->at[N_GENERATED], f->decode_seconds);
    s->at[N_MOST] = (double)f->n_most;
    s->at[N_CONVERSATIONS] = (double)kept.n;
    s->at[CONVERSATIONS_RAM] = (double)kept.ram_bytes;
    s->at[CONVERSATIONS_DISK] = (double)kept.disk_bytes;
    s->at[N_RESTORED] = (double)(f->n_restored + kept.n_restored);
    s->at[N_RESTORED_TOKENS] = (double)(f->n_restored_tokens + kept.n_restored_tokens);
    s->at[N_NOTED] = (double)kept.n_noted;
    s->at[N_DAMAGED] = (double)(f->n_damaged + kept.n_damaged);
}

void serve_get_metrics(serve_call *call)
{
    serve_models *models = call->server->models;
    scene *scenes = calloc(models->n + 1, sizeof *scenes);
    page p = {.scenes = scenes, .n = models->n, .failed = !scenes};
    for (size_t i = 0; scenes && i < models->n; i++)
        take_scene(models, &models->items[i], &scenes[i]);
    if (!p.failed) write_all(&p);
    if (!p.failed) of_server(&p, call->server);
    free(scenes);
    if (p.failed) {
        app_text_free(&p.text);
        serve_reply_json(call, 503, NULL);
        return;
    }
    serve_reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", &p.text);
}
