/* test_wrong_kinds.c - files and folders of a wrong kind: every option and command that takes a file reports in one sentence
 * what it is and where it belongs, and writes no output.
 */
#include "cli.h"

#include "formats/gguf_write.h"
#include "mkarch.h"
#include "mkhead.h"
#include "mklora.h"

/* A GGUF file of a few keys and one matrix of 32 x 2. */
static void write_gguf(const char *name, const char *type, const char *arch, const char *tensor)
{
    char path[256];
    const int64_t ne[2] = {32, 2};
    const float data[64] = {1};
    ae_gguf_writer *w;
    aerie_error error;
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    assert_int_equal(ae_gguf_writer_create(&w, path, &error), AERIE_OK);
    if (type) assert_int_equal(ae_gguf_writer_string(w, "general.type", type, &error), AERIE_OK);
    if (arch) assert_int_equal(ae_gguf_writer_string(w, "general.architecture", arch, &error), AERIE_OK);
    assert_int_equal(ae_gguf_writer_tensor(w, tensor, AE_TYPE_F32, 2, ne, &error), AERIE_OK);
    assert_int_equal(ae_gguf_writer_begin(w, &error), AERIE_OK);
    assert_int_equal(ae_gguf_writer_data(w, data, sizeof data, &error), AERIE_OK);
    assert_int_equal(ae_gguf_writer_finish(w, &error), AERIE_OK);
    ae_gguf_writer_free(w);
}

static int setup(void **state)
{
    char model[256], lora[256];
    aerie_error error;
    if (cli_setup_model(state)) return -1;
    snprintf(model, sizeof model, "%s/m.gguf", cli_folder);
    snprintf(lora, sizeof lora, "%s/lora.gguf", cli_folder);
    if (mklora_write(&(mklora_options){.rank = 2}, model, lora, &error) != AERIE_OK) return -1;
    static const char *const archs[] = {"bert", "bert-rank", "t5encoder", "clef", "modern-bert-decides", "t5", "dream"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s.gguf", cli_folder, archs[i]);
        if (mkarch_write(mkarch_find(archs[i]), false, path, &error) != AERIE_OK) return -1;
    }
    snprintf(lora, sizeof lora, "%s/head.gguf", cli_folder);
    if (mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, model, lora, &error) != AERIE_OK) return -1;
    write_gguf("imatrix.gguf", "imatrix", NULL, "blk.0.attn_q.weight.in_sum2");
    write_gguf("mmproj.gguf", "mmproj", "clip", "v.patch_embd.weight");
    write_gguf("old-mmproj.gguf", NULL, "clip", "v.patch_embd.weight");
    write_gguf("control.gguf", NULL, "controlvector", "direction.1");
    cli("mkdir peft fp4 hf ggufs; echo '{\"peft_type\": \"LORA\"}' > peft/adapter_config.json; : > peft/config.json;"
        "echo '{}' > fp4/config.json; echo '{\"quantization\": {\"quant_algo\": \"NVFP4\"}}' > fp4/hf_quant_config.json;"
        "echo '{}' > hf/config.json; cp m.gguf ggufs/x.gguf;"
        "printf '\\200\\0\\0\\0\\0\\0\\0\\0{\"m.layers.0.q_proj.lora_A.weight\":1}' > peft/adapter_model.safetensors;"
        "printf 'version https://git-lfs.github.com/spec/v1\\n' > lfs.gguf;"
        "printf 'alggxxxxxxxxxxxx' > ggla.bin; echo '[{\"role\": \"user\", \"content\": \"hi\"}]' > talk.json;"
        "echo '{\"a\": 1}' > config.json;"
        "printf '\\2\\0\\0\\0\\023\\0\\0\\0blk.0.attn_q.weight\\1\\0\\0\\0\\1\\0\\0\\0abcd' > old.dat");
    return 0;
}

static const struct {
    const char *file;
    const char *what, *where; /* parts of the sentence */
} kinds[] = {
    {"lora.gguf", "a LoRA adapter", "--lora takes it"},
    {"imatrix.gguf", "an importance matrix", "--imatrix of 'aerie quantize' takes it"},
    {"mmproj.gguf", "a projector (mmproj)", "--mmproj takes it, beside -m with the model that it belongs to"},
    {"old-mmproj.gguf", "a projector (mmproj)", "--mmproj takes it, beside -m with the model that it belongs to"},
    {"control.gguf", "a control vector", "cannot apply"},
    {"peft", "the folder of a PEFT adapter", "--target MODEL.gguf"},
    {"peft/adapter_model.safetensors", "the weights of a PEFT adapter", "--target MODEL.gguf"},
    {"fp4", "the folder of a checkpoint", "aerie convert"},
    {"hf", "the folder of a checkpoint", "aerie convert"},
    {"ggufs", "a folder", "give one of the GGUF files in it"},
    {"lfs.gguf", "a Git LFS pointer", "git lfs pull"},
    {"ggla.bin", "a LoRA adapter of the old GGLA format", "convert_lora_to_gguf.py"},
    {"config.json", "a JSON file", "another one"},
    {"old.dat", "an importance matrix in llama.cpp's old format", "--imatrix of 'aerie quantize' takes it"},
    {"m.gguf", "a model or a drafter head", "-m takes models, -md drafter heads and draft models"},
};

/* The places where a file may be given, and the right kind for each. */
static const struct {
    const char *command, *right;
} places[] = {
    {"run -p hi -n 1 -m %s", "m.gguf"},
    {"run -p hi -n 1 -m m.gguf -md %s", "m.gguf"},
    {"run -p hi -n 1 -m m.gguf --spec-type draft-mtp -md %s", "m.gguf"},
    {"run -p hi -n 1 -m m.gguf --lora %s", "lora.gguf"},
    {"run -p hi -n 1 -m m.gguf --lora-scaled %s:0.5", "lora.gguf"},
    {"run -p hi -n 1 -m m.gguf --mmproj %s", "mmproj.gguf"},
    {"tokenize -p hi -m %s", "m.gguf"},
    {"template --messages talk.json -m %s", "m.gguf"},
    {"embed -p hi -m %s", "m.gguf"},
    {"serve -m %s", "m.gguf"},
    {"bench speed -m %s", "m.gguf"},
    {"perplexity -f old.dat -m %s", "m.gguf"},
    {"imatrix -f old.dat -o none.gguf -m %s", "m.gguf"},
    {"quantize %s none.gguf Q8_0", "m.gguf"},
    {"quantize m.gguf none.gguf Q8_0 --allow-requantize --imatrix %s", "imatrix.gguf"},
};

static void each_is_named_and_sent_where_it_belongs(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char command[256];
            const bool takes_projectors = strstr(places[p].command, "quantize %s") || strstr(places[p].command, "--mmproj");
            const bool projector = strstr(kinds[k].file, "mmproj") && takes_projectors;
            const bool old = !strcmp(kinds[k].file, "old.dat") && strstr(places[p].command, "--imatrix"); /* takes both kinds */
            if (!strcmp(kinds[k].file, places[p].right) || projector || old) continue;
            snprintf(command, sizeof command, places[p].command, kinds[k].file);
            cli("timeout 600 $A %s", command);
            if (cli_last.status != 3 || !strstr(cli_last.err, kinds[k].what) || !strstr(cli_last.err, kinds[k].where) ||
                !strstr(cli_last.err, kinds[k].file))
                fail_msg("aerie %s: expected status 3 and '%s', '%s'; found %d and: %s", command, kinds[k].what,
                         kinds[k].where, cli_last.status, cli_last.err);
            assert_int_equal(cli_last.n_out, 0);
        }
    }
    cli("ls none.gguf");
    assert_int_not_equal(cli_last.status, 0);
}

/* ---- Models that do not generate, or not from left to right ------------------------------------------------------ */

enum { TEXT = 1, TOKENS = 2, DRAFTS = 4, HEADS = 8 }; /* what a command needs of its model; HEADS: only heads are refused */

static const struct {
    const char *file;
    int lacks;
    const char *what, *where;
} models[] = {
    {"bert.gguf", TEXT, "an encoder", "aerie embed; aerie serve, /v1/embeddings"},
    {"bare.gguf", TEXT, "an encoder", "aerie embed; aerie serve, /v1/embeddings"}, /* without a chat template */
    {"bert-rank.gguf", TEXT, "an encoder", "aerie embed; aerie serve, /v1/embeddings"},
    {"t5encoder.gguf", TEXT, "an encoder", "aerie embed; aerie serve, /v1/embeddings"},
    {"clef.gguf", TEXT, "a model with a decision head", "aerie serve, /v1/systemone"},
    {"modern-bert-decides.gguf", TEXT, "a model with a decision head", "aerie serve, /v1/systemone"},
    {"t5.gguf", TOKENS, "an encoder-decoder model", "aerie run"},
    {"dream.gguf", DRAFTS, "a diffusion model", "aerie run"},
    {"head.gguf", TEXT | HEADS, "is a drafter's head", "give it with -md"},
};

static const struct {
    const char *command;
    int needs;
} uses[] = {
    {"run %s -n 1 hi", TEXT},
    {"run -m %s --messages talk.json -n 1", TEXT},
    {"run -m %s -no-cnv -p hi -n 1", TEXT},
    {"run -m %s --system-prompt x -p hi -n 1", TEXT},
    {"run -m %s --spec-type draft-eagle3 -p hi -n 1", TEXT},
    {"bench speed -m %s -p 4 -n 2 -r 1", TEXT},
    {"bench spec -m %s -p hi -n 4 -r 1", TEXT},
    {"bench verify -m %s", TEXT | TOKENS},
    {"bench logits -m %s --ids-file ids.txt > logits", TEXT | TOKENS},
    {"bench study -m %s --quick -o study", TEXT | TOKENS | DRAFTS},
    {"perplexity -m %s -f text.txt -c 64", TEXT | TOKENS},
    {"imatrix -m %s -f text.txt -c 64 -o none.gguf", TEXT | TOKENS},
    {"train-data turns -m %s -o none.gguf", TEXT},
    {"tokenize -m %s -p hi", HEADS},
    {"template -m %s --messages talk.json", HEADS},
};

/* Each is refused by its header, before anything is loaded: the first line names the file, says what it is and where it
 * belongs, and nothing is left. */
static void models_of_a_wrong_kind_are_refused_at_once(void **state)
{
    (void)state;
    cli("LC_ALL=C sed s/tokenizer.chat_template/tokenizer.chat_templatX/ bert.gguf > bare.gguf; echo 5 6 7 > ids.txt;"
        "echo some text > text.txt");
    for (size_t u = 0; u < sizeof uses / sizeof *uses; u++)
        for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
            char command[256], line[512];
            if (!(models[k].lacks & uses[u].needs)) continue;
            snprintf(command, sizeof command, uses[u].command, models[k].file);
            cli("timeout 600 $A %s", command);
            snprintf(line, sizeof line, "%.*s", (int)strcspn(cli_last.err, "\n"), cli_last.err);
            if (cli_last.status != 3 || !strstr(line, models[k].what) || !strstr(line, models[k].where) ||
                !strstr(line, models[k].file))
                fail_msg("aerie %s: expected status 3 and at first '%s', '%s'; found %d and: %s", command, models[k].what,
                         models[k].where, cli_last.status, cli_last.err);
            assert_int_equal(cli_last.n_out, 0);
        }
    cli("$A run bert.gguf -n 1 -v hi");
    assert_null(strstr(cli_last.err, "memory: "));
    assert_null(strstr(cli_last.err, "loaded "));
    cli("ls -d none.gguf study");
    assert_string_equal(cli_last.out, "");
}

/* `aerie bench study` checks all that it was given before it makes files. */
static void a_study_checks_what_it_is_given(void **state)
{
    static const struct {
        const char *more, *found;
    } wrong[] = {{"-md bert.gguf", "bert.gguf"}, {"-md none.gguf", "none.gguf"}, {"--prompts none.txt", "none.txt"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli("$A bench study -m m.gguf %s --quick -o study; s=$?; ls -d study; exit $s", wrong[i].more);
        assert_int_not_equal(cli_last.status, 0);
        assert_non_null(strstr(cli_last.err, wrong[i].found));
        assert_string_equal(cli_last.out, "");
    }
}

/* An encoder has no chat: ChatML is rendered only with --file. The doctor tells encoders by their architecture. */
static void encoders_have_no_chat(void **state)
{
    (void)state;
    cli("$A template -m bare.gguf --messages talk.json");
    assert_int_equal(cli_last.status, 3);
    assert_non_null(strstr(cli_last.err, "'bare.gguf' is an encoder and has no chat template"));
    assert_int_equal(cli_last.n_out, 0);
    cli("$A template -m bare.gguf --messages talk.json --chat-template chatml");
    assert_int_equal(cli_last.status, 0);
    cli("$A doctor -m clef.gguf");
    assert_non_null(strstr(cli_last.out, "scores options"));
    assert_null(strstr(cli_last.out, "  a token reads"));
    cli("$A doctor -m head.gguf");
    assert_non_null(strstr(cli_last.out, "is a drafter's head"));
}

/* llama.cpp's quantizer takes projectors, too. */
static void projectors_are_quantized(void **state)
{
    (void)state;
    cli("$A quantize mmproj.gguf small.gguf Q8_0 --pure -q");
    assert_int_equal(cli_last.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_named_and_sent_where_it_belongs),
                                       cmocka_unit_test(models_of_a_wrong_kind_are_refused_at_once),
                                       cmocka_unit_test(a_study_checks_what_it_is_given),
                                       cmocka_unit_test(encoders_have_no_chat),
                                       cmocka_unit_test(projectors_are_quantized)};
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
