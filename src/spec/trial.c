/* trial.c - see trial.h. */
#include "spec/trial.h"


#define BLOCK (AE_TRIAL_ROUNDS / 2)
#define HOLD_WITH 256
#define HOLD_WITHOUT 64
#define MAX_DOUBLINGS 4

/* Another number of sequences is another question. */
static bool is_another(const ae_trial *t, uint32_t n_seqs)
{
    return n_seqs > t->n_seqs + t->n_seqs / 4 || n_seqs + n_seqs / 4 < t->n_seqs;
}

bool ae_trial_allows(ae_trial *t, uint32_t n_seqs)
{
    if (n_seqs < AE_TRIAL_SEQS) {
        *t = (ae_trial){0};
        return true;
    }
    if (!t->n_held && (!t->n_rounds || is_another(t, n_seqs))) {
        t->n_seqs = n_seqs;
        t->n_rounds = t->n_seen[0] = t->n_seen[1] = 0;
    }
    if (t->n_held) return t->with;
    return t->n_rounds / BLOCK % 4 == 1 || t->n_rounds / BLOCK % 4 == 2;
}

static float median(float *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j && x[j] < x[j - 1]; j--) {
            const float lower = x[j];
            x[j] = x[j - 1];
            x[j - 1] = lower;
        }
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static void decide(ae_trial *t)
{
    t->with = median(t->seconds[1], t->n_seen[1]) < median(t->seconds[0], t->n_seen[0]);
    t->n_lost = t->with ? 0 : t->n_lost + 1;
    const uint32_t doublings = t->n_lost > MAX_DOUBLINGS ? MAX_DOUBLINGS : t->n_lost ? t->n_lost - 1 : 0;
    t->n_held = t->with ? HOLD_WITH : HOLD_WITHOUT << doublings;
    t->n_rounds = t->n_seen[0] = t->n_seen[1] = 0;
}

void ae_trial_saw(ae_trial *t, bool allowed, uint32_t n_tokens, double seconds)
{
    if (!t->n_seqs || !n_tokens) return;
    if (t->n_held) {
        t->n_held--;
        return;
    }
    if (t->n_seen[allowed] < AE_TRIAL_ROUNDS) t->seconds[allowed][t->n_seen[allowed]++] = (float)(seconds / n_tokens);
    t->n_rounds++;
    if (t->n_seen[0] == AE_TRIAL_ROUNDS && t->n_seen[1] == AE_TRIAL_ROUNDS) decide(t);
}

bool ae_trial_rests(const ae_trial *t)
{
    return t->n_held && !t->with;
}
