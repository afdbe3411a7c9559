/* test_doctor.c - aerie doctor: the page and its JSON, with and without a model, warnings, and what the page must not contain.
 * Figures of the machine are asserted to exist, not their values. */
#include "cli.h"

#include <jansson.h>

#include "mkarch.h"
#include "mkhead.h"
#include "mkmmproj.h"

static json_t *page; /* the last one */

/* Runs doctor, with shell text before it and options after it, and reads its JSON. */
static void examine(const char *before, const char *options, int status)
{
    cli("%s $A doctor --json %s", before, options);
    if (cli_last.status != status) fail_msg("%s doctor %s: %d, %s", before, options, cli_last.status, cli_last.err);
    json_decref(page);
    page = json_loads(cli_last.out, 0, NULL);
    if (!page) fail_msg("%s doctor %s is not JSON: %s", before, options, cli_last.out);
}

static json_t *at(const char *group, const char *key)
{
    json_t *value = json_object_get(json_object_get(page, group), key);
    if (!value) fail_msg("%s.%s is missing", group, key);
    return value;
}

static bool warns(const char *text)
{
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(page, "warnings"), i, warning)
        if (strstr(json_string_value(warning), text)) return true;
    return false;
}

static void on_page(const char *text)
{
    if (!strstr(cli_last.out, text)) fail_msg("'%s' is not in: %s", text, cli_last.out);
}

static void not_on_page(const char *text)
{
    if (strstr(cli_last.out, text) || strstr(cli_last.err, text))
        fail_msg("'%s' is in: %s%s", text, cli_last.out, cli_last.err);
}

static void text(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "aerie 0.", "\n  commit ", "\n  build ", "\n  built in ", "jansson ", "\n  backends ", "\nMachine\n", "\n  system ",
        "\n  CPU ", "\n  CPU level ", " in use, ", "\n  CPUs ", " allowed, ", "\n  load ", "\n  governor ", "\n  memory ",
        " available, ", "\n  swap ", "\n  huge pages ", "\n  bandwidth ", " GB/s read by ", "\nPulled models\n", "\n  folder ",
        "\nWarnings\n",
    };
    cli("$A doctor");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_err, 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) on_page(lines[i]);
    not_on_page("\nModel\n");
    cli("$A doctor -m m.gguf -c 128 -np 2");
    assert_int_equal(cli_last.status, 0);
    on_page("\nModel\n  file          m.gguf\n");
    on_page(" session of 2 sequences ");
    on_page("\n  fits          yes\n");
    on_page("\n  a token reads ");
    on_page("An expected upper bound, not a measurement");
    cli("$A doctor --quick m.gguf"); /* as an argument */
    on_page("file          m.gguf");
    cli("$A doctor --help && $A help && $A --completion-bash && $A --man");
    on_page("aerie doctor -m model.gguf");
    on_page("a report on this machine");
}

static void json(void **state)
{
    (void)state;
    static const char *const keys[] = {"system", "cpu", "governor", "memory_limit_bytes", "swap_bytes", "swap_used_bytes",
                                       "huge_pages", "load", "cpu_quota", "n_cpus", "memory_bytes", "memory_available_bytes"};
    examine("", "", 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) at("machine", keys[i]);
    assert_true(json_integer_value(at("machine", "n_threads")) >= 1);
    assert_true(json_number_value(at("machine", "bandwidth_gbs")) > 0);
    assert_true(json_array_size(at("machine", "cpu_levels")) >= 1);
    assert_string_equal(json_string_value(at("machine", "cpu_level")), json_string_value(at("machine", "best_cpu_level")));
    assert_string_equal(json_string_value(json_array_get(at("aerie", "backends"), 0)), "cpu");
    assert_true(json_is_string(json_object_get(at("aerie", "built_in"), "jansson")));
    assert_true(json_is_null(json_object_get(page, "model")));
    assert_false(warns("AERIE_CPU"));
    assert_false(warns("more than the"));
}

static void model(void **state)
{
    (void)state;
    examine("", "-m m.gguf -c 64", 0);
    assert_string_equal(json_string_value(at("model", "architecture")), "llama");
    assert_int_equal(json_integer_value(at("model", "n_ctx_train")), 2048);
    const json_int_t one = json_integer_value(at("model", "session_bytes"));
    const json_int_t per_token = json_integer_value(at("model", "bytes_per_token"));
    assert_true(json_is_true(at("model", "fits")));
    assert_true(json_is_null(at("model", "error")));
    assert_true(json_integer_value(at("model", "weight_bytes")) > 0);
    assert_true(per_token > 0);
    const double bound = json_number_value(at("machine", "bandwidth_gbs")) * 1e9 / (double)per_token;
    const double said = json_number_value(at("model", "tokens_per_second_at_most"));
    assert_true(said > bound * 0.99 && said < bound * 1.01);
    examine("", "--quick -m m.gguf -c 64 -np 4", 0);
    assert_true(json_integer_value(at("model", "session_bytes")) > one);
    examine("", "--quick -m m.gguf --mmap", 0);
    assert_true(warns("--mmap"));
    examine("", "--quick -m m.gguf -c 16000000 -np 1024", 0); /* more than any machine has */
    assert_true(json_is_false(at("model", "fits")));
    assert_true(warns("the model needs "));
    /* the same shape with experts: a token reads some of them */
    examine("", "--quick -m moe.gguf", 0);
    assert_true(json_integer_value(at("model", "bytes_per_token")) < json_integer_value(at("model", "weight_bytes")) * 9 / 10);
    examine("", "--quick -m f16.gguf", 0);
    assert_true(warns("weights are F16") || warns("weights are f16"));
    assert_true(json_integer_value(at("model", "mapped_bytes")) > json_integer_value(at("model", "bytes_per_token")));
    examine("", "--quick -m f16.gguf --no-mmap", 0);
    assert_true(json_integer_value(at("model", "mapped_bytes")) < json_integer_value(at("model", "weight_bytes")));
}

/* An encoder generates nothing, so there is no rate of tokens. */
static void encoder(void **state)
{
    (void)state;
    examine("", "-m encoder.gguf", 0);
    assert_string_equal(json_string_value(at("model", "architecture")), "bert");
    assert_true(json_is_true(at("model", "fits")));
    assert_true(json_is_null(at("model", "tokens_per_second_at_most")));
    cli("$A doctor --quick -m encoder.gguf");
    on_page("architecture  bert (an encoder), weights mostly F32");
    not_on_page("at most");
}

static void broken_model(void **state)
{
    (void)state;
    static const struct {
        const char *file, *why;
    } cases[] = {{"text.gguf", "not a GGUF file"}, {"cut.gguf", ""}, {"none.gguf", "No such file"}, {"empty.gguf", ""},
                 {".", ""}, {"head.gguf", ""}};
    cli("echo not a model > text.gguf; head -c 3000 m.gguf > cut.gguf; : > empty.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[64];
        snprintf(options, sizeof options, "--quick -m %s", cases[i].file);
        examine("", options, 3);
        assert_non_null(strstr(json_string_value(at("model", "error")), cases[i].why));
        assert_non_null(strstr(cli_last.err, cases[i].why));
        at("machine", "bandwidth_gbs");
        cli("$A doctor %s", options);
        assert_int_equal(cli_last.status, 3);
        on_page("\n  unusable ");
        on_page("\nWarnings\n");
    }
}

static void warnings(void **state)
{
    (void)state;
    examine("AERIE_CPU=ref", "--quick", 0);
    assert_string_equal(json_string_value(at("machine", "cpu_level")), "ref");
    if (strcmp(json_string_value(at("machine", "best_cpu_level")), "ref")) assert_true(warns("AERIE_CPU restricts"));
    examine("", "--quick --cpu ref -m m.gguf", 0);
    assert_string_equal(json_string_value(at("machine", "cpu_level")), "ref");
    examine("AERIE_CPU=avx9000", "--quick -m m.gguf", 0); /* other commands refuse this */
    assert_true(json_is_null(at("machine", "cpu_level")));
    assert_true(warns("'avx9000' of --cpu or AERIE_CPU is unknown"));
    assert_true(json_is_true(at("model", "fits")));
    examine("AERIE_BACKEND=tpu", "--quick -m m.gguf", 0);
    assert_true(warns("AERIE_BACKEND names no device that can be used: backend \"tpu\" is unknown"));
    assert_true(json_is_true(at("model", "fits")));
    examine("AERIE_BACKEND=cpu-strict", "--quick -m m.gguf", 0);
    assert_true(warns("AERIE_BACKEND chooses cpu-strict"));
    examine("AERIE_BACKEND=cpu", "--quick", 0);
    assert_false(warns("AERIE_BACKEND"));
    examine("", "--quick -t 1000", 0);
    assert_true(warns("1000 threads are more than the "));
    assert_int_equal(cli_last.n_err, 0); /* said once */
    examine("AERIE_THREDS=1", "--quick", 0);
    assert_true(warns("AERIE_THREDS in the environment is not read; did you mean AERIE_THREADS?"));
    assert_int_equal(cli_last.n_err, 0);
    examine("", "--quick", 0);
    assert_false(warns("in the environment"));
    assert_false(warns("bandwidth")); /* nobody wanted it */
    assert_true(json_is_null(at("machine", "bandwidth_gbs")));
}

/* Runs doctor with synthetic system files in a mount namespace; false if the machine does not allow that. */
static bool on_machine(const char *memory, const char *load, const char *huge_pages, const char *governor, const char *quota)
{
    static const char script[] =
        "set -e\ncpu=/sys/devices/system/cpu group=/sys/fs/cgroup\n"
        "mount --bind meminfo /proc/meminfo\nmount --bind loadavg /proc/loadavg\n"
        "mount --bind huge /sys/kernel/mm/transparent_hugepage/enabled\n"
        "mount -t tmpfs none $cpu\nmount -t tmpfs none $group\nmkdir -p $cpu/cpu0/cpufreq\n"
        "echo 0-7 > $cpu/online\ncp governor $cpu/cpu0/cpufreq/scaling_governor\ncp quota $group/cpu.max\n"
        "echo max > $group/memory.max\nexec $A doctor --json --quick -m m.gguf\n";
    cli_write("machine.sh", script, sizeof script - 1);
    cli_write("meminfo", memory, strlen(memory));
    cli_write("loadavg", load, strlen(load));
    cli_write("huge", huge_pages, strlen(huge_pages));
    cli_write("governor", governor, strlen(governor));
    cli_write("quota", quota, strlen(quota));
    cli("unshare -rm sh machine.sh || echo none");
    json_decref(page);
    page = json_loads(cli_last.out, 0, NULL);
    return page != NULL;
}

static void sick_machine(void **state)
{
    (void)state;
    static const char *const all[] = {"memory is short: 200.00 MiB of 16.00 GiB", "1.00 GiB lie in swap", "huge pages are off",
                                      "governor is powersave", "a control group grants 0.50 CPUs", "the machine is busy"};
    const size_t n = sizeof all / sizeof *all;
    if (!on_machine("MemTotal: 16777216 kB\nMemAvailable: 204800 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n",
                    "99.00 9.0 9.0 1/2 3\n", "always madvise [never]\n", "powersave\n", "50000 100000\n"))
        skip();
    for (size_t i = 0; i < n; i++)
        if (!warns(all[i])) fail_msg("no warning: %s, in %s", all[i], cli_last.out);
    assert_true(json_number_value(at("machine", "cpu_quota")) == 0.5);
    assert_int_equal(json_integer_value(at("machine", "swap_used_bytes")), 1 << 30);
    if (!on_machine("MemTotal: 16777216 kB\nMemAvailable: 9000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
                    "0.00 0.0 0.0 1/2 3\n", "always [madvise] never\n", "schedutil\n", "max 100000\n"))
        fail_msg("%s%s", cli_last.out, cli_last.err);
    for (size_t i = 0; i < n; i++) assert_false(warns(i ? all[i] : "memory is short"));
    assert_string_equal(json_string_value(at("machine", "huge_pages")), "madvise");
    assert_true(json_is_null(at("machine", "cpu_quota")));
    /* less memory than the model needs */
    assert_true(on_machine("MemTotal: 1024 kB\nMemAvailable: 64 kB\n", "0.00\n", "[always]\n", "performance\n", "max\n"));
    assert_true(json_is_false(at("model", "fits")));
    assert_true(json_is_null(at("machine", "swap_bytes")));
    /* nothing can be read */
    assert_true(on_machine("", "", "", "", ""));
    assert_true(json_is_null(at("machine", "memory_bytes")));
    assert_true(json_is_null(at("machine", "huge_pages")));
    assert_true(json_is_null(at("machine", "governor")));
    assert_true(json_is_null(at("model", "fits")));
}

static void keeps_secrets(void **state)
{
    (void)state;
    cli("mkdir -p me/models home/otto && cp m.gguf me/models && cp m.gguf home/otto && echo x > home/otto/bad.gguf");
    cli("AERIE_API_KEY=sesame HF_TOKEN=sesame AERIE_HF_TOKEN=sesame AERIE_TOKN=sesame HOME=$PWD/me $A doctor --quick "
        "-m $PWD/me/models/m.gguf");
    assert_int_equal(cli_last.status, 0);
    on_page("file          ~/models/m.gguf\n");
    on_page("folder        ~/.cache/aerie/models\n");
    not_on_page("sesame");
    not_on_page("/me/");
    cli("HOME=$PWD/me $A doctor --quick -m $PWD/me/models/none.gguf"); /* in the reason too */
    assert_int_equal(cli_last.status, 3);
    not_on_page("/me/");
    cli("HOME=$PWD/me $A doctor --quick -m $PWD/home/otto/m.gguf"); /* somebody else's */
    on_page("/home/USER/m.gguf\n");
    not_on_page("otto");
    cli("HOME=$PWD/me USER=models $A doctor --quick -m me/models/m.gguf --cache-dir me/models/x");
    on_page("file          me/USER/m.gguf\n");
    on_page("folder        me/USER/x\n");
    cli("HOME=$PWD/me $A doctor --quick -m $PWD/meadow.gguf"); /* a path that begins like the home folder */
    on_page("/meadow.gguf\n");
}

static void without_a_home(void **state)
{
    (void)state;
    examine("env -u HOME -u XDG_CACHE_HOME", "--quick -m m.gguf", 0);
    assert_true(json_is_null(at("pulled", "folder")));
    assert_true(json_is_null(at("pulled", "n_models")));
    assert_true(json_is_true(at("model", "fits")));
    assert_int_equal(cli_last.n_err, 0);
    cli("env -u HOME -u XDG_CACHE_HOME $A doctor --quick");
    assert_int_equal(cli_last.status, 0);
    on_page("folder        none: neither --cache-dir nor HOME names one\n");
    examine("env -i HOME=/nowhere/at/all", "--quick", 0);
    assert_int_equal(json_integer_value(at("pulled", "n_models")), 0);
    assert_true(json_integer_value(at("pulled", "free_bytes")) > 0); /* of the root's file system */
}

static void pulled_models(void **state)
{
    (void)state;
    cli("mkdir -p c/ollama/library/tiny && printf 12345 > c/ollama/library/tiny/a.gguf && "
        "printf '{\"source\": \"ollama:tiny:latest\", \"files\": [{\"path\": \"a.gguf\", \"bytes\": 5, \"sha256\": \"%%064d\", "
        "\"etag\": \"\"}]}' 0 > c/ollama/library/tiny/.pulled-0.json && $A list --cache-dir c");
    assert_non_null(strstr(cli_last.out, "ollama:tiny:latest"));
    examine("", "--quick --cache-dir c", 0);
    assert_int_equal(json_integer_value(at("pulled", "n_models")), 1);
    assert_int_equal(json_integer_value(at("pulled", "bytes")), 5);
    assert_string_equal(json_string_value(at("pulled", "folder")), "c");
}

/* The part that reads images: given, beside the model, of another kind. */
static void images(void **state)
{
    (void)state;
    examine("", "--quick -m m.gguf", 0);
    assert_true(json_is_null(at("model", "mmproj")));
    examine("", "--quick -m m.gguf --mmproj eye.gguf", 0);
    const json_t *found = at("model", "mmproj");
    const json_int_t weights = json_integer_value(json_object_get(found, "weight_bytes"));
    const json_int_t room = json_integer_value(json_object_get(found, "picture_bytes"));
    assert_string_equal(json_string_value(json_object_get(found, "file")), "eye.gguf");
    assert_true(weights > 10000 && room > weights);
    examine("", "--quick -m m.gguf --mmproj eye.gguf --image-max-tokens 100", 0);
    assert_true(json_integer_value(json_object_get(at("model", "mmproj"), "picture_bytes")) < room / 4);
    cli("$A doctor --quick -m m.gguf --mmproj eye.gguf");
    on_page("\n  images        eye.gguf: weights ");
    examine("", "--quick -m m.gguf --mmproj m.gguf", 0);
    assert_true(warns("images cannot be read: m.gguf"));
    examine("mkdir -p see && cp m.gguf see/ && cp eye.gguf see/mmproj-m.gguf &&", "--quick -m see/m.gguf", 0);
    assert_int_equal(json_integer_value(json_object_get(at("model", "mmproj"), "weight_bytes")), weights);
    examine("", "--quick -m see/m.gguf --no-mmproj", 0);
    assert_true(json_is_null(at("model", "mmproj")));
    cli("rm -r see; $A inspect eye.gguf");
    on_page(" of weights, and ");
}

static int setup(void **state)
{
    mk_options options;
    if (cli_setup_model(state)) return -1;
    if (!mk_shape("tiny", &options)) return -1;
    options.type = "f16";
    cli_model("f16.gguf", &options);
    if (!mk_shape("tiny-moe", &options)) return -1;
    cli_model("moe.gguf", &options);
    char encoder_path[256], model_path[256], head[256], eye[256];
    aerie_error error = {0};
    snprintf(encoder_path, sizeof encoder_path, "%s/encoder.gguf", cli_folder);
    snprintf(model_path, sizeof model_path, "%s/m.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/head.gguf", cli_folder);
    if (mkarch_write(mkarch_find("bert"), false, encoder_path, &error) != AERIE_OK) return -1;
    snprintf(eye, sizeof eye, "%s/eye.gguf", cli_folder);
    if (mkmmproj_write("qwen3vl", 64, eye, &error) != AERIE_OK) return -1;
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model_path, head, &error) != AERIE_OK) return -1;
    return 0;
}

static int teardown(void **state)
{
    json_decref(page);
    return cli_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),           cmocka_unit_test(json),          cmocka_unit_test(model),
        cmocka_unit_test(broken_model),   cmocka_unit_test(warnings),      cmocka_unit_test(keeps_secrets),
        cmocka_unit_test(without_a_home), cmocka_unit_test(pulled_models),
        cmocka_unit_test(encoder),        cmocka_unit_test(sick_machine),  cmocka_unit_test(images),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
