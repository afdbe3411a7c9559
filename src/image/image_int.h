/* image_int.h - what the decoders of src/image do for decode.c: one function for each format, and the orientation. */
#ifndef AE_IMAGE_IMAGE_INT_H
#define AE_IMAGE_IMAGE_INT_H

#include "image/image.h"

/* Checks that a picture of this size may be decoded. A decoder calls it once it knows the size, before it allocates memory by
 * it. peak: most bytes per pixel that the decoder needs, its result included. */
aerie_status ae_image_check_size(const ae_image_limits *limits, uint64_t width, uint64_t height, uint32_t peak,
                                 aerie_error *error);
/* Allocates space for the image's pixels. */
aerie_status ae_image_alloc(ae_image *image, uint32_t width, uint32_t height, aerie_error *error);
/* Puts n pixels of 4 bytes on white: they become 3 bytes each. */
void ae_image_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n);
/* Fails with a library's sentence about damage (any bytes, cut and made ASCII). */
aerie_status ae_image_damaged(const char *format, const char *why, aerie_error *error);

/* Decoders. The result is oriented as in the file. On failure *out holds nothing. */
aerie_status ae_image_decode_jpeg(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error);
aerie_status ae_image_decode_png(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                 aerie_error *error);
aerie_status ae_image_decode_webp(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error);

/* exif.c: returns the orientation that the file asks for, 1 to 8; 1 if it asks for none or for something unknown. */
uint32_t ae_exif_of_jpeg(const uint8_t *bytes, size_t n);
uint32_t ae_exif_of_png(const uint8_t *bytes, size_t n);
uint32_t ae_exif_of_webp(const uint8_t *bytes, size_t n);

#endif
