/* sections.h - a block of bytes made of sections, each with a type and a length: the form of saved sequences.
 *
 * Owns: the layout. Does not own: what a section means. The block is hostile when it is read.
 * Layout, little-endian: "aerieseq", u32 version, u32 number of sections, u64 bytes in all, u64 checksum (ae_hash64 of all
 * other bytes); then for each section u32 type, u32 flags, u64 length, that many bytes, zeros up to a multiple of 8.
 * A reader skips types that it does not know if their flags contain AE_SECTION_OPTIONAL, and refuses the block otherwise, so
 * later versions can add sections, such as the state of recurrent layers.
 */
#ifndef AE_FORMATS_SECTIONS_H
#define AE_FORMATS_SECTIONS_H

#include "base/err.h"

#define AE_SECTIONS_VERSION 1
#define AE_SECTIONS_MAX 16
#define AE_SECTION_OPTIONAL 1u

typedef struct ae_section {
    uint32_t type, flags;
    const uint8_t *data; /* [n], aligned to 8 if the block is */
    uint64_t n;
} ae_section;

typedef struct ae_sections {
    ae_section list[AE_SECTIONS_MAX];
    uint32_t n;
} ae_sections;

/* Reads the sections; they point into bytes[0..n). Errors: FORMAT (not such a block, truncated, damaged), UNSUPPORTED (another
 * version), LIMIT. */
aerie_status ae_sections_open(ae_sections *sections, const void *bytes, size_t n, aerie_error *error);
/* Returns the section of this type; NULL if there is none. */
const ae_section *ae_sections_find(const ae_sections *sections, uint32_t type);
/* Fails with UNSUPPORTED if a section is not optional and its type is not among known[0..n). */
aerie_status ae_sections_check_known(const ae_sections *sections, const uint32_t *known, size_t n, aerie_error *error);

/* Creates a block with these sections, *bytes [*n], which the caller frees with ae_free. Copies the data of each section. Where
 * data is NULL, the section is zeroed, data is set to point to it, and the caller fills it. Call ae_sections_seal last. */
aerie_status ae_sections_create(void **bytes, size_t *n, ae_section *list, uint32_t n_sections, aerie_error *error);
/* Writes the checksum of a complete block. */
void ae_sections_seal(void *bytes, size_t n);

/* Computes the same checksum while the block is filled: begin once its sections exist, add when bytes [0, n_final) have their
 * final values, end when all have. */
typedef struct ae_sections_sum {
    uint64_t state;
    size_t n_done;
} ae_sections_sum;
ae_sections_sum ae_sections_sum_begin(const void *bytes, size_t n);
void ae_sections_sum_add(ae_sections_sum *sum, const void *bytes, size_t n_final);
void ae_sections_sum_end(ae_sections_sum *sum, void *bytes, size_t n);

#endif
