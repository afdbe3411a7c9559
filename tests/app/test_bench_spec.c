/* test_bench_spec.c - aerie bench spec from outside, on a generated model: every combination asked for has its row with all
 * fields, counts agree with each other, bytes are the same, wrong input gets a sentence; and the prompts in bench/prompts.
 */
#include "cli.h"
#include "mkhead.h"

#include <jansson.h>

static char prompts_folder[4096];

static int setup(void **state)
{
    char here[2048];
    if (!getcwd(here, sizeof here)) return -1;
    snprintf(prompts_folder, sizeof prompts_folder, "%s/bench/prompts", here);
    return cli_setup_model(state);
}

static void write_groups(void)
{
    static const char red[] = "{\"id\": \"r1\", \"held_out\": true, \"prompt\": \"a b a b a b\"}\n\n"
                              "{\"id\": \"r2\", \"held_out\": false, \"prompt\": \"one two\"}\n"
                              "{\"id\": \"r3\", \"held_out\": true, \"prompt\": \"c d e c d\", \"more\": 1}\n";
    static const char blue[] = "{\"id\": \"b1\", \"held_out\": false, \"prompt\": \"x y z\"}\n"
                               "{\"id\": \"b2\", \"held_out\": true, \"prompt\": \"nothing else\"}";
    cli("mkdir -p g");
    cli_write("g/red.jsonl", red, sizeof red - 1);
    cli_write("g/blue.jsonl", blue, sizeof blue - 1);
    cli_write("g/readme.txt", "no prompts\n", 11);
}

static double real(const json_t *run, const char *key)
{
    const json_t *value = json_object_get(run, key);
    if (!json_is_number(value)) fail_msg("%s is missing", key);
    return json_number_value(value);
}

static json_t *runs_of(json_t *json)
{
    json_t *runs = json_object_get(json, "runs");
    if (!json_is_array(runs)) fail_msg("no runs: %s%s", cli_last.out, cli_last.err);
    return runs;
}

/* Checks properties of every row. */
static void check_run(const json_t *run)
{
    const json_t *depths = json_object_get(run, "acceptance_by_depth"), *tries = json_object_get(run, "conditional_by_depth");
    double sum = 0, before = 1;
    assert_true(json_is_string(json_object_get(run, "drafter")) && json_is_string(json_object_get(run, "group")));
    assert_true(json_is_true(json_object_get(run, "same_bytes")));
    assert_true(json_is_string(json_object_get(run, "tree")));
    assert_true(real(run, "tokens_per_s") > 0 && real(run, "plain_tokens_per_s") > 0 && real(run, "ratio") > 0);
    assert_int_equal(json_array_size(depths), json_array_size(tries));
    for (size_t i = 0; i < json_array_size(depths); i++) {
        const double at = json_number_value(json_array_get(depths, i)), after = json_number_value(json_array_get(tries, i));
        assert_true(at >= 0 && at <= before && after >= at && after <= 1);
        before = at;
        sum += at;
    }
    const double passes = real(run, "passes"), accepted = real(run, "accepted"), rounds = real(run, "rounds");
    assert_true(json_array_size(depths) <= (size_t)real(run, "n_max"));
    assert_true(sum - real(run, "accepted_per_round") < 1e-4 && real(run, "accepted_per_round") - sum < 1e-4);
    assert_true(rounds <= passes && real(run, "accepted_per_pass") <= real(run, "accepted_per_round"));
    assert_true(real(run, "rows_per_pass") >= 1 && real(run, "drafted") >= accepted);
    /* a pass gives the accepted tokens and one more, but the last pass of an answer may end with an accepted one */
    const double answers = real(run, "prompts") * 2, tokens = real(run, "generated");
    assert_true(tokens <= passes + accepted && tokens >= passes + accepted - answers);
}

static void every_combination_has_its_row(void **state)
{
    (void)state;
    write_groups();
    cli("$A bench spec -m m.gguf --prompts g -n 12 -r 2 -s 3 --ignore-eos --temps 0,1 --spec-types ngram,oracle,random "
        "--spec-tree on,off --spec-draft-n-max 3,6 -np 1,8 --spec-fixed --json");
    assert_int_equal(cli_last.status, 0);
    json_t *json = json_loads(cli_last.out, 0, NULL), *runs = runs_of(json);
    assert_int_equal(json_array_size(runs), 2 * 2 * 3 * 2 * 2 * 3); /* the last factor: two groups and all */
    size_t n_all = 0, n_eight = 0, n_hot = 0, n_trees = 0, n_oracle = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *group = json_string_value(json_object_get(run, "group"));
        const bool oracle = !strcmp(json_string_value(json_object_get(run, "drafter")), "oracle");
        check_run(run);
        assert_int_equal(real(run, "prompts"), !strcmp(group, "all") ? 5 : !strcmp(group, "red") ? 3 : 2);
        assert_int_equal(real(run, "generated"), real(run, "prompts") * 2 * 12);
        const bool tree = strcmp(json_string_value(json_object_get(run, "tree")), "off") != 0;
        if (oracle && !tree) {
            assert_int_equal(real(run, "drafted"), real(run, "accepted"));
            assert_true(real(run, "accepted_per_round") > 2);
        }
        n_all += !strcmp(group, "all");
        n_eight += real(run, "n_seqs") == 8;
        n_hot += real(run, "temperature") == 1;
        n_trees += tree;
        n_oracle += oracle;
    }
    assert_int_equal(n_all, 48);
    assert_int_equal(n_eight, 72);
    assert_int_equal(n_hot, 72);
    assert_int_equal(n_trees, 72);
    assert_int_equal(n_oracle, 48);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "settings"), "n_predict")), 12);
    json_decref(json);
}

/* In turns with plain decoding, pass by pass: the same answers, and the same figures except times. */
static void in_turns(void **state)
{
    (void)state;
    write_groups();
    cli("$A bench spec -m m.gguf --prompts g -n 12 -r 2 -s 3 --ignore-eos --temps 0,1 --spec-types ngram,oracle --spec-tree "
        "off "
        "-np 1,4 --spec-fixed --in-turns --json");
    assert_int_equal(cli_last.status, 0);
    json_t *json = json_loads(cli_last.out, 0, NULL), *runs = runs_of(json);
    assert_int_equal(json_array_size(runs), 2 * 2 * 2 * 3);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        check_run(run);
        assert_int_equal(real(run, "generated"), real(run, "prompts") * 2 * 12);
        if (strcmp(json_string_value(json_object_get(run, "drafter")), "oracle")) continue;
        assert_int_equal(real(run, "drafted"), real(run, "accepted"));
        assert_true(real(run, "accepted_per_round") > 2);
    }
    json_decref(json);
}

/* Each pass of each drafter is a line, and the lines of passes without prompts add up to the figures of the runs. */
static void passes_are_traced(void **state)
{
    (void)state;
    double n_drafted = 0, n_accepted = 0, n_tokens = 0;
    size_t n_lines = 0, n_predicted = 0, n_passes = 0;
    write_groups();
    cli("$A bench spec -m m.gguf --prompts g -n 24 -r 1 -s 3 --ignore-eos --temps 0,1 --spec-types ngram,oracle,random -np 1,3 "
        "--json --trace trace.jsonl");
    assert_int_equal(cli_last.status, 0);
    json_t *json = json_loads(cli_last.out, 0, NULL), *runs = runs_of(json);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(run, "group")), "all")) continue;
        n_drafted += real(run, "drafted");
        n_accepted += real(run, "accepted");
    }
    json_decref(json);
    char path[64];
    snprintf(path, sizeof path, "%s/trace.jsonl", cli_folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (json_t *line; (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)); n_lines++) {
        const double drafted = real(line, "n_verified_ngram") + real(line, "n_verified_network");
        const double accepted = real(line, "n_accepted_ngram") + real(line, "n_accepted_network");
        assert_true(drafted <= real(line, "n_proposed") && accepted <= drafted);
        assert_true(real(line, "n_tokens") <= real(line, "n_drawing") + accepted);
        assert_true(real(line, "seconds") >= real(line, "target_seconds"));
        assert_true(real(line, "n_rows") >= real(line, "n_sequences") + drafted);
        n_predicted += real(line, "expected_tokens") >= 1 && real(line, "expected_seconds") > 0;
        n_passes += json_is_false(json_object_get(line, "prompts"));
        n_tokens += real(line, "n_tokens");
        n_drafted -= drafted;
        n_accepted -= accepted;
        json_decref(line);
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(n_lines > 100 && n_passes > 50 && n_predicted > n_passes / 2);
    /* prompts run once more beforehand, with four tokens each, whose drafts no run counts */
    assert_true(n_tokens >= 2 * 2 * 3 * 5 * 24);
    assert_true(n_drafted <= 0 && n_accepted <= 0 && n_accepted > -2 * 2 * 3 * 5 * 4.0);
    cli("$A bench spec -m m.gguf --prompts g -n 4 -r 1 --temp 0 --trace no/such/folder");
    assert_int_equal(cli_last.status, 1);
    assert_non_null(strstr(cli_last.err, "cannot write 'no/such/folder'"));
    cli("$A bench spec -m m.gguf --prompts g -n 4 -r 1 --temp 0 --trace /dev/full");
    assert_int_equal(cli_last.status, 1);
    assert_non_null(strstr(cli_last.err, "cannot write all of '/dev/full'"));
}

/* Watching passes changes no byte, and an unknown word is reported. */
static void passes_are_shown(void **state)
{
    (void)state;
    char *answer;
    const char *run = "$A run -m m.gguf -no-cnv -p 'a b a b a b a b' -n 24 --temp 0 --ignore-eos --spec-type ngram "
                      "--spec-fixed";
    cli("%s", run);
    assert_int_equal(cli_last.status, 0);
    answer = strdup(cli_last.out);
    assert_non_null(answer);
    cli("AERIE_DEBUG=pass,tree,trees %s", run);
    assert_int_equal(cli_last.status, 0);
    assert_string_equal(cli_last.out, answer);
    free(answer);
    assert_non_null(strstr(cli_last.err, "AERIE_DEBUG does not know 'trees'"));
    assert_non_null(strstr(cli_last.err, "pass 0: 1 sequences, "));
    assert_non_null(strstr(cli_last.err, "tree of slot 0: "));
    assert_non_null(strstr(cli_last.err, " n-gram"));
    cli("AERIE_DEBUG=tree %s", run);
    assert_null(strstr(cli_last.err, "pass 0:"));
    assert_non_null(strstr(cli_last.err, "tree of slot 0: "));
}

/* Builds with assertions report where a failure began. */
static void a_failure_says_its_way(void **state)
{
    (void)state;
    cli_write("not.gguf", "GGUF\3\0\0\0", 8);
    cli("AERIE_DEBUG=status $A run -m not.gguf -p a");
    assert_int_equal(cli_last.status, 3);
#ifdef NDEBUG
    assert_null(strstr(cli_last.err, "passed on by"));
    assert_non_null(strstr(cli_last.err, "AERIE_DEBUG=status has no effect in this build"));
#else
    assert_non_null(strstr(cli_last.err, "aerie: ERROR_FORMAT: "));
    assert_non_null(strstr(cli_last.err, "passed on by ae_gguf_"));
    cli("$A run -m not.gguf -p a");
    assert_null(strstr(cli_last.err, "passed on by"));
#endif
}

static void prompts_are_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        size_t n_runs, n_prompts; /* of all groups */
    } cases[] = {
        {"--prompts g", 3, 5},
        {"--prompts g/red.jsonl", 2, 3},
        {"--prompts g/red.jsonl --prompts g/blue.jsonl", 3, 5},
        {"--prompts g --groups blue", 2, 2},
        {"--prompts g --groups red,blue --per-group 1", 3, 2},
        {"--prompts g --held-out only", 3, 3},
        {"--prompts g --held-out no", 3, 2},
        {"--prompts g --held-out only --groups red --per-group 1", 2, 1},
        {"-p one -p two", 2, 2},
        {"", 2, 5},
    };
    write_groups();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A bench spec -m m.gguf -n 5 -r 1 --temp 0 --json %s", cases[i].options);
        json_t *json = json_loads(cli_last.out, 0, NULL), *runs = runs_of(json);
        if (json_array_size(runs) != cases[i].n_runs) fail_msg("%s: %zu runs", cases[i].options, json_array_size(runs));
        assert_int_equal(real(json_array_get(runs, cases[i].n_runs - 1), "prompts"), cases[i].n_prompts);
        json_decref(json);
    }
}

/* The header and all rows have the same number of columns, and without --csv there is a table. */
static void csv_and_table(void **state)
{
    (void)state;
    write_groups();
    cli("$A bench spec -m m.gguf --prompts g -n 8 -r 1 --temps 0,1 --csv | awk -F, '{print NF}' | sort | uniq -c");
    size_t n_rows = 0, n_columns = 0;
    assert_int_equal(sscanf(cli_last.out, "%zu %zu", &n_rows, &n_columns), 2);
    assert_int_equal(n_rows, 1 + 2 * 3);
    assert_int_equal(n_columns, 26);
    cli("$A bench spec -m m.gguf --prompts g -n 8 -r 1 --temp 0");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "ngram        blue"));
    assert_non_null(strstr(cli_last.out, "by depth:"));
    assert_null(strstr(cli_last.out, " NO\n"));
}

static void wrong_prompts_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int status;
        const char *text, *other;
    } cases[] = {
        {"--prompts missing", 3, "'missing'", "No such file"},
        {"--prompts g --groups red,green", 2, "no group 'green'", "blue,red"},
        {"--prompts g --groups ''", 2, "no group ''", "blue,red"},
        {"--prompts g --held-out some", 2, "--held-out takes only, all or no", "'some'"},
        {"--prompts g -p x", 2, "only one of", "--prompts"},
        {"--prompts g --prompts g/red.jsonl", 2, "'red' twice", "g/red.jsonl"},
        {"--groups red", 2, "--groups chooses from --prompts", "not given"},
        {"--held-out no", 2, "--held-out chooses from --prompts", "not given"},
        {"--per-group 1", 2, "--per-group chooses from --prompts", "not given"},
        {"--prompts empty", 3, "'empty'", ".jsonl"},
        {"--prompts t.jsonl", 3, "'t.jsonl' line 2", "not a JSON object"},
        {"--prompts id.jsonl", 3, "'id.jsonl' line 1", "\"id\""},
        {"--prompts held.jsonl", 3, "'held.jsonl' line 1", "\"held_out\""},
        {"--prompts nul.jsonl", 3, "'nul.jsonl' line 1", ""},
        {"--prompts list.jsonl", 3, "'list.jsonl' line 1", ""},
        {"--prompts g --prompts again.jsonl", 3, "'r1'", "red.jsonl"},
        {"--prompts none.jsonl --held-out only", 3, "no prompt", "only"},
        {"--temps 0,,1", 2, "--temps takes a list", "'0,,1'"},
        {"--temps nan", 2, "--temps takes a list", "'nan'"},
        {"--spec-tree on,maybe", 2, "--spec-tree takes one of off, auto", "'maybe'"},
        {"--spec-draft-n-max 3,65", 2, "from 1 to 64", "'3,65'"},
        {"--spec-draft-n-min 4 --spec-draft-n-max 3,6", 2, "--spec-draft-n-min 4", "3"},
        {"--spec-types draft", 2, "-md FILE", ""},
        {"--prompts g -c 8", 2, "8", "-c"},
    };
    write_groups();
    cli("mkdir -p empty; printf '{\"id\":\"a\",\"held_out\":false,\"prompt\":\"b\"}\\nhello\\n' > t.jsonl; "
        "printf '{\"held_out\":false,\"prompt\":\"b\"}\\n' > id.jsonl; "
        "printf '{\"id\":\"a\",\"held_out\":0,\"prompt\":\"b\"}' > held.jsonl; "
        "printf '{\"id\":\"a\",\"held_out\":false,\"prompt\":\"b\\\\u0000c\"}' > nul.jsonl; printf '[1]' > list.jsonl; "
        "printf '{\"id\":\"r1\",\"held_out\":false,\"prompt\":\"b\"}' > again.jsonl; "
        "printf '{\"id\":\"n\",\"held_out\":false,\"prompt\":\"b\"}' > none.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A bench spec -m m.gguf -n 4 -r 1 --temp 0 %s", cases[i].options);
        cli_refused(cases[i].status, cases[i].text, cases[i].other);
    }
}

/* The prompts of the repository: enough in each group, held out and not, distinct ids (the program checks that), passages where
 * they belong. */
static void own_prompts(void **state)
{
    (void)state;
    static const char *const groups[] = {"chat", "math", "qa", "retrieval", "summary", "translation"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        char path[4200];
        size_t n = 0, n_held_out = 0;
        snprintf(path, sizeof path, "%s/%s.jsonl", prompts_folder, groups[i]);
        FILE *file = fopen(path, "rb");
        if (!file) fail_msg("%s is missing", path);
        for (char line[8192]; fgets(line, sizeof line, file); n++) {
            json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
            const char *id = json_string_value(json_object_get(json, "id"));
            assert_non_null(id);
            assert_int_equal(strncmp(id, groups[i], strlen(groups[i])), 0);
            n_held_out += json_is_true(json_object_get(json, "held_out"));
            size_t n_words = 0;
            for (const char *p = json_string_value(json_object_get(json, "prompt")); *p; p++) n_words += *p == ' ';
            const bool passage = !strcmp(groups[i], "summary") || !strcmp(groups[i], "retrieval");
            if (n_words < (passage ? 100 : 4) || n_words > (passage ? 340 : 100)) fail_msg("%s has %zu words", id, n_words);
            json_decref(json);
        }
        fclose(file);
        assert_true(n >= 20 && n_held_out >= n / 3 && n_held_out <= n - n / 3);
    }
    cli("$A bench spec -m m.gguf --prompts '%s' --per-group 1 -n 4 -r 1 --temp 0 --json", prompts_folder);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_int_equal(json_array_size(runs_of(json)), 7);
    json_decref(json);
}

/* Checks the files and their form, that no other file is left, and figures of every type and way. */
static void a_study(void **state)
{
    (void)state;
    cli("$A bench study -m m.gguf -o s/t --quick -n 4 -p hello");
    cli_refused(1, "s/t", "could not be made");
    cli("$A bench study -m m.gguf -o s --types Q9 --quick -n 4 -p hello");
    cli_refused(2, "--types", "'Q9'");
    cli("$A bench study -m m.gguf -o s --types as-is --kv-types f16,q9 --quick -n 4 -p hello");
    cli_refused(2, "--kv-types", "'q9'");
    cli("$A bench study -m m.gguf -o c --types as-is --contexts 0,70 --kv-types f16,q8_0,i16 --quick -n 4 -p 'a b a b a b'");
    assert_int_equal(cli_last.status, 0);
    cli("grep -c 'as-is i16 70,[0-9]*,\"auto\",same_bytes,0,1' c/study.csv; grep -c '^| as-is ' c/study.md; rm -r c");
    assert_string_equal(cli_last.out, "1\n6\n");
    cli("$A bench study -m m.gguf -o s --types as-is,Q8_0 --quick -n 4 -p 'a b a b a b'");
    assert_int_equal(cli_last.status, 0);
    cli("ls s | tr '\\n' ' '");
    assert_string_equal(cli_last.out, "study.csv study.md ");
    cli("grep -c 'Q8_0,[0-9]*,\"auto\",ratio,0,' s/study.csv; grep -c 'as-is,[0-9]*,\"\",ms,64,' s/study.csv; "
        "grep -c 'same_bytes,0,1$' s/study.csv; grep -c '^| n-grams |' s/study.md; "
        "grep -c '\"n-grams\",plain_tokens_per_s,0,' s/study.csv");
    assert_string_equal(cli_last.out, "1\n1\n4\n2\n2\n");
    cli("cat s/study.md");
    static const char *const told[] = {"| date | 20", " UTC |", "| CPU | ", ", kernels ", "| aerie | ", ", commit ",
                                       "| prompts | 1 of `-p` |", "`-n 4 -r 1 --temp ", " --quick` |",
                                       "`--quick` is a single run",
                                       "in turns with it (ratio)"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!strstr(cli_last.out, told[i])) fail_msg("'%s' is missing in %s", told[i], cli_last.out);
    /* cut off in the second type, with a figure of the first one that can only come from the file */
    cli("sed -i -e '/Q8_0,.*settings/d' -e 's/^as-is,\\([0-9]*\\),\"\",ms,8,.*/as-is,\\1,\"\",ms,8,777/' s/study.csv && "
        "cp s/study.csv cut.csv");
    cli("$A bench study -m m.gguf -o s --types as-is,Q8_0 --quick -n 4 -p 'a b a b a b' --resume");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "as-is: measured before"));
    assert_null(strstr(cli_last.err, "Q8_0: measured before"));
    cli("grep -c ',ms,8,777$' s/study.csv; grep -c 'settings,0,' s/study.csv; grep -c ',ms,' s/study.csv");
    assert_string_equal(cli_last.out, "1\n2\n10\n");
    /* tables of the complete types exist although the next one cannot be written */
    cli("(trap '' XFSZ; ulimit -f 64; $A bench study -m m.gguf -o half --types as-is,Q8_0 --quick -n 4 -p 'a b')");
    assert_int_equal(cli_last.status, 1);
    cli("cat half/study.md");
    assert_non_null(strstr(cli_last.out, "1 of 2 types are still to be measured."));
    assert_non_null(strstr(cli_last.out, "| as-is |"));
    cli("cp cut.csv s/study.csv; $A bench study -m m.gguf -o s --types as-is --quick -n 5 -p 'a b a b a b' --resume "
        "--steep 8:1.2");
    assert_int_equal(cli_last.status, 0);
    assert_null(strstr(cli_last.err, "measured before")); /* other options */
    assert_non_null(strstr(cli_last.err, "--steep: a pass over n rows takes"));
    static const char *const wrong[] = {"8", "8:", "1:1", "65:2", "8:9", "8:0.5", "8:nan", "x:2", "8:2x", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli("$A bench spec -m m.gguf --spec-types ngram -n 4 -r 1 -p hello --steep '%s'", wrong[i]);
        cli_refused(2, "--steep", "48:1.8");
    }
}

/* 'auto' uses the head beside the model, with a draft model, too, and at any place in the list. */
static void auto_anywhere(void **state)
{
    (void)state;
    aerie_error error = {0};
    char model[256], head[256];
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/m-eagle3.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model, head, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    cli("$A bench spec -m m.gguf -md m.gguf --spec-types draft,auto --spec-ngram off -n 4 -r 1 -p hello");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "draft-eagle3+draft"));
    cli("$A bench spec -m m.gguf --spec-types auto -n 4 -r 1 --temp 0 -p hello --csv");
    assert_non_null(strstr(cli_last.out, ",m-eagle3.gguf\n")); /* found, and named */
    cli("$A bench spec -m m.gguf -md m.gguf --spec-types draft,auto,hier -n 4 -r 1 --temp 0 -p hello --csv");
    assert_non_null(strstr(cli_last.out, ",m.gguf\n"));
    assert_non_null(strstr(cli_last.out, ",m.gguf + m-eagle3.gguf\n")); /* beside the model, for 'auto' and 'hier' */
    cli("cp m.gguf s.gguf && $A bench spec -m m.gguf -md s.gguf --spec-types auto,hier --hier-draft s.gguf --hier-type ngram "
        "-n 4 -r 1 --temp 0 -p hello --csv");
    assert_non_null(strstr(cli_last.out, ",s.gguf + s.gguf + m-eagle3.gguf\n"));
    assert_non_null(strstr(cli_last.out, ",s.gguf + s.gguf\n"));
    cli("$A bench study -m m.gguf -md m.gguf -o both --types Q8_0 --quick -n 4 -p hello");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "Q8_0: measured in"));
    assert_non_null(strstr(cli_last.err, "it was the last type"));
    cli("grep -c '\"chain of 5\",ratio' both/study.csv; grep -c '\"draft model, 6\",ratio' both/study.csv");
    assert_string_equal(cli_last.out, "1\n1\n"); /* the head's ways and the model's */
    cli("rm m-eagle3.gguf");
}

/* A draft model, and a head in two quantizations, beside each other under one T(1). */
static void several_drafters(void **state)
{
    (void)state;
    aerie_error error = {0};
    char model[256], head[256];
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/h.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model, head, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    cli("$A quantize h.gguf h-q8_0.gguf Q8_0 -q");
    assert_int_equal(cli_last.status, 0);
    cli("$A bench spec -m m.gguf -md m.gguf -md h.gguf -md ./h-q8_0.gguf --spec-types draft,draft-eagle3,ngram,hier "
        "--hier-type ngram -n 6 -r 1 --temp 0 -p 'a b a b' --json");
    assert_int_equal(cli_last.status, 0);
    static const char *const rows[][2] = {
        {"draft", "m.gguf"}, {"draft-eagle3", "h.gguf"}, {"draft-eagle3", "h-q8_0.gguf"}, {"ngram", ""}, {"hier", "m.gguf"}};
    json_t *json = json_loads(cli_last.out, 0, NULL), *runs = runs_of(json);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(run, "group")), "all")) continue;
        assert_true(n < 5);
        assert_true(json_is_true(json_object_get(run, "same_bytes")));
        assert_non_null(strstr(json_string_value(json_object_get(run, "drafter")), rows[n][0]));
        assert_string_equal(json_string_value(json_object_get(run, "file")), rows[n][1]);
        n++;
    }
    assert_int_equal(n, 5);
    json_decref(json);
    cli("$A bench spec -m m.gguf -md m.gguf -md h.gguf --spec-types draft,draft-eagle3 -n 4 -r 1 --temp 0 -p 'a b' --csv");
    assert_non_null(strstr(cli_last.out, ",conditional_by_depth,file\n"));
    assert_non_null(strstr(cli_last.out, ",m.gguf\n"));
    assert_non_null(strstr(cli_last.out, ",h.gguf\n"));
    cli("$A bench spec -m m.gguf -md m.gguf -md h.gguf -n 4 -r 1 --temp 0 -p 'a b'");
    assert_non_null(strstr(cli_last.out, "  h.gguf\n"));
    cli("$A bench spec -m m.gguf -md h.gguf -md h-q8_0.gguf --spec-types draft -n 4 -r 1 --temp 0 -p 'a b'");
    cli_refused(2, "-md FILE", "drafter head");
    cli("$A bench spec -m m.gguf -md h.gguf -md missing.gguf -n 4 -r 1 --temp 0 -p 'a b'");
    cli_refused(3, "missing.gguf", "cannot open");
    cli("$A run -m m.gguf -md h.gguf -md m.gguf -p x");
    cli_refused(2, "-md", "twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_its_row),
        cmocka_unit_test(in_turns),
        cmocka_unit_test(passes_are_traced),
        cmocka_unit_test(passes_are_shown),
        cmocka_unit_test(a_failure_says_its_way),
        cmocka_unit_test(prompts_are_chosen),
        cmocka_unit_test(csv_and_table),
        cmocka_unit_test(wrong_prompts_are_answered),
        cmocka_unit_test(own_prompts),
        cmocka_unit_test(a_study),
        cmocka_unit_test(auto_anywhere),
        cmocka_unit_test(several_drafters),
    };
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
