/* saved.c - what the cache holds of sequences as canonical bytes, out of it and into it (engine.h).
 *
 * In a group rank 0 gets the bytes of all ranks, and sends all bytes that it loads to all of them: they are those of one
 * machine, so that a file fits any group. A page of positions takes a command and a round. Which bytes are whose,
 * group_bytes.h says.
 *
 * Owns the buffers of such rounds, made when the first comes. What a follower is told is checked in follow.c. */
#include "engine/commands.h"
#include "engine/engine_int.h"

uint32_t ae_engine_seq_saved(const ae_engine *e, uint32_t seq, uint32_t n)
{
    const uint32_t at = ae_kv_landing(e->kv, seq, n);
    if (!e->state) return at;
    return at == ae_state_n_live(e->state, seq) && ae_state_landing(e->state, seq, at) == at ? at : 0;
}

uint32_t ae_engine_prefix_saved(const ae_engine *e, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    n = ae_kv_match(e->kv, key, tokens, n);
    for (uint32_t last = n + 1; e->state && n < last;) {
        last = n;
        n = ae_kv_match(e->kv, key, tokens, ae_state_match(e->state, key, tokens, n));
    }
    return n;
}

/* ---- This engine's own bytes ------------------------------------------------------------------------------------- */

static bool with_state(const ae_engine *e, const ae_engine_saved *s)
{
    return s->has_state && e->state && s->end == s->n;
}

/* Where the sequence is: in a slot (tokens NULL), or in the prefix tree. */
typedef struct source {
    uint32_t seq;
    ae_kv_key key;
    const int32_t *tokens;
} source;

static void read_own(ae_engine *e, const source *from, const ae_engine_saved *s, ae_kv_bytes to, uint8_t *state)
{
    if (from->tokens) ae_kv_read_prefix(e->kv, NULL, from->key, from->tokens, s->n, s->first, s->begin, s->end, to);
    else ae_kv_save(e->kv, NULL, from->seq, s->first, s->begin, s->end, to);
    if (!with_state(e, s)) return;
    if (from->tokens) (void)ae_state_read_snapshot(e->state, NULL, from->key, from->tokens, s->n, state);
    else (void)ae_state_read(e->state, NULL, from->seq, state);
}

static bool write_own(ae_engine *e, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s, ae_kv_bytes bytes,
                      const uint8_t *state)
{
    const bool whole = ae_kv_write_prefix(e->kv, NULL, key, tokens, s->n, s->first, s->begin, s->end, bytes);
    if (with_state(e, s)) (void)ae_state_write_snapshot(e->state, NULL, key, tokens, s->n, state);
    return whole;
}

/* ---- A group's ------------------------------------------------------------------------------------------------------ */

/* How many rows of each kind are in a piece. */
typedef struct piece {
    size_t n[AE_BYTES_KINDS];
} piece;

static piece piece_of(const ae_engine *e, const ae_engine_saved *s)
{
    const uint32_t part = s->begin > s->first ? s->begin : s->first;
    return (piece){{s->end - s->begin, s->end > part ? s->end - part : 0, with_state(e, s)}};
}

static size_t own_bytes(const ae_group_bytes *b, uint32_t rank, const piece *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) n += p->n[i] * b->of[rank][i].own;
    return n;
}

static size_t whole_bytes(const ae_group_bytes *b, const piece *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) n += p->n[i] * b->whole[i];
    return n;
}

static bool grow(uint8_t **buffer, size_t *room, size_t n)
{
    if (n <= *room) return true;
    ae_free(*buffer);
    *buffer = ae_alloc(n, 1);
    *room = *buffer ? n : 0;
    return *buffer;
}

/* Makes room for a round; without room the group cannot continue. */
static bool make_room(ae_engine *e, const piece *p)
{
    ae_comm *comm = e->net->ranks->comm;
    ae_engine_saving *room = &e->saving;
    aerie_error error = {0};
    const size_t all = whole_bytes(room->bytes, p), own = own_bytes(room->bytes, comm->rank, p);
    const bool fits = all <= UINT32_MAX && grow(&room->own, &room->n_own, own) && grow(&room->all, &room->n_all, all) &&
                      ae_comm_reserve(comm, all, &error) == AERIE_OK;
    if (!fits) ae_comm_fail(comm, "no memory for a saved sequence; a shorter context (-c) needs less");
    return fits;
}

static ae_kv_bytes own_places(const ae_engine_saving *room, uint32_t rank, const piece *p, uint8_t **state)
{
    const ae_rank_bytes *of = room->bytes->of[rank];
    uint8_t *parts = room->own + p->n[AE_BYTES_PAGES] * of[AE_BYTES_PAGES].own;
    *state = parts + p->n[AE_BYTES_PARTS] * of[AE_BYTES_PARTS].own;
    return (ae_kv_bytes){room->own, parts};
}

/* Finds where each kind of a piece begins in all bytes of a sequence. */
static void places_in(const ae_engine *e, const ae_engine_saved *s, uint8_t *all, uint8_t **places)
{
    const size_t *whole = e->saving.bytes->whole;
    places[AE_BYTES_PAGES] = all + s->begin * whole[AE_BYTES_PAGES];
    places[AE_BYTES_PARTS] = all + s->n * whole[AE_BYTES_PAGES] +
                             (s->begin > s->first ? s->begin - s->first : 0) * whole[AE_BYTES_PARTS];
    places[AE_BYTES_STATE] = all + s->n * whole[AE_BYTES_PAGES] + (s->n - s->first) * whole[AE_BYTES_PARTS];
}

/* Runs one round: rank 0 gets all bytes, and puts them in their places in out. */
static void gather(ae_engine *e, const source *from, const ae_engine_saved *s, uint8_t *out)
{
    ae_engine_saving *room = &e->saving;
    const ae_group_bytes *b = room->bytes;
    ae_comm *comm = e->net->ranks->comm;
    const piece p = piece_of(e, s);
    ae_slices slices = {{0}, {0}};
    uint8_t *state, *places[AE_BYTES_KINDS];
    aerie_error error = {0};
    if (!make_room(e, &p)) return;
    const ae_kv_bytes own = own_places(room, comm->rank, &p, &state);
    read_own(e, from, s, own, state);
    if (ae_engine_sync(e, &error) != AERIE_OK) ae_comm_fail(comm, error.text); /* otherwise zeros would be saved */
    for (uint32_t r = 0, at = 0; r < comm->n_ranks; at += slices.n[r++]) {
        slices.first[r] = at;
        for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) slices.n[r] += (uint32_t)(p.n[i] * b->of[r][i].given);
    }
    const uint8_t *const kinds[] = {own.pages, own.parts, state};
    uint8_t *to = room->all + slices.first[comm->rank];
    for (uint32_t i = 0; i < AE_BYTES_KINDS; i++) to = ae_rank_bytes_pack(&b->of[comm->rank][i], kinds[i], p.n[i], to);
    ae_comm_gather(comm, &(ae_comm_part){room->all, room->n_all, 1, 1, &slices}, 1, ae_to_first());
    if (comm->rank || ae_comm_status(comm, NULL) != AERIE_OK) return;
    places_in(e, s, out, places);
    const uint8_t *at = room->all;
    for (uint32_t r = 0; r < comm->n_ranks; r++)
        for (uint32_t i = 0; i < AE_BYTES_KINDS; i++)
            at = ae_rank_bytes_unpack(&b->of[r][i], at, p.n[i], places[i], b->whole[i]);
}

/* Runs one round: all ranks get all bytes, and each writes its own. */
static bool spread(ae_engine *e, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s, const uint8_t *from)
{
    ae_engine_saving *room = &e->saving;
    const ae_group_bytes *b = room->bytes;
    ae_comm *comm = e->net->ranks->comm;
    const piece p = piece_of(e, s);
    ae_slices slices = {{0}, {0}};
    uint8_t *state, *places[AE_BYTES_KINDS], *at = room->all;
    if (!make_room(e, &p)) return false;
    at = room->all;
    if (from) places_in(e, s, (uint8_t *)(uintptr_t)from, places);
    for (uint32_t i = 0; from && i < AE_BYTES_KINDS; at += p.n[i] * b->whole[i], i++)
        memcpy(at, places[i], p.n[i] * b->whole[i]);
    slices.n[0] = (uint32_t)whole_bytes(b, &p);
    ae_comm_gather(comm, &(ae_comm_part){room->all, room->n_all, 1, 1, &slices}, 1, ae_to_all(comm));
    if (ae_comm_status(comm, NULL) != AERIE_OK) return false;
    const ae_kv_bytes own = own_places(room, comm->rank, &p, &state);
    uint8_t *const kinds[] = {own.pages, own.parts, state};
    at = room->all;
    for (uint32_t i = 0; i < AE_BYTES_KINDS; at += p.n[i] * b->whole[i], i++)
        ae_rank_bytes_take(&b->of[comm->rank][i], at, b->whole[i], p.n[i], kinds[i]);
    return write_own(e, key, tokens, s, own, state);
}

/* Returns the next piece of s: up to the end of a page. */
static ae_engine_saved next_piece(const ae_engine_saved *s, uint32_t begin)
{
    ae_engine_saved part = *s;
    const uint32_t end = (begin / AE_KV_PAGE + 1) * AE_KV_PAGE;
    part.begin = begin;
    if (end < s->end) part.end = end;
    return part;
}

void ae_engine_follow_save(ae_engine *e, uint32_t seq, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s)
{
    gather(e, &(source){seq, key, tokens}, s, NULL);
}

void ae_engine_follow_load(ae_engine *e, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s)
{
    (void)spread(e, key, tokens, s, NULL);
}

static void save(ae_engine *e, const source *from, const ae_engine_saved *s, void *out)
{
    uint8_t *const all = out;
    if (e->saving.bytes) {
        const bool held = ae_commands_hold(e->options.commands);
        for (uint32_t at = s->begin; at < s->end;) {
            const ae_engine_saved part = next_piece(s, at);
            ae_commands_put_saved(e, AE_COMMAND_SAVE, from->seq, from->key, from->tokens, from->tokens ? s->n : 0, &part);
            ae_commands_send(e->options.commands);
            gather(e, from, &part, all);
            at = part.end;
        }
        ae_commands_release(e->options.commands, held);
        return;
    }
    read_own(e, from, s, ae_kv_bytes_at(e->kv, s->n, s->first, s->begin, all), all + ae_kv_saved_bytes(e->kv, s->n, s->first));
}

/* ---- Whichever it is ------------------------------------------------------------------------------------------------ */

size_t ae_engine_saved_bytes(const ae_engine *e, uint32_t n, uint32_t first, bool has_state)
{
    const ae_group_bytes *b = e->saving.bytes;
    if (!b) return ae_kv_saved_bytes(e->kv, n, first) + (has_state && e->state ? ae_state_bytes(e->state) : 0);
    return n * b->whole[AE_BYTES_PAGES] + (n - first) * b->whole[AE_BYTES_PARTS] +
           (has_state && e->state ? b->whole[AE_BYTES_STATE] : 0);
}

void ae_engine_save_seq(ae_engine *e, uint32_t seq, const ae_engine_saved *s, void *out)
{
    save(e, &(source){.seq = seq}, s, out);
}

void ae_engine_save_prefix(ae_engine *e, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s, void *out)
{
    save(e, &(source){.key = key, .tokens = tokens}, s, out);
}

bool ae_engine_load_prefix(ae_engine *e, ae_kv_key key, const int32_t *tokens, const ae_engine_saved *s, const void *bytes)
{
    bool whole = true;
    if (!e->saving.bytes)
        return write_own(e, key, tokens, s, ae_kv_bytes_at(e->kv, s->n, s->first, s->begin, bytes),
                         (const uint8_t *)bytes + ae_kv_saved_bytes(e->kv, s->n, s->first));
    const bool held = ae_commands_hold(e->options.commands);
    for (uint32_t at = s->begin; at < s->end && whole;) {
        const ae_engine_saved part = next_piece(s, at);
        whole = part.end <= e->options.n_ctx; /* positions that no sequence can hold are refused */
        if (!whole) break;
        ae_commands_put_saved(e, AE_COMMAND_LOAD, 0, key, tokens, part.end, &part);
        ae_commands_send(e->options.commands);
        whole = spread(e, key, tokens, &part, bytes);
        at = part.end;
    }
    ae_commands_release(e->options.commands, held);
    return whole;
}
