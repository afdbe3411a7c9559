/* resources.c - the CPUs and the memory that this process may use (os.h).
 *
 * Owns nothing. Sources, on Linux: the affinity mask; sibling lists under /sys/devices/system/cpu; control groups, both
 * versions, from the process's own group up to the root (any of them may set a limit). All files are read below a root
 * that tests replace. Only the first sibling of a CPU is needed of the topology, and the kernel has a file for it; hwloc would
 * pay only for binding memory and threads to NUMA nodes. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/os.h"

#define PATH_BYTES 1024

/* Reads a small text file below root into out, NUL-terminated; false if it is missing or empty. */
static bool read_text(char *out, size_t capacity, const char *root, const char *path)
{
    char full[2 * PATH_BYTES];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return false;
    FILE *f = fopen(full, "re");
    if (!f) return false;
    const size_t n = fread(out, 1, capacity - 1, f);
    fclose(f);
    out[n] = 0;
    return n > 0;
}

/* ---- Control groups ------------------------------------------------------------------------------- */

typedef struct group {
    const char *root;
    char path[PATH_BYTES]; /* path of the current group in its hierarchy; "" at the top */
    const char *mount;     /* mount point of the hierarchy */
} group;

/* Returns whether a comma-separated list contains `name`. */
static bool lists(const char *list, size_t n, const char *name)
{
    const size_t m = strlen(name);
    for (const char *p = list, *end = list + n; p < end; p++) {
        const size_t k = strcspn(p, ",:");
        if (k == m && !memcmp(p, name, m)) return true;
        p += k;
    }
    return false;
}

/* Finds the group of this process for a controller: "" for version 2, or the name of a controller of version 1. */
static bool find_group(group *g, const char *root, const char *controller, const char *const *mounts)
{
    char text[8192];
    *g = (group){.root = root};
    if (!read_text(text, sizeof text, root, "/proc/self/cgroup")) return false;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        names++;
        if (*controller ? !lists(names, (size_t)(path - names), controller) : path != names) continue;
        path++;
        if (strlen(path) >= sizeof g->path) return false;
        strcpy(g->path, strcmp(path, "/") ? path : "");
        for (; *mounts; mounts++) {
            char full[2 * PATH_BYTES];
            snprintf(full, sizeof full, "%s%s", root, *mounts);
            if (access(full, F_OK) == 0) {
                g->mount = *mounts;
                return true;
            }
        }
        return false;
    }
    return false;
}

static bool group_text(const group *g, const char *file, char *out, size_t capacity)
{
    char path[2 * PATH_BYTES];
    if (snprintf(path, sizeof path, "%s%s/%s", g->mount, g->path, file) >= (int)sizeof path) return false;
    return read_text(out, capacity, g->root, path);
}

/* Moves to the parent group; false at the top. */
static bool group_up(group *g)
{
    char *slash = strrchr(g->path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

static const char *const mounts_2[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup", NULL};
static const char *const mounts_cpu[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuacct,cpu",
                                         NULL};
static const char *const mounts_memory[] = {"/sys/fs/cgroup/memory", NULL};

/* Reads the number at the beginning of a text. Returns false if there is none. */
static bool number(const char *text, double *value)
{
    char *end;
    *value = ae_number_parse(text, &end);
    return end != text;
}

static bool two_numbers(const char *text, double *a, double *b)
{
    char *end;
    *a = ae_number_parse(text, &end);
    return end != text && number(end, b);
}

static void take_least(double *least, double value)
{
    if (value > 0 && (*least <= 0 || value < *least)) *least = value;
}

/* Returns the number of CPUs that the control groups grant; 0 = no limit. */
static double cpu_quota(const char *root)
{
    group g;
    char text[128], period[128];
    double least = 0, quota, per;
    if (find_group(&g, root, "", mounts_2))
        do {
            if (group_text(&g, "cpu.max", text, sizeof text) && two_numbers(text, &quota, &per) && per > 0)
                take_least(&least, quota / per); /* "max 100000", no limit, does not begin with a number */
        } while (group_up(&g));
    if (find_group(&g, root, "cpu", mounts_cpu))
        do {
            if (group_text(&g, "cpu.cfs_quota_us", text, sizeof text) &&
                group_text(&g, "cpu.cfs_period_us", period, sizeof period) && number(text, &quota) &&
                number(period, &per) && per > 0)
                take_least(&least, quota / per); /* -1 means no limit */
        } while (group_up(&g));
    return least;
}

/* ---- CPUs ------------------------------------------------------------------------------------------- */

/* Returns the first CPU of the core that `cpu` is part of. */
static uint32_t first_sibling(const char *root, uint32_t cpu)
{
    char path[128], text[256];
    const char *const names[] = {"core_cpus_list", "thread_siblings_list"}; /* the second before Linux 5.3 */
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu, names[i]);
        if (!read_text(text, sizeof text, root, path)) continue;
        char *end;
        const unsigned long first = strtoul(text, &end, 10);
        if (end != text && first < AE_MAX_CPUS) return (uint32_t)first;
    }
    return cpu;
}

void ae_os_cpus_below(const char *root, const bool allowed[AE_MAX_CPUS], ae_os_cpus *out)
{
    bool seen[AE_MAX_CPUS] = {false};
    *out = (ae_os_cpus){0};
    for (uint32_t cpu = 0; cpu < AE_MAX_CPUS; cpu++) {
        if (!allowed[cpu]) continue;
        out->n_allowed++;
        const uint32_t core = first_sibling(root, cpu);
        out->n_cores += !seen[core];
        seen[core] = true;
    }
    out->quota = cpu_quota(root);
    out->n_threads = out->n_cores;
    if (out->quota > 0 && out->quota < out->n_threads) {
        out->n_threads = (uint32_t)out->quota;
        out->n_threads += out->n_threads < out->quota; /* rounded up, so that a fraction of a CPU is used too */
    }
    if (out->n_threads < 1) out->n_threads = 1;
}

static void read_affinity(bool allowed[AE_MAX_CPUS])
{
    memset(allowed, 0, AE_MAX_CPUS * sizeof *allowed);
    cpu_set_t *set = CPU_ALLOC(AE_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(AE_MAX_CPUS);
    bool any = false;
    if (set && sched_getaffinity(0, bytes, set) == 0)
        for (uint32_t i = 0; i < AE_MAX_CPUS; i++) any |= allowed[i] = CPU_ISSET_S(i, bytes, set);
    CPU_FREE(set);
    const long n = any ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < n && i < AE_MAX_CPUS; i++) allowed[i] = true;
}

void ae_os_cpus_get(ae_os_cpus *out)
{
    bool allowed[AE_MAX_CPUS];
    read_affinity(allowed);
    ae_os_cpus_below("", allowed, out);
}

int ae_os_n_cores(void)
{
    ae_os_cpus cpus;
    ae_os_cpus_get(&cpus);
    return (int)cpus.n_threads;
}

bool ae_os_cpus_restrict(const bool wanted[AE_MAX_CPUS])
{
    bool allowed[AE_MAX_CPUS], any = false;
    read_affinity(allowed);
    cpu_set_t *set = CPU_ALLOC(AE_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(AE_MAX_CPUS);
    if (!set) return false;
    CPU_ZERO_S(bytes, set);
    for (uint32_t i = 0; i < AE_MAX_CPUS; i++)
        if (wanted[i] && allowed[i]) {
            CPU_SET_S(i, bytes, set);
            any = true;
        }
    const bool done = any && sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return done;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

/* Returns the number after a name at the start of a line; 0 if there is none. */
static double named_number(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (!strncmp(line, name, n) && (line[n] == ' ' || line[n] == ':')) return ae_number_parse(line + n + 1, NULL);
    return 0;
}

/* Lowers *least to the memory left in a group. Cached files count as used there, but the kernel drops them when memory is
 * needed, so they are subtracted. */
static void group_memory_left(const group *g, const char *limit, const char *used, const char *active, const char *inactive,
                              double *least)
{
    char text[64], stat[4096] = ""; /* some 70 lines; this is small, since callers may have little stack */
    double most, now;
    if (!group_text(g, limit, text, sizeof text) || !number(text, &most)) return; /* "max": no limit */
    if (!group_text(g, used, text, sizeof text) || !number(text, &now)) return;
    if (group_text(g, "memory.stat", stat, sizeof stat)) now -= named_number(stat, active) + named_number(stat, inactive);
    take_least(least, most > now ? most - (now > 0 ? now : 0) : 1);
}

/* Returns the bytes that /proc/meminfo gives under this name, which must be among its first three lines; 0: it does not. */
static double meminfo(const char *root, const char *name)
{
    char text[512];
    return read_text(text, sizeof text, root, "/proc/meminfo") ? named_number(text, name) * 1024 : 0;
}

uint64_t ae_os_memory_available_below(const char *root)
{
    group g;
    double least = 0;
    const double available = meminfo(root, "MemAvailable");
    if (available > 0) take_least(&least, available);
    if (find_group(&g, root, "", mounts_2))
        do {
            group_memory_left(&g, "memory.max", "memory.current", "active_file", "inactive_file", &least);
        } while (group_up(&g));
    if (find_group(&g, root, "memory", mounts_memory))
        do {
            group_memory_left(&g, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file",
                              &least);
        } while (group_up(&g));
    return (uint64_t)least;
}

uint64_t ae_os_memory_available(void)
{
    return ae_os_memory_available_below("");
}

static void group_limits(group *g, const char *file, double *least)
{
    char text[64];
    double most;
    do {
        if (group_text(g, file, text, sizeof text) && number(text, &most)) take_least(least, most);
    } while (group_up(g));
}

uint64_t ae_os_memory_limit_below(const char *root)
{
    group g;
    double least = 0;
    const double all = meminfo(root, "MemTotal");
    if (find_group(&g, root, "", mounts_2)) group_limits(&g, "memory.max", &least);
    if (find_group(&g, root, "memory", mounts_memory)) group_limits(&g, "memory.limit_in_bytes", &least);
    return all > 0 && least >= all ? 0 : (uint64_t)least; /* version 1 expresses "no limit" by nearly 2^63 */
}

uint64_t ae_os_memory_limit(void)
{
    return ae_os_memory_limit_below("");
}

uint64_t ae_os_memory_total(void)
{
    return (uint64_t)meminfo("", "MemTotal");
}
