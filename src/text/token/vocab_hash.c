/* vocab_hash.c - the hash tables of a vocabulary: string to symbol, pair of symbols to merge.
 *
 * Both are open-addressed with linear probing and at most half full. The string hash is seeded
 * per vocabulary, so that a hostile file cannot choose colliding strings; ids do not depend on it.
 */
#include "text/token/vocab_int.h"

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint32_t ae_keys_hash(uint64_t seed, const char *bytes, size_t n)
{
    uint64_t h = seed ^ n, part;
    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&part, bytes, 8);
        h = mix(h ^ part, 0x9E3779B97F4A7C15u);
    }
    if (n) {
        part = 0;
        memcpy(&part, bytes, n);
        h = mix(h ^ part, 0xA0761D6478BD642Fu);
    }
    h = mix(h ^ seed, 0xE7037ED1A0B428DBu);
    return (uint32_t)(h >> 16);
}

static bool grow(void **block, uint32_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) return true;
    size_t wanted = *capacity ? (size_t)*capacity * 2 : 256;
    if (wanted < need) wanted = need;
    if (wanted > UINT32_MAX) wanted = UINT32_MAX;
    void *fresh = wanted < need ? NULL : ae_realloc(*block, wanted, size);
    if (!fresh) return false;
    *block = fresh;
    *capacity = (uint32_t)wanted;
    return true;
}

bool ae_strings_add(ae_strings *strings, const char *bytes, size_t n)
{
    size_t need = (size_t)strings->n_bytes + n;
    if (need >= UINT32_MAX || strings->n >= INT32_MAX - 2) return false;
    void *data = strings->bytes, *begin = strings->begin;
    bool ok = grow(&data, &strings->capacity_bytes, need + 1, 1);
    strings->bytes = data;
    ok = ok && grow(&begin, &strings->capacity, (size_t)strings->n + 2, sizeof *strings->begin);
    strings->begin = begin;
    if (!ok) return false;
    if (n) memcpy(strings->bytes + strings->n_bytes, bytes, n);
    strings->begin[strings->n] = strings->n_bytes;
    strings->n_bytes = (uint32_t)need;
    strings->begin[++strings->n] = strings->n_bytes;
    return true;
}

void ae_strings_free(ae_strings *strings)
{
    ae_free(strings->bytes);
    ae_free(strings->begin);
    *strings = (ae_strings){0};
}

/* Returns the slot that holds the string, or the free one where it belongs. */
static ae_key_slot *slot_of(const ae_vocab *vocab, uint32_t hash, const char *bytes, size_t n)
{
    for (uint32_t i = hash & vocab->slot_mask;; i = (i + 1) & vocab->slot_mask) {
        ae_key_slot *slot = &vocab->slots[i];
        if (slot->id < 0) return slot;
        if (slot->hash != hash) continue;
        uint32_t n_key;
        const char *key = ae_strings_get(&vocab->keys, slot->id, &n_key);
        if (n_key == n && memcmp(key, bytes, n) == 0) return slot;
    }
}

int32_t ae_keys_find(const ae_vocab *vocab, const char *bytes, size_t n)
{
    if (n == 0 || n > vocab->max_key_bytes) return -1;
    return slot_of(vocab, ae_keys_hash(vocab->seed, bytes, n), bytes, n)->id;
}

static bool slots_resize(ae_vocab *vocab, size_t n)
{
    size_t size = 1024;
    while (size < 2 * n) size *= 2;
    ae_key_slot *slots = size > UINT32_MAX ? NULL : ae_alloc(size, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < size; i++) slots[i].id = -1;
    uint32_t mask = (uint32_t)size - 1;
    for (size_t i = 0; vocab->slots && i <= vocab->slot_mask; i++) {
        if (vocab->slots[i].id < 0) continue;
        uint32_t at = vocab->slots[i].hash & mask;
        while (slots[at].id >= 0) at = (at + 1) & mask;
        slots[at] = vocab->slots[i];
    }
    ae_free(vocab->slots);
    vocab->slots = slots;
    vocab->slot_mask = mask;
    return true;
}

/* Of equal strings, the one with the lowest id counts. */
aerie_status ae_keys_build(ae_vocab *vocab, aerie_error *error)
{
    uint32_t n = vocab->keys.n;
    if (!slots_resize(vocab, n)) return ae_fail_memory(error, "the token table", (size_t)n * 16);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_key;
        const char *key = ae_strings_get(&vocab->keys, (int32_t)i, &n_key);
        if (!n_key) continue;
        if (n_key > vocab->max_key_bytes) vocab->max_key_bytes = n_key;
        uint32_t hash = ae_keys_hash(vocab->seed, key, n_key);
        ae_key_slot *slot = slot_of(vocab, hash, key, n_key);
        if (slot->id < 0) *slot = (ae_key_slot){hash, (int32_t)i};
    }
    return AERIE_OK;
}

int32_t ae_keys_intern(ae_vocab *vocab, const char *bytes, size_t n)
{
    int32_t id = ae_keys_find(vocab, bytes, n);
    if (id >= 0) return id;
    if (vocab->keys.n >= vocab->slot_mask / 2 && !slots_resize(vocab, (size_t)vocab->keys.n * 2)) return -1;
    if (!ae_strings_add(&vocab->keys, bytes, n)) return -1;
    if (n > vocab->max_key_bytes) vocab->max_key_bytes = (uint32_t)n;
    uint32_t hash = ae_keys_hash(vocab->seed, bytes, n);
    *slot_of(vocab, hash, bytes, n) = (ae_key_slot){hash, (int32_t)vocab->keys.n - 1};
    return (int32_t)vocab->keys.n - 1;
}

static uint32_t merge_slot(const ae_vocab *vocab, uint32_t left, uint32_t right)
{
    uint64_t h = mix((uint64_t)left << 32 | right, 0x9E3779B97F4A7C15u ^ vocab->seed << 1);
    for (uint32_t i = (uint32_t)h & vocab->merge_mask;; i = (i + 1) & vocab->merge_mask) {
        const ae_merge *m = &vocab->merges[i];
        if (m->left == UINT32_MAX || (m->left == left && m->right == right)) return i;
    }
}

const ae_merge *ae_merges_find(const ae_vocab *vocab, int32_t left, int32_t right)
{
    const ae_merge *m = &vocab->merges[merge_slot(vocab, (uint32_t)left, (uint32_t)right)];
    return m->left == UINT32_MAX ? NULL : m;
}

/* Decodes a part of a merge to its bytes; returns false if it does not spell bytes. */
static bool part_bytes(const ae_vocab *vocab, const char *text, size_t n, char *out, size_t *n_out)
{
    if (!vocab->spm) return ae_bytemap_decode(text, n, out, n_out);
    memmove(out, text, n);
    *n_out = n;
    return true;
}

/* Adds one line "left right" of the merges. A merge with a part that no bytes can spell never matches, so it is skipped. */
static aerie_status merge_add(ae_vocab *vocab, uint32_t rank, ae_gguf_string text, ae_buf *scratch,
                              aerie_error *error)
{
    const char *space = text.n > 1 ? memchr(text.data + 1, ' ', text.n - 1) : NULL;
    if (!space || space + 1 == text.data + text.n) {
        return ae_fail(error, AERIE_ERROR_FORMAT,
                       "tokenizer.ggml.merges: entry %u is not two strings with a space between them", rank);
    }
    ae_buf_clear(scratch);
    ae_buf_add(scratch, text.data, text.n);
    if (scratch->failed) return ae_fail_memory(error, "a merge", text.n);
    size_t n_left, n_right;
    if (!part_bytes(vocab, text.data, (size_t)(space - text.data), scratch->data, &n_left)) return AERIE_OK;
    if (!part_bytes(vocab, space + 1, (size_t)(text.data + text.n - space - 1), scratch->data + n_left, &n_right)) {
        return AERIE_OK;
    }
    int32_t left = ae_keys_intern(vocab, scratch->data, n_left);
    int32_t right = ae_keys_intern(vocab, scratch->data + n_left, n_right);
    int32_t both = ae_keys_intern(vocab, scratch->data, n_left + n_right);
    if (left < 0 || right < 0 || both < 0) return ae_fail_memory(error, "the merges", vocab->keys.n_bytes);
    ae_merge *m = &vocab->merges[merge_slot(vocab, (uint32_t)left, (uint32_t)right)];
    if (m->left == UINT32_MAX) *m = (ae_merge){(uint32_t)left, (uint32_t)right, rank, both};
    if (both < vocab->n_tokens) vocab->flags[both] |= AE_TOKEN_MERGED;
    return AERIE_OK;
}

aerie_status ae_merges_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    const ae_gguf_kv *kv;
    AE_TRY(ae_gguf_get_array(gguf, "tokenizer.ggml.merges", true, AE_GGUF_STRING, &kv, error));
    if (kv->n > INT32_MAX / 4) {
        return ae_fail(error, AERIE_ERROR_FORMAT, "tokenizer.ggml.merges: %llu entries are too many",
                       (unsigned long long)kv->n);
    }
    size_t size = 1024;
    while (size < 2 * kv->n) size *= 2;
    vocab->merges = ae_alloc(size, sizeof *vocab->merges);
    if (!vocab->merges) return ae_fail_memory(error, "the merges", size * sizeof *vocab->merges);
    for (size_t i = 0; i < size; i++) vocab->merges[i].left = UINT32_MAX;
    vocab->merge_mask = (uint32_t)size - 1;

    ae_buf scratch = {0};
    ae_gguf_string text;
    size_t cursor = 0;
    aerie_status status = AERIE_OK;
    for (uint32_t rank = 0; status == AERIE_OK && ae_gguf_kv_next_string(kv, &cursor, &text); rank++) {
        status = merge_add(vocab, rank, text, &scratch, error);
    }
    ae_buf_free(&scratch);
    return status;
}
