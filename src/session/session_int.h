/* session_int.h - what the public objects are made of; shared by session.c and the other api_*.c. */
#ifndef AE_SESSION_SESSION_INT_H
#define AE_SESSION_SESSION_INT_H

#include <stdatomic.h>

#include "aerie.h"
#include "aerie_measure.h"
#include "session/test_drafters.h"
#include "backend/backend.h"
#include "base/wakeup.h"
#include "base/log.h"
#include "engine/commands.h"
#include "engine/engine.h"
#include "draft/head/net.h"
#include "model/model.h"
#include "session/media.h"
#include "session/turns.h"
#include "speculate/speculate.h"
#include "text/stops.h"
#include "text/token/vocab_map.h"

/* The devices that a model was to lie on, by its parameters. */
typedef struct ae_session_devices {
    ae_backend *list[AE_MAX_DEVICES]; /* [n] owned; first those that were named */
    uint32_t n, n_named;
    uint32_t cpu;        /* number of the processor; n: it is not among them */
} ae_session_devices;

struct aerie_model {
    ae_session_devices devices; /* none for vocab_only */
    ae_backend *backend; /* that of the output; NULL for vocab_only */
    ae_model *model;     /* NULL for vocab_only */
    ae_net *net;         /* NULL for vocab_only */
    ae_gguf *gguf;       /* vocab_only: owned */
    ae_vocab *vocab;     /* owned */
    aerie_log log;
    bool rope_given;     /* by the caller, in place of the file's */
    ae_comm *comm;       /* of a group, as the next two; else NULL */
    ae_ranks *ranks;
    ae_commands *commands;
    double load_seconds;
    uint64_t settings;                /* hash of RoPE parameters and overrides */
    uint64_t fingerprint;             /* of the file; both for saved sequences (saved.c) */
};

/* A saved sequence that was checked; points into `memory`, or lent. */
typedef struct ae_session_saved {
    void *memory;          /* owned, or NULL */
    const int32_t *tokens; /* [n_tokens] prompt and answer */
    size_t n_tokens;
    uint32_t n_prompt;
    ae_spec_cached cached;
    const void *kv;        /* [ae_spec_saved_bytes] */
    ae_adapter_set adapters;
    bool has_mu;
    double mu;             /* mirostat's */
} ae_session_saved;

struct aerie_pool {
    ae_pool *threads;
};

struct aerie_session {
    const aerie_model *model;
    ae_engine *engine;
    ae_spec *spec;
    aerie_session_params params; /* resolved */
    const aerie_adapter **adapters; /* [params.n_adapters] owned: params.adapters */
    ae_adapter_set eval_adapters;   /* measure.c: of texts that are measured */
    const struct ae_dhead_engine *head; /* the drafter's, or NULL; lent by `spec` */
    aerie_imatrix *imatrix;      /* that collects, or NULL; the caller's */
    ae_session_test test;
    const ae_session_test_answer *known; /* [n_known] by request; lent */
    size_t n_known;
    aerie_spec_type types[AERIE_MAX_DRAFTERS]; /* [n_types] of the drafters with networks */
    uint32_t n_types;
    int32_t moe_experts[AERIE_MAX_DRAFTERS]; /* [n_types] aerie_spec.moe_experts of each of type MOE */
    char names[AERIE_MAX_DRAFTERS][16];      /* [n_types] of these; empty: the type's */
    char spec_name[96];
    ae_drafter *self[AERIE_MAX_DRAFTERS]; /* [n_types] lent by spec: those of type MOE, else NULL */
    aerie_session *inner;        /* HIER: of the intermediate model; NULL: there is none */
    aerie_pool inner_pool;       /* ... on the threads of this one */
    bool mapped;                 /* the draft model has another vocabulary */
    aerie_overlap overlap;       /* with mapped */
    /* tasks.c */
    _Atomic(aerie_task *) submitted; /* newest first; any thread adds */
    atomic_bool any_cancelled;
    atomic_size_t n_tasks;           /* that have not ended */
    bool in_step;
    bool told_full;                  /* that the KV cache is too small */
    ae_wakeup wakeup;              /* for aerie_session_wait */
    bool has_tasks;                  /* what follows was set up */
    aerie_task *waiting;             /* for a free slot, oldest first; what gave its slot to another comes to the end */
    ae_turns turns;
    double *works;                   /* [n_seqs] scratch: what each running task has had in this turn */
    aerie_task **running;            /* [n_seqs] by slot, or NULL */
    ae_buf certain, text;            /* what stop strings let through; of it whole characters */
    ae_buf kept, kept_bytes;         /* kept_event's for aerie_session_poll; their texts and log-probabilities */
    size_t n_polled;                 /* bytes of `kept` */
    aerie_task *untold;              /* ended tasks whose last event there was no room for, oldest first */
    aerie_token_event last_event;    /* of one of them, while it is looked at */
    ae_media_table *media;           /* ids of rows that are no tokens */
    float *features;                 /* [n_taps][n_embd] of a row, for those who are told of rows */
};

/* A request on its way. */
struct aerie_task {
    aerie_session *session;
    aerie_task *next;       /* in a list */
    atomic_uint n_holders;
    atomic_bool cancelled, abandoned, ended;
    atomic_int slot;        /* -1: it waits */
    ae_arena arena;         /* what the request points to */
    aerie_request request;
    ae_session_saved saved;     /* the sequence that goes on; empty once it runs */
    ae_spec_parked *parked;     /* it gave its slot to another; owned. NULL: it did not */
    ae_turn turn;
    uint32_t n_parked;
    size_t n_prompt;            /* tokens of the prompt, without those of a saved answer */
    ae_media_prompt prompt;     /* of the request's chunks, or empty */
    ae_adapter_set adapters;
    ae_detok detok;         /* tokens' bytes, up to a stop string, in whole characters */
    ae_stops *stops;        /* NULL: none */
    aerie_stats stats;      /* final once `ended` */
    void *stats_copy;       /* [stats_copy_size] gets them, too; or NULL */
    size_t stats_copy_size;
};

typedef struct kept_event {
    aerie_task *task;
    aerie_token_event event; /* text and top are set when it is polled */
    size_t text_at, top_at;  /* in kept_bytes */
} kept_event;

struct aerie_drafter_head {
    const aerie_model *model;
    ae_dhead *head;
    ae_dhead_net *net;
};

struct aerie_adapter {
    const aerie_model *model;
    ae_adapter *adapter;
    ae_arena arena; /* the texts */
    const char *name, *path, *task_name, *prompt_prefix;
    uint64_t n_params;
};

/* ---- Arguments ---- */

/* What a caller must give, by its name; of lists only if they have entries. */
#define AE_NEED_AS(pointer, name, error) \
    do { \
        if (!(pointer)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s: '%s' is NULL", __func__, name); \
    } while (0)
#define AE_NEED(pointer, error) AE_NEED_AS(pointer, #pointer, error)
#define AE_NEED_IF(n, pointer, error) \
    do { \
        if (n) AE_NEED(pointer, error); \
    } while (0)

/* ARGUMENT in a process that the pool's own one has made by fork(): its threads are not there. what: "session". */
aerie_status ae_session_check_fork(const ae_pool *pool, const char *what, aerie_error *error);
static inline aerie_status ae_session_check_process(const aerie_session *session, aerie_error *error)
{
    return ae_session_check_fork(ae_engine_pool(session->engine), "session", error);
}

/* ---- Structs that grow ---- */

/* The caller's struct over defaults: own [own_size] holds them before. NULL: the defaults stay. ARGUMENT for a size that no
 * version has, UNSUPPORTED where a field that this library does not know is set. */
aerie_status ae_struct_take(void *own, size_t own_size, const void *theirs, const char *name, aerie_error *error);
/* The first bytes of own [own_size] to theirs [size]; what only they know is zero. */
void ae_struct_give(void *theirs, size_t size, const void *own, size_t own_size);
/* ARGUMENT unless all are zeros: n words of room of a struct that cannot grow. */
aerie_status ae_struct_check_reserved(const uint64_t *reserved, size_t n, const char *name, aerie_error *error);

/* Declares `own`, the caller's struct with its defaults. */
#define AE_STRUCT_TAKE(type, own, theirs, error) \
    aerie_##type own = aerie_##type##_default(); \
    AE_TRY(ae_struct_take(&(own), sizeof(own), theirs, "aerie_" #type, error))

/* Bytes of the device's memory that can be had now; 0: unknown. */
uint64_t ae_session_available(const ae_backend *backend);
/* MEMORY unless so much can be had now. advice: what would help. */
aerie_status ae_session_check_memory(const ae_backend *backend, const char *what, uint64_t needed, const char *advice,
                                     aerie_error *error);

/* devices.c: opened as the parameters ask. ARGUMENT for what cannot be, and the errors of ae_backend_open. */
aerie_status ae_session_open_devices(ae_session_devices *devices, const aerie_model_params *params, aerie_error *error);
void ae_session_close_devices(ae_session_devices *devices);
/* Which layers lie where. ARGUMENT, UNSUPPORTED for what cannot be. */
aerie_status ae_session_place(ae_split *split, const ae_session_devices *devices, const ae_model *model,
                              const aerie_model_params *params, aerie_error *error);
/* "layers 0 to 17 on cpu, layers from 18 on and the output on cuda", cut to the room. */
void ae_session_describe_split(const ae_split *split, uint32_t n_layers, char *text, size_t room);
/* MEMORY unless each device has so much (on [n_devices]) now; unless an engine of these options fits them. */
aerie_status ae_session_check_split(const ae_split *split, const char *what, const size_t *on, const char *advice,
                                    aerie_error *error);
aerie_status ae_session_check_engine(const ae_model *model, const ae_split *split, const ae_engine_options *options,
                                     const char *what, const char *advice, aerie_error *error);
/* machines.c: the model becomes that of one process of a group; its weights are loaded after that. Does nothing without
 * p->machines. */
aerie_status ae_session_join(aerie_model *model, const aerie_model_params *p, aerie_error *error);
/* All have their weights. */
aerie_status ae_session_joined(const aerie_model *model, const aerie_model_params *p, aerie_error *error);
void ae_session_leave(aerie_model *model);
/* UNSUPPORTED for what groups cannot do. */
aerie_status ae_session_check_alone(const aerie_model *model, const char *what, aerie_error *error);

/* The sum over all devices; 0: unknown. */
uint64_t ae_session_available_split(const ae_split *split);

/* Ids of text[0..n), owned by the caller. */
aerie_status ae_session_tokenize(const aerie_model *model, const char *text, size_t n, ae_encode_options options,
                                 int32_t **tokens, size_t *n_tokens, aerie_error *error);

/* Hands a buffer's bytes to the caller, NUL-terminated. */
aerie_status ae_session_give_text(ae_buf *buf, char **text, size_t *n, aerie_error *error);

/* Floats of a position's tapped rows. */
static inline size_t ae_session_row_features(const aerie_session *s)
{
    return (size_t)s->params.n_taps * s->model->model->hparams.n_embd;
}

/* tasks.c: the part of a session that tasks need. Freeing ends all tasks. */
aerie_status ae_session_tasks_init(aerie_session *session, aerie_error *error);
void ae_session_tasks_free(aerie_session *session);

/* saved.c */
uint64_t ae_session_settings_hash(const aerie_model_params *params);
/* A checked copy of a caller's bytes. */
aerie_status ae_session_saved_copy(const aerie_session *session, const void *data, size_t n, ae_session_saved *out,
                                   aerie_error *error);
void ae_session_saved_free(ae_session_saved *saved);
/* Bytes [*n] that a token adds to the answer's text, lent by the vocabulary. */
const char *ae_session_piece(aerie_task *task, int32_t token, uint32_t *n);
/* The task's text goes on after its saved answer. */
aerie_status ae_session_replay_text(aerie_task *task, aerie_error *error);

/* UNSUPPORTED for a model that cannot generate. */
aerie_status ae_session_check_decoder(const ae_model *model, aerie_error *error);
/* embedder.c: how a model's texts are pooled unless the caller says otherwise. */
aerie_pooling ae_session_pooling(const ae_model *model);
/* Bytes of an embedder with the usual parameters. */
uint64_t ae_session_embedder_bytes(const ae_model *model, const ae_backend *backend);
/* adapters.c: the largest rank of a session's adapters; 0: it has none. */
uint32_t ae_session_max_rank(const aerie_session_params *params);
/* Whether the list is one. */
aerie_status ae_session_check_adapters(const aerie_session_params *params, aerie_error *error);
/* The session keeps a copy of the list in its parameters. */
aerie_status ae_session_take_adapters(aerie_session *session, aerie_error *error);
/* What a caller asked for. */
aerie_status ae_session_adapter_set(const aerie_session *session, const aerie_adapter_use *uses, size_t n, ae_adapter_set *set,
                                aerie_error *error);

#define AE_SESSION_MAX_CTX (1u << 24)

/* Parameters with their defaults filled in. ARGUMENT for what cannot be. tests: the drafters of test_drafters.h are known. */
aerie_status ae_session_resolve(const ae_model *model, const aerie_session_params *params, bool tests,
                            aerie_session_params *resolved, aerie_error *error);
/* test NULL: aerie_session_create. */
aerie_status ae_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_session_test *test, aerie_error *error);
ae_load_options ae_session_net_options(const aerie_model_params *params);
ae_engine_options ae_session_engine_options(const aerie_session_params *params, uint32_t n_vocab);
/* With the samplers of as many requests as run at once. */
uint64_t ae_session_bytes(const ae_model *model, const ae_split *split, const ae_engine_options *options);
/* names.c: whether n-grams draft beside drafters of this type; what a cache type is inside. */
bool ae_session_is_joined(aerie_spec_type type);
ae_kv_type ae_session_kv_type(aerie_kv_type type);

static inline double ae_session_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* test_drafters.c: drafters for tests and benchmarks; tells the oracle how the request in a slot goes on after its prompt. */
aerie_status ae_session_create_test_drafter(aerie_session *session, ae_drafter **drafter, aerie_error *error);
void ae_session_test_tell(aerie_session *session, uint32_t slot, size_t id, size_t n_prompt);

/* draft_model.c: speculation by a draft model. */
aerie_status ae_session_create_draft_model(aerie_session *session, ae_drafter **drafter, aerie_error *error);

/* draft_self.c: speculation by the model itself. */
/* Numbers of experts that drafts of the model by itself are tried with, at most this many. */
#define AE_SELF_TRIALS 4
uint32_t ae_session_self_trials(const ae_model *model, const aerie_spec *spec, int32_t n_experts[AE_SELF_TRIALS]);
/* The i-th drafter. */
aerie_status ae_session_create_self(aerie_session *session, uint32_t i, ae_drafter **drafter, aerie_error *error);

/* draft_hier.c: speculation by a model that has a drafter of its own. */
aerie_status ae_session_create_hier(aerie_session *session, ae_drafter **drafter, aerie_error *error);

/* draft_head.c: speculation by a head. Settles AUTO if a head is given, and asks the session for what the head taps. */
aerie_status ae_session_resolve_head(aerie_session_params *params, aerie_error *error);
aerie_status ae_session_create_head_drafter(aerie_session *session, ae_drafter **drafter, aerie_error *error);
ae_draft_shape ae_session_shape(aerie_tree tree);

#endif
