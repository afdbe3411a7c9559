/* media.c - the chunks of prompts, and ids for rows that are not tokens (media.h); for encoder-decoders the rows of sources. */
#include "session/media.h"

#include <math.h>
#include <pthread.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "engine/embed.h"
#include "session/session_int.h"

#define N_KNOWN 1024 /* number of chunks that a session recognises when they are used again */

struct ae_media_table {
    pthread_mutex_t lock;
    struct known {
        ae_media_ref ref; /* without positions */
        int32_t mark;     /* of its row 0 */
        int32_t first;    /* id of its row 0; later rows have lower ids */
        uint64_t last_use;
    } known[N_KNOWN];
    uint32_t n_known;
    int32_t next;         /* the highest id that has not been used yet */
    uint64_t n_uses;
};

ae_media_table *ae_media_table_create(void)
{
    ae_media_table *t = ae_alloc(1, sizeof *t);
    if (!t) return NULL;
    if (pthread_mutex_init(&t->lock, NULL)) {
        ae_free(t);
        return NULL;
    }
    t->next = -1;
    return t;
}

void ae_media_table_free(ae_media_table *table)
{
    if (!table) return;
    pthread_mutex_destroy(&table->lock);
    ae_free(table);
}

/* A digest stands for one number of rows. Untrusted bytes that give it another number get an entry, and ids, of their own. */
static struct known *find(ae_media_table *t, const ae_media_ref *ref)
{
    for (uint32_t i = 0; i < t->n_known; i++) {
        const ae_media_ref *known = &t->known[i].ref;
        if (known->n_rows == ref->n_rows && !memcmp(known->digest, ref->digest, sizeof ref->digest)) return &t->known[i];
    }
    return NULL;
}

static int32_t mark_of(const ae_media_ref *ref, uint32_t i_row)
{
    const uint64_t hash = ae_hash64(i_row, ref->digest, sizeof ref->digest);
    return -1 - (int32_t)(hash & INT32_MAX);
}

/* Returns the entry for a new chunk: a free one, or that of the least recently used chunk. */
static struct known *place(ae_media_table *t)
{
    struct known *oldest = &t->known[0];
    if (t->n_known < N_KNOWN) return &t->known[t->n_known++];
    for (uint32_t i = 1; i < N_KNOWN; i++)
        if (t->known[i].last_use < oldest->last_use) oldest = &t->known[i];
    return oldest;
}

/* Returns the id of row 0; 0 if there are not enough ids left. */
static int32_t intern(ae_media_table *t, const ae_media_ref *ref)
{
    int32_t first = 0;
    pthread_mutex_lock(&t->lock);
    struct known *k = find(t, ref);
    if (k) {
        first = k->first;
    } else if (t->next >= INT32_MIN + (int32_t)ref->n_rows + 1) {
        first = t->next;
        t->next -= (int32_t)ref->n_rows;
        k = place(t);
        *k = (struct known){.ref = *ref, .mark = mark_of(ref, 0), .first = first};
    }
    if (k) k->last_use = ++t->n_uses;
    pthread_mutex_unlock(&t->lock);
    return first;
}

static aerie_status fail_ids(aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_LIMIT,
                   "the session has seen 2^31 image rows and has no ids left for more; create a new session");
}

static uint8_t hex(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static ae_media_ref ref_of(const aerie_chunk *c, uint32_t first, uint32_t n_embd)
{
    char digest[65];
    ae_media_ref ref = {.first = first, .n = (uint32_t)c->n_rows, .n_rows = (uint32_t)c->n_rows, .n_across = c->n_across,
                        .group = c->group};
    const uint64_t head[] = {c->n_rows, n_embd, c->group, c->n_across};
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, head, sizeof head);
    ae_sha256_add(&hash, c->rows, c->n_rows * n_embd * sizeof(float));
    ae_sha256_end(&hash, digest);
    for (int i = 0; i < 32; i++) ref.digest[i] = (uint8_t)(hex(digest[2 * i]) << 4 | hex(digest[2 * i + 1]));
    return ref;
}

static aerie_status check_chunk(const aerie_chunk *c, size_t i, uint32_t n_embd, aerie_error *error)
{
    AE_TRY(ae_struct_check_reserved(c->reserved, sizeof c->reserved / sizeof *c->reserved, "aerie_chunk", error));
    if (!c->n_tokens == !c->n_rows || (c->n_tokens && !c->tokens) || (c->n_rows && !c->rows))
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "chunk %zu of the prompt has %zu tokens and %zu rows; it must have one or the "
                       "other", i, c->n_tokens, c->n_rows);
    for (size_t k = 0; k < c->n_tokens; k++)
        if (c->tokens[k] < 0)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu in chunk %zu of the prompt is %d", k, i, c->tokens[k]);
    if (c->n_across && (c->n_across > c->n_rows || c->n_rows % c->n_across))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "chunk %zu of the prompt has %zu rows, which do not fill lines of %u",
                       i, c->n_rows, (unsigned)c->n_across);
    if (c->n_rows > UINT32_MAX || c->n_tokens > UINT32_MAX) return AERIE_OK; /* more than any context holds */
    for (size_t k = 0; k < c->n_rows * n_embd; k++)
        if (!isfinite(c->rows[k]))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "row %zu in chunk %zu of the prompt has a number that is not finite",
                           k / n_embd, i);
    return AERIE_OK;
}

/* Lays out the parts of the prompt's memory. */
static void layout(ae_layout *l, size_t n_floats, size_t n_tokens, size_t n_media, ae_media_prompt *p, float **rows)
{
    *rows = ae_layout_add(l, n_floats, sizeof **rows);
    p->tokens = ae_layout_add(l, n_tokens, sizeof *p->tokens);
    p->media = ae_layout_add(l, n_media, sizeof *p->media);
    p->refs = ae_layout_add(l, n_media, sizeof *p->refs);
}

static aerie_status fill(ae_media_prompt *p, ae_media_table *table, const aerie_chunk *chunks, size_t n_chunks,
                         const ae_hparams *h, float *rows, aerie_error *error)
{
    const uint32_t n_planes = 1 + h->n_deepstack, n_embd = n_planes * h->n_embd;
    uint32_t at = 0;
    for (size_t i = 0; i < n_chunks; i++) {
        const aerie_chunk *c = &chunks[i];
        if (c->n_tokens) {
            memcpy(p->tokens + at, c->tokens, c->n_tokens * sizeof *c->tokens);
            at += (uint32_t)c->n_tokens;
            continue;
        }
        for (size_t k = 0; k < c->n_rows * n_planes; k++) /* row k / n_planes, plane k % n_planes */
            memcpy(rows + (k % n_planes * c->n_rows + k / n_planes) * h->n_embd, c->rows + k * h->n_embd,
                   h->n_embd * sizeof *rows);
        p->refs[p->n_media] = ref_of(c, at, n_embd);
        const int32_t first = intern(table, &p->refs[p->n_media]);
        if (!first) return fail_ids(error);
        for (uint32_t k = 0; k < c->n_rows; k++) p->tokens[at + k] = first - (int32_t)k;
        p->media[p->n_media++] = (ae_media){at, (uint32_t)c->n_rows, rows, c->group, c->n_across};
        rows += c->n_rows * n_embd;
        at += (uint32_t)c->n_rows;
    }
    return AERIE_OK;
}

aerie_status ae_media_prompt_make(ae_media_prompt *out, ae_media_table *table, const aerie_chunk *chunks, size_t n_chunks,
                                  const ae_hparams *h, uint32_t n_ctx, aerie_error *error)
{
    const uint32_t n_embd = (1 + h->n_deepstack) * h->n_embd;
    size_t n_rows = 0, n_media = 0;
    *out = (ae_media_prompt){0};
    for (size_t i = 0; i < n_chunks; i++) {
        AE_TRY(check_chunk(&chunks[i], i, n_embd, error));
        n_rows += chunks[i].n_rows;
        n_media += chunks[i].n_rows != 0;
        out->n_tokens += chunks[i].n_tokens + chunks[i].n_rows;
        if (chunks[i].n_rows >= n_ctx || chunks[i].n_tokens >= n_ctx || out->n_tokens >= n_ctx)
            return ae_fail(error, AERIE_ERROR_LIMIT,
                           "the prompt has %zu tokens and rows of images (%zu of them rows), but the context holds %u and one "
                           "must be left for the answer; use a larger context (-c) or a shorter prompt",
                           out->n_tokens, n_rows, n_ctx);
    }
    float *rows;
    ae_layout l = {0};
    layout(&l, n_rows * n_embd, out->n_tokens, n_media, out, &rows);
    out->memory = l.overflow ? NULL : ae_alloc_aligned(1, l.bytes ? l.bytes : 1);
    if (!out->memory) return ae_fail_memory(error, "the rows of a prompt", l.bytes);
    l = (ae_layout){.base = out->memory};
    layout(&l, n_rows * n_embd, out->n_tokens, n_media, out, &rows);
    const aerie_status status = fill(out, table, chunks, n_chunks, h, rows, error);
    if (status != AERIE_OK) ae_media_prompt_free(out);
    return status;
}

void ae_media_prompt_free(ae_media_prompt *prompt)
{
    ae_free(prompt->memory);
    *prompt = (ae_media_prompt){0};
}

/* ---- Marks ---------------------------------------------------------------------------------------------------- */

aerie_status ae_media_marks(const aerie_chunk *chunks, size_t n_chunks, const ae_hparams *h, int32_t *tokens,
                            aerie_error *error)
{
    const uint32_t n_embd = (1 + h->n_deepstack) * h->n_embd;
    size_t at = 0;
    for (size_t i = 0; i < n_chunks; i++) {
        const aerie_chunk *c = &chunks[i];
        AE_TRY(check_chunk(c, i, n_embd, error));
        if (c->n_rows > AE_SESSION_MAX_CTX || c->n_tokens > AE_SESSION_MAX_CTX - c->n_rows ||
            at > AE_SESSION_MAX_CTX - c->n_rows - c->n_tokens)
            return ae_fail(error, AERIE_ERROR_LIMIT, "the chunks have more than %u tokens and rows", AE_SESSION_MAX_CTX);
        if (c->n_tokens) memcpy(tokens + at, c->tokens, c->n_tokens * sizeof *tokens);
        if (c->n_rows) {
            const ae_media_ref ref = ref_of(c, (uint32_t)at, n_embd);
            ae_media_write_marks(&ref, 1, tokens);
        }
        at += c->n_tokens + c->n_rows;
    }
    return AERIE_OK;
}

void ae_media_write_marks(const ae_media_ref *refs, uint32_t n, int32_t *tokens)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < refs[i].n; k++) tokens[refs[i].first + k] = mark_of(&refs[i], k);
}

bool ae_media_has_marks(const ae_media_ref *ref, const int32_t *tokens)
{
    for (uint32_t k = 0; k < ref->n; k++)
        if (tokens[ref->first + k] != mark_of(ref, k)) return false;
    return true;
}

/* Returns how many of tokens[0..n) are the marks of this chunk, from its first row on. */
static uint32_t count_marks(const struct known *k, const int32_t *tokens, size_t n)
{
    uint32_t i = tokens[0] == k->mark;
    while (i && i < k->ref.n_rows && i < n && tokens[i] == mark_of(&k->ref, i)) i++;
    return i;
}

size_t ae_media_find(ae_media_table *table, int32_t *tokens, size_t n, ae_media_ref *refs, uint32_t *n_refs)
{
    size_t at = 0;
    *n_refs = 0;
    pthread_mutex_lock(&table->lock);
    while (at < n) {
        if (tokens[at] >= 0) {
            at++;
            continue;
        }
        struct known *found = NULL;
        uint32_t n_found = 0;
        for (uint32_t i = 0; i < table->n_known; i++) {
            const uint32_t n_marks = count_marks(&table->known[i], tokens + at, n - at);
            if (n_marks > n_found) found = &table->known[i], n_found = n_marks;
        }
        if (!found || (n_found < found->ref.n_rows && at + n_found < n)) break;
        found->last_use = ++table->n_uses;
        refs[*n_refs] = found->ref;
        refs[*n_refs].first = (uint32_t)at;
        refs[(*n_refs)++].n = n_found;
        for (uint32_t k = 0; k < n_found; k++) tokens[at + k] = found->first - (int32_t)k;
        at += n_found;
    }
    pthread_mutex_unlock(&table->lock);
    return at;
}

aerie_status ae_media_enter(ae_media_table *table, const ae_media_ref *refs, uint32_t n_refs, int32_t *tokens,
                            aerie_error *error)
{
    for (uint32_t i = 0; i < n_refs; i++) {
        const int32_t first = intern(table, &refs[i]);
        if (!first) return fail_ids(error);
        for (uint32_t k = 0; k < refs[i].n; k++) tokens[refs[i].first + k] = first - (int32_t)k;
    }
    return AERIE_OK;
}

/* ---- Rows ----------------------------------------------------------------------------------------------------- */

uint64_t ae_media_n_floats(const ae_media_ref *refs, uint32_t n, const ae_hparams *h)
{
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++) n_rows += refs[i].n;
    return n_rows * (1 + h->n_deepstack) * h->n_embd;
}

void ae_media_write_rows(const ae_media *media, uint32_t n, const ae_hparams *h, float *out)
{
    const size_t n_planes = 1 + h->n_deepstack, n_embd = h->n_embd;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < media[i].n * n_planes; k++) /* row k / n_planes, plane k % n_planes */
            memcpy(out + k * n_embd, media[i].rows + (k % n_planes * media[i].n + k / n_planes) * n_embd,
                   n_embd * sizeof *out);
        out += media[i].n * n_planes * n_embd;
    }
}

/* ---- Sources ---------------------------------------------------------------------------------------------------- */

struct ae_session_source {
    pthread_mutex_t lock;
    ae_embedder *encoder;
};

static ae_embed_options source_options(uint32_t n_ctx)
{
    return (ae_embed_options){.n_ctx = n_ctx, .n_batch = n_ctx, .n_seqs = 1, .pooling = AE_POOLING_MEAN, .normalize = -1};
}

uint64_t ae_session_source_bytes(const ae_model *source, const ae_backend *backend, uint32_t n_ctx)
{
    const ae_embed_options o = source_options(n_ctx);
    return ae_embedder_plan_bytes(source, backend, &o);
}

aerie_status ae_session_source_open(aerie_session *s, aerie_error *error)
{
    const aerie_model *m = s->model;
    ae_embed_options o = source_options(s->params.n_ctx);
    if (!m->source) return AERIE_OK;
    o.pool = ae_engine_pool(s->engine);
    AE_TRY(ae_session_check_memory(m->source_net->backend, "the encoder of a session of this context size",
                                   ae_session_source_bytes(m->source, m->source_net->backend, o.n_ctx),
                                   "a smaller context (-c) would fit", error));
    struct ae_session_source *source = ae_alloc(1, sizeof *source);
    if (!source) return ae_fail_memory(error, "an encoder", sizeof *source);
    if (pthread_mutex_init(&source->lock, NULL)) {
        ae_free(source);
        return ae_fail(error, AERIE_ERROR_MEMORY, "the system has no room for a lock");
    }
    s->source = source;
    return ae_embedder_create(&source->encoder, m->source_net, &o, error);
}

void ae_session_source_close(aerie_session *s)
{
    if (!s->source) return;
    ae_embedder_free(s->source->encoder);
    pthread_mutex_destroy(&s->source->lock);
    ae_free(s->source);
    s->source = NULL;
}

aerie_status ae_session_source_prompt(aerie_session *s, aerie_request *request, ae_media_prompt *prompt, aerie_error *error)
{
    const int32_t *tokens = request->tokens;
    const size_t n = request->n_tokens;
    const ae_hparams *h = &s->model->model->hparams;
    const int32_t n_vocab = (int32_t)h->n_vocab;
    if (n + 1 >= s->params.n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the source text has %zu tokens, but the context holds %u, of which two must "
                       "be left for the generated text; use a larger context (-c) or a shorter source", n,
                       s->params.n_ctx);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of the prompt is %d; 0 to %d are possible", i, tokens[i],
                           n_vocab - 1);
    float *rows = ae_alloc(n * h->n_embd, sizeof *rows);
    if (!rows) return ae_fail_memory(error, "the rows of a source", n * h->n_embd * sizeof *rows);
    pthread_mutex_lock(&s->source->lock);
    const ae_embed_text text = {.tokens = tokens, .n = (uint32_t)n, .n_first = (uint32_t)n};
    aerie_status status = ae_embedder_rows(s->source->encoder, &text, rows, error);
    pthread_mutex_unlock(&s->source->lock);
    const aerie_chunk chunks[] = {{.rows = rows, .n_rows = n}, {.tokens = &h->start_token, .n_tokens = 1}};
    if (status == AERIE_OK) status = ae_media_prompt_make(prompt, s->media, chunks, 2, h, s->params.n_ctx, error);
    ae_free(rows);
    request->tokens = prompt->tokens;
    request->n_tokens = prompt->n_tokens;
    return status;
}
