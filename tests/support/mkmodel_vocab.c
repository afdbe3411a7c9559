/* mkmodel_vocab.c - the vocabulary of a random model: byte-level BPE of any size, or SPM.
 *
 * Ids in the usual order: 0 to 2 control tokens, 3 to 258 the bytes (in GPT-2's order, or SPM's byte tokens), then as many of
 * the merges below as fit (SPM: single letters before them), then "<|pad_N|>" of type unused. Source of the byte spelling:
 * GPT-2's encoder.py, bytes_to_unicode.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"

/* Left and right part of each merge; "_" stands for the byte-level spelling of a space. */
static const char *const merges[][2] = {
    {"_", "t"}, {"_", "a"}, {"h", "e"}, {"i", "n"}, {"r", "e"}, {"o", "n"}, {"_t", "he"}, {"e", "r"}, {"_", "s"},
    {"a", "t"}, {"_", "w"}, {"_", "o"}, {"e", "n"}, {"_", "c"}, {"i", "t"}, {"i", "s"}, {"a", "n"}, {"o", "r"},
    {"e", "s"}, {"_", "b"}, {"e", "d"}, {"_", "f"}, {"in", "g"}, {"_", "p"}, {"o", "u"}, {"_a", "n"}, {"a", "l"},
    {"a", "r"}, {"_t", "o"}, {"_", "m"}, {"_o", "f"}, {"_", "in"}, {"_", "d"}, {"_", "h"}, {"_an", "d"}, {"i", "c"},
    {"a", "s"}, {"l", "e"}, {"_t", "h"}, {"i", "on"}, {"o", "m"}, {"l", "l"}, {"en", "t"}, {"_", "n"}, {"_", "l"},
    {"s", "t"}, {"_", "re"}, {"v", "e"}, {"_", "e"}, {"r", "o"}, {"l", "y"}, {"_b", "e"}, {"_", "g"}, {"c", "t"},
    {"i", "d"}, {"o", "t"}, {"_", "I"}, {"e", "t"}, {"_i", "s"}, {"_", "T"},
};
#define N_MERGES (sizeof merges / sizeof merges[0])

/* Some of the same tokens, some by other ways, and some that the others lack. */
static const char *const other_merges[][2] = {
    {"t", "h"}, {"th", "e"}, {"_", "the"}, {"e", "r"}, {"i", "n"}, {"in", "g"}, {"a", "n"}, {"an", "d"}, {"_", "and"},
    {"o", "u"}, {"ou", "r"}, {"_", "s"}, {"s", "t"}, {"_", "a"}, {"r", "e"}, {"_", "to"}, {"t", "o"}, {"_", "t"},
    {"h", "a"}, {"ha", "t"}, {"t", "hat"}, {"a", "l"}, {"al", "l"}, {"_", "w"}, {"_w", "as"}, {"a", "s"}, {"l", "d"},
    {"ou", "ld"}, {"e", "a"}, {"_", "I"}, {"u", "n"}, {"n", "e"}, {"ne", "s"}, {"nes", "s"}, {"_", "_"}, {"__", "__"},
};
#define N_OTHER (sizeof other_merges / sizeof other_merges[0])
#define N_CONTROL 3

typedef enum vocab_kind { BPE, BPE_OTHER, SPM, FOREIGN, BPE_TAGS } vocab_kind;
static const char *const kinds[] = {"bpe", "bpe-other", "spm", "foreign", "bpe-tags"};
#define N_KINDS (sizeof kinds / sizeof kinds[0])
static const char *const controls[N_KINDS][N_CONTROL] = {
    {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, {"<unk>", "<bos>", "<|eot_id|>"}, {"<unk>", "<s>", "</s>"},
    {"<a>", "<b>", "<c>"}, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
};
/* What BPE_TAGS has in place of the first padding: a user-defined token, then control tokens. */
static const char *const tags[] = {"<tool_call>", "[TOOL_CALLS]", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                   "</think>"};
#define N_TAGS (sizeof tags / sizeof tags[0])
/* What SPM has a letter for; others are spelled by byte tokens. "_" is U+2581. */
static const char letters[] = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'\"-()\n";
#define N_LETTERS (sizeof letters - 1)

static const char chat_template[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static size_t put_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

/* GPT-2 spells printable bytes as themselves, in front; the others as U+0100 and on. i-th in its order. */
static size_t byte_token(uint32_t i, char *out)
{
    if (i < 94) return put_utf8('!' + i, out);
    if (i < 94 + 12) return put_utf8(0xa1 + i - 94, out);
    if (i < 94 + 12 + 82) return put_utf8(0xae + i - 106, out);
    return put_utf8(0x100 + i - 188, out);
}

static vocab_kind kind_of(const mk_options *o)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (o->vocab && !strcmp(o->vocab, kinds[i])) return (vocab_kind)i;
    return BPE;
}

bool mk_vocab_known(const char *vocab)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (!vocab || !strcmp(vocab, kinds[i])) return true;
    return false;
}

void mk_vocab_order(const mk_options *o, uint32_t *order)
{
    uint64_t state = o->vocab_order;
    for (uint32_t i = 0; i < o->n_vocab; i++) {
        order[i] = i;
        if (!o->vocab_order) continue;
        const uint32_t k = (uint32_t)(mk_random(&state) % (i + 1));
        order[i] = order[k];
        order[k] = i;
    }
}

static size_t n_merges(vocab_kind kind)
{
    return kind == BPE_OTHER ? N_OTHER : N_MERGES;
}

static const char *const *merge_of(vocab_kind kind, size_t i)
{
    return kind == BPE_OTHER ? other_merges[i] : merges[i];
}

static size_t merge_part(vocab_kind kind, const char *part, char *out)
{
    size_t n = 0;
    for (; *part; part++) {
        if (kind == SPM && *part == '_') n += (size_t)sprintf(out + n, "\xe2\x96\x81");
        else n += put_utf8(*part == '_' ? 0x120 : (uint32_t)(unsigned char)*part, out + n);
    }
    return n;
}

/* A token of the usual order: its text, length returned, and its type. */
static size_t token_text(vocab_kind kind, uint32_t i, char *out, int32_t *type)
{
    *type = 3;
    if (i < N_CONTROL) return (size_t)sprintf(out, "%s", controls[kind][i]);
    i -= N_CONTROL;
    *type = kind == SPM ? 6 : kind == FOREIGN && i < 94 ? 5 : 1;
    if (i < 256) return kind == SPM ? (size_t)sprintf(out, "<0x%02X>", i) : byte_token(i, out);
    i -= 256;
    *type = 1;
    const char letter[2] = {kind == SPM && i < N_LETTERS ? letters[i] : '\0', '\0'};
    if (*letter) return merge_part(kind, letter, out);
    if (kind == SPM) i -= (uint32_t)N_LETTERS;
    *type = i < n_merges(kind) && kind != FOREIGN ? 1 : 5;
    if (kind == BPE_TAGS && i >= n_merges(kind) && i - n_merges(kind) < N_TAGS) {
        i -= (uint32_t)n_merges(kind);
        *type = i ? 3 : 4;
        return (size_t)sprintf(out, "%s", tags[i]);
    }
    if (i >= n_merges(kind)) return (size_t)sprintf(out, "<|pad_%u|>", i - (uint32_t)n_merges(kind));
    const size_t n = merge_part(kind, merge_of(kind, i)[0], out);
    return n + merge_part(kind, merge_of(kind, i)[1], out + n);
}

static aerie_status write_merges(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    const vocab_kind kind = kind_of(o);
    char text[N_MERGES][24];
    ae_gguf_string list[N_MERGES];
    size_t n = 0;
    for (; n < n_merges(kind) && N_CONTROL + 256 + n < o->n_vocab; n++) {
        size_t length = merge_part(kind, merge_of(kind, n)[0], text[n]);
        text[n][length++] = ' ';
        length += merge_part(kind, merge_of(kind, n)[1], text[n] + length);
        list[n] = (ae_gguf_string){text[n], length};
    }
    return ae_gguf_writer_strings(w, "tokenizer.ggml.merges", list, n, error);
}

typedef struct tokens {
    ae_gguf_string *list; /* [n_vocab] of text */
    char (*text)[24];
    int32_t *types;
    float *scores; /* SPM: the earlier a token, the sooner it is merged */
    uint32_t *order, ids[N_CONTROL]; /* where the control tokens stand */
} tokens;

static aerie_status write_tokens(const mk_options *o, tokens *t, ae_gguf_writer *w, aerie_error *error)
{
    const vocab_kind kind = kind_of(o);
    mk_vocab_order(o, t->order);
    for (uint32_t i = 0; i < o->n_vocab; i++) {
        t->list[i] = (ae_gguf_string){t->text[i], token_text(kind, t->order[i], t->text[i], &t->types[i])};
        t->scores[i] = -(float)t->order[i];
        if (t->order[i] < N_CONTROL) t->ids[t->order[i]] = i;
    }
    AE_TRY(ae_gguf_writer_strings(w, "tokenizer.ggml.tokens", t->list, o->n_vocab, error));
    AE_TRY(ae_gguf_writer_array(w, "tokenizer.ggml.token_type", AE_GGUF_I32, t->types, o->n_vocab, error));
    if (kind == SPM) AE_TRY(ae_gguf_writer_array(w, "tokenizer.ggml.scores", AE_GGUF_F32, t->scores, o->n_vocab, error));
    else AE_TRY(write_merges(o, w, error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", t->ids[MK_TOKEN_IM_START], error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", t->ids[MK_TOKEN_IM_END], error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", t->ids[MK_TOKEN_END], error));
    return ae_gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", kind == SPM, error);
}

aerie_status mk_vocab(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    const vocab_kind kind = kind_of(o);
    tokens t = {.list = ae_alloc(o->n_vocab, sizeof *t.list), .text = ae_alloc(o->n_vocab, sizeof *t.text),
                .types = ae_alloc(o->n_vocab, sizeof *t.types), .scores = ae_alloc(o->n_vocab, sizeof *t.scores),
                .order = ae_alloc(o->n_vocab, sizeof *t.order)};
    aerie_status status = AERIE_OK;
    if (!t.list || !t.text || !t.types || !t.scores || !t.order)
        status = ae_fail_memory(error, "the vocabulary", o->n_vocab * sizeof *t.text);
    if (status == AERIE_OK) status = ae_gguf_writer_string(w, "tokenizer.ggml.model", kind == SPM ? "llama" : "gpt2", error);
    if (status == AERIE_OK && kind != SPM)
        status = ae_gguf_writer_string(w, "tokenizer.ggml.pre", o->pre ? o->pre : "smollm", error);
    if (status == AERIE_OK) status = write_tokens(o, &t, w, error);
    if (status == AERIE_OK) status = ae_gguf_writer_string(w, "tokenizer.chat_template", chat_template, error);
    ae_free(t.list);
    ae_free(t.text);
    ae_free(t.types);
    ae_free(t.scores);
    ae_free(t.order);
    return status;
}
