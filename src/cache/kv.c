/* kv.c - pages and tables of the KV cache: what a sequence may read and write. The rules are in kv.h. */
#include <string.h>

#include "base/mem.h"
#include "backend/alloc_fail.h"
#include "cache/kv_int.h"

static uint32_t pages_of(uint32_t n_slots)
{
    return (n_slots + AE_KV_PAGE - 1) / AE_KV_PAGE;
}

/* The layers of a cache by device, those with windows apart from the others. */
typedef struct stores {
    ae_kv_layer *layers;      /* [2 * n_layers], owned */
    struct {
        ae_kv_shape shape, parts; /* parts.n_layers is 0 if no layer has a window */
    } on[AE_MAX_DEVICES];
    uint32_t n_devices;
    uint32_t n_pages, n_parts; /* n_parts is 0 if no layer has a window */
    uint32_t window;          /* the widest window */
} stores;

/* Returns the number of parts: for the windows of all sequences, for the rows that they reserve at a time, and for retained
 * windows. */
static uint32_t parts_of(const ae_kv_options *o, uint32_t window, uint32_t n_pages)
{
    const uint64_t one = ((uint64_t)window + AE_KV_PAGE) / AE_KV_PAGE + 1; /* a window may begin anywhere in a page */
    const uint64_t n = o->n_seqs * (one + 2) + o->n_batch / AE_KV_PAGE + 2 + o->n_retained * one;
    return n < n_pages ? (uint32_t)n : n_pages;
}

static bool lies_on(const ae_kv_options *o, uint32_t i_layer, uint32_t i_device)
{
    return !o->n_devices || o->device_of[i_layer] == i_device;
}

/* Lists the device's layers with windows, or those without; returns how many. */
static uint32_t list_layers(const ae_kv_options *o, uint32_t i_device, bool windowed, ae_kv_layer *layers)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_layers; i++)
        if (lies_on(o, i, i_device) && (o->windows && o->windows[i]) == windowed) layers[n++] = o->layers[i];
    return n;
}

/* The caller frees s->layers. Returns false if memory is short. */
static bool list_stores(const ae_kv_options *o, stores *s)
{
    /* one spare page per sequence, so that copying a shared page cannot fail */
    const uint32_t one = pages_of(o->n_slots) + 1;
    *s = (stores){.n_pages = !o->n_pages ? o->n_seqs * one : o->n_pages < one ? one : o->n_pages,
                  .n_devices = o->n_devices ? o->n_devices : 1};
    s->layers = ae_alloc(2 * (size_t)o->n_layers + 1, sizeof *s->layers);
    if (!s->layers) return false;
    for (uint32_t i = 0; o->windows && i < o->n_layers; i++)
        if (o->windows[i] > s->window) s->window = o->windows[i];
    if (s->window) s->n_parts = parts_of(o, s->window, s->n_pages);
    ae_kv_layer *layers = s->layers;
    for (uint32_t i = 0; i < s->n_devices; i++) {
        const uint32_t n = list_layers(o, i, false, layers), n_windowed = list_layers(o, i, true, layers + n);
        s->on[i].shape = (ae_kv_shape){n, layers, s->n_pages, o->type};
        s->on[i].parts = (ae_kv_shape){n_windowed, layers + n, s->n_parts, o->type};
        layers += n + n_windowed;
    }
    return true;
}

/* Returns whether the device has layers; other devices keep nothing. */
static bool is_used(const stores *s, uint32_t i_device)
{
    return s->n_devices == 1 || s->on[i_device].shape.n_layers || s->on[i_device].parts.n_layers;
}

static const ae_backend *backend_of(const ae_backend *backend, const ae_kv_options *o, uint32_t i_device)
{
    return o->n_devices ? o->devices[i_device].backend : backend;
}

/* Returns the most moves of one operation: one per sequence and drafted row. A longer path is moved in several operations. */
static uint32_t moves_of(const ae_kv_options *o)
{
    return o->n_seqs * AERIE_MAX_DRAFT;
}

static void layout_moves(ae_layout *l, const ae_kv *kv, kv_moves *m)
{
    m->begin = ae_layout_add(l, kv->n_seqs + 1, sizeof *m->begin);
    m->move = ae_layout_add(l, kv->max_moves, sizeof *m->move);
    m->part_move = ae_layout_add(l, kv->window ? kv->max_moves : 0, sizeof *m->part_move);
}

static void layout_tables(ae_layout *l, ae_kv *kv)
{
    const uint32_t n_pages = kv->window ? kv->n_pages : 0;
    kv->seqs = ae_layout_add(l, kv->n_seqs, sizeof *kv->seqs);
    kv->tables = ae_layout_add(l, (size_t)kv->n_seqs * kv->max_pages, sizeof *kv->tables);
    kv->count = ae_layout_add(l, kv->n_pages, sizeof *kv->count);
    kv->free_list = ae_layout_add(l, kv->n_pages, sizeof *kv->free_list);
    kv->nodes = ae_layout_add(l, kv->n_pages, sizeof *kv->nodes);
    kv->node_tokens = ae_layout_add(l, (size_t)kv->n_pages * AE_KV_PAGE, sizeof *kv->node_tokens);
    kv->part_of = ae_layout_add(l, n_pages, sizeof *kv->part_of);
    kv->n_needs = ae_layout_add(l, n_pages, sizeof *kv->n_needs);
    kv->parts = ae_layout_add(l, kv->n_parts, sizeof *kv->parts);
    kv->free_parts = ae_layout_add(l, kv->n_parts, sizeof *kv->free_parts);
    kv->part_table = ae_layout_add(l, n_pages ? kv->max_pages : 0, sizeof *kv->part_table);
    layout_moves(l, kv, &kv->moves);
}

static void layout_device(ae_layout *l, const ae_kv *kv, kv_device *d)
{
    const size_t n = (size_t)kv->n_seqs * kv->max_pages;
    d->tables = ae_layout_add(l, n, sizeof(int32_t));
    d->part_tables = ae_layout_add(l, kv->window ? n : 0, sizeof(int32_t));
    layout_moves(l, kv, &d->moves);
}

/* Returns the bytes that the device needs; SIZE_MAX if they overflow. */
static size_t plan_device(const ae_backend *backend, const stores *s, uint32_t i_device, const ae_kv *kv)
{
    ae_layout layout = {0};
    kv_device d;
    size_t bytes;
    layout_device(&layout, kv, &d);
    const bool fits =
        !layout.overflow &&
        ae_add_size(backend->ops->kv_bytes(backend, &s->on[i_device].shape), layout.bytes, &bytes) &&
        (!s->on[i_device].parts.n_layers ||
         ae_add_size(bytes, backend->ops->kv_bytes(backend, &s->on[i_device].parts), &bytes));
    return fits ? bytes : SIZE_MAX;
}

size_t ae_kv_plan_bytes(const ae_backend *backend, const ae_kv_options *options, size_t *on)
{
    stores s;
    if (!list_stores(options, &s)) return SIZE_MAX;
    ae_kv kv = {.n_seqs = options->n_seqs, .n_slots = options->n_slots, .max_pages = pages_of(options->n_slots),
                .n_pages = s.n_pages, .window = s.window, .n_parts = s.n_parts, .max_moves = moves_of(options)};
    ae_layout tables = {0};
    layout_tables(&tables, &kv);
    size_t total = tables.overflow ? SIZE_MAX : tables.bytes;
    for (uint32_t i = 0; i < s.n_devices; i++) {
        const size_t bytes = is_used(&s, i) ? plan_device(backend_of(backend, options, i), &s, i, &kv) : 0;
        if (!ae_add_size(total, bytes, &total)) total = SIZE_MAX;
        if (on) on[i] = bytes;
    }
    ae_free(s.layers);
    return total;
}

static aerie_status create_device(ae_kv *kv, uint32_t i_device, const stores *s, aerie_error *error)
{
    kv_device *d = &kv->devices[i_device];
    ae_layout layout = {0};
    layout_device(&layout, kv, d);
    d->bytes = layout.bytes;
    d->memory = layout.overflow ? NULL : d->backend->ops->alloc(d->backend, layout.bytes);
    if (!d->memory) return ae_backend_fail_alloc(d->backend, "the KV page tables on the device", layout.bytes, error);
    layout = (ae_layout){.base = d->memory};
    layout_device(&layout, kv, d);
    AE_TRY(d->backend->ops->kv_create(d->backend, &s->on[i_device].shape, &d->store, error));
    if (!s->on[i_device].parts.n_layers) return AERIE_OK;
    return d->backend->ops->kv_create(d->backend, &s->on[i_device].parts, &d->part_store, error);
}

static aerie_status create(ae_kv **out, ae_backend *backend, const ae_kv_options *options, const stores *s, aerie_error *error)
{
    ae_kv *kv = ae_alloc(1, sizeof *kv);
    if (!kv) return ae_fail_memory(error, "the KV cache", sizeof *kv);
    *kv = (ae_kv){.n_devices = s->n_devices, .n_seqs = options->n_seqs, .n_slots = options->n_slots,
                  .max_pages = pages_of(options->n_slots), .n_pages = s->n_pages, .root_child = AE_KV_NONE,
                  .newest = AE_KV_NONE, .oldest = AE_KV_NONE, .window = s->window, .n_parts = s->n_parts,
                  .max_moves = moves_of(options),
                  .idle = {{AE_KV_NONE, AE_KV_NONE}, {AE_KV_NONE, AE_KV_NONE}}};
    ae_layout layout = {0};
    layout_tables(&layout, kv);
    kv->memory = layout.overflow ? NULL : ae_alloc_aligned(1, layout.bytes);
    if (!kv->memory) {
        ae_kv_free(kv);
        return ae_fail_memory(error, "the KV page tables", layout.bytes);
    }
    layout = (ae_layout){.base = kv->memory};
    layout_tables(&layout, kv);
    for (uint32_t i = 0; i < kv->n_seqs; i++) kv->seqs[i].table = kv->tables + (size_t)i * kv->max_pages;
    for (uint32_t i = 0; i < kv->n_pages; i++) kv->free_list[kv->n_free++] = (int32_t)(kv->n_pages - 1 - i);
    for (uint32_t i = 0; kv->window && i < kv->n_pages; i++) kv->part_of[i] = AE_KV_NONE;
    for (uint32_t i = 0; i < kv->n_parts; i++) {
        kv->parts[i].page = AE_KV_NONE;
        kv->free_parts[kv->n_free_parts++] = (int32_t)(kv->n_parts - 1 - i);
    }
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < s->n_devices && status == AERIE_OK; i++) {
        if (!is_used(s, i)) continue;
        kv->devices[i].backend = options->n_devices ? options->devices[i].backend : backend;
        kv->devices[i].stream = options->n_devices ? options->devices[i].stream : NULL;
        status = create_device(kv, i, s, error);
    }
    if (status == AERIE_OK) *out = kv;
    else ae_kv_free(kv);
    return status;
}

aerie_status ae_kv_create(ae_kv **out, ae_backend *backend, const ae_kv_options *options, aerie_error *error)
{
    stores s;
    *out = NULL;
    if (!list_stores(options, &s)) return ae_fail_memory(error, "the KV cache", 2 * options->n_layers * sizeof *s.layers);
    const aerie_status status = create(out, backend, options, &s, error);
    ae_free(s.layers);
    return status;
}

void ae_kv_free(ae_kv *kv)
{
    if (!kv) return;
    for (kv_device *d = NULL; (d = ae_kv_next_device(kv, d));) {
        d->backend->ops->kv_free(d->backend, d->store);
        d->backend->ops->kv_free(d->backend, d->part_store);
        if (d->memory) d->backend->ops->free(d->backend, d->memory, d->bytes);
    }
    ae_free(kv->memory);
    ae_free(kv);
}

uint32_t ae_kv_n_live(const ae_kv *kv, uint32_t seq)
{
    return kv->seqs[seq].n_live;
}

ae_kv_view ae_kv_on(const ae_kv *kv, uint32_t i_device)
{
    const kv_device *d = &kv->devices[i_device];
    return (ae_kv_view){d->store, d->part_store, d->tables, d->part_tables};
}

ae_kv_store *ae_kv_pages(const ae_kv *kv)
{
    return kv->devices[0].store;
}

uint32_t ae_kv_table_stride(const ae_kv *kv)
{
    return kv->max_pages;
}

void ae_kv_upload_table(ae_kv *kv, ae_stream *stream, uint32_t seq)
{
    const kv_seq *s = &kv->seqs[seq];
    const size_t at = (size_t)seq * kv->max_pages, bytes = s->n_pages * sizeof *s->table;
    ae_kv_settle(kv, stream);
    for (kv_device *d = NULL; (d = ae_kv_next_device(kv, d));) {
        ae_stream *own = ae_kv_stream_of(d, stream);
        d->backend->ops->upload(own, d->tables + at, s->table, bytes);
        if (d->part_store) d->backend->ops->upload(own, d->part_tables + at, ae_kv_part_table(kv, seq), bytes);
    }
}

int32_t ae_kv_page_take(ae_kv *kv)
{
    if (!kv->n_free && !ae_kv_evict(kv)) return AE_KV_NONE;
    const int32_t page = kv->free_list[--kv->n_free];
    kv->count[page] = 1;
    return page;
}

void ae_kv_page_hold(ae_kv *kv, int32_t page)
{
    if (kv->count[page]++ == 1 && kv->nodes[page].n_tokens) kv->n_idle--;
}

void ae_kv_page_drop(ae_kv *kv, int32_t page)
{
    const uint32_t left = --kv->count[page];
    if (!left) {
        ae_kv_part_drop(kv, page);
        kv->free_list[kv->n_free++] = page;
    } else if (left == 1 && kv->nodes[page].n_tokens) {
        kv->n_idle++;
    }
}

int32_t ae_kv_page_copy(ae_kv *kv, ae_stream *stream, int32_t from, uint32_t n)
{
    ae_kv_settle(kv, stream);
    ae_kv_page_hold(kv, from); /* so that the page and its part are not given up for the copy */
    ae_kv_part_need(kv, from);
    int32_t copy = ae_kv_page_take(kv);
    const bool has_part = kv->window && kv->part_of[from] >= 0;
    if (copy >= 0 && has_part && !ae_kv_part_take(kv, copy)) {
        ae_kv_page_drop(kv, copy);
        copy = AE_KV_NONE;
    }
    for (kv_device *d = NULL; copy >= 0 && (d = ae_kv_next_device(kv, d));) {
        ae_stream *own = ae_kv_stream_of(d, stream);
        d->backend->ops->kv_copy_page(own, d->store, from, copy, n);
        if (has_part && d->part_store)
            d->backend->ops->kv_copy_page(own, d->part_store, kv->part_of[from], kv->part_of[copy], n);
    }
    ae_kv_part_unneed(kv, from);
    ae_kv_page_drop(kv, from);
    return copy;
}

uint32_t ae_kv_n_available(const ae_kv *kv)
{
    return kv->n_free + kv->n_idle;
}

uint32_t ae_kv_n_pages(const ae_kv *kv)
{
    return kv->n_pages;
}

/* Invariant 3: if the page of the first draft slot is shared, the sequence needs a copy of its own. */
static bool must_copy(const ae_kv *kv, const kv_seq *s)
{
    return s->n_live % AE_KV_PAGE && kv->count[s->table[s->n_live / AE_KV_PAGE]] > 1;
}

uint32_t ae_kv_n_missing(const ae_kv *kv, uint32_t seq, uint32_t n)
{
    const kv_seq *s = &kv->seqs[seq];
    const uint32_t need = pages_of(s->n_live + n), copy = n && must_copy(kv, s);
    return (need > s->n_pages ? need - s->n_pages : 0) + copy;
}

static aerie_status fail_pages(uint32_t seq, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache has fewer pages than it counted, for sequence %u; please report",
                   seq);
}

aerie_status ae_kv_reserve(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n, aerie_error *error)
{
    kv_seq *s = &kv->seqs[seq];
    if (s->n_live > kv->n_slots || n > kv->n_slots - s->n_live)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the context of %u positions is full: %u are used and %u more are needed",
                       kv->n_slots, s->n_live, n);
    const uint32_t missing = ae_kv_n_missing(kv, seq, n);
    if (missing > ae_kv_n_available(kv))
        return ae_fail(error, AERIE_ERROR_LIMIT,
                       "the KV cache of %u positions is full: %u pages of %d are needed and %u can be had",
                       kv->n_pages * AE_KV_PAGE, missing, AE_KV_PAGE, ae_kv_n_available(kv));
    if (n && must_copy(kv, s)) {
        const uint32_t i = s->n_live / AE_KV_PAGE;
        const int32_t shared = s->table[i], copy = ae_kv_page_copy(kv, stream, shared, s->n_live % AE_KV_PAGE);
        if (copy < 0) return fail_pages(seq, error);
        ae_kv_part_need(kv, copy); /* page i is among those that the sequence needs */
        s->table[i] = copy;
        ae_kv_part_unneed(kv, shared);
        ae_kv_page_drop(kv, shared);
    }
    while (s->n_pages < pages_of(s->n_live + n)) {
        const int32_t page = s->n_pages < kv->max_pages ? ae_kv_page_take(kv) : AE_KV_NONE;
        if (page >= 0) {
            s->table[s->n_pages++] = page;
            ae_kv_seq_need(kv, s, s->n_pages);
        }
        if (page < 0 || !ae_kv_part_take(kv, page)) {
            (void)ae_kv_truncate(kv, seq, s->n_live); /* dropping what was reserved cannot fail */
            return fail_pages(seq, error);
        }
    }
    s->n_reserved = s->n_live + n;
    return AERIE_OK;
}

/* Returns whether sources ascend, are drafts and are never below their targets: then no unread source is overwritten and no
 * live row is touched. */
static bool is_path(const kv_seq *s, uint32_t n_chain, const int32_t *path, uint32_t n)
{
    if (n_chain > s->n_reserved - s->n_live) return false;
    int64_t last = (int64_t)s->n_live + n_chain - 1;
    for (uint32_t i = 0; i < n; i++) {
        if (path[i] <= last) return false;
        last = path[i];
    }
    return last < (int64_t)s->n_reserved;
}

static int32_t place_in(const int32_t page_or_part, uint32_t slot)
{
    return page_or_part * AE_KV_PAGE + (int32_t)(slot % AE_KV_PAGE);
}

/* Adds a run that moves the rows of a path to consecutive slots from `to` on. */
static void add_run(ae_kv *kv, const kv_seq *s, const int32_t *path, uint32_t n, uint32_t to)
{
    kv_moves *m = &kv->moves;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t from_slot = (uint32_t)path[i], to_slot = to + i;
        const int32_t from = s->table[from_slot / AE_KV_PAGE], into = s->table[to_slot / AE_KV_PAGE];
        m->move[kv->n_moves] = (ae_kv_move){place_in(from, from_slot), place_in(into, to_slot)};
        if (kv->window)
            m->part_move[kv->n_moves] =
                (ae_kv_move){place_in(kv->part_of[from], from_slot), place_in(kv->part_of[into], to_slot)};
        kv->n_moves++;
    }
    m->begin[++kv->n_runs] = (int32_t)kv->n_moves;
}

/* Adds the moves of a path. If the path is longer than the list, its pieces share pages, so each piece but the last is moved at
 * once. */
static void move_rows(ae_kv *kv, ae_stream *stream, const kv_seq *s, const int32_t *path, uint32_t n, uint32_t to)
{
    if (!n) return;
    if (kv->n_runs == kv->n_seqs || n > kv->max_moves - kv->n_moves) ae_kv_settle(kv, stream);
    for (; n > kv->max_moves; n -= kv->max_moves, path += kv->max_moves, to += kv->max_moves) {
        add_run(kv, s, path, kv->max_moves, to);
        ae_kv_settle(kv, stream);
    }
    add_run(kv, s, path, n, to);
}

static void commit_moves(const ae_kv *kv, const kv_device *d, ae_stream *stream, ae_kv_store *store, const ae_kv_move *moves,
                         ae_kv_move *device)
{
    d->backend->ops->upload(stream, device, moves, kv->n_moves * sizeof *moves);
    d->backend->ops->kv_commit(stream, &(ae_kv_commit_args){store, kv->n_runs, d->moves.begin, device});
}

void ae_kv_settle(ae_kv *kv, ae_stream *stream)
{
    if (!kv->n_runs) return;
    for (kv_device *d = NULL; (d = ae_kv_next_device(kv, d));) {
        ae_stream *own = ae_kv_stream_of(d, stream);
        d->backend->ops->upload(own, d->moves.begin, kv->moves.begin, (kv->n_runs + 1) * sizeof *kv->moves.begin);
        commit_moves(kv, d, own, d->store, kv->moves.move, d->moves.move);
        if (d->part_store) commit_moves(kv, d, own, d->part_store, kv->moves.part_move, d->moves.part_move);
    }
    kv->n_runs = kv->n_moves = 0;
}

aerie_status ae_kv_commit(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t n_chain, const int32_t *path, uint32_t n)
{
    kv_seq *s = &kv->seqs[seq];
    if (!is_path(s, n_chain, path, n)) return AERIE_ERROR_INTERNAL;
    s->n_live += n_chain;
    uint32_t n_inplace = 0;
    while (n_inplace < n && path[n_inplace] == (int32_t)(s->n_live + n_inplace)) n_inplace++;
    move_rows(kv, stream, s, path + n_inplace, n - n_inplace, s->n_live + n_inplace);
    s->n_live += n;
    return ae_kv_truncate(kv, seq, s->n_live);
}

aerie_status ae_kv_truncate(ae_kv *kv, uint32_t seq, uint32_t n)
{
    kv_seq *s = &kv->seqs[seq];
    if (n > s->n_live || ae_kv_landing(kv, seq, n) != n) return AERIE_ERROR_INTERNAL;
    s->n_live = s->n_reserved = n;
    ae_kv_seq_need(kv, s, pages_of(n));
    while (s->n_pages > pages_of(n)) ae_kv_page_drop(kv, s->table[--s->n_pages]);
    return AERIE_OK;
}

aerie_status ae_kv_forget(ae_kv *kv, uint32_t seq, uint32_t i_page)
{
    kv_seq *s = &kv->seqs[seq];
    if (kv->window || i_page >= s->n_live / AE_KV_PAGE) return AERIE_ERROR_INTERNAL;
    AE_TRY(ae_kv_truncate(kv, seq, s->n_live));
    ae_kv_page_drop(kv, s->table[i_page]);
    s->n_pages--;
    memmove(s->table + i_page, s->table + i_page + 1, (s->n_pages - i_page) * sizeof *s->table);
    s->n_live = s->n_reserved -= AE_KV_PAGE;
    return AERIE_OK;
}

/* Counts the pages that a sequence of length n sees through its windows as needed once more, or once less. */
static void need_window(ae_kv *kv, const kv_seq *s, uint32_t n, void (*change)(ae_kv *, int32_t))
{
    for (uint32_t i = ae_kv_first_page(kv, n); kv->window && i < pages_of(n); i++) change(kv, s->table[i]);
}

aerie_status ae_kv_share(ae_kv *kv, ae_stream *stream, uint32_t to, uint32_t from, uint32_t n)
{
    kv_seq *t = &kv->seqs[to];
    const kv_seq *f = &kv->seqs[from];
    n = ae_kv_landing(kv, from, n);
    if (to == from) return ae_kv_truncate(kv, to, n);
    AE_TRY(ae_kv_truncate(kv, to, 0));
    need_window(kv, f, n, ae_kv_part_need); /* the copy must not cost them their parts */
    const int32_t copy = n % AE_KV_PAGE ? ae_kv_page_copy(kv, stream, f->table[n / AE_KV_PAGE], n % AE_KV_PAGE) : AE_KV_NONE;
    need_window(kv, f, n, ae_kv_part_unneed);
    if (copy < 0) n = ae_kv_landing(kv, from, n - n % AE_KV_PAGE);
    for (uint32_t i = 0; i < n / AE_KV_PAGE; i++) {
        t->table[t->n_pages++] = f->table[i];
        ae_kv_page_hold(kv, f->table[i]);
    }
    if (copy >= 0) t->table[t->n_pages++] = copy;
    t->n_live = t->n_reserved = n;
    ae_kv_seq_need(kv, t, t->n_pages);
    return AERIE_OK;
}

bool ae_kv_is_sound(const ae_kv *kv)
{
    uint32_t held = 0, counted = 0;
    for (uint32_t p = 0; p < kv->n_pages; p++) {
        uint32_t n = kv->nodes[p].n_tokens > 0;
        for (uint32_t i = 0; i < kv->n_seqs; i++)
            for (uint32_t j = 0; j < kv->seqs[i].n_pages; j++) n += kv->seqs[i].table[j] == (int32_t)p;
        if (n != kv->count[p]) return false;
        held += n > 0;
    }
    for (uint32_t i = 0; i < kv->n_free; i++) counted += kv->count[kv->free_list[i]] == 0;
    if (counted != kv->n_free || held + kv->n_free != kv->n_pages) return false;
    for (uint32_t i = 0; i < kv->n_seqs; i++) {
        const kv_seq *s = &kv->seqs[i];
        if (s->n_live > s->n_reserved || pages_of(s->n_reserved) > s->n_pages) return false;
        for (uint32_t slot = s->n_live; slot < s->n_reserved; slot++)
            if (kv->count[s->table[slot / AE_KV_PAGE]] != 1) return false;
    }
    return ae_kv_prefix_is_sound(kv) && ae_kv_window_is_sound(kv);
}
