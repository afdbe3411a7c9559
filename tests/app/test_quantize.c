/* test_quantize.c - aerie quantize from outside: command lines, reports, exit statuses, files that run. unit/test_rewrite
 * checks the bytes.
 */
#include "cli.h"

#include <jansson.h>
#include <math.h>

#include "gguf_make.h"
#include "mkhead.h"
#include "mkscale.h"
#include "vocab_make.h"

static void make(const char *name, const char *shape, const char *type)
{
    mk_options o;
    assert_true(mk_shape(shape, &o));
    o.type = type;
    cli_model(name, &o);
}

static int make_models(void **state)
{
    if (cli_setup(state)) return -1;
    make("f32.gguf", "tiny-gqa", "f32");
    make("odd.gguf", "tiny", "f16");
    make("q4_1.gguf", "tiny-gqa", "q4_1");
    make("moe.gguf", "tiny-moe", "f32");
    char text[4096];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 7 == 6 ? ' ' : 'a' + i * i / 5 % 26);
    cli_write("text.txt", text, sizeof text);
    return 0;
}

static void wrong_command_lines(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *line, *text, *other;
    } cases[] = {
        {2, "", "IN.gguf OUT.gguf Q4_K_M", "found 0"},
        {2, "f32.gguf", "IN.gguf OUT.gguf Q4_K_M", "found 1"},
        {2, "f32.gguf Q4_0", "IN.gguf OUT.gguf Q4_K_M", "found 2"},
        {2, "f32.gguf o.gguf Q9_0", "no type 'Q9_0'", "Q4_K_M"},
        {2, "f32.gguf o.gguf Q4_K_X", "did you mean 'Q4_K_", "IQ4_XS"},
        {2, "f32.gguf o.gguf Q8_K", "can be read but not written", "IQ2_XS"},
        {2, "f32.gguf o.gguf IQ3_L", "did you mean 'IQ3_", "IQ3_M"},
        {2, "f32.gguf o.gguf MXFP4_MOE", "MXFP4_MOE is for models with experts", "--pure"},
        {2, "f32.gguf o.gguf Q4_0 2 3", "found '3'", ""},
        {2, "f32.gguf '' Q4_0", "needs a name", ""},
        {2, "f32.gguf o.gguf Q4_0 many", "number of threads", "'many'"},
        {2, "f32.gguf o.gguf Q4_0 --tensor-type ffn", "PATTERN=TYPE", "'ffn'"},
        {2, "f32.gguf o.gguf Q4_0 --tensor-type =q8_0", "PATTERN=TYPE", "'=q8_0'"},
        {2, "f32.gguf o.gguf Q4_0 --tensor-type ffn=q9", "no tensor type 'q9'", "q6_K"},
        {2, "f32.gguf o.gguf Q4_0 --tensor-type '(=q8_0'", "not a regular expression", "\"(\""},
        {2, "f32.gguf o.gguf Q4_0 --output-tensor-type Q4_K_M", "--output-tensor-type", "mxfp4"},
        {2, "f32.gguf o.gguf Q4_0 --token-embedding-type q8_1", "--token-embedding-type", "'q8_1'"},
        {3, "f32.gguf o.gguf Q4_0 --imatrix x", "x", "No such file"},
        {3, "f32.gguf o.gguf Q4_0 --imatrix text.gguf", "text.gguf", ""},
        {3, "f32.gguf o.gguf Q4_0 --imatrix vocab.gguf", "vocab.gguf: not an importance matrix but a model", "-m"},
        {3, "odd.gguf o.gguf Q4_0 --imatrix i.gguf", "columns", "which was made of another model"},
        {2, "f32.gguf f32.gguf Q4_0", "f32.gguf is the file that is being read", ""},
        {2, "q4_1.gguf o.gguf Q4_0", "quantized already (q4_1)", "--allow-requantize"},
        {3, "missing.gguf o.gguf Q4_0", "missing.gguf", "No such file"},
        {3, "f32.gguf no/o.gguf Q4_0", "no/o.gguf", "No such file"},
        {3, "f32.gguf . Q4_0", "a directory", ""},
        {3, "f32.gguf /dev/null Q4_0", "/dev/null", "a device"},
        {3, "text.gguf o.gguf Q4_0", "text.gguf", ""},
        {3, "vocab.gguf o.gguf Q4_0", "vocab.gguf contains no tensors", ""},
    };
    ae_buf vocab = {0};
    vocab_make_bpe(&vocab, &(vocab_make){0});
    cli_write("vocab.gguf", vocab.data, vocab.n);
    cli_write("text.gguf", "no model\n", 9);
    cli("$A imatrix -m f32.gguf -f text.txt -c 32 --chunks 2 -o i.gguf -q");
    assert_int_equal(cli_last.status, 0);
    ae_buf_free(&vocab);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A quantize %s", cases[i].line);
        cli_refused(cases[i].status, cases[i].text, cases[i].other);
        cli("test ! -e o.gguf && ! ls | grep part");
        assert_int_equal(cli_last.status, 0);
    }
}

static json_t *report(const char *line)
{
    cli("$A quantize %s --json", line);
    if (cli_last.status) fail_msg("%s: %s", line, cli_last.err);
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_non_null(json);
    return json;
}

static json_int_t number(json_t *json, const char *key)
{
    assert_non_null(json_object_get(json, key));
    return json_integer_value(json_object_get(json, key));
}

static void reports(void **state)
{
    (void)state;
    json_t *json = report("odd.gguf o.gguf q4_k_m 1");
    assert_string_equal(json_string_value(json_object_get(json, "type")), "Q4_K_M");
    assert_int_equal(number(json, "n_threads"), 1);
    assert_int_equal(number(json, "n_fallback"),
                     22); /* 3 layers of 7, and embeddings: rows of 64 and 128; for output.weight Q8_0 is the rule */
    assert_int_equal(number(json, "n_changed"), 23);
    assert_true(json_real_value(json_object_get(json, "bits_per_weight")) <
                json_real_value(json_object_get(json, "bits_per_weight_before")));
    assert_true(json_is_real(json_object_get(json, "seconds")));
    assert_non_null(
        strstr(cli_last.err, "became q5_0: their rows are not whole blocks of 256 elements, which q4_K needs"));
    const json_int_t bytes = number(json, "bytes_after");
    json_decref(json);
    cli("$A inspect o.gguf --json > j");
    static char text[1 << 18];
    cli_read("j", text, sizeof text);
    json = json_loads(text, 0, NULL);
    assert_int_equal(number(json, "weight_bytes"), bytes);
    json_decref(json);
    cli("rm o.gguf");
    for (int named = 0; named < 2; named++) {
        json = report(named ? "odd.gguf o.gguf Q4_K_M --dry-run" : "odd.gguf Q4_K_M --dry-run");
        assert_int_equal(number(json, "bytes_after"), bytes);
        assert_true(json_is_null(json_object_get(json, "seconds")));
        json_decref(json);
    }
    cli("test ! -e o.gguf && $A quantize odd.gguf Q4_K_M --dry-run -q");
    assert_int_equal(cli_last.status, 0);
    assert_int_equal(cli_last.n_err, 0);
    assert_non_null(strstr(cli_last.out, "blk.2.ffn_down.weight  (instead of q6_K)"));
    assert_non_null(strstr(cli_last.out, "bits per weight"));
    cli("$A quantize f32.gguf o.gguf Q4_0 --tensor-type fnn=q8_0");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, "no weight has a name that matches 'fnn'"));
    cli("$A help quantize");
    assert_non_null(strstr(cli_last.out, "Q3_K_L"));
    assert_non_null(strstr(cli_last.out, "iq4_xs"));
}

static void what_it_writes_runs(void **state)
{
    (void)state;
    static const char *const types[] = {"Q4_K_M",  "Q2_K",   "IQ4_XS",  "Q5_1",    "Q8_0",    "BF16",    "MXFP4_MOE --pure",
                                        "IQ1_S",   "IQ1_M",  "IQ2_XXS", "IQ2_XS",  "IQ2_S",   "IQ2_M",   "IQ3_XXS",
                                        "IQ3_XS",  "IQ3_S",  "IQ3_M",   "IQ4_NL",  "TQ1_0",   "TQ2_0",   "NVFP4",
                                        "Q1_0",    "Q2_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        cli("$A quantize f32.gguf o.gguf %s > /dev/null && $A run -m o.gguf -no-cnv -p hello -n 8 --temp 0 --ids -q",
            types[i]);
        if (cli_last.status || !cli_last.n_out) fail_msg("%s: %s", types[i], cli_last.err);
    }
    cli("$A quantize f32.gguf o.gguf IQ2_M");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.err, " tensors become iq2_s without an importance matrix: expect clearly worse answers"));
    cli("$A quantize f32.gguf o.gguf IQ3_M");
    assert_null(strstr(cli_last.err, "importance"));
    cli("$A quantize q4_1.gguf o.gguf Q4_0 --allow-requantize && $A run -m o.gguf -no-cnv -p hello -n 8 --temp 0 --ids "
        "-q");
    assert_int_equal(cli_last.status, 0);
}

/* Two runs give the same file; a stack of experts has a count for each expert; weights quantized with it differ and run. */
static void importance(void **state)
{
    (void)state;
    cli("for t in 1 2; do $A imatrix -m moe.gguf -f text.txt -c 32 --chunks 4 -o i$t.gguf -t $t -q > /dev/null; done; "
        "cmp i1.gguf i2.gguf");
    assert_int_equal(cli_last.status, 0);
    cli("$A inspect i1.gguf --tensors");
    assert_non_null(strstr(cli_last.out, "_exps.weight.in_sum2"));
    assert_non_null(strstr(cli_last.out, "_exps.weight.counts"));
    assert_null(strstr(cli_last.out, "token_embd"));
    json_t *json = report("moe.gguf o.gguf Q4_0 --imatrix i1.gguf --allow-requantize");
    assert_string_equal(json_string_value(json_object_get(json, "imatrix")), "i1.gguf");
    json_decref(json);
    cli("$A quantize moe.gguf plain.gguf Q4_0 -q > /dev/null && echo 1 2 3 > ids && for m in o plain; do "
        "$A bench logits -m $m.gguf --ids-file ids > $m.f32 || exit 9; done; ! cmp -s o.f32 plain.f32");
    assert_int_equal(cli_last.status, 0);
    cli("$A run -m o.gguf -no-cnv -p hello -n 8 --temp 0 --ids -q");
    assert_int_equal(cli_last.status, 0);
    /* as text the control tokens are many tokens, otherwise 40 and the rest */
    cli("for i in 1 2 3 4 5 6 7 8; do printf 'a<|im_start|><|im_start|><|im_start|><|im_start|><|im_start|>'; done > c.txt; "
        "$A imatrix -m moe.gguf -f c.txt -c 24 --chunks 9 -o c1.gguf --json -q && "
        "$A imatrix -m moe.gguf -f c.txt -c 24 --chunks 9 -o c2.gguf --parse-special --json -q");
    const char *second = strstr(cli_last.out, "}");
    assert_true(cli_last.status == 0 && second && strstr(cli_last.out, "\"n_windows\": 9"));
    assert_non_null(strstr(second, "\"n_windows\": 2,"));
    cli("$A imatrix -m moe.gguf -f text.txt -c 32 -o no/i.gguf -q");
    cli_refused(1, "no/i.gguf", "No such file");
    cli("$A imatrix -m moe.gguf -f text.txt -c 32");
    cli_refused(2, "-o", "");
    static const char *const kept[][2] = {{"moe.gguf", "is being read"}, {"text.txt", "is being read"},
                                          {"f32.gguf", "a model"},       {"/dev/null", "not a regular file"},
                                          {"''", "name of a file"},      {".", "not a regular file"}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        cli("$A imatrix -m moe.gguf -f text.txt -c 32 --chunks 1 -o %s", kept[i][0]);
        cli_refused(2, kept[i][1], "-o");
        cli("$A perplexity -m moe.gguf -f text.txt -c 32 --chunks 2 --kl-divergence-base %s", kept[i][0]);
        cli_refused(2, kept[i][1], "--kl-divergence-base");
    }
    cli("cp i1.gguf i3.gguf && $A imatrix -m moe.gguf -f text.txt -c 32 --chunks 2 -o i3.gguf && ! cmp -s i1.gguf i3.gguf");
    assert_int_equal(cli_last.status, 0); /* an importance matrix may be overwritten */
    assert_string_equal(cli_last.err, "");
}

/* All matrices of a head, the output included, are collected while it drafts; the head quantized with them still drafts.
 * */
static void importance_of_head(void **state)
{
    (void)state;
    aerie_error error = {0};
    char model[256], head[256];
    snprintf(model, sizeof model, "%s/f32.gguf", cli_folder);
    snprintf(head, sizeof head, "%s/head.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .type = "f32", .n_draft = 20}, model, head, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    cli("for t in 1 2; do "
        "$A imatrix -m f32.gguf -md head.gguf -f text.txt -c 32 -n 8 --chunks 2 -o h$t.gguf -t $t -q || exit 9; done; "
        "cmp h1.gguf h2.gguf");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "tokens drafted"));
    cli("$A inspect h1.gguf --tensors");
    assert_non_null(strstr(cli_last.out, " output.weight.in_sum2"));
    assert_non_null(strstr(cli_last.out, " fc.weight.in_sum2"));
    assert_non_null(strstr(cli_last.out, "blk.0.ffn_down.weight.in_sum2"));
    cli("$A quantize head.gguf hq.gguf Q4_0 --imatrix h1.gguf && $A quantize head.gguf hp.gguf Q4_0 -q > plain && "
        "! cmp -s hq.gguf hp.gguf");
    assert_int_equal(cli_last.status, 0);
    assert_null(strstr(cli_last.err, "without importance")); /* knows them all */
    cli("$A run -m f32.gguf -md hq.gguf -no-cnv -p hello -n 8 --temp 0 --ids -q");
    assert_int_equal(cli_last.status, 0);
    cli("$A imatrix -m f32.gguf -md f32.gguf -f text.txt -c 32 -o h3.gguf");
    cli_refused(2, "drafter head", "");
}

static double real(json_t *json, const char *key)
{
    assert_non_null(json_object_get(json, key));
    return json_number_value(json_object_get(json, key));
}

/* A model differs from itself only by the rounding of the saved numbers; tasks are read in every form. */
static void perplexity(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        {"2", "-f text.txt -c 32 --kl-divergence", "--kl-divergence-base"},
        {"2", "-c 32", "-f FILE"},
        {"2", "-f text.txt -c 8192", "the text has"},
        {"2", "-f text.txt -c 32 --ppl-stride 64", "--ppl-stride 64"},
        {"3", "-f missing.txt -c 32", "missing.txt"},
        {"3", "-f text.txt -c 32 --lora text.txt", "text.txt"},
        {"2", "-f text.txt -c 32 --lora-scaled text.txt", "FILE:SCALE"},
        {"3", "-c 32 --kl-divergence --kl-divergence-base text.txt", "'text.txt' is not a KL divergence base"},
        {"3", "-c 32 --kl-divergence --kl-divergence-base cut.kld", "it was cut short"},
        {"3", "-c 32 --kl-divergence --kl-divergence-base odd.kld", "no log-probabilities"},
        {"3", "--hellaswag -f text.txt", "has 1 lines"},
        {"3", "--multiple-choice -f text.txt", "lines of JSON"},
        {"1", "-f text.txt -c 32 --kl-divergence-base no/x.kld", "no/x.kld"},
    };
    cli("$A perplexity -m f32.gguf -f text.txt -c 32 --chunks 3 --kl-divergence-base base.kld --json -q && "
        "head -c 3000 base.kld > cut.kld && cp base.kld odd.kld && "
        "printf '\\377\\377\\377\\177' | dd of=odd.kld bs=1 seek=404 conv=notrunc 2>/dev/null"); /* a NaN for a scale */
    assert_int_equal(cli_last.status, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli("$A perplexity -m f32.gguf %s", wrong[i][1]);
        cli_refused(atoi(wrong[i][0]), wrong[i][2], "");
    }
    cli("ls | grep part");
    assert_int_equal(cli_last.status, 1);
    cli("$A perplexity -m f32.gguf -f text.txt -c 32 --chunks 3 --json -q");
    json_t *plain = json_loads(cli_last.out, 0, NULL);
    cli("$A perplexity -m f32.gguf -c 32 --kl-divergence-base base.kld --kl-divergence --json -q");
    json_t *json = json_loads(cli_last.out, 0, NULL);
    assert_true(plain && json);
    assert_true(real(json, "kl") < 1e-4 && real(json, "kl") > -1e-4);
    assert_true(real(json, "same_top") > 0.99);
    assert_true(fabs(real(json, "perplexity") - real(plain, "perplexity")) < 1e-6 * real(plain, "perplexity"));
    assert_int_equal(number(plain, "n_scored"), 3 * 15);
    const json_t *windows = json_object_get(json, "kl_windows");
    assert_int_equal(json_array_size(windows), 3);
    double sum = 0;
    for (size_t i = 0; i < 3; i++) sum += json_real_value(json_array_get(windows, i));
    assert_true(fabs(sum / 3 - real(json, "kl")) < 1e-7);
    json_decref(plain);
    json_decref(json);
    cli_write("hs.txt", "one two\n1\na\nb\nc\nd\n", 18);
    cli_write("arc.jsonl",
              "{\"question\":\"one\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"A\",\"B\"]},\"answerKey\":\"B\"}\n", 82);
    cli("$A perplexity -m f32.gguf -f hs.txt --hellaswag --json && $A perplexity -m f32.gguf -f arc.jsonl --multiple-choice");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "\"n_tasks\": 1"));
    assert_non_null(strstr(cli_last.out, "by chance 50.00%"));
}

/* Writes a number over one of a tensor of F32. */
static void poke(const char *name, const char *tensor, size_t i, float value)
{
    char path[256];
    ae_gguf *gguf;
    aerie_error error;
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    if (ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, tensor);
    FILE *file = fopen(path, "rb+");
    assert_true(t && t->type == AE_TYPE_F32 && file);
    assert_int_equal(fseek(file, (long)(t->offset + i * sizeof value), SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    ae_gguf_close(gguf);
}

/* A weight that a type cannot hold would become infinite, or half of itself. */
static void weights_that_are_too_large(void **state)
{
    (void)state;
    static const struct {
        float weight;
        const char *type, *instead;
    } cases[] = {{70000, "F16", "bf16"},   {-70000, "F16", "bf16"}, {3.4e38f, "BF16", "f32"}, {1e6f, "Q4_0", "bf16"},
                 {1e9f, "Q8_0", "bf16"},   {1e9f, "Q4_K", "bf16"},  {1e9f, "IQ4_XS", "bf16"}, {5000, "NVFP4", "bf16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *tensor = "blk.1.ffn_down.weight";
        cli("cp f32.gguf large.gguf && rm -f o.gguf");
        poke("large.gguf", tensor, 256 * 3 + 77, cases[i].weight);
        cli("$A quantize large.gguf o.gguf %s --pure", cases[i].type);
        cli_refused(3, "large.gguf: tensor \"blk.1.ffn_down.weight\" has the weight ", "in row 3, which is too large for ");
        cli("! ls | grep '^o.gguf'");
        assert_int_equal(cli_last.status, 0);
        cli("$A quantize large.gguf o.gguf %s --pure --tensor-type %s=%s -q", cases[i].type, tensor, cases[i].instead);
        if (cli_last.status) fail_msg("%s: %s", cases[i].type, cli_last.err); /* the advice of the message works */
    }
}

/* Scales are kept: weights divided by their scales give the same quantized model as the weights themselves. */
static void scales_are_kept(void **state)
{
    (void)state;
    char in[256], out[256];
    aerie_error error = {0};
    snprintf(in, sizeof in, "%s/moe.gguf", cli_folder);
    snprintf(out, sizeof out, "%s/scaled.gguf", cli_folder);
    if (mkscale_write(&(mkscale_options){.kind = MKSCALE_SAME}, in, out, &error) != AERIE_OK) fail_msg("%s", error.text);
    cli("echo '5 6 7 8 9 10 11 12 13 14' > ids; for m in moe scaled; do $A quantize $m.gguf $m-q.gguf Q8_0 -q > report && "
        "$A bench logits -m $m-q.gguf --ids-file ids -q > $m.f32 || exit 9; done; cmp moe.f32 scaled.f32");
    if (cli_last.status) fail_msg("%s%s", cli_last.out, cli_last.err);
    cli("$A inspect scaled-q.gguf; $A inspect scaled-q.gguf --json");
    assert_non_null(strstr(cli_last.out, "\nscales        beside "));
    assert_non_null(strstr(cli_last.out, "\"n_scales\": "));
    cli("$A inspect moe-q.gguf");
    assert_null(strstr(cli_last.out, "\nscales "));
}

/* An old file stays whole until the new one is complete. */
static void a_full_disk(void **state)
{
    (void)state;
    cli_write("o.gguf", "old", 3);
    cli("trap '' XFSZ; ulimit -f 100; $A quantize f32.gguf o.gguf F16");
    cli_refused(1, "o.gguf: write failed", "");
    cli("test \"$(cat o.gguf)\" = old && ! ls | grep part");
    assert_int_equal(cli_last.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_command_lines),
        cmocka_unit_test(reports),
        cmocka_unit_test(what_it_writes_runs),
        cmocka_unit_test(importance),
        cmocka_unit_test(importance_of_head),
        cmocka_unit_test(perplexity),
        cmocka_unit_test(weights_that_are_too_large),
        cmocka_unit_test(scales_are_kept),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, make_models, cli_teardown);
}
