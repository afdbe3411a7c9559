/* aerie_extra.h - what goes beyond running a model with aerie.h: loading drafter heads and LoRA adapters, lazy grammars, memory
 * plans, embeddings, thread pools and saved sequences. The conventions of aerie.h, and its promise of ABI, hold here too.
 */
#ifndef AERIE_EXTRA_H
#define AERIE_EXTRA_H

#include "aerie.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Drafter heads: small networks that draft for one model (docs/heads.md) -------------------------- */

typedef struct aerie_drafter_head_params {
    size_t size;
    uint32_t n_threads; /* for loading; 0 = a thread per core that this process may use */
    bool mmap, no_mmap; /* as in aerie_model_params */
    uint32_t n_vocab;   /* for a head that drafts from the model's whole vocabulary: it considers only the first n_vocab tokens;
                         * 0: all */
    aerie_log log;
} aerie_drafter_head_params;

AERIE_INITIALISER(drafter_head_params)

/* Returns whether the file is a drafter head, by its architecture, or has MTP blocks without their model. Also false if it
 * cannot be read. */
AERIE_API bool aerie_file_is_drafter_head(const char *path);
/* Finds the drafter head that comes with a model: the model's own file if it holds MTP blocks, else a file beside it that is
 * named after it. For "DIR/NAME-Q4_K_M.gguf" that is "DIR/NAME-Q4_K_M-eagle3.gguf", then "DIR/NAME-eagle3.gguf", then the same
 * two with "-mtp"; the number of a split file ("-00001-of-00003") is ignored. Only names are compared: loading the file tells
 * whether it is a head, and whether it fits. type: AUTO for a head of any kind, EAGLE3 or MTP for one of that kind; no other
 * type has heads to find. *path is the caller's (aerie_free), or NULL. Errors: ARGUMENT, MEMORY. */
AERIE_API aerie_status aerie_drafter_head_find(char **path, const char *model_path, aerie_spec_type type, aerie_error *error);
/* path: a head's file, or a model's that holds MTP blocks, such as the model's own. *head is the caller's; the model outlives
 * it. Errors: IO, UNSUPPORTED (not a head), FORMAT (damaged, or made for another model: what differs), LIMIT (of a file),
 * MEMORY, ARGUMENT (a model without weights), INTERNAL. */
AERIE_API aerie_status aerie_drafter_head_load(aerie_drafter_head **head, const aerie_model *model, const char *path,
                                               const aerie_drafter_head_params *params, aerie_error *error);
/* Call it after the sessions that use the head have been freed. NULL is allowed. */
AERIE_API void aerie_drafter_head_free(aerie_drafter_head *head);

typedef struct aerie_drafter_head_info {
    const char *name, *kind; /* lent; kind: "EAGLE-1/2", "EAGLE-3", "EAGLE-3.1", "Medusa", "MTP", "MTP assistant" */
    aerie_spec_type type;    /* the speculation type that the head serves */
    uint64_t n_params, weight_bytes;
    uint32_t n_embd, n_draft; /* width; tokens that it can draft */
    uint32_t n_taps, taps[AERIE_MAX_TAPS];
} aerie_drafter_head_info;

/* size: sizeof *info. */
AERIE_API void aerie_drafter_head_info_get(const aerie_drafter_head *head, aerie_drafter_head_info *info, size_t size);

/* ---- Other drafters of a session -------------------------------------------------------------------- */

/* A draft model with another vocabulary drafts with the tokens that both share: the same bytes, or for control tokens the same
 * text or role. */
typedef struct aerie_overlap {
    uint32_t n_target, n_draft; /* tokens, without fillers */
    uint32_t n_shared;
    double vocab_share; /* n_shared / n_target; a session needs at least 0.05 */
    double text_share;  /* share of a sample text's bytes that are in shared tokens; a session needs at least 0.5 */
} aerie_overlap;

/* size: sizeof *overlap. Returns false if there is no draft model, or its vocabulary is the target's. */
AERIE_API bool aerie_session_overlap(const aerie_session *session, aerie_overlap *overlap, size_t size);

/* How many routed experts of a row the next drafts of a session of type MOE use, as aerie_spec.moe_experts says, instead of a
 * trial. Answers do not depend on it. The number goes into the next pass: nothing is allocated or built again. The stepping
 * thread. Errors: ARGUMENT (not a session of that type, or not -1 to the number of experts that the model uses). */
AERIE_API aerie_status aerie_session_set_moe_experts(aerie_session *session, int32_t n_experts, aerie_error *error);

/* ---- Several machines: one model that several processes run together (docs/machines.md) ---- */

typedef enum aerie_machines_kind {
    AERIE_MACHINES_AUTO,     /* SPLIT, PIPELINE, or stages that are split: what takes least by measured speeds and links */
    AERIE_MACHINES_SPLIT,    /* each process has rows of all matrices */
    AERIE_MACHINES_PIPELINE, /* each process, or each stage of several, has some of the layers */
} aerie_machines_kind;

/* "auto", "split", "pipeline"; NULL for an unknown value. */
AERIE_API const char *aerie_machines_kind_name(aerie_machines_kind kind);
/* false for an unknown name. */
AERIE_API bool aerie_machines_kind_parse(const char *name, aerie_machines_kind *kind);

/* Settings of a group; all of its processes must have the same. */
typedef struct aerie_machines {
    size_t size;
    aerie_machines_kind kind;
    const uint32_t *shares; /* [n_shares] shares of the work, 0 to 1000 for each process; NULL: by measured speed and free
                             * memory */
    size_t n_shares;
    bool insecure;          /* public addresses may be used */
    bool verify;            /* compare all bytes of the processes' model files, not only samples of each tensor */
    double limit;           /* seconds after which a process that does not answer ends the group; 0: none */
    uint32_t n_stages;      /* PIPELINE: that many, over which the processes are dealt evenly, in order; those of one stage
                             * split its layers; 0: one for each process */
} aerie_machines;

AERIE_INITIALISER(machines)

/* Returns how many processes the group has that started this one (mpirun, srun), by its environment; 0: none did. Writes the
 * number of this process among them to *rank (or NULL). */
AERIE_API uint32_t aerie_machines_started(uint32_t *rank);
/* Returns the number of this process in its model's group: 0 for the first one and for models without a group. *n (or NULL):
 * the number of processes. */
AERIE_API uint32_t aerie_model_rank(const aerie_model *model, uint32_t *n);
/* Called by every process but the first, instead of creating sessions. Computes what the first process's sessions need, until
 * the first process frees its model. All processes load their adapters before, in the same order. Errors: ARGUMENT (this
 * process is the first, or alone), MEMORY, LIMIT, INTERNAL and UNSUPPORTED (the group has ended early, and why). */
AERIE_API aerie_status aerie_model_follow(const aerie_model *model, uint32_t n_threads, aerie_error *error);
/* Returns whether the devices of a model work, by waiting for a small piece of work on each GPU: a pass may have failed because
 * one was lost. Any thread. Errors: INTERNAL (one was lost or hangs; the message is the driver's), MEMORY, LIMIT (it could not
 * be tried). */
AERIE_API aerie_status aerie_model_try_devices(const aerie_model *model, aerie_error *error);
/* Describes in lines of text what each of n processes would hold of a model file; machines NULL: the defaults. *text is the
 * caller's (aerie_free). Errors: those of aerie_model_load. */
AERIE_API aerie_status aerie_machines_describe(char **text, const char *path, const aerie_machines *machines, uint32_t n,
                                               aerie_error *error);

/* ---- Adapters (LoRA): loading them ---- */

typedef struct aerie_adapter_params {
    size_t size;
    uint32_t n_threads; /* for loading; 0 = a thread per core that this process may use */
    bool no_mmap;       /* as in aerie_model_params */
} aerie_adapter_params;

AERIE_INITIALISER(adapter_params)

/* Loads an adapter for a model that was loaded with its weights and outlives the adapter. Immutable; threads and sessions may
 * share it. Errors: IO, FORMAT (not an adapter, damaged, or trained for another model: what differs), UNSUPPORTED (it adapts a
 * tensor that cannot be adapted, by name), LIMIT, MEMORY, ARGUMENT, INTERNAL. */
AERIE_API aerie_status aerie_adapter_load(aerie_adapter **adapter, const aerie_model *model, const char *path,
                                          const aerie_adapter_params *params, aerie_error *error);
AERIE_API void aerie_adapter_free(aerie_adapter *adapter);

typedef struct aerie_adapter_info {
    const char *name;          /* from the file's metadata, "" if it has none; lent by the adapter */
    const char *path;          /* as given; lent */
    float alpha;
    uint32_t max_rank;
    uint32_t n_matrices;       /* of the model, adapted */
    uint64_t n_params;
    const char *task_name, *prompt_prefix; /* from the metadata, "" if it has none; lent */
} aerie_adapter_info;

/* size: sizeof *info. */
AERIE_API void aerie_adapter_info_get(const aerie_adapter *adapter, aerie_adapter_info *info, size_t size);

/* ---- Denoising -------------------------------------------------------------------------------------
 *
 * Models such as Dream and LLaDA (aerie_model_info.is_diffusion) write an answer not from left to right: all of its n_predict
 * positions are masked at first, each step runs prompt and answer as a whole, draws a token for every masked position, and
 * keeps some of them for good. Tokens are told once everything before them is known (aerie_request.diffusion,
 * docs/diffusion.md). */

typedef enum aerie_diffusion_algorithm { /* which of the drawn tokens a step keeps; llama.cpp's numbers */
    AERIE_DIFFUSION_ORIGIN,     /* any positions, at random: as many as the schedule says on average */
    AERIE_DIFFUSION_ENTROPY,    /* the positions whose distribution has the least entropy */
    AERIE_DIFFUSION_MARGIN,     /* the positions whose likeliest token is furthest ahead of the second */
    AERIE_DIFFUSION_RANDOM,     /* any positions, at random: exactly as many as the schedule says */
    AERIE_DIFFUSION_CONFIDENCE, /* the positions whose drawn token is likeliest */
} aerie_diffusion_algorithm;

/* Called before each step with the request's `user` and `id`. tokens [n_tokens]: the prompt (n_prompt) and the answer, -1 where
 * no token is known yet. */
typedef void aerie_canvas_callback(void *user, size_t i_request, uint32_t step, uint32_t n_steps, const int32_t *tokens,
                                   size_t n_prompt, size_t n_tokens);

typedef struct aerie_diffusion {
    size_t size;
    uint32_t n_steps;      /* steps of the whole answer; 0: 128 */
    uint32_t algorithm;    /* aerie_diffusion_algorithm */
    /* Two schedules, of which one may be set. Both 0: the model's published one, eps 0.001 or blocks of 32. */
    float eps;             /* above 0: of n masked positions step i of T keeps n (1 - s / t), where t = 1 - (1 - eps) i / T, and
                            * s is the same of i + 1 */
    uint32_t block_length; /* above 0: blocks from left to right, each with its share of the steps */
    float cfg_scale;       /* above 0: logits are u + (scale + 1) (c - u), where c sees the prompt and u does not: twice the
                            * passes */
    float alg_temp;        /* above 0: the positions to keep are drawn, with weights exp(confidence / alg_temp) */
    aerie_canvas_callback *canvas; /* NULL: not called */
} aerie_diffusion;

/* 128 steps, CONFIDENCE; everything else 0. */
AERIE_INITIALISER(diffusion)

/* ---- A limit of reasoning --------------------------------------------------------------------------------- */

/* After n_most tokens of reasoning `end` is written in place of the tokens that would follow, at the end of a character. It
 * counts as part of the answer. Reasoning that the answer opens again counts too. A grammar that allows no `end` there goes
 * first, and the reasoning goes on. */
typedef struct aerie_reasoning {
    size_t size;
    const char *open, *close; /* texts of up to 256 bytes around reasoning; control tokens count as their text */
    bool opened;              /* the prompt ends inside of reasoning */
    uint32_t n_most;          /* tokens of reasoning, without those of `open` and `close` */
    const char *end;          /* what is written: holds `close`, possibly after other text. NULL: `close` */
} aerie_reasoning;

AERIE_INITIALISER(reasoning)

/* ---- Lazy grammars ---------------------------------------------------------------------------------------- */

/* A part of a lazy grammar: `text`, followed by a text of `grammar`. */
typedef struct aerie_grammar_part {
    const char *text; /* [n_text] */
    size_t n_text;
    const aerie_grammar *grammar;
} aerie_grammar_part;

typedef struct aerie_lazy_params {
    size_t size;
    const char *const *triggers; /* [n_triggers] */
    size_t n_triggers;
    const aerie_grammar_part *parts; /* [n_parts] one of these follows a trigger */
    size_t n_parts;
    const char *open, *close; /* text between these is free, even if it contains triggers; NULL: there are none */
    bool opened;              /* the text begins after an `open` */
    const aerie_grammar *rest; /* text outside of `open` and `close` in an answer without a call; NULL: free text */
    const char *const *tails;  /* [n_tails] with `rest`: texts that may close a part */
    size_t n_tails;
} aerie_lazy_params;

AERIE_INITIALISER(lazy_params)

/* A grammar that leaves a text free until one of the triggers has been written. One of the parts follows, and then the text is
 * free again. It may end wherever it is free. Control tokens count as the text that aerie_request.special makes of them, in
 * free text, triggers and the texts of parts; in a part's grammar there are none.
 * With `rest` the text is one of that grammar, or calls one after the other (a trigger, which may be empty, a part and what
 * closes it; without parts free text follows a trigger to the end; there may be no triggers at all). It begins after the
 * reasoning, which is free, may come first and must be closed; a little white space may stand between. Errors: ARGUMENT (no
 * triggers, no parts, an empty trigger), LIMIT, MEMORY. */
AERIE_API aerie_status aerie_grammar_create_lazy(aerie_grammar **grammar, const aerie_lazy_params *params, aerie_error *error);

/* ---- Memory that a model and a session need --------------------------------------------------------------- */

/* The memory that a model and a session on it need, and the kind of model. */
typedef struct aerie_memory_plan {
    uint64_t weight_bytes;    /* packed weights */
    uint64_t session_bytes;   /* bytes of KV cache, activations and tables */
    uint64_t available_bytes; /* memory that is free now; 0: unknown */
    /* set by aerie_memory_plan_get alone */
    bool is_encoder;          /* as in aerie_model_info */
    bool is_diffusion;        /* likewise */
    bool is_encoder_decoder;  /* generates a text from another text, which its encoder reads */
    uint32_t decision;        /* an aerie_decision */
} aerie_memory_plan;

/* Computes the memory that a model file and a session on it need, and tells its kind, without loading weights: only the file's
 * header is read. plan_size: sizeof *plan. Errors: those of aerie_model_load, and ARGUMENT for session parameters that are not
 * possible. */
AERIE_API aerie_status aerie_memory_plan_get(const char *path, const aerie_model_params *model_params,
                                             const aerie_session_params *session_params, aerie_memory_plan *plan,
                                             size_t plan_size, aerie_error *error);
/* Computes the memory that a draft model needs in addition to the model at `path`. Its context may have to be larger than the
 * model's: with another tokenizer the same text may be more tokens. The same errors, and UNSUPPORTED (the vocabularies share
 * too little). */
AERIE_API aerie_status aerie_memory_plan_draft(const char *path, const char *draft_path, const aerie_model_params *model_params,
                                               const aerie_session_params *session_params, aerie_memory_plan *plan,
                                               size_t plan_size, aerie_error *error);

/* ---- Embeddings -------------------------------------------------------------------------------------------
 *
 * One vector for each text, from an encoder (BERT and its like) or from any other model. The vector of a text depends on the
 * model file, the text and the pooling alone: not on the texts beside it, threads or CPU level (law 1).
 * One thread at a time uses an embedder. Several embedders, and sessions, may share a model. */

typedef struct aerie_embedder aerie_embedder;

typedef struct aerie_embedder_params {
    size_t size;
    uint32_t n_ctx;     /* most tokens of a text; 0 = what the model was trained for; for models that are not encoders at most
                         * 4096 */
    uint32_t n_batch;   /* most tokens of a pass over the weights, from several texts; 0 = 512. Encoders take whole texts, so
                         * theirs is at least n_ctx */
    uint32_t n_threads; /* 0 = a thread per core that this process may use */
    aerie_pooling pooling;
    int32_t normalize;  /* 2: scale to length 1 (default); 1: so that magnitudes add up to 1; 0: to a largest magnitude of
                         * 32760; any p up to 64: to p-norm 1; -1: not at all. RANK is never scaled */
} aerie_embedder_params;

AERIE_INITIALISER(embedder_params)

/* *embedder is the caller's; the model outlives it. Errors: ARGUMENT (no weights, numbers out of range), UNSUPPORTED (RANK
 * of a model without a classification head), IO and FORMAT (that head in the file), MEMORY (how much is needed), LIMIT,
 * INTERNAL. */
AERIE_API aerie_status aerie_embedder_create(aerie_embedder **embedder, const aerie_model *model,
                                             const aerie_embedder_params *params, aerie_error *error);
/* NULL is allowed. */
AERIE_API void aerie_embedder_free(aerie_embedder *embedder);
/* Returns the length of a vector: the model's n_embd; 1 with RANK. */
AERIE_API uint32_t aerie_embedder_n_out(const aerie_embedder *embedder);
/* Returns the most tokens that a text may have. */
AERIE_API uint32_t aerie_embedder_n_ctx(const aerie_embedder *embedder);
/* Returns the pooling in use, never AUTO. */
AERIE_API aerie_pooling aerie_embedder_pooling(const aerie_embedder *embedder);

/* A text as tokens; aerie_model_tokenize with add_special makes them. */
typedef struct aerie_embed_text {
    const int32_t *tokens; /* [n_tokens], lent for the call */
    size_t n_tokens;
    size_t n_first;        /* index of the first token of a second text (aerie_model_rerank_tokens); 0 or n_tokens: there is no
                            * second text */
    uint64_t reserved[2];
} aerie_embed_text;

/* Computes vectors [n][aerie_embedder_n_out] into the caller's array. Errors: ARGUMENT (a text without tokens, an unknown
 * token), LIMIT (a text longer than n_ctx: which, and how long); nothing is computed then. INTERNAL, UNSUPPORTED, MEMORY:
 * computing failed. */
AERIE_API aerie_status aerie_embedder_embed(aerie_embedder *embedder, const aerie_embed_text *texts, size_t n, float *vectors,
                                            aerie_error *error);
/* ---- Reranking ---------------------------------------------------------------------------------------- */

/* The tokens of a query and a document that a reranking model judges together: BOS query EOS document EOS, where the vocabulary
 * has these. *n_first: where the document begins. Text like [SEP] is text. *tokens is the caller's (aerie_free). Errors:
 * those of aerie_model_tokenize. */
AERIE_API aerie_status aerie_model_rerank_tokens(const aerie_model *model, const char *query, size_t n_query,
                                                 const char *document,
                                                 size_t n_document, int32_t **tokens, size_t *n_tokens, size_t *n_first,
                                                 aerie_error *error);

/* ---- Thread pools ------------------------------------------------------------------------------------
 *
 * Threads that several sessions compute on, of any models. By default each session has threads of its own; sessions that
 * are busy at the same time then compete for the cores, which costs more than it gains. Sessions on one pool take turns
 * instead, a step or a pass of the measuring functions at a time, in the order in which they ask. They may be stepped by
 * different threads or by the same one. Answers do not depend on the pool (law 1).
 *
 * Callbacks of requests run during their session's turn: while one does not return, the other sessions of the pool wait. It
 * may not wait for one of them to be stepped by another thread. */

/* Creates a pool. n_threads: threads that compute at a time, 1 to 1024, including the stepping thread; 0 = a thread per core
 * that this process may use. The pool is the caller's and outlives its sessions. Any thread. Errors: ARGUMENT, MEMORY, INTERNAL
 * (the system starts no more threads). */
AERIE_API aerie_status aerie_pool_create(aerie_pool **pool, uint32_t n_threads, aerie_error *error);
/* Call it after all of the pool's sessions have been freed. Any thread. NULL is allowed. */
AERIE_API void aerie_pool_free(aerie_pool *pool);
/* Returns how many threads compute at a time. Any thread. Cannot fail. */
AERIE_API uint32_t aerie_pool_n_threads(const aerie_pool *pool);
/* ---- Pictures -------------------------------------------------------------------------------------------
 *
 * A tower (a vision encoder with its projector: an "mmproj" file) turns pictures into rows of a model's width, which stand in
 * the prompt where tokens would. The rows depend on the file and on the pixels alone. A prompt is a list of chunks, of tokens
 * or of rows; those of aerie_tower_prompt and aerie_tower_chat are given to a request as they are, other programs may give
 * their own. */

/* A part of a prompt: tokens, or rows that are not tokens. */
typedef struct aerie_chunk {
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;       /* 0: it is rows */
    const float *rows;     /* [n_rows][n_embd] finite numbers, used as token embeddings; for models with n deepstack layers
                            * [n_rows][(1 + n) * n_embd], where the further numbers are added after those layers */
    size_t n_rows;         /* 0: the chunk is tokens. Each row takes a position; the prompt's last position must be a token */
    bool group;            /* the rows see each other, in both directions, and run in one pass: at most n_batch rows, and not in
                            * models with recurrent layers */
    uint32_t n_across;     /* columns of a grid that the rows form, line by line; 0: no grid. Models that rotate by height and
                            * width do so with these rows, and positions after them continue from the longer side */
    uint64_t reserved[4];
} aerie_chunk;

/* Converts chunks to tokens, for aerie_session_prefix_save and _find. Rows become numbers below 0 that stand for their content,
 * the same in every session. tokens [positions of all chunks] is the caller's. Any thread. Errors: ARGUMENT, as for a request;
 * LIMIT; UNSUPPORTED (an encoder-decoder model); MEMORY. */
AERIE_API aerie_status aerie_model_chunk_tokens(const aerie_model *model, const aerie_chunk *chunks, size_t n_chunks,
                                                int32_t *tokens, aerie_error *error);

typedef struct aerie_image aerie_image;

typedef struct aerie_image_limits {
    size_t size;
    size_t max_bytes;    /* of the file: 20 MiB */
    uint64_t max_pixels; /* 50 million */
    uint32_t max_side;   /* 16,384 */
    uint32_t max_ratio;  /* longer side divided by the shorter one, at most; default 200 */
    uint64_t max_memory; /* peak memory of decoding, including the picture; 0: no limit */
} aerie_image_limits;

AERIE_INITIALISER(image_limits)

/* Returns the formats that this library was built to read: "JPEG, PNG or WebP". Static storage. */
AERIE_API const char *aerie_image_formats(void);
/* Decodes a picture from a file's bytes [n], applies its EXIF orientation, and puts transparent parts on white. *image is the
 * caller's. limits NULL: the defaults. Limits are checked before anything of the picture's size is allocated. Errors: FORMAT
 * (no known format, or damaged), UNSUPPORTED (a kind that is not read, by name), LIMIT, MEMORY. */
AERIE_API aerie_status aerie_image_read(aerie_image **image, const void *data, size_t n, const aerie_image_limits *limits,
                                        aerie_error *error);
/* Makes a picture of pixels [height][width][3], red, green and blue, which are copied. Errors: FORMAT (no pixels), LIMIT,
 * MEMORY. */
AERIE_API aerie_status aerie_image_copy(aerie_image **image, uint32_t width, uint32_t height, const uint8_t *rgb,
                                        aerie_error *error);
AERIE_API void aerie_image_size(const aerie_image *image, uint32_t *width, uint32_t *height);
AERIE_API void aerie_image_free(aerie_image *image);

typedef struct aerie_tower aerie_tower;

typedef struct aerie_tower_params {
    size_t size;
    uint32_t n_threads;   /* 0 = a thread per core that this process may use */
    aerie_pool *pool;     /* threads to run on, which outlive the tower; sessions on the same pool get their turn between two
                           * blocks of the encoder. NULL: the tower has threads of its own */
    size_t cache_bytes;   /* most bytes of rows that are kept, so that a picture that is used again costs nothing; default 256
                           * MiB */
    bool no_mmap;         /* read the file instead of mapping it */
    uint32_t min_tokens, max_tokens; /* limits of a picture's rows, for types whose pictures keep their shape; 0: the type's own
                                      * limit */
} aerie_tower_params;

AERIE_INITIALISER(tower_params)

/* Loads a tower. *tower is the caller's; the model outlives it. Errors: IO, FORMAT, UNSUPPORTED (an unknown type, by name, with
 * the known ones; a model of another width), ARGUMENT, LIMIT (of a file), MEMORY, INTERNAL. */
AERIE_API aerie_status aerie_tower_load(aerie_tower **tower, const aerie_model *model, const char *path,
                                        const aerie_tower_params *params, aerie_error *error);
AERIE_API void aerie_tower_free(aerie_tower *tower);
/* "gemma3", ...; lent. */
AERIE_API const char *aerie_tower_type(const aerie_tower *tower);
/* Computes the memory that a tower needs, without loading it: weight_bytes, and as session_bytes what reading a picture of
 * width x height pixels takes, with its rows; 0 x 0: 1024 x 1024. The rows that a tower keeps (cache_bytes) come on top.
 * plan_size: sizeof *plan. Errors: those of aerie_tower_load, except those of the model, and of aerie_tower_n_rows. */
AERIE_API aerie_status aerie_memory_plan_tower(const char *path, const aerie_model_params *model_params,
                                               const aerie_tower_params *tower_params, uint32_t width, uint32_t height,
                                               aerie_memory_plan *plan, size_t plan_size, aerie_error *error);
/* Returns how many positions a picture of this size takes, without the text around its rows; nothing is computed. Errors:
 * LIMIT, ARGUMENT. */
AERIE_API aerie_status aerie_tower_n_rows(const aerie_tower *tower, uint32_t width, uint32_t height, uint32_t *n_rows,
                                          aerie_error *error);

typedef struct aerie_prompt aerie_prompt;

/* Makes a prompt of a text [n] in which `mark` (NULL: "<__media__>") stands for each picture, in order; without any mark the
 * pictures come first. Control tokens in the text are recognised. Any thread; one picture is read at a time. progress (may be
 * NULL) is called with `user` between the steps of each picture; returning false cancels. *prompt is the caller's. Errors:
 * ARGUMENT (the numbers of marks and pictures differ), LIMIT, CANCELLED, MEMORY, FORMAT (rows that are not finite), UNSUPPORTED
 * (aerie does not know the model's tokenizer), INTERNAL. */
AERIE_API aerie_status aerie_tower_prompt(aerie_tower *tower, const char *text, size_t n, const char *mark,
                                          const aerie_image *const *images, size_t n_images, aerie_progress *progress,
                                          void *user, aerie_prompt **prompt, aerie_error *error);
/* Makes a prompt of a conversation. mark NULL: the i-th part {"type": "image"} of its messages (aerie_chat.messages) is
 * images[i], and text in messages that looks like what the template writes for a picture stays text. Otherwise images[i]
 * replaces the i-th mark, a text that the caller has put into the messages and that nobody else knows. Errors: those of
 * aerie_model_chat_tokens and of aerie_tower_prompt; UNSUPPORTED: the template does not show as many pictures as there are. */
AERIE_API aerie_status aerie_tower_chat(aerie_tower *tower, const aerie_chat *chat, const char *mark,
                                        const aerie_image *const *images, size_t n_images, aerie_progress *progress,
                                        void *user, aerie_prompt **prompt, aerie_error *error);
/* Returns chunks for aerie_request, lent by the prompt. */
AERIE_API const aerie_chunk *aerie_prompt_chunks(const aerie_prompt *prompt, size_t *n);
AERIE_API size_t aerie_prompt_n_positions(const aerie_prompt *prompt);
AERIE_API void aerie_prompt_free(aerie_prompt *prompt);

/* ---- Decisions: the scores of options that a text offers, from models with a head for it --------------- */

/* What a model's decision head reads; aerie_model_info.decision has it. */
typedef enum aerie_decision {
    AERIE_DECISION_NONE,  /* the model has no such head */
    AERIE_DECISION_JOINT, /* several questions of a text, and their options */
    AERIE_DECISION_MARKS  /* one question, and a mark before each option */
} aerie_decision;

/* What a token of such a text belongs to. */
typedef enum aerie_span {
    AERIE_SPAN_NONE,
    AERIE_SPAN_NOUL,   /* a question to be answered by true or false */
    AERIE_SPAN_CHOICE, /* a question that one of several options answers */
    AERIE_SPAN_SCORE,  /* one that a level on a scale answers */
    AERIE_SPAN_OPTION
} aerie_span;

/* Computes a score for each option of a text, in their order, into scores [n_scores]; the probability of an option is the
 * softmax of its question's scores. chunks [n_chunks]: the text, with the rows of images in it if the model is JOINT
 * (aerie_tower_prompt). spans: an aerie_span for each of its positions; rows belong to NONE. aerie_model_info.decision says how
 * spans are meant. With JOINT, adjacent tokens of one kind are a question or an option of the question before it, and all
 * questions of the text are decided together. With MARKS, the text has one question, whose kind any of its tokens tells, and a
 * token of OPTION is the mark at which an option is read. Pooling and normalize of the embedder do not matter. Errors:
 * UNSUPPORTED (the model has no such head, or reads no images), ARGUMENT (a text without tokens, an unknown token, chunks or
 * spans that are none, another number of options than n_scores: which), LIMIT (longer than n_ctx), MEMORY, INTERNAL, IO. */
AERIE_API aerie_status aerie_embedder_decide(aerie_embedder *embedder, const aerie_chunk *chunks, size_t n_chunks,
                                             const uint8_t *spans, float *scores, size_t n_scores, aerie_error *error);

/* Computes the logits that a generating model gives tokens[n] after a text of chunks: models without a head for it answer
 * questions by labels (docs/decisions.md). Errors: UNSUPPORTED (an encoder, a model with a decision head, a diffusion model),
 * ARGUMENT (a text without tokens, an unknown token, chunks that are none), LIMIT (longer than n_ctx), MEMORY, INTERNAL. */
AERIE_API aerie_status aerie_embedder_logits(aerie_embedder *embedder, const aerie_chunk *chunks, size_t n_chunks,
                                             const int32_t *tokens, size_t n, float *logits, aerie_error *error);

/* Computes the softmax of scores[n] / temperature into probabilities[n], with the same bits on every machine. Errors: ARGUMENT
 * (n is 0, the temperature is not above 0, a score is not finite: which). */
AERIE_API aerie_status aerie_decision_probabilities(const float *scores, size_t n, float temperature, double *probabilities,
                                                    aerie_error *error);

/* ---- Saved sequences -------------------------------------------------------------------------------------
 *
 * A sequence as bytes: its tokens (and rows of pictures), what the KV cache holds of them in a form that is the same on every
 * machine, and what its sampler remembers. A request that is submitted with these bytes goes on where the saved one stood, in
 * the same session or in another, of any number of threads, CPU level or speculation: with the same request the rest of the
 * answer is the same, to the byte. With another seed, sampling or grammar it is a fork: save once, submit as many as you like.
 * What cannot be used (another model, other RoPE parameters, overrides or adapters, another type of KV cache, damaged bytes) is
 * refused with a sentence. The bytes name the sequence's adapters, but do not hold them: the session must have been created
 * with them.
 *
 * The bytes are checked for damage by accident, not for forgery: whoever makes such bytes decides what the model takes for its
 * text, in this sequence and in later ones that begin with the same tokens. Load only bytes from a source that you trust.
 *
 * These functions belong to the stepping thread, outside of callbacks; aerie_saved_tokens may be called anywhere. */

/* Saves a task that has not ended, between steps: one that waits, is in its prompt or in its answer. *data is the caller's
 * (aerie_free). Events that wait for aerie_session_poll are not included. Errors: ARGUMENT (the task has ended; called by a
 * callback), UNSUPPORTED (an answer that is being denoised), MEMORY, LIMIT, INTERNAL. */
AERIE_API aerie_status aerie_task_save(aerie_task *task, void **data, size_t *n, aerie_error *error);
/* Saves what the KV cache holds of tokens[0..n_tokens), from the first on, from running or ended sequences with this scope and
 * these adapters, as in aerie_request. aerie_model_chunk_tokens makes the tokens of prompts with rows; the rows themselves are
 * not saved, so the bytes serve later prompts with the same rows, but cannot be aerie_request.saved. *data is the caller's
 * (aerie_free). Errors: ARGUMENT (the cache holds none of them), LIMIT (too many tokens), MEMORY, UNSUPPORTED, INTERNAL. */
AERIE_API aerie_status aerie_session_prefix_save(aerie_session *session, uint64_t scope, const aerie_adapter_use *adapters,
                                                 size_t n_adapters, const int32_t *tokens, size_t n_tokens, void **data,
                                                 size_t *n, aerie_error *error);
/* The same in pieces, between which the session steps: a long sequence takes as long to save as its part of the cache takes to
 * copy, and requests would wait for it. aerie_session_saving_begin begins like aerie_session_prefix_save. tokens [n_tokens] are
 * lent until aerie_saving_free. The session must outlive the saving. Errors: those of aerie_session_prefix_save. */
typedef struct aerie_saving aerie_saving;
AERIE_API aerie_status aerie_session_saving_begin(aerie_session *session, uint64_t scope, const aerie_adapter_use *adapters,
                                                  size_t n_adapters, const int32_t *tokens, size_t n_tokens,
                                                  aerie_saving **saving, aerie_error *error);
/* Saves up to n_positions more; *done: all are saved. The stepping thread, between steps. Errors: LIMIT (the cache has lost
 * some since the saving began, which can only be freed then), ARGUMENT, MEMORY, UNSUPPORTED, INTERNAL. */
AERIE_API aerie_status aerie_saving_step(aerie_saving *saving, size_t n_positions, bool *done, aerie_error *error);
/* Once all are saved: *data [*n] is the caller's (aerie_free); *n_tokens, which may be NULL: how many tokens it holds. Any
 * thread. Errors: ARGUMENT (not all are saved, or this was called before). */
AERIE_API aerie_status aerie_saving_finish(aerie_saving *saving, void **data, size_t *n, size_t *n_tokens, aerie_error *error);
/* Ends a saving, finished or not. NULL is allowed. */
AERIE_API void aerie_saving_free(aerie_saving *saving);
/* Puts a saved sequence's part of the KV cache into this session's, for later requests of this scope that begin with its
 * tokens. *n_loaded, which may be NULL: how many of its tokens the cache then holds; fewer than were saved if running sequences
 * need the room. Errors: FORMAT, UNSUPPORTED (what differs), LIMIT, MEMORY, ARGUMENT, INTERNAL. */
AERIE_API aerie_status aerie_session_prefix_load(aerie_session *session, uint64_t scope, const void *data, size_t n,
                                                 size_t *n_loaded,
                                                 aerie_error *error);
/* The same in pieces, between which the session steps. aerie_session_loading_begin checks the bytes and copies them, on any
 * thread. Errors: those of aerie_session_prefix_load. */
typedef struct aerie_loading aerie_loading;
AERIE_API aerie_status aerie_session_loading_begin(aerie_session *session, uint64_t scope, const void *data, size_t n,
                                                   aerie_loading **loading, aerie_error *error);
/* Puts at least n_positions more into the KV cache, if it has room. *done: nothing is left to do; then *n_loaded, which may be
 * NULL, is how many tokens the cache holds. The stepping thread, between steps. Errors: ARGUMENT, MEMORY, UNSUPPORTED,
 * INTERNAL. */
AERIE_API aerie_status aerie_loading_step(aerie_loading *loading, size_t n_positions, bool *done, size_t *n_loaded,
                                          aerie_error *error);
/* NULL is allowed. Before the session ends. */
AERIE_API void aerie_loading_free(aerie_loading *loading);
/* Returns how many of tokens[0..n_tokens), from the first on, a request of this scope with these adapters need not compute:
 * those that aerie_session_prefix_save would save. 0: none, or an argument is wrong. The stepping thread. */
AERIE_API size_t aerie_session_prefix_find(const aerie_session *session, uint64_t scope, const aerie_adapter_use *adapters,
                                           size_t n_adapters, const int32_t *tokens, size_t n_tokens);
/* Gives the tokens of a saved sequence: the first n_prompt (may be NULL) are the prompt, the rest the answer so far. Rows are
 * numbers below 0, as from aerie_model_chunk_tokens. *tokens is the caller's (aerie_free). Errors: FORMAT, UNSUPPORTED, LIMIT,
 * MEMORY. */
AERIE_API aerie_status aerie_saved_tokens(const void *data, size_t n, int32_t **tokens, size_t *n_tokens, size_t *n_prompt,
                                          aerie_error *error);

/* ---- The stepping thread ---------------------------------------------------------------------------------- */

/* Ends an aerie_session_wait, the present one or the next, before there is anything to step: for a thread that needs the
 * stepping thread. Any thread. */
AERIE_API void aerie_session_wake(aerie_session *session);

/* ---- What n-grams remember --------------------------------------------------------------------------------
 *
 * The text of ended requests that n-grams draft from (aerie_spec.ngram_memory) as bytes, for a later session with the same
 * tokens, whatever its model. Every text keeps its scope: requests of other scopes never draft from it. Drafts change no
 * output. The bytes are text: whoever reads them can read the prompts. They are checked for damage, not for forgery, which
 * could make drafts useless but nothing worse. These functions belong to the stepping thread, outside of callbacks. */

/* Saves what n-grams remember. *data is the caller's (aerie_free). Errors: UNSUPPORTED (the session's n-grams remember
 * nothing), ARGUMENT (called by a callback), MEMORY. */
AERIE_API aerie_status aerie_session_ngrams_save(aerie_session *session, void **data, size_t *n, aerie_error *error);
/* Adds saved texts, as if their requests had just ended; beyond ngram_memory the oldest are forgotten. *n_tokens, which may be
 * NULL: how many tokens the bytes held. Errors: FORMAT (damaged, or no such bytes), UNSUPPORTED (other tokens; the session's
 * n-grams remember nothing), ARGUMENT (called by a callback), LIMIT, MEMORY. */
AERIE_API aerie_status aerie_session_ngrams_load(aerie_session *session, const void *data, size_t n, size_t *n_tokens,
                                                 aerie_error *error);

#ifdef __cplusplus
}
#endif
#endif
