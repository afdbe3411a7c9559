/* speculation.h - what the files of aerie bench spec share: prompts in groups, drafters, figures.
 * Owns the data structures: speculation.c measures, prompts.c reads, speculation_print.c prints. Nothing here knows any kind of
 * drafter by name. */
#ifndef AERIE_APP_BENCH_SPECULATION_H
#define AERIE_APP_BENCH_SPECULATION_H

#include "bench/bench.h"

/* ---- prompts.c ------------------------------------------------------------------------------ */

typedef struct bench_group {
    char *name; /* owned */
    size_t first, n; /* its prompts */
} bench_group;

typedef struct bench_prompts {
    app_prompts prompts; /* group after group */
    bench_group *groups; /* [n_groups] */
    size_t n_groups, capacity;
} bench_prompts;

/* Reads the prompts of --prompts, filtered by --groups, --held-out and --per-group; else those of -p or --prompts-file; else a
 * few built-in ones. */
int bench_prompts_read(bench_prompts *prompts, const app_options *options);
/* Inserts the same n > 0 tokens into each prompt, after its BOS token: tokens of the file `text`, or of the prompts, repeated.
 * Called after app_prompts_encode. */
int bench_prompts_lengthen(bench_prompts *prompts, const app_models *models, uint32_t n, const char *text);
void bench_prompts_free(bench_prompts *prompts);

/* ---- Figures --------------------------------------------------------------------------------------------- */

/* A kind of speculation and its settings; plain decoding is compared with each. */
typedef struct bench_drafter {
    aerie_spec_type type;
    char name[96];   /* the type that was chosen */
    size_t set;           /* index in bench_spec.sets of the file that drafts */
    char file[256];       /* names without folders of the files that draft, joined by " + "; "": none */
    uint32_t n_max;
    aerie_tree tree;
    const char *label;    /* bench study: name of a drafter whose settings differ from the options; NULL: none */
    bool fixed, ngram;
    uint32_t n_nodes, top_k;
    int32_t moe_experts;
    const char *moe_layers;
} bench_drafter;

/* The figures of one drafter on one group (or all groups) at one temperature and number of sequences. */
typedef struct bench_cell {
    const bench_drafter *drafter;
    const char *group;
    float temperature;
    uint32_t n_seqs;
    size_t n_prompts;
    double n_tokens, seconds, plain_seconds; /* of one repetition, as sums of medians */
    aerie_stats stats, plain_stats;          /* of all repetitions */
    uint32_t n_passes;                       /* stats.n_passes and the first passes, which decode, because prompts are in the
                                              * cache */
    double all_seconds;                      /* of the drafted runs in all repetitions */
    bool same;                               /* ids and text equalled the plain ones every time */
} bench_cell;

typedef struct bench_spec {
    app_options options; /* complete: with defaults filled in */
    app_models models;
    app_models *sets;     /* [1 + more_drafts.n] drafters, the first of which is that of `models`; NULL: only that one */
    bench_prompts prompts;
    bench_drafter *drafters; /* [n_drafters] */
    size_t n_drafters;
    aerie_session *plain, **drafted; /* [n_drafters] for the current number of sequences and temperature */
    struct app_answer *truth;        /* [temperatures][prompts] the first plain answers */
    bench_cell *cells; /* [n_seqs][temperatures][drafters][groups, and the sum of all] */
    size_t n_cells;
    struct bench_trace *traces; /* [n_drafters] with --trace, else NULL */
    FILE *trace;          /* with --trace */
    const char *group;    /* at hand */
    float temperature;
    uint32_t n_seqs;
    json_t *settings; /* for --json */
    double start;     /* when measuring began */
    size_t n_parts, n_parts_done; /* prompts of all combinations of temperature and number of sequences */
    double noted;     /* when progress was last printed */
} bench_spec;

/* ---- speculation.c ---- */

/* Fills in the options that were not given. */
void bench_spec_complete(app_options *options);
/* Loads the models and chooses a context that fits. Called when the options are complete and the prompts are read. */
int bench_spec_load(bench_spec *b);
/* With --steep: determines how long passes are made to take. Called after bench_spec_load. */
int bench_spec_steepen(bench_spec *b);
/* Measures all cells. Called when the drafters are listed. */
int bench_spec_measure(bench_spec *b);
int bench_spec_check_same(const bench_spec *b);
void bench_spec_free(bench_spec *b);

/* ---- speculation_trace.c ------------------------------------------------------------------------------------ */

/* With --trace: opens the file. Must be called after the drafters are listed. */
int bench_trace_open(bench_spec *b);
/* Writes a line for each pass of drafter i's session from now on; without --trace it does nothing. */
int bench_trace_session(bench_spec *b, size_t i);
/* Closes the file and reports whether everything was written. */
int bench_trace_close(bench_spec *b);

/* ---- speculation_print.c ------------------------------------------------------------------------------------ */

int bench_spec_print(const bench_spec *b);

#endif
