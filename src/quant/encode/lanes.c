/* lanes.c - chooses the level of lanes.h for this machine, and moves weights into lanes and back. */
#include "quant/encode/lanes.h"

#include <string.h>

static const float iq4_values[16] = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                                     1.0f,    13.0f,   25.0f,  38.0f,  53.0f,  69.0f,  89.0f,  113.0f};
static const float iq4_middles[16] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                      7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
const ae_lane_codes ae_lane_iq4 = {iq4_values, iq4_middles, 0.0f, 0.0f, -143.0f, 4.0f, 10, true};

size_t ae_lane_levels(const ae_lane_search *levels[3])
{
    size_t n = 0;
    levels[n++] = &ae_lane_search_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) levels[n++] = &ae_lane_search_avx2;
    if (n == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        levels[n++] = &ae_lane_search_avx512;
#endif
    return n;
}

const ae_lane_search *ae_lane_best(void)
{
    const ae_lane_search *levels[3];
    return levels[ae_lane_levels(levels) - 1];
}

void ae_lane_spread(const float *x, int n, int n_runs, float *lanes)
{
    if (n_runs < AE_LANES) memset(lanes, 0, sizeof *lanes * AE_LANES * (size_t)n);
    for (int l = 0; l < n_runs; l++)
        for (int e = 0; e < n; e++) lanes[AE_LANES * e + l] = x[n * l + e];
}

void ae_lane_collect(const int8_t *lanes, int n, int n_runs, int8_t *code)
{
    for (int l = 0; l < n_runs; l++)
        for (int e = 0; e < n; e++) code[n * l + e] = lanes[AE_LANES * e + l];
}
