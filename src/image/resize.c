/* resize.c - pictures of another size (image.h): separable, first along rows, then along columns, each on 8-bit results.
 *
 * Owns nothing between calls. The definition, for n_in to n_out along an axis: scale = n_in / n_out, fs = max(scale, 1),
 * support = radius * fs; pixel x weighs those with |i + 0.5 - centre| within the support, centre = (x + 0.5) * scale, by f of
 * the distance over fs, divided by their sum; weights become integers of 22 bits, sums are int32, clamped. An axis that
 * stays is left alone. Invariant: no libm and no contraction, so the bytes are the same on every machine.
 * Source: Pillow's 8-bit resampling, which this equals byte by byte (unit/image; Pillow 13 chooses the order of axes). */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "base/mem.h"
#include "image/image_int.h"

#define BITS 22 /* bits of a weight after the point: together with 8 bits of a pixel, and 2 for sums beyond 1, they fit an
                 * int32 */
#define PI 3.14159265358979323846

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    double s, c;
    if (x == 0) return 1;
    x *= PI;
    ae_sincos(x, &s, &c);
    return s / x;
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*f)(double);
    double radius;
} filters[] = {[AE_IMAGE_BILINEAR] = {bilinear, 1}, [AE_IMAGE_BICUBIC] = {bicubic, 2}, [AE_IMAGE_LANCZOS] = {lanczos, 3}};

/* The weights of an axis. */
typedef struct axis {
    uint32_t n_most; /* most weights of an output pixel */
    uint32_t *first, *n; /* [n_out] first input pixel of each output pixel, and their number */
    int32_t *weight; /* [n_out][n_most] */
} axis;

static void axis_free(axis *a)
{
    ae_free(a->first);
    ae_free(a->n);
    ae_free(a->weight);
}

static aerie_status axis_init(axis *a, uint32_t n_in, uint32_t n_out, ae_image_filter filter, aerie_error *error)
{
    const double scale = (double)n_in / n_out, fs = scale < 1 ? 1 : scale, support = filters[filter].radius * fs, step = 1 / fs;
    a->n_most = (uint32_t)ceil(support) * 2 + 1;
    a->first = ae_alloc(n_out, sizeof *a->first);
    a->n = ae_alloc(n_out, sizeof *a->n);
    a->weight = ae_alloc((size_t)n_out * a->n_most, sizeof *a->weight);
    double *w = ae_alloc(a->n_most, sizeof *w);
    const bool ok = a->first && a->n && a->weight && w;
    for (uint32_t x = 0; ok && x < n_out; x++) {
        const double centre = (x + 0.5) * scale;
        const int lo = (int)(centre - support + 0.5), hi = (int)(centre + support + 0.5);
        const uint32_t first = lo < 0 ? 0 : (uint32_t)lo, end = hi > (int)n_in ? n_in : (uint32_t)hi, n = end - first;
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += w[i] = filters[filter].f(((double)(i + first) - centre + 0.5) * step);
        for (uint32_t i = 0; i < n; i++) {
            const double k = (sum != 0 ? w[i] / sum : w[i]) * (1 << BITS);
            a->weight[(size_t)x * a->n_most + i] = (int32_t)(k < 0 ? k - 0.5 : k + 0.5);
        }
        a->first[x] = first;
        a->n[x] = n;
    }
    ae_free(w);
    return ok ? AERIE_OK : ae_fail_memory(error, "the weights of a resize", (size_t)n_out * a->n_most * sizeof *a->weight);
}

static uint8_t clamp(int32_t sum)
{
    const int32_t v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Resizes along rows: in [n_rows][n_in][3] becomes out [n_rows][n_out][3]. */
static void along_rows(const axis *a, const uint8_t *in, uint32_t n_rows, uint32_t n_in, uint32_t n_out, uint8_t *out)
{
    for (uint32_t r = 0; r < n_rows; r++, in += (size_t)n_in * 3) {
        for (uint32_t x = 0; x < n_out; x++) {
            const int32_t *w = a->weight + (size_t)x * a->n_most;
            const uint8_t *u = in + (size_t)a->first[x] * 3;
            int32_t s0 = 1 << (BITS - 1), s1 = s0, s2 = s0;
            for (uint32_t i = 0; i < a->n[x]; i++, u += 3) s0 += w[i] * u[0], s1 += w[i] * u[1], s2 += w[i] * u[2];
            *out++ = clamp(s0);
            *out++ = clamp(s1);
            *out++ = clamp(s2);
        }
    }
}

/* Resizes along columns: in [n_in][n_row] becomes out [n_out][n_row]; sum [n_row] is scratch. */
static void along_columns(const axis *a, const uint8_t *in, uint32_t n_out, size_t n_row, uint8_t *out, int32_t *sum)
{
    for (uint32_t y = 0; y < n_out; y++, out += n_row) {
        const int32_t *w = a->weight + (size_t)y * a->n_most;
        for (size_t c = 0; c < n_row; c++) sum[c] = 1 << (BITS - 1);
        for (uint32_t i = 0; i < a->n[y]; i++) {
            const uint8_t *u = in + (size_t)(a->first[y] + i) * n_row;
            for (size_t c = 0; c < n_row; c++) sum[c] += w[i] * u[c];
        }
        for (size_t c = 0; c < n_row; c++) out[c] = clamp(sum[c]);
    }
}

static aerie_status resize_rows(ae_image *out, const ae_image *in, uint32_t width, ae_image_filter filter, aerie_error *error)
{
    axis a = {0};
    aerie_status status = axis_init(&a, in->width, width, filter, error);
    if (status == AERIE_OK) status = ae_image_alloc(out, width, in->height, error);
    if (status == AERIE_OK) along_rows(&a, in->rgb, in->height, in->width, width, out->rgb);
    axis_free(&a);
    return status;
}

static aerie_status resize_columns(ae_image *out, const ae_image *in, uint32_t height, ae_image_filter filter,
                                   aerie_error *error)
{
    const size_t n_row = (size_t)in->width * 3;
    axis a = {0};
    aerie_status status = axis_init(&a, in->height, height, filter, error);
    int32_t *sum = ae_alloc(n_row, sizeof *sum);
    if (status == AERIE_OK && !sum) status = ae_fail_memory(error, "a row of a resize", n_row * sizeof *sum);
    if (status == AERIE_OK) status = ae_image_alloc(out, in->width, height, error);
    if (status == AERIE_OK) along_columns(&a, in->rgb, height, n_row, out->rgb, sum);
    ae_free(sum);
    axis_free(&a);
    return status;
}

aerie_status ae_image_resize(ae_image *out, const ae_image *in, uint32_t width, uint32_t height, ae_image_filter filter,
                             aerie_error *error)
{
    ae_image wide = {0};
    *out = (ae_image){0};
    if (!width || !height || width > UINT16_MAX || height > UINT16_MAX)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a picture of %u x %u pixels is asked for; sides are 1 to 65535", width,
                       height);
    if (width == in->width && height == in->height) return ae_image_crop(out, in, 0, 0, width, height, error);
    if (width != in->width) AE_TRY(resize_rows(height == in->height ? out : &wide, in, width, filter, error));
    if (height == in->height) return AERIE_OK;
    const aerie_status status = resize_columns(out, wide.rgb ? &wide : in, height, filter, error);
    ae_image_free(&wide);
    return status;
}

aerie_status ae_image_crop(ae_image *out, const ae_image *in, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                           aerie_error *error)
{
    *out = (ae_image){0};
    if (!width || !height || x > in->width || width > in->width - x || y > in->height || height > in->height - y)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "a part of %u x %u pixels at %u, %u of a picture of %u x %u; please report",
                       width, height, x, y, in->width, in->height);
    AE_TRY(ae_image_alloc(out, width, height, error));
    for (uint32_t r = 0; r < height; r++)
        memcpy(out->rgb + (size_t)r * width * 3, in->rgb + ((size_t)(y + r) * in->width + x) * 3, (size_t)width * 3);
    return AERIE_OK;
}

aerie_status ae_image_put(ae_image *out, const ae_image *in, uint32_t width, uint32_t height, uint32_t x, uint32_t y,
                          const uint8_t colour[3], aerie_error *error)
{
    *out = (ae_image){0};
    if (x > width || in->width > width - x || y > height || in->height > height - y)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "a picture of %u x %u pixels at %u, %u of one of %u x %u; please report",
                       in->width, in->height, x, y, width, height);
    AE_TRY(ae_image_alloc(out, width, height, error));
    for (size_t i = 0; i < (size_t)width * height; i++) memcpy(out->rgb + i * 3, colour, 3);
    for (uint32_t r = 0; r < in->height; r++)
        memcpy(out->rgb + ((size_t)(y + r) * width + x) * 3, in->rgb + (size_t)r * in->width * 3, (size_t)in->width * 3);
    return AERIE_OK;
}
