/* test_convert_encoder.c - folders of BERT's family to GGUF files that run. Vectors against transformers':
 * tests/embeddings/check_embeddings.py. */
#include "convert_rig.inc"
#include "aerie_extra.h"

#include "convert/convert.h"

#define BERT_CONFIG                                                                                                            \
    "\"model_type\":\"bert\",\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":64,"   \
    "\"max_position_embeddings\":40,\"vocab_size\":12,\"type_vocab_size\":2,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\""

typedef struct tensor {
    const char *name;
    uint64_t rows, columns;
} tensor;

static void add(st_make *m, const char *prefix, const tensor *list, size_t n, const char *leave)
{
    char name[128];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, list[i].name);
        if (!leave || strcmp(leave, list[i].name)) st_make_floats(m, name, name, list[i].rows, list[i].columns);
    }
}

/* leave: a tensor that is missing; n_labels 0: no classifier. */
static void write_bert(const char *folder, const char *config, const char *leave, uint64_t n_labels)
{
    static const tensor outside[] = {
        {"embeddings.word_embeddings.weight", 12, 32}, {"embeddings.position_embeddings.weight", 40, 32},
        {"embeddings.token_type_embeddings.weight", 2, 32}, {"embeddings.LayerNorm.gamma", 0, 32},
        {"embeddings.LayerNorm.beta", 0, 32}, {"pooler.dense.weight", 32, 32}, {"pooler.dense.bias", 0, 32}};
    static const tensor layer[] = {{"attention.self.query.weight", 32, 32}, {"attention.self.query.bias", 0, 32},
                 {"attention.self.key.weight", 32, 32}, {"attention.self.key.bias", 0, 32},
                 {"attention.self.value.weight", 32, 32}, {"attention.self.value.bias", 0, 32},
                 {"attention.output.dense.weight", 32, 32}, {"attention.output.dense.bias", 0, 32},
                 {"attention.output.LayerNorm.weight", 0, 32}, {"attention.output.LayerNorm.bias", 0, 32},
                 {"intermediate.dense.weight", 64, 32}, {"intermediate.dense.bias", 0, 64}, {"output.dense.weight", 32, 64},
                 {"output.dense.bias", 0, 32}, {"output.LayerNorm.weight", 0, 32}, {"output.LayerNorm.bias", 0, 32}};
    st_make m = {0};
    make_folder(folder);
    add(&m, "bert.", outside, sizeof outside / sizeof *outside, leave);
    for (uint32_t l = 0; l < 2; l++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "bert.encoder.layer.%u.", l);
        add(&m, prefix, layer, sizeof layer / sizeof *layer, leave);
    }
    if (n_labels) {
        st_make_floats(&m, "classifier.weight", "classifier.weight", n_labels, 32);
        st_make_floats(&m, "classifier.bias", "classifier.bias", 0, n_labels);
    }
    write_checkpoint(folder, &m, config);
}

static aerie_status convert_bert(const char *folder, uint32_t type, aerie_model **model, aerie_error *error)
{
    char from[256], to[256];
    ae_convert *c;
    snprintf(from, sizeof from, "%s/%s", cli_folder, folder);
    snprintf(to, sizeof to, "%s/%s.gguf", cli_folder, folder);
    const ae_convert_options options = {.checkpoint = from, .output = to, .type = type,
                                        .producer = AE_CONVERT_PRODUCER_AUTO};
    AE_TRY(ae_convert_open(&c, &options, error));
    const aerie_status status = ae_convert_run(c, error);
    const ae_convert_report r = ae_convert_reported(c);
    assert_true(r.encoder && !r.head && r.encoder->n_layers == 2 && r.encoder->n_vocab == 12);
    ae_convert_free(c);
    return status == AERIE_OK ? aerie_model_load(model, to, NULL, error) : status;
}

static const char vocab_text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\n##s\nsat\n.\n";

static void encoder(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_embedder *e;
    aerie_model_info info;
    int32_t *ids;
    size_t n, n_first;
    float vector[32];
    (void)state;
    write_bert("bert", "{" BERT_CONFIG "}", NULL, 0);
    write_in("bert", "vocab.txt", vocab_text);
    make_folder("bert/1_Pooling");
    write_in("bert/1_Pooling", "config.json", "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}");
    if (convert_bert("bert", AE_TYPE_F32, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_info_get(model, &info, sizeof info);
    assert_true(info.is_encoder && info.pooling == AERIE_POOLING_CLS && info.n_embd == 32 && info.n_ctx_train == 40);
    assert_int_equal(aerie_model_tokenize(model, "The cats sat. Xyz", 17, true, false, &ids, &n, &error), AERIE_OK);
    static const int32_t wanted[] = {2, 4, 5, 6, 7, 8, 1, 3};
    assert_int_equal(n, sizeof wanted / sizeof *wanted);
    assert_memory_equal(ids, wanted, sizeof wanted);
    assert_int_equal(aerie_embedder_create(&e, model, NULL, &error), AERIE_OK);
    assert_int_equal(aerie_embedder_embed(e, &(aerie_embed_text){.tokens = ids, .n_tokens = n}, 1, vector, &error), AERIE_OK);
    double sum = 0;
    for (size_t i = 0; i < 32; i++) sum += (double)vector[i] * (double)vector[i];
    assert_true(sum > 0.999 && sum < 1.001);
    aerie_free(ids);
    assert_int_equal(aerie_model_rerank_tokens(model, "cat", 3, "sat", 3, &ids, &n, &n_first, &error), AERIE_OK);
    static const int32_t pair[] = {2, 5, 3, 7, 3};
    assert_true(n == 5 && n_first == 3 && !memcmp(ids, pair, sizeof pair));
    aerie_free(ids);
    aerie_embedder_free(e);
    aerie_model_free(model);
    ae_gguf *file = open_file("bert.gguf");
    const ae_gguf_tensor *t = ae_gguf_tensor_find(file, "blk.1.ffn_up.weight");
    assert_true(t && t->ne[0] == 32 && t->ne[1] == 64);
    ae_gguf_close(file);
    if (convert_bert("bert", AE_TYPE_Q8_0, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_free(model);
    file = open_file("bert.gguf");
    t = ae_gguf_tensor_find(file, "blk.1.ffn_up.weight");
    assert_true(t && t->type == AE_TYPE_Q8_0);
    t = ae_gguf_tensor_find(file, "blk.1.attn_k.weight"); /* its inputs lose too much in 8 bits */
    assert_true(t && t->type == AE_TYPE_F16);
    ae_gguf_close(file);
}

static void encoder_refused(const char *folder, const char *config, const char *leave, uint64_t n_labels, bool vocab,
                            const char *part)
{
    aerie_error error = {0};
    aerie_model *model;
    write_bert(folder, config, leave, n_labels);
    if (vocab) write_in(folder, "vocab.txt", vocab_text);
    assert_int_not_equal(convert_bert(folder, AE_TYPE_F32, &model, &error), AERIE_OK);
    if (!strstr(error.text, part)) fail_msg("%s: %s", folder, error.text);
}

static void other_encoders(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_embedder *e;
    float score;
    (void)state;
    write_bert("ranker", "{" BERT_CONFIG "}", NULL, 1);
    write_in("ranker", "tokenizer.json", "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,"
             "\"[SEP]\":3,\"the\":4}},\"added_tokens\":[{\"id\":7,\"content\":\"<odd>\",\"special\":true}]}");
    if (convert_bert("ranker", AE_TYPE_F32, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(aerie_embedder_create(&e, model, NULL, &error), AERIE_OK);
    assert_true(aerie_embedder_n_out(e) == 1 && aerie_embedder_pooling(e) == AERIE_POOLING_RANK);
    const aerie_embed_text text = {.tokens = (const int32_t[]){2, 4, 3, 4, 3}, .n_tokens = 5, .n_first = 3};
    assert_int_equal(aerie_embedder_embed(e, &text, 1, &score, &error), AERIE_OK);
    aerie_embedder_free(e);
    aerie_model_free(model);
    encoder_refused("labels", "{" BERT_CONFIG "}", NULL, 3, true, "several labels");
    encoder_refused("electra", "{\"model_type\":\"electra\"}", NULL, 0, true, "'model_type' is \"electra\"");
    encoder_refused("wordless", "{" BERT_CONFIG "}", NULL, 0, false, "vocab.txt");
    encoder_refused("norm", "{" BERT_CONFIG "}", "embeddings.LayerNorm.beta", 0, true, "embeddings.LayerNorm.bias is missing");
    encoder_refused("query", "{" BERT_CONFIG "}", "output.dense.weight", 0, true, "output.dense.weight is missing");
    encoder_refused("short", "{\"hidden_size\":32}", NULL, 0, true, "num_hidden_layers");
    make_folder("dense"); /* as LaBSE has one: without it the vectors would be others */
    write_in("dense", "modules.json", "[{\"type\":\"sentence_transformers.models.Dense\",\"path\":\"3_Dense\"}]");
    encoder_refused("dense", "{" BERT_CONFIG "}", NULL, 0, true, "3_Dense");
}

/* ---- XLM-RoBERTa ----------------------------------------------------------------------------------- */

#define XLMR_CONFIG                                                                                                            \
    "\"model_type\":\"xlm-roberta\",\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                     \
    "\"intermediate_size\":64,\"vocab_size\":12,\"type_vocab_size\":2,\"hidden_act\":\"gelu\""
#define XLMR_USUAL ",\"max_position_embeddings\":40,\"pad_token_id\":1"
#define XLMR_PIECES                                                                                                            \
    "[[\"<s>\",0],[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"\u2581\",-2],[\"\u2581hello\",-3],"                       \
    "[\"\u2581he\",-2.5],[\"llo\",-2.5],[\"o\",-4],[\"x\",-5]]"
#define XLMR_MAP(base64) "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" base64 "\"}"
#define XLMR_NORMAL XLMR_MAP("AAAAAAA=") /* without entries */
#define XLMR_WORDS                                                                                                             \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\"}]}"

/* tokenizer.json of these pieces and steps; NULL: the usual ones. */
static void write_xlmr(const char *folder, const char *config, const char *pieces, const char *normal, const char *words)
{
    ae_buf text = {0};
    write_bert(folder, config, NULL, 0);
    ae_buf_addf(&text,
                "{\"model\":{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":%s},%s,%s,\"added_tokens\":["
                "{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,\"content\":\"<pad>\",\"special\":true},"
                "{\"id\":2,\"content\":\"</s>\",\"special\":true},{\"id\":3,\"content\":\"<unk>\",\"special\":true},"
                "{\"id\":10,\"content\":\"<mask>\",\"special\":true}],"
                "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}]}}",
                pieces ? pieces : XLMR_PIECES, normal ? normal : XLMR_NORMAL, words ? words : XLMR_WORDS);
    write_in(folder, "tokenizer.json", text.data);
    write_in(folder, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\","
             "\"pad_token\":\"<pad>\"}");
    ae_buf_free(&text);
}

static void xlm_roberta(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_info info;
    int32_t *ids;
    size_t n, n_first;
    (void)state;
    write_xlmr("xlmr", "{" XLMR_CONFIG XLMR_USUAL "}", NULL, NULL, NULL);
    if (convert_bert("xlmr", AE_TYPE_F32, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
    aerie_model_info_get(model, &info, sizeof info);
    assert_string_equal(info.tokenizer, "unigram");
    assert_int_equal(info.n_ctx_train, 38); /* without the rows up to the padding's */
    assert_int_equal(aerie_model_tokenize(model, "  hello  hex <mask>", 19, true, true, &ids, &n, &error), AERIE_OK);
    static const int32_t wanted[] = {0, 5, 6, 9, 10, 2};
    assert_int_equal(n, sizeof wanted / sizeof *wanted);
    assert_memory_equal(ids, wanted, sizeof wanted);
    aerie_free(ids);
    static const int32_t pair[] = {0, 6, 2, 2, 5, 2}; /* as transformers joins two texts */
    assert_int_equal(aerie_model_rerank_tokens(model, "he", 2, "hello", 5, &ids, &n, &n_first, &error), AERIE_OK);
    assert_true(n == 6 && n_first == 4 && !memcmp(ids, pair, sizeof pair));
    aerie_free(ids);
    aerie_model_free(model);
    ae_gguf *file = open_file("xlmr.gguf");
    const ae_gguf_tensor *t = ae_gguf_tensor_find(file, "position_embd.weight");
    const float third = st_value("bert.embeddings.position_embeddings.weight", 2 * 32);
    assert_true(t && t->ne[1] == 38);
    assert_memory_equal(t->data, &third, sizeof third); /* the table's third row is the first of the file */
    ae_gguf_close(file);
}

static void xlm_roberta_refused(void **state)
{
    static const char *const cases[][5] = {
        {XLMR_USUAL, "{}", NULL, NULL, "must be a list"},
        {XLMR_USUAL, "[[\"a\"]]", NULL, NULL, "entry 0 of 'vocab'"},
        {XLMR_USUAL, "[[\"a\",\"b\"]]", NULL, NULL, "entry 0 of 'vocab'"},
        {XLMR_USUAL, NULL, "\"normalizer\":{\"type\":\"NFKD\"}", NULL, "\"NFKD\""},
        {XLMR_USUAL, NULL, XLMR_MAP("?"), NULL, "base64"},
        {XLMR_USUAL, NULL, XLMR_MAP("AAAA"), NULL, "precompiled_charsmap"},
        {XLMR_USUAL, NULL, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}", NULL,
         "\"Replace\""},
        {XLMR_USUAL, NULL, NULL, "\"pre_tokenizer\":{\"type\":\"Digits\"}", "\"Digits\""},
        {",\"max_position_embeddings\":2,\"pad_token_id\":1", NULL, NULL, NULL, "leaves no position"},
        {",\"max_position_embeddings\":41,\"pad_token_id\":1", NULL, NULL, NULL, "position_embeddings"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[640];
        aerie_error error = {0};
        aerie_model *model;
        snprintf(config, sizeof config, "{" XLMR_CONFIG "%s}", cases[i][0]);
        write_xlmr("xlmr_odd", config, cases[i][1], cases[i][2], cases[i][3]);
        assert_int_not_equal(convert_bert("xlmr_odd", AE_TYPE_F32, &model, &error), AERIE_OK);
        if (!strstr(error.text, cases[i][4])) fail_msg("%zu: %s", i, error.text);
    }
}

/* ---- Nomic BERT ------------------------------------------------------------------------------------ */

#define NOMIC_CONFIG                                                                                                           \
    "\"n_embd\":32,\"n_layer\":2,\"n_inner\":64,\"n_positions\":8192,\"vocab_size\":12,\"type_vocab_size\":2,"                 \
    "\"layer_norm_epsilon\":1e-12,\"qkv_proj_bias\":false"
#define NOMIC_USUAL ",\"model_type\":\"nomic_bert\",\"n_head\":4"

/* spelling 0: nomic-ai's names, 1: those of transformers' own parts. */
static void write_nomic(const char *folder, const char *config, int spelling)
{
    static const tensor outside[2][4] = {
        {{"embeddings.word_embeddings.weight", 12, 32}, {"embeddings.token_type_embeddings.weight", 2, 32},
         {"emb_ln.weight", 0, 32}, {"emb_ln.bias", 0, 32}},
        {{"embeddings.word_embeddings.weight", 12, 32}, {"embeddings.token_type_embeddings.weight", 2, 32},
         {"embeddings.LayerNorm.weight", 0, 32}, {"embeddings.LayerNorm.bias", 0, 32}}};
    static const tensor inside[2][11] = {
        {{"attn.Wqkv.weight", 96, 32}, {"attn.out_proj.weight", 32, 32}, {"norm1.weight", 0, 32}, {"norm1.bias", 0, 32},
         {"mlp.fc11.weight", 64, 32}, {"mlp.fc12.weight", 64, 32}, {"mlp.fc2.weight", 32, 64}, {"norm2.weight", 0, 32},
         {"norm2.bias", 0, 32}},
        {{"self_attn.q_proj.weight", 32, 32}, {"self_attn.k_proj.weight", 32, 32}, {"self_attn.v_proj.weight", 32, 32},
         {"self_attn.o_proj.weight", 32, 32}, {"post_attention_layernorm.weight", 0, 32},
         {"post_attention_layernorm.bias", 0, 32}, {"mlp.up_proj.weight", 64, 32}, {"mlp.gate_proj.weight", 64, 32},
         {"mlp.down_proj.weight", 32, 64}, {"post_mlp_layernorm.weight", 0, 32}, {"post_mlp_layernorm.bias", 0, 32}}};
    st_make m = {0};
    make_folder(folder);
    add(&m, "", outside[spelling], 4, NULL);
    for (uint32_t l = 0; l < 2; l++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, spelling ? "layers.%u." : "encoder.layers.%u.", l);
        add(&m, prefix, inside[spelling], spelling ? 11 : 9, NULL);
    }
    write_checkpoint(folder, &m, config);
    write_in(folder, "vocab.txt", vocab_text);
}

static void nomic(void **state)
{
    static const char *const configs[2] = {
        "{" NOMIC_CONFIG NOMIC_USUAL ",\"prenorm\":false,\"rotary_emb_fraction\":1.0,\"rotary_emb_scale_base\":null,"
        "\"activation_function\":\"swiglu\",\"moe_every_n_layers\":0,\"rotary_emb_base\":1000}",
        "{\"model_type\":\"nomic_bert\",\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"intermediate_size\":64,\"max_position_embeddings\":40,\"vocab_size\":12,\"hidden_act\":\"silu\","
        "\"rope_parameters\":{\"rope_theta\":1000,\"rope_type\":\"default\"}}"};
    (void)state;
    for (int spelling = 0; spelling < 2; spelling++) {
        aerie_error error = {0};
        aerie_model *model;
        aerie_embedder *e;
        aerie_model_info info;
        float vector[32], base = 0;
        write_nomic("nomic", configs[spelling], spelling);
        if (convert_bert("nomic", AE_TYPE_F32, &model, &error) != AERIE_OK) fail_msg("%s", error.text);
        aerie_model_info_get(model, &info, sizeof info);
        assert_true(info.is_encoder && info.n_embd == 32 && info.n_ctx_train == (spelling ? 40 : 2048));
        assert_int_equal(aerie_embedder_create(&e, model, NULL, &error), AERIE_OK);
        const aerie_embed_text text = {.tokens = (const int32_t[]){2, 4, 5, 3}, .n_tokens = 4};
        assert_int_equal(aerie_embedder_embed(e, &text, 1, vector, &error), AERIE_OK);
        aerie_embedder_free(e);
        aerie_model_free(model);
        ae_gguf *file = open_file("nomic.gguf");
        assert_int_equal(ae_gguf_get_f32(file, "nomic-bert.rope.freq_base", true, &base, &error), AERIE_OK);
        assert_true(base > 999.0f && base < 1001.0f);
        assert_non_null(ae_gguf_tensor_find(file, spelling ? "blk.1.attn_v.weight" : "blk.1.attn_qkv.weight"));
        assert_non_null(ae_gguf_tensor_find(file, "blk.1.ffn_gate.weight"));
        ae_gguf_close(file);
    }
}

/* Settings that a GGUF file cannot express are refused. */
static void nomic_refused(void **state)
{
    static const char *const cases[][2] = {
        {NOMIC_USUAL ",\"prenorm\":true", "'prenorm' is true"},
        {NOMIC_USUAL ",\"moe_every_n_layers\":2", "'moe_every_n_layers' is 2"}, /* without experts among the tensors */
        {NOMIC_USUAL ",\"activation_function\":\"gelu\"", "'activation_function' is \"gelu\""},
        {NOMIC_USUAL ",\"rotary_emb_fraction\":0.5", "'rotary_emb_fraction' is 0.5"},
        {NOMIC_USUAL ",\"rotary_emb_interleaved\":true", "'rotary_emb_interleaved'"},
        {NOMIC_USUAL ",\"rotary_emb_scale_base\":512", "xPos"},
        {NOMIC_USUAL ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "'rope_type' is \"yarn\""},
        {NOMIC_USUAL ",\"rope_parameters\":[1]", "must be an object"},
        {NOMIC_USUAL ",\"head_dim\":16", "'head_dim'"},
        {",\"n_head\":5", "not a multiple"},
        {NOMIC_USUAL ",\"rotary_emb_base\":0", "rotary_emb_base"},
        {",\"model_type\":\"gte\",\"n_head\":4", "nomic_bert"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[640];
        aerie_error error = {0};
        aerie_model *model;
        snprintf(config, sizeof config, "{" NOMIC_CONFIG "%s}", cases[i][0]);
        write_nomic("odd", config, 0);
        assert_int_not_equal(convert_bert("odd", AE_TYPE_F32, &model, &error), AERIE_OK);
        if (!strstr(error.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoder),
        cmocka_unit_test(other_encoders),
        cmocka_unit_test(xlm_roberta),
        cmocka_unit_test(xlm_roberta_refused),
        cmocka_unit_test(nomic),
        cmocka_unit_test(nomic_refused),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
