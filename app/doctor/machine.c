/* machine.c - examines the machine for `aerie doctor`: CPU, limits, memory, read bandwidth, and what makes answers slow.
 * Owns nothing. Sources, on Linux: /proc/cpuinfo, /proc/loadavg, /proc/meminfo, /sys/devices/system/cpu,
 * /sys/kernel/mm, /etc/os-release. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "backend/cpu/ref/kernels.h" /* levels that this CPU supports, which aerie.h does not report */
#include "bench/bench.h"
#include "cli/commands.h"
#include "doctor/doctor.h"

#define MIB ((uint64_t)1 << 20)

/* Reads the text after `name` and a separator in the first line that begins with `name`, without quotes; name "": the first
 * line.
 * Returns false with "" in out if there is none. */
static bool read_field(char *out, size_t capacity, const char *path, const char *name)
{
    char line[512];
    FILE *file = fopen(path, "re");
    bool found = false;
    *out = '\0';
    while (file && !found && fgets(line, sizeof line, file)) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n)) continue;
        const char *value = line + n + (n ? strspn(line + n, " \t:=\"") : 0);
        const size_t length = strcspn(value, "\"\n");
        found = length > 0;
        snprintf(out, capacity, "%.*s", (int)length, value);
    }
    if (file) fclose(file);
    return found;
}

static uint64_t read_kib(const char *name, bool *known)
{
    char text[64];
    *known = read_field(text, sizeof text, "/proc/meminfo", name);
    return *known ? strtoull(text, NULL, 10) * 1024 : 0;
}

void app_cpu_name(char *out, size_t n)
{
    if (!read_field(out, n, "/proc/cpuinfo", "model name"))
        read_field(out, n, "/proc/device-tree/model", ""); /* arm boards */
}

static void read_system(doctor_machine *m)
{
    char name[96];
    struct utsname uts;
    const bool named = read_field(name, sizeof name, "/etc/os-release", "PRETTY_NAME");
    if (uname(&uts) == 0) /* not its nodename, which identifies the machine */
        snprintf(m->system, sizeof m->system, "%s%s%.24s %.64s %.24s", named ? name : "", named ? ", " : "", uts.sysname,
                 uts.release, uts.machine);
    else snprintf(m->system, sizeof m->system, "%s", named ? name : "unknown");
    app_cpu_name(m->cpu, sizeof m->cpu);
}

/* Returns AERIE_BACKEND if it names a device that can be used. */
static const char *read_backend(aerie_error *error)
{
    const char *said = getenv("AERIE_BACKEND");
    if (!said || !*said) return "";
    return app_device_check(said, error) ? said : NULL;
}

static void read_cpus(doctor_machine *m, const app_options *options)
{
    const char *asked = options->model_params.cpu_level;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    ae_kernels kernels;
    bool supported = true;
    ae_os_cpus_get(&m->cpus);
    m->n_online = online > 0 ? (uint32_t)online : 0;
    m->n_threads = options->n_threads;
    m->backend = read_backend(&m->backend_error);
    m->best = app_cpu_level();
    m->level = ae_kernels_select(&kernels, asked, &supported) ? kernels.level : NULL;
    m->lacks_level = m->level && !supported;
    read_field(m->governor, sizeof m->governor, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "");
    read_field(m->driver, sizeof m->driver, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "");
    read_field(m->preference, sizeof m->preference, "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "");
}

static void read_memory(doctor_machine *m)
{
    char text[64], *end;
    bool known;
    m->memory = ae_os_memory_total();
    m->available = ae_os_memory_available();
    m->limit = ae_os_memory_limit();
    m->swap = read_kib("SwapTotal", &m->swap_known);
    const uint64_t unused = read_kib("SwapFree", &known);
    m->swap_known &= known;
    m->swap_used = m->swap > unused ? m->swap - unused : 0;
    read_field(text, sizeof text, "/sys/kernel/mm/transparent_hugepage/enabled", ""); /* "always [madvise] never" */
    char *chosen = strchr(text, '[');
    if (chosen && (end = strchr(chosen, ']')))
        snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s", (int)(end - chosen - 1), chosen + 1);
}

/* Measures the best reading of half a second; opening the reader takes about as long. */
static void measure(doctor_machine *m)
{
    enum { MOST = 100 };
    app_reader *reader;
    if (app_reader_open(&reader, m->n_threads, 0) == APP_DONE && reader) {
        const double end = app_now() + 0.5;
        m->reading_bytes = app_reader_bytes(reader);
        do {
            const double rate = app_reader_read(reader);
            if (rate > m->bandwidth) m->bandwidth = rate;
            m->n_readings++;
        } while (app_now() < end && m->n_readings < MOST && m->bandwidth > 0);
    }
    app_reader_free(reader);
}

void doctor_machine_read(doctor_machine *m, const app_options *options)
{
    char text[64];
    *m = (doctor_machine){.load = -1};
    if (read_field(text, sizeof text, "/proc/loadavg", "")) m->load = app_number(text, NULL);
    read_system(m);
    read_cpus(m, options);
    read_memory(m);
    m->measured = !options->quick;
    if (m->measured) measure(m);
}

/* ---- What makes it slow --------------------------------------------------------------------------------- */

static void judge_backend(const doctor_machine *m, doctor_warnings *w)
{
    if (!m->backend)
        doctor_warn(w, "AERIE_BACKEND names no device that can be used: %s", m->backend_error.text);
    else if (strcmp(m->backend, "cpu-strict") == 0)
        doctor_warn(w, "AERIE_BACKEND chooses cpu-strict, which is for tests and slower");
}

static void judge_level(const doctor_machine *m, const app_options *options, doctor_warnings *w)
{
    const char *asked = options->model_params.cpu_level;
    if (!m->level)
        doctor_warn(w, "the CPU level '%s' of --cpu or AERIE_CPU is unknown; there are %s", asked, ae_kernels_known());
    else if (m->lacks_level)
        doctor_warn(w, "this CPU lacks the level %s that --cpu or AERIE_CPU names; its best is %s", asked, m->best);
    else if (strcmp(m->level, m->best))
        doctor_warn(w, "--cpu or AERIE_CPU restricts the kernels to the level %s; this CPU has %s, which is faster", m->level,
                    m->best);
#if defined(__x86_64__)
    if (strcmp(m->best, "ref") == 0)
        doctor_warn(w, "this CPU lacks AVX2, or a virtual machine hides it: plain C computes, several times as slowly");
#elif defined(__aarch64__)
    if (strcmp(m->best, "neon") == 0)
        doctor_warn(w, "this CPU lacks dot products (ARMv8.2), or a virtual machine hides them: products are slower");
#else
    doctor_warn(w, "there are no fast kernels for this kind of CPU: plain C computes, several times as slowly");
#endif
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
    doctor_warn(w, "this program was built without optimization (%s); build with CMAKE_BUILD_TYPE=Release", app_build());
#endif
}

static void judge_cpus(const doctor_machine *m, const app_options *options, doctor_warnings *w)
{
    const ae_os_cpus *c = &m->cpus;
    if (c->n_allowed && m->n_threads > c->n_allowed)
        doctor_warn(w, "%u threads are more than the %u CPU%s that this process may use, which slows all of them down; -t 0 "
                       "chooses", (unsigned)m->n_threads, (unsigned)c->n_allowed, app_plural(c->n_allowed));
    else if (c->n_cores && m->n_threads > c->n_cores)
        doctor_warn(w, "%u threads are more than the %u core%s: some share a core, which is mostly slower; -t 0 chooses",
                    (unsigned)m->n_threads, (unsigned)c->n_cores, app_plural(c->n_cores));
    if (c->quota > 0 && c->quota < c->n_cores)
        doctor_warn(w, "a control group grants %.2f CPUs of %u cores; threads beyond that are stopped for a while", c->quota,
                    (unsigned)c->n_cores);
    if (m->n_online > c->n_allowed && c->n_allowed && !options->cpu_mask && !options->cpu_range)
        doctor_warn(w, "this process may use only %u of the machine's %u CPUs", (unsigned)c->n_allowed, (unsigned)m->n_online);
    if (m->n_online && m->load + m->n_threads > m->n_online + 0.5)
        doctor_warn(w, "the machine is busy: in the last minute programs wanted %.1f CPUs (load average) of its %u; aerie is "
                       "faster when it is idle", m->load, (unsigned)m->n_online);
    /* these two drivers use "powersave" by default, and raise clocks with the load */
    const bool scales = strncmp(m->driver, "intel_pstate", 12) == 0 || strncmp(m->driver, "amd-pstate", 10) == 0;
    if (strcmp(m->governor, "powersave") == 0 && !scales)
        doctor_warn(w, "the CPU frequency governor is powersave, which holds the lowest clock; schedutil or performance is "
                       "faster");
    else if (strcmp(m->preference, "power") == 0)
        doctor_warn(w, "the CPU saves energy (energy_performance_preference is power); balance_performance is faster");
}

static void judge_memory(const doctor_machine *m, doctor_warnings *w)
{
    char a[32], b[32];
    const uint64_t most = m->limit ? m->limit : m->memory;
    if (m->available && most && (m->available < 1024 * MIB || m->available < most / 10))
        doctor_warn(w, "memory is short: %s of %s are available%s", app_bytes(a, m->available), app_bytes(b, most),
                    m->limit ? " in the control group" : "");
    if (m->swap_used >= 256 * MIB)
        doctor_warn(w, "%s lie in swap: programs need more memory than there is, and what is swapped out is slow",
                    app_bytes(a, m->swap_used));
    if (strcmp(m->huge_pages, "never") == 0)
        doctor_warn(w, "huge pages are off (/sys/kernel/mm/transparent_hugepage/enabled is never); with madvise passes are "
                       "faster");
    if (m->measured && !(m->bandwidth > 0))
        doctor_warn(w, "the read bandwidth could not be measured: there is too little memory");
}

void doctor_machine_judge(const doctor_machine *m, const app_options *options, doctor_warnings *warnings)
{
    judge_backend(m, warnings);
    judge_level(m, options, warnings);
    judge_cpus(m, options, warnings);
    judge_memory(m, warnings);
}
