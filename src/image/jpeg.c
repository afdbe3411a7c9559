/* jpeg.c - JPEG files by libjpeg-turbo.
 *
 * Owns nothing between calls. The accurate integer transform and full upsampling: the same pixels with and without SIMD. What
 * the library warns of counts as damage, but for surplus bytes, since a half-grey picture would be answered as if it were
 * whole. A file of more than MAX_SCANS scans is refused: each costs time over all of its pixels. */
#include "image/image_int.h"

#ifdef AE_IMAGE_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#define MAX_SCANS 500
#define PEAK 15 /* bytes per pixel: coefficients of progressive files (6, or 8 with four components), the result, and a rotated
                 * copy */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char why[JMSG_LENGTH_MAX];
    const ae_image_limits *limits;
    ae_image *out;
} jpeg_reader;

static void fail(j_common_ptr info)
{
    jpeg_reader *r = info->client_data;
    r->errors.format_message(info, r->why);
    longjmp(r->jump, 1);
}

static void say(j_common_ptr info, int level)
{
    jpeg_reader *r = info->client_data;
    if (level < 0 && r->errors.msg_code != JWRN_EXTRANEOUS_DATA) fail(info);
}

static void say_nothing(j_common_ptr info)
{
    (void)info;
}

static void count_scans(j_common_ptr info)
{
    jpeg_reader *r = info->client_data;
    if (r->info.input_scan_number <= MAX_SCANS) return;
    snprintf(r->why, sizeof r->why, "more than %d scans", MAX_SCANS);
    longjmp(r->jump, 1);
}

/* Runs under setjmp: changes only what *r points to. */
static aerie_status decode(jpeg_reader *r, const uint8_t *bytes, size_t n, aerie_error *error)
{
    struct jpeg_decompress_struct *info = &r->info;
    jpeg_create_decompress(info);
    info->client_data = r;
    info->progress = &r->progress;
    r->progress.progress_monitor = count_scans;
    info->mem->max_memory_to_use = 256l << 20;
    jpeg_mem_src(info, bytes, n);
    (void)jpeg_read_header(info, TRUE);
    AE_TRY(ae_image_check_size(r->limits, info->image_width, info->image_height, PEAK, error));
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the JPEG image has CMYK colours; save it with RGB colours");
    if (info->jpeg_color_space == JCS_UNKNOWN)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the JPEG image has unknown colours; save it with RGB colours");
    info->out_color_space = JCS_RGB;
    info->dct_method = JDCT_ISLOW;
    info->do_fancy_upsampling = TRUE;
    info->do_block_smoothing = FALSE;
    (void)jpeg_start_decompress(info);
    AE_TRY(ae_image_alloc(r->out, info->output_width, info->output_height, error));
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = r->out->rgb + (size_t)info->output_scanline * info->output_width * 3;
        (void)jpeg_read_scanlines(info, &row, 1);
    }
    (void)jpeg_finish_decompress(info);
    return AERIE_OK;
}

aerie_status ae_image_decode_jpeg(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error)
{
    jpeg_reader r = {.limits = limits, .out = out, .why = ""};
    aerie_status status;
    r.info.err = jpeg_std_error(&r.errors);
    r.info.client_data = &r;
    r.errors.error_exit = fail;
    r.errors.emit_message = say;
    r.errors.output_message = say_nothing;
    if (setjmp(r.jump)) status = ae_image_damaged("JPEG", r.why, error);
    else status = decode(&r, bytes, n, error);
    jpeg_destroy_decompress(&r.info);
    if (status != AERIE_OK) ae_image_free(out);
    return status;
}
#else
aerie_status ae_image_decode_jpeg(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error)
{
    (void)out, (void)bytes, (void)n, (void)limits;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the image is a JPEG; this program was built without libjpeg");
}
#endif
