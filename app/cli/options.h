/* options.h - the one table of commands and options, and what was asked for.
 *
 * Owns: names, types, defaults, ranges and help of every option. The command line, AERIE_*
 * environment names, --help, completion and the man page all come from this table.
 * Names are llama.cpp's wherever it has one. Values lie in app_options, mostly inside the
 * library's own option structs, so defaults are the library's.
 * The environment name of an option is AERIE_ and a long name in capitals, '-' as '_'; help shows the first.
 * The command line wins over the environment, and that over the file of --config.
 */
#ifndef AERIE_APP_CLI_OPTIONS_H
#define AERIE_APP_CLI_OPTIONS_H

#include "shared/app.h"
#include "session/test_drafters.h" /* oracle and random, --spec-fixed: aerie.h has no drafters for tests */

/* One bit per command: which commands take an option. */
enum {
    APP_RUN = 1u << 0,
    APP_SERVE = 1u << 1,
    APP_TOKENIZE = 1u << 2,
    APP_TEMPLATE = 1u << 3,
    APP_INSPECT = 1u << 4,
    APP_PULL = 1u << 5,
    APP_CONVERT = 1u << 6,
    APP_EMBED = 1u << 7,
    APP_PERPLEXITY = 1u << 8,
    APP_IMATRIX = 1u << 9,
    APP_QUANTIZE = 1u << 10,
    APP_BENCH_SPEED = 1u << 11,
    APP_BENCH_VERIFY = 1u << 12,
    APP_BENCH_SPEC = 1u << 13,
    APP_BENCH_LOGITS = 1u << 14,
    APP_TRAIN_DATA = 1u << 15,
    APP_BENCH_STUDY = 1u << 16,
    APP_BENCH_SHAPES = 1u << 17,
    APP_LIST = 1u << 18,
    APP_RM = 1u << 19,
    APP_DOCTOR = 1u << 20,
};

#define APP_BENCH (APP_BENCH_SPEED | APP_BENCH_VERIFY | APP_BENCH_SPEC | APP_BENCH_LOGITS | APP_BENCH_STUDY)
#define APP_JUDGES (APP_PERPLEXITY | APP_IMATRIX) /* reads a text in windows */
#define APP_GENERATES (APP_RUN | APP_BENCH | APP_TRAIN_DATA | APP_SERVE | APP_JUDGES) /* has a session */
#define APP_LOADS (APP_GENERATES | APP_EMBED | APP_DOCTOR) /* weights, and runs threads; or says how that would go */
#define APP_THREADS (APP_LOADS | APP_QUANTIZE | APP_BENCH_SHAPES)
#define APP_STORE (APP_PULL | APP_LIST | APP_RM) /* of the folder of pulled models */
#define APP_READS (APP_LOADS | APP_TOKENIZE | APP_TEMPLATE | APP_INSPECT) /* takes -m */

typedef struct app_command {
    unsigned bit;
    const char *name;      /* "run", "bench speed" */
    const char *arguments; /* after the options in the usage line; "" if it takes none */
    const char *summary;   /* one line */
    const char *about;     /* paragraphs for --help, ends with a newline */
} app_command;

size_t app_n_commands(void);
const app_command *app_command_at(size_t i);

typedef enum app_type {
    APP_FLAG,       /* bool: true when given */
    APP_FLAG_OFF,   /* bool: false when given */
    APP_ON_OFF,     /* bool: on or off */
    APP_I32,        /* int32_t in [min, max] */
    APP_U32,        /* uint32_t in [min, max] */
    APP_COUNT,      /* the same, but -1 is the default, as llama.cpp has it */
    APP_CTX,        /* uint32_t in [min, max], a size of context; 0 is AERIE_CTX_TRAINED */
    APP_SEED,       /* uint64_t app_options.sampling.seed; -1 is a random one */
    APP_F32,        /* float in [min, max] */
    APP_TEXT,       /* const char * */
    APP_TEXTS,      /* app_texts: may be given several times */
    APP_NUMBERS,    /* app_numbers: list with commas, each in [min, max] */
    APP_REALS,      /* app_reals: list with commas, each in [min, max] */
    APP_TREES,      /* app_numbers of aerie_tree: list with commas */
    APP_SPEC_TYPE,  /* aerie_spec_type, or one of test_drafters.h */
    APP_KV_TYPE,    /* aerie_kv_type */
    APP_TREE,       /* aerie_tree */
    APP_POOLING,    /* aerie_pooling */
    APP_LORAS,      /* app_loras: FILE, or several with commas; may be given several times */
    APP_LORAS_SCALED, /* the same, FILE:SCALE each */
    APP_SPEC_TYPES, /* app_numbers of aerie_spec_type: list with commas */
} app_type;

typedef struct app_option {
    const char *names;    /* with spaces between, as written: "-n --predict --n-predict" */
    const char *argument; /* NULL for a flag; "[...]" may be left out */
    app_type type;
    unsigned commands;
    size_t offset; /* of the value in app_options */
    double min, max;
    const char *group;
    const char *help;
} app_option;

size_t app_n_options(void);
const app_option *app_option_at(size_t i);

#define APP_MAX_NUMBERS 64
#define APP_MAX_CTX (1u << 24)

typedef struct app_numbers {
    uint32_t items[APP_MAX_NUMBERS];
    size_t n;
} app_numbers;

typedef struct app_reals {
    float items[APP_MAX_NUMBERS];
    size_t n;
} app_reals;

typedef struct app_texts {
    const char **items; /* [n] owned, the texts are not */
    size_t n, capacity;
} app_texts;

typedef struct app_lora {
    char *path; /* owned */
} app_lora;

/* Adapters in the order given, which numbers them. */
typedef struct app_loras {
    app_lora *items;         /* [n] owned */
    aerie_adapter_use *uses; /* [n] owned: what a request asks for that says nothing else */
    size_t n, capacity;
} app_loras;

/* What `aerie serve` alone takes. */
typedef struct app_serve_options {
    app_texts models; /* [NAME=]FILE */
    const char *models_dir, *alias;
    uint32_t models_max, models_memory; /* loaded at once, 0: any number; MiB of their memory, 0: what the machine can give */
    const char *config; /* file of options */
    app_text config_text; /* its text, into which values point; owned */
    const char *host, *slot_save_path, *api_key_file, *allowed_hosts, *cors_origins, *reasoning_format;
    const char *metrics_key, *prefix_scope, *default_model;
    app_texts api_keys;
    uint32_t port, n_seqs, max_queue, max_connections, max_per_address, max_per_key, max_body, max_n;
    uint32_t max_memory; /* MiB that requests on their way may hold; 0: a part of what there is */
    uint32_t max_logprobs;
    uint32_t default_max_tokens; /* of requests that set none; 0: as many as fit */
    uint32_t n_threads_http; /* 0: as many as there are CPUs */
    uint32_t timeout, grace, stuck;
    int32_t sleep_idle; /* seconds without use after which a model is unloaded; -1: never */
    bool lora_idle; /* adapters are loaded, but used only where a request or POST /lora-adapters says so */
    bool no_page, no_slots, no_metrics, no_access_log, no_prefill;
} app_serve_options;

/* Models from the network (pull.h). */
typedef struct app_pull_options {
    const char *hf_repo, *hf_file, *hf_token, *hf_repo_draft, *model_url; /* llama.cpp's */
    const char *cache_dir, *registry, *sha256;
    bool offline, no_drafter;
    uint32_t stall_seconds, n_retries;
} app_pull_options;

/* --spec-type hier: what drafts for the model of -md. */
typedef struct app_hier_options {
    app_texts files;          /* each drafts for the model before it; the last may be a head */
    aerie_spec_type type;     /* of the last model, where no file drafts for it */
    uint32_t n_iter, top_k, n_nodes;
} app_hier_options;

/* `aerie bench speed`: what is measured in all combinations. */
typedef struct app_speed_options {
    app_numbers prompts, predicts, depths, threads, batches, ubatches; /* none of the last three: what there is by default */
    app_texts pairs;    /* N,N: a prompt and an answer, timed as one */
    const char *format; /* of -o; NULL: a table */
    bool progress;
} app_speed_options;

typedef struct app_options {
    const app_command *command;
    app_pull_options pull;
    app_texts pulled; /* of app_pull_models; its texts are owned */
    app_serve_options serve;
    const char *model, *draft_model;
    const char *beside;    /* bench study: the file beside which a head is looked for, where it is not the model */
    app_texts more_drafts; /* bench spec: further -md */
    bool model_typed; /* as an argument, not by -m */
    uint32_t n_threads, n_batch_logical; /* threads: never 0 once parsed, for commands of APP_THREADS */
    const char *cpu_mask, *cpu_range;
    const char *cache_type_k, *cache_type_v; /* llama.cpp's, both or none */
    aerie_model_params model_params;
    aerie_rope rope; /* model_params.rope, once parsed, if anything of it was given */
    const char *rope_scaling;
    float rope_freq_scale; /* 0: not given */
    app_texts overrides; /* of model_params */
    uint32_t draft_vocab;
    app_hier_options hier;
    aerie_session_params session;
    ae_session_test test;
    aerie_sampling sampling;
    bool seed_random; /* the seed was drawn, not given */
    bool seed_given;  /* by --seed, be it -1 */
    const char *samplers, *sampler_seq;  /* NULL: the default order */
    app_texts logit_bias, dry_breakers;  /* as given; what they mean is in sampling, made of `sampling_lists` */
    app_texts stop;                      /* unescaped, if asked for, by app_sampling_settle */
    struct app_sampling_lists *sampling_lists; /* owned */
    uint32_t n_logprobs;

    app_texts prompts;
    const char *file, *prompts_file, *system_prompt;
    bool conversation, no_conversation, single_turn, escape;
    int32_t n_predict;
    bool ignore_eos;
    const char *grammar_text, *grammar_file, *schema_text, *schema_file; /* one at most */
    bool special_in_messages;
    bool schema_strict;  /* what a grammar cannot enforce is an error */
    aerie_grammar *grammar; /* compiled of it; NULL: any text. Owned */

    bool ids, json, jsonl, csv, stats, verbose, quiet;
    bool color_drafts, no_history, no_wrap; /* run */
    app_loras loras;
    const char *prompt_cache;      /* run: file, or NULL */
    bool prompt_cache_all, prompt_cache_ro;

    bool decode, no_bos, no_parse_special, show_count;   /* tokenize */
    aerie_pooling pooling;                               /* embed, serve */
    int32_t embd_normalize;                              /* embed, serve */
    const char *embd_format, *embd_separator;            /* embed */
    const char *rerank_query;                            /* embed */
    bool embd_cosine, embd_truncate;                     /* embed */
    const char *template_text;                           /* run: Jinja, or the name of a known one */
    const char *template_file, *messages, *tools;        /* run, template */
    const char *bos, *eos;                               /* template */
    app_texts variables;                                 /* template: NAME=JSON */
    const char *template_kwargs;                         /* run, template */
    int32_t reasoning_budget;                            /* run: -1, or 0 for no thinking */
    bool no_generation_prompt, tokens;                   /* template */
    bool keys, tensors, full;                            /* inspect */
    const char *match;                                   /* inspect */
    app_speed_options speed;
    uint32_t bench_prompt, n_repetitions; /* bench */
    bool in_turns; /* bench spec */
    const char *study_types, *study_output;              /* bench study */
    bool quick, resume;                                  /* bench study; quick: doctor too */
    const char *steep;                                   /* bench spec, bench study */
    app_numbers contexts, rows, spec_types;              /* bench */
    const char *ids_file;                                /* bench logits */
    const char *shapes_types;                            /* bench shapes */
    app_numbers shapes_in, shapes_out, shapes_rows;      /* bench shapes */
    bool shapes_models;                                  /* bench shapes */
    const char *output_type, *embedding_type;            /* quantize */
    app_texts tensor_types;                              /* quantize: PATTERN=TYPE */
    bool pure, leave_output, allow_requantize, dry_run;  /* quantize */
    const char *imatrix;                                 /* quantize: file, or NULL */
    uint32_t ppl_stride, n_tasks;                        /* perplexity; 0: none, all */
    int32_t n_chunks;                                    /* perplexity, imatrix: windows; -1: all */
    const char *kl_base;                                 /* perplexity: file, or NULL */
    bool kl_divergence, hellaswag, multiple_choice;      /* perplexity */
    const char *imatrix_output;                          /* imatrix */
    bool process_output, parse_special;                  /* imatrix */
    const char *output;                                  /* train-data */
    uint32_t n_turns, n_likely;                          /* train-data */
    app_numbers taps;                                    /* train-data; none: the usual ones */
    const char *features;                                /* train-data answers: file of features, or NULL */

    const char *convert_output, *convert_target, *convert_type, *convert_config, *convert_name; /* convert */
    const char *convert_pre;
    const char *convert_producer, *convert_taps, *convert_feedback, *convert_residual, *convert_d2t, *convert_embedding;
    app_texts convert_skip;
    uint32_t convert_window, convert_sinks;
    const char *convert_rope, *convert_check_file;
    bool convert_tokenizer, convert_self_check, convert_mtp;
    app_texts prompt_paths;                              /* bench spec */
    const char *groups, *held_out;                       /* bench spec */
    uint32_t n_per_group;                                /* bench spec; 0: all */
    app_reals temperatures;                              /* bench spec; none: the one of sampling */
    app_numbers n_seqs, n_maxes, trees;                  /* bench spec */

    app_texts arguments; /* what is not an option */
    app_texts ignored;   /* options given that have no effect, as written (llama_options.h) */
} app_options;

/* Every value as it is when nothing is given. */
void app_options_default(app_options *options);
typedef enum app_help {
    APP_HELP_NONE,
    APP_HELP_SHORT, /* the options that most people need */
    APP_HELP_ALL,
} app_help;

/* Command line, then the environment for what it left open. Arguments borrow from argv and environment.
 * *help: whether --help was among them (nothing else is checked then). */
int app_options_parse(app_options *options, const app_command *command, int argc, char **argv, app_help *help);
void app_options_free(app_options *options);

/* Environment name of an option into out [64]; returns out. */
const char *app_option_environment(const app_option *option, char out[64]);
/* Name i of an option into out [64], or NULL after the last one. */
const char *app_option_name(const app_option *option, size_t i, char out[64]);
/* The same of a list of names with spaces between. */
const char *app_name_at(const char *names, size_t i, char out[64]);
/* The default as --help shows it into out [256]; NULL if there is nothing to show. */
const char *app_option_default(const app_option *option, char out[256]);

/* The first option called name[0..n) that takes one of the commands of `bits`; app_n_options() if there is none. */
size_t app_option_find(const char *name, size_t n, unsigned bits);

/* ---- suggest.c: what an unknown name may have meant, by meaning first and by spelling second --------- */

/* The better of two candidates for a misspelt `text`: `best` (or NULL) and `candidate`, if that is near at all. */
const char *app_nearest(const char *text, const char *best, const char *candidate);
/* Prints a sentence; returns APP_USAGE. */
int app_unknown_option(const app_command *command, const char *name, size_t n);
int app_unknown_command(const char *name);

/* ---- setup/adapters.c ---- */

/* What the option `name` gives; scaled: with scales. */
int app_loras_add(app_loras *loras, const char *name, const char *text, bool scaled);
void app_loras_free(app_loras *loras);

/* ---- cpus.c: restricts the program to the CPUs asked for, resolves n_threads, says so if --verbose ----- */

int app_cpus_settle(app_options *options);

/* ---- options_sampling.c: what --samplers, --logit-bias, --dry-sequence-breaker and --stop mean ------------- */

int app_sampling_settle(app_options *options);
void app_sampling_free(app_options *options);

/* ---- spec_types.c: what `name` gives as a drafter; of a list with commas what does all of it: several drafters that need a
 * file are AUTO, and *ngram is whether n-grams are among them ---- */

int app_spec_type_parse(const char *name, const char *word, aerie_spec_type *type);
int app_spec_list_parse(const char *name, const char *text, aerie_spec_type *type, bool *ngram);

/* ---- environment.c: AERIE_* and, after them, LLAMA_ARG_* ---- */

/* The value and the variable's name, or NULL; *negated: of a switch the opposite is meant. */
const char *app_environment_get(const app_option *option, char name[64], bool *negated);
/* Tells, in sentences, what nothing reads and looks like a misspelling of what something would. */
typedef void app_telling(void *user, const char *sentence);
void app_environment_check(app_telling *tell, void *user);

/* ---- grammar.c: compiles what --grammar and its like gave ------------------------------------------------- */

int app_grammar_settle(app_options *options);

/* ---- help_about.c: help on an option; on a subject, or the options that have the word in their names: false
 * where there is nothing ---- */

int app_help_option(const char *name);
bool app_print_subject(const char *word);

/* Words of text from column `left` to 100, starting in column `at`. */
void app_print_wrapped(const char *text, size_t at, size_t left);
/* brief: the first clause of the help, and what the default means. */
void app_print_option(const app_option *option, bool brief);

/* ---- help.c: what the table says, for readers ------------------------------------------------------ */

void app_print_usage(FILE *stream); /* a few lines */
void app_print_overview(void);      /* aerie help */
void app_print_help(const app_command *command, app_help help);
/* The help topic called `name`; false if there is none. */
bool app_print_topic(const char *name);
bool app_is_help(const char *word); /* --help and its like */
bool app_is_all(const char *word);  /* "all" or "--all" after it */
void app_print_completion(void); /* bash */
void app_print_completion_zsh(void);
void app_print_completion_fish(void);
void app_print_man(void);

#endif
