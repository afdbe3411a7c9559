/* sequence.c - positions of a sequence, in the KV cache and in recurrent state together.
 *
 * The cache can be cut at positions where its windows are complete (anywhere, if there are no windows), a recurrent state only
 * at positions where a copy of it exists. A sequence therefore lands where both can be cut. Positions after that are given up,
 * even if one of the two still has them, and are computed again to the same bits. */
#include "engine/commands.h"
#include "engine/engine_int.h"

uint32_t ae_engine_max_tree(const ae_engine *e)
{
    return e->state ? ae_state_n_records(e->state) : AERIE_MAX_DRAFT;
}

bool ae_engine_has_state(const ae_engine *e)
{
    return e->state || ae_kv_loses_parts(e->kv);
}

uint32_t ae_engine_n_live(const ae_engine *e, uint32_t seq)
{
    return ae_kv_n_live(e->kv, seq);
}

uint32_t ae_engine_landing(const ae_engine *e, uint32_t seq, uint32_t n)
{
    n = ae_kv_landing(e->kv, seq, n);
    for (uint32_t last = n + 1; e->state && n < last;) {
        last = n;
        n = ae_kv_landing(e->kv, seq, ae_state_landing(e->state, seq, n));
    }
    return n;
}

static uint32_t truncate_to(ae_engine *e, uint32_t seq, uint32_t n)
{
    n = ae_engine_landing(e, seq, n);
    if (e->state) n = ae_state_truncate(e->state, NULL, seq, n);
    (void)ae_kv_truncate(e->kv, seq, n); /* n is a landing, so this cannot fail */
    if (e->n_source[seq] > n) e->n_source[seq] = n;
    return n;
}

uint32_t ae_engine_truncate(ae_engine *e, uint32_t seq, uint32_t n)
{
    const uint32_t landed = truncate_to(e, seq, n);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_TRUNCATE, .seq = seq, .a = n, .result = landed}, NULL);
    return landed;
}

/* ---- Keys: two sequences can share positions only if their keys are equal ------------------------------------------ */

static ae_kv_key key_of(const ae_adapter_set *set)
{
    return (ae_kv_key){set->key, set->scope};
}

ae_kv_key ae_engine_key(ae_engine *e, const ae_adapter_set *set)
{
    ae_adapter_set own = set ? *set : (ae_adapter_set){0};
    ae_adapter_keys_find(&e->keys, &own);
    /* ranks number sets in the order in which their keys are requested */
    if (own.n) ae_commands_put_set(e, AE_COMMAND_KEY, 0, &own);
    return key_of(&own);
}

ae_kv_key ae_engine_seq_key(const ae_engine *e, uint32_t seq)
{
    return key_of(&e->sets[seq]);
}

void ae_engine_adapt(ae_engine *e, uint32_t seq, const ae_adapter_set *set)
{
    (void)truncate_to(e, seq, 0);
    e->sets[seq] = set ? *set : (ae_adapter_set){0};
    ae_adapter_keys_find(&e->keys, &e->sets[seq]);
    if (e->state) ae_state_set_key(e->state, seq, key_of(&e->sets[seq]));
    ae_commands_put_set(e, AE_COMMAND_ADAPT, seq, &e->sets[seq]);
}

const ae_adapter_set *ae_engine_adapters(const ae_engine *e, uint32_t seq)
{
    return &e->sets[seq];
}

static uint32_t share(ae_engine *e, uint32_t to, uint32_t from, uint32_t n)
{
    if (to == from) return truncate_to(e, to, n);
    n = ae_kv_key_equal(key_of(&e->sets[to]), key_of(&e->sets[from])) ? ae_kv_landing(e->kv, from, n) : 0;
    while (n) {
        if (e->state) n = ae_state_share(e->state, NULL, to, from, n);
        if (ae_kv_share(e->kv, NULL, to, from, n) != AERIE_OK) break;
        if (ae_kv_n_live(e->kv, to) == n || !e->state) return ae_kv_n_live(e->kv, to);
        n = ae_kv_n_live(e->kv, to); /* the cache had no page for the last positions, or no complete window: land lower */
    }
    return truncate_to(e, to, 0);
}

uint32_t ae_engine_share(ae_engine *e, uint32_t to, uint32_t from, uint32_t n)
{
    const uint32_t shared = share(e, to, from, n);
    e->n_source[to] = e->n_source[from] < shared ? e->n_source[from] : shared;
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_SHARE, .seq = to, .a = from, .b = n, .result = shared}, NULL);
    return shared;
}

uint32_t ae_engine_match(const ae_engine *e, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    n = ae_kv_match(e->kv, key, tokens, n);
    return e->state ? ae_state_match(e->state, key, tokens, n) : n;
}

static uint32_t adopt(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    const ae_kv_key key = key_of(&e->sets[seq]);
    if (!e->state) return ae_kv_adopt(e->kv, NULL, seq, key, tokens, n);
    for (uint32_t goal = ae_engine_match(e, key, tokens, n); goal; goal = ae_state_match(e->state, key, tokens, n)) {
        n = ae_kv_adopt(e->kv, NULL, seq, key, tokens, goal);
        if (n == goal) return ae_state_adopt(e->state, NULL, seq, tokens, n);
    }
    return truncate_to(e, seq, 0);
}

uint32_t ae_engine_adopt(ae_engine *e, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    const uint32_t adopted = adopt(e, seq, tokens, n);
    e->n_source[seq] = 0;
    while (e->n_source[seq] < adopted && tokens[e->n_source[seq]] < 0) e->n_source[seq]++;
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_ADOPT, .seq = seq, .result = adopted, .n = n}, tokens);
    return adopted;
}

static void snapshot(ae_engine *e, uint32_t seq)
{
    if (e->state) (void)ae_state_snapshot(e->state, NULL, seq);
    ae_kv_retain(e->kv, seq);
}

void ae_engine_snapshot(ae_engine *e, uint32_t seq)
{
    snapshot(e, seq);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_SNAPSHOT, .seq = seq}, NULL);
}

void ae_engine_keep(ae_engine *e, uint32_t seq, const int32_t *tokens)
{
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_KEEP, .seq = seq, .n = ae_engine_n_live(e, seq)}, tokens);
    snapshot(e, seq);
    ae_kv_keep(e->kv, seq, key_of(&e->sets[seq]), tokens);
    (void)truncate_to(e, seq, 0);
}

void ae_engine_forget_prefixes(ae_engine *e)
{
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_FORGET}, NULL);
    ae_kv_forget_prefixes(e->kv);
    if (e->state) ae_state_forget_snapshots(e->state);
}
