/* draft_self.c - speculation by the model itself: of type MOE, reads from lists which layers draft with fewer experts or
 * without a block; for type NLD, checks that it can.
 *
 * The drafters are in draft/self.c and draft/head/masked.c.
 */
#include <string.h>

#include "session/session_int.h"
#include "base/err.h"

/* Reads a decimal number at *p. Returns false if there is none, or if it is above `most`. */
static bool take_number(const char **p, uint32_t most, uint32_t *value)
{
    const char *start = *p;
    uint64_t n = 0;
    for (; **p >= '0' && **p <= '9'; ++*p) n = n > most ? n : 10 * n + (uint64_t)(**p - '0');
    *value = (uint32_t)n;
    return *p > start && n <= most;
}

/* Sets the bit for the layers of a list such as "0-3,7,20-". */
static aerie_status mark_layers(uint8_t *lacks, uint32_t n_layers, const char *list, uint8_t bit, const char *option,
                                aerie_error *error)
{
    for (const char *p = list; list; p++) {
        uint32_t first, last;
        bool good = take_number(&p, n_layers - 1, &first);
        last = first;
        if (good && *p == '-') {
            p++;
            if (*p >= '0' && *p <= '9') good = take_number(&p, n_layers - 1, &last) && last >= first;
            else last = n_layers - 1;
        }
        if (!good || (*p && *p != ','))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s: '%.64s' is not a list of layers from 0 to %u such as 0-3,7 or 2-",
                           option, list, n_layers - 1);
        for (uint32_t i = first; i <= last; i++) lacks[i] |= bit;
        if (!*p) break;
    }
    return AERIE_OK;
}

/* Keeps the blocks that the rest of the pass needs: recurrent layers, whose state must go on, and layers whose keys others
 * read. */
static void keep_needed(const ae_model *model, uint8_t *lacks)
{
    for (uint32_t i = 0; i < model->hparams.n_layers; i++) {
        const ae_layer_spec *s = &model->layers[i].spec;
        const bool attends = s->mixer == AE_MIXER_ATTENTION || s->mixer == AE_MIXER_MLA;
        if (s->ffn == AE_FFN_CHANNEL_MIX) lacks[i] &= (uint8_t)~AE_LACKS_FFN;
        if (!attends) lacks[i] &= (uint8_t)~AE_LACKS_MIXER;
        else if (s->kv_from != (int)i) lacks[s->kv_from] &= (uint8_t)~AE_LACKS_MIXER;
    }
}

/* Fewer experts are cheaper, and more experts are right more often. Which number pays depends on the model and the text, so
 * several are tried. */
uint32_t ae_session_self_trials(const ae_model *model, const aerie_spec *spec, int32_t n_experts[AE_SELF_TRIALS])
{
    const uint32_t n_used = model->hparams.experts.n ? model->hparams.experts.n_used : 0;
    const int32_t all[AE_SELF_TRIALS] = {0, 1, (int32_t)n_used / 4, (int32_t)n_used / 2};
    uint32_t n = 0;
    n_experts[0] = spec->moe_experts;
    if (spec->moe_experts != AERIE_MOE_TRIAL) return 1;
    for (size_t i = model->hparams.experts.n_ff_shared ? 0 : 1; i < AE_SELF_TRIALS; i++)
        if ((uint32_t)all[i] < n_used && (!n || all[i] > n_experts[n - 1])) n_experts[n++] = all[i];
    if (n) return n;
    n_experts[0] = -1; /* a dense model, or one that uses a single expert: its drafts leave out blocks of layers */
    return 1;
}

/* Converts the number of experts asked for (-1: default) into one that the model allows. */
static aerie_status count_experts(const ae_model *model, int32_t wanted, uint32_t *n, aerie_error *error)
{
    const uint32_t n_used = model->hparams.experts.n ? model->hparams.experts.n_used : 0;
    if (wanted < -1 || (n_used && wanted > (int32_t)n_used))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%d experts are requested for drafts (--moe-draft-experts); the model uses "
                       "%u, so -1 (all) to %u are possible", (int)wanted, n_used, n_used);
    *n = wanted < 0 ? n_used : (uint32_t)wanted;
    return AERIE_OK;
}

static aerie_status read_spec(const ae_model *model, const aerie_spec *spec, int32_t wanted, uint8_t *lacks,
                              uint32_t *n_experts, aerie_error *error)
{
    const uint32_t n_layers = model->hparams.n_layers;
    memset(lacks, 0, n_layers);
    AE_TRY(count_experts(model, wanted, n_experts, error));
    const char *reduced = spec->moe_layers ? spec->moe_layers : "0-";
    AE_TRY(mark_layers(lacks, n_layers, reduced, AE_LACKS_EXPERTS, "--moe-draft-layers", error));
    AE_TRY(mark_layers(lacks, n_layers, spec->skip_attn, AE_LACKS_MIXER, "--draft-skip-attn", error));
    AE_TRY(mark_layers(lacks, n_layers, spec->skip_ffn, AE_LACKS_FFN, "--draft-skip-ffn", error));
    keep_needed(model, lacks);
    uint8_t any = 0;
    for (uint32_t i = 0; i < n_layers; i++) any |= lacks[i];
    const bool less = model->hparams.experts.n || any & (AE_LACKS_MIXER | AE_LACKS_FFN);
    if (!less && spec->skip_attn)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "speculation of type moe: none of the layers '%.64s' (--draft-skip-attn) has attention that can be "
                       "skipped: they are recurrent, or other layers read their keys",
                       spec->skip_attn);
    if (!less)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation of type moe: '%s' has no experts to leave out; name layers "
                       "whose blocks are skipped in drafts (--draft-skip-attn, --draft-skip-ffn)", model->name);
    return AERIE_OK;
}

aerie_status ae_session_create_self(aerie_session *s, uint32_t i, ae_drafter **drafter, aerie_error *error)
{
    uint8_t lacks[AE_MAX_LAYERS];
    uint32_t n_experts = 0;
    AE_TRY(read_spec(s->model->model, &s->params.spec, s->moe_experts[i], lacks, &n_experts, error));
    AE_TRY(ae_draft_self_create(drafter, s->engine, lacks, n_experts, s->params.n_seqs, error));
    s->self[i] = *drafter;
    return AERIE_OK;
}

aerie_status aerie_session_set_moe_experts(aerie_session *session, int32_t n_experts, aerie_error *error)
{
    AE_NEED(session, error);
    uint32_t n = 0;
    bool any = false;
    for (uint32_t i = 0; i < session->n_types; i++) any |= session->self[i] != NULL;
    if (!any)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the session speculates by %s, not by moe: its drafts have no experts to "
                       "choose", aerie_session_spec_name(session));
    AE_TRY(count_experts(session->model->model, n_experts, &n, error));
    for (uint32_t i = 0; i < session->n_types; i++)
        if (session->self[i]) ae_draft_self_set_experts(session->self[i], n);
    return AERIE_OK;
}

aerie_status ae_session_create_masked(aerie_session *s, ae_drafter **drafter, aerie_error *error)
{
    const ae_model *m = s->model->model;
    const aerie_adapter *adapter = s->params.spec.adapter;
    *drafter = NULL;
    if (!m->hparams.masks_ahead)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "speculation of type nld: '%s' (architecture %s) was not trained to "
                       "fill masks after a text; it needs a model such as Nemotron-Labs-Diffusion (architecture dream, with "
                       "diffusion.shift_logits false)", m->name, m->hparams.arch);
    if (m->hparams.mask_token < 0)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "speculation of type nld: the file of '%s' does not name its mask "
                       "token; set it with --override-kv tokenizer.ggml.mask_token_id=int:ID", m->name);
    if (adapter && adapter->model != s->model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the adapter for drafts (%s) was loaded for another model than the "
                       "session's", adapter->path);
    return ae_draft_masked_create(drafter, s->engine, adapter ? adapter->adapter : NULL, s->params.n_seqs, error);
}
