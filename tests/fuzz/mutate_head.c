/* mutate_head.c - damaged files of drafter heads (mutate.inc says how).
 *
 *     mutate_head N SEED [file...]
 *
 * Mutants of tiny heads of every kind, and of the files given, go through ae_dhead_bind; of those accepted everything that
 * checkpoint/head.h promises is checked and read. Exit status 1 when something does not hold.
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#define MUTATE_NAME "mutate_head"
#include <unistd.h>

#include "mutate.inc"

#include "mkarch.h"
#include "mkhead.h"
#include "mkmodel.h"

static outcome use_head(const uint8_t *bytes, size_t n, const char **why)
{
    ae_gguf *gguf;
    ae_dhead *head = NULL;
    aerie_error error = {0};
    aerie_status status = ae_gguf_open_memory(&gguf, bytes, n, "mutant.gguf", &error);
    if (status == AERIE_OK) status = ae_dhead_bind(&head, gguf, &error);
    *why = "it was refused without a proper error record, or with a status that does not suit";
    if (status != AERIE_OK) {
        if (head || error.status != status || !strstr(error.text, "mutant.gguf: ")) return BROKEN;
        return status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED ||
               status == AERIE_ERROR_LIMIT ? REFUSED : BROKEN;
    }
    *why = mkhead_check(head);
    ae_dhead_free(head);
    return *why ? BROKEN : OPENED;
}

static const mkhead_options heads[] = {
    {.kind = "eagle", .n_draft = 5, .biases = true},
    {.kind = "eagle", .schema = "double", .own_embedding = true, .own_output = true},
    {.kind = "eagle3", .n_draft = 6, .biases = true, .rope_freqs = true, .n_embd = 4, .n_heads = 1, .n_kv_heads = 1,
     .head_dim = 4},
    {.kind = "eagle3", .schema = "old", .n_draft = 7, .norm_before_fc = true, .qk_norm = true, .map_i32 = true},
    {.kind = "eagle3.1", .n_draft = 9, .window = 4, .n_sinks = 1},
    {.kind = "eagle3.1", .schema = "double", .n_draft = 9, .n_taps = 1, .taps = {2}, .no_output = true},
    {.kind = "eagle3.1", .whole_fc_norm = true, .n_taps = 2, .taps = {0, 2}, .no_output = true},
    {.kind = "eagle3", .n_draft = 5, .n_parallel = 4, .n_layers = 2, .no_output = true},
    {.kind = "medusa", .n_draft = 5, .n_medusa = 2, .n_blocks = 2, .biases = true},
    {.kind = "mtp", .n_draft = 5, .n_nextn = 2, .own_embedding = true, .own_output = true},
    {.kind = "dflash", .n_draft = 5, .n_layers = 1, .n_block = 4, .causal = true, .sliding = 9, .own_embedding = true,
     .own_output = true, .qk_norm = true},
    {.kind = "dflash2", .n_draft = 9, .n_layers = 1, .n_block = 4, .n_conv = 3, .conv_group = 4, .n_pair = 3,
     .n_candidates = 4},
    {.kind = "dfly", .n_draft = 9, .n_layers = 1, .n_block = 4, .n_correct = 3},
    {.kind = "lilicorr", .n_draft = 9, .n_layers = 1, .n_block = 4, .n_conv = 2, .n_lattice = 8, .n_candidates = 3,
     .n_factors = 4, .lattice_layers = 1},
    {.kind = "dspark", .n_draft = 7, .n_markov = 3, .from_anchor = 1, .biases = true},
};
#define N_HEADS (sizeof heads / sizeof heads[0] + 1) /* and an assistant */

static char target_path[] = "/tmp/aerie_mutate_XXXXXX", head_path[] = "/tmp/aerie_mutate_XXXXXX";

static int make_target(void)
{
    const mk_options o = {.type = "f32", .n_layers = 2, .n_embd = 8, .n_ff = 8, .n_heads = 2, .n_kv_heads = 1, .head_dim = 4,
                          .n_vocab = 262, .n_ctx = 64, .rope_base = 10000.0f, .seed = 1};
    aerie_error error = {0};
    const int a = mkstemp(target_path), b = mkstemp(head_path);
    if (a < 0 || b < 0) return 1;
    close(a), close(b);
    if (mk_model(&o, target_path, &error) == AERIE_OK) return 0;
    fprintf(stderr, MUTATE_NAME ": %s\n", error.text);
    return 1;
}

static uint8_t *make_head(size_t i, uint64_t seed, size_t *n, const char **name)
{
    (void)seed; /* the same heads always */
    aerie_error error;
    aerie_status status;
    if (i + 1 < N_HEADS) {
        mkhead_options o = heads[i];
        *name = o.kind;
        o.type = "f32", o.seed = 1;
        status = mkhead_write(&o, target_path, head_path, &error);
    } else {
        *name = "assistant";
        status = mkarch_write(mkarch_find("gemma4.assistant"), true, head_path, &error);
    }
    if (status == AERIE_OK) return read_all(head_path, n);
    fprintf(stderr, MUTATE_NAME ": %s\n", error.text);
    return NULL;
}

int main(int argc, char **argv)
{
    int status = make_target();
    if (status == 0) status = mutate(argc, argv, N_HEADS, make_head, &(use_info){use_head, 16384, 4});
    unlink(target_path), unlink(head_path);
    return status;
}
