/* png.c - PNG files by libpng.
 *
 * Owns nothing between calls. Grey and palettes are widened, 16 bits scaled to 8, transparency becomes alpha and is put on
 * white; wrong checksums are damage. */
#include "image/image_int.h"

#ifdef AE_IMAGE_PNG
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "base/mem.h"

#define PEAK 10 /* bytes per pixel: four with alpha, the result, and a rotated copy */

typedef struct png_reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t n, at;
    jmp_buf jump;
    char why[128];
    uint8_t *rgba;
    png_bytep *rows;
    const ae_image_limits *limits;
    ae_image *out;
} png_reader;

static void fail(png_structp png, png_const_charp why)
{
    png_reader *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", why);
    longjmp(r->jump, 1);
}

static void say_nothing(png_structp png, png_const_charp why)
{
    (void)png, (void)why;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    png_reader *r = png_get_io_ptr(png);
    if (n > r->n - r->at) png_error(png, "the file ends too early");
    memcpy(to, r->bytes + r->at, n);
    r->at += n;
}

/* Returns whether every chunk is within the file: libpng allocates memory for the length that a chunk announces. */
static bool chunks_fit(const uint8_t *bytes, size_t n)
{
    for (size_t at = 8; at < n;) {
        if (n - at < 12) return false;
        const uint8_t *p = bytes + at;
        const size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (length > n - at - 12) return false;
        if (!memcmp(p + 4, "IEND", 4)) return true;
        at += 12 + length;
    }
    return false;
}

/* Runs under setjmp: changes only what *r points to. */
static aerie_status decode(png_reader *r, aerie_error *error)
{
    png_structp png = r->png;
    png_set_user_limits(png, r->limits->max_side, r->limits->max_side);
    png_set_chunk_cache_max(png, 64);
    png_set_chunk_malloc_max(png, (png_alloc_size_t)4 << 20);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_read_fn(png, r, read_bytes);
    png_set_sig_bytes(png, 0);
    png_read_info(png, r->info);
    const uint32_t w = png_get_image_width(png, r->info), h = png_get_image_height(png, r->info);
    AE_TRY(ae_image_check_size(r->limits, w, h, PEAK, error));
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
    (void)png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    if (png_get_rowbytes(png, r->info) != (size_t)w * 4)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the PNG image has pixels of an unknown kind");
    r->rgba = ae_alloc((size_t)w * h, 4);
    r->rows = ae_alloc(h, sizeof *r->rows);
    if (!r->rgba || !r->rows) return ae_fail_memory(error, "the pixels of a picture", (size_t)w * h * 4);
    for (uint32_t y = 0; y < h; y++) r->rows[y] = r->rgba + (size_t)y * w * 4;
    png_read_image(png, r->rows);
    png_read_end(png, NULL);
    AE_TRY(ae_image_alloc(r->out, w, h, error));
    ae_image_on_white(r->out->rgb, r->rgba, (size_t)w * h);
    return AERIE_OK;
}

aerie_status ae_image_decode_png(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                 aerie_error *error)
{
    png_reader r = {.bytes = bytes, .n = n, .limits = limits, .out = out};
    aerie_status status;
    if (!chunks_fit(bytes, n)) return ae_image_damaged("PNG", "the file ends too early", error);
    if (setjmp(r.jump)) {
        status = ae_image_damaged("PNG", r.why, error);
    } else {
        r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, say_nothing);
        r.info = r.png ? png_create_info_struct(r.png) : NULL;
        status = r.info ? decode(&r, error) : ae_fail_memory(error, "a PNG decoder", 0);
    }
    png_destroy_read_struct(&r.png, &r.info, NULL);
    ae_free(r.rgba);
    ae_free(r.rows);
    if (status != AERIE_OK) ae_image_free(out);
    return status;
}
#else
aerie_status ae_image_decode_png(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                 aerie_error *error)
{
    (void)out, (void)bytes, (void)n, (void)limits;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the image is a PNG; this program was built without libpng");
}
#endif
