/* fail_read.h - makes the n-th read of a file fail, in one of several ways.
 *
 * A program opts in by including this: the library's ae_os_pread then comes through here (--wrap, see
 * tests/CMakeLists.txt). Safe to use from several threads.
 */
#ifndef AE_TEST_FAIL_READ_H
#define AE_TEST_FAIL_READ_H

#include <stdbool.h>

typedef enum fail_read_kind {
    FAIL_READ_ERROR,     /* EIO */
    FAIL_READ_END,       /* the file ends there */
    FAIL_READ_SHORT,     /* half of what was asked for, which is not a failure */
    FAIL_READ_INTERRUPT, /* EINTR, which is none either */
    FAIL_READ_KINDS,
} fail_read_kind;

/* From now on count, and treat call number `nth` (from 1) so; with `forever` all later ones too. 0 only counts. */
void fail_read_arm(long nth, fail_read_kind kind, bool forever);
/* Stop; returns the calls since arming. */
long fail_read_disarm(void);

#endif
