/* vocab_make.c - see vocab_make.h. */
#include "vocab_make.h"

#include <stdio.h>

#include "gguf_make.h"
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

static const char *const usual[] = {"h", "e", "l", "l", "he", "ll", "hell", "o", " ", "w", "o", "r", " w", "or",
                                    " wor", "l", " worl", "d", "\xc3", "\xa9", "\xe4", "\xb8", "\xe4\xb8", "\xad",
                                    " ", " ", "  ", "  ", "1", "2", "12", "3", "\n", "\n", " ", "h", " h", "e",
                                    "'", "s", "a", "b", "ab", "c", NULL};

/* A list of strings to be written to a file, with their types and scores. */
typedef struct list {
    ae_buf strings, types, scores;
    uint64_t n;
} list;

static void list_add(list *l, const char *text, size_t n, int32_t type, float score)
{
    gguf_make_u64(&l->strings, n);
    ae_buf_add(&l->strings, text, n);
    ae_buf_add(&l->types, &type, sizeof type);
    ae_buf_add(&l->scores, &score, sizeof score);
    l->n++;
}

static void list_free(list *l)
{
    ae_buf_free(&l->strings);
    ae_buf_free(&l->types);
    ae_buf_free(&l->scores);
}

/* Raw bytes in the spelling of byte-level vocabularies. */
static void spell(ae_buf *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t code = 0;
        while (ae_bytemap_byte(code) != (uint8_t)bytes[i]) code++;
        char utf8[4];
        ae_buf_add(out, utf8, ae_uni_encode(code, utf8));
    }
}

static void add_bytes(list *tokens)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        ae_buf text = {0};
        spell(&text, &c, 1);
        list_add(tokens, text.data, text.n, AE_TOKEN_NORMAL, 0);
        ae_buf_free(&text);
    }
}

static void add_merges(list *tokens, list *merges, const char *const *pairs)
{
    for (size_t i = 0; pairs[i] && pairs[i + 1]; i += 2) {
        ae_buf text = {0}, both = {0};
        spell(&text, pairs[i], strlen(pairs[i]));
        ae_buf_adds(&text, " ");
        spell(&text, pairs[i + 1], strlen(pairs[i + 1]));
        list_add(merges, text.data, text.n, 0, 0);
        spell(&both, pairs[i], strlen(pairs[i]));
        spell(&both, pairs[i + 1], strlen(pairs[i + 1]));
        list_add(tokens, both.data, both.n, AE_TOKEN_NORMAL, 0);
        ae_buf_free(&text);
        ae_buf_free(&both);
    }
}

static void add_texts(list *tokens, const vocab_make *how)
{
    for (size_t i = 0; how->texts && how->texts[i]; i++)
        list_add(tokens, how->texts[i], strlen(how->texts[i]), AE_TOKEN_NORMAL, -1000);
}

static void write_file(ae_buf *buf, const vocab_make *how, const char *model, const list *tokens, const list *merges,
                       uint32_t bos, uint32_t eos)
{
    uint64_t n_types = how->short_types ? tokens->n - 1 : tokens->n;
    const uint64_t n_lists = (how->n_ends && !how->eos_listed) + !how->no_tokens;
    uint64_t n_kv = 4u + n_lists + (how->pre != NULL) + (merges && !how->no_merges) + (!merges && !how->no_scores) +
                    (how->chat_template != NULL) + how->add_bos - how->no_types;
    gguf_make_header(buf, 3, 0, n_kv);
    gguf_make_kv_string(buf, "tokenizer.ggml.model", how->model ? how->model : model);
    if (how->pre) gguf_make_kv_string(buf, "tokenizer.ggml.pre", how->pre);
    if (!how->no_tokens) {
        gguf_make_kv_array(buf, "tokenizer.ggml.tokens", AE_GGUF_STRING, tokens->n, tokens->strings.data,
                           tokens->strings.n);
    }
    if (!how->no_types)
        gguf_make_kv_array(buf, "tokenizer.ggml.token_type", AE_GGUF_I32, n_types, tokens->types.data, n_types * 4);
    if (merges && !how->no_merges) {
        gguf_make_kv_array(buf, "tokenizer.ggml.merges", AE_GGUF_STRING, merges->n, merges->strings.data,
                           merges->strings.n);
    }
    if (!merges && !how->no_scores) {
        if (how->whole_scores) /* as integers, which have 4 bytes, too */
            for (uint64_t i = 0; i < tokens->n; i++) {
                float score;
                memcpy(&score, tokens->scores.data + 4 * i, 4);
                memcpy(tokens->scores.data + 4 * i, &(int32_t){(int32_t)score}, 4);
            }
        gguf_make_kv_array(buf, "tokenizer.ggml.scores", how->whole_scores ? AE_GGUF_I32 : AE_GGUF_F32, tokens->n,
                           tokens->scores.data, tokens->scores.n);
    }
    gguf_make_kv_u32(buf, "tokenizer.ggml.bos_token_id", how->no_bos ? UINT32_MAX : bos);
    if (how->eos_signed) gguf_make_kv(buf, "tokenizer.ggml.eos_token_id", AE_GGUF_I32, &how->eos_signed, 4);
    else if (how->eos_listed)
        gguf_make_kv_array(buf, "tokenizer.ggml.eos_token_id", AE_GGUF_I32, how->n_ends, how->ends, how->n_ends * 4);
    else gguf_make_kv_u32(buf, "tokenizer.ggml.eos_token_id", how->eos ? how->eos : eos);
    if (how->n_ends && !how->eos_listed)
        gguf_make_kv_array(buf, "tokenizer.ggml.eos_token_ids", AE_GGUF_I32, how->n_ends, how->ends, how->n_ends * 4);
    if (how->chat_template) gguf_make_kv_string(buf, "tokenizer.chat_template", how->chat_template);
    if (how->add_bos) gguf_make_kv(buf, "tokenizer.ggml.add_bos_token", AE_GGUF_BOOL, "\1", 1);
}

void vocab_make_bpe(ae_buf *buf, const vocab_make *how)
{
    list tokens = {0}, merges = {0};
    add_bytes(&tokens);
    add_merges(&tokens, &merges, how->merges ? how->merges : usual);
    if (how->bad_merge) list_add(&merges, "nospace", 7, 0, 0);
    uint32_t start = (uint32_t)tokens.n;
    list_add(&tokens, VOCAB_START, strlen(VOCAB_START), AE_TOKEN_CONTROL, 0);
    list_add(&tokens, VOCAB_END, strlen(VOCAB_END), AE_TOKEN_CONTROL, 0);
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, 0);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), how->bad_type ? 77 : AE_TOKEN_USER, 0);
    add_texts(&tokens, how);
    write_file(buf, how, "gpt2", &tokens, &merges, start, start + 1);
    list_free(&tokens);
    list_free(&merges);
}

void vocab_make_spm(ae_buf *buf, const vocab_make *how)
{
    static const char *const pieces[] = {"▁", "▁h", "he", "ll", "▁he", "▁hell", "▁hello", "lo", "o", "w", "▁w", "or",
                                         "▁wor", "ld", "▁world", "h", "e", "l", "r", "d", "é", "中", "▁▁", "▁▁▁▁", "s"};
    list tokens = {0};
    list_add(&tokens, "<unk>", 5, AE_TOKEN_UNKNOWN, 0);
    list_add(&tokens, "<s>", 3, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "</s>", 4, AE_TOKEN_CONTROL, 0);
    for (int byte = 0; byte < 256; byte++) {
        char text[16];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        list_add(&tokens, text, strlen(text), AE_TOKEN_BYTE, 0);
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        float score = how->bad_score && i == 3 ? 0.0f / (float)(tokens.n - tokens.n) : -(float)i;
        list_add(&tokens, pieces[i], strlen(pieces[i]), AE_TOKEN_NORMAL, score);
    }
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, 0);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), AE_TOKEN_USER, 0);
    add_texts(&tokens, how);
    write_file(buf, how, "llama", &tokens, NULL, 1, 2);
    list_free(&tokens);
}

/* Merges of characters as they are. "ne" is made on the way to "new" alone and is not a token; three newlines are a token that
 * no merge makes, four are one that merges make. The digit 7 and "z" have no token but those of their bytes. */
void vocab_make_gemma4(ae_buf *buf, const vocab_make *how)
{
    static const char *const letters[] = {"▁", "h", "e", "l", "o", "w", "r", "d", "n", "t", "f", "é", "中", "\n", "s", "a", "b"};
    static const char *const pairs[][2] = {{"l", "l"}, {"h", "e"}, {"▁", "he"}, {"▁he", "ll"}, {"▁hell", "o"}, {"o", "r"},
                                           {"▁", "w"}, {"▁w", "or"}, {"l", "d"}, {"▁wor", "ld"}, {"n", "e"}, {"ne", "w"},
                                           {"▁", "▁"}, {"▁▁", "▁▁"}, {"\n", "\n"}, {"\n\n", "\n\n"}, {"é", "中"}, {"he", "ll"},
                                           {"hell", "o"}, {"o", "f"}, {"t", "he"}, {"of", "▁"}, {"of▁", "the"}};
    const size_t n_pairs = sizeof pairs / sizeof pairs[0], n_crossing = 2;
    const bool crossing = how->pre && strcmp(how->pre, "crossing") == 0;
    vocab_make plain = *how;
    list tokens = {0}, merges = {0};
    if (crossing) plain.pre = NULL;
    list_add(&tokens, "<pad>", 5, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<eos>", 5, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<bos>", 5, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<unk>", 5, AE_TOKEN_UNKNOWN, 0);
    for (int byte = 0; byte < 256; byte++) {
        char text[16];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        list_add(&tokens, text, strlen(text), AE_TOKEN_BYTE, 0);
    }
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        list_add(&tokens, letters[i], strlen(letters[i]), AE_TOKEN_NORMAL, 0);
    list_add(&tokens, "\n\n\n", 3, AE_TOKEN_NORMAL, 0);
    for (size_t i = 0; i < (crossing ? n_pairs : n_pairs - n_crossing); i++) {
        char text[64];
        int n = snprintf(text, sizeof text, "%s %s", pairs[i][0], pairs[i][1]);
        list_add(&merges, text, (size_t)n, 0, 0);
        n = snprintf(text, sizeof text, "%s%s", pairs[i][0], pairs[i][1]);
        if (strcmp(text, "ne") != 0) list_add(&tokens, text, (size_t)n, AE_TOKEN_NORMAL, 0);
    }
    if (how->bad_merge) list_add(&merges, "nospace", 7, 0, 0);
    list_add(&tokens, "<turn|>", 7, AE_TOKEN_NORMAL, 0); /* known by its text */
    list_add(&tokens, "<mask>", 6, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, 0);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), AE_TOKEN_USER, 0);
    write_file(buf, &plain, "gemma4", &tokens, &merges, 2, 1);
    list_free(&tokens);
    list_free(&merges);
}

void vocab_make_wpm(ae_buf *buf, const vocab_make *how)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    static const char *const pieces[] = {"▁hell", "o",  "▁hello", "▁w", "or", "▁world", "ld",   "▁!",  "▁'",
                                         "s",     "▁s", "▁中",    "▁e", "e",  "▁[",     "▁]",   "▁é",  "▁cafe",
                                         "▁1",    "1",  "▁12",    "a",  "▁a", "aa",     "aaaa", "▁cls"};
    const bool cased = how->pre && strcmp(how->pre, "cased") == 0;
    vocab_make plain = *how;
    list tokens = {0};
    plain.pre = NULL;
    plain.no_scores = true;
    for (size_t i = 0; i < 4; i++) list_add(&tokens, special[i], strlen(special[i]), AE_TOKEN_CONTROL, 0);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        list_add(&tokens, pieces[i], strlen(pieces[i]), AE_TOKEN_NORMAL, 0);
    if (cased) list_add(&tokens, "▁Hello", strlen("▁Hello"), AE_TOKEN_NORMAL, 0);
    write_file(buf, &plain, "bert", &tokens, NULL, 2, 3);
    list_free(&tokens);
}

static void add_byte_tokens(list *tokens, int n)
{
    for (int byte = 0; byte < n; byte++) {
        char text[16];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        list_add(tokens, text, strlen(text), AE_TOKEN_BYTE, 0);
    }
}

void vocab_make_unigram(ae_buf *buf, const vocab_make *how)
{
    static const struct {
        const char *text;
        float score;
    } pieces[] = {{"▁", -2},  {"▁hello", -5}, {"▁hell", -6},  {"▁he", -4}, {"ll", -3}, {"llo", -3.5f},
                  {"o", -2.5f}, {"h", -7},      {"e", -7},      {"l", -8},   {"▁world", -6}, {"w", -9},
                  {"or", -4},   {"ld", -4},     {"é", -9},      {"a", -1},   {"aa", -1.5f},  {"aaa", -2},
                  {"ab", -9},   {"ba", -3},     {"▁▁", -3},   {"中文", -7}, {"s", -5}};
    const bool bytes = how->pre && strcmp(how->pre, "bytes") == 0;
    vocab_make plain = *how;
    list tokens = {0};
    if (bytes) plain.pre = NULL;
    list_add(&tokens, "<pad>", 5, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "</s>", 4, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<unk>", 5, AE_TOKEN_UNKNOWN, 0);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const float score = how->bad_score && i == 3 ? 1.0f / (float)(tokens.n - tokens.n) : pieces[i].score;
        list_add(&tokens, pieces[i].text, strlen(pieces[i].text), AE_TOKEN_NORMAL, score);
    }
    list_add(&tokens, "[PAD7]", 6, AE_TOKEN_UNUSED, -1);
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, -50);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), AE_TOKEN_USER, -50);
    if (bytes) add_byte_tokens(&tokens, 256);
    write_file(buf, &plain, "t5", &tokens, NULL, UINT32_MAX, 1);
    list_free(&tokens);
}

void vocab_make_rwkv(ae_buf *buf, const vocab_make *how)
{
    static const char *const strings[] = {"he", "hello", "hello wo", " world", "\\n\\n", "\\xe4\\xb8", "\\xad\\xe6", "it\\'s",
                                          "\\\\x", "\\t\\r", "    ", "aaaa", "aaaaaaaa", "ab"};
    list tokens = {0};
    list_add(&tokens, "<s>", 3, AE_TOKEN_CONTROL, 0);
    for (int byte = 0; byte < 256; byte++) {
        char text[16];
        int n = byte == '\\' ? snprintf(text, sizeof text, "\\\\") : snprintf(text, sizeof text, "%c", byte);
        if (byte < 32 || byte > 126) n = snprintf(text, sizeof text, "\\x%02x", (unsigned)byte);
        list_add(&tokens, text, (size_t)n, AE_TOKEN_NORMAL, 0);
    }
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        list_add(&tokens, strings[i], strlen(strings[i]), AE_TOKEN_NORMAL, 0);
    list_add(&tokens, "[PAD7]", 6, AE_TOKEN_UNUSED, 0);
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, 0);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), AE_TOKEN_USER, 0);
    write_file(buf, how, "rwkv", &tokens, NULL, 0, 0);
    list_free(&tokens);
}

void vocab_make_plamo2(ae_buf *buf, const vocab_make *how)
{
    static const struct {
        const char *text;
        float score;
    } strings[] = {{"h", -6}, {"e", -6}, {"l", -6}, {"o", -6}, {" ", -4}, {"he", -5}, {"llo", -5}, {"hello", -9}, {"ello", -8},
                   {" hello", -9}, {"a", -2}, {"aa", -4}, {"aaaa", -8}, {"b", -3}, {"ab", -2000}, {"ba", -4.00005f}, {"中", -7},
                   {"中文", -8}, {"\n", -3}, {"\n\n", -4}};
    list tokens = {0};
    list_add(&tokens, "<|plamo:unk|>", 13, AE_TOKEN_UNKNOWN, 0);
    list_add(&tokens, "<|plamo:bos|>", 13, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<|plamo:eos|>", 13, AE_TOKEN_CONTROL, 0);
    list_add(&tokens, "<|plamo:pad|>", 13, AE_TOKEN_CONTROL, 0);
    add_byte_tokens(&tokens, how->no_merges ? 255 : 256);
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        list_add(&tokens, strings[i].text, strlen(strings[i].text), AE_TOKEN_NORMAL, strings[i].score);
    list_add(&tokens, VOCAB_TOOL, strlen(VOCAB_TOOL), AE_TOKEN_USER, -20);
    list_add(&tokens, VOCAB_TOOLS, strlen(VOCAB_TOOLS), AE_TOKEN_USER, -20);
    write_file(buf, how, "plamo2", &tokens, NULL, 1, 2);
    list_free(&tokens);
}

aerie_status vocab_make_load(ae_vocab **out, const ae_buf *file, aerie_error *error)
{
    ae_gguf *gguf;
    *out = NULL;
    AE_TRY(ae_gguf_open_memory(&gguf, file->data, file->n, "made.gguf", error));
    aerie_status status = ae_vocab_create(out, gguf, error);
    ae_gguf_close(gguf);
    return status;
}
