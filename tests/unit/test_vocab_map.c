/* test_vocab_map.c - two vocabularies: which tokens are the same, and sequences of one in the tokens of the other.
 *
 * Vocabularies that differ in order, merges, size and kind, all pairs of them. Properties of every pair, roles, refusals;
 * sequences that grow, shrink and change, compared with the same ones made at once; cost and memory; every allocation failing.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "mkmodel.h"
#include "text/token/vocab_int.h"
#include "text/token/vocab_map.h"

static const struct made {
    const char *kind;
    uint64_t order;
    uint32_t n_vocab;
    const char *pre; /* NULL: the usual one */
} made[] = {
    {"bpe", 0, 319, NULL}, {"bpe", 5, 319, NULL}, {"bpe", 0, 400, NULL}, {"bpe", 9, 290, NULL}, {"bpe-other", 0, 330, NULL},
    {"spm", 0, 420, NULL}, {"spm", 3, 420, NULL},
};
enum { N_MADE = sizeof made / sizeof made[0], USUAL = 0, SHUFFLED = 1, LARGER = 2, SMALLER = 3, OTHER = 4, SENTENCE = 5 };
static ae_vocab *vocabs[N_MADE], *foreign;

static ae_vocab *make(const struct made *m)
{
    char path[] = "/tmp/aerie_map_XXXXXX";
    mk_options o;
    ae_gguf *gguf;
    ae_vocab *vocab;
    aerie_error error = {0};
    const int file = mkstemp(path);
    assert_true(file >= 0 && close(file) == 0 && mk_shape("tiny", &o));
    o.vocab = m->kind, o.vocab_order = m->order, o.n_vocab = m->n_vocab, o.n_layers = 1, o.pre = m->pre;
    if (mk_model(&o, path, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (ae_vocab_create(&vocab, gguf, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_gguf_close(gguf);
    unlink(path);
    return vocab;
}

static int make_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MADE; i++) vocabs[i] = make(&made[i]);
    foreign = make(&(struct made){"foreign", 0, 319, NULL});
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MADE; i++) ae_vocab_free(vocabs[i]);
    ae_vocab_free(foreign);
    return 0;
}

static ae_vocab_map *map_of(const ae_vocab *target, const ae_vocab *draft)
{
    ae_vocab_map *map;
    aerie_error error = {0};
    if (ae_vocab_map_create(&map, target, draft, &error) != AERIE_OK) fail_msg("%s", error.text);
    return map;
}

static int32_t find(const ae_vocab *vocab, const char *piece)
{
    for (int32_t id = 0; id < ae_vocab_n_tokens(vocab); id++) {
        uint32_t n;
        const char *bytes = ae_strings_get(&vocab->pieces, id, &n);
        if (n == strlen(piece) && !memcmp(bytes, piece, n) && vocab->types[id] != AE_TOKEN_BYTE) return id;
    }
    return -1;
}

/* ---- The map ------------------------------------------------------------------------------------------ */

static bool same_bytes(const ae_vocab *a, int32_t i, const ae_vocab *b, int32_t k)
{
    uint32_t n, m;
    const char *x = ae_strings_get(&a->pieces, i, &n), *y = ae_strings_get(&b->pieces, k, &m);
    return n == m && !memcmp(x, y, n);
}

static void check_map(const ae_vocab *target, const ae_vocab *draft)
{
    ae_vocab_map *map = map_of(target, draft);
    const int32_t *targets, *drafts;
    const uint32_t n = ae_vocab_map_pairs(map, &targets, &drafts);
    bool taken[512] = {false}, paired[512] = {false};
    assert_true(n > 150);
    for (uint32_t i = 0; i < n; i++) {
        if (i) assert_true(targets[i] > targets[i - 1]);
        assert_in_range(drafts[i], 0, ae_vocab_n_tokens(draft) - 1);
        assert_false(taken[drafts[i]]);
        taken[drafts[i]] = paired[targets[i]] = true;
        assert_int_equal(ae_vocab_map_to_draft(map, targets[i]), drafts[i]);
        assert_int_equal(ae_vocab_is_control(target, targets[i]), ae_vocab_is_control(draft, drafts[i]));
        if (!ae_vocab_is_control(target, targets[i])) assert_true(same_bytes(target, targets[i], draft, drafts[i]));
    }
    /* nothing that could be shared is left out, except bytes that occur twice */
    for (int32_t i = 0; i < ae_vocab_n_tokens(target); i++) {
        if (ae_vocab_is_control(target, i) || target->types[i] == AE_TOKEN_UNUSED) continue;
        bool there = false;
        for (int32_t k = 0; k < ae_vocab_n_tokens(draft); k++)
            there = there || (!ae_vocab_is_control(draft, k) && draft->types[k] != AE_TOKEN_UNUSED &&
                              same_bytes(target, i, draft, k));
        if (there != (ae_vocab_map_to_draft(map, i) >= 0)) fail_msg("token %d: shared %d", i, there);
        if (there && !paired[i]) assert_int_equal(target->types[i], AE_TOKEN_BYTE);
    }
    const ae_overlap *o = ae_vocab_map_overlap(map);
    assert_true(o->n_shared <= o->n_target && o->n_shared <= o->n_draft && o->vocab_share <= 1 && o->text_share <= 1);
    assert_true(o->length_ratio > 0.3 && o->length_ratio < 3);
    aerie_error error = {0};
    if (ae_vocab_map_check(map, "a", "b", &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_vocab_map_free(map);
}

static void test_pairs_are_one_to_one_and_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MADE; i++)
        for (size_t k = 0; k < N_MADE; k++) check_map(vocabs[i], vocabs[k]);
}

static void test_another_order_is_the_same_vocabulary(void **state)
{
    (void)state;
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[SHUFFLED]);
    const ae_overlap *o = ae_vocab_map_overlap(map);
    assert_int_equal(o->n_shared, 319);
    assert_int_equal(o->n_target, 319);
    assert_true(o->vocab_share == 1 && o->text_share == 1 && o->length_ratio == 1);
    ae_vocab_map_free(map);
    map = map_of(vocabs[LARGER], vocabs[SMALLER]); /* 290: the last merges are missing, and all fillers */
    o = ae_vocab_map_overlap(map);
    assert_int_equal(o->n_target, 319);
    assert_int_equal(o->n_draft, 290);
    assert_int_equal(o->n_shared, 290);
    assert_true(o->text_share < 1 && o->text_share > 0.8);
    ae_vocab_map_free(map);
}

static void test_special_tokens_by_text_and_by_role(void **state)
{
    (void)state;
    static const char *const roles[][3] = { /* of kind: the beginning, the end */
        {"<|im_start|>", "<|im_end|>"}, {"<bos>", "<|eot_id|>"}, {"<s>", "</s>"},
    };
    static const size_t which[3] = {SHUFFLED, OTHER, SENTENCE};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            const ae_vocab *a = vocabs[which[i]], *b = vocabs[which[k]];
            ae_vocab_map *map = map_of(a, b);
            assert_int_equal(ae_vocab_map_to_draft(map, find(a, roles[i][1])), find(b, roles[k][1]));
            /* a drafter that wants no BOS gets none but its own */
            const int32_t want = i == k || which[k] == SENTENCE ? find(b, roles[k][0]) : AE_MAP_NOTHING;
            assert_int_equal(ae_vocab_map_to_draft(map, find(a, roles[i][0])), want);
            ae_vocab_map_free(map);
        }
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[OTHER]); /* an end of generation, but not the main one */
    assert_int_equal(ae_vocab_map_to_draft(map, MK_TOKEN_END), find(vocabs[OTHER], "<|eot_id|>"));
    ae_vocab_map_free(map);
    map = map_of(vocabs[OTHER], vocabs[SENTENCE]);
    assert_int_equal(ae_vocab_map_to_draft(map, 0), 0); /* <unk> */
    ae_vocab_map_free(map);
}

static void test_too_little_in_common_is_refused(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        ae_vocab_map *map = turned ? map_of(foreign, vocabs[USUAL]) : map_of(vocabs[USUAL], foreign);
        aerie_error error = {0};
        const aerie_status status = ae_vocab_map_check(map, "TARGET", "DRAFT", &error);
        /* both have the foreign vocabulary's tokens, but it cannot spell the sample, which is ASCII */
        if (!turned) {
            const char *const parts[] = {"TARGET", "DRAFT", "bpe/smollm", "163 of the 319", "51.1%", "50%", "ngram"};
            assert_int_equal(status, AERIE_ERROR_UNSUPPORTED);
            for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                if (!strstr(error.text, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], error.text);
        }
        assert_true(ae_vocab_map_overlap(map)->text_share < 0.5);
        ae_vocab_map_free(map);
    }
}

/* ---- Sequences -------------------------------------------------------------------------------------------- */

static ae_buf text_of(const ae_vocab *vocab, const int32_t *tokens, size_t n)
{
    ae_buf text = {0};
    ae_buf_adds(&text, "");
    for (size_t i = 0; i < n; i++) ae_vocab_piece(vocab, tokens[i], false, &text);
    return text;
}

static void update(ae_retext *r, const int32_t *tokens, size_t n)
{
    aerie_error error = {0};
    if (ae_retext_update(r, tokens, n, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(r->seen.n, n);
    if (n) assert_memory_equal(r->seen.data, tokens, n * sizeof *tokens);
}

static void same_as_from_nothing(const ae_retext *r, const int32_t *tokens, size_t n)
{
    ae_retext fresh = {.map = r->map};
    update(&fresh, tokens, n);
    assert_int_equal(r->drafts.n, fresh.drafts.n);
    if (r->drafts.n) assert_memory_equal(r->drafts.data, fresh.drafts.data, r->drafts.n * sizeof(int32_t));
    ae_retext_free(&fresh);
}

/* Text, mostly; some control tokens, some bytes that are not characters. */
static size_t write_tokens(const ae_vocab *vocab, uint64_t *random, int32_t *tokens, size_t most)
{
    static const char *const words[] = {"the", " harbour", " was", " quiet", "\n", "  ", " naïve", " 中文字", "the and", "x",
                                        " unanswerable", "1234", " would", "\xff", " Zürich", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    size_t n = 0;
    while (n < most) {
        if (mk_random(random) % 8 == 0) {
            tokens[n++] = (int32_t)(mk_random(random) % (uint64_t)ae_vocab_n_tokens(vocab));
            continue;
        }
        const char *word = words[mk_random(random) % (sizeof words / sizeof *words)];
        ae_tokens ids = {0};
        const ae_encode_options inside = {.inside = true};
        assert_int_equal(ae_vocab_encode(vocab, word, strlen(word), inside, &ids, NULL), AERIE_OK);
        for (size_t i = 0; i < ids.n && n < most; i++) tokens[n++] = ids.data[i];
        ae_tokens_free(&ids);
    }
    return n;
}

static void check_sequences(const ae_vocab *target, const ae_vocab *draft, uint64_t seed)
{
    enum { N = 220 };
    int32_t tokens[N];
    ae_vocab_map *map = map_of(target, draft);
    ae_retext r = {.map = map};
    uint64_t random = seed;
    for (int round = 0; round < 40; round++) {
        /* continues from some place, in steps like those of speculation */
        const size_t from = round ? mk_random(&random) % N : 0;
        const size_t end = from + write_tokens(target, &random, tokens + from, N - from);
        for (size_t n = from; n < end;) {
            n += 1 + mk_random(&random) % 6;
            if (n > end) n = end;
            update(&r, tokens, n);
            if (mk_random(&random) % 4 == 0) same_as_from_nothing(&r, tokens, n);
        }
        same_as_from_nothing(&r, tokens, end);
        ae_buf a = text_of(target, tokens, end), b = text_of(draft, r.drafts.data, r.drafts.n);
        /* control tokens may be spelled out or left away: compare where there are none */
        bool control = false;
        for (size_t i = 0; i < end; i++) control = control || ae_vocab_is_control(target, tokens[i]);
        if (!control) {
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.data, b.data, a.n);
        }
        ae_buf_free(&a);
        ae_buf_free(&b);
    }
    update(&r, tokens, 0);
    assert_int_equal(r.drafts.n, 0);
    ae_retext_free(&r);
    ae_vocab_map_free(map);
}

static void test_a_sequence_is_a_function_of_its_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MADE; i++)
        for (size_t k = 0; k < N_MADE; k++) check_sequences(vocabs[i], vocabs[k], 100 + i * N_MADE + k);
}

/* Drafted tokens come back as themselves: then the drafter's cache holds them already. */
static void test_shared_tokens_go_over_one_by_one(void **state)
{
    (void)state;
    int32_t tokens[300];
    uint64_t random = 4;
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[SHUFFLED]);
    ae_retext r = {.map = map};
    for (size_t i = 0; i < 300; i++) tokens[i] = (int32_t)(mk_random(&random) % 319);
    update(&r, tokens, 300);
    assert_int_equal(r.drafts.n, 300);
    assert_int_equal(r.n_spelled_bytes, 0);
    for (size_t i = 0; i < 300; i++) assert_int_equal(r.drafts.data[i], ae_vocab_map_to_draft(map, tokens[i]));
    ae_retext_free(&r);
    ae_vocab_map_free(map);
}

/* A word with a token that the drafter lacks becomes the tokens of the drafter's own tokenizer. */
static void test_words_are_spelled_as_the_drafter_learned_them(void **state)
{
    (void)state;
    /* both have " the"; the drafter lacks " th" and " h", tokens of the target in the other words */
    static const char text[] = " the that harbour", lacking[] = " that harbour";
    ae_tokens targets = {0}, drafts = {0};
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[OTHER]);
    ae_retext r = {.map = map};
    assert_int_equal(ae_vocab_encode(vocabs[USUAL], text, sizeof text - 1, (ae_encode_options){0}, &targets, NULL), AERIE_OK);
    const ae_encode_options inside = {.inside = true};
    assert_int_equal(ae_vocab_encode(vocabs[OTHER], lacking, sizeof lacking - 1, inside, &drafts, NULL), AERIE_OK);
    for (size_t n = 1; n <= targets.n; n++) update(&r, targets.data, n);
    assert_int_equal(targets.data[0], find(vocabs[USUAL], " the"));
    assert_int_equal(r.drafts.data[0], find(vocabs[OTHER], " the"));
    assert_int_equal(r.drafts.n, 1 + drafts.n);
    assert_memory_equal(r.drafts.data + 1, drafts.data, drafts.n * sizeof *drafts.data);
    ae_tokens_free(&targets);
    ae_tokens_free(&drafts);
    ae_retext_free(&r);
    ae_vocab_map_free(map);
}

static void test_each_token_costs_a_word_at_most(void **state)
{
    (void)state;
    enum { N = 4000 };
    static int32_t tokens[N];
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[SENTENCE]);
    for (int kind = 0; kind < 3; kind++) {
        ae_retext r = {.map = map};
        uint64_t random = 17;
        /* text; one endless word of a token that the drafter lacks; with first bytes of characters between */
        const int32_t lacking = find(vocabs[USUAL], "ion");
        if (!kind) write_tokens(vocabs[USUAL], &random, tokens, N);
        else for (size_t i = 0; i < N; i++) tokens[i] = kind == 1 || i % 3 ? lacking : find(vocabs[USUAL], "\xe4");
        for (size_t n = 1; n <= N; n++) update(&r, tokens, n);
        uint32_t longest = 0;
        for (size_t i = 0; i < N; i++) {
            uint32_t n;
            ae_strings_get(&vocabs[USUAL]->pieces, tokens[i], &n);
            if (n > longest) longest = n;
        }
        assert_true(r.n_spelled_bytes <= (uint64_t)N * 24 * longest);
        same_as_from_nothing(&r, tokens, N);
        ae_retext_free(&r);
    }
    ae_vocab_map_free(map);
}

/* A sequence takes no more memory than was reserved, whatever its tokens are. Returns the number of bytes that were spelled. */
static uint64_t check_memory(const ae_vocab *target, const ae_vocab *draft, uint64_t seed)
{
    enum { N = 220, ROUNDS = 6 };
    int32_t tokens[N];
    aerie_error error = {0};
    ae_vocab_map *map = map_of(target, draft);
    ae_retext r = {.map = map};
    if (ae_encode_memory_create(&r.memory, draft, ae_vocab_map_word_bytes(map), &error) != AERIE_OK) fail_msg("%s", error.text);
    if (ae_retext_reserve(&r, N, 64 * N, &error) != AERIE_OK) fail_msg("%s", error.text);
    uint64_t random = seed;
    for (int round = 0; round < ROUNDS; round++) {
        write_tokens(target, &random, tokens, N);
        for (int32_t id = 0, n = 0; round == 1 && id < ae_vocab_n_tokens(target); id++) { /* one word of the greatest possible
                                                                                           * length */
            uint32_t length;
            ae_strings_get(&target->pieces, id, &length);
            if (length < 3 || ae_vocab_map_to_draft(map, id) != AE_MAP_TEXT) continue;
            while (n < N) tokens[n++] = id;
        }
        fail_alloc_arm(0, false);
        for (size_t n = 1; n <= N; n += 1 + n % 5) assert_int_equal(ae_retext_update(&r, tokens, n, &error), AERIE_OK);
        assert_int_equal(ae_retext_update(&r, tokens, N, &error), AERIE_OK);
        const long n_calls = fail_alloc_calls();
        fail_alloc_disarm();
        if (n_calls) fail_msg("%s for %s, round %d: %ld allocations", draft->kind, target->kind, round, n_calls);
        same_as_from_nothing(&r, tokens, N);
    }
    const uint64_t n_spelled = r.n_spelled_bytes;
    ae_encode_memory_free(r.memory);
    ae_retext_free(&r);
    ae_vocab_map_free(map);
    return n_spelled;
}

static void test_what_is_reserved_is_all_that_is_taken(void **state)
{
    (void)state;
    static const char *const patterns[] = {"deepseek-v3", "falcon", "bloom", "exaone-moe"};
    for (size_t i = 0; i < N_MADE; i++)
        for (size_t k = 0; k < N_MADE; k++) check_memory(vocabs[i], vocabs[k], 300 + i * N_MADE + k);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) { /* words are cut by PCRE2 */
        ae_vocab *draft = make(&(struct made){"bpe-other", 0, 330, patterns[i]});
        assert_true(check_memory(vocabs[USUAL], draft, 400 + i) > 0);
        assert_true(check_memory(vocabs[SENTENCE], draft, 500 + i) > 0);
        ae_vocab_free(draft);
    }
}

/* A drafter's context may be full while the target goes on. */
static void test_a_sequence_ends_where_no_more_is_wanted(void **state)
{
    (void)state;
    enum { N = 220, MOST = 70 };
    int32_t tokens[N];
    uint64_t random = 23;
    aerie_error error = {0};
    ae_vocab_map *map = map_of(vocabs[USUAL], vocabs[SENTENCE]);
    ae_retext r = {.map = map}, whole = {.map = map};
    write_tokens(vocabs[USUAL], &random, tokens, N);
    update(&whole, tokens, N);
    assert_int_equal(ae_retext_reserve(&r, N, MOST, &error), AERIE_OK);
    for (size_t n = 1; n <= N; n++) {
        assert_int_equal(ae_retext_update(&r, tokens, n, &error), AERIE_OK);
        assert_true(r.seen.n == n || r.drafts.n >= MOST);
    }
    assert_true(r.seen.n < N && r.drafts.n >= MOST && r.drafts.n < whole.drafts.n);
    assert_memory_equal(r.drafts.data, whole.drafts.data, r.drafts.n * sizeof(int32_t));
    update(&r, tokens, 9);
    same_as_from_nothing(&r, tokens, 9);
    ae_retext_free(&r);
    ae_retext_free(&whole);
    ae_vocab_map_free(map);
}

/* ---- Failures ------------------------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    int32_t tokens[64];
    uint64_t random = 77;
    write_tokens(vocabs[USUAL], &random, tokens, 64);
    for (int forever = 0; forever < 2; forever++)
        for (long n = 1;; n++) {
            aerie_error error = {0};
            ae_vocab_map *map;
            fail_alloc_arm(n, forever);
            aerie_status status = ae_vocab_map_create(&map, vocabs[USUAL], vocabs[SENTENCE], &error);
            ae_retext r = {.map = map};
            if (status == AERIE_OK) {
                status = ae_encode_memory_create(&r.memory, vocabs[SENTENCE], ae_vocab_map_word_bytes(map), &error);
            }
            if (status == AERIE_OK) status = ae_retext_reserve(&r, 16, 4096, &error); /* for some of them */
            for (size_t k = 8; status == AERIE_OK && k <= 64; k += 8) {
                status = ae_retext_update(&r, tokens, k, &error);
                assert_true(r.seen.n <= k);
            }
            const bool failed = fail_alloc_disarm();
            if (status != AERIE_OK) assert_int_equal(status, AERIE_ERROR_MEMORY);
            if (status != AERIE_OK && map) { /* it continues from where it was */
                update(&r, tokens, 64);
                same_as_from_nothing(&r, tokens, 64);
            }
            ae_encode_memory_free(r.memory);
            ae_retext_free(&r);
            ae_vocab_map_free(map);
            if (failed) continue;
            assert_int_equal(status, AERIE_OK);
            break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_one_to_one_and_complete),
        cmocka_unit_test(test_another_order_is_the_same_vocabulary),
        cmocka_unit_test(test_special_tokens_by_text_and_by_role),
        cmocka_unit_test(test_too_little_in_common_is_refused),
        cmocka_unit_test(test_a_sequence_is_a_function_of_its_tokens),
        cmocka_unit_test(test_shared_tokens_go_over_one_by_one),
        cmocka_unit_test(test_words_are_spelled_as_the_drafter_learned_them),
        cmocka_unit_test(test_each_token_costs_a_word_at_most),
        cmocka_unit_test(test_what_is_reserved_is_all_that_is_taken),
        cmocka_unit_test(test_a_sequence_ends_where_no_more_is_wanted),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("vocabulary map", tests, make_all, drop_all);
}
