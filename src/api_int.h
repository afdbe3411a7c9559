/* api_int.h - what the public objects are made of; shared by api.c and the other api_*.c. */
#ifndef AE_API_INT_H
#define AE_API_INT_H

#include "aerie.h"
#include "engine/engine.h"
#include "spec/drafter_head/dhead_net.h"
#include "model/model.h"
#include "spec/spec.h"
#include "text/token/vocab_map.h"

struct aerie_model {
    ae_backend *backend; /* NULL for vocab_only */
    ae_model *model;     /* NULL for vocab_only */
    ae_net *net;         /* NULL for vocab_only */
    ae_gguf *gguf;       /* vocab_only: owned */
    ae_vocab *vocab;     /* lent by model; vocab_only: owned */
    double load_seconds;
};

struct aerie_session {
    const aerie_model *model;
    ae_engine *engine;
    ae_spec *spec;
    aerie_session_params params; /* resolved */
    bool mapped;                 /* the draft model has another vocabulary */
    aerie_overlap overlap;       /* with mapped */
};

struct aerie_drafter_head {
    const aerie_model *model;
    ae_dhead *head;
    ae_dhead_net *net;
};

/* MEMORY unless so much can be had now. advice: what would help. */
aerie_status ae_api_check_memory(const char *what, uint64_t needed, const char *advice, aerie_error *error);

/* Ids of text[0..n), owned by the caller. */
aerie_status ae_api_tokenize(const aerie_model *model, const char *text, size_t n, ae_encode_options options, int32_t **tokens,
                             size_t *n_tokens, aerie_error *error);

/* Hands a buffer's bytes to the caller, NUL-terminated. */
aerie_status ae_api_give_text(ae_buf *buf, char **text, size_t *n, aerie_error *error);

/* Floats of a position's tapped rows. */
static inline size_t ae_api_row_features(const aerie_session *s)
{
    return (size_t)s->params.n_taps * s->model->model->hparams.n_embd;
}

#define AE_API_MAX_CTX (1u << 24)

/* Parameters with their defaults filled in. ARGUMENT for what cannot be. */
aerie_status ae_api_resolve(const ae_model *model, const aerie_session_params *params, aerie_session_params *resolved,
                            aerie_error *error);
ae_load_options ae_api_net_options(const aerie_model_params *params);
ae_engine_options ae_api_engine_options(const aerie_session_params *params);

/* api_draft.c: speculation by a draft model. */
aerie_status ae_api_create_draft_model(aerie_session *session, ae_drafter **drafter, aerie_error *error);

/* api_drafter_head.c: speculation by a head. Settles AUTO if a head is given, and asks the session for what the head taps. */
aerie_status ae_api_resolve_drafter_head(aerie_session_params *params, aerie_error *error);
aerie_status ae_api_create_head_drafter(aerie_session *session, ae_drafter **drafter, aerie_error *error);
ae_draft_shape ae_api_shape(aerie_tree tree);

#endif
