/* fuzz_image.c - any bytes as a picture: decoded within small limits, turned, resized.
 *
 * Looks for crashes, leaks, and pictures beyond the limits. */
#include <stdlib.h>

#include "image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ae_image_limits limits = {.max_bytes = 1 << 20, .max_pixels = 1 << 16, .max_side = 4096, .max_ratio = 200};
    ae_image image, small;
    aerie_error error;
    if (ae_image_decode(&image, data, size, &limits, &error) != AERIE_OK) {
        if (image.rgb) abort();
        return 0;
    }
    if ((uint64_t)image.width * image.height > limits.max_pixels) abort();
    if (ae_image_resize(&small, &image, 7, 9, (ae_image_filter)(size % 3), &error) == AERIE_OK) ae_image_free(&small);
    ae_image_free(&image);
    return 0;
}
