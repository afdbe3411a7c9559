/* park.c - takes sequences out of their slots between two passes and puts them back later, so that others can run in between.
 *
 * Owns parked sequences: a copy of the slot's fields and tokens, and the sampler, constraint and limit of reasoning with their
 * states. Does not own pages of the KV cache: they go to the prefix tree, and when the sequence returns it computes again what
 * has been lost.
 * Invariant: a sequence that was parked produces the bytes of one that was not, since nothing that a draw depends on is created
 * anew.
 */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "speculate/speculate_int.h"

struct ae_spec_parked {
    spec_slot s; /* its tokens point to those below */
    int32_t tokens[];
};

aerie_status ae_spec_park(ae_spec *spec, uint32_t slot, ae_spec_parked **out, aerie_error *error)
{
    spec_slot *s = &spec->slots[slot];
    *out = NULL;
    if (spec->denoiser)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "an answer that is being denoised keeps its slot");
    const size_t bytes = sizeof(ae_spec_parked) + s->n_tokens * sizeof *s->tokens;
    ae_spec_parked *parked = ae_alloc(1, bytes);
    if (!parked) return ae_fail_memory(error, "a sequence that makes room for another", bytes);
    parked->s = *s;
    memcpy(parked->tokens, s->tokens, s->n_tokens * sizeof *s->tokens);
    parked->s.tokens = parked->tokens;
    parked->s.start_time = ae_time_now() - s->start_time; /* while the sequence is parked: the time that it has run so far,
                                                           * without the time in which others run */
    if (s->stats.n_generated > s->n_answered) parked->s.stats.decode_seconds = parked->s.start_time - s->stats.prompt_seconds;
    s->sampler = NULL;
    s->constraint = NULL;
    s->reasoning = NULL;
    s->media = NULL;
    s->n_media = 0;
    ae_spec_leave(spec, s);
    ae_spec_release(spec, slot);
    *out = parked;
    return AERIE_OK;
}

uint32_t ae_spec_unpark(ae_spec *spec, ae_spec_parked *parked, const ae_adapter_set *adapters)
{
    const spec_slot *p = &parked->s;
    origin from = ae_spec_origin(spec, adapters, p->tokens, p->n_tokens);
    const uint32_t i = from.slot, n_most = p->row && p->n_told < p->n_tokens ? p->n_told : (uint32_t)p->n_tokens - 1;
    spec_slot *s = &spec->slots[i];
    from.n_again = 1; /* the sequence may soon be parked again, and positions that are computed again make the pass longer for
                       * all */
    ae_engine_adapt(spec->engine, i, adapters);
    ae_spec_reuse(spec, i, p->tokens, n_most, &from);
    ae_sampler_free(s->sampler);
    ae_constraint_free(s->constraint);
    ae_reasoning_free(s->reasoning);
    int32_t *tokens = s->tokens;
    memcpy(tokens, p->tokens, p->n_tokens * sizeof *tokens);
    *s = *p;
    s->tokens = tokens;
    s->start_time = ae_time_now() - p->start_time;
    s->acceptance = (ae_acceptance){0}; /* another network may draft by now */
    s->active = true;
    s->preempted = false;
    s->leader = NO_SLOT; /* the prefix that it waited for may be in another place by now */
    s->number = spec->n_started++;
    spec->order[spec->n_active++] = i;
    ae_free(parked);
    return i;
}

void ae_spec_parked_free(ae_spec_parked *parked)
{
    if (!parked) return;
    ae_sampler_free(parked->s.sampler);
    ae_constraint_free(parked->s.constraint);
    ae_reasoning_free(parked->s.reasoning);
    ae_free(parked);
}

ae_spec_sequence ae_spec_parked_get(const ae_spec_parked *parked)
{
    const spec_slot *s = &parked->s;
    return (ae_spec_sequence){s->tokens, s->n_tokens, s->stats.n_generated, ae_sampler_mu(s->sampler), NULL};
}

const aerie_stats *ae_spec_parked_stats(const ae_spec_parked *parked)
{
    return &parked->s.stats;
}
