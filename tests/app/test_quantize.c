/* test_quantize.c - aerie quantize from outside: command lines, reports, exit statuses, files that run. unit/test_rewrite
 * checks the bytes.
 */
#include "cli.h"

#include <jansson.h>
#include <math.h>

#include "formats/gguf_write.h"
#include "gguf_make.h"
#include "mkarch.h"
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

/* Writes the importance matrix of a GGUF file in llama.cpp's older format; cut: bytes of the file that are missing. */
static void write_old(const char *gguf_name, const char *name, int32_t calls, size_t cut)
{
    aerie_error error = {0};
    ae_gguf *gguf;
    ae_buf out = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cli_folder, gguf_name);
    if (ae_gguf_open(&gguf, path, &(ae_gguf_options){.no_mmap = true}, &error) != AERIE_OK) fail_msg("%s", error.text);
    const int32_t n_entries = (int32_t)(ae_gguf_n_tensors(gguf) / 2), n_chunks = 4, n_text = 8;
    ae_buf_add(&out, &n_entries, 4);
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *sums = ae_gguf_tensor_at(gguf, i);
        char text[256];
        if (sums->name.n < 9 || memcmp(sums->name.data + sums->name.n - 8, ".in_sum2", 8)) continue;
        const int32_t n_name = (int32_t)sums->name.n - 8, n_values = (int32_t)(sums->bytes / 4);
        snprintf(text, sizeof text, "%.*s.counts", n_name, sums->name.data);
        const ae_gguf_tensor *counts = ae_gguf_tensor_find(gguf, text);
        assert_non_null(counts);
        ae_buf_add(&out, &n_name, 4);
        ae_buf_add(&out, sums->name.data, (size_t)n_name);
        ae_buf_add(&out, &calls, 4);
        ae_buf_add(&out, &n_values, 4);
        for (int32_t k = 0; k < n_values; k++) {
            float sum, count;
            memcpy(&sum, sums->data + 4 * k, 4);
            memcpy(&count, counts->data + 4 * (k / sums->ne[0]), 4);
            const float value = (count > 0 ? sum / count : 1) * (float)(calls ? calls : 1);
            ae_buf_add(&out, &value, 4);
        }
    }
    ae_buf_add(&out, &n_chunks, 4);
    ae_buf_add(&out, &n_text, 4);
    ae_buf_add(&out, "text.txt", 8);
    cli_write(name, out.data, out.n - cut);
    ae_buf_free(&out);
    ae_gguf_close(gguf);
}

/* llama.cpp's older files weigh as the newer ones do; a damaged one is told; options choose among the weights. */
static void older_files_and_chosen_weights(void **state)
{
    (void)state;
    cli("$A imatrix -m moe.gguf -f text.txt -c 32 --chunks 4 -o n.gguf -q");
    assert_int_equal(cli_last.status, 0);
    for (int calls = 0; calls < 5; calls += 4) { /* a power of two, by which floats are divided exactly */
        write_old("n.gguf", "n.dat", calls, 0);
        cli("for f in gguf dat; do $A quantize moe.gguf $f.gguf Q4_0 --imatrix n.$f -q && $A quantize $f.gguf c$f.gguf COPY "
            "--override-kv quantize.imatrix.file=str:x -q; done && mv gguf.gguf a.gguf && cmp cgguf.gguf cdat.gguf && "
            "echo alike");
        assert_string_equal(cli_last.err, "");
        assert_non_null(strstr(cli_last.out, "alike"));
    }
    cli("$A quantize moe.gguf c.gguf Q4_0 -q && ! cmp -s a.gguf c.gguf");
    assert_int_equal(cli_last.status, 0);
    write_old("n.gguf", "cut.dat", 1, 30);
    cli("$A quantize moe.gguf o.gguf Q4_0 --imatrix cut.dat");
    cli_refused(3, "cut.dat: an importance matrix in llama.cpp's old format, but entry", "is cut off: the file is damaged");
    cli("$A imatrix -m f32.gguf -f text.txt -c 32 --chunks 1 -o f.gguf -q");
    write_old("f.gguf", "f.dat", 1, 0);
    cli("$A quantize odd.gguf o.gguf Q4_0 --imatrix f.dat");
    cli_refused(3, "columns", "which was made of another model");
    json_t *json = report("moe.gguf d.gguf Q4_0 --imatrix n.dat --include-weights attn_ --include-weights nothing");
    json_decref(json);
    assert_non_null(strstr(cli_last.err, "warning: --include-weights: no weight of n.dat has a name that contains 'nothing'"));
    json = report("moe.gguf e.gguf Q4_0 --imatrix n.gguf --exclude-weights ffn_");
    json_decref(json);
    cli("for f in d e; do $A quantize $f.gguf c$f.gguf COPY --override-kv quantize.imatrix.file=str:x -q; done; "
        "cmp cd.gguf ce.gguf && ! cmp -s d.gguf a.gguf");
    assert_int_equal(cli_last.status, 0);
    cli("$A quantize moe.gguf o.gguf Q4_0 --imatrix n.dat --include-weights a --exclude-weights b");
    cli_refused(2, "--include-weights and --exclude-weights cannot be used together", "");
    cli("$A quantize moe.gguf o.gguf Q4_0 --include-weights a");
    cli_refused(2, "--include-weights chooses among the weights of an importance matrix", "--imatrix");
}

/* A file of rules counts after the rules of the command line. */
static void rules_from_a_file(void **state)
{
    (void)state;
    static const char rules[] = "ffn_down=q8_0\n  attn_q=q6_K\tattn_q=q5_0\r\n\n";
    cli_write("rules", rules, strlen(rules));
    cli_write("bad", "a=q8_0 b", 8);
    cli("$A quantize f32.gguf a.gguf Q4_0 --tensor-type-file rules --tensor-type ffn_down=q5_1 -q && "
        "$A quantize f32.gguf b.gguf Q4_0 --tensor-type ffn_down=q5_1 --tensor-type attn_q=q6_K -q && cmp a.gguf b.gguf && "
        "$A quantize f32.gguf c.gguf Q4_0 -q && ! cmp -s a.gguf c.gguf");
    assert_int_equal(cli_last.status, 0);
    cli("$A quantize f32.gguf o.gguf Q4_0 --tensor-type-file bad");
    cli_refused(2, "bad takes PATTERN=TYPE", "'b'");
    cli("$A quantize f32.gguf o.gguf Q4_0 --tensor-type-file none");
    cli_refused(3, "none", "No such file");
}

/* Keys that are given are written in the types that readers expect, whether the file has them or not. */
static void keys_are_written(void **state)
{
    (void)state;
    cli("$A quantize f32.gguf k.gguf Q8_0 -q --override-kv general.name=str:first --override-kv general.name=str:other "
        "--override-kv llama.rope.freq_base=float:500.5 --override-kv llama.context_length=int:77,some.key=bool:true "
        "--override-kv general.file_type=int:9 --override-kv below=int:-3");
    assert_int_equal(cli_last.status, 0);
    aerie_error error = {0};
    ae_gguf *gguf;
    char path[256];
    snprintf(path, sizeof path, "%s/k.gguf", cli_folder);
    if (ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    static const struct {
        const char *key;
        ae_gguf_type type;
    } wanted[] = {{"general.name", AE_GGUF_STRING},       {"llama.rope.freq_base", AE_GGUF_F32},
                  {"llama.context_length", AE_GGUF_U32}, {"some.key", AE_GGUF_BOOL},
                  {"general.file_type", AE_GGUF_U32},    {"below", AE_GGUF_I64}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, wanted[i].key);
        if (!kv || kv->type != wanted[i].type) fail_msg("%s: type %d", wanted[i].key, kv ? (int)kv->type : -1);
    }
    ae_gguf_string name = {0};
    uint32_t n = 0, type = 0;
    assert_int_equal(ae_gguf_get_string(gguf, "general.name", true, &name, &error), AERIE_OK);
    assert_int_equal(ae_gguf_get_u32(gguf, "llama.context_length", true, &n, &error), AERIE_OK);
    assert_int_equal(ae_gguf_get_u32(gguf, "general.file_type", true, &type, &error), AERIE_OK);
    assert_true(name.n == 5 && !memcmp(name.data, "other", 5) && n == 77 && type == 9);
    ae_gguf_close(gguf);
    cli("$A quantize f32.gguf o.gguf Q4_0 --override-kv llama.context_length=77");
    cli_refused(2, "llama.context_length=77", "KEY=TYPE:VALUE");
}

enum { N_PARTS = 3 };

static void write_part(const ae_gguf *gguf, const char *path, uint16_t part, uint16_t n_parts)
{
    aerie_error error = {0};
    ae_gguf_writer *w = NULL;
    const size_t n = ae_gguf_n_tensors(gguf), from = n * part / n_parts, to = n * (part + 1u) / n_parts;
    aerie_status status = ae_gguf_writer_create(&w, path, &error);
    for (size_t i = 0; part == 0 && status == AERIE_OK && i < ae_gguf_n_kv(gguf); i++)
        status = ae_gguf_writer_copy(w, ae_gguf_kv_at(gguf, i), &error);
    if (status == AERIE_OK) status = ae_gguf_writer_u16(w, "split.no", part, &error);
    if (status == AERIE_OK) status = ae_gguf_writer_u16(w, "split.count", n_parts, &error);
    if (status == AERIE_OK) status = ae_gguf_writer_i32(w, "split.tensors.count", (int32_t)n, &error);
    for (size_t i = from; status == AERIE_OK && i < to; i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        status = ae_gguf_writer_tensor(w, name, t->type, t->n_dims, t->ne, &error);
    }
    if (status == AERIE_OK) status = ae_gguf_writer_begin(w, &error);
    for (size_t i = from; status == AERIE_OK && i < to; i++)
        status = ae_gguf_writer_data(w, ae_gguf_tensor_at(gguf, i)->data, ae_gguf_tensor_at(gguf, i)->bytes, &error);
    if (status == AERIE_OK) status = ae_gguf_writer_finish(w, &error);
    if (status != AERIE_OK) fail_msg("%s", error.text);
    ae_gguf_writer_free(w);
}

static void split(const char *name, uint16_t n_parts)
{
    char path[256];
    aerie_error error = {0};
    ae_gguf *gguf;
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    if (ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    for (uint16_t i = 0; i < n_parts; i++) {
        snprintf(path, sizeof path, "%s/split-%05d-of-%05d.gguf", cli_folder, i + 1, n_parts);
        write_part(gguf, path, i, n_parts);
    }
    ae_gguf_close(gguf);
}

/* Returns the number of tensors in one file of the folder, whatever set it belongs to. */
static uint64_t n_tensors_in(const char *name)
{
    char path[256];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    FILE *f = fopen(path, "rb");
    assert_true(f && fseek(f, 8, SEEK_SET) == 0 && fread(&n, sizeof n, 1, f) == 1);
    fclose(f);
    return n;
}

/* The parts of a split model become the parts of the new one, which are the same model as the single file. */
static void parts_are_kept(void **state)
{
    (void)state;
    split("f32.gguf", N_PARTS);
    cli("$A quantize split-00002-of-00003.gguf kept.gguf Q4_0 --keep-split && test ! -e kept.gguf && "
        "$A quantize split-00001-of-00003.gguf one.gguf Q4_0 -q && test ! -e one-00001-of-00003.gguf && "
        "for f in kept-00002-of-00003.gguf one.gguf; do $A run -m $f -no-cnv -p hello -n 8 --temp 0 --ids -q; done > r && "
        "test $(wc -l < r) = 2 && test $(sort -u r | wc -l) = 1");
    if (cli_last.status) fail_msg("%s", cli_last.err);
    for (int i = 1; i <= N_PARTS; i++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "split-%05d-of-%05d.gguf", i, N_PARTS);
        snprintf(to, sizeof to, "kept-%05d-of-%05d.gguf", i, N_PARTS);
        assert_int_equal(n_tensors_in(to), n_tensors_in(from));
    }
    cli("$A quantize one.gguf again.gguf COPY --keep-split -q && test -e again.gguf");
    assert_int_equal(cli_last.status, 0); /* a single file stays one */
    cli("cp split-00001-of-00003.gguf x && $A quantize split-00001-of-00003.gguf split.gguf Q4_0 --keep-split");
    cli_refused(2, "is the file that is being read", "");
    cli("cmp x split-00001-of-00003.gguf");
    assert_int_equal(cli_last.status, 0);
}

/* One tensor that two products use: it is counted once, and can be quantized. */
static void fused_projections(void **state)
{
    (void)state;
    aerie_error error = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/fused.gguf", cli_folder);
    assert_int_equal(mkarch_write(mkarch_find("qwen3next-fused"), false, path, &error), AERIE_OK);
    cli("$A imatrix -m fused.gguf -f text.txt -c 32 --chunks 2 -o fused.dat");
    assert_int_equal(cli_last.status, 0);
    assert_non_null(strstr(cli_last.out, "up to 64 rows each"));
    cli("$A quantize fused.gguf o.gguf Q8_0 --imatrix fused.dat -q && $A inspect o.gguf --tensors && "
        "$A run -m o.gguf -no-cnv -p hello -n 4 --temp 0 --ids -q && rm o.gguf");
    assert_int_equal(cli_last.status, 0);
    const char *line = strstr(cli_last.out, "blk.0.ssm_in.weight");
    assert_non_null(line);
    while (line > cli_last.out && line[-1] != '\n') line--;
    assert_non_null(strstr(line, "Q8_0"));
}

/* Layers that are left out: their tensors and entries of lists go, later ones get new numbers, and the model runs. */
static void layers_are_left_out(void **state)
{
    (void)state;
    cli("rm -f o.gguf; $A quantize f32.gguf p.gguf COPY --prune-layers 1,1 -q && $A inspect p.gguf --keys --tensors && "
        "$A run -m p.gguf -no-cnv -p hello -n 8 --temp 0 --ids -q");
    if (cli_last.status) fail_msg("%s", cli_last.err);
    cli("for f in f32 p; do $A inspect $f.gguf --keys | grep -o 'llama.block_count.*'; done");
    int before = 0, after = 0;
    assert_int_equal(sscanf(cli_last.out, "llama.block_count %*s %d llama.block_count %*s %d", &before, &after), 2);
    assert_int_equal(after, before - 1);
    cli("$A quantize f32.gguf o.gguf Q4_0 --prune-layers 99");
    cli_refused(2, "layer 99 cannot be left out", "layers 0 to ");
    cli("$A quantize f32.gguf o.gguf Q4_0 --prune-layers 0-%d", before - 1);
    cli_refused(2, "layers would be left out", "all ");
    cli("$A quantize f32.gguf o.gguf Q4_0 --prune-layers x");
    cli_refused(2, "--prune-layers takes a list", "'x'");
    aerie_error error = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/g.gguf", cli_folder);
    assert_int_equal(mkarch_write(mkarch_find("gemma3"), false, path, &error), AERIE_OK); /* every sixth layer has no window */
    cli("$A quantize g.gguf o.gguf COPY --prune-layers 0");
    cli_refused(2, "what layers of gemma3 compute depends on their numbers", "leave out whole periods");
    snprintf(path, sizeof path, "%s/q.gguf", cli_folder);
    assert_int_equal(mkarch_write(mkarch_find("qwen3next"), false, path, &error), AERIE_OK);
    cli("$A quantize q.gguf o.gguf COPY --prune-layers 0");
    cli_refused(2, "aerie: what is left would be no model of architecture qwen3next: tensor blk.", "is missing");
    snprintf(path, sizeof path, "%s/t.gguf", cli_folder);
    assert_int_equal(mkarch_write(mkarch_find("t5-flan"), false, path, &error), AERIE_OK);
    cli("$A quantize t.gguf o.gguf COPY --prune-layers 1");
    cli_refused(3, "layers of t5, which has an encoder and a decoder, cannot be left out", "");
    cli("test ! -e o.gguf && ! ls | grep part");
    assert_int_equal(cli_last.status, 0);
}

/* A part of a split model whose layers are left out goes too; the others are the same model as the single file. */
static void parts_without_layers(void **state)
{
    (void)state;
    enum { BEFORE = 8 };
    split("f32.gguf", BEFORE);
    cli("$A quantize split-00001-of-00008.gguf left.gguf Q8_0 --prune-layers 0 --keep-split");
    if (cli_last.status) fail_msg("%s", cli_last.err);
    assert_null(strstr(cli_last.err, "nothing checked"));
    cli("$A quantize f32.gguf whole.gguf Q8_0 --prune-layers 0 -q && n=$(ls left-*-of-*.gguf | wc -l) && "
        "test $n -gt 1 && test $n -lt 8 && test $(ls left-*-of-0000$n.gguf | wc -l) = $n && "
        "for f in left-00002-of-0000$n.gguf whole.gguf; do $A run -m $f -no-cnv -p hello -n 8 --temp 0 --ids -q; done > r && "
        "test $(wc -l < r) = 2 && test $(sort -u r | wc -l) = 1 && ! ls | grep part");
    if (cli_last.status) fail_msg("%s%s", cli_last.out, cli_last.err);
    aerie_error error = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/g.gguf", cli_folder);
    assert_int_equal(mkarch_write(mkarch_find("gemma3"), false, path, &error), AERIE_OK);
    split("g.gguf", BEFORE);
    cli("$A quantize split-00001-of-00008.gguf o.gguf COPY --keep-split --prune-layers 0");
    cli_refused(2, "what layers of gemma3 compute depends on their numbers", "");
    cli("! ls | grep '^o-\\|part'");
    assert_int_equal(cli_last.status, 0);
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
        cmocka_unit_test(older_files_and_chosen_weights),
        cmocka_unit_test(rules_from_a_file),
        cmocka_unit_test(keys_are_written),
        cmocka_unit_test(parts_are_kept),
        cmocka_unit_test(fused_projections),
        cmocka_unit_test(layers_are_left_out),
        cmocka_unit_test(parts_without_layers),
        cmocka_unit_test(importance_of_head),
        cmocka_unit_test(perplexity),
        cmocka_unit_test(weights_that_are_too_large),
        cmocka_unit_test(scales_are_kept),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, make_models, cli_teardown);
}
