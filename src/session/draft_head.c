/* draft_head.c - aerie_extra.h: drafter heads, how they are found beside a model, and the shapes of their drafts. */
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/os.h"
#include "draft/head/engine.h"

bool aerie_file_is_drafter_head(const char *path)
{
    if (!path) return false;
    ae_gguf *gguf;
    const ae_gguf_options options = {.index_only = true};
    if (!path || ae_gguf_open(&gguf, path, &options, NULL) != AERIE_OK) return false;
    const bool is = ae_dhead_is_file(gguf);
    ae_gguf_close(gguf);
    return is;
}

/* Returns the length of a model's path without ".gguf" and without the number of a split file; 0 if the path does not end in
 * ".gguf". */
static size_t stem_length(const char *path)
{
    static const char suffix[] = ".gguf", part[] = "-00000-of-00000"; /* a 0 stands for any digit */
    size_t n = strlen(path), i = 0;
    if (n < sizeof suffix || strcmp(path + n - (sizeof suffix - 1), suffix)) return 0;
    n -= sizeof suffix - 1;
    if (n < sizeof part) return n;
    const char *tail = path + n - (sizeof part - 1);
    while (part[i] && (part[i] == '0' ? tail[i] >= '0' && tail[i] <= '9' : tail[i] == part[i])) i++;
    return part[i] ? n : n - (sizeof part - 1);
}

/* Looks for a file with this suffix next to the model; *path is NULL if there is none. */
static aerie_status find_beside(char **path, const char *model_path, const char *suffix, aerie_error *error)
{
    const size_t n = stem_length(model_path), n_suffix = strlen(suffix) + 1;
    *path = NULL;
    if (n == 0 || model_path[n - 1] == '/') return AERIE_OK;
    char *found = ae_alloc(n + n_suffix, 1);
    if (!found) return ae_fail_memory(error, "a path", n + n_suffix);
    memcpy(found, model_path, n);
    memcpy(found + n, suffix, n_suffix);
    if (!ae_file_exists(found)) { /* try again without the last part of the name, which may be a tensor type */
        size_t end = n;
        while (end > 0 && found[end - 1] != '-' && found[end - 1] != '.' && found[end - 1] != '/') end--;
        const bool named = end >= 2 && found[end - 1] != '/' && found[end - 2] != '/';
        if (named) memcpy(found + end - 1, suffix, n_suffix);
        if (!named || !ae_file_exists(found)) {
            ae_free(found);
            return AERIE_OK;
        }
    }
    *path = found;
    return AERIE_OK;
}

static ae_nextn_found nextn_of(const char *path)
{
    ae_gguf *gguf;
    const ae_gguf_options options = {.index_only = true};
    if (ae_gguf_open(&gguf, path, &options, NULL) != AERIE_OK) return AE_NEXTN_NONE;
    const ae_nextn_found found = ae_model_find_nextn(gguf);
    ae_gguf_close(gguf);
    return found;
}

aerie_status aerie_drafter_head_find(char **path, const char *model_path, aerie_spec_type type, aerie_error *error)
{
    AE_NEED(path, error);
    *path = NULL;
    AE_NEED(model_path, error);
    const bool any = type == AERIE_SPEC_AUTO, mtp = any || type == AERIE_SPEC_MTP;
    const ae_nextn_found found = mtp ? nextn_of(model_path) : AE_NEXTN_NONE;
    bool own = found == AE_NEXTN_INSIDE;
    /* if there are several heads: in the order of tokens per round that DeepSpec measured for equally trained heads */
    if (!own && (any || type == AERIE_SPEC_DSPARK)) AE_TRY(find_beside(path, model_path, "-dspark.gguf", error));
    if (!own && !*path && (any || type == AERIE_SPEC_DFLASH)) AE_TRY(find_beside(path, model_path, "-dflash.gguf", error));
    if (!own && !*path && (any || type == AERIE_SPEC_EAGLE3)) AE_TRY(find_beside(path, model_path, "-eagle3.gguf", error));
    if (!own && !*path && mtp) AE_TRY(find_beside(path, model_path, "-mtp.gguf", error));
    own |= !*path && found == AE_NEXTN_KEY; /* loading the model's own block will say what is missing */
    if (own && !(*path = ae_strndup(model_path, strlen(model_path))))
        return ae_fail_memory(error, "a path", strlen(model_path) + 1);
    return AERIE_OK;
}

void aerie_drafter_head_free(aerie_drafter_head *head)
{
    if (!head) return;
    ae_dhead_net_free(head->net);
    ae_dhead_free(head->head);
    ae_free(head);
}

static aerie_status load(aerie_drafter_head *h, const char *path, const aerie_drafter_head_params *p, aerie_error *error)
{
    const ae_gguf_options options = {.index_only = p->no_mmap};
    ae_gguf *gguf;
    AE_TRY(ae_gguf_open(&gguf, path, &options, error));
    AE_TRY(ae_dhead_bind(&h->head, gguf, error));
    if (h->head->hparams.kind == AE_DHEAD_ASSISTANT)
        AE_TRY(ae_session_check_alone(h->model, "an assistant, which reads the model's keys and values,", error));
    AE_TRY(ae_dhead_fits(h->head, h->model->model, error));
    const ae_dhead_net_options net = {{p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores(), NULL, NULL, p->mmap, NULL},
                                     h->model->vocab, p->n_vocab};
    size_t bytes;
    AE_TRY(ae_dhead_net_plan_bytes(&bytes, h->head, h->model->net, &net, error));
    AE_TRY(ae_session_check_memory(h->model->backend, "this drafter head", bytes, "a smaller head would fit", error));
    return ae_dhead_net_create(&h->net, h->head, h->model->net, &net, error);
}

aerie_status aerie_drafter_head_load(aerie_drafter_head **head, const aerie_model *model, const char *path,
                                     const aerie_drafter_head_params *params, aerie_error *error)
{
    AE_NEED(head, error);
    *head = NULL;
    AE_NEED(model, error);
    AE_NEED(path, error);
    AE_STRUCT_TAKE(drafter_head_params, p, params, error);
    if (!*path) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the path of the drafter head is empty");
    if (!model || !model->net)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a drafter head needs its model loaded with its weights");
    if (p.mmap && p.no_mmap) return ae_fail(error, AERIE_ERROR_ARGUMENT, "mmap and no_mmap exclude each other");
    AE_TRY(ae_session_check_drafts(model->model, error));
    aerie_drafter_head *h = ae_alloc(1, sizeof *h);
    if (!h) return ae_fail_memory(error, "a drafter head", sizeof *h);
    h->model = model;
    const aerie_status status = load(h, path, &p, error);
    if (status != AERIE_OK) {
        aerie_drafter_head_free(h);
        return status;
    }
    ae_log_say(p.log.call ? &p.log : &model->log, AERIE_LOG_INFO, "drafter head '%s': %s, %.1f M parameters, width %u, drafts "
               "%u tokens", path, ae_dhead_kind_name(h->head), (double)h->head->n_params / 1e6, h->head->hparams.layer.n_embd,
               h->net->n_draft);
    *head = h;
    return AERIE_OK;
}

static aerie_spec_type type_of(const ae_dhead *head)
{
    switch (head->hparams.kind) {
    case AE_DHEAD_EAGLE: return AERIE_SPEC_EAGLE;
    case AE_DHEAD_EAGLE3: return AERIE_SPEC_EAGLE3;
    case AE_DHEAD_DFLASH:
    case AE_DHEAD_DFLASH2:
    case AE_DHEAD_DFLY:
    case AE_DHEAD_LILICORR: return AERIE_SPEC_DFLASH;
    case AE_DHEAD_DSPARK: return AERIE_SPEC_DSPARK;
    case AE_DHEAD_MTP:
    case AE_DHEAD_ASSISTANT: return AERIE_SPEC_MTP;
    default: return AERIE_SPEC_MEDUSA;
    }
}

void aerie_drafter_head_info_get(const aerie_drafter_head *head, aerie_drafter_head_info *theirs, size_t size)
{
    if (theirs) memset(theirs, 0, size);
    if (!head || !theirs) return;
    const ae_dhead_hparams *h = &head->head->hparams;
    aerie_drafter_head_info info = {.name = head->head->name, .kind = ae_dhead_kind_name(head->head),
                                    .type = type_of(head->head), .n_params = head->head->n_params,
                                    .weight_bytes = head->net->parts.bytes + head->net->trimmed_bytes,
                                    .n_embd = h->layer.n_embd, .n_draft = head->net->n_draft, .n_taps = h->n_taps};
    memcpy(info.taps, h->taps, h->n_taps * sizeof *info.taps);
    ae_struct_give(theirs, size, &info, sizeof info);
}

static const char *const tree_names[] = {
    [AERIE_TREE_OFF] = "off",
    [AERIE_TREE_AUTO] = "auto",
    [AERIE_TREE_STATIC] = "static",
    [AERIE_TREE_DYNAMIC] = "dynamic",
};
#define N_TREES (sizeof tree_names / sizeof tree_names[0])

const char *aerie_tree_name(aerie_tree tree)
{
    return (size_t)tree < N_TREES ? tree_names[tree] : NULL;
}

bool aerie_tree_parse(const char *name, aerie_tree *tree)
{
    if (!name || !tree) return false;
    if (!strcmp(name, "on")) name = "auto";
    for (size_t i = 0; i < N_TREES; i++)
        if (!strcmp(tree_names[i], name)) {
            *tree = (aerie_tree)i;
            return true;
        }
    return false;
}

ae_draft_shape ae_session_shape(aerie_tree tree)
{
    static const ae_draft_shape shapes[] = {
        [AERIE_TREE_OFF] = AE_DRAFT_CHAIN,
        [AERIE_TREE_AUTO] = AE_DRAFT_TREE,
        [AERIE_TREE_STATIC] = AE_DRAFT_STATIC,
        [AERIE_TREE_DYNAMIC] = AE_DRAFT_DYNAMIC,
    };
    return shapes[tree];
}

aerie_status ae_session_resolve_head(aerie_session_params *p, aerie_error *error)
{
    aerie_spec *spec = &p->spec;
    const bool wanted = spec->type == AERIE_SPEC_EAGLE || spec->type == AERIE_SPEC_EAGLE3 || spec->type == AERIE_SPEC_MEDUSA ||
                        spec->type == AERIE_SPEC_MTP || spec->type == AERIE_SPEC_DFLASH || spec->type == AERIE_SPEC_DSPARK;
    if (spec->type == AERIE_SPEC_AUTO && spec->head) spec->type = type_of(spec->head->head);
    else if (!wanted) return AERIE_OK;
    if (!spec->head)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "speculation of type %s needs a drafter head (-md)",
                       aerie_spec_type_name(spec->type));
    if (spec->type != type_of(spec->head->head))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the drafter head is of kind %s, which serves --spec-type %s, not %s",
                       ae_dhead_kind_name(spec->head->head), aerie_spec_type_name(type_of(spec->head->head)),
                       aerie_spec_type_name(spec->type));
    const ae_dhead_hparams *h = &spec->head->head->hparams;
    p->n_taps = h->n_taps;
    memcpy(p->taps, h->taps, sizeof p->taps);
    return AERIE_OK;
}

aerie_status ae_session_create_head_drafter(aerie_session *s, ae_drafter **drafter, aerie_error *error)
{
    const aerie_spec *spec = &s->params.spec;
    const ae_dhead_net *net = spec->head->net;
    if (spec->head->model != s->model)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the drafter head was loaded for another model than the session's");
    const ae_dhead_engine_options o = {.n_ctx = s->params.n_ctx, .n_seqs = s->params.n_seqs, .n_batch = AE_DHEAD_BATCH,
                                      .window = spec->window, .n_sinks = spec->n_sinks};
    ae_dhead_engine *engine;
    AE_TRY(ae_session_check_memory(s->model->backend, "the drafter head's session",
                               ae_dhead_engine_plan_bytes(net->head, net->target, &o, s->params.n_threads),
                               "a smaller context (-c) or fewer sequences would fit", error));
    AE_TRY(ae_dhead_engine_create(&engine, net, s->engine, &o, error));
    s->head = engine;
    return ae_draft_eagle_create(drafter, engine, s->engine, s->params.n_seqs, error);
}
