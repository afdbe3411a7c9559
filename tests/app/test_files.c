/* test_files.c - how the program treats the files that it writes and reads, from outside: it never overwrites a file that it
 * reads, gives a file its final name after all checks, keeps modes and symbolic links, leaves nothing after a signal; pipes,
 * devices and endless files get a sentence instead of a wait; incomplete JSON is not printed. */
#include "convert_rig.inc"
#include "mkmmproj.h"
#include <signal.h>

static void fails(int status, const char *text)
{
    if (cli_last.status != status || !strstr(cli_last.err, text))
        fail_msg("expected status %d and '%s'; found %d and: %s", status, text, cli_last.status, cli_last.err);
}

static void same_sum(void)
{
    cli("md5sum -c sums --quiet");
    if (cli_last.status) fail_msg("%s%s", cli_last.out, cli_last.err);
}

static int setup(void **state)
{
    static const spec head = {TINY, MID};
    mk_options options;
    if (cli_setup_model(state) || !mk_shape("tiny-gqa", &options)) return -1;
    options.type = "f32";
    cli_model("f32.gguf", &options);
    write_head("h", &head, CONFIG(USUAL_TAPS));
    cli("ls h; md5sum h/* f32.gguf m.gguf > sums");
    return 0;
}

/* The output is the input by its own path, a symbolic link, a link to a link, a hard link. */
static void convert_spares_what_it_reads(void **state)
{
    (void)state;
    static const char *const files[] = {"h/model.safetensors", "h/config.json"};
    for (size_t i = 0; i < 2; i++) {
        cli("ln -sf %s soft && ln -sf soft softer && ln -f %s hard", files[i], files[i]);
        const char *const outs[] = {files[i], "soft", "softer", "hard"};
        for (size_t k = 0; k < 4; k++) {
            cli("$A convert h -o %s", outs[k]);
            cli_refused(2, "is a file that is being read", files[i]);
            same_sum();
        }
        cli("rm -f soft softer hard");
    }
    cli("ln -f m.gguf hard && $A convert h -o hard --target m.gguf");
    assert_int_not_equal(cli_last.status, 0);
    same_sum();
    cli("rm hard; $A convert h -o h/head.gguf && rm h/head.gguf"); /* a file beside them is allowed */
    assert_int_equal(cli_last.status, 0);
}

static void quantize_and_train_data_spare_what_they_read(void **state)
{
    (void)state;
    cli("ln -sf f32.gguf soft && ln -f f32.gguf hard");
    cli("$A quantize f32.gguf soft Q8_0");
    cli_refused(2, "soft is the file that is being read", "");
    cli("$A quantize f32.gguf hard Q8_0");
    cli_refused(2, "hard is the file that is being read", "");
    cli("$A quantize soft f32.gguf Q8_0");
    cli_refused(2, "f32.gguf is the file that is being read", "");
    cli("rm soft hard; printf '{\"id\": \"a\", \"text\": \"hello\"}\\n' > p.jsonl; ln -f p.jsonl hard; ln -sf p.jsonl soft; "
        "md5sum h/* f32.gguf m.gguf p.jsonl > sums");
    static const char *const lines[] = {"answers p.jsonl -o p.jsonl", "answers p.jsonl -o hard", "answers p.jsonl -o soft",
                                        "answers p.jsonl -o m.gguf",  "answers p.jsonl -o a.jsonl --features p.jsonl",
                                        "features p.jsonl -o hard"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("$A train-data %s -m m.gguf -n 4 -q --taps 0,1", lines[i]);
        cli_refused(2, "is a file that is being read", "");
        same_sum();
    }
    cli("rm -f soft hard a.jsonl");
}

static void what_is_replaced_keeps_mode_and_links(void **state)
{
    (void)state;
    static const char *const commands[] = {"$A quantize f32.gguf o.gguf Q8_0", "$A convert h -o o.gguf"};
    for (size_t i = 0; i < 2; i++) {
        cli("rm -f o.gguf; printf old > o.gguf; chmod 640 o.gguf; %s > /dev/null && stat -c %%a o.gguf", commands[i]);
        assert_string_equal(cli_last.out, "640\n");
        cli("rm -rf o.gguf d; mkdir d; printf old > d/real.gguf; ln -s d/real.gguf o.gguf; %s > /dev/null && test -L o.gguf && "
            "head -c 4 d/real.gguf && ls d | wc -l", commands[i]);
        assert_string_equal(cli_last.out, "GGUF1\n");
        cli("rm -rf o.gguf d; mkdir d; ln -s d/new.gguf o.gguf; %s > /dev/null && test -L o.gguf && head -c 4 d/new.gguf",
            commands[i]); /* to a file that is not there yet */
        assert_string_equal(cli_last.out, "GGUF");
        cli("rm -f o.gguf; ln -s o.gguf o.gguf; %s > /dev/null", commands[i]);
        assert_int_equal(cli_last.status, 3);
        cli("rm -rf o.gguf d");
    }
}

/* The signal comes during the work. A round in which the work ends before it is repeated. The program leaves SIGHUP ignored
 * where it finds it so (nohup), and a shell cannot undo that for its children. */
static void signals_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int status;
    } signals[] = {{"TERM", 143}, {"HUP", 129}, {"INT", 130}};
    mk_options options;
    void (*const before)(int) = signal(SIGHUP, SIG_DFL);
    assert_true(mk_shape("tiny-gqa", &options));
    options.type = "f16", options.n_embd = 512, options.n_ff = 4096, options.n_layers = 4, options.n_vocab = 2000;
    cli_model("large.gguf", &options);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        for (int round = 0; round < 100; round++) {
            cli("$A quantize large.gguf o.gguf Q3_K_M -t 1 -q > /dev/null & p=$!; "
                "while ! ls o.gguf.*.part > /dev/null 2>&1 && kill -0 $p; do :; done; kill -%s $p; wait $p; echo $? > status; "
                "ls | grep part; cat status", signals[i].name);
            if (strcmp(cli_last.out, "0\n")) break;
        }
        char expected[8];
        snprintf(expected, sizeof expected, "%d\n", signals[i].status);
        assert_string_equal(cli_last.out, expected);
    }
    signal(SIGHUP, before);
    cli("rm -f large.gguf o.gguf");
}

/* A limit on the size of files acts like a full disk: a sentence, and no file is left. */
static void files_that_may_not_grow(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *line;
    } cases[] = {
        {1, "quantize f32.gguf new Q8_0"},
        {3, "convert h -o new"},
        {1, "run -m m.gguf -p hi -n 2 -q --prompt-cache new > /dev/null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("(ulimit -f 16; $A %s)", cases[i].line); /* 8 or 16 KiB: a GGUF file's header fits */
        fails(cases[i].status, "File too large");
        cli("ls | grep new");
        assert_int_equal(cli_last.n_out, 0);
    }
}

/* A pipe without a writer must not be waited for. */
static void pipes_and_devices_are_no_models(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *line;
    } cases[] = {
        {3, "run -m pipe -no-cnv -p hello"},          {3, "run -m m.gguf -md pipe -no-cnv -p hello"},
        {3, "run -m /dev/zero -no-cnv -p hello"},     {3, "inspect pipe"},
        {3, "convert pipe -o o.gguf"},                {3, "convert pipe.bin -o o.gguf"},
        {3, "convert h --config pipe -o o.gguf"},     {3, "convert h --target pipe -o o.gguf"},
        {3, "quantize pipe o.gguf Q8_0"},             {3, "quantize f32.gguf pipe Q8_0"},
        {2, "train-data turns -m m.gguf -o pipe -q"}, {2, "train-data turns -m m.gguf -o /dev/null -q"},
    };
    cli("rm -f pipe pipe.bin; mkfifo pipe pipe.bin");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("timeout 600 $A %s", cases[i].line);
        if (cli_last.status != cases[i].status || !cli_last.n_err)
            fail_msg("%s: status %d: %s", cases[i].line, cli_last.status, cli_last.err);
    }
    cli("rm pipe pipe.bin; ls | grep part");
    assert_int_equal(cli_last.n_out, 0);
}

/* An output that cannot be written is reported before the work, even before a missing model. */
static void outputs_are_tried_first(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "run -m none -p x --prompt-cache no/x",      "run -m none -p x --prompt-cache new/x",
        "run -m none -p x --prompt-cache new/",      "imatrix -m none -p x -o no/x",
        "perplexity -m none -p x --kl-divergence-base no/x", "train-data turns -m none -o no/x",
        "train-data answers p -m none -o no/x",      "train-data answers p -m none -o y --features no/x",
        "serve -m none --slot-save-path no",         "serve -m none --slot-save-path m.gguf",
        "serve -m none --cache-disk no/x",           "serve -m none --cache-disk m.gguf",
    };
    cli("rm -rf no; mkdir -p dir; printf x > p");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("timeout 600 $A %s", lines[i]);
        if (cli_last.status != 1 || cli_last.n_out || strstr(cli_last.err, "none"))
            fail_msg("%s: status %d: %s", lines[i], cli_last.status, cli_last.err);
    }
    cli("printf old > cache; ln -sf cache soft; ls > before; $A run -m none -p x --prompt-cache soft; "
        "$A run -m none -p x --prompt-cache-ro --prompt-cache no/x; ls | diff before - && cat cache");
    assert_string_equal(cli_last.out, "old"); /* and the trial leaves no file */
    cli("rm -f cache soft before p y");
}

/* If the reader of a pipe exits, the program ends by SIGPIPE; if the caller ignores that signal, it reports the failed
 * write. */
static void closed_pipes(void **state)
{
    (void)state;
    static const char *const lines[] = {"help", "help run --all", "--man", "run -m m.gguf -p hi -n 100000 --ignore-eos -q",
                                        "inspect m.gguf --json", "tokenize -m m.gguf -p hi", "--version"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("rm -f q; mkfifo q; exec 3<>q 4>q; exec 3<&-; timeout 600 $A %s >&4; echo $?", lines[i]);
        if (strcmp(cli_last.out, "141\n") || cli_last.n_err) fail_msg("%s: %s%s", lines[i], cli_last.out, cli_last.err);
        cli("rm -f q; mkfifo q; exec 3<>q 4>q; exec 3<&-; trap '' PIPE; timeout 600 $A %s >&4", lines[i]);
        fails(1, "cannot write to standard output: Broken pipe");
    }
    cli("rm q");
}

/* An answer cannot command a terminal, nor can JSON on one; into a file it goes as it is. */
static void terminals_are_not_commanded(void **state)
{
    (void)state;
    static const char answer[] = "q\033]0;x\007\r\302\233" "2J\177\tz\n";
    static const char grammar[] = "printf 'root ::= \"q\\\\x1b]0;x\\\\x07\\\\x0d\\\\u009b2J\\\\x7f\\\\tz\"' > esc";
    static const char run[] = "run -m m.gguf -p hi -n 99 -q -no-cnv --grammar-file esc";
    cli("%s && $A %s", grammar, run);
    assert_int_equal(cli_last.n_out, sizeof answer - 1);
    assert_memory_equal(cli_last.out, answer, sizeof answer - 1);
    cli("AERIE_QUIET=1 script -qec \"$A %s\" /dev/null", run);
    if (!strstr(cli_last.out, "q\\x1b]0;x\\x07\\u{009b}2J\\x7f\tz\r\n")) fail_msg("%s", cli_last.out);
    assert_null(strchr(cli_last.out, '\007'));
    cli("script -qec \"$A %s --color-drafts\" /dev/null", run);
    assert_null(strchr(cli_last.out, '\007'));
    cli("$A run -m m.gguf -p hi -n 99 -q -no-cnv --grammar-file esc --json > esc.json; grep -c u009b2J.u007f esc.json");
    assert_string_equal(cli_last.out, "1\n");
    cli("$A tokenize -m m.gguf -p 'q\\x1b[2J' > ids; script -qec \"$A tokenize -m m.gguf --decode -f ids\" /dev/null");
    if (!strstr(cli_last.out, "q\\x1b[2J")) fail_msg("%s", cli_last.out);
    cli("rm esc esc.json ids");
}

static void endless_texts_end(void **state)
{
    (void)state;
    static const char *const lines[] = {"run -m m.gguf -no-cnv -f /dev/zero", "run -m m.gguf -no-cnv --prompts-file /dev/zero",
                                        "run -m m.gguf -no-cnv < /dev/zero",
                                        "run -m m.gguf -no-cnv -p x --grammar-file /dev/zero"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("(ulimit -v 1500000; timeout 600 $A %s)", lines[i]);
        fails(3, "is longer than 64.00 MiB, the most that is read");
    }
    cli("printf hello > p && $A run -m m.gguf -no-cnv -f p -n 2 -q"); /* other pipes are read as before */
    assert_int_equal(cli_last.status, 0);
    cli("mkfifo q; printf hello > q & timeout 600 $A run -m m.gguf -no-cnv -f q -n 2 -q; s=$?; rm q; exit $s");
    assert_int_equal(cli_last.status, 0);
}

static void the_command_line_wins(void **state)
{
    (void)state;
    static const char *const lines[] = {"AERIE_MMAP=1 $A run --no-mmap", "AERIE_NO_MMAP=1 $A run --mmap",
                                        "AERIE_VERBOSE=1 $A run -q", "AERIE_QUIET=1 $A run -v"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cli("%s -m m.gguf -no-cnv -p hello -n 2", lines[i]);
        if (cli_last.status) fail_msg("%s: status %d: %s", lines[i], cli_last.status, cli_last.err);
    }
    cli("AERIE_MMAP=1 AERIE_NO_MMAP=1 $A run -m m.gguf -no-cnv -p hello -n 2");
    assert_int_equal(cli_last.status, 2);
    cli("$A run --mmap --no-mmap -m m.gguf -no-cnv -p hello -n 2");
    assert_int_equal(cli_last.status, 2);
}

static void seeds_are_exact(void **state)
{
    (void)state;
    static const char *const seeds[] = {"9223372036854775807", "9223372036854775808", "18446744073709551615", "0"};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char expected[64];
        cli("$A run -m m.gguf -no-cnv -p hello -n 2 -q --json -s %s", seeds[i]);
        assert_int_equal(cli_last.status, 0);
        snprintf(expected, sizeof expected, "\"seed\": %s\n", seeds[i]);
        char *at = strstr(cli_last.out, "\"seed\": ");
        assert_non_null(at);
        const char after = at[strlen(expected) - 1];
        if (strncmp(at, expected, strlen(expected) - 1) || (after != ',' && after != '\n'))
            fail_msg("seed %s: %.60s", seeds[i], at);
    }
}

/* What `turns` writes, `answers` reads: also when the model put a NUL into a turn. */
static void a_nul_in_a_turn(void **state)
{
    (void)state;
    cli("rm -f t.jsonl; $A train-data turns -m m.gguf -o t.jsonl --n-turns 12 -n 40 --temp 3 --top-k 0 --top-p 1 --min-p 0 "
        "-s 1 -q && $A train-data answers t.jsonl -m m.gguf -o t2.jsonl -n 3 -q && wc -l < t2.jsonl && ! grep u0000 t.jsonl");
    if (cli_last.status || atoi(cli_last.out) != 12) fail_msg("status %d: %s%s", cli_last.status, cli_last.out, cli_last.err);
}

static void vision_encoders_are_inspected(void **state)
{
    (void)state;
    char path[256];
    aerie_error error = {0};
    snprintf(path, sizeof path, "%s/eye.gguf", cli_folder);
    if (mkmmproj_write("qwen3vl", 64, path, &error) != AERIE_OK) fail_msg("%s", error.text);
    cli("$A inspect eye.gguf");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "qwen3vl_merger, 3 blocks of width 48, patches of 4 pixels, rows of width 64 (and for "
                                         "2 layers of the text model)"));
    assert_non_null(strstr(cli_last.out, "300 x 200 pixels take 950 tokens in 1 view"));
    cli("LC_ALL=C sed s/qwen3vl_merger/qwen9vl_merger/ eye.gguf > odd.gguf; $A inspect odd.gguf; rm eye.gguf odd.gguf");
    assert_non_null(strstr(cli_last.out, "not read by this program: "));
    assert_non_null(strstr(cli_last.out, "qwen9vl_merger"));
}

/* Every n-th addition to a JSON value fails, as without memory: nothing incomplete is printed. */
static void json_is_whole_or_absent(void **state)
{
    (void)state;
#ifdef JSON_FAILS
    static const char *const lines[] = {"run -m m.gguf -no-cnv -p hello -n 3 -q --json --logprobs 2",
                                        "run -m m.gguf -no-cnv -p a -p b -n 3 -q --json",
                                        "inspect m.gguf --json --tensors --keys",
                                        "bench speed -m m.gguf -p 4 -n 4 -r 1 --json", "convert h -o o.gguf --json -q"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        for (int n = 1; n < 12; n++) {
            cli("JSON_FAILS_AT=%d LD_PRELOAD=%s $A %s", n, JSON_FAILS, lines[i]);
            if (cli_last.status == 1 && !cli_last.n_out && strstr(cli_last.err, "not enough memory")) continue;
            if (n > 2 && cli_last.status == 0) break; /* there are no more */
            fail_msg("%s: addition %d failed, but status %d and: %s%s", lines[i], n, cli_last.status, cli_last.out,
                     cli_last.err);
        }
    }
#else
    print_message("skip: sanitizers allow no preloaded library\n");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convert_spares_what_it_reads),
        cmocka_unit_test(quantize_and_train_data_spare_what_they_read),
        cmocka_unit_test(what_is_replaced_keeps_mode_and_links),
        cmocka_unit_test(signals_leave_nothing),
        cmocka_unit_test(files_that_may_not_grow),
        cmocka_unit_test(pipes_and_devices_are_no_models),
        cmocka_unit_test(outputs_are_tried_first),
        cmocka_unit_test(closed_pipes),
        cmocka_unit_test(terminals_are_not_commanded),
        cmocka_unit_test(endless_texts_end),
        cmocka_unit_test(the_command_line_wins),
        cmocka_unit_test(seeds_are_exact),
        cmocka_unit_test(a_nul_in_a_turn),
        cmocka_unit_test(vision_encoders_are_inspected),
        cmocka_unit_test(json_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
