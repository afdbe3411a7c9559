/* sections.c - reading and writing a block of sections (sections.h). All offsets are checked before anything is read. */
#include "formats/sections.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define HEADER 32
#define SECTION_HEADER 16
#define CHECKSUM_AT 24

static const char magic[8] = "aerieseq";

static uint64_t get(const uint8_t *at, uint32_t n_bytes)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < n_bytes; i++) x |= (uint64_t)at[i] << 8 * i;
    return x;
}

static void put(uint8_t *at, uint32_t n_bytes, uint64_t x)
{
    for (uint32_t i = 0; i < n_bytes; i++) at[i] = (uint8_t)(x >> 8 * i);
}

static uint64_t checksum(const uint8_t *bytes, size_t n)
{
    return ae_hash64(ae_hash64(0, bytes, CHECKSUM_AT), bytes + HEADER, n - HEADER);
}

aerie_status ae_sections_open(ae_sections *s, const void *bytes, size_t n, aerie_error *error)
{
    const uint8_t *at = bytes;
    *s = (ae_sections){0};
    if (!at || n < HEADER || memcmp(at, magic, sizeof magic))
        return ae_fail(error, AERIE_ERROR_FORMAT, "a saved sequence is expected, but these %zu bytes do not begin like one", n);
    const uint64_t version = get(at + 8, 4), n_sections = get(at + 12, 4), total = get(at + 16, 8);
    if (version != AE_SECTIONS_VERSION)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the saved sequence is of version %u; this aerie reads version %d",
                       (unsigned)version, AE_SECTIONS_VERSION);
    if (total != n)
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "the saved sequence says that it has %llu bytes, but there are %zu: it was truncated",
                       (unsigned long long)total, n);
    if (checksum(at, n) != get(at + CHECKSUM_AT, 8))
        return ae_fail(error, AERIE_ERROR_FORMAT, "the saved sequence is damaged: its checksum differs");
    if (n_sections > AE_SECTIONS_MAX)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the saved sequence has %u sections; at most %d are possible",
                       (unsigned)n_sections, AE_SECTIONS_MAX);
    size_t where = HEADER;
    for (; s->n < n_sections; s->n++) {
        if (n - where < SECTION_HEADER)
            return ae_fail(error, AERIE_ERROR_FORMAT, "section %u of the saved sequence lies beyond its end", s->n);
        ae_section *section = &s->list[s->n];
        *section = (ae_section){(uint32_t)get(at + where, 4), (uint32_t)get(at + where + 4, 4), at + where + SECTION_HEADER,
                                get(at + where + 8, 8)};
        where += SECTION_HEADER;
        if (section->n > n - where || (section->n + 7) / 8 * 8 > n - where)
            return ae_fail(error, AERIE_ERROR_FORMAT, "section %u of the saved sequence ends beyond its end", s->n);
        for (uint32_t i = 0; i < s->n; i++)
            if (s->list[i].type == section->type)
                return ae_fail(error, AERIE_ERROR_FORMAT, "the saved sequence has two sections of type %u", section->type);
        where += (section->n + 7) / 8 * 8;
    }
    if (where != n)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%zu bytes follow the last section of the saved sequence", n - where);
    return AERIE_OK;
}

const ae_section *ae_sections_find(const ae_sections *s, uint32_t type)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].type == type) return &s->list[i];
    return NULL;
}

aerie_status ae_sections_check_known(const ae_sections *s, const uint32_t *known, size_t n, aerie_error *error)
{
    for (uint32_t i = 0; i < s->n; i++) {
        bool is_known = s->list[i].flags & AE_SECTION_OPTIONAL;
        for (size_t k = 0; k < n; k++) is_known = is_known || known[k] == s->list[i].type;
        if (!is_known)
            return ae_fail(
                error, AERIE_ERROR_UNSUPPORTED,
                "the saved sequence needs a section of type %u, which this aerie does not know; a newer one wrote it",
                s->list[i].type);
    }
    return AERIE_OK;
}

aerie_status ae_sections_create(void **bytes, size_t *n, ae_section *list, uint32_t n_sections, aerie_error *error)
{
    size_t total = HEADER;
    bool fits = true;
    *bytes = NULL;
    *n = 0;
    for (uint32_t i = 0; i < n_sections; i++)
        fits = fits && list[i].n <= SIZE_MAX - 7 && ae_add_size(total, SECTION_HEADER, &total) &&
               ae_add_size(total, (size_t)((list[i].n + 7) / 8 * 8), &total);
    uint8_t *at = fits ? ae_alloc(1, total) : NULL;
    if (!at) return ae_fail_memory(error, "a saved sequence", total);
    memcpy(at, magic, sizeof magic);
    put(at + 8, 4, AE_SECTIONS_VERSION);
    put(at + 12, 4, n_sections);
    put(at + 16, 8, total);
    size_t where = HEADER;
    for (uint32_t i = 0; i < n_sections; i++) {
        put(at + where, 4, list[i].type);
        put(at + where + 4, 4, list[i].flags);
        put(at + where + 8, 8, list[i].n);
        where += SECTION_HEADER;
        if (list[i].data) memcpy(at + where, list[i].data, (size_t)list[i].n);
        else list[i].data = at + where;
        where += (size_t)((list[i].n + 7) / 8 * 8);
    }
    *bytes = at;
    *n = total;
    return AERIE_OK;
}

ae_sections_sum ae_sections_sum_begin(const void *bytes, size_t n)
{
    return (ae_sections_sum){ae_hash64_begin(ae_hash64(0, bytes, CHECKSUM_AT), n - HEADER), HEADER};
}

void ae_sections_sum_add(ae_sections_sum *sum, const void *bytes, size_t n_final)
{
    const size_t n = n_final > sum->n_done ? (n_final - sum->n_done) / 8 * 8 : 0;
    sum->state = ae_hash64_add(sum->state, (const uint8_t *)bytes + sum->n_done, n);
    sum->n_done += n;
}

void ae_sections_sum_end(ae_sections_sum *sum, void *bytes, size_t n)
{
    ae_sections_sum_add(sum, bytes, n); /* a block's size is a multiple of 8 */
    put((uint8_t *)bytes + CHECKSUM_AT, 8, ae_hash64_end(sum->state));
}

void ae_sections_seal(void *bytes, size_t n)
{
    ae_sections_sum sum = ae_sections_sum_begin(bytes, n);
    ae_sections_sum_end(&sum, bytes, n);
}
