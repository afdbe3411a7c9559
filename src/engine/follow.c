/* follow.c - the ranks from 1 on: they read, check and repeat each command of rank 0 (commands.h).
 *
 * Owns: the engines that rank 0 has created, and the tokens of the current command. No number from a frame is used as an index
 * or a size before it has been checked. */
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "engine/commands.h"
#include "engine/commands_int.h"
#include "engine/engine_int.h"

typedef struct follower {
    ae_commands *commands;
    const ae_net *net;
    uint32_t n_threads;
    ae_engine *engines[AE_COMMANDS_MAX_ENGINES];
    ae_pass_mode modes[AE_COMMANDS_MAX_ENGINES];
    uint8_t lacks[AE_COMMANDS_MAX_ENGINES][AE_MAX_LAYERS];
    /* given rows of the pass being built; NULL until the first ones come, since few groups get any */
    float *rows[AE_COMMANDS_MAX_ENGINES];
    uint32_t n_given[AE_COMMANDS_MAX_ENGINES];
    uint32_t *payload; /* [n_room] */
    uint32_t n_room;
    ae_command at;     /* the current command */
} follower;

/* ---- Reading -------------------------------------------------------------------------------------------------------- */

static aerie_status impossible(const follower *f, const char *what, uint32_t found, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "command %u of rank 0 has %s %u, which cannot be; please report", f->at.kind,
                   what, found);
}

static aerie_status read_word(ae_commands *c, uint32_t *word, aerie_error *error)
{
    while (c->at >= c->frame.n) {
        ae_comm_frame(c->comm, &c->frame);
        AE_TRY(ae_comm_status(c->comm, error));
        if (!c->frame.n || c->frame.n > AE_COMMANDS_WORDS)
            return ae_fail(error, AERIE_ERROR_INTERNAL, "a frame of commands has %u words of %zu; please report", c->frame.n,
                           AE_COMMANDS_WORDS);
        c->at = 0;
    }
    *word = c->frame.words[c->at++];
    return AERIE_OK;
}

static aerie_status read_command(follower *f, aerie_error *error)
{
    uint32_t head[7];
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) AE_TRY(read_word(f->commands, &head[i], error));
    f->at = (ae_command){head[0], head[1], head[2], head[3], head[4], head[5], head[6]};
    if (f->at.kind >= AE_COMMANDS) return impossible(f, "kind", f->at.kind, error);
    if (f->at.n > f->n_room) return impossible(f, "words", f->at.n, error);
    for (uint32_t i = 0; i < f->at.n; i++) AE_TRY(read_word(f->commands, &f->payload[i], error));
    return AERIE_OK;
}

/* ---- Engines -------------------------------------------------------------------------------------------------------- */

/* Returns the most words that a command to such an engine can have. */
static uint32_t room_for(const ae_engine_options *o, uint32_t n_layers)
{
    const uint32_t tokens = o->n_ctx + 2 * AERIE_MAX_DRAFT,
    least = n_layers > AE_COMMANDS_OPTIONS ? n_layers : AE_COMMANDS_OPTIONS;
    const uint32_t rows = o->n_batch > tokens ? o->n_batch : tokens;
    return rows > least ? rows : least;
}

static aerie_status make_room(follower *f, uint32_t n, aerie_error *error)
{
    if (n <= f->n_room) return AERIE_OK;
    uint32_t *payload = ae_realloc(f->payload, n, sizeof *payload);
    if (!payload) return ae_fail_memory(error, "the commands of a group", n * sizeof *payload);
    f->payload = payload;
    f->n_room = n;
    return AERIE_OK;
}

/* Checks a size against this machine's memory, which may be less than rank 0's. */
static aerie_status check_memory(const follower *f, const ae_engine_options *options, aerie_error *error)
{
    ae_engine_options o = *options;
    const uint64_t available = ae_os_memory_available();
    o.ranks = f->net->ranks;
    const size_t bytes = ae_engine_plan_split(f->net->model, &f->net->split, &o, NULL);
    if (bytes < SIZE_MAX && (!available || bytes <= available)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_LIMIT, "rank %u would need %.1f GiB for a session of %u sequences of %u positions, but "
                   "only %.1f GiB of memory are available there; give it a smaller share, or all ranks a shorter context (-c)",
                   f->commands->comm->rank, (double)bytes / (1u << 30), o.n_seqs, o.n_ctx, (double)available / (1u << 30));
}

static aerie_status create(follower *f, aerie_error *error)
{
    const uint32_t *w = f->payload;
    if (f->at.n != AE_COMMANDS_OPTIONS) return impossible(f, "words", f->at.n, error);
    if (f->engines[f->at.engine]) return impossible(f, "an engine that exists,", f->at.engine, error);
    ae_engine_options o = {.n_ctx = w[0], .n_seqs = w[1], .n_batch = w[2], .n_outputs = w[3], .n_records = w[4],
                           .n_snapshots = w[5], .n_windows = w[6], .n_kv_pages = w[7], .kv_type = (ae_kv_type)w[8],
                           .max_rank = w[9], .n_taps = w[10], .n_threads = f->n_threads};
    memcpy(o.taps, w + 11, sizeof o.taps);
    for (int i = 0; i < 8; i++)
        if (w[i] > 1u << 24) return impossible(f, "a size of", w[i], error);
    if (!o.n_seqs || !o.n_batch || !o.n_ctx) return impossible(f, "sequences", o.n_seqs, error);
    if (w[8] >= AE_KV_TYPES) return impossible(f, "a type of cache", w[8], error);
    if (o.max_rank > AE_ADAPTER_MAX_RANK) return impossible(f, "a rank of", o.max_rank, error);
    if (o.n_taps > AERIE_MAX_TAPS) return impossible(f, "taps", o.n_taps, error);
    AE_TRY(check_memory(f, &o, error));
    AE_TRY(make_room(f, room_for(&o, f->net->model->hparams.n_layers), error));
    return ae_engine_create(&f->engines[f->at.engine], f->net, &o, error);
}

/* ---- Commands ------------------------------------------------------------------------------------------------------- */

/* given: whether negative ids, those of given rows, are allowed. */
static aerie_status check_tokens(const follower *f, const uint32_t *tokens, uint32_t n, bool given, aerie_error *error)
{
    for (uint32_t i = 0; i < n; i++)
        if (tokens[i] >= f->net->model->hparams.n_vocab && (!given || (int32_t)tokens[i] >= 0))
            return impossible(f, "token", tokens[i], error);
    return AERIE_OK;
}

static aerie_status check_result(const follower *f, uint32_t result, aerie_error *error)
{
    if (result == f->at.result) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_INTERNAL, "rank %u is out of step: command %u gave %u, but %u on rank 0; please report",
                   f->commands->comm->rank, f->at.kind, result, f->at.result);
}

static aerie_status do_chain(follower *f, ae_engine *e, aerie_error *error)
{
    uint32_t first;
    if (f->at.a > AE_EXPORT_ALL) return impossible(f, "exports", f->at.a, error);
    AE_TRY(check_tokens(f, f->payload, f->at.n, !f->net->model->hparams.encoder, error));
    const aerie_status status = ae_engine_add_chain(e, f->at.seq, (const int32_t *)f->payload, f->at.n, (ae_export)f->at.a,
                                                    &first, NULL);
    return check_result(f, (uint32_t)status, error);
}

static aerie_status do_tree(follower *f, ae_engine *e, aerie_error *error)
{
    ae_tree tree = {.n = f->at.n / 2};
    uint32_t first;
    if (tree.n > AERIE_MAX_DRAFT) return impossible(f, "nodes", tree.n, error);
    if (f->at.a > tree.n) return impossible(f, "rows without logits", f->at.a, error);
    AE_TRY(check_tokens(f, f->payload + tree.n, tree.n, false, error));
    for (uint32_t i = 0; i < tree.n; i++) {
        const int32_t parent = (int32_t)f->payload[i];
        if (parent < -1 || parent >= (int32_t)i) return impossible(f, "a parent", f->payload[i], error);
        tree.parent[i] = parent;
        tree.token[i] = (int32_t)f->payload[tree.n + i];
        tree.depth[i] = parent < 0 ? 1 : tree.depth[parent] + 1;
    }
    return check_result(f, (uint32_t)ae_engine_add_tree_from(e, f->at.seq, &tree, f->at.a, &first, NULL), error);
}

/* Reads the given rows of a pass into a buffer that fits those of the largest pass. */
static aerie_status do_given(follower *f, ae_engine *e, aerie_error *error)
{
    const ae_hparams *h = &f->net->model->hparams;
    const size_t n_batch = e->options.n_batch, planes = 1 + h->n_deepstack, n_embd = h->n_embd;
    const uint32_t first = f->at.a, n = f->at.b, at = f->at.engine;
    if (f->at.result > 1) return impossible(f, "a group", f->at.result, error);
    if (first > ae_engine_n_rows(e) || !n || n > ae_engine_n_rows(e) - first) return impossible(f, "rows", n, error);
    if (n > n_batch - f->n_given[at]) return impossible(f, "given rows", n, error);
    if (!f->rows[at]) f->rows[at] = ae_alloc(n_batch, planes * n_embd * sizeof(float));
    if (!f->rows[at]) return ae_fail_memory(error, "rows that are not tokens", n_batch * planes * n_embd * sizeof(float));
    float *rows = f->rows[at] + f->n_given[at] * planes * n_embd;
    for (size_t i = 0; i < n * planes * n_embd; i++) {
        uint32_t word = 0;
        AE_TRY(read_word(f->commands, &word, error));
        memcpy(rows + i, &word, sizeof word);
    }
    f->n_given[at] += n;
    return ae_engine_add_given(e, first, n, rows, n * n_embd, f->at.result, error);
}

static aerie_status do_turn(follower *f, ae_engine *e, aerie_error *error)
{
    if (f->at.n != 3) return impossible(f, "words", f->at.n, error);
    for (uint32_t i = 0; i < 3; i++)
        if (f->payload[i] > e->options.n_ctx) return impossible(f, "positions", f->payload[i], error);
    ae_engine_turn(e, f->at.a, f->at.b, f->payload[0], f->payload[1], f->payload[2]);
    return AERIE_OK;
}

/* Rows that see each other are neighbours of one sequence, so that none reads pages of another. */
static aerie_status do_join(const follower *f, ae_engine *e, aerie_error *error)
{
    const uint32_t first = f->at.a, n = f->at.b;
    if (!ae_engine_may_join(e->net)) return impossible(f, "rows that see each other,", n, error);
    if (first >= ae_engine_n_rows(e) || !n || n > ae_engine_n_rows(e) - first) return impossible(f, "rows", n, error);
    for (uint32_t r = first + 1; r < first + n; r++)
        if (e->rows.seq[r] != e->rows.seq[first] || e->rows.pos[r] != e->rows.pos[r - 1] + 1)
            return impossible(f, "neighbours", r, error);
    ae_engine_join_rows(e, first, n);
    return AERIE_OK;
}

/* Finds an adapter of rank 0 by its number. */
static aerie_status find_adapter(const follower *f, const ae_engine *e, uint32_t number, const ae_adapter **adapter,
                                 aerie_error *error)
{
    if (number >= f->commands->n_adapters) return impossible(f, "an adapter", number, error);
    *adapter = f->commands->adapters[number];
    if ((*adapter)->max_rank > e->options.max_rank) return impossible(f, "an adapter of too high a rank,", number, error);
    return AERIE_OK;
}

static aerie_status do_mode(follower *f, ae_engine *e, aerie_error *error)
{
    const uint32_t n_layers = f->net->model->hparams.n_layers, at = f->at.engine,
    all = AE_LACKS_EXPERTS | AE_LACKS_MIXER | AE_LACKS_FFN;
    if (f->at.n != (f->at.a ? n_layers : 0)) return impossible(f, "layers", f->at.n, error);
    if (f->at.a > f->net->model->hparams.experts.n_used + 1) return impossible(f, "experts", f->at.a, error);
    for (uint32_t i = 0; i < f->at.n; i++) {
        if (f->payload[i] > all) return impossible(f, "bits", f->payload[i], error);
        f->lacks[at][i] = (uint8_t)f->payload[i];
    }
    f->modes[at] = (ae_pass_mode){.n_experts = f->at.a ? f->at.a - 1 : 0, .lacks = f->lacks[at]};
    if (f->at.b) AE_TRY(find_adapter(f, e, f->at.b - 1, &f->modes[at].adapter, error));
    ae_engine_set_mode(e, f->at.a ? &f->modes[at] : NULL);
    return AERIE_OK;
}

static aerie_status do_set(follower *f, ae_engine *e, aerie_error *error)
{
    ae_adapter_set set = {.n = f->at.n / 2, .scope = f->at.a | (uint64_t)f->at.b << 32};
    if (set.n > AERIE_MAX_ADAPTERS) return impossible(f, "adapters", set.n, error);
    for (uint32_t i = 0; i < set.n; i++) {
        AE_TRY(find_adapter(f, e, f->payload[2 * i], &set.list[i].adapter, error));
        memcpy(&set.list[i].scale, &f->payload[2 * i + 1], sizeof set.list[i].scale);
        if (!isfinite(set.list[i].scale)) return impossible(f, "a scale of bits", f->payload[2 * i + 1], error);
    }
    if (f->at.kind == AE_COMMAND_KEY) (void)ae_engine_key(e, &set);
    else ae_engine_adapt(e, f->at.seq, &set);
    return AERIE_OK;
}

static aerie_status do_noise(const follower *f, ae_engine *e, aerie_error *error)
{
    ae_noise noise;
    if (f->at.n != 2) return impossible(f, "words", f->at.n, error);
    noise.seed = f->payload[0] | (uint64_t)f->payload[1] << 32;
    memcpy(&noise.temperature, &f->at.a, sizeof noise.temperature);
    if (!ae_engine_best_room(f->net->ranks) || !(noise.temperature > 0.0f) || !isfinite(noise.temperature))
        return impossible(f, "a temperature of bits", f->at.a, error);
    ae_engine_expect_noise(e, f->at.seq, &noise);
    return AERIE_OK;
}

static aerie_status do_sequence(follower *f, ae_engine *e, aerie_error *error)
{
    const uint32_t seq = f->at.seq, live = ae_engine_n_live(e, seq);
    const int32_t *tokens = (const int32_t *)f->payload;
    switch (f->at.kind) {
    case AE_COMMAND_TRUNCATE:
        if (f->at.a > live) return impossible(f, "positions", f->at.a, error);
        return check_result(f, ae_engine_truncate(e, seq, f->at.a), error);
    case AE_COMMAND_SHARE:
        if (f->at.a >= e->options.n_seqs) return impossible(f, "a sequence", f->at.a, error);
        if (f->at.b > ae_engine_n_live(e, f->at.a)) return impossible(f, "positions", f->at.b, error);
        return check_result(f, ae_engine_share(e, seq, f->at.a, f->at.b), error);
    case AE_COMMAND_ADOPT:
        if (f->at.n > e->options.n_ctx) return impossible(f, "tokens", f->at.n, error);
        return check_result(f, ae_engine_adopt(e, seq, tokens, f->at.n), error);
    case AE_COMMAND_KEEP:
        if (f->at.n != live) return impossible(f, "tokens", f->at.n, error);
        ae_engine_keep(e, seq, tokens);
        return AERIE_OK;
    default: ae_engine_snapshot(e, seq); return AERIE_OK;
    }
}

/* Reads which piece of a saved sequence is meant; n_tokens: how many tokens belong to it. */
static aerie_status read_saved(const follower *f, const ae_engine *e, ae_engine_saved *s, ae_kv_key *key, uint32_t n_tokens,
                               aerie_error *error)
{
    const uint32_t *w = f->payload;
    if (f->at.n != AE_COMMANDS_SAVED + n_tokens) return impossible(f, "words", f->at.n, error);
    *s = (ae_engine_saved){f->at.a, f->at.b, f->at.result, w[0], w[1]};
    *key = (ae_kv_key){w[2] | (uint64_t)w[3] << 32, w[4] | (uint64_t)w[5] << 32};
    if (f->at.result > 1) return impossible(f, "a state", f->at.result, error);
    if (s->begin >= s->end || s->end > s->n || s->end - s->begin > AE_KV_PAGE || s->end > e->options.n_ctx)
        return impossible(f, "an end", s->end, error);
    if (s->n > 1u << 24 || s->first > s->n || (s->first % AE_KV_PAGE && s->first != s->n))
        return impossible(f, "a first position", s->first, error);
    return AERIE_OK;
}

static aerie_status do_save(follower *f, ae_engine *e, aerie_error *error)
{
    const bool kept = f->at.n != AE_COMMANDS_SAVED; /* in the prefix tree */
    const int32_t *tokens = kept ? (const int32_t *)f->payload + AE_COMMANDS_SAVED : NULL;
    const uint32_t seq = f->at.seq;
    ae_engine_saved s;
    ae_kv_key key;
    AE_TRY(read_saved(f, e, &s, &key, kept ? f->at.a : 0, error));
    const uint32_t n = kept ? ae_kv_match(e->kv, key, tokens, s.n) : ae_kv_landing(e->kv, seq, s.n);
    if (n != s.n) return impossible(f, "positions", s.n, error);
    if (s.has_state && s.n != (kept ? ae_engine_prefix_saved(e, key, tokens, s.n) : ae_engine_seq_saved(e, seq, s.n)))
        return impossible(f, "a state after", s.n, error);
    if (s.first < (kept ? ae_kv_prefix_first(e->kv, key, tokens, n) : ae_kv_saved_first(e->kv, seq, n)))
        return impossible(f, "a first position", s.first, error);
    ae_engine_follow_save(e, seq, key, tokens, &s);
    return ae_comm_status(f->commands->comm, error);
}

static aerie_status do_load(follower *f, ae_engine *e, aerie_error *error)
{
    ae_engine_saved s;
    ae_kv_key key;
    if (f->at.n < AE_COMMANDS_SAVED) return impossible(f, "words", f->at.n, error);
    AE_TRY(read_saved(f, e, &s, &key, f->payload[1], error));
    if (s.begin % AE_KV_PAGE || (s.end % AE_KV_PAGE && s.end != s.n)) return impossible(f, "a begin", s.begin, error);
    ae_engine_follow_load(e, key, (const int32_t *)f->payload + AE_COMMANDS_SAVED, &s);
    return ae_comm_status(f->commands->comm, error);
}

static void drop_rows(follower *f, uint32_t engine)
{
    ae_free(f->rows[engine]);
    f->rows[engine] = NULL;
    f->n_given[engine] = 0;
}

static aerie_status do_engine(follower *f, ae_engine *e, aerie_error *error)
{
    switch (f->at.kind) {
    case AE_COMMAND_FREE:
        ae_engine_free(e);
        f->engines[f->at.engine] = NULL;
        drop_rows(f, f->at.engine);
        return AERIE_OK;
    case AE_COMMAND_CLEAR:
        ae_engine_rows_clear(e);
        f->n_given[f->at.engine] = 0;
        return AERIE_OK;
    case AE_COMMAND_GIVEN: return do_given(f, e, error);
    case AE_COMMAND_TURN: return do_turn(f, e, error);
    case AE_COMMAND_JOIN: return do_join(f, e, error);
    case AE_COMMAND_CHAIN: return do_chain(f, e, error);
    case AE_COMMAND_TREE: return do_tree(f, e, error);
    case AE_COMMAND_COMMIT:
        return check_result(f, (uint32_t)ae_engine_commit(e, f->at.seq, f->at.a, (const int32_t *)f->payload, f->at.n), error);
    case AE_COMMAND_MODE: return do_mode(f, e, error);
    case AE_COMMAND_PASS:
        if (f->at.a > AE_BEST_MOST || (f->at.a && !ae_engine_best_room(f->net->ranks)))
            return impossible(f, "candidates", f->at.a, error);
        if (f->at.b > ae_engine_most_waves(e)) return impossible(f, "waves", f->at.b, error);
        e->best.wanted = f->at.a;
        ae_engine_cut(e, f->at.b);
        return ae_engine_pass(e, error);
    case AE_COMMAND_LOGITS:
        if (!e->best.ran) return impossible(f, "logits after", e->best.ran, error);
        e->best.ran = 0;
        e->best.ran_noisy = false;
        ae_forward_collect(e);
        return ae_comm_status(f->commands->comm, error);
    case AE_COMMAND_ADAPT:
    case AE_COMMAND_KEY: return do_set(f, e, error);
    case AE_COMMAND_FORGET: ae_engine_forget_prefixes(e); return AERIE_OK;
    case AE_COMMAND_SAVE: return do_save(f, e, error);
    case AE_COMMAND_NOISE: return do_noise(f, e, error);
    case AE_COMMAND_LOAD: return do_load(f, e, error);
    default: return do_sequence(f, e, error);
    }
}

static aerie_status do_command(follower *f, aerie_error *error)
{
    if (f->at.engine >= AE_COMMANDS_MAX_ENGINES) return impossible(f, "engine", f->at.engine, error);
    if (f->at.kind == AE_COMMAND_CREATE) return create(f, error);
    ae_engine *e = f->engines[f->at.engine];
    if (!e) return impossible(f, "no engine", f->at.engine, error);
    if (f->at.seq >= e->options.n_seqs) return impossible(f, "sequence", f->at.seq, error);
    return do_engine(f, e, error);
}

aerie_status ae_commands_follow(ae_commands *commands, const ae_net *net, uint32_t n_threads, aerie_error *error)
{
    aerie_error own = {0}, *why = error ? error : &own;
    follower *f = ae_alloc(1, sizeof *f);
    if (!f) return ae_fail_memory(error, "a rank that follows", sizeof *f);
    f->commands = commands, f->net = net, f->n_threads = n_threads;
    aerie_status status = make_room(f, AE_COMMANDS_OPTIONS, why);
    while (status == AERIE_OK) {
        status = read_command(f, why);
        if (status == AERIE_OK && f->at.kind == AE_COMMAND_END) {
            commands->ended = true;
            break;
        }
        if (status == AERIE_OK) status = do_command(f, why);
    }
    if (status != AERIE_OK) ae_comm_fail(commands->comm, why->text);
    for (uint32_t i = 0; i < AE_COMMANDS_MAX_ENGINES; i++) ae_engine_free(f->engines[i]), drop_rows(f, i);
    ae_free(f->payload);
    ae_free(f);
    return status;
}
