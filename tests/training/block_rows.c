/* block_rows.c - the results of a block drafter's file for a block after given features, for check_block.py to compare with the
 * network that it was trained as.
 *
 *   block_rows TARGET.gguf HEAD.gguf < in > out
 *
 * in: u32 context rows n, u32 their width, u32 tokens k; i32 tokens [k], the newest one first: token j precedes the one that
 * row j predicts; f32 features [n][width]. out, for each of k rows: f32 confidence (-1: none), f32 logits [draft vocabulary].
 * Owns no checks of what it is given beyond sizes; tests/golden/test_block.c is the test with vectors of the drafters' authors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "draft/head/engine.h"

#define MOST 4096

#define OK(call)                                                          \
    do {                                                                  \
        aerie_error ok_error = {0};                                       \
        if (call != AERIE_OK) {                                           \
            fprintf(stderr, "block_rows: %s: %s\n", #call, ok_error.text); \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

static void need(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "block_rows: %s\n", what);
    exit(1);
}

typedef struct rig {
    ae_backend *backend;
    ae_model *model;
    ae_net *net;
    ae_engine *target;
    ae_dhead *head;
    ae_dhead_net *head_net;
    ae_dhead_engine *engine;
} rig;

static void open_rig(rig *r, const char *target, const char *head, uint32_t n_ctx)
{
    const ae_load_options load = {.n_threads = 1};
    const ae_dhead_net_options options = {.load = load};
    OK(ae_backend_open(&r->backend, NULL, "", &ok_error));
    OK(ae_model_load(&r->model, target, NULL, &ok_error));
    OK(ae_net_create(&r->net, r->model, r->backend, &load, &ok_error));
    OK(ae_dhead_load(&r->head, head, &ok_error));
    OK(ae_dhead_net_create(&r->head_net, r->head, r->net, &options, &ok_error));
    ae_engine_options o = {.n_ctx = n_ctx, .n_seqs = 1, .n_batch = n_ctx, .n_threads = 1, .n_taps = r->head->hparams.n_taps};
    memcpy(o.taps, r->head->hparams.taps, sizeof o.taps);
    OK(ae_engine_create(&r->target, r->net, &o, &ok_error));
    const ae_dhead_engine_options ho = {.n_ctx = n_ctx, .n_seqs = 1, .n_batch = n_ctx};
    OK(ae_dhead_engine_create(&r->engine, r->head_net, r->target, &ho, &ok_error));
}

static void close_rig(rig *r)
{
    ae_dhead_engine_free(r->engine);
    ae_dhead_net_free(r->head_net);
    ae_dhead_free(r->head);
    ae_engine_free(r->target);
    ae_net_free(r->net);
    ae_model_free(r->model);
    ae_backend_close(r->backend);
}

static void put_rows(rig *r, const int32_t *tokens, uint32_t k, uint32_t out)
{
    for (uint32_t j = 0; j < k; j++) {
        const ae_dhead_link link = {out + j, tokens[j]};
        const bool linked = r->head->hparams.n_markov > 0;
        float conf = -1;
        if (linked) {
            OK(ae_dhead_run_links(r->engine, &link, 1, &conf, &ok_error));
            OK(ae_dhead_sync(r->engine, &ok_error)); /* brings conf */
        }
        const float *logits = ae_dhead_logits(r->engine, linked ? 0 : out + j);
        const uint32_t n = r->head->hparams.n_draft;
        need(fwrite(&conf, sizeof conf, 1, stdout) == 1 && fwrite(logits, sizeof *logits, n, stdout) == n, "cannot write");
    }
}

int main(int argc, char **argv)
{
    uint32_t size[3] = {0}, out = 0;
    rig r = {0};
    need(argc == 3, "usage: block_rows TARGET.gguf HEAD.gguf < in > out");
    need(fread(size, sizeof size, 1, stdin) == 1, "the input is too short");
    const uint32_t n = size[0], width = size[1], k = size[2];
    need(n && n < MOST && width && width < MOST * 16 && k && k <= AE_DHEAD_MAX_BLOCK, "the input's sizes are impossible");
    int32_t *tokens = malloc(k * sizeof *tokens);
    float *features = malloc((size_t)n * width * sizeof *features);
    need(tokens && features, "no memory");
    need(fread(tokens, sizeof *tokens, k, stdin) == k && fread(features, sizeof *features * width, n, stdin) == n,
         "the input is too short");
    open_rig(&r, argv[1], argv[2], n + 2 * AE_DHEAD_MAX_BLOCK);
    need(width == r.head->hparams.n_taps * r.head->hparams.n_target_embd, "the features are not as wide as the head's");
    need(k <= ae_dhead_n_foreseen(&r.head->hparams), "the head's block has fewer rows");
    const size_t bytes = (size_t)n * width * sizeof(float);
    float *on_device = r.backend->ops->alloc(r.backend, bytes);
    need(on_device, "no memory");
    OK(r.backend->ops->fill(r.backend, on_device, features, bytes, &ok_error));
    ae_dhead_restart(r.engine, 0, 0);
    ae_dhead_clear(r.engine);
    OK(ae_dhead_add_true(r.engine, 0, on_device, NULL, n, false, NULL));
    OK(ae_dhead_run_true(r.engine, &ok_error));
    OK(ae_dhead_sync(r.engine, &ok_error));
    ae_dhead_clear(r.engine);
    OK(ae_dhead_add_block(r.engine, 0, tokens[0], k, &out));
    ae_dhead_run_blocks(r.engine);
    OK(ae_dhead_sync(r.engine, &ok_error));
    put_rows(&r, tokens, k, out);
    r.backend->ops->free(r.backend, on_device, bytes);
    close_rig(&r);
    free(features);
    free(tokens);
    return 0;
}
