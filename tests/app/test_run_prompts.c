/* test_run_prompts.c - prompts of run: standard input beside -p, lines of JSON, conversations, chat templates, several answers,
 * options that replace metadata and rotation, prompt caches, adapters. On a generated model, and on one without a template.
 */
#include "cli.h"

#include <jansson.h>

#include "mklora.h"

#define RUN "$A run -m m.gguf -n 8 --temp 0 --ignore-eos "
#define BARE "$A run -m bare.gguf -n 8 --temp 0 --ignore-eos "

static int make_models(void **state)
{
    if (cli_setup_model(state)) return -1;
    /* the same model without its template */
    cli("LC_ALL=C sed 's/tokenizer.chat_template/tokenizer.chat_templatX/' m.gguf > bare.gguf");
    cli("printf '[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"hello\"}]' > chat.json");
    return 0;
}

/* Both commands succeed and print the same ids. */
static void same(const char *a, const char *b)
{
    cli("%s -q --ids > a && %s -q --ids > b && cmp a b", a, b);
    if (cli_last.status) fail_msg("%s | %s: %s%s", a, b, cli_last.out, cli_last.err);
}

static void differ(const char *a, const char *b)
{
    cli("%s -q --ids > a && %s -q --ids > b && ! cmp -s a b", a, b);
    if (cli_last.status) fail_msg("%s | %s: %s", a, b, cli_last.err);
}

static void said(const char *text)
{
    if (!strstr(cli_last.err, text)) fail_msg("'%s' is missing in: %s", text, cli_last.err);
}

static void standard_input_follows_the_prompt(void **state)
{
    (void)state;
    same("printf 'more\\n' | " RUN "-p one", RUN "-p 'one\\n\\nmore'");
    same("printf 'more\\n' | " RUN "-p one -f -", RUN "-p 'one\\n\\nmore'");
    same("printf 'more' > f; " RUN "-p one < f", RUN "-p 'one\\n\\nmore'");
    same(RUN "-p one < /dev/null", RUN "-p one");
    same(": | " RUN "-p one", RUN "-p one");
    same(RUN "-p one < /dev/zero", RUN "-p one"); /* neither a file nor a pipe */
    cli("echo more | " RUN "-p one");
    said("the prompt is -p followed by 4 bytes of standard input");
    cli("echo more | { sleep 0.3; " RUN "-p one -p two; }"); /* the text has arrived by then */
    said("standard input is not read");
    cli(RUN "-p one -p two");
    assert_null(strstr(cli_last.err, "standard input"));
    cli("sleep 20 | { " RUN "-p one; echo; }"); /* an idle pipe is not waited for */
    said("no standard input arrived within 5 s");
}

static void escapes_are_on(void **state)
{
    (void)state;
    cli("$A tokenize -m m.gguf -p 'a\\tb' > a; $A tokenize -m m.gguf -p \"$(printf 'a\\tb')\" | cmp - a");
    assert_int_equal(cli_last.status, 0);
    cli("$A tokenize -m m.gguf -p 'a\\tb' --no-escape > b; $A tokenize -m m.gguf -p 'a\\\\tb' -e | cmp - b && ! cmp -s a b");
    assert_int_equal(cli_last.status, 0);
}

static void notes_can_be_silenced(void **state)
{
    (void)state;
    cli(RUN "-p hello --log-disable --reasoning-budget -1");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_err, 0);
    cli(RUN "-p hello --log-disable -c 100000"); /* warnings cannot */
    said("trained");
}

static json_int_t n_ctx(const char *options)
{
    cli(RUN "-p hello --json %s", options);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    const json_int_t n = json_integer_value(json_object_get(json_object_get(json, "settings"), "n_ctx"));
    json_decref(json);
    return n;
}

static void contexts(void **state)
{
    (void)state;
    const char *key = "--override-kv llama.context_length=int:";
    char options[128];
    snprintf(options, sizeof options, "%s10000", key);
    assert_int_equal(n_ctx(options), 8192);
    assert_null(strstr(cli_last.err, "trained"));
    snprintf(options, sizeof options, "%s10000 -c 0", key);
    assert_int_equal(n_ctx(options), 10000);
    snprintf(options, sizeof options, "%s100", key);
    assert_int_equal(n_ctx(options), 100);
    snprintf(options, sizeof options, "%s100 -c 0", key);
    assert_int_equal(n_ctx(options), 100);
    snprintf(options, sizeof options, "%s100 -c 101", key);
    assert_int_equal(n_ctx(options), 101);
    said("a context (-c) of 101 is more than the 100 positions that the model was trained for");
    snprintf(options, sizeof options, "%s100 -c 101 --rope-scale 2", key);
    assert_int_equal(n_ctx(options), 101);
    assert_null(strstr(cli_last.err, "trained"));
}

static void overrides(void **state)
{
    (void)state;
    differ(RUN "-no-cnv -p hello", RUN "-no-cnv -p hello --override-kv llama.attention.layer_norm_rms_epsilon=float:0.5");
    same(RUN "-no-cnv -p hello", RUN "-no-cnv -p hello --override-kv unknown.key=str:x --override-kv other=bool:true");
    cli(RUN "-no-cnv -p hello --override-kv llama.contxt_length=int:5");
    assert_non_null(strstr(cli_last.err, "'llama.contxt_length=int:5' has no effect"));
    same(RUN "-no-cnv -p hello --override-kv a=int:1 --override-kv llama.rope.freq_base=float:500 "
             "--override-kv llama.rope.freq_base=float:123", /* the last one counts */
         RUN "-no-cnv -p hello --rope-freq-base 123");
    static const struct {
        const char *text;
        int status;
        const char *part;
    } cases[] = {
        {"x", 2, "KEY=TYPE:VALUE"}, {"=int:1", 2, "KEY=TYPE:VALUE"}, {"a=1", 2, "KEY=TYPE:VALUE"},
        {"a=i32:1", 2, "int, float, bool or str"}, {"a=int:", 2, "64-bit integer"}, {"a=int:1.5", 2, "64-bit integer"},
        {"a=int:99999999999999999999", 2, "64-bit integer"}, {"a=float:nan", 2, "a number"}, {"a=float:", 2, "a number"},
        {"a=bool:1", 2, "true or false"}, {"llama.block_count=str:2", 3, "an integer is needed"},
        {"llama.block_count=int:-1", 3, "from 0 to"}, {"llama.block_count=int:99", 3, "blk."},
        {"general.architecture=str:nonsense", 3, "\"nonsense\" is unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "-p hello -q --override-kv '%s'", cases[i].text);
        cli_refused(cases[i].status, cases[i].part, "");
    }
    cli("$A tokenize -m m.gguf -p hello > a; "
        "$A tokenize -m m.gguf -p hello --override-kv tokenizer.ggml.add_bos_token=bool:true "
        "--override-kv tokenizer.ggml.bos_token_id=int:1 > b; ! cmp -s a b");
    assert_int_equal(cli_last.status, 0);
}

static void rotation(void **state)
{
    (void)state;
    static const char plain[] = RUN "-no-cnv -p 'hello there'";
    same(plain, RUN "-no-cnv -p 'hello there' --rope-scale 1");
    same(plain, RUN "-no-cnv -p 'hello there' --rope-scaling yarn"); /* by a factor of 1 */
    same(plain, RUN "-no-cnv -p 'hello there' --rope-freq-base 0 --rope-freq-scale 0 --yarn-ext-factor -1 --yarn-beta-fast -1");
    differ(plain, RUN "-no-cnv -p 'hello there' --rope-scale 4");
    same(RUN "-no-cnv -p 'hello there' --rope-scale 4", RUN "-no-cnv -p 'hello there' --rope-freq-scale 0.25");
    same(RUN "-no-cnv -p 'hello there' --rope-scale 4",
         RUN "-no-cnv -p 'hello there' --override-kv llama.rope.scaling.type=str:linear "
             "--override-kv llama.rope.scaling.factor=float:4");
    same(RUN "-no-cnv -p 'hello there' --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 64 --yarn-ext-factor 0.5 "
             "--yarn-attn-factor 1.5 --yarn-beta-fast 8 --yarn-beta-slow 2",
         RUN "-no-cnv -p 'hello there' --override-kv llama.rope.scaling.type=str:yarn "
             "--override-kv llama.rope.scaling.factor=float:4 --override-kv llama.rope.scaling.original_context_length=int:64 "
             "--override-kv llama.rope.scaling.yarn_ext_factor=float:0.5 "
             "--override-kv llama.rope.scaling.yarn_attn_factor=float:1.5 "
             "--override-kv llama.rope.scaling.yarn_beta_fast=float:8 --override-kv llama.rope.scaling.yarn_beta_slow=float:2");
    static const char *const cases[][2] = {
        {"--rope-scaling longrope", "none, linear or yarn"}, {"--rope-scale 2 --rope-freq-scale 0.5", "exclude each other"},
        {"--rope-freq-base 0.5", "base is 0.5"}, {"--rope-scale -1", "--rope-scale takes a number"},
        {"--yarn-beta-fast 0", "beta fast is 0"}, {"--yarn-ext-factor 2", "from -1 to 1"},
        {"--yarn-attn-factor 0", "factor is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "-p hello -q %s", cases[i][0]);
        cli_refused(2, cases[i][1], "");
    }
}

/* [{"text" ...}, ...] of lines of JSON */
static json_t *lines_of(const char *text)
{
    json_t *list = json_array();
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        json_error_t e;
        json_t *json = json_loadb(at, n, 0, &e);
        if (!json) fail_msg("%.*s: %s", (int)n, at, e.text);
        json_array_append_new(list, json);
        at += n + (at[n] != 0);
    }
    return list;
}

static void lines_of_json(void **state)
{
    (void)state;
    cli("printf '\"one\"\\n\\n{\"id\":\"b\",\"prompt\":\"two\\\\nlines\",\"x\":1}\\r\\n{\"id\":3,\"messages\":"
        "[{\"role\":\"user\",\"content\":\"three\"}]}\\n[{\"role\":\"user\",\"content\":\"four\"}]' > p.jsonl");
    same(RUN "--prompts-file p.jsonl", RUN "-p one -p 'two\\nlines' -p three -p four");
    cli(RUN "--prompts-file p.jsonl -np 2 --jsonl -q");
    assert_int_equal(cli_last.status, 0);
    json_t *list = lines_of(cli_last.out);
    static const char *const titles[] = {"one", "two ...", "three", "four"};
    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *line = json_array_get(list, i);
        assert_int_equal(json_integer_value(json_object_get(line, "index")), i);
        assert_string_equal(json_string_value(json_object_get(line, "prompt")), titles[i]);
        assert_int_equal(json_array_size(json_object_get(line, "ids")), 8);
        assert_string_equal(json_string_value(json_object_get(json_object_get(line, "stats"), "stop")), "length");
    }
    assert_null(json_object_get(json_array_get(list, 0), "id"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "id")), "b");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 2), "id")), 3);
    json_decref(list);
    static const char *const bad[][2] = {
        {"{", "line 2 is not JSON"}, {"1", "line 2: neither a text nor an object"}, {"{\"prompt\":1}", "line 2: neither"},
        {"{\"prompt\":\"\"}", "line 2: the prompt is empty"}, {"\"\"", "line 2: the prompt is empty"},
        {"{\"messages\":[1]}", "line 2: message 1 is not an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cli("printf '\"one\"\\n%%s\\n' '%s' > bad.jsonl; " RUN "-q --prompts-file bad.jsonl", bad[i][0]);
        cli_refused(3, bad[i][1], "bad.jsonl");
    }
    cli(": > none.jsonl; " RUN "-q --prompts-file none.jsonl");
    cli_refused(3, "contains no prompt", "none.jsonl");
}

static void answers_are_told_apart(void **state)
{
    (void)state;
    cli(RUN "-p one -q > 1; " RUN "-p two -q > 2; " RUN "-p one -p two > both; "
        "{ echo '==> 1 of 2: one <=='; cat 1; echo; echo '==> 2 of 2: two <=='; cat 2; } | cmp - both");
    if (cli_last.status) fail_msg("%s", cli_last.out);
    cli(RUN "-p one -p two -q > both; cat 1 2 | cmp - both"); /* as head -q */
    assert_int_equal(cli_last.status, 0);
    cli(RUN "-p one | cmp - 1");
    assert_int_equal(cli_last.status, 0);
    cli(RUN "-p one --json --jsonl");
    cli_refused(2, "exclude each other", "--jsonl");
    cli(RUN "-p one -q --logit-bias 1+1000"); /* a control token: no text unless it is asked for */
    if (strstr(cli_last.out, "<|im_start|>")) fail_msg("a control token: %s", cli_last.out);
    cli(RUN "-p one -q --logit-bias 1+1000 -sp");
    assert_memory_equal(cli_last.out, "<|im_start|><|im_start|>", 24);
}

static void templates_are_taken(void **state)
{
    (void)state;
    static const char asked[] = RUN "-no-cnv -p '<|im_start|>user\\nhello<|im_end|>\\n<|im_start|>assistant\\n'";
    same(RUN "-p hello --chat-template chatml", asked);
    same(BARE "-p hello -cnv", asked);
    same(BARE "-p hello --chat-template chatml", asked);
    same(RUN "-p hello --chat-template 'Q: {{ messages[0].content }}\\nA:' ", RUN "-no-cnv -p 'Q: hello\\\\nA:'");
    cli("printf 'Q: {{ messages[0].content }} {{ x }}' > t.jinja");
    same(RUN "-p hello --chat-template-file t.jinja", RUN "-no-cnv -p 'Q: hello '");
    same(RUN "-p hello --chat-template-file t.jinja --chat-template-kwargs '{\"x\":5}'", RUN "-no-cnv -p 'Q: hello 5'");
    same("printf 'Q: {{ messages[0].content }}' | " RUN "-f chat.json --chat-template-file -",
         RUN "-no-cnv -p \"Q: $(cat chat.json)\" --no-escape");
    same("printf 'Q: {{ messages[0].content }}' | " RUN "-p hello --chat-template-file -", RUN "-no-cnv -p 'Q: hello'");
    /* conversations and tools */
    same(RUN "--messages chat.json", RUN "-sys 'Be brief.' -p hello");
    same(RUN "--messages - < chat.json", RUN "-sys 'Be brief.' -p hello");
    cli("echo '[{\"name\":\"f\"}]' > tools.json");
    same(RUN "--messages chat.json --tools tools.json --chat-template '{{ tools[0].name }}{{ messages[1].content }}'",
         RUN "-no-cnv -p fhello");
    cli(RUN "--messages chat.json --tools tools.json --chat-template '{{ messages[1].content }}'");
    said("--tools has no effect: the chat template of --chat-template has no place for tools");
    /* no thinking */
    static const char thinker[] =
        "--chat-template '{{ messages[0].content }}{% if enable_thinking is false %} /off{% endif %}'";
    char on[256], off[256];
    snprintf(on, sizeof on, RUN "-p hello %s --reasoning-budget -1", thinker);
    snprintf(off, sizeof off, RUN "-p hello %s --reasoning-budget 0", thinker);
    same(on, RUN "-no-cnv -p hello");
    same(off, RUN "-no-cnv -p 'hello /off'");
    cli(RUN "-p hello --reasoning-budget 0");
    said("--reasoning-budget 0 has no effect");
    cli(RUN "-p hello --reasoning-budget 0 --chat-template 'thinking {{ messages[0].content }}'"); /* no variable */
    said("--reasoning-budget 0 has no effect");
    cli(RUN "-p hello --reasoning-budget 7 --chat-template 'thinking {{ messages[0].content }}'"); /* no tags */
    said("--reasoning-budget 7 has no effect: the chat template shows no reasoning");
    /* the same by --reasoning, and an effort */
    snprintf(on, sizeof on, RUN "-p hello %s --reasoning on", thinker);
    snprintf(off, sizeof off, RUN "-p hello %s -rea off", thinker);
    same(on, RUN "-no-cnv -p hello");
    same(off, RUN "-no-cnv -p 'hello /off'");
    cli(RUN "-p hello --reasoning on --chat-template '{{ messages[0].content }}'");
    said("--reasoning on has no effect");
    same(RUN "-p hello --reasoning-effort low --chat-template '{{ messages[0].content }}{{ reasoning_effort }}'",
         RUN "-no-cnv -p hellolow");
    cli(RUN "-p hello --reasoning-effort low --chat-template '{{ messages[0].content }}'");
    said("--reasoning-effort has no effect");
    /* thinking that is limited */
#define THINKER RUN "-p hello --ignore-eos --chat-template '{# </think> #}{{ messages[0].content }}<think>' " \
                    "--reasoning-budget "
    cli(THINKER "3 --reasoning-budget-message ' Enough.' -n 40");
    assert_int_equal(cli_last.status, 0);
    if (!strstr(cli_last.out, " Enough.</think>")) fail_msg("no end: %s", cli_last.out);
    cli(THINKER "-1");
    if (strstr(cli_last.out, "</think>")) fail_msg("an end: %s", cli_last.out);
    static const struct {
        const char *options;
        int status;
        const char *part;
    } cases[] = {
        {"-p x --chat-template foo", 2, "chatml, command-r"},
        {"-p x --chat-template '{{ x'", 3, "--chat-template: template line 1"},
        {"-p x --chat-template '{{1}}' --chat-template-file t.jinja", 2, "exclude each other"},
        {"-p x --chat-template-file missing", 3, "missing"},
        {"-p x --chat-template-file .", 3, "'.'"},
        {"-p x --chat-template-kwargs '[1]'", 2, "not a JSON object"},
        {"-p x --chat-template-kwargs '{'", 2, "not a JSON object"},
        {"-p x --tools missing", 3, "missing"},
        {"-p x --tools chat.jsonx", 3, "chat.jsonx"},
        {"-p x --reasoning-budget -2", 2, "--reasoning-budget"},
        {"-p x --reasoning maybe", 2, "on, off or auto; found 'maybe'"},
        {"--messages missing", 3, "missing"},
        {"--messages /dev/null", 3, "not JSON"},
        {"--messages chat.json -p x", 2, "only one of -p, -f, --prompts-file and --messages"},
        {"--messages chat.json -sys x", 2, "its own system message"},
        {"--messages chat.json -no-cnv", 2, "-no-cnv turns off"},
        {"-p x -cnv -no-cnv", 2, "exclude each other"},
        {"-p x -f chat.json", 2, "only one of -p, -f"},
        {"-f - --chat-template-file -", 2, "found 2 of them"},
        {"--chat-template-file -", 2, "standard input is the chat template"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "-q %s", cases[i].options);
        cli_refused(cases[i].status, cases[i].part, "");
    }
}

static void models_without_a_template(void **state)
{
    (void)state;
    cli(BARE "-p hello -sys 'Be brief.'");
    assert_int_equal(cli_last.status, 0);
    said("so messages use the built-in template ");
    same(BARE "-p hello -sys 'Be brief.'", RUN "--chat-template chatml -sys 'Be brief.' -p hello");
    cli(BARE "-p hello");
    said("so the prompt is continued as it is");
    same(BARE "-p hello", RUN "-no-cnv -p hello");
    cli(BARE "-p hello -no-cnv -sys x");
    said("--system-prompt has no effect");
    cli(BARE "-p hello -no-cnv");
    assert_null(strstr(cli_last.err, "template"));
    same(BARE "--messages chat.json", BARE "-p hello -sys 'Be brief.'");
    cli("cp chat.json x.jsonl; " BARE "-q --prompts-file x.jsonl");
    cli_refused(2, "'x.jsonl' line 1 contains messages, but there is no chat template", "--chat-template chatml");
}

/* ---- --prompt-cache ---------------------------------------------------------------------------------------------------- */

/* Checks that the last command succeeded and found this many tokens of its prompt in the cache. */
static void found_cached(long least, long most)
{
    if (cli_last.status) fail_msg("%s", cli_last.err);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    const json_int_t n = json_integer_value(json_object_get(json_object_get(json, "stats"), "n_cached"));
    if (n < least || n > most) fail_msg("%lld tokens were cached, not %ld to %ld", (long long)n, least, most);
    json_decref(json);
}

#define LONG                                                                                                                   \
    "'A prompt of more than sixty four tokens, since that is a page: a byte is mostly one token, so it is long enough.'"
#define CACHED "$A run -m m.gguf -no-cnv -n 8 --temp 0 --ignore-eos -q --prompt-cache "

static void prompts_are_cached_in_a_file(void **state)
{
    (void)state;
    cli("rm -f c; " CACHED "c -p " LONG " --ids > a && ls -l c | cut -c 1-10 && $A run -m m.gguf -no-cnv -n 8 --temp 0 "
        "--ignore-eos -q -p " LONG " --ids | cmp - a && " CACHED "c -p " LONG " --ids | cmp - a");
    assert_int_equal(cli_last.status, 0);
    assert_string_equal(cli_last.out, "-rw-------\n");
    cli("cp -p c before; " CACHED "c -p " LONG " --json");
    found_cached(64, 4096);
    cli("[ before -ot c ] && echo newer; cmp before c"); /* a file that holds everything already is not written again */
    assert_true(cli_last.status == 0 && !cli_last.n_out);
    cli("for how in '--spec-type none -t 1' '--cpu ref -ub 7' '--mmap -c 512' '--spec-type random --spec-fixed'; do " CACHED
        "c -p " LONG " --ids $how | cmp - a || exit 1; done");
    assert_int_equal(cli_last.status, 0);
    /* a prompt with the same beginning uses the file and replaces it, unless --prompt-cache-ro is given */
    cli("$A run -m m.gguf -no-cnv -n 8 --temp 0 --ignore-eos -q -p " LONG "' And more.' --ids > b; " CACHED
        "c --prompt-cache-ro "
        "-p " LONG "' And more.' --ids | cmp - b && cmp before c && " CACHED "c -p " LONG "' And more.' --ids | cmp - b && "
        "! cmp -s before c");
    assert_int_equal(cli_last.status, 0);
    cli(CACHED "c --prompt-cache-ro -p other --json");
    found_cached(0, 1);
    /* with the answer: the same prompt goes on after it */
    cli("rm -f c; " CACHED "c --prompt-cache-all -p " LONG " --json");
    cli("T=$($A run -m m.gguf -no-cnv -n 8 --temp 0 --ignore-eos -q -p " LONG "); " CACHED "c -p " LONG "\"$T and\" --json");
    found_cached(64, 4096);
    cli("ln -s c link; rm -f c; : > c; " CACHED "link -p " LONG " --ids | cmp - a && [ -h link ] && [ -s c ] && rm link");
    assert_int_equal(cli_last.status, 0); /* an empty file is a new one, and a link stays */
    cli("ls -a | grep 'c\\.......$\\|link\\.'"); /* no rest of a file */
    assert_int_equal(cli_last.n_out, 0);
}

static void prompt_caches_of_others_are_refused(void **state)
{
    (void)state;
    mk_options o;
    mk_shape("tiny", &o);
    o.seed = 77;
    cli_model("other.gguf", &o);
    cli("rm -f c; " CACHED "c -p " LONG);
    static const char *const cases[][3] = {
        {"-m other.gguf", "prompt cache 'c'", "another model"}, {"--rope-scale 2", "prompt cache 'c'", "RoPE"},
        {"--kv-type q8_0", "prompt cache 'c'", "q8_0"},
        {"--override-kv tokenizer.ggml.add_bos_token=bool:false", "prompt cache 'c'", "overrides"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("cp c before; " CACHED "c -p " LONG " %s", cases[i][0]);
        cli_refused(3, cases[i][1], cases[i][2]);
        cli("cmp c before");
        assert_int_equal(cli_last.status, 0);
    }
    static const char *const files[][2] = {
        {"head -c 1000 c > bad", "prompt cache 'bad'"}, {"printf hello > bad", "prompt cache 'bad'"},
        {"rm bad; mkdir bad", "not a regular file"}, {"rmdir bad; mkfifo bad", "not a regular file"},
        {"rm bad; ln -s bad bad", "'bad'"}, {"rm bad; cp c bad; printf x | dd of=bad bs=1 seek=900 conv=notrunc", "damaged"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cli("{ %s; } 2> /dev/null; " CACHED "bad -p " LONG, files[i][0]);
        cli_refused(3, files[i][1], "");
    }
    static const char *const usage[][3] = {
        {"-p one -p two --prompt-cache c", "one prompt", "2"}, {"-p one --prompt-cache ''", "--prompt-cache", "''"},
        {"-p one --prompt-cache-all", "--prompt-cache-all", "FILE"}, {"-p one --prompt-cache-ro", "--prompt-cache-ro", "FILE"},
        {"-p one --prompt-cache c --prompt-cache-ro --prompt-cache-all", "exclude", "--prompt-cache-ro"},
    };
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++) {
        cli("$A run -m m.gguf -no-cnv -q -n 2 %s", usage[i][0]);
        cli_refused(2, usage[i][1], usage[i][2]);
    }
    cli(CACHED "missing/c -p one");
    cli_refused(1, "--prompt-cache missing/c: no file can be written there", ""); /* before the work */
}

/* ---- --lora ----------------------------------------------------------------------------------------------------------------
 */

static void make_adapter(const char *name, const mklora_options *options)
{
    aerie_error error = {0};
    char model[256], path[256];
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    if (mklora_write(options, model, path, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void adapters_change_answers(void **state)
{
    (void)state;
    make_adapter("x.gguf", &(mklora_options){.seed = 1});
    make_adapter("y.gguf", &(mklora_options){.seed = 2, .rank = 4});
    differ(RUN "-p one", RUN "-p one --lora x.gguf");
    differ(RUN "-p one --lora y.gguf", RUN "-p one --lora x.gguf");
    same(RUN "-p one", RUN "-p one --lora-scaled x.gguf:0");
    same(RUN "-p one --lora x.gguf", RUN "-p one --lora-scaled x.gguf:1.0 --spec-type none -t 1");
    same(RUN "-p one --lora x.gguf,y.gguf", RUN "-p one --lora y.gguf --lora-scaled x.gguf:1 --cpu ref");
    differ(RUN "-p one --lora x.gguf", RUN "-p one --lora x.gguf --lora-scaled y.gguf:-0.5");
    /* a prompt cache belongs to its adapters */
    cli("rm -f c; " CACHED "c --lora x.gguf -p " LONG " --ids > a && " CACHED "c --lora x.gguf -p " LONG " --ids | cmp - a");
    assert_int_equal(cli_last.status, 0);
    cli(CACHED "c --lora x.gguf -p " LONG " --json");
    found_cached(64, 4096);
    cli(CACHED "c -p " LONG);
    cli_refused(3, "prompt cache 'c'", "adapters");
    cli(CACHED "c --lora-scaled x.gguf:0.5 --prompt-cache-ro -p " LONG " --json");
    found_cached(0, 0);
    cli(RUN "-p one --lora missing.gguf");
    cli_refused(3, "missing.gguf", "");
    cli(RUN "-p one --lora m.gguf");
    cli_refused(3, "m.gguf", "not a LoRA adapter");
    static const char *const usage[] = {"--lora ''", "--lora x.gguf,", "--lora-scaled x.gguf", "--lora-scaled x.gguf:",
                                        "--lora-scaled x.gguf:nan", "--lora-scaled :1", "--lora-scaled x.gguf:1x"};
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++) {
        cli(RUN "-p one %s", usage[i]);
        cli_refused(2, "--lora", "found '");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_input_follows_the_prompt),
        cmocka_unit_test(escapes_are_on),
        cmocka_unit_test(notes_can_be_silenced),
        cmocka_unit_test(contexts),
        cmocka_unit_test(overrides),
        cmocka_unit_test(rotation),
        cmocka_unit_test(lines_of_json),
        cmocka_unit_test(answers_are_told_apart),
        cmocka_unit_test(templates_are_taken),
        cmocka_unit_test(models_without_a_template),
        cmocka_unit_test(prompts_are_cached_in_a_file),
        cmocka_unit_test(prompt_caches_of_others_are_refused),
        cmocka_unit_test(adapters_change_answers),
    };
    return cmocka_run_group_tests(tests, make_models, cli_teardown);
}
