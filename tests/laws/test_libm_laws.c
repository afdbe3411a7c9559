/* test_libm_laws.c - law 1 across machines: libm chooses implementations by CPU, which must not change any token.
 *
 * The program runs itself with glibc's choice of instructions masked (GLIBC_TUNABLES) and compares hashes of rotation tables,
 * logits and draws. Other C libraries ignore the variable, and the comparison is trivial there. tests/house/check_libm.sh
 * checks the sources.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.inc"
#include "sample/sampler.h"

static const char old_cpu[] =
    "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4,-AVX512F,-SSE4_1,-AVX_Usable,-AVX2_Usable,-FMA_Usable,-AVX512F_Usable";

static char folder[] = "/tmp/aerie-libm-XXXXXX", model_path[64];

typedef struct hashes {
    unsigned long long rotation, logits, draws;
} hashes;

static void add(unsigned long long *hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

/* Bases and scalings of many models. */
static void hash_rotations(unsigned long long *hash)
{
    static const float bases[] = {1e4f, 1e5f, 1.5e5f, 5e5f, 1e6f, 1e7f, 8e6f, 12345.678f};
    static const uint32_t dims[] = {32, 64, 80, 96, 128, 256};
    double freq[128], magnitude;
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++)
        for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
            for (int scaling = 0; scaling < 3; scaling++)
                for (int factor = 2; factor < 40; factor += 3) {
                    const ae_rope h = {.n_rot = dims[d], .base = bases[b] + (float)factor,
                                          .scaling = (ae_rope_scaling)scaling, .factor = (float)factor,
                                          .n_ctx_orig = 1024u * (uint32_t)factor};
                    ae_model_rope_freqs(&h, 0, freq, &magnitude);
                    add(hash, freq, dims[d] / 2 * sizeof *freq);
                    add(hash, &magnitude, sizeof magnitude);
                }
}

/* A sampled text of random weights and the logits that it comes from, every step of the chain in use. */
static void hash_text(const char *path, const char *level, hashes *out)
{
    enum { N = 48 };
    rig r;
    int32_t tokens[N] = {5};
    ae_sampling p = ae_sampling_default();
    aerie_error error = {0};
    ae_sampler *sampler;
    rig_open(&r, path, level, 1, 1, N, AE_KV_F16, 0);
    p.temperature = 1.2f, p.dynatemp_range = 0.3f, p.dynatemp_exponent = 1.3f, p.top_n_sigma = 3, p.typical_p = 0.9f;
    p.xtc_probability = 0.3f, p.dry_multiplier = 0.8f, p.seed = 4;
    need(ae_sampler_create(&sampler, &p, NULL, r.n_vocab, N, &error), &error);
    for (uint32_t i = 1; i < N; i++) {
        uint32_t row;
        ae_engine_rows_clear(r.engine);
        need(ae_engine_add_chain(r.engine, 0, tokens + i - 1, 1, AE_EXPORT_ALL, &row, &error), &error);
        need(ae_engine_pass(r.engine, &error), &error);
        const float *logits = ae_engine_logits(r.engine, row);
        ae_engine_commit(r.engine, 0, 1, NULL, 0);
        tokens[i] = ae_sampler_draw(sampler, logits, tokens, i);
        add(&out->logits, logits, r.n_vocab * sizeof *logits);
    }
    add(&out->draws, tokens, sizeof tokens);
    ae_sampler_free(sampler);
    rig_close(&r);
}

static hashes hash_all(const char *path)
{
    hashes h = {0};
    hash_rotations(&h.rotation);
    for (size_t i = 0; i < N_LEVELS; i++)
        if (rig_has_level(levels[i])) hash_text(path, levels[i], &h);
    return h;
}

static void another_libm_gives_the_same_bits(void **state)
{
    char self[512], command[1024];
    hashes other = {0};
    (void)state;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(command, sizeof command, "GLIBC_TUNABLES=%s '%s' %s", old_cpu, self, model_path);
    FILE *child = popen(command, "r");
    assert_non_null(child);
    assert_int_equal(fscanf(child, "%llx %llx %llx", &other.rotation, &other.logits, &other.draws), 3);
    assert_int_equal(pclose(child), 0);
    const hashes own = hash_all(model_path);
    if (own.rotation != other.rotation) fail_msg("the tables of the rotation depend on libm's choice of instructions");
    if (own.logits != other.logits) fail_msg("logits depend on libm's choice of instructions");
    if (own.draws != other.draws) fail_msg("draws depend on libm's choice of instructions");
}

static int make_model(void **state)
{
    mk_options o;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(model_path, sizeof model_path, "%s/m", folder);
    mk_shape("tiny-gqa", &o);
    o.type = "q4_0", o.rope_base = 500003;
    return mk_model(&o, model_path, NULL) != AERIE_OK;
}

static int drop_model(void **state)
{
    (void)state;
    unlink(model_path);
    rmdir(folder);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        const hashes h = hash_all(argv[1]);
        printf("%llx %llx %llx\n", h.rotation, h.logits, h.draws);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_libm_gives_the_same_bits)};
    return cmocka_run_group_tests_name("libm laws", tests, make_model, drop_model);
}
