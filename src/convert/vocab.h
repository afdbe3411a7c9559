/* vocab.h - a vocabulary on its way into a file. Inside src/convert. */
#ifndef AE_CONVERT_VOCAB_H
#define AE_CONVERT_VOCAB_H

#include "convert/convert_int.h"

typedef struct ae_convert_words {
    ae_gguf_string *list; /* [n] data NULL: no token has this id */
    int32_t *types;       /* [n] aerie_token_type */
    float *scores;        /* [n] */
    ae_arena arena;       /* of the texts */
    uint32_t n;
} ae_convert_words;

aerie_status ae_convert_words_init(const ae_convert *c, ae_convert_words *w, uint32_t n);
void ae_convert_words_free(ae_convert_words *w);
/* A second token of an id replaces the first. */
aerie_status ae_convert_words_put(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, json_int_t id,
                                  int32_t type);
/* Ids that nobody has become fillers. */
aerie_status ae_convert_words_fill(const ae_convert *c, ae_convert_words *w);

/* spm.c: pieces, types and scores of tokenizer.model. *there: the folder has one; *space: a text gets a space before it. */
aerie_status ae_convert_read_spm(const ae_convert *c, ae_convert_words *w, bool *there, bool *space);

/* pieces.c: tokenizer.* of an encoder's folder, for n_vocab tokens and n_types kinds of text. */
aerie_status ae_convert_put_pieces(const ae_convert *c, uint32_t n_vocab, uint32_t n_types, ae_gguf_writer *out);

#endif
