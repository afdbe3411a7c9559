/* test_compress.c - compressed rows, attention over them, coefficients of hyper-connections, against plain sums in double.
 *
 * Rows of drafts have their ancestors in later slots; a block of 128 positions begins and ends among them. A row's result
 * depends neither on the rows around it, nor on threads or the CPU's level, to the bit. Rows that are key and value are stored
 * once, and give the bits of rows that are stored as both.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "device/device.h"

enum { DIM = 32, HEADS = 5, PAGES = 6, SLOTS = PAGES * AE_KV_PAGE, LIVE = 258, TREE = 6, ROWS = LIVE + TREE };
enum { MOST = 70, WINDOW = 40 };

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_kv_store *kv;       /* layer 0: what is compressed; 1: the window's rows; 2: compressed rows */
    int32_t table[PAGES];
} rig;

/* Rows of one sequence: LIVE in place, then drafts: a chain of three and two leaves on it, one on the last live row. */
typedef struct rows {
    int32_t seq[ROWS], pos[ROWS], slot[ROWS], n_inplace[ROWS], path[ROWS][TREE];
    int32_t parent[ROWS];
    float kept[ROWS][4 * DIM], own[ROWS][DIM], q[ROWS][HEADS * DIM];
} rows;

static uint64_t random_state = 1;

static float number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) / (1 << 23) - 1.0);
}

static void open_rig(rig *r, ae_kv_type type, uint32_t n_parts, const char *level, uint32_t n_threads)
{
    aerie_error error = {0};
    const ae_kv_layer layers[] = {{2 * n_parts, DIM, 0, true, false}, {1, DIM, 0, false, true}, {1, DIM, 0, false, true}};
    const ae_kv_shape shape = {3, layers, PAGES, type};
    if (ae_pool_create(&r->pool, n_threads, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_stream_options options = {.n_threads = n_threads, .max_rows = ROWS, .max_in = 32, .n_selected_from = SLOTS,
                                       .n_gathered = WINDOW + MOST, .gathered_dim = DIM, .gathered_type = type,
                                       .pool = r->pool};
    if (ae_backend_open(&r->backend, NULL, level, &error) != AERIE_OK ||
        r->backend->ops->stream_create(r->backend, &options, &r->stream, &error) != AERIE_OK ||
        r->backend->ops->kv_create(r->backend, &shape, &r->kv, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    for (int32_t i = 0; i < PAGES; i++) r->table[i] = (i + 2) % PAGES;
}

static void close_rig(rig *r)
{
    r->backend->ops->kv_free(r->backend, r->kv);
    r->backend->ops->stream_free(r->stream);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

/* `live` rows and their drafts. */
static void make_rows(rows *x, int32_t live)
{
    static const int32_t parents[TREE] = {-1, 0, 1, 1, 0, -1};
    memset(x, 0, sizeof *x);
    random_state = 1;
    for (int32_t r = 0; r < live + TREE; r++) {
        const int32_t draft = r - live;
        x->parent[r] = draft < 0 ? r - 1 : parents[draft] < 0 ? live - 1 : live + parents[draft];
        x->pos[r] = draft < 0 ? r : x->pos[x->parent[r]] + 1;
        x->slot[r] = r;
        x->n_inplace[r] = draft < 0 ? r + 1 : live;
        if (draft >= 0) {
            const int32_t depth = x->pos[r] - live;
            memcpy(x->path[r], x->path[x->parent[r]], sizeof x->path[r]);
            x->path[r][depth] = r;
        }
        for (int i = 0; i < 4 * DIM; i++) x->kept[r][i] = 3 * number();
        for (int i = 0; i < DIM; i++) x->own[r][i] = number();
        for (int i = 0; i < HEADS * DIM; i++) x->q[r][i] = 2 * number();
    }
}

/* The row at position `pos` on the path of row r. */
static int32_t ancestor(const rows *x, int32_t r, int32_t pos)
{
    while (x->pos[r] > pos) r = x->parent[r];
    return r;
}

/* The compressed row that is expected at the end of a block. */
static void compressed(const rows *x, int32_t r, uint32_t n_parts, int32_t every, const float *ape, double *y)
{
    const int32_t pos = x->pos[r], own = pos + 1 - every, first = n_parts > 1 && own ? own - every : own;
    for (uint32_t i = 0; i < DIM; i++) {
        double sum = 0, v = 0;
        for (int32_t p = first; (pos + 1) % every == 0 && p <= pos; p++) {
            const uint32_t part = n_parts > 1 && p >= own;
            const float *kept = x->kept[ancestor(x, r, p)];
            const double e = exp((double)kept[(n_parts + part) * DIM + i] +
                                 (double)ape[((size_t)(p % every) * n_parts + part) * DIM + i]);
            sum += e, v += e * (double)kept[part * DIM + i];
        }
        y[i] = sum > 0 ? v / sum : 0;
    }
}

typedef struct result {
    float y[ROWS][DIM], attn[ROWS][HEADS * DIM];
    int32_t pos[ROWS], n_inplace[ROWS], path[ROWS][MOST];
} result;

/* Runs rows [first, first + n) as one pass. */
static void pass(rig *g, const rows *all, uint32_t first, uint32_t n, uint32_t n_parts, uint32_t every, const float *ape,
                 const float *sinks, result *out)
{
    static rows x;
    static float kept[ROWS * 4 * DIM], k[ROWS][DIM];
    const ae_backend_ops *ops = g->backend->ops;
    x = *all;
    for (uint32_t r = 0; r < n; r++)
        memcpy(kept + (size_t)r * 2 * n_parts * DIM, x.kept[first + r], 2 * n_parts * DIM * sizeof(float));
    const ae_places places = {.n_rows = n, .seq = x.seq + first, .pos = x.pos + first, .slot = x.slot + first,
                              .n_inplace = x.n_inplace + first, .path = x.path[first], .path_stride = TREE, .tables = g->table,
                              .table_stride = PAGES};
    ops->rope_kv(g->stream, &(ae_rope_kv){.places = &places, .kv = g->kv, .layer = 1, .n_kv_heads = 1, .head_dim = DIM,
                                          .q = x.own[first], .k = x.own[first], .v = x.own[first]});
    ops->compress(g->stream, &(ae_compress){.places = &places, .kv = g->kv, .dim = DIM, .n_parts = n_parts, .every = every,
                                            .x = kept, .ape = ape, .y = out->y[first]});
    memcpy(k, out->y[first], n * sizeof k[0]);
    ops->rope_kv(g->stream, &(ae_rope_kv){.places = &places, .kv = g->kv, .layer = 2, .n_kv_heads = 1, .head_dim = DIM,
                                          .q = k[0], .k = k[0], .v = k[0]});
    ops->select(g->stream, &(ae_select){.places = &places, .kv = g->kv, .layer = 2, .n_most = MOST, .every = every,
                                        .pos = out->pos + first, .n_inplace = out->n_inplace + first,
                                        .path = out->path[first]});
    const ae_attention_more more = {out->pos + first, out->path[first], MOST, g->table, g->kv, 2};
    ops->attention(g->stream, &(ae_attention){.places = &places, .kv = g->kv, .layer = 1, .n_heads = HEADS, .n_kv_heads = 1,
                                              .head_dim = DIM, .scale = 0.3f, .window = WINDOW, .sinks = sinks, .more = &more,
                                              .q = x.q[first], .y = out->attn[first]});
    aerie_error error = {0};
    if (ops->sync(g->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void add_row(const float *row, const float *q, double *top, double *sum, double *v)
{
    double s = 0;
    for (int i = 0; i < DIM; i++) s += 0.3 * (double)q[i] * (double)row[i];
    const double e = exp(s);
    *top = s > *top ? s : *top;
    *sum += e;
    for (int i = 0; i < DIM; i++) v[i] += e * (double)row[i];
}

static void check_attention(const rows *x, int32_t r, int32_t every, const float *sinks, const result *out, double most)
{
    for (int h = 0; h < HEADS; h++) {
        const float *q = x->q[r] + h * DIM;
        double top = -1e9, sum = exp((double)sinks[h]), v[DIM] = {0};
        for (int32_t p = x->pos[r] < WINDOW ? 0 : x->pos[r] - WINDOW + 1; p <= x->pos[r]; p++)
            add_row(x->own[ancestor(x, r, p)], q, &top, &sum, v);
        for (int32_t p = every - 1; p <= x->pos[r]; p += every) add_row(out->y[ancestor(x, r, p)], q, &top, &sum, v);
        for (int i = 0; i < DIM; i++)
            if (!(fabs(v[i] / sum - (double)out->attn[r][h * DIM + i]) < most))
                fail_msg("row %d, head %d, value %d: %g, must be %g", r, h, i, (double)out->attn[r][h * DIM + i], v[i] / sum);
    }
}

static void fill(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * number();
}

static const struct shape {
    uint32_t n_parts, every;
    int32_t live;
} shapes[] = {{2, 4, 200}, {2, 4, 5}, {1, 128, 254}, {1, 128, 256}, {1, 128, LIVE}, {1, 128, 126}, {2, 4, 2}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static void test_values(void **state)
{
    static float ape[128 * 2 * DIM], sinks[HEADS];
    static rows x;
    static result out;
    (void)state;
    static const struct {
        ae_kv_type type;
        double most; /* error: values are below 3 */
    } types[] = {{AE_KV_F32, 1e-5}, {AE_KV_F16, 0.02}, {AE_KV_I16, 0.02}, {AE_KV_Q8_0, 0.2}, {AE_KV_Q4_0, 2}};
    for (size_t k = 0; k < N_SHAPES * 5; k++) {
        const struct shape s = shapes[k / 5];
        rig g;
        make_rows(&x, s.live);
        fill(ape, sizeof ape / sizeof *ape, 2), fill(sinks, HEADS, 2);
        open_rig(&g, types[k % 5].type, s.n_parts, NULL, 2);
        pass(&g, &x, 0, (uint32_t)s.live + TREE, s.n_parts, s.every, ape, sinks, &out);
        for (int32_t r = 0; r < s.live + TREE; r++) {
            double y[DIM];
            compressed(&x, r, s.n_parts, (int32_t)s.every, ape, y);
            for (int i = 0; i < DIM; i++)
                if (!(fabs(y[i] - (double)out.y[r][i]) < 1e-5))
                    fail_msg("row %d: %g, must be %g", r, (double)out.y[r][i], y[i]);
            assert_int_equal(out.pos[r], (x.pos[r] + 1) / (int32_t)s.every - 1);
            check_attention(&x, r, (int32_t)s.every, sinks, &out, types[k % 5].most);
        }
        close_rig(&g);
    }
}

/* Returns whether this CPU has the level; NULL: its best one. */
static bool level_runs(const char *level)
{
    ae_backend *backend;
    aerie_error error = {0};
    if (!level) return true;
    if (ae_backend_open(&backend, NULL, level, &error) != AERIE_OK) return false;
    ae_backend_close(backend);
    return true;
}

/* One row at a time, many threads and every level: the same bits as the reference has for all rows at once. */
static void test_same_bits(void **state)
{
    static const char *const levels[] = {"ref", "avx2", "avx512", NULL};
    static const ae_kv_type types[] = {AE_KV_F16, AE_KV_Q8_0, AE_KV_I16, AE_KV_Q4_0};
    static float ape[128 * 2 * DIM], sinks[HEADS];
    static rows x;
    static result want, got;
    (void)state;
    fill(ape, sizeof ape / sizeof *ape, 2), fill(sinks, HEADS, 2);
    for (size_t k = 0; k < N_SHAPES; k += 2)
        for (size_t t = 0; t < 4; t++)
            for (size_t i = 0; i < 4; i++) {
                if (!level_runs(levels[i])) continue;
                const struct shape s = shapes[k];
                const uint32_t n = (uint32_t)s.live + TREE, each = i % 2 ? 1 : n, live = (uint32_t)s.live;
                result *out = i ? &got : &want;
                rig g;
                make_rows(&x, s.live);
                open_rig(&g, types[t], s.n_parts, levels[i], i == 3 ? 3 : 1);
                for (uint32_t at = 0; at < live; at += each) /* drafts need all rows before them in one pass or in place */
                    pass(&g, &x, at, at + each >= live ? (each == 1 ? 1 : n - at) : each, s.n_parts, s.every, ape, sinks, out);
                if (each == 1) pass(&g, &x, live, TREE, s.n_parts, s.every, ape, sinks, out);
                close_rig(&g);
                for (uint32_t r = 0; i && r < n; r++) {
                    assert_memory_equal(got.y[r], want.y[r], sizeof got.y[r]);
                    assert_memory_equal(got.attn[r], want.attn[r], sizeof got.attn[r]);
                }
            }
}

static void test_coefficients(void **state)
{
    enum { N = 4, ALL = N * (2 + N) };
    float x[3][ALL], was[3][ALL], scale[3] = {0.7f, 1.3f, 2.0f}, base[ALL];
    (void)state;
    rig g;
    open_rig(&g, AE_KV_F16, 1, NULL, 1);
    fill(x[0], 3 * ALL, 3), fill(base, ALL, 1);
    memcpy(was, x, sizeof x);
    g.backend->ops->hyper(g.stream, &(ae_hyper){.n_rows = 3, .n = N, .x = x[0], .x_stride = ALL, .scale = scale, .base = base,
                                                .eps = 1e-3f, .n_iterations = 3});
    for (int r = 0; r < 3; r++) {
        double c[N][N], sum;
        for (int k = 0; k < 2 * N; k++) {
            const double s = 1 / (1 + exp(-((double)was[r][k] * (double)scale[k / N] + (double)base[k])));
            assert_true(fabs((k < N ? s + 1e-3 : 2 * s) - (double)x[r][k]) < 1e-5);
        }
        for (int a = 0; a < N; a++)
            for (int b = 0; b < N; b++)
                c[a][b] = exp((double)was[r][2 * N + a * N + b] * (double)scale[2] + (double)base[2 * N + a * N + b]);
        for (int step = 0; step < 6; step++) /* rows and columns in turn; the first rows are a softmax */
            for (int a = 0; a < N; a++) {
                sum = step ? 1e-3 : 0;
                for (int b = 0; b < N; b++) sum += step % 2 ? c[b][a] : c[a][b];
                for (int b = 0; b < N; b++) {
                    double *at = step % 2 ? &c[b][a] : &c[a][b];
                    *at = *at / sum + (step ? 0 : 1e-3);
                }
            }
        for (int a = 0; a < N * N; a++) assert_true(fabs(c[a / N][a % N] - (double)x[r][2 * N + a]) < 1e-5);
    }
    close_rig(&g);
}

/* ---- Rows that are key and value -------------------------------------------------------------------------- */

/* Attention of row r over its list, stored as keys and values at positions 0, 1, .. of another store. */
static void attend_pairs(rig *g, const rows *x, const result *out, int32_t r, int32_t every, const float *sinks,
                         ae_kv_type type, float *y)
{
    static float k[SLOTS * DIM], q[HEADS * DIM];
    static int32_t seq[SLOTS], at[SLOTS], n_inplace[SLOTS], table[PAGES];
    const ae_kv_layer layer = {1, DIM, 0, false, false};
    const ae_backend_ops *ops = g->backend->ops;
    ae_kv_store *kv;
    aerie_error error = {0};
    int32_t n = 0;
    for (int32_t p = x->pos[r] < WINDOW ? 0 : x->pos[r] - WINDOW + 1; p <= x->pos[r]; p++)
        memcpy(k + n++ * DIM, x->own[ancestor(x, r, p)], DIM * sizeof *k);
    for (int32_t p = every - 1; p <= x->pos[r]; p += every) memcpy(k + n++ * DIM, out->y[ancestor(x, r, p)], DIM * sizeof *k);
    for (int32_t i = 0; i < n; i++) at[i] = i, n_inplace[i] = i + 1;
    for (int32_t i = 0; i < PAGES; i++) table[i] = i;
    memcpy(q, x->q[r], sizeof q);
    if (ops->kv_create(g->backend, &(ae_kv_shape){1, &layer, PAGES, type}, &kv, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_places places = {.n_rows = (uint32_t)n, .seq = seq, .pos = at, .slot = at, .n_inplace = n_inplace, .path = at,
                        .tables = table, .table_stride = PAGES};
    ops->rope_kv(g->stream, &(ae_rope_kv){.places = &places, .kv = kv, .n_kv_heads = 1, .head_dim = DIM, .q = k, .k = k,
                                          .v = k});
    places.n_rows = 1, places.pos += n - 1, places.n_inplace += n - 1;
    ops->attention(g->stream, &(ae_attention){.places = &places, .kv = kv, .n_heads = HEADS, .n_kv_heads = 1, .head_dim = DIM,
                                              .scale = 0.3f, .sinks = sinks, .q = q, .y = y});
    if (ops->sync(g->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    ops->kv_free(g->backend, kv);
}

/* Where keys and values have equal numbers, storing them once changes no bit. */
static void test_stored_once(void **state)
{
    static const ae_kv_type types[] = {AE_KV_F16, AE_KV_F32, AE_KV_Q4_0};
    static float ape[128 * 2 * DIM], sinks[HEADS], y[HEADS * DIM];
    static rows x;
    static result out;
    (void)state;
    fill(ape, sizeof ape / sizeof *ape, 2), fill(sinks, HEADS, 2);
    for (size_t k = 0; k < 3 * N_SHAPES; k++) {
        const struct shape s = shapes[k / 3];
        const int32_t n = s.live + TREE;
        rig g;
        make_rows(&x, s.live);
        open_rig(&g, types[k % 3], s.n_parts, NULL, 2);
        pass(&g, &x, 0, (uint32_t)n, s.n_parts, s.every, ape, sinks, &out);
        for (int32_t r = n - 1; r >= 0; r -= r > s.live ? 1 : 37) {
            attend_pairs(&g, &x, &out, r, (int32_t)s.every, sinks, types[k % 3], y);
            assert_memory_equal(out.attn[r], y, sizeof y);
        }
        close_rig(&g);
    }
}

/* Of two types the row has that of the keys: the same bytes are stored, and the same bits result. */
static void test_type_of_keys(void **state)
{
    static const ae_kv_type types[][2] = {{AE_KV_I16_Q8_0, AE_KV_I16}, {AE_KV_I16_Q4_0, AE_KV_I16},
                                          {AE_KV_Q8_0_I16, AE_KV_Q8_0}, {AE_KV_Q8_0_Q4_0, AE_KV_Q8_0}};
    static float ape[128 * 2 * DIM], sinks[HEADS];
    static rows x;
    static result out[2];
    (void)state;
    fill(ape, sizeof ape / sizeof *ape, 2), fill(sinks, HEADS, 2);
    make_rows(&x, shapes[0].live);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        for (int i = 0; i < 2; i++) {
            rig g;
            open_rig(&g, types[k][i], shapes[0].n_parts, NULL, 2);
            pass(&g, &x, 0, (uint32_t)shapes[0].live + TREE, shapes[0].n_parts, shapes[0].every, ape, sinks, &out[i]);
            close_rig(&g);
        }
        assert_memory_equal(out[0].attn, out[1].attn, (size_t)(shapes[0].live + TREE) * sizeof out[0].attn[0]);
    }
}

/* Returns the bytes of a page of one layer, and those of a slot in *slot, on a device; 0: there is no such device. */
static size_t page_bytes(const char *device, ae_kv_type type, bool one_row, size_t *slot)
{
    enum { PAGES_LESS = 100, PAGES_MORE = 356 }; /* what a store has besides its pages does not count */
    const ae_kv_layer layer = {1, 512, 0, false, one_row};
    ae_kv_shape shape = {1, &layer, PAGES_LESS, type};
    ae_backend *backend;
    ae_kv_store *kv;
    aerie_error error = {0};
    if (ae_backend_open(&backend, device, NULL, &error) != AERIE_OK) return 0;
    const size_t less = backend->ops->kv_bytes(backend, &shape);
    if (backend->ops->kv_create(backend, &shape, &kv, &error) != AERIE_OK) fail_msg("%s", error.text);
    *slot = backend->ops->kv_slot_bytes(kv);
    backend->ops->kv_free(backend, kv);
    shape.n_pages = PAGES_MORE;
    const size_t more = backend->ops->kv_bytes(backend, &shape);
    ae_backend_close(backend);
    return (more - less) / (PAGES_MORE - PAGES_LESS);
}

/* A row of 512 values that is key and value takes half of the memory of both, on each device, and a slot of it half of the
 * saved bytes. */
static void test_bytes(void **state)
{
    static const char *const devices[] = {"cpu", "emu"};
    static const struct {
        ae_kv_type type;
        size_t row;
    } types[] = {{AE_KV_F16, 1024}, {AE_KV_F32, 2048}, {AE_KV_I16, 1028}, {AE_KV_Q8_0, 516}, {AE_KV_Q4_0, 260},
                 {AE_KV_I16_Q8_0, 1028}, {AE_KV_Q8_0_I16, 516}};
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            size_t slot, both_slot;
            const size_t page = page_bytes(devices[i], types[k].type, true, &slot);
            const size_t both = page_bytes(devices[i], types[k].type, false, &both_slot);
            if (i && !page) break; /* a build without the emulator */
            assert_int_equal(page, AE_KV_PAGE * types[k].row);
            assert_int_equal(slot, types[k].row);
            if (k > 4) continue;
            assert_int_equal(both, 2 * page);
            assert_int_equal(both_slot, 2 * slot);
        }
}

/* Attention with further rows reads only such rows, and other attention never does: else it is a fault with a sentence. */
static void test_wrong_layer(void **state)
{
    static rows x;
    static result out;
    (void)state;
    make_rows(&x, 200);
    for (int with = 0; with < 2; with++) {
        aerie_error error = {0};
        rig g;
        open_rig(&g, AE_KV_F32, 2, NULL, 1);
        const ae_places places = {.n_rows = 1, .seq = x.seq, .pos = x.pos, .slot = x.slot, .n_inplace = x.n_inplace,
                                  .path = x.path[0], .path_stride = TREE, .tables = g.table, .table_stride = PAGES};
        const ae_attention_more more = {&(int32_t){0}, &(int32_t){0}, 1, g.table, g.kv, 2};
        g.backend->ops->attention(g.stream, &(ae_attention){.places = &places, .kv = g.kv, .layer = with ? 0 : 1,
                                                            .n_heads = HEADS, .n_kv_heads = 1, .head_dim = DIM, .scale = 0.3f,
                                                            .more = with ? &more : NULL, .q = x.q[0], .y = out.attn[0]});
        assert_int_equal(g.backend->ops->sync(g.stream, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, with ? "attention with further rows" : "attention without further rows"));
        close_rig(&g);
    }
}

/* A row that would read more than the stream was made for is a fault with a sentence, not a write outside an array. */
static void test_too_many(void **state)
{
    static float ape[128 * 2 * DIM], sinks[HEADS];
    static rows x;
    static result out;
    aerie_error error = {0};
    rig g;
    (void)state;
    make_rows(&x, 200);
    open_rig(&g, AE_KV_F32, 2, NULL, 1);
    pass(&g, &x, 0, 200, 2, 4, ape, sinks, &out);
    const ae_places places = {.n_rows = 1, .seq = x.seq, .pos = x.pos + 199, .slot = x.slot + 199,
                              .n_inplace = x.n_inplace + 199, .path = x.path[199], .path_stride = TREE,
                              .tables = g.table, .table_stride = PAGES};
    const ae_attention_more more = {&(int32_t){MOST + WINDOW}, out.path[199], MOST, g.table, g.kv, 2};
    g.backend->ops->attention(g.stream, &(ae_attention){.places = &places, .kv = g.kv, .layer = 1, .n_heads = HEADS,
                                                        .n_kv_heads = 1, .head_dim = DIM, .scale = 0.3f, .window = WINDOW,
                                                        .more = &more, .q = x.q[199], .y = out.attn[199]});
    assert_int_equal(g.backend->ops->sync(g.stream, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "attention"));
    g.backend->ops->select(g.stream, &(ae_select){.places = &places, .kv = g.kv, .layer = 2, .n_most = 3, .every = 4,
                                                  .pos = out.pos, .n_inplace = out.n_inplace, .path = out.path[0]});
    assert_int_equal(g.backend->ops->sync(g.stream, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "select"));
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_coefficients), cmocka_unit_test(test_stored_once),
                                       cmocka_unit_test(test_type_of_keys), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_wrong_layer), cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
