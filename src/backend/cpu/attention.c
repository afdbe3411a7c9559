/* attention.c - rotation, writing keys and values, attention, which positions it reads: which thread does what.
 *
 * Owns nothing but scratch of the stream. An item of attention is a tile of queries of one sequence and KV head; when
 * these are too few for the threads, also a range of chunks, whose parts are then merged in ascending order: the same
 * operations as without a split, so threads change no bit.
 * Where rows choose positions, a score is a chain of its own, and the choice depends on scores and positions alone. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/ref/ref.h"

static void table_item(void *context, uint32_t r, uint32_t i_worker)
{
    const ae_rope_table *a = context;
    const size_t half = a->n_rot / 2;
    const int32_t pos = a->every > 1 ? a->pos[r] - a->pos[r] % (int32_t)a->every : a->pos[r];
    (void)i_worker;
    ae_ref_rope_table(pos, a->freq, a->magnitude, a->n_rot, a->cos + r * half, a->sin + r * half);
}

void ae_cpu_rope_table(ae_stream *stream, const ae_rope_table *args)
{
    if (args->n_rows > 4) ae_pool_run(stream->pool, table_item, (void *)args, args->n_rows);
    else for (uint32_t r = 0; r < args->n_rows; r++) table_item((void *)args, r, 0);
}

/* Returns the page table of a row's sequence. */
static const int32_t *places_table(const ae_places *p, uint32_t row)
{
    return p->tables + (size_t)p->seq[row] * p->table_stride;
}

typedef struct rope_job {
    ae_stream *stream;
    const ae_rope_kv *args;
} rope_job;

/* Norms n_heads heads of queries or keys. */
static void norm_heads(const ae_kernels *k, const ae_rope_kv *a, float *x, uint32_t n_heads, const float *weight)
{
    const uint32_t dim = a->norm_row ? n_heads * a->head_dim : a->head_dim;
    for (uint32_t h = 0; a->norm_layer && h < n_heads; h++, x += dim, weight += dim)
        k->layernorm(x, weight, NULL, a->norm_eps, dim, x);
    for (uint32_t h = 0; !a->norm_layer && h < (a->norm_row ? 1 : n_heads); h++)
        k->rmsnorm(x + (size_t)h * dim, weight, a->norm_eps, dim, x + (size_t)h * dim);
}

/* Norms and rotates the queries or keys of row r. */
static void turn(const ae_kernels *k, const ae_rope_kv *a, uint32_t r, float *x, uint32_t n_heads, const float *weight)
{
    const size_t at = (size_t)r * (a->n_rot / 2);
    if (weight && !a->norm_last) norm_heads(k, a, x, n_heads, weight);
    if (a->n_rot) k->rope(x, n_heads, a->head_dim, a->n_rot, a->kind, a->cos + at, a->sin + at);
    if (weight && a->norm_last) norm_heads(k, a, x, n_heads, weight);
}

static void rope_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rope_job *job = context;
    const ae_rope_kv *a = job->args;
    const ae_kernels *k = &job->stream->backend->kernels;
    const ae_places *places = a->places;
    const uint32_t q_dim = a->n_heads * a->head_dim, kv_dim = a->n_kv_heads * a->head_dim;
    const int32_t slot = places->slot[r], *table = places_table(places, r);
    float *q = a->q + (size_t)r * q_dim;
    turn(k, a, r, q, a->n_heads, a->q_norm);
    if (a->q_scale)
        for (uint32_t i = 0; i < q_dim; i++) q[i] *= a->q_scale[r];
    if (!a->k) return;
    float *kr = a->k + (size_t)r * kv_dim, *vr = a->v ? a->v + (size_t)r * kv_dim : NULL;
    turn(k, a, r, kr, a->n_kv_heads, a->k_norm);
    uint8_t *page = kv_page(a->kv, table[slot / AE_KV_PAGE], a->layer);
    const ae_kv_layer *shape = &a->kv->layers[a->layer].shape;
    if (shape->n_rope) {
        k->latent_write[a->kv->type](kr, shape->n_rope, shape->head_dim, page, (uint32_t)slot % AE_KV_PAGE);
        return;
    }
    if (shape->one_row) {
        ae_cpu_row_store(k, a->kv->type, a->head_dim, kr, job->stream->attn_work + i_worker * AE_ATTN_WORK, page,
                         (uint32_t)slot % AE_KV_PAGE);
        return;
    }
    for (uint32_t h = 0; h < a->n_kv_heads; h++, page += a->kv->layers[a->layer].head_bytes) {
        float *v = vr + h * a->head_dim;
        if (a->v_norm) k->rmsnorm(v, a->v_norm, a->norm_eps, a->head_dim, v);
        k->kv_write[a->kv->type](kr + h * a->head_dim, v, a->head_dim, page, (uint32_t)slot % AE_KV_PAGE);
    }
}

/* Checks that rows are not written outside the pages. */
static bool slots_exist(ae_stream *stream, const char *name, const ae_places *p, const ae_kv_store *kv)
{
    for (uint32_t r = 0; r < p->n_rows; r++) {
        const int32_t page = p->slot[r] < 0 ? -1 : places_table(p, r)[p->slot[r] / AE_KV_PAGE];
        if ((uint32_t)page < kv->n_pages) continue;
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "%s of %u rows: row %u goes to page %d of %u; please report",
                        name, p->n_rows, r, page, kv->n_pages);
        return false;
    }
    return true;
}

void ae_cpu_rope_kv(ae_stream *stream, const ae_rope_kv *args)
{
    if (!slots_exist(stream, "rope_kv", args->places, args->kv)) return;
    rope_job job = {stream, args};
    if (args->places->n_rows > 4) ae_pool_run(stream->pool, rope_item, &job, args->places->n_rows);
    else for (uint32_t r = 0; r < args->places->n_rows; r++) rope_item(&job, r, 0);
}

/* ---- Compressed rows -------------------------------------------------------------------------------------- */

typedef struct compress_job {
    ae_stream *stream;
    const ae_compress *args;
} compress_job;

/* Returns the slot of position `pos` on the path of row r. */
static int32_t slot_at(const ae_places *p, uint32_t r, int32_t pos)
{
    return pos < p->n_inplace[r] ? pos : p->path[(size_t)r * p->path_stride + (size_t)(pos - p->n_inplace[r])];
}

static void keep_item(void *context, uint32_t r, uint32_t i_worker)
{
    const compress_job *job = context;
    const ae_compress *a = job->args;
    const ae_places *p = a->places;
    const int32_t slot = p->slot[r];
    const ae_cpu_kv_layer *l = &a->kv->layers[a->layer];
    uint8_t *page = kv_page(a->kv, places_table(p, r)[slot / AE_KV_PAGE], a->layer);
    const uint32_t n_heads = (a->ape ? 2 : 1) * a->n_parts;
    const float *x = a->x + (size_t)r * n_heads * a->dim;
    (void)i_worker;
    for (uint32_t h = 0; h < n_heads; h++, page += l->head_bytes, x += a->dim)
        memcpy((float *)(void *)page + (size_t)slot % AE_KV_PAGE * a->dim, x, a->dim * sizeof *x);
}

static void compress_item(void *context, uint32_t r, uint32_t i_worker)
{
    const compress_job *job = context;
    const ae_compress *a = job->args;
    const ae_places *p = a->places;
    const int32_t every = (int32_t)a->every, pos = p->pos[r], *table = places_table(p, r);
    float *y = a->y + (size_t)r * a->dim;
    ae_member members[2 * AE_MAX_COMPRESSED];
    uint32_t n = 0;
    (void)i_worker;
    if ((pos + 1) % every) {
        memset(y, 0, a->dim * sizeof *y);
        return;
    }
    const int32_t own = pos + 1 - every, first = a->n_parts > 1 && own ? own - every : own;
    for (int32_t at = first; at <= pos; at++) {
        const int32_t slot = slot_at(p, r, at);
        members[n++] = (ae_member){kv_page(a->kv, table[slot / AE_KV_PAGE], a->layer), a->kv->layers[a->layer].head_bytes,
                                   (uint32_t)slot % AE_KV_PAGE, a->n_parts > 1 && at >= own, (uint32_t)(at % every)};
    }
    ae_ref_compress(a, members, n, y);
}

void ae_cpu_compress(ae_stream *stream, const ae_compress *args)
{
    compress_job job = {stream, args};
    const uint32_t n = args->places->n_rows;
    if (!slots_exist(stream, "compress", args->places, args->kv)) return;
    for (uint32_t r = 0; r < n; r++) keep_item(&job, r, 0);
    if (n > 4) ae_pool_run(stream->pool, compress_item, &job, n);
    else for (uint32_t r = 0; r < n; r++) compress_item(&job, r, 0);
}

/* ---- A memory of n-grams ----------------------------------------------------------------------------------- */

/* Returns the place of a position's head in a plain layer, on the path of row r. */
static float *place_at(const ae_kv_store *kv, uint32_t layer, const ae_places *p, uint32_t r, int32_t slot, uint32_t head)
{
    const ae_cpu_kv_layer *l = &kv->layers[layer];
    uint8_t *page = kv_page(kv, places_table(p, r)[slot / AE_KV_PAGE], layer) + head * l->head_bytes;
    return (float *)(void *)page + (size_t)slot % AE_KV_PAGE * l->shape.head_dim;
}

void ae_cpu_ngrams(ae_stream *stream, const ae_ngrams *a)
{
    const ae_places *p = a->places;
    const uint32_t n_heads = (a->n_tokens - 1) * a->n_each;
    if (!slots_exist(stream, "ngrams", p, a->kv)) return;
    for (uint32_t r = 0; r < p->n_rows; r++)
        *place_at(a->kv, a->layer, p, r, p->slot[r], 0) = (float)(a->tokens[r] < 0 ? a->end : a->tokens[r]);
    for (uint32_t r = 0; r < p->n_rows; r++) {
        int32_t tokens[AE_MAX_NGRAM];
        bool ended = false;
        for (int32_t j = 0; j < (int32_t)a->n_tokens; j++) {
            const int32_t pos = p->pos[r] - j;
            tokens[j] = ended || pos < 0 ? a->end : (int32_t)*place_at(a->kv, a->layer, p, r, slot_at(p, r, pos), 0);
            ended |= j && tokens[j] == a->end;
        }
        ae_ref_ngrams(a, tokens, a->y + (size_t)r * n_heads);
    }
}

typedef struct trail_job {
    const ae_trail *args;
} trail_job;

static void trail_item(void *context, uint32_t r, uint32_t i_worker)
{
    const trail_job *job = context;
    const ae_trail *a = job->args;
    const ae_places *p = a->places;
    (void)i_worker;
    for (uint32_t h = 0; h < a->n_heads; h++) {
        const float *places[AE_MAX_TRAIL];
        for (uint32_t j = 0; j < a->n_taps; j++) {
            const int32_t pos = p->pos[r] - (int32_t)((a->n_taps - 1 - j) * a->step);
            places[j] = pos < 0 ? NULL : place_at(a->kv, a->layer, p, r, slot_at(p, r, pos), h);
        }
        ae_ref_trail(a, h, places, a->y + ((size_t)r * a->n_heads + h) * a->dim);
    }
}

void ae_cpu_trail(ae_stream *stream, const ae_trail *args)
{
    const ae_places *p = args->places;
    trail_job job = {args};
    if (!slots_exist(stream, "trail", p, args->kv)) return;
    for (uint32_t r = 0; r < p->n_rows; r++)
        for (uint32_t h = 0; h < args->n_heads; h++)
            memcpy(place_at(args->kv, args->layer, p, r, p->slot[r], h), args->x + ((size_t)r * args->n_heads + h) * args->dim,
                   args->dim * sizeof *args->x);
    if (p->n_rows > 4) ae_pool_run(stream->pool, trail_item, &job, p->n_rows);
    else for (uint32_t r = 0; r < p->n_rows; r++) trail_item(&job, r, 0);
}

/* ---- Attention ----------------------------------------------------------------------------------------- */

typedef struct attention_job {
    ae_stream *stream;
    const ae_attention *args;
    uint32_t n_runs, n_tiles, tile, group;
    /* split over chunks: the chunks [begin, end) of the round, with n_pieces work items per tile; otherwise n_pieces is 1 */
    int32_t begin, end;
    uint32_t n_pieces;
    bool last;
} attention_job;

/* Returns tile i of all runs and heads. */
static ae_attn_tile tile_at(const attention_job *job, uint32_t i, uint32_t i_worker)
{
    const ae_attention *a = job->args;
    const ae_places *p = a->places;
    const ae_stream *s = job->stream;
    uint32_t run = 0;
    while (run + 1 < job->n_runs && i >= (uint32_t)s->run_item[run + 1]) run++;
    const uint32_t first = (uint32_t)s->run_begin[run], n = (uint32_t)s->run_begin[run + 1] - first;
    const uint32_t n_queries = n * job->group, n_tiles = (n_queries + job->tile - 1) / job->tile;
    const uint32_t local = i - (uint32_t)s->run_item[run], head = local / n_tiles, begin = local % n_tiles * job->tile;
    ae_attn_tile tile = {
        .n_queries = n_queries - begin < job->tile ? n_queries - begin : job->tile,
        .head_dim = a->head_dim,
        .n_rope = a->n_rope,
        .window = a->window,
        .chunked = a->chunked,
        .has_sinks = a->sinks,
        .scale = a->scale,
        .softcap = a->softcap,
        .base = kv_page(a->kv, 0, a->layer) + head * a->kv->layers[a->layer].head_bytes,
        .page_stride = a->kv->page_bytes,
        .table = places_table(p, first),
        .work = s->attn_work + i_worker * AE_ATTN_WORK,
        .scratch = s->attn_scratch + (size_t)i_worker * AE_ATTN_TILE * (AE_MAX_HEAD_DIM + AE_KV_PAGE),
    };
    for (uint32_t q = 0; q < tile.n_queries; q++) {
        const uint32_t r = first + (begin + q) / job->group, h = head * job->group + (begin + q) % job->group;
        const size_t at = (size_t)r * a->n_heads + h, seen = (size_t)head * p->head_rows + r;
        const float sink = a->sinks ? a->sinks[h] : 0.0f, slope = a->slopes ? a->slopes[h] : 0.0f;
        tile.query[q] = (ae_attn_query){a->q + at * (a->n_rope + a->head_dim), a->y + at * a->head_dim, p->pos[seen],
                                        (p->last ? p->last : p->pos)[seen], p->n_inplace[seen], slope,
                                        a->bias ? a->bias + (size_t)h * AE_BIAS_ROW : NULL, sink,
                                        p->path + seen * p->path_stride, p->first ? p->first[r] : 0};
    }
    return tile;
}

/* Computes the chunks of a tile that the job asks for. */
static void attend(const attention_job *job, const ae_attn_tile *tile)
{
    const ae_kernels *k = &job->stream->backend->kernels;
    (tile->n_rope ? k->latent_attention : k->attention)[job->args->kv->type](tile);
}

/* Results over codes of latent rows, and over values of 4 bits, are turned back when they are complete. */
static void finish(const ae_stream *stream, ae_kv_type type, const ae_attn_tile *tile)
{
    if (tile->n_rope ? type == AE_KV_F32 : ae_kv_value_bits(type) != 4) return;
    for (uint32_t q = 0; q < tile->n_queries; q++)
        stream->backend->kernels.latent_unturn(tile->query[q].y, tile->head_dim);
}

static void whole_item(void *context, uint32_t i_item, uint32_t i_worker)
{
    const attention_job *job = context;
    /* the last rows of a prompt see most positions: they go first, so that no thread ends late */
    const ae_attn_tile tile = tile_at(job, job->n_tiles - 1 - i_item, i_worker);
    attend(job, &tile);
    finish(job->stream, job->args->kv->type, &tile);
}

/* ---- Split over chunks ------------------------------------------------------------------------------------ */

/* Returns the floats that the parts of one chunk of one tile take. */
static size_t part_floats(const attention_job *job)
{
    return job->tile * AE_ATTN_PART(job->args->head_dim);
}

static float *parts_of(const attention_job *job, uint32_t i_tile)
{
    return job->stream->attn_parts + (size_t)i_tile * (size_t)(job->end - job->begin) * part_floats(job);
}

static void piece_item(void *context, uint32_t item, uint32_t i_worker)
{
    const attention_job *job = context;
    const uint32_t i = item / job->n_pieces, piece = item % job->n_pieces, n = (uint32_t)(job->end - job->begin);
    ae_attn_tile tile = tile_at(job, i, i_worker);
    tile.chunk_begin = job->begin + (int32_t)(n * piece / job->n_pieces);
    tile.chunk_end = job->begin + (int32_t)(n * (piece + 1) / job->n_pieces);
    tile.parts = parts_of(job, i) + (size_t)(tile.chunk_begin - job->begin) * tile.n_queries * AE_ATTN_PART(tile.head_dim);
    attend(job, &tile);
}

static void merge_item(void *context, uint32_t i, uint32_t i_worker)
{
    const attention_job *job = context;
    ae_attn_tile tile = tile_at(job, i, i_worker);
    tile.chunk_begin = job->begin;
    tile.chunk_end = job->end;
    tile.parts = parts_of(job, i);
    job->stream->backend->kernels.attention_merge(&tile, &job->stream->attn_state[i], job->last);
    if (job->last) finish(job->stream, job->args->kv->type, &tile);
}

/* Runs chunks [begin, end) of all tiles, in rounds whose parts fit the scratch. */
static void run_split(attention_job *job, int32_t begin, int32_t end, uint32_t n_items)
{
    ae_stream *s = job->stream;
    /* at least 3: there are fewer than ATTN_SPLIT_ITEMS tiles per thread, of at most AE_ATTN_TILE heads */
    const size_t room = ATTN_PARTS * ae_pool_n_workers(s->pool) / (part_floats(job) * job->n_tiles);
    for (job->begin = begin; job->begin < end; job->begin = job->end) {
        job->end = (size_t)(end - job->begin) < room ? end : job->begin + (int32_t)room;
        job->last = job->end == end;
        const uint32_t n = (uint32_t)(job->end - job->begin), wanted = (n_items + job->n_tiles - 1) / job->n_tiles;
        job->n_pieces = wanted < n ? wanted : n;
        ae_pool_run(s->pool, piece_item, job, job->n_tiles * job->n_pieces);
        ae_pool_run(s->pool, merge_item, job, job->n_tiles);
    }
}

/* Finds the range of chunks that any row sees. */
static void chunks_seen(const ae_attention *a, int32_t *begin, int32_t *end)
{
    *begin = INT32_MAX;
    *end = 0;
    const ae_places *p = a->places;
    const size_t n_choices = p->head_rows ? a->n_kv_heads : 1;
    for (size_t i = 0; i < n_choices * p->n_rows; i++) {
        const size_t r = i / p->n_rows * p->head_rows + i % p->n_rows;
        const ae_attn_tile t = {.window = a->window, .chunked = a->chunked};
        const ae_attn_query q = {.own = p->pos[r], .pos = (p->last ? p->last : p->pos)[r],
                                 .first = p->first ? p->first[i % p->n_rows] : 0};
        const int32_t first = ae_attn_first_seen(&t, &q) / AE_KV_PAGE, last = q.pos / AE_KV_PAGE;
        *begin = first < *begin ? first : *begin;
        *end = last + 1 > *end ? last + 1 : *end;
    }
}

/* Counts the tiles of all runs for a tile size, and fills run_item. */
static uint32_t lay_tiles(attention_job *job, uint32_t tile)
{
    const ae_stream *s = job->stream;
    uint32_t most = 1;
    for (uint32_t i = 0; i < job->n_runs; i++) {
        const uint32_t n = (uint32_t)(s->run_begin[i + 1] - s->run_begin[i]) * job->group;
        most = n > most ? n : most;
    }
    tile = tile < most ? tile : most;
    job->tile = tile;
    job->n_tiles = 0;
    for (uint32_t i = 0; i < job->n_runs; i++) {
        const uint32_t n = (uint32_t)(s->run_begin[i + 1] - s->run_begin[i]) * job->group;
        s->run_item[i] = (int32_t)job->n_tiles;
        job->n_tiles += job->args->n_kv_heads * ((n + tile - 1) / tile);
    }
    return job->n_tiles;
}

#define SPLIT_CHUNKS 3 /* fewer items are not worth starting the threads a second time */

/* ---- Gathered rows ---------------------------------------------------------------------------------------- */

/* Rows are handled a few at a time: what each of them reads is copied to pages of its own, as keys and as values (a work item
 * is a page), then its heads attend to them (a work item is a tile of heads). */
typedef struct gather_job {
    ae_stream *stream;
    const ae_attention *args;
    uint32_t first, n_rows; /* of the round */
    uint32_t n_pages, tile, n_tiles; /* most pages of a row; size and number of the tiles of heads */
    size_t page_bytes;
} gather_job;

static uint8_t *gathered_page(const gather_job *job, uint32_t i, uint32_t i_page)
{
    return job->stream->gathered + ((size_t)i * job->n_pages + i_page) * job->page_bytes;
}

/* Returns the first position that row r sees, and how many positions it sees, gathered rows included. */
static int32_t gathered_of(const ae_attention *a, uint32_t r, int32_t *n)
{
    const int32_t pos = a->places->pos[r], window = (int32_t)a->window;
    const int32_t first = window && pos >= window ? pos - window + 1 : 0;
    *n = pos - first + 1 + a->more->pos[r] + 1;
    return first;
}

static void gather_item(void *context, uint32_t item, uint32_t i_worker)
{
    const gather_job *job = context;
    const ae_attention *a = job->args;
    const ae_attention_more *m = a->more;
    const ae_places *p = a->places;
    const uint32_t i = item / job->n_pages, i_page = item % job->n_pages, r = job->first + i;
    int32_t n;
    const int32_t first = gathered_of(a, r, &n), n_own = p->pos[r] - first + 1, begin = (int32_t)(i_page * AE_KV_PAGE);
    const int32_t *own = places_table(p, r), *other = m->tables + (size_t)p->seq[r] * p->table_stride;
    uint8_t *to = gathered_page(job, i, i_page);
    (void)i_worker;
    for (int32_t k = begin; k < n && k < begin + AE_KV_PAGE; k++) {
        const bool is_own = k < n_own;
        const int32_t slot = is_own ? slot_at(p, r, first + k) : m->path[(size_t)r * m->path_stride + (size_t)(k - n_own)];
        const void *from = is_own ? kv_page(a->kv, own[slot / AE_KV_PAGE], a->layer)
                                  : kv_page(m->kv, other[slot / AE_KV_PAGE], m->layer);
        ae_cpu_row_spread(a->kv->type, a->head_dim, from, (uint32_t)slot % AE_KV_PAGE, to, (uint32_t)(k - begin));
    }
}

static void gathered_item(void *context, uint32_t item, uint32_t i_worker)
{
    const gather_job *job = context;
    const ae_attention *a = job->args;
    const ae_stream *s = job->stream;
    const uint32_t i = item / job->n_tiles, r = job->first + i, begin = item % job->n_tiles * job->tile;
    int32_t n;
    gathered_of(a, r, &n);
    ae_attn_tile tile = {
        .n_queries = a->n_heads - begin < job->tile ? a->n_heads - begin : job->tile, .head_dim = a->head_dim,
        .has_sinks = a->sinks, .scale = a->scale, .base = gathered_page(job, i, 0),
        .page_stride = job->page_bytes, .table = s->gathered_table,
        .work = s->attn_work + i_worker * AE_ATTN_WORK,
        .scratch = s->attn_scratch + (size_t)i_worker * AE_ATTN_TILE * (AE_MAX_HEAD_DIM + AE_KV_PAGE)};
    for (uint32_t q = 0; q < tile.n_queries; q++) {
        const size_t at = (size_t)r * a->n_heads + begin + q;
        tile.query[q] = (ae_attn_query){a->q + at * a->head_dim, a->y + at * a->head_dim, n - 1, n - 1, n, 0.0f,
                                        NULL, a->sinks ? a->sinks[begin + q] : 0.0f, s->gathered_table, 0};
    }
    s->backend->kernels.attention[ae_kv_row_type(a->kv->type)](&tile);
    if (!ae_kv_key_bits(a->kv->type)) return;
    for (uint32_t q = 0; q < tile.n_queries; q++) s->backend->kernels.latent_unturn(tile.query[q].y, tile.head_dim);
}

/* Only attention with further rows reads rows that are key and value, and it reads no others. */
static bool rows_fit(ae_stream *stream, const ae_attention *a)
{
    const bool one_row = a->kv->layers[a->layer].shape.one_row;
    if (one_row != (a->more != NULL) || (a->more && !a->more->kv->layers[a->more->layer].shape.one_row)) {
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "attention %s further rows over a layer that stores %s; please "
                        "report", a->more ? "with" : "without", one_row ? "one row" : "keys and values");
        return false;
    }
    return true;
}

static void attend_gathered(ae_stream *stream, const ae_attention *a)
{
    gather_job job = {.stream = stream, .args = a, .tile = AE_ATTN_TILE,
                      .n_pages = (stream->options.n_gathered + AE_KV_PAGE - 1) / AE_KV_PAGE,
                      .page_bytes = ae_kv_head_bytes(ae_kv_row_type(a->kv->type), a->head_dim)};
    const uint32_t n_rows = a->places->n_rows, wanted = ae_pool_n_workers(stream->pool) * ATTN_SPLIT_ITEMS;
    for (uint32_t r = 0; r < n_rows; r++) {
        int32_t n;
        gathered_of(a, r, &n);
        if ((uint32_t)n <= stream->options.n_gathered) continue;
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "attention of %u rows: row %u reads %d rows, of which %u are "
                        "possible; please report", n_rows, r, n, stream->options.n_gathered);
        return;
    }
    for (uint32_t i = 0; i < job.n_pages; i++) stream->gathered_table[i] = (int32_t)i;
    for (; job.first < n_rows; job.first += job.n_rows) {
        job.n_rows = n_rows - job.first < AE_GATHER_ROWS ? n_rows - job.first : AE_GATHER_ROWS;
        const uint32_t even = job.n_rows * a->n_heads / wanted;
        job.tile = ae_pool_n_workers(stream->pool) == 1 || even > AE_ATTN_TILE ? AE_ATTN_TILE : even < 1 ? 1 : even;
        job.n_tiles = (a->n_heads + job.tile - 1) / job.tile;
        ae_pool_run(stream->pool, gather_item, &job, job.n_rows * job.n_pages);
        ae_pool_run(stream->pool, gathered_item, &job, job.n_rows * job.n_tiles);
    }
}

void ae_cpu_attention(ae_stream *stream, const ae_attention *args)
{
    const ae_places *p = args->places;
    if (!rows_fit(stream, args)) return;
    if (args->more) {
        attend_gathered(stream, args);
        return;
    }
    attention_job job = {.stream = stream, .args = args, .group = args->n_heads / args->n_kv_heads};
    const uint32_t n_threads = ae_pool_n_workers(stream->pool), wanted = n_threads * ATTN_SPLIT_ITEMS;
    for (uint32_t r = 0; r < p->n_rows; r++)
        if (r == 0 || p->seq[r] != p->seq[r - 1]) stream->run_begin[job.n_runs++] = (int32_t)r;
    stream->run_begin[job.n_runs] = (int32_t)p->n_rows;
    if (n_threads > 1 && lay_tiles(&job, AE_ATTN_TILE) < wanted) {
        int32_t begin, end;
        chunks_seen(args, &begin, &end);
        if (end - begin >= SPLIT_CHUNKS) {
            run_split(&job, begin, end, wanted);
            return;
        }
        /* short: smaller tiles, if these occupy the threads more evenly */
        const uint32_t even = p->n_rows * args->n_heads / wanted;
        lay_tiles(&job, even < 1 ? 1 : even < AE_ATTN_TILE ? even : AE_ATTN_TILE);
    } else if (n_threads == 1) {
        lay_tiles(&job, AE_ATTN_TILE);
    }
    ae_pool_run(stream->pool, whole_item, &job, job.n_tiles);
}

/* ---- Choices of positions -------------------------------------------------------------------------------- */

/* A choice belongs to a row, or to a group of heads of a row. Choices are made in rounds: a work item is first a range of
 * chunks of one choice (scores), then one choice. */
typedef struct select_job {
    ae_stream *stream;
    const ae_select *args;
    uint32_t n_groups;
    uint32_t choice[AE_SELECT_ROWS], n_choices; /* choices of the round: group * n_rows + row */
    uint32_t n_pieces;                          /* of a choice */
} select_job;

static float *scores_of(const select_job *job, uint32_t i)
{
    return job->stream->index_scores + (size_t)i * job->stream->options.n_selected_from;
}

static const int32_t *path_of(const ae_places *p, uint32_t r)
{
    return p->path + (size_t)r * p->path_stride;
}

static void score_item(void *context, uint32_t item, uint32_t i_worker)
{
    static const float one = 1.0f;
    const select_job *job = context;
    const ae_select *a = job->args;
    const ae_places *p = a->places;
    const ae_stream *s = job->stream;
    const uint32_t i = item / job->n_pieces, piece = item % job->n_pieces;
    const uint32_t r = job->choice[i] % p->n_rows, group = job->choice[i] / p->n_rows, n_heads = a->n_heads / job->n_groups;
    const ae_kv_layer *shape = &a->kv->layers[a->layer].shape;
    const uint32_t n = (uint32_t)p->pos[r] + 1, n_chunks = (n + AE_KV_PAGE - 1) / AE_KV_PAGE;
    const uint32_t begin = n_chunks * piece / job->n_pieces * AE_KV_PAGE;
    const uint32_t end = n_chunks * (piece + 1) / job->n_pieces * AE_KV_PAGE;
    const size_t head = (size_t)r * a->n_heads + (size_t)group * n_heads;
    const ae_index_row row = {
        .n_heads = n_heads, .head_dim = shape->head_dim, .n_rope = shape->n_rope,
        .q = a->q + head * (shape->head_dim + shape->n_rope),
        .weight = a->weight ? a->weight + head : &one, .floor = a->weight ? 0.0f : -INFINITY,
        .first = (int32_t)begin, .end = (int32_t)(end < n ? end : n), .n_inplace = p->n_inplace[r], .path = path_of(p, r),
        .base = kv_page(a->kv, 0, a->layer), .page_stride = a->kv->page_bytes,
        .table = p->tables + (size_t)p->seq[r] * p->table_stride, .score = scores_of(job, i),
        .scratch = s->attn_scratch + (size_t)i_worker * AE_ATTN_TILE * (AE_MAX_HEAD_DIM + AE_KV_PAGE),
        .work = s->attn_work + i_worker * AE_ATTN_WORK};
    if (begin < end) s->backend->kernels.index_scores[a->kv->type](&row);
}

/* Chooses blocks among n positions and writes their positions to `to` [n_most]. Changes the scores. Returns the number of
 * positions. */
static uint32_t choose_blocks(const ae_select *a, float *score, uint32_t n, int32_t *to)
{
    const uint32_t size = a->block, n_blocks = (n + size - 1) / size, n_chosen = a->n_most / size;
    for (uint32_t b = 0; b < n_blocks; b++) { /* a block's score overwrites one that was read before */
        float best = -INFINITY;
        for (uint32_t p = b * size; p < n && p < (b + 1) * size; p++) best = score[p] > best ? score[p] : best;
        score[b] = best;
    }
    for (uint32_t b = 0; b < a->n_local && b < n_blocks; b++) score[n_blocks - 1 - b] = INFINITY;
    ae_ref_choose(score, n_blocks, n_chosen, to);
    /* from the last block on, so that no block's number is overwritten before it is read */
    const uint32_t last = (uint32_t)to[n_chosen - 1] * size, n_last = n - last < size ? n - last : size;
    for (uint32_t i = n_chosen; i--; ) {
        const int32_t first = to[i] * (int32_t)size;
        for (uint32_t k = i + 1 == n_chosen ? n_last : size; k--; ) to[i * size + k] = first + (int32_t)k;
    }
    return (n_chosen - 1) * size + n_last;
}

/* Chooses pools among those that end among n positions. Writes their positions, and those after the last pool, to `to`
 * [n_most]. Changes the scores. Returns the number of positions. */
static uint32_t choose_pools(const ae_select *a, float *score, uint32_t n, int32_t *to)
{
    const uint32_t size = a->block, n_pools = n / size, n_chosen = a->n_most / size;
    uint32_t k = n_chosen * size;
    for (uint32_t b = 0; b < n_pools; b++) score[b] = score[(b + 1) * size - 1];
    ae_ref_choose(score, n_pools, n_chosen, to);
    for (uint32_t i = n_chosen; i--; ) {
        const int32_t first = to[i] * (int32_t)size;
        for (uint32_t j = size; j--; ) to[i * size + j] = first + (int32_t)j;
    }
    for (uint32_t p = n_pools * size; p < n; p++) to[k++] = (int32_t)p;
    return k;
}

static void choose_item(void *context, uint32_t i, uint32_t i_worker)
{
    const select_job *job = context;
    const ae_select *a = job->args;
    const ae_places *p = a->places;
    const uint32_t at = job->choice[i], r = at % p->n_rows, every = a->every ? a->every : 1;
    const uint32_t n = ((uint32_t)p->pos[r] + 1) / every;
    float *score = scores_of(job, i);
    int32_t *to = a->path + (size_t)at * a->n_most;
    const int32_t n_inplace = p->n_inplace[r], *path = path_of(p, r);
    uint32_t n_chosen = a->n_most;
    (void)i_worker;
    for (uint32_t k = 0; every > 1 && k < n; k++) score[k] = score[(k + 1) * every - 1];
    if (a->pooled) n_chosen = choose_pools(a, score, n, to);
    else if (a->block) n_chosen = choose_blocks(a, score, n, to);
    else ae_ref_choose(score, n, a->n_most, to);
    for (uint32_t k = 0; k < n_chosen; k++) {
        const int32_t pos = (to[k] + 1) * (int32_t)every - 1;
        to[k] = pos < n_inplace ? pos : path[pos - n_inplace];
    }
    a->pos[at] = (int32_t)n_chosen - 1;
    a->n_inplace[at] = 0;
}

/* A row that sees no more positions than it may choose keeps all of them. */
static void keep(const ae_select *a, uint32_t r, size_t at)
{
    const ae_places *p = a->places;
    const int32_t n = p->pos[r] + 1 - p->n_inplace[r];
    a->pos[at] = p->pos[r];
    a->n_inplace[at] = p->n_inplace[r];
    if (n > 0) memcpy(a->path + at * a->n_most, path_of(p, r), (size_t)n * sizeof *a->path);
}

/* Lists all positions that could be chosen. */
static void list_all(const ae_select *a, uint32_t r)
{
    const int32_t every = (int32_t)a->every, n = (a->places->pos[r] + 1) / every;
    for (int32_t k = 0; k < n; k++) a->path[(size_t)r * a->n_most + (size_t)k] = slot_at(a->places, r, (k + 1) * every - 1);
    a->pos[r] = n - 1;
    a->n_inplace[r] = 0;
}

static void run_round(select_job *job)
{
    const uint32_t wanted = ae_pool_n_workers(job->stream->pool) * ATTN_SPLIT_ITEMS;
    job->n_pieces = ae_pool_n_workers(job->stream->pool) == 1 ? 1 : (wanted + job->n_choices - 1) / job->n_choices;
    ae_pool_run(job->stream->pool, score_item, job, job->n_choices * job->n_pieces);
    ae_pool_run(job->stream->pool, choose_item, job, job->n_choices);
    job->n_choices = 0;
}

void ae_cpu_select(ae_stream *stream, const ae_select *args)
{
    const ae_places *p = args->places;
    select_job job = {.stream = stream, .args = args, .n_groups = args->n_groups ? args->n_groups : 1};
    for (uint32_t r = 0; r < p->n_rows; r++) {
        const uint32_t n = args->every ? ((uint32_t)p->pos[r] + 1) / args->every : 0;
        const bool too_many = !args->n_heads && n > args->n_most;
        if ((uint32_t)p->pos[r] < stream->options.n_selected_from && !too_many) continue;
        ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "select of %u rows: row %u is at position %d of %u and chooses "
                        "%u; please report", p->n_rows, r, p->pos[r], stream->options.n_selected_from, args->n_most);
        return;
    }
    for (uint32_t at = 0; at < job.n_groups * p->n_rows; at++) {
        const uint32_t r = at % p->n_rows;
        const bool sees_all = ((uint32_t)p->pos[r] + 1) / (args->every ? args->every : 1) <= args->n_most;
        if (sees_all && args->every) list_all(args, r);
        else if (sees_all) keep(args, r, at);
        else job.choice[job.n_choices++] = at;
        if (job.n_choices == AE_SELECT_ROWS) run_round(&job);
    }
    if (job.n_choices) run_round(&job);
}
