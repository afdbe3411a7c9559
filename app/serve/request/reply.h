/* reply.h - answers on their way to a client: converts the engine's events to the format of a dialect, streamed or complete.
 * Owns what has been sent so far, the pending text, the end and its reason. Does not own the fields of the JSON (dialects:
 * chat.c, completion.c, messages.c, responses.c, ollama.c, llama.c). A dialect's functions append to reply->out and return
 * false when out of memory. */
#ifndef AERIE_APP_SERVE_REQUEST_REPLY_H
#define AERIE_APP_SERVE_REQUEST_REPLY_H

#include "serve/request/request.h"
#include "serve/http/parts.h"
#include "serve/models/tokens.h"

typedef struct serve_tool_call {
    char *id, *name;
    app_text arguments; /* JSON, if complete */
    bool complete;
} serve_tool_call;

/* A part of an answer: uninterrupted text of one kind, or one call. */
typedef struct serve_block {
    answer_kind kind; /* ANSWER_REASONING, ANSWER_CONTENT or ANSWER_CALL */
    size_t from, n;   /* range in `reasoning` or `content`; for a call, its index and 1 */
} serve_block;

/* One choice: what has been sent of it. */
typedef struct serve_output {
    struct serve_reply_state *of;
    uint32_t index;
    answer_parser *parser; /* NULL: all is content */
    app_text content, reasoning;
    serve_tool_call *calls; /* [n_calls] */
    size_t n_calls, capacity;
    serve_tokens tokens; /* if the request wants token data; in a stream only those that were not sent yet, unless the dialect
                          * places them */
    size_t first_placed; /* for a dialect that places tokens: the first token of the piece that is being sent */
    app_text ids;     /* int32_t: all tokens of the answer, if the request keeps the context */
    app_text tail;    /* for stop strings: the newest bytes of the tokens, even if they cut a character */
    size_t n_raw, n_certain; /* for stop strings: bytes of all tokens' texts; of these, bytes that are in the answer */
    bool ended;
    bool enough;      /* the only allowed call has ended, so later text is not sent */
    uint32_t n_tokens; /* tokens received so far */
    uint32_t n_reasoning; /* of these, tokens of reasoning, with the tag that ends it */
    size_t n_scored;   /* tokens of the prompt whose log-probabilities have arrived, including the first, which has none */
    size_t n_streamed; /* number of bytes of content sent, including the echoed prompt */
    const aerie_stats *stats; /* once it has ended */
    const aerie_stats *now;   /* up to the event that is being handled, if the stream tells times; lent by the event */
    bool told_progress;       /* progress of the prompt was sent, last that of n_computed tokens */
    uint32_t n_computed;
    app_text held;            /* for a stream that sends its choices one after another: output that waits for the choices before
                               * it */
    serve_block *blocks;      /* [n_blocks] all parts of the answer, in order */
    size_t n_blocks, blocks_capacity;
    int n_begun; /* for a dialect with blocks: how many blocks the stream has begun; the last one may be open */
    bool block_open;
} serve_output;

typedef struct serve_reply_state {
    serve_call *call;
    serve_ask ask;
    serve_job *job;
    const struct serve_dialect *dialect;
    serve_output *outputs; /* [n_outputs] */
    uint32_t n_outputs;  /* choices of all prompts */
    uint32_t n_ended;
    uint32_t n_told; /* for a repeatable stream: number of choices that were sent before the current one */
    app_text out;
    size_t n_sent;  /* of out */
    bool begun, over, no_memory;
    bool broken; /* a stream breaks off */
    bool told;  /* a stream has sent more than its beginning, or has read what it will send next */
    bool again; /* the model failed, and the request is to be submitted again; the model is released if ask.model is NULL */
    double patient_until; /* monotonic: when to stop waiting for the model */
    bool special; /* the texts of tokens include control tokens (aerie_request.special) */
    serve_error error; /* error of the generation; status 0: none */
    char id[48];
    double created; /* seconds since 1970 */
    double started; /* monotonic */
    uint32_t n_numbered; /* number of events sent, in dialects that number them */
} serve_reply_state;

typedef struct serve_dialect {
    const char *prefix; /* of ids, "chatcmpl-" */
    const char *type;   /* type of a stream: text/event-stream, or else lines of JSON */
    bool (*begin)(serve_reply_state *r);
    bool (*delta)(serve_reply_state *r, serve_output *s, const answer_event *event);
    bool (*end_choice)(serve_reply_state *r, serve_output *s);
    bool (*end)(serve_reply_state *r);
    bool (*fail)(serve_reply_state *r); /* sends r->error in a stream that has begun */
    void (*whole)(serve_reply_state *r, serve_parts *out);
    bool (*ping)(serve_reply_state *r); /* sends a sign of life; NULL: a comment, or nothing in a stream of JSON lines */
    /* Called in a stream once s->tokens holds the log-probabilities of the whole prompt, which "echo" with "logprobs" asks for.
     * NULL: the dialect does not support that, in whole answers neither. */
    bool (*scored)(serve_reply_state *r, serve_output *s);
    /* Sends {"total", "cache", "processed", "time_ms"}, which it takes ownership of, in a stream while the prompt is computed;
     * NULL: the dialect does not tell that. */
    bool (*progress)(serve_reply_state *r, serve_output *s, json_t *progress);
    bool places_tokens; /* the dialect tells log-probabilities by block (serve_tokens_of_block) */
} serve_dialect;

typedef bool serve_ask_step(serve_ask *ask, serve_error *error);

/* Reads the call's request and answers it. convert: renames the fields to OpenAI's first, or NULL; read: reads the prompt;
 * model and common fields are read already. */
void serve_reply_run(serve_call *call, serve_kind kind, serve_ask_step *convert, serve_ask_step *read,
                     const serve_dialect *dialect);

/* Counts the tokens for the call's line in the log, also for an answer that was cut off. */
void serve_count_tokens(serve_reply_state *r);

/* ---- For dialects ------------------------------------------------------------------------------------------------ */

/* Sends a server-sent event; name NULL: only data. Takes ownership of the JSON; NULL: out of memory. */
bool serve_put_event(serve_reply_state *r, const char *name, json_t *json);
/* Sends an event whose data are the parts. Takes ownership of the parts, and counts their tokens as sent. */
bool serve_put_parts(serve_reply_state *r, serve_output *s, serve_parts *parts);
/* Sends a line of JSON. */
bool serve_put_line(serve_reply_state *r, json_t *json);
/* Sends the parts as a line. Takes ownership of them, and counts their tokens as sent. */
bool serve_put_line_parts(serve_reply_state *r, serve_output *s, serve_parts *parts);
bool serve_put_text(serve_reply_state *r, const char *text);

typedef enum serve_finish { SERVE_FINISH_STOP, SERVE_FINISH_LENGTH, SERVE_FINISH_CALLS } serve_finish;

serve_finish serve_output_finish(const serve_output *s);
/* Returns "stop", "length" or "tool_calls". */
const char *serve_finish_name(serve_finish finish);
/* Returns the stop string that ended the answer; NULL: none did. */
const char *serve_output_stop(const serve_reply_state *r, const serve_output *s);
json_t *serve_json_string(const app_text *text);
json_t *serve_json_part(const app_text *text, const serve_block *block); /* the part of the text that belongs to the block */
uint32_t serve_n_generated(const serve_reply_state *r);
uint32_t serve_n_reasoning(const serve_reply_state *r);
uint32_t serve_n_cached(const serve_reply_state *r);
/* Returns {"prompt_tokens", "completion_tokens", ...}. */
json_t *serve_json_usage(const serve_reply_state *r);
/* Adds "usage" up to now to a chunk of a stream, if the request wants it there ("continuous_usage_stats"). */
void serve_parts_usage(serve_parts *out, const serve_reply_state *r);
/* Returns whether a piece of the answer carries times ("timings_per_token"). */
bool serve_output_tells_timings(const serve_output *s);
/* Returns the times and counts under llama.cpp's names: the final ones, or those up to now. */
json_t *serve_json_timings(const serve_reply_state *r, const serve_output *s);
/* Adds ,"finish_reason":... with null while the answer continues. */
void serve_parts_finish(serve_parts *parts, const char *finish);
/* Adds {"content": [...]} with the log-probabilities that have not been sent yet, or null. */
void serve_parts_logprobs(serve_parts *parts, serve_output *s);
/* Returns whether there is token data that was not sent yet. */
bool serve_output_has_logprobs(const serve_output *s);
bool serve_output_has_origins(const serve_output *s);
/* Adds ,"name":[...] with the origins that were not sent yet, if there are any. */
void serve_parts_origins(serve_parts *parts, serve_output *s, const char *name);
/* Returns the arguments as an object, {} if they are not one. NULL: out of memory. */
json_t *serve_json_arguments(const serve_tool_call *call);
/* Returns [{"id", "type", "function": {"name", "arguments"}}, ...]; custom tools have {"name", "input"} under "custom". */
json_t *serve_json_calls(const serve_output *s);

#endif
