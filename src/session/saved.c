/* saved.c - aerie_extra.h: sequences as bytes: saving them, continuing them, and moving them into and out of the prefix tree.
 *
 * Owns: the meaning of the sections of a saved sequence, and the fingerprint of a model. The container is formats/sections.h.
 * The bytes are hostile: all lengths, tokens and numbers are checked. The values of the KV cache cannot be checked: whoever
 * loads a block trusts its writer about what the model has read, but wrong values cannot do more than change the answer.
 *
 *     MODEL u64 fingerprint of the file, u64 hash of the settings that it was loaded with, its name
 *     TOKENS u32 n_prompt, u32 0, i32 tokens[]: prompt and answer
 *     KV u32 type, u32 n_positions, u32 bytes of a position, u32 first, canonical bytes (ae_kv_saved_bytes). A position has
 *              the bytes of layers without a window, and from position `first` on those of the others as well. Then the state
 *              of
 *              recurrent layers after the last position (ae_state_bytes), if it was known
 *     SAMPLER f64 mirostat's mu; only if the sampler has one
 *     ADAPTERS {u64 fingerprint of the file, f32 scale, u32 0}[], ascending; only if there are adapters
 *     MEDIA ae_media_ref[], ascending; only if some positions are not tokens. TOKENS has their marks (media.h)
 *     ROWS f32 [rows of all of MEDIA][(1 + n_deepstack) * n_embd]; only of tasks: whoever loads a prefix needs no rows, while a
 *              task may have to compute its prompt again
 *
 * Everything else about a sequence is a function of its tokens and its request: the grammar's state, stop strings, penalties
 * and incomplete characters. The noise of draws is a function of seed and position.
 */
#include <math.h>
#include <string.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "formats/sections.h"

enum { MODEL = 1, TOKENS, KV, SAMPLER, ADAPTERS, MEDIA, ROWS };

/* ---- Which model ------------------------------------------------------------------------------------------ */

uint64_t ae_session_settings_hash(const aerie_model_params *p)
{
    const aerie_rope rope = p->rope ? *p->rope : aerie_rope_default();
    const float numbers[] = {(float)rope.scaling, rope.freq_base, rope.factor, (float)rope.n_ctx_orig, rope.yarn_ext_factor,
                             rope.yarn_attn_factor, rope.yarn_beta_fast, rope.yarn_beta_slow};
    uint64_t sum = ae_hash64(0, numbers, sizeof numbers);
    for (size_t i = 0; i < p->n_overrides; i++) sum += ae_hash64(1, p->overrides[i], strlen(p->overrides[i]));
    return sum;
}

/* Hashes the settings. A model's rotation for long contexts differs from the one for short ones, so which of them is used is
 * part of the hash. */
static uint64_t settings_of(const aerie_session *s, bool in_long_context)
{
    return s->model->settings + (in_long_context ? ae_hash64(2, "long", 4) : 0);
}

/* Returns whether the session's context uses the model's rotation for long contexts. *above: the largest context that uses the
 * other one; 0: the model has only one rotation. */
static bool in_long_context(const aerie_session *s, uint32_t *above)
{
    const ae_hparams *h = &s->model->model->hparams;
    *above = 0;
    for (uint32_t i = 0; i < h->n_ropes; i++)
        if (h->ropes[i].divisors_long) *above = h->ropes[i].n_ctx_orig;
    return *above && s->params.n_ctx > *above;
}

/* ---- Writing -------------------------------------------------------------------------------------------------- */

static void put_u32(void *at, uint32_t x)
{
    memcpy(at, &x, sizeof x);
}

static uint32_t get_u32(const void *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* An entry of the ADAPTERS section. */
typedef struct saved_adapter {
    uint64_t fingerprint;
    float scale;
    uint32_t zero;
} saved_adapter;
_Static_assert(sizeof(saved_adapter) == 16, "no padding");

#define KV_HEADER 16
#define TOKENS_HEADER 8

/* Makes a block with everything but the bytes of the cache; *kv points to their place. */
static aerie_status lay_out(const aerie_session *s, const ae_session_saved *seq, const double *mu, void **data, size_t *n,
                            uint8_t **kv, aerie_error *error)
{
    const char *name = s->model->model->name;
    const size_t kv_bytes = ae_spec_saved_bytes(s->spec, seq->cached);
    uint32_t above;
    const uint64_t model[] = {s->model->fingerprint, settings_of(s, in_long_context(s, &above))};
    ae_section list[] = {{.type = MODEL, .n = sizeof model + strlen(name)},
                         {.type = TOKENS, .n = TOKENS_HEADER + seq->n_tokens * sizeof(int32_t)},
                         {.type = KV, .n = KV_HEADER + kv_bytes},
                         {0}, {0}, {0}, {0}};
    const ae_hparams *h = &s->model->model->hparams;
    const ae_adapter_set *adapters = &seq->adapters;
    saved_adapter named[AERIE_MAX_ADAPTERS];
    uint32_t n_sections = 3;
    for (uint32_t i = 0; i < adapters->n; i++)
        named[i] = (saved_adapter){adapters->list[i].adapter->fingerprint, adapters->list[i].scale, 0};
    if (mu) list[n_sections++] = (ae_section){.type = SAMPLER, .data = (const uint8_t *)mu, .n = sizeof *mu};
    if (adapters->n)
        list[n_sections++] = (ae_section){.type = ADAPTERS, .data = (const uint8_t *)named, .n = adapters->n * sizeof *named};
    if (seq->n_refs)
        list[n_sections++] = (ae_section){.type = MEDIA, .data = (const uint8_t *)seq->refs,
                                          .n = seq->n_refs * sizeof *seq->refs};
    if (seq->media)
        list[n_sections++] = (ae_section){.type = ROWS, .n = ae_media_n_floats(seq->refs, seq->n_refs, h) * sizeof(float)};
    AE_TRY(ae_sections_create(data, n, list, n_sections, error));
    if (seq->media) ae_media_write_rows(seq->media, seq->n_refs, h, (float *)(void *)list[n_sections - 1].data);
    uint8_t *at[3];
    for (int i = 0; i < 3; i++) at[i] = (uint8_t *)list[i].data;
    memcpy(at[0], model, sizeof model);
    memcpy(at[0] + sizeof model, name, strlen(name));
    put_u32(at[1], seq->n_prompt);
    memcpy(at[1] + TOKENS_HEADER, seq->tokens, seq->n_tokens * sizeof(int32_t));
    ae_media_write_marks(seq->refs, seq->n_refs, (int32_t *)(void *)(at[1] + TOKENS_HEADER));
    put_u32(at[2], s->params.kv_type);
    put_u32(at[2] + 4, seq->cached.n);
    put_u32(at[2] + 8, (uint32_t)ae_spec_saved_bytes(s->spec, (ae_spec_cached){1, 1, false}));
    put_u32(at[2] + 12, seq->cached.first);
    *kv = at[2] + KV_HEADER;
    return AERIE_OK;
}

static aerie_status fail_lost(aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_LIMIT, "the KV cache no longer has all tokens of the sequence that is being saved: "
                   "running requests needed its pages");
}

/* Reads positions [begin, end) out of the cache. */
static aerie_status read_cache(const aerie_session *s, const ae_session_saved *seq, uint32_t begin, uint32_t end, void *kv,
                               aerie_error *error)
{
    if (!ae_spec_read_cached(s->spec, &seq->adapters, seq->tokens, seq->cached, begin, end, kv)) return fail_lost(error);
    return ae_engine_sync(s->engine, error); /* a device that failed returns zeros, which must not be saved */
}

/* seq->kv: the cache's bytes, if the sequence is not in the cache; NULL: read them from the cache. */
static aerie_status save(const aerie_session *s, const ae_session_saved *seq, const double *mu, void **data, size_t *n,
                         aerie_error *error)
{
    uint8_t *kv;
    AE_TRY(lay_out(s, seq, mu, data, n, &kv, error));
    aerie_status status = AERIE_OK;
    if (seq->kv) memcpy(kv, seq->kv, ae_spec_saved_bytes(s->spec, seq->cached));
    else status = read_cache(s, seq, 0, seq->cached.n, kv, error);
    if (status == AERIE_OK) {
        ae_sections_seal(*data, *n);
        return AERIE_OK;
    }
    aerie_free(*data);
    *data = NULL;
    *n = 0;
    return status;
}

static aerie_status refuse_in_step(const aerie_session *s, aerie_error *error)
{
    if (!s->in_step) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "a callback may not save or load sequences: the pass has not ended");
}

aerie_status aerie_task_save(aerie_task *task, void **data, size_t *n, aerie_error *error)
{
    AE_NEED(data, error);
    *data = NULL;
    AE_NEED(task, error);
    AE_NEED(n, error);
    AE_TRY(ae_session_check_process(task->session, error));
    aerie_session *s = task->session;
    *n = 0;
    if (s->model->model->hparams.denoises)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "an answer that is being denoised cannot be saved: no part of it is "
                       "final in order");
    if (aerie_task_ended(task))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the request has ended; aerie_session_prefix_save saves what the KV "
                       "cache kept of it");
    AE_TRY(refuse_in_step(s, error));
    const ae_media_prompt *const prompt = &task->prompt;
    const ae_media *const media = prompt->n_media ? prompt->media : NULL;
    for (uint32_t slot = 0; slot < s->params.n_seqs; slot++) {
        if (s->running[slot] != task) continue;
        const ae_spec_sequence q = ae_spec_sequence_get(s->spec, slot);
        ae_session_saved seq = {.tokens = q.tokens, .n_tokens = q.n_tokens, .n_prompt = (uint32_t)(q.n_tokens - q.n_answered),
                            .adapters = *q.adapters, .refs = prompt->refs, .n_refs = prompt->n_media, .media = media};
        seq.cached = ae_spec_find_cached(s->spec, q.adapters, q.tokens, q.n_tokens);
        return save(s, &seq, task->request.sampling.mirostat ? &q.mu : NULL, data, n, error);
    }
    if (task->parked) {
        const ae_spec_sequence q = ae_spec_parked_get(task->parked);
        ae_session_saved seq = {.tokens = q.tokens, .n_tokens = q.n_tokens, .n_prompt = (uint32_t)(q.n_tokens - q.n_answered),
                                .adapters = task->adapters, .refs = prompt->refs, .n_refs = prompt->n_media,
                                .media = media};
        seq.cached = ae_spec_find_cached(s->spec, &task->adapters, q.tokens, q.n_tokens);
        return save(s, &seq, task->request.sampling.mirostat ? &q.mu : NULL, data, n, error);
    }
    /* the sequence has not started */
    const ae_session_saved *from = &task->saved;
    ae_session_saved seq = {.tokens = task->request.tokens, .n_tokens = task->request.n_tokens,
                        .n_prompt = (uint32_t)task->request.n_tokens, .adapters = task->adapters};
    if (from->memory) seq = *from;
    seq.refs = prompt->refs, seq.n_refs = prompt->n_media, seq.media = media;
    const ae_spec_cached cached = ae_spec_find_cached(s->spec, &seq.adapters, seq.tokens, seq.n_tokens);
    if (cached.has_state >= seq.cached.has_state && cached.n >= seq.cached.n) seq.kv = NULL, seq.cached = cached;
    return save(s, &seq, from->has_mu ? &from->mu : NULL, data, n, error);
}

/* A caller's tokens, with ids in place of marks. */
typedef struct own_tokens {
    void *memory;          /* owned, or NULL */
    const int32_t *tokens; /* [n] the caller's array if it has no marks */
    size_t n;              /* less than the caller's number if a mark belongs to rows that the session does not know */
    ae_media_ref *refs;    /* [n_refs] */
    uint32_t n_refs;
} own_tokens;

static aerie_status take_tokens(const aerie_session *s, const int32_t *tokens, size_t n, own_tokens *own, aerie_error *error)
{
    size_t n_marks = 0;
    *own = (own_tokens){.tokens = tokens, .n = n};
    for (size_t i = 0; i < n; i++) n_marks += tokens[i] < 0;
    if (!n_marks) return AERIE_OK;
    if (n > AE_SESSION_MAX_CTX)
        return ae_fail(error, AERIE_ERROR_LIMIT, "%zu tokens are more than any context holds", n);
    const size_t bytes = n_marks * sizeof *own->refs + n * sizeof *tokens;
    own->memory = ae_alloc(bytes, 1);
    if (!own->memory) return ae_fail_memory(error, "the tokens of a sequence", bytes);
    own->refs = own->memory;
    int32_t *copy = (int32_t *)(void *)(own->refs + n_marks);
    memcpy(copy, tokens, n * sizeof *copy);
    own->n = ae_media_find(s->media, copy, n, own->refs, &own->n_refs);
    own->tokens = copy;
    return AERIE_OK;
}

/* Keeps the rows among the first n positions. */
static void cut_rows(own_tokens *own, size_t n)
{
    while (own->n_refs && own->refs[own->n_refs - 1].first >= n) own->n_refs--;
    if (!own->n_refs) return;
    ae_media_ref *last = &own->refs[own->n_refs - 1];
    if (last->n > n - last->first) last->n = (uint32_t)(n - last->first);
}

/* A sequence that is being saved. */
struct aerie_saving {
    aerie_session *session; /* lent */
    own_tokens own;
    ae_session_saved seq;
    void *data;             /* [n] owned, until it is handed over */
    size_t n;
    uint8_t *kv;            /* in data */
    size_t position_bytes;  /* bytes of a position in layers without a window */
    uint32_t n_done;        /* positions */
    ae_sections_sum sum;
};

static aerie_status begin_saving(aerie_saving *saving, aerie_session *s, const int32_t *tokens, size_t n_tokens,
                                 const ae_adapter_set *set, aerie_error *error)
{
    own_tokens *own = &saving->own;
    if (n_tokens) AE_TRY(take_tokens(s, tokens, n_tokens, own, error));
    const ae_spec_cached cached = own->n ? ae_spec_find_cached(s->spec, set, own->tokens, own->n) : (ae_spec_cached){0};
    if (!cached.n)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the KV cache contains none of these %zu tokens; a request that ran them "
                       "comes first", n_tokens);
    cut_rows(own, cached.n);
    saving->session = s;
    saving->seq = (ae_session_saved){.tokens = own->tokens, .n_tokens = cached.n, .n_prompt = cached.n, .cached = cached,
                                     .adapters = *set, .refs = own->refs, .n_refs = own->n_refs};
    AE_TRY(lay_out(s, &saving->seq, NULL, &saving->data, &saving->n, &saving->kv, error));
    saving->position_bytes = ae_spec_saved_bytes(s->spec, (ae_spec_cached){1, 1, false});
    saving->sum = ae_sections_sum_begin(saving->data, saving->n);
    return AERIE_OK;
}

aerie_status aerie_session_saving_begin(aerie_session *s, uint64_t scope, const aerie_adapter_use *adapters, size_t n_adapters,
                                        const int32_t *tokens, size_t n_tokens, aerie_saving **saving, aerie_error *error)
{
    AE_NEED(saving, error);
    *saving = NULL;
    AE_NEED_AS(s, "session", error);
    AE_NEED_IF(n_tokens, tokens, error);
    AE_NEED_IF(n_adapters, adapters, error);
    AE_TRY(ae_session_check_process(s, error));
    AE_TRY(refuse_in_step(s, error));
    ae_adapter_set set;
    AE_TRY(ae_session_adapter_set(s, adapters, n_adapters, &set, error));
    set.scope = scope;
    aerie_saving *new = ae_alloc(1, sizeof *new);
    if (!new) return ae_fail_memory(error, "a sequence that is being saved", sizeof *new);
    const aerie_status status = begin_saving(new, s, tokens, n_tokens, &set, error);
    if (status == AERIE_OK) *saving = new;
    else aerie_saving_free(new);
    return status;
}

aerie_status aerie_saving_step(aerie_saving *saving, size_t n_positions, bool *done, aerie_error *error)
{
    AE_NEED(done, error);
    *done = false;
    AE_NEED(saving, error);
    AE_TRY(refuse_in_step(saving->session, error));
    if (!saving->data) return ae_fail(error, AERIE_ERROR_ARGUMENT, "what was saved has been taken already");
    const ae_session_saved *seq = &saving->seq;
    const uint32_t left = seq->cached.n - saving->n_done, n = n_positions < left ? (uint32_t)n_positions : left;
    AE_TRY(read_cache(saving->session, seq, saving->n_done, saving->n_done + n, saving->kv, error));
    saving->n_done += n;
    const uint8_t *end = saving->kv + saving->n_done * saving->position_bytes;
    ae_sections_sum_add(&saving->sum, saving->data, (size_t)(end - (const uint8_t *)saving->data));
    *done = saving->n_done == seq->cached.n;
    return AERIE_OK;
}

aerie_status aerie_saving_finish(aerie_saving *saving, void **data, size_t *n, size_t *n_tokens, aerie_error *error)
{
    AE_NEED(data, error);
    *data = NULL;
    AE_NEED(saving, error);
    AE_NEED(n, error);
    *n = 0;
    if (!saving->data || saving->n_done < saving->seq.cached.n)
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "there is nothing to take: aerie_saving_step has saved %u of %u positions%s",
                       saving->n_done, saving->seq.cached.n, saving->data ? "" : ", and they were taken before");
    ae_sections_sum_end(&saving->sum, saving->data, saving->n);
    *data = saving->data;
    *n = saving->n;
    if (n_tokens) *n_tokens = saving->seq.cached.n;
    saving->data = NULL;
    return AERIE_OK;
}

void aerie_saving_free(aerie_saving *saving)
{
    if (!saving) return;
    ae_free(saving->data);
    ae_free(saving->own.memory);
    ae_free(saving);
}

aerie_status aerie_session_prefix_save(aerie_session *s, uint64_t scope, const aerie_adapter_use *adapters, size_t n_adapters,
                                       const int32_t *tokens, size_t n_tokens, void **data, size_t *n, aerie_error *error)
{
    aerie_saving *saving;
    bool done;
    AE_NEED(data, error);
    *data = NULL;
    AE_NEED(n, error);
    *n = 0;
    AE_TRY(aerie_session_saving_begin(s, scope, adapters, n_adapters, tokens, n_tokens, &saving, error));
    aerie_status status = aerie_saving_step(saving, SIZE_MAX, &done, error);
    if (status == AERIE_OK) status = aerie_saving_finish(saving, data, n, NULL, error);
    aerie_saving_free(saving);
    return status;
}

size_t aerie_session_prefix_find(const aerie_session *s, uint64_t scope, const aerie_adapter_use *adapters, size_t n_adapters,
                                 const int32_t *tokens, size_t n_tokens)
{
    ae_adapter_set set;
    own_tokens own;
    if (!s || !tokens || !n_tokens || (n_adapters && !adapters) || ae_session_check_process(s, NULL) != AERIE_OK ||
        ae_session_adapter_set(s, adapters, n_adapters, &set, NULL) != AERIE_OK ||
        take_tokens(s, tokens, n_tokens, &own, NULL) != AERIE_OK)
        return 0;
    set.scope = scope;
    const ae_spec_cached cached = own.n ? ae_spec_find_cached(s->spec, &set, own.tokens, own.n) : (ae_spec_cached){0};
    ae_free(own.memory);
    return cached.has_state ? cached.n : 0;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static aerie_status fail_form(const char *what, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_FORMAT, "the saved sequence is malformed: %s", what);
}

/* Finds the section of this type; it must have at least `least` bytes. */
static aerie_status find_section(const ae_sections *sections, uint32_t type, size_t least, const char *what,
                                 const ae_section **section, aerie_error *error)
{
    *section = ae_sections_find(sections, type);
    if (!*section || (*section)->n < least) return fail_form(what, error);
    return AERIE_OK;
}

static aerie_status read_tokens(const ae_sections *sections, ae_session_saved *out, aerie_error *error)
{
    const ae_section *tokens;
    AE_TRY(find_section(sections, TOKENS, TOKENS_HEADER + sizeof(int32_t), "its tokens are missing", &tokens, error));
    const uint64_t n = (tokens->n - TOKENS_HEADER) / sizeof(int32_t);
    out->n_prompt = get_u32(tokens->data);
    if (tokens->n % sizeof(int32_t) || n > AE_SESSION_MAX_CTX || !out->n_prompt || out->n_prompt > n)
        return fail_form("its numbers of tokens contradict each other", error);
    out->n_tokens = (size_t)n;
    out->tokens = (const int32_t *)(const void *)(tokens->data + TOKENS_HEADER); /* aligned if the block is */
    return AERIE_OK;
}

static aerie_status check_model(const aerie_session *s, const ae_sections *sections, aerie_error *error)
{
    const ae_section *section;
    uint64_t saved[2];
    AE_TRY(find_section(sections, MODEL, sizeof saved, "it does not name its model", &section, error));
    memcpy(saved, section->data, sizeof saved);
    const int n_name = (int)(section->n - sizeof saved < 100 ? section->n - sizeof saved : 100);
    const char *name = (const char *)section->data + sizeof saved;
    if (saved[0] != s->model->fingerprint)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved with another model, \"%.*s\"; this one is "
                       "\"%s\"",
                       n_name, name, s->model->model->name);
    uint32_t above;
    const bool is_long = in_long_context(s, &above);
    if (above && saved[1] == settings_of(s, !is_long))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved in a context of %s %u positions; this one has "
                       "%u, and the model \"%.*s\" uses another RoPE in contexts longer than %u",
                       is_long ? "at most" : "more than", above, s->params.n_ctx, n_name, name, above);
    if (saved[1] != settings_of(s, is_long))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved with other RoPE parameters or metadata "
                       "overrides of the model \"%.*s\"; use the same ones to load it", n_name, name);
    return AERIE_OK;
}

static aerie_status read_kv(const aerie_session *s, const ae_sections *sections, ae_session_saved *out, aerie_error *error)
{
    const ae_section *kv;
    AE_TRY(find_section(sections, KV, KV_HEADER, "its part of the KV cache is missing", &kv, error));
    const uint32_t type = get_u32(kv->data), n = get_u32(kv->data + 4), bytes = get_u32(kv->data + 8);
    const uint32_t first = get_u32(kv->data + 12);
    const char *name = aerie_kv_type_name((aerie_kv_type)type);
    if (type != (uint32_t)s->params.kv_type)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved with a KV cache of type %s; this session's "
                       "is %s",
                       name ? name : "unknown", aerie_kv_type_name(s->params.kv_type));
    const ae_spec_cached whole = {n, first, true}, bare = {n, first, false};
    const bool sane = bytes == ae_spec_saved_bytes(s->spec, (ae_spec_cached){1, 1, false}) && n <= out->n_tokens &&
                      first <= n && (first % AE_KV_PAGE == 0 || first == n);
    if (sane && kv->n - KV_HEADER == ae_spec_saved_bytes(s->spec, whole)) out->cached = whole;
    else if (sane && kv->n - KV_HEADER == ae_spec_saved_bytes(s->spec, bare)) out->cached = bare;
    else return fail_form("its KV cache section has the wrong size", error);
    out->kv = kv->data + KV_HEADER;
    return AERIE_OK;
}

/* Finds the session's adapters with these fingerprints. */
static aerie_status read_adapters(const aerie_session *s, const ae_sections *sections, ae_adapter_set *out, aerie_error *error)
{
    const ae_section *section = ae_sections_find(sections, ADAPTERS);
    if (!section) return AERIE_OK;
    saved_adapter named[AERIE_MAX_ADAPTERS];
    out->n = (uint32_t)(section->n / sizeof *named);
    if (!out->n || section->n > sizeof named || section->n % sizeof *named)
        return fail_form("its list of adapters has the wrong size", error);
    memcpy(named, section->data, section->n);
    for (uint32_t i = 0; i < out->n; i++) {
        const ae_adapter *found = NULL;
        if (!isfinite(named[i].scale) || named[i].scale == 0.0f || named[i].zero ||
            (i && named[i - 1].fingerprint > named[i].fingerprint))
            return fail_form("its list of adapters is invalid", error);
        for (size_t k = 0; k < s->params.n_adapters && !found; k++)
            if (s->adapters[k]->adapter->fingerprint == named[i].fingerprint) found = s->adapters[k]->adapter;
        for (uint32_t k = 0; k < i; k++)
            if (found && out->list[k].adapter == found) found = NULL;
        if (!found)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved with %u adapters, of which number %u is not "
                           "one of the session's %zu", out->n, i + 1, s->params.n_adapters);
        out->list[i] = (ae_adapter_use){found, named[i].scale};
    }
    return AERIE_OK;
}

/* Reads which positions are not tokens, and puts the session's ids there. */
static aerie_status read_media(const aerie_session *s, const ae_sections *sections, ae_session_saved *out, aerie_error *error)
{
    const ae_section *media = ae_sections_find(sections, MEDIA), *rows = ae_sections_find(sections, ROWS);
    if (!media) return rows ? fail_form("its rows have no positions", error) : AERIE_OK;
    const uint64_t n = media->n / sizeof *out->refs;
    if (!n || media->n % sizeof *out->refs || n > out->n_prompt)
        return fail_form("its list of rows has the wrong size", error);
    out->refs = (const ae_media_ref *)(const void *)media->data;
    out->n_refs = (uint32_t)n;
    int32_t *tokens = (int32_t *)out->tokens; /* of out->memory */
    for (uint32_t i = 0, end = 0; i < n; i++) {
        const ae_media_ref *r = &out->refs[i];
        const bool whole = r->n == r->n_rows, sane = r->first >= end && r->n && r->n <= r->n_rows && !r->reserved &&
                                                     r->n_rows <= AE_SESSION_MAX_CTX && r->group <= 1 &&
                                                     r->n <= out->n_prompt && r->first <= out->n_prompt - r->n;
        if (!sane || (!whole && (rows || r->first + r->n != out->n_tokens)))
            return fail_form("the positions of its rows contradict each other", error);
        end = r->first + r->n;
        if (!ae_media_has_marks(r, tokens)) return fail_form("its tokens are not those of its rows", error);
    }
    if (rows && rows->n != ae_media_n_floats(out->refs, out->n_refs, &s->model->model->hparams) * sizeof(float))
        return fail_form("its rows have the wrong size", error);
    out->rows = rows ? (const float *)(const void *)rows->data : NULL;
    return ae_media_enter(s->media, out->refs, out->n_refs, tokens, error);
}

static aerie_status open_saved(const void *data, size_t n, ae_sections *sections, aerie_error *error)
{
    static const uint32_t known[] = {MODEL, TOKENS, KV, SAMPLER, ADAPTERS, MEDIA, ROWS};
    AE_TRY(ae_sections_open(sections, data, n, error));
    return ae_sections_check_known(sections, known, sizeof known / sizeof known[0], error);
}

/* data is aligned to 8 bytes. */
static aerie_status read_saved(const aerie_session *s, const void *data, size_t n, ae_session_saved *out,
                                   aerie_error *error)
{
    ae_sections sections;
    AE_TRY(open_saved(data, n, &sections, error));
    AE_TRY(read_tokens(&sections, out, error));
    AE_TRY(check_model(s, &sections, error));
    AE_TRY(read_kv(s, &sections, out, error));
    AE_TRY(read_adapters(s, &sections, &out->adapters, error));
    AE_TRY(read_media(s, &sections, out, error));
    const ae_section *sampler = ae_sections_find(&sections, SAMPLER);
    if (!sampler) return AERIE_OK;
    if (sampler->n != sizeof out->mu) return fail_form("the state of its sampler has the wrong size", error);
    memcpy(&out->mu, sampler->data, sizeof out->mu);
    out->has_mu = true;
    return isfinite(out->mu) ? AERIE_OK : fail_form("the state of its sampler is not a finite number", error);
}

aerie_status ae_session_saved_copy(const aerie_session *s, const void *data, size_t n, ae_session_saved *out,
                                   aerie_error *error)
{
    *out = (ae_session_saved){0};
    out->memory = data ? ae_alloc(n + 1, 1) : NULL;
    if (!data)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a saved sequence of %zu bytes is announced, but its data is NULL", n);
    if (!out->memory) return ae_fail_memory(error, "a saved sequence", n);
    memcpy(out->memory, data, n);
    const aerie_status status = read_saved(s, out->memory, n, out, error);
    if (status != AERIE_OK) ae_session_saved_free(out);
    return status;
}

void ae_session_saved_free(ae_session_saved *saved)
{
    ae_free(saved->memory);
    *saved = (ae_session_saved){0};
}

aerie_status ae_session_saved_prompt(const aerie_session *s, ae_session_saved *saved, ae_media_prompt *prompt,
                                     aerie_error *error)
{
    const ae_hparams *h = &s->model->model->hparams;
    const size_t n_embd = (1 + h->n_deepstack) * (size_t)h->n_embd;
    const float *rows = saved->rows;
    if (!rows)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence contains images and was saved without their rows, as a "
                       "prefix of prompts; only a saved task can be resumed");
    aerie_chunk *chunks = ae_alloc(2 * (size_t)saved->n_refs + 1, sizeof *chunks);
    if (!chunks) return ae_fail_memory(error, "the prompt of a saved sequence", saved->n_refs * sizeof *chunks);
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < saved->n_refs; i++) {
        const ae_media_ref *r = &saved->refs[i];
        if (r->first > at) chunks[n++] = (aerie_chunk){.tokens = saved->tokens + at, .n_tokens = r->first - at};
        chunks[n++] = (aerie_chunk){.rows = rows, .n_rows = r->n, .group = r->group, .n_across = r->n_across};
        rows += r->n * n_embd;
        at = r->first + r->n;
    }
    if (saved->n_tokens > at) chunks[n++] = (aerie_chunk){.tokens = saved->tokens + at, .n_tokens = saved->n_tokens - at};
    aerie_status status = ae_media_prompt_make(prompt, s->media, chunks, n, h, s->params.n_ctx, error);
    ae_free(chunks);
    if (status != AERIE_OK) return status;
    for (uint32_t i = 0; i < saved->n_refs && status == AERIE_OK; i++)
        if (memcmp(&prompt->refs[i], &saved->refs[i], sizeof *saved->refs))
            status = fail_form("its rows are others than it names", error);
    if (status == AERIE_OK) saved->tokens = prompt->tokens;
    else ae_media_prompt_free(prompt);
    return status;
}

aerie_status ae_session_replay_text(aerie_task *task, aerie_error *error)
{
    const ae_session_saved *saved = &task->saved;
    ae_buf certain = {0}, text = {0};
    bool found = false;
    for (size_t i = saved->n_prompt; i < saved->n_tokens && !found; i++) {
        uint32_t n;
        const char *piece = ae_session_piece(task, saved->tokens[i], &n);
        if (task->stops) found = ae_stops_feed(task->stops, piece, n, &certain);
        else ae_buf_add(&certain, piece, n);
        ae_detok_bytes(&task->detok, certain.data, certain.n, &text);
        ae_buf_clear(&certain);
        ae_buf_clear(&text);
    }
    const bool failed = certain.failed || text.failed;
    ae_buf_free(&certain);
    ae_buf_free(&text);
    if (failed) return ae_fail_memory(error, "the text of a saved answer", 0);
    if (found)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the saved answer to continue contains one of the stop strings");
    return AERIE_OK;
}

/* A sequence that is being loaded. */
struct aerie_loading {
    aerie_session *session; /* lent */
    ae_session_saved saved; /* a copy */
    uint32_t n_done;        /* positions */
};

static aerie_status check_tokens(const aerie_session *s, const ae_session_saved *saved, aerie_error *error)
{
    const int32_t n_vocab = ae_vocab_n_tokens(s->model->vocab);
    for (uint32_t i = 0, m = 0; i < saved->cached.n; i++) {
        while (m < saved->n_refs && saved->refs[m].first + saved->refs[m].n <= i) m++;
        const bool is_row = m < saved->n_refs && i >= saved->refs[m].first;
        if (!is_row && (saved->tokens[i] < 0 || saved->tokens[i] >= n_vocab))
            return fail_form("a token is out of range", error);
    }
    return AERIE_OK;
}

aerie_status aerie_session_loading_begin(aerie_session *s, uint64_t scope, const void *data, size_t n, aerie_loading **loading,
                                         aerie_error *error)
{
    AE_NEED(loading, error);
    *loading = NULL;
    AE_NEED_AS(s, "session", error);
    AE_NEED_IF(n, data, error);
    AE_TRY(ae_session_check_process(s, error));
    aerie_loading *new = ae_alloc(1, sizeof *new);
    if (!new) return ae_fail_memory(error, "a sequence that is being loaded", sizeof *new);
    new->session = s;
    aerie_status status = ae_session_saved_copy(s, data, n, &new->saved, error);
    if (status == AERIE_OK) status = check_tokens(s, &new->saved, error);
    new->saved.adapters.scope = scope;
    if (status == AERIE_OK) *loading = new;
    else aerie_loading_free(new);
    return status;
}

aerie_status aerie_loading_step(aerie_loading *loading, size_t n_positions, bool *done, size_t *n_loaded, aerie_error *error)
{
    AE_NEED(done, error);
    *done = false;
    if (n_loaded) *n_loaded = 0;
    AE_NEED(loading, error);
    AE_TRY(refuse_in_step(loading->session, error));
    ae_spec *spec = loading->session->spec;
    const ae_session_saved *saved = &loading->saved;
    const uint32_t left = saved->cached.n - loading->n_done;
    const uint32_t n = n_positions < left ? ((uint32_t)n_positions + AE_KV_PAGE - 1) / AE_KV_PAGE * AE_KV_PAGE : left;
    const uint32_t end = loading->n_done + (n < left ? n : left);
    const bool whole = ae_spec_write_cached(spec, &saved->adapters, saved->tokens, saved->cached, loading->n_done, end,
                                            saved->kv);
    loading->n_done = whole ? end : saved->cached.n; /* there is no room for more */
    *done = loading->n_done == saved->cached.n;
    if (*done && n_loaded) *n_loaded = ae_spec_find_cached(spec, &saved->adapters, saved->tokens, saved->cached.n).n;
    return AERIE_OK;
}

void aerie_loading_free(aerie_loading *loading)
{
    if (!loading) return;
    ae_session_saved_free(&loading->saved);
    ae_free(loading);
}

aerie_status aerie_session_prefix_load(aerie_session *s, uint64_t scope, const void *data, size_t n, size_t *n_loaded,
                                       aerie_error *error)
{
    aerie_loading *loading;
    bool done;
    if (n_loaded) *n_loaded = 0;
    AE_TRY(aerie_session_loading_begin(s, scope, data, n, &loading, error));
    const aerie_status status = aerie_loading_step(loading, SIZE_MAX, &done, n_loaded, error);
    aerie_loading_free(loading);
    return status;
}

aerie_status aerie_saved_tokens(const void *data, size_t n, int32_t **tokens, size_t *n_tokens, size_t *n_prompt,
                                aerie_error *error)
{
    AE_NEED(tokens, error);
    *tokens = NULL;
    AE_NEED(n_tokens, error);
    AE_NEED_IF(n, data, error);
    ae_sections sections;
    ae_session_saved saved = {0};
    *n_tokens = 0;
    AE_TRY(open_saved(data, n, &sections, error));
    AE_TRY(read_tokens(&sections, &saved, error));
    int32_t *copy = ae_alloc(saved.n_tokens, sizeof *copy);
    if (!copy) return ae_fail_memory(error, "the tokens of a saved sequence", saved.n_tokens * sizeof *copy);
    memcpy(copy, saved.tokens, saved.n_tokens * sizeof *copy);
    *tokens = copy;
    *n_tokens = saved.n_tokens;
    if (n_prompt) *n_prompt = saved.n_prompt;
    return AERIE_OK;
}
