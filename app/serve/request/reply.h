/* reply.h - answers on their way to a client: events of the engine become the text of a dialect, streamed or whole.
 *
 * Owns: what has been sent so far, the pending text, the end and its reason. Does not own: fields of JSON (dialects: chat.c,
 * completion.c, messages.c, responses.c, ollama.c, llama.c). A dialect's functions append to reply->out and return false when
 * out of memory.
 */
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

/* A run of one kind of what an answer says: text without a break, or one call. */
typedef struct serve_block {
    answer_kind kind; /* ANSWER_REASONING, ANSWER_CONTENT or ANSWER_CALL */
    size_t from, n;   /* bytes of `reasoning` or `content`; of a call: its index, and 1 */
} serve_block;

/* One choice: what has been sent of it. */
typedef struct serve_said {
    struct serve_reply_state *of;
    uint32_t index;
    answer_parser *parser; /* NULL: all is content */
    app_text content, reasoning;
    serve_tool_call *calls; /* [n_calls] */
    size_t n_calls, capacity;
    serve_tokens tokens; /* if the request wants them; in a stream those that were not sent yet */
    app_text tail;    /* of stop strings: the newest bytes of the tokens, however they are cut */
    bool told, ended; /* something of it has been streamed; it has ended */
    bool enough;      /* its only allowed call has ended: later text is not sent */
    uint32_t n_tokens; /* tokens received so far */
    size_t n_scored;   /* tokens of the prompt whose log-probabilities have come, the first included */
    size_t n_streamed; /* bytes of content, and of the echoed prompt */
    const aerie_stats *stats; /* once it has ended */
    app_text held;            /* of a stream whose choices come one after another: what waits for those before it */
    serve_block *blocks;      /* [n_blocks] all that was said, in its order */
    size_t n_blocks, blocks_capacity;
    int n_begun; /* of a stream whose dialect has blocks: those that it has begun; the last of them may be open */
    bool block_open;
} serve_said;

typedef struct serve_reply_state {
    serve_call *call;
    serve_ask ask;
    serve_job *job;
    const struct serve_dialect *dialect;
    serve_said *said; /* [n_said] */
    uint32_t n_said;  /* choices of all prompts */
    uint32_t n_ended;
    uint32_t n_told; /* of a repeatable stream: choices before the one that is told now */
    app_text out;
    size_t n_sent;  /* of out */
    bool begun, over, no_memory;
    serve_error error; /* of the generation; status 0: none */
    char id[48];
    double created; /* seconds since 1970 */
    double started; /* monotonic */
    uint32_t n_numbered; /* events of dialects that number them */
} serve_reply_state;

typedef struct serve_dialect {
    const char *prefix; /* of ids, "chatcmpl-" */
    const char *type;   /* of a stream; text/event-stream, or else lines of JSON */
    bool (*begin)(serve_reply_state *r);
    bool (*delta)(serve_reply_state *r, serve_said *s, const answer_event *event);
    bool (*end_choice)(serve_reply_state *r, serve_said *s);
    bool (*end)(serve_reply_state *r);
    bool (*fail)(serve_reply_state *r); /* r->error in a stream that has begun */
    void (*whole)(serve_reply_state *r, serve_parts *out);
    bool (*ping)(serve_reply_state *r); /* a sign of life; NULL: a comment, or nothing among lines of JSON */
    /* Called in a stream once s->tokens holds the log-probabilities of the whole prompt, which "echo" with "logprobs" asks for.
     * NULL: the dialect has no place for them, in whole answers neither. */
    bool (*scored)(serve_reply_state *r, serve_said *s);
} serve_dialect;

typedef bool serve_ask_step(serve_ask *ask, serve_error *error);

/* Reads the call's request and answers it. convert: gives it the names of OpenAI's fields first, or NULL; read: its prompt, the
 * model and the fields being read. */
void serve_reply_run(serve_call *call, serve_kind kind, serve_ask_step *convert, serve_ask_step *read,
                     const serve_dialect *dialect);

/* ---- For dialects ------------------------------------------------------------------------------------------------ */

/* Sends a server-sent event; name NULL: only data. Takes ownership of the JSON; NULL: out of memory. */
bool serve_put_event(serve_reply_state *r, const char *name, json_t *json);
/* The same; takes ownership of the parts, and counts their tokens as sent. */
bool serve_put_parts(serve_reply_state *r, serve_said *s, serve_parts *parts);
/* Sends a line of JSON. */
bool serve_put_line(serve_reply_state *r, json_t *json);
/* The same for parts, which it frees; their tokens count as sent. */
bool serve_put_line_parts(serve_reply_state *r, serve_said *s, serve_parts *parts);
bool serve_put_text(serve_reply_state *r, const char *text);

typedef enum serve_finish { SERVE_FINISH_STOP, SERVE_FINISH_LENGTH, SERVE_FINISH_CALLS } serve_finish;

serve_finish serve_said_finish(const serve_said *s);
/* Returns "stop", "length" or "tool_calls". */
const char *serve_finish_name(serve_finish finish);
/* Returns the stop string that ended the answer; NULL: none did. */
const char *serve_said_stop(const serve_reply_state *r, const serve_said *s);
json_t *serve_json_string(const app_text *text);
json_t *serve_json_part(const app_text *text, const serve_block *block); /* what the block has of the text */
uint32_t serve_n_generated(const serve_reply_state *r);
uint32_t serve_n_cached(const serve_reply_state *r);
/* Returns {"prompt_tokens", "completion_tokens", ...}. */
json_t *serve_json_usage(const serve_reply_state *r);
/* Returns the figures under llama.cpp's names. */
json_t *serve_json_timings(const serve_reply_state *r, const serve_said *s);
/* Adds ,"finish_reason":... with null while the answer continues. */
void serve_parts_finish(serve_parts *parts, const char *finish);
/* Returns {"content": [...]} with the log-probabilities that have not been sent yet; null: there are none. */
void serve_parts_logprobs(serve_parts *parts, serve_said *s);
/* Whether token data has not been sent yet. */
bool serve_said_has_logprobs(const serve_said *s);
bool serve_said_has_origins(const serve_said *s);
/* Adds ,"name":[...] with this data, if there is any. */
void serve_parts_origins(serve_parts *parts, serve_said *s, const char *name);
/* Returns the arguments as an object; {} if they are not one. NULL: out of memory. */
json_t *serve_json_arguments(const serve_tool_call *call);
/* Returns [{"id", "type", "function": {"name", "arguments"}}, ...]; custom tools have {"name", "input"} under "custom". */
json_t *serve_json_calls(const serve_said *s);

#endif
