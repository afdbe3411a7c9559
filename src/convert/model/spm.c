/* spm.c - reads tokenizer.model or spiece.model of SentencePiece: pieces with their scores. The file may be malicious.
 * It is a message of protocol buffers (ModelProto): field 1, repeated, is a piece (1 text, 2 score as float, 3 type as varint),
 * field 2 the trainer's specification (3 model type: 1 Unigram, 2 BPE), field 3 the normalizer's (2 the map of characters, 3
 * whether a space is put before a text, 4 whether spaces after spaces are dropped). Types are numbered as in GGUF files.
 * Source: sentencepiece_model.proto. */
#include <string.h>

#include "convert/model/vocab.h"
#include "formats/kind.h"

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static bool read_varint(reader *r, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const uint8_t byte = *r->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* Reads the next field: its number, and its value or its bytes. Returns false at the end, or if the message is malformed
 * (*bad). */
static bool next_field(reader *r, uint32_t *field, uint64_t *value, reader *bytes, bool *bad)
{
    uint64_t tag, n = 0;
    if (r->at == r->end) return false;
    *bad = true;
    *value = 0;
    *bytes = (reader){NULL, NULL};
    if (!read_varint(r, &tag)) return false;
    *field = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0:
        if (!read_varint(r, value)) return false;
        break;
    case 1: case 5:
        n = (tag & 7) == 1 ? 8 : 4;
        if ((uint64_t)(r->end - r->at) < n) return false;
        memcpy(value, r->at, n);
        r->at += n;
        break;
    case 2:
        if (!read_varint(r, &n) || (uint64_t)(r->end - r->at) < n) return false;
        *bytes = (reader){r->at, r->at + n};
        r->at += n;
        break;
    default: return false;
    }
    *bad = false;
    return true;
}

static aerie_status read_piece(const ae_convert *c, ae_convert_words *w, reader piece, uint32_t id, bool *bad)
{
    reader text = {NULL, NULL}, bytes;
    uint64_t type = AERIE_TOKEN_NORMAL, value;
    uint32_t field, bits = 0;
    while (next_field(&piece, &field, &value, &bytes, bad)) {
        if (field == 1) text = bytes;
        if (field == 2) bits = (uint32_t)value;
        if (field == 3) type = value;
    }
    if (*bad || !text.at || type < AERIE_TOKEN_NORMAL || type > AERIE_TOKEN_BYTE) {
        *bad = true;
        return AERIE_OK;
    }
    AE_TRY(ae_convert_words_put(c, w, (const char *)text.at, (size_t)(text.end - text.at), id, (int32_t)type));
    memcpy(&w->scores[id], &bits, sizeof bits);
    return AERIE_OK;
}

/* Sets *number to the last value of a field in a message; without one it is unchanged. */
static void read_number(reader message, uint32_t wanted, uint64_t *number, bool *bad)
{
    uint32_t field;
    uint64_t value;
    reader bytes;
    while (next_field(&message, &field, &value, &bytes, bad))
        if (field == wanted) *number = value;
}

static void read_charsmap(reader message, ae_buf *out, bool *bad)
{
    uint32_t field;
    uint64_t value;
    reader bytes;
    while (next_field(&message, &field, &value, &bytes, bad))
        if (field == 2 && bytes.at) {
            ae_buf_clear(out);
            ae_buf_add(out, (const char *)bytes.at, (size_t)(bytes.end - bytes.at));
        }
}

static aerie_status read_all(const ae_convert *c, ae_convert_words *w, reader file, const char *path, ae_convert_spm *s)
{
    enum { UNIGRAM = 1, BPE = 2 };
    uint32_t field, id = 0;
    uint64_t value, kind = UNIGRAM, dummy = 1, collapses = 1;
    reader bytes;
    bool bad = false;
    while (next_field(&file, &field, &value, &bytes, &bad)) {
        if (field == 1) AE_TRY(read_piece(c, w, bytes, id++, &bad));
        if (field == 2) read_number(bytes, 3, &kind, &bad);
        if (field == 3) {
            read_charsmap(bytes, &s->charsmap, &bad);
            read_number(bytes, 3, &dummy, &bad);
            read_number(bytes, 4, &collapses, &bad);
        }
        if (bad) break;
    }
    if (bad || !id)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is not a model of SentencePiece (piece %u)", path, id);
    if (s->charsmap.failed) return ae_convert_no_memory(c, "a map of characters");
    if (kind != BPE && kind != UNIGRAM)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: the SentencePiece model is of type %llu; Unigram (1) and BPE (2) are supported", path,
                       (unsigned long long)kind);
    s->unigram = kind == UNIGRAM;
    s->n = id;
    s->space = dummy != 0;
    s->collapses = collapses != 0;
    return AERIE_OK;
}

aerie_status ae_convert_read_spm(const ae_convert *c, ae_convert_words *w, ae_convert_spm *s)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model"};
    ae_file_map map;
    aerie_status status = AERIE_OK;
    *s = (ae_convert_spm){.space = true};
    for (size_t i = 0; i < sizeof names / sizeof *names && !s->there && status == AERIE_OK; i++) {
        char *path = ae_convert_path_in(c, names[i]);
        if (!path) return ae_convert_no_memory(c, "a path");
        s->there = ae_file_exists(path);
        if (s->there) status = ae_file_map_open(&map, path, true, c->error);
        if (s->there && status == AERIE_OK) {
            if (ae_kind_is_pointer(map.data, map.bytes))
                status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is %s", path, ae_kind_bytes(map.data, map.bytes));
            else status = read_all(c, w, (reader){map.data, map.data + map.bytes}, path, s);
            ae_file_map_close(&map);
        }
        ae_free(path);
    }
    if (status != AERIE_OK) ae_buf_free(&s->charsmap);
    return status;
}
