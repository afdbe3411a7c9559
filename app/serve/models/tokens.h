/* tokens.h - tokens of an answer that are still to be sent, with their log-probabilities and whether they were drafted.
 * As JSON they take about a hundred times the memory, so they are stored as numbers, and written as JSON when they are sent.
 * Owns the numbers. Which of them a dialect sends, and where, is up to the dialect (chat.c, completion.c, llama.c). */
#ifndef AERIE_APP_SERVE_MODELS_TOKENS_H
#define AERIE_APP_SERVE_MODELS_TOKENS_H

#include <stdint.h>

#include <jansson.h>

#include "serve/models/job.h"

#define SERVE_NO_BLOCK SIZE_MAX

typedef struct serve_token {
    int32_t token;
    uint32_t depth; /* 0: decoded; k: the k-th of an accepted draft */
    float logprob; /* NAN for the first token of a prompt, which has none */
    uint32_t n_top;
    bool apart;    /* drawn within the reasoning, whose end it may be */
    size_t block;  /* of the answer, for serve_tokens_place; SERVE_NO_BLOCK: none */
    size_t top;    /* index of its first alternative in `tops` */
    size_t offset; /* bytes of the choice's earlier tokens, as text in JSON */
    size_t from;   /* bytes of text that the answer's earlier tokens have, with those of a stop string */
} serve_token;

typedef struct serve_tokens {
    const aerie_model *model; /* lent */
    serve_use *use;           /* lent */
    serve_token *items; /* [n_kept] owned */
    size_t n_kept, capacity;
    size_t n;      /* of these, tokens that may be sent: the others may turn out to belong to a stop string */
    size_t n_placed; /* of n_said, tokens that belong to a block or to none */
    size_t n_said; /* of these, tokens of which the answer has some text, and those without text between them */
    aerie_logprob *tops; /* [n_tops] owned */
    size_t n_tops, tops_capacity;
    size_t offset; /* of the next one */
    size_t first_offset; /* the offset of the first token, as serve_token_offset writes it */
} serve_tokens;

/* Keeps a token with at most n_top of its likeliest alternatives. Returns false if memory is short. */
bool serve_tokens_add(serve_tokens *tokens, const serve_event *event, uint32_t n_top, size_t from);
/* The first n_text bytes of the text are certain; ended: nothing follows them. Tokens that begin there may be sent. */
void serve_tokens_settle(serve_tokens *tokens, size_t n_text, bool ended);
/* The newest tokens belong to this block of the answer, except those of the reasoning and the end of the generation. Returns
 * false if the memory is short that they take as JSON. */
bool serve_tokens_place(serve_tokens *tokens, size_t block);
/* Returns the log-probabilities of a block's tokens from the given one on, as a list; NULL: out of memory. */
json_t *serve_tokens_of_block(const serve_tokens *tokens, size_t block, size_t from);
/* Drops the tokens that have been sent. */
void serve_tokens_clear(serve_tokens *tokens);
void serve_tokens_free(serve_tokens *tokens);

/* Writes {"id", "token", "bytes", "logprob", "top_logprobs"} as in chat completions. Is a serve_entry; the user is a
 * serve_tokens. */
bool serve_token_logprob(void *tokens, size_t i, app_text *out);
/* Writes the id. */
bool serve_token_id(void *tokens, size_t i, app_text *out);
/* Writes {"id", "text", "depth"}. */
bool serve_token_origin(void *tokens, size_t i, app_text *out);
/* These write the four lists of completions: "token", -0.5, {"token": -0.5, ...}, 17. Without a log-probability the second and
 * the third write null. */
bool serve_token_text(void *tokens, size_t i, app_text *out);
bool serve_token_number(void *tokens, size_t i, app_text *out);
bool serve_token_map(void *tokens, size_t i, app_text *out);
bool serve_token_offset(void *tokens, size_t i, app_text *out);

#endif
