// llama_drafts.cpp - what llama.cpp's draft-dflash and draft-dspark draft after the beginnings of a text, for
// tests/golden/test_block.c (llama_drafts.sh says how it is built and run).
//
//     llama_drafts TARGET.gguf HEAD.gguf draft-dflash|draft-dspark N_MAX NAME POSITION...
//
// The text is (7 i i + 13 i + 5) mod the vocabulary's size. For each POSITION p, ascending, the first p tokens have been run,
// token p is the newest, and a line says NAME, p and the drafted tokens.
#include <cstdio>
#include <cstdlib>

#include "common.h"
#include "llama.h"
#include "log.h"
#include "speculative.h"

int main(int argc, char ** argv) {
    if (argc < 7) return 2;
    common_log_set_verbosity_thold(-1);
    llama_log_set([](ggml_log_level level, const char * text, void *) { if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr); }, nullptr);
    llama_backend_init();
    common_params params;
    params.model.path = argv[1];
    params.n_ctx = 256;
    params.n_batch = params.n_ubatch = 64;
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1;
    params.cache_type_k = params.cache_type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.warmup = false;
    params.fit_params = false;
    params.speculative.types = { common_speculative_type_from_name(argv[3]) };
    params.speculative.draft.mparams.path = argv[2];
    params.speculative.draft.n_max = atoi(argv[4]);
    params.speculative.draft.backend_sampling = false;
    params.n_outputs_max = 64;
    auto init = common_init_from_params(params);
    llama_model * model = init->model();
    llama_context * ctx = init->context();
    if (!model || !ctx) return 3;
    auto dft = common_speculative_init_from_params(params, model, ctx);
    if (!dft->context()) return 3;
    params.speculative.draft.ctx_tgt = ctx;
    params.speculative.draft.ctx_dft = dft->context();
    common_speculative_ptr spec(common_speculative_init(params.speculative, 1));
    if (!spec) return 3;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_tokens text;
    for (int i = 0; i < 128; i++) text.push_back((7 * i * i + 13 * i + 5) % n_vocab);
    int at = 0;
    for (int a = 6; a < argc; a++) {
        const int p = atoi(argv[a]);
        common_batch batch(ctx);
        for (; at < p; at++) batch.add(text[at], at, 0, true);
        if (batch.size()) {
            if (llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch.get())) return 1;
            if (!common_speculative_process(spec.get(), batch)) return 1;
        }
        llama_tokens prompt(text.begin(), text.begin() + p), result;
        auto & dp = common_speculative_get_draft_params(spec.get(), 0);
        dp.drafting = true;
        dp.n_max = atoi(argv[4]);
        dp.pos0 = p;
        dp.id_last = text[p];
        dp.prompt = &prompt;
        dp.result = &result;
        common_speculative_draft(spec.get());
        printf("%s %d", argv[5], p);
        for (auto id : result) printf(" %d", id);
        printf("\n");
        // what a round without an accepted token does to the drafter's cache
        llama_memory_seq_rm(llama_get_memory(dft->context()), 0, p, -1);
    }
    return 0;
}
