/* test_limits.c - CPUs and memory of this process, from synthetic trees of /proc and /sys. */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ftw.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/os.h"

static char root[] = "/tmp/aerie_limits_XXXXXX";
static bool allowed[AE_MAX_CPUS];

static int drop(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(strrchr(root, '_') + 1, "XXXXXX");
    memset(allowed, 0, sizeof allowed);
    return mkdtemp(root) == NULL;
}

static int drop_root(void **state)
{
    (void)state;
    return nftw(root, drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* A file below root, with the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static ae_os_cpus count(uint32_t n)
{
    ae_os_cpus cpus;
    for (uint32_t i = 0; i < n; i++) allowed[i] = true;
    ae_os_cpus_below(root, allowed, &cpus);
    assert_int_equal(cpus.n_allowed, n);
    return cpus;
}

static void put_siblings(uint32_t cpu, const char *name, const char *list)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu, name);
    put(path, list);
}

static void test_nothing_known(void **state)
{
    (void)state;
    const ae_os_cpus cpus = count(6);
    assert_int_equal(cpus.n_cores, 6);
    assert_int_equal(cpus.n_threads, 6);
    assert_true(cpus.quota <= 0);
    assert_int_equal(ae_os_memory_available_below(root), 0);
}

static void test_siblings_count_once(void **state)
{
    (void)state;
    const char *const lists[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    for (uint32_t i = 0; i < 8; i++) put_siblings(i, i % 2 ? "core_cpus_list" : "thread_siblings_list", lists[i % 4]);
    assert_int_equal(count(8).n_threads, 4);
    memset(allowed, 0, sizeof allowed);
    allowed[5] = allowed[7] = true; /* one of each pair: two cores */
    ae_os_cpus cpus;
    ae_os_cpus_below(root, allowed, &cpus);
    assert_int_equal(cpus.n_allowed, 2);
    assert_int_equal(cpus.n_threads, 2);
    allowed[1] = true; /* with 5 */
    ae_os_cpus_below(root, allowed, &cpus);
    assert_int_equal(cpus.n_allowed, 3);
    assert_int_equal(cpus.n_cores, 2);
    put_siblings(7, "core_cpus_list", "rubbish");
    assert_int_equal(count(8).n_threads, 5);
}

static void test_quota_of_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(count(8).n_threads, 8);
    put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"); /* the group above limits too */
    ae_os_cpus cpus = count(8);
    assert_true(cpus.quota > 2.49 && cpus.quota < 2.51);
    assert_int_equal(cpus.n_threads, 3);
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_int_equal(count(8).n_threads, 1);
    put("/sys/fs/cgroup/a/b/cpu.max", "4000000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "4000000 100000\n");
    assert_int_equal(count(8).n_threads, 8); /* more than there are */
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n"); /* in a container its own group is the root */
    assert_int_equal(count(8).n_threads, 2);
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(count(8).n_threads, 2);
    put("/proc/self/cgroup", "0::/../gone\n"); /* outside what can be seen */
    assert_int_equal(count(8).n_threads, 2);
    put("/sys/fs/cgroup/cpu.max", "0 0\n");
    assert_int_equal(count(8).n_threads, 8);
}

static void test_quota_of_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:pids:/x\n4:cpu,cpuacct:/docker/id\n1:name=systemd:/x\n0::/system\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/id/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/id/cpu.cfs_period_us", "100000\n");
    assert_int_equal(count(16).n_threads, 16);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n");
    assert_int_equal(count(16).n_threads, 6);
    put("/sys/fs/cgroup/unified/system/cpu.max", "500000 100000\n"); /* both versions at once */
    assert_int_equal(count(16).n_threads, 5);
    put("/proc/self/cgroup", "4:cpuacct:/docker/id\n"); /* another controller */
    assert_int_equal(count(16).n_threads, 16);
}

static void test_rubbish(void **state)
{
    (void)state;
    char long_line[6000];
    memset(long_line, '/', sizeof long_line);
    memcpy(long_line, "0::", 3);
    long_line[sizeof long_line - 1] = 0;
    const char *const texts[] = {"", "\n", ":", "::", "0::", "0", "x\n\n:::\n", long_line};
    put("/sys/fs/cgroup/cpu.max", "rubbish\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("/proc/self/cgroup", texts[i]);
        assert_int_equal(count(3).n_threads, 3);
        assert_int_equal(ae_os_memory_available_below(root), 0);
    }
}

static void test_memory(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:     80 kB\nSwapFree: 1 kB\n");
    assert_int_equal(ae_os_memory_available_below(root), 80 * 1024);
    put("/proc/self/cgroup", "4:memory:/job\n0::/a\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "60000\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "20000\n");
    assert_int_equal(ae_os_memory_available_below(root), 40000);
    put("/sys/fs/cgroup/memory/job/memory.stat", "cache 9\ntotal_inactive_file 4000\ntotal_active_file 6000\n");
    assert_int_equal(ae_os_memory_available_below(root), 50000); /* memory of cached files counts as available */
    put("/sys/fs/cgroup/unified/a/memory.max", "max\n");
    put("/sys/fs/cgroup/unified/a/memory.current", "1000\n");
    assert_int_equal(ae_os_memory_available_below(root), 50000);
    put("/sys/fs/cgroup/unified/memory.max", "30000\n");
    put("/sys/fs/cgroup/unified/memory.current", "21000\n");
    put("/sys/fs/cgroup/unified/memory.stat", "anon 3\nfile 7000\ninactive_file 1000\n");
    assert_int_equal(ae_os_memory_available_below(root), 10000);
    put("/sys/fs/cgroup/unified/memory.current", "99000\n"); /* over its limit: nearly nothing, but not unknown */
    assert_int_equal(ae_os_memory_available_below(root), 1);
}

static void test_memory_limit(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:     80 kB\n");
    put("/proc/self/cgroup", "4:memory:/job\n0::/a\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"); /* version 1's "none" */
    put("/sys/fs/cgroup/unified/a/memory.max", "max\n");
    put("/sys/fs/cgroup/unified/memory.max", "max\n");
    assert_int_equal(ae_os_memory_limit_below(root), 0);
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "60000\n");
    assert_int_equal(ae_os_memory_limit_below(root), 60000);
    put("/sys/fs/cgroup/unified/memory.max", "30000\n"); /* of a parent */
    assert_int_equal(ae_os_memory_limit_below(root), 30000);
    put("/proc/self/cgroup", "rubbish");
    assert_int_equal(ae_os_memory_limit_below(root), 0);
}

static void test_this_machine(void **state)
{
    (void)state;
    ae_os_cpus cpus;
    ae_os_cpus_get(&cpus);
    assert_true(cpus.n_allowed >= 1 && cpus.n_cores >= 1 && cpus.n_cores <= cpus.n_allowed);
    assert_true(cpus.n_threads >= 1 && cpus.n_threads <= cpus.n_cores);
    assert_int_equal(ae_os_n_cores(), cpus.n_threads);
    assert_false(ae_os_cpus_restrict(allowed)); /* to an empty set of CPUs */
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, drop_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(test_nothing_known),      IN_ROOT(test_siblings_count_once), IN_ROOT(test_quota_of_version_2),
        IN_ROOT(test_quota_of_version_1), IN_ROOT(test_rubbish),             IN_ROOT(test_memory), IN_ROOT(test_memory_limit),
        IN_ROOT(test_this_machine),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
