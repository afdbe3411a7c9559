/* test_small_stack.c - the program in a stack of 64 KiB, as on small systems: large arrays belong on the heap. The environment
 * is on the stack, too, so it is empty.
 */
#include "cli.h"

#include "mkhead.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK 1024 /* frames are larger */
#else
#define STACK 64
#endif

static const char *const commands[] = {
    "help run --all",
    "inspect m.gguf",
    "tokenize -m m.gguf -p hello",
    "run -m m.gguf -p hello -n 8 -q",
    "run -m m.gguf -md m.gguf -p hello -n 8 -q",
    "run -m m.gguf -p hello -n 8 -q --kv-type q8_0",
    "run -m mla.gguf -p hello -n 8 -q",
    "run -m m.gguf -p hello -n 8 -q --cpu ref",
    "run -m moe.gguf -p hello -n 8 -q --spec-type moe",
    "run -m m.gguf -p hello -n 8 -q --json-schema '{\"const\": 1}'",
    "run -m m.gguf -f text.txt -n 8 -q --json",
    "perplexity -m m.gguf -f text.txt -c 32",
    "imatrix -m f32.gguf -f text.txt -c 32 -o imatrix.gguf",
    "quantize f32.gguf q.gguf Q4_K_M --imatrix imatrix.gguf",
    "run -m f32.gguf -md head.gguf -p hello -n 8 -q --spec-tree dynamic",
    "run -m f32.gguf -md head.gguf -p hello -n 8 -q --spec-tree off",
    "run -m m.gguf -md m.gguf -p hello -n 8 -q --spec-type hier",
    "run -m m.gguf -p hello -n 8 -q --draft-skip-attn 0 --spec-type moe",
    "bench speed -m m.gguf -p 8 -n 4 -r 1",
    "bench spec -m m.gguf -no-cnv -p hello -n 8 -r 1",
    "bench logits -m m.gguf --ids-file ids",
};

static int setup(void **state)
{
    mk_options o;
    if (cli_setup_model(state) || !mk_shape("tiny-gqa", &o)) return -1;
    o.type = "f32";
    cli_model("f32.gguf", &o);
    if (!mk_shape("tiny-moe", &o)) return -1;
    cli_model("moe.gguf", &o);
    if (!mk_shape("tiny-mla", &o)) return -1;
    cli_model("mla.gguf", &o);
    cli("echo '5 6 7 8 9' > ids; yes 'one two three four' | head -c 3000 > text.txt;"
        "$A imatrix -m f32.gguf -f text.txt -c 32 -o imatrix.gguf -q");
    char model[256], head[256];
    aerie_error error;
    snprintf(model, sizeof model, "%s/f32.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/head.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3"}, model, head, &error) != AERIE_OK) return -1;
    return 0;
}

static void test_commands(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cli("ulimit -s %d && env -i HOME=. \"$A\" %s > /dev/null; echo \"status $?\"", STACK, commands[i]);
        if (strcmp(cli_last.out, "status 0\n")) fail_msg("aerie %s: %s%s", commands[i], cli_last.out, cli_last.err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands)};
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
