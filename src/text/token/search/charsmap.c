/* charsmap.c - see charsmap.h. A unit of the double array is a label (bits 0 to 7, and 31), a flag that a value hangs on it
 * (8), and an offset (10 to 30, shifted left by 8 if bit 9 is set); a value has bit 31 set.
 */
#include "text/token/search/charsmap.h"

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

aerie_status ae_charsmap_create(ae_charsmap *map, const uint8_t *blob, size_t n, const char *what, aerie_error *error)
{
    *map = (ae_charsmap){0};
    if (n == 0) return AERIE_OK;
    const size_t n_array = n >= 4 ? read_u32(blob) : 0;
    if (n < 4 || n_array % 4 || n_array >= n - 4)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s has %zu bytes, and its array would have %zu of them", what, n, n_array);
    if (blob[n - 1] != 0) return ae_fail(error, AERIE_ERROR_FORMAT, "%s does not end with a NUL", what);
    map->n_units = n_array / 4;
    map->n_replacements = n - 4 - n_array;
    map->units = ae_alloc(map->n_units + 1, sizeof *map->units);
    map->replacements = ae_alloc(map->n_replacements, 1);
    if (!map->units || !map->replacements) {
        ae_charsmap_free(map);
        return ae_fail_memory(error, what, n);
    }
    for (size_t i = 0; i < map->n_units; i++) map->units[i] = read_u32(blob + 4 + 4 * i);
    memcpy(map->replacements, blob + 4 + n_array, map->n_replacements);
    return AERIE_OK;
}

void ae_charsmap_free(ae_charsmap *map)
{
    ae_free(map->units);
    ae_free(map->replacements);
    *map = (ae_charsmap){0};
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

size_t ae_charsmap_find(const ae_charsmap *map, const char *text, size_t n, const char **out, size_t *n_out)
{
    size_t found = 0;
    if (map->n_units == 0) return 0;
    if (n > AE_CHARSMAP_LONGEST) n = AE_CHARSMAP_LONGEST;
    uint32_t at = offset_of(map->units[0]);
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (byte == 0 || at >= map->n_units || (map->units[at] & (1u << 31 | 0xFF)) != byte) break;
        const bool has_value = map->units[at] >> 8 & 1;
        at ^= offset_of(map->units[at]);
        if (!has_value || at >= map->n_units) continue;
        const uint32_t value = map->units[at] & ~(1u << 31);
        if (value >= map->n_replacements) continue;
        *out = map->replacements + value;
        found = i + 1;
    }
    if (found) *n_out = strlen(*out);
    return found;
}
