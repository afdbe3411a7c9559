/* recurrent.c - implements recurrent.h. */
#include "cache/recurrent.h"
#include "backend/alloc_fail.h"

#include <string.h>

#include "base/mem.h"

typedef struct state_seq {
    ae_kv_key key;                           /* the adapters and the scope with which the state is computed */
    uint32_t n_plane;                       /* positions that the plane has seen */
    uint32_t n_accepted;
    uint8_t accepted[AERIE_MAX_DRAFT]; /* the records of the positions that follow those of the plane */
    bool running;
    bool stale;                             /* nothing is live: the plane must be zeroed before it is used */
    uint32_t n_chain, n_tree;               /* rows of the pass; both 0 outside a pass */
    int32_t *tokens;                        /* [n_slots] */
} state_seq;

typedef struct snapshot {
    uint32_t n; /* number of positions; 0: the place is free */
    ae_kv_key key;
    uint64_t used;
    int32_t *tokens; /* [n_slots] */
} snapshot;

typedef struct pass_arrays {
    ae_state_run *runs;     /* [n_seqs] */
    ae_state_visit *visits; /* [n_seqs][n_records] visits of each run */
    uint8_t *accepted;      /* [n_seqs][n_records] accepted records of each run */
} pass_arrays;

/* The store on a device; the backend is NULL if the device has no recurrent layers. */
typedef struct state_device {
    ae_backend *backend;
    ae_stream *stream;     /* NULL: the stream of the call */
    ae_state_store *store;
    pass_arrays arrays;    /* the arrays of the running pass, on the device */
    ae_state_pass pass;
    void *memory;          /* one block: the arrays */
    size_t bytes;
} state_device;

struct ae_state {
    state_device devices[AE_MAX_DEVICES];
    uint32_t n_devices;
    void *memory;
    uint32_t n_seqs, n_slots, n_records, n_snapshots;
    state_seq *seqs;       /* [n_seqs] */
    snapshot *snapshots;   /* [n_snapshots]; snapshot i is in plane n_seqs + i */
    uint64_t clock;
    int32_t *tokens;       /* [n_seqs + n_snapshots][n_slots] */
    uint32_t n_runs;       /* runs of the pass being built */
    pass_arrays host;
};

/* Returns the next device with recurrent layers after d. d NULL: the first one. Returns NULL if there is none left. */
static state_device *next_device(ae_state *state, const state_device *d)
{
    for (uint32_t i = d ? (uint32_t)(d - state->devices) + 1 : 0; i < state->n_devices; i++)
        if (state->devices[i].backend) return &state->devices[i];
    return NULL;
}

static ae_stream *stream_of(const state_device *d, ae_stream *stream)
{
    return d->stream ? d->stream : stream;
}

/* ---- Life ------------------------------------------------------------------------------------- */

/* Layers ascend over the devices, so those of one device are adjacent. */
static ae_state_shape shape_of(const ae_state_options *o, uint32_t i_device)
{
    uint32_t first = 0, n = o->n_layers;
    if (o->n_devices) {
        while (first < o->n_layers && o->device_of[first] < i_device) first++;
        for (n = 0; first + n < o->n_layers && o->device_of[first + n] == i_device;) n++;
    }
    return (ae_state_shape){n, o->layers + first, o->n_seqs, o->n_seqs + o->n_snapshots, o->n_records};
}

static uint32_t n_devices_of(const ae_state_options *o)
{
    return o->n_devices ? o->n_devices : 1;
}

static void layout_pass(ae_layout *l, const ae_state_options *o, pass_arrays *a)
{
    const size_t n = (size_t)o->n_seqs * o->n_records;
    a->runs = ae_layout_add(l, o->n_seqs, sizeof *a->runs);
    a->visits = ae_layout_add(l, n, sizeof *a->visits);
    a->accepted = ae_layout_add(l, n, sizeof *a->accepted);
}

static void layout_tables(ae_layout *l, const ae_state_options *o, ae_state *s)
{
    const size_t n = (size_t)o->n_seqs + o->n_snapshots;
    s->seqs = ae_layout_add(l, o->n_seqs, sizeof *s->seqs);
    s->snapshots = ae_layout_add(l, o->n_snapshots, sizeof *s->snapshots);
    s->tokens = ae_layout_add(l, n * o->n_slots, sizeof *s->tokens);
    layout_pass(l, o, &s->host);
}

size_t ae_state_plan_bytes(const ae_backend *backend, const ae_state_options *options, size_t *on)
{
    ae_state s;
    ae_layout tables = {0}, arrays = {0};
    layout_tables(&tables, options, &s);
    layout_pass(&arrays, options, &s.host);
    size_t total = tables.overflow || arrays.overflow ? SIZE_MAX : tables.bytes;
    for (uint32_t i = 0; i < n_devices_of(options); i++) {
        const ae_state_shape shape = shape_of(options, i);
        const ae_backend *own = options->n_devices ? options->devices[i].backend : backend;
        size_t bytes = 0;
        if (shape.n_layers && !ae_add_size(own->ops->state_bytes(own, &shape), arrays.bytes, &bytes)) bytes = SIZE_MAX;
        if (!ae_add_size(total, bytes, &total)) total = SIZE_MAX;
        if (on) on[i] = bytes;
    }
    return total;
}

static aerie_status create_device(state_device *d, const ae_state_options *options, const ae_state_shape *shape,
                                  aerie_error *error)
{
    ae_layout layout = {0};
    layout_pass(&layout, options, &d->arrays);
    d->bytes = layout.bytes;
    d->memory = layout.overflow ? NULL : d->backend->ops->alloc(d->backend, layout.bytes);
    if (!d->memory) return ae_backend_fail_alloc(d->backend, "the recurrent rows of a pass", layout.bytes, error);
    layout = (ae_layout){.base = d->memory};
    layout_pass(&layout, options, &d->arrays);
    return d->backend->ops->state_create(d->backend, shape, &d->store, error);
}

aerie_status ae_state_create(ae_state **out, ae_backend *backend, const ae_state_options *options, aerie_error *error)
{
    *out = NULL;
    ae_state *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "the recurrent state", sizeof *s);
    *s = (ae_state){.n_devices = n_devices_of(options), .n_seqs = options->n_seqs, .n_slots = options->n_slots,
                    .n_records = options->n_records, .n_snapshots = options->n_snapshots};
    ae_layout layout = {0};
    layout_tables(&layout, options, s);
    s->memory = layout.overflow ? NULL : ae_alloc_aligned(1, layout.bytes);
    if (!s->memory) {
        ae_state_free(s);
        return ae_fail_memory(error, "the tables of the recurrent state", layout.bytes);
    }
    layout = (ae_layout){.base = s->memory};
    layout_tables(&layout, options, s);
    for (uint32_t i = 0; i < s->n_seqs; i++) s->seqs[i].tokens = s->tokens + (size_t)i * s->n_slots;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        s->snapshots[i].tokens = s->tokens + ((size_t)s->n_seqs + i) * s->n_slots;
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0; i < s->n_devices && status == AERIE_OK; i++) {
        const ae_state_shape shape = shape_of(options, i);
        if (!shape.n_layers) continue;
        s->devices[i].backend = options->n_devices ? options->devices[i].backend : backend;
        s->devices[i].stream = options->n_devices ? options->devices[i].stream : NULL;
        status = create_device(&s->devices[i], options, &shape, error);
    }
    if (status == AERIE_OK) *out = s;
    else ae_state_free(s);
    return status;
}

void ae_state_free(ae_state *state)
{
    if (!state) return;
    for (state_device *d = NULL; (d = next_device(state, d));) {
        d->backend->ops->state_free(d->backend, d->store);
        if (d->memory) d->backend->ops->free(d->backend, d->memory, d->bytes);
    }
    ae_free(state->memory);
    ae_free(state);
}

uint32_t ae_state_n_records(const ae_state *state)
{
    return state->n_records;
}

uint32_t ae_state_n_live(const ae_state *state, uint32_t seq)
{
    return state->seqs[seq].n_plane + state->seqs[seq].n_accepted;
}

ae_state_store *ae_state_store_get(const ae_state *state)
{
    return state->devices[0].store;
}

/* ---- A pass --------------------------------------------------------------------------------------- */

/* The order in which the tentative rows of a sequence run. A child reuses its parent's buffer if no other child still needs it,
 * so a chain needs one buffer. Children with larger subtrees run later, so that trees need few buffers. */
typedef struct walk {
    const int32_t *parent;
    uint32_t n, n_visits, n_buffers, first; /* first: row of node 0 */
    uint32_t size[AERIE_MAX_DRAFT];
    bool done[AERIE_MAX_DRAFT];
    ae_state_visit *visits;
} walk;

/* Chooses the child of node (-1: the chain's end) that runs next. *n_left: how many children are left, including this one. */
static int32_t next_child(const walk *w, int32_t node, uint32_t *n_left)
{
    int32_t best = -1;
    *n_left = 0;
    for (uint32_t i = (uint32_t)(node + 1); i < w->n; i++) {
        if (w->parent[i] != node || w->done[i]) continue;
        (*n_left)++;
        if (best < 0 || w->size[i] < w->size[best]) best = (int32_t)i;
    }
    return best;
}

static void walk_children(walk *w, int32_t node, int32_t buffer, int32_t n_free)
{
    uint32_t n_left;
    for (int32_t child; (child = next_child(w, node, &n_left)) >= 0;) {
        const int32_t to = buffer >= 0 && n_left == 1 ? buffer : n_free;
        if ((uint32_t)to >= w->n_buffers) w->n_buffers = (uint32_t)to + 1;
        w->done[child] = true;
        w->visits[w->n_visits++] = (ae_state_visit){(int32_t)w->first + child, buffer, to};
        walk_children(w, child, to, to == buffer ? n_free : to + 1);
    }
}

static bool plan_walk(const int32_t *parent, uint32_t n, uint32_t first, ae_state_visit *visits)
{
    walk w = {.parent = parent, .n = n, .first = first, .visits = visits};
    for (uint32_t i = n; i--;) {
        if (parent[i] >= (int32_t)i || parent[i] < -1) return false;
        w.size[i]++;
        if (parent[i] >= 0) w.size[parent[i]] += w.size[i];
    }
    walk_children(&w, -1, -1, 0);
    return w.n_visits == n && w.n_buffers <= AE_STATE_BUFFERS;
}

void ae_state_begin(ae_state *state)
{
    for (uint32_t i = 0; i < state->n_runs; i++) {
        state_seq *s = &state->seqs[state->host.runs[i].seq];
        s->n_chain = s->n_tree = 0;
    }
    state->n_runs = 0;
}

static ae_state_run *run_of(ae_state *state, uint32_t seq)
{
    for (uint32_t i = 0; i < state->n_runs; i++)
        if (state->host.runs[i].seq == (int32_t)seq) return &state->host.runs[i];
    return NULL;
}

aerie_status ae_state_add_chain(ae_state *state, uint32_t seq, uint32_t first, uint32_t n)
{
    const state_seq *s = &state->seqs[seq];
    if (s->running || run_of(state, seq) || state->n_runs == state->n_seqs ||
        n > state->n_slots - ae_state_n_live(state, seq))
        return AERIE_ERROR_INTERNAL;
    state->seqs[seq].n_chain = n;
    state->host.runs[state->n_runs++] = (ae_state_run){.seq = (int32_t)seq, .first = first, .n_committed = n};
    return AERIE_OK;
}

aerie_status ae_state_add_tree(ae_state *state, uint32_t seq, uint32_t first, const int32_t *parent, uint32_t n)
{
    state_seq *s = &state->seqs[seq];
    ae_state_run *run = run_of(state, seq);
    const uint32_t i_run = run ? (uint32_t)(run - state->host.runs) : state->n_runs;
    if (s->running || s->n_tree || i_run == state->n_seqs || n > state->n_records ||
        n > state->n_slots - ae_state_n_live(state, seq) - s->n_chain ||
        !plan_walk(parent, n, first, state->host.visits + (size_t)i_run * state->n_records))
        return AERIE_ERROR_INTERNAL;
    if (!run) AE_TRY(ae_state_add_chain(state, seq, first, 0));
    s->n_tree = state->host.runs[i_run].n_tentative = n;
    return AERIE_OK;
}

static void copy_plane(ae_state *state, ae_stream *stream, uint32_t from, uint32_t to)
{
    for (state_device *d = NULL; (d = next_device(state, d));)
        d->backend->ops->state_copy(stream_of(d, stream), d->store, from, to);
}

/* Zeroes the plane if it is stale. This is deferred because most sequences that lose their state get another one before they
 * run. */
static void settle(ae_state *state, ae_stream *stream, uint32_t seq)
{
    for (state_device *d = NULL; state->seqs[seq].stale && (d = next_device(state, d));)
        d->backend->ops->state_zero(stream_of(d, stream), d->store, seq);
    state->seqs[seq].stale = false;
}

/* Returns the first n runs as a device sees them. */
static ae_state_pass pass_of(const ae_state *state, const state_device *d, uint32_t n)
{
    return (ae_state_pass){.store = d->store, .n_runs = n, .runs = d->arrays.runs, .visits = d->arrays.visits,
                           .accepted = d->arrays.accepted, .stride = state->n_records};
}

const ae_state_pass *ae_state_run_pass(ae_state *state, ae_stream *stream, uint32_t n_rows, const int32_t *row_parent)
{
    const pass_arrays *h = &state->host;
    const size_t n_records = (size_t)state->n_runs * state->n_records;
    for (uint32_t i = 0; i < state->n_runs; i++) {
        state_seq *s = &state->seqs[h->runs[i].seq];
        settle(state, stream, (uint32_t)h->runs[i].seq);
        s->running = true;
        h->runs[i].n_accepted = s->n_accepted;
        memcpy(h->accepted + (size_t)i * state->n_records, s->accepted, s->n_accepted);
    }
    for (state_device *d = NULL; (d = next_device(state, d));) {
        const ae_backend_ops *ops = d->backend->ops;
        ae_stream *own = stream_of(d, stream);
        ops->upload(own, d->arrays.runs, h->runs, state->n_runs * sizeof *h->runs);
        ops->upload(own, d->arrays.visits, h->visits, n_records * sizeof *h->visits);
        ops->upload(own, d->arrays.accepted, h->accepted, n_records);
        d->pass = pass_of(state, d, state->n_runs);
        d->pass.n_rows = n_rows;
    }
    return ae_state_pass_on(state, 0, row_parent);
}

uint32_t ae_state_n_runs(const ae_state *state)
{
    return state->n_runs;
}

const ae_state_pass *ae_state_pass_on(ae_state *state, uint32_t i_device, const int32_t *row_parent)
{
    state->devices[i_device].pass.parent = row_parent;
    return &state->devices[i_device].pass;
}

aerie_status ae_state_commit(ae_state *state, uint32_t seq, uint32_t n_chain, const int32_t *nodes, uint32_t n,
                             const int32_t *chain, const int32_t *path)
{
    state_seq *s = &state->seqs[seq];
    if (!s->running || n_chain != s->n_chain || n > s->n_tree) return AERIE_ERROR_INTERNAL;
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i] < 0 || (uint32_t)nodes[i] >= s->n_tree) return AERIE_ERROR_INTERNAL;
    s->n_plane += s->n_accepted;
    memcpy(s->tokens + s->n_plane, chain, n_chain * sizeof *chain);
    s->n_plane += n_chain;
    memcpy(s->tokens + s->n_plane, path, n * sizeof *path);
    for (uint32_t i = 0; i < n; i++) s->accepted[i] = (uint8_t)nodes[i];
    s->n_accepted = n;
    s->n_chain = s->n_tree = 0;
    s->running = false;
    return AERIE_OK;
}

/* ---- Landing -------------------------------------------------------------------------------------------- */

static bool same_tokens(const int32_t *a, const int32_t *b, uint32_t n)
{
    return !memcmp(a, b, n * sizeof *a);
}

/* Returns the number of the longest snapshot of tokens[0..n); -1: there is none. */
static int32_t find_snapshot(const ae_state *state, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < state->n_snapshots; i++) {
        const snapshot *x = &state->snapshots[i];
        if (!x->n || x->n > n || (best >= 0 && x->n <= state->snapshots[best].n)) continue;
        if (ae_kv_key_equal(x->key, key) && same_tokens(x->tokens, tokens, x->n)) best = (int32_t)i;
    }
    return best;
}

/* Lands the sequence on snapshot i, or on 0 if i is -1. */
static uint32_t land(ae_state *state, ae_stream *stream, uint32_t seq, int32_t i)
{
    state_seq *s = &state->seqs[seq];
    s->running = false;
    s->n_accepted = 0;
    s->n_plane = i < 0 ? 0 : state->snapshots[i].n;
    s->stale = i < 0;
    if (i < 0) return 0;
    copy_plane(state, stream, state->n_seqs + (uint32_t)i, seq);
    memcpy(s->tokens, state->snapshots[i].tokens, s->n_plane * sizeof *s->tokens);
    state->snapshots[i].used = ++state->clock;
    return s->n_plane;
}

/* Returns whether the sequence can be cut to n by dropping records. */
static bool is_near(const ae_state *state, uint32_t seq, uint32_t n)
{
    return !state->seqs[seq].running && n >= state->seqs[seq].n_plane;
}

uint32_t ae_state_landing(const ae_state *state, uint32_t seq, uint32_t n)
{
    const state_seq *s = &state->seqs[seq];
    const uint32_t live = ae_state_n_live(state, seq);
    if (n > live) n = live;
    if (is_near(state, seq, n)) return n;
    const int32_t i = find_snapshot(state, s->key, s->tokens, n);
    return i < 0 ? 0 : state->snapshots[i].n;
}

uint32_t ae_state_truncate(ae_state *state, ae_stream *stream, uint32_t seq, uint32_t n)
{
    state_seq *s = &state->seqs[seq];
    const uint32_t live = ae_state_n_live(state, seq);
    if (n > live) n = live;
    if (!is_near(state, seq, n)) return land(state, stream, seq, find_snapshot(state, s->key, s->tokens, n));
    s->n_accepted = n - s->n_plane;
    return n;
}

/* Advances the plane to the live position, so that no records are needed. */
static void absorb(ae_state *state, ae_stream *stream, uint32_t seq)
{
    state_seq *s = &state->seqs[seq];
    for (state_device *d = NULL; s->n_accepted && (d = next_device(state, d));) {
        const ae_backend_ops *ops = d->backend->ops;
        const ae_state_run run = {.seq = (int32_t)seq, .n_accepted = s->n_accepted};
        const ae_state_pass pass = pass_of(state, d, 1);
        ae_stream *own = stream_of(d, stream);
        ops->upload(own, d->arrays.runs, &run, sizeof run);
        ops->upload(own, d->arrays.accepted, s->accepted, s->n_accepted);
        ops->state_absorb(own, &pass);
    }
    s->n_plane += s->n_accepted;
    s->n_accepted = 0;
}

uint32_t ae_state_share(ae_state *state, ae_stream *stream, uint32_t to, uint32_t from, uint32_t n)
{
    const state_seq *f = &state->seqs[from];
    state_seq *t = &state->seqs[to];
    const uint32_t live = ae_state_n_live(state, from);
    if (to == from) return ae_state_truncate(state, stream, to, n);
    t->key = f->key;
    if (f->running || n < live) return land(state, stream, to, find_snapshot(state, f->key, f->tokens, n < live ? n : live));
    n = live;
    settle(state, stream, from);
    absorb(state, stream, from);
    copy_plane(state, stream, from, to);
    memcpy(t->tokens, f->tokens, n * sizeof *t->tokens);
    t->n_plane = n;
    t->n_accepted = 0;
    t->running = t->stale = false;
    return n;
}

uint32_t ae_state_match(const ae_state *state, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    const int32_t i = find_snapshot(state, key, tokens, n);
    return i < 0 ? 0 : state->snapshots[i].n;
}

uint32_t ae_state_adopt(ae_state *state, ae_stream *stream, uint32_t seq, const int32_t *tokens, uint32_t n)
{
    return land(state, stream, seq, find_snapshot(state, state->seqs[seq].key, tokens, n));
}

void ae_state_set_key(ae_state *state, uint32_t seq, ae_kv_key key)
{
    state->seqs[seq].key = key;
}

/* Returns whether these tokens have a snapshot; if so, it counts as used now. If not, *at is the place for a new one;
 * n_snapshots must not be 0. */
static bool touch_snapshot(ae_state *state, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t *at)
{
    *at = 0;
    for (uint32_t i = 0; i < state->n_snapshots; i++) {
        snapshot *x = &state->snapshots[i];
        if (x->n == n && ae_kv_key_equal(x->key, key) && same_tokens(x->tokens, tokens, n)) {
            x->used = ++state->clock;
            return true;
        }
        if (x->used < state->snapshots[*at].used) *at = i;
    }
    return false;
}

static void name_snapshot(ae_state *state, uint32_t at, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    memcpy(state->snapshots[at].tokens, tokens, n * sizeof *tokens);
    state->snapshots[at].n = n;
    state->snapshots[at].key = key;
    state->snapshots[at].used = ++state->clock;
}

bool ae_state_snapshot(ae_state *state, ae_stream *stream, uint32_t seq)
{
    const state_seq *s = &state->seqs[seq];
    const uint32_t n = ae_state_n_live(state, seq);
    uint32_t at;
    if (s->running || !n || !state->n_snapshots) return false;
    if (touch_snapshot(state, s->key, s->tokens, n, &at)) return true;
    absorb(state, stream, seq);
    copy_plane(state, stream, seq, state->n_seqs + at);
    name_snapshot(state, at, s->key, s->tokens, n);
    return true;
}

void ae_state_forget_snapshots(ae_state *state)
{
    for (uint32_t i = 0; i < state->n_snapshots; i++) state->snapshots[i].n = 0, state->snapshots[i].used = 0;
}

/* ---- In and out ------------------------------------------------------------------------------------------- */

size_t ae_state_bytes(const ae_state *state)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < state->n_devices; i++) {
        const state_device *d = &state->devices[i];
        bytes += d->backend ? d->backend->ops->state_plane_bytes(d->store) : 0;
    }
    return bytes;
}

static void read_plane(ae_state *state, ae_stream *stream, uint32_t plane, uint8_t *to)
{
    for (state_device *d = NULL; (d = next_device(state, d)); to += d->backend->ops->state_plane_bytes(d->store))
        d->backend->ops->state_read(stream_of(d, stream), d->store, plane, to);
}

static void write_plane(ae_state *state, ae_stream *stream, uint32_t plane, const uint8_t *from)
{
    for (state_device *d = NULL; (d = next_device(state, d)); from += d->backend->ops->state_plane_bytes(d->store))
        d->backend->ops->state_write(stream_of(d, stream), d->store, plane, from);
}

aerie_status ae_state_read(ae_state *state, ae_stream *stream, uint32_t seq, void *out)
{
    if (state->seqs[seq].running) return AERIE_ERROR_INTERNAL;
    settle(state, stream, seq);
    absorb(state, stream, seq);
    read_plane(state, stream, seq, out);
    return AERIE_OK;
}

aerie_status ae_state_write(ae_state *state, ae_stream *stream, uint32_t seq, const int32_t *tokens, uint32_t n,
                            const void *bytes)
{
    state_seq *s = &state->seqs[seq];
    if (n > state->n_slots) return AERIE_ERROR_INTERNAL;
    write_plane(state, stream, seq, bytes);
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    s->n_plane = n;
    s->n_accepted = 0;
    s->running = s->stale = false;
    return AERIE_OK;
}

bool ae_state_read_snapshot(ae_state *state, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, void *out)
{
    const int32_t i = find_snapshot(state, key, tokens, n);
    if (i < 0 || state->snapshots[i].n != n) return false;
    read_plane(state, stream, state->n_seqs + (uint32_t)i, out);
    return true;
}

bool ae_state_write_snapshot(ae_state *state, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n,
                             const void *bytes)
{
    uint32_t at;
    if (!n || n > state->n_slots || !state->n_snapshots) return false;
    if (touch_snapshot(state, key, tokens, n, &at)) return true;
    write_plane(state, stream, state->n_seqs + at, bytes);
    name_snapshot(state, at, key, tokens, n);
    return true;
}
