/* vocab_make.h - small vocabularies made in memory, for tests and fuzzing.
 *
 * BPE: ids 0..255 are the bytes, then one token per merge, then VOCAB_START, VOCAB_END (control),
 * VOCAB_TOOL (user-defined), in this order. SPM: unknown, BOS, EOS, 256 byte tokens, pieces.
 */
#ifndef AE_TEST_VOCAB_MAKE_H
#define AE_TEST_VOCAB_MAKE_H

#include "text/token/vocab.h"

#define VOCAB_START "<|im_start|>"
#define VOCAB_END "<|im_end|>"
#define VOCAB_TOOL "<tool"
#define VOCAB_TOOLS "<tool>" /* user-defined too, and longer */

typedef struct vocab_make {
    const char *pre;           /* NULL: no such key */
    const char *const *merges; /* pairs of raw strings, left then right; NULL-terminated; NULL: the usual ones */
    bool no_tokens, no_merges, short_types, bad_merge, bad_type, bad_score, no_scores;
    bool no_types;             /* no such key */
    bool whole_scores;         /* as integers, as writers in other languages make them */
    uint32_t eos;              /* 0: the right one */
    int32_t eos_signed;        /* eos_token_id as an i32; 0: as a u32 */
    bool eos_listed;           /* eos_token_id is the list `ends` */
    const int32_t *ends;       /* [n_ends] eos_token_ids */
    size_t n_ends;
    const char *model;         /* NULL: gpt2 or llama */
    const char *chat_template; /* NULL: no such key */
    bool add_bos;              /* the key says so; otherwise there is none */
    bool no_bos;               /* the file says that there is no BOS */
    const char *const *texts;  /* BPE, SPM: more tokens, typed as text; NULL-terminated; NULL: none */
} vocab_make;

/* The bytes of a GGUF file. */
void vocab_make_bpe(ae_buf *buf, const vocab_make *how);
void vocab_make_spm(ae_buf *buf, const vocab_make *how);
/* Gemma 4: <pad> <eos> <bos> <unk>, 256 byte tokens, characters, then one token per merge, <turn|>, <mask>; see
 * vocab_make.c. `pre` "crossing": a token has a space inside, and the file has no such key. With model gpt2 it names kin. */
void vocab_make_gemma4(ae_buf *buf, const vocab_make *how);
/* [PAD] [UNK] [CLS] [SEP], then pieces; with `pre` "cased" some have capitals. */
void vocab_make_wpm(ae_buf *buf, const vocab_make *how);

/* <pad> </s> <unk>, then pieces; `pre` "bytes": and 256 byte tokens. */
void vocab_make_unigram(ae_buf *buf, const vocab_make *how);
/* <s>, 256 bytes, then strings, some of which end inside a character. */
void vocab_make_rwkv(ae_buf *buf, const vocab_make *how);
/* Four control tokens, 256 byte tokens (`no_merges`: one less), then strings. */
void vocab_make_plamo2(ae_buf *buf, const vocab_make *how);

/* The vocabulary of such a file; the status of reading it. */
aerie_status vocab_make_load(ae_vocab **out, const ae_buf *file, aerie_error *error);

#endif
