/* every.h - runs a sample of many similar test cases: every AERIE_TEST_EVERY-th. */
#ifndef AE_TESTS_EVERY_H
#define AE_TESTS_EVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of the environment variable AERIE_TEST_EVERY, or the one that this build was configured with; at least 1. */
int test_every(void);

#define AE_TEST_EVERY test_every()

/* AERIE_TEST_SAMPLE=N, for devices on which a pass takes tens of milliseconds (the emulation, software Vulkan): the laws also
 * sample what they otherwise always run, so that each of them ends within minutes. Of such cases every Nth is run, answers are
 * a quarter as long, plain answers come from the CPU, and sums over all cases (how many drafts were accepted) are not checked.
 * Without it nothing of this applies. N should share no factor with the numbers of kinds and ways that a law combines. */

/* Whether nothing is sampled in this way. */
bool test_whole(void);
/* Whether the next case of a loop is run, the first one always is; *at: counts its cases, 0 at first. At the end of a program
 * that was sampled a line says how many of how many cases ran. */
bool test_takes(uint32_t *at);
/* Whether case i of n is run: of a sample only the one that `turn` chooses, for loops inside a case that test_takes chose. */
bool test_picks(size_t i, size_t n, size_t turn);
/* Of n tokens of an answer, or runs of a kind, those of the sample: at least 1. */
uint32_t test_fewer(uint32_t n);

#endif
