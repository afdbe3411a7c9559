/* mkmodel_vocab.c - the vocabulary of a random model: byte-level BPE of any size.
 *
 * Ids: 0 to 2 control tokens, 3 to 258 the bytes in GPT-2's order, then as many of the merges below as fit, then
 * "<|pad_N|>" of type unused. Source of the byte spelling: GPT-2's encoder.py, bytes_to_unicode.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf_write.h"
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
#define N_CONTROL 3

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

static size_t merge_part(const char *part, char *out)
{
    size_t n = 0;
    for (; *part; part++) n += put_utf8(*part == '_' ? 0x120 : (uint32_t)(unsigned char)*part, out + n);
    return n;
}

static size_t token_text(uint32_t id, char *out)
{
    static const char *const control[N_CONTROL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    if (id < N_CONTROL) return (size_t)sprintf(out, "%s", control[id]);
    if (id < N_CONTROL + 256) return byte_token(id - N_CONTROL, out);
    const uint32_t i = id - N_CONTROL - 256;
    if (i >= N_MERGES) return (size_t)sprintf(out, "<|pad_%u|>", i - (uint32_t)N_MERGES);
    const size_t n = merge_part(merges[i][0], out);
    return n + merge_part(merges[i][1], out + n);
}

static aerie_status write_merges(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    char text[N_MERGES][24];
    ae_gguf_string list[N_MERGES];
    size_t n = 0;
    for (; n < N_MERGES && N_CONTROL + 256 + n < o->n_vocab; n++) {
        size_t length = merge_part(merges[n][0], text[n]);
        text[n][length++] = ' ';
        length += merge_part(merges[n][1], text[n] + length);
        list[n] = (ae_gguf_string){text[n], length};
    }
    return ae_gguf_writer_strings(w, "tokenizer.ggml.merges", list, n, error);
}

static aerie_status write_tokens(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    ae_gguf_string *list = ae_alloc(o->n_vocab, sizeof *list);
    char(*text)[24] = ae_alloc(o->n_vocab, sizeof *text);
    int32_t *types = ae_alloc(o->n_vocab, sizeof *types);
    aerie_status status = AERIE_ERROR_MEMORY;
    if (list && text && types) {
        for (uint32_t i = 0; i < o->n_vocab; i++) {
            list[i] = (ae_gguf_string){text[i], token_text(i, text[i])};
            types[i] = i < N_CONTROL ? 3 : i < N_CONTROL + 256 + N_MERGES ? 1 : 5; /* control, normal, unused */
        }
        status = ae_gguf_writer_strings(w, "tokenizer.ggml.tokens", list, o->n_vocab, error);
        if (status == AERIE_OK)
            status = ae_gguf_writer_array(w, "tokenizer.ggml.token_type", AE_GGUF_I32, types, o->n_vocab, error);
    } else {
        ae_fail_memory(error, "the vocabulary", o->n_vocab * sizeof *text);
    }
    ae_free(list);
    ae_free(text);
    ae_free(types);
    return status;
}

aerie_status mk_vocab(const mk_options *o, ae_gguf_writer *w, aerie_error *error)
{
    AE_TRY(ae_gguf_writer_string(w, "tokenizer.ggml.model", "gpt2", error));
    AE_TRY(ae_gguf_writer_string(w, "tokenizer.ggml.pre", o->pre ? o->pre : "smollm", error));
    AE_TRY(write_tokens(o, w, error));
    AE_TRY(write_merges(o, w, error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", MK_TOKEN_IM_START, error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", MK_TOKEN_IM_END, error));
    AE_TRY(ae_gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", MK_TOKEN_END, error));
    AE_TRY(ae_gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false, error));
    return ae_gguf_writer_string(w, "tokenizer.chat_template", chat_template, error);
}
