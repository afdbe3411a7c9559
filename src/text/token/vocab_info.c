/* vocab_info.c - queries about a vocabulary other than encoding and decoding. */
#include "text/token/vocab_int.h"

int ae_vocab_type(const ae_vocab *vocab, int32_t token)
{
    return vocab->types[token];
}

bool ae_vocab_adds_eos(const ae_vocab *vocab)
{
    return vocab->add_eos;
}

/* Returns the first control token of one of these spellings, or -1. */
static int32_t find_control(const ae_vocab *vocab, const char *const *spellings, size_t n)
{
    for (int32_t i = 0; i < vocab->n_tokens; i++) {
        if (vocab->types[i] != AE_TOKEN_CONTROL) continue;
        uint32_t n_piece;
        const char *piece = ae_strings_get(&vocab->pieces, i, &n_piece);
        for (size_t k = 0; k < n; k++)
            if (strlen(spellings[k]) == n_piece && !memcmp(piece, spellings[k], n_piece)) return i;
    }
    return -1;
}

int32_t ae_vocab_special(const ae_vocab *vocab, const ae_gguf *gguf, aerie_special which)
{
    enum { MOST = 8 };
    static const struct {
        const char *key, *older, *spellings[MOST]; /* older: the key of files from before the present one; NULL: none */
    } others[] = {
        [AERIE_SPECIAL_SEP] = {"tokenizer.ggml.seperator_token_id", NULL, {"[SEP]"}}, /* misspelled in files */
        [AERIE_SPECIAL_FIM_PRE] = {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id",
                                   {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                                    "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}},
        [AERIE_SPECIAL_FIM_SUF] = {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id",
                                   {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                                    "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}},
        [AERIE_SPECIAL_FIM_MID] = {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id",
                                   {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                                    "▁<MID>", "<|code_middle|>", "<|middle|>"}},
        [AERIE_SPECIAL_FIM_PAD] = {"tokenizer.ggml.fim_pad_token_id", NULL,
                                   {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
        [AERIE_SPECIAL_FIM_REP] = {"tokenizer.ggml.fim_rep_token_id", NULL,
                                   {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
        [AERIE_SPECIAL_FIM_SEP] = {"tokenizer.ggml.fim_sep_token_id", NULL, {"<|file_sep|>"}},
    };
    switch (which) {
    case AERIE_SPECIAL_BOS: return vocab->bos;
    case AERIE_SPECIAL_EOS: return vocab->eos;
    case AERIE_SPECIAL_EOT: return vocab->eot;
    case AERIE_SPECIAL_EOM: return vocab->eom;
    case AERIE_SPECIAL_UNK: return vocab->unknown;
    case AERIE_SPECIAL_PAD: return vocab->padding;
    default: break;
    }
    if ((size_t)which >= sizeof others / sizeof others[0] || !others[which].key) return -1;
    const char *const keys[] = {others[which].key, others[which].older};
    for (int i = 0; i < 2 && keys[i]; i++) {
        uint32_t id = UINT32_MAX;
        if (ae_gguf_get_u32(gguf, keys[i], false, &id, NULL) == AERIE_OK && id < (uint32_t)vocab->n_tokens) return (int32_t)id;
    }
    size_t n = 0;
    while (n < MOST && others[which].spellings[n]) n++;
    return find_control(vocab, others[which].spellings, n);
}
