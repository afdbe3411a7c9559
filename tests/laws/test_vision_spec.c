/* test_vision_spec.c - drafters and prompts of which some positions are not tokens.
 *
 * Every drafter, chains and trees: the bytes of an answer without drafts. Heads are fed the rows (a picture of tokens'
 * embeddings drafts as the tokens do), draft models read the text alone. Failures of other engines are tested under their
 * numbers there (llama.cpp's, unless noted).
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "engine/media.h"
#include "every.h"
#include "vision_rig.inc"

static const struct {
    const char *kind;
    aerie_spec_type type;
    uint32_t models; /* a bit for each model for which there is such a head */
} kinds[] = {{"eagle", AERIE_SPEC_EAGLE, 7},     {"eagle3", AERIE_SPEC_EAGLE3, 15}, {"eagle3.1", AERIE_SPEC_EAGLE3, 7},
             {"medusa", AERIE_SPEC_MEDUSA, 15},  {"mtp", AERIE_SPEC_MTP, 9},        {"dflash", AERIE_SPEC_DFLASH, 3},
             {"dspark", AERIE_SPEC_DSPARK, 3}};
enum { N_HEADS = sizeof kinds / sizeof *kinds, MTP = 4 };

static bool has_head(int m, int kind)
{
    return kinds[kind].models >> m & 1;
}

/* A head of this kind; that of the recurrent model is its own MTP block, or made. */
static aerie_drafter_head *head_of(int m, int kind, uint32_t n_embd)
{
    aerie_error error = {0};
    aerie_drafter_head *head;
    char target[96];
    snprintf(target, sizeof target, "%s", path_of(names[m]));
    if (m == RECURRENT && kind == MTP) {
        need(aerie_drafter_head_load(&head, models[m], target, NULL, &error), &error);
        return head;
    }
    const mkhead_options o = {.kind = kinds[kind].kind, .seed = 4, .n_embd = n_embd};
    need(mkhead_write(&o, target, path_of("head"), &error), &error);
    need(aerie_drafter_head_load(&head, models[m], path_of("head"), NULL, &error), &error);
    unlink(path_of("head"));
    return head;
}

static void set_kind(int m)
{
    n_across = m >= DEEP ? 4 : 0;
}

static void plain(int m, run *want)
{
    answer_all(models[m], &(how){.n_batch = 512, .n_threads = 1, .n_seqs = 1}, m == 1, 1, want);
}

/* #22867, #23233, #22673: MTP met rows that are not tokens: an endless search, an assertion, a crash. #24816: EAGLE-3 beside
 * groups of Gemma found a hole in its positions. */
static void heads_change_nothing(void **state)
{
    (void)state;
    static const aerie_tree trees[] = {AERIE_TREE_OFF, AERIE_TREE_AUTO, AERIE_TREE_DYNAMIC};
    static run want, got;
    for (int m = 0; m < N_MODELS; m++) {
        set_kind(m);
        plain(m, &want);
        for (int i = 0; i < N_HEADS; i++) {
            if (!has_head(m, i)) continue;
            aerie_drafter_head *head = head_of(m, i, 0);
            for (uint32_t k = 0; k < 3; k++) {
                if (AE_TEST_EVERY > 4 && k != (uint32_t)(m + i) % 3) continue;
                const how h = {.n_batch = k ? 24 : 90, .n_threads = 1 + (k == 2), .n_seqs = k ? 8 : 1, .n_kv = k == 1 ? 320 : 0,
                               .type = kinds[i].type, .head = head, .tree = trees[k]};
                char what[80];
                snprintf(what, sizeof what, "%s, %s, tree %u", names[m], kinds[i].kind, k);
                answer_all(models[m], &h, m == 1, 2, &got);
                same_run(&got, &want, what);
                for (size_t r = 0; r < N_KINDS; r++)
                    if (!got.answers[r].stats.n_drafted) fail_msg("%s: request %zu was never drafted for", what, r);
            }
            aerie_drafter_head_free(head);
        }
        n_across = 0;
    }
}

/* The prompt of `before` twice and after[0]; in the second request its middle is given as rows, which are `scale` times the
 * tokens' embeddings. What was drafted for both. */
static void draft_for_both(int m, const how *h, float scale, run *got)
{
    static float rows[N_BEFORE * N_EMBD * (1 + N_DEEP)];
    const size_t width = m == DEEP ? N_EMBD * (1 + N_DEEP) : N_EMBD;
    aerie_error error = {0};
    aerie_request r[2] = {aerie_request_default(), aerie_request_default()};
    int32_t all[2 * N_BEFORE + N_AFTER];
    memset(rows, 0, sizeof rows);
    memcpy(all, before, sizeof before);
    memcpy(all + N_BEFORE, before, sizeof before);
    memcpy(all + 2 * N_BEFORE, after[0], sizeof after[0]);
    for (size_t k = 0; k < N_BEFORE; k++)
        for (size_t d = 0; d < N_EMBD; d++) rows[k * width + d] = scale * embedding[m][(size_t)before[k] * N_EMBD + d];
    const aerie_chunk chunks[] = {{.tokens = before, .n_tokens = N_BEFORE}, {.rows = rows, .n_rows = N_BEFORE},
                                  {.tokens = after[0], .n_tokens = N_AFTER}};
    r[0].tokens = all, r[0].n_tokens = 2 * N_BEFORE + N_AFTER;
    r[1].chunks = chunks, r[1].n_chunks = 3;
    memset(got, 0, sizeof *got);
    got->n = 2;
    for (int i = 0; i < 2; i++) {
        r[i].id = (size_t)i, r[i].n_predict = MAX_PREDICT, r[i].ignore_eos = true, r[i].sampling = sampling_of(1);
        aerie_session *session = open_session(models[m], h);
        static run one;
        memset(&one, 0, sizeof one);
        one.n = 1;
        need(aerie_session_generate(session, &r[i], 1, on_token, &one, &one.answers[0].stats, sizeof(aerie_stats), &error),
             &error);
        aerie_session_free(session);
        got->answers[i] = one.answers[0];
    }
}

static bool drafts_equal(const run *r)
{
    const aerie_stats *a = &r->answers[0].stats, *b = &r->answers[1].stats;
    return !memcmp(a->drafted_at, b->drafted_at, sizeof a->drafted_at) &&
           !memcmp(a->accepted_at, b->accepted_at, sizeof a->accepted_at);
}

/* #24669 and ik_llama.cpp's #1758 feed the rows; zeros (#27408) and a wrong position (#28715) cost acceptance: a head must
 * draft after rows as it does after the tokens whose embeddings they are, whatever the chunks. How many nodes trees have
 * depends on the probabilities, so it shows the numbers that the head has read. */
static void heads_read_rows_as_tokens(void **state)
{
    (void)state;
    static run same, other;
    for (int m = 0; m < N_MODELS; m++) {
        if (m == 1) continue; /* its head does not scale embeddings, as the model does */
        for (int i = 0; i < N_HEADS; i++) {
            if (!has_head(m, i) || (AE_TEST_EVERY > 4 && (m / 2 + i) % 2)) continue;
            aerie_drafter_head *head = head_of(m, i, 0);
            bool noticed = false;
            for (uint32_t n_batch = 17; n_batch <= 119; n_batch += 51) {
                const how h = {.n_batch = n_batch, .n_threads = 1, .n_seqs = 1, .type = kinds[i].type, .head = head,
                               .tree = AERIE_TREE_AUTO, .alone = true}; /* n-grams ignore rows */
                draft_for_both(m, &h, 1.0f, &same);
                same_answer(&same.answers[1], &same.answers[0], kinds[i].kind, 1);
                if (!drafts_equal(&same))
                    fail_msg("%s, %s, batch %u: %u drafted after tokens, %u after their embeddings", names[m], kinds[i].kind,
                             n_batch, same.answers[0].stats.n_drafted, same.answers[1].stats.n_drafted);
                draft_for_both(m, &h, 0.5f, &other);
                noticed |= !drafts_equal(&other);
            }
            assert_true(noticed); /* other rows are other drafts, or the test could not fail */
            aerie_drafter_head_free(head);
        }
    }
}

/* A head that is not as wide as its target cannot read its rows: it begins after the last of them. */
static void narrow_heads_begin_after_pictures(void **state)
{
    (void)state;
    static run want, got;
    plain(0, &want);
    aerie_drafter_head *head = head_of(0, 1, 96);
    const how h = {.n_batch = 24, .n_threads = 2, .n_seqs = 3, .type = AERIE_SPEC_EAGLE3, .head = head,
                   .tree = AERIE_TREE_AUTO};
    answer_all(models[0], &h, false, 2, &got);
    same_run(&got, &want, "a head of another width");
    for (size_t r = 0; r < N_KINDS; r++) assert_true(got.answers[r].stats.n_drafted > 0);
    aerie_drafter_head_free(head);
}

/* #28587: the window of a drafter's cache never gave up rows that were pinned to one position. */
static void windows_of_heads_go_on(void **state)
{
    (void)state;
    static run want, got;
    for (int m = 0; m < N_MODELS; m += DEEP) {
        set_kind(m);
        plain(m, &want);
        aerie_drafter_head *head = head_of(m, 1, 0);
        const how h = {.n_batch = 16, .n_threads = 1, .n_seqs = 2, .type = AERIE_SPEC_EAGLE3, .head = head, .window = 64,
                       .tree = AERIE_TREE_OFF};
        answer_all(models[m], &h, false, 3, &got);
        same_run(&got, &want, "a window of 64");
        for (size_t r = 0; r < N_KINDS; r++) assert_true(got.answers[r].stats.n_drafted > 0);
        aerie_drafter_head_free(head);
        n_across = 0;
    }
}

/* #23398: a draft model without a tower ended the server. #27408, #26108, #22105: one without several rotation positions met
 * those of its target. #25144: it reads the text alone, at positions of its own. */
static void draft_models_read_the_text(void **state)
{
    (void)state;
    static run want, got;
    for (int m = 0; m < N_MODELS; m++) {
        set_kind(m);
        plain(m, &want);
        for (uint32_t n_seqs = 1; n_seqs <= 8; n_seqs += 7) {
            const how h = {.n_batch = 32, .n_threads = 1, .n_seqs = n_seqs, .type = AERIE_SPEC_DRAFT, .draft = models[0],
                           .tree = n_seqs > 1 ? AERIE_TREE_AUTO : AERIE_TREE_OFF};
            answer_all(models[m], &h, m == 1, 2, &got);
            same_run(&got, &want, names[m]);
            for (size_t r = 0; r < N_KINDS; r++) assert_true(got.answers[r].stats.n_drafted > 0);
        }
        n_across = 0;
    }
}

/* The oracle is always right: no row after a picture is verified at a wrong position. */
static void oracles_are_always_right(void **state)
{
    (void)state;
    static run want, got;
    for (int m = 0; m < N_MODELS; m++) {
        set_kind(m);
        plain(m, &want);
        for (uint32_t k = 0; k < 4; k++) {
            if (AE_TEST_EVERY > 4 && k != (uint32_t)m) continue;
            const how h = {.n_batch = k < 2 ? 30 : 200, .n_threads = 1, .n_seqs = k < 2 ? 8 : 1, .type = AE_SPEC_ORACLE,
                           .tree = k % 2 ? AERIE_TREE_AUTO : AERIE_TREE_OFF, .truth = &want};
            answer_all(models[m], &h, m == 1, 2, &got);
            same_run(&got, &want, "oracle");
            for (size_t r = 0; r < N_KINDS && !(k % 2); r++) {
                assert_true(got.answers[r].stats.n_accepted > 10);
                assert_int_equal(got.answers[r].stats.n_drafted, got.answers[r].stats.n_accepted);
            }
        }
        n_across = 0;
    }
}

/* Positions of the first component: text goes on from the longer side of a grid, rows of a grid stay at its beginning. */
static void positions_count_grids_as_their_longer_side(void **state)
{
    (void)state;
    const ae_media media[] = {{.first = 3, .n = 6}, {.first = 10, .n = 12, .n_across = 4},
                              {.first = 22, .n = 2, .n_across = 1}};
    const struct {
        uint32_t position, turned;
    } known[] = {{0, 0}, {3, 3}, {8, 8}, {9, 9}, {10, 10}, {11, 10}, {21, 10}, {22, 14}, {23, 14}, {24, 16}, {30, 22}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(ae_media_turned(media, 3, known[i].position), known[i].turned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_change_nothing),   cmocka_unit_test(heads_read_rows_as_tokens),
        cmocka_unit_test(narrow_heads_begin_after_pictures), cmocka_unit_test(windows_of_heads_go_on),
        cmocka_unit_test(draft_models_read_the_text), cmocka_unit_test(oracles_are_always_right),
        cmocka_unit_test(positions_count_grids_as_their_longer_side),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
