/* test_convert_config.c - configurations and vocabularies in unusual forms: an empty rope_scaling, keys that occur twice, whole
 * numbers with a fraction of zero; heads that the configuration ties, or does not; shards without an index; added tokens made
 * of spaces. */
#include "convert_model.inc"

static void made(const char *folder)
{
    cli("$A convert %s -o %s.gguf --outtype f32", folder, folder);
    if (cli_last.status) fail_msg("%s: %s", folder, cli_last.err);
}

static ae_gguf *made_of(const char *folder, const char *more)
{
    char name[64];
    write_model(folder, "LlamaForCausalLM", more, 0, NULL, NULL);
    write_tokenizer(folder, qwen2_words);
    made(folder);
    snprintf(name, sizeof name, "%s.gguf", folder);
    return open_file(name);
}

/* In Python, an empty rope_scaling is none. */
static void empty_rope_scaling(void **state)
{
    (void)state;
    ae_gguf *file = made_of("rope", ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,"
                                    "\"rope_theta\":500000.0}");
    key_text(file, "llama.rope.scaling.type", "linear");
    key_f32(file, "llama.rope.scaling.factor", 4);
    key_f32(file, "llama.rope.freq_base", 500000);
    ae_gguf_close(file);
    file = made_of("both", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
                           "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}");
    key_f32(file, "llama.rope.scaling.factor", 2);
    key_f32(file, "llama.rope.freq_base", 500000);
    ae_gguf_close(file);
}

static void keys_and_numbers(void **state)
{
    (void)state;
    ae_gguf *file = made_of("twice", ",\"rope_theta\":20000,\"max_position_embeddings\":4096.0,\"rope_theta\":30000");
    assert_non_null(strstr(cli_last.err, "twice/config.json: line 1: duplicate object key"));
    assert_non_null(strstr(cli_last.err, "the last value counts"));
    key_f32(file, "llama.rope.freq_base", 30000);
    key_u32(file, "llama.context_length", 4096);
    ae_gguf_close(file);
    write_model("half", "LlamaForCausalLM", ",\"head_dim\":8.5", 0, NULL, NULL);
    write_tokenizer("half", qwen2_words);
    cli("$A convert half -o half.gguf");
    cli_refused(3, "'head_dim' is 8.5", "must be a whole number");
}

static void refused_with(const char *folder, const char *more, const char *part)
{
    write_model(folder, "LlamaForCausalLM", more, 0, NULL, NULL);
    write_tokenizer(folder, qwen2_words);
    cli("$A convert %s -o %s.gguf", folder, folder);
    cli_refused(3, part, "");
}

/* What is there, but cannot be meant so, is not passed over. */
static void values_of_another_kind(void **state)
{
    (void)state;
    refused_with("text", ",\"rope_scaling\":\"linear\"", "text/config.json: 'rope_scaling' must be an object");
    refused_with("list", ",\"rope_scaling\":[2]", "'rope_scaling' must be an object");
    ae_gguf_close(made_of("untyped", ",\"rope_scaling\":{\"factor\":2}"));
    assert_non_null(strstr(cli_last.err, "'rope_scaling' has a factor, but no 'rope_type': it is not applied"));
    write_model("class", "LlamaForCausalLM", "", 0, NULL, NULL);
    write_tokenizer("class", qwen2_words);
    cli("sed -i 's/\"architectures\":.\"LlamaForCausalLM\".,//' class/config.json; $A convert class -o class.gguf");
    cli_refused(3, "class/config.json: 'architectures' names no class", "");
    write_in("untyped", "tokenizer.json", "{}");
    cli("$A convert untyped -o untyped.gguf");
    cli_refused(3, "untyped: tokenizer.json has no tokens", "");
}

/* ---- The output head --------------------------------------------------------------------------------------- */

static const char *head_values;

static void add_head(st_make *m)
{
    st_make_floats(m, "lm_head.weight", head_values, 264, 32);
}

static void has_head(const char *folder, const char *values, const char *tied, bool wanted, const char *said)
{
    head_values = values;
    add_more = values ? add_head : NULL;
    ae_gguf *file = made_of(folder, tied);
    add_more = NULL;
    assert_int_equal(ae_gguf_tensor_find(file, "output.weight") != NULL, wanted);
    if (said ? !strstr(cli_last.err, said) : strstr(cli_last.err, "tie_word_embeddings") != NULL)
        fail_msg("%s: %s", folder, cli_last.err);
    ae_gguf_close(file);
}

static void heads(void **state)
{
    (void)state;
    static const char tied[] = ",\"tie_word_embeddings\":true", untied[] = ",\"tie_word_embeddings\":false";
    has_head("same", "embed_tokens.weight", tied, false, NULL);
    has_head("other", "head", tied, true, "'tie_word_embeddings' is true, but lm_head.weight is not the embedding: it is kept");
    has_head("own", "head", untied, true, NULL);
    has_head("gone", NULL, untied, false, "'tie_word_embeddings' is false, but there is no lm_head.weight");
    has_head("silent", NULL, "", false, NULL);
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static void shards_without_an_index(void **state)
{
    (void)state;
    ae_gguf_close(made_of("whole", ""));
    write_model("set", "LlamaForCausalLM", "", 0, "norm.weight", NULL);
    write_tokenizer("set", qwen2_words);
    cli("mv set/model.safetensors set/model-00001-of-00002.safetensors; $A convert set -o set.gguf --outtype f32");
    cli_refused(3, "set: shard 2 of 2 is missing: model-00002-of-00002.safetensors", "");
    st_make m = {0};
    ae_buf file = {0};
    st_make_floats(&m, "model.norm.weight", "norm.weight", 0, 32);
    st_make_finish(&m, &file);
    cli_write("set/model-00002-of-00002.safetensors", file.data, file.n);
    ae_buf_free(&file);
    made("set");
    cli("for m in whole set; do $A run -m $m.gguf -no-cnv -p he -n 4 --temp 0 --ids -q > $m.ids; done; cmp whole.ids set.ids");
    assert_int_equal(cli_last.status, 0);
}

/* ---- Added tokens ------------------------------------------------------------------------------------------ */

/* Gemma has added tokens for runs of spaces: they must be found in a text and printed as spaces. */
static void runs_of_spaces(void **state)
{
    (void)state;
    ae_buf file = {0};
    add_pieces(&file);
    write_model("runs", "LlamaForCausalLM", ",\"bos_token_id\":1,\"eos_token_id\":2", 0, NULL, NULL);
    cli_write("runs/tokenizer.model", file.data, file.n);
    ae_buf_free(&file);
    write_in("runs", "tokenizer_config.json",
             "{\"added_tokens_decoder\": {\"20\": {\"content\": \"\xe2\x96\x81\xe2\x96\x81\", \"special\": false}, \"21\": "
             "{\"content\": \"<a\xe2\x96\x81" "b>\", \"special\": false}, \"22\": {\"content\": \"<\xe2\x96\x81>\", "
             "\"special\": true}}}");
    made("runs");
    cli("$A tokenize -m runs.gguf -p 'b  b<a b>'");
    assert_string_equal(cli_last.out, "1 5 20 5 21\n");
    cli("$A tokenize -m runs.gguf --decode 5,20,5,21,22");
    assert_string_equal(cli_last.out, "b  b<a b><\xe2\x96\x81>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_rope_scaling),      cmocka_unit_test(keys_and_numbers),
        cmocka_unit_test(values_of_another_kind),  cmocka_unit_test(heads),
        cmocka_unit_test(shards_without_an_index), cmocka_unit_test(runs_of_spaces),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
