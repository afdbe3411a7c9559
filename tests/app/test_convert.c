/* test_convert.c - aerie convert: each producer's naming and config, values that must not change, and refusals. */
#include "convert_rig.inc"

static void converts(const char *line)
{
    cli("%s", line);
    if (cli_last.status) fail_msg("%s: %d: %s", line, cli_last.status, cli_last.err);
}

/* ---- Producers ------------------------------------------------------------------------------------------ */

typedef struct producer_case {
    const char *producer, *config;
    spec head;
    uint32_t taps[3];
    bool normed_residual, post;
    const char *fc_norm; /* "none", "each", "joint" */
} producer_case;

static const producer_case producers[] = {
    {"official", CONFIG("\"architectures\":[\"LlamaForCausalLM\"]," USUAL_TAPS), {TINY, MID}, {2, 4, 5}, false, false, "none"},
    {"official", CONFIG("\"architectures\":[\"LlamaForCausalLM\"],\"target_hidden_size\":128," USUAL_TAPS),
     {TINY, MID, .n_target_embd = 128, .embedding = true}, {2, 4, 5}, false, false, "none"},
    {"specforge", CONFIG("\"architectures\":[\"LlamaForCausalLMEagle3\"],\"eagle_config\":{"
                         "\"eagle_aux_hidden_state_layer_ids\":[1,23,44],\"use_aux_hidden_state\":true}"),
     {TINY, MID, .bias = true}, {2, 24, 45}, false, false, "none"},
    {"specforge", CONFIG("\"architectures\":[\"LlamaForCausalLMEagle3\"],\"norm_output\":true,\"fc_norm\":true,"
                         "\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[3,7,9]}"),
     {TINY, MID, .fc_norm = "fc_norm.%u.weight"}, {4, 8, 10}, false, false, "each"},
    {"specforge", CONFIG("\"architectures\":[\"LlamaForCausalLMEagle3\"],\"norm_output\":true,\"head_dim\":32," USUAL_TAPS),
     {TINY, .prefix = "", .layer = "layers.0.", .d2t = "d2t", .head_dim = 32, .qk_norm = true},
     {2, 4, 5}, false, false, "none"},
    {"angelslim", CONFIG("\"architectures\":[\"Eagle3LlamaForCausalLM\"],\"norm_output\":true," USUAL_TAPS),
     {TINY, MID}, {2, 4, 5}, false, true, "none"},
    {"angelslim", CONFIG("\"architectures\":[\"Eagle3LlamaForCausalLM\"],\"norm_output\":true,\"fc_norm\":true,"
                         "\"eagle_aux_hidden_state_layer_ids\":[3,7,9]"),
     {TINY, .prefix = "model.", .layer = "layers.0.", .d2t = "d2t", .fc_norm = "fc_norm.%u.weight"},
     {3, 7, 9}, false, true, "each"},
    {"speculators", "{\"architectures\":[\"Eagle3Speculator\"],\"speculators_model_type\":\"eagle3\",\"draft_vocab_size\":100,"
                    "\"target_hidden_size\":null,\"eagle_aux_hidden_state_layer_ids\":[2,14,25],\"norm_before_residual\":null,"
                    "\"transformer_layer_config\":{" LAYER_CONFIG ",\"rope_theta\":500000.0}}",
     {TINY, .prefix = "", .layer = "layers.0.", .d2t = "d2t", .embedding = true, .rope_base = 500000},
     {2, 14, 25}, true, false, "none"},
    {"speculators", "{\"architectures\":[\"Eagle3DraftModel\"],\"draft_vocab_size\":100,\"norm_before_residual\":false,"
                    "\"norm_before_fc\":true,\"norm_output\":true," USUAL_TAPS
                    ",\"transformer_layer_config\":{" LAYER_CONFIG "}}",
     {TINY, .prefix = "", .layer = "layers.0.", .d2t = "d2t", .fc_norm = "input_norm.weight"}, {2, 4, 5}, false, true, "joint"},
    {"nvidia", CONFIG("\"architectures\":[\"LlamaForCausalLMEagle3\"],\"eagle_config\":{"
                      "\"eagle_aux_hidden_state_layer_ids\":[3,9,12],\"use_aux_hidden_state\":true,"
                      "\"use_last_layernorm\":true,\"use_mtp_layernorm\":false}"),
     {TINY, .prefix = "", .layer = "layers.0.", .d2t = "draft_id_to_target_id", .no_t2d = true},
     {4, 10, 13}, false, false, "none"},
    {"official", CONFIG("\"fc_norm\":true," USUAL_TAPS), {TINY, MID, .fc_norm = "fc_norm.weight"},
     {2, 4, 5}, false, false, "each"},
    {"official", CONFIG("\"norm_before_fc\":true," USUAL_TAPS), {TINY, MID, .fc_norm = "fc_norm.weight"},
     {2, 4, 5}, false, false, "joint"},
    {"official", CONFIG("\"partial_rotary_factor\":0.5,\"head_dim\":32," USUAL_TAPS),
     {TINY, MID, .head_dim = 32, .n_rot = 16, .bias = true, .qk_norm = true}, {2, 4, 5}, false, false, "none"},
};

static void check_producer(const producer_case *p)
{
    json_error_t where;
    ae_gguf *gguf = open_file("h.gguf");
    json_t *json = json_loads(cli_last.out, 0, &where);
    if (!json) fail_msg("%s", where.text);
    assert_string_equal(json_string_value(json_object_get(json, "producer")), p->producer);
    assert_string_equal(json_string_value(json_object_get(json, "fc_norm")), p->fc_norm);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "taps"), 1)), p->taps[1]);
    json_decref(json);
    same_head(gguf, &p->head);
    same_map(gguf, 100);
    key_text(gguf, "general.architecture", "eagle3");
    key_taps(gguf, p->taps, 3);
    key_bool(gguf, "eagle3.norm_before_residual", p->normed_residual);
    key_text(gguf, "eagle3.feedback", p->post ? "post" : "pre");
    key_text(gguf, "eagle3.draft_map", "absolute");
    key_bool(gguf, "eagle3.fc_norm", strcmp(p->fc_norm, "each") == 0);
    key_bool(gguf, "eagle3.norm_before_fc", strcmp(p->fc_norm, "joint") == 0);
    if (strcmp(p->fc_norm, "joint") == 0) same_values(gguf, "enc.output_norm.weight", "fc_norm", 0, 0, 192);
    key_u32(gguf, "eagle3.target_hidden_size", p->head.n_target_embd);
    key_u32(gguf, "eagle3.embedding_length", 64);
    key_u32(gguf, "eagle3.vocab_size", 300);
    key_u32(gguf, "eagle3.block_count", 1);
    key_u32(gguf, "eagle3.context_length", 4096);
    key_u32(gguf, "eagle3.feed_forward_length", 96);
    key_u32(gguf, "eagle3.attention.head_count", 4);
    key_u32(gguf, "eagle3.attention.head_count_kv", 2);
    key_u32(gguf, "eagle3.attention.key_length", p->head.head_dim);
    key_u32(gguf, "eagle3.rope.dimension_count", p->head.n_rot ? p->head.n_rot : p->head.head_dim);
    key_f32(gguf, "eagle3.rope.freq_base", p->head.rope_base > 0 ? (float)p->head.rope_base : 10000.0f);
    key_f32(gguf, "eagle3.attention.layer_norm_rms_epsilon", 1e-5f);
    /* a borrowed embedding is not written; a narrower head has its own */
    if (p->head.n_target_embd == 64) assert_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
    else same_values(gguf, "token_embd.weight", "embed_tokens.weight", 0, 300, 64);
    ae_gguf_close(gguf);
}

static void every_producer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof producers / sizeof *producers; i++) {
        write_head("h", &producers[i].head, producers[i].config);
        converts("$A convert h -o h.gguf --outtype f32 --json");
        check_producer(&producers[i]);
        if (!strstr(cli_last.err, producers[i].producer) || !strstr(cli_last.err, "taps before layers"))
            fail_msg("%s", cli_last.err);
    }
}

static void options_overrule(void **state)
{
    static const uint32_t as_outputs[] = {3, 5, 6}, as_list[] = {0, 6, 7};
    static const spec head = {TINY, MID};
    (void)state;
    write_head("o", &head, CONFIG("\"norm_output\":true," USUAL_TAPS));
    converts("$A convert o -o o.gguf --outtype f32 --taps output --feedback pre --norm-before-residual on "
             "--window 256 --sinks 4 --name Tim -q");
    assert_int_equal(cli_last.n_err, 0);
    ae_gguf *gguf = open_file("o.gguf");
    key_taps(gguf, as_outputs, 3);
    key_text(gguf, "eagle3.feedback", "pre");
    key_text(gguf, "general.name", "Tim");
    key_bool(gguf, "eagle3.norm_before_residual", true);
    key_u32(gguf, "eagle3.attention.window", 256);
    key_u32(gguf, "eagle3.attention.sinks", 4);
    ae_gguf_close(gguf);
    converts("$A convert o/model.safetensors -o o.gguf --outtype f32 --taps 0,6,7 --feedback post");
    gguf = open_file("o.gguf");
    key_taps(gguf, as_list, 3);
    key_text(gguf, "eagle3.feedback", "post");
    ae_gguf_close(gguf);
    converts("$A convert o -o o.gguf --producer specforge");
    gguf = open_file("o.gguf");
    key_text(gguf, "eagle3.feedback", "pre"); /* norm_output contradicts it there */
    ae_gguf_close(gguf);
}

/* ---- d2t ---------------------------------------------------------------------------------------------------- */

static void maps(void **state)
{
    spec head = {TINY, MID};
    const char *config = CONFIG(USUAL_TAPS);
    (void)state;
    head.absolute = true; /* detected: as offsets they leave the vocabulary or contradict t2d */
    write_head("m", &head, config);
    converts("$A convert m -o m.gguf --json");
    assert_non_null(strstr(cli_last.out, "\"draft_map\": \"absolute\""));
    ae_gguf *gguf = open_file("m.gguf");
    same_map(gguf, 100);
    ae_gguf_close(gguf);
    cli("$A convert m -o m.gguf --d2t offset");
    cli_refused(3, "offsets", "t2d");
    head.no_t2d = true;
    write_head("m", &head, config);
    converts("$A convert m -o m.gguf --d2t absolute");
    gguf = open_file("m.gguf");
    same_map(gguf, 100);
    ae_gguf_close(gguf);
    head.absolute = false;
    write_head("m", &head, config);
    cli("$A convert m -o m.gguf --d2t absolute");
    cli_refused(3, "twice", "absolute");
}

static void write_map(const char *d2t_type, const void *d2t, size_t bytes, const unsigned char *marks)
{
    const spec head = {TINY, .prefix = "", .layer = "midlayer."};
    st_make m = {0};
    add_fc(&m, &head);
    add_all_layer(&m, &head);
    add_named(&m, &head, "norm.weight", "norm.weight", 0, 64);
    st_make_floats(&m, "lm_head.weight", "lm_head.weight", 100, 64);
    if (d2t) st_make_raw(&m, "d2t", d2t_type, "[100]", d2t, bytes);
    if (marks) st_make_raw(&m, "t2d", "BOOL", "[300]", marks, 300);
    write_checkpoint("w", &m, CONFIG(USUAL_TAPS));
}

static void maps_of_all_sorts(void **state)
{
    int64_t map[100];
    int32_t narrow[100];
    unsigned char marks[300] = {0};
    (void)state;
    for (int i = 0; i < 100; i++) {
        narrow[i] = (int32_t)(id_of(i) - i);
        marks[id_of(i)] = 1;
    }
    write_map("I32", narrow, sizeof narrow, marks);
    converts("$A convert w -o w.gguf");
    ae_gguf *gguf = open_file("w.gguf");
    same_map(gguf, 100);
    ae_gguf_close(gguf);
    write_map("", NULL, 0, marks); /* t2d alone */
    converts("$A convert w -o w.gguf");
    gguf = open_file("w.gguf");
    same_map(gguf, 100);
    ae_gguf_close(gguf);
    marks[id_of(50)] = 0;
    write_map("I32", narrow, sizeof narrow, marks);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "row 50: token 70 has no mark in t2d", "--skip t2d");
    converts("$A convert w -o w.gguf --skip t2d");
    marks[id_of(50)] = 1;
    marks[299] = 1;
    write_map("I32", narrow, sizeof narrow, marks);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "token 299 has a mark in t2d, but no row", "d2t");
    write_map("", NULL, 0, marks);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "t2d marks 101 tokens", "100");
    for (int i = 0; i < 100; i++) map[i] = 201;
    write_map("I64", map, sizeof map, NULL);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "row 99: token 300 is outside", "vocabulary 300");
    map[99] = INT64_MAX;
    write_map("I64", map, sizeof map, NULL);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "row 99", "is outside");
    for (int i = 0; i < 100; i++) map[i] = i % 2 ? 0 : 1;
    write_map("I64", map, sizeof map, NULL);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "row 1: token 1 occurs twice", "offsets");
    write_map("F32", map, 400, NULL);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "d2t is of type F32", "whole numbers");
    write_map("", NULL, 0, NULL);
    cli("$A convert w -o w.gguf");
    cli_refused(3, "no d2t", "100");
}

/* ---- Rotation ------------------------------------------------------------------------------------------------ */

static void rope_llama3(void **state)
{
    static const spec head = {TINY, MID, .rope_base = 500000};
    (void)state;
    write_head("r", &head, CONFIG("\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                                  "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                                  "\"original_max_position_embeddings\":8192}," USUAL_TAPS));
    converts("$A convert r -o r.gguf --outtype f32");
    ae_gguf *gguf = open_file("r.gguf");
    const float *divisors = floats(gguf, "rope_freqs.weight", 0, 8);
    for (int i = 0; i < 8; i++) { /* the published formula, on wave lengths */
        const double inv = pow(500000.0, -i / 8.0), wave = 2 * 3.141592653589793 / inv;
        double scaled = inv;
        if (wave > 8192 / 1.0) {
            scaled = inv / 8;
        } else if (wave > 8192 / 4.0) {
            const double smooth = (8192 / wave - 1.0) / (4.0 - 1.0);
            scaled = (1 - smooth) * inv / 8 + smooth * inv;
        }
        if (!(fabs(inv / scaled - (double)divisors[i]) < 1e-5))
            fail_msg("pair %d: %g, not %g", i, (double)divisors[i], inv / scaled);
    }
    assert_true(divisors[0] == 1.0f && divisors[7] == 8.0f);
    same_scores(gguf, &head);
    assert_null(ae_gguf_kv_find(gguf, "eagle3.rope.scaling.type"));
    ae_gguf_close(gguf);
}

static void rope_others(void **state)
{
    static const spec head = {TINY, MID};
    (void)state;
    write_head("r", &head, CONFIG("\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}," USUAL_TAPS));
    converts("$A convert r -o r.gguf");
    ae_gguf *gguf = open_file("r.gguf");
    key_text(gguf, "eagle3.rope.scaling.type", "linear");
    key_f32(gguf, "eagle3.rope.scaling.factor", 4);
    ae_gguf_close(gguf);
    write_head("r", &head, CONFIG("\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,"
                                  "\"beta_slow\":1.0,\"rope_theta\":150000,"
                                  "\"original_max_position_embeddings\":4096}," USUAL_TAPS));
    converts("$A convert r -o r.gguf");
    gguf = open_file("r.gguf");
    key_text(gguf, "eagle3.rope.scaling.type", "yarn");
    key_f32(gguf, "eagle3.rope.scaling.factor", 32);
    key_f32(gguf, "eagle3.rope.freq_base", 150000);
    key_u32(gguf, "eagle3.rope.scaling.original_context_length", 4096);
    assert_null(ae_gguf_tensor_find(gguf, "rope_freqs.weight"));
    ae_gguf_close(gguf);
    /* pairs are not rounded (gpt-oss): divisors make up for it */
    write_head("r", &head,
               CONFIG("\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"truncate\":false,"
                      "\"original_max_position_embeddings\":4096}," USUAL_TAPS));
    converts("$A convert r -o r.gguf");
    gguf = open_file("r.gguf");
    const float *divisors = floats(gguf, "rope_freqs.weight", 0, 8);
    const double lo = 16 * log(4096 / (32 * 2 * 3.141592653589793)) / (2 * log(150000)),
                 hi = 16 * log(4096 / (2 * 3.141592653589793)) / (2 * log(150000));
    for (int i = 0; i < 8; i++) {
        const double wanted = fmin(fmax((i - lo) / (hi - lo), 0), 1),
                     usual = fmin(fmax((i - floor(lo)) / (ceil(hi) - floor(lo)), 0), 1);
        const double divisor = (1 - usual + usual / 32) / (1 - wanted + wanted / 32);
        if (!(fabs(divisor - (double)divisors[i]) < 1e-5)) fail_msg("pair %d: %g, not %g", i, (double)divisors[i], divisor);
    }
    ae_gguf_close(gguf);
    write_head("r", &head, CONFIG("\"rope_scaling\":{\"type\":\"longrope\",\"factor\":4}," USUAL_TAPS));
    cli("$A convert r -o r.gguf");
    cli_refused(3, "'longrope'", "llama3");
    write_head("r", &head, CONFIG("\"rope_scaling\":{\"type\":\"linear\"}," USUAL_TAPS));
    cli("$A convert r -o r.gguf");
    cli_refused(3, "'factor' is missing", "config.json");
    write_head("r", &head, CONFIG("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.0}," USUAL_TAPS));
    cli("$A convert r -o r.gguf");
    cli_refused(3, "magnitude 1;", "1.138");
}

/* ---- Other kinds ------------------------------------------------------------------------------------------------ */

static void eagle1(void **state)
{
    static const spec heads[] = {
        {TINY, .prefix = "", .layer = "layers.0.", .eagle1 = true, .no_output = true, .bias = true},
        {TINY, .prefix = "model.", .layer = "layers.0.", .eagle1 = true, .no_output = true, .embedding = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        write_head("e", &heads[i], "{" LAYER_CONFIG ",\"architectures\":[\"LlamaForCausalLM\"],\"bias\":false}");
        converts("$A convert e -o e.gguf --outtype f32");
        ae_gguf *gguf = open_file("e.gguf");
        same_head(gguf, &heads[i]);
        key_text(gguf, "general.architecture", "eagle");
        key_u32(gguf, "eagle.vocab_size", 300);
        key_u32(gguf, "eagle.target_hidden_size", 64);
        assert_null(ae_gguf_tensor_find(gguf, "output.weight"));
        assert_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
        assert_null(ae_gguf_tensor_find(gguf, "d2t"));
        assert_null(ae_gguf_tensor_find(gguf, "output_norm.weight"));
        ae_gguf_close(gguf);
    }
    converts("$A convert e -o e.gguf --embedding keep --outtype f32");
    ae_gguf *gguf = open_file("e.gguf");
    same_values(gguf, "token_embd.weight", "embed_tokens.weight", 0, 300, 64);
    ae_gguf_close(gguf);
}

static void medusa(void **state)
{
    static const char *const styles[] = {"", "medusa_head.", "vllm"};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        st_make m = {0};
        char name[64], key[64];
        const bool vllm = strcmp(styles[k], "vllm") == 0;
        for (int j = 0; j < 3; j++) {
            for (int part = 0; part < 3; part++) {
                snprintf(key, sizeof key, "%d.%d", j, part);
                if (vllm && part == 2) snprintf(name, sizeof name, "lm_heads.%d.weight", j);
                else if (vllm) snprintf(name, sizeof name, "blocks.%d.layers.0.%s", j, part ? "bias" : "weight");
                else if (part == 2) snprintf(name, sizeof name, "%s%d.1.weight", styles[k], j);
                else snprintf(name, sizeof name, "%s%d.0.linear.%s", styles[k], j, part ? "bias" : "weight");
                st_make_floats(&m, name, key, part == 0 ? 32 : part == 1 ? 0 : 50, 32);
            }
        }
        write_checkpoint("d", &m, NULL);
        converts("$A convert d -o d.gguf --outtype f32");
        ae_gguf *gguf = open_file("d.gguf");
        key_text(gguf, "general.architecture", "medusa");
        key_u32(gguf, "medusa.head_count", 3);
        key_u32(gguf, "medusa.block_count", 1);
        key_u32(gguf, "medusa.vocab_size", 50);
        same_values(gguf, "medusa.2.0.weight", "2.0", 0, 32, 32);
        same_values(gguf, "medusa.1.0.bias", "1.1", 0, 0, 32);
        same_values(gguf, "medusa.0.output.weight", "0.2", 0, 50, 32);
        ae_gguf_close(gguf);
    }
}

/* ---- With a target ------------------------------------------------------------------------------------------------ */

static void make_target(const char *name, uint32_t n_layers, uint32_t n_vocab, bool tied)
{
    mk_options o;
    assert_true(mk_shape("tiny", &o));
    o.n_layers = n_layers;
    o.n_embd = 64;
    o.n_ff = 96;
    o.n_heads = 4;
    o.n_kv_heads = 2;
    o.head_dim = 16;
    o.n_vocab = n_vocab;
    o.tied = tied;
    cli_model(name, &o);
}

static void taps_with_target(void **state)
{
    static const struct {
        const char *config, *options;
        uint32_t taps[3];
    } cases[] = {
        {CONFIG("\"rope_theta\":10000"), "", {2, 4, 5}},                                     /* the usual ones */
        /* the usual taps as outputs, wherever the config has them; as inputs, although they are in eagle_config */
        {CONFIG("\"eagle_aux_hidden_state_layer_ids\":[1,3,4]"), "", {2, 4, 5}},
        {CONFIG("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[2,4,5]}"), "", {2, 4, 5}},
        {CONFIG("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[]}"), "", {2, 4, 5}},
        {CONFIG("\"eagle_aux_hidden_state_layer_ids\":[0,3,8]"), "", {0, 3, 8}},             /* 8: after the last layer */
        {CONFIG("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[0,3,7]}"), "", {1, 4, 8}},
        {CONFIG("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[0,3,7]}"), "--taps input", {0, 3, 7}},
        {CONFIG("\"eagle_aux_hidden_state_layer_ids\":[1,3,4]"), "--taps input", {1, 3, 4}},
    };
    static const spec head = {TINY, MID};
    char line[256];
    (void)state;
    make_target("t8.gguf", 8, 300, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_head("t", &head, cases[i].config);
        snprintf(line, sizeof line, "$A convert t --target t8.gguf -o t.gguf %s", cases[i].options);
        converts(line);
        ae_gguf *gguf = open_file("t.gguf");
        key_taps(gguf, cases[i].taps, 3);
        key_u32(gguf, "eagle3.target_layer_count", 8);
        ae_gguf_close(gguf);
    }
    write_head("t", &head, cases[0].config);
    cli("$A convert t -o t.gguf");
    cli_refused(3, "names no layers", "--target");
    write_head("t", &head, CONFIG("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[0,3,8]}"));
    cli("$A convert t --target t8.gguf -o t.gguf");
    cli_refused(3, "layer 9", "8 layers");
    converts("$A convert t --target t8.gguf -o t.gguf --taps input --tokenizer");
    ae_gguf *gguf = open_file("t.gguf");
    assert_non_null(ae_gguf_kv_find(gguf, "tokenizer.ggml.tokens"));
    ae_gguf_close(gguf);
    cli("$A convert t --target t8.gguf -o t8.gguf --taps input");
    cli_refused(2, "is a file that is being read", "t8.gguf");
}

/* A copy of the target's table with some noise, as a head may have it. */
static void borrow(st_make *m, const char *target, const char *from, const char *to, float noise, uint64_t rows)
{
    char path[256], shape[32];
    ae_model *model;
    aerie_error error = {0};
    snprintf(path, sizeof path, "%s/%s", cli_folder, target);
    if (ae_model_load(&model, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(model->gguf, from);
    const size_t n = (size_t)rows * 64;
    float *x = malloc(n * sizeof *x);
    ae_type_get(t->type)->decode(t->data, x, n < 300 * 64 ? n : 300 * 64);
    for (size_t i = 0; i < n; i++) x[i] += noise * st_value("noise", i);
    snprintf(shape, sizeof shape, "[%u,64]", (unsigned)rows);
    st_make_raw(m, to, "F32", shape, x, n * sizeof *x);
    free(x);
    ae_model_free(model);
}

static void write_with_tables(const char *target, float embed_noise, float output_noise, uint64_t rows)
{
    const spec head = {TINY, .prefix = "", .layer = "midlayer."};
    st_make m = {0};
    add_fc(&m, &head);
    add_all_layer(&m, &head);
    add_named(&m, &head, "norm.weight", "norm.weight", 0, 64);
    borrow(&m, target, "token_embd.weight", "embed_tokens.weight", embed_noise, rows);
    borrow(&m, target, "output.weight", "lm_head.weight", output_noise, rows);
    char config[512];
    snprintf(config, sizeof config, "{" LAYER_CONFIG "," USUAL_TAPS "}");
    if (rows != 300) memcpy(strstr(config, "\"vocab_size\":300"), "\"vocab_size\":320", 16);
    write_checkpoint("b", &m, config);
}

static void borrows_what_is_the_same(void **state)
{
    (void)state;
    make_target("t8.gguf", 8, 300, false);
    write_with_tables("t8.gguf", 0.0f, 0.0f, 300);
    converts("$A convert b --target t8.gguf -o b.gguf");
    ae_gguf *gguf = open_file("b.gguf");
    assert_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
    assert_null(ae_gguf_tensor_find(gguf, "output.weight"));
    assert_null(ae_gguf_tensor_find(gguf, "d2t"));
    ae_gguf_close(gguf);
    write_with_tables("t8.gguf", 5.0f, 5.0f, 300);
    converts("$A convert b --target t8.gguf -o b.gguf");
    gguf = open_file("b.gguf");
    assert_non_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
    assert_non_null(ae_gguf_tensor_find(gguf, "output.weight"));
    ae_gguf_close(gguf);
    converts("$A convert b --target t8.gguf -o b.gguf --embedding drop");
    gguf = open_file("b.gguf");
    assert_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
    ae_gguf_close(gguf);
    write_with_tables("t8.gguf", 5.0f, 5.0f, 320); /* padded */
    converts("$A convert b --target t8.gguf -o b.gguf");
    assert_non_null(strstr(cli_last.err, "padding"));
    gguf = open_file("b.gguf");
    key_u32(gguf, "eagle3.vocab_size", 300);
    assert_int_equal(ae_gguf_tensor_find(gguf, "token_embd.weight")->ne[1], 300);
    assert_int_equal(ae_gguf_tensor_find(gguf, "output.weight")->ne[1], 300);
    ae_gguf_close(gguf);
}

static void of_another_target(void **state)
{
    static const spec head = {TINY, MID}, wide = {TINY, MID, .n_target_embd = 128, .embedding = true};
    (void)state;
    make_target("t8.gguf", 8, 300, false);
    make_target("big.gguf", 8, 5000, false);
    write_head("a", &head, CONFIG(USUAL_TAPS));
    cli("$A convert a --target big.gguf -o a.gguf");
    cli_refused(3, "300 tokens", "5000");
    write_head("a", &wide, CONFIG("\"target_hidden_size\":128," USUAL_TAPS));
    cli("$A convert a --target t8.gguf -o a.gguf");
    cli_refused(3, "'target_hidden_size' is 128", "64");
    write_head("a", &wide, CONFIG(USUAL_TAPS));
    cli("$A convert a --target t8.gguf -o a.gguf");
    cli_refused(3, "fc.weight is [64, 384]", "[64, 192]");
    cli("$A convert a --target missing.gguf -o a.gguf");
    cli_refused(3, "missing.gguf", "");
}

static void without_aux(void **state)
{
    static const uint32_t behind[] = {8};
    spec head = {TINY, MID, .no_fc = true};
    (void)state;
    make_target("t8.gguf", 8, 300, false);
    write_head("n", &head, CONFIG("\"eagle_config\":{\"use_aux_hidden_state\":false,\"eagle_aux_hidden_state_layer_ids\":[]}"));
    cli("$A convert n -o n.gguf");
    cli_refused(3, "'use_aux_hidden_state'", "--target");
    converts("$A convert n --target t8.gguf -o n.gguf --outtype f32 --json");
    assert_non_null(strstr(cli_last.out, "\"nvidia\""));
    ae_gguf *gguf = open_file("n.gguf"), *target = open_file("t8.gguf");
    key_taps(gguf, behind, 1);
    same_scores(gguf, &head);
    key_bool(gguf, "eagle3.norm_before_fc", true);
    const ae_gguf_tensor *fc = ae_gguf_tensor_find(gguf, "fc.weight");
    assert_int_equal(fc->type, AE_TYPE_F16);
    for (int i = 0; i < 64 * 64; i++) {
        uint16_t v;
        memcpy(&v, fc->data + 2 * i, 2);
        assert_true(ae_f16_to_f32(v) == (i / 64 == i % 64 ? 1.0f : 0.0f));
    }
    assert_memory_equal(floats(gguf, "enc.output_norm.weight", 0, 64), floats(target, "output_norm.weight", 0, 64), 256);
    ae_gguf_close(gguf);
    ae_gguf_close(target);
    head.no_fc = false;
    head.n_taps = 1;
    write_head("n", &head, CONFIG("\"eagle_config\":{\"use_aux_hidden_state\":false}"));
    converts("$A convert n --target t8.gguf -o n.gguf --outtype f32");
    gguf = open_file("n.gguf");
    same_values(gguf, "fc.weight", "fc.weight", 0, 64, 64);
    ae_gguf_close(gguf);
}

/* ---- Types, shards, what is refused ------------------------------------------------------------------------------- */

static void types(void **state)
{
    static const struct {
        const char *option;
        uint32_t type;
    } cases[] = {{"auto", AE_TYPE_F16},  {"F32", AE_TYPE_F32},   {"f16", AE_TYPE_F16},
                 {"bf16", AE_TYPE_BF16}, {"q8_0", AE_TYPE_Q8_0}, {"q4_k", AE_TYPE_Q8_0}};
    static const spec head = {TINY, MID};
    char line[128];
    (void)state;
    write_head("y", &head, CONFIG(USUAL_TAPS));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(line, sizeof line, "$A convert y -o y.gguf --outtype %s", cases[i].option);
        converts(line);
        ae_gguf *gguf = open_file("y.gguf");
        const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, "blk.0.attn_v.weight");
        float x[32 * 128];
        assert_int_equal(t->type, cases[i].type);
        assert_int_equal(ae_gguf_tensor_find(gguf, "output_norm.weight")->type, AE_TYPE_F32);
        ae_type_get(t->type)->decode(t->data, x, 32 * 128);
        for (uint64_t k = 0; k < 32 * 128; k++) {
            const float v = st_value("layers.0.self_attn.v_proj.weight", k);
            if (!(fabsf(x[k] - v) < 0.003f)) fail_msg("%s: %g became %g", cases[i].option, (double)v, (double)x[k]);
        }
        ae_gguf_close(gguf);
    }
    cli("$A convert y -o y2.gguf --outtype q9_9");
    cli_refused(2, "--outtype", "'q9_9'");
    cli("$A convert y -o nowhere/y.gguf");
    cli_refused(3, "nowhere/y.gguf", "");
}

static void bf16_stays(void **state)
{
    const spec head = {TINY, .prefix = "", .layer = "midlayer.", .leave = "layers.0.self_attn.q_proj.weight"};
    st_make m = {0};
    uint16_t *rows = malloc(64 * 128 * 2);
    (void)state;
    for (int i = 0; i < 64 * 128; i++) rows[i] = ae_f32_to_bf16(st_value("q", (uint64_t)i));
    add_fc(&m, &head);
    add_all_layer(&m, &head);
    add_named(&m, &head, "norm.weight", "norm.weight", 0, 64);
    st_make_floats(&m, "lm_head.weight", "lm_head.weight", 300, 64);
    st_make_raw(&m, "midlayer.self_attn.q_proj.weight", "BF16", "[64,128]", rows, 64 * 128 * 2);
    write_checkpoint("bf", &m, "{" LAYER_CONFIG "," USUAL_TAPS "}");
    converts("$A convert bf -o bf.gguf");
    ae_gguf *gguf = open_file("bf.gguf");
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, "blk.0.attn_q.weight");
    assert_int_equal(t->type, AE_TYPE_BF16);
    assert_memory_equal(t->data, rows, 256);                     /* row 0 stays */
    assert_memory_equal(t->data + 256, rows + 8 * 128, 256);     /* row 1 was row 8 */
    assert_memory_equal(t->data + 15 * 256, rows + 15 * 128, 256);
    ae_gguf_close(gguf);
    free(rows);
}

static void shards(void **state)
{
    static const spec head = {TINY, MID};
    (void)state;
    write_head("s", &head, CONFIG(USUAL_TAPS));
    ae_safetensors *st;
    char path[256];
    aerie_error error = {0};
    ae_buf index = {0};
    snprintf(path, sizeof path, "%s/s", cli_folder);
    assert_int_equal(ae_safetensors_open(&st, path, &error), AERIE_OK);
    ae_buf_adds(&index, "{\"weight_map\":{");
    for (size_t i = 0; i < ae_safetensors_n_tensors(st); i++)
        ae_buf_addf(&index, "%s\"%s\":\"part.safetensors\"", i ? "," : "", ae_safetensors_tensor_at(st, i)->name);
    ae_buf_adds(&index, "}}");
    ae_safetensors_close(st);
    cli_write("s/model.safetensors.index.json", index.data, index.n);
    ae_buf_free(&index);
    converts("mv s/model.safetensors s/part.safetensors && $A convert s/ -o s.gguf --outtype f32");
    ae_gguf *gguf = open_file("s.gguf");
    same_head(gguf, &head);
    key_text(gguf, "general.name", "s");
    ae_gguf_close(gguf);
}

#define TWO_LAYERS(more) \
    "{\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5," \
    "\"vocab_size\":300,\"num_hidden_layers\":2,\"draft_vocab_size\":100," USUAL_TAPS more "}"

static void p_eagle(void **state)
{
    static const spec head = {TINY, MID, .masks = true};
    mk_options o;
    (void)state;
    assert_true(mk_shape("tiny", &o));
    o.n_layers = 6, o.n_embd = 64, o.n_vocab = 300;
    cli_model("p-target.gguf", &o);
    write_head("p", &head, TWO_LAYERS(",\"ptd_token_id\":7,\"para_depths\":5,\"norm_output\":true"));
    converts("$A convert p --target p-target.gguf -o p.gguf --outtype f32 --json");
    assert_non_null(strstr(cli_last.out, "\"kind\": \"P-EAGLE\""));
    ae_gguf *gguf = open_file("p.gguf");
    same_values(gguf, "mask_hidden", "mask_hidden", 0, 0, 192);
    same_values(gguf, "blk.1.attn_norm.weight", "layers.1.input_layernorm.weight", 0, 0, 64);
    same_values(gguf, "blk.1.attn_v.weight", "layers.1.self_attn.v_proj.weight", 0, 32, 64);
    same_values(gguf, "blk.1.ffn_down.weight", "layers.1.mlp.down_proj.weight", 0, 64, 96);
    key_u32(gguf, "eagle3.block_count", 2);
    key_u32(gguf, "eagle3.parallel_depth", 5);
    key_u32(gguf, "eagle3.mask_token_id", 7);
    key_text(gguf, "eagle3.feedback", "pre"); /* it has none */
    ae_gguf_close(gguf);
    converts("$A run -m p-target.gguf -md p.gguf --spec-type draft-eagle3 -no-cnv -p hello -n 8 --temp 0 --stats");
    assert_non_null(strstr(cli_last.err, "draft-eagle3"));
    write_head("p", &head, TWO_LAYERS(",\"mask_token_id\":9"));
    converts("$A convert p -o p.gguf --outtype f32");
    gguf = open_file("p.gguf");
    key_u32(gguf, "eagle3.parallel_depth", 8);
    key_u32(gguf, "eagle3.mask_token_id", 9);
    ae_gguf_close(gguf);
    static const struct {
        spec head;
        const char *config, *why;
    } cases[] = {{{TINY, MID, .masks = true}, TWO_LAYERS(""), "'ptd_token_id' is missing"},
                 {{TINY, MID, .masks = true}, TWO_LAYERS(",\"mask_token_id\":300"), "'mask_token_id' is 300"},
                 {{TINY, MID, .masks = true}, TWO_LAYERS(",\"mask_token_id\":3,\"para_depths\":17"), "'para_depths' is 17"},
                 {{TINY, MID, .masks = true, .leave = "layers.1.mlp.up_proj.weight"}, TWO_LAYERS(",\"mask_token_id\":3"),
                  "layers.1.mlp.up_proj.weight is missing"},
                 {{TINY, MID, .masks = true, .n_taps = 4}, TWO_LAYERS(",\"mask_token_id\":3"), "fc.weight is [64, 256]"},
                 {{TINY, MID, .masks = true, .extra = "layers.2.mlp.up_proj.weight"}, TWO_LAYERS(",\"mask_token_id\":3"),
                  "layers.2.mlp.up_proj.weight"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_head("r", &cases[i].head, cases[i].config);
        cli("$A convert r -o r.gguf");
        if (cli_last.status != 3 || !strstr(cli_last.err, cases[i].why))
            fail_msg("case %zu: %d, \"%s\", not \"%s\"", i, cli_last.status, cli_last.err, cases[i].why);
    }
}

static void refuses(void **state)
{
    static const struct {
        spec head;
        const char *config, *text, *other;
    } cases[] = {
        {{TINY, MID, .extra = "model.layers.1.mlp.gate_proj.weight"}, CONFIG(USUAL_TAPS), "more layers than the 1", "layers.1"},
        {{TINY, MID, .extra = "mystery"}, CONFIG(USUAL_TAPS), "mystery [3] is unknown", "--skip mystery"},
        {{TINY, MID, .extra = "model.norm.weight"}, CONFIG(USUAL_TAPS), "the same part", "--skip"},
        {{TINY, MID, .leave = "norm.weight"}, CONFIG(USUAL_TAPS), "norm.weight is missing", "h"},
        {{TINY, MID, .leave = "layers.0.mlp.up_proj.weight"}, CONFIG(USUAL_TAPS), "layers.0.mlp.up_proj.weight is missing", ""},
        {{TINY, MID, .leave = "layers.0.input_layernorm.weight"}, CONFIG(USUAL_TAPS),
         "layers.0.input_layernorm.weight is missing", ""},
        {{TINY, MID, .leave = "layers.0.hidden_norm.weight", .no_fc = true}, CONFIG(USUAL_TAPS),
         "not a drafter head", "hidden_norm"},
        {{TINY, MID, .no_fc = true}, CONFIG(USUAL_TAPS), "fc.weight is missing", "3 taps"},
        {{TINY, MID, .n_taps = 2}, CONFIG(USUAL_TAPS), "fc.weight is [64, 128]", "3 taps"},
        {{TINY, MID, .n_ff = 80}, CONFIG(USUAL_TAPS), "gate_proj.weight is [80, 64]", "[96, 64]"},
        {{TINY, MID, .head_dim = 8}, CONFIG(USUAL_TAPS), "q_proj.weight is [32, 128]", "[64, 128]"},
        {{TINY, MID, .n_target_embd = 128}, CONFIG(USUAL_TAPS), "embed_tokens.weight is missing", "128"},
        {{TINY, MID, .n_draft = 80}, CONFIG(USUAL_TAPS), "80 rows", "'draft_vocab_size' is 100"},
        {{TINY, MID, .fc_norm = "fc_norm.weight"}, CONFIG(USUAL_TAPS), "'norm_before_fc' or 'fc_norm'", ""},
        {{TINY, MID, .fc_norm = "fc_norm.%u.weight"}, CONFIG("\"norm_before_fc\":true," USUAL_TAPS), "one of them", ""},
        {{TINY, MID}, CONFIG("\"fc_norm\":true," USUAL_TAPS), "fc_norm.0.weight is missing", ""},
        {{TINY, MID}, CONFIG("\"norm_before_fc\":true," USUAL_TAPS), "input_norm.weight is missing", ""},
        {{TINY, MID}, CONFIG("\"architectures\":[\"LlamaForCausalLMEagle3\"],\"norm_output\":false," USUAL_TAPS),
         "'norm_output' is false", "--producer"},
        {{TINY, MID}, CONFIG("\"norm_before_residual\":1," USUAL_TAPS), "'norm_before_residual' is 1", "true or false"},
        {{TINY, MID}, CONFIG("\"head_dim\":\"16\"," USUAL_TAPS), "'head_dim' is \"16\"", "whole number"},
        {{TINY, MID}, CONFIG("\"rope_theta\":-1," USUAL_TAPS), "'rope_theta' is -1", ""},
        {{TINY, MID}, CONFIG("\"eagle_aux_hidden_state_layer_ids\":[2,4,-1]"), "element 2", "eagle_aux"},
        {{TINY, MID}, CONFIG("\"eagle_aux_hidden_state_layer_ids\":[2,4,4]"), "listed twice", "4"},
        {{TINY, MID}, "{\"hidden_size\":64}", "'num_attention_heads' is missing", "config.json"},
        {{TINY, MID}, "{", "config.json: line", ""},
        {{TINY, MID}, "[]", "not a JSON object", ""},
        {{TINY, MID}, "{\"num_hidden_layers\":9,\"hidden_size\":64}", "'num_hidden_layers' is 9", "at most 8"},
        {{TINY, MID}, CONFIG("\"hidden_act\":\"gelu\""), "duplicate", ""},
        {{TINY, .prefix = "", .layer = "layers.0.", .eagle1 = true, .n_target_embd = 0}, "{" LAYER_CONFIG "}",
         "[64, 64 + width of the target]", "fc.weight"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_head("x", &cases[i].head, cases[i].config);
        cli("$A convert x -o x.gguf");
        cli_refused(3, cases[i].text, cases[i].other);
    }
    cli("test ! -e x.gguf && test -z \"$(ls | grep part)\"");
    assert_int_equal(cli_last.status, 0); /* no file is left */
}

static void bad_values(void **state)
{
    const spec head = {TINY, .prefix = "", .layer = "midlayer.", .leave = "norm.weight"};
    float values[64] = {0};
    (void)state;
    for (int k = 0; k < 2; k++) {
        st_make m = {0};
        add_fc(&m, &head);
        add_all_layer(&m, &head);
        values[5] = k ? NAN : 1.0f;
        st_make_raw(&m, "norm.weight", k ? "F32" : "I32", "[64]", values, sizeof values);
        st_make_floats(&m, "lm_head.weight", "lm_head.weight", 300, 64);
        write_checkpoint("v", &m, "{" LAYER_CONFIG "," USUAL_TAPS "}");
        cli("$A convert v -o v.gguf");
        cli_refused(3, "norm.weight", k ? "holds nan" : "type I32");
    }
}

static void command_lines(void **state)
{
    static const struct {
        const char *line, *text, *other;
    } cases[] = {
        {"", "needs a checkpoint", "-o"},
        {"h -o x --outtype", "--outtype needs a value", ""},
        {"h h2 -o x", "takes one checkpoint", "'h2'"},
        {"h", "-o model.gguf", ""},
        {"h -o x.gguf --taps middle", "--taps takes input, output", "'middle'"},
        {"h -o x.gguf --taps 1,,2", "--taps takes", "'1,,2'"},
        {"h -o x.gguf --taps 1,2,3,4,5,6,7,8,9", "--taps takes", "8 layers"},
        {"h -o x.gguf --feedback maybe", "--feedback takes pre or post", "'maybe'"},
        {"h -o x.gguf --producer me", "--producer takes official", "'me'"},
        {"h -o x.gguf --norm-before-residual yes", "on or off", "'yes'"},
        {"h -o x.gguf --d2t relative", "offset or absolute", "'relative'"},
        {"h -o x.gguf --embedding maybe", "auto, keep or drop", "'maybe'"},
        {"h -o x.gguf --outtype q9", "--outtype takes", "'q9'"},
        {"h -o x.gguf --tokenizer", "--target", ""},
        {"h -o x.gguf --sinks 4", "--window", ""},
        {"h -o x.gguf -m y", "no option '-m'", ""},
    };
    static const spec head = {TINY, MID};
    (void)state;
    write_head("h", &head, CONFIG(USUAL_TAPS));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A convert %s", cases[i].line);
        cli_refused(2, cases[i].text, cases[i].other);
    }
    cli("$A convert none -o x.gguf");
    cli_refused(3, "none", "");
    cli("$A convert h -o x.gguf --config none.json");
    cli_refused(3, "none.json", "");
    cli("touch h.bin && $A convert h.bin -o x.gguf");
    cli_refused(3, "h.bin", "PyTorch");
    cli("mkdir pickled && touch pickled/pytorch_model.bin && $A convert pickled -o x.gguf");
    cli_refused(3, "pickled/pytorch_model.bin", "PyTorch");
    cli("rm h/config.json && $A convert h -o x.gguf");
    cli_refused(3, "no config.json beside it", "--config");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_producer),   cmocka_unit_test(options_overrule),         cmocka_unit_test(maps),
        cmocka_unit_test(maps_of_all_sorts), cmocka_unit_test(rope_llama3),             cmocka_unit_test(rope_others),
        cmocka_unit_test(eagle1),           cmocka_unit_test(medusa),                   cmocka_unit_test(taps_with_target),
        cmocka_unit_test(borrows_what_is_the_same), cmocka_unit_test(of_another_target), cmocka_unit_test(without_aux),
        cmocka_unit_test(types),            cmocka_unit_test(bf16_stays),               cmocka_unit_test(shards),
        cmocka_unit_test(p_eagle),          cmocka_unit_test(refuses),                  cmocka_unit_test(bad_values),
        cmocka_unit_test(command_lines),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
