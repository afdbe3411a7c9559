/* every.h - of many similar test cases, every so-manyth is run. */
#ifndef AE_TESTS_EVERY_H
#define AE_TESTS_EVERY_H

/* What the environment variable AERIE_TEST_EVERY says, or what this build was configured with; at least 1. */
int test_every(void);

#define AE_TEST_EVERY test_every()

#endif
