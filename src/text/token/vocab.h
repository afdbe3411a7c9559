/* vocab.h - tokens: text to ids and back, as the model file defines them.
 *
 * Owns: the vocabulary (pieces, types, scores, merges) copied out of the GGUF file, so the file
 * may be closed. Immutable once created; shared by threads.
 * Encoding is exact: the ids are those of the reference tokenizers (SPM, byte-level BPE).
 */
#ifndef AE_TEXT_VOCAB_H
#define AE_TEXT_VOCAB_H

#include "base/err.h"
#include "base/mem.h"
#include "formats/gguf.h"

typedef struct ae_vocab ae_vocab;

/* Growable list of token ids. */
typedef struct ae_tokens {
    int32_t *data; /* [n]; owned */
    size_t n, capacity;
} ae_tokens;

bool ae_tokens_add(ae_tokens *tokens, int32_t token); /* false when out of memory */
bool ae_tokens_reserve(ae_tokens *tokens, size_t n); /* room for n in all; false when out of memory */
void ae_tokens_free(ae_tokens *tokens);

/* A file whose tokenizer is unknown, or that says it has none, gives a vocabulary of ids without texts, as many as its list of
 * tokens or its embedding has; ae_vocab_kind is "none" then, and encoding says why not. Errors: UNSUPPORTED (no ids either),
 * FORMAT, MEMORY. */
aerie_status ae_vocab_create(ae_vocab **out, const ae_gguf *gguf, aerie_error *error);
void ae_vocab_free(ae_vocab *vocab);

int32_t ae_vocab_n_tokens(const ae_vocab *vocab);
/* Special ids; -1 if the model has none. */
int32_t ae_vocab_bos(const ae_vocab *vocab);
int32_t ae_vocab_eos(const ae_vocab *vocab);
/* Returns whether the token ends a generation: EOS, EOT, <|im_end|>, <|eot_id|>, <end_of_turn> ... */
bool ae_vocab_is_eog(const ae_vocab *vocab, int32_t token);
/* Returns whether a token of this text ends a generation, whatever keys its file has. */
bool ae_vocab_text_ends(const char *text, size_t n);
/* Returns whether it is a control token: not text, and printed only on request. */
bool ae_vocab_is_control(const ae_vocab *vocab, int32_t token);
bool ae_vocab_adds_bos(const ae_vocab *vocab);
bool ae_vocab_adds_eos(const ae_vocab *vocab);
/* Returns the type as numbered in the file: aerie_token_type. */
int ae_vocab_type(const ae_vocab *vocab, int32_t token);
/* Returns the id of a special token, or -1. gguf: the vocabulary's file. */
int32_t ae_vocab_special(const ae_vocab *vocab, const ae_gguf *gguf, aerie_special which);
/* Returns a sentence about the keys of the file that were ignored; "" if there were none. */
const char *ae_vocab_warning(const ae_vocab *vocab);
/* Returns "bpe/smollm", "spm", ... for messages. */
const char *ae_vocab_kind(const ae_vocab *vocab);
/* Returns the model's chat template text, NUL-terminated; NULL if it has none. */
const char *ae_vocab_chat_template(const ae_vocab *vocab);
/* Returns the template for conversations with tools, if the file has one of its own; else NULL. */
const char *ae_vocab_tool_template(const ae_vocab *vocab);

typedef struct ae_encode_options {
    bool add_special;   /* BOS (and EOS) where the model wants them */
    bool parse_special; /* text such as "<|im_start|>" becomes its control token */
    bool inside;        /* the text continues other text: no space is added before it (SPM) */
    /* With parse_special: stretches of the text, ascending, in which control tokens are not recognised. They are ordinary text,
     * encoded together with the text around them. User-defined tokens are recognised there too. */
    const ae_span *plain; /* [n_plain] */
    size_t n_plain;
} ae_encode_options;

/* Appends the ids of text[0..n), any bytes. Time linear in n (up to a logarithm); stack bounded. Errors: UNSUPPORTED (the
 * vocabulary knows ids only; an empty text is not an error), LIMIT, MEMORY. */
aerie_status ae_vocab_encode(const ae_vocab *vocab, const char *text, size_t n, ae_encode_options options,
                             ae_tokens *out, aerie_error *error);

/* Buffers for ae_vocab_encode_in, kept from call to call; for one vocabulary and one thread. Encoding a text of up to n_bytes
 * then allocates only the room that *out lacks. Longer texts may grow the buffers, and so may texts for which a pre-tokenizer's
 * patterns (PCRE2) need more than for the sample texts used to reserve them. */
typedef struct ae_encode_memory ae_encode_memory;
aerie_status ae_encode_memory_create(ae_encode_memory **out, const ae_vocab *vocab, size_t n_bytes, aerie_error *error);
void ae_encode_memory_free(ae_encode_memory *memory);
aerie_status ae_vocab_encode_in(ae_encode_memory *memory, const char *text, size_t n, ae_encode_options options,
                                ae_tokens *out, aerie_error *error);

/* Appends the raw bytes of one token (they may be part of a UTF-8 sequence). Control tokens give nothing unless `special`.
 * token must be in range. */
void ae_vocab_piece(const ae_vocab *vocab, int32_t token, bool special, ae_buf *out);
/* The same bytes [*n], lent by the vocabulary. */
const char *ae_vocab_piece_view(const ae_vocab *vocab, int32_t token, bool special, uint32_t *n);

/* A streaming detokenizer: exact, holds back an incomplete UTF-8 sequence. The whole output equals the detokenization of the
 * whole token list. Zero-initialise it and set vocab. */
typedef struct ae_detok {
    const ae_vocab *vocab;
    bool special;      /* print control tokens */
    bool started;      /* a token was seen (SPM drops the first piece's leading space) */
    char pending[8];   /* an incomplete UTF-8 sequence */
    uint32_t n_pending;
} ae_detok;

void ae_detok_add(ae_detok *detok, int32_t token, ae_buf *out);
/* Returns the first half of ae_detok_add: the bytes [*n] that the token adds to the text, lent by the vocabulary. */
const char *ae_detok_piece(ae_detok *detok, int32_t token, uint32_t *n);
/* The second half of ae_detok_add: takes bytes [n] and appends the characters that are complete. */
void ae_detok_bytes(ae_detok *detok, const char *bytes, size_t n, ae_buf *out);
void ae_detok_end(ae_detok *detok, ae_buf *out); /* appends the pending bytes unchanged */

/* Fails unless `draft` can propose tokens for `target`: both must have the same pieces under the same ids. UNSUPPORTED with the
 * first difference. */
aerie_status ae_vocab_check_same(const ae_vocab *target, const ae_vocab *draft, aerie_error *error);

#endif
