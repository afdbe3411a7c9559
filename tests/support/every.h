/* every.h - runs a sample of many similar test cases: every AERIE_TEST_EVERY-th. */
#ifndef AE_TESTS_EVERY_H
#define AE_TESTS_EVERY_H

/* The value of the environment variable AERIE_TEST_EVERY, or the one that this build was configured with; at least 1. */
int test_every(void);

#define AE_TEST_EVERY test_every()

#endif
