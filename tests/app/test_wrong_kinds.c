/* test_wrong_kinds.c - files and folders of a wrong kind: every option and command that takes a file reports in one sentence
 * what it is and where it belongs, and writes no output.
 */
#include "cli.h"

#include "formats/gguf_write.h"
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
    {"old.dat", "an importance matrix in llama.cpp's old format", "llama-imatrix"},
    {"m.gguf", "a model or a drafter head", "-m or -md takes it"},
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
            if (!strcmp(kinds[k].file, places[p].right) || projector) continue;
            snprintf(command, sizeof command, places[p].command, kinds[k].file);
            cli("timeout 60 $A %s", command);
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
                                       cmocka_unit_test(projectors_are_quantized)};
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
