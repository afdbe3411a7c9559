/* vocab_map.h - maps between two tokenizers: which tokens are the same, and how a text in one is spelled in the other.
 *
 * Used for drafters whose tokenizer differs from the target's. Two tokens are the same when they stand for the same bytes;
 * control tokens when they have the same text, or the same role (beginning, end, end of a turn). Pairs of same tokens are one
 * to one, so a drafter restricted to them proposes tokens of the target, and an accepted token maps back to the one proposed.
 * Source: token-level intersection (TLI), reference "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms
 * for Heterogeneous Vocabularies" (Timor et al., 2025).
 *
 * Owns: the tables. Borrows both vocabularies, which must outlive it. Immutable once created.
 */
#ifndef AE_TEXT_VOCAB_MAP_H
#define AE_TEXT_VOCAB_MAP_H

#include "text/token/vocab.h"

typedef struct ae_vocab_map ae_vocab_map;

/* A drafter with a smaller share than either of these is refused. */
#define AE_OVERLAP_MIN_VOCAB 0.05
#define AE_OVERLAP_MIN_TEXT 0.50

typedef struct ae_overlap {
    int32_t n_target, n_draft; /* tokens, without fillers */
    int32_t n_shared;          /* pairs of same tokens */
    double vocab_share;        /* n_shared / n_target */
    double text_share;         /* share of a sample text's bytes in shared tokens, as the target's tokenizer cuts it */
    double length_ratio;       /* the drafter's tokens of the sample text per token of the target */
} ae_overlap;

/* Errors: MEMORY. */
aerie_status ae_vocab_map_create(ae_vocab_map **out, const ae_vocab *target, const ae_vocab *draft, aerie_error *error);
void ae_vocab_map_free(ae_vocab_map *map);

const ae_overlap *ae_vocab_map_overlap(const ae_vocab_map *map);
/* Errors: UNSUPPORTED, with the figures and the names of both models, if the overlap is too small. */
aerie_status ae_vocab_map_check(const ae_vocab_map *map, const char *target_name, const char *draft_name, aerie_error *error);

/* Returns the pairs in ascending order of target ids: targets[i] and drafts[i] are the same token; each id occurs once. */
uint32_t ae_vocab_map_pairs(const ae_vocab_map *map, const int32_t **targets, const int32_t **drafts);

/* Results of ae_vocab_map_to_draft that are not tokens. */
#define AE_MAP_TEXT (-1)    /* the token's text is spelled in the drafter's tokens */
#define AE_MAP_NOTHING (-2) /* the token is left out: a filler, or BOS for a drafter without one */
/* Returns the drafter's token for a token of the target (several may map to one), or one of the values above. */
int32_t ae_vocab_map_to_draft(const ae_vocab_map *map, int32_t target_token);

/* A sequence of the target in the drafter's tokens, kept from call to call: a pure function of the sequence, however it
 * grew. Tokens are mapped one by one where possible; a word with a token that cannot be mapped is spelled as a whole by the
 * drafter's tokenizer, so the drafter sees it as in its training. A word begins after a special token, at white space that
 * follows another character, and after WORD_TOKENS tokens or WORD_BYTES bytes. So an added token changes nothing before the
 * last word, and takes no more time than a word. Zero-initialise, set map. */
typedef struct ae_retext {
    const ae_vocab_map *map;
    ae_tokens seen;   /* the sequence in the target's tokens */
    ae_tokens drafts; /* the sequence in the drafter's tokens */
    struct ae_retext_word {
        uint32_t seen, drafts; /* where the word begins in each list */
    } *words;         /* [n_words] */
    size_t n_words, capacity;
    ae_buf spelling;  /* scratch */
    ae_encode_memory *memory; /* of the drafter's vocabulary, lent; NULL: each spelled word allocates memory */
    size_t most;              /* drafts end with the word at which they reach this number; 0: no limit */
    uint64_t n_spelled_bytes; /* bytes given to the drafter's tokenizer so far */
} ae_retext;

/* The most bytes of a spelled word, unless it has tokens of more than LONG_BYTES bytes. */
size_t ae_vocab_map_word_bytes(const ae_vocab_map *map);
/* Reserves memory for sequences of n_seen tokens of the target and n_drafts of the drafter, and sets r->most to n_drafts. If
 * r->memory is for ae_vocab_map_word_bytes() bytes, updates then allocate nothing. Errors: MEMORY. */
aerie_status ae_retext_reserve(ae_retext *r, size_t n_seen, size_t n_drafts, aerie_error *error);

/* Updates r->drafts to the sequence tokens [n]. After a failure (MEMORY, LIMIT), and at r->most, it holds a prefix only. */
aerie_status ae_retext_update(ae_retext *r, const int32_t *tokens, size_t n, aerie_error *error);
void ae_retext_free(ae_retext *r);

#endif
