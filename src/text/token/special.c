/* special.c - tokens that are more than text: BOS and EOS, ends of a generation, control tokens.
 *
 * Owns: the special ids and flags, and the two sets of tokens that are looked for in the text
 * before anything else (user-defined: always; control and unknown: with parse_special).
 * A match is the longest token at the leftmost place. Files often lack the key or the control type
 * of tokens that end a generation, so those are also known by their texts, as in llama.cpp.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/token/vocab_int.h"

/* ENDS: of a generation; TURNS: the same, and of a turn, which a file without the key of EOT has as such. */
enum { ENDS = 1, TURNS, CONTROLS };

/* Tokens known by their text. All are control tokens, whatever type the file gives them. */
static const struct {
    const char *text;
    int what;
} known[] = {
    {"<|eot_id|>", TURNS},      {"<|im_end|>", TURNS},        {"<|end|>", TURNS},
    {"<|return|>", ENDS},       {"<|call|>", ENDS},           {"<|flush|>", ENDS},
    {"<|calls|>", ENDS},        {"<end_of_turn>", TURNS},     {"<|endoftext|>", TURNS},
    {"</s>", ENDS},             {"<|eom_id|>", ENDS},         {"<EOT>", TURNS},
    {"_<EOT>", TURNS},          {"[EOT]", TURNS},             {"[EOS]", ENDS},
    {"<|end_of_text|>", TURNS}, {"<end_of_utterance>", TURNS}, {"<eos>", ENDS},
    {"<turn|>", ENDS},          {"<|tool_response>", ENDS},   {"<｜end▁of▁sentence｜>", TURNS},
    {"[e~[", ENDS},             {"<|fim_pad|>", ENDS},        {"<fim-pad>", ENDS},
    {"<fim_pad>", ENDS},        {"<PAD>", ENDS},              {"[PAD]", ENDS},
    {"<|fim_repo|>", ENDS},     {"<|repo_name|>", ENDS},      {"<fim-repo>", ENDS},
    {"<REPO>", ENDS},           {"<reponame>", ENDS},         {"<|file_sep|>", ENDS},
    {"<|fim_prefix|>", CONTROLS}, {"<fim-prefix>", CONTROLS}, {"<fim_prefix>", CONTROLS},
    {"<｜fim▁begin｜>", CONTROLS}, {"<PRE>", CONTROLS},       {"▁<PRE>", CONTROLS},
    {"<|code_prefix|>", CONTROLS}, {"<|prefix|>", CONTROLS},  {"<|fim_suffix|>", CONTROLS},
    {"<fim-suffix>", CONTROLS}, {"<fim_suffix>", CONTROLS},   {"<｜fim▁hole｜>", CONTROLS},
    {"<SUF>", CONTROLS},        {"▁<SUF>", CONTROLS},         {"<|code_suffix|>", CONTROLS},
    {"<|suffix|>", CONTROLS},   {"<|fim_middle|>", CONTROLS}, {"<fim-middle>", CONTROLS},
    {"<fim_middle>", CONTROLS}, {"<｜fim▁end｜>", CONTROLS},  {"<MID>", CONTROLS},
    {"▁<MID>", CONTROLS},       {"<|code_middle|>", CONTROLS}, {"<|middle|>", CONTROLS},
};

/* Tokens that gpt-oss writes as part of an answer's structure, and that are therefore shown. */
static const char *const shown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

static bool piece_is(const ae_vocab *vocab, int32_t id, const char *text)
{
    uint32_t n;
    const char *piece = ae_strings_get(&vocab->pieces, id, &n);
    return strlen(text) == n && memcmp(piece, text, n) == 0;
}

bool ae_vocab_text_ends(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].what != CONTROLS && strlen(known[i].text) == n && memcmp(known[i].text, text, n) == 0) return true;
    return false;
}

/* Tokens that the file types as text although they are known. */
typedef struct mistyped {
    int32_t first, n;
} mistyped;

/* A token that a merge makes is ordinary text ("</s>" may be HTML), so it keeps its type. */
static void apply_known(ae_vocab *vocab, int32_t id, mistyped *wrong)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!piece_is(vocab, id, known[i].text)) continue;
        if (vocab->flags[id] & AE_TOKEN_MERGED) return;
        const bool html = strcmp(known[i].text, "</s>") == 0 && id != vocab->eos;
        if (vocab->types[id] == AE_TOKEN_NORMAL && !html && !wrong->n++) wrong->first = id;
        vocab->types[id] = AE_TOKEN_CONTROL;
        if (known[i].what != CONTROLS) vocab->flags[id] |= AE_TOKEN_EOG;
    }
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        if (piece_is(vocab, id, shown[i]) && !(vocab->flags[id] & AE_TOKEN_MERGED)) vocab->types[id] = AE_TOKEN_USER;
    }
}

/* Ids of the tokens whose presence changes what other tokens mean; -1: the vocabulary has no such token. */
typedef struct landmarks {
    int32_t ret, call, flush, end, plain_s, s;
} landmarks;

static void note_landmark(const ae_vocab *vocab, int32_t id, landmarks *l)
{
    if (piece_is(vocab, id, "<|return|>")) l->ret = id;
    if (piece_is(vocab, id, "<|call|>") || piece_is(vocab, id, "<|calls|>")) l->call = id;
    if (piece_is(vocab, id, "<|flush|>")) l->flush = id;
    if (piece_is(vocab, id, "<|end|>")) l->end = id;
    if (piece_is(vocab, id, "<|tool_response>") || piece_is(vocab, id, "<|plamo:eos|>")) l->plain_s = id;
    if (piece_is(vocab, id, "</s>")) l->s = id;
}

/* Finds the end of a turn, and of a message in the midst of one, by their texts. */
static void find_ends(ae_vocab *vocab, int32_t id, size_t *best)
{
    for (size_t i = 0; i < *best; i++)
        if (known[i].what == TURNS && piece_is(vocab, id, known[i].text)) {
            vocab->eot = id;
            *best = i;
        }
    if (vocab->eom < 0 && piece_is(vocab, id, "<|eom_id|>")) vocab->eom = id;
}

static void warn_mistyped(ae_vocab *vocab, const mistyped *wrong)
{
    uint32_t n;
    if (!wrong->n || *vocab->warning) return;
    const char *piece = ae_strings_get(&vocab->pieces, wrong->first, &n);
    snprintf(vocab->warning, sizeof vocab->warning, "control tokens that the file types as text: %d, such as %d, %.*s; they "
             "count as control tokens", wrong->n, wrong->first, (int)n, piece);
}

static mistyped mark_known(ae_vocab *vocab)
{
    landmarks l = {-1, -1, -1, -1, -1, -1};
    mistyped wrong = {-1, 0};
    size_t best = vocab->eot < 0 ? sizeof known / sizeof known[0] : 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        uint32_t n;
        const char *piece = ae_strings_get(&vocab->pieces, id, &n);
        if (n < 4 || n > 40 || !strchr(">][", piece[n - 1])) continue; /* the shortest is "</s>" */
        apply_known(vocab, id, &wrong);
        if (vocab->flags[id] & AE_TOKEN_EOG) find_ends(vocab, id, &best);
        if (vocab->flags[id] & AE_TOKEN_EOG) note_landmark(vocab, id, &l);
    }
    /* Harmony and Solar end messages with <|end|>, and generations with the other tokens. */
    if (l.end >= 0 && l.call >= 0 && (l.ret >= 0 || l.flush >= 0) && l.end != vocab->eos) {
        vocab->flags[l.end] &= (uint8_t)~AE_TOKEN_EOG;
        vocab->types[l.end] = AE_TOKEN_USER;
    }
    if (l.plain_s >= 0 && l.s >= 0 && l.s != vocab->eos) {
        vocab->flags[l.s] &= (uint8_t)~AE_TOKEN_EOG;
        vocab->types[l.s] = AE_TOKEN_NORMAL;
    }
    return wrong;
}

/* ---- Ids and switches --------------------------------------------------------------------- */

/* Reads a special id; of a list, which holds all tokens with the same use, the first one. An id outside the vocabulary is
 * ignored, since most ids are never used: *id is unchanged, *bad (unless NULL) is set, and the first one becomes the
 * vocabulary's warning. */
static aerie_status load_id(ae_vocab *vocab, const ae_gguf *gguf, const char *key, int32_t *id, bool *bad,
                            aerie_error *error)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    int64_t value = -1;
    uint32_t unsigned_value;
    if (!kv) return AERIE_OK;
    if (!ae_gguf_kv_int(kv, 0, &value)) return ae_gguf_get_u32(gguf, key, false, &unsigned_value, error); /* says why */
    if (value == -1 || value == UINT32_MAX) return AERIE_OK; /* both mean none */
    if (value >= 0 && value < vocab->n_tokens) {
        *id = (int32_t)value;
        if (bad) *bad = false;
        return AERIE_OK;
    }
    if (bad) *bad = true;
    if (!*vocab->warning)
        snprintf(vocab->warning, sizeof vocab->warning, "%s is %lld, but the vocabulary has %d tokens: it is ignored", key,
                 (long long)value, vocab->n_tokens);
    return AERIE_OK;
}

/* Fails if a token that is added to every text has an id outside the vocabulary. */
static aerie_status check_used(const ae_vocab *vocab, bool bad_bos, bool bad_eos, aerie_error *error)
{
    const bool bos = bad_bos && (vocab->add_bos || vocab->wpm), eos = bad_eos && (vocab->add_eos || vocab->wpm);
    if (!bos && !eos) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "the id of the token to be added %s every text is invalid: the vocabulary "
                   "has %d tokens; give another id with --override-kv tokenizer.ggml.%cos_token_id=int:ID",
                   bos ? "before" : "after", vocab->n_tokens, bos ? 'b' : 'e');
}

/* Finds BERT's special tokens by their texts, for files without the keys of their ids. */
static void find_bert(ae_vocab *vocab)
{
    for (int32_t id = vocab->n_tokens; id-- > 0;) {
        if (piece_is(vocab, id, "[CLS]")) vocab->bos = id;
        if (piece_is(vocab, id, "[SEP]")) vocab->eos = id;
        if (piece_is(vocab, id, "[UNK]")) vocab->unknown = id;
    }
}

static aerie_status load_ids(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    int32_t ends[3] = {-1, -1, -1}, gap = -1;
    bool bad_bos = false, bad_eos = false;
    if (vocab->order && vocab->spm) { /* SentencePiece's default ids */
        vocab->unknown = 0;
        if (vocab->n_tokens > 2) {
            vocab->bos = 1;
            vocab->eos = 2;
        }
    }
    if (vocab->ugm && vocab->n_tokens > 2) { /* T5's */
        vocab->padding = 0;
        vocab->eos = 1;
        vocab->unknown = 2;
    }
    if (vocab->plamo2 && vocab->n_tokens > 3) {
        vocab->unknown = 0;
        vocab->bos = 1;
        vocab->eos = 2;
        vocab->padding = 3;
    }
    if (vocab->rwkv) vocab->unknown = 0;
    if (vocab->wpm) find_bert(vocab);
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.bos_token_id", &vocab->bos, &bad_bos, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.eos_token_id", &vocab->eos, &bad_eos, error));
    if (vocab->wpm) { /* BERT's keys for the tokens around a text; files misspell the second one */
        AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.cls_token_id", &vocab->bos, &bad_bos, error));
        AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.seperator_token_id", &vocab->eos, &bad_eos, error));
    }
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.eot_token_id", &vocab->eot, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.eom_token_id", &vocab->eom, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.unknown_token_id", &vocab->unknown, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.padding_token_id", &vocab->padding, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_pad_token_id", &ends[0], NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_rep_token_id", &ends[1], NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_sep_token_id", &ends[2], NULL, error));
    /* another function reads the key, but this one reports the error */
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_pre_token_id", &gap, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_suf_token_id", &gap, NULL, error));
    AE_TRY(load_id(vocab, gguf, "tokenizer.ggml.fim_mid_token_id", &gap, NULL, error));
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0) vocab->flags[ends[i]] |= AE_TOKEN_EOG;
    }
    AE_TRY(ae_gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", false, &vocab->add_bos, error));
    AE_TRY(ae_gguf_get_bool(gguf, "tokenizer.ggml.add_eos_token", false, &vocab->add_eos, error));
    if (vocab->newline_tokens && !vocab->metaspace) vocab->add_bos = true; /* Gemma 4 needs BOS; files that deny it are wrong */
    AE_TRY(check_used(vocab, bad_bos, bad_eos, error));
    bool prefix = vocab->add_space_prefix;
    AE_TRY(ae_gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", false, &prefix, error));
    vocab->add_space_prefix = prefix && vocab->spm && !vocab->merges;
    return AERIE_OK;
}

/* Reads a list of the tokens that end a generation. Ids outside the vocabulary are never sampled; the first one becomes the
 * vocabulary's warning unless it has one. */
static aerie_status mark_listed(ae_vocab *vocab, const ae_gguf *gguf, const char *key, aerie_error *error)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    int64_t id;
    if (!kv) return AERIE_OK;
    for (size_t i = 0; i < kv->n; i++) {
        if (!ae_gguf_kv_int(kv, i, &id)) return ae_fail(error, AERIE_ERROR_FORMAT, "%s is not a list of token ids", key);
        if (id >= 0 && id < vocab->n_tokens) vocab->flags[id] |= AE_TOKEN_EOG;
        else if (id != -1 && !*vocab->warning) /* -1: none */
            snprintf(vocab->warning, sizeof vocab->warning, "%s has %lld, but the vocabulary has %d tokens: it is ignored", key,
                     (long long)id, vocab->n_tokens);
    }
    return AERIE_OK;
}

/* Returns whether text[0..n) contains the lower-case word, in any case. */
static bool mentions(ae_gguf_string text, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++) {
        size_t k = 0;
        for (char c; k < n; k++) {
            c = text.data[i + k];
            if ((c >= 'A' && c <= 'Z' ? c | 0x20 : c) != word[k]) break;
        }
        if (k == n) return true;
    }
    return false;
}

/* Phi-3's special tokens remove the white space after them, the masks of some encoders the white space before them. Only the
 * name of the model or pre-tokenizer identifies such files. */
static aerie_status mark_strip(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    static const char *const masked[] = {"jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"};
    ae_gguf_string name = {NULL, 0}, pre = {NULL, 0};
    AE_TRY(ae_gguf_get_string(gguf, "general.name", false, &name, error));
    AE_TRY(ae_gguf_get_string(gguf, "tokenizer.ggml.pre", false, &pre, error));
    const bool phi3 = mentions(name, "phi3") || mentions(name, "phi-3");
    const char *mask = mentions(name, "modern-bert") ? "[MASK]" : NULL;
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
        if (mentions(pre, masked[i])) mask = "<mask>";
    for (int32_t id = 0; (phi3 || mask) && id < vocab->n_tokens; id++) {
        uint8_t type = vocab->types[id];
        bool special = type == AE_TOKEN_CONTROL || type == AE_TOKEN_USER || type == AE_TOKEN_UNKNOWN;
        if (mask && special && piece_is(vocab, id, mask)) vocab->flags[id] |= AE_TOKEN_LSTRIP;
        if (phi3 && special && !piece_is(vocab, id, "<unk>") && !piece_is(vocab, id, "<s>") &&
            !piece_is(vocab, id, "<|endoftext|>")) {
            vocab->flags[id] |= AE_TOKEN_RSTRIP;
        }
    }
    return AERIE_OK;
}

/* ---- Tokens to look for ------------------------------------------------------------------- */

typedef struct entry {
    const char *text;
    uint32_t n;
    int32_t id;
} entry;

static int entry_compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static aerie_status build_set(const ae_vocab *vocab, bool with_control, ae_specials *set, aerie_error *error)
{
    entry *entries = ae_alloc((size_t)vocab->n_tokens, sizeof *entries);
    if (!entries) return ae_fail_memory(error, "the special tokens", (size_t)vocab->n_tokens * sizeof *entries);
    uint32_t n = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        uint8_t type = vocab->types[id];
        bool control = type == AE_TOKEN_CONTROL || type == AE_TOKEN_UNKNOWN;
        if (type != AE_TOKEN_USER && !(with_control && control)) continue;
        entry e = {.id = id};
        e.text = ae_strings_get(&vocab->pieces, id, &e.n);
        if (e.n) entries[n++] = e;
    }
    if (n) qsort(entries, n, sizeof *entries, entry_compare);
    set->ids = ae_alloc(n, sizeof *set->ids);
    for (uint32_t i = 0; set->ids && i < n; i++) {
        uint8_t first = (uint8_t)entries[i].text[0];
        set->ids[set->n++] = entries[i].id;
        set->n_first += !set->first[first];
        set->first[first] = 1;
    }
    ae_free(entries);
    return set->ids ? AERIE_OK : ae_fail_memory(error, "the special tokens", n * sizeof *set->ids);
}

void ae_special_free(ae_specials *set)
{
    ae_free(set->ids);
    *set = (ae_specials){0};
}

/* Returns the first index in [lo, hi) of a token whose byte at `depth` is >= wanted. All of them must be longer than
 * `depth`. */
static uint32_t lower(const ae_vocab *vocab, const ae_specials *set, uint32_t lo, uint32_t hi, uint32_t depth,
                      unsigned wanted)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2, n;
        const char *text = ae_strings_get(&vocab->pieces, set->ids[mid], &n);
        if ((uint8_t)text[depth] < wanted) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* The sorted set serves as a trie: each byte narrows the range; the shortest string comes first. */
int32_t ae_special_match(const ae_vocab *vocab, const ae_specials *set, const char *text, size_t n)
{
    int32_t found = -1;
    uint32_t lo = 0, hi = set->n;
    if (!n || !set->first[(uint8_t)text[0]]) return -1;
    for (uint32_t depth = 0; depth < n && lo < hi; depth++) {
        unsigned byte = (uint8_t)text[depth];
        lo = lower(vocab, set, lo, hi, depth, byte);
        hi = lower(vocab, set, lo, hi, depth, byte + 1);
        for (bool first = true; lo < hi; lo++, first = false) {
            uint32_t n_text;
            ae_strings_get(&vocab->pieces, set->ids[lo], &n_text);
            if (n_text != depth + 1) break;
            if (first) found = set->ids[lo];
        }
    }
    return found;
}

aerie_status ae_special_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    AE_TRY(load_ids(vocab, gguf, error));
    const mistyped wrong = mark_known(vocab);
    const int32_t ends[] = {vocab->eos, vocab->eot, vocab->eom};
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0) vocab->flags[ends[i]] |= AE_TOKEN_EOG;
    }
    AE_TRY(mark_listed(vocab, gguf, "tokenizer.ggml.eos_token_ids", error));
    AE_TRY(mark_listed(vocab, gguf, "tokenizer.ggml.eos_token_id", error)); /* which others make a list, too */
    warn_mistyped(vocab, &wrong);
    /* Text must never merge into a control token, including one that is known only by its text. */
    for (int32_t id = 0; vocab->order && id < vocab->n_tokens; id++) {
        if (vocab->types[id] == AE_TOKEN_CONTROL) vocab->order[id] = UINT32_MAX;
    }
    AE_TRY(mark_strip(vocab, gguf, error));
    AE_TRY(build_set(vocab, false, &vocab->user, error));
    return build_set(vocab, true, &vocab->special, error);
}

/* Returns the length of a marker at the beginning of text, such as "<start_of_turn>" or "[INST]"; 0: there is none. */
static size_t marker(const char *text)
{
    enum { MOST = 40 };
    const char close = *text == '<' ? '>' : *text == '[' ? ']' : '\0';
    for (size_t n = 1; close && n < MOST && (unsigned char)text[n] > ' ' && !strchr("'\"{}", text[n]); n++)
        if (text[n] == close) return n + 1;
    return 0;
}

void ae_special_check_template(ae_vocab *vocab)
{
    const char *text = vocab->chat_template;
    for (size_t n; text && *text && !*vocab->warning; text += n ? n : 1) {
        n = marker(text);
        const int32_t id = n ? ae_keys_find(vocab, text, n) : -1;
        if (id < 0 || id >= vocab->n_tokens || vocab->types[id] != AE_TOKEN_NORMAL) continue;
        ae_tokens tokens = {0};
        bool whole = ae_vocab_encode(vocab, text, n, (ae_encode_options){.parse_special = true}, &tokens, NULL) != AERIE_OK;
        for (size_t i = 0; i < tokens.n; i++) whole = whole || tokens.data[i] == id;
        ae_tokens_free(&tokens);
        if (!whole)
            snprintf(vocab->warning, sizeof vocab->warning, "the chat template writes token %d, %.*s, but the file types it as "
                     "text, so prompts have it in pieces", id, (int)n, text);
    }
}
