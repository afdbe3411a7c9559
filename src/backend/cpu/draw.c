/* draw.c - the CPU's walk and propose: draws from rows of logits, trees and rows shared out to threads.
 *
 * Owns nothing. A tree is walked by one thread, so that it may use its scratch. */
#include "backend/cpu/cpu_int.h"
#include "backend/draw_host.h"

typedef struct tree_walk {
    const ae_walk *args;
    const ae_walk_tree *tree;
} tree_walk;

static ae_walk_verdict draw(void *context, uint32_t row, uint32_t depth, int32_t *token)
{
    const tree_walk *w = context;
    const ae_walk *a = w->args;
    return ae_draw_host_token(w->tree, a->logits + (size_t)(w->tree->output + row) * a->n_vocab, a->n_vocab, a->eog, a->n_eog,
                              depth, token);
}

static void walk_item(void *context, uint32_t item, uint32_t i_worker)
{
    const ae_walk *a = context;
    const ae_walk_tree *t = &a->trees[item];
    const ae_walk_nodes nodes = ae_draw_host_nodes(t, a->token, a->parent);
    (void)i_worker;
    ae_walk_down(&nodes, t->n_most, draw, &(tree_walk){a, t}, &a->out[item]);
}

void ae_cpu_walk(ae_stream *stream, const ae_walk *args)
{
    ae_pool_run(stream->pool, walk_item, (void *)args, args->n_trees);
}

static void propose_item(void *context, uint32_t item, uint32_t i_worker)
{
    const ae_propose *a = context;
    const ae_propose_row *r = &a->rows[item];
    (void)i_worker;
    ae_draw_host_propose(r, a->logits + (size_t)r->output * a->n_logits, a->n_logits, a->map, &a->out[item]);
}

void ae_cpu_propose(ae_stream *stream, const ae_propose *args)
{
    ae_pool_run(stream->pool, propose_item, (void *)args, args->n_rows);
}
