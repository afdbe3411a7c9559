/* test_model_bad.c - impossible models with experts or latent attention: each is refused with a sentence that names the key or
 * tensor, what was found and what was expected. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mkmodel.h"
#include "model/model.h"

/* The bytes of a model. */
static uint8_t *make_model(const mk_options *o, size_t *n)
{
    char path[] = "/tmp/aerie_bad_XXXXXX";
    aerie_error error;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (mk_model(o, path, &error) != AERIE_OK) fail_msg("%s", error.text);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = aligned_alloc(64, (*n + 63) & ~(size_t)63);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    unlink(path);
    return bytes;
}

/* A small model of that architecture. */
static uint8_t *make_layers(const char *arch, uint32_t n_layers, size_t *n)
{
    mk_options o;
    assert_true(mk_shape("tiny-moe", &o));
    o.arch = arch, o.n_layers = n_layers, o.head_dim = 16, o.n_kv_heads = 4, o.type = "f32", o.n_ff_shared = 96;
    return make_model(&o, n);
}

static uint8_t *make_latent(bool old, uint32_t n_q, size_t *n)
{
    mk_options o;
    assert_true(mk_shape("tiny-mla", &o));
    o.type = "f32", o.old_mla = old, o.n_q = n_q;
    return make_model(&o, n);
}

static uint8_t *make(const char *arch, size_t *n)
{
    return make_layers(arch, 1, n);
}

/* The place after `name`, which is a string in the file. */
static uint8_t *behind(uint8_t *bytes, size_t n, const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 8; i + length < n; i++) {
        uint64_t stated;
        memcpy(&stated, bytes + i - 8, 8);
        if (stated == length && !memcmp(bytes + i, name, length)) return bytes + i + length;
    }
    fail_msg("%s is not in the file", name);
    return NULL;
}

static void set_count(uint8_t *bytes, size_t n, const char *key, uint32_t value)
{
    memcpy(behind(bytes, n, key) + 4, &value, 4); /* after the value's type */
}

static void rename_one(uint8_t *bytes, size_t n, const char *name, const char *to)
{
    assert_int_equal(strlen(name), strlen(to));
    memcpy(behind(bytes, n, name) - strlen(name), to, strlen(to));
}

/* Swaps two dimensions of a tensor. */
static void swap(uint8_t *bytes, size_t n, const char *name, int a, int b)
{
    uint8_t *ne = behind(bytes, n, name) + 4, kept[8];
    memcpy(kept, ne + 8 * a, 8);
    memcpy(ne + 8 * a, ne + 8 * b, 8);
    memcpy(ne + 8 * b, kept, 8);
}

static void refused(uint8_t *bytes, size_t n, aerie_status status, const char *sentence)
{
    ae_gguf *gguf;
    ae_model *model = NULL;
    aerie_error error = {0};
    assert_int_equal(ae_gguf_open_memory(&gguf, bytes, n, "m.gguf", &error), AERIE_OK);
    assert_int_equal(ae_model_bind(&model, gguf, &error), status);
    assert_null(model);
    if (!strstr(error.text, sentence)) fail_msg("it says \"%s\", not \"%s\"", error.text, sentence);
    free(bytes);
}

static void test_more_blocks_than_counted(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = make_layers("llama", 3, &n);
    set_count(bytes, n, "llama.block_count", 2);
    refused(bytes, n, AERIE_ERROR_FORMAT, "belongs to block 2, but the keys count only 2 blocks (llama.block_count)");
}

static void test_counts_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        uint32_t value;
        aerie_status status;
        const char *sentence;
    } cases[] = {
        {"llama", "llama.expert_used_count", 7, AERIE_ERROR_FORMAT, "llama.expert_used_count is 7; 1 to 6 are possible"},
        {"llama", "llama.expert_used_count", 0, AERIE_ERROR_FORMAT, "llama.expert_used_count is 0; 1 to 6 are possible"},
        {"llama", "llama.expert_count", 1025, AERIE_ERROR_FORMAT, "llama.expert_count is 1025; 1 to 1024 are possible"},
        {"llama", "llama.expert_count", 4294967295u, AERIE_ERROR_FORMAT,
         "llama.expert_count is 4294967295; 1 to 1024 are possible"},
        {"llama", "llama.expert_count", 5, AERIE_ERROR_FORMAT,
         "tensor blk.0.ffn_gate_inp.weight has shape [64, 6, 1, 1], expected [64, 5]"},
        {"olmoe", "olmoe.expert_count", 0, AERIE_ERROR_FORMAT, "olmoe.expert_count is 0; 1 to 1024 are possible"},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", 95, AERIE_ERROR_FORMAT,
         "tensor blk.0.ffn_gate_exps.weight has shape [64, 96, 6, 1], expected [64, 95, 6]"},
        {"qwen3moe", "qwen3moe.expert_feed_forward_length", 0, AERIE_ERROR_FORMAT, /* as if it were not there */
         "tensor blk.0.ffn_gate_exps.weight has shape [64, 96, 6, 1], expected [64, 64, 6]"},
        {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", 4294967295u, AERIE_ERROR_FORMAT,
         "expert_shared_feed_forward_length is 4294967295"},
        {"deepseek", "deepseek.expert_shared_count", 50000000, AERIE_ERROR_FORMAT, "expert_shared_count is 50000000"},
        {"deepseek", "deepseek.expert_shared_count", 2, AERIE_ERROR_FORMAT,
         "tensor blk.0.ffn_gate_shexp.weight has shape [64, 96, 1, 1], expected [64, 192]"},
        {"deepseek", "deepseek.leading_dense_block_count", 2, AERIE_ERROR_FORMAT,
         "leading_dense_block_count is 2; 0 to 1 are possible"},
        {"deepseek", "deepseek.leading_dense_block_count", 1, AERIE_ERROR_FORMAT, "tensor blk.0.ffn_gate.weight is missing"},
        {"dots1", "dots1.expert_gating_func", 5, AERIE_ERROR_FORMAT, "dots1.expert_gating_func is 5; 1 to 4 are possible"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n;
        uint8_t *bytes = make(cases[i].arch, &n);
        set_count(bytes, n, cases[i].key, cases[i].value);
        refused(bytes, n, cases[i].status, cases[i].sentence);
    }
}

static void test_tensors_that_are_missing_or_misshapen(void **state)
{
    (void)state;
    static const char *const needed[] = {"blk.0.ffn_gate_inp.weight",   "blk.0.ffn_gate_exps.weight",
                                         "blk.0.ffn_up_exps.weight",    "blk.0.ffn_down_exps.weight",
                                         "blk.0.ffn_gate_shexp.weight", "blk.0.ffn_up_shexp.weight",
                                         "blk.0.ffn_down_shexp.weight", "blk.0.ffn_gate_inp_shexp.weight"};
    size_t n;
    uint8_t *bytes;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char other[64], sentence[128];
        snprintf(other, sizeof other, "x%s", needed[i] + 1);
        snprintf(sentence, sizeof sentence, "m.gguf: tensor %s is missing; architecture qwen2moe needs it", needed[i]);
        bytes = make("qwen2moe", &n);
        rename_one(bytes, n, needed[i], other);
        refused(bytes, n, AERIE_ERROR_FORMAT, sentence);
    }
    bytes = make("qwen3moe", &n);
    rename_one(bytes, n, "blk.0.attn_k_norm.weight", "blk.0.attn_x_norm.weight");
    refused(bytes, n, AERIE_ERROR_FORMAT, "tensor blk.0.attn_k_norm.weight is missing; architecture qwen3moe needs it");
    bytes = make("llama", &n);
    swap(bytes, n, "blk.0.ffn_down_exps.weight", 0, 1);
    refused(bytes, n, AERIE_ERROR_FORMAT, "tensor blk.0.ffn_down_exps.weight has shape [64, 96, 6, 1], expected [96, 64, 6]");
    bytes = make("llama", &n);
    swap(bytes, n, "blk.0.ffn_up_exps.weight", 1, 2);
    refused(bytes, n, AERIE_ERROR_FORMAT, "tensor blk.0.ffn_up_exps.weight has shape [64, 6, 96, 1], expected [64, 96, 6]");
    bytes = make_layers("llama", 11, &n);
    rename_one(bytes, n, "blk.10.attn_norm.weight", "blk.0.ffn_gate.0.weight"); /* names of one length */
    refused(bytes, n, AERIE_ERROR_UNSUPPORTED, "tensor blk.0.ffn_gate.0.weight: the experts are stored one by one");
}

/* Heads of 48 values, of which 16 rotate; rows of 64 latent values. */
static void test_latent_attention(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *sentence;
        bool old;
    } counts[] = {
        {"deepseek2.attention.kv_lora_rank", 0, "deepseek2.attention.kv_lora_rank is 0; 1 to 1024 are possible", true},
        {"deepseek2.attention.kv_lora_rank", 1025, "deepseek2.attention.kv_lora_rank is 1025; 1 to 1024 are possible", false},
        {"deepseek2.attention.kv_lora_rank", 32, "attention.key_length is 80; it must be 48, kv_lora_rank and rope", false},
        {"deepseek2.attention.kv_lora_rank", 32,
         "blk.0.attn_kv_a_mqa.weight has shape [64, 80, 1, 1], expected [64, 48]", true},
        {"deepseek2.attention.key_length", 81, "deepseek2.attention.key_length is 81; it must be 80", false},
        {"deepseek2.attention.key_length_mla", 0, "deepseek2.attention.key_length_mla is 0; 2 to 512 are possible", false},
        {"deepseek2.attention.key_length_mla", 16, "queries of 16 values a head, of which 16 rotate; some must be left", false},
        {"deepseek2.attention.key_length_mla", 4294967295u, "attention.key_length_mla is 4294967295; 2 to 512", false},
        {"deepseek2.attention.key_length_mla", 40, "blk.0.attn_q.weight has shape [64, 192, 1, 1], expected [64, 160]", false},
        {"deepseek2.attention.value_length_mla", 0, "attention.value_length_mla is 0; 1 to 512 are possible", false},
        {"deepseek2.attention.value_length_mla", 24,
         "blk.0.attn_v_b.weight has shape [64, 32, 4, 1], expected [64, 24, 4]", false},
        {"deepseek2.attention.value_length", 24, "blk.0.attn_kv_b.weight has shape [64, 256, 1, 1], expected [64, 224]", true},
        {"deepseek2.attention.key_length", 513, "deepseek2.attention.key_length is 513; 2 to 512 are possible", true},
        {"deepseek2.rope.dimension_count", 50, "deepseek2.rope.dimension_count is 50; 2 to 48 are possible", true},
        {"deepseek2.rope.dimension_count", 48,
         "blk.0.attn_kv_a_mqa.weight has shape [64, 80, 1, 1], expected [64, 112]", true},
        {"deepseek2.rope.dimension_count", 15, "deepseek2.rope.dimension_count is 15, an odd number", false},
        {"deepseek2.attention.head_count_kv", 2,
         "attention.head_count_kv is 2; with latent attention it is 1, or as many", false},
    };
    static const struct {
        const char *name, *to, *sentence;
        bool old;
    } absent[] = {
        {"deepseek2.attention.kv_lora_rank", "deepseek2.attention.xx_lora_rank", "deepseek2.attention.kv_lora_rank", false},
        {"deepseek2.rope.dimension_count", "deepseek2.rope.dimension_xxxxx", "deepseek2.rope.dimension_count", false},
        {"deepseek2.attention.key_length_mla", "deepseek2.attention.key_length_xxx", "attention.key_length_mla", false},
        {"deepseek2.attention.value_length_mla", "deepseek2.attention.value_length_xxx", "attention.value_length_mla", false},
        {"deepseek2.attention.key_length", "deepseek2.attention.key_xxxxxx", "deepseek2.attention.key_length", true},
        {"blk.1.attn_k_b.weight", "blk.1.attn_x_b.weight", "tensor blk.1.attn_k_b.weight is missing", false},
        {"blk.1.attn_v_b.weight", "blk.1.attn_x_b.weight", "tensor blk.1.attn_v_b.weight is missing", false},
        {"blk.1.attn_kv_b.weight", "blk.1.attn_xv_b.weight", "tensor blk.1.attn_k_b.weight is missing", true},
        {"blk.0.attn_kv_a_norm.weight", "blk.0.attn_kv_x_norm.weight", "tensor blk.0.attn_kv_a_norm.weight is missing", true},
        {"blk.0.attn_q.weight", "blk.0.attn_x.weight", "tensor blk.0.attn_q.weight is missing", false},
    };
    size_t n;
    uint8_t *bytes;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        bytes = make_latent(counts[i].old, 0, &n);
        set_count(bytes, n, counts[i].key, counts[i].value);
        refused(bytes, n, AERIE_ERROR_FORMAT, counts[i].sentence);
    }
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        bytes = make_latent(absent[i].old, 0, &n);
        rename_one(bytes, n, absent[i].name, absent[i].to);
        refused(bytes, n, AERIE_ERROR_FORMAT, absent[i].sentence);
    }
    bytes = make_latent(false, 40, &n);
    set_count(bytes, n, "deepseek2.attention.q_lora_rank", 41);
    refused(bytes, n, AERIE_ERROR_FORMAT, "tensor blk.0.attn_q_a.weight has shape [64, 40, 1, 1], expected [64, 41]");
    bytes = make_latent(false, 40, &n);
    rename_one(bytes, n, "blk.0.attn_q_a_norm.weight", "blk.0.attn_q_x_norm.weight");
    refused(bytes, n, AERIE_ERROR_FORMAT, "tensor blk.0.attn_q_a_norm.weight is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_blocks_than_counted),
        cmocka_unit_test(test_counts_that_cannot_be),
        cmocka_unit_test(test_tensors_that_are_missing_or_misshapen),
        cmocka_unit_test(test_latent_attention),
    };
    return cmocka_run_group_tests_name("bad models", tests, NULL, NULL);
}
