/* exif.c - which side of a picture is up: tag 0x0112 of EXIF data in JPEG, PNG and WebP files.
 *
 * Owns nothing. Every read is bounded by the file; anything odd counts as 1, the normal orientation. Source: TIFF 6.0 (an image
 * file directory), Exif 2.32 (APP1), PNG 1.5 extension eXIf, the WebP container specification. */
#include <stdbool.h>
#include <string.h>

#include "image/image_int.h"

static uint32_t read16(const uint8_t *p, bool big)
{
    return big ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read32(const uint8_t *p, bool big)
{
    return big ? read16(p, true) << 16 | read16(p + 2, true) : read16(p + 2, false) << 16 | read16(p, false);
}

/* Reads EXIF data: a TIFF header, then the first directory. */
static uint32_t orientation(const uint8_t *tiff, size_t n)
{
    if (n >= 6 && !memcmp(tiff, "Exif\0\0", 6)) tiff += 6, n -= 6;
    if (n < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0)) return 1;
    const bool big = tiff[0] == 'M';
    const size_t at = read32(tiff + 4, big);
    if (at > n || n - at < 2) return 1;
    const uint32_t n_entries = read16(tiff + at, big);
    for (uint32_t i = 0; i < n_entries; i++) {
        const size_t entry = at + 2 + 12 * (size_t)i;
        if (entry > n || n - entry < 12) return 1;
        if (read16(tiff + entry, big) != 0x0112) continue;
        const uint32_t value = read16(tiff + entry + 8, big);
        const bool is_short = read16(tiff + entry + 2, big) == 3 && read32(tiff + entry + 4, big) == 1;
        return is_short && value >= 1 && value <= 8 ? value : 1;
    }
    return 1;
}

uint32_t ae_exif_of_jpeg(const uint8_t *bytes, size_t n)
{
    for (size_t at = 2; n >= 4 && at <= n - 4;) {
        if (bytes[at] != 0xFF) return 1;
        const uint8_t marker = bytes[at + 1];
        if (marker == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        if (marker == 0xDA || marker == 0xD9) return 1; /* pixels begin, or the file ends */
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) { /* markers without a length */
            at += 2;
            continue;
        }
        const size_t length = read16(bytes + at + 2, true);
        if (length < 2 || length > n - at - 2) return 1;
        if (marker == 0xE1 && length >= 8 && !memcmp(bytes + at + 4, "Exif\0\0", 6))
            return orientation(bytes + at + 4, length - 2);
        at += 2 + length;
    }
    return 1;
}

uint32_t ae_exif_of_png(const uint8_t *bytes, size_t n)
{
    for (size_t at = 8; n >= 12 && at <= n - 12;) {
        const size_t length = read32(bytes + at, true);
        if (length > n - at - 12) return 1;
        if (!memcmp(bytes + at + 4, "eXIf", 4)) return orientation(bytes + at + 8, length);
        at += 12 + length;
    }
    return 1;
}

uint32_t ae_exif_of_webp(const uint8_t *bytes, size_t n)
{
    for (size_t at = 12; n >= 8 && at <= n - 8;) {
        const size_t length = read32(bytes + at + 4, false);
        if (length > n - at - 8) return 1;
        if (!memcmp(bytes + at, "EXIF", 4)) return orientation(bytes + at + 8, length);
        at += 8 + length + (length & 1);
    }
    return 1;
}
