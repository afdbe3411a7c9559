/* test_ranks_laws.c - a model that several ranks run together gives the bytes of one rank: logits, hidden rows, and the ranks'
 * keys and values, side by side, for any number of ranks and any shares, cut by rows or by layers.
 *
 * The ranks are threads (comm.h); the first runs the operations, the others follow its commands. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/saved.h"
#include "base/hash.h"
#include "base/mem.h"
#include "device/device.h"
#include "engine/commands.h"
#include "engine/commands_int.h"
#include "engine/engine_int.h"
#include "every.h"
#include "mkarch.h"
#include "mklora.h"
#include "mkmodel.h"

#define N_CTX 192
#define N_SEQS 5
#define N_BATCH 48
#define MOST 7
#define N_SOURCE 5 /* rows of an encoder */

static char folder[] = "/tmp/aerie_ranks_XXXXXX", path[64], lora[64];

static const char *other_device = "cpu-strict"; /* of every other rank, in some groups */

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

/* ---- Ranks ------------------------------------------------------------------------------------------------- */

#define MOST_LAYERS 80
#define MOST_HEADS 64

/* The contents of a store of keys and values when it was freed: a hash of each head's rows, in all pages. */
typedef struct kept {
    ae_kv_store *store;
    uint32_t n_layers, n_pages, n_heads[MOST_LAYERS];
    size_t row_bytes[MOST_LAYERS];
    uint64_t hash[MOST_LAYERS][MOST_HEADS];
} kept;

typedef struct rank {
    ae_comm *comm;
    ae_backend_ops ops;      /* the backend's, which also hashes a store before it is freed */
    const ae_backend_ops *real;
    kept kept[2];            /* of layers without and with windows */
    ae_backend *backend;
    ae_ranks *map;
    ae_net *net;
    ae_adapter *adapter;
    ae_commands *commands;
    pthread_t thread;
    aerie_status status;
    aerie_error error;
} rank;

typedef struct bench {
    ae_model *model;
    ae_kv_type kv_type;
    bool adapts;
    uint32_t n;
    rank ranks[MOST];
    ae_engine *engine; /* of rank 0 */
    ae_buf log;        /* everything that came out */
    size_t n_story;    /* of it before what was kept */
    bool strict;
    bool lacks;        /* the pass leaves experts out */
    bool no_taps;
    uint32_t waves;    /* above 0: passes run in several waves, whose number changes */
} bench;

static ae_engine_options options_for(const bench *b)
{
    const uint32_t n = b->model->hparams.n_layers;
    return (ae_engine_options){.n_ctx = N_CTX, .n_seqs = N_SEQS, .n_threads = 1, .n_batch = N_BATCH, .n_outputs = N_BATCH,
                               .n_records = 8, .n_snapshots = 6, .n_windows = 6, .n_taps = b->no_taps ? 0 : 4,
                               .kv_type = b->kv_type,
                               .max_rank = b->adapts ? b->ranks[0].adapter->max_rank : 0,
                               .taps = {0, n / 2, n, AERIE_TAP_NORMED}};
}

static void *follow(void *context)
{
    rank *r = context;
    r->status = ae_commands_follow(r->commands, r->net, 1, &r->error);
    return NULL;
}

static rank *all_ranks;

static rank *rank_of(const ae_backend *backend)
{
    for (uint32_t i = 0; i < MOST; i++)
        if (all_ranks[i].backend == backend) return &all_ranks[i];
    abort();
}

static aerie_status watch_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error)
{
    rank *r = rank_of(backend);
    kept *k = &r->kept[r->kept[0].store != NULL];
    const aerie_status status = r->real->kv_create(backend, shape, out, error);
    if (status != AERIE_OK || shape->n_layers > MOST_LAYERS) abort();
    k->store = *out, k->n_layers = shape->n_layers, k->n_pages = shape->n_pages;
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        const ae_kv_layer *l = &shape->layers[i];
        k->n_heads[i] = l->n_heads;
        k->row_bytes[i] = ae_kv_row_bytes(shape->type, l);
    }
    return status;
}

static void watch_free(ae_backend *backend, ae_kv_store *store)
{
    rank *r = rank_of(backend);
    if (!store) return;
    kept *k = &r->kept[r->kept[1].store == store];
    static const uint32_t most = 1 << 20;
    char *bytes = malloc(most);
    if (!bytes || k->store != store || r->real->kv_slot_bytes(store) > most) abort();
    for (int32_t page = 0; page < (int32_t)k->n_pages; page++)
        for (int32_t slot = 0; slot < AE_KV_PAGE; slot++) {
            r->real->kv_read(NULL, store, &page, slot, bytes);
            const char *at = bytes;
            for (uint32_t i = 0; i < k->n_layers; i++)
                for (uint32_t h = 0; h < k->n_heads[i]; h++) {
                    const size_t n = k->row_bytes[i];
                    k->hash[i][h] = ae_hash64(k->hash[i][h], at, n);
                    at += n;
                }
            if ((size_t)(at - bytes) != r->real->kv_slot_bytes(store)) abort();
        }
    free(bytes);
    r->real->kv_free(backend, store);
}

static void open_rank(bench *b, rank *r, const char *device, uint32_t n_stages, const uint32_t *shares)
{
    aerie_error error = {0};
    need(ae_backend_open(&r->backend, device, NULL, &error), &error);
    r->real = r->backend->ops;
    r->ops = *r->real;
    if (!strcmp(device, "cpu")) r->ops.kv_create = watch_create, r->ops.kv_free = watch_free, r->backend->ops = &r->ops;
    if (b->n > 1) need(ae_ranks_create(&r->map, b->model, r->comm, n_stages, shares, &error), &error);
    need(ae_net_create(&r->net, b->model, r->backend, &(ae_load_options){.n_threads = 1, .ranks = r->map}, &error), &error);
    need(ae_commands_open(&r->commands, r->comm, &error), &error);
    if (!b->adapts) return;
    ae_gguf *gguf;
    need(ae_gguf_open(&gguf, lora, NULL, &error), &error);
    need(ae_adapter_create(&r->adapter, gguf, r->net, &(ae_load_options){.n_threads = 1}, &error), &error);
    need(ae_commands_add_adapter(r->commands, r->adapter, &error), &error);
}

/* delay NULL: none. */
static void open_group(bench *b, uint32_t n, uint32_t n_stages, const uint32_t *shares, bool strict,
                       const ae_comm_delay *delay)
{
    aerie_error error = {0};
    ae_comm *comms[MOST];
    bool codes = true;
    b->n = n;
    b->strict = strict;
    all_ranks = b->ranks;
    memset(b->ranks, 0, sizeof b->ranks);
    need(ae_comm_threads(comms, n, &error), &error);
    for (uint32_t i = 0; i < n; i++) {
        b->ranks[i].comm = comms[i];
        if (delay) need(ae_comm_slow(&b->ranks[i].comm, comms[i], delay, &error), &error);
    }
    for (uint32_t i = 0; i < n; i++) open_rank(b, &b->ranks[i], strict && i % 2 ? other_device : "cpu", n_stages, shares);
    for (uint32_t i = 0; i < n; i++) codes = codes && b->ranks[i].backend->ops->takes_blocks;
    for (uint32_t i = 0; b->n > 1 && i < n; i++) b->ranks[i].map->codes = codes;
    for (uint32_t i = 1; i < n; i++) assert_int_equal(pthread_create(&b->ranks[i].thread, NULL, follow, &b->ranks[i]), 0);
    ae_engine_options options = options_for(b);
    options.commands = b->ranks[0].commands;
    need(ae_engine_create(&b->engine, b->ranks[0].net, &options, &error), &error);
    b->log = (ae_buf){0};
}

static void say(bench *b, const void *bytes, size_t n)
{
    ae_buf_add(&b->log, bytes, n);
    assert_false(b->log.failed);
}

/* All heads of all layers, from the ranks that have them; then what layers keep beside keys and values. */
static void say_kept(bench *b)
{
    const ae_model *m = b->model;
    static ae_kv_layer layers[AE_MAX_KV_LAYERS];
    static uint32_t windows[AE_MAX_KV_LAYERS], owners[AE_MAX_KV_LAYERS];
    static bool own_rows[AE_MAX_KV_LAYERS];
    const uint32_t n = ae_net_kv_layers(m, layers, windows, NULL);
    uint32_t at[2] = {0, 0};
    ae_net_kv_owners(m, owners, own_rows);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t window = windows[k] > 0, layer = at[window]++, i = owners[k];
        for (uint32_t r = 0, said = 0; r < b->n; r++) {
            const ae_ranks *map = b->ranks[r].map;
            const kept *held = &b->ranks[r].kept[window];
            const bool heads = own_rows[k] && m->layers[i].spec.mixer == AE_MIXER_ATTENTION;
            const bool all = !map || !map->layers[i].mixer || !heads;
            if (map && (!ae_ranks_keeps(map, m, i, own_rows[k]) || (all && said))) continue;
            assert_true(held->n_heads[layer] > 0);
            say(b, held->hash[layer], held->n_heads[layer] * sizeof **held->hash);
            said++;
        }
    }
}

/* The operations are over; all ranks have ended. */
static void end_group(bench *b)
{
    ae_engine_free(b->engine);
    ae_commands_close(b->ranks[0].commands);
    for (uint32_t i = 1; i < b->n; i++) {
        rank *r = &b->ranks[i];
        pthread_join(r->thread, NULL);
        need(r->status, &r->error);
        ae_commands_close(r->commands);
    }
    b->n_story = b->log.n;
    if (!b->strict) say_kept(b); /* the host cannot read that memory */
}

static void close_group(bench *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        rank *r = &b->ranks[i];
        ae_adapter_free(r->adapter);
        ae_net_free(r->net);
        ae_ranks_free(r->map);
        ae_backend_close(r->backend);
        ae_comm_close(r->comm);
    }
    ae_buf_free(&b->log);
}

/* ---- Operations ------------------------------------------------------------------------------------------ */

/* What taps add to a pass of one row: rank 0 gets the stream of other stages' layers. */
static uint32_t n_tapped(const bench *b)
{
    const ae_ranks *map = b->ranks[0].map;
    const uint32_t n_layers = b->model->hparams.n_layers, *taps = b->engine->options.taps;
    uint32_t n = 0;
    for (uint32_t at = 1; at < n_layers && !b->no_taps; at++)
        n += ae_ranks_stage(map, at) && (taps[0] == at || taps[1] == at || taps[2] == at);
    return n;
}

/* Rounds and bytes of a pass are those that the map says, to the byte. */
static void check_counts(const bench *b, const ae_comm_counts *before)
{
    const ae_comm_counts *now = &b->ranks[0].comm->counts;
    const ae_ranks *map = b->ranks[0].map;
    const uint32_t n = ae_engine_n_rows(b->engine);
    uint32_t n_out = 0;
    for (uint32_t r = 0; r < n; r++) n_out += b->engine->out_index[r] >= 0;
    if (!map || b->lacks || n_out != n || n > ae_engine_collected(b->model)) return;
    const ae_ranks_counts c = ae_ranks_count(map, b->model, map->codes && !b->adapts);
    const uint64_t tapped = (uint64_t)n_tapped(b) * ae_ranks_stream_width(&b->model->hparams) * sizeof(float);
    const uint64_t rounds = now->n_rounds - before->n_rounds, bytes = now->n_received - before->n_received;
    const bool cut = b->engine->n_waves > 1; /* more rounds, for as many bytes */
    if ((cut ? rounds <= c.n_own : rounds != c.n_own + n_tapped(b)) || bytes != n * (c.row_bytes + tapped))
        fail_msg("%s: %u ranks in %u stages: %llu rounds instead of %u, %llu bytes instead of %llu", b->model->hparams.arch,
                 map->n, map->n_stages, (unsigned long long)rounds, c.n_own + n_tapped(b), (unsigned long long)bytes,
                 (unsigned long long)(n * (c.row_bytes + tapped)));
}

/* Runs the pass; logits of rows that have them, hidden rows of all. */
static void run(bench *b)
{
    aerie_error error = {0};
    const ae_hparams *h = &b->model->hparams;
    const size_t width = (size_t)4 * h->n_embd;
    float *row = malloc(width * sizeof *row);
    assert_non_null(row);
    const ae_comm_counts before = b->ranks[0].comm->counts;
    static const uint32_t waves[] = {2, 9, 3};
    if (b->waves) ae_engine_cut(b->engine, waves[b->waves++ % 3]);
    need(ae_engine_pass(b->engine, &error), &error);
    check_counts(b, &before);
    for (uint32_t r = 0; r < ae_engine_n_rows(b->engine); r++) {
        if (b->engine->out_index[r] >= 0) say(b, ae_engine_logits(b->engine, r), h->n_vocab * sizeof(float));
        if (b->no_taps) continue;
        b->ranks[0].backend->ops->download(ae_engine_stream(b->engine), row, ae_engine_features(b->engine, r),
                                           width * sizeof *row);
        say(b, row, width * sizeof *row);
    }
    free(row);
}

#include "story.inc"

/* Rows of an encoder, with which a decoder's sequence begins. */
static void begin_source(bench *b, uint32_t seq)
{
    enum { N = N_SOURCE };
    aerie_error error = {0};
    int32_t tokens[N];
    uint64_t seed = seq;
    const size_t n = (size_t)N * b->model->hparams.n_embd;
    float *rows = malloc(n * sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < n; i++) rows[i] = (float)(mk_random(&seed) % 2001) / 1000.0f - 1.0f;
    for (int32_t i = 0; i < N; i++) tokens[i] = -7 - i - 10 * (int32_t)seq;
    ae_engine_rows_clear(b->engine);
    uint32_t first;
    need(ae_engine_add_chain(b->engine, seq, tokens, N, AE_EXPORT_NONE, &first, &error), &error);
    need(ae_engine_add_given(b->engine, 0, N, rows, n, false, &error), &error);
    run(b);
    commit(b, seq, N, NULL, 0);
    free(rows);
}

/* Rows of the model with fewer experts, none of which is kept. */
static void draft_itself(bench *b)
{
    const ae_hparams *h = &b->model->hparams;
    uint8_t lacks[AE_MAX_LAYERS];
    aerie_error error = {0};
    ae_tree tree = {0};
    uint32_t first;
    if (!h->experts.n) return;
    memset(lacks, AE_LACKS_EXPERTS, h->n_layers);
    ae_tree_add(&tree, ae_tree_add(&tree, -1, 9, 0.5f), 11, 0.5f);
    ae_engine_rows_clear(b->engine);
    need(ae_engine_add_tree(b->engine, 0, &tree, &first, &error), &error);
    ae_engine_set_mode(b->engine, &(ae_pass_mode){.n_experts = 1, .lacks = lacks});
    b->lacks = true;
    run(b);
    b->lacks = false;
    assert_int_equal(ae_engine_commit(b->engine, 0, 0, NULL, 0), AERIE_OK);
    ae_engine_rows_clear(b->engine);
}

/* Masks after two texts, as drafts of models that fill them: rows of a text see each other, with an adapter of these passes. */
static void draft_masks(bench *b)
{
    const ae_hparams *h = &b->model->hparams;
    static const uint8_t lacks[AE_MAX_LAYERS];
    const ae_pass_mode mode = {h->experts.n ? h->experts.n_used : 0, lacks, b->adapts ? b->ranks[0].adapter : NULL};
    aerie_error error = {0};
    ae_tree tree = {0};
    if (!ae_engine_may_join(b->ranks[0].net) || h->crosses) return;
    for (int32_t i = 0; i < 5; i++) ae_tree_add(&tree, i - 1, i ? 7 : 9, 1);
    ae_engine_rows_clear(b->engine);
    for (uint32_t seq = 0; seq < 2; seq++) {
        uint32_t first;
        need(ae_engine_add_tree_from(b->engine, seq, &tree, 1, &first, &error), &error);
        ae_engine_join_rows(b->engine, first, tree.n);
    }
    ae_engine_set_mode(b->engine, &mode);
    run(b);
    for (uint32_t seq = 0; seq < 2; seq++) assert_int_equal(ae_engine_commit(b->engine, seq, 0, NULL, 0), AERIE_OK);
    ae_engine_rows_clear(b->engine);
}

static void adapt(bench *b, uint32_t seq, float scale)
{
    ae_adapter_set set = {.n = scale != 0.0f};
    if (!b->adapts) return;
    set.list[0] = (ae_adapter_use){b->ranks[0].adapter, scale};
    ae_engine_adapt(b->engine, seq, &set);
    (void)ae_engine_key(b->engine, &set);
}

/* What is sent for a pass of n rows that is drawn from n_best candidates, and n_noisy that noise may take: these instead of
 * logits. */
static void check_candidates(const bench *b, const ae_comm_counts *before, uint32_t n, uint32_t n_best, uint32_t n_noisy)
{
    const ae_comm_counts *now = &b->ranks[0].comm->counts;
    const ae_ranks *map = b->ranks[0].map;
    const ae_ranks_counts c = ae_ranks_count(map, b->model, map->codes && !b->adapts);
    uint64_t bytes = n * (c.row_bytes + (uint64_t)n_tapped(b) * ae_ranks_stream_width(&b->model->hparams) * sizeof(float));
    for (uint32_t r = 1; r < b->n; r++) {
        const uint32_t own = map->vocab.n[r];
        bytes -= (uint64_t)n * own * sizeof(float);
        bytes += (uint64_t)n * (own < n_best ? own : n_best + n_noisy) * sizeof(ae_candidate);
    }
    assert_int_equal(now->n_rounds - before->n_rounds, c.n_own + n_tapped(b));
    assert_int_equal(now->n_received - before->n_received, bytes);
}

/* Draws down a chain of three nodes, by samplers that look at one, some, or many of a row's best tokens, or at all; and then
 * the logits themselves, which come late. */
static void draw_some(bench *b, uint32_t seq)
{
    static const struct {
        float temperature, min_p;
        int32_t top_k;
        bool few; /* a row says enough in its candidates */
    } kinds_of[] = {{0, 0, 0, true}, {0.8f, 0, 8, true}, {1.5f, 0.4f, 5, true}, {1, 0.5f, 0, false}, {1, 0, 0, true},
                  {0.3f, 0, 0, true}, {30, 0, 0, true}};
    ae_engine *e = b->engine;
    aerie_error error = {0};
    const uint32_t n_vocab = b->model->hparams.n_vocab;
    ae_walked walked;
    for (size_t i = 0; i < sizeof kinds_of / sizeof kinds_of[0]; i++) {
        const uint32_t live = ae_engine_n_live(e, seq);
        const int32_t token = token_of(seq, live);
        aerie_sampling sampling = aerie_sampling_default();
        ae_sampler *sampler;
        ae_tree tree = {0};
        uint32_t first, first_tree;
        for (int32_t k = 0; k < 3; k++) ae_tree_add(&tree, k - 1, token_of(seq, live + 1 + (uint32_t)k), 0.5f);
        sampling.temperature = kinds_of[i].temperature, sampling.top_k = (uint32_t)kinds_of[i].top_k;
        sampling.min_p = kinds_of[i].min_p, sampling.top_p = 1, sampling.seed = 5 + i;
        need(ae_sampler_create(&sampler, &sampling, NULL, n_vocab, N_CTX, &error), &error);
        ae_engine_rows_clear(e);
        need(ae_engine_add_chain(e, seq, &token, 1, AE_EXPORT_ALL, &first, &error), &error);
        need(ae_engine_add_tree(e, seq, &tree, &first_tree, &error), &error);
        const ae_draw *drawn = ae_sampler_plain(sampler);
        ae_noise noise;
        const bool noisy = ae_draw_is_noise(drawn, &noise);
        const uint32_t n_best = noisy ? 1 : ae_draw_wants(drawn), n_noisy = noisy ? AE_NOISY_MOST : 0;
        assert_int_equal(noisy, kinds_of[i].temperature > 0 && !kinds_of[i].top_k && kinds_of[i].min_p <= 0);
        assert_true(n_best > 0);
        if (noisy) ae_engine_expect_noise(e, seq, &noise);
        ae_engine_expect(e, n_best);
        const ae_comm_counts before = b->ranks[0].comm->counts;
        need(ae_engine_pass(e, &error), &error);
        const uint32_t ran = e->best.ran;
        need(ae_engine_draw(e, &(ae_engine_walk){.sampler = sampler, .row = first, .n = 3, .n_most = 4, .position = live + 1},
                            1, &walked, &error), &error);
        say(b, &walked.n_drawn, sizeof walked.n_drawn);
        say(b, walked.drawn, walked.n_drawn * sizeof *walked.drawn);
        if (ran && kinds_of[i].few) check_candidates(b, &before, 4, n_best, n_noisy);
        say(b, ae_engine_logits(e, first + 2), n_vocab * sizeof(float));
        assert_int_equal(e->best.ran, 0);
        assert_int_equal(ae_engine_commit(e, seq, 1, NULL, 0), AERIE_OK);
        ae_sampler_free(sampler);
    }
    ae_engine_rows_clear(e);
}

/* A text by no other sequence's name; of models with a source it begins with rows. */
static void name_text(const bench *b, uint32_t name, int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = b->model->hparams.crosses && i < N_SOURCE ? -7 - (int32_t)(i + 10 * name) : token_of(name, i);
}

/* Bytes of tokens[0..n), out of a sequence or (from N_SEQS) out of the prefix tree, in two pieces. What comes back is freed by
 * the caller. */
static char *save(bench *b, uint32_t from, const int32_t *tokens, const ae_engine_saved *s)
{
    ae_engine *e = b->engine;
    const size_t n = ae_engine_saved_bytes(e, s->n, s->first, s->has_state);
    char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    memset(bytes, 0x5a, n + 1);
    ae_engine_saved piece = *s;
    for (uint32_t half = 0; half < 2; half++) {
        piece.begin = half ? s->n / 2 : 0, piece.end = half ? s->n : s->n / 2;
        if (from < N_SEQS) ae_engine_save_seq(e, from, &piece, bytes);
        else ae_engine_save_prefix(e, ae_engine_seq_key(e, 0), tokens, &piece, bytes);
    }
    need(ae_engine_sync(e, &(aerie_error){0}), &(aerie_error){0});
    assert_int_equal(bytes[n], 0x5a);
    say(b, bytes, n);
    return bytes;
}

/* What a sequence remembers, as bytes; sequence 2 gets it back from them, and from the tree the bytes come once more. */
static void save_and_load(bench *b, uint32_t from)
{
    ae_engine *e = b->engine;
    int32_t tokens[N_CTX];
    go_on(b, &from, 1, 40); /* into another page */
    ae_engine_saved s = {.n = ae_engine_seq_saved(e, from, ae_engine_n_live(e, from))};
    s.has_state = e->state && s.n;
    if (!s.n) s.n = ae_kv_landing(e->kv, from, ae_engine_n_live(e, from));
    s.first = ae_kv_saved_first(e->kv, from, s.n);
    say(b, &s.n, sizeof s.n);
    say(b, &s.first, sizeof s.first);
    name_text(b, from + 20, tokens, s.n);
    char *bytes = save(b, from, tokens, &s);
    (void)ae_engine_truncate(e, 2, 0);
    s.begin = 0, s.end = s.n < AE_KV_PAGE ? s.n : AE_KV_PAGE;
    while (s.begin < s.n && ae_engine_load_prefix(e, ae_engine_seq_key(e, 2), tokens, &s, bytes)) s.begin = s.end, s.end = s.n;
    free(bytes);
    const uint32_t back = ae_engine_adopt(e, 2, tokens, s.n);
    say(b, &back, sizeof back);
    if (back) go_on(b, (const uint32_t[]){2}, 1, 2);
    ae_engine_saved again = {.n = ae_engine_prefix_saved(e, ae_engine_seq_key(e, 0), tokens, s.n)};
    again.has_state = e->state != NULL;
    again.first = again.n ? ae_kv_prefix_first(e->kv, ae_engine_seq_key(e, 0), tokens, again.n) : 0;
    say(b, &again.n, sizeof again.n);
    if (again.n) free(save(b, N_SEQS, tokens, &again));
}

/* Texts of different lengths, drafts, shared and kept sequences, all of which go on. */
static void story(bench *b)
{
    ae_engine *e = b->engine;
    int32_t tokens[N_CTX];
    adapt(b, 1, 1.0f);
    adapt(b, 3, -0.5f);
    for (uint32_t s = 0; s < N_SEQS && b->model->hparams.crosses; s++) begin_source(b, s);
    for (uint32_t s = 0; s < N_SEQS; s++) go_on(b, &s, 1, 7 + 8 * s);
    for (int k = 0; k < 2; k++) go_on(b, (const uint32_t[]){0, 1, 2, 3, 4}, N_SEQS, 9);
    if (!b->model->hparams.crosses) look(b, 3, 8);
    for (uint32_t k = 0; k < 3; k++) draft(b, k, 5 + k);
    draft_itself(b);
    draft_masks(b);
    go_on(b, (const uint32_t[]){0, 1, 2, 3, 4}, N_SEQS, 1);
    draft(b, 1, 77);
    draw_some(b, 4);
    const uint32_t n = ae_engine_n_live(e, 2);
    name_text(b, 9, tokens, n);
    ae_engine_keep(e, 2, tokens); /* preempted: its text comes back by the prefix tree, as far as it goes */
    const uint32_t back = ae_engine_adopt(e, 2, tokens, n);
    say(b, &back, sizeof back);
    go_on(b, (const uint32_t[]){2}, 1, 3);
    const uint32_t shared = ae_engine_share(e, 4, 2, ae_engine_n_live(e, 2));
    say(b, &shared, sizeof shared);
    go_on(b, (const uint32_t[]){4, 2}, 2, 2);
    draft(b, 0, 4);
    if (!ae_engine_seq_key(e, 0).adapters) save_and_load(b, 0);
    ae_engine_snapshot(e, 3);
    const uint32_t cut = ae_engine_truncate(e, 3, ae_engine_n_live(e, 3) - 5);
    say(b, &cut, sizeof cut);
    adapt(b, 1, 0.0f);
    go_on(b, (const uint32_t[]){1, 3}, 2, 1);
}

/* ---- Every group ----------------------------------------------------------------------------------------------- */

static void compare(bench *b, const ae_buf *wanted, size_t n_story, const char *arch, const char *what)
{
    size_t i = 0;
    story(b);
    end_group(b);
    const size_t n = b->strict ? n_story : wanted->n;
    while (i < n && i < b->log.n && wanted->data[i] == b->log.data[i]) i++;
    if (i < n || i < b->log.n) fail_msg("%s, %s: byte %zu of %zu (story: %zu) differs", arch, what, i, n, n_story);
}

static const struct group {
    const char *name;
    uint32_t n;
    uint32_t n_stages, shares[MOST];
    bool strict;
} groups[] = {
    {"2 ranks", 2, AE_RANKS_SPLIT, {1, 1}, false},
    {"3 ranks", 3, AE_RANKS_SPLIT, {1, 1, 1}, true},
    {"4 ranks, 3 2 2 1", 4, AE_RANKS_SPLIT, {3, 2, 2, 1}, false},
    {"7 ranks", 7, AE_RANKS_SPLIT, {1, 1, 1, 1, 1, 1, 1}, false},
    {"3 ranks, 0 5 1", 3, AE_RANKS_SPLIT, {0, 5, 1}, false},
    {"pipeline of 2", 2, 2, {1, 1}, true},
    {"pipeline of 3, 2 1 3", 3, 3, {2, 1, 3}, false},
    {"2 stages of 2", 4, 2, {1, 1, 1, 1}, true},
    {"2 stages of 4 and 3, uneven", 7, 2, {1, 2, 1, 0, 3, 1, 2}, false},
    {"2 stages of 2 and 1, 0 1 2", 3, 2, {0, 1, 2}, false},
    {"pipeline of 7", 7, 7, {1, 1, 1, 1, 1, 1, 1}, false},
};
#define N_GROUPS (sizeof groups / sizeof groups[0])

/* Two ranks together read little more than one: norms, routers and small matrices, which both have. */
static void check_reading(const bench *b, size_t whole)
{
    size_t all = 0;
    for (uint32_t r = 0; r < b->n; r++) all += b->ranks[r].net->pass_bytes;
    const ae_model *m = b->model; /* what chooses positions, or mixes streams, is whole on every rank */
    const bool wkv = m->hparams.recur.kind >= AE_RECUR_WKV6; /* whose low-rank products mix all channels */
    const bool both_have = m->hparams.index.n_heads || m->hparams.hyper || wkv;
    if (wkv && b->n == 2) assert_int_equal(b->ranks[0].map->n_whole, 0);
    if (b->n == 2 && !b->ranks[0].map->n_whole && !both_have && all > whole + whole * 3 / 20)
        fail_msg("%s: two ranks read %zu bytes, one alone %zu", m->hparams.arch, all, whole);
}

/* Encoders run on one machine alone, and say so. */
static bool runs_in_groups(const ae_model *model)
{
    aerie_error error = {0};
    ae_comm *comms[2];
    ae_ranks *map = NULL;
    need(ae_comm_threads(comms, 2, &error), &error);
    const aerie_status status = ae_ranks_create(&map, model, comms[0], AE_RANKS_SPLIT, NULL, &error);
    assert_true((status == AERIE_OK) == !model->hparams.encoder);
    if (status != AERIE_OK) assert_non_null(strstr(error.text, "as replicas"));
    ae_ranks_free(map);
    for (int i = 0; i < 2; i++) ae_comm_close(comms[i]);
    return status == AERIE_OK;
}

/* Compares every group with one rank; nothing runs if no group's turn has come. */
static void walk_groups(bench *b, const char *name, int every)
{
    static int n_cases;
    const int n_groups = (int)N_GROUPS, n_left = (every - n_cases % every) % every;
    if (n_left >= n_groups) {
        n_cases += n_groups;
        return;
    }
    open_group(b, 1, AE_RANKS_SPLIT, NULL, false, NULL);
    story(b);
    end_group(b);
    ae_buf wanted = b->log;
    const size_t n_story = b->n_story, whole_bytes = b->ranks[0].net->pass_bytes;
    b->log = (ae_buf){0};
    close_group(b);
    assert_true(wanted.n > 1000);
    for (size_t i = 0; i < N_GROUPS; i++) {
        if (n_cases++ % every) continue;
        open_group(b, groups[i].n, groups[i].n_stages, groups[i].shares, groups[i].strict, NULL);
        check_reading(b, whole_bytes);
        compare(b, &wanted, n_story, name, groups[i].name);
        close_group(b);
    }
    ae_buf_free(&wanted);
}

/* Returns whether the model runs in groups. */
static bool walk(const char *arch, ae_kv_type type, bool adapts, int every)
{
    aerie_error error = {0};
    bench b = {.kv_type = type, .adapts = adapts};
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    snprintf(lora, sizeof lora, "%s/lora.gguf", folder);
    need(mkarch_write(mkarch_find(arch), true, path, &error), &error);
    const char *const deep = "qwen3vl.n_deepstack_layers=int:2"; /* rows of pictures join two layers */
    const ae_model_options options = {.overrides = &deep, .n_overrides = !strcmp(arch, "qwen3vl")};
    need(ae_model_load(&b.model, path, &options, &error), &error);
    if (adapts) need(mklora_write(&(mklora_options){.uneven = true}, path, lora, &error), &error);
    const bool runs = runs_in_groups(b.model);
    if (runs) walk_groups(&b, arch, every);
    ae_model_free(b.model);
    unlink(path);
    if (adapts) unlink(lora);
    return runs;
}

/* Plain; windows; keys shared between layers, embeddings for layers; experts; experts beside dense blocks; latent attention;
 * recurrent layers of nine kinds, with heads in order and tiled, and one beside attention; experts with biases, on a narrower
 * stream, with a shared one; temperatures; parallel blocks; gates; rows of pictures for the first layers; choices by an index;
 * several streams, with compressed rows, and two of stacks that share weights; banked rows; adapters that tokens choose; a
 * source; a memory of n-grams; token shifts. */
static const char *const kinds[] = {
    "llama", "gemma3", "gemma4", "qwen3moe", "gemma4-moe", "deepseek2", "qwen35moe", "qwen3next-fused", "mamba2", "lfm2",
    "nemotron_h_moe", "granitehybrid-moe", "falcon-h1", "mamba", "plamo2", "gpt-oss", "kimi-linear", "mistral3", "command-r",
    "olmo2", "qwen3vl", "minimax-m3", "deepseek4", "hrm_text", "kimi-k3", "t5", "graniteswitch", "qwen4exp", "rwkv6", "rwkv7",
    "arwkv7"};

static void test_kinds(void **state)
{
    (void)state;
    const int every = AE_TEST_EVERY > 16 ? AE_TEST_EVERY / 5 : AE_TEST_EVERY > 1 ? 5 : 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        assert_true(walk(kinds[i], AE_KV_F16, false, every));
}

static void test_caches_and_adapters(void **state)
{
    (void)state;
    const int every = AE_TEST_EVERY > 16 ? AE_TEST_EVERY / 8 : AE_TEST_EVERY > 1 ? 2 : 1;
    assert_true(walk("llama", AE_KV_Q8_0, true, every));
    assert_true(walk("qwen3moe", AE_KV_F16, true, every));
    assert_true(walk("gemma3", AE_KV_Q8_0, true, every));
    assert_true(walk("deepseek2", AE_KV_Q8_0, false, every));
    assert_true(walk("qwen35", AE_KV_Q8_0, false, every));
}

static void test_every_architecture(void **state)
{
    (void)state;
    size_t n_run = 0;
    const int every = AE_TEST_EVERY > 1 ? 5 * AE_TEST_EVERY : 1;
    const char *only = getenv("AERIE_TEST_ARCHS"); /* names to run, all of their groups */
    for (size_t i = 0; i < mkarch_n_specs; i++)
        if (!only || strstr(only, mkarch_specs[i].name))
            n_run += walk(mkarch_specs[i].name, AE_KV_F16, false, only ? 1 : every);
    assert_true(only || n_run > mkarch_n_specs / 2);
}

/* Twenty chunks of a prompt, of which nothing is read, then one with logits. Returns these (the caller frees them). */
static float *read_prompt(bench *b)
{
    enum { N = 8 };
    const uint32_t n_vocab = b->model->hparams.n_vocab;
    const bool stages = b->ranks[0].map && b->ranks[0].map->n_stages > 1;
    float *logits = malloc((size_t)n_vocab * N * sizeof *logits);
    assert_non_null(logits);
    for (uint32_t chunk = 0; chunk <= 20; chunk++) {
        int32_t tokens[N];
        uint32_t first;
        aerie_error error = {0};
        const ae_comm_counts before = b->ranks[0].comm->counts;
        for (uint32_t i = 0; i < N; i++) tokens[i] = token_of(0, chunk * N + i);
        ae_engine_rows_clear(b->engine);
        need(ae_engine_add_chain(b->engine, 0, tokens, N, chunk < 20 ? AE_EXPORT_NONE : AE_EXPORT_ALL, &first, &error), &error);
        need(ae_engine_pass(b->engine, &error), &error);
        const uint64_t received = b->ranks[0].comm->counts.n_received - before.n_received;
        /* in a pipeline the first rank waits for the others in the 17th chunk and in the last one alone */
        if (stages && !ae_ranks_cuts(b->ranks[0].map)) assert_int_equal(received > 0, chunk == 16 || chunk == 20);
        for (uint32_t i = 0; chunk == 20 && i < N; i++)
            memcpy(logits + (size_t)i * n_vocab, ae_engine_logits(b->engine, first + i), n_vocab * sizeof *logits);
        commit(b, 0, N, NULL, 0);
    }
    end_group(b);
    return logits;
}

/* In a pipeline, rank 0 does not wait for passes of which nobody reads anything. */
static void test_running_ahead(void **state)
{
    (void)state;
    aerie_error error = {0};
    bench b = {.no_taps = true};
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    need(mkarch_write(mkarch_find("llama"), true, path, &error), &error);
    need(ae_model_load(&b.model, path, NULL, &error), &error);
    const size_t bytes = (size_t)8 * b.model->hparams.n_vocab * sizeof(float);
    float *wanted = NULL;
    for (size_t i = 0; i <= N_GROUPS; i++) {
        if (i && groups[i - 1].n_stages < 2) continue;
        open_group(&b, i ? groups[i - 1].n : 1, i ? groups[i - 1].n_stages : 1, i ? groups[i - 1].shares : NULL, false, NULL);
        float *logits = read_prompt(&b);
        close_group(&b);
        if (i) assert_memory_equal(logits, wanted, bytes);
        if (i) free(logits);
        else wanted = logits;
    }
    free(wanted);
    ae_model_free(b.model);
    unlink(path);
}

/* A first pass, which is then forgotten. Returns whether its rows went in waves. */
static bool cuts_first(bench *b)
{
    go_on(b, (const uint32_t[]){0}, 1, 4);
    (void)ae_engine_truncate(b->engine, 0, 0);
    ae_buf_free(&b->log);
    b->log = (ae_buf){0};
    return b->engine->n_waves > 1;
}

/* Passes whose rows go through the stages in waves. */
static void test_waves(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        bool cut; /* its rows can be */
    } models[] = {{"llama", true}, {"gemma3", true}, {"qwen3moe", true}, {"deepseek2", true}, {"gpt-oss", true},
                  {"llama4", true}, {"olmo2", true}, {"qwen35", false}, {"gemma3n", false}};
    const int every = AE_TEST_EVERY > 1 ? 7 : 1;
    int n_cases = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        aerie_error error = {0};
        bench b = {.no_taps = true, .kv_type = AE_KV_Q8_0};
        snprintf(path, sizeof path, "%s/m.gguf", folder);
        need(mkarch_write(mkarch_find(models[i].arch), true, path, &error), &error);
        need(ae_model_load(&b.model, path, NULL, &error), &error);
        open_group(&b, 1, AE_RANKS_SPLIT, NULL, false, NULL);
        assert_false(cuts_first(&b));
        story(&b);
        end_group(&b);
        ae_buf wanted = b.log;
        const size_t n_story = b.n_story;
        b.log = (ae_buf){0};
        close_group(&b);
        for (size_t k = 0; k < N_GROUPS; k++) {
            if (groups[k].n_stages < 2 || n_cases++ % every) continue;
            b.waves = 1;
            open_group(&b, groups[k].n, groups[k].n_stages, groups[k].shares, groups[k].strict, NULL);
            assert_int_equal(cuts_first(&b), models[i].cut);
            compare(&b, &wanted, n_story, models[i].arch, groups[k].name);
            close_group(&b);
            b.waves = 0;
        }
        ae_buf_free(&wanted);
        ae_model_free(b.model);
        unlink(path);
    }
}

#include "ranks_codes.inc"

static int make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int drop(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* A rank on a GPU, or on its emulation, beside one on the CPU. The emulation is slow, so this runs only if a device is
 * named. */
static void test_on_a_gpu(void **state)
{
    (void)state;
    static const char *const archs[] = {"qwen3moe", "llama4", "gpt-oss", "nemotron_h_moe", "qwen35moe"};
    const char *said = getenv("AERIE_TEST_DEVICE"), *before = other_device;
    if (!said || !*said) skip();
    other_device = said;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) walk(archs[i], AE_KV_F16, false, 1);
    other_device = before;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_caches_and_adapters),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_codes_of_experts_and_heads),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_running_ahead),
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_on_a_gpu),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (getenv("AERIE_TEST_ARCHS")) cmocka_set_test_filter("test_every_architecture");
    return cmocka_run_group_tests(tests, make, drop);
}
