/* penalties.c - the step that changes logits by repeat, presence and frequency penalties. */
#include "sample/sampler_int.h"

/* A token's logit is changed once, at the token's first occurrence; `seen` is zero again at the end. */
void ae_step_penalties(ae_sampler *s, const int32_t *tokens, size_t n_tokens)
{
    const ae_sampling *p = &s->draw.params;
    const size_t last = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > n_tokens ? n_tokens : (size_t)p->penalty_last_n;
    ae_to_row(&s->room);
    for (size_t i = n_tokens - last; i < n_tokens; i++)
        if (tokens[i] >= 0 && (uint32_t)tokens[i] < s->draw.n_vocab) s->seen[tokens[i]]++;
    for (size_t i = n_tokens - last; i < n_tokens; i++) {
        const int32_t id = tokens[i];
        if (id < 0 || (uint32_t)id >= s->draw.n_vocab || !s->seen[id]) continue;
        float x = s->room.row[id];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        s->room.row[id] = x - (float)s->seen[id] * p->frequency_penalty - p->presence_penalty;
        s->seen[id] = 0;
    }
}
