/* vocab_int.h - the inside of a vocabulary, shared by the files of the tokenizers.
 *
 * Owns nothing; the layout below belongs to vocab.c. A vocabulary is immutable once created.
 * Two strings per token are kept, both as bytes one after the other with an offset table:
 *   piece  what the token prints: raw bytes (byte-level BPE decoded, U+2581 as space, byte tokens
 *          as their byte; the text itself for control and user-defined tokens);
 *   key    what text is looked up by when merging: for BPE the raw bytes, for SPM the text with
 *          U+2581. Empty for tokens that ordinary text must never become (control, unknown, byte).
 * Symbols are what merging works on: every token, and after the tokens (ids >= n_tokens) the
 * strings that occur in merges or as single bytes without being tokens. Such a symbol is encoded as
 * the tokens of its bytes.
 */
#ifndef AE_TEXT_VOCAB_INT_H
#define AE_TEXT_VOCAB_INT_H

#include "text/token/pretok.h"
#include "text/token/search/charsmap.h"
#include "text/token/search/trie.h"
#include "text/token/vocab.h"

/* tokenizer.ggml.token_type */
enum {
    AE_TOKEN_NORMAL = 1,
    AE_TOKEN_UNKNOWN = 2,
    AE_TOKEN_CONTROL = 3,
    AE_TOKEN_USER = 4,
    AE_TOKEN_UNUSED = 5,
    AE_TOKEN_BYTE = 6,
};

enum { AE_TOKEN_EOG = 1, AE_TOKEN_RSTRIP = 2, AE_TOKEN_MERGED = 4, AE_TOKEN_LSTRIP = 8 }; /* MERGED: a merge makes this token */

typedef struct ae_strings {
    char *bytes;                 /* [n_bytes] */
    uint32_t *begin;             /* [n + 1] */
    uint32_t n, capacity;        /* strings */
    uint32_t n_bytes, capacity_bytes;
} ae_strings;

/* A slot of a table with open addressing, linear probing and a power-of-two size; id -1: the slot is free. */
typedef struct ae_key_slot {
    uint32_t hash;
    int32_t id;
} ae_key_slot;

typedef struct ae_merge {
    uint32_t left, right; /* two symbols; left UINT32_MAX: the slot is free */
    uint32_t rank;
    int32_t id; /* symbol */
} ae_merge;

/* Tokens that are searched for in the text itself, sorted by their bytes. */
typedef struct ae_specials {
    int32_t *ids; /* [n] */
    uint32_t n;
    uint32_t n_first;   /* different first bytes */
    uint8_t first[256]; /* 1: some token begins with this byte */
} ae_specials;

struct ae_vocab {
    bool spm;            /* keys and pieces spell spaces by U+2581, bytes by <0xAB>: SPM, and Gemma 4 with merges */
    bool wpm;            /* WordPiece; spm is also set */
    bool folds_case;     /* WordPiece: no token has a capital letter, so case and accents are removed from text */
    bool add_bos, add_eos, add_space_prefix;
    char warning[160];   /* a sentence about the file; "": there is none */
    bool ignore_merges;  /* a whole word that is a token is not merged */
    bool split_at_space; /* SPM: no symbol has U+2581 after another character, so words are merged one by one */
    bool split_at_newline; /* Gemma 4 and its kin: runs of newlines are words of their own */
    bool newline_tokens;   /* Gemma 4, mmBERT: a run of newlines that is a token is that token */
    bool metaspace;        /* mmBERT: each line begins with U+2581, and each U+2581 begins a word */
    bool bare_words;       /* white space separates words and is dropped; spm is also set */
    bool lowercase;        /* bare_words: case is removed from text */
    bool ugm;              /* Unigram; comes with spm */
    bool plamo2, rwkv;
    bool verbatim;         /* keys and pieces are the tokens' texts as they are, or unescaped (RWKV) */
    bool collapses_spaces; /* Unigram: spaces at the ends of a text, and after others, are dropped */
    bool byte_fallback;    /* Unigram: characters without a token become bytes */
    bool lacks_bytes;    /* some byte has no token */
    int32_t n_tokens;
    int32_t bos, eos, eot, eom, unknown, padding; /* -1: none */
    uint64_t seed;                                /* of the key hash */
    uint32_t max_key_bytes;
    ae_strings keys;   /* [n_tokens + extra symbols] */
    ae_strings pieces; /* [n_tokens] */
    uint8_t *types;    /* [n_tokens] */
    uint8_t *flags;    /* [n_tokens] */
    uint32_t *order;   /* [n_tokens] SPM, and BPE without merges: smaller merges first */
    float *scores;       /* [n_tokens] Unigram, PLaMo-2 */
    float unknown_score; /* Unigram */
    ae_trie trie;        /* Unigram, PLaMo-2, RWKV: the keys of all tokens that text may become */
    ae_charsmap charsmap; /* Unigram */
    ae_key_slot *slots;
    uint32_t slot_mask;
    ae_merge *merges;    /* NULL: pairs merge in the order of the scores of what they make (order) */
    uint32_t merge_mask;
    int32_t byte_token[256];  /* -1: none */
    int32_t byte_symbol[256]; /* BPE */
    ae_specials user;         /* found in any text */
    ae_specials special;      /* user-defined, control and unknown: found with parse_special */
    ae_pretok pretok;         /* BPE */
    char kind[64];
    char no_text[600]; /* why texts are refused (the vocabulary has ids only); "": they are not refused */
    char *chat_template, *tool_template; /* NULL: none */
};

static inline const char *ae_strings_get(const ae_strings *strings, int32_t i, uint32_t *n)
{
    *n = strings->begin[i + 1] - strings->begin[i];
    return strings->bytes + strings->begin[i];
}
/* Appends a string; returns false when out of memory or beyond 4 GiB. */
bool ae_strings_add(ae_strings *strings, const char *bytes, size_t n);
void ae_strings_free(ae_strings *strings);

/* vocab_hash.c */
uint32_t ae_keys_hash(uint64_t seed, const char *bytes, size_t n);
int32_t ae_keys_find(const ae_vocab *vocab, const char *bytes, size_t n); /* symbol, or -1 */
const ae_merge *ae_merges_find(const ae_vocab *vocab, int32_t left, int32_t right);
aerie_status ae_keys_build(ae_vocab *vocab, aerie_error *error);
/* Returns the symbol of a string, added if it is new; -1 when out of memory or room. */
int32_t ae_keys_intern(ae_vocab *vocab, const char *bytes, size_t n);
aerie_status ae_merges_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);

/* vocab.c */
aerie_status ae_vocab_load_tokens(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);
/* Returns false if a token, or a part of a merge, has a space after another character: then words cannot be merged one by
 * one. */
bool ae_vocab_splits_at_space(const ae_vocab *vocab);

/* unigram.c */
typedef struct ae_lattice_place {
    double score;
    int32_t id;     /* -1: a character without a token */
    uint32_t other; /* the place at the other end of the token */
} ae_lattice_place;

typedef struct ae_lattice {
    ae_lattice_place *places;
    size_t capacity;
} ae_lattice;

bool ae_lattice_reserve(ae_lattice *lattice, size_t n); /* room for n places; false when out of memory */
void ae_lattice_free(ae_lattice *lattice);
aerie_status ae_ugm_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);
aerie_status ae_plamo2_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);
aerie_status ae_rwkv_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);
aerie_status ae_vocab_build_trie(ae_vocab *vocab, aerie_error *error); /* once the tokens have their types */
void ae_rwkv_unescape(const char *text, size_t n, ae_buf *out);        /* appends the bytes that an RWKV token spells */
/* Appends the text as the model normalizes it, with U+2581 for spaces. prefix: one before the first word. */
aerie_status ae_ugm_normalize(const ae_vocab *vocab, const char *text, size_t n, bool prefix, ae_buf *out,
                              aerie_error *error);
/* Append the tokens of a word of normalized text; of a text without special tokens. n < 2^31. */
aerie_status ae_ugm_word(const ae_vocab *vocab, ae_lattice *lattice, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error);
aerie_status ae_plamo2_text(const ae_vocab *vocab, ae_lattice *lattice, const char *text, size_t n, ae_tokens *out,
                            aerie_error *error);
aerie_status ae_rwkv_text(const ae_vocab *vocab, const char *text, size_t n, ae_tokens *out, aerie_error *error);

/* special.c */
/* Warns of a marker of the chat template that text never becomes. Comes last, since it tokenizes. */
void ae_special_check_template(ae_vocab *vocab);
aerie_status ae_special_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error);
/* Returns the longest of the set's tokens at text[0..n), or -1. */
int32_t ae_special_match(const ae_vocab *vocab, const ae_specials *set, const char *text, size_t n);
void ae_special_free(ae_specials *set);

/* bytemap.c: the printable characters by which GPT-2 vocabularies spell bytes. */
int ae_bytemap_byte(uint32_t code); /* the byte, or -1 */
/* Decodes text into out[<= n]; returns false if a character does not spell a byte. */
bool ae_bytemap_decode(const char *text, size_t n, char *out, size_t *n_out);

/* merge.c */
typedef struct ae_symbol {
    uint32_t begin, n;  /* bytes of the word; n == 0: it was merged into the symbol before it */
    int32_t id;         /* symbol, -1: unknown character (SPM) */
    int32_t prev, next; /* -1: none */
} ae_symbol;

typedef struct ae_candidate {
    uint32_t order; /* smaller first, then left */
    uint32_t left, n_bytes;
    int32_t id;
} ae_candidate;

typedef struct ae_merger {
    ae_symbol *symbols;
    ae_candidate *heap;
    size_t n, capacity, n_heap, heap_capacity;
} ae_merger;

void ae_merger_free(ae_merger *merger);
/* Merges the pieces of one word and appends its tokens. */
aerie_status ae_bpe_word(const ae_vocab *vocab, ae_merger *merger, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error);
aerie_status ae_spm_word(const ae_vocab *vocab, ae_merger *merger, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error);
/* wordpiece.c: appends the tokens of a text without special tokens. */
aerie_status ae_wpm_text(const ae_vocab *vocab, const char *text, size_t n, ae_tokens *out, aerie_error *error);
/* Makes room for n symbols; returns false when out of memory. */
bool ae_merger_reserve(ae_merger *merger, size_t n);
/* Makes room for n symbols and for all candidates of a word of n symbols; returns false when out of memory. */
bool ae_merger_reserve_all(ae_merger *merger, size_t n);
/* Merges symbols[0..n); those that remain are linked by next, from symbols[0] on. Returns false when out of memory. */
bool ae_merger_run(const ae_vocab *vocab, ae_merger *merger, const char *word);

#endif
