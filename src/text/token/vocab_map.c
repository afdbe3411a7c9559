/* vocab_map.c - which tokens of two vocabularies are the same, and how much of a text they make up.
 *
 * Tokens are looked up by their bytes and by what kind of token they are (a word "</s>" of ordinary text is not the end of
 * a sequence; a letter of SPM is not its byte token, if the other vocabulary knows both). Time linear in both vocabularies.
 */
#include "text/token/vocab_map.h"

#include <stdio.h>

#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

typedef enum token_class { CLASS_TEXT, CLASS_BYTE, CLASS_USER, CLASS_CONTROL, CLASS_FILLER } token_class;

struct ae_vocab_map {
    const ae_vocab *target, *draft;
    int32_t *to_draft;                 /* [target->n_tokens] */
    int32_t *to_target;                /* [draft->n_tokens] -1: the token is in no pair */
    int32_t *pair_target, *pair_draft; /* [n_pairs] */
    uint32_t n_pairs;
    uint32_t longest; /* bytes of the target's longest token */
    ae_overlap overlap;
};

/* The text on which the overlap is measured: kinds of text that models are asked for, mostly English and code. Written for
 * aerie. */
static const char sample[] =
    "The harbour was quiet that morning. Two boats had come in before sunrise, and the crew of the larger one was still "
    "unloading crates of fish onto the pier. \"We were lucky,\" said the captain; \"the weather changed an hour after we left "
    "the bay.\" Nobody asked how much they had caught, because everybody could see it.\n\n"
    "To install the package, first update the index, then run the following commands. If the second step fails, check that "
    "your version is at least 3.11 and that the directory is writable:\n\n"
    "```python\nimport os\n\ndef read_lines(path, limit=100):\n    \"\"\"Return the first lines of a file.\"\"\"\n"
    "    result = []\n    with open(path, encoding=\"utf-8\") as handle:\n        for index, line in enumerate(handle):\n"
    "            if index >= limit:\n                break\n            result.append(line.rstrip(\"\\n\"))\n"
    "    return result\n```\n\n"
    "1. What is 17 times 23? 17 * 20 = 340 and 17 * 3 = 51, so the answer is 391.\n"
    "2. Which of these cities lies furthest to the north: Lisbon, Helsinki, Athens or Vienna?\n\n"
    "{\"name\": \"lamp\", \"price\": 24.90, \"tags\": [\"home\", \"light\"], \"available\": true, \"stock\": null}\n\n"
    "#include <stdint.h>\n\nstatic uint32_t count_bits(uint64_t value)\n{\n    uint32_t n = 0;\n    while (value) {\n"
    "        value &= value - 1;\n        n++;\n    }\n    return n;\n}\n\n"
    "Photosynthesis turns light into chemical energy. Plants, algae and some bacteria take up water and carbon dioxide, and "
    "release oxygen. The process has two stages, and the second does not need light at all.\n\n"
    "SELECT name, COUNT(*) AS total FROM orders WHERE year = 2024 GROUP BY name ORDER BY total DESC;\n\n"
    "Sehr geehrte Damen und Herren, vielen Dank für Ihre Nachricht. Wir melden uns in den nächsten Tagen bei Ihnen.\n"
    "Le train de Lyon est arrivé avec dix minutes de retard, mais personne ne s'est plaint.\n"
    "Mañana por la mañana iremos al mercado para comprar pan, queso y unas manzanas.\n"
    "Книга лежит на столе рядом с окном.\n"
    "今天天气很好，我们去公园散步。\n"
    "昨日は雨でしたが、今日は晴れています。\n"
    "الطقس جميل اليوم.\n";

/* ---- Looking up tokens -------------------------------------------------------------------------------- */

static token_class class_of(const ae_vocab *vocab, int32_t id)
{
    switch (vocab->types[id]) {
    case AE_TOKEN_BYTE: return CLASS_BYTE;
    case AE_TOKEN_USER: return CLASS_USER;
    case AE_TOKEN_UNUSED: return CLASS_FILLER;
    default: return ae_vocab_is_control(vocab, id) ? CLASS_CONTROL : CLASS_TEXT;
    }
}

typedef struct token_table {
    const ae_vocab *vocab;
    int32_t *slots; /* [mask + 1] ids, -1: free */
    uint32_t mask;
} token_table;

/* Returns the slot that holds a token of that class and those bytes, or the free slot where it belongs. At most half of the
 * slots are in use, so the search ends. */
static int32_t *table_slot(const token_table *t, token_class class, const char *bytes, uint32_t n)
{
    uint32_t at = ae_keys_hash(t->vocab->seed + (uint64_t)class, bytes, n) & t->mask;
    for (;; at = (at + 1) & t->mask) {
        const int32_t id = t->slots[at];
        uint32_t length;
        if (id < 0) return &t->slots[at];
        const char *piece = ae_strings_get(&t->vocab->pieces, id, &length);
        if (length == n && class_of(t->vocab, id) == class && memcmp(piece, bytes, n) == 0) return &t->slots[at];
    }
}

static aerie_status table_create(token_table *t, const ae_vocab *vocab, aerie_error *error)
{
    uint32_t size = 256;
    while (size < 2 * (uint32_t)vocab->n_tokens) size *= 2;
    *t = (token_table){.vocab = vocab, .mask = size - 1, .slots = ae_alloc(size, sizeof *t->slots)};
    if (!t->slots) return ae_fail_memory(error, "a table of tokens", size * sizeof *t->slots);
    for (uint32_t i = 0; i < size; i++) t->slots[i] = -1;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        uint32_t n;
        const char *piece = ae_strings_get(&vocab->pieces, id, &n);
        int32_t *slot = n ? table_slot(t, class_of(vocab, id), piece, n) : NULL;
        if (slot && *slot < 0) *slot = id;
    }
    return AERIE_OK;
}

/* ---- The map ------------------------------------------------------------------------------------------ */

/* For each class of a target's token, the drafter's classes to search, best first: files declare special tokens differently,
 * and a byte token of SPM is ordinary text in other vocabularies. A class equal to the one before it is skipped. */
enum { N_LOOKS = 3 };
static const token_class looks[][N_LOOKS] = {
    [CLASS_TEXT] = {CLASS_TEXT, CLASS_BYTE, CLASS_USER},
    [CLASS_BYTE] = {CLASS_BYTE, CLASS_TEXT, CLASS_TEXT},
    [CLASS_USER] = {CLASS_USER, CLASS_CONTROL, CLASS_TEXT},
    [CLASS_CONTROL] = {CLASS_CONTROL, CLASS_USER, CLASS_USER},
    [CLASS_FILLER] = {CLASS_FILLER, CLASS_FILLER, CLASS_FILLER},
};

/* Maps a target's token unless it is mapped already. A drafter's token is paired with the first token mapped to it. */
static void link(ae_vocab_map *map, int32_t target, int32_t draft)
{
    if (target < 0 || draft < 0 || map->to_draft[target] >= 0) return;
    map->to_draft[target] = draft;
    if (map->to_target[draft] < 0) map->to_target[draft] = target;
}

static void link_by_bytes(ae_vocab_map *map, const token_table *drafts, int look)
{
    const ae_vocab *target = map->target;
    for (int32_t id = 0; id < target->n_tokens; id++) {
        uint32_t n;
        const char *piece = ae_strings_get(&target->pieces, id, &n);
        const token_class *in = looks[class_of(target, id)];
        if (!n || map->to_draft[id] >= 0 || (look && in[look] == in[look - 1])) continue;
        link(map, id, *table_slot(drafts, in[look], piece, n));
    }
}

/* Returns the token that ends a turn: EOT, or EOS where there is no EOT. */
static int32_t turn_end(const ae_vocab *vocab)
{
    return vocab->eot >= 0 ? vocab->eot : vocab->eos;
}

static void link_by_role(ae_vocab_map *map)
{
    const ae_vocab *target = map->target, *draft = map->draft;
    /* a drafter whose texts do not begin with BOS must not read one */
    if (target->bos >= 0 && target->bos != target->eos && map->to_draft[target->bos] < 0) {
        if (ae_vocab_adds_bos(draft)) link(map, target->bos, draft->bos);
        else map->to_draft[target->bos] = AE_MAP_NOTHING;
    }
    link(map, turn_end(target), turn_end(draft));
    link(map, target->eos, draft->eos);
    for (int32_t id = 0; id < target->n_tokens; id++) /* all other ends map to the drafter's end of turn */
        if (ae_vocab_is_eog(target, id)) link(map, id, turn_end(draft));
}

static void list_pairs(ae_vocab_map *map)
{
    for (int32_t id = 0; id < map->target->n_tokens; id++) {
        const int32_t draft = map->to_draft[id];
        if (draft < 0 || map->to_target[draft] != id) continue;
        map->pair_target[map->n_pairs] = id;
        map->pair_draft[map->n_pairs++] = draft;
        map->overlap.n_shared += class_of(map->target, id) != CLASS_FILLER;
    }
}

static int32_t count_tokens(const ae_vocab *vocab)
{
    int32_t n = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) n += class_of(vocab, id) != CLASS_FILLER;
    return n;
}

static aerie_status measure(ae_vocab_map *map, aerie_error *error)
{
    ae_overlap *o = &map->overlap;
    ae_tokens targets = {0}, drafts = {0};
    uint64_t n_bytes = 0, n_shared = 0;
    aerie_status status = ae_vocab_encode(map->target, sample, sizeof sample - 1, (ae_encode_options){0}, &targets, error);
    if (status == AERIE_OK)
        status = ae_vocab_encode(map->draft, sample, sizeof sample - 1, (ae_encode_options){0}, &drafts, error);
    for (size_t i = 0; i < targets.n; i++) {
        const int32_t id = targets.data[i], draft = map->to_draft[id];
        uint32_t n;
        ae_strings_get(&map->target->pieces, id, &n);
        n_bytes += n;
        if (draft >= 0 && map->to_target[draft] == id) n_shared += n;
    }
    o->n_target = count_tokens(map->target);
    o->n_draft = count_tokens(map->draft);
    o->vocab_share = o->n_target ? (double)o->n_shared / o->n_target : 0;
    o->text_share = n_bytes ? (double)n_shared / (double)n_bytes : 0;
    o->length_ratio = targets.n ? (double)drafts.n / (double)targets.n : 1;
    ae_tokens_free(&targets);
    ae_tokens_free(&drafts);
    return status;
}

static bool allocate(ae_vocab_map *map)
{
    const size_t n = (size_t)map->target->n_tokens, m = (size_t)map->draft->n_tokens;
    map->to_draft = ae_alloc(n, sizeof *map->to_draft);
    map->to_target = ae_alloc(m, sizeof *map->to_target);
    map->pair_target = ae_alloc(n, sizeof *map->pair_target);
    map->pair_draft = ae_alloc(n, sizeof *map->pair_draft);
    if (!map->to_draft || !map->to_target || !map->pair_target || !map->pair_draft) return false;
    for (size_t i = 0; i < m; i++) map->to_target[i] = -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t length;
        ae_strings_get(&map->target->pieces, (int32_t)i, &length);
        if (length > map->longest) map->longest = length;
        const bool silent = !length || map->target->types[i] == AE_TOKEN_UNUSED || map->target->types[i] == AE_TOKEN_UNKNOWN;
        map->to_draft[i] = silent ? AE_MAP_NOTHING : AE_MAP_TEXT;
    }
    return true;
}

aerie_status ae_vocab_map_create(ae_vocab_map **out, const ae_vocab *target, const ae_vocab *draft, aerie_error *error)
{
    *out = NULL;
    token_table drafts = {0};
    ae_vocab_map *map = ae_alloc(1, sizeof *map);
    if (!map) return ae_fail_memory(error, "a map of tokens", sizeof *map);
    *map = (ae_vocab_map){.target = target, .draft = draft};
    aerie_status status = AERIE_OK;
    if (!allocate(map)) status = ae_fail_memory(error, "a map of tokens", (size_t)target->n_tokens * 3 * sizeof(int32_t));
    if (status == AERIE_OK) status = table_create(&drafts, draft, error);
    if (status == AERIE_OK) {
        for (int look = 0; look < N_LOOKS; look++) link_by_bytes(map, &drafts, look); /* the most similar first */
        link_by_role(map);
        list_pairs(map);
        status = measure(map, error);
    }
    ae_free(drafts.slots);
    if (status != AERIE_OK) {
        ae_vocab_map_free(map);
        return status;
    }
    *out = map;
    return AERIE_OK;
}

void ae_vocab_map_free(ae_vocab_map *map)
{
    if (!map) return;
    ae_free(map->to_draft);
    ae_free(map->to_target);
    ae_free(map->pair_target);
    ae_free(map->pair_draft);
    ae_free(map);
}

const ae_overlap *ae_vocab_map_overlap(const ae_vocab_map *map) { return &map->overlap; }
int32_t ae_vocab_map_to_draft(const ae_vocab_map *map, int32_t target_token) { return map->to_draft[target_token]; }

uint32_t ae_vocab_map_pairs(const ae_vocab_map *map, const int32_t **targets, const int32_t **drafts)
{
    *targets = map->pair_target;
    *drafts = map->pair_draft;
    return map->n_pairs;
}

aerie_status ae_vocab_map_check(const ae_vocab_map *map, const char *target_name, const char *draft_name, aerie_error *error)
{
    const ae_overlap *o = &map->overlap;
    if (o->vocab_share >= AE_OVERLAP_MIN_VOCAB && o->text_share >= AE_OVERLAP_MIN_TEXT) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "the draft model \"%s\" (%s) shares %d of the %d tokens of \"%s\" (%s), %.1f%%, which make up %.1f%% of a "
                   "sample text; at least %.0f%% of the tokens and %.0f%% of the text are needed; use a draft model whose "
                   "tokenizer is closer to the target's, or --spec-type ngram, which needs no draft model",
                   draft_name, map->draft->kind, o->n_shared, o->n_target, target_name, map->target->kind, 100 * o->vocab_share,
                   100 * o->text_share, 100 * AE_OVERLAP_MIN_VOCAB, 100 * AE_OVERLAP_MIN_TEXT);
}

/* ---- A sequence in the drafter's tokens ------------------------------------------------------------------- */

/* A word that has WORD_TOKENS tokens ends after the next whole character, and at the latest at WORD_TOKENS_MAX tokens or
 * WORD_BYTES bytes. Memory is reserved for tokens of up to LONG_BYTES, since a hostile file may have tokens of any length. */
enum { WORD_TOKENS = 16, WORD_TOKENS_MAX = 24, WORD_BYTES = 1024, LONG_BYTES = 4096 };

void ae_retext_free(ae_retext *r)
{
    ae_tokens_free(&r->seen);
    ae_tokens_free(&r->drafts);
    ae_free(r->words);
    ae_buf_free(&r->spelling);
    *r = (ae_retext){.map = r->map, .memory = r->memory};
}

size_t ae_vocab_map_word_bytes(const ae_vocab_map *map)
{
    return WORD_BYTES + (map->longest < LONG_BYTES ? map->longest : LONG_BYTES);
}

static bool reserve_words(ae_retext *r, size_t capacity)
{
    if (capacity <= r->capacity) return true;
    struct ae_retext_word *words = ae_realloc(r->words, capacity, sizeof *words);
    if (!words) return false;
    r->words = words;
    r->capacity = capacity;
    return true;
}

aerie_status ae_retext_reserve(ae_retext *r, size_t n_seen, size_t n_drafts, aerie_error *error)
{
    /* the last word may exceed n_drafts: each of its bytes may become an unknown character of three byte tokens, and BOS may be
     * added */
    const size_t n_word = ae_vocab_map_word_bytes(r->map);
    size_t n_all;
    r->most = n_drafts;
    if (ae_add_size(n_drafts, 3 * n_word + 4, &n_all) && ae_tokens_reserve(&r->seen, n_seen) &&
        ae_tokens_reserve(&r->drafts, n_all) && reserve_words(r, n_seen) && ae_buf_reserve(&r->spelling, n_word))
        return AERIE_OK;
    if (r->spelling.failed) ae_buf_free(&r->spelling); /* only freeing clears a failure */
    return ae_fail_memory(error, "the drafter's tokens", n_seen);
}

static bool is_plain(const ae_vocab *vocab, int32_t id)
{
    return class_of(vocab, id) <= CLASS_BYTE;
}

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns whether a word begins at tokens[i], given that the one before begins at tokens[begin]. Depends on tokens[0..i]
 * only. */
static bool begins_word(const ae_vocab *vocab, const int32_t *tokens, size_t begin, size_t i, bool whole)
{
    if (i == begin || !is_plain(vocab, tokens[i]) || !is_plain(vocab, tokens[i - 1])) return true;
    if (i - begin >= WORD_TOKENS_MAX || (i - begin >= WORD_TOKENS && whole)) return true;
    uint32_t n, n_before;
    const char *piece = ae_strings_get(&vocab->pieces, tokens[i], &n);
    const char *before = ae_strings_get(&vocab->pieces, tokens[i - 1], &n_before);
    return n && is_white(piece[0]) && !(n_before && is_white(before[n_before - 1]));
}

/* Returns the end of the word that begins at tokens[begin], and leaves its text in r->spelling. */
static size_t read_word(ae_retext *r, const int32_t *tokens, size_t n, size_t begin)
{
    const ae_vocab *vocab = r->map->target;
    size_t i = begin;
    ae_buf_clear(&r->spelling);
    do {
        uint32_t n_piece;
        const char *piece = ae_strings_get(&vocab->pieces, tokens[i++], &n_piece);
        ae_buf_add(&r->spelling, piece, n_piece);
    } while (i < n && !r->spelling.failed && r->spelling.n < WORD_BYTES &&
             !begins_word(vocab, tokens, begin, i, !ae_uni_incomplete(r->spelling.data, r->spelling.n)));
    return i;
}

static bool add_begin(ae_retext *r, size_t begin)
{
    if (r->n_words == r->capacity && !reserve_words(r, r->capacity ? 2 * r->capacity : 64)) return false;
    r->words[r->n_words++] = (struct ae_retext_word){(uint32_t)begin, (uint32_t)r->drafts.n};
    return true;
}

static aerie_status add_word(ae_retext *r, const int32_t *tokens, size_t begin, size_t end, aerie_error *error)
{
    const ae_vocab_map *map = r->map;
    bool ok = true, spell = false;
    for (size_t i = begin; i < end; i++) spell = spell || map->to_draft[tokens[i]] == AE_MAP_TEXT;
    /* the drafter may need a BOS that the target does not have; a BOS that both have is in the sequence */
    const bool needs_bos = ae_vocab_adds_bos(map->draft) && !ae_vocab_adds_bos(map->target);
    if (begin == 0 && needs_bos && map->to_draft[tokens[0]] != map->draft->bos) ok = ae_tokens_add(&r->drafts, map->draft->bos);
    if (spell) {
        const ae_encode_options inside = {.inside = true};
        r->n_spelled_bytes += r->spelling.n;
        if (r->memory) AE_TRY(ae_vocab_encode_in(r->memory, r->spelling.data, r->spelling.n, inside, &r->drafts, error));
        else AE_TRY(ae_vocab_encode(map->draft, r->spelling.data, r->spelling.n, inside, &r->drafts, error));
    }
    for (size_t i = begin; ok && i < end; i++) {
        const int32_t draft = map->to_draft[tokens[i]];
        if (!spell && draft >= 0) ok = ae_tokens_add(&r->drafts, draft);
        ok = ok && ae_tokens_add(&r->seen, tokens[i]);
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "the drafter's tokens", r->drafts.n * sizeof(int32_t));
}

/* Drops the words that these tokens may change: all from the word that the first different token may belong to, or the last
 * word, which may continue. */
static void keep_common(ae_retext *r, const int32_t *tokens, size_t n)
{
    size_t same = 0;
    while (same < n && same < r->seen.n && r->seen.data[same] == tokens[same]) same++;
    if (same == n && same == r->seen.n) return;
    while (r->n_words) {
        const struct ae_retext_word *last = &r->words[--r->n_words];
        r->seen.n = last->seen;
        r->drafts.n = last->drafts;
        if (last->seen < same) break;
    }
}

aerie_status ae_retext_update(ae_retext *r, const int32_t *tokens, size_t n, aerie_error *error)
{
    keep_common(r, tokens, n);
    aerie_status status = AERIE_OK;
    for (size_t i = r->seen.n; i < n && status == AERIE_OK && !(r->most && r->drafts.n >= r->most);) {
        const size_t end = read_word(r, tokens, n, i);
        const struct ae_retext_word at = {(uint32_t)i, (uint32_t)r->drafts.n};
        if (r->spelling.failed || !add_begin(r, i)) status = ae_fail_memory(error, "a word's text", r->spelling.n);
        else status = add_word(r, tokens, i, end, error);
        i = end;
        if (status == AERIE_OK) continue;
        r->seen.n = at.seen;
        r->drafts.n = at.drafts;
        while (r->n_words && r->words[r->n_words - 1].seen >= at.seen) r->n_words--;
        ae_buf_free(&r->spelling); /* only freeing clears a failure */
    }
    return status;
}
