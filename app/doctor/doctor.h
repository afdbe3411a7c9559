/* doctor.h - what `aerie doctor` reports about this machine and about a model on it.
 * Invariants: a value that cannot be read is "unknown" (a field's comment says how that is stored), never an error. Nothing
 * here contains a key, a prompt or the user's name: paths go through doctor_hide. */
#ifndef AERIE_APP_DOCTOR_DOCTOR_H
#define AERIE_APP_DOCTOR_DOCTOR_H

#include "aerie_extra.h"
#include "base/os.h" /* CPUs and memory limits of this process, which aerie.h does not report */
#include "cli/commands.h"

typedef struct doctor_machine {
    char system[256];      /* "Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64" */
    char cpu[128];         /* "": unknown */
    const char *level;     /* level of the kernels in use; NULL: --cpu or AERIE_CPU names none */
    const char *best;      /* that this CPU has */
    bool lacks_level;      /* the CPU lacks the requested level */
    const char *backend;   /* the backend that AERIE_BACKEND names; "": it is not set; NULL: it cannot be used */
    aerie_error backend_error; /* why not */
    ae_os_cpus cpus;
    uint32_t n_online;     /* CPUs that are online; 0: unknown */
    uint32_t n_threads;    /* that would run */
    double load;           /* average of the last minute, read before measuring; -1: unknown */
    char governor[32], driver[32], preference[32]; /* of cpufreq; "": unknown */
    char huge_pages[16];   /* "always", "madvise", "never"; "": unknown */
    uint64_t memory, available;      /* bytes; 0: unknown */
    uint64_t limit;                  /* limit of the control groups in bytes; 0: none */
    uint64_t swap, swap_used;        /* bytes */
    bool swap_known;
    bool measured;         /* false with --quick */
    double bandwidth;      /* bytes per second, the best of n_readings; 0: unknown */
    uint64_t reading_bytes;
    uint32_t n_readings;
} doctor_machine;

typedef struct doctor_cache {
    char *folder;     /* with the home folder hidden; owned; NULL: there is none */
    bool listed;        /* the next two are known */
    uint64_t n_models, bytes;
    uint64_t free_bytes; /* free bytes of its file system; 0: unknown */
} doctor_cache;

typedef struct doctor_model {
    bool given;
    char *path;         /* hidden; owned */
    aerie_status status;
    aerie_error error;  /* hidden paths; unless status is OK, says why the file cannot be used */
    char arch[64], type[16]; /* type: that of most weights */
    uint32_t n_ctx_train;
    bool is_encoder;    /* has no tokens/s */
    aerie_memory_plan plan;
    uint64_t mapped;    /* bytes of the file that are used in place, which the plan does not count; approximate */
    uint64_t per_token; /* bytes that are read to decode a token; 0: unknown */
    double most_rate;   /* tokens per second that the bandwidth allows at most; 0: unknown */
    char *mmproj;       /* path of the file that reads images, hidden; owned; NULL: there is none */
    aerie_error mmproj_error; /* hidden paths; unless status is OK, says why the file cannot be used */
    aerie_memory_plan mmproj_plan;
} doctor_model;

/* Sentences. */
typedef struct doctor_warnings {
    char **items; /* [n] the list and its texts are owned */
    size_t n, capacity;
} doctor_warnings;

/* a warning is dropped if memory is short */
void doctor_warn(doctor_warnings *warnings, const char *format, ...) APP_PRINTF(2, 3);

/* Returns the text with ~ for the home folder, and USER for the user's name in paths; the caller frees it. NULL: out of
 * memory. */
char *doctor_hide(const char *text);

/* machine.c */
void doctor_machine_read(doctor_machine *machine, const app_options *options);
void doctor_machine_judge(const doctor_machine *machine, const app_options *options, doctor_warnings *warnings);

/* model.c: examines the model of the options, if there is one. */
void doctor_model_read(doctor_model *model, const doctor_machine *machine, const app_options *options);
void doctor_model_judge(const doctor_model *model, const app_options *options, doctor_warnings *warnings);

#endif
