/* test_shares.c - the shares of a group's machines by their speed and memory (session/group/shares.h), and how `auto` divides a
 * model over them (session/group/forms.h): by given links, without a clock. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "mkarch.h"
#include "session/group/forms.h"
#include "session/group/shares.h"

#define GIB ((uint64_t)1 << 30)

static void expect(const ae_group_speed *all, uint32_t n, uint64_t bytes, const uint32_t *wanted)
{
    uint32_t shares[8];
    ae_group_shares(all, n, bytes, shares);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(shares[i], wanted[i]);
}

static void test_by_speed(void **state)
{
    (void)state;
    expect((ae_group_speed[]){{100, 0, 0}, {100, 0, 0}}, 2, GIB, (uint32_t[]){8, 8});
    expect((ae_group_speed[]){{100, 0, 0}, {96, 0, 0}, {50, 0, 0}, {1, 0, 0}}, 4, GIB, (uint32_t[]){8, 8, 4, 1});
    expect((ae_group_speed[]){{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 3, GIB, (uint32_t[]){8, 8, 8}); /* no machine could measure */
    expect((ae_group_speed[]){{0, 0, 0}, {5, 0, 0}}, 2, GIB, (uint32_t[]){1, 8});
}

static void test_by_memory(void **state)
{
    (void)state;
    /* half of 16 GiB does not fit in 4 GiB, of which an eighth stays free */
    expect((ae_group_speed[]){{100, 64 * GIB, 0}, {100, 4 * GIB, 0}}, 2, 16 * GIB, (uint32_t[]){8, 2});
    expect((ae_group_speed[]){{100, 64 * GIB, 0}, {100, 1, 0}}, 2, 16 * GIB, (uint32_t[]){8, 0});
    expect((ae_group_speed[]){{100, 1, 0}, {100, 1, 0}}, 2, 16 * GIB, (uint32_t[]){1, 1}); /* none has room: loading says so */
}

/* ---- Forms ------------------------------------------------------------------------------------------------------ */

#define US 1e-6
#define GBIT 0.117e9 /* bytes a second */

/* Llama-8B's messages over four machines, codes on the wire: one stage, two, four. */
static const ae_group_form eight_b[] = {{.n_stages = 1, .is_cut = true, .n_inner = 129, .inner = 1254000},
                                        {.n_stages = 2, .is_cut = true, .n_inner = 129, .inner = 836000, .n_handed = 2,
                                         .handed = 32768},
                                        {.n_stages = 4, .is_cut = true, .n_handed = 4, .handed = 65536}};

static uint32_t best_of(double reading, ae_group_link all, ae_group_link pairs)
{
    ae_group_form forms[3];
    for (int i = 0; i < 3; i++) forms[i] = eight_b[i];
    forms[0].link = all, forms[1].link = pairs;
    return ae_group_best_form(forms, 3, reading)->n_stages;
}

static void test_best_form(void **state)
{
    (void)state;
    const ae_group_link shared = {2 * US, 5e9}, ten = {50 * US, 10 * GBIT}, one = {200 * US, GBIT}, far = {2000 * US, GBIT};
    assert_int_equal(best_of(0.018, ten, ten), 1);      /* a fast network: all machines read at the same time */
    assert_int_equal(best_of(0.018, far, far), 4);      /* latency: few messages */
    assert_int_equal(best_of(0.018, far, shared), 2);   /* two servers of two sockets, far from each other */
    assert_int_equal(best_of(0.018, one, ten), 2);      /* two islands of 10 GbE, 1 GbE between */
    assert_int_equal(best_of(0.018, shared, shared), 1);
    assert_int_equal(best_of(0, one, one), 4);          /* nobody could measure: messages alone */
    assert_int_equal(best_of(10, far, shared), 1);      /* a model so large that reading it is what counts */
    ae_group_form whole[] = {eight_b[0], eight_b[2]};   /* what is not cut would be on every machine */
    whole[0].is_cut = false, whole[0].link = shared;
    assert_int_equal(ae_group_best_form(whole, 2, 0.018)->n_stages, 4);
}

static void test_seconds(void **state)
{
    (void)state;
    const ae_group_form f = {.n_stages = 2, .n_inner = 100, .inner = 1000000, .n_handed = 3, .handed = 50000,
                             .link = {10 * US, 1e9}};
    const double wanted = 2 * 0.01 + 100 * 10 * US + 0.001 + 3 * 200 * US + 0.0005;
    assert_true(fabs(ae_group_seconds(&f, 0.01, &(ae_group_link){200 * US, 1e8}) - wanted) < 1e-12);
}

typedef struct member {
    ae_comm *comm;
    const ae_model *model;
    ae_group_form forms[AE_GROUP_FORMS];
    uint32_t n;
    pthread_t thread;
    aerie_status status;
} member;

static void *measure(void *context)
{
    member *m = context;
    aerie_error error;
    m->status = ae_group_list_forms(m->forms, &m->n, m->model, 4, NULL, true, &error);
    if (m->status == AERIE_OK) m->status = ae_group_measure_links(m->comm, m->forms, m->n, &error);
    return NULL;
}

/* All processes list the same forms, with the same links, so they choose alike. */
static void test_forms_of_a_model(void **state)
{
    (void)state;
    char path[] = "/tmp/aerie_forms_XXXXXX";
    aerie_error error = {0};
    ae_model *model;
    ae_comm *comms[4];
    static member members[4];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(mkarch_write(mkarch_find("llama"), true, path, &error), AERIE_OK);
    assert_int_equal(ae_model_load(&model, path, NULL, &error), AERIE_OK);
    assert_int_equal(ae_comm_threads(comms, 4, &error), AERIE_OK);
    for (int r = 0; r < 4; r++) {
        members[r].comm = comms[r], members[r].model = model;
        assert_int_equal(pthread_create(&members[r].thread, NULL, measure, &members[r]), 0);
    }
    for (int r = 0; r < 4; r++) pthread_join(members[r].thread, NULL);
    const uint32_t n_layers = model->hparams.n_layers, n_embd = model->hparams.n_embd;
    for (int r = 0; r < 4; r++) {
        const ae_group_form *f = members[r].forms;
        assert_int_equal(members[r].status, AERIE_OK);
        assert_int_equal(members[r].n, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(f[i].is_cut);
            assert_int_equal(f[i].n_stages, 1u << i);
            assert_int_equal(f[i].n_inner, i < 2 ? 4 * n_layers + 1 : 0);
            assert_int_equal(f[i].n_handed, i ? 1u << i : 0);
            assert_int_equal(f[i].handed, f[i].n_handed * n_embd * sizeof(float));
            assert_true(i < 2 ? f[i].inner > 0 && f[i].link.latency > 0 : !f[i].inner && !f[i].link.latency);
            assert_true(f[i].link.latency == members[0].forms[i].link.latency);
            assert_true(f[i].link.bandwidth == members[0].forms[i].link.bandwidth);
        }
        assert_true(f[1].inner < f[0].inner);
        ae_comm_close(comms[r]);
    }
    ae_model_free(model);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_speed), cmocka_unit_test(test_by_memory),
                                       cmocka_unit_test(test_best_form), cmocka_unit_test(test_seconds),
                                       cmocka_unit_test(test_forms_of_a_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
