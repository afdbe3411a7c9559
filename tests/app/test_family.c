/* test_family.c - models without a chat template: the layout of the family whose marks the vocabulary has, and 'aerie template'
 * shows what 'aerie run' sends; texts that begin with the BOS which the model adds. */
#include "convert_model.inc"

/* A model with tokenizer.json, or with tokenizer.model, and these added tokens from id 202 or 8 on. */
static void make_model(const char *name, bool spm, const char *eos, const char *const *added)
{
    ae_buf list = {0}, config = {0}, pieces = {0};
    cli("rm -rf %s", name);
    write_model(name, "LlamaForCausalLM", ",\"bos_token_id\":1", 0, NULL, NULL);
    if (spm) {
        char path[64];
        add_pieces(&pieces);
        snprintf(path, sizeof path, "%s/tokenizer.model", name);
        cli_write(path, pieces.data, pieces.n);
    } else {
        write_tokenizer(name, qwen2_words);
    }
    ae_buf_adds(&list, "{");
    for (size_t i = 0; added[i]; i++) ae_buf_addf(&list, "%s\"%s\": %zu", i ? ", " : "", added[i], i + (spm ? 8 : 202));
    ae_buf_adds(&list, "}");
    write_in(name, "added_tokens.json", list.data);
    ae_buf_addf(&config, "{\"eos_token\":\"%s\",\"additional_special_tokens\": [", eos ? eos : spm ? "</s>" : "<|end|>");
    for (size_t i = 0; added[i]; i++) ae_buf_addf(&config, "%s\"%s\"", i ? ", " : "", added[i]);
    ae_buf_adds(&config, "]}");
    write_in(name, "tokenizer_config.json", config.data);
    cli("$A convert %s -o %s.gguf -q", name, name);
    if (cli_last.status) fail_msg("%s: %s", name, cli_last.err);
    ae_buf_free(&list);
    ae_buf_free(&config);
    ae_buf_free(&pieces);
}

static void family_tells(void **state)
{
    (void)state;
    static const struct {
        const char *template, *added[5], *eos;
        bool spm;
    } cases[] = {
        {"gemma", {"<start_of_turn>", "<end_of_turn>"}, NULL, false},
        {"gemma", {"<start_of_turn>", "<end_of_turn>"}, NULL, true},
        {"gemma", {"<|im_start|>", "<start_of_turn>", "<end_of_turn>"}, NULL, true},
        {"gemma4", {"<|turn>", "<turn|>"}, NULL, false},
        {"llama3", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, NULL, false},
        {"llama4", {"<|header_start|>", "<|header_end|>", "<|eot|>"}, NULL, false},
        {"chatml", {"<|im_start|>", "<|im_end|>"}, NULL, false},
        {"chatml", {"<|im_start|>", "<|im_end|>", "<|start_header_id|>"}, "<|im_end|>", false},
        {"phi4", {"<|im_start|>", "<|im_end|>", "<|im_sep|>"}, "<|im_end|>", false},
        {"kimi-k2", {"<|im_user|>", "<|im_middle|>", "<|im_end|>"}, "<|im_end|>", false},
        {"mistral-v3", {"[INST]", "[/INST]"}, NULL, true},
        {"mistral-v3-tekken", {"[INST]", "[/INST]"}, NULL, false},
        {"mistral-v7", {"[INST]", "[/INST]", "[SYSTEM_PROMPT]"}, NULL, true},
        {"mistral-v7-tekken", {"[INST]", "[/INST]", "[SYSTEM_PROMPT]"}, NULL, false},
        {"phi3", {"<|user|>", "<|assistant|>"}, NULL, false}, /* <|end|> is there */
        {"zephyr", {"<|user|>", "<|assistant|>"}, NULL, true},
        {"chatglm4", {"[gMASK]", "<sop>", "<|user|>"}, NULL, false},
        {"command-r", {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}, NULL, false},
        {"granite", {"<|start_of_role|>", "<|end_of_role|>"}, NULL, false},
        {"deepseek3", {"<\xef\xbd\x9cUser\xef\xbd\x9c>", "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"}, NULL, false},
        {"exaone3", {"[|user|]", "[|endofturn|]"}, NULL, false},
        {"gpt-oss", {"<|start|>", "<|message|>", "<|channel|>"}, NULL, false},
        {"seed_oss", {"<seed:bos>", "<seed:eos>"}, NULL, false},
        {"chatml", {NULL}, NULL, false}, /* nothing tells */
        {"chatml", {NULL}, NULL, true},
    };
    static char wanted[1 << 16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_model("f", cases[i].spm, cases[i].eos, cases[i].added);
        cli("$A template -m f.gguf --messages c.json --chat-template %s", cases[i].template);
        assert_true(cli_last.status == 0 && cli_last.n_out > 0 && cli_last.n_out < sizeof wanted);
        memcpy(wanted, cli_last.out, cli_last.n_out + 1);
        cli("$A template -m f.gguf --messages c.json");
        if (cli_last.status || strcmp(cli_last.out, wanted))
            fail_msg("%s (%zu): [%s], not [%s] %s", cases[i].template, i, cli_last.out, wanted, cli_last.err);
        assert_non_null(strstr(cli_last.err, strcmp(cases[i].template, "chatml") ? cases[i].template : "hat"));
        /* run sends the same */
        static const char asks[] = "$A run -m f.gguf --messages c.json --json -n 4 --temp 0 -q --spec-type none --ignore-eos";
        cli("%s --chat-template %s > b && %s > a && for f in a b; do grep -A6 -e n_prompt -e ids $f | grep -v seconds > $f.g; "
            "done && cmp a.g b.g && grep n_prompt a", asks, cases[i].template, asks);
        if (cli_last.status) fail_msg("%s: %s%s", cases[i].template, cli_last.out, cli_last.err);
        const int n_prompt = atoi(strchr(cli_last.out, ':') + 1);
        cli("$A template -m f.gguf --messages c.json --tokens | wc -w");
        if (n_prompt != atoi(cli_last.out)) fail_msg("%s (%zu): %d, %s", cases[i].template, i, n_prompt, cli_last.out);
    }
}

static void models_own_template_wins(void **state)
{
    (void)state;
    static const char *const added[] = {"<start_of_turn>", "<end_of_turn>", NULL};
    make_model("own", false, NULL, added);
    write_in("own", "chat_template.jinja", "own {{ messages[0].content }}");
    cli("$A convert own -o own.gguf -q && $A template -m own.gguf --messages c.json");
    assert_string_equal(cli_last.out, "own Hi");
    assert_int_equal(cli_last.n_err, 0);
}

static void warned(const char *command, size_t n)
{
    size_t found = 0;
    cli("%s", command);
    if (cli_last.status) fail_msg("%s: %s", command, cli_last.err);
    for (const char *at = cli_last.err; (at = strstr(at, "two BOS tokens")); at++) found++;
    if (found != n) fail_msg("%s: %zu warnings, not %zu: %s", command, found, n, cli_last.err);
}

static void second_bos(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    make_model("bos", true, NULL, none);
    warned("$A run -m bos.gguf -no-cnv -n 1 -p '<s>ab'", 1);
    warned("$A run -m bos.gguf -n 1 -p '<s>ab'", 1); /* without a template it is continued as it is */
    warned("$A run -m bos.gguf -no-cnv -q -n 1 -p '<s>ab'", 1); /* a warning is not hidden */
    warned("$A run -m bos.gguf -no-cnv -n 1 -p '<s>ab' -p '<s>ba' -p ab", 1);
    warned("$A run -m bos.gguf -no-cnv -n 1 -p 'ab<s><s>' -p a", 0);
    warned("$A run -m bos.gguf -no-cnv -n 1 -p '<s>ab' --override-kv tokenizer.ggml.add_bos_token=bool:false", 0);
}

static int setup(void **state)
{
    static const char conversation[] =
        "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"ab\"}, {\"role\": \"user\", "
        "\"content\": \"ba\"}]";
    if (cli_setup(state)) return -1;
    cli_write("c.json", conversation, strlen(conversation));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(family_tells),
        cmocka_unit_test(models_own_template_wins),
        cmocka_unit_test(second_bos),
    };
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
