/* aerie.h - the public interface of libaerie, an LLM inference engine built for speculation: models, text, grammars, sessions
 * and generation. aerie_extra.h adds drafter heads, LoRA adapters, embeddings and saved sequences; aerie_measure.h measures.
 *
 * Conventions
 *   - Every function that can fail returns an aerie_status; results come back through pointers. The caller owns the last
 *     parameter, `error`, which may be NULL; it receives a sentence: which file or option, what was found, what would work.
 *   - A pointer that must be given, and is NULL, is answered with ARGUMENT and its name; functions without a status then return
 *     false, 0 or NULL (token ids: -1), and fill structs with zeros.
 *   - What you load/create you free; `free` functions accept NULL.
 *   - A getter lends: what it returns lives as long as the object it was asked of. Texts of functions without an object (names
 *     of values) have static storage.
 *   - Any thread may call a function at any time, unless its comment or the next section says otherwise. A `free` function is
 *     called once nobody uses the object any more.
 *   - "Errors" lists what a function may return besides OK. INTERNAL comes with any fault of aerie itself; where it is listed,
 *     a device that fails or threads that cannot be started cause it, too. UNSUPPORTED is also what functions that compute
 *     return when another process of the model's group has failed. Functions that do not return an aerie_status cannot fail,
 *     unless their comment says how they tell.
 *   - Structs grow from version to version at their end. One that a caller fills begins with its size, which its `_default`
 *     function (or `_init`, for languages that cannot call inline functions) sets along with all fields: what a caller
 *     compiled with an older header does not know keeps its default, and what an older library does not know is refused with a
 *     sentence if it is set. A function that fills a caller's struct takes its size and never writes beyond it. Structs
 *     inside of others or in lists (aerie_sampling, aerie_spec, aerie_message ...) keep their size; `reserved` is zero.
 *   - A model is immutable once loaded and may be shared by threads and sessions.
 *
 * Threads and lifetimes of a session
 *   - One thread at a time steps it: aerie_session_step, aerie_session_poll, aerie_session_wait, aerie_session_generate, the
 *     functions of saved sequences, of measuring and of importance matrices, and aerie_session_free belong to that thread.
 *   - Any thread may call aerie_session_submit, aerie_task_cancel, aerie_task_ended, aerie_task_slot, aerie_task_free, the
 *     session's getters (aerie_session_n_ctx and such) and, for a task that has ended, aerie_task_stats at any time.
 *   - The model, draft model, head and thread pool outlive the session. A session ends its tasks when it is freed; then no
 *     function may be called for them but aerie_task_stats, aerie_task_ended and aerie_task_free.
 *   - A log is called by the thread that called the library, before that call returns; see "Log".
 *   - A session, a pool and an embedder belong to the process that made them. After fork() a child can free them, which waits
 *     for nobody; all else that computes is refused there with ARGUMENT, or does nothing. Models are usable in a child.
 *   - A request's callbacks run inside aerie_session_step, on the stepping thread. They may submit and cancel; they may
 *     not step, poll or free the session. What an event points to is valid during the call.
 */
#ifndef AERIE_H
#define AERIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AERIE_API __attribute__((visibility("default")))
#else
#define AERIE_API
#endif

/* aerie_NAME_init sets the first `size` bytes of a struct, at most those that this library knows, and its field `size`;
 * aerie_NAME_default is the same by value. Neither fails. Any thread. */
#define AERIE_INITIALISER(name)                                \
    AERIE_API void aerie_##name##_init(aerie_##name *it, size_t size); \
    static inline aerie_##name aerie_##name##_default(void)    \
    {                                                          \
        aerie_##name it;                                       \
        aerie_##name##_init(&it, sizeof it);                   \
        return it;                                             \
    }

#define AERIE_VERSION_MAJOR 0
#define AERIE_VERSION_MINOR 1
#define AERIE_VERSION_PATCH 0
#define AERIE_VERSION_NUMBER (AERIE_VERSION_MAJOR * 10000 + AERIE_VERSION_MINOR * 100 + AERIE_VERSION_PATCH)

/* ---- Status and errors ----------------------------------------------------------------- */

/* X(name, value, sentence) */
#define AERIE_STATUS_LIST(X)                                                    \
    X(OK, 0, "done")                                                            \
    X(ERROR_ARGUMENT, -1, "an argument is out of range or contradicts another") \
    X(ERROR_MEMORY, -2, "not enough memory")                                    \
    X(ERROR_IO, -3, "a file could not be read or written")                      \
    X(ERROR_FORMAT, -4, "a file or text is malformed")                          \
    X(ERROR_UNSUPPORTED, -5, "well-formed, but of a kind that aerie lacks")     \
    X(ERROR_LIMIT, -6, "a limit would be exceeded")                             \
    X(ERROR_CANCELLED, -7, "the caller asked to stop")                          \
    X(ERROR_INTERNAL, -8, "an invariant of aerie does not hold; please report") \
    X(ERROR_BUSY, -9, "too many requests wait already; try again later")

typedef enum aerie_status {
#define AERIE_STATUS_ENUM(name, value, text) AERIE_##name = value,
    AERIE_STATUS_LIST(AERIE_STATUS_ENUM)
#undef AERIE_STATUS_ENUM
} aerie_status;

typedef struct aerie_error {
    aerie_status status;
    char text[512]; /* one sentence, NUL-terminated UTF-8, cut if longer */
} aerie_error;

/* "0.1.0". Static storage. */
AERIE_API const char *aerie_version(void);
/* Returns the AERIE_VERSION_NUMBER of the library that runs, which may be newer than the header. */
AERIE_API uint32_t aerie_version_number(void);
/* Returns the sentence of the list above. Static storage. */
AERIE_API const char *aerie_status_text(aerie_status status);
/* Frees memory that a function of this library returned as the caller's. NULL is allowed. */
AERIE_API void aerie_free(void *memory);

/* ---- Log ------------------------------------------------------------------------------------ */

typedef enum aerie_log_level {
    AERIE_LOG_DEBUG,   /* what was measured or chosen; for developers */
    AERIE_LOG_INFO,    /* what was done */
    AERIE_LOG_WARNING, /* something that the user may not expect; work continues */
} aerie_log_level;

/* "debug", "info", "warning"; NULL for an unknown value. */
AERIE_API const char *aerie_log_level_name(aerie_log_level level);

/* One sentence without a line break, NUL-terminated UTF-8, valid during the call. Failures are returned instead. */
typedef void aerie_log_callback(void *user, aerie_log_level level, const char *sentence);

/* Receives messages that are not failures. A model's log also serves those of its drafter heads and sessions that have no log
 * of their own, so `user` must outlive all of these. The thread that called the library calls it (for a session, the stepping
 * thread), so several threads at once may do so if they share a model or a log. It may call what any thread may call. */
typedef struct aerie_log {
    aerie_log_callback *call; /* NULL: the model's log; for a model or grammar: no log */
    void *user;
} aerie_log;

/* ---- Models --------------------------------------------------------------------------------- */

typedef struct aerie_model aerie_model;

/* Reports that `done` of `total` bytes are loaded, first 0, last all; the loading thread calls it. Returning false cancels. */
typedef bool aerie_progress(void *user, uint64_t done, uint64_t total);

typedef enum aerie_rope_scaling {
    AERIE_ROPE_SCALING_FILE, /* as the file says */
    AERIE_ROPE_SCALING_NONE,
    AERIE_ROPE_SCALING_LINEAR,
    AERIE_ROPE_SCALING_YARN,
} aerie_rope_scaling;

/* "none", "linear", "yarn"; NULL for FILE and unknown values. */
AERIE_API const char *aerie_rope_scaling_name(aerie_rope_scaling scaling);
/* false for an unknown name. */
AERIE_API bool aerie_rope_scaling_parse(const char *name, aerie_rope_scaling *scaling);

/* The rotation of positions (RoPE), where it differs from the file's. A negative number keeps the file's value. */
typedef struct aerie_rope {
    size_t size;
    aerie_rope_scaling scaling; /* FILE with a `factor` means LINEAR if the file has no scaling */
    float freq_base;
    float factor;               /* positions are divided by it, so it multiplies the context; 1 turns scaling off */
    uint32_t n_ctx_orig;        /* YARN: the context that the model was trained for; 0: as in the file */
    float yarn_ext_factor;      /* YARN: how far high-frequency pairs keep their frequency: 1 fully, 0 not at all */
    float yarn_attn_factor;     /* multiplies the factor by which YARN scales attention */
    float yarn_beta_fast, yarn_beta_slow; /* YARN: turns over n_ctx_orig above which a pair is kept, below which scaled */
} aerie_rope;

AERIE_INITIALISER(rope)

typedef struct aerie_model_params {
    size_t size;
    uint32_t n_threads;    /* for loading; 0 = a thread per core that this process may use */
    const char *cpu_level; /* highest kernel level: "ref", "avx2", "avxvnni", "avx512", "amx"; "neon", "dotprod", "i8mm"; NULL,
                            * "": the best */
    /* Quantized weights are repacked in memory, for speed; tables and float weights are used from the mapped file. */
    bool mmap;             /* repack nothing, use all weights from the mapped file: loads at once, same output, slower */
    bool no_mmap;          /* map nothing: tables and float weights are read into memory too */
    bool vocab_only;       /* load the tokens and templates only; the file need not hold weights */
    const aerie_rope *rope;          /* NULL: as the file says */
    const char *const *overrides;    /* [n_overrides] metadata that replaces or adds to the file's, "KEY=TYPE:VALUE" with the
                                      * types int, float, bool and str: "tokenizer.ggml.add_bos_token=bool:false" */
    size_t n_overrides;
    aerie_progress *progress; /* may be NULL */
    void *user;               /* for progress */
    const char *backend;      /* one of aerie_backend_names; NULL, "": the default. Several names with commas between them
                               * ("cuda0,cuda1"): the layers are spread over these in order; the bytes stay the same */
    aerie_log log;
    uint32_t n_gpu_layers;    /* layers on `backend`, counted from the end, where the output counts as one; the others are
                               * on the CPU; 0, or more than there are: all */
    uint32_t n_cpu_moe;       /* number of layers, from the first on, whose experts are on the CPU */
    uint32_t n_cpu_ffn;       /* the same for feed-forward blocks without experts */
    const float *tensor_split; /* [n_tensor_split] shares of the layers that devices of a list get; NULL: by free memory */
    size_t n_tensor_split;
    const struct aerie_machines *machines; /* several processes run the model together (aerie_extra.h); NULL: this one */
    /* [n_placements] "PATTERN=DEVICE", as in "exps=CPU": a layer's feed-forward block is on the device (the CPU, or one of
     * `backend`) of the first pattern that matches its weights' names. Patterns are regular expressions that ignore case. If
     * the weights of a block are given to several devices, it is on the one with most of their bytes. */
    const char *const *placements;
    size_t n_placements;
} aerie_model_params;

/* Returns the names that aerie_model_params.backend may have: "cpu, ...". Static storage. */
AERIE_API const char *aerie_backend_names(void);

AERIE_INITIALISER(model_params)

/* Loads a model. *model is the caller's. params NULL: the defaults. Errors: IO, FORMAT, UNSUPPORTED (what, and what is known),
 * MEMORY (how much is needed), LIMIT (of a file), CANCELLED (by progress), ARGUMENT (an override that cannot be read, an
 * unknown backend or CPU level), INTERNAL. */
AERIE_API aerie_status aerie_model_load(aerie_model **model, const char *path, const aerie_model_params *params,
                                        aerie_error *error);
/* Call it after the model's sessions and drafter heads have been freed. NULL is allowed. */
AERIE_API void aerie_model_free(aerie_model *model);

/* How the vectors of a text's tokens become the vector of the text. */
typedef enum aerie_pooling {
    AERIE_POOLING_AUTO, /* as the model's file says; if it does not say: MEAN for encoders, LAST for other models */
    AERIE_POOLING_MEAN,
    AERIE_POOLING_CLS,  /* the first token's */
    AERIE_POOLING_LAST, /* the last token's */
    AERIE_POOLING_RANK, /* one number for reranking: the first token's vector through a classification head */
} aerie_pooling;

/* "auto", "mean", ...; NULL for an unknown value. */
AERIE_API const char *aerie_pooling_name(aerie_pooling pooling);
/* false for an unknown name. */
AERIE_API bool aerie_pooling_parse(const char *name, aerie_pooling *pooling);

typedef struct aerie_model_info {
    const char *name, *arch, *tokenizer; /* lent by the model */
    const char *cpu_level;               /* kernels in use, e.g. "avx512"; "" for vocab_only */
    const char *cpu_tiles;               /* number of rows from which tiles are used, as measured: "Q4_1 from 12 rows"; or "" */
    uint64_t n_params;                   /* weights in the file */
    uint64_t file_bytes;
    uint64_t weight_bytes;               /* memory that weights take, not counting weights used from the mapped file */
    uint64_t load_bytes;                 /* bytes read from the file into that memory */
    double load_seconds, fill_seconds;   /* seconds for loading; the part of them spent reading and repacking load_bytes */
    uint32_t n_vocab, n_ctx_train, n_embd, n_layers, n_heads, n_kv_heads, n_ff;
    int32_t bos, eos;                    /* -1 = none */
    bool has_chat_template;
    const char *chat_template;           /* the template's text (Jinja), lent; NULL if there is none */
    bool is_encoder;                     /* makes embeddings or decisions only and cannot generate text */
    aerie_pooling pooling;               /* what AERIE_POOLING_AUTO stands for; AUTO for vocab_only */
    uint32_t n_experts, n_experts_used;  /* routed experts of a layer; experts used per token; 0 without experts */
    uint64_t fingerprint;                /* hash of the file's keys, shapes and samples of its data; 0: vocab_only */
    bool is_diffusion;                   /* answers are denoised (aerie_request.diffusion) */
    uint32_t decision;                   /* an aerie_decision (aerie_extra.h) */
} aerie_model_info;

/* Fills *info. size: sizeof *info. */
AERIE_API void aerie_model_info_get(const aerie_model *model, aerie_model_info *info, size_t size);

/* Returns the number of entries in the file's metadata, overrides included. */
AERIE_API size_t aerie_model_n_metadata(const aerie_model *model);
/* Gives the key of entry i. *key is the caller's (aerie_free). Errors: ARGUMENT (there is no such entry), MEMORY. */
AERIE_API aerie_status aerie_model_metadata_key(const aerie_model *model, size_t i, char **key, aerie_error *error);
/* Gives the value of a key as text, after the overrides that the model was loaded with: strings as they are, lists as "[1, 2]"
 * with strings in quotes. n (may be NULL): its bytes. type (may be NULL): "u32", "string", "array" ..., in static storage.
 * *value is the caller's (aerie_free); it is NULL, with status OK, if there is no such key. Errors: MEMORY. */
AERIE_API aerie_status aerie_model_metadata_get(const aerie_model *model, const char *key, char **value, size_t *n,
                                                const char **type, aerie_error *error);

/* ---- Text ------------------------------------------------------------------------------------ */

/* Gives the token ids of text[0..n), any bytes. add_special: BOS/EOS where the model wants them; parse_special: text like
 * <|im_start|> becomes its control token. *tokens is the caller's (aerie_free). Errors: LIMIT (too long a text), UNSUPPORTED
 * (aerie does not know the model's tokenizer), MEMORY. */
AERIE_API aerie_status aerie_model_tokenize(const aerie_model *model, const char *text, size_t n, bool add_special,
                                            bool parse_special, int32_t **tokens, size_t *n_tokens, aerie_error *error);
/* Gives the bytes of the tokens, NUL-terminated; the caller's (aerie_free). special: control tokens are spelled out. Errors:
 * ARGUMENT (a token out of range), MEMORY. */
AERIE_API aerie_status aerie_model_detokenize(const aerie_model *model, const int32_t *tokens, size_t n_tokens, bool special,
                                              char **text, size_t *n, aerie_error *error);
/* Returns whether the token ends a generation; false for ids out of range. */
AERIE_API bool aerie_model_token_is_eog(const aerie_model *model, int32_t token);

/* As numbered in GGUF files. */
typedef enum aerie_token_type {
    AERIE_TOKEN_NORMAL = 1,
    AERIE_TOKEN_UNKNOWN = 2,
    AERIE_TOKEN_CONTROL = 3,
    AERIE_TOKEN_USER_DEFINED = 4,
    AERIE_TOKEN_UNUSED = 5,
    AERIE_TOKEN_BYTE = 6,
} aerie_token_type;

typedef struct aerie_token_info {
    const char *text; /* [n_text] the token's bytes, with control tokens spelled out; lent by the model, not NUL-terminated */
    size_t n_text;
    aerie_token_type type;
    float score;      /* 0 in vocabularies without scores */
    bool is_eog;      /* ends a generation */
} aerie_token_info;

/* Fills *info. size: sizeof *info. Returns false if there is no such token. */
AERIE_API bool aerie_model_token_info_get(const aerie_model *model, int32_t token, aerie_token_info *info, size_t size);

typedef enum aerie_special {
    AERIE_SPECIAL_BOS,
    AERIE_SPECIAL_EOS,
    AERIE_SPECIAL_EOT, /* end of a turn, if it differs from EOS */
    AERIE_SPECIAL_EOM, /* end of a message to a tool */
    AERIE_SPECIAL_UNK,
    AERIE_SPECIAL_PAD,
    AERIE_SPECIAL_SEP,
    AERIE_SPECIAL_FIM_PRE, /* fill in the middle: before the prefix, the suffix, the middle; padding, repository, file */
    AERIE_SPECIAL_FIM_SUF,
    AERIE_SPECIAL_FIM_MID,
    AERIE_SPECIAL_FIM_PAD,
    AERIE_SPECIAL_FIM_REP,
    AERIE_SPECIAL_FIM_SEP,
} aerie_special;

/* Returns the id, from the file's key or, for FIM tokens and SEP, from the usual spellings; -1: the model has none. */
AERIE_API int32_t aerie_model_token_special(const aerie_model *model, aerie_special which);
/* Returns whether aerie_model_tokenize with add_special puts BOS at the beginning. */
AERIE_API bool aerie_model_adds_bos(const aerie_model *model);
/* Returns whether it puts EOS at the end. */
AERIE_API bool aerie_model_adds_eos(const aerie_model *model);

typedef struct aerie_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} aerie_message;

/* A text, and the name that messages give it, such as a file's. data NULL: no text. */
typedef struct aerie_text {
    const char *data; /* [n] */
    size_t n;
    const char *name; /* NULL: its purpose */
} aerie_text;

/* A conversation of any shape, and the template that writes it (docs/templates.md). */
typedef struct aerie_chat {
    size_t size;
    aerie_text template_text; /* Jinja; none: the model's own; for a chat with tools its own for tools, if it has one */
    const aerie_message *turns; /* [n_turns] the messages; NULL: those of the JSON */
    size_t n_turns;
    aerie_text messages;      /* JSON: a list of messages, or an object with "messages", "tools", "chat_template_kwargs" */
    aerie_text tools;         /* JSON: a list; replaces the "tools" of `messages` */
    aerie_text variables;     /* JSON: an object with further variables for the template, such as enable_thinking */
    const char *bos, *eos;    /* the template's bos_token and eos_token; NULL: the model's, "" without a model */
    bool no_generation_prompt;
    bool special_in_messages; /* aerie_model_chat_tokens: control tokens spelled in messages and tools are control tokens too */
} aerie_chat;

/* All zeros but for the size. */
AERIE_INITIALISER(chat)

/* As Hugging Face transformers renders it. Limits, not the caller, end a hostile template. model may be NULL if a template
 * is given. *text is the caller's (aerie_free). Errors: FORMAT and LIMIT (the template or one of the JSON texts, by name,
 * line and column; what the template itself raises follows its name), UNSUPPORTED (the model has no template), ARGUMENT (no
 * template and no model, or no messages), MEMORY. */
AERIE_API aerie_status aerie_model_chat_render(const aerie_model *model, const aerie_chat *chat, char **text, size_t *n,
                                               aerie_error *error);
/* Returns a template that many models share, by llama.cpp's name for it: "chatml", "llama3", "gemma" ... Jinja text in static
 * storage; NULL for an unknown name. For a model without a template of its own, try "chatml" first. */
AERIE_API const char *aerie_chat_template_builtin(const char *name);
/* Returns the i-th name of such a template; NULL after the last one. */
AERIE_API const char *aerie_chat_template_name(size_t i);
/* Gives the tokens of a conversation: the text of aerie_model_chat_render, tokenized so that control tokens come from the
 * template alone. Where a message or tool spells one ("<|im_end|>"), wholly or in part, it is ordinary text, unless
 * chat->special_in_messages. Texts without such spellings have the tokens that aerie_model_chat_tokenize gives. text and n,
 * which may be NULL, receive the rendered text. *tokens and *text are the caller's (aerie_free). Errors: those of
 * aerie_model_chat_render and aerie_model_tokenize. */
AERIE_API aerie_status aerie_model_chat_tokens(const aerie_model *model, const aerie_chat *chat, int32_t **tokens,
                                               size_t *n_tokens, char **text, size_t *n, aerie_error *error);
/* Gives the tokens of a prompt in which every spelled control token is meant as one. Works like aerie_model_tokenize with
 * add_special and parse_special, but does not double a BOS that a template wrote. *tokens is the caller's (aerie_free). Errors:
 * those of aerie_model_tokenize. */
AERIE_API aerie_status aerie_model_chat_tokenize(const aerie_model *model, const char *text, size_t n, int32_t **tokens,
                                                 size_t *n_tokens, aerie_error *error);

/* ---- Sampling ---------------------------------------------------------------------------------- */

/* Steps that turn logits into candidates; each is off at its parameters' neutral values. docs/sampling.md. */
typedef enum aerie_sampler {
    AERIE_SAMPLER_END, /* after the last step of a list */
    AERIE_SAMPLER_PENALTIES,
    AERIE_SAMPLER_DRY,
    AERIE_SAMPLER_TOP_N_SIGMA,
    AERIE_SAMPLER_TOP_K,
    AERIE_SAMPLER_TYPICAL_P,
    AERIE_SAMPLER_TOP_P,
    AERIE_SAMPLER_MIN_P,
    AERIE_SAMPLER_XTC,
    AERIE_SAMPLER_TEMPERATURE,
} aerie_sampler;

#define AERIE_MAX_SAMPLERS 16 /* steps in a chain */

/* Returns llama.cpp's name: "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature". NULL
 * for END and unknown values. */
AERIE_API const char *aerie_sampler_name(aerie_sampler sampler);
/* Returns the step's letter, in the same order: 'e', 'd', 's', 'k', 'y', 'p', 'm', 'x', 't'. 0 for END and unknown values. */
AERIE_API char aerie_sampler_letter(aerie_sampler sampler);
/* Also knows the letters and llama.cpp's other spellings ("top-k", "temp" ...). Returns false for an unknown name. */
AERIE_API bool aerie_sampler_parse(const char *name, aerie_sampler *sampler);

typedef struct aerie_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY: the token never comes, INFINITY: it always comes */
} aerie_logit_bias;

/* How tokens are drawn. Equal parameters, seed and prompt give equal tokens, whatever speculation, threads or load (law 1). */
typedef struct aerie_sampling {
    float temperature;       /* <= 0: greedy */
    int32_t top_k;           /* <= 0: off */
    float top_p;             /* >= 1: off */
    float min_p;             /* <= 0: off */
    float repeat_penalty;    /* 1: off; above 1: divides the positive logits of seen tokens and multiplies the others */
    float presence_penalty;  /* 0: off; subtracted once for a seen token */
    float frequency_penalty; /* 0: off; subtracted each time a token was seen */
    int32_t penalty_last_n;  /* number of newest tokens that count as seen; 0: off, -1: all */
    uint64_t seed;
    float typical_p;         /* >= 1: off */
    float top_n_sigma;       /* <= 0: off */
    float xtc_probability;   /* probability of removing the likeliest tokens; <= 0: off */
    float xtc_threshold;     /* tokens at least this likely are removed, except the least likely of them; > 0.5: off */
    float dynatemp_range;    /* the temperature varies by +- this with the entropy; <= 0: off */
    float dynatemp_exponent;
    float dry_multiplier;    /* 0: off; else a token that would prolong a repetition of n tokens loses
                              * multiplier * base^(n - allowed length) */
    float dry_base;          /* >= 1 */
    int32_t dry_allowed_length, dry_penalty_last_n; /* longest free repetition; newest tokens searched, 0: off, -1: all */
    const char *const *dry_breakers; /* [n_dry_breakers] texts that end a repetition; lent */
    size_t n_dry_breakers;
    int32_t mirostat;        /* 0: off; 2: mirostat 2.0: of the other steps only logit bias and temperature apply */
    float mirostat_tau, mirostat_eta; /* target surprise (bits), learning rate */
    uint32_t min_keep;       /* typical-p, top-p, min-p and XTC leave at least this many candidates */
    const aerie_logit_bias *logit_bias; /* [n_logit_bias] applied before everything else; lent */
    size_t n_logit_bias;
    aerie_sampler samplers[AERIE_MAX_SAMPLERS]; /* the order of the steps, ended by END; without TEMPERATURE, 1 is used */
    uint64_t reserved[16];
} aerie_sampling;

/* Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, everything else off, seed 0. */
AERIE_API aerie_sampling aerie_sampling_default(void);

/* ---- Grammars ------------------------------------------------------------------------------------ */

/* The set of texts that an answer may be, as an automaton over bytes. Only tokens that continue such a text are drawn, and they
 * are the same with and without speculation (law 1). Immutable; threads and sessions may share it. */
typedef struct aerie_grammar aerie_grammar;

/* Reads GBNF in llama.cpp's syntax; the text begins with the rule `root`. *grammar is the caller's. Errors: FORMAT (line and
 * column), LIMIT, MEMORY. */
AERIE_API aerie_status aerie_grammar_create(aerie_grammar **grammar, const char *gbnf, size_t n, aerie_error *error);
typedef struct aerie_schema_params {
    size_t size;
    bool standard; /* accept all that the standard accepts; otherwise, as in llama.cpp, objects with properties have no further
                    * ones unless additionalProperties allows them, and keywords of one type imply that type */
    bool strict;   /* what a grammar cannot enforce is an error instead of a warning */
    aerie_log log; /* receives a sentence about what a grammar cannot enforce */
} aerie_schema_params;

AERIE_INITIALISER(schema_params)

/* A JSON schema; docs/grammars.md says which keywords are enforced. Others (uniqueItems, not, an unknown format) are ignored,
 * and params->log receives one sentence about all of them. params NULL: the defaults. *grammar is the caller's.
 * Errors: FORMAT (not JSON, not a schema), UNSUPPORTED (params->strict: a keyword and its place), LIMIT, MEMORY. */
AERIE_API aerie_status aerie_grammar_create_schema(aerie_grammar **grammar, const char *json, size_t n,
                                                   const aerie_schema_params *params, aerie_error *error);
/* May be called at any time: requests that still use the grammar keep it. NULL is allowed. */
AERIE_API void aerie_grammar_free(aerie_grammar *grammar);
/* Whether text[0..n) matches the grammar. *n_good: the length of its longest prefix with which a text of the grammar can begin.
 * Errors: LIMIT (the grammar has too many ways to continue, or nests too deeply), MEMORY. */
AERIE_API aerie_status aerie_grammar_check(const aerie_grammar *grammar, const char *text, size_t n, bool *accepted,
                                           size_t *n_good, aerie_error *error);

/* ---- Speculation ---------------------------------------------------------------------------------- */

#define AERIE_MAX_DRAFT 64 /* nodes of a draft tree */
#define AERIE_MAX_DRAFTERS 8 /* most drafters that one session chooses from */
#define AERIE_MOE_TRIAL (-2) /* aerie_spec.moe_experts */
#define AERIE_MAX_TAPS 8
#define AERIE_TAP_NORMED UINT32_MAX /* the residual stream after the final norm, which the output head multiplies */

typedef enum aerie_spec_type {
    AERIE_SPEC_AUTO,   /* whatever there is: a head, a draft model (inner: HIER), NLD, MOE; otherwise n-grams */
    AERIE_SPEC_NONE,
    AERIE_SPEC_NGRAM,  /* continues text seen before in prompt and output; needs no weights */
    AERIE_SPEC_DRAFT,  /* a second model, possibly with another vocabulary (aerie_session_overlap) */
    AERIE_SPEC_EAGLE,  /* "draft-eagle": a head trained for the model, from its hidden rows: EAGLE-1 and 2 */
    AERIE_SPEC_EAGLE3, /* "draft-eagle3": EAGLE-3 and 3.1 */
    AERIE_SPEC_MEDUSA, /* "draft-medusa" */
    AERIE_SPEC_MTP,    /* "draft-mtp": the model's own blocks for tokens further ahead, from its file or one beside it */
    AERIE_SPEC_MOE,    /* "moe": the model itself, with fewer experts, or without some of its blocks (docs/speculation.md) */
    AERIE_SPEC_HIER,   /* "hier": a model of intermediate size, with a drafter of its own */
    AERIE_SPEC_DFLASH, /* "draft-dflash": a head that predicts a block of tokens in one pass */
    AERIE_SPEC_DSPARK, /* "draft-dspark": the same, but each token depends on the one before it */
    AERIE_SPEC_NLD,    /* "nld": a model trained to denoise too drafts for itself by filling masks (docs/diffusion.md) */
} aerie_spec_type;

/* Returns "auto", "none", ...; NULL for an unknown value. The reverse returns false for an unknown name. */
AERIE_API const char *aerie_spec_type_name(aerie_spec_type type);
AERIE_API bool aerie_spec_type_parse(const char *name, aerie_spec_type *type);

/* A small network that drafts for one model (docs/heads.md); aerie_drafter_head_load (aerie_extra.h) loads one. */
typedef struct aerie_drafter_head aerie_drafter_head;

/* The shape of drafts. */
typedef enum aerie_tree {
    AERIE_TREE_OFF,     /* chains */
    AERIE_TREE_AUTO,    /* branches that are likely enough, pruned to what pays */
    AERIE_TREE_STATIC,  /* EAGLE-1's tree of 25 nodes (heads) */
    AERIE_TREE_DYNAMIC, /* EAGLE-2: the best nodes are expanded, then all are ranked again (heads) */
} aerie_tree;

/* "off", "auto", "static", "dynamic"; NULL for an unknown value. */
AERIE_API const char *aerie_tree_name(aerie_tree tree);
/* false for an unknown name; "on" is "auto". */
AERIE_API bool aerie_tree_parse(const char *name, aerie_tree *tree);

typedef struct aerie_spec {
    aerie_spec_type type;
    const aerie_model *draft_model; /* for DRAFT and HIER; outlives the session */
    const aerie_drafter_head *head;         /* for the types "draft-..."; outlives the session */
    uint32_t n_max;                 /* tokens drafted ahead, 1 to AERIE_MAX_DRAFT */
    uint32_t n_min;                 /* drafts shorter than this are not verified */
    float p_min;                    /* paths less likely than this are not drafted */
    aerie_tree tree;
    uint32_t n_nodes;               /* most nodes of a tree; 0 = AERIE_MAX_DRAFT */
    uint32_t top_k;                 /* trees: children considered per node; 0: chosen by the drafter */
    uint32_t window, n_sinks;       /* heads: see only the newest `window` positions and the first n_sinks, in multiples of 64;
                                     * 0: as the head was made */
    bool ngram;                     /* also continue text seen before; not with AUTO, NONE, NGRAM or trees but AUTO and OFF */
    bool optional;                  /* AUTO: a head or draft model that cannot be used is left out with a warning, instead of
                                     * making the session fail */
    /* MOE. Layers are listed from 0 on, as in "0-3,7,20-"; the lists are read by aerie_session_create, not kept */
    int32_t moe_experts;            /* routed experts of a row in passes that draft: -1 all, 0 the shared expert alone, n the n
                                     * best with the weight of all; AERIE_MOE_TRIAL: 0, 1, a quarter or half, whichever is
                                     * fastest */
    const char *moe_layers;         /* layers that draft with moe_experts, the others with all; NULL: every layer */
    const char *skip_attn, *skip_ffn; /* layers that draft without attention, and without feed-forward block; NULL: none */
    /* HIER: draft_model is the intermediate model, with the same tokens as the model */
    const struct aerie_spec *inner; /* what drafts for draft_model; it may be HIER in turn; NULL: n-grams. aerie_session_create
                                     * reads it and does not keep it, but the models in it must outlive the session */
    uint32_t min_draft_length;      /* tokens that draft_model drafts at least, if it is asked for as many: it stops with the
                                     * pass that reaches this number; 0: 6 */
    uint32_t ngram_memory;          /* n-grams: how many tokens of ended requests are kept for drafts of later requests of
                                     * the same scope; the oldest are forgotten first; 0: none */
    const struct aerie_adapter *adapter; /* NLD: an adapter that only drafts use; outlives the session; NULL: none */
    uint64_t reserved[10];
} aerie_spec;

/* Type and tree AUTO, 16 tokens ahead, with n-grams that remember 262,144 tokens; everything else 0. */
AERIE_API aerie_spec aerie_spec_default(void);

typedef struct aerie_pool aerie_pool; /* threads that several sessions compute on (aerie_extra.h) */

/* ---- Adapters (LoRA) ---------------------------------------------------------------------------------
 *
 * Small matrices that change what a model computes, in files as llama.cpp's convert_lora_to_gguf.py writes them
 * (docs/adapters.md). aerie_adapter_load (aerie_extra.h) loads one.
 *
 * A session is created with those that its requests may use; each request says which and how strongly. The answer of a request
 * depends on its own adapters alone, whatever other requests use at the same time (law 1). Drafters are not adapted: drafts of
 * requests with adapters may be accepted less often. */

typedef struct aerie_adapter aerie_adapter;

#define AERIE_MAX_ADAPTERS 16 /* of a request */

/* An adapter that a request uses. */
typedef struct aerie_adapter_use {
    uint32_t adapter; /* number in the session's list, from 0 */
    float scale;      /* 1: as trained; 0: as if it were not listed */
} aerie_adapter_use;

/* ---- Sessions --------------------------------------------------------------------------------------- */

typedef struct aerie_session aerie_session;

/* How the cache stores keys and values. Outputs differ between types; law 1 holds for each type. */
typedef enum aerie_kv_type {
    AERIE_KV_F16,
    AERIE_KV_Q8_0,      /* 8 bits and a scale for each row of a head: 53% of the memory of f16 */
    AERIE_KV_I16,       /* 15 bits likewise: 103% */
    AERIE_KV_I16_Q8_0,  /* keys i16, values q8_0 */
    AERIE_KV_Q8_0_I16,
    AERIE_KV_Q4_0,      /* 4 bits likewise: 28% */
    AERIE_KV_Q8_0_Q4_0,
    AERIE_KV_I16_Q4_0,
} aerie_kv_type;

/* "f16", "q8_0", "i16", "i16/q8_0", "q8_0/i16", "q4_0", "q8_0/q4_0", "i16/q4_0"; NULL, false for what is unknown. */
AERIE_API const char *aerie_kv_type_name(aerie_kv_type type);
AERIE_API bool aerie_kv_type_parse(const char *name, aerie_kv_type *type);

#define AERIE_CTX_TRAINED UINT32_MAX

typedef struct aerie_session_params {
    size_t size;
    uint32_t n_ctx;     /* positions per sequence; 0 = the smaller of 8192 and what the model was trained for;
                         * AERIE_CTX_TRAINED = what it was trained for (8192 if the file does not say) */
    uint32_t n_seqs;    /* most requests that are generated at once */
    uint32_t n_kv;      /* positions of the KV cache, which all sequences share; raised to what one sequence may need. 0 = whole
                         * contexts for 4 sequences and an eighth of one for each further one. When it is full the youngest
                         * sequences wait and are computed again later: the same output, but more time */
    uint32_t n_batch;   /* prompt tokens per pass */
    uint32_t n_threads; /* 0 = a thread per core that this process may use */
    aerie_kv_type kv_type; /* cache type of the session and of its draft model */
    uint32_t n_taps;       /* hidden rows for aerie_session_eval_features; 0: none */
    uint32_t taps[AERIE_MAX_TAPS]; /* the layers whose input in the residual stream is tapped, 0 to n_layers (n_layers: the
                                    * output of the last one, before the final norm), or AERIE_TAP_NORMED */
    aerie_spec spec;
    aerie_pool *pool;       /* threads to run on, which outlive the session; n_threads is not read then. NULL: own threads */
    uint32_t n_checkpoints; /* for models with recurrent layers: states to return to, for all sequences, in addition to one for
                             * the end of each. A request whose prompt begins like an earlier one's is computed from the last
                             * such state before they differ: the same output, but less time. Models with sliding or chunked
                             * windows keep one window for every four; other models need none */
    aerie_log log;
    const aerie_adapter *const *adapters; /* [n_adapters] adapters of the same model that requests may use; the list is copied,
                                           * the adapters outlive the session */
    size_t n_adapters;
    uint32_t max_pause; /* milliseconds that a pass should last at most while answers are generated: new prompts get fewer rows
                         * of it, but together at least 16. Outputs do not depend on it. 0 = no bound */
    uint32_t n_waiting; /* requests that may wait while n_seqs run; aerie_session_submit refuses more (BUSY). 0 = 4096 */
    uint32_t max_turn;  /* tokens after which a request may lose its slot to one that waits, and continue later: the same
                         * output; clients and groups have equal shares (docs/serving.md). 0 = first come, first served, to the
                         * end */
} aerie_session_params;

AERIE_INITIALISER(session_params)
/* *session is the caller's. Errors: ARGUMENT, MEMORY (needed and available), UNSUPPORTED (a draft model whose vocabulary shares
 * too little), LIMIT (sessions of a group of processes), IO and FORMAT (weights that are read from the file now), INTERNAL. */
AERIE_API aerie_status aerie_session_create(aerie_session **session, const aerie_model *model,
                                            const aerie_session_params *params, aerie_error *error);
/* Belongs to the stepping thread, outside of callbacks. NULL is allowed. */
AERIE_API void aerie_session_free(aerie_session *session);
/* Returns the positions of a sequence, as given or by default. */
AERIE_API uint32_t aerie_session_n_ctx(const aerie_session *session);

/* The KV cache's pages, which all sequences share. */
typedef struct aerie_kv_use {
    uint32_t page;    /* positions of a page */
    uint32_t n_pages; /* in all */
    uint32_t n_used;  /* pages that running sequences hold; the others are free, or keep prefixes until they are needed */
} aerie_kv_use;

/* size: sizeof *use. On the thread that steps the session. */
AERIE_API void aerie_session_kv_use(const aerie_session *session, aerie_kv_use *use, size_t size);
/* The kind of drafter in use ("ngram", ...), after AUTO was resolved. */
AERIE_API const char *aerie_session_spec_name(const aerie_session *session);
/* Returns the type of the i-th drafter that AUTO chooses from, not counting n-grams; NULL after the last one. */
AERIE_API const char *aerie_session_drafter_name(const aerie_session *session, uint32_t i);

/* ---- Generation ---------------------------------------------------------------------------------------- */

#define AERIE_MAX_LOGPROBS 128
#define AERIE_MAX_STOPS 64
#define AERIE_MAX_STOP_BYTES 4096 /* of one stop string */

/* Called for a position that a sequence keeps: logits [n_vocab]; features [n_taps][n_embd] f32 as in
 * aerie_session_eval_features, NULL in a session without taps. Both are valid during the call. */
typedef void aerie_row_callback(void *user, size_t i_request, size_t position, const float *logits, const float *features);

typedef struct aerie_task aerie_task;                 /* a submitted request; see aerie_session_submit */
typedef struct aerie_token_event aerie_token_event;
/* Called for every emitted token, in order per request; returning false ends that request. When a request has ended, one more
 * event has token -1 and the bytes that were held back (an incomplete character, the beginning of a stop string), which are
 * mostly none; its statistics are final then. A request that was refused has a single event, with token -1 and `refused`. */
typedef bool aerie_token_callback(void *user, const aerie_token_event *event);

typedef struct aerie_request {
    size_t size;
    const int32_t *tokens; /* [n_tokens] the prompt, at least one */
    size_t n_tokens;
    const void *saved;     /* [n_saved] bytes of a sequence to continue (see "Saved sequences"), instead of tokens */
    size_t n_saved;
    uint32_t n_predict;    /* most tokens of the answer, including those of a saved one; 0 = until the context is full */
    bool ignore_eos;       /* do not stop at an end-of-generation token */
    aerie_sampling sampling;
    uint32_t n_logprobs;      /* likeliest tokens reported with each token, up to AERIE_MAX_LOGPROBS; 0: no log-probabilities */
    const char *const *stop;  /* [n_stop] texts that end the answer, see AERIE_STOP_STRING */
    size_t n_stop;
    aerie_progress *progress; /* called with `user` before each pass over the prompt; false ends the request. May be NULL */
    const aerie_grammar *grammar; /* grammar of the answer; NULL: any text */
    aerie_row_callback *row; /* called with `user` for every position of prompt and answer that is run, in
                              * order and after the callback of the token drawn from it. The last token of an answer that does
                              * not end by itself (EOG) may never be run. NULL: not called */
    size_t id;                    /* given in the request's events and rows; aerie_session_generate numbers requests itself */
    aerie_token_callback *token;  /* called by aerie_session_step for its events; NULL: they wait for aerie_session_poll.
                                   * aerie_session_generate sets it */
    void *user;                   /* for token, progress and row; aerie_session_generate sets it */
    bool special; /* the text includes control tokens, spelled out, except those that end a generation; stop strings see them */
    const aerie_adapter_use *adapters; /* [n_adapters] at most AERIE_MAX_ADAPTERS, each once, in any order; none: the model as
                                        * it is. A saved sequence continues with those that it was saved with */
    size_t n_adapters;
    uint64_t scope; /* the request uses only what requests of the same scope left, or are about to compute, in the KV cache and
                     * the drafters, so that neither statistics nor times reveal the text of others. 0: the common scope */
    bool no_drafts; /* nothing is drafted for the request; this field and the next three change only speed */
    uint32_t draft_max, draft_min; /* like the session's n_max, n_min and p_min, which they can only narrow; 0: the session's */
    float draft_p_min;
    const struct aerie_chunk *chunks; /* [n_chunks] (aerie_extra.h) the prompt, instead of tokens; not together with `row` */
    size_t n_chunks;
    uint64_t client, group; /* for max_turn: the client and its group of requests, such as several answers to one; 0: none */
    const struct aerie_diffusion *diffusion; /* (aerie_extra.h) settings of models that denoise; NULL: the defaults */
    const int32_t *expected; /* [n_expected] the probable beginning of the answer, which n-grams with a memory draft */
    size_t n_expected;
    const struct aerie_reasoning *reasoning; /* (aerie_extra.h) limit of the answer's reasoning; NULL: none */
} aerie_request;

AERIE_INITIALISER(request)

typedef enum aerie_stop {
    AERIE_STOP_NONE,    /* not finished (the session failed or was cancelled) */
    AERIE_STOP_EOG,     /* an end-of-generation token was drawn */
    AERIE_STOP_LENGTH,  /* n_predict reached */
    AERIE_STOP_CONTEXT, /* the context is full */
    AERIE_STOP_CALLER,  /* the callback returned false */
    AERIE_STOP_STRING,  /* the text reached a stop string. It may begin and end inside of tokens: the first stop string to end
                         * in the text's bytes counts (the longest of those that end together), wherever tokens begin. The text
                         * ends before it; the token that completed it is the last one, emitted and counted. */
    AERIE_STOP_GRAMMAR, /* the grammar's text is complete: nothing can follow */
    AERIE_STOP_DEAD_END, /* the grammar allows no token here: the vocabulary cannot spell what would follow, or a limit of the
                          * automaton was reached; the answer is incomplete */
} aerie_stop;

typedef struct aerie_logprob {
    int32_t token;
    float logprob; /* natural logarithm; -INFINITY if the model rules the token out */
} aerie_logprob;

struct aerie_token_event {
    size_t i_request; /* the request's id; in aerie_session_generate its index */
    aerie_task *task; /* NULL for a request that was refused before it became a task */
    int32_t token;
    const char *text;  /* [n_text] bytes that are final with this token: whole UTF-8 characters; may be empty. Bytes that may
                        * begin a stop string come with a later token. */
    size_t n_text;
    uint32_t draft_depth; /* 0: decoded by the target; k: the k-th token of an accepted draft */
    /* With n_logprobs: the target's softmax over its whole vocabulary, before all samplers and at temperature 1, so it is the
     * same with and without speculation. */
    float logprob;              /* log-probability of the token; 0 without n_logprobs */
    const aerie_logprob *top;   /* [n_top] the likeliest, best first */
    uint32_t n_top;
    const aerie_error *refused; /* with token -1: why the request was refused; NULL: it was served */
    const struct aerie_stats *stats; /* with token -1: final */
};

typedef struct aerie_stats {
    uint32_t n_prompt, n_cached; /* prompt tokens; tokens found in the KV cache, those of a saved answer included */
    uint32_t n_generated;        /* tokens of the answer, including those of a saved one */
    uint32_t n_passes;           /* target passes after the prompt */
    uint32_t n_preempted;        /* times that older requests took its part of the KV cache, which was computed again later */
    uint32_t n_drafted, n_accepted;
    uint32_t drafted_at[AERIE_MAX_DRAFT];  /* [depth - 1] nodes verified */
    uint32_t accepted_at[AERIE_MAX_DRAFT]; /* [depth - 1] */
    uint32_t tried_at[AERIE_MAX_DRAFT]; /* [depth - 1] passes that accepted all before this depth of their draft; [0]: all */
    double prompt_seconds, decode_seconds;
    double target_seconds, draft_seconds, sample_seconds; /* shares of decode_seconds */
    uint64_t n_masks, n_mask_hits; /* masks over the vocabulary that the grammar needed: computed anew; found again */
    uint64_t n_mask_checks;        /* tokens that were checked singly instead */
    double mask_seconds;           /* seconds for all masks and checks; a part of sample_seconds */
    aerie_stop stop;
    aerie_error error; /* status OK, or why this request was refused; it then has no tokens */
    uint32_t drafted_by[AERIE_MAX_DRAFTERS];  /* passes that verified a draft, by drafter (aerie_session_drafter_name) */
    uint32_t accepted_by[AERIE_MAX_DRAFTERS]; /* accepted tokens, by drafter; those of n-grams are not counted */
    uint32_t n_parked; /* times that the request gave its slot to another one (aerie_session_params.max_turn) */
} aerie_stats;

/* Gives the session a request, which is checked now and begun by a later step. All that it points to is copied. *task is the
 * caller's to free. Errors: ARGUMENT (no tokens, a token out of range, sampling parameters, stop strings, log-probabilities),
 * LIMIT (a prompt longer than the context; a grammar that begins in too many ways), UNSUPPORTED (what the model cannot do; a
 * saved sequence of another model), FORMAT (a saved sequence), MEMORY, BUSY (n_waiting wait), INTERNAL. Any thread. */
AERIE_API aerie_status aerie_session_submit(aerie_session *session, const aerie_request *request, aerie_task **task,
                                            aerie_error *error);
/* One pass over the rows of all sequences: chunks of prompts, tokens, drafts. Requests wait in the order of their submission
 * while n_seqs others run, unless max_turn says otherwise. Does nothing when there is nothing to do. The stepping thread.
 * Errors: MEMORY, INTERNAL, UNSUPPORTED; the tasks that ran have ended with that error then, and the session goes on with the
 * next ones. A task alone can end so, too (aerie_stats.error): FORMAT if the model gives it logits that are not finite. */
AERIE_API aerie_status aerie_session_step(aerie_session *session, aerie_error *error);
/* Returns the next event of a request without a token callback; NULL: there is none now. Valid until the next call of
 * aerie_session_poll or aerie_session_step. The stepping thread. */
AERIE_API const aerie_token_event *aerie_session_poll(aerie_session *session);
/* Waits until there is something to step, at most this many seconds; returns true if there is. The stepping thread. */
AERIE_API bool aerie_session_wait(aerie_session *session, double seconds);
/* Returns the number of submitted tasks that have not ended. */
AERIE_API size_t aerie_session_n_tasks(const aerie_session *session);
/* The task ends at the next step with AERIE_STOP_CALLER, if it has not ended by then. Any thread. */
AERIE_API void aerie_task_cancel(aerie_task *task);
/* Returns whether the task's last event was reported or waits to be polled. Any thread. */
AERIE_API bool aerie_task_ended(const aerie_task *task);
/* Returns the slot in which the task runs or ran, below n_seqs; -1: it waits for a slot. Any thread. */
AERIE_API int32_t aerie_task_slot(const aerie_task *task);
/* Returns how many tasks have waited longer for a slot than this one; 0 while it has one or has ended. The stepping thread. */
AERIE_API size_t aerie_task_n_ahead(const aerie_task *task);
/* Returns statistics, lent by the task. They are final once the task has ended, and must not be read before. */
AERIE_API const aerie_stats *aerie_task_stats(const aerie_task *task);
/* Cancels the task if it has not ended; no callback begins after the call. Any thread. NULL is allowed. */
AERIE_API void aerie_task_free(aerie_task *task);

/* Generates all requests, up to n_seqs at once, on the calling thread, which is the stepping one. All have the size that the
 * first one says. stats [n_requests] may be NULL; stats_size: sizeof *stats. All requests are checked before anything is
 * generated. One that cannot be served is refused alone: the callback is told once, its stats.error says why, and the others
 * are answered. The call then returns the status of the first one refused, with its number (from 0) in the sentence if there
 * are several. Refusals: ARGUMENT (no tokens, a token out of range, sampling parameters, stop strings, log-probabilities),
 * LIMIT (a prompt longer than the context: both numbers; a grammar that begins in too many ways), UNSUPPORTED and FORMAT as
 * of aerie_session_submit, MEMORY. A failure of a pass ends all requests: MEMORY, INTERNAL, UNSUPPORTED. */
AERIE_API aerie_status aerie_session_generate(aerie_session *session, const aerie_request *requests, size_t n_requests,
                                              aerie_token_callback *callback, void *user, aerie_stats *stats, size_t stats_size,
                                              aerie_error *error);

#ifdef __cplusplus
}
#endif
#endif
