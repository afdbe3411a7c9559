#include "every.h"

#include <stdio.h>
#include <stdlib.h>

int test_every(void)
{
    const char *said = getenv("AERIE_TEST_EVERY");
    const int n = said ? atoi(said) : TEST_EVERY_BUILT;
    return n > 0 ? n : 1;
}

static uint32_t n_cases, n_taken;

static void say_how_many(void)
{
    fprintf(stderr, "sampled: %u of %u cases\n", n_taken, n_cases);
}

static uint32_t sample(void)
{
    const char *said = getenv("AERIE_TEST_SAMPLE");
    const int n = said ? atoi(said) : 1;
    return n > 0 ? (uint32_t)n : 1;
}

bool test_whole(void)
{
    return sample() == 1;
}

bool test_takes(uint32_t *at)
{
    if (test_whole()) return true;
    if (!n_cases++) atexit(say_how_many);
    const bool taken = (*at)++ % sample() == 0;
    n_taken += taken;
    return taken;
}

bool test_picks(size_t i, size_t n, size_t turn)
{
    return test_whole() || i == turn % n;
}

uint32_t test_fewer(uint32_t n)
{
    return test_whole() ? n : (n + 3) / 4;
}
