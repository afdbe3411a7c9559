/* test_choose.c - the choice between kernels of a level is made once per form, kept, and may be forced. The choice depends on
 * the machine; test_kernels.c and the laws check that the bits are the same. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "device/device.h"
#include "base/mem.h"
#include "base/os.h"

static const uint32_t types[] = {AE_TYPE_Q4_0, AE_TYPE_Q8_0, AE_TYPE_Q4_K, AE_TYPE_Q6_K, AE_TYPE_F16};
#define N_TYPES (sizeof types / sizeof types[0])
#define N_THREADS 4

static ae_backend *backend_of(void)
{
    ae_backend *backend;
    assert_int_equal(ae_backend_open(&backend, NULL, NULL, NULL), AERIE_OK);
    return backend;
}

/* The number of rows from which a new weight uses tiles; UINT32_MAX - 1: it could not be created. */
static uint32_t tiles_from(ae_backend *backend, uint32_t type, uint32_t n_in)
{
    const ae_weight_source source = {.type = type, .n_out = 32, .n_in = n_in, .use = AE_WEIGHT_MATMUL};
    void *memory = ae_alloc_aligned(1, backend->ops->weight_bytes(backend, &source));
    ae_weight *w = NULL;
    uint32_t from = UINT32_MAX - 1;
    if (memory && backend->ops->weight_create(backend, &source, memory, &w, NULL) == AERIE_OK) {
        from = w->tiles_from;
        backend->ops->weight_free(backend, w);
    }
    ae_free(memory);
    return from;
}

static void test_a_form_is_measured_once(void **state)
{
    (void)state;
    ae_backend *backend = backend_of();
    const bool tiles = ae_kernels_tile(&ae_cpu(backend)->kernels);
    for (size_t i = 0; i < N_TYPES; i++) {
        const bool packed = types[i] != AE_TYPE_F16;
        const uint32_t n_choices = ae_cpu(backend)->n_choices, from = tiles_from(backend, types[i], 512);
        assert_int_equal(ae_cpu(backend)->n_choices, n_choices + (tiles && packed ? 1 : 0));
        if (!tiles || !packed) assert_int_equal(from, AE_NO_TILES);
        else assert_true(from >= 1 && from != UINT32_MAX - 1);
        assert_int_equal(tiles_from(backend, types[i], 1024), from);
        assert_int_equal(ae_cpu(backend)->n_choices, n_choices + (tiles && packed ? 1 : 0));
    }
    assert_int_equal(*ae_backend_cpu_choices(backend) != 0, tiles);
    ae_backend_close(backend);
}

static void test_the_choice_can_be_forced(void **state)
{
    (void)state;
    ae_backend *backend = backend_of();
    const bool tiles = ae_kernels_tile(&ae_cpu(backend)->kernels);
    ae_backend_cpu_tiles_from(backend, 3);
    assert_int_equal(tiles_from(backend, AE_TYPE_Q4_0, 512), tiles ? 3 : AE_NO_TILES);
    assert_int_equal(tiles_from(backend, AE_TYPE_Q4_0, AE_TILES_IN - 32), AE_NO_TILES); /* too narrow for them */
    assert_string_equal(ae_backend_cpu_choices(backend), "");
    ae_backend_close(backend);
}

static void does_nothing(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    (void)w, (void)act, (void)out, (void)begin, (void)end;
}

/* A kernel by tiles that does not know a form is the fastest of all, and never chosen. */
static void test_a_kernel_that_writes_nothing_is_not_chosen(void **state)
{
    (void)state;
    ae_backend *backend = backend_of();
    ae_kernels *k = &((ae_cpu_backend *)backend)->kernels;
    k->mm_tiles_32 = k->mm_tiles_256 = does_nothing;
    for (size_t i = 0; i < N_TYPES; i++) assert_int_equal(tiles_from(backend, types[i], 512), AE_NO_TILES);
    ae_backend_close(backend);
}

/* A weight of n_out rows of 1024 columns, of Q4_0; whether its codes are in order. */
static bool in_order(ae_backend *backend, uint32_t n_out)
{
    const ae_weight_source source = {.type = AE_TYPE_Q4_0, .n_out = n_out, .n_in = 1024, .use = AE_WEIGHT_MATMUL};
    void *memory = ae_alloc_aligned(1, backend->ops->weight_bytes(backend, &source));
    ae_weight *w;
    assert_non_null(memory);
    assert_int_equal(backend->ops->weight_create(backend, &source, memory, &w, NULL), AERIE_OK);
    const bool order = w->packed.in_order;
    backend->ops->weight_free(backend, w);
    ae_free(memory);
    return order;
}

static void test_the_order_is_measured_once(void **state)
{
    (void)state;
    ae_backend *backend = backend_of();
    ae_cpu_backend *b = (ae_cpu_backend *)backend;
    assert_false(in_order(backend, 64)); /* small: no matter */
    assert_false(b->order_known);
    const bool order = in_order(backend, 4096);
    if (ae_os_cache_forget(NULL, 0)) {
        assert_true(b->order_known);
        assert_int_equal(order, b->in_order);
        b->in_order = !order; /* kept, not measured again */
        assert_int_equal(in_order(backend, 4096), !order);
        assert_false(in_order(backend, 64));
    } else {
        assert_false(b->order_known || order);
    }
    ae_backend_close(backend);
}

typedef struct asker {
    pthread_t thread;
    ae_backend *backend;
    uint32_t from[N_TYPES];
} asker;

static void *ask(void *context)
{
    asker *a = context;
    for (size_t i = 0; i < N_TYPES; i++) a->from[i] = tiles_from(a->backend, types[i], 512);
    return NULL;
}

static void test_threads_agree(void **state)
{
    (void)state;
    ae_backend *backend = backend_of();
    asker askers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        askers[i].backend = backend;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(askers[i].thread, NULL);
    for (int i = 1; i < N_THREADS; i++) assert_memory_equal(askers[i].from, askers[0].from, sizeof askers[0].from);
    ae_backend_close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_form_is_measured_once),
        cmocka_unit_test(test_the_choice_can_be_forced),
        cmocka_unit_test(test_the_order_is_measured_once),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_a_kernel_that_writes_nothing_is_not_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
