/* prefix.c - the prefix tree: pages of sequences that have ended, found again by their tokens.
 *
 * Owns nothing: nodes are pages of the pool (kv_int.h), and the rules are in kv.h. The list by last use has every node. Using a
 * path moves its nodes to the new end, the deepest first, so a parent is always newer than its children, and the oldest node
 * without other holders is a leaf. */
#include <string.h>

#include "cache/kv_int.h"

static const int32_t *tokens_of(const ae_kv *kv, int32_t node)
{
    return kv->node_tokens + (size_t)node * AE_KV_PAGE;
}

static int32_t *first_child(ae_kv *kv, int32_t parent)
{
    return parent < 0 ? &kv->root_child : &kv->nodes[parent].child;
}

/* ---- The list by last use ------------------------------------------------------------------------------ */

static void list_remove(ae_kv *kv, int32_t node)
{
    const kv_node *x = &kv->nodes[node];
    if (x->newer >= 0) kv->nodes[x->newer].older = x->older;
    else kv->newest = x->older;
    if (x->older >= 0) kv->nodes[x->older].newer = x->newer;
    else kv->oldest = x->newer;
}

static void list_add(ae_kv *kv, int32_t node)
{
    kv_node *x = &kv->nodes[node];
    x->newer = AE_KV_NONE;
    x->older = kv->newest;
    if (kv->newest >= 0) kv->nodes[kv->newest].newer = node;
    else kv->oldest = node;
    kv->newest = node;
}

static void touch_path(ae_kv *kv, int32_t node)
{
    for (; node >= 0; node = kv->nodes[node].parent) {
        list_remove(kv, node);
        list_add(kv, node);
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

static void node_add(ae_kv *kv, int32_t page, int32_t parent, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    kv_node *x = &kv->nodes[page];
    int32_t *first = first_child(kv, parent);
    *x = (kv_node){.key = key, .n_tokens = n, .parent = parent, .child = AE_KV_NONE, .next = *first, .prev = AE_KV_NONE};
    if (*first >= 0) kv->nodes[*first].prev = page;
    *first = page;
    memcpy(kv->node_tokens + (size_t)page * AE_KV_PAGE, tokens, n * sizeof *tokens);
    list_add(kv, page);
    kv->count[page]++; /* the sequence that computed it is the other holder */
}

/* Removes a leaf from the tree. */
static void node_remove(ae_kv *kv, int32_t page)
{
    kv_node *x = &kv->nodes[page];
    AE_ASSERT(x->child < 0);
    if (x->prev >= 0) kv->nodes[x->prev].next = x->next;
    else *first_child(kv, x->parent) = x->next;
    if (x->next >= 0) kv->nodes[x->next].prev = x->prev;
    list_remove(kv, page);
    if (kv->count[page] == 1) kv->n_idle--;
    x->n_tokens = 0;
    ae_kv_page_drop(kv, page);
}

bool ae_kv_evict(ae_kv *kv)
{
    for (int32_t node = kv->oldest; node >= 0; node = kv->nodes[node].newer) {
        if (kv->count[node] > 1 || kv->nodes[node].child >= 0) continue;
        node_remove(kv, node);
        return true;
    }
    return false;
}

void ae_kv_forget_prefixes(ae_kv *kv)
{
    while (ae_kv_evict(kv)) {}
}

static uint32_t n_equal(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Returns whether a child of `parent` belongs to sequences with this key. Only first pages can differ: all nodes below one have
 * its key. */
static bool is_of(const ae_kv *kv, int32_t parent, ae_kv_key key, int32_t child)
{
    return parent >= 0 || ae_kv_key_equal(kv->nodes[child].key, key);
}

/* Finds the child that shares most of tokens[0..n), from the first on, *n_same of them. Returns NONE if no child shares any. */
static int32_t best_child(const ae_kv *kv, int32_t parent, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t *n_same)
{
    int32_t best = AE_KV_NONE;
    *n_same = 0;
    if (n > AE_KV_PAGE) n = AE_KV_PAGE;
    for (int32_t c = parent < 0 ? kv->root_child : kv->nodes[parent].child; c >= 0 && *n_same < n; c = kv->nodes[c].next) {
        const uint32_t has = kv->nodes[c].n_tokens;
        const uint32_t same = is_of(kv, parent, key, c) ? n_equal(tokens_of(kv, c), tokens, has < n ? has : n) : 0;
        if (same <= *n_same) continue;
        *n_same = same;
        best = c;
    }
    return best;
}

/* Finds the deepest node whose page is full and equal. *part: the child that shares most of the following tokens, *n_part of
 * them, or NONE. */
static uint32_t walk(const ae_kv *kv, ae_kv_key key, const int32_t *tokens, uint32_t n, int32_t *node, int32_t *part,
                     uint32_t *n_part)
{
    uint32_t done = 0;
    *node = AE_KV_NONE;
    for (;;) {
        *part = best_child(kv, *node, key, tokens + done, n - done, n_part);
        if (*n_part < AE_KV_PAGE) return done;
        *node = *part;
        done += AE_KV_PAGE;
    }
}

/* Returns where a sequence of n positions on this path can land; `node` has the last of them. */
static uint32_t path_landing(const ae_kv *kv, int32_t node, uint32_t n)
{
    kv_landing l = ae_kv_landing_begin(kv, n);
    uint32_t i = n ? (n - 1) / AE_KV_PAGE : 0;
    if (!kv->window || !n) return n;
    for (; ae_kv_landing_step(kv, &l, i, node) && i; i--) node = kv->nodes[node].parent;
    return l.n;
}

/* ---- In and out -------------------------------------------------------------------------------------------- */

/* Removes leaves of `parent` that hold nothing beyond tokens[0..n). */
static void drop_shorter(ae_kv *kv, int32_t parent, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    for (int32_t c = *first_child(kv, parent), next; c >= 0; c = next) {
        const uint32_t has = kv->nodes[c].n_tokens;
        next = kv->nodes[c].next;
        if (has < n && is_of(kv, parent, key, c) && n_equal(tokens_of(kv, c), tokens, has) == has) node_remove(kv, c);
    }
}

/* Replaces a sequence's own page by the equal page of the tree; the tree's page takes over the part if it has none. */
static void replace_page(ae_kv *kv, kv_seq *s, uint32_t i, int32_t known)
{
    ae_kv_page_hold(kv, known);
    ae_kv_part_pass(kv, s->table[i], known);
    ae_kv_page_drop(kv, s->table[i]);
    s->table[i] = known;
}

void ae_kv_keep(ae_kv *kv, uint32_t seq, ae_kv_key key, const int32_t *tokens)
{
    kv_seq *s = &kv->seqs[seq];
    int32_t parent = AE_KV_NONE;
    (void)ae_kv_truncate(kv, seq, s->n_live); /* dropping drafts cannot fail */
    ae_kv_seq_need(kv, s, 0);                 /* the sequence needs no parts until it has its new table */
    for (uint32_t i = 0; i < s->n_pages; i++) {
        const int32_t *own = tokens + (size_t)i * AE_KV_PAGE;
        const uint32_t left = s->n_live - i * AE_KV_PAGE, n = left < AE_KV_PAGE ? left : AE_KV_PAGE;
        uint32_t n_same;
        const int32_t known = best_child(kv, parent, key, own, n, &n_same);
        if (n_same == n && n < AE_KV_PAGE) { /* the tree already has the last positions */
            if (kv->nodes[known].n_tokens == n && !ae_kv_has_part(kv, known) && kv->count[s->table[i]] == 1)
                replace_page(kv, s, i, known);
            parent = known;
            break;
        }
        if (n_same == n) {
            if (s->table[i] != known) {
                if (kv->count[s->table[i]] > 1) break; /* other sequences hold the page together with the pages after it
                                                        * (invariant 5) */
                replace_page(kv, s, i, known);
            }
        } else {
            drop_shorter(kv, parent, key, own, n);
            node_add(kv, s->table[i], parent, key, own, n);
        }
        parent = s->table[i];
    }
    ae_kv_seq_need(kv, s, s->n_pages);
    touch_path(kv, parent);
}

uint32_t ae_kv_match(const ae_kv *kv, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    int32_t node, part;
    uint32_t n_part;
    const uint32_t done = walk(kv, key, tokens, n, &node, &part, &n_part);
    return path_landing(kv, n_part ? part : node, done + n_part);
}

uint32_t ae_kv_adopt(ae_kv *kv, ae_stream *stream, uint32_t seq, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    kv_seq *s = &kv->seqs[seq];
    int32_t node, part;
    uint32_t n_part;
    (void)ae_kv_truncate(kv, seq, 0); /* cutting to nothing cannot fail */
    if (n > kv->n_slots) n = kv->n_slots;
    uint32_t done = walk(kv, key, tokens, n, &node, &part, &n_part);
    touch_path(kv, n_part ? part : node);
    const uint32_t landing = path_landing(kv, n_part ? part : node, done + n_part);
    if (landing < done + n_part) n_part = 0; /* the sequence lands on a whole number of pages instead */
    for (; done > landing; done -= AE_KV_PAGE) node = kv->nodes[node].parent;
    s->n_pages = done / AE_KV_PAGE;
    uint32_t i = s->n_pages;
    for (int32_t up = node; up >= 0; up = kv->nodes[up].parent) {
        s->table[--i] = up;
        ae_kv_page_hold(kv, up);
    }
    s->n_live = s->n_reserved = done;
    ae_kv_seq_need(kv, s, s->n_pages);
    const int32_t copy = n_part ? ae_kv_page_copy(kv, stream, part, n_part) : AE_KV_NONE;
    if (copy >= 0) {
        s->table[s->n_pages++] = copy;
        s->n_live = s->n_reserved = done += n_part;
        ae_kv_seq_need(kv, s, s->n_pages);
    } else if (n_part) { /* for a whole number of pages the window begins further back */
        done = ae_kv_landing(kv, seq, done);
        (void)ae_kv_truncate(kv, seq, done); /* it is a landing, so this cannot fail */
    }
    return done;
}

/* ---- Bytes in and out -------------------------------------------------------------------------------------- */

uint32_t ae_kv_prefix_first(const ae_kv *kv, ae_kv_key key, const int32_t *tokens, uint32_t n)
{
    int32_t node, part;
    uint32_t n_part;
    const uint32_t done = walk(kv, key, tokens, n, &node, &part, &n_part);
    if (!kv->window || !n) return 0;
    uint32_t i = (n + AE_KV_PAGE - 1) / AE_KV_PAGE;
    for (node = n_part ? part : node; i && node >= 0 && kv->part_of[node] >= 0; i--) node = kv->nodes[node].parent;
    return done + n_part < n ? n : i * AE_KV_PAGE;
}

void ae_kv_read_prefix(ae_kv *kv, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first,
                       uint32_t begin, uint32_t end, ae_kv_bytes out)
{
    const size_t bytes = ae_kv_store_bytes(kv, false), part_bytes = ae_kv_store_bytes(kv, true);
    int32_t node, part;
    uint32_t n_same;
    ae_kv_settle(kv, stream);
    (void)walk(kv, key, tokens, n, &node, &part, &n_same);
    touch_path(kv, n_same ? part : node); /* keeps the rest of the path in the tree until the next piece is read */
    node = AE_KV_NONE;
    n_same = AE_KV_PAGE;
    for (uint32_t done = 0; done < end && n_same == AE_KV_PAGE; done += n_same) {
        node = best_child(kv, node, key, tokens + done, n - done, &n_same);
        const uint32_t stop = done + n_same < end ? done + n_same : end;
        for (uint32_t i = done > begin ? done : begin; i < stop; i++, out.pages += bytes) {
            ae_kv_stores_read(kv, stream, false, &node, i - done, out.pages);
            if (!kv->window || i < first) continue;
            ae_kv_stores_read(kv, stream, true, &kv->part_of[node], i - done, out.parts);
            out.parts += part_bytes;
        }
    }
}

/* Gives the page a part with these bytes, if a part is left. */
static void write_part(ae_kv *kv, ae_stream *stream, int32_t page, uint32_t n, const uint8_t *bytes)
{
    const size_t part_bytes = ae_kv_store_bytes(kv, true);
    if (!ae_kv_part_take(kv, page)) return;
    for (uint32_t i = 0; i < n; i++)
        ae_kv_stores_write(kv, stream, true, &kv->part_of[page], i, bytes + i * part_bytes);
}

bool ae_kv_write_prefix(ae_kv *kv, ae_stream *stream, ae_kv_key key, const int32_t *tokens, uint32_t n, uint32_t first,
                        uint32_t begin, uint32_t end, ae_kv_bytes bytes)
{
    const size_t slot_bytes = ae_kv_store_bytes(kv, false), part_bytes = ae_kv_store_bytes(kv, true);
    const uint32_t first_part = begin > first ? begin : first;
    int32_t parent = AE_KV_NONE;
    uint32_t held = 0; /* tokens of the path so far; its nodes must not be given up while the path is extended */
    ae_kv_settle(kv, stream);
    for (uint32_t n_here, n_same; held < end; held += n_here) {
        const int32_t *own = tokens + held;
        n_here = n - held < AE_KV_PAGE ? n - held : AE_KV_PAGE;
        int32_t node = best_child(kv, parent, key, own, n_here, &n_same);
        if (n_same < n_here) {
            const int32_t page = held < begin ? AE_KV_NONE : ae_kv_page_take(kv);
            if (page < 0) break;
            for (uint32_t i = 0; i < n_here; i++)
                ae_kv_stores_write(kv, stream, false, &page, i, bytes.pages + (held - begin + i) * slot_bytes);
            drop_shorter(kv, parent, key, own, n_here);
            node_add(kv, page, parent, key, own, n_here);
            node = page;
        } else {
            ae_kv_page_hold(kv, node);
        }
        if (held >= first && held >= begin && !ae_kv_has_part(kv, node) && kv->nodes[node].n_tokens == n_here)
            write_part(kv, stream, node, n_here, bytes.parts + (held - first_part) * part_bytes);
        parent = node;
    }
    touch_path(kv, parent);
    for (int32_t node = parent; node >= 0; node = kv->nodes[node].parent) ae_kv_page_drop(kv, node);
    return held >= end;
}

bool ae_kv_prefix_is_sound(const ae_kv *kv)
{
    uint32_t n_nodes = 0, n_listed = 0, n_idle = 0;
    for (uint32_t p = 0; p < kv->n_pages; p++) {
        const kv_node *x = &kv->nodes[p];
        if (!x->n_tokens) continue;
        n_nodes++;
        n_idle += kv->count[p] == 1;
        if (x->parent >= 0 && kv->nodes[x->parent].n_tokens != AE_KV_PAGE) return false;
    }
    for (int32_t node = kv->newest; node >= 0 && n_listed <= n_nodes; node = kv->nodes[node].older) n_listed++;
    for (uint32_t i = 0; i < kv->n_seqs; i++) {
        const kv_seq *s = &kv->seqs[i];
        for (uint32_t j = 0; j < s->n_pages; j++) {
            const kv_node *x = &kv->nodes[s->table[j]];
            if (x->n_tokens && x->parent != (j ? s->table[j - 1] : AE_KV_NONE)) return false;
        }
    }
    return n_listed == n_nodes && n_idle == kv->n_idle;
}
