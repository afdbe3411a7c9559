/* fail_alloc.h - makes the n-th allocation of a program fail, and counts blocks left behind.
 *
 * A program opts in at link time (AERIE_TESTS_FAIL_ALLOC in tests/CMakeLists.txt): malloc, calloc,
 * realloc, aligned_alloc and free, as called by the program and the static library, come through
 * here; other libraries' own calls do not. Safe to use from several threads.
 *
 * The usual sweep:
 *     for (long n = 1;; n++) {
 *         fail_alloc_arm(n, false);
 *         status = ...; clean up;
 *         if (!fail_alloc_disarm()) break;          no call was made to fail: all were tried
 *         check that status is MEMORY and fail_alloc_live() == 0
 *     }
 */
#ifndef AE_TEST_FAIL_ALLOC_H
#define AE_TEST_FAIL_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* From now on count, and make call number `nth` (from 1) fail; with `forever` all later ones too.
 * nth = 0 only counts. */
void fail_alloc_arm(long nth, bool forever);
/* Stop failing and counting; true if a call was made to fail. The counts below stay readable. */
bool fail_alloc_disarm(void);

long fail_alloc_calls(void);       /* fallible calls since arming */
size_t fail_alloc_live(void);      /* blocks allocated since arming and not freed yet */
size_t fail_alloc_largest(void);   /* bytes of the largest single request since arming */

#endif
