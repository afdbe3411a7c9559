/* test_tower_laws.c - the rows of a picture depend on the file and the pixels alone: every type of vision encoder gives the
 * same bits at every CPU level, with any number of threads, whatever it has read before. Wrong files are refused with a
 * sentence, and so are some wrong text models; after a lack of memory the encoder still works.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/device.h"
#include "engine/tower.h"
#include "fail_alloc.h"
#include "mkarch.h"
#include "every.h"
#include "mkmmproj.h"
#include "model/model.h"

enum { N_OUT = 40, MAX_SIDE = 160 };

static const char *const types[] = {"gemma3", "gemma4v", "gemma4uv", "idefics3", "internvl", "lfm2", "pixtral", "pixtral-merge",
                                    "qwen2vl", "qwen2.5vl", "qwen3vl", "qwen35", "glm4v", "glmocr", "kimivl", "kimik25",
                                    "paddleocr", "dotsocr", "mlp", "lightonocr", "minicpmv",
                                    "llava16", "granitevision"};
enum { N_TYPES = sizeof types / sizeof *types };
#if defined(__aarch64__)
static const char *const levels[] = {"ref", "neon", "dotprod", "i8mm"};
#else
static const char *const levels[] = {"ref", "avx2", "avxvnni", "avx512", "amx"};
#endif
enum { N_LEVELS = sizeof levels / sizeof *levels };

static char folder[] = "/tmp/aerie_tower_XXXXXX", path[64];

/* Queries of resamplers have heads of 128. */
static uint32_t n_out_of(const char *type)
{
    return strncmp(type, "minicpm", 7) ? N_OUT : 256;
}

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static int make(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file.gguf", folder);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_tower *tower;
} rig;

/* false: this machine lacks the level. */
static bool open_rig(rig *r, const char *type, const char *level, uint32_t n_threads)
{
    aerie_error error = {0};
    ae_tower_model *model;
    *r = (rig){0};
    if (ae_backend_open(&r->backend, NULL, level, &error) != AERIE_OK) {
        if (!strstr(error.text, "lacks the level")) fail_msg("%s", error.text);
        return false;
    }
    need(mkmmproj_write(type, n_out_of(type), path, &error), &error);
    need(ae_tower_model_load(&model, path, false, &error), &error);
    if (!strncmp(type, "qwen", 4) || !strncmp(type, "gemma4", 6) || !strncmp(type, "glm", 3) || !strncmp(type, "kimi", 4) ||
        !strcmp(type, "dotsocr"))
        need(ae_tower_model_limit(model, 0, 70, &error), &error); /* or pictures are enlarged to thousands of patches */
    need(ae_pool_create(&r->pool, n_threads, &error), &error);
    need(ae_tower_create(&r->tower, model, r->backend, &(ae_load_options){.n_threads = n_threads}, r->pool, &error), &error);
    return true;
}

static void close_rig(rig *r)
{
    ae_tower_free(r->tower);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

/* A picture of noise. */
static void make_picture(const rig *r, uint32_t w, uint32_t h, ae_image *image, ae_tower_plan *plan)
{
    static uint8_t rgb[3 * MAX_SIDE * MAX_SIDE];
    aerie_error error = {0};
    const ae_image_limits limits = ae_image_limits_default();
    uint32_t state = w * 31 + h;
    for (size_t i = 0; i < (size_t)3 * w * h; i++) rgb[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    need(ae_image_from_rgb(image, w, h, rgb, &limits, &error), &error);
    need(ae_tower_plan_make(ae_tower_model_of(r->tower), w, h, plan, &error), &error);
}

/* Its rows, owned by the caller; *n: numbers. nth: an allocation that fails (0: none), after which the encoder must still work;
 * *failed: there was one. */
static float *rows_despite(rig *r, uint32_t w, uint32_t h, size_t *n, long nth, bool *failed)
{
    aerie_error error = {0};
    ae_image image;
    ae_tower_plan plan;
    const ae_tower_model *m = ae_tower_model_of(r->tower);
    make_picture(r, w, h, &image, &plan);
    *n = (size_t)ae_tower_plan_rows(m, &plan) * (1 + m->n_deep) * m->n_out;
    float *rows = calloc(*n, sizeof *rows);
    assert_non_null(rows);
    fail_alloc_arm(nth, false);
    const aerie_status status = ae_tower_run(r->tower, &image, &plan, rows, NULL, NULL, &error);
    *failed = fail_alloc_disarm();
    if (!nth) need(status, &error);
    else if (status != AERIE_OK) { /* and once more, with memory */
        assert_int_equal(status, AERIE_ERROR_MEMORY);
        need(ae_tower_run(r->tower, &image, &plan, rows, NULL, NULL, &error), &error);
    }
    ae_image_free(&image);
    return rows;
}

static float *rows_of(rig *r, uint32_t w, uint32_t h, size_t *n)
{
    bool failed;
    return rows_despite(r, w, h, n, 0, &failed);
}

static const uint32_t sizes[][2] = {{40, 64}, {110, 70}, {33, 31}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void levels_and_threads_give_the_same_rows(void **state)
{
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        float *want[N_SIZES] = {0};
        size_t n_want[N_SIZES];
        for (int k = 0; k < N_SIZES; k++) { /* each by an encoder that has read nothing else */
            rig alone;
            assert_true(open_rig(&alone, types[t], "ref", 1));
            want[k] = rows_of(&alone, sizes[k][0], sizes[k][1], &n_want[k]);
            double sum = 0;
            for (size_t i = 0; i < n_want[k]; i++) sum += want[k][i] * (double)want[k][i];
            if (!(sum > 0 && sum < 1e12)) fail_msg("%s: rows of noise have a sum of squares of %g", types[t], sum);
            close_rig(&alone);
        }
        for (int l = 0; l < N_LEVELS; l++) {
            for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
                rig r;
                if (n_threads > 1 && l != t % 4) continue; /* at one level of each type */
                if (AE_TEST_EVERY > 4 && l != t % 4 && (l + t) % 3) continue;
                if (!open_rig(&r, types[t], levels[l], n_threads)) continue;
                for (int k = 0; k < N_SIZES; k++) { /* in memory of the larger one, then in memory that was there already */
                    size_t n;
                    float *got = rows_of(&r, sizes[k][0], sizes[k][1], &n);
                    if (n != n_want[k] || memcmp(got, want[k], n * sizeof *got))
                        fail_msg("%s at level %s with %u threads: other rows for %u x %u", types[t], levels[l], n_threads,
                                 sizes[k][0], sizes[k][1]);
                    free(got);
                }
                close_rig(&r);
            }
        }
        for (int k = 0; k < N_SIZES; k++) free(want[k]);
    }
}

/* After a failed allocation the size of the view must not count as allocated. */
static void lack_of_memory_leaves_a_tower_that_works(void **state)
{
    (void)state;
    static const char *const some[] = {"gemma3", "qwen2.5vl", "qwen3vl", "minicpmv25"};
    for (int t = 0; t < 4; t++) {
        rig r;
        size_t n;
        bool failed = true;
        assert_true(open_rig(&r, some[t], "ref", 1));
        float *want = rows_of(&r, 150, 90, &n);
        close_rig(&r);
        const long step = AE_TEST_EVERY > 4 ? 7 : 1;
        for (long nth = 1; failed && nth < 400; nth += step) {
            assert_true(open_rig(&r, some[t], "ref", 1));
            free(rows_of(&r, 16, 16, &n));
            float *rows = rows_despite(&r, 150, 90, &n, nth, &failed);
            if (memcmp(rows, want, n * sizeof *rows)) fail_msg("%s: other rows after allocation %ld failed", some[t], nth);
            free(rows);
            close_rig(&r);
        }
        assert_false(failed); /* all of them were tried */
        free(want);
    }
}

/* ---- Views ------------------------------------------------------------------------------------------- */

/* The views of a picture with the text around them: each view's size in place of its rows. */
static void check_views(const char *type, uint32_t width, uint32_t height, const char *want)
{
    aerie_error error = {0};
    ae_tower_model *m;
    ae_tower_plan plan;
    ae_buf out = {0};
    need(mkmmproj_write(type, n_out_of(type), path, &error), &error);
    need(ae_tower_model_load(&m, path, true, &error), &error);
    need(ae_tower_plan_make(m, width, height, &plan, &error), &error);
    for (uint32_t i = 0; i <= plan.n_views; i++) {
        uint32_t w, h;
        ae_tower_text(m, &plan, i, &out);
        if (i == plan.n_views) break;
        ae_tower_view(&plan, i, &w, &h);
        ae_buf_addf(&out, "[%ux%u]", w, h);
    }
    ae_buf_add(&out, "", 1);
    if (strcmp(out.data, want)) fail_msg("%s, %u x %u: %s", type, width, height, out.data);
    ae_buf_free(&out);
    ae_tower_model_free(m);
}

static void views_have_their_text(void **state)
{
    (void)state;
    check_views("idefics3", 90, 60, "<fake_token_around_image><row_1_col_1>[32x32]<fake_token_around_image><row_1_col_2>[32x32]"
                "<fake_token_around_image><row_1_col_3>[32x32]\n<fake_token_around_image><row_2_col_1>[32x32]"
                "<fake_token_around_image><row_2_col_2>[32x32]<fake_token_around_image><row_2_col_3>[32x32]\n\n"
                "<fake_token_around_image><global-img>[32x32]<fake_token_around_image>");
    check_views("minicpmv", 20, 20, "<image>[32x32]</image>");
    check_views("minicpmv", 64, 60, "<image>[32x32]</image><slice>[32x32]</slice><slice>[32x32]</slice>\n"
                "<slice>[32x32]</slice><slice>[32x32]</slice>");
    check_views("minicpmv", 100, 30,
                "<image>[56x16]</image><slice>[32x32]</slice><slice>[32x32]</slice><slice>[32x32]</slice>");
    check_views("llava16", 20, 99, "[32x32][32x32][32x32][32x32]");
    check_views("minicpmv25", 20, 20, "<image>[32x32]</image>");
    check_views("minicpmv25", 30, 100, "<image>[16x56]</image><slice><image>[32x32]</image>\n<image>[32x32]</image>\n"
                "<image>[32x32]</image></slice>");
}

/* ---- Wrong files -------------------------------------------------------------------------------------- */

/* Reads the file, puts `to` where `from` stands, `offset` bytes after its beginning, and binds a vision encoder of it. */
static void refuse_tower(const char *type, const char *from, size_t offset, const void *to, size_t n_to, const char *from2,
                         const char *to2, const char *sentence)
{
    aerie_error error = {0};
    ae_gguf *gguf;
    ae_tower_model *model = NULL;
    need(mkmmproj_write(type, n_out_of(type), path, &error), &error);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, n, f), n);
    fclose(f);
    size_t n_found = 0;
    for (size_t i = 0; i + strlen(from) + offset + n_to < n; i++) {
        if (!memcmp(bytes + i, from, strlen(from))) memcpy(bytes + i + offset, to, n_to), n_found++;
        if (from2 && !memcmp(bytes + i, from2, strlen(from2))) memcpy(bytes + i, to2, strlen(from2)), n_found++;
    }
    assert_true(n_found == 1u + (from2 != NULL));
    aerie_status status = ae_gguf_open_memory(&gguf, bytes, n, "mutant.gguf", &error);
    if (status == AERIE_OK) status = ae_tower_model_bind(&model, gguf, &error);
    if (status == AERIE_OK || !strstr(error.text, sentence)) fail_msg("%s: '%s' is not '%s'", type, error.text, sentence);
    assert_null(model);
    free(bytes);
}

static void refuses_encoders_that_cannot_be(void **state)
{
    (void)state;
    const uint32_t wide = 64;
    refuse_tower("qwen3vl", "qwen3vl_merger", 0, "qwen2vl_merger", 14, NULL, NULL,
                 "v.deepstack.0.norm.weight belongs to no vision encoder of type qwen2vl_merger");
    refuse_tower("qwen2.5vl", "clip.vision.patch_size", 22 + 4, &wide, sizeof wide, "clip.vision.window_size",
                 "clip.vision.window_sizX", "a window of 112 pixels holds no token of 128 pixels");
    const uint32_t much = 5000, version = 7, few = 6;
    const int32_t odd = 33, huge = 32 * 65, back = 0;
    refuse_tower("llava16", "clip.vision.image_grid_pinpoints", 32 + 16, &odd, sizeof odd, NULL, NULL, "element 0 of");
    refuse_tower("llava16", "clip.vision.image_grid_pinpoints", 32 + 20, &huge, sizeof huge, NULL, NULL, "element 1 of");
    refuse_tower("llava16", "clip.vision.image_grid_pinpoints", 32 + 40, &back, sizeof back, NULL, NULL, "element 6 of");
    refuse_tower("llava16", "spatial_unpad", 0, "spatial_unpid", 13, NULL, NULL, "\"flat\" and \"spatial_unpad\" are known");
    refuse_tower("llava16", "model.image_newline", 0, "modal", 5, NULL, NULL, "image_newline");
    refuse_tower("granitevision", "clip.vision.feature_layer", 25 + 20, &back, sizeof back, NULL, NULL, "an ascending list");
    refuse_tower("granitevision", "clip.vision.feature_layer", 25 + 24, &odd, sizeof odd, NULL, NULL, "an ascending list");
    refuse_tower("minicpmv", "clip.minicpmv_query_num", 23 + 4, &much, sizeof much, NULL, NULL, "1 to 1024 are possible");
    refuse_tower("minicpmv", "clip.minicpmv_query_num", 23 + 4, &few, sizeof few, NULL, NULL, "resampler.query");
    refuse_tower("minicpmv", "clip.minicpmv_version", 21 + 4, &version, sizeof version, NULL, NULL, "is 7; 2 to 6 and 100045");
    refuse_tower("minicpmv", "clip.vision.projection_dim", 26 + 4, &wide, sizeof wide, NULL, NULL, "is missing, or its width");
    refuse_tower("minicpmv", "resampler.ln_kv.bias", 0, "resampler.ln_kv.bios", 20, NULL, NULL, "resampler.ln_kv.bias");
}

static void refuse_model(const mkarch_spec *spec, const char *sentence)
{
    aerie_error error = {0};
    ae_model *model = NULL;
    need(mkarch_write(spec, false, path, &error), &error);
    if (ae_model_load(&model, path, NULL, &error) == AERIE_OK || !strstr(error.text, sentence))
        fail_msg("%s: '%s' is not '%s'", spec->name, error.text, sentence);
    assert_null(model);
}

static void refuses_text_models_that_cannot_be(void **state)
{
    (void)state;
    char keys[2048], tensors[4096];
    mkarch_spec loops = *mkarch_find("nanbeige"), norms = *mkarch_find("jina-bert-v2");
    assert_true(snprintf(keys, sizeof keys, "%su nextn_predict_layers 1\n", loops.keys) < (int)sizeof keys);
    loops.keys = keys;
    refuse_model(&loops, "MTP blocks after layers that are repeated (num_loops 2)");
    /* only the first block has the second norm */
    norms.layers = "baa";
    assert_true(snprintf(tensors, sizeof tensors, "%sb attn_norm_2 n 64\n", norms.tensors) < (int)sizeof tensors);
    norms.tensors = tensors;
    refuse_model(&norms, "blk.1.attn_norm_2.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_have_their_text), cmocka_unit_test(refuses_encoders_that_cannot_be),
        cmocka_unit_test(refuses_text_models_that_cannot_be),
        cmocka_unit_test(levels_and_threads_give_the_same_rows), cmocka_unit_test(lack_of_memory_leaves_a_tower_that_works),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
