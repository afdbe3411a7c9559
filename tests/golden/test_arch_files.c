/* test_arch_files.c - ".scale" beside every weight of a tiny model of every architecture, tensors that nothing reads, keys
 * without effect, and projections that are fused.
 *
 * Weights divided by powers of two, with these as scales beside them, give the same function, to the bit: a scale that is not
 * read, or read twice, changes it.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch_rig.inc"
#include "formats/gguf_write.h"
#include "mkscale.h"

static const char *path_of(const char *name)
{
    static char paths[2][128];
    static int i;
    snprintf(paths[i = !i], sizeof paths[0], "%s/%s", folder, name);
    return paths[i];
}

static void logits_of(const char *path, uint32_t chunk, float logits[ROWS][MKARCH_VOCAB])
{
    aerie_error error = {0};
    ae_model *model;
    static golden g;
    read_golden(&g, "llama", ROWS); /* any text */
    need(ae_model_load(&model, path, NULL, &error), &error);
    run_model(model, g.tokens, model->hparams.encoder ? ROWS : chunk, logits);
    ae_model_free(model);
}

static bool same(const mkarch_spec *spec)
{
    static float plain[ROWS][MKARCH_VOCAB], scaled[ROWS][MKARCH_VOCAB];
    aerie_error error = {0};
    need(mkarch_write(spec, true, path_of("m"), &error), &error);
    need(mkscale_write(&(mkscale_options){.kind = MKSCALE_SAME}, path_of("m"), path_of("s"), &error), &error);
    logits_of(path_of("m"), ROWS, plain);
    logits_of(path_of("s"), 7, scaled);
    const bool good = !memcmp(plain, scaled, sizeof plain);
    if (!good) print_error("%s: other logits with scales\n", spec->name);
    unlink(path_of("m")), unlink(path_of("s"));
    return good;
}

static void test_every_weight(void **state)
{
    uint32_t n_bad = 0;
    (void)state;
    for (size_t i = 0; i < mkarch_n_specs; i++) n_bad += !same(&mkarch_specs[i]);
    assert_int_equal(n_bad, 0);
}

/* output.scale beside a tied head belongs to its products alone. */
static void test_tied_output(void **state)
{
    static float plain[ROWS][MKARCH_VOCAB], scaled[ROWS][MKARCH_VOCAB];
    aerie_error error = {0};
    (void)state;
    need(mkarch_write(mkarch_find("qwen2"), true, path_of("m"), &error), &error);
    need(mkscale_write(&(mkscale_options){.extra = "output.scale", .n_extra = 1, .first = 0.5f}, path_of("m"), path_of("s"),
                       &error), &error);
    logits_of(path_of("m"), ROWS, plain);
    logits_of(path_of("s"), ROWS, scaled);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < MKARCH_VOCAB; k++) assert_true(scaled[i][k] == 0.5f * plain[i][k]);
    unlink(path_of("m")), unlink(path_of("s"));
}

/* ---- What nothing reads, and what is not a scale ------------------------------------------------------------------ */

static const struct {
    const char *model, *extra;
    uint32_t n;
    float first;
    const char *text; /* of the refusal, or NULL */
} extras[] = {
    {"llama", "blk.0.attn_q_norm.weight", 24, 0, "nothing reads tensor blk.0.attn_q_norm.weight"},
    {"llama", "blk.3.attn_norm.bias", 64, 1, "nothing reads tensor blk.3.attn_norm.bias"}, /* its norms have none */
    {"qwen3", "blk.0.ffn_norm.bias", 64, 1, "nothing reads tensor blk.0.ffn_norm.bias"},
    {"llama", "output_norm.bias", 64, 1, "nothing reads tensor output_norm.bias"},
    {"llama", "blk.3.attn_norm_2.weight", 64, 0, "nothing reads tensor blk.3.attn_norm_2.weight"},
    {"llama", "blk.1.post_attention_norm.weight", 64, 0, "blk.1.post_attention_norm.weight"},
    {"llama", "blk.1.attn_sub_norm.weight", 96, 0, "blk.1.attn_sub_norm.weight"},
    {"llama", "blk.1.ffn_sub_norm.weight", 96, 0, "blk.1.ffn_sub_norm.weight"},
    {"llama", "blk.2.ffn_gate_inp.weight", 64, 0, "blk.2.ffn_gate_inp.weight"},
    {"llama", "blk.2.ffn_gate_shexp.weight", 64, 0, "blk.2.ffn_gate_shexp.weight"},
    {"llama", "blk.2.attn_norm.scale", 1, 0, "blk.2.attn_norm.scale"},
    {"llama", "token_embd_norm.weight", 64, 0, "nothing reads tensor token_embd_norm.weight"},
    {"llama", "position_embd.weight", 64, 0, "position_embd.weight"},
    {"llama-moe", "blk.0.ffn_gate_inp_shexp.weight", 64, 0, "blk.0.ffn_gate_inp_shexp.weight"},
    {"bert", "blk.0.attn_q_norm.weight", 16, 0, "blk.0.attn_q_norm.weight"},
    {"qwen35-mtp", "blk.0.attn_sub_norm.weight", 64, 0, "blk.0.attn_sub_norm.weight"},
    {"jais", "blk.0.attn_k_norm.weight", 64, 2, "nothing reads tensor blk.0.attn_k_norm.weight"},
    {"command-r", "blk.0.attn_k_norm.weight", 16, 2, "nothing reads tensor blk.0.attn_k_norm.weight"},
    /* known to change nothing */
    {"qwen3", "rope_freqs.weight", 12, 0, NULL},
    {"qwen3", "blk.0.attn_rot_embd.weight", 12, 0, NULL},
    {"qwen3", "blk.1.ffn_down.input_scale", 1, 0, NULL},
    {"qwen3", "output.input_scale", 1, 0, NULL},
    {"qwen3", "v.patch_embd.weight", 12, 0, NULL},
    {"qwen3", "mm.0.weight", 12, 0, NULL},
    {"qwen3", "blk.9.attn_sub_norm.weight", 64, 0, NULL}, /* no layer that runs */
    /* scales that are refused */
    {"llama", "blk.1.attn_q.scale", 2, 0, "blk.1.attn_q.scale has 2 numbers; one is expected"},
    {"llama-moe", "blk.1.ffn_up_exps.scale", 7, 0, "has 7 numbers; one is expected, or one for each expert"},
    {"llama-moe", "blk.1.ffn_up_exps.scale", 1, 0, NULL}, /* one for all */
};

static void test_unread(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        aerie_error error = {0};
        ae_model *model;
        const mkscale_options o = {.extra = extras[i].extra, .n_extra = extras[i].n, .first = extras[i].first};
        need(mkarch_write(mkarch_find(extras[i].model), true, path_of("m"), &error), &error);
        need(mkscale_write(&o, path_of("m"), path_of("s"), &error), &error);
        char unread[AE_MODEL_UNREAD] = "?";
        const aerie_status status = ae_model_load(&model, path_of("s"), &(ae_model_options){.unread = unread}, &error);
        const bool named = extras[i].text && !strstr(extras[i].text, "has "); /* not for what is wrong with a scale */
        if (strcmp(unread, named ? extras[i].extra : ""))
            fail_msg("%s with %s: \"%s\" is unread", extras[i].model, extras[i].extra, unread);
        if (extras[i].text ? status == AERIE_OK || !strstr(error.text, extras[i].text) : status != AERIE_OK)
            fail_msg("%s with %s: %d, %s", extras[i].model, extras[i].extra, (int)status, error.text);
        ae_model_free(model);
    }
    unlink(path_of("m")), unlink(path_of("s"));
}

/* Tensors of llama.cpp's model saver that no program uses: the model counts them for a warning and computes what it computes
 * without them. Where the published code has such a tensor, it counts. */
static void test_unused(void **state)
{
    static const struct {
        const char *model, *extra;
        uint32_t n;
        bool used;
    } cases[] = {
        {"kimi-linear", "blk.0.attn_q.bias", 64, false}, {"kimi-k3", "blk.0.attn_k.bias", 64, false},
        {"bailingmoe3", "blk.0.attn_v.bias", 64, false}, {"glm5-next", "blk.0.attn_q.bias", 64, false},
        {"mpt", "blk.0.attn_k_norm.weight", 64, false},  {"mpt", "blk.0.attn_k_norm.bias", 64, false},
        {"cogvlm", "blk.0.attn_output.bias", 64, false}, {"cogvlm", "blk.1.ffn_down.bias", 64, false},
        {"dream", "output.bias", 264, false},            {"qwen2vl", "output.bias", 264, false},
        {"llada", "rope_freqs.weight", 12, false},       {"cogvlm", "rope_freqs.weight", 8, false},
        {"qwen2", "output.bias", 264, true},             {"qwen3", "blk.0.attn_output.bias", 64, true},
        {"llada", "blk.1.ffn_down.bias", 64, true},
    };
    static float plain[ROWS][MKARCH_VOCAB], other[ROWS][MKARCH_VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aerie_error error = {0};
        ae_model *model;
        const mkscale_options o = {.extra = cases[i].extra, .n_extra = cases[i].n, .first = 3};
        need(mkarch_write(mkarch_find(cases[i].model), true, path_of("m"), &error), &error);
        need(mkscale_write(&o, path_of("m"), path_of("s"), &error), &error);
        need(ae_model_load(&model, path_of("s"), NULL, &error), &error);
        const bool unused = model->n_unused == 1 && !strncmp(model->unused->name.data, cases[i].extra, model->unused->name.n);
        if (unused == cases[i].used)
            fail_msg("%s with %s: %u tensors are not used", cases[i].model, cases[i].extra, model->n_unused);
        ae_model_free(model);
        logits_of(path_of("m"), ROWS, plain);
        logits_of(path_of("s"), ROWS, other);
        if (!memcmp(plain, other, sizeof plain) == cases[i].used)
            fail_msg("%s with %s: %s logits", cases[i].model, cases[i].extra, cases[i].used ? "the same" : "other");
    }
    unlink(path_of("m")), unlink(path_of("s"));
}

/* llama.cpp's model saver writes scales for each repetition of a block, of which those for activations change nothing. */
static void test_scales_of_repetitions(void **state)
{
    static const char *const extra[] = {"blk.9.attn_q.input_scale", "blk.9.attn_q.scale"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        aerie_error error = {0};
        ae_model *model;
        const mkscale_options o = {.kind = MKSCALE_SAME, .extra = extra[i], .n_extra = 1};
        need(mkarch_write(mkarch_find("hrm_text"), true, path_of("m"), &error), &error);
        need(mkscale_write(&o, path_of("m"), path_of("s"), &error), &error);
        assert_int_equal(ae_model_load(&model, path_of("s"), NULL, &error), i ? AERIE_ERROR_FORMAT : AERIE_OK);
        if (i) assert_non_null(strstr(error.text, "tensor blk.9.attn_q.scale belongs to block 9"));
        ae_model_free(model);
    }
    unlink(path_of("m")), unlink(path_of("s"));
}

/* Scales and divisors. */
static void test_scales_are_finite(void **state)
{
    static const struct {
        const char *model, *extra;
        uint32_t n;
        float first;
        const char *text;
    } bad[] = {
        {"llama", "blk.1.attn_v.scale", 1, INFINITY, "blk.1.attn_v.scale: value 0 is infinite or not a number"},
        {"llama", "blk.1.attn_v.scale", 1, NAN, "blk.1.attn_v.scale: value 0 is infinite or not a number"},
        {"mpt", "blk.1.ffn.act.scales", 96, NAN, "blk.1.ffn.act.scales: row 0 has a value that is infinite or not"},
        {"mpt", "blk.1.ffn.act.scales", 96, 1e-45f, "blk.1.ffn.act.scales has the number 1.4013e-45, by which nothing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aerie_error error = {0};
        ae_model *model;
        ae_backend *backend;
        ae_net *net;
        const mkscale_options o = {.extra = bad[i].extra, .n_extra = bad[i].n, .first = bad[i].first};
        need(mkarch_write(mkarch_find(bad[i].model), true, path_of("m"), &error), &error);
        need(mkscale_write(&o, path_of("m"), path_of("s"), &error), &error);
        need(ae_model_load(&model, path_of("s"), NULL, &error), &error);
        need(ae_backend_open(&backend, NULL, NULL, &error), &error);
        assert_int_equal(ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, &error), AERIE_ERROR_FORMAT);
        if (!strstr(error.text, bad[i].text)) fail_msg("it says \"%s\", not \"%s\"", error.text, bad[i].text);
        ae_model_free(model);
        ae_backend_close(backend);
    }
    unlink(path_of("m")), unlink(path_of("s"));
}

/* ---- Keys that say nothing ---------------------------------------------------------------------------------------- */

/* Keys that llama.cpp's model saver (build 11434) adds to those of the file that it read. */
static const struct {
    const char *name;
    char type;
    float value;
} not_given[] = {
    {"leading_dense_block_count", 'u', 0}, {"expert_feed_forward_length", 'u', 0}, {"expert_latent_length", 'u', 0},
    {"expert_shared_feed_forward_length", 'u', 0}, {"expert_count", 'u', 0}, {"expert_used_count", 'u', 0},
    {"expert_shared_count", 'u', 0}, {"expert_group_count", 'u', 0}, {"expert_group_used_count", 'u', 0},
    {"expert_gating_func", 'u', 0}, {"interleave_moe_layer_step", 'u', 0}, {"nextn_predict_layers", 'u', 0},
    {"attention.q_lora_rank", 'u', 0}, {"attention.kv_lora_rank", 'u', 0}, {"attention.key_length_mla", 'u', 0},
    {"attention.value_length_mla", 'u', 0}, {"attention.temperature_length", 'u', 0}, {"ssm.conv_kernel", 'u', 0},
    {"ssm.inner_size", 'u', 0}, {"ssm.state_size", 'u', 0}, {"ssm.time_step_rank", 'u', 0}, {"ssm.group_count", 'u', 0},
    {"shortconv.l_cache", 'u', 0}, {"pooling_type", 'u', -1}, {"expert_weights_norm", 'b', 0},
    {"rope.scaling.finetuned", 'b', 0}, {"attention.causal", 'b', 1}, {"expert_weights_scale", 'f', 0}, {"logit_scale", 'f', 0},
    {"attn_logit_softcapping", 'f', 50}, {"final_logit_softcapping", 'f', 30}, {"router_logit_softcapping", 'f', 30},
    {"residual_scale", 'f', 0}, {"embedding_scale", 'f', 0}, {"attention.scale", 'f', 0},
    {"attention.temperature_scale", 'f', 0}, {"attention.max_alibi_bias", 'f', 0}, {"attention.clamp_kqv", 'f', 0},
    {"rope.scaling.factor", 'f', 0}, {"rope.scaling.attn_factor", 'f', 1}, {"rope.scaling.yarn_log_multiplier", 'f', 0},
    {"rope.scaling.yarn_ext_factor", 'f', -1}, {"rope.scaling.yarn_attn_factor", 'f', 1},
    {"rope.scaling.yarn_beta_fast", 'f', 32}, {"rope.scaling.yarn_beta_slow", 'f', 1}, {"attention.layer_norm_epsilon", 'f', 0},
    {"attention.layer_norm_rms_epsilon", 'f', 0},
};

static aerie_status write_not_given(ae_gguf_writer *out, const ae_gguf *in, aerie_error *error)
{
    ae_gguf_string arch;
    AE_TRY(ae_gguf_get_string(in, "general.architecture", true, &arch, error));
    const bool capped = (arch.n > 5 && !memcmp(arch.data, "gemma", 5)) || (arch.n == 4 && !memcmp(arch.data, "grok", 4));
    const bool granite = (arch.n == 7 || arch.n == 13) && !memcmp(arch.data, "granite", 7); /* granite, granitehybrid */
    const bool bert = arch.n >= 4 && !memcmp(arch.data + arch.n - 4, "bert", 4);
    for (size_t i = 0; i < sizeof not_given / sizeof *not_given; i++) {
        char key[128];
        const char *name = not_given[i].name;
        const float value = not_given[i].value;
        snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.data, name);
        if (ae_gguf_kv_find(in, key)) continue;
        if (capped && strstr(name, "logit_softcapping")) continue; /* whose reader has defaults of its own, as have these */
        if ((granite && strstr(name, "finetuned")) || (bert && (strstr(name, "pooling") || strstr(name, "causal")))) continue;
        switch (not_given[i].type) {
        case 'u': AE_TRY(ae_gguf_writer_u32(out, key, value < 0 ? UINT32_MAX : (uint32_t)value, error)); break;
        case 'b': AE_TRY(ae_gguf_writer_bool(out, key, value != 0.0f, error)); break;
        default: AE_TRY(ae_gguf_writer_f32(out, key, value, error)); break;
        }
    }
    return AERIE_OK;
}

static void test_keys_that_say_nothing(void **state)
{
    static float plain[ROWS][MKARCH_VOCAB], saved[ROWS][MKARCH_VOCAB];
    uint32_t n_bad = 0;
    (void)state;
    for (size_t i = 0; i < mkarch_n_specs; i++) {
        aerie_error error = {0};
        need(mkarch_write(&mkarch_specs[i], true, path_of("m"), &error), &error);
        need(mkscale_write(&(mkscale_options){.keys = write_not_given}, path_of("m"), path_of("s"), &error), &error);
        logits_of(path_of("m"), ROWS, plain);
        logits_of(path_of("s"), ROWS, saved);
        if (!memcmp(plain, saved, sizeof plain)) continue;
        print_error("%s: other logits with keys that say nothing\n", mkarch_specs[i].name);
        n_bad++;
    }
    unlink(path_of("m")), unlink(path_of("s"));
    assert_int_equal(n_bad, 0);
}

/* ---- Keys that may be missing, or say something else -------------------------------------------------------------- */

static const char *other_key;
static uint32_t other_value;

static aerie_status write_other(ae_gguf_writer *out, const ae_gguf *in, aerie_error *error)
{
    char key[128];
    ae_gguf_string arch;
    AE_TRY(ae_gguf_get_string(in, "general.architecture", true, &arch, error));
    snprintf(key, sizeof key, "%.*s%s", (int)arch.n, arch.data, other_key);
    return ae_gguf_writer_u32(out, key, other_value, error);
}

/* Sizes that llama.cpp's reader (build 11434) computes if the key is missing, or that it does not use. */
static void test_keys_that_follow(void **state)
{
    static const struct {
        const char *model, *key;
        uint32_t value; /* 0: the key is missing */
    } cases[] = {
        {"qwen3next", ".expert_feed_forward_length", 0}, {"qwen35moe", ".expert_feed_forward_length", 0},
        {"hunyuan-moe", ".expert_shared_feed_forward_length", 0},
        {"bailingmoe3", ".attention.value_length", 12}, {"kimi-linear", ".attention.value_length", 12},
        {"deepseek2", ".attention.value_length", 24},
    };
    static float plain[ROWS][MKARCH_VOCAB], other[ROWS][MKARCH_VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aerie_error error = {0};
        other_key = cases[i].key, other_value = cases[i].value;
        const mkscale_options o = {.without = other_key, .keys = other_value ? write_other : NULL};
        need(mkarch_write(mkarch_find(cases[i].model), true, path_of("m"), &error), &error);
        need(mkscale_write(&o, path_of("m"), path_of("s"), &error), &error);
        logits_of(path_of("m"), ROWS, plain);
        logits_of(path_of("s"), ROWS, other);
        if (memcmp(plain, other, sizeof plain)) fail_msg("%s: other logits without %s", cases[i].model, other_key);
    }
    unlink(path_of("m")), unlink(path_of("s"));
}

/* ---- Projections that are fused ----------------------------------------------------------------------------------- */

enum { GROUPS = 3, HEAD = 32, PER_GROUP = 2, GROUP = 2 * HEAD + 2 * PER_GROUP * HEAD, PROJECTED = GROUPS * GROUP };

/* The row of ssm_in that is row i of attn_qkv, or of attn_gate after it. */
static size_t fused_row(size_t i)
{
    static const size_t of_group[] = {HEAD, HEAD, PER_GROUP * HEAD, PER_GROUP * HEAD};
    size_t part = 0, begin = 0;
    for (; i >= GROUPS * of_group[part]; part++) i -= GROUPS * of_group[part], begin += of_group[part];
    return i / of_group[part] * GROUP + begin + i % of_group[part];
}

/* Writes the tensors' descriptions, or their data: ssm_in as attn_qkv and attn_gate. */
static void write_parted(const ae_gguf *in, ae_gguf_writer *out, bool data)
{
    aerie_error error = {0};
    for (size_t i = 0; i < ae_gguf_n_tensors(in); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(in, i);
        const char *part = t->name.n > 5 ? memchr(t->name.data + 4, '.', t->name.n - 4) : NULL;
        const bool fused = part && !strncmp(part, ".ssm_in.", 8);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        if (!fused) {
            if (data) need(ae_gguf_writer_data(out, t->data, t->bytes, &error), &error);
            else need(ae_gguf_writer_tensor(out, name, t->type, t->n_dims, t->ne, &error), &error);
            continue;
        }
        assert_int_equal(t->ne[1], PROJECTED);
        const size_t row = t->bytes / PROJECTED;
        for (size_t k = 0; data && k < PROJECTED; k++)
            need(ae_gguf_writer_data(out, (const uint8_t *)t->data + fused_row(k) * row, row, &error), &error);
        for (int k = 0; !data && k < 2; k++) {
            const int64_t ne[2] = {t->ne[0], k ? GROUPS * PER_GROUP * HEAD : PROJECTED - GROUPS * PER_GROUP * HEAD};
            snprintf(name, sizeof name, "%.*s.%s", (int)(part - t->name.data), t->name.data, k ? "attn_gate.weight"
                                                                                               : "attn_qkv.weight");
            need(ae_gguf_writer_tensor(out, name, t->type, 2, ne, &error), &error);
        }
    }
}

/* Qwen3-Next's projections as in files of 2025, and as two tensors: the same function, to the bit. */
static void test_fused_projections(void **state)
{
    static float fused[ROWS][MKARCH_VOCAB], parted[ROWS][MKARCH_VOCAB];
    aerie_error error = {0};
    ae_gguf *in;
    ae_gguf_writer *out;
    (void)state;
    need(mkarch_write(mkarch_find("qwen3next-fused"), true, path_of("m"), &error), &error);
    need(ae_gguf_open(&in, path_of("m"), NULL, &error), &error);
    need(ae_gguf_writer_create(&out, path_of("s"), &error), &error);
    for (size_t i = 0; i < ae_gguf_n_kv(in); i++) need(ae_gguf_writer_copy(out, ae_gguf_kv_at(in, i), &error), &error);
    write_parted(in, out, false);
    need(ae_gguf_writer_begin(out, &error), &error);
    write_parted(in, out, true);
    need(ae_gguf_writer_finish(out, &error), &error);
    ae_gguf_writer_free(out);
    ae_gguf_close(in);
    logits_of(path_of("m"), ROWS, fused);
    logits_of(path_of("s"), 7, parted);
    assert_memory_equal(fused, parted, sizeof fused);
    unlink(path_of("m")), unlink(path_of("s"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused_projections), cmocka_unit_test(test_keys_that_follow),
                                       cmocka_unit_test(test_every_weight), cmocka_unit_test(test_tied_output),
                                       cmocka_unit_test(test_unread), cmocka_unit_test(test_unused),
                                       cmocka_unit_test(test_scales_of_repetitions),
                                       cmocka_unit_test(test_keys_that_say_nothing), cmocka_unit_test(test_scales_are_finite)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
