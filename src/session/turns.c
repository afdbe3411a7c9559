/* turns.c - implements turns.h. */
#include "session/session_int.h"

#include "base/err.h"
#include "base/mem.h"

#define PROMPT_WORK 0.125 /* work of one computed prompt token, which shares its pass with many others */

/* ---- Accounts --------------------------------------------------------------------------------------------- */

aerie_status ae_turns_prepare(ae_turn *turn, aerie_error *error)
{
    for (int i = 0; i < 2; i++)
        if (!(turn->spare[i] = ae_alloc(1, sizeof *turn->spare[i])))
            return ae_fail_memory(error, "a request's account", sizeof *turn->spare[i]);
    return AERIE_OK;
}

void ae_turns_drop(ae_turn *turn)
{
    for (int i = 0; i < 2; i++) ae_free(turn->spare[i]);
}

/* Finds the account with this id, or opens one with the spare. */
static ae_turns_account *find(ae_turns_account **list, uint64_t id, bool is_new, ae_turns_account **spare)
{
    for (ae_turns_account *a = is_new ? NULL : *list; a; a = a->next)
        if (a->id == id) return a;
    ae_turns_account *own = *spare;
    *spare = NULL;
    own->id = id;
    own->next = *list;
    *list = own;
    return own;
}

static void close_account(ae_turns_account **list, ae_turns_account *account)
{
    if (--account->n_tasks) return;
    while (*list != account) list = &(*list)->next;
    *list = account->next;
    ae_free(account);
}

void ae_turns_enter(ae_turns *turns, aerie_task *task)
{
    ae_turn *t = &task->turn;
    double least = -1;
    if (!t->spare[0]) return;
    for (const ae_turns_account *c = turns->clients; c; c = c->next)
        if (least < 0 || c->work < least) least = c->work;
    t->client = find(&turns->clients, task->request.client, false, &t->spare[0]);
    if (!t->client->n_tasks && least > 0) t->client->work = least; /* clients without requests do not save up claims for
                                                                    * later */
    t->group = find(&t->client->groups, task->request.group, !task->request.group, &t->spare[1]);
    t->client->n_tasks++;
    t->group->n_tasks++;
}

void ae_turns_leave(ae_turns *turns, aerie_task *task)
{
    ae_turn *t = &task->turn;
    if (!t->client) return;
    close_account(&t->client->groups, t->group);
    close_account(&turns->clients, t->client);
    t->client = t->group = NULL;
}

/* ---- Turns --------------------------------------------------------------------------------------------------- */

double ae_turns_work(const aerie_task *task, uint32_t n_generated, uint32_t n_live)
{
    const ae_turn *t = &task->turn;
    const uint32_t made = n_generated > t->n_generated ? n_generated - t->n_generated : 0;
    const uint32_t grown = n_live > t->n_live ? n_live - t->n_live : 0;
    return made + (grown > made ? PROMPT_WORK * (grown - made) : 0);
}

static double score_waiting(const ae_turns *turns, const aerie_task *task)
{
    const double waited = (double)(turns->n_passes - task->turn.since), score = task->turn.score - waited;
    return task->turn.returned && score > 0 ? score : 0;
}

void ae_turns_begin(const ae_turns *turns, aerie_task *task, uint32_t n_generated, uint32_t n_live)
{
    ae_turn *t = &task->turn;
    t->score = score_waiting(turns, task);
    t->n_generated = n_generated;
    t->n_live = n_live;
    if (!t->client) return;
    t->running = true;
    t->client->n_running++;
    t->group->n_running++;
}

void ae_turns_end(ae_turns *turns, aerie_task *task, double work)
{
    ae_turn *t = &task->turn;
    if (!t->running) return;
    t->running = false;
    t->returned = true;
    t->score += work;
    t->since = turns->n_passes;
    t->client->work += work;
    t->client->n_running--;
    t->group->n_running--;
}

/* ---- Who is next ------------------------------------------------------------------------------------------------ */

/* Returns the score in units of max_turn, by powers of two. */
static uint32_t level(double score, uint32_t max_turn)
{
    uint32_t n = 0;
    for (double most = max_turn; score >= most && n < 40; most *= 2) n++;
    return n;
}

/* Returns whether a comes before b; both are the same client's, and b is older. */
static bool comes_before(const ae_turns *turns, const aerie_task *a, const aerie_task *b, uint32_t max_turn)
{
    const uint32_t n_a = a->turn.group->n_running, n_b = b->turn.group->n_running;
    if (n_a != n_b) return n_a < n_b;
    return level(score_waiting(turns, a), max_turn) < level(score_waiting(turns, b), max_turn);
}

/* Returns whether client a comes before b by their accounts; b's best task is older. */
static bool client_before(const ae_turns *turns, const ae_turns_account *a, const ae_turns_account *b, uint32_t max_turn)
{
    if (a->n_running != b->n_running) return a->n_running < b->n_running;
    const uint32_t l_a = level(score_waiting(turns, a->best), max_turn), l_b = level(score_waiting(turns, b->best), max_turn);
    return l_a != l_b ? l_a < l_b : a->work < b->work;
}

aerie_task **ae_turns_next(const ae_turns *turns, aerie_task **list, uint32_t max_turn)
{
    if (!max_turn) return list;
    for (ae_turns_account *c = turns->clients; c; c = c->next) c->best = NULL;
    for (aerie_task *t = *list; t; t = t->next) {
        aerie_task **best = &t->turn.client->best;
        if (!*best || comes_before(turns, t, *best, max_turn)) *best = t;
    }
    const ae_turns_account *first = NULL;
    for (const aerie_task *t = *list; t; t = t->next) { /* in the order of the list, so that the oldest wins */
        const ae_turns_account *c = t->turn.client;
        if (c->best == t && (!first || client_before(turns, c, first, max_turn))) first = c;
    }
    while (*list != first->best) list = &(*list)->next;
    return list;
}

/* ---- Giving up slots ------------------------------------------------------------------------------------------------- */

/* Work that the task may still need. */
static double work_left(const aerie_task *task, uint32_t n_generated)
{
    const uint32_t n = task->request.n_predict;
    if (!n) return task->session->params.n_ctx;
    return n > n_generated ? n - n_generated : 0;
}

static double need_of(const aerie_task *task, uint32_t max_turn)
{
    const uint32_t n_done = task->parked ? ae_spec_parked_stats(task->parked)->n_generated : 0;
    const double prompt = task->parked ? 0 : PROMPT_WORK * (double)task->request.n_tokens;
    const double need = work_left(task, n_done) + prompt;
    return need < max_turn ? need : max_turn;
}

/* Returns whether the running task gives its slot to the waiting one. 2: yes, its client or group has more slots; 1: yes, it
 * has had more work; 0: no. */
static int gives_way(const ae_turns *turns, const aerie_task *r, double work, const aerie_task *w, uint32_t max_turn)
{
    const bool same = r->turn.client == w->turn.client;
    if (same && r->turn.group == w->turn.group) return 0;
    const uint32_t n_r = same ? r->turn.group->n_running : r->turn.client->n_running;
    const uint32_t n_w = (same ? w->turn.group->n_running : w->turn.client->n_running) + 1;
    const uint32_t n_made = ae_spec_stats(r->session->spec, (uint32_t)atomic_load(&r->slot))->n_generated;
    const uint32_t made = n_made > r->turn.n_generated ? n_made - r->turn.n_generated : 0;
    if (n_w > n_r || (r->turn.returned && made < 1 + (work - made))) return 0;
    if (n_w < n_r) return 2;
    const double need = need_of(w, max_turn);
    /* a task that came back keeps its slot until it has made progress, whatever it had before */
    if (r->turn.returned && work < need) return 0;
    return r->turn.score + work >= need + 2 * score_waiting(turns, w) && work_left(r, n_made) > need;
}

uint32_t ae_turns_victim(const ae_turns *turns, const aerie_task *task, aerie_task *const *running, const double *works,
                         uint32_t n_seqs, uint32_t max_turn)
{
    uint32_t best = n_seqs;
    int best_how = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        const aerie_task *r = running[i], *b = best < n_seqs ? running[best] : NULL;
        const int how = r ? gives_way(turns, r, works[i], task, max_turn) : 0;
        if (!how || how < best_how) continue;
        bool better = how > best_how;
        if (!better) {
            const uint32_t c_r = r->turn.client->n_running, c_b = b->turn.client->n_running;
            const uint32_t g_r = r->turn.group->n_running, g_b = b->turn.group->n_running;
            const double s_r = r->turn.score + works[i], s_b = b->turn.score + works[best];
            better = c_r != c_b ? c_r > c_b : g_r != g_b ? g_r > g_b : s_r > s_b;
        }
        if (better) best = i, best_how = how;
    }
    return best;
}
