/* decode.c - recognises a file's format, checks limits, and applies orientation and alpha (image.h). The formats are in jpeg.c,
 * png.c, webp.c.
 *
 * Owns nothing between calls. Invariant: a size is checked before memory of its order is allocated. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "image/image_int.h"

ae_image_limits ae_image_limits_default(void)
{
    return (ae_image_limits){.max_bytes = (size_t)20 << 20, .max_pixels = 50000000, .max_side = 16384, .max_ratio = 200};
}

const char *ae_image_formats(void)
{
#if defined(AE_IMAGE_JPEG) && defined(AE_IMAGE_PNG) && defined(AE_IMAGE_WEBP)
    return "JPEG, PNG or WebP";
#else
    return ""
#ifdef AE_IMAGE_JPEG
           "JPEG "
#endif
#ifdef AE_IMAGE_PNG
           "PNG "
#endif
#ifdef AE_IMAGE_WEBP
           "WebP "
#endif
           "(this program was built without the libraries of other formats)";
#endif
}

void ae_image_free(ae_image *image)
{
    ae_free(image->rgb);
    *image = (ae_image){0};
}

aerie_status ae_image_alloc(ae_image *image, uint32_t width, uint32_t height, aerie_error *error)
{
    size_t bytes;
    *image = (ae_image){width, height, NULL};
    if (!ae_mul_size((size_t)width * 3, height, &bytes)) bytes = SIZE_MAX;
    else image->rgb = ae_alloc(bytes ? bytes : 1, 1);
    if (image->rgb) return AERIE_OK;
    *image = (ae_image){0};
    return ae_fail_memory(error, "the pixels of a picture", bytes);
}

aerie_status ae_image_check_size(const ae_image_limits *limits, uint64_t width, uint64_t height, uint32_t peak,
                                 aerie_error *error)
{
    const uint64_t longer = width > height ? width : height, shorter = width > height ? height : width;
    if (!shorter)
        return ae_fail(error, AERIE_ERROR_FORMAT, "the image has no pixels (%llu x %llu)", (unsigned long long)width,
                       (unsigned long long)height);
    if (longer > limits->max_side)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the image has %llu x %llu pixels; sides of up to %u are possible",
                       (unsigned long long)width, (unsigned long long)height, limits->max_side);
    if (width * height > limits->max_pixels)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the image has %llu pixels; %llu are possible",
                       (unsigned long long)(width * height), (unsigned long long)limits->max_pixels);
    if (longer > shorter * limits->max_ratio)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the image of %llu x %llu pixels is narrower than 1 : %u",
                       (unsigned long long)width, (unsigned long long)height, limits->max_ratio);
    if (limits->max_memory && width * height * peak > limits->max_memory)
        return ae_fail(error, AERIE_ERROR_LIMIT, "decoding the image of %llu x %llu pixels takes up to %llu bytes; %llu are "
                       "left for it", (unsigned long long)width, (unsigned long long)height,
                       (unsigned long long)(width * height * peak), (unsigned long long)limits->max_memory);
    return AERIE_OK;
}

aerie_status ae_image_from_rgb(ae_image *out, uint32_t width, uint32_t height, const uint8_t *rgb,
                               const ae_image_limits *limits, aerie_error *error)
{
    *out = (ae_image){0};
    AE_TRY(ae_image_check_size(limits, width, height, 3, error));
    AE_TRY(ae_image_alloc(out, width, height, error));
    memcpy(out->rgb, rgb, (size_t)width * height * 3);
    return AERIE_OK;
}

void ae_image_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = rgba[4 * i + 3];
        for (uint32_t c = 0; c < 3; c++) rgb[3 * i + c] = (uint8_t)((rgba[4 * i + c] * a + 255 * (255 - a) + 127) / 255);
    }
}

aerie_status ae_image_damaged(const char *format, const char *why, aerie_error *error)
{
    char plain[121];
    size_t n = 0;
    for (; why[n] && n < sizeof plain - 1; n++) plain[n] = why[n] >= ' ' && why[n] <= '~' ? why[n] : '?';
    plain[n] = 0;
    return ae_fail(error, AERIE_ERROR_FORMAT, "the %s image is damaged: %s", format, plain);
}

/* ---- Orientation ---------------------------------------------------------------------------------------- */

/* Applies an orientation as EXIF numbers them: 2 and 4 mirror, 3 rotates by 180 degrees, 5 to 8 exchange rows and columns. */
static aerie_status turn(ae_image *image, uint32_t orientation, aerie_error *error)
{
    const uint32_t w = image->width, h = image->height;
    const bool across = orientation >= 5;
    ae_image to;
    if (orientation == 1) return AERIE_OK;
    AE_TRY(ae_image_alloc(&to, across ? h : w, across ? w : h, error));
    for (uint32_t y = 0; y < to.height; y++) {
        for (uint32_t x = 0; x < to.width; x++) {
            uint32_t u = across ? y : x, v = across ? x : y; /* the source of the pixel */
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) u = w - 1 - u;
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) v = h - 1 - v;
            memcpy(to.rgb + ((size_t)y * to.width + x) * 3, image->rgb + ((size_t)v * w + u) * 3, 3);
        }
    }
    ae_image_free(image);
    *image = to;
    return AERIE_OK;
}

/* ---- Formats -------------------------------------------------------------------------------------------- */

typedef struct format {
    const char *name;
    aerie_status (*decode)(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits, aerie_error *error);
    uint32_t (*orientation)(const uint8_t *bytes, size_t n);
} format;

static bool begins(const uint8_t *bytes, size_t n, size_t at, const char *magic, size_t n_magic)
{
    return n >= at + n_magic && !memcmp(bytes + at, magic, n_magic);
}

/* Returns the name of a format that is recognised but not supported; NULL: none. */
static const char *known_format(const uint8_t *b, size_t n)
{
    if (begins(b, n, 0, "GIF8", 4)) return "a GIF";
    if (begins(b, n, 0, "BM", 2)) return "a BMP";
    if (begins(b, n, 0, "II*\0", 4) || begins(b, n, 0, "MM\0*", 4)) return "a TIFF";
    if (begins(b, n, 4, "ftypavif", 8)) return "an AVIF";
    if (begins(b, n, 4, "ftyphei", 7) || begins(b, n, 4, "ftypmif1", 8)) return "an HEIC";
    if (begins(b, n, 0, "%PDF", 4)) return "a PDF";
    if (begins(b, n, 0, "<svg", 4) || begins(b, n, 0, "<?xml", 5)) return "an SVG";
    return NULL;
}

static format find_format(const uint8_t *b, size_t n)
{
    if (begins(b, n, 0, "\xFF\xD8\xFF", 3)) return (format){"JPEG", ae_image_decode_jpeg, ae_exif_of_jpeg};
    if (begins(b, n, 0, "\x89PNG\r\n\x1A\n", 8)) return (format){"PNG", ae_image_decode_png, ae_exif_of_png};
    if (begins(b, n, 0, "RIFF", 4) && begins(b, n, 8, "WEBP", 4))
        return (format){"WebP", ae_image_decode_webp, ae_exif_of_webp};
    return (format){0};
}

aerie_status ae_image_decode(ae_image *out, const void *bytes, size_t n, const ae_image_limits *limits, aerie_error *error)
{
    *out = (ae_image){0};
    if (n > limits->max_bytes)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the image has %zu bytes; %zu are possible", n, limits->max_bytes);
    if (!n) return ae_fail(error, AERIE_ERROR_FORMAT, "the image is empty");
    const format f = find_format(bytes, n);
    if (!f.decode) {
        const char *known = known_format(bytes, n);
        if (known)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the image is %s; possible are %s", known, ae_image_formats());
        return ae_fail(error, AERIE_ERROR_FORMAT, "the image is not a %s", ae_image_formats());
    }
    AE_TRY(f.decode(out, bytes, n, limits, error));
    const aerie_status status = turn(out, f.orientation(bytes, n), error);
    if (status != AERIE_OK) ae_image_free(out);
    return status;
}
