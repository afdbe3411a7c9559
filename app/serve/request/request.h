/* request.h - what a request asks for: fields of its JSON, checked by one table; prompt, sampling, grammar, tools.
 * Owns the meaning of the fields that all dialects share. Unknown fields are ignored, as in OpenAI's servers. A field that has
 * the wrong type, is out of range, or is known but not supported is an error that names it. null counts as absent. */
#ifndef AERIE_APP_SERVE_REQUEST_REQUEST_H
#define AERIE_APP_SERVE_REQUEST_REQUEST_H

#include "serve/models/models.h"

/* The kinds of dialects, as far as they read shared fields differently. */
typedef enum serve_kind { SERVE_KIND_TEXT, SERVE_KIND_CHAT } serve_kind;

/* The images of a request, in the order of its messages. */
typedef struct serve_images {
    aerie_image **items; /* [n] owned */
    size_t n, capacity;
} serve_images;

typedef struct serve_ask {
    serve_server *server;
    serve_call *call;
    serve_use *use;     /* of the call */
    json_t *body;       /* owned */
    serve_kind kind;    /* whether the answer is a chat message */
    serve_model *model; /* taken; NULL: not yet */
    serve_model *left;  /* the model that serve_ask_leave has released */
    uint64_t fingerprint; /* of it */
    uint32_t n_tries; /* how often the request is computed again because it failed */
    uint64_t scope; /* aerie_request.scope, from the key and "cache_salt" */
    double keep; /* seconds that the model stays loaded afterwards; NAN: the server's default; negative: for ever */
    const char *model_name; /* as in the request, or the model's own name */
    /* fields */
    bool stream, include_usage, usage_each, logprobs, ignore_eos, origins, echo, keep_reasoning;
    bool timings_per_token, return_progress; /* streams tell times with each piece; how far the prompt is */
    bool return_tokens;
    bool keeps_context; /* the tokens of prompt and answer are part of the answer (ollama_prompt.c) */
    bool only_prompt; /* the prompt is only evaluated, without an answer */
    bool may_be_zero; /* n_predict 0 is possible, and means only_prompt; always in a chat */
    const char *count_name; /* what the client calls "max_tokens"; NULL: that */
    uint32_t n, n_predict, n_top; /* n_predict 0: as much as fits */
    bool no_drafts; /* what the request allows of speculation, as in aerie_request */
    uint32_t draft_max, draft_min;
    float draft_p_min;
    char *expected; /* "aerie_expected", owned; NULL: none */
    aerie_sampling sampling;
    uint64_t wide_seed; /* the body's seed if it is 2^63 or more, which jansson cannot represent; else 0 */
    uint64_t seed;
    bool seeded;
    const char **stops; /* [n_stops] borrowed from the body and the model; the list is owned */
    size_t n_stops;
    const char **breakers; /* [n_breakers] of DRY, borrowed from the body; the list is owned. NULL: the default ones */
    size_t n_breakers;
    aerie_logit_bias *bias; /* [n_bias] owned */
    size_t n_bias;
    aerie_grammar *grammar; /* owned */
    int32_t reasoning_budget; /* tokens of reasoning at most; -1: any number */
    const char *reasoning_message; /* borrowed from the body or the options; NULL: none */
    bool limited;                  /* `reasoning` is the answer's limit; its `end` is reasoning_end */
    aerie_reasoning reasoning;
    app_text reasoning_end;
    bool has_schema;        /* the grammar comes from a schema, which applies to the content, not to the whole answer */
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] from "lora", or the model's defaults */
    size_t n_adapters;
    json_t *tools;          /* functions in OpenAI's shape, owned; NULL: none */
    json_t *loose_tools;    /* the same for grammars, where a schema that no grammar expresses became any object; NULL: none */
    json_t *forms; /* owned; how tools that are not plain functions are reported (tools.c): {the function's name: {"name",
                    * "custom", "namespace"}};
                    * NULL: all are plain */
    const char *tool_name;  /* the only tool that tool_choice allows; borrowed from the body or the tools; NULL: any */
    bool tool_required;
    bool one_call; /* the answer ends with its first call */
    /* the prompt */
    int32_t *tokens; /* [n_tokens] of all prompts, one after another; freed with aerie_free */
    size_t n_tokens, tokens_capacity;
    size_t *ends;    /* [n_prompts] where each prompt ends in tokens; owned. NULL: there is one prompt */
    uint32_t n_prompts; /* each has n choices: choice j of prompt i is i * n + j */
    serve_images images; /* of the conversation */
    aerie_prompt *pictured; /* the prompt with images, owned; its positions are the first in tokens. NULL: no images */
    char *prompt;    /* [n_prompt] the rendered prompt, freed with aerie_free; NULL: the request gave text or tokens */
    size_t n_prompt;
    unsigned form;   /* form in which the conversation is given to the template (prompt.c) */
    uint32_t n_dropped; /* oldest turns that did not fit in the context */
    app_text begun;  /* the beginning of the answer as the client gave it, which is at the end of the prompt */
    char *prefix;    /* [n_prefix] beginning of the answer that is part of the prompt; the parser reads it first; owned */
    size_t n_prefix;
    bool parses;     /* the parser looks for reasoning and calls in the answer */
    answer_style style;
} serve_ask;

/* Reads the body as a JSON object; the fields are read later. */
bool serve_ask_read(serve_ask *ask, serve_call *call, serve_error *error);
/* Loads the model that "model" names. The caller holds call->work, which is released while the model is loaded. */
bool serve_ask_model(serve_ask *ask, serve_error *error);
/* Returns the chat template of the request: models may have one of their own for tools. */
const serve_template *serve_ask_template(const serve_ask *ask);
/* Reads the fields that OpenAI's and llama.cpp's requests share, and checks them together. Without a model, only the fields
 * that need none. */
bool serve_ask_fields(serve_ask *ask, serve_error *error);
/* Copies the fields that mean the same in every dialect into a body that is being converted. Returns false without memory. */
bool serve_ask_share(json_t *to, const json_t *from);
/* Replaces the body by `body`, its form in OpenAI's fields, and takes ownership. ok false: the form could not be made; for lack
 * of memory unless *error says why. */
bool serve_ask_replace(serve_ask *ask, json_t *body, bool ok, serve_error *error);
/* Returns whether a request whose computation failed for an internal error may be computed again: the device may have been
 * lost, but it may be the request's own fault. */
bool serve_ask_may_try(serve_ask *ask);
/* Releases the model, since one in use is not loaded again. */
void serve_ask_leave(serve_ask *ask);
/* Takes the model that was left, for which it waits until `end`, which is monotonic. */
bool serve_ask_return(serve_ask *ask, double end, serve_error *error);
/* If the model's passes fail, leaves it and waits until it has been loaded again. Called without call->work. */
bool serve_ask_wait(serve_ask *ask, serve_error *error);
/* Returns whether what ended with this status, with call->work held, is to be done again: the device of the model failed, and
 * works again. Releases call->work while it waits for that. Returns false with *error if it waited in vain. */
bool serve_ask_again(serve_ask *ask, aerie_status status, serve_error *error);
void serve_ask_free(serve_ask *ask);
/* Returns false with *error if anything could not be stored: memory is short, or the memory for requests is exhausted. */
bool serve_ask_kept(const serve_ask *ask, serve_error *error);

/* lora.c: reads the field "lora". */
bool serve_ask_lora(serve_ask *ask, serve_error *error);
/* Restricts the answer to a JSON schema; value NULL: to any object. */
bool serve_ask_schema(serve_ask *ask, const json_t *value, const char *field, serve_error *error);
/* Reads what restricts the whole answer: "grammar", "json_schema", "response_format", and vLLM's "structured_outputs". */
bool serve_ask_grammar(serve_ask *ask, const json_t *object, serve_error *error);
/* Limits a grammar for the whole answer to its content: reasoning that the prompt has opened is free and comes first. */
bool serve_ask_reason(serve_ask *ask, serve_error *error);
/* Reads "reasoning_budget_tokens" and its like. */
bool serve_ask_budget(serve_ask *ask, const json_t *object, serve_error *error);
/* Limits the reasoning of an answer whose prompt is known. */
bool serve_ask_limit(serve_ask *ask, serve_error *error);
/* Lets an answer whose content has a schema call tools instead (tool_choice auto). */
bool serve_ask_mixed(serve_ask *ask, serve_error *error);
/* Makes loose_tools after a grammar could not be made of the tools, and clears the error. Returns false if nothing changed. */
bool serve_ask_loosen(serve_ask *ask, serve_error *error);
/* Restricts calls that the answer may contain (tool_choice auto) to the tools and their schemas. If there is no grammar for the
 * format, calls stay free; if there is none for a schema, its tool takes any object, unless it is strict. */
bool serve_ask_calls(serve_ask *ask, serve_error *error);

/* Returns the field's value; NULL: absent or null. */
const json_t *serve_get(const json_t *object, const char *field);
/* These getters return false only for a wrong value. *value is unchanged if the field is absent or null. */
bool serve_get_bool(const json_t *object, const char *field, bool *value, serve_error *error);
bool serve_get_text(const json_t *object, const char *field, const char **value, serve_error *error);
bool serve_get_list(const json_t *object, const char *field, const json_t **value, serve_error *error);
bool serve_get_object(const json_t *object, const char *field, const json_t **value, serve_error *error);
/* note: ends the message's range, such as " (--max-logprobs)"; "": nothing. */
bool serve_get_u32(const json_t *object, const char *field, uint32_t min, uint32_t max, const char *note, uint32_t *value,
                   serve_error *error);

/* ---- tools.c ------------------------------------------------------------------------------------------------- */

/* Reads "tools", "tool_choice" and "parallel_tool_calls". */
bool serve_ask_tools(serve_ask *ask, const json_t *object, serve_error *error);
/* Returns whether the model's template shows the request's tools to the model. */
bool serve_tools_check(const serve_ask *ask, serve_error *error);
/* Converts a list of tools (NULL: none) to a new list of functions; ask->forms keeps what is needed to report the others.
 * knows_all: unknown types are left out with a note, else they are an error. Returns NULL with *error. */
json_t *serve_tools_convert(serve_ask *ask, const json_t *tools, bool knows_all, serve_error *error);
/* Logs once that "what of type" is left out of requests. */
void serve_note_left_out(serve_server *server, const char *what, const char *type);
/* Logs once that prompts of ollama's /api/generate are continued, since the model has no chat template. */
void serve_note_continues(const serve_ask *ask);
/* Returns the name of the function that {"name", "namespace"} calls; NULL if it has none, or if memory is short. */
json_t *serve_tools_name(const json_t *call);
/* Returns a custom tool's input as the arguments of its function. */
json_t *serve_tools_arguments(const char *input);
/* Converts a message's custom calls to calls of functions. */
bool serve_tools_calls(json_t *message, size_t i, serve_error *error);
/* Converts ids of calls in tidied messages to the form that Mistral's templates demand. Returns false when out of memory. */
bool serve_tools_ids(json_t *messages);
/* Returns how a function is reported: an entry of ask->forms, or NULL for a plain function. */
const json_t *serve_tools_form(const serve_ask *ask, const char *name);
bool serve_tools_is_custom(const serve_ask *ask, const char *name);
const char *serve_tools_own_name(const serve_ask *ask, const char *name);
/* Returns a custom tool's input from its function's arguments, which may be complete or cut. */
json_t *serve_tools_input(const app_text *arguments);

/* ---- pictures.c ---------------------------------------------------------------------------------------------- */

/* Decodes the images of all messages, which are data: URLs, within the memory limit for requests. */
bool serve_pictures_take(serve_ask *ask, const json_t *messages, serve_error *error);
/* Decodes one image: a URL, or an object with a "url". where: the field, such as "images[0]", for messages. */
bool serve_pictures_take_one(serve_ask *ask, const json_t *image, const char *where, serve_error *error);
/* Returns whether pictures of the message become a remark: those of a tool's result, if the model cannot see any. Their client
 * did not choose to send them, and the conversation shall go on. */
bool serve_pictures_unseen(const serve_ask *ask, const json_t *message);
void serve_pictures_free(serve_images *images);
/* Returns whether a part of a message is an image. */
bool serve_is_image(const json_t *part);
/* Returns the text that stands for an image in a message, in static storage. Nobody outside this process can know it. */
const char *serve_pictures_mark(void);
/* Makes the prompt from the rendered conversation, in ask->pictured and ask->tokens. */
aerie_status serve_pictures_encode(serve_ask *ask, const aerie_chat *chat, aerie_error *why);
/* Makes ask->pictured alone, from a text with as many marks as there are images. */
aerie_status serve_pictures_encode_text(serve_ask *ask, const char *text, size_t n, aerie_error *why);
/* The chunks of the request are the prompt, and the tokens that were added after it. Returns how many there are; `chunks` has
 * room for that many. */
size_t serve_pictures_n_chunks(const serve_ask *ask);
void serve_pictures_chunks(const serve_ask *ask, aerie_chunk *chunks);

/* ---- turns.c ------------------------------------------------------------------------------------------------- */

/* Moves system messages to where the template accepts them, if it would refuse or lose them, and converts calls and results to
 * text if it does not know tools. May replace *messages, which are tidied, by another list. */
bool serve_turns_settle(serve_ask *ask, json_t **messages, const json_t *object, serve_error *error);

/* ---- calls.c ------------------------------------------------------------------------------------------------- */

/* What is changed of calls and results, each level with all before it: calls get ids and silent answers go; results without a
 * call become the user's text; each call gets a message of its own, before its result. */
enum { SERVE_CALLS_IDS = 1, SERVE_CALLS_ORPHANS, SERVE_CALLS_SPLIT, SERVE_CALLS_LEVELS = SERVE_CALLS_SPLIT };

/* Returns whether a strict template may refuse calls, results or silent answers of the conversation. */
bool serve_calls_odd(const json_t *messages);
/* Returns a new list; NULL when out of memory. */
json_t *serve_calls_mend(const json_t *messages, int level);

/* ---- numbers.c ------------------------------------------------------------------------------------------------ */

/* Replaces whole numbers in JSON text[0..n) that do not fit in signed 64 bits by reals, in place. *seed: the exact value of a
 * field
 * "seed" among them; 0: none. */
void serve_numbers_narrow(char *text, size_t n, uint64_t *seed);

/* ---- mend.c --------------------------------------------------------------------------------------------------- */

/* Replaces a byte order mark before JSON text[0..n) by spaces. */
void serve_mend_mark(char *text, size_t n);
/* Replaces escapes of halves of surrogate pairs by U+FFFD, in place. Returns whether there were any. */
bool serve_mend_halves(char *text, size_t n);

/* ---- prompt.c ------------------------------------------------------------------------------------------------- */

/* Returns the tokens with which the answer is expected to begin; the caller frees them with aerie_free. */
bool serve_ask_expected(serve_ask *ask, int32_t **tokens, size_t *n, serve_error *error);
/* Like aerie_model_tokenize, but counts the memory. *n tokens, which the caller frees with aerie_free. */
bool serve_ask_tokenize(serve_ask *ask, const char *text, size_t n_text, bool first, bool special, const char *field,
                        int32_t **tokens, size_t *n, serve_error *error);
/* Adds tokens to the prompt, or sets a text as the prompt. first: add BOS if the model wants one; special: parse control
 * tokens. */
bool serve_ask_add_tokens(serve_ask *ask, const int32_t *tokens, size_t n, serve_error *error);
bool serve_ask_add_text(serve_ask *ask, const char *text, size_t n_text, bool first, bool special, serve_error *error);
/* Adds a completion's prompt: a text, a list of tokens, or a list of texts and tokens. */
bool serve_ask_prompt(serve_ask *ask, const json_t *value, const char *field, serve_error *error);
/* Reads the field "prompt" as one prompt, or as a list of prompts, each a string or a list of tokens. */
bool serve_ask_prompts(serve_ask *ask, serve_error *error);
/* Returns the number of choices of all prompts, and the tokens [*n] of one choice's prompt, borrowed. */
uint32_t serve_ask_n_choices(const serve_ask *ask);
const int32_t *serve_ask_tokens_of(const serve_ask *ask, uint32_t choice, size_t *n);
/* Sets the prompt before a gap and the text after it; the answer fills the gap (llama.c). */
bool serve_ask_gap(serve_ask *ask, const json_t *prefix, const char *suffix, serve_error *error);
/* Reads the field "prompt" as one prompt. */
bool serve_ask_own_prompt(serve_ask *ask, serve_error *error);
/* Reads the field "messages" as a conversation, with the request's own tools. */
bool serve_ask_messages(serve_ask *ask, serve_error *error);
/* Renders tidied messages with the template to text [n], which the caller frees with aerie_free. Returns false if the template
 * refuses them. */
bool serve_ask_try(serve_ask *ask, json_t *messages, const json_t *object, char **text, size_t *n);
/* Renders a conversation to text [n], which the caller frees with aerie_free. */
bool serve_ask_render(serve_ask *ask, const json_t *messages, const json_t *object, char **text, size_t *n, serve_error *error);

#endif
