/* test_rope.c - the rotation as options ask for it: frequencies against the formulas of the YaRN paper (arXiv 2309.00071, and
 * llama.cpp's reading of its factors), worked out here by other means.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mkmodel.h"
#include "model/model.h"

static char folder[] = "/tmp/aerie-rope-XXXXXX", path[64];

static int make_model(void **state)
{
    mk_options options;
    aerie_error error = {0};
    (void)state;
    if (!mkdtemp(folder) || !mk_shape("tiny", &options)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return mk_model(&options, path, &error) == AERIE_OK ? 0 : -1;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path) || rmdir(folder);
}

typedef struct rotation {
    ae_rope h;
    double freq[AE_MAX_HEAD_DIM / 2], magnitude;
} rotation;

static void load(rotation *r, const aerie_rope *rope)
{
    ae_model *model;
    aerie_error error = {0};
    const ae_model_options options = {.rope = rope};
    if (ae_model_load(&model, path, &options, &error) != AERIE_OK) fail_msg("%s", error.text);
    r->h = model->hparams.ropes[0];
    ae_model_rope_freqs(&r->h, 0, r->freq, &r->magnitude);
    ae_model_free(model);
}

static void near(double x, double wanted)
{
    if (!(fabs(x - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%.17g, wanted %.17g", x, wanted);
}

static void linear_scaling_divides(void **state)
{
    rotation plain, r;
    (void)state;
    load(&plain, NULL);
    near(plain.magnitude, 1);
    aerie_rope rope = aerie_rope_default();
    load(&r, &rope); /* nothing is given */
    assert_memory_equal(r.freq, plain.freq, r.h.n_rot / 2 * sizeof *r.freq);
    rope.factor = 4;
    load(&r, &rope);
    for (uint32_t i = 0; i < r.h.n_rot / 2; i++) near(r.freq[i], plain.freq[i] / 4);
    near(r.magnitude, 1);
    rope.freq_base = 500;
    rope.scaling = AERIE_ROPE_SCALING_NONE;
    load(&r, &rope);
    for (uint32_t i = 0; i < r.h.n_rot / 2; i++) near(r.freq[i], exp(-2.0 * i / r.h.n_rot * log(500)));
}

static void yarn_follows_its_factors(void **state)
{
    static const struct {
        float ext, attn, fast, slow;
    } cases[] = {{-1, -1, -1, -1}, {1, 1, 32, 1}, {0.5f, 1.5f, 8, 2}, {0, 0.75f, -1, -1}, {0.25f, -1, 16, 0.5f}};
    rotation plain;
    (void)state;
    load(&plain, NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rotation r;
        aerie_rope rope = aerie_rope_default();
        rope.scaling = AERIE_ROPE_SCALING_YARN;
        rope.factor = 8;
        rope.n_ctx_orig = 512;
        rope.yarn_ext_factor = cases[k].ext;
        rope.yarn_attn_factor = cases[k].attn;
        rope.yarn_beta_fast = cases[k].fast;
        rope.yarn_beta_slow = cases[k].slow;
        load(&r, &rope);
        const double ext = cases[k].ext < 0 ? 1 : (double)cases[k].ext, attn = cases[k].attn < 0 ? 1 : (double)cases[k].attn;
        const double fast = cases[k].fast < 0 ? 32 : (double)cases[k].fast;
        const double slow = cases[k].slow < 0 ? 1 : (double)cases[k].slow;
        const double d = r.h.n_rot, turn = 2 * acos(-1.0), base = (double)r.h.base;
        const double lo = fmax(0, floor(d * log(512 / (fast * turn)) / (2 * log(base))));
        const double hi = fmin(d - 1, ceil(d * log(512 / (slow * turn)) / (2 * log(base))));
        for (uint32_t i = 0; i < r.h.n_rot / 2; i++) {
            const double ramp = fmin(1, fmax(0, (i - lo) / fmax(0.001, hi - lo))), mix = (1 - ramp) * ext;
            near(r.freq[i], plain.freq[i] / 8 * (1 - mix) + plain.freq[i] * mix);
        }
        near(r.magnitude, attn * (ext > 0 ? 1 + 0.1 * log(8) : 1));
    }
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    aerie_rope bad[6];
    (void)state;
    for (size_t i = 0; i < 6; i++) bad[i] = aerie_rope_default();
    bad[0].factor = 0;
    bad[1].freq_base = 1;
    bad[2].yarn_beta_fast = NAN;
    bad[3].yarn_attn_factor = INFINITY;
    bad[4].yarn_ext_factor = 1.5f;
    bad[5].scaling = (aerie_rope_scaling)9;
    for (size_t i = 0; i < 6; i++) {
        ae_model *model;
        aerie_error error = {0};
        const ae_model_options options = {.rope = &bad[i]};
        assert_int_equal(ae_model_load(&model, path, &options, &error), AERIE_ERROR_ARGUMENT);
        assert_null(model);
        assert_true(strlen(error.text) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_scaling_divides),
        cmocka_unit_test(yarn_follows_its_factors),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
