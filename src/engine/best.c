/* best.c - candidates instead of logits: what ranks that split a vocabulary send to rank 0, where draws look at the best of a
 * row alone (engine.h, ae_engine_expect), or at the best after noise.
 *
 * Each rank finds the best of its own part of every row; the best of all are among them. For rows that are drawn by noise alone
 * it also names the tokens of its part that the draw may take (draw/best.h). A row that needs more, because of infinite logits,
 * of a min-p that leaves many tokens, or of noise that is nearly equal, has the whole pass's logits come: the token is the same
 * either way. Owns nothing. */
#include <float.h>

#include "backend/draw_host.h"
#include "engine/commands.h"
#include "engine/engine_int.h"

uint32_t ae_engine_best_room(const ae_ranks *ranks)
{
    return ae_ranks_cuts_output(ranks) ? ranks->n * (AE_BEST_MOST + AE_NOISY_MOST) : 0;
}

void ae_engine_expect(ae_engine *e, uint32_t n_best)
{
    const ae_ranks *ranks = e->net->ranks;
    const size_t n_vocab = e->net->model->hparams.n_vocab;
    if (!ae_engine_best_room(ranks)) return;
    const size_t each = n_best + (e->best.noisy ? AE_NOISY_MOST : 0);
    const bool pays = n_best <= AE_BEST_MOST && each * ranks->n * sizeof(ae_candidate) < n_vocab * sizeof(float);
    e->best.wanted = pays ? n_best : 0;
}

void ae_engine_expect_noise(ae_engine *e, uint32_t seq, const ae_noise *noise)
{
    if (!ae_engine_best_room(e->net->ranks)) return;
    e->best.noise[seq] = *noise;
    e->best.noisy = true;
}

/* ---- All ranks ------------------------------------------------------------------------------------------------------ */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns the candidates that a rank sends for a row: the best ones, then those that noise may take. */
static uint32_t n_each(const ae_engine *e)
{
    return e->best.ran + (e->best.ran_noisy ? AE_NOISY_MOST : 0);
}

static ae_candidate *list_of(const ae_engine *e, uint32_t output, uint32_t rank)
{
    return e->best.list + ((size_t)output * e->net->ranks->n + rank) * n_each(e);
}

typedef struct search {
    ae_engine *engine;
    const float *logits; /* (host) [n_out][n_vocab]; this rank has computed its part of each row */
} search;

static void find_item(void *context, uint32_t item, uint32_t i_worker)
{
    const search *s = context;
    const ae_engine *e = s->engine;
    const ae_ranks *ranks = e->net->ranks;
    const uint32_t first = ranks->vocab.first[ranks->own], k = e->best.ran;
    ae_candidate *to = list_of(e, item, ranks->own);
    const float *logits = s->logits + (size_t)item * e->net->model->hparams.n_vocab + first;
    const uint32_t n = ae_select_top(logits, ranks->vocab.n[ranks->own], k, to);
    const uint32_t row = (uint32_t)e->rows.out_rows[item];
    const ae_noise *noise = e->best.ran_noisy ? &e->best.noise[e->rows.seq[row]] : NULL;
    (void)i_worker;
    if (noise && noise->temperature > 0.0f)
        ae_draw_noisy(noise, (uint64_t)e->rows.pos[row] + 1, logits, ranks->vocab.n[ranks->own], first, to + k);
    for (uint32_t i = 0; i < n; i++) to[i].id += (int32_t)first;
    for (uint32_t i = n; i < k; i++) to[i].id = -1;
}

void ae_engine_collect_best(ae_engine *e)
{
    const ae_backend_ops *ops = e->out->backend->ops;
    const ae_ranks *ranks = e->net->ranks;
    const uint32_t k = n_each(e);
    ae_slices slices = {{0}, {0}};
    search s = {.engine = e};
    memset(e->best.list, 0xff, (size_t)e->n_out * ranks->n * k * sizeof *e->best.list); /* ids -1 */
    s.logits = ops->view(e->out->stream, e->logits, e->logits_room,
                         (size_t)e->n_out * e->net->model->hparams.n_vocab * sizeof *s.logits);
    ae_forward_vouch(e, e->out);
    if (ranks->vocab.n[ranks->own]) ops->host_run(e->out->stream, find_item, &s, e->n_out);
    for (uint32_t r = 0; r < ranks->n; r++) {
        slices.first[r] = r * k;
        slices.n[r] = e->best.ran_noisy && ranks->vocab.n[r] ? k : least(k, ranks->vocab.n[r]);
    }
    ae_comm_gather(ranks->comm, &(ae_comm_part){e->best.list, (size_t)ranks->n * k, sizeof *e->best.list, e->n_out, &slices}, 1,
                   ae_to_first());
}

/* ---- Rank 0 --------------------------------------------------------------------------------------------------------- */

void ae_engine_need_logits(ae_engine *e)
{
    if (!e->best.ran) return;
    const bool held = ae_commands_hold(e->options.commands);
    ae_commands_put(e, &(ae_command){.kind = AE_COMMAND_LOGITS}, NULL);
    ae_commands_send(e->options.commands);
    e->best.ran = 0;
    e->best.ran_noisy = false;
    ae_forward_collect(e);
    ae_commands_release(e->options.commands, held);
}

static bool is_before(const ae_candidate *a, const ae_candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

/* Merges the best candidates of all ranks into best [ran] and returns their number. *all: the row has no other candidates. */
static uint32_t merge(const ae_engine *e, uint32_t output, ae_candidate *best, bool *all)
{
    const ae_ranks *ranks = e->net->ranks;
    uint32_t at[AE_MAX_RANKS] = {0}, n = 0;
    *all = true;
    for (;; n++) {
        const ae_candidate *next = NULL;
        uint32_t from = 0;
        for (uint32_t r = 0; r < ranks->n; r++) {
            const ae_candidate *c = list_of(e, output, r) + at[r];
            if (at[r] == e->best.ran) *all = *all && ranks->vocab.n[r] == at[r]; /* it may have had more */
            else if (c->id >= 0 && (!next || is_before(c, next))) next = c, from = r;
        }
        if (!next) return n;
        if (n == e->best.ran) break;
        best[n] = *next;
        at[from]++;
    }
    *all = false;
    return n;
}

typedef struct best_walk {
    const ae_engine *engine;
    const ae_walk_tree *tree;
    bool lacks; /* a walk reached a row for which these candidates are not enough */
} best_walk;

/* Adds tokens that the ranks have named for noise, but for those that are there, and returns the new number; 0: the row itself
 * is needed. best: the row's best candidates [n], of which the first one is the best of all. */
static uint32_t add_noisy(const ae_engine *e, uint32_t output, ae_candidate *best, uint32_t n)
{
    uint32_t n_all = n;
    if (!n || best[0].logit >= FLT_MAX) return 0;
    for (uint32_t r = 0; r < e->net->ranks->n; r++) {
        const ae_candidate *named = list_of(e, output, r) + e->best.ran;
        for (uint32_t i = 0; i < AE_NOISY_MOST; i++) {
            uint32_t k = 0;
            if (named[i].id == AE_NOISY_MORE) return 0;
            while (k < n && best[k].id != named[i].id) k++;
            if (named[i].id >= 0 && k == n) best[n_all++] = named[i];
        }
    }
    return n_all;
}

static ae_walk_verdict draw(void *context, uint32_t row, uint32_t depth, int32_t *token)
{
    best_walk *w = context;
    const ae_engine *e = w->engine;
    ae_candidate best[AE_BEST_MOST + AE_MAX_RANKS * AE_NOISY_MOST];
    ae_noise noise;
    bool all;
    const uint32_t n = merge(e, w->tree->output + row, best, &all);
    const uint32_t takes = ae_draw_is_noise(w->tree->draw, &noise) ? add_noisy(e, w->tree->output + row, best, n)
                                                                   : ae_draw_takes(w->tree->draw, best, n, all);
    w->lacks |= !takes;
    return ae_draw_host_best(w->tree, best, takes, e->best.eog, e->n_eog, depth, token);
}

/* Returns whether the ranks have looked for what this tree's draws need. */
static bool has_enough(const ae_engine *e, const ae_walk_tree *t)
{
    const ae_noise *sent = e->best.ran_noisy ? &e->best.noise[e->rows.seq[t->row]] : NULL;
    ae_noise noise;
    if (!ae_draw_is_noise(t->draw, &noise)) return ae_draw_wants(t->draw) && ae_draw_wants(t->draw) <= e->best.ran;
    return sent && sent->seed == noise.seed && sent->temperature == noise.temperature &&
           t->position == (uint64_t)e->rows.pos[t->row] + 1;
}

bool ae_engine_draw_best(ae_engine *e, uint32_t n, ae_walked *out)
{
    if (!e->best.ran) return false;
    for (uint32_t i = 0; i < n; i++) {
        const ae_walk_tree *t = &e->trees[i];
        const ae_walk_nodes nodes = ae_draw_host_nodes(t, e->rows.token, e->rows.parent);
        best_walk w = {.engine = e, .tree = t};
        if (!has_enough(e, t)) return false;
        ae_walk_down(&nodes, t->n_most, draw, &w, &out[i]);
        if (w.lacks) return false;
    }
    return true;
}
