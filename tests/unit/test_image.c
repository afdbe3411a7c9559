/* test_image.c - pictures: compared with Pillow for the same bytes and sizes (tests/golden/make_image_vectors.py), limits,
 * damage.
 *
 * AERIE_RESIZE_VECTORS names a longer list of resizes than the tree keeps. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "every.h"
#include "image/image.h"
#include "base/mem.h"

#define FILES "tests/fuzz/corpus/fuzz_image/"

static uint64_t fnv(const uint8_t *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001B3u;
    return h;
}

static uint8_t *noise(uint32_t w, uint32_t h)
{
    uint8_t *out = malloc((size_t)w * h * 3);
    uint32_t s = w * 65536 + h;
    for (size_t i = 0; i < (size_t)w * h * 3; i++) {
        s = s * 1664525u + 1013904223u;
        out[i] = (uint8_t)(s >> 24);
    }
    return out;
}

static uint8_t *read_file(const char *name, size_t *n)
{
    char path[256];
    snprintf(path, sizeof path, FILES "%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be read", path);
    uint8_t *bytes = malloc(1 << 16);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* Whether this build reads files of that name. */
static bool is_built(const char *name)
{
    const char *dot = strrchr(name, '.'), *wanted = !strcmp(dot, ".jpg") ? "JPEG" : !strcmp(dot, ".png") ? "PNG" : "WebP";
    return strstr(ae_image_formats(), wanted) != NULL;
}

static void resizes_as_pillow(void **state)
{
    (void)state;
    const char *path = getenv("AERIE_RESIZE_VECTORS");
    FILE *f = fopen(path ? path : "tests/golden/images/resize.txt", "r");
    uint32_t w, h, to_w, to_h, n = 0;
    unsigned long long want;
    char name[16];
    assert_non_null(f);
    while (fscanf(f, "%u %u %u %u %15s %llx", &w, &h, &to_w, &to_h, name, &want) == 6) {
        const ae_image_filter filter = name[0] == 'l'   ? AE_IMAGE_LANCZOS
                                       : name[2] == 'l' ? AE_IMAGE_BILINEAR
                                                        : AE_IMAGE_BICUBIC;
        uint8_t *rgb = noise(w, h);
        const ae_image in = {w, h, rgb};
        ae_image out;
        assert_int_equal(ae_image_resize(&out, &in, to_w, to_h, filter, NULL), AERIE_OK);
        if (fnv(out.rgb, (size_t)to_w * to_h * 3) != want) fail_msg("%u x %u to %u x %u, %s", w, h, to_w, to_h, name);
        ae_image_free(&out);
        free(rgb);
        n++;
    }
    fclose(f);
    assert_true(n >= 200);
}

static void reads_as_pillow(void **state)
{
    (void)state;
    const ae_image_limits limits = ae_image_limits_default();
    FILE *f = fopen("tests/golden/images/files.txt", "r");
    char name[64];
    uint32_t w, h, n_read = 0;
    unsigned long long want;
    assert_non_null(f);
    while (fscanf(f, "%63s %u %u %llx", name, &w, &h, &want) == 4) {
        size_t n;
        aerie_error error;
        ae_image image;
        uint8_t *bytes = read_file(name, &n);
        const aerie_status status = ae_image_decode(&image, bytes, n, &limits, &error);
        if (!is_built(name)) {
            assert_int_equal(status, AERIE_ERROR_UNSUPPORTED);
            assert_non_null(strstr(error.text, "built without"));
        } else {
            if (status != AERIE_OK) fail_msg("%s: %s", name, error.text);
            if (image.width != w || image.height != h || fnv(image.rgb, (size_t)w * h * 3) != want)
                fail_msg("%s: other pixels than Pillow's (%u x %u)", name, image.width, image.height);
            ae_image_free(&image);
        }
        free(bytes);
        n_read++;
    }
    fclose(f);
    assert_true(n_read > 20);
}

static void refused(const char *name, const ae_image_limits *limits, aerie_status wanted, const char *text)
{
    size_t n;
    aerie_error error = {0};
    ae_image image;
    uint8_t *bytes = read_file(name, &n);
    if (!is_built(name)) {
        free(bytes);
        return;
    }
    const aerie_status status = ae_image_decode(&image, bytes, n, limits, &error);
    if (status != wanted || !strstr(error.text, text)) fail_msg("%s: %d, '%s', not '%s'", name, status, error.text, text);
    assert_null(image.rgb);
    free(bytes);
}

static void keeps_limits(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.png", "plain.jpg", "lossy.webp"};
    for (int i = 0; i < 3; i++) {
        ae_image_limits l = ae_image_limits_default();
        l.max_bytes = 100;
        refused(names[i], &l, AERIE_ERROR_LIMIT, "; 100 are possible");
        l = ae_image_limits_default();
        l.max_pixels = 23 * 17 - 1;
        refused(names[i], &l, AERIE_ERROR_LIMIT, "391 pixels; 390 are possible");
        l = ae_image_limits_default();
        l.max_memory = 23 * 17 * 4;
        refused(names[i], &l, AERIE_ERROR_LIMIT, "1564 are left for it");
    }
    ae_image_limits l = ae_image_limits_default();
    l.max_ratio = 60;
    refused("tall.png", &l, AERIE_ERROR_LIMIT, "narrower than 1 : 60");
    refused("wide.png", &l, AERIE_ERROR_LIMIT, "narrower than 1 : 60");
    l.max_side = 22;
    refused("plain.jpg", &l, AERIE_ERROR_LIMIT, "sides of up to 22");
    refused("lossy.webp", &l, AERIE_ERROR_LIMIT, "sides of up to 22");
    refused("plain.png", &l, AERIE_ERROR_FORMAT, "PNG image is damaged"); /* libpng refuses it itself */
}

/* A PNG header that announces 100,000 x 100,000 pixels, and a JPEG one of 61,680 x 61,680: refused before memory is taken. */
static void refuses_bombs(void **state)
{
    (void)state;
    ae_image_limits l = ae_image_limits_default();
    size_t n;
    aerie_error error;
    ae_image image;
    uint8_t *chunk = read_file("plain.png", &n); /* its second chunk announces a gigabyte */
    memcpy(chunk + 33, "\x40\0\0\0eXIf", 8);
    assert_int_not_equal(ae_image_decode(&image, chunk, n, &l, &error), AERIE_OK);
    if (is_built("plain.png")) assert_string_equal(error.text, "the PNG image is damaged: the file ends too early");
    free(chunk);
    uint8_t *jpeg = read_file("plain.jpg", &n);
    for (size_t i = 0; i + 9 < n; i++)
        if (jpeg[i] == 0xFF && (jpeg[i + 1] == 0xC0 || jpeg[i + 1] == 0xC2)) memset(jpeg + i + 5, 0xF0, 4);
    const aerie_status status = ae_image_decode(&image, jpeg, n, &l, &error);
    if (is_built("plain.jpg")) assert_int_equal(status, AERIE_ERROR_LIMIT);
    free(jpeg);
    if (!is_built("plain.png")) return;
    const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 1, 0x86, 0xA0,
                           0, 1, 0x86, 0xA0, 8, 2, 0, 0, 0, 0, 0, 0, 0};
    assert_int_not_equal(ae_image_decode(&image, png, sizeof png, &l, &error), AERIE_OK);
}

static void names_other_formats(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } cases[] = {{"GIF89a\1\0\1\0", 10, "a GIF"}, {"BM\0\0\0\0", 6, "a BMP"}, {"II*\0\10\0\0\0", 8, "a TIFF"},
                 {"\0\0\0 ftypavif", 12, "an AVIF"}, {"\0\0\0 ftypheic", 12, "an HEIC"}, {"%PDF-1.7", 8, "a PDF"},
                 {"<svg xmlns", 10, "an SVG"}, {"hello there", 11, "is not a"}, {"", 0, "is empty"},
                 {"\xFF\xD8\xFF", 3, "JPEG"},
                 {"\x89PNG\r\n\x1A\n", 8, "PNG"}, {"RIFF\0\0\0\0WEBP", 12, "WebP"}};
    const ae_image_limits limits = ae_image_limits_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aerie_error error;
        ae_image image;
        assert_int_not_equal(ae_image_decode(&image, cases[i].bytes, cases[i].n, &limits, &error), AERIE_OK);
        if (!strstr(error.text, cases[i].text)) fail_msg("'%s', not '%s'", error.text, cases[i].text);
    }
}

/* Files cut at each length, and with random bytes changed: they are refused or read, twice with the same result. */
static void survives_damage(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.png", "palette.png", "alpha.png", "plain.jpg", "progressive.jpg", "turned6.jpg",
                                        "lossless.webp", "lossy.webp", "alpha.webp", "turned6.png", "turned8.webp"};
    const ae_image_limits limits = ae_image_limits_default();
    uint32_t s = 1, n_refused = 0, n_all = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n;
        uint8_t *bytes = read_file(names[i], &n), *copy = malloc(n);
        for (uint32_t k = 0; k < 1000; k += test_every()) {
            const bool cut = k < n && k % 2;
            const size_t n_kept = cut ? k : n;
            memcpy(copy, bytes, n);
            for (int j = 0; !cut && j < 1 + (int)(k % 4); j++) {
                s = s * 1664525u + 1013904223u;
                copy[(s >> 8) % n] ^= (uint8_t)(1 + (s >> 24) % 255);
            }
            ae_image a, b;
            const aerie_status status = ae_image_decode(&a, copy, n_kept, &limits, NULL);
            assert_int_equal(ae_image_decode(&b, copy, n_kept, &limits, NULL), status);
            if (status == AERIE_OK) assert_memory_equal(a.rgb, b.rgb, (size_t)a.width * a.height * 3);
            n_refused += status != AERIE_OK;
            n_all++;
            ae_image_free(&a);
            ae_image_free(&b);
        }
        free(copy);
        free(bytes);
    }
    assert_true(n_refused > n_all / 4);
}

static void crops(void **state)
{
    (void)state;
    uint8_t *rgb = noise(5, 4);
    const ae_image in = {5, 4, rgb};
    ae_image out;
    assert_int_equal(ae_image_crop(&out, &in, 1, 2, 4, 2, NULL), AERIE_OK);
    assert_memory_equal(out.rgb + 12, rgb + (3 * 5 + 1) * 3, 12);
    ae_image_free(&out);
    assert_int_equal(ae_image_crop(&out, &in, 2, 0, 4, 1, NULL), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_image_resize(&out, &in, 0, 3, AE_IMAGE_BICUBIC, NULL), AERIE_ERROR_ARGUMENT);
    free(rgb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizes_as_pillow), cmocka_unit_test(reads_as_pillow),     cmocka_unit_test(keeps_limits),
        cmocka_unit_test(refuses_bombs),     cmocka_unit_test(names_other_formats), cmocka_unit_test(survives_damage),
        cmocka_unit_test(crops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
