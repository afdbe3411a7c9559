/* vocab_map.h - maps between two tokenizers: which tokens are the same, and how a text in one is spelled in the other.
 *
 * For drafters whose tokenizer is not the target's. Two tokens are the same when they stand for the same bytes; control tokens
 * when they have the same text, or the same role (beginning, end, end of a turn). Pairs of same tokens are one to one, so a
 * drafter that is held to them proposes tokens of the target, and what it proposed comes back to it as what it proposed.
 * Source: token-level intersection (TLI), reference "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms
 * for Heterogeneous Vocabularies" (Timor et al., 2025).
 *
 * Owns: the tables. Borrows both vocabularies, which must outlive it. Immutable once created.
 */
#ifndef AE_TEXT_VOCAB_MAP_H
#define AE_TEXT_VOCAB_MAP_H

#include "text/token/vocab.h"

typedef struct ae_vocab_map ae_vocab_map;

/* Below either of these a drafter is useless. */
#define AE_OVERLAP_MIN_VOCAB 0.05
#define AE_OVERLAP_MIN_TEXT 0.50

typedef struct ae_overlap {
    int32_t n_target, n_draft; /* tokens, without fillers */
    int32_t n_shared;          /* pairs of them */
    double vocab_share;        /* n_shared / n_target */
    double text_share;         /* of the bytes of a sample text, cut by the target's tokenizer, those in shared tokens */
    double length_ratio;       /* tokens of the sample for the drafter per token for the target */
} ae_overlap;

/* MEMORY. */
aerie_status ae_vocab_map_create(ae_vocab_map **out, const ae_vocab *target, const ae_vocab *draft, aerie_error *error);
void ae_vocab_map_free(ae_vocab_map *map);

const ae_overlap *ae_vocab_map_overlap(const ae_vocab_map *map);
/* UNSUPPORTED, with the figures and the names of both models, when the overlap is too small to be of use. */
aerie_status ae_vocab_map_check(const ae_vocab_map *map, const char *target_name, const char *draft_name, aerie_error *error);

/* The pairs, ascending in target ids: targets[i] and drafts[i] are the same; each id occurs once. */
uint32_t ae_vocab_map_pairs(const ae_vocab_map *map, const int32_t **targets, const int32_t **drafts);

/* What a token of the target is to the drafter: a token (several may be one there), or one of these. */
#define AE_MAP_TEXT (-1)    /* no token: its text, spelled in the drafter's tokens */
#define AE_MAP_NOTHING (-2) /* no token and no text: fillers; the beginning, for a drafter that has none */
int32_t ae_vocab_map_to_draft(const ae_vocab_map *map, int32_t target_token);

/* A sequence of the target in the drafter's tokens, kept from call to call: a pure function of the sequence, however it
 * grew. Tokens are mapped one by one where possible; a word with a token that cannot be mapped is spelled as a whole by the
 * drafter's tokenizer, so the drafter sees it as in its training. A word begins after a special token, at white space after
 * something else, and after WORD_TOKENS tokens or WORD_BYTES bytes; so an added token changes nothing before the last word's
 * beginning, and costs no more than a word. Zero-initialise, set map. */
typedef struct ae_retext {
    const ae_vocab_map *map;
    ae_tokens seen;   /* of the target */
    ae_tokens drafts; /* the same in the drafter's */
    struct ae_retext_word {
        uint32_t seen, drafts; /* where it begins in each */
    } *words;         /* [n_words] */
    size_t n_words, capacity;
    ae_buf spelling;  /* scratch */
    ae_encode_memory *memory; /* of the drafter's vocabulary, lent; NULL: each word spelled takes memory */
    size_t most;              /* drafts end with the word that makes them as many or more; 0: never */
    uint64_t n_spelled_bytes; /* given to the drafter's tokenizer so far */
} ae_retext;

/* The bytes of a word that is spelled, as a rule: one with tokens of more than LONG_BYTES bytes may have more. */
size_t ae_vocab_map_word_bytes(const ae_vocab_map *map);
/* Memory for sequences of n_seen tokens, which end where they have n_drafts in the drafter's (r->most). With r->memory for
 * ae_vocab_map_word_bytes() updates then take none. MEMORY. */
aerie_status ae_retext_reserve(ae_retext *r, size_t n_seen, size_t n_drafts, aerie_error *error);

/* Makes r->drafts that of tokens [n]. On failure (MEMORY, LIMIT), and at r->most, it is that of a shorter beginning. */
aerie_status ae_retext_update(ae_retext *r, const int32_t *tokens, size_t n, aerie_error *error);
void ae_retext_free(ae_retext *r);

#endif
