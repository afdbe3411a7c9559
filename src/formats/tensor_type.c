/* tensor_type.c - the table of tensor types by id (tensor_type.h). */
#include "formats/tensor_type.h"

typedef struct type_size {
    const char *name;
    uint32_t elements, bytes;
} type_size;

static const type_size sizes[AE_TYPE_COUNT] = {
#define TYPE_SIZE(name, id, elements, bytes) [id] = {#name, elements, bytes},
    AE_TYPE_LIST(TYPE_SIZE)
#undef TYPE_SIZE
};

const char *ae_type_name(uint32_t type)
{
    return type < AE_TYPE_COUNT ? sizes[type].name : NULL;
}

uint32_t ae_type_block_elements(uint32_t type)
{
    return type < AE_TYPE_COUNT ? sizes[type].elements : 0;
}

uint32_t ae_type_block_bytes(uint32_t type)
{
    return type < AE_TYPE_COUNT ? sizes[type].bytes : 0;
}

size_t ae_type_row_bytes(uint32_t type, uint64_t n)
{
    uint32_t elements = ae_type_block_elements(type);
    size_t bytes;
    if (!elements || !n || n % elements) return 0;
    return __builtin_mul_overflow(n / elements, (uint64_t)sizes[type].bytes, &bytes) ? 0 : bytes;
}
