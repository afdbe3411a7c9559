/* fail_read.c - see fail_read.h. Linked with --wrap=ae_os_pread. */
#include "fail_read.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/os.h"

long long __real_ae_os_pread(int fd, void *out, size_t n, uint64_t offset);
long long __wrap_ae_os_pread(int fd, void *out, size_t n, uint64_t offset);

static struct {
    atomic_bool armed, forever;
    atomic_long nth, calls;
    atomic_int kind;
} state;

void fail_read_arm(long nth, fail_read_kind kind, bool forever)
{
    state.calls = 0;
    state.nth = nth;
    state.kind = (int)kind;
    state.forever = forever;
    state.armed = true;
}

long fail_read_disarm(void)
{
    state.armed = false;
    return state.calls;
}

long long __wrap_ae_os_pread(int fd, void *out, size_t n, uint64_t offset)
{
    if (state.armed) {
        const long call = atomic_fetch_add(&state.calls, 1) + 1, nth = state.nth;
        if (nth && (call == nth || (state.forever && call > nth))) {
            switch ((fail_read_kind)state.kind) {
            case FAIL_READ_ERROR: errno = EIO; return -1;
            case FAIL_READ_END: return 0;
            case FAIL_READ_SHORT: n = (n + 1) / 2; break;
            default: errno = EINTR; return -1;
            }
        }
    }
    return __real_ae_os_pread(fd, out, n, offset);
}
