/* test_convert_block.c - aerie convert on checkpoints of block drafters, in the names of z-lab's, DeepSpec's, AngelSpec's
 * and NVIDIA's folders: keys, rows that stay as they are, what is left out because it is the target's, and what is refused. */
#include "convert_rig.inc"

#define SIZES \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-6," \
    "\"vocab_size\":300,\"num_hidden_layers\":2,\"hidden_act\":\"silu\",\"max_position_embeddings\":4096,\"head_dim\":16," \
    "\"rope_theta\":1000000"
#define ZLAB(more) \
    "{\"architectures\":[\"DFlashDraftModel\"]," SIZES ",\"block_size\":16,\"dflash_config\":{\"target_layer_ids\":[1,2]," \
    "\"mask_token_id\":299" more "}}"
#define DEEPSPEC(more) \
    "{\"architectures\":[\"Qwen3DSparkModel\"]," SIZES ",\"block_size\":7,\"target_layer_ids\":[-1,2],\"mask_token_id\":5," \
    "\"markov_head_type\":\"vanilla\",\"markov_rank\":8,\"enable_confidence_head\":true" more "}"

/* The tensors of the next checkpoint besides its layers. */
static st_make more_tensors;
static bool flies; /* and whether it has AngelSpec's names */

static void add(st_make *m, const char *prefix, const char *leave, const char *name, uint64_t rows, uint64_t columns)
{
    char full[128];
    if (leave && !strcmp(leave, name)) return;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    st_make_floats(m, full, name, rows, columns);
}

static void write_block(const char *folder, const char *prefix, bool spark, const char *leave, const char *more,
                        const char *config)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {
        {"input_layernorm", 0, 64}, {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 32, 64}, {"self_attn.v_proj", 32, 64},
        {"self_attn.o_proj", 64, 64}, {"self_attn.q_norm", 0, 16}, {"self_attn.k_norm", 0, 16},
        {"post_attention_layernorm", 0, 64}, {"mlp.gate_proj", 96, 64}, {"mlp.up_proj", 96, 64}, {"mlp.down_proj", 64, 96},
    };
    st_make m = more_tensors;
    more_tensors = (st_make){0};
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char name[96];
            snprintf(name, sizeof name, "layers.%d.%s.weight", i, parts[k].name);
            add(&m, prefix, leave, name, parts[k].rows, parts[k].columns);
        }
    add(&m, prefix, leave, flies ? "context_proj.weight" : "fc.weight", 64, 128);
    add(&m, prefix, leave, flies ? "context_norm.weight" : "hidden_norm.weight", 0, 64);
    add(&m, prefix, leave, flies ? "final_norm.weight" : "norm.weight", 0, 64);
    flies = false;
    if (spark) {
        add(&m, prefix, leave, "embed_tokens.weight", 300, 64);
        add(&m, prefix, leave, "lm_head.weight", 300, 64);
        add(&m, prefix, leave, "markov_head.markov_w1.weight", 300, 8);
        add(&m, prefix, leave, "markov_head.markov_w2.weight", 300, 8);
        add(&m, prefix, leave, "confidence_head.proj.weight", 1, 72);
        add(&m, prefix, leave, "confidence_head.proj.bias", 0, 1);
    }
    if (more) add(&m, prefix, leave, more, 0, 3);
    write_checkpoint(folder, &m, config);
}

static void converts(const char *line)
{
    cli("%s", line);
    if (cli_last.status) fail_msg("%s: %d: %s", line, cli_last.status, cli_last.err);
}

static void taps_are(const ae_gguf *gguf, int64_t a, int64_t b)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, "dflash.target_layers");
    int64_t x = -1, y = -1;
    assert_non_null(kv);
    assert_int_equal(kv->n, 2);
    assert_true(ae_gguf_kv_int(kv, 0, &x) && ae_gguf_kv_int(kv, 1, &y));
    assert_true(x == a && y == b);
}

static void same_layers(const ae_gguf *gguf)
{
    same_values(gguf, "blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight", 0, 64, 64); /* f16 stays f16 */
    same_values(gguf, "blk.1.attn_k.weight", "layers.1.self_attn.k_proj.weight", 0, 32, 64);
    same_values(gguf, "blk.1.attn_k_norm.weight", "layers.1.self_attn.k_norm.weight", 0, 0, 16);
    same_values(gguf, "blk.1.ffn_norm.weight", "layers.1.post_attention_layernorm.weight", 0, 0, 64);
    same_values(gguf, "blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight", 0, 64, 96);
    same_values(gguf, "fc.weight", "fc.weight", 0, 64, 128);
    same_values(gguf, "enc.output_norm.weight", "hidden_norm.weight", 0, 0, 64);
    same_values(gguf, "output_norm.weight", "norm.weight", 0, 0, 64);
}

static void dflash(void **state)
{
    (void)state;
    write_block("d", "", false, NULL, NULL, ZLAB(",\"output_multiplier\":0.5,\"final_logit_softcapping\":20"));
    converts("$A convert d -o d.gguf --outtype f32");
    ae_gguf *gguf = open_file("d.gguf");
    same_layers(gguf);
    key_text(gguf, "general.architecture", "dflash");
    key_u32(gguf, "dflash.block_count", 2);
    key_u32(gguf, "dflash.block_size", 16);
    key_u32(gguf, "tokenizer.ggml.mask_token_id", 299);
    key_bool(gguf, "dflash.sample_from_anchor", false);
    key_f32(gguf, "dflash.logit_scale", 0.5f);
    key_f32(gguf, "dflash.final_logit_softcapping", 20);
    key_f32(gguf, "dflash.rope.freq_base", 1000000);
    taps_are(gguf, 2, 3);
    assert_null(ae_gguf_tensor_find(gguf, "token_embd.weight"));
    ae_gguf_close(gguf);
    assert_non_null(strstr(cli_last.err, "blocks of 16 read in place"));
}

static void dspark(void **state)
{
    (void)state;
    write_block("s", "model.", true, NULL, NULL, DEEPSPEC(",\"sliding_window\":64,\"use_sliding_window\":true,"
                "\"layer_types\":[\"full_attention\",\"sliding_attention\"]"));
    converts("$A convert s -o s.gguf --outtype f32 --embedding keep --json");
    ae_gguf *gguf = open_file("s.gguf");
    same_layers(gguf);
    same_values(gguf, "token_embd.weight", "embed_tokens.weight", 0, 300, 64);
    same_values(gguf, "output.weight", "lm_head.weight", 0, 300, 64);
    same_values(gguf, "markov_w1.weight", "markov_head.markov_w1.weight", 0, 300, 8);
    same_values(gguf, "markov_w2.weight", "markov_head.markov_w2.weight", 0, 300, 8);
    same_values(gguf, "conf_proj.weight", "confidence_head.proj.weight", 0, 1, 72);
    same_values(gguf, "conf_proj.bias", "confidence_head.proj.bias", 0, 0, 1);
    key_bool(gguf, "dflash.sample_from_anchor", true);
    key_bool(gguf, "dflash.has_confidence_head", true);
    key_u32(gguf, "dflash.block_size", 7);
    key_u32(gguf, "dflash.attention.sliding_window", 64);
    taps_are(gguf, 0, 3);
    ae_gguf_close(gguf);
    assert_non_null(strstr(cli_last.out, "\"kind\": \"DSpark\""));
    /* with the target: its tables differ from the drafter's, so both are kept, and the file fits */
    mk_options o;
    assert_true(mk_shape("tiny", &o));
    o.n_layers = 4, o.n_embd = 64, o.n_vocab = 300;
    cli_model("t.gguf", &o);
    converts("$A convert s --target t.gguf -o s.gguf --outtype q8_0");
    gguf = open_file("s.gguf");
    assert_non_null(ae_gguf_tensor_find(gguf, "output.weight"));
    ae_gguf_close(gguf);
    converts("$A run -m t.gguf -md s.gguf --spec-type draft-dspark -no-cnv -p hello -n 8 --temp 0 --stats");
    assert_non_null(strstr(cli_last.err, "draft-dspark"));
}

#define PAIRS_OF(kernel, group) \
    ",\"conv_kernel_size\":" kernel ",\"conv_group_size\":" group ",\"selector_rank\":8,\"selector_top_k\":6"
#define PAIRS PAIRS_OF("2", "16")

/* The rest of a DFlash2 checkpoint, without one tensor. */
static void write_pairs(const char *folder, const char *leave, const char *config)
{
    static const char *const convs[] = {"attention_conv", "mlp_conv"};
    const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {{"candidate_selector.hidden_projection.weight", 8, 64}, {"candidate_selector.predecessor_codebook", 304, 8},
                 {"candidate_selector.successor_codebook", 304, 8}};
    float base[2 * 2 * 64];
    char name[96];
    st_make *m = &more_tensors;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "layers.%d.%s.base_kernel", i / 2, convs[i % 2]);
        for (size_t k = 0; k < 256; k++) base[k] = st_value(name, k);
        if (!leave || strcmp(leave, name)) st_make_raw(m, name, "F32", "[2,2,64]", base, sizeof base);
        snprintf(name, sizeof name, "layers.%d.%s.kernel_projection.weight", i / 2, convs[i % 2]);
        add(m, "", leave, name, 16, 64);
    }
    for (size_t i = 0; i < 3; i++) add(m, "", leave, parts[i].name, parts[i].rows, parts[i].columns);
    write_block(folder, "", false, leave, NULL, config);
}

static void dflash2(void **state)
{
    (void)state;
    mk_options o;
    write_pairs("p", NULL, ZLAB(PAIRS));
    assert_true(mk_shape("tiny", &o));
    o.n_layers = 4, o.n_embd = 64, o.n_vocab = 300;
    cli_model("t.gguf", &o);
    converts("$A convert p --target t.gguf -o p.gguf --outtype f32 --json");
    assert_non_null(strstr(cli_last.out, "\"kind\": \"DFlash2\""));
    ae_gguf *gguf = open_file("p.gguf");
    same_layers(gguf);
    same_values(gguf, "blk.1.ffn_conv_proj.weight", "layers.1.mlp_conv.kernel_projection.weight", 0, 16, 64);
    same_values(gguf, "selector_hidden.weight", "candidate_selector.hidden_projection.weight", 0, 8, 64);
    same_values(gguf, "selector_predecessor.weight", "candidate_selector.predecessor_codebook", 0, 300, 8);
    same_values(gguf, "selector_successor.weight", "candidate_selector.successor_codebook", 0, 300, 8);
    const ae_gguf_tensor *base = ae_gguf_tensor_find(gguf, "blk.0.attn_conv_base");
    float values[256];
    ae_gguf_reader reader = ae_gguf_reader_open(gguf);
    assert_true(base && base->ne[0] == 64 && base->ne[1] == 2 && base->ne[2] == 2);
    assert_int_equal(ae_gguf_read(&reader, base, 0, values, sizeof values, NULL), AERIE_OK);
    ae_gguf_reader_close(&reader);
    for (size_t k = 0; k < 256; k++) assert_true(values[k] == st_value("layers.0.attention_conv.base_kernel", k));
    key_u32(gguf, "dflash.conv_kernel_size", 2);
    key_u32(gguf, "dflash.conv_group_size", 16);
    key_u32(gguf, "dflash.selector_rank", 8);
    key_u32(gguf, "dflash.selector_top_k", 6);
    ae_gguf_close(gguf);
    converts("$A run -m t.gguf -md p.gguf --spec-type draft-dflash -no-cnv -p hello -n 8 --temp 0 --stats");
    assert_non_null(strstr(cli_last.err, "draft-dflash"));
    static const struct {
        const char *leave, *config, *why;
    } cases[] = {
        {NULL, ZLAB(""), "'conv_kernel_size' is missing"},
        {NULL, ZLAB(",\"conv_kernel_size\":9"), "'conv_kernel_size' is not such a number"},
        {NULL, ZLAB(PAIRS_OF("2", "48")), "does not divide"},
        {NULL, ZLAB(PAIRS_OF("3", "16")), "[2, 3, 64] is needed"},
        {"layers.1.mlp_conv.base_kernel", ZLAB(PAIRS), "layers.1.mlp_conv.base_kernel is missing"},
        {"candidate_selector.successor_codebook", ZLAB(PAIRS), "successor_codebook.weight is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_pairs("r", cases[i].leave, cases[i].config);
        cli("$A convert r -o r.gguf");
        if (cli_last.status != 3 || !strstr(cli_last.err, cases[i].why))
            fail_msg("case %zu: %d, \"%s\", not \"%s\"", i, cli_last.status, cli_last.err, cases[i].why);
    }
}

static void write_fly(const char *folder, const char *leave, const char *more, uint64_t n_mixed)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {{"hidden_correction.hidden_norm.weight", 0, 64}, {"hidden_correction.embed_norm.weight", 0, 64},
                 {"hidden_correction.gate_proj.weight", 48, 128}, {"hidden_correction.up_proj.weight", 48, 128},
                 {"hidden_correction.down_proj.weight", 64, 48}};
    add(&more_tensors, "", leave, "layer_fusion_weights", 2, n_mixed);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add(&more_tensors, "", leave, parts[i].name, parts[i].rows, parts[i].columns);
    flies = true;
    write_block(folder, "", false, leave, more, ZLAB(""));
}

static void dfly(void **state)
{
    (void)state;
    mk_options o;
    write_fly("f", NULL, NULL, 2);
    assert_true(mk_shape("tiny", &o));
    o.n_layers = 4, o.n_embd = 64, o.n_vocab = 300;
    cli_model("t.gguf", &o);
    converts("$A convert f --target t.gguf -o f.gguf --outtype f32 --json");
    assert_non_null(strstr(cli_last.out, "\"kind\": \"DFly\""));
    ae_gguf *gguf = open_file("f.gguf");
    same_values(gguf, "blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight", 0, 64, 64);
    same_values(gguf, "fc.weight", "context_proj.weight", 0, 64, 128);
    same_values(gguf, "context_norm.weight", "context_norm.weight", 0, 0, 64);
    same_values(gguf, "output_norm.weight", "final_norm.weight", 0, 0, 64);
    same_values(gguf, "layer_fusion", "layer_fusion_weights", 0, 2, 2);
    same_values(gguf, "hidden_correction.gate.weight", "hidden_correction.gate_proj.weight", 0, 48, 128);
    same_values(gguf, "hidden_correction.up.weight", "hidden_correction.up_proj.weight", 0, 48, 128);
    same_values(gguf, "hidden_correction.down.weight", "hidden_correction.down_proj.weight", 0, 64, 48);
    same_values(gguf, "hidden_correction.embed_norm.weight", "hidden_correction.embed_norm.weight", 0, 0, 64);
    key_bool(gguf, "dflash.sample_from_anchor", false);
    ae_gguf_close(gguf);
    converts("$A convert f --target t.gguf -o f.gguf --outtype q8_0");
    converts("$A run -m t.gguf -md f.gguf --spec-type draft-dflash -no-cnv -p hello -n 8 --temp 0 --stats");
    assert_non_null(strstr(cli_last.err, "draft-dflash"));
    static const struct {
        const char *leave, *more;
        uint64_t n_mixed;
        const char *why;
    } cases[] = {{NULL, NULL, 3, "[2, 2] is needed"},
                 {"hidden_correction.up_proj.weight", NULL, 2, "hidden_correction.up_proj.weight is missing"},
                 {"hidden_correction.embed_norm.weight", NULL, 2, "hidden_correction.embed_norm.weight is missing"},
                 {NULL, "markov_head.markov_w1.weight", 2, "another kind"},
                 {NULL, "layers.0.self_attn.k_proj_target.weight", 2, "DFlare"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_fly("r", cases[i].leave, cases[i].more, cases[i].n_mixed);
        cli("$A convert r -o r.gguf");
        if (cli_last.status != 3 || !strstr(cli_last.err, cases[i].why))
            fail_msg("case %zu: %d, \"%s\", not \"%s\"", i, cli_last.status, cli_last.err, cases[i].why);
    }
}

#define NVIDIA_OF(width, layers, top_k, eps, more) \
    ZLAB(",\"projector_type\":\"lilicorr\",\"lilicorr_hidden_size\":" width ",\"lilicorr_num_layers\":" layers \
         ",\"lilicorr_num_heads\":4,\"lilicorr_mlp_ratio\":1.5,\"lilicorr_candidate_topk\":" top_k \
         ",\"lilicorr_factor_dim\":12,\"lilicorr_vector_eps\":" eps ",\"lilicorr_logit_scale\":10" more)
#define NVIDIA NVIDIA_OF("32", "1", "5", "1e-4", "")

/* numbered: the parts of sequential modules have numbers, and embeddings all their dimensions. */
static void write_lattice(const char *folder, const char *leave, const char *more, bool numbered, const char *config)
{
    static const struct {
        const char *name, *numbered; /* NULL: the same */
        uint64_t rows, columns;
    } maps[] = {{"token_proj", NULL, 32, 64}, {"pass_hidden_proj", NULL, 32, 64}, {"context_proj", NULL, 32, 64},
                {"feature_mlp.up_proj", "feature_mlp.1", 32, 5}, {"feature_mlp.down_proj", "feature_mlp.3", 32, 32},
                {"factor_input_proj", NULL, 32, 96}, {"out_head", NULL, 12, 32}, {"in_head", NULL, 12, 32},
                {"anchor_out_head", NULL, 12, 32}, {"layers.0.attn.out_proj", NULL, 32, 32},
                {"layers.0.mlp.up_proj", "layers.0.mlp.0", 48, 32}, {"layers.0.mlp.down_proj", "layers.0.mlp.2", 32, 48}};
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } rest[] = {{"anchor_norm.weight", 0, 32}, {"output_norm.weight", 0, 32}, {"rank_embedding", 5, 32},
                {"relative_slot_bias", 4, 31}, {"same_slot_bias", 0, 4}, {"layers.0.attn_norm.weight", 0, 32},
                {"layers.0.mlp_norm.weight", 0, 32}, {"layers.0.attn.in_proj_weight", 96, 32},
                {"layers.0.attn.in_proj_bias", 0, 96}};
    static float slots[15 * 32];
    st_make *m = &more_tensors;
    char name[96];
    for (uint64_t i = 0; i < 15 * 32; i++) slots[i] = st_value("slots", i);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const char *own = numbered && maps[i].numbered ? maps[i].numbered : maps[i].name;
        snprintf(name, sizeof name, "lilicorr.%s.weight", own);
        add(m, "", leave, name, maps[i].rows, maps[i].columns);
        snprintf(name, sizeof name, "lilicorr.%s.bias", own);
        add(m, "", leave, name, 0, maps[i].rows);
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(name, sizeof name, "lilicorr.%s", rest[i].name);
        add(m, "", leave, name, rest[i].rows, rest[i].columns);
    }
    snprintf(name, sizeof name, "lilicorr.%s.weight", numbered ? "feature_mlp.0" : "feature_norm");
    add(m, "", leave, name, 0, 5);
    snprintf(name, sizeof name, "lilicorr.%s.bias", numbered ? "feature_mlp.0" : "feature_norm");
    add(m, "", leave, name, 0, 5);
    if (!leave || strcmp(leave, "lilicorr.slot_embedding"))
        st_make_raw(m, "lilicorr.slot_embedding", "F32", numbered ? "[1, 15, 1, 32]" : "[1, 1, 15, 1, 32]", slots,
                    sizeof slots);
    write_block(folder, "", false, leave, more, config);
}

static void lattice(const char *folder, bool numbered)
{
    char line[128];
    write_lattice(folder, NULL, NULL, numbered, NVIDIA);
    snprintf(line, sizeof line, "$A convert %s --target t.gguf -o l.gguf --outtype f32 --json", folder);
    converts(line);
    assert_non_null(strstr(cli_last.out, "\"kind\": \"LiLiCorr\""));
    ae_gguf *gguf = open_file("l.gguf");
    same_layers(gguf);
    same_values(gguf, "lilicorr.token_proj.weight", "lilicorr.token_proj.weight", 0, 32, 64);
    same_values(gguf, "lilicorr.hidden_proj.bias", "lilicorr.pass_hidden_proj.bias", 0, 0, 32);
    same_values(gguf, "lilicorr.feature_norm.bias",
                numbered ? "lilicorr.feature_mlp.0.bias" : "lilicorr.feature_norm.bias", 0, 0, 5);
    same_values(gguf, "lilicorr.feature_up.weight",
                numbered ? "lilicorr.feature_mlp.1.weight" : "lilicorr.feature_mlp.up_proj.weight", 0, 32, 5);
    same_values(gguf, "lilicorr.blk.0.attn_q.weight", "lilicorr.layers.0.attn.in_proj_weight", 0, 32, 32);
    same_values(gguf, "lilicorr.blk.0.attn_v.weight", "lilicorr.layers.0.attn.in_proj_weight", 64 * 32, 32, 32);
    same_values(gguf, "lilicorr.blk.0.attn_k.bias", "lilicorr.layers.0.attn.in_proj_bias", 32, 0, 32);
    same_values(gguf, "lilicorr.blk.0.ffn_down.weight",
                numbered ? "lilicorr.layers.0.mlp.2.weight" : "lilicorr.layers.0.mlp.down_proj.weight", 0, 32, 48);
    same_values(gguf, "lilicorr.slot_embd.weight", "slots", 0, 15, 32);
    same_values(gguf, "lilicorr.slot_bias.weight", "lilicorr.relative_slot_bias", 0, 4, 31);
    same_values(gguf, "lilicorr.context_norm.weight", "lilicorr.anchor_norm.weight", 0, 0, 32);
    same_values(gguf, "lilicorr.factor_first.weight", "lilicorr.anchor_out_head.weight", 0, 12, 32);
    key_u32(gguf, "dflash.lilicorr.feed_forward_length", 48);
    key_u32(gguf, "dflash.lilicorr.top_k", 5);
    key_f32(gguf, "dflash.lilicorr.logit_scale", 10);
    key_f32(gguf, "dflash.lilicorr.vector_epsilon", 1e-4f);
    ae_gguf_close(gguf);
}

static void lilicorr(void **state)
{
    (void)state;
    lattice("l", false);
    lattice("n", true);
    converts("$A convert n --target t.gguf -o l.gguf --outtype q8_0");
    converts("$A run -m t.gguf -md l.gguf --spec-type draft-dflash -no-cnv -p hello -n 8 --temp 0 --stats");
    assert_non_null(strstr(cli_last.err, "draft-dflash"));
    static const struct {
        const char *leave, *more, *config, *why;
    } cases[] = {{"lilicorr.token_proj.weight", NULL, NVIDIA, "lilicorr.token_proj.weight is missing"},
                 {"lilicorr.in_head.bias", NULL, NVIDIA, "lilicorr.factor_in.bias"},
                 {"lilicorr.slot_embedding", NULL, NVIDIA, "lilicorr.slot_embedding is missing"},
                 {"lilicorr.layers.0.attn.in_proj_bias", NULL, NVIDIA, "in_proj_bias is missing"},
                 {"lilicorr.layers.0.mlp.up_proj.weight", NULL, NVIDIA, "mlp.up_proj.weight is missing"},
                 {NULL, "lilicorr.gate.weight", NVIDIA, "lilicorr.gate.weight"},
                 {NULL, "layer_fusion_weights", NVIDIA, "another kind"},
                 {NULL, NULL, NVIDIA_OF("32", "2", "5", "1e-4", ""), "lilicorr.layers.1."},
                 {NULL, NULL, NVIDIA_OF("32", "1", "17", "1e-4", ""), "'lilicorr_candidate_topk'"},
                 {NULL, NULL, NVIDIA_OF("32", "1", "5", "-1", ""), "lilicorr_vector_eps"},
                 {NULL, NULL, NVIDIA_OF("0", "1", "5", "1e-4", ""), "[64, 64]"},
                 {NULL, NULL, NVIDIA_OF("32", "1", "5", "1e-4", ",\"causal\":true"), "attention.causal"},
                 {NULL, NULL, ZLAB(""), "'lilicorr_hidden_size' is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_lattice("r", cases[i].leave, cases[i].more, false, cases[i].config);
        cli("$A convert r -o r.gguf");
        if (cli_last.status != 3 || !strstr(cli_last.err, cases[i].why))
            fail_msg("case %zu: %d, \"%s\", not \"%s\"", i, cli_last.status, cli_last.err, cases[i].why);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *leave, *more, *config, *why;
        bool spark;
        int status;
    } cases[] = {
        {"fc.weight", NULL, ZLAB(""), "not a drafter head", false, 3},
        {"layers.1.mlp.up_proj.weight", NULL, ZLAB(""), "layers.1.mlp.up_proj.weight is missing", false, 3},
        {NULL, "strange.weight", ZLAB(""), "--skip strange.weight", false, 3},
        {NULL, NULL, "{\"architectures\":[\"DFlashDraftModel\"]," SIZES "}", "'target_layer_ids' has 0 layers", false, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,2]}", "'mask_token_id' is missing", false, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,2],\"mask_token_id\":300}", "is not such a number", false, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,-2],\"mask_token_id\":3}", "element 1 of", false, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,2,3],\"mask_token_id\":3}", "3 x width of the target", false, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,2],\"mask_token_id\":3,\"block_size\":99}", "block_size", false, 3},
        {"markov_head.markov_w2.weight", NULL, DEEPSPEC(""), "the second is missing", true, 3},
        {NULL, NULL, "{" SIZES ",\"target_layer_ids\":[1,2],\"mask_token_id\":3,\"markov_head_type\":\"rnn\"}", "recurrent",
         true, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_block("r", "", cases[i].spark, cases[i].leave, cases[i].more, cases[i].config);
        cli("$A convert r -o r.gguf");
        if (cli_last.status != cases[i].status || !strstr(cli_last.err, cases[i].why))
            fail_msg("case %zu: %d, \"%s\", not \"%s\"", i, cli_last.status, cli_last.err, cases[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dflash), cmocka_unit_test(dspark), cmocka_unit_test(dflash2),
                                       cmocka_unit_test(dfly), cmocka_unit_test(lilicorr),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
