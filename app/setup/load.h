/* load.h - models and sessions as the options ask for them, prompts as tokens, figures as text.
 *
 * Owns: the check that memory suffices before anything is loaded, the progress bar, the line that
 * says which speculation is active. Lends nothing: callers free what they get.
 */
#ifndef AERIE_APP_SETUP_LOAD_H
#define AERIE_APP_SETUP_LOAD_H

#include "aerie_extra.h"
#include "setup/chat_format.h"
#include "cli/options.h"

#define APP_MAX_HIER 8 /* models of a hierarchy, below the first two */

typedef struct app_models {
    aerie_model *model;
    aerie_model *draft; /* -md is a model; NULL if not */
    aerie_drafter_head *head;   /* -md is a drafter head, or one was found beside the model; NULL if not */
    char *head_path;            /* where a head was found that -md does not name; NULL: none; released by aerie_free */
    bool head_found;            /* nobody asked for the head: it was found beside the model or in it */
    aerie_adapter **adapters;   /* [n_adapters] of --lora and --lora-scaled, in their order */
    size_t n_adapters;
    aerie_model *inner[APP_MAX_HIER];        /* [n_inner] of --hier-draft, for the draft model and one another */
    size_t n_inner;
    aerie_drafter_head *inner_head;          /* of the last one; NULL: none */
    aerie_model_info info;
    app_format format;
} app_models;

/* Checks memory, then loads -m and, with with_draft, -md, or without -md the model's MTP blocks or a drafter head beside it.
 * One found there that cannot be used costs one line on standard error, no more. */
int app_models_load(app_models *models, const app_options *options, bool with_draft);
/* Another drafter, options->draft_model, for the model of `base`, which must outlive it.
 * app_models_return releases it, also after an error. */
int app_models_borrow(app_models *models, const app_models *base, const app_options *options);
void app_models_return(app_models *models);
/* adapters.c: the adapters of the options, for the model; what was loaded goes with the models. */
int app_adapters_load(app_models *models, const app_options *options);
void app_adapters_free(app_models *models);
/* Whether a kind of speculation has a use for a draft model or head. */
bool app_wants_draft(aerie_spec_type type);
void app_models_free(app_models *models);
/* -m alone, which need not be able to generate. */
int app_model_load(app_models *models, const app_options *options);
/* A vocabulary is enough. */
int app_vocabulary_load(app_models *models, const app_options *options);

/* Fails with a sentence if the model knows ids only: its file has no tokenizer that aerie knows. */
int app_need_text(const app_models *models, const app_options *options);

/* A session with the given speculation (the rest as in the options). */
int app_session_open(aerie_session **session, const app_models *models, const app_options *options,
                     aerie_spec_type type);
/* A bar on standard error, which is a terminal, drawn anew when the percentage changes. *shown is -1 at first. */
void app_progress_show(const char *what, uint64_t done, uint64_t total, int *shown);
void app_progress_clear(int *shown);
/* "speculation: ngram, up to 16 tokens ahead, tree" on standard error, if wanted; a draft model that is not used is said
 * always. */
void app_say_speculation(const aerie_session *session, const app_options *options, bool wanted);
/* What the library has to say: warnings, the rest with --verbose. */
aerie_log app_log(const app_options *options);
/* "31,204 of 49,152 tokens shared (97.1% of a sample text)" when the draft model has another vocabulary, else "". */
const char *app_shared_tokens(char out[96], const aerie_session *session);

/* What is to be answered: bytes, and tokens once app_prompts_encode ran. */
typedef struct app_prompt {
    app_text text;
    bool is_messages; /* the text is JSON, messages for the chat template as aerie_chat takes them */
    char *source;     /* where it stands, for sentences; NULL: on the command line */
    json_t *id;       /* its "id" in a .jsonl file; NULL: none */
    int32_t *tokens;  /* [n_tokens] released by aerie_free; NULL with images */
    size_t n_tokens;  /* positions that it takes */
    aerie_prompt *pictured; /* owned; with images in place of tokens. NULL: none */
} app_prompt;

typedef struct app_prompts {
    app_prompt *items;
    size_t n, capacity;
} app_prompts;

/* From -p, -f, --prompts-file, --messages. standard_input: it is the prompt if there is none of these, and follows the prompt
 * of a single -p. */
int app_prompts_read(app_prompts *prompts, const app_options *options, bool standard_input);
/* The beginning of the prompt, or of the newest message of a user, in one line: into out [80]; returns out. */
const char *app_prompt_title(const app_prompt *prompt, char out[80]);
int app_prompts_add(app_prompts *prompts, const char *text, size_t n, bool escape);
/* The line that begins at *at, without its end; *at moves to the next one. false: there is none. */
bool app_next_line(const app_text *text, size_t *at, const char **line, size_t *n);
/* By the chat template, or raw. */
int app_prompts_encode(app_prompts *prompts, const app_models *models, const app_options *options);
void app_prompts_free(app_prompts *prompts);
bool app_uses_template(const app_models *models, const app_options *options);
/* Tokens of a conversation. */
int app_conversation_encode(const app_models *models, const aerie_message *messages, size_t n, int32_t **tokens,
                            size_t *n_tokens);

/* ---- pictures.c ------------------------------------------------------------------------------------------ */

/* --mmproj, or the one beside the model. *tower NULL, and APP_DONE: there is none. */
int app_tower_load(aerie_tower **tower, const app_models *models, const app_options *options);
/* Makes the one prompt with the images of the options. */
int app_pictures_encode(app_prompts *prompts, const app_models *models, const app_options *options);

aerie_request app_request(const app_options *options, const app_prompt *prompt);

/* ---- debug.c --------------------------------------------------------------------------------------------- */

/* As AERIE_DEBUG asks: says each pass of the session ("pass"), its drafted trees ("tree"). model: outlives it. */
int app_debug_session(aerie_session *session, aerie_model *model);

/* ---- stats.c ------------------------------------------------------------------------------------------- */

void app_stats_add(aerie_stats *sum, const aerie_stats *stats);
/* The line of --stats on standard error. */
/* session may be NULL */
void app_say_stats(const aerie_stats *sum, size_t n_prompts, double seconds, const aerie_session *session);
json_t *app_json_stats(const aerie_stats *stats);
json_t *app_json_settings(const app_models *models, const app_options *options, const aerie_session *session);
/* [{"depth": 1, "drafted": n, "tried": n, "accepted": n}, ...] */
json_t *app_json_depths(const aerie_stats *stats);
double app_rate(double count, double seconds);

#endif
