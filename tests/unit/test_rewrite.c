/* test_rewrite.c - a file written again in other types: the type that a mix gives each tensor, bytes equal to the encoders'
 * own, metadata, heads, split sets, and all failures.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "every.h"
#include "fail_alloc.h"
#include "fail_read.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"
#include "convert/quantize/rewrite.h"

static char folder[] = "/tmp/aerie_rewrite_XXXXXX";

static const char *at(const char *name)
{
    static char paths[4][96];
    static int i;
    char *path = paths[i++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static ae_gguf *open_file(const char *path)
{
    aerie_error error = {0};
    ae_gguf *gguf;
    need(ae_gguf_open(&gguf, path, NULL, &error), &error);
    return gguf;
}

static void make_layers(const char *path, const char *shape, const char *type, uint32_t n_vocab, uint32_t n_layers)
{
    mk_options o;
    aerie_error error = {0};
    assert_true(mk_shape(shape, &o));
    o.type = type;
    if (n_layers) o.n_layers = n_layers;
    if (n_vocab) o.n_vocab = n_vocab;
    need(mk_model(&o, path, &error), &error);
}

static void make_model(const char *path, const char *shape, const char *type, uint32_t n_vocab)
{
    make_layers(path, shape, type, n_vocab, 0);
}

static aerie_status rewrite_with(const ae_rewrite_settings *s, const char *in, const char *out, uint32_t n_threads,
                                 aerie_error *error)
{
    const ae_gguf_options how = {.index_only = true};
    ae_gguf *gguf = NULL;
    ae_rewrite *r = NULL;
    aerie_status status = ae_gguf_open(&gguf, in, &how, error);
    if (status == AERIE_OK) status = ae_rewrite_plan(&r, gguf, s, error);
    if (status == AERIE_OK) status = ae_rewrite_begin(r, out, error);
    if (status == AERIE_OK) status = ae_rewrite_run(r, n_threads, NULL, NULL, error);
    ae_rewrite_free(r);
    ae_gguf_close(gguf);
    return status;
}

/* No half-written file remains in the folder. */
static void no_parts_left(void)
{
    char line[160];
    snprintf(line, sizeof line, "ls '%s' | grep -q 'part$'", folder);
    assert_int_not_equal(system(line), 0);
}

static void refused(const ae_rewrite_settings *s, const char *in, const char *out, aerie_status status,
                    const char *text)
{
    aerie_error error = {0};
    const aerie_status found = rewrite_with(s, in, out, 1, &error);
    if (found != status || !strstr(error.text, text))
        fail_msg("expected %d and '%s', found %d: %s", status, text, found, error.text);
    no_parts_left();
}

/* ---- Choosing ---------------------------------------------------------------------------------------------- */

static ae_gguf_string text_of(const char *text)
{
    return (ae_gguf_string){text, strlen(text)};
}

static void type_is(const char *mix, const ae_mix_model *m, const char *name, int64_t ne0, uint32_t type)
{
    const uint32_t found = ae_mix_type(ae_mix_by_name(mix), m, text_of(name), ne0);
    if (found != type) fail_msg("%s of %s: %s, not %s", name, mix, ae_type_name(found), ae_type_name(type));
}

static void mixes_choose_as_llama_cpp_does(void **state)
{
    (void)state;
    const ae_mix_model m = {.n_layers = 32, .n_gqa = 4}, eight = {.n_layers = 32, .n_gqa = 4, .n_experts = 8};
    const ae_mix_model large = {.n_layers = 80, .n_gqa = 8}, tied = {.n_layers = 30, .n_gqa = 3, .tied = true},
                       head = {.head = true}, encoder = {.n_layers = 6, .n_gqa = 1, .tied = true, .encoder = true};
    static const struct {
        const char *mix, *name;
        uint32_t type;
    } cases[] = {
        {"Q4_K_M", "token_embd.weight", AE_TYPE_Q4_K},
        {"Q4_K_M", "output.weight", AE_TYPE_Q6_K},
        {"Q4_K_M", "blk.3.attn_v.weight", AE_TYPE_Q6_K},
        {"Q4_K_M", "blk.4.attn_v.weight", AE_TYPE_Q4_K},
        {"Q4_K_M", "blk.6.ffn_down.weight", AE_TYPE_Q6_K},
        {"Q4_K_M", "blk.28.ffn_down.weight", AE_TYPE_Q6_K},
        {"Q4_K_M", "blk.27.ffn_down.weight", AE_TYPE_Q6_K},
        {"Q4_K_M", "blk.26.ffn_down.weight", AE_TYPE_Q4_K},
        {"Q4_K_M", "blk.0.attn_qkv.weight", AE_TYPE_Q5_K},
        {"Q4_K_M", "blk.0.ffn_up.weight", AE_TYPE_Q4_K},
        {"Q4_K_S", "blk.3.attn_v.weight", AE_TYPE_Q5_K},
        {"Q4_K_S", "blk.4.attn_v.weight", AE_TYPE_Q4_K},
        {"Q4_K_S", "blk.3.ffn_down.weight", AE_TYPE_Q5_K},
        {"Q4_K_S", "blk.4.ffn_down.weight", AE_TYPE_Q4_K},
        {"Q5_K_M", "blk.0.attn_v.weight", AE_TYPE_Q6_K},
        {"Q5_K_S", "blk.0.attn_v.weight", AE_TYPE_Q5_K},
        {"Q2_K", "blk.0.attn_v.weight", AE_TYPE_Q4_K},
        {"Q2_K", "blk.9.ffn_down.weight", AE_TYPE_Q3_K},
        {"Q2_K", "blk.9.attn_output.weight", AE_TYPE_Q3_K},
        {"Q2_K_S", "blk.9.ffn_down.weight", AE_TYPE_Q2_K},
        {"Q3_K_M", "blk.1.attn_v.weight", AE_TYPE_Q5_K},
        {"Q3_K_M", "blk.2.attn_v.weight", AE_TYPE_Q4_K},
        {"Q3_K_M", "blk.1.ffn_down.weight", AE_TYPE_Q5_K},
        {"Q3_K_M", "blk.2.ffn_down.weight", AE_TYPE_Q4_K},
        {"Q3_K_L", "blk.9.attn_output.weight", AE_TYPE_Q5_K},
        {"Q3_K_S", "blk.0.ffn_down.weight", AE_TYPE_Q3_K},
        {"IQ4_XS", "blk.9.attn_v.weight", AE_TYPE_Q5_K},
        {"IQ4_NL", "blk.3.ffn_down.weight", AE_TYPE_Q5_K},
        {"Q4_0", "blk.0.attn_v.weight", AE_TYPE_Q4_0},
        {"Q4_0", "output.weight", AE_TYPE_Q6_K},
        {"Q8_0", "output.weight", AE_TYPE_Q8_0},
        {"F16", "output.weight", AE_TYPE_F16},
        {"TQ1_0", "token_embd.weight", AE_TYPE_Q4_K},
        {"IQ1_S", "token_embd.weight", AE_TYPE_Q2_K},
        {"IQ1_S", "output.weight", AE_TYPE_Q5_K},
        {"IQ1_S", "blk.9.attn_v.weight", AE_TYPE_Q4_K},
        {"IQ1_S", "blk.9.attn_output.weight", AE_TYPE_IQ2_XXS},
        {"IQ1_M", "blk.3.ffn_down.weight", AE_TYPE_Q2_K},
        {"IQ1_M", "blk.4.ffn_down.weight", AE_TYPE_IQ1_M},
        {"IQ2_XXS", "blk.4.attn_output.weight", AE_TYPE_IQ2_XXS},
        {"IQ2_XS", "blk.4.ffn_up.weight", AE_TYPE_IQ2_XS},
        {"IQ2_S", "token_embd.weight", AE_TYPE_IQ3_S},
        {"IQ2_S", "blk.4.ffn_up.weight", AE_TYPE_IQ2_XS},
        {"IQ2_S", "blk.4.attn_output.weight", AE_TYPE_IQ3_S},
        {"IQ2_M", "blk.4.ffn_up.weight", AE_TYPE_IQ2_S},
        {"IQ2_M", "blk.3.ffn_down.weight", AE_TYPE_IQ3_S},
        {"IQ3_XXS", "token_embd.weight", AE_TYPE_IQ3_S},
        {"IQ3_XXS", "output.weight", AE_TYPE_Q5_K},
        {"IQ3_XXS", "blk.9.attn_q.weight", AE_TYPE_IQ2_S},
        {"IQ3_XXS", "blk.9.attn_k.weight", AE_TYPE_IQ2_S},
        {"IQ3_XXS", "blk.9.attn_v.weight", AE_TYPE_Q4_K},
        {"IQ3_XXS", "blk.9.attn_output.weight", AE_TYPE_IQ3_S},
        {"IQ3_XXS", "blk.3.ffn_down.weight", AE_TYPE_Q4_K},
        {"IQ3_XXS", "blk.4.ffn_down.weight", AE_TYPE_Q3_K},
        {"IQ3_XXS", "blk.4.ffn_gate.weight", AE_TYPE_IQ3_XXS},
        {"IQ3_XS", "blk.9.attn_q.weight", AE_TYPE_IQ3_XXS},
        {"IQ3_XS", "blk.3.ffn_up.weight", AE_TYPE_IQ3_S},
        {"IQ3_XS", "blk.4.ffn_up.weight", AE_TYPE_IQ3_XXS},
        {"IQ3_XS", "blk.27.ffn_gate.weight", AE_TYPE_IQ3_XXS},
        {"IQ3_XS", "blk.28.ffn_gate.weight", AE_TYPE_IQ3_S},
        {"IQ3_S", "output.weight", AE_TYPE_Q6_K},
        {"IQ3_S", "blk.9.attn_v.weight", AE_TYPE_Q4_K},
        {"IQ3_S", "blk.9.attn_output.weight", AE_TYPE_IQ3_S},
        {"IQ3_M", "blk.9.attn_output.weight", AE_TYPE_Q4_K},
        {"IQ3_M", "blk.3.ffn_down.weight", AE_TYPE_Q4_K},
        {"IQ3_M", "blk.4.ffn_down.weight", AE_TYPE_IQ3_S},
        {"MXFP4_MOE", "blk.0.attn_q.weight", AE_TYPE_Q8_0},
        {"MXFP4_MOE", "blk.0.ffn_up_exps.weight", AE_TYPE_MXFP4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        type_is(cases[i].mix, &m, cases[i].name, 4096, cases[i].type);
    type_is("Q4_K_M", &m, "output.weight", 576, AE_TYPE_Q8_0); /* rows that are not whole blocks */
    type_is("Q4_0", &tied, "token_embd.weight", 576, AE_TYPE_Q6_K);
    type_is("IQ2_XS", &tied, "blk.5.attn_v.weight", 4096, AE_TYPE_Q2_K); /* three query heads per KV head */
    type_is("IQ2_M", &tied, "blk.5.attn_v.weight", 4096, AE_TYPE_IQ3_S);
    type_is("IQ3_XXS", &tied, "blk.5.attn_v.weight", 4096, AE_TYPE_IQ3_S);
    type_is("IQ3_S", &tied, "blk.5.attn_v.weight", 4096, AE_TYPE_IQ3_S);
    type_is("IQ2_XS", &eight, "blk.5.attn_k.weight", 4096, AE_TYPE_Q4_K);
    type_is("IQ2_XS", &eight, "blk.5.attn_output.weight", 4096, AE_TYPE_Q5_K);
    type_is("IQ3_M", &eight, "blk.6.ffn_down_exps.weight", 4096, AE_TYPE_Q4_K);
    type_is("Q4_K_M", &eight, "blk.5.attn_k.weight", 4096, AE_TYPE_Q8_0);
    type_is("Q4_K_M", &eight, "blk.5.attn_output.weight", 4096, AE_TYPE_Q5_K);
    type_is("Q4_K_M", &large, "blk.11.attn_v.weight", 8192, AE_TYPE_Q5_K);
    type_is("Q8_0", &encoder, "blk.5.attn_k.weight", 384, AE_TYPE_F16); /* not llama.cpp's */
    type_is("Q8_0", &encoder, "blk.5.attn_qkv.weight", 384, AE_TYPE_F16);
    type_is("Q8_0", &encoder, "blk.5.attn_output.weight", 384, AE_TYPE_Q8_0);
    type_is("Q8_0", &encoder, "token_embd.weight", 384, AE_TYPE_Q8_0);
    type_is("Q4_0", &encoder, "blk.5.attn_k.weight", 384, AE_TYPE_Q4_0);
    type_is("Q4_K", &head, "output.weight", 4096, AE_TYPE_Q4_K);
    type_is("IQ2_S", &head, "output.weight", 4096, AE_TYPE_IQ2_XS);
    type_is("Q2_K", &head, "blk.0.attn_v.weight", 4096, AE_TYPE_Q2_K);
}

static void names_and_fallbacks(void **state)
{
    (void)state;
    static const uint32_t falls[][2] = {{AE_TYPE_Q4_K, AE_TYPE_Q5_0},  {AE_TYPE_Q5_K, AE_TYPE_Q5_1},
                                        {AE_TYPE_Q6_K, AE_TYPE_Q8_0},  {AE_TYPE_Q2_K, AE_TYPE_Q4_0},
                                        {AE_TYPE_Q3_K, AE_TYPE_Q4_0},  {AE_TYPE_IQ4_XS, AE_TYPE_IQ4_NL},
                                        {AE_TYPE_TQ1_0, AE_TYPE_Q4_0}, {AE_TYPE_Q8_0, AE_TYPE_Q8_0},
                                        {AE_TYPE_IQ1_S, AE_TYPE_IQ4_NL}, {AE_TYPE_IQ1_M, AE_TYPE_IQ4_NL},
                                        {AE_TYPE_IQ2_XXS, AE_TYPE_IQ4_NL}, {AE_TYPE_IQ2_XS, AE_TYPE_IQ4_NL},
                                        {AE_TYPE_IQ2_S, AE_TYPE_IQ4_NL}, {AE_TYPE_IQ3_XXS, AE_TYPE_IQ4_NL},
                                        {AE_TYPE_IQ3_S, AE_TYPE_IQ4_NL}};
    for (size_t i = 0; i < sizeof falls / sizeof *falls; i++) {
        assert_int_equal(ae_mix_fit(falls[i][0], 512), falls[i][0]);
        assert_int_equal(ae_mix_fit(falls[i][0], 576), falls[i][1]);
        assert_int_equal(ae_mix_fit(falls[i][0], 40), AE_TYPE_F16);
    }
    assert_string_equal(ae_mix_by_name("q4_k")->name, "Q4_K_M");
    assert_string_equal(ae_mix_by_name("bf16")->name, "BF16");
    assert_string_equal(ae_mix_by_name("15")->name, "Q4_K_M"); /* llama-quantize's numbers */
    assert_string_equal(ae_mix_by_name("7")->name, "Q8_0");
    assert_string_equal(ae_mix_by_name("0")->name, "F32");
    assert_null(ae_mix_by_name("4"));
    assert_null(ae_mix_by_name("07"));
    assert_null(ae_mix_by_name("Q4"));
    assert_null(ae_mix_by_name("Q4_K_MM"));
    assert_null(ae_mix_by_name(""));
    for (size_t i = 0; i < ae_mix_count(); i++) {
        assert_ptr_equal(ae_mix_by_name(ae_mix_at(i)->name), ae_mix_at(i));
        for (size_t k = 0; k < i; k++)
            assert_true(ae_mix_at(i)->file_type != ae_mix_at(k)->file_type || i == ae_mix_count() - 1);
    }
}

/* ---- Bytes ------------------------------------------------------------------------------------------------- */

/* A weight of `b` is the encoding of the f32 in `a`, of its rows every step-th; all other tensors are the same. */
static void check_encoded(const ae_gguf *a, const ae_gguf *b, uint32_t type, size_t step)
{
    assert_int_equal(ae_gguf_n_tensors(a), ae_gguf_n_tensors(b));
    for (size_t i = 0; i < ae_gguf_n_tensors(a); i++) {
        const ae_gguf_tensor *x = ae_gguf_tensor_at(a, i), *y = ae_gguf_tensor_at(b, i);
        const size_t ne0 = (size_t)x->ne[0], n_rows = (size_t)(x->ne[1] * x->ne[2] * x->ne[3]);
        const bool vector = n_rows == 1 || ae_mix_name_holds(x->name, "ffn_gate_inp");
        assert_int_equal(x->name.n, y->name.n);
        assert_memory_equal(x->name.data, y->name.data, x->name.n);
        assert_memory_equal(x->ne, y->ne, sizeof x->ne);
        if (vector) {
            assert_int_equal(y->type, AE_TYPE_F32);
            assert_memory_equal(x->data, y->data, x->bytes);
            continue;
        }
        assert_int_equal(y->type, ae_mix_fit(type, x->ne[0]));
        const size_t row = ae_type_row_bytes(y->type, ne0);
        uint8_t *wanted = malloc(row);
        assert_non_null(wanted);
        for (size_t r = 0; r < n_rows; r += step) {
            ae_type_encoder(y->type)((const float *)(const void *)x->data + r * ne0, NULL, wanted, ne0);
            if (memcmp(wanted, y->data + r * row, row))
                fail_msg("row %zu of %.*s differs", r, (int)x->name.n, x->name.data);
        }
        free(wanted);
    }
}

static void check_keys(const ae_gguf *a, const ae_gguf *b, uint32_t file_type)
{
    uint32_t value = 0;
    for (size_t i = 0; i < ae_gguf_n_kv(a); i++) {
        const ae_gguf_kv *x = ae_gguf_kv_at(a, i), *y = ae_gguf_kv_at(b, i); /* the order is kept, too */
        assert_int_equal(x->key.n, y->key.n);
        assert_memory_equal(x->key.data, y->key.data, x->key.n);
        assert_int_equal(x->bytes, y->bytes);
        if (!ae_mix_name_is(x->key, "general.quantization_version")) assert_memory_equal(x->data, y->data, x->bytes);
    }
    assert_int_equal(ae_gguf_n_kv(b), ae_gguf_n_kv(a) + 1); /* mkmodel writes no file_type */
    assert_int_equal(ae_gguf_get_u32(b, "general.file_type", true, &value, NULL), AERIE_OK);
    assert_int_equal(value, file_type);
    assert_int_equal(ae_gguf_get_u32(b, "general.quantization_version", true, &value, NULL), AERIE_OK);
    assert_int_equal(value, 2);
}

static void bytes_are_the_encoders(void **state)
{
    (void)state;
    static const char *const shapes[] = {"tiny-gqa", "tiny-mha", "tiny-moe"}; /* rows of 256, 128 and 192, 64 and 96 */
    aerie_error error = {0};
    for (size_t s = 0; s < 3; s++) {
        /* more tokens or layers would be more of the same rows */
        make_layers(at("in"), shapes[s], "f32", MK_MIN_VOCAB, AE_TEST_EVERY > 4 ? 1 : 0);
        ae_gguf *a = open_file(at("in"));
        for (size_t i = 0; i < ae_mix_count(); i++) {
            const ae_mix *mix = ae_mix_at(i);
            ae_rewrite_settings settings = ae_rewrite_settings_default(mix);
            bool repeated = false; /* the rows of the first shape are whole blocks: once for each type is enough */
            for (size_t k = 0; k < i; k++) repeated |= ae_mix_at(k)->type == mix->type;
            if (mix->type == AE_MIX_AS_IS || (s == 0 && repeated)) continue;
            settings.pure = true;
            need(rewrite_with(&settings, at("in"), at("out"), 3, &error), &error);
            ae_gguf *b = open_file(at("out"));
            check_encoded(a, b, mix->type, AE_TEST_EVERY > 4 ? 5 : 1);
            check_keys(a, b, mix->file_type);
            ae_gguf_close(b);
        }
        ae_gguf_close(a);
    }
}

static void same_file(const char *a, const char *b)
{
    char line[256];
    snprintf(line, sizeof line, "cmp '%s' '%s'", a, b);
    assert_int_equal(system(line), 0);
}

/* 60000 rows of 64 are two chunks of the embeddings. */
static void chunks_and_threads_change_nothing(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_rewrite_settings settings = ae_rewrite_settings_default(ae_mix_by_name("Q5_1"));
    settings.pure = true;
    make_model(at("in"), "tiny", "f32", 60000);
    need(rewrite_with(&settings, at("in"), at("one"), 1, &error), &error);
    need(rewrite_with(&settings, at("in"), at("four"), 4, &error), &error);
    same_file(at("one"), at("four"));
    ae_gguf *a = open_file(at("in")), *b = open_file(at("one"));
    check_encoded(a, b, AE_TYPE_Q5_1, 1);
    ae_gguf_close(a);
    ae_gguf_close(b);
}

static void nothing_to_do_copies(void **state)
{
    (void)state;
    aerie_error error = {0};
    make_model(at("in"), "tiny", "q4_0", 0);
    ae_rewrite_settings settings = ae_rewrite_settings_default(ae_mix_by_name("COPY"));
    need(rewrite_with(&settings, at("in"), at("out"), 2, &error), &error);
    same_file(at("in"), at("out"));
    settings = ae_rewrite_settings_default(
        ae_mix_by_name("Q4_0")); /* the output alone changes its type, which is to be left */
    settings.pure = true;
    need(rewrite_with(&settings, at("in"), at("out"), 2, &error), &error);
    ae_gguf *a = open_file(at("in")), *b = open_file(at("out"));
    for (size_t i = 0; i < ae_gguf_n_tensors(a); i++)
        assert_memory_equal(ae_gguf_tensor_at(a, i)->data, ae_gguf_tensor_at(b, i)->data,
                            ae_gguf_tensor_at(a, i)->bytes);
    ae_gguf_close(a);
    ae_gguf_close(b);
}

/* ---- What was asked for ------------------------------------------------------------------------------------ */

static uint32_t type_in(const char *path, const char *name)
{
    ae_gguf *gguf = open_file(path);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, name);
    assert_non_null(t);
    const uint32_t type = t->type;
    ae_gguf_close(gguf);
    return type;
}

static void single_tensors_can_differ(void **state)
{
    (void)state;
    aerie_error error = {0};
    const ae_rewrite_rule rules[] = {
        {"blk\\.1\\..*DOWN", AE_TYPE_Q8_0}, {"ffn_", AE_TYPE_Q3_K}, {"down", AE_TYPE_F16}, {"nothing", AE_TYPE_F16}};
    ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    make_model(at("in"), "tiny-gqa", "f16", 0);
    s.rules = rules;
    s.n_rules = 4;
    s.embedding_type = AE_TYPE_BF16;
    s.output_type = AE_TYPE_Q5_0;
    need(rewrite_with(&s, at("in"), at("out"), 2, &error), &error);
    assert_int_equal(type_in(at("out"), "blk.1.ffn_down.weight"), AE_TYPE_Q8_0);
    assert_int_equal(type_in(at("out"), "blk.0.ffn_down.weight"), AE_TYPE_Q3_K);
    assert_int_equal(type_in(at("out"), "blk.0.ffn_norm.weight"), AE_TYPE_F32);
    assert_int_equal(type_in(at("out"), "blk.0.attn_q.weight"), AE_TYPE_Q4_0);
    assert_int_equal(type_in(at("out"), "token_embd.weight"), AE_TYPE_BF16);
    assert_int_equal(type_in(at("out"), "output.weight"), AE_TYPE_Q5_0);
    s.leave_output = true;
    need(rewrite_with(&s, at("in"), at("out"), 2, &error), &error);
    assert_int_equal(type_in(at("out"), "output.weight"), AE_TYPE_F16);

    ae_gguf *gguf = open_file(at("in"));
    ae_rewrite *r;
    need(ae_rewrite_plan(&r, gguf, &s, &error), &error);
    assert_int_equal(ae_rewrite_rule_uses(r, 0), 1);
    assert_int_equal(ae_rewrite_rule_uses(r, 1), 5);
    assert_int_equal(ae_rewrite_rule_uses(r, 2), 0); /* another came first */
    assert_int_equal(ae_rewrite_rule_uses(r, 3), 0);
    ae_rewrite_free(r);
    ae_gguf_close(gguf);
}

static void quantizing_twice_needs_leave(void **state)
{
    (void)state;
    aerie_error error = {0};
    make_model(at("in"), "tiny-gqa", "q4_1", 0);
    ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "quantized already (q4_1)");
    assert_int_not_equal(access(at("new"), F_OK), 0);
    s.allow_requantize = true;
    need(rewrite_with(&s, at("in"), at("out"), 2, &error), &error);
    assert_int_equal(type_in(at("out"), "blk.0.attn_q.weight"), AE_TYPE_Q4_0);
    s = ae_rewrite_settings_default(ae_mix_by_name("F32")); /* loses nothing */
    need(rewrite_with(&s, at("in"), at("out"), 2, &error), &error);
    ae_gguf *a = open_file(at("in")), *b = open_file(at("out"));
    const ae_gguf_tensor *x = ae_gguf_tensor_find(a, "blk.1.ffn_up.weight"),
                         *y = ae_gguf_tensor_find(b, "blk.1.ffn_up.weight");
    float *values = malloc(y->bytes);
    ae_type_get(x->type)->decode(x->data, values, y->bytes / 4);
    assert_memory_equal(values, y->data, y->bytes);
    free(values);
    ae_gguf_close(a);
    ae_gguf_close(b);
}

/* ---- Heads and split sets ---------------------------------------------------------------------------------- */

static void heads_get_one_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t type, n_dims, after;
        int64_t ne[2];
    } parts[] = {
        {"fc.weight", AE_TYPE_F32, 2, AE_TYPE_Q4_K, {768, 256}},
        {"blk.0.attn_q.weight", AE_TYPE_F32, 2, AE_TYPE_Q4_K, {512, 256}},
        {"blk.0.attn_v.weight", AE_TYPE_F32, 2, AE_TYPE_Q4_K, {512, 64}},
        {"blk.0.ffn_down.weight", AE_TYPE_F32, 2, AE_TYPE_Q5_0, {96, 256}},
        {"blk.0.hidden_norm.weight", AE_TYPE_F32, 1, AE_TYPE_F32, {256, 1}},
        {"fc_norm.weight", AE_TYPE_F32, 2, AE_TYPE_F32, {256, 3}},
        {"output.weight", AE_TYPE_F32, 2, AE_TYPE_Q4_K, {256, 40}},
        {"fc.bias", AE_TYPE_F32, 1, AE_TYPE_F32, {256, 1}},
        {"d2t", AE_TYPE_I64, 1, AE_TYPE_I64, {40, 1}},
        {"d2t.weight", AE_TYPE_I32, 2, AE_TYPE_I32, {40, 2}},
        {"token_embd.weight", AE_TYPE_F32, 2, AE_TYPE_Q4_K, {256, 64}},
    };
    static const char *const archs[] = {"eagle3", "eagle", "medusa"};
    aerie_error error = {0};
    float *zeros = calloc(768 * 256, sizeof *zeros);
    assert_non_null(zeros);
    for (size_t k = 0; k < 3; k++) {
        ae_gguf_writer *w;
        need(ae_gguf_writer_create(&w, at("head"), &error), &error);
        need(ae_gguf_writer_string(w, "general.architecture", archs[k], &error), &error);
        need(ae_gguf_writer_u32(w, "general.file_type", 0, &error), &error);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            need(ae_gguf_writer_tensor(w, parts[i].name, parts[i].type, parts[i].n_dims, parts[i].ne, &error), &error);
        need(ae_gguf_writer_begin(w, &error), &error);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            need(ae_gguf_writer_data(
                     w, zeros, (size_t)(parts[i].ne[0] * parts[i].ne[1]) * ae_type_block_bytes(parts[i].type), &error),
                 &error);
        need(ae_gguf_writer_finish(w, &error), &error);
        ae_gguf_writer_free(w);
        const ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_K"));
        need(rewrite_with(&s, at("head"), at("out"), 2, &error), &error);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            assert_int_equal(type_in(at("out"), parts[i].name), parts[i].after);
        ae_gguf *gguf = open_file(at("out"));
        uint32_t value = 0;
        assert_int_equal(ae_gguf_get_u32(gguf, "general.file_type", true, &value, NULL), AERIE_OK);
        assert_int_equal(value, 15);
        ae_gguf_close(gguf);
    }
    free(zeros);
}

static void split_sets_are_joined(void **state)
{
    (void)state;
    static const char *const names[] = {"set-00001-of-00002.gguf", "set-00002-of-00002.gguf"};
    const int64_t ne[2] = {32, 4};
    float values[2][128];
    aerie_error error = {0};
    for (uint32_t i = 0; i < 2; i++) {
        const char *const tensors[] = {"blk.0.ffn_up.weight", "blk.0.ffn_down.weight"};
        ae_gguf_writer *w;
        for (int k = 0; k < 128; k++) values[i][k] = (float)(k * 7 % 31) - 15.0f + (float)i;
        need(ae_gguf_writer_create(&w, at(names[i]), &error), &error);
        if (!i) need(ae_gguf_writer_string(w, "general.architecture", "llama", &error), &error);
        need(ae_gguf_writer_u32(w, "split.no", i, &error), &error);
        need(ae_gguf_writer_u32(w, "split.count", 2, &error), &error);
        need(ae_gguf_writer_u32(w, "split.tensors.count", 2, &error), &error);
        need(ae_gguf_writer_tensor(w, tensors[i], AE_TYPE_F32, 2, ne, &error), &error);
        need(ae_gguf_writer_begin(w, &error), &error);
        need(ae_gguf_writer_data(w, values[i], sizeof values[i], &error), &error);
        need(ae_gguf_writer_finish(w, &error), &error);
        ae_gguf_writer_free(w);
    }
    const ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q8_0"));
    refused(&s, at(names[0]), at(names[1]), AERIE_ERROR_ARGUMENT, "being read");
    need(rewrite_with(&s, at(names[1]), at("out"), 1, &error), &error);
    ae_gguf *gguf = open_file(at("out"));
    assert_int_equal(ae_gguf_n_files(gguf), 1);
    assert_null(ae_gguf_kv_find(gguf, "split.count"));
    assert_null(ae_gguf_kv_find(gguf, "split.no"));
    uint8_t wanted[136];
    ae_type_encoder(AE_TYPE_Q8_0)(values[1], NULL, wanted, 128);
    assert_memory_equal(ae_gguf_tensor_find(gguf, "blk.0.ffn_down.weight")->data, wanted, sizeof wanted);
    ae_gguf_close(gguf);
}

/* ---- Failures ---------------------------------------------------------------------------------------------- */

static void bad_requests(void **state)
{
    (void)state;
    ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    ae_rewrite_rule rule = {"ffn_(", AE_TYPE_Q8_0};
    make_model(at("in"), "tiny", "f32", 0);
    s.rules = &rule;
    s.n_rules = 1;
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "\"ffn_(\" is not a regular expression");
    rule.pattern = "^(.+)+(.+)+(.+)+h$";
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "takes too long");
    rule = (ae_rewrite_rule){"ffn", AE_TYPE_Q8_1};
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "q8_1 can be read but not written");
    s.n_rules = 0;
    s.output_type = AE_TYPE_Q8_K;
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "q8_K");
    s.output_type = AE_MIX_AS_IS;
    refused(&s, at("in"), at("in"), AERIE_ERROR_ARGUMENT, "being read");
    assert_int_equal(link(at("in"), at("other name")), 0);
    refused(&s, at("in"), at("other name"), AERIE_ERROR_ARGUMENT, "being read");
    refused(&s, at("in"), at("missing/new"), AERIE_ERROR_IO, "No such file");
    refused(&s, at("in"), folder, AERIE_ERROR_IO, "a directory");
    refused(&s, at("in"), "/dev/null", AERIE_ERROR_IO, "a device");
    refused(&s, at("missing"), at("new"), AERIE_ERROR_IO, "missing");
    s = ae_rewrite_settings_default(ae_mix_by_name("MXFP4_MOE"));
    refused(&s, at("in"), at("new"), AERIE_ERROR_ARGUMENT, "MXFP4_MOE is for models with experts and this one has none");
    assert_int_not_equal(access(at("new"), F_OK), 0);
    aerie_error error = {0};
    s.pure = true;
    need(rewrite_with(&s, at("in"), at("out"), 1, &error), &error);
    assert_int_equal(type_in(at("out"), "blk.0.attn_q.weight"), AE_TYPE_MXFP4);
    make_model(at("in"), "tiny-moe", "f32", 0);
    s.pure = false;
    need(rewrite_with(&s, at("in"), at("out"), 1, &error), &error);
    assert_int_equal(type_in(at("out"), "blk.0.ffn_up_exps.weight"), AE_TYPE_MXFP4);
    assert_int_equal(type_in(at("out"), "blk.0.attn_q.weight"), AE_TYPE_Q8_0);
}

static void weights_must_be_numbers(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const int64_t ne[2] = {64, 50};
    const ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    aerie_error error = {0};
    for (int i = 0; i < 3; i++) {
        float values[64 * 50] = {0};
        ae_gguf_writer *w;
        values[64 * 37 + 5] = values[64 * 49] = bad[i];
        need(ae_gguf_writer_create(&w, at("in"), &error), &error);
        need(ae_gguf_writer_tensor(w, "blk.0.attn_q.weight", AE_TYPE_F32, 2, ne, &error), &error);
        need(ae_gguf_writer_begin(w, &error), &error);
        need(ae_gguf_writer_data(w, values, sizeof values, &error), &error);
        need(ae_gguf_writer_finish(w, &error), &error);
        ae_gguf_writer_free(w);
        refused(&s, at("in"), at("new"), AERIE_ERROR_FORMAT, "\"blk.0.attn_q.weight\" has a weight in row 37 ");
        assert_int_not_equal(access(at("new"), F_OK), 0);
    }
}

static bool stop_at_third(void *user, uint64_t done, uint64_t total)
{
    int *calls = user;
    assert_true(done <= total);
    return ++*calls < 3;
}

static void it_can_be_cancelled(void **state)
{
    (void)state;
    const ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q8_0"));
    aerie_error error = {0};
    ae_rewrite *r;
    int calls = 0;
    make_model(at("in"), "tiny", "f32", 0);
    ae_gguf *gguf = open_file(at("in"));
    need(ae_rewrite_plan(&r, gguf, &s, &error), &error);
    need(ae_rewrite_begin(r, at("new"), &error), &error);
    assert_int_equal(ae_rewrite_run(r, 2, stop_at_third, &calls, &error), AERIE_ERROR_CANCELLED);
    assert_int_equal(calls, 3);
    ae_rewrite_free(r);
    ae_gguf_close(gguf);
    assert_int_not_equal(access(at("new"), F_OK), 0);
    no_parts_left();
}

static void every_allocation_and_read_may_fail(void **state)
{
    (void)state;
    const ae_rewrite_rule rule = {"ffn_up", AE_TYPE_Q8_0};
    ae_rewrite_settings s = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    aerie_error error = {0};
    s.rules = &rule;
    s.n_rules = 1;
    make_model(at("in"), "tiny", "f32", 0);
    long n = 1;
    for (;; n++) {
        fail_alloc_arm(n, false);
        const aerie_status status = rewrite_with(&s, at("in"), at("new"), 2, &error);
        if (!fail_alloc_disarm()) break;
        assert_int_equal(fail_alloc_live(), 0);
        if (status != AERIE_OK) { /* some allocations belong to the C library, which can do without */
            assert_int_equal(status, AERIE_ERROR_MEMORY);
            no_parts_left();
        }
    }
    assert_true(n > 50);
    assert_int_equal(unlink(at("new")), 0);
    for (n = 1;; n++) {
        fail_read_arm(n, FAIL_READ_ERROR, false);
        const aerie_status status = rewrite_with(&s, at("in"), at("new"), 2, &error);
        if (fail_read_disarm() < n) break;
        assert_int_equal(status, AERIE_ERROR_IO);
        assert_int_not_equal(access(at("new"), F_OK), 0);
        no_parts_left();
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_choose_as_llama_cpp_does),
        cmocka_unit_test(names_and_fallbacks),
        cmocka_unit_test(bytes_are_the_encoders),
        cmocka_unit_test(chunks_and_threads_change_nothing),
        cmocka_unit_test(nothing_to_do_copies),
        cmocka_unit_test(single_tensors_can_differ),
        cmocka_unit_test(quantizing_twice_needs_leave),
        cmocka_unit_test(heads_get_one_type),
        cmocka_unit_test(split_sets_are_joined),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(weights_must_be_numbers),
        cmocka_unit_test(it_can_be_cancelled),
        cmocka_unit_test(every_allocation_and_read_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
