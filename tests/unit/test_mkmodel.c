/* test_mkmodel.c - the model generator: every type has the documented spread, the same options give the same bytes, a model
 * with fewer layers has the same layers. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/gguf.h"
#include "mkmodel.h"
#include "quant/types.h"

static ae_gguf *make(const mk_options *o)
{
    char path[] = "/tmp/aerie_mkmodel_XXXXXX";
    aerie_error error = {0};
    ae_gguf *gguf = NULL;
    const int fd = mkstemp(path);
    const ae_gguf_options options = {.no_mmap = true};
    assert_true(fd >= 0);
    close(fd);
    if (mk_model(o, path, &error) != AERIE_OK || ae_gguf_open(&gguf, path, &options, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    unlink(path);
    return gguf;
}

static mk_options shape(const char *name, const char *type)
{
    mk_options o;
    assert_true(mk_shape(name, &o));
    o.type = type;
    return o;
}

static void same_tensor(const ae_gguf *a, const ae_gguf *b, const char *name, bool same)
{
    const ae_gguf_tensor *ta = ae_gguf_tensor_find(a, name), *tb = ae_gguf_tensor_find(b, name);
    assert_non_null(ta);
    assert_non_null(tb);
    assert_int_equal(ta->bytes, tb->bytes);
    assert_int_equal(!memcmp(ta->data, tb->data, ta->bytes), same);
}

static void test_every_type_has_its_spread(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || info->dot == AE_DOT_NONE) continue;
        const mk_options o = shape("tiny-gqa", info->name);
        ae_gguf *gguf = make(&o);
        const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, "blk.0.ffn_up.weight");
        assert_int_equal(t->type, type);
        const size_t n = (size_t)(t->ne[0] * t->ne[1]);
        float *x = malloc(n * sizeof *x);
        double sum = 0, squares = 0;
        info->decode(t->data, x, n);
        for (size_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
        free(x);
        const double sd = sqrt(squares / (double)n), expected = 0.7 / sqrt((double)t->ne[0]);
        if (!(sd > 0.9 * expected && sd < 1.1 * expected)) fail_msg("%s: spread %g, expected %g", info->name, sd, expected);
        if (!(fabs(sum / (double)n) < 0.5 * sd)) fail_msg("%s: mean %g, spread %g", info->name, sum / (double)n, sd);
        ae_gguf_close(gguf);
    }
}

static void test_same_options_give_the_same_bytes(void **state)
{
    (void)state;
    mk_options o = shape("tiny", "q4_0");
    ae_gguf *a = make(&o), *b = make(&o);
    o.n_layers--;
    ae_gguf *fewer = make(&o);
    o.seed++;
    ae_gguf *other = make(&o);
    assert_int_equal(ae_gguf_file_bytes(a), ae_gguf_file_bytes(b));
    for (size_t i = 0; i < ae_gguf_n_tensors(a); i++) {
        char name[64] = {0};
        const ae_gguf_string text = ae_gguf_tensor_at(a, i)->name;
        memcpy(name, text.data, text.n);
        same_tensor(a, b, name, true);
    }
    same_tensor(a, fewer, "blk.1.ffn_down.weight", true);
    same_tensor(a, fewer, "output.weight", true);
    assert_null(ae_gguf_tensor_find(fewer, "blk.2.ffn_down.weight"));
    same_tensor(fewer, other, "blk.1.ffn_down.weight", false);
    ae_gguf_close(a), ae_gguf_close(b), ae_gguf_close(fewer), ae_gguf_close(other);
}

static void test_mixes_and_fallbacks_follow_llama_cpp(void **state)
{
    (void)state;
    mk_options o = shape("tiny-gqa", "q4_k_m");
    o.n_layers = 8;
    ae_gguf *gguf = make(&o);
    static const bool wide[8] = {true, false, false, true, false, false, true, true}; /* i = 0; (i - 1) % 3 == 2; i = 7 */
    for (uint32_t i = 0; i < 8; i++) {
        char name[] = "blk.0.attn_v.weight";
        name[4] = (char)('0' + i);
        assert_int_equal(ae_gguf_tensor_find(gguf, name)->type, wide[i] ? AE_TYPE_Q6_K : AE_TYPE_Q4_K);
    }
    assert_int_equal(ae_gguf_tensor_find(gguf, "output.weight")->type, AE_TYPE_Q6_K);
    ae_gguf_close(gguf);
    o = shape("tiny", "q4_K"); /* rows of 64 and 128 are not whole blocks of 256 */
    gguf = make(&o);
    assert_int_equal(ae_gguf_tensor_find(gguf, "blk.0.attn_q.weight")->type, AE_TYPE_Q5_0);
    ae_gguf_close(gguf);
    aerie_error error = {0};
    o.type = "q9_9";
    assert_int_equal(mk_model(&o, "/tmp/aerie_never_written.gguf", &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "q9_9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_has_its_spread),
        cmocka_unit_test(test_same_options_give_the_same_bytes),
        cmocka_unit_test(test_mixes_and_fallbacks_follow_llama_cpp),
    };
    return cmocka_run_group_tests_name("mkmodel", tests, NULL, NULL);
}
