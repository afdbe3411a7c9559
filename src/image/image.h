/* image.h - pictures as pixels: files decoded within limits, turned upright, put on white, and resized in integers.
 *
 * Owns: what bytes of a JPEG, PNG or WebP file become, and the one resize. Does not own: what a tower makes of pixels.
 * Invariants: sizes are checked against the limits before anything of their order is allocated; equal pixels, sizes and filters
 * give equal bytes on every machine (the resize is IEEE doubles without contraction, then integers). The libraries that decode
 * are optional; without one its format is refused.
 * Source: the resize is Pillow's 8-bit resampling, rows first, as up to Pillow 12, written anew.
 */
#ifndef AE_IMAGE_IMAGE_H
#define AE_IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ae_image {
    uint32_t width, height;
    uint8_t *rgb; /* [height][width][3], ae_free */
} ae_image;

typedef struct ae_image_limits {
    size_t max_bytes;    /* of the file */
    uint64_t max_pixels; /* width * height */
    uint32_t max_side;
    uint32_t max_ratio;  /* most that the longer side may exceed the shorter one, as a ratio */
    uint64_t max_memory; /* bytes that decoding may take at its peak, the picture itself included; 0: no limit of its own */
} ae_image_limits;

/* 20 MiB, 50 million pixels, sides of 16,384, 200 : 1. */
ae_image_limits ae_image_limits_default(void);

/* Returns which formats this build reads, for messages: "JPEG, PNG or WebP". Static storage. */
const char *ae_image_formats(void);

/* Decodes all of a file's bytes [n]: applies EXIF orientation, puts alpha on white, and makes grey, palettes and 16 bits 8-bit
 * RGB. Colour profiles are ignored. FORMAT: none of the formats, or damaged. UNSUPPORTED: a kind that is not read (animations,
 * CMYK, other formats, by name). LIMIT: too large (what, and what is possible). MEMORY. */
aerie_status ae_image_decode(ae_image *out, const void *bytes, size_t n, const ae_image_limits *limits, aerie_error *error);
/* Makes a picture of the pixels [height][width][3], which are copied. LIMIT as above. */
aerie_status ae_image_from_rgb(ae_image *out, uint32_t width, uint32_t height, const uint8_t *rgb,
                               const ae_image_limits *limits, aerie_error *error);
void ae_image_free(ae_image *image);

typedef enum ae_image_filter {
    AE_IMAGE_BILINEAR,
    AE_IMAGE_BICUBIC, /* a = -0.5 */
    AE_IMAGE_LANCZOS, /* of 3 lobes */
} ae_image_filter;

/* Stretches `in` to width x height, each 1 to 65,535. MEMORY. */
aerie_status ae_image_resize(ae_image *out, const ae_image *in, uint32_t width, uint32_t height, ae_image_filter filter,
                             aerie_error *error);
/* Cuts out the part of `in` at (x, y), which must be within it. */
aerie_status ae_image_crop(ae_image *out, const ae_image *in, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                           aerie_error *error);
/* Puts `in` at (x, y) on a picture of one colour, within which it must lie. */
aerie_status ae_image_put(ae_image *out, const ae_image *in, uint32_t width, uint32_t height, uint32_t x, uint32_t y,
                          const uint8_t colour[3], aerie_error *error);

#endif
