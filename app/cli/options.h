/* options.h - the table of commands and options, and the values that the user gave.
 * Owns names, types, defaults, ranges and help of every option. The command line, the AERIE_* names of the environment, --help,
 * completion and the man page all come from this table.
 * An option that llama.cpp has, too, has the same name. Values are stored in app_options, mostly inside the library's parameter
 * structs, so the defaults are the library's.
 * An option's name in the environment is AERIE_ and one of its long names in capitals, with '_' for '-'; help shows the first.
 * The command line overrides the environment, and the environment overrides the file of --config. */
#ifndef AERIE_APP_CLI_OPTIONS_H
#define AERIE_APP_CLI_OPTIONS_H

#include "aerie_extra.h"
#include "shared/app.h"
#include "session/test_drafters.h" /* the drafters of --spec-fixed, "oracle" and "random", which aerie.h does not offer */

/* One bit per command. app_option.commands contains the bits of the commands that take the option. */
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
    APP_ROUTER = 1u << 21,
};

#define APP_BENCH (APP_BENCH_SPEED | APP_BENCH_VERIFY | APP_BENCH_SPEC | APP_BENCH_LOGITS | APP_BENCH_STUDY)
/* Commands that read a text in windows. */
#define APP_JUDGES (APP_PERPLEXITY | APP_IMATRIX)
/* Commands that have a session. */
#define APP_GENERATES (APP_RUN | APP_BENCH | APP_TRAIN_DATA | APP_SERVE | APP_JUDGES)
/* Commands that load weights and run threads, and doctor, which reports what that would need. */
#define APP_LOADS (APP_GENERATES | APP_EMBED | APP_DOCTOR)
/* Commands that take -t. */
#define APP_THREADS (APP_LOADS | APP_QUANTIZE | APP_BENCH_SHAPES)
/* Commands that work on the folder of pulled models. */
#define APP_STORE (APP_PULL | APP_LIST | APP_RM)
/* Commands that answer over HTTP. */
#define APP_LISTENS (APP_SERVE | APP_ROUTER)
/* Commands that take -m. */
#define APP_READS (APP_LOADS | APP_TOKENIZE | APP_TEMPLATE | APP_INSPECT)

typedef struct app_command {
    unsigned bit;
    const char *name;      /* "run", "bench speed" */
    const char *arguments; /* shown after the options in the usage line; "" if it takes none */
    const char *summary;   /* one line */
    const char *about;     /* paragraphs for --help, ending in a newline */
} app_command;

size_t app_n_commands(void);
const app_command *app_command_at(size_t i);

typedef enum app_type {
    APP_FLAG,       /* bool: true when given */
    APP_FLAG_OFF,   /* bool: false when given */
    APP_ON_OFF,     /* bool: on or off */
    APP_I32,        /* int32_t in [min, max] */
    APP_PREDICT,    /* int32_t: 1 to INT32_MAX, -1, or -2, which means the same here */
    APP_U32,        /* uint32_t in [min, max] */
    APP_COUNT,      /* uint32_t in [min, max]; -1 means the default, as in llama.cpp */
    APP_CTX,        /* uint32_t in [min, max], a context size; 0 is AERIE_CTX_TRAINED */
    APP_SEED,       /* uint64_t app_options.sampling.seed; -1 is a random one */
    APP_F32,        /* float in [min, max] */
    APP_TEMP,       /* float up to max; 0 for negative numbers */
    APP_TEXT,       /* const char * */
    APP_TEXTS,      /* app_texts: may be given several times */
    APP_OVERRIDES,  /* app_texts: KEY=TYPE:VALUE, or several with commas; may be given several times */
    APP_PLACEMENTS, /* the same: PATTERN=DEVICE */
    APP_FILES,      /* app_texts: FILE, or several with commas; may be given several times */
    APP_NUMBERS,    /* app_numbers: list with commas, each in [min, max] */
    APP_REALS,      /* app_reals: list with commas, each in [min, max] */
    APP_TREES,      /* app_numbers of aerie_tree: list with commas */
    APP_SPEC_TYPE,  /* aerie_spec_type, or one of test_drafters.h */
    APP_KV_TYPE,    /* aerie_kv_type */
    APP_TREE,       /* aerie_tree */
    APP_POOLING,    /* aerie_pooling */
    APP_LORAS,      /* app_loras: FILE, or several with commas; may be given several times */
    APP_LORAS_SCALED, /* app_loras: FILE:SCALE, or several with commas; may be given several times */
    APP_SPEC_TYPES, /* app_numbers of aerie_spec_type: list with commas */
} app_type;

typedef struct app_option {
    const char *names;    /* separated by spaces: "-n --predict --n-predict" */
    const char *argument; /* NULL for a flag; an argument in brackets is optional */
    app_type type;
    unsigned commands;
    size_t offset; /* offset of the value in app_options */
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
    const char **items; /* [n] the list is owned, the texts are not */
    size_t n, capacity;
} app_texts;

typedef struct app_lora {
    char *path; /* owned */
} app_lora;

/* The adapters in the order in which they were given; their index is their number. */
typedef struct app_loras {
    app_lora *items;         /* [n] owned */
    aerie_adapter_use *uses; /* [n] owned: adapters and scales for a request that names none */
    size_t n, capacity;
} app_loras;

/* Options that only `aerie serve` takes. */
typedef struct app_serve_options {
    app_texts models; /* [NAME=]FILE */
    const char *models_dir, *alias;
    uint32_t models_max, models_memory; /* models loaded at once (0: any number), MiB for them (0: what the machine has) */
    const char *config; /* path of a file of options; NULL: none */
    app_text config_text; /* contents of that file, into which values point; owned */
    const char *cache_disk; /* folder; NULL: conversations are not kept on disk */
    int32_t cache_ram; /* MiB for conversations; -1: no limit */
    uint32_t cache_disk_limit; /* MiB; 0: no limit */
    const char *host, *slot_save_path, *api_key_file, *allowed_hosts, *cors_origins, *reasoning_format;
    const char *metrics_key, *prefix_scope, *default_model, *image_url_hosts;
    app_texts api_keys;
    uint32_t port, n_seqs, max_queue, max_connections, max_per_address, max_per_key, max_body, max_n, max_images;
    uint32_t max_memory; /* limit in MiB for all requests in progress; 0: a part of the free memory */
    uint32_t max_logprobs;
    uint32_t default_max_tokens; /* limit for requests that set none; 0: as many as fit */
    uint32_t n_threads_http; /* 0: as many as there are CPUs */
    uint32_t timeout, grace, stuck;
    int32_t sleep_idle; /* seconds without use before a model is unloaded; -1: never */
    bool lora_idle; /* adapters are loaded but off, until a request or POST /lora-adapters turns them on */
    bool context_shift; /* drops the oldest turns of conversations that are too long */
    bool no_page, no_slots, no_metrics, no_access_log, no_prefill, image_url_http, image_process, no_image_process;
} app_serve_options;

/* Options that only `aerie router` takes. */
typedef struct app_router_options {
    float canary;                     /* share of requests that a second server answers, to compare the bytes */
    uint32_t wait, check, limit;      /* seconds: to wait for a server that is down, between checks, for the answer to a
                                       * check */
    uint32_t n_replays;               /* of one request */
    bool mixed;                       /* servers with other models or builds may take part */
    const char *key;                  /* key that the servers accept; NULL: the router's first key */
} app_router_options;

/* Models from the network (pull.h). */
typedef struct app_pull_options {
    const char *hf_repo, *hf_file, *hf_token, *hf_repo_draft, *model_url; /* options that llama.cpp has too */
    const char *cache_dir, *registry, *sha256;
    bool offline, no_drafter;
    uint32_t stall_seconds, n_retries;
} app_pull_options;

/* --spec-type hier: drafters for the model of -md. */
typedef struct app_hier_options {
    app_texts files;          /* each drafts for the model before it; the last one may be a head */
    aerie_spec_type type;     /* drafter of the last model, if no file drafts for it */
    uint32_t n_iter, top_k, n_nodes;
} app_hier_options;

/* `aerie bench speed`: lists, all combinations of which are measured. */
typedef struct app_speed_options {
    app_numbers prompts, predicts, depths, threads, batches, ubatches; /* the last three may be empty, which means the default
                                                                        * value */
    app_texts pairs;    /* N,N: a prompt and an answer that are timed together */
    const char *format; /* -o; NULL: a table */
    bool progress;
} app_speed_options;

/* Options that only `aerie run` takes. */
typedef struct app_run_options {
    bool color_drafts, no_history, no_wrap;
    bool denoising_shown; /* --diffusion-visual */
    const char *prompt_cache; /* file, or NULL */
    bool prompt_cache_all, prompt_cache_ro;
} app_run_options;

/* Chat templates: run, template. */
typedef struct app_chat_options {
    const char *template_text; /* Jinja, or the name of a known one */
    const char *template_file, *messages, *tools, *template_kwargs;
    int32_t reasoning_budget; /* tokens; -1: any number */
    const char *reasoning, *reasoning_effort; /* on, off or auto; a level. NULL: as the template likes */
    const char *reasoning_message; /* written when they are used up; NULL: nothing */
} app_chat_options;

/* Options that only `aerie template` takes. */
typedef struct app_render_options {
    const char *bos, *eos;
    app_texts variables; /* NAME=JSON */
    bool no_generation_prompt, tokens;
} app_render_options;

typedef struct app_tokenize_options {
    bool decode, no_bos, no_parse_special, show_count;
} app_tokenize_options;

/* Options of embed; serve has the first two. */
typedef struct app_embed_options {
    aerie_pooling pooling;
    int32_t normalize;
    const char *format, *separator, *query;
    bool cosine, truncate;
} app_embed_options;

typedef struct app_inspect_options {
    bool keys, tensors, full;
    const char *match;
} app_inspect_options;

/* The other kinds of `aerie bench`. */
typedef struct app_bench_options {
    uint32_t n_prompt, n_repetitions;
    app_numbers contexts, rows;
    const char *ids_file; /* logits */
    const char *steep;    /* spec, study */
    /* spec */
    uint32_t context;      /* study: tokens of text before each prompt; 0: none */
    const char *context_text; /* study: path of that text; NULL: the prompts, repeated */
    const char *beside;    /* study: looks for a head beside this file; NULL: beside the model's file */
    app_texts more_drafts; /* further -md */
    app_texts prompt_paths;
    const char *groups, *held_out;
    uint32_t n_per_group;   /* 0: all */
    app_reals temperatures; /* empty: the temperature of sampling */
    app_numbers n_seqs, n_maxes, trees, spec_types;
    bool in_turns;
    const char *trace; /* NULL: none */
} app_bench_options;

typedef struct app_study_options {
    const char *types, *kv_types, *output;
    bool resume;
} app_study_options;

typedef struct app_shapes_options {
    const char *types;
    app_numbers n_in, n_out, n_rows;
    bool models;
} app_shapes_options;

typedef struct app_quantize_options {
    const char *output_type, *embedding_type;
    app_texts tensor_types; /* PATTERN=TYPE */
    app_texts tensor_type_files, included, excluded;
    bool pure, leave_output, allow_requantize, dry_run, keep_split;
    app_numbers pruned; /* layers */
    const char *imatrix; /* file, or NULL */
} app_quantize_options;

/* Options of commands that read a text in windows: perplexity, imatrix. */
typedef struct app_judge_options {
    uint32_t stride, n_tasks; /* perplexity; 0: none, all */
    int32_t n_chunks;         /* windows; -1: all */
    const char *kl_base;      /* perplexity: file, or NULL */
    bool kl_divergence, hellaswag, multiple_choice; /* perplexity */
    const char *output;                             /* imatrix */
    bool process_output, parse_special;             /* imatrix */
} app_judge_options;

typedef struct app_train_options {
    const char *output;
    uint32_t n_turns, n_likely;
    app_numbers taps;     /* none: the usual ones */
    const char *features; /* for the step 'answers': where features are written; NULL: none */
} app_train_options;

typedef struct app_convert_options {
    const char *output, *target, *type, *config, *name, *pre;
    const char *producer, *taps, *feedback, *residual, *d2t, *embedding;
    app_texts skip;
    uint32_t window, sinks;
    const char *rope, *check_file;
    bool tokenizer, self_check, mtp;
} app_convert_options;

typedef struct app_options {
    const app_command *command;
    app_pull_options pull;
    app_texts list_items; /* owned: the items of lists with commas (options_lists.c) */
    app_texts pulled; /* paths from app_pull_models, and the prompt made of arguments; the texts are owned */
    app_serve_options serve;
    app_router_options router;
    const char *model, *draft_model;
    aerie_error *failure; /* gets the last message of the library when loading fails; NULL: it is printed only */
    const char *lookup_static, *lookup_dynamic; /* files, or NULL */
    bool model_typed;      /* the model was given as an argument, not by -m */
    uint32_t n_threads, n_batch_logical; /* n_threads: at least 1 after parsing, for commands of APP_THREADS */
    const char *cpu_mask, *cpu_range;
    const char *cache_type_k, *cache_type_v; /* llama.cpp's options; both or none */
    aerie_model_params model_params;
    const char *device, *gpu_layers, *tensor_split; /* --device, -ngl, -ts; NULL: not given */
    const char *machines, *split; /* --machines, --split; NULL: not given */
    uint32_t machines_limit;
    bool machines_insecure, machines_verify;
    bool cpu_moe;
    bool list_devices;
    aerie_rope rope; /* model_params.rope points to it if any of its options was given */
    const char *rope_scaling;
    float rope_freq_scale; /* 0: not given */
    app_texts overrides; /* metadata overrides; model_params points to them */
    app_texts placements; /* of --override-tensor; model_params points to them */
    uint32_t draft_vocab;
    app_hier_options hier;
    aerie_session_params session;
    ae_session_test test;
    aerie_sampling sampling;
    bool seed_random; /* the seed was drawn at random because none was given */
    bool seed_given;  /* --seed was given, even as -1 */
    const char *samplers, *sampler_seq;  /* NULL: the default order */
    app_texts logit_bias, dry_breakers;  /* as given; app_sampling_settle parses them into sampling_lists */
    app_texts stop;                      /* app_sampling_settle replaces escapes, unless --no-escape is given */
    struct app_sampling_lists *sampling_lists; /* owned */
    uint32_t n_logprobs;

    app_texts prompts;
    const char *file, *prompts_file, *system_prompt;
    bool conversation, no_conversation, single_turn, escape;
    int32_t n_predict;
    bool ignore_eos;
    aerie_diffusion diffusion;
    float diffusion_noise; /* llama.cpp's --diffusion-add-gumbel-noise, which makes no difference here */
    const char *grammar_text, *grammar_file, *schema_text, *schema_file; /* at most one of them is given */
    bool special_in_messages;
    bool special; /* control tokens are part of the answers */
    bool schema_strict;  /* a part of the schema that a grammar cannot enforce is an error */
    aerie_grammar *grammar; /* compiled from the one given; NULL: any text is allowed. Owned */

    bool ids, json, jsonl, csv, stats, verbose, quiet;
    const char *mmproj; /* the vision encoder; NULL: one beside the model, if there is only one */
    bool no_mmproj;
    uint32_t image_min_tokens, image_max_tokens; /* 0: the default of the vision encoder's type */
    app_texts images;   /* files of --image, for the prompt */
    app_loras loras;
    const char *draft_lora; /* NULL: none */
    bool quick; /* bench study, doctor */

    app_run_options run;
    app_chat_options chat;
    app_render_options render;
    app_tokenize_options tokenize;
    app_embed_options embed;
    app_inspect_options inspect;
    app_speed_options speed;
    app_bench_options bench;
    app_study_options study;
    app_shapes_options shapes;
    app_quantize_options quantize;
    app_judge_options judge;
    app_train_options train;
    app_convert_options convert;

    app_texts arguments; /* words of the command line that are not options or their values */
    app_texts ignored;   /* options given that have no effect, as written (llama_options.h) */
} app_options;

/* Sets all values to their defaults. */
void app_options_default(app_options *options);

typedef enum app_help {
    APP_HELP_NONE,
    APP_HELP_SHORT, /* the options that most people need */
    APP_HELP_ALL,
} app_help;

/* Parses the command line, then the environment and the file of --config for options that were not given. Values borrow from
 * argv and the environment. *help is set if --help was given; nothing else is checked then. */
int app_options_parse(app_options *options, const app_command *command, int argc, char **argv, app_help *help);
void app_options_free(app_options *options);

/* Writes the environment name of an option into out [64] and returns out. */
const char *app_option_environment(const app_option *option, char out[64]);
/* Writes name i of an option into out [64] and returns out; NULL after the last one. */
const char *app_option_name(const app_option *option, size_t i, char out[64]);
/* Writes name i of names separated by spaces into out [64] and returns out; NULL after the last one. */
const char *app_name_at(const char *names, size_t i, char out[64]);
/* Writes the default as --help shows it into out [256]; NULL if there is nothing to show. */
const char *app_option_default(const app_option *option, char out[256]);

/* Returns the index of the first option called name[0..n) that a command of `bits` takes; app_n_options() if there is none. */
size_t app_option_find(const char *name, size_t n, unsigned bits);

/* ---- suggest.c: suggestions for an unknown name, from other programs' names first and by spelling second --------- */

/* Returns the better candidate for a misspelt `text`: `candidate` if it is near, and nearer than `best`; otherwise `best` (or
 * NULL). */
const char *app_nearest(const char *text, const char *best, const char *candidate);
/* Reports an option that the command does not have, with a suggestion; returns APP_USAGE. */
int app_unknown_option(const app_command *command, const char *name, size_t n);
/* Reports a command that does not exist, with a suggestion; returns APP_USAGE. */
int app_unknown_command(const char *name);
/* The same for a word after 'aerie help'. */
int app_unknown_topic(const char *name);

/* ---- setup/adapters.c ---- */

/* Adds the adapters that the option `name` gives; scaled: each has a scale. */
int app_loras_add(app_loras *loras, const char *name, const char *text, bool scaled);
void app_loras_free(app_loras *loras);

/* cpus.c: restricts the program to the requested CPUs and resolves n_threads; with --verbose prints both. */

int app_cpus_settle(app_options *options);

/* devices.c: sets model_params.backend from --device and -ngl. */

int app_device_settle(app_options *options);
/* machines.c: resolves --machines and related options. */
int app_machines_settle(app_options *options);
/* Returns the number of processes in --machines KIND:N or 2x4; 0 if there is none, or if it is not 1 to 64. */
uint32_t app_machines_n(const char *given);
/* Prints the list of --list-devices to standard output. */
int app_list_devices(void);
/* Returns whether a device with this name exists; if not, *error says why. */
bool app_device_check(const char *name, aerie_error *error);
/* Returns whether a loaded model is on a GPU or its emulation. */
bool app_is_on_gpu(const aerie_model_info *info);
/* Returns the kinds of GPUs that this build supports: "cuda, emu", or "none". */
const char *app_gpu_drivers(void);

/* ---- options_sampling.c: what --samplers, --logit-bias, --dry-sequence-breaker and --stop mean ------------- */

/* options_lists.c: adds the items of a value. */
int app_overrides_add(app_options *options, const char *text);
int app_placements_add(app_options *options, const char *text);
int app_files_add(app_options *options, app_texts *files, const char *text);
void app_lists_free(app_options *options);

int app_sampling_settle(app_options *options);
void app_sampling_free(app_options *options);

/* ---- spec_types.c ---- */

/* Parses one drafter name, given as the value of the option `name`. */
int app_spec_type_parse(const char *name, const char *word, aerie_spec_type *type);
/* Parses a list of drafters, separated by commas, into one type: several drafters that need a file become AUTO. *ngram: whether
 * the list contains n-grams, if it has another drafter. */
int app_spec_list_parse(const char *name, const char *text, aerie_spec_type *type, bool *ngram);

/* ---- environment.c: AERIE_* and, after them, LLAMA_ARG_* ---- */

/* Returns the option's value in the environment, and the variable's name; NULL: it is not set. *negated: the variable is a
 * switch that means the opposite of the option. */
const char *app_environment_get(const app_option *option, char name[64], bool *negated);
typedef void app_telling(void *user, const char *sentence);
/* Calls `tell` with a sentence for each AERIE_* variable that is not read and looks like a misspelled option. */
void app_environment_check(app_telling *tell, void *user);

/* ---- grammar.c: compiles the grammar or schema of the options ------------------------------------------------- */

int app_grammar_settle(app_options *options);

/* ---- help_about.c ---- */

/* Prints help on the option of this name, or reports that there is none; returns the exit status. */
int app_help_option(const char *name);
/* Prints help on a subject, or on the options that have the word in their names; false if there is neither. */
bool app_print_subject(const char *word);

/* Prints the text wrapped to columns `left` to 100; the first line starts at column `at`. */
void app_print_wrapped(const char *text, size_t at, size_t left);
/* Prints an option with its help. brief: only the first clause of the help, and the meaning of the default. */
void app_print_option(const app_option *option, bool brief);

/* ---- help.c: help, completion scripts and the man page ------------------------------------------------------ */

void app_print_usage(FILE *stream); /* a few lines */
void app_print_overview(void);      /* aerie help */
void app_print_help(const app_command *command, app_help help);
/* Prints the help topic called `name`; false if there is none. */
bool app_print_topic(const char *name);
/* Returns the name of topic i; NULL after the last one. */
const char *app_topic_at(size_t i);
bool app_is_help(const char *word); /* whether it is --help, -h or --usage */
bool app_is_all(const char *word);  /* whether it is "all" or "--all" */
void app_print_completion(void); /* bash */
void app_print_completion_zsh(void);
void app_print_completion_fish(void);
void app_print_man(void);

#endif
