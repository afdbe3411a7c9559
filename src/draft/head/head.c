/* head.c - see head.h: loading, the tensors, and whether a head suits a target. */
#include "draft/head/head.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "formats/kind.h"
#include "draft/head/head_int.h"

const ae_dhead_traits ae_dhead_kinds[] = {
    [AE_DHEAD_EAGLE] = {"EAGLE-1/2", .keeps_rows = true, .needs_embedding = true},
    [AE_DHEAD_EAGLE3] = {"EAGLE-3", .keeps_rows = true, .fuses = true, .doubles = true, .needs_embedding = true},
    [AE_DHEAD_MEDUSA] = {"Medusa", .keeps_rows = false},
    [AE_DHEAD_MTP] = {"MTP", .keeps_rows = true, .of_model = true, .needs_embedding = true},
    [AE_DHEAD_ASSISTANT] = {"MTP assistant", .reads_target = true, .of_model = true, .needs_embedding = true},
    [AE_DHEAD_DFLASH] = {"DFlash", .keeps_rows = true, .fuses = true, .blocks = true, .needs_embedding = true},
    [AE_DHEAD_DSPARK] = {"DSpark", .keeps_rows = true, .fuses = true, .blocks = true, .needs_embedding = true},
    [AE_DHEAD_DFLASH2] = {"DFlash2", .keeps_rows = true, .fuses = true, .blocks = true, .needs_embedding = true},
    [AE_DHEAD_DFLY] = {"DFly", .keeps_rows = true, .fuses = true, .blocks = true, .needs_embedding = true},
    [AE_DHEAD_LILICORR] = {"LiLiCorr", .keeps_rows = true, .fuses = true, .blocks = true, .needs_embedding = true},
};

/* ---- Tensors -------------------------------------------------------------------------------------- */

static aerie_status bind_fc_norms(ae_binder *b, ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t all = h->n_taps * h->n_target_embd;
    char name[32];
    if (h->fc_norm == AE_FC_NORM_NONE) return AERIE_OK;
    if (h->fc_norm == AE_FC_NORM_JOINT) {
        const bool encoder = ae_gguf_tensor_find(b->gguf, "fc_norm.weight") == NULL;
        return ae_bind(b, encoder ? "enc.output_norm.weight" : "fc_norm.weight", true, 0, all, &head->fc_norm[0]);
    }
    if (ae_gguf_tensor_find(b->gguf, "fc_norm.weight")) return ae_bind(b, "fc_norm.weight", true, 0, all, &head->fc_norm[0]);
    for (uint32_t i = 0; i < h->n_taps; i++) {
        snprintf(name, sizeof name, "fc_norm.%u.weight", i);
        AE_TRY(ae_bind(b, name, true, 0, h->n_target_embd, &head->fc_norm[i]));
    }
    snprintf(name, sizeof name, "fc_norm.%u.weight", h->n_taps);
    if (!ae_gguf_tensor_find(b->gguf, name)) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: there is a tensor %s, but only %u layers of the target are tapped",
                   ae_gguf_path(b->gguf), name, h->n_taps);
}

/* Returns whether the target's tensor may replace one that the head lacks: both must have the same width. */
static aerie_status may_borrow(ae_binder *b, const ae_dhead *head, const char *name)
{
    const ae_dhead_hparams *h = &head->hparams;
    if (h->layer.n_embd == h->n_target_embd) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; the target's, %u wide, does not suit a head that "
                   "is %u wide", ae_gguf_path(b->gguf), name, h->n_target_embd, h->layer.n_embd);
}

/* Binds layer i, whose attention reads rows of n_in elements. The first layer of EAGLE-3 norms each half of these
 * separately. */
static aerie_status bind_layer(ae_binder *b, ae_dhead *head, uint32_t i, uint32_t n_in)
{
    const ae_hparams *l = &head->hparams.layer;
    ae_layer *x = &head->layers[i];
    x->out_scale = 1.0f;
    x->spec = (ae_layer_spec){.mixer = AE_MIXER_ATTENTION, .n_heads = l->n_heads, .n_kv_heads = l->n_kv_heads,
                              .head_dim = l->head_dim, .attn_scale = l->attn_scale, .ffn = AE_FFN_DENSE, .n_ff = l->n_ff,
                              .kv_from = (int)i};
    if (i) AE_TRY(ae_bind_layer(b, i, "attn_norm.weight", true, 0, l->n_embd, &x->attn_norm));
    AE_TRY(ae_bind_attention(b, i, l, &x->spec, n_in, x));
    AE_TRY(ae_bind_layer(b, i, "attn_q_norm.weight", false, 0, l->head_dim, &x->q_norm));
    AE_TRY(ae_bind_layer(b, i, "attn_k_norm.weight", false, 0, l->head_dim, &x->k_norm));
    if (!x->q_norm != !x->k_norm)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: blk.%u.attn_%c_norm.weight is missing; norms of queries and keys "
                       "come together", ae_gguf_path(b->gguf), i, x->q_norm ? 'k' : 'q');
    if (x->q_norm) x->spec.qk_norm = AE_QK_NORM_HEAD;
    AE_TRY(ae_bind_layer(b, i, "ffn_norm.weight", true, 0, l->n_embd, &x->ffn_norm));
    return ae_bind_dense(b, i, l, l->n_ff, x);
}

static aerie_status bind_eagle(ae_binder *b, ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const ae_hparams *l = &h->layer;
    const bool three = h->kind == AE_DHEAD_EAGLE3;
    const uint32_t e = l->n_embd, n_features = h->n_taps * h->n_target_embd;
    AE_TRY(ae_bind(b, "token_embd.weight", false, h->n_vocab, e, &head->embedding));
    AE_TRY(ae_bind(b, "output.weight", false, h->n_draft, e, &head->output));
    AE_TRY(ae_bind(b, "fc.weight", true, e, three ? n_features : e + n_features, &head->fc));
    AE_TRY(ae_bind(b, "fc.bias", false, 0, e, &head->fc_bias));
    if (three) {
        const bool old = !ae_gguf_tensor_find(b->gguf, "blk.0.attn_norm_2.weight") &&
                         ae_gguf_tensor_find(b->gguf, "blk.0.hidden_norm.weight");
        AE_TRY(bind_fc_norms(b, head));
        AE_TRY(ae_bind_layer(b, 0, "attn_norm.weight", true, 0, e, &head->embd_norm));
        AE_TRY(ae_bind_layer(b, 0, old ? "hidden_norm.weight" : "attn_norm_2.weight", true, 0, e, &head->hidden_norm));
        AE_TRY(ae_bind(b, "output_norm.weight", true, 0, e, &head->out_norm));
    }
    if (!head->embedding) AE_TRY(may_borrow(b, head, "token_embd.weight"));
    if (!head->output) AE_TRY(may_borrow(b, head, "output.weight"));
    if (h->n_parallel) AE_TRY(ae_bind(b, "mask_hidden", true, 0, n_features, &head->mask_hidden));
    for (uint32_t i = 0; i < h->n_layers; i++) AE_TRY(bind_layer(b, head, i, three && !i ? 2 * e : e));
    return AERIE_OK;
}

static aerie_status bind_medusa(ae_binder *b, ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd;
    char name[48];
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        for (uint32_t i = 0; i < h->n_blocks; i++) {
            snprintf(name, sizeof name, "medusa.%u.%u.weight", j, i);
            AE_TRY(ae_bind(b, name, true, e, e, &head->medusa_w[j][i]));
            snprintf(name, sizeof name, "medusa.%u.%u.bias", j, i);
            AE_TRY(ae_bind(b, name, false, 0, e, &head->medusa_b[j][i]));
        }
        snprintf(name, sizeof name, "medusa.%u.%u.weight", j, h->n_blocks);
        if (ae_gguf_tensor_find(b->gguf, name))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: there is a tensor %s, but %s is %u", ae_gguf_path(b->gguf), name,
                           ae_bind_key(b, "block_count"), h->n_blocks);
        snprintf(name, sizeof name, "medusa.%u.output.weight", j);
        AE_TRY(ae_bind(b, name, true, h->n_draft, e, &head->medusa_out[j]));
    }
    return AERIE_OK;
}

/* ---- Load ------------------------------------------------------------------------------------------- */

bool ae_dhead_is_arch(const char *arch, size_t n)
{
    const ae_arch *a = ae_arch_find(arch, n);
    return a && a->drafter;
}

static const ae_arch *arch_of(const ae_gguf *gguf)
{
    ae_gguf_string arch = {0};
    if (ae_gguf_get_string(gguf, "general.architecture", true, &arch, NULL) != AERIE_OK) return NULL;
    return ae_arch_find(arch.data, arch.n);
}

bool ae_dhead_is_file(const ae_gguf *gguf)
{
    const ae_arch *a = arch_of(gguf);
    return a && (a->drafter || ae_model_find_nextn(gguf) == AE_NEXTN_ALONE);
}

const ae_layer *ae_dhead_layers(const ae_dhead *head)
{
    if (!head->mtp) return head->layers;
    return head->mtp->layers + (head->hparams.kind == AE_DHEAD_MTP ? head->mtp->hparams.n_layers : 0);
}

bool ae_dhead_borrows_output(const ae_dhead *head)
{
    if (ae_dhead_traits_of(&head->hparams)->reads_target) return false;
    if (ae_dhead_is_block(&head->hparams)) return !head->output;
    for (uint32_t i = 0; head->mtp && i < head->hparams.n_layers; i++)
        if (head->mtp->nextn[i].head) return false;
    return head->mtp || (!head->output && !head->hparams.n_medusa);
}

/* Binds the file's MTP blocks; the trunk, if the file has it, is not touched. */
static aerie_status bind_mtp(ae_dhead *head, aerie_error *error)
{
    ae_dhead_hparams *h = &head->hparams;
    ae_gguf *gguf = head->gguf;
    ae_binder b = {.gguf = gguf, .arch = arch_of(gguf), .error = error};
    head->gguf = NULL;
    AE_TRY(ae_model_bind_nextn(&head->mtp, gguf, error));
    head->gguf = gguf;
    head->bound = head->mtp->bound;
    const ae_hparams *m = &head->mtp->hparams;
    const ae_tensor_ref map = ae_dhead_find_map(gguf);
    head->name = head->mtp->name;
    head->n_params = head->mtp->n_params;
    if (m->n_nextn > AE_DHEAD_MAX_LAYERS)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: %s is %u; aerie runs %d MTP blocks at most", ae_gguf_path(gguf),
                       ae_bind_key(&b, "nextn_predict_layers"), m->n_nextn, AE_DHEAD_MAX_LAYERS);
    *h = (ae_dhead_hparams){.kind = AE_DHEAD_MTP, .n_target_embd = m->n_embd, .n_target_layers = m->n_layers, .n_taps = 1,
                            .taps = {m->nextn_pre ? m->n_layers : AERIE_TAP_NORMED}, .n_vocab = m->n_vocab,
                            .n_draft = m->n_vocab, .feedback_normed = !m->nextn_pre, .n_layers = m->n_nextn,
                            .n_steps = m->n_nextn, .layer = *m};
    for (uint32_t k = 0; m->hyper && k < m->n_streams; k++) h->taps[k] = AE_TAP_STREAM + k;
    if (m->hyper) h->n_taps = m->n_streams, h->feedback_normed = false;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_mixer mixer = ae_dhead_layers(head)[i].spec.mixer;
        if (mixer != AE_MIXER_ATTENTION && mixer != AE_MIXER_MLA && mixer != AE_MIXER_COMPRESSED)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: MTP blocks of architecture %s are not supported",
                           ae_gguf_path(gguf), m->arch);
        if (map && !ae_dhead_borrows_output(head) && !head->mtp->nextn[i].head)
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: tensor blk.%u.nextn.shared_head_head.weight is missing; with a d2t "
                           "all MTP blocks have one or none has", ae_gguf_path(gguf), m->n_layers + i);
    }
    if (map && map->ne[0] > 0 && map->ne[0] <= (int64_t)h->n_vocab) h->n_draft = (uint32_t)map->ne[0];
    return ae_dhead_read_map(&b, head);
}

static aerie_status bind_assistant(ae_dhead *head, aerie_error *error)
{
    ae_gguf *gguf = head->gguf;
    head->gguf = NULL;
    AE_TRY(ae_model_bind_nextn(&head->mtp, gguf, error));
    head->gguf = gguf;
    head->bound = head->mtp->bound;
    const ae_hparams *m = &head->mtp->hparams;
    const uint32_t n_target = (uint32_t)head->mtp->post_projection->ne[1];
    head->name = head->mtp->name;
    head->n_params = head->mtp->n_params;
    head->hparams = (ae_dhead_hparams){.kind = AE_DHEAD_ASSISTANT, .n_target_embd = n_target, .n_taps = 1,
                                       .taps = {AERIE_TAP_NORMED}, .n_vocab = m->n_vocab, .n_draft = m->n_vocab,
                                       .feedback_normed = true, .n_layers = m->n_layers, .n_steps = 1, .layer = *m};
    return AERIE_OK;
}

/* Refuses layers beyond the number in the keys, since they would not be run. */
static aerie_status refuse_more_layers(ae_binder *b, const ae_dhead *head)
{
    for (size_t i = 0; i < ae_gguf_n_tensors(b->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(b->gguf, i);
        ae_gguf_string part;
        const int block = ae_bind_block_of("blk", t, &part);
        if (block >= 0 && block >= (int)head->hparams.n_layers)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: there is a tensor %.*s, but %s is %u", ae_gguf_path(b->gguf),
                           (int)(t->name.n < 64 ? t->name.n : 64), t->name.data, ae_bind_key(b, "block_count"),
                           head->hparams.n_layers);
    }
    return AERIE_OK;
}

static aerie_status bind_head(ae_dhead *head, aerie_error *error)
{
    ae_binder b = {.gguf = head->gguf, .error = error};
    ae_gguf_string arch = {0}, name = {0};
    AE_TRY(ae_role_need(b.gguf, AE_ROLE_MODEL, error));
    AE_TRY(ae_gguf_get_string(b.gguf, "general.architecture", true, &arch, error));
    b.arch = ae_arch_find(arch.data, arch.n);
    if (b.arch && b.arch->assistant) return bind_assistant(head, error);
    if (b.arch && b.arch->block) return ae_dhead_bind_block(head, b.arch, error);
    if (ae_model_find_nextn(head->gguf) != AE_NEXTN_NONE) return bind_mtp(head, error);
    if (!b.arch || !b.arch->drafter)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: architecture \"%.*s\" is %s, not a drafter head; drafter heads are "
                       "eagle3, eagle, medusa, dflash and gemma4-assistant, and models with MTP blocks", ae_gguf_path(b.gguf),
                       (int)(arch.n < 64 ? arch.n : 64), arch.data, b.arch ? "a model of its own" : "unknown");
    AE_TRY(ae_gguf_get_string(b.gguf, "general.name", false, &name, error));
    head->name = ae_arena_strndup(&head->arena, name.data ? name.data : "", name.data ? name.n : 0);
    if (!head->name) return ae_fail_memory(error, "the head's name", name.n);
    AE_TRY(ae_bind_begin(&b, &head->arena));
    head->bound = b.bound;
    AE_TRY(ae_dhead_read_hparams(&b, head));
    if (head->hparams.n_layers) {
        head->layers = ae_arena_alloc(&head->arena, head->hparams.n_layers, sizeof *head->layers);
        if (!head->layers) return ae_fail_memory(error, "a head's layers", head->hparams.n_layers * sizeof *head->layers);
    }
    AE_TRY(head->hparams.n_medusa ? bind_medusa(&b, head) : bind_eagle(&b, head));
    AE_TRY(ae_dhead_read_map(&b, head));
    AE_TRY(ae_bind_end(&b, head->layers, 0, head->hparams.n_layers, true));
    if (!head->hparams.n_medusa) AE_TRY(refuse_more_layers(&b, head));
    head->n_params = ae_bind_n_params(b.gguf);
    return AERIE_OK;
}

aerie_status ae_dhead_bind(ae_dhead **out, ae_gguf *gguf, aerie_error *error)
{
    *out = NULL;
    ae_dhead *head = ae_alloc(1, sizeof *head);
    if (!head) {
        ae_gguf_close(gguf);
        return ae_fail_memory(error, "a head", sizeof *head);
    }
    ae_arena_init(&head->arena, 4096);
    head->gguf = gguf;
    const aerie_status status = bind_head(head, error);
    if (status != AERIE_OK) {
        ae_dhead_free(head);
        return status;
    }
    *out = head;
    return AERIE_OK;
}

aerie_status ae_dhead_load(ae_dhead **out, const char *path, aerie_error *error)
{
    *out = NULL;
    ae_gguf *gguf;
    AE_TRY(ae_gguf_open(&gguf, path, NULL, error));
    return ae_dhead_bind(out, gguf, error);
}

void ae_dhead_free(ae_dhead *head)
{
    if (!head) return;
    if (head->mtp) ae_model_free(head->mtp);
    else ae_gguf_close(head->gguf);
    ae_arena_free(&head->arena);
    ae_free(head);
}

/* ---- With a target ------------------------------------------------------------------------------------- */

typedef struct pairing {
    const char *head, *target; /* paths */
    aerie_error *error;
} pairing;

static aerie_status need_equal(const pairing *p, const char *what, uint32_t wanted, uint32_t found)
{
    if (wanted == found) return AERIE_OK;
    return ae_fail(p->error, AERIE_ERROR_FORMAT, "%s: the head is made for a target with %s of %u; %s has %u", p->head, what,
                   wanted, p->target, found);
}

uint32_t ae_dhead_target_layer(const ae_dhead *head, const ae_model *target, uint32_t i)
{
    const bool windowed = ae_dhead_layers(head)[i].spec.window != 0;
    for (uint32_t k = target->hparams.n_layers; k-- > 0;)
        if ((target->layers[k].spec.window != 0) == windowed) return k;
    return target->hparams.n_layers; /* there is no such layer */
}

/* Checks that each layer of an assistant can read the cache of one of the target's layers. */
static aerie_status assistant_fits(const ae_dhead *head, const ae_model *target, const pairing *p)
{
    if (strcmp(target->hparams.arch, "gemma4"))
        return ae_fail(p->error, AERIE_ERROR_FORMAT, "%s: the assistant is made for a target of architecture gemma4; %s is of "
                       "%s", p->head, p->target, target->hparams.arch);
    for (uint32_t i = 0; i < head->hparams.n_layers; i++) {
        const ae_layer_spec *s = &ae_dhead_layers(head)[i].spec;
        const uint32_t k = ae_dhead_target_layer(head, target, i);
        if (k == target->hparams.n_layers)
            return ae_fail(p->error, AERIE_ERROR_FORMAT, "%s: layer %u of the assistant reads a layer %s a window; %s has none",
                           p->head, i, s->window ? "with" : "without", p->target);
        const ae_layer_spec *t = &target->layers[k].spec;
        if (s->head_dim != t->head_dim || s->n_heads % t->n_kv_heads || s->window > t->window)
            return ae_fail(p->error, AERIE_ERROR_FORMAT, "%s: layer %u of the assistant, of %u heads of %u values with a "
                           "window of %u, cannot read layer %u of %s, which keeps %u heads of %u values and a window of %u",
                           p->head, i, s->n_heads, s->head_dim, s->window, k, p->target, t->n_kv_heads, t->head_dim, t->window);
    }
    return AERIE_OK;
}

aerie_status ae_dhead_fits(const ae_dhead *head, const ae_model *target, aerie_error *error)
{
    const ae_dhead_hparams *h = &head->hparams;
    const ae_hparams *t = &target->hparams;
    const pairing p = {ae_gguf_path(head->gguf), ae_gguf_path(target->gguf), error};
    if (h->kind == AE_DHEAD_MTP && strcmp(head->mtp->hparams.arch, t->arch))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the MTP blocks are made for a target of architecture %s; %s is of %s",
                       p.head, head->mtp->hparams.arch, p.target, t->arch);
    AE_TRY(need_equal(&p, "an embedding length", h->n_target_embd, t->n_embd));
    if (h->n_target_layers) AE_TRY(need_equal(&p, "a layer count", h->n_target_layers, t->n_layers));
    for (uint32_t i = 0; i < h->n_taps && !h->layer.hyper; i++)
        if (h->taps[i] != AERIE_TAP_NORMED && h->taps[i] > t->n_layers)
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the head reads layer %u of its target; %s has %u layers", p.head,
                           h->taps[i], p.target, t->n_layers);
    if (h->layer.hyper) AE_TRY(need_equal(&p, "a number of streams", h->n_taps, t->n_streams));
    if (h->n_vocab) AE_TRY(need_equal(&p, "a vocabulary", h->n_vocab, t->n_vocab));
    for (uint32_t i = 0; head->to_target && i < h->n_draft; i++)
        if ((uint32_t)head->to_target[i] >= t->n_vocab)
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: row %u of the output stands for token %d; %s has %u tokens", p.head,
                           i, head->to_target[i], p.target, t->n_vocab);
    if (ae_dhead_traits_of(h)->reads_target) return assistant_fits(head, target, &p);
    const bool borrows = !h->n_medusa && !ae_dhead_traits_of(h)->of_model && (!head->embedding || !head->output);
    if (borrows && h->layer.n_embd != t->n_embd)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: the head, %u wide, has no %s of its own, and that of %s is %u wide",
                       p.head, h->layer.n_embd, head->embedding ? "output.weight" : "token_embd.weight", p.target, t->n_embd);
    return AERIE_OK;
}

const char *ae_dhead_kind_name(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const bool later = h->kind == AE_DHEAD_EAGLE3 && (h->fc_norm == AE_FC_NORM_EACH || h->feedback_normed);
    if (h->n_parallel) return "P-EAGLE";
    return later ? "EAGLE-3.1" : ae_dhead_traits_of(h)->name;
}
