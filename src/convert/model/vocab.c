/* vocab.c - the vocabulary of a model's folder: tokenizer.json and tokenizer.model (spm.c). specials.c has added and special
 * tokens, templates.c chat templates. Byte-level BPE becomes "gpt2", with the rules by which the folder's tokenizer splits
 * text. BPE with U+2581 and byte tokens, which tokenizers makes of SentencePiece's vocabularies, becomes "llama" again: with
 * the scores of tokenizer.model, or with scores in the order of the merges, which is that of the original scores. Unigram
 * becomes "t5" (unigram.c). Rows of the embedding without a token become fillers. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "convert/archs/arch.h"
#include "convert/model/vocab.h"
#include "text/token/pretok.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, how SentencePiece spells a space */

aerie_status ae_convert_words_init(const ae_convert *c, ae_convert_words *w, uint32_t n)
{
    *w = (ae_convert_words){.n = n, .list = ae_alloc(n, sizeof *w->list), .types = ae_alloc(n, sizeof *w->types),
                            .scores = ae_alloc(n, sizeof *w->scores)};
    ae_arena_init(&w->arena, 65536);
    return w->list && w->types && w->scores ? AERIE_OK : ae_convert_no_memory(c, "the vocabulary");
}

void ae_convert_words_free(ae_convert_words *w)
{
    ae_arena_free(&w->arena);
    ae_free(w->list);
    ae_free(w->types);
    ae_free(w->scores);
}

aerie_status ae_convert_words_put(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, json_int_t id,
                                  int32_t type)
{
    if (id < 0 || id >= (json_int_t)w->n)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: token \"%.*s\" has id %lld, but there are %u rows in the embedding",
                       c->path, (int)(n < 40 ? n : 40), text, (long long)id, w->n);
    char *copy = ae_arena_strndup(&w->arena, text, n);
    if (!copy) return ae_convert_no_memory(c, "the vocabulary");
    w->list[id] = (ae_gguf_string){copy, n};
    w->types[id] = type;
    return AERIE_OK;
}

aerie_status ae_convert_words_fill(const ae_convert *c, ae_convert_words *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        char name[24];
        if (w->list[i].data) continue;
        const int n = snprintf(name, sizeof name, "[PAD%u]", i);
        AE_TRY(ae_convert_words_put(c, w, name, (size_t)n, i, AERIE_TOKEN_UNUSED));
    }
    return AERIE_OK;
}

/* ---- tokenizer.json ----------------------------------------------------------------------------------- */

const char *ae_convert_type_of(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    return type ? type : "";
}

const json_t *ae_convert_find_step(const json_t *json, const char *list, const char *type)
{
    const json_t *steps = json_object_get(json, list), *step;
    size_t i;
    if (strcmp(ae_convert_type_of(json), type) == 0) return json;
    json_array_foreach((json_t *)steps, i, step) if (strcmp(ae_convert_type_of(step), type) == 0) return step;
    return NULL;
}

bool ae_convert_is_byte_level(const json_t *tokenizer)
{
    return ae_convert_find_step(json_object_get(tokenizer, "pre_tokenizer"), "pretokenizers", "ByteLevel") ||
           ae_convert_find_step(json_object_get(tokenizer, "decoder"), "decoders", "ByteLevel");
}

enum { MAX_STEPS = 6 };

/* Reads the expressions that split text into words. Returns false if it is split in another way, which *other names. */
static bool read_steps(const json_t *pre, const char *patterns[MAX_STEPS], size_t *n, const char **other)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const json_t *steps = json_object_get(pre, "pretokenizers");
    const size_t n_steps = steps ? json_array_size(steps) : pre != NULL;
    *n = 0;
    for (size_t i = 0; i < n_steps; i++) {
        const json_t *step = steps ? json_array_get(steps, i) : pre;
        const char *type = ae_convert_type_of(step), *pattern = NULL;
        *other = type;
        if (strcmp(type, "ByteLevel") == 0) {
            const json_t *own = json_object_get(step, "use_regex");
            if (json_is_false(own)) continue;
            pattern = gpt2;
        } else if (strcmp(type, "Digits") == 0) {
            pattern = json_is_true(json_object_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
        } else if (strcmp(type, "Split") == 0) {
            const char *behavior = json_string_value(json_object_get(step, "behavior"));
            const bool invert = json_is_true(json_object_get(step, "invert"));
            pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
            if (!behavior || strcmp(behavior, invert ? "Removed" : "Isolated")) return false;
        }
        if (!pattern || *n == MAX_STEPS) return false;
        patterns[(*n)++] = pattern;
    }
    return true;
}

static aerie_status find_pre(const ae_convert *c, const json_t *tokenizer, char out[32])
{
    const char *patterns[MAX_STEPS], *other = "nothing";
    size_t n;
    const bool ignores = json_is_true(json_object_get(json_object_get(tokenizer, "model"), "ignore_merges"));
    const char *names = c->options.pre;
    const bool read = !names && read_steps(json_object_get(tokenizer, "pre_tokenizer"), patterns, &n, &other);
    if (read) names = ae_pretok_match(patterns, n, ignores);
    if (names) {
        snprintf(out, 32, "%.*s", (int)strcspn(names, " "), names);
        return AERIE_OK;
    }
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                   "%s: tokenizer.json splits text into words by a rule (%.40s%s%.160s) that matches no known pre-tokenizer; "
                   "--pre NAME selects the closest one, but some texts will then get other tokens",
                   c->path, other, read && n ? ": " : "", read && n ? patterns[n - 1] : "");
}

static aerie_status put_json_words(const ae_convert *c, ae_convert_words *w, const json_t *tokenizer, bool bytes)
{
    const json_t *model = json_object_get(tokenizer, "model");
    json_t *vocab = json_object_get(model, "vocab"), *id;
    const char *text, *unknown = json_string_value(json_object_get(model, "unk_token"));
    size_t n;
    json_object_keylen_foreach(vocab, text, n, id) {
        int32_t type = AERIE_TOKEN_NORMAL;
        if (!bytes && n == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>') type = AERIE_TOKEN_BYTE;
        if (!bytes && unknown && strlen(unknown) == n && memcmp(unknown, text, n) == 0) type = AERIE_TOKEN_UNKNOWN;
        AE_TRY(ae_convert_words_put(c, w, text, n, json_is_integer(id) ? json_integer_value(id) : -1, type));
    }
    return ae_convert_put_json_added(c, w, tokenizer);
}

aerie_status ae_convert_put_json_added(const ae_convert *c, ae_convert_words *w, const json_t *tokenizer)
{
    json_t *added;
    size_t i;
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added) {
        const json_t *content = json_object_get(added, "content");
        const json_int_t at = json_integer_value(json_object_get(added, "id"));
        const bool special = json_is_true(json_object_get(added, "special"));
        if (!json_is_string(content) || ae_convert_beyond(c, w, json_string_value(content), at)) continue;
        const bool keep = at >= 0 && w->list[at].data &&
                          (w->types[at] == AERIE_TOKEN_UNKNOWN || (!special && w->types[at] == AERIE_TOKEN_BYTE));
        ae_convert_note_twice(c, w, json_string_value(content), json_string_length(content), (uint32_t)at);
        AE_TRY(ae_convert_words_put(c, w, json_string_value(content), json_string_length(content), at,
                                    keep ? w->types[at] : special ? AERIE_TOKEN_CONTROL : AERIE_TOKEN_USER_DEFINED));
    }
    return AERIE_OK;
}

/* Splits a merge into its two parts: "a b" or ["a", "b"]. */
static bool merge_parts(const json_t *merge, const char *part[2], size_t n[2])
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = *text ? strchr(text + 1, ' ') : NULL;
        if (!space || !space[1]) return false;
        part[0] = text, n[0] = (size_t)(space - text);
        part[1] = space + 1, n[1] = json_string_length(merge) - n[0] - 1;
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_array_get(merge, i);
        if (!json_is_string(text)) return false;
        part[i] = json_string_value(text), n[i] = json_string_length(text);
        if (!n[i] || memchr(part[i], ' ', n[i])) return false;
    }
    return json_array_size(merge) == 2;
}

static aerie_status fail_merge(const ae_convert *c, size_t i)
{
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json: entry %zu of 'merges' is not two strings without spaces",
                   c->path, i);
}

static aerie_status put_merges(const ae_convert *c, ae_gguf_writer *out, const json_t *merges)
{
    const size_t n_merges = json_array_size(merges);
    ae_gguf_string *list = ae_alloc(n_merges + 1, sizeof *list);
    ae_arena arena;
    aerie_status status = list ? AERIE_OK : ae_convert_no_memory(c, "the merges");
    ae_arena_init(&arena, 65536);
    for (size_t i = 0; i < n_merges && status == AERIE_OK; i++) {
        const char *part[2];
        size_t n[2];
        if (!merge_parts(json_array_get(merges, i), part, n)) status = fail_merge(c, i);
        char *text = status == AERIE_OK ? ae_arena_alloc(&arena, n[0] + n[1] + 1, 1) : NULL;
        if (status == AERIE_OK && !text) status = ae_convert_no_memory(c, "the merges");
        if (status != AERIE_OK) break;
        memcpy(text, part[0], n[0]);
        text[n[0]] = ' ';
        memcpy(text + n[0] + 1, part[1], n[1]);
        list[i] = (ae_gguf_string){text, n[0] + n[1] + 1};
    }
    if (status == AERIE_OK) status = ae_gguf_writer_strings(out, "tokenizer.ggml.merges", list, n_merges, c->error);
    ae_arena_free(&arena);
    ae_free(list);
    return status;
}

/* Tokens made by earlier merges get higher scores; a token that no merge makes can never be produced. */
static aerie_status score_by_merges(const ae_convert *c, ae_convert_words *w, const json_t *tokenizer)
{
    const json_t *model = json_object_get(tokenizer, "model"), *merges = json_object_get(model, "merges"), *vocab;
    ae_buf both = {0};
    float score = 0;
    vocab = json_object_get(model, "vocab");
    for (uint32_t i = 0; i < w->n; i++) w->scores[i] = w->types[i] == AERIE_TOKEN_NORMAL ? -1e9f : 0;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *part[2];
        size_t n[2];
        if (!merge_parts(json_array_get(merges, i), part, n)) {
            ae_buf_free(&both);
            return fail_merge(c, i);
        }
        ae_buf_clear(&both);
        ae_buf_add(&both, part[0], n[0]);
        ae_buf_add(&both, part[1], n[1]);
        const json_t *id = both.failed ? NULL : json_object_getn(vocab, both.data, both.n);
        const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
        if (at >= 0 && at < (json_int_t)w->n && w->scores[at] <= -1e9f) w->scores[at] = score -= 1;
    }
    const bool failed = both.failed;
    ae_buf_free(&both);
    return failed ? ae_convert_no_memory(c, "the merges") : AERIE_OK;
}

/* Either a normalizer adds the space, or the step that marks spaces does. */
bool ae_convert_adds_space(const json_t *tokenizer)
{
    const json_t *step = ae_convert_find_step(json_object_get(tokenizer, "pre_tokenizer"), "pretokenizers", "Metaspace");
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    if (step) return scheme ? strcmp(scheme, "never") != 0 : !json_is_false(json_object_get(step, "add_prefix_space"));
    return ae_convert_find_step(json_object_get(tokenizer, "normalizer"), "normalizers", "Prepend") != NULL;
}

/* Writes added tokens of SentencePiece's vocabularies with spaces for U+2581, as they are printed: a file's added tokens are
 * found in the text as it is, and nothing decodes them. Gemma has such tokens for runs of spaces. */
static aerie_status spell_spaces(const ae_convert *c, ae_convert_words *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const ae_gguf_string text = w->list[i];
        if (w->types[i] != AERIE_TOKEN_USER_DEFINED || text.n < strlen(SPACE_MARK)) continue;
        char *spelt = ae_arena_alloc(&w->arena, text.n, 1);
        size_t n = 0;
        if (!spelt) return ae_convert_no_memory(c, "the vocabulary");
        for (size_t at = 0; at < text.n;) {
            const bool space = text.n - at >= strlen(SPACE_MARK) && !memcmp(text.data + at, SPACE_MARK, strlen(SPACE_MARK));
            spelt[n++] = space ? ' ' : text.data[at];
            at += space ? strlen(SPACE_MARK) : 1;
        }
        w->list[i] = (ae_gguf_string){spelt, n};
    }
    return AERIE_OK;
}

/* ---- All of it ---------------------------------------------------------------------------------------- */

aerie_status ae_convert_put_words(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const char *model,
                                  bool scores)
{
    AE_TRY(ae_convert_words_fill(c, w));
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.model", model, c->error));
    AE_TRY(ae_gguf_writer_strings(out, "tokenizer.ggml.tokens", w->list, w->n, c->error));
    AE_TRY(ae_gguf_writer_array(out, "tokenizer.ggml.token_type", AE_GGUF_I32, w->types, w->n, c->error));
    if (!scores) return AERIE_OK;
    return ae_gguf_writer_array(out, "tokenizer.ggml.scores", AE_GGUF_F32, w->scores, w->n, c->error);
}

aerie_status ae_convert_put_bpe(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                                const char *usual)
{
    const json_t *tokenizer = f->tokenizer;
    char pre[32];
    AE_TRY(find_pre(c, tokenizer, pre));
    if (usual && strcmp(pre, "gpt-2") == 0) snprintf(pre, sizeof pre, "%s", usual);
    AE_TRY(put_json_words(c, w, tokenizer, true));
    AE_TRY(ae_convert_put_added(c, w, f));
    AE_TRY(ae_convert_put_words(c, out, w, "gpt2", false));
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.pre", pre, c->error));
    return put_merges(c, out, json_object_get(json_object_get(tokenizer, "model"), "merges"));
}

/* Returns how a BPE of characters treats spaces, which is the name of its rules; NULL: in another way than the known ones. */
static const char *rules_of_spaces(const json_t *tokenizer)
{
    const json_t *mark = ae_convert_find_step(json_object_get(tokenizer, "normalizer"), "normalizers", "Replace");
    const char *from = json_string_value(json_object_get(json_object_get(mark, "pattern"), "String"));
    const char *to = json_string_value(json_object_get(mark, "content"));
    if (ae_convert_find_step(json_object_get(tokenizer, "pre_tokenizer"), "pretokenizers", "Metaspace")) return "mmbert";
    return from && to && strcmp(from, " ") == 0 && strcmp(to, SPACE_MARK) == 0 ? "granite-embed-multi-311m" : NULL;
}

/* Writes tokens for runs of spaces as tokens like others: mmBERT's tokenizer never finds them in a text, because it replaces
 * spaces before. */
static aerie_status mark_spaces(const ae_convert *c, ae_convert_words *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const ae_gguf_string text = w->list[i];
        size_t n = 0;
        while (n < text.n && text.data[n] == ' ') n++;
        if (w->types[i] != AERIE_TOKEN_USER_DEFINED || !n || n < text.n) continue;
        ae_buf marks = {0};
        for (size_t k = 0; k < n; k++) ae_buf_adds(&marks, SPACE_MARK);
        const aerie_status status = marks.failed ? ae_convert_no_memory(c, "the vocabulary")
                                                 : ae_convert_words_put(c, w, marks.data, marks.n, i, AERIE_TOKEN_NORMAL);
        ae_buf_free(&marks);
        AE_TRY(status);
    }
    return AERIE_OK;
}

/* Writes the BPE of mmBERT and of granite-embedding-r2's multilingual models, which merges characters like Gemma's. */
static aerie_status put_characters(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f)
{
    const char *pre = c->options.pre ? c->options.pre : rules_of_spaces(f->tokenizer);
    if (!pre)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tokenizer.json is a BPE that neither splits text into bytes nor "
                       "marks spaces like mmBERT's or the multilingual granite-embedding-r2's; --pre mmbert and --pre "
                       "granite-embed-multi-311m select those rules", c->path);
    AE_TRY(put_json_words(c, w, f->tokenizer, true));
    AE_TRY(ae_convert_put_added(c, w, f));
    AE_TRY(spell_spaces(c, w));
    if (strcmp(pre, "mmbert") == 0) AE_TRY(mark_spaces(c, w));
    AE_TRY(ae_convert_put_words(c, out, w, "gpt2", false));
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.pre", pre, c->error));
    return put_merges(c, out, json_object_get(json_object_get(f->tokenizer, "model"), "merges"));
}

/* Adds the tokens that the code of ChatGLM 2 and 3 numbers after its pieces; the last four are ChatGLM 3's. */
static aerie_status put_roles(const ae_convert *c, ae_convert_words *w, const ae_convert_spm *s)
{
    static const char *const names[] = {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>",
                                        "<|assistant|>", "<|observation|>"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names && s->n + i < w->n; i++)
        AE_TRY(ae_convert_words_put(c, w, names[i], strlen(names[i]), s->n + i, AERIE_TOKEN_CONTROL));
    return AERIE_OK;
}

/* Reports what files with SentencePiece's BPE cannot express. */
static void note_normalizer(const ae_convert *c, const ae_convert_spm *s)
{
    if (s->charsmap.n)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: the map of characters of tokenizer.model is left out, since BPE in "
                   "GGUF files has none: characters that it changes become other tokens", c->path);
    if (s->collapses)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: tokenizer.model drops repeated spaces, and those at both ends of a "
                   "text, which BPE in GGUF files does not: such texts become other tokens", c->path);
}

/* Writes the tokens of SentencePiece's BPE. tokenizer.json may be NULL; then only its model is used. */
static aerie_status put_pieces(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                               ae_convert_spm *s)
{
    const json_t *tokenizer = f->tokenizer;
    const bool space = tokenizer && ae_convert_adds_space(tokenizer);
    if (!s->there && !tokenizer)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither tokenizer.json nor tokenizer.model is beside the tensors",
                       c->path);
    if (s->unigram && !tokenizer) return ae_convert_put_unigram(c, out, w, f, s);
    if (s->unigram)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: tokenizer.json is of the kind BPE, but the SentencePiece model beside it is Unigram; remove the "
                       "file that does not belong to the model", c->path);
    if (tokenizer) AE_TRY(put_json_words(c, w, tokenizer, false));
    else note_normalizer(c, s);
    if (!tokenizer && strcmp(c->arch->arch, "chatglm") == 0) AE_TRY(put_roles(c, w, s));
    AE_TRY(ae_convert_put_added(c, w, f));
    if (!s->there) AE_TRY(score_by_merges(c, w, tokenizer));
    AE_TRY(spell_spaces(c, w));
    /* for Gemma 4, programs merge by the list */
    const bool by_merges = tokenizer && strcmp(c->arch->arch, "gemma4") == 0;
    AE_TRY(ae_convert_put_words(c, out, w, by_merges ? "gemma4" : "llama", true));
    if (by_merges) AE_TRY(put_merges(c, out, json_object_get(json_object_get(tokenizer, "model"), "merges")));
    return ae_gguf_writer_bool(out, "tokenizer.ggml.add_space_prefix", tokenizer ? space : s->space, c->error);
}

static aerie_status put_spm(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f)
{
    ae_convert_spm s;
    AE_TRY(ae_convert_read_spm(c, w, &s));
    const aerie_status status = put_pieces(c, out, w, f, &s);
    ae_buf_free(&s.charsmap);
    return status;
}

static aerie_status put_all(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f)
{
    const char *type = ae_convert_type_of(json_object_get(f->tokenizer, "model"));
    if (!f->tokenizer && strncmp(c->arch->arch, "rwkv", 4) == 0) {
        AE_TRY(ae_convert_put_rwkv(c, out, w));
        return ae_convert_put_templates(c, out, f->config);
    }
    const bool unigram = ae_convert_is_unigram(f->tokenizer);
    if (f->tokenizer && strcmp(type, "BPE") && *type && !unigram)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: tokenizer.json is of the kind \"%.40s\"; for models, BPE and Unigram are supported", c->path, type);
    if (f->tokenizer && !json_object_size(json_object_get(json_object_get(f->tokenizer, "model"), "vocab")) && !unigram)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json has no tokens ('model', 'vocab'): fetch it again",
                       c->path);
    bool ranks = false;
    if (!f->tokenizer) AE_TRY(ae_convert_has_tiktoken(c, &ranks));
    if (ranks) AE_TRY(ae_convert_put_tiktoken(c, out, w, f));
    else if (!f->tokenizer && (strcmp(c->arch->arch, "plamo2") == 0 || strcmp(c->arch->arch, "plamo3") == 0))
        AE_TRY(ae_convert_put_plamo(c, out, w));
    else if (unigram) AE_TRY(ae_convert_put_unigram(c, out, w, f, NULL));
    else if (f->tokenizer && ae_convert_is_byte_level(f->tokenizer)) AE_TRY(ae_convert_put_bpe(c, out, w, f, NULL));
    else if (f->tokenizer && strcmp(c->arch->arch, "modern-bert") == 0) AE_TRY(put_characters(c, out, w, f));
    else AE_TRY(put_spm(c, out, w, f));
    AE_TRY(ae_convert_put_special(c, out, w, f));
    return ae_convert_put_templates(c, out, f->config);
}

aerie_status ae_convert_read_folder(const ae_convert *c, ae_convert_folder *f)
{
    const struct {
        const char *name;
        json_t **json;
    } files[] = {{"tokenizer.json", &f->tokenizer}, {"tokenizer_config.json", &f->config},
                 {"generation_config.json", &f->generation}, {"special_tokens_map.json", &f->special},
                 {"added_tokens.json", &f->added}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", c->decision_config ? "tokenizer/" : "", files[i].name);
        AE_TRY(ae_convert_read_json(c, name, files[i].json));
    }
    return AERIE_OK;
}

void ae_convert_folder_free(ae_convert_folder *f)
{
    json_decref(f->tokenizer);
    json_decref(f->config);
    json_decref(f->generation);
    json_decref(f->special);
    json_decref(f->added);
    *f = (ae_convert_folder){0};
}

aerie_status ae_convert_put_vocab(const ae_convert *c, ae_gguf_writer *out)
{
    ae_convert_words w;
    ae_convert_folder f = {0};
    aerie_status status = ae_convert_words_init(c, &w, c->model.n_vocab);
    if (status == AERIE_OK) status = ae_convert_read_folder(c, &f);
    if (status == AERIE_OK) status = put_all(c, out, &w, &f);
    ae_convert_folder_free(&f);
    ae_convert_words_free(&w);
    return status;
}
