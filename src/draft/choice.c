/* choice.c - several drafters with networks, one of which drafts at a time. The controller chooses it (controller.h).
 *
 * The others are idle, as if the loop were paused (ae_draft_seen.idle), unless they may draft soon. An idle drafter keeps
 * nothing and costs nothing.
 *
 * Owns the drafters.
 */
#include "base/mem.h"
#include "draft/drafter.h"

typedef struct choice {
    ae_drafter base;
    ae_drafter *of[AERIE_MAX_DRAFTERS];
} choice;

static bool is_active(const ae_drafter *drafter, uint32_t i)
{
    return drafter->active >> i & 1;
}

static uint32_t choice_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    choice *d = (choice *)drafter;
    uint32_t n = begin->n_shared;
    for (uint32_t i = 0; i < drafter->n_choices; i++) {
        ae_draft_begin own = *begin;
        own.idle |= !is_active(drafter, i);
        const uint32_t theirs = d->of[i]->ops->begin(d->of[i], &own);
        if (theirs < n) n = theirs;
    }
    return n;
}

static void choice_observe(ae_drafter *drafter, const ae_draft_seen *seen)
{
    choice *d = (choice *)drafter;
    for (uint32_t i = 0; i < drafter->n_choices; i++) {
        ae_draft_seen own = *seen;
        own.idle |= !is_active(drafter, i);
        if (d->of[i]->ops->observe) d->of[i]->ops->observe(d->of[i], &own);
    }
}

static aerie_status choice_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    ae_drafter *own = ((choice *)drafter)->of[drafter->i_choice];
    AE_TRY(own->ops->propose(own, requests, n, error));
    drafter->cost = own->cost;
    return AERIE_OK;
}

static void choice_destroy(ae_drafter *drafter)
{
    choice *d = (choice *)drafter;
    for (uint32_t i = 0; i < drafter->n_choices; i++) d->of[i]->ops->destroy(d->of[i]);
    ae_free(d);
}

aerie_status ae_draft_choice_create(ae_drafter **out, ae_drafter *const *of, uint32_t n, aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "choice", .begin = choice_begin, .observe = choice_observe,
                                       .propose = choice_propose, .destroy = choice_destroy};
    choice *d = n <= AERIE_MAX_DRAFTERS ? ae_alloc(1, sizeof *d) : NULL;
    *out = NULL;
    if (!d) {
        for (uint32_t i = 0; i < n; i++) of[i]->ops->destroy(of[i]);
        return ae_fail_memory(error, "several drafters", sizeof *d);
    }
    d->base = (ae_drafter){.ops = &ops, .n_choices = n, .active = UINT32_MAX};
    for (uint32_t i = 0; i < n; i++) {
        d->of[i] = of[i];
        d->base.skips_media |= of[i]->skips_media;
    }
    *out = &d->base;
    return AERIE_OK;
}
