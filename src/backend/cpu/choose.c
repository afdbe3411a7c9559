/* choose.c - where blocks of packed codes stand, and from how many rows on the products of a packed form go by tiles:
 * measured, not assumed.
 *
 * Owns: the choices of a backend. Both kernels and both orders of blocks give the same bits (kernels.h), so the choice may
 * differ from machine to machine and from run to run, and no output does.
 *
 * A form is measured once per backend, when its first weight is created (about 2 ms on a 2-core Sapphire Rapids VM).
 * Both kernels run alternately, for a few numbers of rows, on a synthetic weight whose panels come from memory, as they do in a
 * pass: from the L3 cache tiles would win with fewer rows. The shortest of several times counts, so other programs rarely
 * change the choice; where they do, both kernels cost about the same.
 *
 * The order of blocks is measured likewise, once, with one row of the first weight that matters. Weights that fit the caches,
 * and all weights where the caches cannot be flushed, have their blocks in runs. */
#include <stdio.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/os.h"

#define MEMORY ((size_t)2 << 20)
#define BYTE 0x11  /* the byte that fills all panels: valid in every form, and far from subnormal floats */
#define PANELS 16  /* panels of a sample: with fewer, tiles look faster than they are in a pass */
#define N_IN 1024
#define ROUNDS 2
#define IN_A_ROW 2 /* products measured for a sample; the first one finds the kernel's instructions outside the cache */

static const uint32_t counts[] = {4, 6, 8, 10, 12, 14, 16, 20, 32};
#define N_COUNTS (sizeof counts / sizeof counts[0])
#define MOST_ROWS 32

#define ORDER_BYTES ((size_t)1 << 20) /* from this many bytes on, weights have the order that was measured faster */
#define ORDER_PANELS 224 /* panels of a sample: as many as MEMORY holds, since runs are long (1.9 MB of Q4_0) */
#define ORDER_ROUNDS 4
#define ORDER_GAIN 1.1 /* codes in order are used only if they are this many times as fast as codes in runs */

typedef struct bench {
    ae_weight w;
    ae_act act;
    ae_mm_out out;
    float *y;          /* [MOST_ROWS][PANELS * AE_PANEL] */
    uint8_t *panels;   /* [MEMORY] */
    size_t at, bytes;  /* offset of the next sample; bytes of a sample */
    void *scratch;
} bench;

static void bench_layout(ae_layout *layout, bench *b)
{
    ae_act_layout(layout, MOST_ROWS, N_IN, MOST_ROWS, &b->act);
    b->y = ae_layout_add(layout, (size_t)MOST_ROWS * PANELS * AE_PANEL, sizeof(float));
    b->scratch = ae_layout_add(layout, AE_MM_SCRATCH, 1);
}

/* Gives the sample's weight that many panels, or as many as there is memory for. */
static void size_sample(bench *b, uint32_t n_panels)
{
    do {
        b->w.n_out = n_panels * AE_PANEL;
        ae_pack_plan(b->w.type, b->w.n_out, N_IN, &b->w.packed);
        b->bytes = ae_code_bytes(&b->w.packed) + n_panels * b->w.packed.scale_stride;
        n_panels -= (n_panels + 7) / 8;
    } while (b->bytes > MEMORY);
}

/* Returns the seconds of one product with weights that no cache holds. */
static double sample(bench *b, ae_mm_fn *mm, uint32_t n_rows)
{
    if (b->at + b->bytes > MEMORY) b->at = 0;
    b->w.packed.codes = b->panels + b->at;
    b->w.packed.scales = b->w.packed.codes + ae_code_bytes(&b->w.packed);
    b->at += b->bytes;
    b->act.n_rows = n_rows;
    ae_os_cache_forget(b->w.packed.codes, b->bytes);
    const double start = ae_time_now();
    mm(&b->w, &b->act, &b->out, 0, b->w.n_out);
    return ae_time_now() - start;
}

/* Returns whether the kernel by tiles writes every output: one that does not know the weight's form returns at once, and would
 * win. */
static bool tiles_write(bench *b, const ae_weight *w)
{
    const size_t n = (size_t)MOST_ROWS * b->out.stride;
    uint32_t bits;
    memset(b->y, 0xff, n * sizeof *b->y);
    sample(b, w->mm_tiles, MOST_ROWS);
    for (size_t i = 0; i < n; i++) {
        memcpy(&bits, &b->y[i], sizeof bits);
        if (bits == UINT32_MAX) return false;
    }
    return true;
}

static bool tiles_win(bench *b, const ae_weight *w, uint32_t n_rows)
{
    double best[2] = {1e9, 1e9};
    for (int turn = 0; turn < ROUNDS * 2 * IN_A_ROW; turn++) {
        const int tiles = turn / IN_A_ROW % 2;
        const double t = sample(b, tiles ? w->mm_tiles : w->mm, n_rows);
        if (t < best[tiles]) best[tiles] = t;
    }
    return best[1] < best[0];
}

/* Returns the least number of rows at which tiles win, by bisection: three comparisons, seldom four. */
static uint32_t crossing(bench *b, const ae_weight *w)
{
    size_t begin = 0, end = N_COUNTS; /* tiles lose below begin and win from end on */
    while (begin < end) {
        const size_t i = (begin + end - 1) / 2;
        if (tiles_win(b, w, counts[i])) end = i;
        else begin = i + 1;
    }
    return end < N_COUNTS ? counts[end] : AE_NO_TILES;
}

/* Returns whether products with one row are faster with codes in order. */
static bool order_wins(bench *b, const ae_weight *w)
{
    double best[2] = {1e9, 1e9};
    _Static_assert(ORDER_PANELS <= MOST_ROWS * PANELS, "there is room for one row of results");
    size_sample(b, ORDER_PANELS);
    for (int turn = 0; turn < ORDER_ROUNDS * 2 * IN_A_ROW; turn++) {
        const int in_order = turn / IN_A_ROW % 2;
        b->w.packed.in_order = in_order;
        const double t = sample(b, w->mm, 1);
        if (t < best[in_order]) best[in_order] = t;
    }
    size_sample(b, PANELS); /* in runs again */
    return best[1] * ORDER_GAIN < best[0];
}

/* Measures. Either output may be NULL. */
static aerie_status measure(const ae_weight *w, uint32_t *tiles_from, bool *in_order, aerie_error *error)
{
    bench b = {.w = *w};
    ae_layout layout = {0};
    bench_layout(&layout, &b);
    void *memory = ae_alloc_aligned(1, layout.bytes);
    uint8_t *panels = ae_os_pages_alloc(MEMORY);
    const bool fits = memory && panels;
    if (fits) {
        layout = (ae_layout){.base = memory};
        bench_layout(&layout, &b);
        memset(panels, BYTE, MEMORY);
        b.panels = panels;
        b.w.in_place = false;
        b.w.n_in = N_IN;
        size_sample(&b, PANELS);
        b.out = (ae_mm_out){.y = b.y, .stride = PANELS * AE_PANEL, .scratch = b.scratch};
        b.act.n_in = N_IN;
        if (in_order) *in_order = order_wins(&b, w);
        if (tiles_from) *tiles_from = tiles_write(&b, w) ? crossing(&b, w) : AE_NO_TILES;
    }
    if (panels) ae_os_pages_free(panels, MEMORY);
    ae_free(memory);
    return fits ? AERIE_OK : ae_fail_memory(error, "measuring the kernels", layout.bytes + MEMORY);
}

static bool same_form(const ae_packed *a, const ae_packed *b)
{
    return a->code_bits == b->code_bits && a->n_sub == b->n_sub && a->has_min == b->has_min && a->scale_f32 == b->scale_f32 &&
           a->has_lut == b->has_lut;
}

static const ae_cpu_choice *find(const ae_cpu_backend *b, const ae_weight *w)
{
    for (uint32_t i = 0; i < b->n_choices; i++)
        if (b->choices[i].dot == w->dot && same_form(&b->choices[i].form, &w->packed)) return &b->choices[i];
    return NULL;
}

static void say(ae_cpu_backend *b, const ae_cpu_choice *c)
{
    const size_t n = strlen(b->said), room = sizeof b->said - n;
    const char *comma = n ? ", " : "", *type = ae_type_name(c->type);
    if (c->tiles_from == AE_NO_TILES) snprintf(b->said + n, room, "%s%s never", comma, type);
    else snprintf(b->said + n, room, "%s%s from %u rows", comma, type, (unsigned)c->tiles_from);
}

/* Called under the mutex. */
static aerie_status choose_order(ae_cpu_backend *b, ae_weight *w, aerie_error *error)
{
    const size_t bytes = ae_code_bytes(&w->packed);
    if (w->in_place || bytes < ORDER_BYTES || !ae_os_cache_forget(NULL, 0)) return AERIE_OK;
    if (!b->order_known) {
        const aerie_status status = measure(w, NULL, &b->in_order, error);
        if (status != AERIE_OK) return status;
        b->order_known = true;
    }
    w->packed.in_order = b->in_order;
    return AERIE_OK;
}

static aerie_status choose_tiles(ae_cpu_backend *b, ae_weight *w, aerie_error *error)
{
    aerie_status status = AERIE_OK;
    w->mm_tiles = w->n_in < AE_TILES_IN ? NULL : w->dot == AE_DOT_32 ? b->kernels.mm_tiles_32 : b->kernels.mm_tiles_256;
    if (!w->mm_tiles) return AERIE_OK;
    if (b->tiles_from) {
        w->tiles_from = b->tiles_from;
        return AERIE_OK;
    }
    const ae_cpu_choice *known = find(b, w);
    if (!known) {
        ae_cpu_choice *c = &b->choices[b->n_choices];
        *c = (ae_cpu_choice){.type = w->type, .dot = w->dot, .form = w->packed};
        status = measure(w, &c->tiles_from, NULL, error);
        if (status == AERIE_OK) {
            b->n_choices++;
            say(b, c);
            known = c;
        }
    }
    if (known) w->tiles_from = known->tiles_from;
    return status;
}

aerie_status ae_cpu_choose(ae_cpu_backend *b, ae_weight *w, aerie_error *error)
{
    pthread_mutex_lock(&b->mutex);
    aerie_status status = choose_order(b, w, error);
    if (status == AERIE_OK) status = choose_tiles(b, w, error);
    pthread_mutex_unlock(&b->mutex);
    return status;
}
