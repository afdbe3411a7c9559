/* test_run.c - run and bench from outside, on a generated model: the streams, the order and the exit statuses. tests/laws
 * checks that the bytes do not depend on speculation; a sample is here, too.
 */
#include "cli.h"

#include <jansson.h>

#include "mkarch.h"
#include "mkhead.h"

static void streams_are_kept_apart(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 12 --temp 0");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_err, 0); /* --stats names the drafter */
    cli("$A run -m m.gguf -no-cnv -p hello -n 12 --temp 0 --stats");
    assert_int_equal(strncmp(cli_last.err, "aerie: speculation: ngram", 25), 0);
    cli("$A run -m m.gguf -no-cnv -p hello -n 12 --temp 0 -q --stats");
    assert_non_null(strstr(cli_last.err, "generated 12 tokens"));
    cli("$A run -m m.gguf -no-cnv -p hello -n 12 --temp 0 -q > a && printf 'hello\\n' | $A run -m m.gguf -no-cnv -n 12 "
        "--temp 0 -q | cmp - a && printf hello > f && $A run -m m.gguf -no-cnv -f f -n 12 --temp 0 -q | cmp - a");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_err, 0);
}

static void ids_do_not_depend_on_speculation(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 1 -s 7 -q --ids --spec-type none > a; tr ' ' '\\n' < a | wc "
        "-l");
    assert_int_equal(atoi(cli_last.out), 40);
    static const char *const kinds[] = {"ngram",
                                        "random --spec-fixed",
                                        "oracle --spec-oracle-error 0.3 --spec-fixed",
                                        "oracle --spec-tree off",
                                        "draft -md m.gguf",
                                        "ngram -ub 3 -t 1 --cpu ref"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 1 -s 7 -q --ids --spec-type %s | cmp - a", kinds[i]);
        if (cli_last.status) fail_msg("%s: %s%s", kinds[i], cli_last.out, cli_last.err);
    }
}

static void ids_do_not_depend_on_loading(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 1 -s 7 -q --ids > a");
    assert_int_equal(cli_last.status, 0);
    static const char *const ways[] = {
        "--mmap", "--no-mmap", "--mmap --cpu ref", "--mmap -t 3 -ub 5", "-C f", "-Cr 0-7 --cpu-strict 1"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 1 -s 7 -q --ids %s | cmp - a", ways[i]);
        if (cli_last.status) fail_msg("%s: %s%s", ways[i], cli_last.out, cli_last.err);
    }
    cli("$A run -m m.gguf -p hello --mmap --no-mmap");
    assert_int_equal(cli_last.status, 2);
    cli("$A run -m m.gguf -p hello -C xyz");
    assert_int_equal(cli_last.status, 2);
    cli("$A run -m m.gguf -p hello -Cr 5-2");
    assert_int_equal(cli_last.status, 2);
}

static void loading_is_reported(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 2 --temp 0 -v");
    assert_non_null(strstr(cli_last.err, "aerie: threads: "));
    assert_non_null(strstr(cli_last.err, "aerie: loaded '"));
    assert_null(strstr(cli_last.err, "loading [")); /* the bar is for terminals */
    cli("$A run -m m.gguf -no-cnv -p hello -n 2 --temp 0 -q --json");
    json_t *json = json_loads(cli_last.out, 0, NULL), *settings = json_object_get(json, "settings");
    assert_true(json_number_value(json_object_get(json_object_get(settings, "load"), "bytes")) > 0);
    assert_true(json_integer_value(json_object_get(settings, "n_threads")) > 0);
    json_decref(json);
}

static void oracle_knows(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 0 --ignore-eos -q --json --spec-type oracle --spec-tree off "
        "--spec-fixed");
    json_t *json = json_loads(cli_last.out, 0, NULL), *stats = json_object_get(json, "stats");
    const json_int_t drafted = json_integer_value(json_object_get(stats, "n_drafted"));
    assert_true(drafted > 0);
    assert_int_equal(json_integer_value(json_object_get(stats, "n_accepted")), drafted);
    json_decref(json);
}

static void answers_keep_the_order_of_prompts(void **state)
{
    (void)state;
    static const char common[] = "-m m.gguf -no-cnv -n 9 --temp 0 --ignore-eos -q --ids";
    cli("for p in one two three four five; do $A run %s -p $p; done > a", common);
    for (int n = 1; n <= 8; n += 2) {
        cli("$A run %s -p one -p two -p three -p four -p five -np %d | cmp - a", common, n);
        assert_int_equal(cli_last.status, 0);
    }
    cli("printf 'one\\ntwo\\n\\nthree\\nfour\\r\\nfive' > list; $A run %s --prompts-file list -np 2 | cmp - a", common);
    assert_int_equal(cli_last.status, 0);
    cli("$A run -m m.gguf -no-cnv -n 4 -q --prompts-file list --json");
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "answers")), 5);
    json_decref(json);
}

static void refusals(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -c 16 -q -p 'much longer than sixteen tokens of one byte each'");
    cli_refused(2, "16", "-c");
    cli("$A run -m m.gguf -no-cnv -p hello -c 16000000 -np 1024 -q");
    cli_refused(1, "needs", "available");
    assert_non_null(strstr(cli_last.err, "would fit"));
    cli("$A run -m m.gguf -md missing.gguf -no-cnv -p hello -q");
    cli_refused(3, "missing.gguf", "");
    cli("$A run -m m.gguf -no-cnv -p hello -n 4 -q > /dev/full");
    cli_refused(1, "cannot write to standard output", "");
    cli("$A run -m m.gguf -no-cnv -p hello -q --cpu fast");
    cli_refused(2, "fast", "ref");
    cli("echo '1 2 999999999' > w; $A bench logits -m m.gguf --ids-file w");
    cli_refused(2, "999999999", "");
    cli("echo '1 2 x' > w; $A bench logits -m m.gguf --ids-file w");
    cli_refused(3, "'x'", "w");
}

static void samplers_are_asked_for_as_in_llama_cpp(void **state)
{
    (void)state;
    static const char common[] = "-m m.gguf -no-cnv -p hello -n 24 --ignore-eos -q --ids -s 3";
    cli("$A run %s --temp 1 > a && "
        "$A run %s --temp 1 --samplers 'penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature' | cmp - a && "
        "$A run %s --temp 1 --sampling-seq edskypmxt | cmp - a && $A run %s --temp 1 --dry-sequence-breaker x -l 5+0 | cmp - a",
        common, common, common, common);
    assert_int_equal(cli_last.status, 0);
    static const char *const kinds[] = {"--typical 0.5", "--top-nsigma 0.5", "--xtc-probability 1 --xtc-threshold 0.01",
                                        "--mirostat 2", "--dynatemp-range 0.9", "--dry-multiplier 5 --dry-allowed-length 0",
                                        "-l 100+20", "--sampling-seq t", "--samplers top-k;temp --top-k 2",
                                        "--repeat-penalty 5"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "%s", kinds[i]);
        for (char *c = quoted; *c; c++)
            if (*c == ';') *c = '@'; /* no shell word */
        cli("O=$(echo '%s' | tr @ ';'); $A run %s --temp 1 $O > b && ! cmp -s a b && "
            "$A run %s --temp 1 $O --spec-type random --spec-fixed | cmp - b",
            quoted, common, common);
        if (cli_last.status) fail_msg("%s: %s", kinds[i], cli_last.err);
    }
    cli("$A run %s --temp 0 -l 77+1e6", common);
    assert_int_equal(strncmp(cli_last.out, "77 77 77", 8), 0);
    cli("$A run %s --temp 0 -l 77+inf -l 77-inf -l 9+inf", common);
    assert_int_equal(strncmp(cli_last.out, "9 9 9", 5), 0);
}

static void answers_end_before_stop_strings(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 0 --ignore-eos -q --json");
    json_t *json = json_loads(cli_last.out, 0, NULL);
    const char *text = json_string_value(json_object_get(json, "text"));
    size_t from = strlen(text) / 2; /* a printable character in the middle */
    while (text[from] && (text[from] < '0' || text[from] > 'z' || text[from] == '\\')) from++;
    assert_true(text[from] != 0);
    const char stop[] = {text[from], '\0'};
    const size_t expected = (size_t)(strchr(text, text[from]) - text);
    cli("$A run -m m.gguf -no-cnv -p hello -n 40 --temp 0 --ignore-eos -q --json -r never --stop '%s'", stop);
    json_t *cut = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(strlen(json_string_value(json_object_get(cut, "text"))), expected);
    assert_string_equal(json_string_value(json_object_get(json_object_get(cut, "stats"), "stop")), "stop string");
    json_decref(json);
    json_decref(cut);
    cli("$A run -m m.gguf -no-cnv -p hello -n 6 --temp 0.7 --ignore-eos -q --json --logprobs 4");
    json = json_loads(cli_last.out, 0, NULL);
    const json_t *rows = json_object_get(json, "logprobs");
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(rows, i), *top = json_object_get(row, "top");
        assert_int_equal(json_array_size(top), 4);
        assert_int_equal(json_integer_value(json_object_get(row, "id")),
                         json_integer_value(json_array_get(json_object_get(json, "ids"), i)));
        double before = 0;
        for (size_t k = 0; k < 4; k++) {
            const double p = json_real_value(json_object_get(json_array_get(top, k), "logprob"));
            assert_true(p <= before);
            before = p;
        }
        const json_t *best = json_array_get(top, 0);
        assert_true(json_real_value(json_object_get(row, "logprob")) <= json_real_value(json_object_get(best, "logprob")));
    }
    json_decref(json);
}

static void sampling_refusals(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"--samplers 'top_k;infill'", "infill", "penalties (e)"}, {"--sampling-seq kz", "'z'", "top_k (k)"},
        {"--samplers top_k --sampling-seq k", "exclude", "--sampling-seq"},
        {"--sampling-seq kkkkkkkkkkkkkkkkkkkk", "15", "--sampling-seq"},
        {"-l 5", "--logit-bias", "'5'"}, {"-l +5", "--logit-bias", "15043+1"}, {"-l 5+", "--logit-bias", "'5+'"},
        {"-l 5+nan", "--logit-bias", "nan"}, {"-l 5+0x1", "--logit-bias", "0x1"},
        {"-l 99999999999+1", "--logit-bias", "number"},
        {"-l 123456+1", "123456", "possible"}, {"--mirostat 1", "--mirostat", "2"}, {"--mirostat 3", "--mirostat", "3"},
        {"--dry-base 0.5", "--dry-base", "0.5"}, {"--dry-sequence-breaker ''", "--dry-sequence-breaker", "empty"},
        {"--stop ''", "--stop", "empty"},
        {"-e --stop 'a\\x00b'", "--stop", "NUL"}, {"--logprobs 3", "--logprobs", "--json"},
        {"--json --logprobs 500", "--logprobs", "128"},
        {"--typical 2", "--typical", "from 0 to 1"}, {"--xtc-threshold x", "--xtc-threshold", "'x'"},
        {"--min-keep -1", "--min-keep", "-1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A run -m m.gguf -no-cnv -p hello -n 2 -q %s", cases[i][0]);
        cli_refused(2, cases[i][1], cases[i][2]);
    }
}

/* The program is signalled by the shell, after it has begun to write. */
static void interruption(void **state)
{
    (void)state;
    cli("$A run -m m.gguf -no-cnv -p hello --ignore-eos -c 200000 -q --ids > long & P=$!; "
        "i=0; while [ ! -s long ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done; kill -INT $P; wait $P");
    /* A shell starts background jobs with SIGINT ignored; the program asks for it all the same. */
    assert_int_equal(cli_last.status, 130);
    const char *line = strchr(cli_last.err, '\n'); /* only the line that the model was trained for less */
    assert_true(line && !line[1] && strstr(cli_last.err, "trained"));
}

static void bench_tools(void **state)
{
    (void)state;
    cli("$A bench speed -m m.gguf -p 16 -n 4 -r 2 --json");
    json_t *json = json_loads(cli_last.out, 0, NULL), *tests = json_object_get(json, "tests");
    assert_int_equal(json_array_size(tests), 2);
    assert_true(json_real_value(json_object_get(json_array_get(tests, 1), "median")) > 0);
    json_decref(json);
    cli("$A bench verify -m m.gguf -n 1,2,5 -p 16 --contexts 0,10 -r 1 --json");
    json = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "passes")), 6);
    assert_int_equal(json_array_size(json_object_get(json, "prefill")), 2);
    assert_true(json_real_value(json_object_get(json, "bandwidth_gbs")) > 0);
    json_decref(json);
    cli("$A bench shapes --types Q4_0,q4_k --n-in 96,256 --n-out 600 -n 1,3 -r 1 --json"); /* q4_k has no rows of 96 */
    json = json_loads(cli_last.out, 0, NULL);
    const json_t *shapes = json_object_get(json, "shapes"), *last = json_array_get(shapes, 5);
    assert_int_equal(json_array_size(shapes), 2 * (2 + 1));
    assert_string_equal(json_string_value(json_object_get(last, "type")), "q4_K");
    assert_int_equal(json_integer_value(json_object_get(last, "n")), 3);
    assert_int_equal(json_integer_value(json_object_get(last, "bytes")) % 64, 0);
    assert_true(json_real_value(json_object_get(last, "of_bandwidth")) > 0);
    assert_non_null(strstr(cli_last.err, "of the type: 1\n"));
    json_decref(json);
    cli("$A bench shapes --types f32 --n-in 1048576 --n-out 1048576 --csv");
    cli_refused(1, "4.00 TiB", "--n-out");
    cli("$A bench spec -m m.gguf -no-cnv -n 8 -r 1 --temp 0 --spec-types ngram,oracle,random -p 'a b a b a b' --csv");
    assert_int_equal(cli_last.status, 0);
    assert_null(strstr(cli_last.out, ",NO"));
    cli("printf '1 2 3\\n\\n4 5\\n' > w; $A bench logits -m m.gguf --ids-file w | wc -c");
    const long bytes = atol(cli_last.out);
    assert_true(bytes > 0 && bytes % (5 * 4) == 0);
}

static void make_draft(const char *name, const char *vocab, uint64_t order)
{
    mk_options o;
    mk_shape("tiny", &o);
    o.vocab = vocab, o.vocab_order = order, o.n_layers = 1;
    cli_model(name, &o);
}

static void a_draft_model_may_have_another_vocabulary(void **state)
{
    (void)state;
    static const char how[] = "-m m.gguf -no-cnv -p 'and the rain in the hall' -n 40 --temp 0.7 -s 3";
    make_draft("other.gguf", "bpe-other", 4);
    make_draft("foreign.gguf", "foreign", 0);
    cli("$A run %s -q --ids --spec-type none > a && $A run %s -q --ids -md other.gguf | cmp - a", how, how);
    assert_int_equal(cli_last.status, 0);
    cli("$A run %s -md other.gguf --stats -v", how);
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "; another vocabulary: "));
    assert_non_null(strstr(cli_last.err, " of 319 tokens shared ("));
    assert_non_null(strstr(cli_last.err, "vocabularies: the model has 319 tokens"));
    cli("$A run %s -md other.gguf -q --json", how);
    json_t *json = json_loads(cli_last.out, 0, NULL), *settings = json_object_get(json, "settings");
    json_t *overlap = json_object_get(json_object_get(settings, "speculation"), "overlap");
    assert_int_equal(json_integer_value(json_object_get(overlap, "n_target")), 319);
    assert_true(json_number_value(json_object_get(overlap, "text_share")) > 0.5);
    json_decref(json);
    cli("$A run %s -md foreign.gguf", how);
    cli_refused(3, "'foreign.gguf' cannot draft for 'm.gguf': ", "of the 319 tokens");
}

static void a_head_is_no_model(void **state)
{
    (void)state;
    static const char *const kinds[] = {"eagle", "eagle3", "eagle3.1", "medusa"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char model[256], head[256];
        aerie_error error = {0};
        snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
        snprintf(head, sizeof head, "%s/head.gguf", cli_folder);
        if (mkhead_write(&(mkhead_options){.kind = kinds[i], .seed = 1}, model, head, &error) != AERIE_OK)
            fail_msg("%s", error.text);
        cli("$A run -m head.gguf -no-cnv -p hello -n 12");
        cli_refused(3, "head.gguf: ", "is a drafter's head, not a model of its own; give it with -md");
    }
}

/* A prompt that cannot be answered is refused alone; the others are answered as if it were not there. */
static void a_bad_prompt_does_not_cost_the_others(void **state)
{
    (void)state;
    static const char how[] = "-m m.gguf -no-cnv -n 8 --temp 0 -c 40 -np 2 -q";
    cli("$A run %s -p hello -p rain > expected", how);
    assert_int_equal(cli_last.status, 0);
    cli("$A run %s -p hello -p \"$(yes word | head -200)\" -p rain > got; s=$?; cmp got expected || exit 9; exit $s", how);
    assert_int_equal(cli_last.status, 2);
    assert_non_null(strstr(cli_last.err, "aerie: prompt 2: the prompt has "));
    cli("$A run %s --json -p hello -p \"$(yes word | head -200)\"", how);
    assert_int_equal(cli_last.status, 2);
    json_t *json = json_loads(cli_last.out, 0, NULL), *answers = json_object_get(json, "answers");
    assert_int_equal(json_array_size(answers), 2);
    assert_non_null(json_object_get(json_array_get(answers, 0), "text"));
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(answers, 1), "error")), "context holds 40"));
    json_decref(json);
}

/* A file beside the model that has a head's name but is not a head costs one line. */
static void a_broken_head_beside_the_model_stops_nothing(void **state)
{
    (void)state;
    static const char *const make[] = {
        ": > b-eagle3.gguf",
        "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize 15545504\\n' > b-eagle3.gguf",
        "head -c 3000 head.gguf > b-eagle3.gguf",
        "mkdir b-eagle3.gguf",
        "mkfifo b-eagle3.gguf",
        "cp b.gguf b-eagle3.gguf",     /* a model, no head */
        "cp other-head.gguf b-eagle3.gguf", /* made for another model */
    };
    char model[256], head[256];
    aerie_error error = {0};
    mk_options options;
    assert_true(mk_shape("tiny", &options));
    options.n_embd *= 2;
    options.n_ff *= 2;
    cli_model("wide.gguf", &options);
    for (int i = 0; i < 2; i++) {
        snprintf(model, sizeof model, "%s/%s", cli_folder, i ? "wide.gguf" : "m.gguf");
        snprintf(head, sizeof head, "%s/%s", cli_folder, i ? "other-head.gguf" : "head.gguf");
        if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model, head, &error) != AERIE_OK)
            fail_msg("%s", error.text);
    }
    cli("cp m.gguf b.gguf && $A run -m b.gguf -no-cnv -p hello -n 12 --temp 0 > plain");
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        cli("rm -rf b-eagle3.gguf && %s", make[i]);
        cli("timeout 600 $A run -m b.gguf -no-cnv -p hello -n 12 --temp 0 --stats");
        if (cli_last.status) fail_msg("%s: status %d: %s", make[i], cli_last.status, cli_last.err);
        const char *line = strstr(cli_last.err, "aerie: warning: the drafter head beside the model is not used: ");
        if (!line || !strstr(line, "b-eagle3.gguf")) fail_msg("%s: %s", make[i], cli_last.err);
        assert_null(strstr(strstr(line, "not used") + 1, "not used"));
        assert_non_null(strstr(cli_last.err, "speculation: ngram"));
        cli("timeout 600 $A run -m b.gguf -no-cnv -p hello -n 12 --temp 0 -q | cmp - plain");
        assert_int_equal(cli_last.status, 0);
        assert_non_null(strstr(cli_last.err, "beside the model is not used")); /* a warning, which -q does not hide */
        cli("timeout 600 $A bench spec -m b.gguf -no-cnv -p hello -n 4 -r 1 --json");
        if (cli_last.status) fail_msg("%s: bench spec: status %d: %s", make[i], cli_last.status, cli_last.err);
    }
    cli("rm -rf b-eagle3.gguf && : > b-eagle3.gguf && $A run -m b.gguf -md b-eagle3.gguf -no-cnv -p hello");
    assert_int_equal(cli_last.status, 3); /* a head that was asked for must be usable */
    cli("cp head.gguf b-eagle3.gguf 2>/dev/null; $A run -m b.gguf -no-cnv -p hello -n 12 --temp 0 -v");
    assert_non_null(strstr(cli_last.err, "speculation: draft-eagle3+ngram"));
}

/* MTP blocks in a file beside the model, in a named file, and in the model itself, whether asked for or not. */
static void mtp_blocks_draft_where_they_are_found(void **state)
{
    (void)state;
    static const char *const run = "-no-cnv -p hello -n 12 --temp 0 --stats";
    static const char *const archs[] = {"qwen35-mtp", "qwen35"};
    char model[256], head[256];
    aerie_error error = {0};
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/blocks.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "mtp", .n_draft = 20}, model, head, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < 2; i++) {
        snprintf(model, sizeof model, "%s/%s.gguf", cli_folder, archs[i]);
        if (mkarch_write(mkarch_find(archs[i]), false, model, &error) != AERIE_OK) fail_msg("%s", error.text);
    }
    cli("cp m.gguf n.gguf && $A run -m n.gguf %s 2> /dev/null > plain", run);
    cli("cp blocks.gguf n-mtp.gguf && $A run -m n.gguf %s > got && cmp got plain", run);
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "speculation: draft-mtp+ngram"));
    cli("rm n-mtp.gguf; $A run -m n.gguf -md blocks.gguf %s > got && cmp got plain", run);
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "speculation: draft-mtp+ngram"));
    cli("$A run -m n.gguf --spec-type draft-mtp %s", run);
    assert_int_equal(cli_last.status, 2);
    assert_non_null(strstr(cli_last.err, "--spec-type draft-mtp needs MTP blocks, but n.gguf has none"));
    cli("$A run -m qwen35.gguf -md blocks.gguf %s", run);
    assert_int_equal(cli_last.status, 3);
    assert_non_null(strstr(cli_last.err, "made for a target of architecture llama"));
    cli("$A run -m qwen35-mtp.gguf --spec-type none %s 2> /dev/null > plain", run);
    cli("$A run -m qwen35-mtp.gguf %s > got && cmp got plain", run);
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "speculation: draft-mtp+ngram"));
    cli("$A run -m qwen35-mtp.gguf --spec-type draft-mtp --spec-ngram off %s > got && cmp got plain", run);
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "speculation: draft-mtp,"));
    cli("$A bench spec -m qwen35-mtp.gguf -no-cnv -p hello -n 4 -r 1 --spec-types ngram,draft-mtp --json");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "draft-mtp"));
}

#if defined(__SANITIZE_THREAD__)
#define ALL false
#else
#define ALL true
#endif

int main(void)
{
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(streams_are_kept_apart),
        cmocka_unit_test(ids_do_not_depend_on_speculation),
        cmocka_unit_test(ids_do_not_depend_on_loading),
        cmocka_unit_test(loading_is_reported),
        cmocka_unit_test(oracle_knows),
        cmocka_unit_test(answers_keep_the_order_of_prompts),
        cmocka_unit_test(a_draft_model_may_have_another_vocabulary),
        cmocka_unit_test(a_bad_prompt_does_not_cost_the_others),
        cmocka_unit_test(mtp_blocks_draft_where_they_are_found),
        cmocka_unit_test(interruption),
    };
    const struct CMUnitTest others[] = { /* refusals, and options that leave the threads as they are: not for ThreadSanitizer */
        cmocka_unit_test(samplers_are_asked_for_as_in_llama_cpp),
        cmocka_unit_test(answers_end_before_stop_strings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_head_is_no_model),
        cmocka_unit_test(a_broken_head_beside_the_model_stops_nothing),
        cmocka_unit_test(sampling_refusals),
        cmocka_unit_test(bench_tools),
    };
    const int n_failed = cmocka_run_group_tests(threads, cli_setup_model, ALL ? NULL : cli_teardown);
    return ALL ? n_failed + cmocka_run_group_tests(others, NULL, cli_teardown) : n_failed;
}
