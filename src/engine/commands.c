/* commands.c - how rank 0 writes commands (commands.h). A frame has a fixed size; a long command continues in the next
 * frame. */
#include "engine/commands.h"

#include <pthread.h>
#include <string.h>

#include "engine/commands_int.h"
#include "engine/engine_int.h"

aerie_status ae_commands_open(ae_commands **out, ae_comm *comm, aerie_error *error)
{
    ae_commands *c = ae_alloc(1, sizeof *c);
    *out = c;
    if (!c) return ae_fail_memory(error, "the commands of a group", sizeof *c);
    c->comm = comm;
    return AERIE_OK;
}

bool ae_commands_began(const ae_commands *commands)
{
    return commands->began;
}

aerie_status ae_commands_add_adapter(ae_commands *c, const ae_adapter *adapter, aerie_error *error)
{
    if (c->n_adapters == AE_COMMANDS_ADAPTERS)
        return ae_fail(error, AERIE_ERROR_LIMIT, "a group of ranks has %d adapters at most", AE_COMMANDS_ADAPTERS);
    c->adapters[c->n_adapters++] = adapter;
    return AERIE_OK;
}

/* ---- Words ---------------------------------------------------------------------------------------------------------- */

static void put_word(ae_commands *c, uint32_t word)
{
    if (c->frame.n == AE_COMMANDS_WORDS) ae_commands_send(c);
    c->frame.words[c->frame.n++] = word;
}

void ae_commands_send(ae_commands *c)
{
    if (!c || !c->frame.n) return;
    ae_comm_frame(c->comm, &c->frame);
    c->frame.n = 0;
}

static uintptr_t this_thread(void)
{
    return (uintptr_t)pthread_self(); /* pthread_self is a number or an address on Linux, never 0 */
}

bool ae_commands_hold(ae_commands *c)
{
    uintptr_t none = 0;
    if (!c) return false;
    if (atomic_compare_exchange_strong(&c->holder, &none, this_thread())) return true;
    if (none != this_thread())
        ae_comm_fail(c->comm, "two threads of the first process use sessions at once; in a group one thread must do that");
    return false;
}

void ae_commands_release(ae_commands *c, bool held)
{
    if (held) atomic_store(&c->holder, 0);
}

static void put_head(ae_commands *c, const ae_command *command)
{
    const uint32_t head[] = {command->kind, command->engine, command->seq, command->a, command->b, command->result, command->n};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) put_word(c, head[i]);
}

/* Returns whether another rank reads what this rank writes. */
static bool is_read(const ae_commands *c)
{
    return c && c->comm->n_ranks > 1 && !c->comm->rank;
}

static void put(ae_commands *c, const ae_command *command, const uint32_t *payload)
{
    if (!is_read(c)) return;
    const bool held = ae_commands_hold(c);
    put_head(c, command);
    for (uint32_t i = 0; i < command->n; i++) put_word(c, payload[i]);
    ae_commands_release(c, held);
}

static void put_for(const ae_engine *e, const ae_command *command, const uint32_t *payload)
{
    ae_command own = *command;
    if (!e->options.commands) return;
    own.engine = e->number;
    put(e->options.commands, &own, payload);
}

void ae_commands_put(ae_engine *e, const ae_command *command, const int32_t *payload)
{
    put_for(e, command, (const uint32_t *)payload);
}

void ae_commands_put_tree(ae_engine *e, uint32_t seq, const ae_tree *tree, uint32_t n_silent, aerie_status status)
{
    uint32_t words[2 * AERIE_MAX_DRAFT];
    const uint32_t n = tree->n <= AERIE_MAX_DRAFT ? tree->n : 0;
    for (uint32_t i = 0; i < n; i++) {
        words[i] = (uint32_t)tree->parent[i];
        words[n + i] = (uint32_t)tree->token[i];
    }
    put_for(e, &(ae_command){.kind = AE_COMMAND_TREE, .seq = seq, .a = n_silent, .result = (uint32_t)status, .n = 2 * n},
            words);
}

void ae_commands_put_given(ae_engine *e, const struct ae_given *g, bool group)
{
    ae_commands *c = e->options.commands;
    const ae_hparams *h = &e->net->model->hparams;
    if (!is_read(c)) return;
    const bool held = ae_commands_hold(c);
    put_head(c, &(ae_command){.kind = AE_COMMAND_GIVEN, .engine = e->number, .a = g->first, .b = g->n, .result = group});
    for (uint32_t plane = 0; plane <= h->n_deepstack; plane++)
        for (size_t i = 0; i < (size_t)g->n * h->n_embd; i++) {
            uint32_t word;
            memcpy(&word, g->rows + plane * g->plane + i, sizeof word);
            put_word(c, word);
        }
    ae_commands_release(c, held);
}

void ae_commands_put_noise(ae_engine *e)
{
    for (uint32_t i = 0; i < e->options.n_seqs; i++) {
        const ae_noise *noise = &e->best.noise[i];
        const uint32_t seed[] = {(uint32_t)noise->seed, (uint32_t)(noise->seed >> 32)};
        ae_command command = {.kind = AE_COMMAND_NOISE, .seq = i, .n = 2};
        memcpy(&command.a, &noise->temperature, sizeof command.a);
        if (noise->temperature > 0.0f) put_for(e, &command, seed);
    }
}

static uint32_t number_of(const ae_commands *c, const ae_adapter *adapter)
{
    uint32_t i = 0;
    while (i < c->n_adapters && c->adapters[i] != adapter) i++;
    return i; /* n_adapters if the adapter was never added; ranks that follow refuse that number */
}

void ae_commands_put_mode(ae_engine *e, const ae_pass_mode *mode)
{
    uint32_t words[AE_MAX_LAYERS];
    const ae_commands *c = e->options.commands;
    const uint32_t n = mode ? e->net->model->hparams.n_layers : 0;
    if (!c) return;
    for (uint32_t i = 0; i < n; i++) words[i] = mode->lacks[i];
    put_for(e, &(ae_command){.kind = AE_COMMAND_MODE, .a = mode ? mode->n_experts + 1 : 0,
                             .b = mode && mode->adapter ? number_of(c, mode->adapter) + 1 : 0, .n = n}, words);
}

void ae_commands_put_set(ae_engine *e, ae_command_kind kind, uint32_t seq, const ae_adapter_set *set)
{
    uint32_t words[2 * AERIE_MAX_ADAPTERS];
    if (!e->options.commands) return;
    for (uint32_t i = 0; i < set->n; i++) {
        words[2 * i] = number_of(e->options.commands, set->list[i].adapter);
        memcpy(&words[2 * i + 1], &set->list[i].scale, sizeof *words);
    }
    put_for(e, &(ae_command){.kind = kind, .seq = seq, .a = (uint32_t)set->scope, .b = (uint32_t)(set->scope >> 32),
                             .n = 2 * set->n}, words);
}

void ae_commands_put_saved(ae_engine *e, ae_command_kind kind, uint32_t seq, ae_kv_key key, const int32_t *tokens,
                           uint32_t n_tokens, const ae_engine_saved *s)
{
    ae_commands *c = e->options.commands;
    const uint32_t words[] = {s->begin, s->end, (uint32_t)key.adapters, (uint32_t)(key.adapters >> 32), (uint32_t)key.scope,
                              (uint32_t)(key.scope >> 32)};
    _Static_assert(sizeof words == AE_COMMANDS_SAVED * sizeof *words, "as declared");
    if (!is_read(c)) return;
    const bool held = ae_commands_hold(c);
    put_head(c, &(ae_command){.kind = kind, .engine = e->number, .seq = seq, .a = s->n, .b = s->first, .result = s->has_state,
                              .n = AE_COMMANDS_SAVED + n_tokens});
    for (uint32_t i = 0; i < AE_COMMANDS_SAVED; i++) put_word(c, words[i]);
    for (uint32_t i = 0; i < n_tokens; i++) put_word(c, (uint32_t)tokens[i]);
    ae_commands_release(c, held);
}

/* ---- Life ----------------------------------------------------------------------------------------------------------- */

aerie_status ae_commands_create(ae_commands *c, ae_engine *e, aerie_error *error)
{
    const ae_engine_options *o = &e->options;
    uint32_t words[AE_COMMANDS_OPTIONS] = {o->n_ctx, o->n_seqs, o->n_batch, o->n_outputs, o->n_records, o->n_snapshots,
                                           o->n_windows, o->n_kv_pages, (uint32_t)o->kv_type, o->max_rank, o->n_taps};
    _Static_assert(AE_COMMANDS_OPTIONS >= 11 + AERIE_MAX_TAPS, "room for all options");
    memcpy(words + 11, o->taps, sizeof o->taps);
    for (e->number = 0; e->number < AE_COMMANDS_MAX_ENGINES && c->taken[e->number];) e->number++;
    if (e->number == AE_COMMANDS_MAX_ENGINES)
        return ae_fail(error, AERIE_ERROR_LIMIT, "a group of ranks runs %d sessions at a time at most",
                       AE_COMMANDS_MAX_ENGINES);
    c->taken[e->number] = c->began = true;
    put(c, &(ae_command){.kind = AE_COMMAND_CREATE, .engine = e->number, .n = AE_COMMANDS_OPTIONS}, words);
    ae_commands_send(c);
    return AERIE_OK;
}

void ae_commands_free_engine(ae_engine *e)
{
    ae_commands *c = e->options.commands;
    if (!c || e->number >= AE_COMMANDS_MAX_ENGINES) return;
    put_for(e, &(ae_command){.kind = AE_COMMAND_FREE}, NULL);
    ae_commands_send(c);
    c->taken[e->number] = false;
}

void ae_commands_close(ae_commands *c)
{
    if (!c) return;
    put(c, &(ae_command){.kind = AE_COMMAND_END}, NULL);
    if (!c->comm->rank) ae_commands_send(c);
    else if (!c->ended) ae_comm_fail(c->comm, "a process ended before the first one did");
    ae_free(c);
}
