/* test_option_values.c - values of options and of the environment: llama.cpp's names of drafters and lists of them, its
 * variables, misspelt variables, options without effect, files given twice, more threads than CPUs. */
#include "cli.h"

#include "mkhead.h"

#define RUN "$A run -m m.gguf -no-cnv -p hello -n 4 --temp 0 "

static void says(const char *text)
{
    if (cli_last.status || !strstr(cli_last.err, text)) fail_msg("'%s' is not in %d: %s", text, cli_last.status, cli_last.err);
}

static void says_not(const char *text)
{
    if (cli_last.status || strstr(cli_last.err, text)) fail_msg("'%s' is in %d: %s", text, cli_last.status, cli_last.err);
}

static size_t n_times(const char *text)
{
    size_t n = 0;
    for (const char *at = cli_last.err; (at = strstr(at, text)); at++) n++;
    return n;
}

static void names_of_drafters(void **state)
{
    (void)state;
    static const struct {
        const char *given, *line; /* what runs */
    } cases[] = {
        {"--spec-type draft-simple -md m.gguf", "speculation: draft+ngram"},
        {"--spec-type draft-simple,ngram-mod -md m.gguf", "speculation: draft+ngram"},
        {"--spec-type draft-simple,ngram-mod --spec-ngram off -md m.gguf", "speculation: draft,"},
        {"--spec-type ngram-simple", "speculation: ngram"},
        {"--spec-type ngram-map-k", "speculation: ngram"},
        {"--spec-type ngram-map-k4v", "speculation: ngram"},
        {"--spec-type ngram-mod,ngram-cache", "speculation: ngram"},
        {"--spec-type none,ngram-mod", "speculation: none"},
        {"--spec-type ngram-mod,none", "speculation: none"},
        {"--spec-type draft-eagle3", "speculation: draft-eagle3+ngram"}, /* m-eagle3.gguf lies beside it */
        {"--spec-type draft-eagle3,ngram-mod", "speculation: draft-eagle3+ngram"},
        {"--spec-type draft-eagle3,draft-mtp", "speculation: draft-eagle3,"}, /* auto, without n-grams */
        {"--spec-type draft-eagle3,draft-simple -md m.gguf", "speculation: draft"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli(RUN "--stats %s", cases[i].given);
        if (cli_last.status || !strstr(cli_last.err, cases[i].line)) fail_msg("%s: %s", cases[i].given, cli_last.err);
    }
    cli("$A bench spec -m m.gguf -no-cnv -p hello -n 4 -r 1 --spec-types ngram-mod,draft-eagle3 --json");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "draft-eagle3"));
    static const char *const refused[][2] = {
        {"--spec-type draft-dflash", "MODEL-dflash.gguf"},
        {"--spec-type ngram-x", "found 'ngram-x'"}, {"--spec-type ngram,,draft", "found ''"}, {"--spec-type ,", "found ''"},
        {"--spec-type draft-simple", "needs a draft model: -md FILE"},
        {"--spec-type draft-medusa", "needs a drafter head: -md FILE"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cli(RUN "%s", refused[i][0]);
        cli_refused(2, refused[i][1], "--spec-type");
    }
    cli("cp m.gguf alone.gguf; $A run -m alone.gguf -no-cnv -p x --spec-type draft-eagle3");
    cli_refused(2, "needs a drafter head", "there is none beside alone.gguf");
}

static void environment_of_llama(void **state)
{
    (void)state;
    static const struct {
        const char *given, *line;
    } cases[] = {
        {"LLAMA_ARG_THREADS=1 " RUN "-v", "threads: 1 (requested)"},
        {"LLAMA_ARG_THREADS=-1 " RUN "-v", "aerie: threads: "},
        {"LLAMA_ARG_SPEC_TYPE=ngram-mod " RUN "--stats", "speculation: ngram"},
        {"LLAMA_ARG_SPEC_TYPE=none AERIE_SPEC_TYPE=ngram " RUN "--stats", "speculation: ngram"},
        {"LLAMA_ARG_SPEC_TYPE=none " RUN "--stats --spec-type ngram", "speculation: ngram"},
        {"LLAMA_ARG_SPEC_DRAFT_MODEL=m.gguf " RUN "--stats", "speculation: "},
        {"LLAMA_ARG_MODEL=m.gguf $A run -no-cnv -p hello -n 4 --stats", "generated "},
        {"LLAMA_ARG_N_PREDICT=7 $A run -m m.gguf -no-cnv -p hello --ignore-eos --stats", "generated 7 tokens"},
        {"LLAMA_ARG_TEMPERATURE=0 LLAMA_ARG_TOP_K=3 " RUN "--stats", "generated "},
        {"AERIE_TEMPERATURE=0 AERIE_N_PREDICT=5 $A run -m m.gguf -no-cnv -p hello --ignore-eos --stats", "generated 5 tokens"},
        {"LLAMA_ARG_BATCH=16 LLAMA_ARG_UBATCH=16 LLAMA_ARG_CTX_SIZE=64 LLAMA_ARG_N_GPU_LAYERS=99 LLAMA_ARG_TOOLS=all " RUN
         "--stats", "generated "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("%s", cases[i].given);
        if (cli_last.status || !strstr(cli_last.err, cases[i].line)) fail_msg("%s: %s", cases[i].given, cli_last.err);
    }
    cli("LLAMA_ARG_THREADS=many " RUN);
    cli_refused(2, "LLAMA_ARG_THREADS takes", "found 'many'");
    cli("LLAMA_ARG_UBATCH=0 " RUN);
    cli_refused(2, "LLAMA_ARG_UBATCH takes", "");
    cli("LLAMA_ARG_OFFLINE=perhaps " RUN);
    cli_refused(2, "LLAMA_ARG_OFFLINE (environment) takes on or off", "");
}

static void misspelt_environment(void **state)
{
    (void)state;
    static const struct {
        const char *given, *line;
    } cases[] = {
        {"AERIE_THREDS=1", "AERIE_THREDS in the environment is not read; did you mean AERIE_THREADS?"},
        {"AERIE_TMEP=1", "did you mean AERIE_TEMP?"},
        {"AERIE_CTX_SZIE=64", "did you mean AERIE_CTX_SIZE?"},
        {"AERIE_NUM_THREADS=64", "AERIE_NUM_THREADS in the environment is not read: use -t N"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("%s " RUN "-q", cases[i].given); /* a warning */
        says(cases[i].line);
        assert_int_equal(n_times("in the environment"), 1);
    }
    cli("AERIE_CPU=ref AERIE_BACKEND=cpu AERIE_TEST_EVERY=1 AERIE_HOME_OF_MINE=x AERIE_THREDS= AERIE_PORT=1 AERIE_KEYS=1 " RUN);
    says_not("in the environment");
}

static void options_without_effect(void **state)
{
    (void)state;
    cli(RUN "-mg 1");
    says("aerie: -mg has no effect here: layers lie where --device, -ngl and --tensor-split say\n");
    cli(RUN "-mg 1 -fa on --split-mode=row");
    says("aerie: -mg, -fa and --split-mode have no effect here; -v says why\n");
    assert_int_equal(n_times("no effect"), 1);
    cli(RUN "-mg 1 -fa");
    says("aerie: -mg and -fa have no effect here; -v says why\n");
    cli(RUN "-mg 1 -fa on -v");
    says("aerie: -mg has no effect here: layers lie where --device, -ngl and --tensor-split say\n");
    says("aerie: -fa has no effect here: attention is computed in one way only\n");
    cli(RUN "-mg 1 -fa -q");
    says_not("no effect");
}

static void devices(void **state)
{
    (void)state;
    cli(RUN "-ngl 99");
    says("aerie: -ngl has no effect without --device: the model runs on the CPU\n");
    cli(RUN "-ngl 99 -q");
    says_not("no effect");
    cli(RUN "-ot exps=CPU,ffn=cpu");
    says("aerie: -ot has no effect without --device: the model runs on the CPU\n");
    static const char *const placements[] = {"exps", "exps=", "=cpu", "exps=CPU,", ",exps=CPU", "''", "a=b,c"};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
        cli(RUN "-ot %s", placements[i]);
        assert_int_equal(cli_last.status, 2);
        assert_non_null(strstr(cli_last.err, "--override-tensor takes PATTERN=DEVICE"));
    }
    cli(RUN "-ot exps=cuda7");
    assert_int_equal(cli_last.status, 2);
    assert_non_null(strstr(cli_last.err, "names a device that the model is not on; it is on the CPU"));
    static const char *const same[] = {"--device cpu", "-dev none", "-dev CPU -ngl all", "--device cuda999 -ngl 0"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        cli(RUN "%s", same[i]);
        says_not("aerie:");
    }
    static const char *const wrong[][2] = {
        {"--device tpu", "backend \"tpu\" is unknown; there are cpu, cpu-strict"},
        {"--device cuda999", ""}, /* no such device, no driver, or a build without one */
        {"--device ''", "--device needs the name of a device; --list-devices lists them"},
        {"--device cpu,tpu", "backend \"tpu\" is unknown; there are cpu, cpu-strict"},
        {"--device cpu,", "--device has an empty name in 'cpu,'; --list-devices lists devices"},
        {"--device ,cpu", "--device has an empty name in ',cpu'"},
        {"--device cpu -ts 1,x", "--tensor-split takes numbers from 0 on with commas between, such as 3,1; found '1,x'"},
        {"--device cpu -ts 1,-1", "found '1,-1'"},
        {"--device cpu -ts ''", "found ''"},
        {"--device cpu -ts 1,1,1,1,1,1,1,1,1", "--tensor-split has more than 8 numbers"},
        {"-ncmoe -1", "-ncmoe takes a whole number from 0 to 100000; found '-1'"},
        {"--device a-device-whose-name-is-long", "there is no device 'a-device-whose-name-is-long'"},
        {"-ngl some", "-ngl takes a whole number, auto or all; found 'some'"},
        {"-ngl -2", "-ngl takes a whole number, auto or all; found '-2'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli(RUN "%s", wrong[i][0]);
        cli_refused(2, wrong[i][1], "");
    }
    static const char *const split[] = {"-dev cpu,cpu-strict", "-dev cpu-strict,cpu -ts 3,1", "-dev cpu-strict -ngl 1",
                                        "-dev cpu-strict -ngl 2 -ncffn 1", "-dev cpu-strict -ncffn 9 -cmoe"};
    cli(RUN);
    char *whole = strdup(cli_last.out);
    assert_non_null(whole);
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        cli(RUN "-v %s", split[i]);
        assert_int_equal(cli_last.status, 0);
        assert_string_equal(cli_last.out, whole);
        says("devices: ");
    }
    free(whole);
    cli(RUN "-dev cpu,cpu-strict -ts 1,2,3");
    cli_refused(2, "a split into 3 shares (--tensor-split), but 2 devices (--device)", "");
    cli(RUN "-dev cpu,cpu");
    cli_refused(2, "device cpu is named twice", "");
    cli(RUN "-dev cpu,cpu-strict -ngl 1");
    cli_refused(2, "the CPU is among the devices \"cpu,cpu-strict\"", "");
    cli("$A run --list-devices");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "cpu    "));
    cli("$A --list-devices");
    assert_non_null(strstr(cli_last.out, " cores, kernels "));
}

static void given_twice(void **state)
{
    (void)state;
    cli(RUN "-md m.gguf -md m-eagle3.gguf");
    cli_refused(2, "-md is given twice, with 'm.gguf' and 'm-eagle3.gguf'", "--hier-draft FILE");
    cli(RUN "--model-draft m.gguf -md=x");
    assert_int_equal(cli_last.status, 2);
    cli(RUN "-md m.gguf -md m.gguf");
    assert_int_equal(cli_last.status, 0);
    cli(RUN "-m alone.gguf");
    says("warning: -m is given twice; the last one, 'alone.gguf', is used");
}

static void threads(void **state)
{
    (void)state;
    cli(RUN "-t -1");
    assert_int_equal(cli_last.status, 0);
    says_not("threads");
    cli(RUN "-t 1000");
    says("warning: -t 1000 is more threads than the ");
    cli(RUN "-t 1000 -q");
    says("warning: -t 1000");
    cli(RUN "-t 1 -v");
    says_not("warning: -t");
    cli(RUN "-t -2");
    cli_refused(2, "-t takes a whole number from 0 to 1024, or -1; found '-2'", "");
    cli("$A help run --all");
    assert_non_null(strstr(cli_last.out, "-t, --threads N"));
}

static int setup(void **state)
{
    char model[256], head[256];
    aerie_error error = {0};
    if (cli_setup_model(state)) return -1;
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/m-eagle3.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model, head, &error) != AERIE_OK) return -1;
    cli("cp m.gguf alone.gguf");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_drafters),
        cmocka_unit_test(environment_of_llama),
        cmocka_unit_test(misspelt_environment),
        cmocka_unit_test(options_without_effect),
        cmocka_unit_test(devices),
        cmocka_unit_test(given_twice),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
