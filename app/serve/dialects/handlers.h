/* handlers.h - the handlers of the paths in routes.c. Each replies to its call, or returns without a reply when the client has
 * disconnected.
 */
#ifndef AERIE_APP_SERVE_DIALECTS_HANDLERS_H
#define AERIE_APP_SERVE_DIALECTS_HANDLERS_H

#include "aerie_extra.h"
#include "serve/request/reply.h"

serve_handler serve_post_chat, serve_post_chat_count; /* chat.c */
serve_handler serve_post_completion;                  /* completion.c */
serve_handler serve_post_native, serve_post_infill;   /* llama.c */
serve_handler serve_post_messages, serve_post_count;  /* messages.c */
serve_handler serve_post_responses, serve_post_input_tokens; /* responses.c */
/* info.c */
serve_handler serve_get_health, serve_get_models, serve_get_model, serve_get_props, serve_get_page, serve_get_curve,
    serve_post_load, serve_post_unload;
serve_handler serve_get_slots, serve_post_slot; /* slots.c */
serve_handler serve_get_lora, serve_post_lora;  /* lora.c */
/* ollama.c */
serve_handler serve_post_ollama_chat, serve_post_ollama_generate, serve_get_tags, serve_get_running, serve_get_version,
    serve_post_show, serve_ollama_store;
/* text.c */
serve_handler serve_post_tokenize, serve_post_detokenize, serve_post_template;
/* embed.c */
serve_handler serve_post_embeddings, serve_post_embedding, serve_post_ollama_embed, serve_post_ollama_embeddings,
    serve_post_rerank;

serve_handler serve_post_systemone; /* decide.c */

/* embed.c: returns the model's embedder, created if necessary; NULL after a failure. Called under the model's embed_lock. */
aerie_embedder *serve_embedder_of(serve_ask *ask, aerie_pooling pooling, bool unscaled, serve_error *error);

/* Removes unfinished files that killed servers left in --slot-save-path. */
void serve_slots_clean(const char *folder);

/* Answers a chat. convert turns the body into that of a chat completion, or of a completion if it sets "prompt". */
void serve_chat_run(serve_call *call, serve_ask_step *convert, const serve_dialect *as);
/* Answers with the number of tokens of a chat's prompt; object: the type of the answer, or NULL. */
void serve_chat_count(serve_call *call, serve_ask_step *convert, const char *object);
serve_ask_step serve_responses_convert; /* responses_request.c */
/* Converts messages of a chat that have Anthropic's blocks of calls or results, as Cursor sends them. messages.c */
serve_ask_step serve_messages_blocks;

/* Return an error in the dialect's JSON. */
json_t *serve_messages_error(const serve_error *error);
json_t *serve_ollama_error(const serve_error *error);
/* messages.c: returns the JSON as a string; NULL when out of memory. */
json_t *serve_json_text(const json_t *json);
/* messages.c: returns the arguments of a call in a conversation, as chat completions take them: an object, or a text that may
 * be cut, empty if there are none. NULL when out of memory. */
json_t *serve_messages_arguments(const json_t *given);
/* Reads "keep_alive", a number of seconds or a duration in Go's notation. *seconds is NAN if it is absent. */
bool serve_ollama_keep(const json_t *body, double *seconds, serve_error *error);
/* ollama_prompt.c: writes a prompt by a layout in Go's template language. Returns false if it has what is not known. */
bool serve_ollama_layout(const char *layout, const char *system, const char *prompt, app_text *out, serve_error *error);
/* Puts the tokens of earlier turns (NULL: none) before those of the prompt. */
bool serve_ollama_context(serve_ask *ask, const json_t *context, serve_error *error);
/* Adds the field "context", if the request keeps it. */
void serve_ollama_put_context(serve_parts *out, serve_output *s);

/* routes.c: what aerie serve answers. */
extern const serve_route serve_routes[]; /* [serve_n_routes] */
extern const size_t serve_n_routes;

/* Sends r's error as an event of OpenAI's streams. */
bool serve_openai_fail(serve_reply_state *r);
/* Returns "system_fingerprint", such as "aerie-0.1.0". */
const char *serve_fingerprint(void);

/* Begins a request that needs no session: waits for call->work, reads the body and takes the model. The caller must end with
 * serve_text_end or serve_text_reply, which post call->work.
 */
bool serve_text_begin(serve_ask *ask, serve_call *call, serve_error *error);
/* Replies with json, or with the error if it has a status. */
void serve_text_end(serve_ask *ask, serve_call *call, json_t *json, const serve_error *error);
/* The same with an answer in parts, which it takes ownership of. Calls release(user) when the parts are no longer needed. */
void serve_text_reply(serve_call *call, serve_parts *parts, const serve_error *error, void (*release)(void *user), void *user);

#endif
