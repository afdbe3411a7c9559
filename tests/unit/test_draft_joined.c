/* test_draft_joined.c - two drafters in one tree: their nodes, which of them is asked, and what is passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fail_alloc.h"
#include "draft/drafter.h"

/* A drafter with prescribed drafts that counts its calls. */
typedef struct parrot {
    ae_drafter base;
    ae_tree says;
    ae_draft_cost cost;
    uint32_t n_asked, n_observed, n_destroyed, last_slot;
} parrot;

static uint32_t parrot_begin(ae_drafter *d, const ae_draft_begin *begin)
{
    (void)d;
    return begin->n_shared / 2;
}

static void parrot_observe(ae_drafter *d, const ae_draft_seen *seen)
{
    ((parrot *)d)->n_observed += seen->n;
}

static aerie_status parrot_propose(ae_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    parrot *p = (parrot *)d;
    (void)error;
    for (uint32_t i = 0; i < n; i++) {
        *requests[i].tree = p->says;
        p->last_slot = requests[i].slot;
    }
    p->n_asked += n;
    d->cost = p->cost;
    return AERIE_OK;
}

static void parrot_destroy(ae_drafter *d) { ((parrot *)d)->n_destroyed++; }

static const ae_drafter_ops parrot_ops = {.name = "parrot", .begin = parrot_begin, .observe = parrot_observe,
                                          .propose = parrot_propose, .destroy = parrot_destroy};

static ae_drafter *joined(parrot *p, uint32_t n_slots)
{
    ae_drafter *d;
    *p = (parrot){.base.ops = &parrot_ops};
    assert_int_equal(ae_draft_joined_create(&d, &p->base, n_slots, 0, NULL), AERIE_OK);
    for (uint32_t i = 0; i < n_slots; i++) d->ops->begin(d, &(ae_draft_begin){.slot = i, .donor = i});
    return d;
}

/* 1 2 3 4 5 once, then 1 2 3 again: n-grams go on with 4 5. */
static const int32_t text[] = {9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
#define N_TEXT (sizeof text / sizeof text[0])

/* Asks as the speculation loop does: n-grams first, then the other drafter adds to them. */
static aerie_status propose(ae_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const aerie_status status = d->ops->propose_ngrams(d, requests, n, error);
    return status == AERIE_OK ? d->ops->propose(d, requests, n, error) : status;
}

static ae_draft_request request_of(uint32_t depth, uint32_t nodes, ae_draft_shape shape, ae_tree *tree)
{
    tree->n = 0;
    return (ae_draft_request){.tokens = text, .n_tokens = N_TEXT, .max_depth = depth, .max_nodes = nodes, .shape = shape,
                              .tree = tree};
}

static ae_tree ngrams_alone(uint32_t depth, ae_draft_shape shape)
{
    ae_drafter *d;
    ae_tree tree;
    const ae_draft_request r = request_of(depth, AERIE_MAX_DRAFT, shape, &tree);
    assert_int_equal(ae_draft_ngram_create(&d, 1, 0, NULL), AERIE_OK);
    d->ops->begin(d, &(ae_draft_begin){0});
    assert_int_equal(d->ops->propose(d, &r, 1, NULL), AERIE_OK);
    d->ops->destroy(d);
    assert_true(tree.n >= 2 && tree.token[0] == 4);
    return tree;
}

static void test_trees_are_united(void **state)
{
    (void)state;
    parrot p;
    ae_drafter *d = joined(&p, 1);
    ae_tree tree;
    const ae_tree alone = ngrams_alone(8, AE_DRAFT_TREE);
    const int32_t five = ae_tree_child(&alone, 0, 5);
    assert_true(five > 0);
    /* the other: 4 (then 7), and 6 */
    ae_tree_add(&p.says, -1, 4, 0.5f);
    ae_tree_add(&p.says, 0, 7, 0.25f);
    ae_tree_add(&p.says, -1, 6, 0.125f);
    const ae_draft_request r = request_of(8, AERIE_MAX_DRAFT, AE_DRAFT_TREE, &tree);
    assert_int_equal(propose(d, &r, 1, NULL), AERIE_OK);
    assert_true(ae_tree_is_sound(&tree, 10));
    assert_int_equal(tree.n, alone.n + 2); /* 4 is one node */
    const int32_t four = ae_tree_child(&tree, -1, 4), seven = ae_tree_child(&tree, four, 7), six = ae_tree_child(&tree, -1, 6);
    assert_true(four >= 0 && seven >= 0 && six >= 0 && ae_tree_child(&tree, four, 5) >= 0);
    assert_float_equal(tree.p[four], 1 - (1 - 0.5f) * (1 - alone.p[0]), 1e-6);
    assert_float_equal(tree.p[seven], 0.25f, 0);
    assert_float_equal(tree.p[ae_tree_child(&tree, four, 5)], alone.p[five], 0);
    d->ops->destroy(d);
    assert_int_equal(p.n_destroyed, 1);
}

static void test_the_most_probable_paths_stay(void **state)
{
    (void)state;
    parrot p;
    ae_drafter *d = joined(&p, 1);
    ae_tree tree;
    /* a full tree of little probability: 64 nodes beside the n-gram's two best */
    for (int32_t i = 0; i < AERIE_MAX_DRAFT; i++) ae_tree_add(&p.says, i % 8 ? i - 1 : -1, 20 + i, 0.05f);
    for (uint32_t most = 1; most <= AERIE_MAX_DRAFT; most += 21) {
        const ae_draft_request r = request_of(8, most, AE_DRAFT_TREE, &tree);
        assert_int_equal(propose(d, &r, 1, NULL), AERIE_OK);
        assert_true(ae_tree_is_sound(&tree, 100));
        assert_int_equal(tree.n, most);
        assert_true(ae_tree_child(&tree, -1, 4) >= 0);
        if (most > 1) assert_true(ae_tree_child(&tree, ae_tree_child(&tree, -1, 4), 5) >= 0);
    }
    d->ops->destroy(d);
}

static void test_a_chain_is_the_better_one(void **state)
{
    (void)state;
    for (int better = 0; better < 2; better++) {
        parrot p;
        ae_drafter *d = joined(&p, 1);
        ae_tree tree;
        ae_tree_add(&p.says, -1, 6, better ? 0.9f : 0.1f);
        ae_tree_add(&p.says, 0, 7, better ? 0.9f : 0.1f);
        const ae_draft_request r = request_of(4, AERIE_MAX_DRAFT, AE_DRAFT_CHAIN, &tree);
        assert_int_equal(propose(d, &r, 1, NULL), AERIE_OK);
        assert_int_equal(tree.token[0], better ? 6 : 4);
        for (uint32_t i = 0; i < tree.n; i++) assert_int_equal(tree.parent[i], (int32_t)i - 1);
        d->ops->destroy(d);
    }
}

static void test_ngrams_cost_no_network(void **state)
{
    (void)state;
    parrot p;
    ae_drafter *d = joined(&p, 2);
    ae_tree trees[2];
    p.says.n = 0;
    ae_tree_add(&p.says, -1, 8, 0.5f);
    p.cost = (ae_draft_cost){.n_levels = 2, .first_seconds = 0.5, .other_seconds = 0.25};
    ae_draft_request r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = request_of(4, AERIE_MAX_DRAFT, AE_DRAFT_TREE, &trees[i]);
        r[i].slot = i;
    }
    assert_int_equal(d->ops->propose_ngrams(d, r, 2, NULL), AERIE_OK);
    assert_true(p.n_asked == 0 && trees[0].token[0] == 4 && trees[1].token[0] == 4);
    assert_int_equal(d->ops->propose(d, &r[1], 1, NULL), AERIE_OK); /* for one of them */
    assert_true(p.n_asked == 1 && p.last_slot == 1);
    assert_true(ae_tree_child(&trees[0], -1, 8) < 0);
    const int32_t eight = ae_tree_child(&trees[1], -1, 8), four = ae_tree_child(&trees[1], -1, 4);
    assert_true(eight >= 0 && four >= 0);
    assert_int_equal(trees[1].from[eight], AE_FROM_NETWORK);
    assert_int_equal(trees[1].from[four], AE_FROM_NGRAM);
    assert_true(d->cost.n_levels == 2 && d->cost.first_seconds == 0.5 && d->cost.other_seconds == 0.25);
    d->ops->destroy(d);
}

static void test_what_is_the_others_alone(void **state)
{
    (void)state;
    parrot p;
    ae_drafter *d = joined(&p, 2);
    ae_tree trees[3];
    ae_draft_request r[3];
    ae_tree_add(&p.says, -1, 8, 0.5f);
    for (int shape = AE_DRAFT_STATIC; shape <= AE_DRAFT_DYNAMIC; shape++) { /* shapes of heads are theirs alone */
        r[0] = request_of(4, AERIE_MAX_DRAFT, (ae_draft_shape)shape, &trees[0]);
        assert_int_equal(propose(d, r, 1, NULL), AERIE_OK);
        assert_true(trees[0].n == 1 && trees[0].token[0] == 8);
    }
    assert_int_equal(d->ops->begin(d, &(ae_draft_begin){.slot = 1, .n_shared = 10}), 5);
    d->ops->observe(d, &(ae_draft_seen){.n = 3});
    assert_int_equal(p.n_observed, 3);
    aerie_error error;
    for (int i = 0; i < 3; i++) r[i] = request_of(4, AERIE_MAX_DRAFT, AE_DRAFT_TREE, &trees[i]);
    assert_int_equal(d->ops->propose(d, r, 3, &error), AERIE_ERROR_ARGUMENT);
    d->ops->destroy(d);
}

static void test_the_other_is_freed_when_memory_ends(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        parrot p = {.base.ops = &parrot_ops};
        ae_drafter *d;
        fail_alloc_arm(n, false);
        const aerie_status status = ae_draft_joined_create(&d, &p.base, 3, 0, NULL);
        if (status == AERIE_OK) d->ops->destroy(d);
        assert_int_equal(p.n_destroyed, 1);
        if (!fail_alloc_disarm()) break;
        assert_int_equal(status, AERIE_ERROR_MEMORY);
        assert_true(!d && fail_alloc_live() == 0);
    }
    assert_true(fail_alloc_calls() >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees_are_united),
        cmocka_unit_test(test_the_most_probable_paths_stay),
        cmocka_unit_test(test_a_chain_is_the_better_one),
        cmocka_unit_test(test_ngrams_cost_no_network),
        cmocka_unit_test(test_what_is_the_others_alone),
        cmocka_unit_test(test_the_other_is_freed_when_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
