/* test_quant_vectors.c - every decoder against vectors made with the Python package `gguf`, bit for bit.
 *
 * Vectors: tests/golden/quant_vectors, written by make_quant_vectors.py. Any NaN equals any NaN: which
 * payload an operation on a NaN returns is not part of a format.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "quant/types.h"

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void check_file(const ae_type_info *info)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/quant_vectors/%s.bin", info->name);
    ae_file_map map;
    aerie_error error;
    if (ae_file_map_open(&map, path, false, &error) != AERIE_OK) fail_msg("%s cannot be read", path);
    uint32_t head[2];
    memcpy(head, map.data, sizeof head);
    size_t n = (size_t)head[1] * info->n_block, block_bytes = (size_t)head[1] * info->block_bytes;
    assert_int_equal(head[0], info->type);
    assert_int_equal(map.bytes, sizeof head + block_bytes + n * sizeof(float));
    float *expected = malloc(n * sizeof *expected), *x = malloc(n * sizeof *x);
    memcpy(expected, map.data + sizeof head + block_bytes, n * sizeof *expected);
    info->decode(map.data + sizeof head, x, n);
    for (size_t i = 0; i < n; i++) {
        if (expected[i] != expected[i] && x[i] != x[i]) continue;
        if (bits_of(expected[i]) != bits_of(x[i]))
            fail_msg("%s, element %zu: expected %a, got %a", info->name, i, (double)expected[i], (double)x[i]);
    }
    free(expected);
    free(x);
    ae_file_map_close(&map);
}

static void test_vectors(void **state)
{
    (void)state;
    int n_types = 0;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !info->decode) continue;
        check_file(info);
        n_types++;
    }
    assert_int_equal(n_types, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
