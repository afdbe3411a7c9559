/* window.c - the parts of pages in which layers with a window keep their values; a part is given up when no row can see it. The
 * rules are in kv.h.
 *
 * Owns: which page has which part, and the two lists of parts that nobody needs. A part is free, or in a list, or its page is
 * needed by n_needs sequences. There are enough parts for the windows of all sequences and the rows of a pass, so a pass always
 * gets the parts that it needs. */
#include <string.h>

#include "cache/kv_int.h"

/* ---- Parts ------------------------------------------------------------------------------------------------- */

static void idle_remove(ae_kv *kv, int32_t part)
{
    const kv_part *x = &kv->parts[part];
    kv_idle *list = &kv->idle[x->retained];
    if (x->newer >= 0) kv->parts[x->newer].older = x->older;
    else list->newest = x->older;
    if (x->older >= 0) kv->parts[x->older].newer = x->newer;
    else list->oldest = x->newer;
}

static void idle_add(ae_kv *kv, int32_t part)
{
    kv_part *x = &kv->parts[part];
    kv_idle *list = &kv->idle[x->retained];
    x->newer = AE_KV_NONE;
    x->older = list->newest;
    if (list->newest >= 0) kv->parts[list->newest].newer = part;
    else list->oldest = part;
    list->newest = part;
}

bool ae_kv_part_take(ae_kv *kv, int32_t page)
{
    if (!kv->window) return true;
    if (!kv->n_free_parts) {
        const int32_t oldest = kv->idle[0].oldest >= 0 ? kv->idle[0].oldest : kv->idle[1].oldest;
        if (oldest < 0) return false;
        ae_kv_part_drop(kv, kv->parts[oldest].page);
    }
    const int32_t part = kv->free_parts[--kv->n_free_parts];
    kv->parts[part] = (kv_part){.page = page};
    kv->part_of[page] = part;
    if (!kv->n_needs[page]) idle_add(kv, part);
    return true;
}

void ae_kv_part_drop(ae_kv *kv, int32_t page)
{
    const int32_t part = kv->window ? kv->part_of[page] : AE_KV_NONE;
    if (part < 0) return;
    if (!kv->n_needs[page]) idle_remove(kv, part);
    kv->parts[part].page = AE_KV_NONE;
    kv->part_of[page] = AE_KV_NONE;
    kv->free_parts[kv->n_free_parts++] = part;
}

void ae_kv_part_pass(ae_kv *kv, int32_t from, int32_t to)
{
    const int32_t part = kv->window ? kv->part_of[from] : AE_KV_NONE;
    if (part < 0 || kv->part_of[to] >= 0) return;
    if (!kv->n_needs[from]) idle_remove(kv, part);
    kv->part_of[from] = AE_KV_NONE;
    kv->part_of[to] = part;
    kv->parts[part].page = to;
    if (!kv->n_needs[to]) idle_add(kv, part);
}

void ae_kv_part_need(ae_kv *kv, int32_t page)
{
    if (kv->window && kv->n_needs[page]++ == 0 && kv->part_of[page] >= 0) idle_remove(kv, kv->part_of[page]);
}

void ae_kv_part_unneed(ae_kv *kv, int32_t page)
{
    if (kv->window && --kv->n_needs[page] == 0 && kv->part_of[page] >= 0) idle_add(kv, kv->part_of[page]);
}

/* ---- Sequences --------------------------------------------------------------------------------------------- */

void ae_kv_seq_need(ae_kv *kv, kv_seq *s, uint32_t n_pages)
{
    if (!kv->window) return;
    /* Begins one page before what is seen, so that a draft model that takes back its drafts can land where it was. */
    uint32_t begin = ae_kv_first_page(kv, s->n_live > AE_KV_PAGE ? s->n_live - AE_KV_PAGE : 0);
    if (begin > n_pages) begin = n_pages;
    const uint32_t old_begin = s->need_begin, old_end = s->need_end;
    for (uint32_t i = begin; i < n_pages; i++)
        if (i < old_begin || i >= old_end) ae_kv_part_need(kv, s->table[i]);
    for (uint32_t i = old_begin; i < old_end; i++)
        if (i < begin || i >= n_pages) ae_kv_part_unneed(kv, s->table[i]);
    s->need_begin = begin;
    s->need_end = n_pages;
}

uint32_t ae_kv_landing(const ae_kv *kv, uint32_t seq, uint32_t n)
{
    const kv_seq *s = &kv->seqs[seq];
    if (n > s->n_live) n = s->n_live;
    if (!kv->window || !n) return n;
    kv_landing l = ae_kv_landing_begin(kv, n);
    for (uint32_t i = (n - 1) / AE_KV_PAGE + 1; i-- > 0 && ae_kv_landing_step(kv, &l, i, s->table[i]);) {}
    return l.n;
}

void ae_kv_retain(ae_kv *kv, uint32_t seq)
{
    const kv_seq *s = &kv->seqs[seq];
    if (!kv->window || !s->n_live) return;
    for (uint32_t i = ae_kv_first_page(kv, s->n_live); i <= (s->n_live - 1) / AE_KV_PAGE; i++) {
        kv_part *x = &kv->parts[kv->part_of[s->table[i]]]; /* sequences need these parts, so they are in no list */
        x->retained = true;
    }
}

bool ae_kv_loses_parts(const ae_kv *kv)
{
    return kv->window && kv->n_parts < kv->n_pages;
}

const int32_t *ae_kv_part_table(ae_kv *kv, uint32_t seq)
{
    const kv_seq *s = &kv->seqs[seq];
    memset(kv->part_table, 0, s->n_pages * sizeof *kv->part_table);
    for (uint32_t i = s->need_begin; i < s->need_end; i++) {
        const int32_t part = kv->part_of[s->table[i]];
        if (part >= 0) kv->part_table[i] = part;
    }
    return kv->part_table;
}

/* ---- Saved bytes ------------------------------------------------------------------------------------------- */

static ae_kv_store *store_of(const kv_device *d, bool parts)
{
    return parts ? d->part_store : d->store;
}

static size_t bytes_of(const kv_device *d, bool parts)
{
    const ae_kv_store *store = store_of(d, parts);
    return store ? d->backend->ops->kv_slot_bytes(store) : 0;
}

size_t ae_kv_store_bytes(const ae_kv *kv, bool parts)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < kv->n_devices; i++) bytes += bytes_of(&kv->devices[i], parts);
    return bytes;
}

/* Layers ascend over the devices, so these bytes do not depend on how layers are distributed. */
void ae_kv_stores_read(ae_kv *kv, ae_stream *stream, bool parts, const int32_t *table, uint32_t slot, uint8_t *out)
{
    for (kv_device *d = NULL; (d = ae_kv_next_device(kv, d));) {
        ae_kv_store *store = store_of(d, parts);
        if (store) d->backend->ops->kv_read(ae_kv_stream_of(d, stream), store, table, (int32_t)slot, out);
        out += bytes_of(d, parts);
    }
}

void ae_kv_stores_write(ae_kv *kv, ae_stream *stream, bool parts, const int32_t *table, uint32_t slot, const uint8_t *bytes)
{
    for (kv_device *d = NULL; (d = ae_kv_next_device(kv, d));) {
        ae_kv_store *store = store_of(d, parts);
        if (store) d->backend->ops->kv_write(ae_kv_stream_of(d, stream), store, table, (int32_t)slot, bytes);
        bytes += bytes_of(d, parts);
    }
}

size_t ae_kv_saved_bytes(const ae_kv *kv, uint32_t n, uint32_t first)
{
    return (size_t)n * ae_kv_store_bytes(kv, false) + (size_t)(n - first) * ae_kv_store_bytes(kv, true);
}

uint32_t ae_kv_saved_first(const ae_kv *kv, uint32_t seq, uint32_t n)
{
    const kv_seq *s = &kv->seqs[seq];
    uint32_t i = (n + AE_KV_PAGE - 1) / AE_KV_PAGE;
    if (!kv->window) return 0;
    while (i && kv->part_of[s->table[i - 1]] >= 0) i--;
    return i * AE_KV_PAGE;
}

ae_kv_bytes ae_kv_bytes_at(const ae_kv *kv, uint32_t n, uint32_t first, uint32_t begin, const void *all)
{
    const size_t bytes = ae_kv_store_bytes(kv, false), part_bytes = ae_kv_store_bytes(kv, true);
    uint8_t *const at = (uint8_t *)(uintptr_t)all;
    return (ae_kv_bytes){at + begin * bytes, at + n * bytes + (begin > first ? begin - first : 0) * part_bytes};
}

void ae_kv_save(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t first, uint32_t begin, uint32_t end, ae_kv_bytes out)
{
    const kv_seq *s = &kv->seqs[seq];
    const size_t bytes = ae_kv_store_bytes(kv, false), part_bytes = ae_kv_store_bytes(kv, true);
    ae_kv_settle(kv, stream);
    for (uint32_t i = begin; i < end; i++, out.pages += bytes) ae_kv_stores_read(kv, stream, false, s->table, i, out.pages);
    for (uint32_t i = begin > first ? begin : first; kv->window && i < end; i++, out.parts += part_bytes)
        ae_kv_stores_read(kv, stream, true, &kv->part_of[s->table[i / AE_KV_PAGE]], i % AE_KV_PAGE, out.parts);
}

size_t ae_kv_slot_bytes(const ae_kv *kv)
{
    return ae_kv_store_bytes(kv, false) + ae_kv_store_bytes(kv, true);
}

void ae_kv_read(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t slot, void *out)
{
    const int32_t *table = kv->seqs[seq].table, page = table[slot / AE_KV_PAGE];
    uint8_t *part = (uint8_t *)out + ae_kv_store_bytes(kv, false);
    ae_kv_settle(kv, stream);
    ae_kv_stores_read(kv, stream, false, table, slot, out);
    if (!kv->window) return;
    if (kv->part_of[page] < 0) memset(part, 0, ae_kv_store_bytes(kv, true));
    else ae_kv_stores_read(kv, stream, true, &kv->part_of[page], slot % AE_KV_PAGE, part);
}

aerie_status ae_kv_write(ae_kv *kv, ae_stream *stream, uint32_t seq, uint32_t slot, const void *bytes)
{
    const kv_seq *s = &kv->seqs[seq];
    const uint8_t *part = (const uint8_t *)bytes + ae_kv_store_bytes(kv, false);
    if (slot < s->n_live || slot >= s->n_reserved) return AERIE_ERROR_INTERNAL;
    ae_kv_settle(kv, stream);
    ae_kv_stores_write(kv, stream, false, s->table, slot, bytes);
    if (kv->window)
        ae_kv_stores_write(kv, stream, true, &kv->part_of[s->table[slot / AE_KV_PAGE]], slot % AE_KV_PAGE, part);
    return AERIE_OK;
}

/* ---- For tests --------------------------------------------------------------------------------------------- */

static bool lists_are_sound(const ae_kv *kv, uint32_t *n_idle)
{
    for (uint32_t k = 0; k < 2; k++)
        for (int32_t p = kv->idle[k].newest; p >= 0; p = kv->parts[p].older) {
            const kv_part *x = &kv->parts[p];
            if (++*n_idle > kv->n_parts || x->page < 0 || x->retained != (k == 1) || kv->n_needs[x->page]) return false;
        }
    return true;
}

bool ae_kv_window_is_sound(const ae_kv *kv)
{
    uint32_t n_held = 0, n_needed = 0, n_idle = 0;
    for (uint32_t p = 0; kv->window && p < kv->n_pages; p++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < kv->n_seqs; i++)
            for (uint32_t j = kv->seqs[i].need_begin; j < kv->seqs[i].need_end; j++) n += kv->seqs[i].table[j] == (int32_t)p;
        const int32_t part = kv->part_of[p];
        if (n != kv->n_needs[p] || (part >= 0 && (kv->parts[part].page != (int32_t)p || !kv->count[p]))) return false;
        n_held += part >= 0;
        n_needed += part >= 0 && n;
    }
    for (uint32_t i = 0; kv->window && i < kv->n_seqs; i++) {
        const kv_seq *s = &kv->seqs[i];
        if (s->need_end != s->n_pages || s->need_begin > ae_kv_first_page(kv, s->n_live)) return false;
        for (uint32_t j = ae_kv_first_page(kv, s->n_live); j < s->n_pages; j++)
            if (kv->part_of[s->table[j]] < 0) return false;
    }
    return !kv->window ||
           (lists_are_sound(kv, &n_idle) && n_held + kv->n_free_parts == kv->n_parts && n_idle + n_needed == n_held);
}
