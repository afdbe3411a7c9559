/* session_int.h - the public objects from inside; shared by the files of this folder and of src/api. */
#ifndef AE_SESSION_SESSION_INT_H
#define AE_SESSION_SESSION_INT_H

#include <stdatomic.h>

#include "aerie_extra.h"
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

/* The devices that a model is on. */
typedef struct ae_session_devices {
    ae_backend *list[AE_MAX_DEVICES]; /* [n] owned; those that were named come first */
    uint32_t n, n_named;
    uint32_t cpu;        /* index of the CPU; n if it is not among them */
} ae_session_devices;

struct aerie_model {
    ae_session_devices devices; /* none for vocab_only */
    ae_backend *backend; /* the backend of the output; NULL for vocab_only */
    ae_model *model;     /* NULL for vocab_only */
    ae_net *net;         /* NULL for vocab_only */
    ae_model *source;    /* the encoder of a model with ae_hparams.crosses; else NULL, and so is the next field */
    ae_net *source_net;
    ae_gguf *gguf;       /* vocab_only: owned */
    ae_vocab *vocab;     /* owned */
    aerie_log log;
    bool reads_alone;    /* vocab_only: the architecture is an encoder's or has a decision head */
    bool rope_given;     /* the caller gave RoPE parameters in place of the file's */
    ae_comm *comm;       /* the group's communicator; NULL, as the next two fields are, if the model is in no group */
    ae_ranks *ranks;
    ae_commands *commands;
    double load_seconds;
    uint64_t settings;                /* hash of RoPE parameters and overrides, for saved sequences (saved.c) */
    uint64_t fingerprint;             /* fingerprint of the file, for saved sequences */
};

/* A saved sequence that was checked. It points into `memory` or into lent bytes. */
typedef struct ae_session_saved {
    void *memory;          /* owned, or NULL */
    const int32_t *tokens; /* [n_tokens] prompt and answer */
    size_t n_tokens;
    uint32_t n_prompt;
    ae_spec_cached cached;
    const void *kv;        /* [ae_spec_saved_bytes] */
    ae_adapter_set adapters;
    bool has_mu;
    double mu;             /* mirostat's mu */
    const ae_media_ref *refs; /* [n_refs] rows that are not tokens; they have their ids among the tokens */
    uint32_t n_refs;
    const float *rows;     /* rows of all refs, in aerie_chunk's order; NULL: the bytes do not have them */
    const ae_media *media; /* [n_refs] set for writing: the rows; NULL: do not save rows */
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
    ae_adapter_set eval_adapters;   /* measure.c: the adapters for texts that are measured */
    const struct ae_dhead_engine *head; /* the head of the drafter, or NULL; lent by `spec` */
    aerie_imatrix *imatrix;      /* the importance matrix being collected, or NULL; the caller's */
    ae_session_test test;
    const ae_session_test_answer *known; /* [n_known] answers by request, lent */
    size_t n_known;
    aerie_spec_type types[AERIE_MAX_DRAFTERS]; /* [n_types] types of the drafters with networks */
    uint32_t n_types;
    int32_t moe_experts[AERIE_MAX_DRAFTERS]; /* [n_types] aerie_spec.moe_experts of each drafter of type MOE */
    char names[AERIE_MAX_DRAFTERS][16];      /* [n_types] their names; if empty, the type's name */
    char spec_name[96];
    ae_drafter *self[AERIE_MAX_DRAFTERS]; /* [n_types] lent by spec: the drafters of type MOE, else NULL */
    aerie_session *inner;        /* HIER: the session of the intermediate model; NULL: there is none */
    aerie_pool inner_pool;       /* HIER: wraps this session's threads for `inner` */
    bool mapped;                 /* the draft model has another vocabulary */
    aerie_overlap overlap;       /* valid if mapped */
    /* tasks.c */
    _Atomic(aerie_task *) submitted; /* newest first; any thread adds */
    atomic_bool any_cancelled;
    atomic_size_t n_tasks;           /* tasks that have not ended */
    bool in_step;
    bool told_full;                  /* the warning that the KV cache is too small was logged */
    ae_wakeup wakeup;              /* for aerie_session_wait */
    atomic_bool woken;             /* aerie_session_wake was called */
    bool has_tasks;                  /* the fields below were set up */
    /* tasks without a slot, oldest first; a task that gave its slot to another goes to the end */
    aerie_task *waiting;
    ae_turns turns;
    double *works;                   /* [n_seqs] scratch: the work of each running task since it got its slot */
    aerie_task **running;            /* [n_seqs] tasks by slot, or NULL */
    ae_buf certain, text;            /* scratch: bytes that stop strings let through, and the whole characters among them */
    /* events (kept_event) that wait for aerie_session_poll, and their texts and log-probabilities */
    ae_buf kept, kept_bytes;
    size_t n_polled;                 /* bytes of `kept` that were polled */
    aerie_task *untold;              /* ended tasks whose last event could not be allocated, oldest first */
    aerie_token_event last_event;    /* the last event of such a task, while the caller reads it */
    struct ae_session_source *source; /* computes the rows of sources, with model->source; else NULL */
    ae_media_table *media;           /* ids of rows that are not tokens */
    float *features;                 /* [n_taps][n_embd] of one row, for requests that ask for rows */
};

/* A submitted request. */
struct aerie_task {
    aerie_session *session;
    aerie_task *next;       /* the next task in the task's list */
    atomic_uint n_holders;
    atomic_bool cancelled, abandoned, ended;
    atomic_int slot;        /* -1: it has no slot */
    ae_arena arena;         /* holds copies of what the request points to */
    aerie_request request;
    aerie_diffusion diffusion;  /* the request's */
    ae_session_saved saved;     /* the sequence to continue; empty once it runs */
    ae_spec_parked *parked;     /* owned: the task's sequence, if the task gave its slot to another one; else NULL */
    ae_turn turn;
    uint32_t n_parked;
    size_t n_prompt;            /* tokens of the prompt, without those of a saved answer */
    ae_media_prompt prompt;     /* made from the request's chunks, or empty */
    ae_adapter_set adapters;
    ae_detok detok;         /* turns tokens into whole characters, up to a stop string */
    ae_stops *stops;        /* NULL: none */
    aerie_stats stats;      /* final once `ended` */
    void *stats_copy;       /* [stats_copy_size] where the final statistics are copied to; or NULL */
    size_t stats_copy_size;
};

typedef struct kept_event {
    aerie_task *task;
    aerie_token_event event; /* text and top are set when it is polled */
    size_t text_at, top_at;  /* offsets in kept_bytes */
} kept_event;

struct aerie_drafter_head {
    const aerie_model *model;
    ae_dhead *head;
    ae_dhead_net *net;
};

struct aerie_adapter {
    const aerie_model *model;
    ae_adapter *adapter;
    ae_arena arena; /* holds the texts */
    const char *name, *path, *task_name, *prompt_prefix;
    uint64_t n_params;
};

/* ---- Arguments ---- */

/* Fails unless the caller gave this pointer. AE_NEED_IF: a list may be NULL if it has no entries. */
#define AE_NEED_AS(pointer, name, error) \
    do { \
        if (!(pointer)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s: '%s' is NULL", __func__, name); \
    } while (0)
#define AE_NEED(pointer, error) AE_NEED_AS(pointer, #pointer, error)
#define AE_NEED_IF(n, pointer, error) \
    do { \
        if (n) AE_NEED(pointer, error); \
    } while (0)

/* ARGUMENT in a child process made by fork(): it does not have the pool's threads. what: for the message, such as "session". */
aerie_status ae_session_check_fork(const ae_pool *pool, const char *what, aerie_error *error);
static inline aerie_status ae_session_check_process(const aerie_session *session, aerie_error *error)
{
    return ae_session_check_fork(ae_engine_pool(session->engine), "session", error);
}

/* ---- Structs that grow ---- */

/* Copies the caller's struct over the defaults in own [own_size]. theirs may be NULL: the defaults stay. ARGUMENT: a size that
 * no version has. UNSUPPORTED: a field that this library does not know is set. */
aerie_status ae_struct_take(void *own, size_t own_size, const void *theirs, const char *name, aerie_error *error);
/* Copies the first bytes of own [own_size] to theirs [size]. Fields that only the caller's version has become zero. */
void ae_struct_give(void *theirs, size_t size, const void *own, size_t own_size);
/* ARGUMENT unless reserved[n] is all zeros: the spare words of a struct that cannot grow. */
aerie_status ae_struct_check_reserved(const uint64_t *reserved, size_t n, const char *name, aerie_error *error);

/* Declares `own`: the caller's struct over its defaults. */
#define AE_STRUCT_TAKE(type, own, theirs, error) \
    aerie_##type own = aerie_##type##_default(); \
    AE_TRY(ae_struct_take(&(own), sizeof(own), theirs, "aerie_" #type, error))

/* Returns the bytes of device memory that are free now; 0: unknown. */
uint64_t ae_session_available(const ae_backend *backend);
/* MEMORY if fewer than `needed` bytes are free now. what: what needs them; advice: what would help. Both are part of the
 * message. */
aerie_status ae_session_check_memory(const ae_backend *backend, const char *what, uint64_t needed, const char *advice,
                                     aerie_error *error);

/* devices.c: opens the devices that the parameters ask for. Errors: ARGUMENT, and those of ae_backend_open. */
aerie_status ae_session_open_devices(ae_session_devices *devices, const aerie_model_params *params, aerie_error *error);
void ae_session_close_devices(ae_session_devices *devices);
/* Decides which layers lie where. Errors: ARGUMENT, UNSUPPORTED, LIMIT, MEMORY. */
aerie_status ae_session_place(ae_split *split, const ae_session_devices *devices, const ae_model *model,
                              const aerie_model_params *params, aerie_error *error);
/* Returns whether placement i matches no weight of a feed-forward block. */
bool ae_session_placement_is_idle(const ae_model *model, const aerie_model_params *params, size_t i);
/* Describes the split, as in "layers 0 to 17 on cpu, layers from 18 on and the output on cuda", in at most `room` bytes. */
void ae_session_describe_split(const ae_split *split, uint32_t n_layers, char *text, size_t room);
/* MEMORY if some device has less free memory than on[its number], or (ae_session_check_engine) than an engine with these
 * options needs there. what, advice: parts of the message. */
aerie_status ae_session_check_split(const ae_split *split, const char *what, const size_t *on, const char *advice,
                                    aerie_error *error);
aerie_status ae_session_check_engine(const ae_model *model, const ae_split *split, const ae_engine_options *options,
                                     const char *what, const char *advice, aerie_error *error);
/* machines.c: fails if another process of the group has loaded another adapter in this place, or if the group has begun to
 * compute. Does nothing without a group. */
aerie_status ae_session_same_adapter(const aerie_model *model, const ae_gguf *gguf, float alpha, aerie_error *error);
/* machines.c: joins the group of processes that p->machines describes, before the weights are loaded. Does nothing if
 * p->machines is NULL. */
aerie_status ae_session_join(aerie_model *model, const aerie_model_params *p, aerie_error *error);
/* Called when this process has its weights; returns when all processes have their weights. */
aerie_status ae_session_joined(const aerie_model *model, const aerie_model_params *p, aerie_error *error);
void ae_session_leave(aerie_model *model);
/* UNSUPPORTED if the model belongs to a group, for operations that groups do not offer. what: names the operation. */
aerie_status ae_session_check_alone(const aerie_model *model, const char *what, aerie_error *error);

/* Returns the bytes that are free now on all devices together; 0: unknown. */
uint64_t ae_session_available_split(const ae_split *split);

/* Tokenizes text[0..n). The caller frees the ids. */
aerie_status ae_session_tokenize(const aerie_model *model, const char *text, size_t n, ae_encode_options options,
                                 int32_t **tokens, size_t *n_tokens, aerie_error *error);

/* Gives a buffer's bytes to the caller, NUL-terminated. */
aerie_status ae_session_give_text(ae_buf *buf, char **text, size_t *n, aerie_error *error);

/* Returns the floats in the tapped rows of one position. */
static inline size_t ae_session_row_features(const aerie_session *s)
{
    return (size_t)s->params.n_taps * s->model->model->hparams.n_embd;
}

/* tasks.c: the part of a session that tasks need. Freeing it ends all tasks. */
aerie_status ae_session_tasks_init(aerie_session *session, aerie_error *error);
void ae_session_tasks_free(aerie_session *session);

/* media.c: the encoder of a model that has one beside its decoder. Does nothing if there is none. */
aerie_status ae_session_source_open(aerie_session *session, aerie_error *error);
void ae_session_source_close(aerie_session *session);
/* Returns the bytes that the encoder takes with contexts of n_ctx positions. */
uint64_t ae_session_source_bytes(const ae_model *source, const ae_backend *backend, uint32_t n_ctx);
/* Encodes the request's tokens, which are a source. Makes a prompt of the source's rows and the decoder's first token, and
 * replaces the request's tokens by it. Any thread. Errors: ARGUMENT, LIMIT, those of a pass. */
aerie_status ae_session_source_prompt(aerie_session *session, aerie_request *request, ae_media_prompt *prompt,
                                      aerie_error *error);

/* saved.c */
/* ARGUMENT: an expected token is out of range. */
aerie_status ae_session_check_expected(const aerie_session *session, const aerie_request *request, aerie_error *error);
/* Called when a request begins: gives n-grams the text that is expected after its prompt, tokens [n_prompt]. The stepping
 * thread. */
void ae_session_expect(aerie_session *session, const aerie_request *request, const int32_t *prompt, size_t n_prompt);
uint64_t ae_session_settings_hash(const aerie_model_params *params);
/* Checks a caller's bytes and copies them. */
aerie_status ae_session_saved_copy(const aerie_session *session, const void *data, size_t n, ae_session_saved *out,
                                   aerie_error *error);
void ae_session_saved_free(ae_session_saved *saved);
/* Makes the prompt of a saved sequence that has rows. The prompt gets its tokens too. UNSUPPORTED: the rows were not saved. */
aerie_status ae_session_saved_prompt(const aerie_session *session, ae_session_saved *saved, ae_media_prompt *prompt,
                                     aerie_error *error);
/* Returns the bytes [*n] that a token adds to the answer's text, lent by the vocabulary. */
const char *ae_session_piece(aerie_task *task, int32_t token, uint32_t *n);
/* Replays the text of the saved answer, so that the task's text continues after it. */
aerie_status ae_session_replay_text(aerie_task *task, aerie_error *error);

/* UNSUPPORTED if the model cannot generate. */
aerie_status ae_session_check_decoder(const ae_model *model, aerie_error *error);
/* UNSUPPORTED if the model cannot write token by token. */
aerie_status ae_session_check_drafts(const ae_model *model, aerie_error *error);
/* embedder.c: the default pooling of a model. */
aerie_pooling ae_session_pooling(const ae_model *model);
/* Returns the bytes of an embedder with default parameters. */
uint64_t ae_session_embedder_bytes(const ae_model *model, const ae_backend *backend);
/* adapters.c: the largest rank of a session's adapters; 0: there are none. */
uint32_t ae_session_max_rank(const aerie_session_params *params);
/* ARGUMENT if the list of adapters is not valid for the model. */
aerie_status ae_session_check_adapters(const aerie_session_params *params, aerie_error *error);
/* Copies the list of adapters into the session's parameters. */
aerie_status ae_session_take_adapters(aerie_session *session, aerie_error *error);
/* Converts a request's adapters [n] into a set. ARGUMENT: an index, scale or repetition that is not valid. */
aerie_status ae_session_adapter_set(const aerie_session *session, const aerie_adapter_use *uses, size_t n, ae_adapter_set *set,
                                aerie_error *error);

#define AE_SESSION_MAX_CTX (1u << 24)

/* Fills in the defaults of parameters and checks them. tests: the drafters of test_drafters.h are allowed. ARGUMENT: a value
 * that is not possible. */
aerie_status ae_session_resolve(const ae_model *model, const aerie_session_params *params, bool tests,
                            aerie_session_params *resolved, aerie_error *error);
/* test NULL: as aerie_session_create. */
aerie_status ae_session_create(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                   const ae_session_test *test, aerie_error *error);
ae_load_options ae_session_net_options(const aerie_model_params *params);
ae_engine_options ae_session_engine_options(const aerie_session_params *params, uint32_t n_vocab);
/* For models that denoise: makes room for rows, logits and pages of whole texts. Does nothing for other models. */
void ae_session_hold_texts(const ae_model *model, const aerie_session_params *params, ae_engine_options *options);
/* Returns the bytes of a session with these options, including the samplers of n_seqs requests. */
uint64_t ae_session_bytes(const ae_model *model, const ae_split *split, const ae_engine_options *options);
/* names.c: whether n-grams draft beside drafters of this type; the internal id of a cache type. */
bool ae_session_is_joined(aerie_spec_type type);
ae_kv_type ae_session_kv_type(aerie_kv_type type);

static inline double ae_session_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* test_drafters.c: creates the drafters for tests and benchmarks; the second function tells the oracle how the answer to the
 * request in a slot continues. */
aerie_status ae_session_create_test_drafter(aerie_session *session, ae_drafter **drafter, aerie_error *error);
void ae_session_test_tell(aerie_session *session, uint32_t slot, size_t id, size_t n_prompt);

/* draft_model.c: speculation by a draft model. */
aerie_status ae_session_create_draft_model(aerie_session *session, ae_drafter **drafter, aerie_error *error);

/* draft_self.c: speculation by the model itself. */
/* Most numbers of experts that are tried for drafts by the model itself. */
#define AE_SELF_TRIALS 4
uint32_t ae_session_self_trials(const ae_model *model, const aerie_spec *spec, int32_t n_experts[AE_SELF_TRIALS]);
/* Creates the i-th drafter. */
aerie_status ae_session_create_self(aerie_session *session, uint32_t i, ae_drafter **drafter, aerie_error *error);

/* Creates the drafter that fills masks. UNSUPPORTED: the model was not trained for it. */
aerie_status ae_session_create_masked(aerie_session *session, ae_drafter **drafter, aerie_error *error);
static inline bool ae_session_masks_ahead(const ae_model *model)
{
    return model->hparams.masks_ahead && model->hparams.mask_token >= 0;
}

/* draft_hier.c: speculation by a model that has a drafter of its own. */
aerie_status ae_session_create_hier(aerie_session *session, ae_drafter **drafter, aerie_error *error);

/* draft_head.c: speculation by a head. Resolves AUTO if a head is given, and adds the taps that the head needs to the session's
 * parameters. */
aerie_status ae_session_resolve_head(aerie_session_params *params, aerie_error *error);
aerie_status ae_session_create_head_drafter(aerie_session *session, ae_drafter **drafter, aerie_error *error);
ae_draft_shape ae_session_shape(aerie_tree tree);

#endif
