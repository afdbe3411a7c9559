/* media.c - the chunks of prompts, and ids for rows that are no tokens (media.h). */
#include "session/media.h"

#include <math.h>
#include <pthread.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "session/session_int.h"

#define N_KNOWN 1024 /* number of chunks that a session recognises when they come again */

struct ae_media_table {
    pthread_mutex_t lock;
    struct known {
        char digest[65];
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

static struct known *find(ae_media_table *t, const char *digest)
{
    for (uint32_t i = 0; i < t->n_known; i++)
        if (!memcmp(t->known[i].digest, digest, sizeof t->known[i].digest)) return &t->known[i];
    return NULL;
}

/* The entry for a new chunk: a free one, or that of the least recently used chunk. */
static struct known *place(ae_media_table *t)
{
    struct known *oldest = &t->known[0];
    if (t->n_known < N_KNOWN) return &t->known[t->n_known++];
    for (uint32_t i = 1; i < N_KNOWN; i++)
        if (t->known[i].last_use < oldest->last_use) oldest = &t->known[i];
    return oldest;
}

/* The id of row 0; 0 if there are not enough ids left. */
static int32_t intern(ae_media_table *t, const char *digest, uint32_t n_rows)
{
    int32_t first = 0;
    pthread_mutex_lock(&t->lock);
    struct known *k = find(t, digest);
    if (k) {
        first = k->first;
    } else if (t->next >= INT32_MIN + (int32_t)n_rows + 1) {
        first = t->next;
        t->next -= (int32_t)n_rows;
        k = place(t);
        memcpy(k->digest, digest, sizeof k->digest);
        k->first = first;
    }
    if (k) k->last_use = ++t->n_uses;
    pthread_mutex_unlock(&t->lock);
    return first;
}

static void digest_of(const aerie_chunk *c, uint32_t n_embd, char out[65])
{
    const uint64_t head[] = {c->n_rows, n_embd, c->group, c->n_across};
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, head, sizeof head);
    ae_sha256_add(&hash, c->rows, c->n_rows * n_embd * sizeof(float));
    ae_sha256_end(&hash, out);
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
        char digest[65];
        for (size_t k = 0; k < c->n_rows * n_planes; k++) /* row k / n_planes, plane k % n_planes */
            memcpy(rows + (k % n_planes * c->n_rows + k / n_planes) * h->n_embd, c->rows + k * h->n_embd,
                   h->n_embd * sizeof *rows);
        digest_of(c, n_embd, digest);
        const int32_t first = intern(table, digest, (uint32_t)c->n_rows);
        if (!first)
            return ae_fail(error, AERIE_ERROR_LIMIT,
                           "the session has seen 2^31 rows that are no tokens and has no number left for "
                           "another; a new session has");
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
                           "the prompt has %zu tokens and rows (%zu of them rows), but the context holds %u and one must be "
                           "left for the answer; a larger context (-c) or a shorter prompt is needed",
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
