/* conversations.c - the list of conversations, and how they are copied out of the KV cache and back (conversations.h);
 * conversation_files.c has the files. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/models/conversations_int.h"
#include "shared/app.h"

/* ---- The list ----------------------------------------------------------------------------------------------- */

static bool same_adapters(const entry *e, const serve_conversation_key *key)
{
    if (e->n_adapters != key->n_adapters) return false;
    for (size_t i = 0; i < e->n_adapters; i++)
        if (e->adapters[i].adapter != key->adapters[i].adapter || e->adapters[i].scale != key->adapters[i].scale) return false;
    return true;
}

static bool is_of(const entry *e, const serve_conversation_key *key)
{
    return e->scope == key->scope && same_adapters(e, key);
}

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    const size_t n = n_a < n_b ? n_a : n_b;
    size_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Removes an entry from the list and frees it; its file stays. Called under the lock. */
static void forget(serve_conversations *c, entry *e)
{
    entry **at = &c->first;
    if (!e->kept && c->saved == e) { /* both belong to the stepping thread */
        aerie_saving_free(c->saving);
        c->saving = NULL;
        c->saved = NULL;
    }
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    c->figures.n--;
    if (e->data) c->figures.ram_bytes -= e->n_data;
    if (!e->kept) c->figures.n_noted -= e->n;
    aerie_free(e->data);
    free(e->tokens);
    free(e);
}

/* Adds an entry with a copy of the tokens. Returns NULL if memory is short. Called under the lock. */
entry *serve_conversation_add(serve_conversations *c, const serve_conversation_key *key)
{
    entry *e = calloc(1, sizeof *e);
    if (e) e->tokens = malloc(key->n * sizeof *e->tokens);
    if (!e || !e->tokens) {
        free(e);
        return NULL;
    }
    memcpy(e->tokens, key->tokens, key->n * sizeof *e->tokens);
    e->n = key->n;
    e->scope = key->scope;
    e->n_adapters = key->n_adapters;
    if (key->n_adapters) memcpy(e->adapters, key->adapters, key->n_adapters * sizeof *e->adapters);
    e->used = ++c->clock;
    e->next = c->first;
    c->first = e;
    c->figures.n++;
    return e;
}

/* Drops the bytes of the least recently used entries until `room` more bytes fit in memory. Returns false if they do not.
 * Entries that are being written or read keep their bytes. Called under the lock. */
static bool make_room(serve_conversations *c, uint64_t room, const entry *but)
{
    if (room > c->limits.ram) return false;
    while (c->figures.ram_bytes + room > c->limits.ram) {
        entry *oldest = NULL;
        for (entry *e = c->first; e; e = e->next)
            if (e->data && e != but && !e->writing && !e->n_readers && (!oldest || e->used < oldest->used)) oldest = e;
        if (!oldest) return false;
        if (!oldest->on_disk) {
            forget(c, oldest);
            continue;
        }
        c->figures.ram_bytes -= oldest->n_data;
        aerie_free(oldest->data);
        oldest->data = NULL;
    }
    return true;
}

/* Returns the entry that has the most tokens in common, if these are enough to be worth copying and the entry is not known to
 * be useless; NULL: none. Called under the lock. */
static entry *best(serve_conversations *c, const serve_conversation_key *key, size_t *n_common)
{
    entry *found = NULL;
    *n_common = 0;
    for (entry *e = c->first; e; e = e->next) {
        if (!e->kept || (!e->data && !e->on_disk) || !is_of(e, key)) continue;
        const size_t n = common(e->tokens, e->n, key->tokens, key->n);
        if (e->n - n >= c->vain_cut) continue;
        if (n >= SERVE_CONVERSATION_LEAST && n >= e->n / 4 && n > *n_common) *n_common = n, found = e;
    }
    return found;
}

/* ---- Out of the KV cache ------------------------------------------------------------------------------------ */

void serve_conversations_note(serve_conversations *c, const serve_conversation_key *key)
{
    if (!c || key->n < SERVE_CONVERSATION_LEAST) return;
    pthread_mutex_lock(&c->lock);
    for (entry *e = c->first, *next; e; e = next) { /* an earlier turn of this conversation that was not yet copied */
        next = e->next;
        if (!e->kept && is_of(e, key) && e->n <= key->n && common(e->tokens, e->n, key->tokens, key->n) == e->n) forget(c, e);
    }
    if (serve_conversation_add(c, key)) c->figures.n_noted += key->n;
    pthread_mutex_unlock(&c->lock);
}

void serve_conversation_forget_contained(serve_conversations *c, const entry *whole)
{
    const serve_conversation_key key = {whole->scope, whole->adapters, whole->n_adapters, whole->tokens, whole->n};
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        const bool stays = !e->kept || e->writing || e->n_readers || (e->on_disk && !whole->on_disk);
        if (e == whole || stays || !is_of(e, &key) || e->n > whole->n || whole->n - e->n >= c->vain_cut ||
            common(e->tokens, e->n, whole->tokens, whole->n) < e->n)
            continue;
        if (e->on_disk && strcmp(e->name, whole->name)) serve_conversation_remove_file(c, e);
        if (e->on_disk) c->figures.disk_bytes -= e->file_bytes; /* the same file */
        forget(c, e);
    }
}

static entry *oldest_noted(serve_conversations *c)
{
    entry *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (entry *e = c->first; e; e = e->next)
        if (!e->kept && (!found || e->used < found->used)) found = e;
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Stores the complete copy of `saved`; data NULL: the copy failed. */
static void keep(serve_conversations *c, void *data, size_t n_data, size_t n)
{
    entry *e = c->saved;
    aerie_saving_free(c->saving);
    c->saving = NULL;
    c->saved = NULL;
    pthread_mutex_lock(&c->lock);
    if (data && n >= SERVE_CONVERSATION_LEAST && make_room(c, n_data, e)) {
        c->figures.n_noted -= e->n;
        e->n = n; /* the cache may have lost the end of the sequence */
        e->kept = true;
        e->data = data;
        e->n_data = n_data;
        c->figures.ram_bytes += n_data;
        data = NULL;
        serve_conversation_forget_contained(c, e);
        pthread_cond_signal(&c->changed);
    } else {
        forget(c, e);
    }
    pthread_mutex_unlock(&c->lock);
    aerie_free(data);
}

/* Copies the oldest noted entry, or continues a copy, for about this many seconds. */
static void keep_on(serve_conversations *c, aerie_session *session, double seconds)
{
    enum { AT_ONCE = 16 }; /* positions between two checks of the clock */
    const double start = app_now();
    bool done = false;
    void *data = NULL;
    size_t n_data = 0, n = 0;
    if (!c->saving) {
        c->saved = oldest_noted(c);
        const entry *e = c->saved;
        if (aerie_session_saving_begin(session, e->scope, e->adapters, e->n_adapters, e->tokens, e->n, &c->saving, NULL)) {
            keep(c, NULL, 0, 0);
            return;
        }
    }
    while (!done && app_now() - start < seconds)
        if (aerie_saving_step(c->saving, AT_ONCE, &done, NULL)) {
            keep(c, NULL, 0, 0);
            return;
        }
    if (!done) return;
    (void)aerie_saving_finish(c->saving, &data, &n_data, &n, NULL); /* everything is saved, so this cannot fail */
    keep(c, data, n_data, n);
}

bool serve_conversations_keep(serve_conversations *c, aerie_session *session, size_t n_most, double seconds)
{
    if (!c || c->figures.n_noted <= n_most) return false;
    keep_on(c, session, seconds);
    return c->figures.n_noted > n_most;
}

/* ---- Into the KV cache -------------------------------------------------------------------------------------- */

struct serve_conversation_return {
    serve_conversations *c;
    serve_conversation_key key;
    size_t there;           /* tokens that are in the cache already */
    uint64_t noted_by;      /* value of the clock then: entries noted earlier are copied out first */
    size_t n_saved, cut;    /* tokens of the entry, and how many of these the request does not share */
    aerie_loading *loading;
};

serve_conversation_return *serve_conversations_find(serve_conversations *c, const serve_conversation_key *key)
{
    size_t n;
    if (!c || key->n < SERVE_CONVERSATION_LEAST) return NULL;
    pthread_mutex_lock(&c->lock);
    const bool found = best(c, key, &n) != NULL;
    pthread_mutex_unlock(&c->lock);
    serve_conversation_return *r = found ? calloc(1, sizeof *r) : NULL; /* without memory, the prompt is computed again */
    if (!r) return NULL;
    r->c = c, r->key = *key;
    pthread_mutex_lock(&c->returning);
    return r;
}

bool serve_conversation_wanted(serve_conversation_return *r, aerie_session *session)
{
    size_t n;
    const serve_conversation_key *key = &r->key;
    r->there = aerie_session_prefix_find(session, key->scope, key->adapters, key->n_adapters, key->tokens, key->n);
    pthread_mutex_lock(&r->c->lock);
    entry *e = best(r->c, key, &n);
    r->noted_by = r->c->clock;
    if (e) e->used = ++r->c->clock;
    pthread_mutex_unlock(&r->c->lock);
    return e && n >= r->there + SERVE_CONVERSATION_LEAST / 2;
}

/* Returns the entry of a file; NULL if it is gone. Called under the lock. */
static entry *by_name(serve_conversations *c, uint64_t scope, const char *name)
{
    for (entry *e = c->first; e; e = e->next)
        if (e->on_disk && e->scope == scope && strcmp(e->name, name) == 0) return e;
    return NULL;
}

/* Treats a file that cannot be used as missing, and removes it so that no later request tries it. It stays if the conversation
 * was copied again meanwhile. */
static void discard(serve_conversations *c, uint64_t scope, const char *name)
{
    pthread_mutex_lock(&c->lock);
    entry *e = by_name(c, scope, name);
    c->figures.n_damaged++;
    if (e && !e->data) {
        serve_conversation_remove_file(c, e);
        forget(c, e);
    }
    pthread_mutex_unlock(&c->lock);
}

bool serve_conversation_prepare(serve_conversation_return *r, aerie_session *session)
{
    serve_conversations *c = r->c;
    size_t n, n_file = 0;
    char path[SERVE_CONVERSATION_PATH] = "", name[sizeof ((entry *)0)->name] = "";
    pthread_mutex_lock(&c->lock);
    entry *e = best(c, &r->key, &n);
    if (e && n < r->there + SERVE_CONVERSATION_LEAST / 2) e = NULL; /* the chosen entry is gone, and this one has too few
                                                                     * tokens */
    const bool in_memory = e && e->data;
    r->n_saved = e ? e->n : 0;
    r->cut = e ? e->n - n : 0;
    if (in_memory) {
        e->n_readers++;
    } else if (e) {
        memcpy(name, e->name, sizeof name);
        serve_conversation_path(c, e->scope, e->name, ".kv", path);
    }
    pthread_mutex_unlock(&c->lock);
    void *file = *path ? serve_conversation_read(path, &n_file) : NULL;
    const void *data = in_memory ? e->data : file;
    const aerie_status status = !data ? (*path && access(path, F_OK) ? AERIE_ERROR_FORMAT : AERIE_ERROR_MEMORY)
                                      : aerie_session_loading_begin(session, r->key.scope, data, in_memory ? e->n_data : n_file,
                                                                    &r->loading, NULL);
    free(file);
    if (in_memory) {
        pthread_mutex_lock(&c->lock);
        e->n_readers--;
        pthread_mutex_unlock(&c->lock);
    } else if (*path && (status == AERIE_ERROR_FORMAT || status == AERIE_ERROR_UNSUPPORTED)) {
        discard(c, r->key.scope, name);
    }
    return status == AERIE_OK;
}

bool serve_conversation_restore(serve_conversation_return *r, aerie_session *session, double seconds)
{
    enum { AT_ONCE = 64 }; /* positions between two checks of the clock */
    serve_conversations *c = r->c;
    const double start = app_now();
    const serve_conversation_key *key = &r->key;
    size_t n_loaded = 0;
    bool done = false;
    const entry *noted = oldest_noted(c);
    if (noted && noted->used <= r->noted_by) { /* restoring may evict these from the cache */
        keep_on(c, session, seconds);
        return true;
    }
    while (!done && app_now() - start < seconds)
        if (aerie_loading_step(r->loading, AT_ONCE, &done, &n_loaded, NULL)) return false;
    if (!done) return true;
    const size_t now = aerie_session_prefix_find(session, key->scope, key->adapters, key->n_adapters, key->tokens, key->n);
    pthread_mutex_lock(&c->lock);
    /* everything was restored without gain: the rest of the sequence needs state that was cut off */
    if (n_loaded >= r->n_saved && now <= r->there && r->cut && r->cut < c->vain_cut) c->vain_cut = r->cut;
    c->figures.n_restored += now > r->there;
    c->figures.n_restored_tokens += now > r->there ? now - r->there : 0;
    pthread_mutex_unlock(&c->lock);
    return false;
}

void serve_conversation_return_free(serve_conversation_return *r)
{
    if (!r) return;
    aerie_loading_free(r->loading);
    pthread_mutex_unlock(&r->c->returning);
    free(r);
}

serve_conversation_figures serve_conversations_count(serve_conversations *c)
{
    serve_conversation_figures figures = {0};
    if (!c) return figures;
    pthread_mutex_lock(&c->lock);
    figures = c->figures;
    pthread_mutex_unlock(&c->lock);
    return figures;
}

/* ---- Life --------------------------------------------------------------------------------------------------- */

serve_conversations *serve_conversations_open(const serve_conversation_limits *limits)
{
    serve_conversations *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->limits = *limits;
    c->vain_cut = SIZE_MAX;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->returning, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (limits->folder && !serve_conversation_files_open(c)) {
        serve_conversations_close(c);
        return NULL;
    }
    return c;
}

void serve_conversations_close(serve_conversations *c)
{
    if (!c) return;
    serve_conversation_files_close(c);
    while (c->first) forget(c, c->first);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->returning);
    free(c);
}
