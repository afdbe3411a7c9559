/* test_convert_folder.c - the smaller files of a model's folder: added tokens and their kinds, all tokens that end a
 * generation, chat templates in all places, activations, files written on Windows; LoRA adapters; and messages about files and
 * folders that are not a checkpoint. */
#include "convert_model.inc"

#include "aerie.h"

static void made(const char *folder)
{
    cli("$A convert %s -o %s.gguf --outtype f32", folder, folder);
    if (cli_last.status) fail_msg("%s: %s", folder, cli_last.err);
}

static ae_gguf *opened(const char *folder)
{
    char name[64];
    snprintf(name, sizeof name, "%s.gguf", folder);
    return open_file(name);
}

/* The token of an id and its type. */
static void has_token(const ae_gguf *file, uint32_t id, const char *text, int type)
{
    const ae_gguf_kv *tokens = ae_gguf_kv_find(file, "tokenizer.ggml.tokens");
    const ae_gguf_kv *types = ae_gguf_kv_find(file, "tokenizer.ggml.token_type");
    ae_gguf_string found = {0};
    size_t cursor = 0;
    int64_t kind = 0;
    for (uint32_t i = 0; i <= id; i++) assert_true(ae_gguf_kv_next_string(tokens, &cursor, &found));
    assert_true(ae_gguf_kv_int(types, id, &kind));
    if (found.n != strlen(text) || memcmp(found.data, text, found.n) || kind != type)
        fail_msg("token %u is '%.*s' of type %d, not '%s' of %d", id, (int)found.n, found.data, (int)kind, text, type);
}

static void tokens_are(const char *folder, const char *text, const char *wanted)
{
    cli("$A tokenize -m %s.gguf -p '%s'", folder, text);
    if (cli_last.status || strcmp(cli_last.out, wanted)) fail_msg("%s: %s%s", text, cli_last.out, cli_last.err);
}

static void make_pieces(const char *folder, const char *more)
{
    char name[64];
    ae_buf file = {0};
    add_pieces(&file);
    write_model(folder, "LlamaForCausalLM", more, 0, NULL, NULL);
    snprintf(name, sizeof name, "%s/tokenizer.model", folder);
    cli_write(name, file.data, file.n);
    ae_buf_free(&file);
}

#define IDS ",\"bos_token_id\":1,\"eos_token_id\":2"

static void added_beside_tokenizer_model(void **state)
{
    (void)state;
    make_pieces("sp", IDS);
    write_in("sp", "added_tokens.json", "{\"<|im_start|>\": 8, \"<|im_end|>\": 9, \"<tool>\": 10, \"<end_of_turn>\": 11, "
                                        "\"[X]\": 12, \"<far>\": 264, \"<first>\": 14, \"<second>\": 14}");
    write_in("sp", "special_tokens_map.json", "{\"additional_special_tokens\": [\"[X]\", {\"content\": \"[Y]\"}]}");
    made("sp");
    assert_non_null(strstr(cli_last.err, "\"<far>\" is left out: its id is 264, but there are 264 rows"));
    assert_non_null(strstr(cli_last.err, "two added tokens have the id 14, \"<first>\" and \"<second>\"; the latter is kept"));
    ae_gguf *file = opened("sp");
    has_token(file, 8, "<|im_start|>", AERIE_TOKEN_CONTROL);
    has_token(file, 9, "<|im_end|>", AERIE_TOKEN_CONTROL);
    has_token(file, 10, "<tool>", AERIE_TOKEN_USER_DEFINED);
    has_token(file, 11, "<end_of_turn>", AERIE_TOKEN_CONTROL);
    has_token(file, 12, "[X]", AERIE_TOKEN_CONTROL);
    has_token(file, 13, "[PAD13]", AERIE_TOKEN_UNUSED);
    has_token(file, 2, "</s>", AERIE_TOKEN_CONTROL);
    ae_gguf_close(file);
    tokens_are("sp", "<|im_start|>ab<tool>a<|im_end|>", "1 8 6 10 4 9\n");
}

/* Flags say which are control tokens; a piece that is an added token becomes one. */
static void added_in_the_config(void **state)
{
    (void)state;
    make_pieces("decoder", IDS);
    write_in("decoder", "tokenizer_config.json",
             "{\"added_tokens_decoder\": {\"0\": {\"content\": \"<unk>\", \"special\": true}, \"5\": {\"content\": \"b\", "
             "\"special\": false}, \"6\": {\"content\": \"ab\", \"special\": true}, \"20\": {\"content\": \"<|tool|>\", "
             "\"special\": false}, \"21\": {\"content\": \"<turn>\", \"special\": true}, \"x\": {\"content\": \"<no>\"}, "
             "\"-1\": {\"content\": \"<no>\"}, \"22\": 3}}");
    write_in("decoder", "added_tokens.json", "{\"<|tool|>\": 20, \"<turn>\": 21, \"<|more|>\": 22, \"bad\": \"x\"}");
    made("decoder");
    ae_gguf *file = opened("decoder");
    has_token(file, 0, "<unk>", AERIE_TOKEN_UNKNOWN);
    has_token(file, 5, "b", AERIE_TOKEN_USER_DEFINED);
    has_token(file, 6, "ab", AERIE_TOKEN_CONTROL);
    has_token(file, 20, "<|tool|>", AERIE_TOKEN_USER_DEFINED);
    has_token(file, 21, "<turn>", AERIE_TOKEN_CONTROL);
    has_token(file, 22, "<|more|>", AERIE_TOKEN_CONTROL);
    ae_gguf_close(file);
}

static void make_json(const char *folder, const char *more)
{
    write_model(folder, "LlamaForCausalLM", more, 0, NULL, NULL);
    write_tokenizer(folder, qwen2_words);
}

/* transformers writes 10^30 as the length of a tokenizer without a limit, and Python's infinities. */
static void numbers_of_python(void **state)
{
    (void)state;
    make_json("python", ",\"rope_scaling_factor_of_others\":99999999999999999999,\"initializer_range\":NaN");
    write_in("python", "tokenizer_config.json",
             "{\"eos_token\":\"<|end|>\",\"model_max_length\":1000000000000000019884624838656,\"least\":-Infinity,"
             "\"kept\":\"1000000000000000019884624838656 NaN\",\"most\":[9223372036854775807,9223372036854775808,-1e5,1]}");
    made("python");
    ae_gguf *file = opened("python");
    has_token(file, 200, "<|end|>", AERIE_TOKEN_CONTROL);
    ae_gguf_close(file);
    make_json("huge", ",\"head_dim\":1000000000000000019884624838656");
    cli("$A convert huge -o huge.gguf");
    cli_refused(3, "'head_dim' is 1", "must be a whole number");
}

/* tokenizer.json wins: tokens that it lacks are added, tokens that it has are kept. */
static void added_beside_tokenizer_json(void **state)
{
    (void)state;
    make_json("json", "");
    write_in("json", "tokenizer_config.json",
             "{\"eos_token\":\"<|end|>\",\"added_tokens_decoder\": {\"202\": {\"content\": \"<think>\", \"special\": false}, "
             "\"203\": {\"content\": \"<|pad|>\", \"special\": true}, \"97\": {\"content\": \"<|a|>\", \"special\": true}}}");
    write_in("json", "added_tokens.json", "{\"<|end|>\": 200, \"<x>\": 201, \"<|late|>\": 204}");
    made("json");
    assert_null(strstr(cli_last.err, "two added tokens"));
    assert_non_null(strstr(cli_last.err, "has \"a\" under id 97, where another file has \"<|a|>\", which is left out"));
    ae_gguf *file = opened("json");
    has_token(file, 97, "a", AERIE_TOKEN_NORMAL);
    has_token(file, 200, "<|end|>", AERIE_TOKEN_CONTROL);
    has_token(file, 201, "<x>", AERIE_TOKEN_USER_DEFINED);
    has_token(file, 202, "<think>", AERIE_TOKEN_USER_DEFINED);
    has_token(file, 203, "<|pad|>", AERIE_TOKEN_CONTROL);
    has_token(file, 204, "<|late|>", AERIE_TOKEN_CONTROL);
    ae_gguf_close(file);
}

/* tiktoken.model [n_bytes single bytes, then `more`] in place of tokenizer.json. */
static void make_ranks(const char *folder, uint32_t n_bytes, const char *more)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char name[64];
    ae_buf file = {0};
    write_model(folder, "LlamaForCausalLM", "", 0, NULL, NULL);
    for (uint32_t i = 0; i < n_bytes; i++)
        ae_buf_addf(&file, "%c%c== %u\n", digits[i >> 2], digits[(i & 3) << 4], i);
    ae_buf_adds(&file, more);
    snprintf(name, sizeof name, "%s/tiktoken.model", folder);
    cli_write(name, file.data, file.n);
    ae_buf_free(&file);
}

static void ranks_of_tiktoken(void **state)
{
    (void)state;
    make_ranks("ranks", 256, "YWI= 256\r\nYWJj 257\nIGFi 258\n");
    write_in("ranks", "tokenizer_config.json",
             "{\"eos_token\":\"[EOS]\",\"added_tokens_decoder\":{\"260\":{\"content\":\"[EOS]\",\"special\":true}}}");
    made("ranks");
    ae_gguf *file = opened("ranks");
    has_token(file, 0, "\xc4\x80", AERIE_TOKEN_NORMAL);
    has_token(file, 97, "a", AERIE_TOKEN_NORMAL);
    has_token(file, 173, "\xc5\x83", AERIE_TOKEN_NORMAL);
    has_token(file, 258, "\xc4\xa0" "ab", AERIE_TOKEN_NORMAL);
    has_token(file, 259, "[PAD259]", AERIE_TOKEN_UNUSED);
    has_token(file, 260, "[EOS]", AERIE_TOKEN_CONTROL);
    ae_gguf_close(file);
    tokens_are("ranks", "abc ab ba[EOS]", "257 258 32 98 97 260\n");
    static const struct {
        const char *more, *why;
    } cases[] = {{"YWI=\n", "line 257"}, {"YW*= 256\n", "line 257"}, {"YWIAA 256\n", "line 257"}, {" 256\n", "line 257"},
                 {"YWI= -1\n", "line 257"}, {"YWI= 256 7\n", "line 257"}, {"YWI= 99999999999\n", "line 257"},
                 {"YWI= 7\n", "rank 7, as an earlier one"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_ranks("wrong", 256, cases[i].more);
        cli("$A convert wrong -o wrong.gguf");
        cli_refused(3, "tiktoken.model", cases[i].why);
    }
    make_ranks("wrong", 0, "");
    cli("$A convert wrong -o wrong.gguf");
    cli_refused(3, "tiktoken.model", "no token");
}

/* ---- Ends ------------------------------------------------------------------------------------------------ */

static void ends_are(const char *folder, const int *wanted, size_t n)
{
    made(folder);
    ae_gguf *file = opened(folder);
    const ae_gguf_kv *kv = ae_gguf_kv_find(file, "tokenizer.ggml.eos_token_ids");
    if (n < 2) assert_null(kv);
    else if (!kv || kv->n != n) fail_msg("%s: %zu ends, not %zu", folder, kv ? (size_t)kv->n : 0, n);
    for (size_t i = 0; kv && i < n; i++) {
        int64_t id = -1;
        assert_true(ae_gguf_kv_int(kv, i, &id));
        if (id != wanted[i]) fail_msg("%s: end %zu is %d, not %d", folder, i, (int)id, wanted[i]);
    }
    if (n) key_u32(file, "tokenizer.ggml.eos_token_id", (uint32_t)wanted[0]);
    assert_int_equal(ae_gguf_kv_find(file, "tokenizer.ggml.eot_token_id") != NULL, n > 1);
    ae_gguf_close(file);
    aerie_model *model;
    aerie_error error = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/%s.gguf", cli_folder, folder);
    if (aerie_model_load(&model, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    for (size_t i = 0; i < n; i++) assert_true(aerie_model_token_is_eog(model, wanted[i]));
    assert_false(aerie_model_token_is_eog(model, 'z'));
    aerie_model_free(model);
}

static void several_ends(void **state)
{
    (void)state;
    static const struct {
        const char *config, *generation;
        int wanted[4];
        size_t n;
    } cases[] = {
        {"", "{\"eos_token_id\": [200, 97, 98]}", {200, 97, 98}, 3},
        {",\"eos_token_id\": [98, 97]", "{}", {200, 98, 97}, 3},
        {",\"eos_token_id\": [97, 98]", "{\"eos_token_id\": 99}", {200, 99, 97, 98}, 4},
        {",\"eos_token_id\": 97", "{\"eos_token_id\": [200, 99]}", {200, 99}, 2}, /* a number in generation_config.json replaces
                                                                                   * one in config.json */
        {",\"eos_token_id\": 97", "{}", {200, 97}, 2},
        {"", "{\"eos_token_id\": [200, 9999, -1, \"x\", null, 200]}", {200}, 1},
        {",\"eos_token_id\": null", "{\"eos_token_id\": null}", {200}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[16];
        snprintf(folder, sizeof folder, "ends%zu", i);
        make_json(folder, cases[i].config);
        write_in(folder, "generation_config.json", cases[i].generation);
        ends_are(folder, cases[i].wanted, cases[i].n);
        assert_int_equal(strstr(cli_last.err, "eos_token_id has 9999, but the vocabulary has") != NULL, i == 5);
    }
}

/* ---- Chat templates ---------------------------------------------------------------------------------------- */

static void has_template(const char *folder, const char *name, const char *wanted)
{
    char key[80] = "tokenizer.chat_template";
    if (name) snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    ae_gguf *file = opened(folder);
    if (wanted) key_text(file, key, wanted);
    else assert_null(ae_gguf_kv_find(file, key));
    ae_gguf_close(file);
}

static void templates(void **state)
{
    (void)state;
    make_json("t1", "");
    write_in("t1", "tokenizer_config.json", "{\"eos_token\":\"<|end|>\"}");
    write_in("t1", "chat_template.json", "{\"chat_template\": \"of a processor\"}");
    made("t1");
    has_template("t1", NULL, "of a processor");
    write_in("t1", "chat_template.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
                                         "{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": 3, \"template\": \"x\"}]}");
    made("t1");
    has_template("t1", NULL, "d");
    has_template("t1", "rag", "r");
    write_in("t1", "chat_template.json", "{\"chat_template\": {\"default\": \"d\", \"rag\": \"r2\", \"no\": 1}}");
    made("t1");
    has_template("t1", NULL, "d");
    has_template("t1", "rag", "r2");
    cli("d=t1/additional_chat_templates; mkdir $d && printf 'tools {{ x }}\\r\\n2\\r\\n' > $d/tool_use.jinja && "
        "printf no > $d/README.md && printf later > $d/rag.jinja");
    made("t1");
    has_template("t1", NULL, "d");
    has_template("t1", "tool_use", "tools {{ x }}\n2\n");
    has_template("t1", "rag", "later");
    has_template("t1", "README", NULL);
    cli("printf '\\357\\273\\277the file' > t1/chat_template.jinja");
    made("t1");
    has_template("t1", NULL, "the file");
    has_template("t1", "tool_use", "tools {{ x }}\n2\n");
}

/* ---- Activations ------------------------------------------------------------------------------------------- */

static void activations(void **state)
{
    (void)state;
    static const struct {
        const char *config, *part; /* NULL: converts */
    } cases[] = {
        {"\"hidden_act\":\"silu\"", NULL},
        {"\"hidden_act\":\"swish\"", NULL},
        {"\"hidden_act\":null", NULL},
        {"\"hidden_act\":\"gelu\"", "'hidden_act' is \"gelu\", but GGUF files of architecture llama run with silu"},
        {"\"hidden_act\":\"gelu_pytorch_tanh\"", "\"gelu_pytorch_tanh\""},
        {"\"hidden_act\":\"relu2\"", "\"relu2\""},
        {"\"hidden_act\":\"silu swish\"", "run with silu"},
        {"\"hidden_act\":\"\"", "run with silu"},
        {"\"hidden_act\":{\"name\":\"silu\"}", "no text"},
        {"\"hidden_activation\":\"gelu\"", "'hidden_activation'"},
        {"\"activation_function\":\"gelu_new\"", "'activation_function'"},
        {"\"mlp_hidden_act\":\"relu2\"", "'mlp_hidden_act'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[128];
        snprintf(more, sizeof more, ",%s", cases[i].config);
        make_json("act", more);
        cli("rm -f act.gguf; $A convert act -o act.gguf");
        if (!cases[i].part && cli_last.status) fail_msg("%s: %s", cases[i].config, cli_last.err);
        if (cases[i].part) cli_refused(3, cases[i].part, "act/config.json");
        cli("test -e act.gguf");
        assert_int_equal(cli_last.status == 0, cases[i].part == NULL);
    }
}

/* ---- Windows ----------------------------------------------------------------------------------------------- */

static void marks_and_encodings(void **state)
{
    (void)state;
    make_json("win", IDS);
    made("win");
    cli("cp win.gguf plain.gguf; for f in config.json tokenizer.json tokenizer_config.json generation_config.json; do "
        "{ printf '\\357\\273\\277'; sed 's/,/,\\r\\n/' win/$f; } > x && mv x win/$f; done");
    made("win");
    cli("cmp win.gguf plain.gguf");
    assert_int_equal(cli_last.status, 0);
    cli("printf '\\377\\376{\\0}\\0' > win/tokenizer_config.json; $A convert win -o win.gguf");
    cli_refused(3, "tokenizer_config.json: this is UTF-16, but must be UTF-8", "iconv -f UTF-16 -t UTF-8");
}

/* ---- What is not a checkpoint ---------------------------------------------------------------------------------- */

#define POINTER "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a\\nsize 12345\\n' > "

static void what_is_no_checkpoint(void **state)
{
    (void)state;
    static const struct {
        const char *make, *path, *part; /* in the folder k, a copy of a model's folder */
    } cases[] = {
        {POINTER "k/model.safetensors", "k", "k/model.safetensors: this is a Git LFS pointer"},
        {POINTER "k/model.safetensors", "k/model.safetensors", "k/model.safetensors: this is a Git LFS pointer"},
        {"rm k/model.safetensors; " POINTER "k/pytorch_model.bin", "k", "k/pytorch_model.bin: this is a Git LFS pointer"},
        {"rm k/model.safetensors; " POINTER "k/model.safetensors.index.json", "k",
         "k/model.safetensors.index.json: this is a Git LFS pointer"},
        {POINTER "k/tokenizer.json", "k", "k/tokenizer.json: this is a Git LFS pointer"},
        {POINTER "k/config.json", "k", "k/config.json: this is a Git LFS pointer"},
        {POINTER "k/chat_template.jinja", "k", "k/chat_template.jinja: this is a Git LFS pointer"},
        {"rm k/tokenizer.json; " POINTER "k/tokenizer.model", "k", "k/tokenizer.model: this is a Git LFS pointer"},
        {"cp m.gguf k/x.gguf", "k/x.gguf", "k/x.gguf: this is a GGUF file; it needs no conversion"},
        {"cp m.gguf k/model.safetensors", "k", "k/model.safetensors: this is a GGUF file; it needs no conversion"},
        {"rm k/*; cp m.gguf k/", "k", "k: contains GGUF files, which need no conversion"},
        {"cp m.gguf k/x.bin", "k/x.bin", "k/x.bin: this is a GGUF file"},
        {"rm k/config.json; echo '{}' > k/adapter_config.json", "k", "k: this is the folder of a PEFT adapter"},
        {"rm k/config.json k/*.safetensors; echo '{}' > k/adapter_config.json; touch k/adapter_model.bin", "k",
         "k: this is the folder of a PEFT adapter"},
    };
    make_json("base", IDS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("rm -rf k o.gguf; cp -r base k; %s", cases[i].make);
        cli("$A convert %s -o o.gguf", cases[i].path);
        cli_refused(3, cases[i].part, "");
        cli("test -e o.gguf");
        assert_int_not_equal(cli_last.status, 0);
    }
    /* a whole model with an adapter's config beside it is a model */
    cli("rm -rf k; cp -r base k; echo '{}' > k/adapter_config.json; $A convert k -o o.gguf");
    assert_int_equal(cli_last.status, 0);
}

static void adapters_by_their_tensors(void **state)
{
    (void)state;
    st_make m = {0};
    st_make_floats(&m, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "a", 4, 32);
    st_make_floats(&m, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", "b", 32, 4);
    write_checkpoint("peft", &m, NULL);
    cli("$A convert peft -o o.gguf");
    cli_refused(3, "this is the weights of a PEFT adapter", "--lora takes");
    write_in("peft", "adapter_config.json", "{\"peft_type\":\"LORA\"}");
    cli("$A convert peft -o o.gguf");
    cli_refused(3, "peft: this is the folder of a PEFT adapter", "--lora takes");
    cli("$A convert peft/model.safetensors -o o.gguf");
    cli_refused(3, "peft/model.safetensors: this is the weights of a PEFT adapter", "--lora takes");
}

/* A tensor that has a name in GGUF files but no use in the architecture is refused by the name that the checkpoint gives it. */
static void add_norm(st_make *m)
{
    st_make_floats(m, "model.layers.0.self_attn.q_norm.weight", "q_norm", 0, 8);
}

static void tensors_without_a_use(void **state)
{
    (void)state;
    add_more = add_norm;
    make_json("qnorm", "");
    add_more = NULL;
    cli("$A convert qnorm -o o.gguf");
    cli_refused(3, "qnorm: tensor model.layers.0.self_attn.q_norm.weight has no use", "--skip leaves it out");
    cli("test -e o.gguf || $A convert qnorm -o o.gguf --skip self_attn.q_norm");
    assert_int_equal(cli_last.status, 0);
}

/* An unsupported quantization is named; the message does not suggest to leave its tensors out. */
static void add_codes(st_make *m)
{
    st_make_floats(m, "model.layers.0.self_attn.q_proj.qweight", "codes", 4, 32);
}

static void other_quantizations(void **state)
{
    (void)state;
    add_more = add_codes;
    make_json("quantized", ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}");
    add_more = NULL;
    cli("$A convert quantized -o o.gguf");
    cli_refused(3, "quantized by gptq, which is not supported", "q_proj.qweight");
    assert_null(strstr(cli_last.err, "--skip"));
}

/* ---- LoRA adapters, as PEFT saves them -------------------------------------------------------------------------- */

#define ADAPTER_OF(layer, part) "base_model.model.model.layers." layer "." part ".lora_"
#define ADAPTER_CONFIG(more) "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6" more "}"

/* A pair of rank 2 for a matrix [n_out, n_in], under the keys "A" and "B" of its name. */
static void add_lora(st_make *m, const char *name, uint64_t n_out, uint64_t n_in)
{
    char full[160];
    snprintf(full, sizeof full, "%sA.weight", name);
    st_make_floats(m, full, "A", 2, n_in);
    snprintf(full, sizeof full, "%sB.weight", name);
    st_make_floats(m, full, "B", n_out, 2);
}

/* For the model of cli_setup_model: width 64, 4 query heads and 2 key heads of 32 rows, 128 neurons. Then `more`. */
static void write_adapter(const char *folder, const char *config, const char *more, uint64_t n_out, uint64_t n_in)
{
    st_make m = {0};
    add_lora(&m, ADAPTER_OF("0", "self_attn.q_proj"), 128, 64);
    add_lora(&m, ADAPTER_OF("2", "self_attn.k_proj"), 64, 64);
    add_lora(&m, ADAPTER_OF("1", "mlp.down_proj"), 64, 128);
    if (more) add_lora(&m, more, n_out, n_in);
    write_checkpoint(folder, &m, "{}");
    cli("rm %s/config.json; mv %s/model.safetensors %s/adapter_model.safetensors", folder, folder, folder);
    write_in(folder, "adapter_config.json", config);
}

/* Rows of queries and keys are reordered as those of the target are: rotated by pairs, where PEFT's model has halves. */
static void same_rotated(const ae_gguf *file, const char *name, uint64_t n_rows, uint64_t n_dim)
{
    const float *x = floats(file, name, n_rows, 2);
    for (uint64_t row = 0; row < n_rows; row++) {
        const uint64_t in = row % n_dim, from = row - in + in / 2 + in % 2 * (n_dim / 2);
        for (uint64_t i = 0; i < 2; i++)
            if (x[row * 2 + i] != st_value("B", from * 2 + i)) fail_msg("%s: row %llu", name, (unsigned long long)row);
    }
}

static void lora_adapters(void **state)
{
    (void)state;
    write_adapter("lora", ADAPTER_CONFIG(""), NULL, 0, 0);
    cli("$A convert lora -o lora.gguf --target m.gguf --json");
    if (cli_last.status) fail_msg("%s", cli_last.err);
    assert_non_null(strstr(cli_last.out, "\"n_matrices\": 3"));
    ae_gguf *file = open_file("lora.gguf");
    key_text(file, "general.type", "adapter");
    key_text(file, "general.architecture", "llama");
    key_text(file, "adapter.type", "lora");
    key_f32(file, "adapter.lora.alpha", 6);
    assert_int_equal(ae_gguf_n_tensors(file), 6);
    same_values(file, "blk.0.attn_q.weight.lora_a", "A", 0, 2, 64);
    same_rotated(file, "blk.0.attn_q.weight.lora_b", 128, 32);
    same_rotated(file, "blk.2.attn_k.weight.lora_b", 64, 32);
    same_values(file, "blk.1.ffn_down.weight.lora_a", "A", 0, 2, 128);
    same_values(file, "blk.1.ffn_down.weight.lora_b", "B", 0, 64, 2);
    ae_gguf_close(file);
    cli("$A run -m m.gguf --lora lora.gguf -no-cnv -p hello -n 8 --temp 0 --ignore-eos -q > with; "
        "$A run -m m.gguf -no-cnv -p hello -n 8 --temp 0 --ignore-eos -q > without; cmp -s with without");
    assert_int_equal(cli_last.status, 1); /* it runs and changes the answer */
    write_adapter("lora", ADAPTER_CONFIG(",\"use_rslora\":true"), NULL, 0, 0); /* alpha / sqrt(2), which is 8.485 / 2 */
    cli("$A convert lora -o lora.gguf --target m.gguf --outtype f16");
    assert_int_equal(cli_last.status, 0);
    file = open_file("lora.gguf");
    key_f32(file, "adapter.lora.alpha", (float)(6 * sqrt(2)));
    ae_gguf_close(file);
}

static void lora_adapters_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *more; /* more: another pair, for a matrix of these sizes */
        uint64_t n_out, n_in;
        const char *part;
    } cases[] = {
        {ADAPTER_CONFIG(",\"use_dora\":true"), NULL, 0, 0, "'use_dora' is true"},
        {ADAPTER_CONFIG(",\"alpha_pattern\":{\"q_proj\":8}"), NULL, 0, 0, "'alpha_pattern' gives matrices scales"},
        {ADAPTER_CONFIG(",\"use_rslora\":true,\"rank_pattern\":{\"q\":8}"), NULL, 0, 0, "'use_rslora' with 'rank_pattern'"},
        {ADAPTER_CONFIG(",\"alora_invocation_tokens\":[1]"), NULL, 0, 0, "activated LoRA"},
        {"{\"peft_type\":\"LOHA\",\"r\":2}", NULL, 0, 0, "'peft_type' is LOHA"},
        {"{\"peft_type\":\"LORA\"}", NULL, 0, 0, "'r' is missing"},
        {"{\"peft_type\":\"LORA\",\"r\":0}", NULL, 0, 0, "'r' is 0"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":-1}", NULL, 0, 0, "'lora_alpha' is -1"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("1", "self_attn.v_proj"), 64, 65, "[2, 64] is needed (by blk.1.attn_v.weight"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("1", "self_attn.v_proj"), 65, 64, "[64, 2] is needed (by blk.1.attn_v.weight"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("3", "self_attn.v_proj"), 64, 64, "has no matrix for it"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("99999999999999999999", "self_attn.v_proj"), 64, 64, "has no matrix for it"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("1", "mlp.experts.0.gate_proj"), 64, 64, "has no matrix for it"},
        {ADAPTER_CONFIG(""), "base_model.model.model.embed_tokens.lora_embedding_", 64, 64, "is not part of a pair"},
        {ADAPTER_CONFIG(""), ADAPTER_OF("1", "input_layernorm"), 64, 64, "has no matrix for it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_adapter("bad", cases[i].config, cases[i].more, cases[i].n_out, cases[i].n_in);
        cli("$A convert bad -o bad.gguf --target m.gguf");
        cli_refused(3, cases[i].part, "");
        cli("test -e bad.gguf || ls | grep part; rm -r bad");
        assert_int_equal(cli_last.n_out, 0);
    }
    write_adapter("bad", ADAPTER_CONFIG(""), NULL, 0, 0);
    cli("$A convert bad -o bad.gguf");
    cli_refused(3, "--target MODEL.gguf", "");
    cli("$A convert bad -o m.gguf --target m.gguf");
    cli_refused(2, "-o m.gguf is a file that is being read", "");
    cli("rm bad/adapter_config.json; $A convert bad -o bad.gguf --target m.gguf");
    cli_refused(3, "there is no adapter_config.json beside", "");
    cli("test -e bad.gguf");
    assert_int_equal(cli_last.status, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_beside_tokenizer_model),
        cmocka_unit_test(added_in_the_config),
        cmocka_unit_test(numbers_of_python),
        cmocka_unit_test(added_beside_tokenizer_json),
        cmocka_unit_test(ranks_of_tiktoken),
        cmocka_unit_test(several_ends),
        cmocka_unit_test(templates),
        cmocka_unit_test(activations),
        cmocka_unit_test(marks_and_encodings),
        cmocka_unit_test(what_is_no_checkpoint),
        cmocka_unit_test(adapters_by_their_tensors),
        cmocka_unit_test(lora_adapters),
        cmocka_unit_test(lora_adapters_refused),
        cmocka_unit_test(other_quantizations),
        cmocka_unit_test(tensors_without_a_use),
    };
    return cmocka_run_group_tests(tests, cli_setup_model, cli_teardown);
}
