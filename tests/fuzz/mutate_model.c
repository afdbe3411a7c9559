/* mutate_model.c - damaged model files through everything that loading one does (mutate.inc says how).
 *
 *     mutate_model N SEED [file...]
 *
 * Mutants of tiny complete models, and of the files given, go through ae_model_bind (which makes the vocabulary);
 * those accepted are packed for the plain C kernels and run one pass of three rows: any numbers are fine,
 * reading outside of a tensor or a table is not. Exit status 1 when something does not hold.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#define MUTATE_NAME "mutate_model"
#include <unistd.h>

#include "mutate.inc"
#include "device/device.h"

#include "engine/engine.h"
#include "mkmodel.h"

static ae_backend *backend;

static const char *run_pass(const ae_model *model)
{
    static const int32_t tokens[3] = {0, 7, 258};
    ae_net *net = NULL;
    ae_engine *engine = NULL;
    aerie_error error = {0};
    const char *why = NULL;
    uint32_t first;
    const ae_engine_options options = {.n_ctx = 8, .n_seqs = 1, .n_threads = 1};
    aerie_status status = ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, &error);
    if (status == AERIE_OK) status = ae_engine_create(&engine, net, &options, &error);
    if (status == AERIE_OK) {
        ae_engine_rows_clear(engine);
        const int32_t most = (int32_t)model->hparams.n_vocab - 1;
        int32_t row[3] = {tokens[0], tokens[1] < most ? tokens[1] : most, tokens[2] < most ? tokens[2] : most};
        const bool crosses = model->hparams.crosses; /* a source of two rows comes first */
        float *rows = calloc(2 * (size_t)model->hparams.n_embd, sizeof *rows);
        if (!rows) return "there is no memory";
        if (crosses) row[0] = -1, row[1] = -2;
        if (model->hparams.encoder) status = ae_engine_add_text(engine, 0, row, 3, 3, &first, &error); /* it has no logits */
        else status = ae_engine_add_chain(engine, 0, row, 3, AE_EXPORT_ALL, &first, &error);
        if (status == AERIE_OK && crosses) status = ae_engine_add_given(engine, first, 2, rows, 0, false, &error);
        if (status == AERIE_OK) ae_engine_pass(engine, NULL);
        if (status == AERIE_OK) ae_engine_commit(engine, 0, 3, NULL, 0);
        free(rows);
        if (!ae_kv_is_sound(ae_engine_kv(engine))) why = "the KV cache is not sound";
    }
    if (status != AERIE_OK && (error.status != status || !error.text[0]))
        why = "a pass was refused without a proper error record";
    ae_engine_free(engine);
    ae_net_free(net);
    return why;
}

static outcome use_model(const uint8_t *bytes, size_t n, const char **why)
{
    ae_gguf *gguf;
    ae_model *model = NULL;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, bytes, n, "mutant.gguf", &error);
    if (status == AERIE_OK) status = ae_model_bind(&model, gguf, &error);
    *why = "it was refused without a proper error record, or with a status that does not suit";
    if (status != AERIE_OK) {
        if (model || error.status != status || !error.text[0]) return BROKEN;
        return status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED || status == AERIE_ERROR_LIMIT ? REFUSED
                                                                                                                : BROKEN;
    }
    *why = run_pass(model);
    ae_model_free(model);
    return *why ? BROKEN : OPENED;
}

/* ---- Models to start from ---------------------------------------------------------------------- */

static const mk_options shapes[] = {
    {.type = "q4_0", .n_layers = 2, .n_embd = 32, .n_ff = 32, .n_heads = 2, .n_kv_heads = 1, .head_dim = 16, .n_vocab = 262,
     .biases = true, .rope_freqs = true},
    {.type = "f16", .n_layers = 1, .n_embd = 24, .n_ff = 20, .n_heads = 3, .n_kv_heads = 3, .head_dim = 8, .n_vocab = 330,
     .tied = true},
    {.type = "q4_k_m", .n_layers = 1, .n_embd = 256, .n_ff = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .n_vocab = 259,
     .tied = true},
    {.type = "q4_0", .n_layers = 2, .n_embd = 32, .n_ff = 32, .n_heads = 2, .n_kv_heads = 2, .head_dim = 16, .n_vocab = 262,
     .arch = "dots1", .n_experts = 3, .n_used = 2, .n_ff_expert = 32, .n_ff_shared = 32, .n_dense = 1},
    {.type = "f32", .n_layers = 1, .n_embd = 24, .n_ff = 20, .n_heads = 3, .n_kv_heads = 1, .head_dim = 8, .n_vocab = 262,
     .arch = "qwen2moe", .n_experts = 5, .n_used = 2, .n_ff_expert = 12, .n_ff_shared = 10, .fused = true},
};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static uint8_t *make_model(size_t i, uint64_t seed, size_t *n, const char **name)
{
    (void)seed; /* the same models always */
    char path[] = "/tmp/aerie_mutate_XXXXXX";
    mk_options o = shapes[i];
    aerie_error error;
    const int fd = mkstemp(path);
    uint8_t *data = NULL;
    *name = o.type;
    if (fd < 0) return NULL;
    close(fd);
    o.seed = 1, o.n_ctx = 64, o.rope_base = 10000.0f;
    if (mk_model(&o, path, &error) == AERIE_OK) data = read_all(path, n);
    else fprintf(stderr, MUTATE_NAME ": %s\n", error.text);
    unlink(path);
    return data;
}

int main(int argc, char **argv)
{
    if (ae_backend_open(&backend, NULL, "ref", NULL) != AERIE_OK) return 1;
    /* activations for a pass are as large as the widest tensor times the rows of a tree */
    const int status = mutate(argc, argv, N_SHAPES, make_model, &(use_info){use_model, (size_t)64 << 20, 4});
    ae_backend_close(backend);
    return status;
}
