/* test_convert_library.c - src/convert without the program: remarks and progress come by callback, nothing is printed, and a
 * conversion that is cancelled or fails leaves no file. tests/app/test_convert.c checks the contents of files. */
#include "convert_model.inc"

#include <dirent.h>

#include "convert/convert.h"

typedef struct listener {
    unsigned n_warnings, n_notes, n_steps, cancel_at; /* cancel_at: the call that returns false; 0 = none */
    uint64_t last, total;
    char sentence[256];
} listener;

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    listener *l = user;
    l->n_warnings += level == AERIE_LOG_WARNING;
    l->n_notes += level == AERIE_LOG_INFO;
    snprintf(l->sentence, sizeof l->sentence, "%s", sentence);
}

static bool on_step(void *user, const char *step, uint64_t done, uint64_t total)
{
    listener *l = user;
    if (strcmp(step, "writing") || done > total || (l->n_steps && (done < l->last || total != l->total)))
        fail_msg("%s: %llu of %llu after %llu", step, (unsigned long long)done, (unsigned long long)total,
                 (unsigned long long)l->last);
    l->last = done;
    l->total = total;
    return ++l->n_steps != l->cancel_at;
}

static size_t n_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static aerie_status convert(const char *folder, const char *out, listener *l, aerie_error *error)
{
    char from[256], to[256];
    ae_convert *c;
    snprintf(from, sizeof from, "%s/%s", cli_folder, folder);
    snprintf(to, sizeof to, "%s/%s", cli_folder, out);
    const ae_convert_options options = {.checkpoint = from, .output = to, .type = AE_TYPE_Q4_K,
                                        .producer = AE_CONVERT_PRODUCER_AUTO, .log = {l ? on_log : NULL, l},
                                        .progress = l ? on_step : NULL, .user = l};
    aerie_status status = ae_convert_open(&c, &options, error);
    if (status != AERIE_OK) {
        assert_null(c);
        return status;
    }
    status = ae_convert_run(c, error);
    if (status == AERIE_OK) {
        const ae_convert_report r = ae_convert_reported(c);
        assert_string_equal(r.kind, "EAGLE-3");
        assert_int_equal(r.head->n_draft, 100);
        assert_true(r.n_tensors > 10 && r.bytes > 0);
        assert_null(r.check);
        if (l) assert_int_equal(l->last, r.bytes);
    }
    ae_convert_free(c);
    return status;
}

static void by_callback(void **state)
{
    (void)state;
    const spec head = {TINY, MID};
    write_head("plain", &head, CONFIG("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}," USUAL_TAPS));
    listener l = {.n_steps = 0};
    aerie_error error = {0};
    if (convert("plain", "plain.gguf", &l, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(l.n_warnings, 1); /* dynamic RoPE scaling */
    assert_int_equal(l.n_notes, 1);    /* rows of 64 are not blocks of Q4_K */
    assert_non_null(strstr(l.sentence, "do not fit"));
    assert_true(l.n_steps > 100);
    ae_gguf_close(open_file("plain.gguf"));
    if (convert("plain", "silent.gguf", NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void leaves_nothing(void **state)
{
    (void)state;
    const spec head = {TINY, MID};
    aerie_error error = {0};
    write_head("again", &head, CONFIG(USUAL_TAPS));
    const size_t before = n_files(cli_folder);
    for (unsigned at = 1; at < 400; at = 3 * at + 1) {
        listener l = {.cancel_at = at};
        assert_int_equal(convert("again", "again.gguf", &l, &error), AERIE_ERROR_CANCELLED);
        assert_int_equal(l.n_steps, at);
        assert_int_equal(n_files(cli_folder), before);
    }
    assert_int_equal(convert("again", "again/model.safetensors", NULL, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "is being read"));
    assert_int_equal(convert("nothing", "nothing.gguf", NULL, &error), AERIE_ERROR_IO);
    make_folder("other");
    st_make m = {0};
    st_make_floats(&m, "vision.patch.weight", "vision.patch.weight", 4, 4);
    write_checkpoint("other", &m, "{}");
    assert_int_equal(convert("other", "other.gguf", NULL, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "not a drafter head"));
    assert_int_equal(n_files(cli_folder), before + 1);
}

/* ---- Models --------------------------------------------------------------------------------------- */

static bool with_mtp;

static aerie_status convert_model_to(const char *folder, uint32_t type, aerie_model **model, aerie_error *error)
{
    char from[256], to[256];
    ae_convert *c;
    snprintf(from, sizeof from, "%s/%s", cli_folder, folder);
    snprintf(to, sizeof to, "%s/%s.gguf", cli_folder, folder);
    const ae_convert_options options = {
        .checkpoint = from, .output = to, .type = type, .producer = AE_CONVERT_PRODUCER_AUTO,
        .mtp = with_mtp};
    AE_TRY(ae_convert_open(&c, &options, error));
    const aerie_status status = ae_convert_run(c, error);
    const ae_convert_report r = ae_convert_reported(c);
    assert_true(r.model && !r.head && !r.encoder && r.model->n_vocab == 264);
    ae_convert_free(c);
    return status == AERIE_OK ? aerie_model_load(model, to, NULL, error) : status;
}

static aerie_status convert_model(const char *folder, aerie_model **model, aerie_error *error)
{
    return convert_model_to(folder, AE_TYPE_F32, model, error);
}

static float value_at(const ae_gguf *file, const char *name, size_t i)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(file, name);
    float x;
    assert_non_null(t);
    memcpy(&x, (const char *)t->data + i * sizeof x, sizeof x);
    return x;
}

static void models(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_info info;
    int32_t *ids;
    size_t n;
    float temperature;
    (void)state;
    write_model("llama", "LlamaForCausalLM", ",\"rope_theta\":5e5,\"eos_token_id\":200,\"time_step_limit\":[0,Infinity]", 0,
                NULL, NULL);
    write_tokenizer("llama", qwen2_words);
    if (convert_model("llama", &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_info_get(model, &info, sizeof info);
    assert_true(info.n_embd == 32 && info.n_layers == 1 && info.n_ctx_train == 128);
    assert_int_equal(aerie_model_tokenize(model, "hello<|end|><x>", 15, true, true, &ids, &n, &error), AERIE_OK);
    static const int32_t wanted[] = {0, 1, 'o', 200, 201};
    assert_true(n == 5 && !memcmp(ids, wanted, sizeof wanted));
    aerie_free(ids);
    aerie_model_free(model);
    ae_gguf *file = open_file("llama.gguf");
    assert_int_equal(ae_gguf_get_f32(file, "general.sampling.temp", true, &temperature, &error), AERIE_OK);
    assert_true(fabsf(temperature - 0.6f) < 1e-6f && ae_gguf_kv_find(file, "tokenizer.chat_template"));
    /* heads of 8: the new row 1 of each is the old row 4; other tensors stay */
    assert_true(value_at(file, "blk.0.attn_q.weight", 32 * 9 + 5) == st_value("layers.0.self_attn.q_proj.weight", 32 * 12 + 5));
    assert_true(value_at(file, "blk.0.attn_v.weight", 32 * 9 + 5) == st_value("layers.0.self_attn.v_proj.weight", 32 * 9 + 5));
    assert_null(ae_gguf_tensor_find(file, "output.weight"));
    ae_gguf_close(file);
    write_model("experts", "Qwen3MoeForCausalLM", ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64",
                4, NULL, NULL);
    write_tokenizer("experts", qwen2_words);
    if (convert_model("experts", &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_free(model);
    file = open_file("experts.gguf");
    assert_true(value_at(file, "blk.0.ffn_down_exps.weight", (2 * 32 + 3) * 64 + 7) ==
                st_value("model.layers.0.mlp.experts.2.down_proj.weight", 3 * 64 + 7));
    assert_true(value_at(file, "blk.0.attn_q.weight", 32 * 9 + 5) == st_value("layers.0.self_attn.q_proj.weight", 32 * 9 + 5));
    ae_gguf_close(file);
}

static void model_refused(const char *folder, const char *class, const char *more, const char *leave, const char *f8,
                          const char *words, const char *part)
{
    aerie_error error = {0};
    aerie_model *model;
    write_model(folder, class, more, 0, leave, f8);
    if (words) write_tokenizer(folder, words);
    assert_int_not_equal(convert_model(folder, &model, &error), AERIE_OK);
    if (!strstr(error.text, part)) fail_msg("%s: %s", folder, error.text);
    char path[256];
    snprintf(path, sizeof path, "%s/%s.gguf", cli_folder, folder);
    assert_false(ae_file_exists(path));
}

static void other_models(void **state)
{
    (void)state;
    model_refused("class", "GPTJForCausalLM", "", NULL, NULL, qwen2_words, "known are LlamaForCausalLM");
    model_refused("lacks", "LlamaForCausalLM", "", "layers.0.self_attn.v_proj.weight", NULL, qwen2_words,
                  "attn_v.weight is missing");
    model_refused("float8", "LlamaForCausalLM", "", NULL, "layers.0.input_layernorm.weight", qwen2_words, "F8_E4M3");
    model_refused("words", "LlamaForCausalLM", "", NULL, NULL, "[a-z]+", "--pre NAME");
    model_refused("mute", "LlamaForCausalLM", "", NULL, NULL, NULL, "neither tokenizer.json nor tokenizer.model");
    model_refused("heads", "LlamaForCausalLM", ",\"head_dim\":10", NULL, NULL, qwen2_words, "whole number of heads");
    model_refused("scaling", "LlamaForCausalLM", ",\"rope_scaling\":{\"type\":\"odd\"}", NULL, NULL, qwen2_words,
                  "'odd' is unknown");
    model_refused("layers", "LlamaForCausalLM", ",\"hidden_size_of_others\":1", NULL, NULL, qwen2_words,
                  "layers.1.extra.weight is unknown in");
    model_refused("more", "LlamaForCausalLM", ",\"num_hidden_layers\":0", NULL, NULL, qwen2_words,
                  "num_hidden_layers' is 0"); /* of a key that stands twice the last value counts */
    write_model("vocab", "LlamaForCausalLM", "", 0, NULL, NULL);
    write_in("vocab", "tokenizer.json",
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":264}},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}");
    aerie_error error = {0};
    aerie_model *model;
    assert_int_not_equal(convert_model("vocab", &model, &error), AERIE_OK);
    if (!strstr(error.text, "has id 264")) fail_msg("%s", error.text);
}

/* ---- Codes and scales ----------------------------------------------------------------------------- */

/* The down projection [32, 64] in FP8, and its scales. */
static struct {
    const char *dtype, *suffix, *scale_dtype, *shape;
    size_t n;        /* scales */
    int bad_code, bad_scale; /* the place of a NaN; -1: none */
} fp8;

static uint8_t fp8_code(size_t i)
{
    const uint8_t code = (uint8_t)(i * 37 + i / 64 * 5);
    return (int)i == fp8.bad_code ? 0xff : (code & 0x7c) == 0x7c ? 0x12 : code; /* codes other than NaN and infinity of either
                                                                                 * type */
}

static float fp8_value(size_t i)
{
    const uint8_t code = fp8_code(i);
    const bool e4m3 = strcmp(fp8.dtype, "F8_E4M3") == 0;
    const int bits = e4m3 ? 3 : 2, exponent = (code & 127) >> bits, mantissa = code & ((1 << bits) - 1), bias = e4m3 ? 7 : 15;
    const double size = exponent ? ldexp(mantissa + (1 << bits), exponent - bias - bits) : ldexp(mantissa, 1 - bias - bits);
    return (float)(code & 128 ? -size : size);
}

static float fp8_scale(size_t i)
{
    if ((int)i == fp8.bad_scale) return NAN;
    return fp8.scale_dtype[0] == 'U' ? ldexpf(1.0f, (int)i % 7 - 3) : 0.25f + 0.125f * (float)i;
}

static void add_fp8(st_make *m)
{
    uint8_t codes[32 * 64], scales[512];
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = fp8_code(i);
    for (size_t i = 0; i < fp8.n; i++) {
        const float v = fp8_scale(i);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        const uint16_t high = (uint16_t)(bits >> 16);
        if (fp8.scale_dtype[0] == 'U') scales[i] = v != v ? 255 : (uint8_t)(bits >> 23);
        else if (fp8.scale_dtype[0] == 'B') memcpy(scales + 2 * i, &high, 2);
        else memcpy(scales + 4 * i, &v, 4);
    }
    const size_t each = fp8.scale_dtype[0] == 'U' ? 1 : fp8.scale_dtype[0] == 'B' ? 2 : 4;
    char name[128];
    snprintf(name, sizeof name, "model.layers.0.mlp.down_proj.weight%s", fp8.suffix);
    st_make_raw(m, "model.layers.0.mlp.down_proj.weight", fp8.dtype, "[32,64]", codes, sizeof codes);
    st_make_raw(m, name, fp8.scale_dtype, fp8.shape, scales, fp8.n * each);
    st_make_raw(m, "model.layers.0.mlp.down_proj.input_scale", "F32", "[]", scales, 4);
}

static aerie_status convert_fp8(const char *more, aerie_error *error)
{
    aerie_model *model;
    char config[256];
    snprintf(config, sizeof config, ",\"quantization_config\":{\"quant_method\":\"fp8\"%s}", more);
    add_more = add_fp8;
    write_model("fp8", "Qwen2ForCausalLM", config, 0, "layers.0.mlp.down_proj.weight", NULL);
    add_more = NULL;
    write_tokenizer("fp8", qwen2_words);
    const aerie_status status = convert_model("fp8", &model, error);
    if (status == AERIE_OK) aerie_model_free(model);
    return status;
}

static void float8(void **state)
{
    static const struct {
        const char *dtype, *suffix, *scale_dtype, *shape, *more;
        size_t n, rows, columns; /* the number of scales; weights that share one */
        size_t wide;
    } good[] = {
        {"F8_E4M3", "_scale_inv", "F32", "[2,3]", ",\"weight_block_size\":[16,24]", 6, 16, 24, 3}, /* the last groups are
                                                                                                    * smaller */
        {"F8_E4M3", "_scale_inv", "BF16", "[1,1]", "", 1, 32, 64, 1},
        {"F8_E4M3", "_scale", "F32", "[32,1]", "", 32, 1, 64, 1},
        {"F8_E5M2", "_scale", "F32", "[]", "", 1, 32, 64, 1},
        {"F8_E4M3", "_scale_inv", "U8", "[32,2]", ",\"weight_block_size\":null", 64, 1, 32, 2},
    };
    aerie_error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        fp8.dtype = good[i].dtype, fp8.suffix = good[i].suffix, fp8.scale_dtype = good[i].scale_dtype;
        fp8.shape = good[i].shape, fp8.n = good[i].n, fp8.bad_code = fp8.bad_scale = -1;
        if (convert_fp8(good[i].more, &error) != AERIE_OK) fail_msg("%d: %s", (int)i, error.text);
        ae_gguf *file = open_file("fp8.gguf");
        for (size_t k = 0; k < 32 * 64; k++) {
            const size_t scale = k / 64 / good[i].rows * good[i].wide + k % 64 / good[i].columns;
            const float got = value_at(file, "blk.0.ffn_down.weight", k), wanted = fp8_value(k) * fp8_scale(scale);
            if (got != wanted) fail_msg("%d: number %d is %g, not %g", (int)i, (int)k, (double)got, (double)wanted);
        }
        ae_gguf_close(file);
    }
    static const struct {
        const char *suffix, *scale_dtype, *shape, *more, *part;
        size_t n;
        int bad_code, bad_scale;
    } bad[] = {
        {"_factor", "F32", "[1]", "", "has no scales", 1, -1, -1},
        {"_scale_inv", "F32", "[3,3]", "", "block of 128 x 128", 9, -1, -1},
        {"_scale_inv", "F32", "[0,3]", "", "block of 128 x 128", 0, -1, -1},
        {"_scale_inv", "F32", "[4]", "", "one number", 4, -1, -1},
        {"_scale_inv", "F32", "[1,1,1,4]", "", "one number", 4, -1, -1},
        {"_scale_inv", "I32", "[1]", "", "F32, F16, BF16", 1, -1, -1},
        {"_scale_inv", "F32", "[1]", ",\"weight_block_size\":[0,128]", "'weight_block_size'", 1, -1, -1},
        {"_scale_inv", "F32", "[1]", ",\"weight_block_size\":[128]", "'weight_block_size'", 1, -1, -1},
        {"_scale_inv", "F32", "[1]", ",\"weight_block_size\":\"x\"", "'weight_block_size'", 1, -1, -1},
        {"_scale_inv", "F32", "[1]", "", "down_proj.weight holds", 1, 100, -1},
        {"_scale_inv", "F32", "[1,4]", "", "down_proj.weight holds", 4, -1, 2},
        {"_scale_inv", "U8", "[32,2]", "", "down_proj.weight holds", 64, -1, 63},
    };
    fp8.dtype = "F8_E4M3";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8.suffix = bad[i].suffix, fp8.scale_dtype = bad[i].scale_dtype, fp8.shape = bad[i].shape, fp8.n = bad[i].n;
        fp8.bad_code = bad[i].bad_code, fp8.bad_scale = bad[i].bad_scale;
        if (convert_fp8(bad[i].more, &error) == AERIE_OK || !strstr(error.text, bad[i].part))
            fail_msg("%d: %s", (int)i, error.text);
    }
}

enum { MX_EXPERTS = 2, MX_FF = 64 };
static const char *mx_scales_shape; /* shape of the gate and up projections; NULL: the right one */

static void add_mxfp4(st_make *m)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {{"self_attn.q_proj.bias", 0, 32}, {"self_attn.k_proj.bias", 0, 16}, {"self_attn.v_proj.bias", 0, 16},
                 {"self_attn.o_proj.bias", 0, 32}, {"self_attn.sinks", 0, 4}, {"mlp.router.weight", MX_EXPERTS, 32},
                 {"mlp.router.bias", 0, MX_EXPERTS}, {"mlp.experts.gate_up_proj_bias", MX_EXPERTS, 2 * MX_FF},
                 {"mlp.experts.down_proj_bias", MX_EXPERTS, 32}};
    uint8_t codes[MX_EXPERTS * 2 * MX_FF * 16], scales[MX_EXPERTS * 2 * MX_FF];
    char name[96];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s", parts[i].name);
        st_make_floats(m, name, name, parts[i].rows, parts[i].columns);
    }
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i * 41 + i / 16);
    for (size_t i = 0; i < sizeof scales; i++) scales[i] = (uint8_t)(112 + i % 9);
    st_make_raw(m, "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "[2,128,1,16]", codes, 2 * 128 * 16);
    st_make_raw(m, "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", mx_scales_shape ? mx_scales_shape : "[2,128,1]",
                scales, mx_scales_shape ? 128 : 2 * 128);
    st_make_raw(m, "model.layers.0.mlp.experts.down_proj_blocks", "U8", "[2,32,2,16]", codes, 2 * 32 * 2 * 16);
    st_make_raw(m, "model.layers.0.mlp.experts.down_proj_scales", "U8", "[2,32,2]", scales, 2 * 32 * 2);
}

/* Number k of a group of 32, whose codes begin at byte `at`. */
static float mx_value(size_t at, size_t scale, size_t k)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const size_t i = at + k / 2;
    const uint8_t byte = (uint8_t)(i * 41 + i / 16), code = k % 2 ? byte >> 4 : byte & 15;
    return ldexpf(code & 8 ? -values[code & 7] : values[code & 7], (int)(112 + scale % 9) - 127);
}

static void mxfp4(void **state)
{
    static const char more[] = ",\"num_local_experts\":2,\"num_experts_per_tok\":1,\"head_dim\":8,\"sliding_window\":16,"
                               "\"quantization_config\":{\"quant_method\":\"mxfp4\"}";
    static const uint32_t types[] = {AE_TYPE_F32, AE_TYPE_F16, AE_TYPE_Q8_0};
    aerie_error error = {0};
    aerie_model *model;
    (void)state;
    add_more = add_mxfp4;
    write_model("mx", "GptOssForCausalLM", more, 0, NULL, NULL);
    write_tokenizer("mx", qwen2_words);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) { /* as they are in files of less than 32 bits */
        if (convert_model_to("mx", types[i], &model, &error) != AERIE_OK) fail_msg("%s", error.text);
        aerie_model_free(model);
        ae_gguf *file = open_file("mx.gguf");
        const uint32_t type = i ? AE_TYPE_MXFP4 : AE_TYPE_F32;
        const ae_gguf_tensor *gate = ae_gguf_tensor_find(file, "blk.0.ffn_gate_exps.weight"),
                             *up = ae_gguf_tensor_find(file, "blk.0.ffn_up_exps.weight"),
                             *down = ae_gguf_tensor_find(file, "blk.0.ffn_down_exps.weight");
        assert_true(gate && up && down && gate->type == type && up->type == type && down->type == type);
        float x[MX_EXPERTS * MX_FF * 32];
        for (size_t half = 0; half < 2; half++) { /* rows of gate and up in turn */
            ae_type_get(type)->decode((half ? up : gate)->data, x, sizeof x / sizeof *x);
            for (size_t k = 0; k < sizeof x / sizeof *x; k++) {
                const size_t row = 2 * (k / 32) + half;
                if (x[k] != mx_value(16 * row, row, k % 32)) fail_msg("%d: number %d is %g", (int)half, (int)k, (double)x[k]);
            }
        }
        ae_type_get(type)->decode(down->data, x, MX_EXPERTS * 32 * MX_FF);
        for (size_t k = 0; k < MX_EXPERTS * 32 * MX_FF; k++) assert_true(x[k] == mx_value(k / 32 * 16, k / 32, k % 32));
        ae_gguf_close(file);
    }
    mx_scales_shape = "[2,64,1]";
    write_model("mx", "GptOssForCausalLM", more, 0, NULL, NULL);
    write_tokenizer("mx", qwen2_words);
    assert_int_not_equal(convert_model("mx", &model, &error), AERIE_OK);
    if (!strstr(error.text, "gate_up_proj_scales is [2, 64, 1]")) fail_msg("%s", error.text);
    add_more = NULL;
}

/* ---- Blocks that predict further ahead ------------------------------------------------------------ */

static struct {
    const char *block, *layer; /* prefix of the names of the block's own parts, and of its layer's */
    const char *const *own;    /* [6] eh_proj, two norms, the norm before the output, the output, the embedding */
    const char *leave;         /* of own; NULL: none */
    const char *head_key;      /* factor of the output's values: the embedding has the same */
} ahead;

static void add_ahead(st_make *m)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } layer[] = {{"input_layernorm.weight", 0, 32},     {"post_attention_layernorm.weight", 0, 32},
                 {"self_attn.q_proj.weight", 32, 32},   {"self_attn.k_proj.weight", 16, 32},
                 {"self_attn.v_proj.weight", 16, 32},   {"self_attn.o_proj.weight", 32, 32},
                 {"mlp.gate_proj.weight", 64, 32},      {"mlp.up_proj.weight", 64, 32}, {"mlp.down_proj.weight", 32, 64}};
    static const uint64_t rows[] = {32, 0, 0, 0, 264, 264}, columns[] = {64, 32, 32, 32, 32, 32};
    char name[128];
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        snprintf(name, sizeof name, "%s%s", ahead.layer, layer[i].name);
        st_make_floats(m, name, layer[i].name, layer[i].rows, layer[i].columns);
    }
    for (size_t i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "%s%s.weight", ahead.block, ahead.own[i]);
        if (ahead.leave && strcmp(ahead.leave, ahead.own[i]) == 0) continue;
        st_make_floats(m, name, i == 4 ? ahead.head_key : i == 5 ? "embed_tokens.weight" : ahead.own[i], rows[i], columns[i]);
    }
}

static aerie_status convert_ahead(bool mtp, aerie_error *error)
{
    aerie_model *model;
    add_more = add_ahead;
    with_mtp = mtp;
    write_model("ahead", "LlamaForCausalLM", ",\"num_nextn_predict_layers\":1", 0, NULL, NULL);
    write_tokenizer("ahead", qwen2_words);
    const aerie_status status = convert_model("ahead", &model, error);
    if (status == AERIE_OK) aerie_model_free(model);
    add_more = NULL;
    with_mtp = false;
    return status;
}

static void further_ahead(void **state)
{
    static const char *const own[][6] = {
        {"eh_proj", "enorm", "hnorm", "shared_head.norm", "shared_head.head", "embed_tokens"},
        {"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "shared_head.head", "embed_tokens"}};
    static const char *const blocks[] = {"model.layers.1.", "mtp."}, *const layers[] = {"model.layers.1.", "mtp.layers.0."};
    aerie_error error = {0};
    uint32_t n;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        ahead.block = blocks[i], ahead.layer = layers[i], ahead.own = own[i], ahead.leave = NULL;
        ahead.head_key = "another";
        if (convert_ahead(true, &error) != AERIE_OK) fail_msg("%s: %s", blocks[i], error.text);
        ae_gguf *file = open_file("ahead.gguf");
        assert_true(ae_gguf_get_u32(file, "llama.block_count", true, &n, &error) == AERIE_OK && n == 2);
        assert_true(ae_gguf_get_u32(file, "llama.nextn_predict_layers", true, &n, &error) == AERIE_OK && n == 1);
        assert_true(value_at(file, "blk.1.nextn.eh_proj.weight", 99) == st_value(own[i][0], 99));
        assert_true(value_at(file, "blk.1.nextn.hnorm.weight", 9) == st_value(own[i][2], 9));
        assert_true(value_at(file, "blk.1.nextn.shared_head_head.weight", 9) == st_value("another", 9));
        assert_true(value_at(file, "blk.1.attn_q.weight", 32 * 9 + 5) == st_value("self_attn.q_proj.weight", 32 * 12 + 5));
        assert_null(ae_gguf_tensor_find(file, "blk.1.nextn.embed_tokens.weight")); /* it is the model's */
        ae_gguf_close(file);
        ahead.head_key = "embed_tokens.weight"; /* so is the output, which the model ties */
        if (convert_ahead(true, &error) != AERIE_OK) fail_msg("%s: %s", blocks[i], error.text);
        file = open_file("ahead.gguf");
        assert_null(ae_gguf_tensor_find(file, "blk.1.nextn.shared_head_head.weight"));
        ae_gguf_close(file);
        if (convert_ahead(false, &error) != AERIE_OK) fail_msg("%s: %s", blocks[i], error.text); /* other programs do not read
                                                                                                  * it */
        file = open_file("ahead.gguf");
        assert_true(ae_gguf_get_u32(file, "llama.block_count", true, &n, &error) == AERIE_OK && n == 1);
        assert_null(ae_gguf_tensor_find(file, "blk.1.attn_q.weight"));
        ae_gguf_close(file);
        ahead.leave = own[i][1];
        assert_int_not_equal(convert_ahead(true, &error), AERIE_OK);
        if (!strstr(error.text, "enorm.weight is missing")) fail_msg("%s", error.text);
    }
}

/* tokenizer.model alone, and every way of cutting it short. */
static void sentence_piece(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    ae_buf file = {0};
    int32_t *ids;
    size_t n;
    (void)state;
    add_pieces(&file);
    write_model("spm", "LlamaForCausalLM", ",\"bos_token_id\":1,\"eos_token_id\":2", 0, NULL, NULL);
    cli_write("spm/tokenizer.model", file.data, file.n);
    if (convert_model("spm", &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(aerie_model_tokenize(model, "ab a", 4, true, false, &ids, &n, &error), AERIE_OK);
    static const int32_t wanted[] = {1, 6, 7};
    assert_true(n == 3 && !memcmp(ids, wanted, sizeof wanted));
    aerie_free(ids);
    aerie_model_free(model);
    for (size_t cut = 0; cut < file.n; cut += 7) {
        cli_write("spm/tokenizer.model", file.data, cut);
        if (convert_model("spm", &model, &error) == AERIE_OK) aerie_model_free(model); /* cut between two pieces */
        else assert_true(error.text[0] != 0);
    }
    ae_buf_free(&file);
}

static void unigram(void **state)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model"};
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_info info;
    ae_buf file = {0};
    int32_t *ids;
    size_t n;
    (void)state;
    add_pieces_of(&file, true);
    for (int i = 0; i < 2; i++) {
        char path[64];
        const char *folder = i ? "unigram2" : "unigram";
        write_model(folder, "LlamaForCausalLM", ",\"bos_token_id\":1,\"eos_token_id\":2,\"unk_token_id\":0", 0, NULL, NULL);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        cli_write(path, file.data, file.n);
        if (convert_model(folder, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
        aerie_model_info_get(model, &info, sizeof info);
        assert_string_equal(info.tokenizer, "unigram");
        assert_int_equal(aerie_model_tokenize(model, " ab  a c", 8, true, false, &ids, &n, &error), AERIE_OK);
        static const int32_t wanted[] = {1, 6, 7, 3, 0};
        assert_int_equal(n, sizeof wanted / sizeof *wanted);
        assert_memory_equal(ids, wanted, sizeof wanted);
        aerie_free(ids);
        aerie_model_free(model);
    }
    for (size_t cut = 0; cut < file.n; cut += 3) {
        cli_write("unigram/tokenizer.model", file.data, cut);
        if (convert_model("unigram", &model, &error) == AERIE_OK) aerie_model_free(model); /* cut between two fields */
        else assert_true(error.text[0] != 0);
    }
    ae_buf_free(&file);
}

/* A file that is read is never overwritten. */
static void keeps_its_folder(void **state)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json",
                                        "model.safetensors"};
    aerie_error error = {0};
    (void)state;
    write_model("kept", "LlamaForCausalLM", "", 0, NULL, NULL);
    write_tokenizer("kept", qwen2_words);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[256], to[280];
        ae_convert *c;
        snprintf(from, sizeof from, "%s/kept", cli_folder);
        snprintf(to, sizeof to, "%s/%s", from, names[i]);
        const ae_convert_options options = {.checkpoint = from, .output = to, .type = AE_TYPE_F32,
                                            .producer = AE_CONVERT_PRODUCER_AUTO};
        assert_int_equal(ae_convert_open(&c, &options, &error), AERIE_OK);
        assert_int_equal(ae_convert_run(c, &error), AERIE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, "is being read"));
        ae_convert_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentence_piece),
        cmocka_unit_test(unigram),
        cmocka_unit_test(keeps_its_folder),
        cmocka_unit_test(models),
        cmocka_unit_test(other_models),
        cmocka_unit_test(float8),
        cmocka_unit_test(mxfp4),
        cmocka_unit_test(further_ahead),
        cmocka_unit_test(by_callback),
        cmocka_unit_test(leaves_nothing),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
