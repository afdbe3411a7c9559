/* models.h - the models that are served: loaded when asked for, stepped by a thread each, unloaded to make room.
 *
 * Owns: models, sessions, their threads, which request runs in which slot, figures. Invariants: a model that is in use
 * (serve_models_take) is not unloaded; while requests wait for a slot, all n_seqs slots are taken. Which requests have
 * them changes from pass to pass (--max-turn), so a choice's slot is the one that the session told last.
 */
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
    SERVE_FAILED, /* to load; tried again after a while */
} serve_state;

const char *serve_state_name(serve_state state);

typedef struct serve_slot {
    serve_choice *running; /* NULL: idle */
    uint64_t scope;        /* of the sequence that ran last */
    int32_t *tokens;       /* [n_tokens] of the sequence that ran last, if slots can be saved; owned */
    size_t n_tokens;
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] that it ran with */
    size_t n_adapters;
} serve_slot;

/* A function to run on the stepping thread, between steps. */
typedef struct serve_errand {
    struct serve_errand *next;
    void (*run)(aerie_session *session, void *user);
    void *user;
    bool done;
} serve_errand;

#define SERVE_N_CURVE 5 /* passes over 1, 2, 4, 8, 16 tokens */

typedef struct serve_model {
    serve_server *server;
    char *name, *path;
    /* under the lock of serve_models */
    serve_state state;
    bool startup; /* it is the model that the server loads at its start; false once it is loaded */
    unsigned n_users;
    double last_used, failed_at, load_seconds;
    uint64_t n_loaded; /* of models->n_loads when it was loaded last; 0: never */
    double keep; /* seconds that it stays loaded without use; negative: until memory is needed */
    uint64_t bytes; /* planned */
    /* while it is loaded */
    app_options options; /* the server's, with this model's file */
    app_models models;
    aerie_tower *tower;     /* reads pictures; NULL: it cannot */
    aerie_session *session; /* NULL: an encoder, which has no stepping thread either */
    pthread_mutex_t embed_lock; /* of the next one */
    aerie_embedder *embedders[2]; /* for vectors, for ranks; NULL: not yet asked for */
    answer_style style;
    serve_reads reads;
    const char *template_text; /* lent; NULL: none */
    bool takes_system, takes_tools; /* its template writes a first message of the system; it writes the tools */
    pthread_t thread;
    atomic_bool stop;
    _Atomic double last_step, step_began; /* monotonic; step_began 0: between steps */
    _Atomic uint32_t kv_page, kv_pages, kv_used; /* aerie_kv_use after the last step */
    pthread_mutex_t lock;                 /* of all that follows */
    pthread_cond_t changed;
    serve_choice *active, **active_end; /* in the order of submission */
    uint32_t n_active, n_seqs;
    uint64_t n_jobs; /* so far; the last one's number */
    serve_slot *slots; /* [n_seqs] */
    serve_errand *errands;
    serve_conversations *conversations; /* NULL: no conversations are kept */
    bool may_submit;
    float *lora_scales; /* [models.n_adapters] of requests that say nothing; owned, kept when the model is unloaded */
    double curve_tried; /* monotonic, when points were measured last; 0: never. Used by the stepping thread only */
    double curve[SERVE_N_CURVE]; /* T(n) in seconds; 0: not measured. Used by the stepping thread only */
    serve_facts facts;     /* facts of the file, once they were asked for */
    serve_figures figures; /* summed over all times that it was loaded */
} serve_model;

typedef struct serve_models {
    serve_server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    serve_model *items; /* [n] */
    size_t n, capacity;
    size_t i_default;  /* the model of requests that name none, ... */
    bool has_default;  /* ... whatever is loaded */
    uint64_t n_loads; /* so far */
    double created; /* seconds since 1970 */
    pthread_t starter;
    bool has_starter;
} serve_models;

/* Reads the list of models; loads none. */
int serve_models_create(serve_models *models, serve_server *server);
/* Loads the first -m in the background. */
void serve_models_start(serve_models *models);
/* Ends all answers. */
void serve_models_stop(serve_models *models);
void serve_models_free(serve_models *models);

/* Returns the model called `name` (NULL: the default one, as docs/serving.md says), loaded; to be given back. call: whose
 * client may go away. */
serve_model *serve_models_take(serve_models *models, const char *name, const serve_call *call, serve_error *error);
/* The same for a model that is already loaded; it never loads one. */
serve_model *serve_models_look(serve_models *models, const char *name, serve_error *error);
/* Notes that the model was used: it stays loaded for `keep` seconds after it is given back, NAN: for --sleep-idle-seconds. Code
 * that only reads facts of a model does not call this. */
void serve_models_used(serve_models *models, serve_model *model, double keep);
/* Like serve_models_take, but without waiting or loading. Returns false if the model is not loaded. */
bool serve_model_use(serve_models *models, serve_model *model);
void serve_models_give(serve_models *models, serve_model *model);
/* Finds a model by name, loaded or not; NULL: there is none. */
serve_model *serve_models_find(serve_models *models, const char *name);
/* Whether a loaded model generates text and has slots; encoders do not, and *error says so. */
bool serve_model_generates(const serve_model *model, serve_error *error);
/* Context length of a loaded model, in tokens (dialects/info.c). */
uint32_t serve_model_n_ctx(const serve_model *model);
/* Whether its vocabulary has tokens for filling gaps in texts. */
bool serve_model_fills_gaps(const serve_model *model);
serve_state serve_model_state(serve_models *models, const serve_model *model);
/* Unloads models that have been unused for as long as they were to be kept. Called by the main thread. */
void serve_models_sleep(serve_models *models);
/* Whether some model has work but has not completed a step for --stuck-after. */
bool serve_models_stuck(serve_models *models);
/* Seconds since the last step of the model with work that has waited longest; -1: no model has work. */
double serve_models_step_age(serve_models *models);

/* ---- lora.c: the scales of a model's adapters ---- */

bool serve_lora_open(serve_model *model);

/* ---- engine.c: the stepping thread ------------------------------------------------------------------------- */

/* Start and end the stepping thread. */
int serve_engine_start(serve_model *model);
void serve_engine_stop(serve_model *model);
/* Runs a function on it, between steps. */
void serve_engine_do(serve_model *model, void (*run)(aerie_session *session, void *user), void *user);
/* Asks the session in which slots the choices run that have begun since the last call. Called under the model's lock. */
void serve_engine_note_slots(serve_model *model);
/* Notes that a choice has had its last event. Called by the stepping thread. */
void serve_engine_ended(serve_choice *choice);
/* Submits a job's choices one after another: all of them, or none. */
bool serve_engine_submit(serve_model *model, serve_job *job, aerie_request *request, serve_error *error);

#endif
