/* sampler.c - the life of a sampler, and its chain where steps look at earlier tokens or remember (sampler.h). The steps that
 * need a row alone, and the draw: draw/; penalties.c, dry.c. */
#include "sample/sampler.h"

#include "sample/sampler_int.h"

/* ---- Life -------------------------------------------------------------------------------------- */

/* Copies the parameters' lists, since they outlive the request that lent them: breakers and biases in one block each. */
static bool copy_lists(ae_sampler *s)
{
    ae_sampling *p = &s->draw.params;
    size_t n_bytes = p->n_dry_breakers * sizeof(char *);
    for (size_t i = 0; i < p->n_dry_breakers; i++) n_bytes += strlen(p->dry_breakers[i]) + 1;
    aerie_logit_bias *bias = ae_alloc(p->n_logit_bias, sizeof *bias);
    s->texts = ae_alloc(n_bytes, 1);
    if ((!bias && p->n_logit_bias) || (!s->texts && n_bytes)) {
        ae_free(bias);
        p->logit_bias = NULL;
        return false;
    }
    if (p->n_logit_bias) memcpy(bias, p->logit_bias, p->n_logit_bias * sizeof *bias);
    p->logit_bias = bias;
    const char **list = (const char **)s->texts;
    char *text = s->texts + p->n_dry_breakers * sizeof(char *);
    for (size_t i = 0; i < p->n_dry_breakers; i++) {
        const size_t n = strlen(p->dry_breakers[i]) + 1;
        memcpy(text, p->dry_breakers[i], n);
        list[i] = text;
        text += n;
    }
    p->dry_breakers = list;
    return true;
}

static bool allocate(ae_sampler *s)
{
    const bool dry = ae_draw_has(&s->draw, AERIE_SAMPLER_DRY), typical = ae_draw_has(&s->draw, AERIE_SAMPLER_TYPICAL_P);
    if (!copy_lists(s)) return false;
    s->room.row = ae_alloc(s->draw.n_vocab, sizeof *s->room.row);
    s->room.list = ae_alloc(s->draw.n_vocab, sizeof *s->room.list);
    if (!s->room.row || !s->room.list) return false;
    const bool counts = dry || ae_draw_has(&s->draw, AERIE_SAMPLER_PENALTIES);
    if (counts && !(s->seen = ae_alloc(s->draw.n_vocab, sizeof *s->seen))) return false;
    if (dry && !(s->repeats = ae_alloc(s->n_ctx, sizeof *s->repeats))) return false;
    if (ae_draw_sorts_many(&s->draw) && !(s->room.spare = ae_alloc(s->draw.n_vocab, sizeof *s->room.spare))) return false;
    return !typical || (s->room.typical = ae_alloc(s->draw.n_vocab, sizeof *s->room.typical));
}

size_t ae_sampler_plan_bytes(uint32_t n_vocab)
{
    return sizeof(ae_sampler) + n_vocab * sizeof(ae_candidate);
}

aerie_status ae_sampler_create(ae_sampler **out, const ae_sampling *sampling, const ae_vocab *vocab, uint32_t n_vocab,
                               size_t n_ctx, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_sampling_check(sampling, n_vocab, error));
    ae_sampler *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a sampler", sizeof *s);
    *s = (ae_sampler){.vocab = vocab, .n_ctx = n_ctx, .drawn.token = -1};
    s->room.mu = 2.0 * (double)sampling->mirostat_tau;
    ae_draw_plan(&s->draw, sampling, n_vocab);
    if (!allocate(s)) {
        ae_sampler_free(s);
        return ae_fail_memory(error, "a sampler", n_vocab * (sizeof *s->room.row + sizeof *s->room.list));
    }
    ae_draw_room_init(&s->room);
    *out = s;
    return AERIE_OK;
}

void ae_sampler_free(ae_sampler *sampler)
{
    if (!sampler) return;
    ae_free((void *)sampler->draw.params.logit_bias);
    ae_free(sampler->texts);
    ae_free(sampler->room.row);
    ae_free(sampler->room.list);
    ae_free(sampler->room.spare);
    ae_free(sampler->seen);
    ae_free(sampler->repeats);
    ae_free(sampler->room.typical);
    ae_free(sampler);
}

const ae_sampling *ae_sampler_params(const ae_sampler *sampler)
{
    return &sampler->draw.params;
}

const ae_draw *ae_sampler_plain(const ae_sampler *sampler)
{
    return &sampler->draw;
}

ae_draw_room *ae_sampler_room(ae_sampler *sampler)
{
    return &sampler->room;
}

bool ae_sampler_is_best_of_any(const ae_sampler *sampler)
{
    return ae_draw_is_best_of_any(&sampler->draw);
}

bool ae_sampler_draws_from_row(const ae_sampler *sampler)
{
    return ae_draw_is_from_row(&sampler->draw);
}

/* ---- The draw ------------------------------------------------------------------------------------------------ */

static void run_chain(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens)
{
    ae_chain_begin(&s->room, &s->draw, logits);
    for (uint32_t i = 0; i < s->draw.n_steps; i++) {
        const aerie_sampler step = s->draw.steps[i];
        if (step == AERIE_SAMPLER_PENALTIES) ae_step_penalties(s, tokens, n_tokens);
        else if (step == AERIE_SAMPLER_DRY) ae_step_dry(s, tokens, n_tokens);
        else ae_chain_step(&s->room, step, n_tokens);
    }
    if (s->draw.params.mirostat) ae_step_mirostat(&s->room);
}

const ae_candidate *ae_sampler_candidates(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens,
                                          uint32_t *n, double *temperature)
{
    run_chain(s, logits, tokens, n_tokens);
    ae_to_list(&s->room);
    *n = s->room.n;
    *temperature = s->room.t;
    return s->room.list;
}

int32_t ae_sampler_draw(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens)
{
    run_chain(s, logits, tokens, n_tokens);
    s->drawn.token = -1;
    const int32_t id = ae_chain_end(&s->room, logits, n_tokens);
    if (s->draw.params.mirostat && s->room.n) {
        s->drawn.token = id;
        s->drawn.position = n_tokens;
        s->drawn.mu = ae_mirostat_next(&s->room, id);
    }
    return id;
}

void ae_sampler_accept(ae_sampler *s, int32_t token, size_t position)
{
    if (s->drawn.token != token || s->drawn.position != position) return;
    s->room.mu = s->drawn.mu;
    s->drawn.token = -1;
}

double ae_sampler_mu(const ae_sampler *s)
{
    return s->room.mu;
}

void ae_sampler_set_mu(ae_sampler *s, double mu)
{
    s->room.mu = mu;
}

uint32_t ae_sampler_propose(const ae_sampler *s, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                            uint32_t k, int32_t *ids, float *probs)
{
    return ae_draw_propose(&s->draw, logits, n_logits, map, position, k, ids, probs);
}
