/* choose_drafter.c - see choose_drafter.h. Trials last few rounds, and networks that lose them are tried less and less often. A
 * trial costs more than its rounds, since a network that was not active has to run the text that it missed. */
#include "speculate/control/choose_drafter.h"

#define TRIAL 20      /* rounds of a trial at most */
#define LOOK 8        /* rounds after which a trial ends whose network did badly (BADLY) */
#define GLANCE 3      /* rounds after which a trial ends whose network is expected to be better or worse (SURE) */
#define SURE 0.7      /* standard deviations of acceptance that such an expectation allows for */
#define WARM 2        /* first rounds that are not counted: the network catches up with the text */
#define BADLY 0.9     /* share of the best network's score */
#define FAR 0.8       /* share of the best network's expected gain; a difference this large is not noise */
#define LOST_FAR 3    /* lost trials that such a difference counts as */
#define CLEARLY 1.02
#define MEMORY 64.0   /* rounds of the moving average */
#define WAIT 64       /* rounds until a network's next trial; each lost trial in a row doubles them (see MOST_LOST) */
#define RICH 1.1      /* score of the best network that pays for a trial of another one, whatever that one's budget */
#define FUNDS 1.0     /* budget that such a trial gets, in plain passes */
#define MOST_LOST 5   /* lost trials in a row that are counted */

void ae_contest_init(ae_controller *c)
{
    for (uint32_t i = 0; i < c->options.n_networks; i++) c->networks[i].n_wait = i * (GLANCE + 1);
    c->net = c->best = &c->networks[0];
}

/* Tokens per plain pass. 1, as in plain decoding, while nothing is known. */
static double score(const ae_network *net)
{
    return net->passes > 0 ? net->tokens / net->passes : 1;
}

static bool is_rich(const ae_controller *c)
{
    return !c->best->book.resting && score(c->best) > RICH;
}

static void start_trial(ae_controller *c, ae_network *net)
{
    c->net = net;
    net->n_rounds = 0;
    if (is_rich(c) && net->book.credit < FUNDS) net->book.credit = FUNDS;
    if (is_rich(c)) net->book.resting = false;
    if (!net->n_lost) return;
    for (uint32_t d = 0; d <= AERIE_MAX_DRAFT; d++) net->depth_tries[d] *= 0.5, net->depth_hits[d] *= 0.5;
    net->tokens *= 0.5;
    net->passes *= 0.5;
}

/* Ends a trial: the loser waits for another one. */
static void settle(ae_controller *c, ae_network *winner, uint32_t n_lost)
{
    ae_network *loser = winner == c->net ? c->best : c->net;
    if (loser == c->net) loser->n_lost += n_lost;
    if (!loser->n_lost) loser->n_lost = 1;
    if (loser->n_lost > MOST_LOST) loser->n_lost = MOST_LOST;
    loser->n_wait = WAIT << (loser->n_lost - 1);
    winner->n_lost = 0;
    c->net = c->best = winner;
}

/* Decides the current trial. Expected gains can end it early; otherwise what its rounds really brought decides. */
static void judge(ae_controller *c)
{
    const double tried = score(c->net), best = score(c->best), promised = ae_controller_expected(c, c->best, 0);
    const bool glance = c->net->n_rounds >= GLANCE && promised > 0;
    const double at_most = glance ? ae_controller_expected(c, c->net, SURE) : 0;
    if (glance && at_most < promised) settle(c, c->best, at_most < FAR * promised ? LOST_FAR : 1);
    else if (glance && ae_controller_expected(c, c->net, -SURE) > CLEARLY * promised) settle(c, c->net, 1);
    else if (c->net->book.resting || (c->net->n_rounds >= LOOK && tried < BADLY * best)) settle(c, c->best, 1);
    else if (c->net->n_rounds >= TRIAL) settle(c, tried > CLEARLY * best ? c->net : c->best, 1);
}

void ae_contest_begin(ae_controller *c)
{
    const uint32_t n = c->options.n_networks;
    if (n < 2) return;
    if (c->options.fixed) { /* the networks take turns */
        c->net = &c->networks[c->clock % n];
        return;
    }
    for (uint32_t i = 0; i < n; i++) c->networks[i].n_wait -= c->networks[i].n_wait > 0;
    if (c->net != c->best) judge(c);
    if (c->net != c->best) return;
    ae_network *other = NULL;
    for (uint32_t i = 0; i < n; i++) {
        ae_network *net = &c->networks[i];
        if (net == c->best || (net->book.resting && !is_rich(c))) continue;
        if (!net->n_wait && (!other || net->passes < other->passes)) other = net;
    }
    if (other) start_trial(c, other);
}

void ae_contest_saw(ae_controller *c, double tokens, double passes)
{
    ae_network *net = c->net;
    if (net->n_rounds++ < WARM) return;
    net->tokens += tokens - net->tokens / MEMORY;
    net->passes += passes - net->passes / MEMORY;
}

uint32_t ae_controller_network(const ae_controller *c, uint32_t *awake)
{
    *awake = 0;
    for (uint32_t i = 0; i < c->options.n_networks; i++) {
        const ae_network *net = &c->networks[i];
        if (net == c->net || net == c->best || c->options.fixed ||
            (net->n_wait < AE_CONTEST_READY && (!net->book.resting || is_rich(c))))
            *awake |= 1u << i;
    }
    return (uint32_t)(c->net - c->networks);
}
