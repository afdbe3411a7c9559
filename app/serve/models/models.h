/* models.h - the models that are served: loaded when they are requested, each stepped by its own thread, unloaded to make room.
 * Owns models, sessions, their threads, the slots and their requests, and the counters. Invariants: a model that is in use
 * (serve_models_take) is not unloaded; while requests wait for a slot, all n_seqs slots are taken. Which requests have
 * slots changes from pass to pass (--max-turn), so a choice's slot is the one that the session reported last. */
#ifndef AERIE_APP_SERVE_MODELS_MODELS_H
#define AERIE_APP_SERVE_MODELS_MODELS_H

#include "aerie_extra.h"
#include "serve/models/conversations.h"
#include "serve/models/facts.h"
#include "serve/models/job.h"
#include "serve/models/metrics.h"
#include "serve/parse/answer.h"
#include "serve/parse/template_reads.h"

typedef enum serve_state {
    SERVE_UNLOADED,
    SERVE_LOADING,
    SERVE_READY,
    SERVE_UNLOADING,
    SERVE_FAILED, /* loading failed; it is tried again after a while */
} serve_state;

const char *serve_state_name(serve_state state);

typedef struct serve_slot {
    serve_choice *running; /* NULL: idle */
    uint64_t scope;        /* scope of the last sequence */
    int32_t *tokens;       /* [n_tokens] of the last sequence, owned, if slots can be saved */
    size_t n_tokens;
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] of the last sequence */
    size_t n_adapters;
} serve_slot;

/* A function to run on the stepping thread, between steps. */
typedef struct serve_errand {
    struct serve_errand *next;
    void (*run)(aerie_session *session, void *user);
    void *user;
    bool done;
} serve_errand;

/* A chat template and what was found out about it. */
typedef struct serve_template {
    const char *text; /* lent; NULL: none */
    answer_style style;
    serve_reads reads;
    bool takes_system; /* it writes a system message at the beginning */
} serve_template;

#define SERVE_WAIT_SECONDS 120 /* for which a request waits for its model */
#define SERVE_N_CURVE 5 /* passes over 1, 2, 4, 8, 16 tokens */

typedef struct serve_model {
    serve_server *server;
    char *name, *path;
    /* protected by the lock of serve_models */
    serve_state state;
    char short_of[400]; /* why loading failed, if that was for lack of memory; else "" */
    bool lost;          /* its device failed after it was loaded, and it has not been loaded again since */
    bool rests;         /* it was lost too often and is not loaded again for a while; its state is SERVE_FAILED */
    double lost_at;     /* when it was lost first since the last answer */
    atomic_uint n_lost; /* how often it was lost since the last answer */
    bool startup; /* it is the model that the server loads at the start; false once it is loaded */
    unsigned n_users;
    double last_used, failed_at, load_seconds;
    uint64_t n_loaded; /* value of models->n_loads when it was last loaded; 0: never */
    double keep; /* seconds that it stays loaded without being used; negative: until memory is needed */
    uint64_t bytes; /* planned */
    bool planned;           /* the next field is valid, for one loading */
    aerie_memory_plan plan; /* of the check before it, so that the header is not read again */
    /* while it is loaded */
    app_options options; /* the server's options, with this model's file */
    app_models models;
    aerie_tower *tower;     /* reads images; NULL: the model cannot */
    aerie_session *session; /* NULL for an encoder, which has no stepping thread either */
    pthread_mutex_t embed_lock; /* of the next one */
    aerie_embedder *embedders[3]; /* for vectors, for ranks, and for vectors that are not scaled; NULL until first needed */
    serve_template plain, with_tools; /* the chat template of conversations without and with tools; often the same */
    bool takes_tools;       /* the template writes tools */
    pthread_t thread;
    atomic_bool stop;
    atomic_uint failed_points; /* for passes that failed since the last one that did not (lost.c) */
    _Atomic double last_step, step_began; /* monotonic; step_began 0: between steps */
    /* seconds of all passes so far that the controller had measured, and what their tokens would have taken without drafts */
    _Atomic double took, took_plain;
    _Atomic uint32_t kv_page, kv_pages, kv_used; /* aerie_kv_use after the last step */
    pthread_mutex_t lock;                 /* of all that follows */
    pthread_cond_t changed;
    serve_choice *active, **active_end; /* in the order of submission */
    uint32_t n_active, n_seqs;
    uint64_t n_jobs; /* number of jobs so far, which is also the last job's number */
    serve_slot *slots; /* [n_seqs] */
    serve_errand *errands;
    serve_conversations *conversations; /* NULL: no conversations are kept */
    bool may_submit;
    float *lora_scales; /* [models.n_adapters] scales for requests without "lora"; owned, kept when the model is unloaded */
    double curve_tried; /* monotonic time when points were last measured; 0: never. Used by the stepping thread only */
    double curve[SERVE_N_CURVE]; /* T(n) in seconds; 0: not measured. Used by the stepping thread only */
    serve_facts facts;     /* facts from the file; empty until requested */
    serve_figures figures; /* sums over all periods in which it was loaded */
} serve_model;

typedef struct serve_models {
    serve_server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    serve_model *items; /* [n] */
    size_t n, capacity;
    size_t i_default;  /* model for requests that name none, ... */
    bool has_default;  /* ... whatever is loaded */
    uint64_t n_loads; /* so far */
    double created; /* seconds since 1970 */
    pthread_t starter;
    bool has_starter;
    pthread_t mender; /* loads models again whose device failed */
    bool has_mender;
    atomic_bool mended; /* the mender has ended */
} serve_models;

/* Reads the list of models; loads none. */
int serve_models_create(serve_models *models, serve_server *server);
/* Loads the first -m in the background. */
void serve_models_start(serve_models *models);
/* Ends all answers. */
void serve_models_stop(serve_models *models);
void serve_models_free(serve_models *models);

/* Returns the model called `name` (NULL: the default one, docs/serving.md), loads it if necessary, and counts a use, which the
 * caller must release. call: its client may disconnect meanwhile. */
serve_model *serve_models_take(serve_models *models, const char *name, const serve_call *call, serve_error *error);
/* Waits until a model that was released is ready, since it may have to be loaded again, and counts a use as before. Gives up at
 * `end`, which is monotonic. */
bool serve_models_take_again(serve_models *models, serve_model *model, const serve_call *call, double end, serve_error *error);
/* The same as serve_models_take, but only for a model that is already loaded. */
serve_model *serve_models_look(serve_models *models, const char *name, serve_error *error);
/* Notes that the model was used: it stays loaded for `keep` seconds after its release; NAN: for --sleep-idle-seconds. Code that
 * only reads facts of a model does not call this. */
void serve_models_used(serve_models *models, serve_model *model, double keep);
/* Counts a use of a loaded model without waiting. Returns false if the model is not loaded. */
bool serve_model_use(serve_models *models, serve_model *model);
void serve_models_give(serve_models *models, serve_model *model);
/* Finds a model by name, loaded or not, or NULL. */
serve_model *serve_models_find(serve_models *models, const char *name);
/* The same by the exact name, which clients may end with ":latest". */
serve_model *serve_models_named(serve_models *models, const char *name);
/* Fills in the error that no model has this name, with one of a similar name; returns false. */
bool serve_models_unknown(const serve_models *models, const char *name, serve_error *error);
/* Returns whether a loaded model generates text and has slots; encoders do not, and *error then says so. */
bool serve_model_generates(const serve_model *model, serve_error *error);
/* Returns the context length of a loaded model in tokens (dialects/info.c). */
uint32_t serve_model_n_ctx(const serve_model *model);
/* Returns whether its vocabulary has the tokens for filling gaps in texts. */
bool serve_model_fills_gaps(const serve_model *model);
serve_state serve_model_state(serve_models *models, const serve_model *model);
/* Unloads models that have not been used for as long as they were to be kept. Called by the main thread. */
void serve_models_sleep(serve_models *models);
/* Notes how a pass ended. After an internal error, tries whether the device of the model works. If it does not (it was lost or
 * hangs), or if passes fail again and again, the model is loaded again as soon as no request uses it. Any thread that uses
 * the model. */
void serve_model_note_pass(serve_model *model, aerie_status status);
/* Returns whether the passes of a model that is in use fail, so that it will be loaded again. The processes of a group end
 * together with it instead. Any thread. */
bool serve_model_fails(const serve_model *model);
/* Notes that the model has answered a request completely. A model that is lost again after each of three reloads without an
 * answer in between is not loaded again at once, but every 15 seconds. Any thread. */
void serve_model_note_answer(serve_model *model);
/* Begins to load such models again, in the background. Called by the main thread. */
void serve_models_mend(serve_models *models);
/* Returns whether all models that were loaded are such ones; they may be being loaded again. */
bool serve_models_lost(serve_models *models);
/* Returns whether a model has had work for --stuck-after without completing a step, or all have been lost for so long; one that
 * rested is lost until it answers. */
bool serve_models_stuck(serve_models *models);
/* Returns the seconds since the last step of the model that has waited longest with work; -1: no model has work. */
double serve_models_step_age(serve_models *models);

/* ---- lora.c: the scales of a model's adapters ---- */

bool serve_lora_open(serve_model *model);

/* ---- engine.c: the stepping thread ------------------------------------------------------------------------- */

/* Start and end the stepping thread. */
int serve_engine_start(serve_model *model);
void serve_engine_stop(serve_model *model);
/* Cancels all choices. */
void serve_engine_cancel(serve_model *model);
/* Runs a function on the stepping thread, between two steps. */
void serve_engine_do(serve_model *model, void (*run)(aerie_session *session, void *user), void *user);
/* Returns how many times as long the model's passes since the job was submitted would have taken without drafts; 0: unknown. */
double serve_engine_plain(const serve_job *job);
/* Asks the session for the slots of the choices that have begun since the last call. Called under the model's lock. */
void serve_engine_note_slots(serve_model *model);
/* Handles the last event of a choice. Called by the stepping thread. */
void serve_engine_ended(serve_choice *choice);
/* Submits a job's choices one after another: all of them, or none. */
bool serve_engine_submit(serve_model *model, serve_job *job, aerie_request *request, serve_error *error);

#endif
