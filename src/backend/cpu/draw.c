/* draw.c - the CPU's walk and propose: the host's own samplers on rows of logits, trees and rows shared out to threads.
 *
 * Owns nothing. A tree is walked by one thread, so that it may use its sampler's scratch. */
#include "backend/cpu/cpu_int.h"

typedef struct tree_walk {
    const ae_walk *args;
    const ae_walk_tree *tree;
} tree_walk;

static bool is_eog(const ae_walk *a, int32_t token)
{
    for (uint32_t i = 0; i < a->n_eog; i++)
        if (a->eog[i] == token) return true;
    return false;
}

static ae_walk_verdict draw(void *context, uint32_t row, uint32_t depth, int32_t *token)
{
    const tree_walk *w = context;
    const float *logits = w->args->logits + (size_t)(w->tree->output + row) * w->args->n_vocab;
    if (!ae_walk_has_finite(logits, w->args->n_vocab)) return AE_WALK_OVERFLOW;
    *token = ae_sampler_draw(w->tree->sampler, logits, NULL, (size_t)(w->tree->position + depth));
    return w->tree->ends && is_eog(w->args, *token) ? AE_WALK_LAST : AE_WALK_ON;
}

static void walk_item(void *context, uint32_t item, uint32_t i_worker)
{
    const ae_walk *a = context;
    const ae_walk_tree *t = &a->trees[item];
    const uint32_t first = t->row + 1;
    (void)i_worker;
    ae_walk_down(&(ae_walk_nodes){t->n, a->token + first, a->parent + first, (int32_t)first}, t->n_most, draw,
                 &(tree_walk){a, t}, &a->out[item]);
}

void ae_cpu_walk(ae_stream *stream, const ae_walk *args)
{
    ae_pool_run(stream->pool, walk_item, (void *)args, args->n_trees);
}

static void propose_item(void *context, uint32_t item, uint32_t i_worker)
{
    const ae_propose *a = context;
    const ae_propose_row *r = &a->rows[item];
    ae_proposal *out = &a->out[item];
    const uint32_t k = r->k < AE_PROPOSE_MAX ? r->k : AE_PROPOSE_MAX;
    (void)i_worker;
    out->n = ae_sampler_propose(r->sampler, a->logits + (size_t)r->output * a->n_logits, a->n_logits, a->map,
                                (size_t)r->position, k, out->id, out->p);
}

void ae_cpu_propose(ae_stream *stream, const ae_propose *args)
{
    ae_pool_run(stream->pool, propose_item, (void *)args, args->n_rows);
}
