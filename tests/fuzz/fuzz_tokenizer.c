/* fuzz_tokenizer.c - any tokenizer a model file may carry: refused with a sentence, or it encodes and decodes any text.
 *
 * Input, read by `reader`: a byte of switches and one for the pre-tokenizer; five special ids; then tokens, each a length,
 * a type and bytes; after a token of length 255 the merges (or, with SPM, what is after the scores), each a length and bytes;
 * after another 255 the text. So mutations keep the shape of a file and reach what fuzz_gguf cannot. Looks for crashes,
 * hangs, leaks, ids out of range and failures without a sentence; the file may well not spell the text. Half of the inputs then
 * make it the drafter of a usual vocabulary, and the other way round: pairs one to one, and sequences that do not depend on how
 * they grew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_make.h"
#include "text/token/vocab_map.h"
#include "vocab_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BPE_SPELLING = 1, ADD_BOS = 2, ADD_EOS = 4, NO_PREFIX = 8, PHI3 = 16, END_OF_LIST = 255, TEXT_MAX = 512 };
static const char *const models[] = {"gpt2", "llama", "bert", "gemma4", "t5", "none", "rwkv", "plamo2", "whitespace"};
enum { N_MODELS = sizeof models / sizeof models[0] };
static const char *const pres[] = {"default", "gpt-2", "llama-bpe", "qwen2", "deepseek-v3", "gpt-4o", "tekken", "smollm",
                                   "bloom", "", "mmbert", "sarvam-moe", "tiny_aya", "jais-2", "kimi-k2", "superbpe"};
enum { N_PRES = sizeof pres / sizeof pres[0] };

typedef struct reader {
    const uint8_t *data;
    size_t n;
} reader;

static unsigned take(reader *r)
{
    if (!r->n) return END_OF_LIST;
    r->n--;
    return *r->data++;
}

static const char *take_bytes(reader *r, size_t *n)
{
    const char *bytes = (const char *)r->data;
    if (*n > r->n) *n = r->n;
    r->data += *n;
    r->n -= *n;
    return bytes;
}

static void put_string(ae_buf *list, const char *bytes, size_t n)
{
    gguf_make_u64(list, n);
    ae_buf_add(list, bytes, n);
}

typedef struct lists {
    ae_buf tokens, types, scores, merges;
    uint64_t n_tokens, n_merges;
} lists;

/* The alphabet of a byte-level vocabulary, or SPM's byte tokens, so that texts mostly have tokens. */
static void add_alphabet(lists *l, bool bpe)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[16];
        size_t n = (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
        if (bpe) {
            const unsigned code = byte > 32 && byte < 127 ? byte : 256 + byte; /* nearly GPT-2's spelling: some spell no byte */
            n = 1;
            text[0] = (char)code;
            if (code > 127) text[0] = (char)(0xc0 | code >> 6), text[1] = (char)(0x80 | (code & 63)), n = 2;
        }
        const int32_t type = bpe ? 1 : 6;
        const float score = 0;
        put_string(&l->tokens, text, n);
        ae_buf_add(&l->types, &type, sizeof type);
        ae_buf_add(&l->scores, &score, sizeof score);
        l->n_tokens++;
    }
}

static void read_lists(reader *r, lists *l)
{
    for (unsigned n = take(r); n != END_OF_LIST; n = take(r)) {
        const int32_t type = (int32_t)(take(r) % 8);
        const float score = -(float)(l->n_tokens * 7 % 31);
        size_t length = n % 64;
        const char *bytes = take_bytes(r, &length);
        put_string(&l->tokens, bytes, length);
        ae_buf_add(&l->types, &type, sizeof type);
        ae_buf_add(&l->scores, &score, sizeof score);
        l->n_tokens++;
    }
    for (unsigned n = take(r); n != END_OF_LIST; n = take(r)) {
        size_t length = n % 64;
        const char *bytes = take_bytes(r, &length);
        put_string(&l->merges, bytes, length);
        l->n_merges++;
    }
}

static void put_bool(ae_buf *file, const char *key, bool value)
{
    const uint8_t byte = value;
    gguf_make_kv(file, key, AE_GGUF_BOOL, &byte, 1);
}

static void put_file(ae_buf *file, unsigned model, unsigned pre, unsigned how, const uint32_t *ids, const lists *l)
{
    gguf_make_header(file, 3, 0, 17);
    gguf_make_kv_string(file, "tokenizer.ggml.model", models[model]);
    gguf_make_kv_string(file, "tokenizer.ggml.pre", pres[pre]);
    gguf_make_kv_string(file, "general.name", how & PHI3 ? "Phi-3" : "made");
    gguf_make_kv_array(file, "tokenizer.ggml.tokens", AE_GGUF_STRING, l->n_tokens, l->tokens.data, l->tokens.n);
    gguf_make_kv_array(file, "tokenizer.ggml.token_type", AE_GGUF_I32, l->n_tokens, l->types.data, l->types.n);
    gguf_make_kv_array(file, "tokenizer.ggml.scores", AE_GGUF_F32, l->n_tokens, l->scores.data, l->scores.n);
    gguf_make_kv_array(file, "tokenizer.ggml.merges", AE_GGUF_STRING, l->n_merges, l->merges.data, l->merges.n);
    /* a map of characters: the merges after a size that fits them more often than not */
    ae_buf map = {0};
    const uint32_t n_array = (uint32_t)(l->merges.n / 8 * 4);
    ae_buf_add(&map, &n_array, sizeof n_array);
    ae_buf_add(&map, l->merges.data, l->merges.n);
    ae_buf_add(&map, "\0", how & BPE_SPELLING);
    gguf_make_kv_array(file, "tokenizer.ggml.precompiled_charsmap", AE_GGUF_U8, map.n, map.data, map.n);
    ae_buf_free(&map);
    put_bool(file, "tokenizer.ggml.remove_extra_whitespaces", !(how & ADD_EOS));
    gguf_make_kv_u32(file, "tokenizer.ggml.bos_token_id", ids[0]);
    gguf_make_kv_u32(file, "tokenizer.ggml.eos_token_id", ids[1]);
    gguf_make_kv_u32(file, "tokenizer.ggml.eot_token_id", ids[2]);
    gguf_make_kv_u32(file, "tokenizer.ggml.unknown_token_id", ids[3]);
    gguf_make_kv_u32(file, "tokenizer.ggml.fim_pad_token_id", ids[4]);
    put_bool(file, "tokenizer.ggml.add_bos_token", how & ADD_BOS);
    put_bool(file, "tokenizer.ggml.add_eos_token", how & ADD_EOS);
    put_bool(file, "tokenizer.ggml.add_space_prefix", !(how & NO_PREFIX));
}

static void broken(const char *what)
{
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

static void use(const ae_vocab *vocab, const char *text, size_t n, bool special)
{
    ae_tokens tokens = {0};
    ae_buf back = {0};
    aerie_error error = {0};
    ae_detok detok = {.vocab = vocab, .special = special};
    const ae_encode_options options = {.add_special = special, .parse_special = special};
    const aerie_status status = ae_vocab_encode(vocab, text, n, options, &tokens, &error);
    if (status != AERIE_OK && (tokens.n || !error.text[0] || status == AERIE_ERROR_INTERNAL))
        broken("a failure without a sentence");
    for (size_t i = 0; i < tokens.n; i++) {
        if (tokens.data[i] < 0 || tokens.data[i] >= ae_vocab_n_tokens(vocab)) broken("an id out of range");
        ae_detok_add(&detok, tokens.data[i], &back);
    }
    ae_detok_end(&detok, &back);
    ae_buf_free(&back);
    ae_tokens_free(&tokens);
}

static void check_sequence(const ae_vocab_map *map, const ae_vocab *target, const ae_vocab *draft, const char *text,
                           size_t n)
{
    ae_tokens tokens = {0};
    ae_retext grown = {.map = map}, fresh = {.map = map};
    aerie_error error = {0};
    if (ae_vocab_encode(target, text, n, (ae_encode_options){.parse_special = true}, &tokens, &error) != AERIE_OK) return;
    for (size_t k = 0; k < tokens.n; k += 1 + k % 5)
        if (ae_retext_update(&grown, tokens.data, k, &error) != AERIE_OK) broken(error.text);
    if (ae_retext_update(&grown, tokens.data, tokens.n, &error) != AERIE_OK) broken(error.text);
    if (ae_retext_update(&fresh, tokens.data, tokens.n, &error) != AERIE_OK) broken(error.text);
    if (grown.drafts.n != fresh.drafts.n ||
        (fresh.drafts.n && memcmp(grown.drafts.data, fresh.drafts.data, fresh.drafts.n * sizeof(int32_t))))
        broken("a sequence depends on how it grew");
    for (size_t i = 0; i < fresh.drafts.n; i++)
        if (fresh.drafts.data[i] < 0 || fresh.drafts.data[i] >= ae_vocab_n_tokens(draft)) broken("a drafter's id out of range");
    ae_retext_free(&grown);
    ae_retext_free(&fresh);
    ae_tokens_free(&tokens);
}

static void check_map(const ae_vocab *target, const ae_vocab *draft, const char *text, size_t n)
{
    ae_vocab_map *map;
    aerie_error error = {0};
    const int32_t *targets, *drafts;
    if (ae_vocab_map_create(&map, target, draft, &error) != AERIE_OK) broken(error.text);
    const uint32_t n_pairs = ae_vocab_map_pairs(map, &targets, &drafts);
    bool *taken = calloc((size_t)ae_vocab_n_tokens(draft), 1);
    for (uint32_t i = 0; taken && i < n_pairs; i++) {
        if (taken[drafts[i]] || (i && targets[i] <= targets[i - 1]) || ae_vocab_map_to_draft(map, targets[i]) != drafts[i])
            broken("pairs that are not one to one");
        taken[drafts[i]] = true;
    }
    free(taken);
    if (ae_vocab_map_check(map, "a", "b", &error) != AERIE_OK && !error.text[0]) broken("a refusal without a sentence");
    check_sequence(map, target, draft, text, n);
    ae_vocab_map_free(map);
}

static const ae_vocab *usual(void)
{
    static ae_vocab *vocab;
    ae_buf file = {0};
    aerie_error error = {0};
    if (vocab) return vocab;
    vocab_make_bpe(&file, &(vocab_make){.pre = "gpt-2"});
    if (vocab_make_load(&vocab, &file, &error) != AERIE_OK) broken(error.text);
    ae_buf_free(&file);
    return vocab;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = {data, size};
    lists l = {0};
    ae_buf file = {0};
    uint32_t ids[5];
    const unsigned how = take(&r), kind = take(&r);
    /* bytes by which most files are gpt2's or llama's */
    const unsigned model = kind % 16 < 8 ? 0 : kind % 16 < 13 ? 1 : 2 + kind / 16 % (N_MODELS - 2), pre = kind / 16 % N_PRES;
    for (int i = 0; i < 5; i++) {
        ids[i] = take(&r);
        if (ids[i] == 254) ids[i] = UINT32_MAX;
        else if (ids[i] > 128) ids[i] += 128; /* the input's own tokens, after the alphabet */
    }
    if (!(how & 128)) add_alphabet(&l, (how & BPE_SPELLING) == BPE_SPELLING);
    read_lists(&r, &l);
    put_file(&file, model, pre, how, ids, &l);
    ae_gguf *gguf;
    ae_vocab *vocab = NULL;
    aerie_error error = {0};
    if (ae_gguf_open_memory(&gguf, file.data, file.n, "fuzz.gguf", &error) != AERIE_OK) broken(error.text);
    const aerie_status status = ae_vocab_create(&vocab, gguf, &error);
    ae_gguf_close(gguf);
    if (status != AERIE_OK && (vocab || error.status != status || !error.text[0] || status == AERIE_ERROR_INTERNAL))
        broken("a failure without an error record");
    const size_t n_text = r.n < TEXT_MAX ? r.n : TEXT_MAX;
    if (status == AERIE_OK) use(vocab, (const char *)r.data, n_text, how & 64);
    if (status == AERIE_OK && kind & 1 && strcmp(ae_vocab_kind(vocab), "none") != 0) {
        check_map(usual(), vocab, (const char *)r.data, n_text);
        check_map(vocab, usual(), (const char *)r.data, n_text);
    }
    ae_vocab_free(vocab);
    ae_buf_free(&l.tokens);
    ae_buf_free(&l.types);
    ae_buf_free(&l.scores);
    ae_buf_free(&l.merges);
    ae_buf_free(&file);
    return 0;
}
