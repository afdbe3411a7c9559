/* webp.c - WebP files by libwebp: still pictures, with alpha or without. Owns nothing between calls. */
#include "image/image_int.h"

#ifdef AE_IMAGE_WEBP
#include <webp/decode.h>

#include "base/mem.h"

#define PEAK 18 /* bytes per pixel: the library's own (four, and tables), four with alpha, the result, and a rotated copy */

aerie_status ae_image_decode_webp(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error)
{
    WebPBitstreamFeatures f;
    *out = (ae_image){0};
    const VP8StatusCode code = WebPGetFeatures(bytes, n, &f);
    if (code == VP8_STATUS_NOT_ENOUGH_DATA) return ae_image_damaged("WebP", "the file ends too early", error);
    if (code != VP8_STATUS_OK) return ae_image_damaged("WebP", "its header cannot be read", error);
    if (f.has_animation)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the WebP image is an animation; save one picture of it");
    AE_TRY(ae_image_check_size(limits, (uint64_t)f.width, (uint64_t)f.height, PEAK, error));
    const size_t n_pixels = (size_t)f.width * (size_t)f.height;
    uint8_t *rgba = ae_alloc(n_pixels, 4);
    if (!rgba) return ae_fail_memory(error, "the pixels of a picture", n_pixels * 4);
    aerie_status status = AERIE_OK;
    if (!WebPDecodeRGBAInto(bytes, n, rgba, n_pixels * 4, f.width * 4))
        status = ae_image_damaged("WebP", "its pixels cannot be read", error);
    if (status == AERIE_OK) status = ae_image_alloc(out, (uint32_t)f.width, (uint32_t)f.height, error);
    if (status == AERIE_OK) ae_image_on_white(out->rgb, rgba, n_pixels);
    ae_free(rgba);
    return status;
}
#else
aerie_status ae_image_decode_webp(ae_image *out, const uint8_t *bytes, size_t n, const ae_image_limits *limits,
                                  aerie_error *error)
{
    (void)out, (void)bytes, (void)n, (void)limits;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the image is a WebP; this program was built without libwebp");
}
#endif
