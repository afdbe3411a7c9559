/* penalties.c - steps that change logits by token: logit bias; repeat, presence and frequency penalties. */
#include "sample/sampler_int.h"

void ae_step_bias(ae_sampler *s)
{
    ae_to_row(s);
    for (size_t i = 0; i < s->params.n_logit_bias; i++) s->row[s->params.logit_bias[i].token] += s->params.logit_bias[i].bias;
}

/* A token's logit is changed once, at its first occurrence; `seen` is zero again afterwards. */
void ae_step_penalties(ae_sampler *s, const int32_t *tokens, size_t n_tokens)
{
    const ae_sampling *p = &s->params;
    const size_t last = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n_tokens ? n_tokens : (size_t)p->penalty_last_n;
    ae_to_row(s);
    for (size_t i = n_tokens - last; i < n_tokens; i++)
        if (tokens[i] >= 0 && (uint32_t)tokens[i] < s->n_vocab) s->seen[tokens[i]]++;
    for (size_t i = n_tokens - last; i < n_tokens; i++) {
        const int32_t id = tokens[i];
        if (id < 0 || (uint32_t)id >= s->n_vocab || !s->seen[id]) continue;
        float x = s->row[id];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        s->row[id] = x - (float)s->seen[id] * p->frequency_penalty - p->presence_penalty;
        s->seen[id] = 0;
    }
}
