/* vocab.h - a vocabulary that is being converted. Private to src/convert. */
#ifndef AE_CONVERT_MODEL_VOCAB_H
#define AE_CONVERT_MODEL_VOCAB_H

#include "convert/checkpoint/checkpoint.h"

typedef struct ae_convert_words {
    ae_gguf_string *list; /* [n] data is NULL for an id without a token */
    int32_t *types;       /* [n] aerie_token_type */
    float *scores;        /* [n] */
    ae_arena arena;       /* holds the texts */
    uint32_t n;
} ae_convert_words;

/* The JSON files beside the tensors; NULL: the file does not exist. */
typedef struct ae_convert_folder {
    json_t *tokenizer, *config, *generation; /* tokenizer.json, tokenizer_config.json, generation_config.json */
    json_t *special, *added;                 /* special_tokens_map.json, added_tokens.json */
} ae_convert_folder;

aerie_status ae_convert_words_init(const ae_convert *c, ae_convert_words *w, uint32_t n);
void ae_convert_words_free(ae_convert_words *w);
/* Sets the token of an id, replacing an earlier one. */
aerie_status ae_convert_words_put(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, json_int_t id,
                                  int32_t type);
/* Adds fillers for ids without a token. */
aerie_status ae_convert_words_fill(const ae_convert *c, ae_convert_words *w);

/* Contents of a SentencePiece model apart from its pieces. */
typedef struct ae_convert_spm {
    bool there;            /* the folder has one */
    bool unigram;          /* false: BPE */
    bool space, collapses; /* space: adds a space before a text; collapses: drops repeated spaces, and those at both ends */
    ae_buf charsmap;       /* the compiled map of characters; empty if there is none */
    uint32_t n;            /* pieces */
} ae_convert_spm;

/* spm.c: reads pieces, types and scores of tokenizer.model or spiece.model. The caller frees s->charsmap. */
aerie_status ae_convert_read_spm(const ae_convert *c, ae_convert_words *w, ae_convert_spm *s);

/* unigram.c: writes tokenizer.* of a Unigram vocabulary, from tokenizer.json or, if it is not NULL, from `s`, whose pieces are
 * in w already. Does not write special tokens and templates. */
aerie_status ae_convert_put_unigram(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                                    ae_convert_spm *s);
bool ae_convert_is_unigram(const json_t *tokenizer);
/* Appends the bytes that a base64 text encodes. Returns false if it is not base64. */
bool ae_convert_base64(const char *text, size_t n, ae_buf *out);

/* wordlists.c: returns whether the folder has a list of bytes and ranks in the file that its architecture has. */
aerie_status ae_convert_has_tiktoken(const ae_convert *c, bool *has);
/* Writes tokenizer.* of such a list, without special tokens and templates; and of RWKV's list, without
 * templates. */
aerie_status ae_convert_put_plamo(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w); /* of tokenizer.jsonl */
aerie_status ae_convert_put_rwkv(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w);
aerie_status ae_convert_put_tiktoken(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w,
                                     const ae_convert_folder *f);

/* vocab.c: reads the JSON files of a tokenizer; a missing one stays NULL. */
aerie_status ae_convert_read_folder(const ae_convert *c, ae_convert_folder *f);
void ae_convert_folder_free(ae_convert_folder *f);
bool ae_convert_is_byte_level(const json_t *tokenizer);
/* Writes a byte-level BPE without special tokens and templates. usual: name of GPT-2's rules for this model; NULL: "gpt-2". */
aerie_status ae_convert_put_bpe(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                                const char *usual);
/* Adds the tokens that tokenizer.json lists as added_tokens. */
aerie_status ae_convert_put_json_added(const ae_convert *c, ae_convert_words *w, const json_t *tokenizer);
/* Returns whether tokenizer.json puts a space before a text. */
bool ae_convert_adds_space(const json_t *tokenizer);
/* Fills gaps, then writes tokenizer.ggml.model, tokens, token_type and, if wanted, scores. */
aerie_status ae_convert_put_words(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const char *model,
                                  bool scores);
/* Returns the "type" of a part of tokenizer.json; "" without one. */
const char *ae_convert_type_of(const json_t *json);
/* Returns the step with this type: `json` itself, or a step of it if it is a sequence. NULL: there is none. */
const json_t *ae_convert_find_step(const json_t *json, const char *list, const char *type);

/* specials.c: returns whether an added token has no row in the embedding (reported); adds the tokens that tokenizer.json and
 * tokenizer.model lack; writes the keys of special tokens, and of tokens that end a generation. */
bool ae_convert_beyond(const ae_convert *c, const ae_convert_words *w, const char *text, json_int_t id);
/* Warns if the id, which is in range, already belongs to another added token. */
void ae_convert_note_twice(const ae_convert *c, const ae_convert_words *w, const char *text, size_t n, uint32_t id);
aerie_status ae_convert_put_added(const ae_convert *c, ae_convert_words *w, const ae_convert_folder *f);
aerie_status ae_convert_put_special(const ae_convert *c, ae_gguf_writer *out, const ae_convert_words *w,
                                    const ae_convert_folder *f);

/* templates.c: writes chat templates, from their files and from tokenizer_config.json. */
aerie_status ae_convert_put_templates(const ae_convert *c, ae_gguf_writer *out, const json_t *config);

/* wordpiece.c: writes tokenizer.* of an encoder's folder, for n_vocab tokens and n_types token types. bpe: name of the rules of
 * a byte-level BPE; NULL: the model has none. */
aerie_status ae_convert_put_pieces(const ae_convert *c, uint32_t n_vocab, uint32_t n_types, const char *bpe,
                                   ae_gguf_writer *out);

#endif
