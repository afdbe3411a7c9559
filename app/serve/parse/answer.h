/* answer.h - splits a generated answer into reasoning, text and tool calls while it is generated.
 * Models write reasoning and tool calls as text, each family in its own format. A parser receives the bytes of one answer in
 * pieces, which may end anywhere, even inside a character or a tag, and reports events. However the answer is cut into pieces,
 * the events are the same once neighbouring deltas are joined.
 * Owns the formats, the way a chat template is recognized (answer_format.c), and the parser of one answer. Does not own
 * grammars, prompts, HTTP, or the JSON of the answer.
 * Invariants
 * - Nothing is lost. Text that looked like a call but is malformed, or was cut off, becomes content from the point where it
 * could no longer be read; what was reported before stays. Only the tags themselves, and the white space beside them, are not
 * reported.
 * - Time is linear in the bytes. At most this is held back: text that may still become a tag, the head of a call up to its
 * name, and a value whose type is known only at its end.
 * - A content or reasoning delta never ends inside a UTF-8 character unless the text itself does.
 * The text must contain control tokens as text ("<|channel|>", "[TOOL_CALLS]", "<｜tool▁calls▁begin｜>"): set
 * aerie_request.special if answer_style_needs_special says so. End-of-generation tokens are not part of it. */
#ifndef AERIE_APP_SERVE_PARSE_ANSWER_H
#define AERIE_APP_SERVE_PARSE_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aerie_extra.h"
#include "shared/app.h"

/* ---- Formats --------------------------------------------------------------------------------- */

typedef struct answer_format answer_format; /* a format of tool calls, in static storage */
typedef struct answer_tags answer_tags;     /* a format of reasoning, in static storage */

/* The format of a model's answers. */
typedef struct answer_style {
    const answer_format *format; /* never NULL */
    const answer_tags *tags;     /* NULL: the model writes no reasoning */
} answer_style;

/* Chooses the format by marks in the source of a chat template; without any mark it is "plain", which has no tags.
 * template_text may be NULL. */
answer_style answer_style_detect(const char *template_text, size_t n);
/* Finds a format by name: "plain", "hermes", "qwen3-coder", "llama3", "mistral", "deepseek", "harmony", ...; NULL if
 * unknown. */
const answer_format *answer_format_named(const char *name);
/* Returns format number i; NULL after the last one. */
const answer_format *answer_format_at(size_t i);
const char *answer_format_name(const answer_format *format);
/* Finds a format of reasoning by name: "think", "think-brackets" ([THINK]), "seed", "gemma", "harmony", ...; NULL if
 * unknown. */
const answer_tags *answer_tags_named(const char *name);
const answer_tags *answer_tags_at(size_t i);
const char *answer_tags_name(const answer_tags *tags); /* "none" for NULL */
/* Returns whether its tags may be control tokens, which the text contains only with aerie_request.special. */
bool answer_style_needs_special(const answer_style *style);
/* Returns whether its template accepts only call ids of nine letters and digits. */
bool answer_style_wants_short_ids(const answer_style *style);

/* ---- Events ------------------------------------------------------------------------------------ */

typedef enum answer_kind {
    ANSWER_REASONING, /* text */
    ANSWER_CONTENT,   /* text */
    ANSWER_CALL,      /* call `index` begins: its id and name */
    ANSWER_ARGUMENTS, /* text: a piece of the JSON of the arguments of call `index` */
    ANSWER_CALL_END,  /* `complete`: the arguments are as the model wrote them; else they were cut off or malformed. They are an
                       * object, unless a limit
                       * ended the answer */
} answer_kind;

typedef struct answer_event {
    answer_kind kind;
    const char *text; /* [n] valid during the call, not NUL-terminated */
    size_t n;
    size_t index;     /* of the call, from 0 */
    const char *id;   /* CALL: NUL-terminated; as the model wrote it, or made from the seed */
    const char *name; /* CALL: NUL-terminated */
    bool complete;    /* CALL_END */
} answer_event;

/* Receives an event. Returns false to end the parsing; answer_feed then returns false. */
typedef bool answer_sink(void *user, const answer_event *event);

/* ---- Parsers ------------------------------------------------------------------------------------ */

typedef struct answer_params {
    answer_style style;
    bool keep_reasoning;  /* reasoning_format "none": reasoning and its tags are content. With "auto" and "deepseek" reasoning
                           * has its own events */
    const json_t *tools;  /* the request's list in the form of OpenAI's chat completions, borrowed as long as the parser lives;
                           * NULL or empty: no calls are
                           * looked for. The types of parameters decide how unquoted values are read */
    const char *prompt;   /* [n_prompt] the rendered prompt, or its end, which shows whether the template has opened the
                           * reasoning */
    size_t n_prompt;
    const char *begun;    /* [n_begun] text after the prompt that the answer continues; not reported */
    size_t n_begun;
    uint64_t id_seed;     /* for the ids of calls to which the model gives none: equal seeds give equal ids */
    answer_sink *sink;
    void *user;
} answer_params;

typedef struct answer_parser answer_parser;

/* Returns NULL if memory is short. */
answer_parser *answer_create(const answer_params *params);
void answer_free(answer_parser *parser);
/* Parses the next bytes. Returns false if the sink did, or if memory was short (answer_out_of_memory); the parser then accepts
 * no more bytes. */
bool answer_feed(answer_parser *parser, const char *text, size_t n);
/* Reports what was held back; must be called once, at the end of the answer. cut: a limit ended the answer. Otherwise the
 * arguments of a call that broke off are completed. */
bool answer_end(answer_parser *parser, bool cut);
bool answer_out_of_memory(const answer_parser *parser);
/* Returns whether the text so far ends inside reasoning. */
bool answer_in_reasoning(const answer_parser *parser);
/* Returns the number of calls begun so far; if it is not 0, finish_reason is "tool_calls". */
size_t answer_n_calls(const answer_parser *parser);

/* ---- Arguments of earlier calls ---------------------------------------------------------------- */

/* Appends the arguments in text [n] as a JSON object, completed if they broke off. Returns false if memory is short. */
bool answer_repair(app_text *out, const char *text, size_t n);

/* ---- Answers whose beginning is in the prompt ------------------------------------------------------------------------ */

/* Returns whether the prompt followed by `begun` ends inside reasoning. */
bool answer_is_opened(const answer_params *params);
/* Returns the tags that begin and end reasoning. Returns false if a grammar could not find any. */
bool answer_reasoning_tags(const answer_style *style, const char **open, const char **close);
/* Limits the reasoning of an answer to n_most tokens: *limit gets the style's texts, and *end: the message
 * (NULL: none) and what closes the reasoning. false: the style has no texts around reasoning, or memory is short. */
bool answer_limit_reasoning(const answer_params *params, uint32_t n_most, const char *message, aerie_reasoning *limit,
                            app_text *end);
/* Appends what belongs between the rendered prompt and `text` [n], with which the client begins the answer: *before, then the
 * client's reasoning if it gave one (`reasons`), then *after. Reasoning that does not continue in `text` is closed there.
 * *n_skip: bytes of `text` that the prompt already contains. Returns false if memory is short. */
bool answer_continue(app_text *before, app_text *after, const answer_params *params, bool reasons, const char *text, size_t n,
                     size_t *n_skip);

/* ---- tool_choice: "required", or a named tool ------------------------------------------------------ */

/* Makes the answer begin with a call: `prefix` is appended to the prompt (tokenized with control tokens, as by
 * aerie_model_chat_tokenize), a grammar restricts the rest (aerie_grammar_create_schema of `schema`), and the parser of the
 * answer is created with `style` and receives the prefix before the answer's own text. */
typedef struct answer_forced {
    answer_style style;
    char *prefix; /* [n_prefix] */
    size_t n_prefix;
    char *schema; /* [n_schema] JSON */
    size_t n_schema;
} answer_forced;

/* name NULL: any of the tools. params as in answer_create; its sink is not used. Returns false with the reason in *why (static
 * storage): no such tool, or no tools; NULL: memory is short. */
bool answer_force(answer_forced *forced, const answer_params *params, const char *name, const char **why);
void answer_forced_free(answer_forced *forced);

/* ---- tool_choice: "auto" --------------------------------------------------------------------------------- */

#define ANSWER_MAX_TRIGGERS 4 /* a format has at most this many tags that open a section */

/* The parts of a lazy grammar (aerie_grammar_create_lazy) for calls that the model may make. It allows only whole calls of the
 * tools with arguments that fit their schemas. Text before, between and after calls is free, and so is reasoning. */
typedef struct answer_lazy_part {
    char *text;
    size_t schema; /* follows it; of schemas[] */
} answer_lazy_part;

typedef struct answer_lazy {
    const char *triggers[ANSWER_MAX_TRIGGERS];
    size_t n_triggers;
    answer_lazy_part *parts; /* [n_parts]; none if the format's calls are not JSON, or do not begin with a distinct tag */
    size_t n_parts;
    char **schemas; /* [n_schemas] JSON; NULL if no part needs it */
    size_t n_schemas;
    const char *tails[ANSWER_MAX_TRIGGERS]; /* texts with which a call may end */
    size_t n_tails;
    const char *open, *close; /* tags of reasoning, in which calls do not count; NULL: none */
    bool opened;
} answer_lazy;

/* params as in answer_force. Returns false if memory is short. */
bool answer_lazy_create(answer_lazy *lazy, const answer_params *params);
/* For an answer that consists either of calls or of something else that a grammar describes. Calls begin as in answer_force;
 * with free_calls, and a format that has no such beginning, they are unrestricted after its tags. Without triggers no calls are
 * possible. */
bool answer_mixed_create(answer_lazy *lazy, const answer_params *params, bool free_calls);
void answer_lazy_free(answer_lazy *lazy);

#endif
