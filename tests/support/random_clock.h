/* random_clock.h - a clock that says anything, as long as it does not go back: for tests of what must not depend on time.
 *
 * A program opts in by including this: the library's ae_time_now then comes through here (--wrap, see tests/CMakeLists.txt).
 * Once started, the clock goes on by a random time at each call of the thread that started it: nothing, or from nanoseconds to
 * minutes, and what is usual changes now and then, so that one and the same pass seems to take almost no time or very long.
 * Other threads read the true time, at calls of which they sometimes yield. The same seed and the same calls give the same
 * times.
 */
#ifndef AE_TEST_RANDOM_CLOCK_H
#define AE_TEST_RANDOM_CLOCK_H

#include <stdint.h>

/* From now on, for the calling thread. Its clock does not go back. */
void random_clock_start(uint64_t seed);

#endif
