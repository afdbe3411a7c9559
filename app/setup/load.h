/* load.h - loads models and opens sessions as the options say, encodes prompts, formats figures.
 * Owns the check that memory suffices before anything is loaded, the progress bar, and the line that names the active
 * speculation. Lends nothing: callers free what they get. */
#ifndef AERIE_APP_SETUP_LOAD_H
#define AERIE_APP_SETUP_LOAD_H

#include "aerie_extra.h"
#include "setup/chat_format.h"
#include "cli/options.h"

#define APP_MAX_HIER 8 /* most models in a hierarchy below the draft model */

typedef struct app_models {
    aerie_model *model;
    aerie_model *draft; /* the model of -md; NULL: -md is not a model */
    aerie_drafter_head *head;   /* the head of -md, or one that was found beside the model; NULL: none */
    char *head_path;            /* path of a head that -md does not name, to be released by aerie_free; NULL: none */
    bool head_found;            /* the head was found beside the model or in it; nobody asked for it */
    aerie_adapter **adapters;   /* [n_adapters] of --lora and --lora-scaled, in order */
    size_t n_adapters;
    aerie_adapter *draft_adapter; /* adapter of --spec-draft-lora, or NULL */
    aerie_model *inner[APP_MAX_HIER];        /* [n_inner] of --hier-draft; each drafts for the one before it */
    size_t n_inner;
    aerie_drafter_head *inner_head;          /* a head for the last of these, or NULL */
    char *inner_path;           /* path of that head if it was found beside the model, to be released by aerie_free */
    aerie_model_info info;
    app_format format;
} app_models;

/* What a command needs of its model. */
typedef enum app_need {
    APP_NEED_MODEL,  /* any model, also encoders and models with a decision head */
    APP_NEED_TEXT,   /* it generates text */
    APP_NEED_TOKENS, /* it also continues given tokens, without a source text beside them */
    APP_NEED_DRAFTS, /* something can also draft for it */
} app_need;

/* Checks the kind of the model, before any other message, and memory, then loads -m. With with_draft also loads -md, or
 * without -md the model's MTP blocks or a drafter head beside the model. If a head that was found cannot be used, a line on
 * standard error says so. */
int app_models_load(app_models *models, const app_options *options, bool with_draft, app_need need);
/* The same for a model of which app_model_plan has already made the plan; any kind. NULL: there is none. */
int app_models_load_planned(app_models *models, const app_options *options, bool with_draft, const aerie_memory_plan *plan);
/* Checks the kinds of -m and of a draft model by their headers alone. */
int app_models_check(const app_options *options, app_need need);
/* Reads the header of -m, computes what the model and its session need, and fails if it is not what the command needs. */
int app_model_plan(aerie_memory_plan *plan, const app_options *options, app_need need);
/* Loads another drafter, options->draft_model, for the model of `base`, which must outlive it. app_models_return releases it,
 * also after an error. */
int app_models_borrow(app_models *models, const app_models *base, const app_options *options);
void app_models_return(app_models *models);
/* adapters.c: loads the adapters of the options for the model. `models` owns them. */
int app_adapters_load(app_models *models, const app_options *options);
void app_adapters_free(app_models *models);
/* Returns whether a type of speculation can use a draft model or head. */
bool app_wants_draft(aerie_spec_type type);
void app_models_free(app_models *models);
/* Loads only -m, which need not be able to generate. */
int app_model_load(app_models *models, const app_options *options);
/* Loads only the vocabulary of -m. */
int app_vocabulary_load(app_models *models, const app_options *options);

/* app_report for a step of loading, which also goes to options->failure if that is wanted. */
int app_report_load(const app_options *options, app_stage stage, aerie_status status, const aerie_error *error);
/* Says that the command was given no model, and where one comes from. */
int app_error_no_model(const app_options *options);
/* Fails with a message if the model works only with ids, because aerie does not know its tokenizer. */
int app_need_text(const app_models *models, const app_options *options);

/* Creates a session as the options say, but with the given speculation. */
int app_session_open(aerie_session **session, const app_models *models, const app_options *options,
                     aerie_spec_type type);
/* Draws a bar on standard error, which is a terminal, when the percentage changes. *shown is -1 at first. */
void app_progress_show(const char *what, uint64_t done, uint64_t total, int *shown);
void app_progress_clear(int *shown);
/* Prints a line such as "speculation: ngram, up to 16 tokens ahead, tree" on standard error, if wanted. Always reports a draft
 * model that is not used. */
void app_say_speculation(const aerie_session *session, const app_options *options, bool wanted);
/* Writes "31,204 of 49,152 tokens shared (97.1% of a sample text)" if the draft model has another vocabulary, otherwise "". */
const char *app_shared_tokens(char out[96], const aerie_session *session);

/* A prompt to answer: bytes, and tokens after app_prompts_encode. */
typedef struct app_prompt {
    app_text text;
    bool is_messages; /* the text is JSON: messages for the chat template, as aerie_chat takes them */
    char *source;     /* source of the prompt for messages; NULL: the command line */
    json_t *id;       /* "id" of its line in a .jsonl file, or NULL */
    int32_t *tokens;  /* [n_tokens] freed with aerie_free; NULL with images */
    size_t n_tokens;  /* positions that it takes */
    aerie_prompt *pictured; /* owned; replaces tokens if there are images; else NULL */
} app_prompt;

typedef struct app_prompts {
    app_prompt *items;
    size_t n, capacity;
} app_prompts;

/* Collects prompts from -p, -f, --prompts-file and --messages. With standard_input, standard input is the prompt if there is
 * none of these, and is appended to a single -p. */
int app_prompts_read(app_prompts *prompts, const app_options *options, bool standard_input);
/* Writes the beginning of the prompt, or of the user's last message, as one line to out [80] and returns out. */
const char *app_prompt_title(const app_prompt *prompt, char out[80]);
int app_prompts_add(app_prompts *prompts, const char *text, size_t n, bool escape);
/* Returns the line at *at, without its end, and advances *at. Returns false if there is no further line. */
bool app_next_line(const app_text *text, size_t *at, const char **line, size_t *n);
/* Tokenizes the prompts, rendered with the chat template or raw. */
int app_prompts_encode(app_prompts *prompts, const app_models *models, const app_options *options);
void app_prompts_free(app_prompts *prompts);
bool app_uses_template(const app_models *models, const app_options *options);
/* Tokenizes a conversation. */
int app_conversation_encode(const app_models *models, const aerie_message *messages, size_t n, int32_t **tokens,
                            size_t *n_tokens);

/* ---- pictures.c ------------------------------------------------------------------------------------------ */

/* Returns the mmproj file of the options, or the only one beside the model, owned by the caller; NULL if there is none or more
 * than one (*n). */
char *app_mmproj_path(const app_options *options, size_t *n);
aerie_tower_params app_tower_params(const app_options *options);
/* Checks the file of --mmproj when no image is read. */
int app_tower_check(const app_options *options);
/* Loads --mmproj, or the file beside the model. *tower is NULL, with APP_DONE, if there is none. */
int app_tower_load(aerie_tower **tower, const app_models *models, const app_options *options);
/* Makes the single prompt with the images of the options. */
int app_pictures_encode(app_prompts *prompts, const app_models *models, const app_options *options);

aerie_request app_request(const app_options *options, const app_prompt *prompt);

/* ---- debug.c --------------------------------------------------------------------------------------------- */

/* Prints what AERIE_DEBUG asks for: each pass of the session ("pass"), its drafted trees ("tree"). The model must outlive the
 * session. */
int app_debug_session(aerie_session *session, aerie_model *model);

/* ---- stats.c ------------------------------------------------------------------------------------------- */

void app_stats_add(aerie_stats *sum, const aerie_stats *stats);
/* Prints the line of --stats on standard error. */
/* session may be NULL */
void app_say_stats(const aerie_stats *sum, size_t n_prompts, double seconds, const aerie_session *session);
json_t *app_json_stats(const aerie_stats *stats);
json_t *app_json_settings(const app_models *models, const app_options *options, const aerie_session *session);
/* Returns [{"depth": 1, "drafted": n, "tried": n, "accepted": n}, ...]. */
json_t *app_json_depths(const aerie_stats *stats);
double app_rate(double count, double seconds);

#endif
