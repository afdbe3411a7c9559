/* test_device_ops.c - every operation of the seam (backend.h) on a device gives the reference's bits.
 *
 * The same random arguments go to "cpu" with the reference's kernels and to the device under test; whatever an operation could
 * have written is compared bit for bit (device_rig.inc). One group for each operation:
 *   AERIE_TEST_DEVICE   the device under test; without it "emu", and where the build has none everything is skipped
 *   AERIE_TEST_OPTIONAL a machine without that device skips everything, too
 *   AERIE_TEST_ONLY     one group: "matmul"; the first argument of the program does the same
 *   AERIE_TEST_TYPE     weights of one type: "q4_k"
 *   AERIE_TEST_EVERY    every so-manyth case
 *   AERIE_TEST_SEED     other random numbers
 *   AERIE_TEST_SIZE     "large": the shapes of a model with 8 billion weights, for real devices. The CPU then runs its best
 *                       kernels, which have the reference's bits; AERIE_TEST_LEVEL names others
 */
#define _DEFAULT_SOURCE /* mmap, fork */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "every.h"
#include "backend/cpu/ref/ref.h"
#include "base/mem.h"
#include "base/os.h"
#include "cache/recurrent.h"
#include "device/device.h"
#include "engine/tree.h"
#include "sample/sampler.h"

#include "kernels_random.inc"
#include "device_rig.inc"
#define N_GLUS AE_GLUS
#include "device_product.inc"
#include "device_rows.inc"

#define MAX_KV_ROWS 1024 /* rows of a pass that fills a store */
#include "device_kv.inc"
#include "device_compress.inc"
#include "device_recur.inc"
#include "device_moe.inc"
static int open_plain(void **state);
#include "device_pass.inc"
#ifdef AE_GPU_EMU
#include "device_barriers.inc"
#else
static bool barriers_begin(void) { return false; }
static uint32_t barriers_end(void) { return 0; }
#endif

/* Groups with plain layers share streams. */
static int open_plain(void **state)
{
    (void)state;
    random_state = 0x9E3779B97F4A7C15u; /* a group's cases do not depend on the groups before it */
    const char *seed = getenv("AERIE_TEST_SEED");
    if (seed) random_state += 0x632BE59BD9B4E019u * strtoull(seed, NULL, 0);
    return streams_open((ae_stream_options){.max_rows = is_large ? 4096 : 130, .max_in = is_large ? 16384 : LONG_IN}) ? 0 : 1;
}

static int open_long(void **state)
{
    return open_plain(state) || !streams_open((ae_stream_options){.max_rows = MAX_KV_ROWS, .max_in = MAX_IN,
                                                                  .n_selected_from = SELECTED_FROM, .selects_blocks = true,
                                                                  .n_gathered = MOST_GATHERED, .gathered_dim = 512,
                                                                  .gathered_type = AE_KV_F32, .biased = true, .hyper = true});
}

static int open_recurrent(void **state)
{
    const ae_state_shape shape = {2, largest_states, 1, 1, 1};
    if (open_plain(state)) return 1;
    (void)streams_open((ae_stream_options){.max_rows = RECUR_ROWS, .max_in = MAX_IN, .state = &shape});
    return 0;
}

/* A device that has no experts, or no recurrent layers, declines the stream, and the group is skipped. */
static int open_moe(void **state)
{
    const uint32_t width = is_large ? MOE_LARGE : MOE_WIDTH;
    if (open_plain(state)) return 1;
    (void)streams_open((ae_stream_options){.max_rows = is_large ? 256 : 40, .max_in = width,
                                           .moe = {MOE_MAX_EXPERTS, MOE_MAX_USED, width, width, width, true,
                                                   MOE_MAX_EACH, true}});
    return 0;
}

static int open_moe_wide(void **state)
{
    if (open_plain(state)) return 1;
    (void)streams_open((ae_stream_options){.max_rows = 1, .max_in = MOE_WIDTH,
                                           .moe = {MOE_MAX_EXPERTS, MOE_MAX_EXPERTS, MOE_WIDTH, MOE_WIDTH, MOE_WIDTH, true,
                                                   MOE_MAX_EACH, false}});
    return 0;
}

/* Rows that name their experts, which have few numbers each. */
static int open_moe_many(void **state)
{
    const uint32_t width = is_large ? MOE_LARGE : MOE_WIDTH;
    if (open_plain(state)) return 1;
    (void)streams_open((ae_stream_options){.max_rows = MOE_MANY, .max_in = width,
                                           .moe = {MOE_GIVEN_MANY, 1, width, width, width, false, 1, true}});
    return 0;
}

#define GROUP(name) {#name, test_##name, open_plain, NULL, NULL}
#define LONG(name) {#name, test_##name, open_long, NULL, NULL}
#define RECURRENT(name) {#name, test_##name, open_recurrent, NULL, NULL}

int main(int argc, char **argv)
{
    const struct CMUnitTest groups[] = {
        /* matmul_long and moe_many come before others, which cannot miss all barriers that `activation` and `group` have */
        GROUP(lookup), GROUP(matmul_long), GROUP(matmul), GROUP(head_matmul),
        GROUP(norm), GROUP(axpy), GROUP(map), GROUP(mix), GROUP(copy), GROUP(rope_table),
        GROUP(hyper), GROUP(rotate), LONG(compress), LONG(trail), LONG(ngrams), GROUP(accord),
        LONG(rope_kv), LONG(kv_copy_page), LONG(kv_commit), LONG(kv_write), LONG(attention), LONG(select),
        RECURRENT(recur), GROUP(gated_norm),
        {"moe_many", test_moe_many, open_moe_many, NULL, NULL},
        {"moe", test_moe, open_moe, NULL, NULL}, {"moe_wide", test_moe_wide, open_moe_wide, NULL, NULL},
        GROUP(pass), GROUP(walk), GROUP(propose),
    };
    const char *only = argc > 1 ? argv[1] : getenv("AERIE_TEST_ONLY");
    if (!devices_open()) return 77;
    if (only && *only) cmocka_set_test_filter(only);
    const bool looks = barriers_begin();
    int failed = cmocka_run_group_tests(groups, NULL, NULL);
    streams_close();
    if (looks) failed += barriers_end() > 0;
    devices_close();
    return failed;
}
