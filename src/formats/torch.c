/* torch.c - implements torch.h: an interpreter for the pickles that torch.save writes.
 *
 * Values live in one arena. Each step takes at least one byte of the pickle and adds at most one value, so memory is bounded by
 * the size of the pickle; the memo has at most as many entries as there were instructions that store into it. Only the
 * functions of the table below are called.
 */
#include "formats/torch.h"

#include <stdio.h>

#include "base/mem.h"
#include "formats/kind.h"
#include "formats/gguf_parse.h"
#include "formats/safetensors_int.h"
#include "formats/zip.h"

#define FAIL(kind, ...) ae_fail(m->error, AERIE_ERROR_##kind, __VA_ARGS__)
#define MAX_PICKLE ((size_t)8 << 20) /* one byte of pickle may create a value of a hundred bytes */

typedef enum kind { NOTHING, MARK, BOOLEAN, WHOLE, TEXT, FUNCTION, TUPLE, TABLE, STORAGE, TENSOR } kind;

typedef enum function { ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, STORAGE_TYPE, UNKNOWN } function;

typedef struct value value;

typedef struct pair {
    const value *key, *content;
    struct pair *next;
} pair;

struct value {
    kind kind;
    int64_t whole;        /* WHOLE, BOOLEAN: the value; FUNCTION: a `function`; TUPLE: number of items */
    ae_gguf_string text;  /* TEXT; FUNCTION: module and name; STORAGE: the record's key */
    ae_st_dtype dtype;    /* STORAGE, and FUNCTION of STORAGE_TYPE */
    const value **items;  /* TUPLE [whole] */
    pair *first, *last;   /* TABLE */
    const ae_st_tensor *tensor; /* TENSOR; its name is not set */
};

typedef struct machine {
    ae_safetensors *st;
    ae_st_file *file;
    const char *path; /* for messages */
    ae_zip zip;
    ae_gguf_string folder; /* the folder of the records in the archive, often "archive" */
    const uint8_t *p, *end;
    value **stack; /* [n_stack] */
    size_t n_stack, stack_room;
    value **memo; /* [n_memo] */
    size_t n_memo;
    uint64_t n_kept; /* instructions that put a value into the memo */
    aerie_error *error;
} machine;

static const value nothing = {.kind = NOTHING};

/* ---- Stack ------------------------------------------------------------------------------------------- */

static aerie_status push_value(machine *m, const value *v)
{
    value **grown = ae_grow(m->stack, m->n_stack, &m->stack_room, sizeof *grown);
    if (!grown) return ae_fail_memory(m->error, "a pickle's stack", m->n_stack * sizeof *grown);
    m->stack = grown;
    m->stack[m->n_stack++] = (value *)v;
    return AERIE_OK;
}

static aerie_status push(machine *m, value v)
{
    value *copy = ae_arena_alloc(&m->st->arena, 1, sizeof *copy);
    if (!copy) return ae_fail_memory(m->error, "a pickle's values", sizeof *copy);
    *copy = v;
    return push_value(m, copy);
}

static aerie_status fail_stack(machine *m)
{
    return FAIL(FORMAT, "%s: the pickle pops more values than its stack holds", m->path);
}

/* Pops the topmost value; fails if that is a mark. */
static aerie_status pop(machine *m, value **out)
{
    if (!m->n_stack || m->stack[m->n_stack - 1]->kind == MARK) return fail_stack(m);
    *out = m->stack[--m->n_stack];
    return AERIE_OK;
}

/* Pops the values above the topmost mark, and the mark; *n is the number of values. Their entries stay intact until the next
 * push. */
static aerie_status pop_marked(machine *m, size_t *n)
{
    size_t at = m->n_stack;
    while (at && m->stack[at - 1]->kind != MARK) at--;
    if (!at) return fail_stack(m);
    *n = m->n_stack - at;
    m->n_stack = at - 1;
    return AERIE_OK;
}

/* Pushes a tuple of the n values from index `from` on, which may be above the top of the stack. */
static aerie_status push_tuple(machine *m, size_t from, size_t n)
{
    value tuple = {.kind = TUPLE, .whole = (int64_t)n};
    tuple.items = ae_arena_alloc(&m->st->arena, n, sizeof *tuple.items);
    if (!tuple.items) return ae_fail_memory(m->error, "a pickle's values", n * sizeof *tuple.items);
    for (size_t i = 0; i < n; i++) tuple.items[i] = m->stack[from + i];
    return push(m, tuple);
}

static aerie_status take_tuple(machine *m, size_t n)
{
    for (size_t i = 1; i <= n; i++)
        if (m->n_stack < i || m->stack[m->n_stack - i]->kind == MARK) return fail_stack(m);
    m->n_stack -= n;
    return push_tuple(m, m->n_stack, n);
}

/* ---- Bytes --------------------------------------------------------------------------------------------- */

static aerie_status take(machine *m, size_t n, const uint8_t **out)
{
    if (n > (size_t)(m->end - m->p)) return FAIL(FORMAT, "%s: the pickle ends too early", m->path);
    *out = m->p;
    m->p += n;
    return AERIE_OK;
}

static aerie_status take_number(machine *m, int bytes, uint64_t *out)
{
    const uint8_t *p = NULL;
    AE_TRY(take(m, (size_t)bytes, &p));
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | p[i];
    return AERIE_OK;
}

static aerie_status take_line(machine *m, ae_gguf_string *out)
{
    const uint8_t *end = memchr(m->p, '\n', (size_t)(m->end - m->p));
    if (!end) return FAIL(FORMAT, "%s: the pickle ends too early", m->path);
    *out = (ae_gguf_string){(const char *)m->p, (size_t)(end - m->p)};
    m->p = end + 1;
    return AERIE_OK;
}

static aerie_status push_whole(machine *m, int bytes, bool has_sign)
{
    uint64_t v = 0;
    AE_TRY(take_number(m, bytes, &v));
    return push(m, (value){.kind = WHOLE, .whole = has_sign ? (int32_t)v : (int64_t)v});
}

/* LONG1: an integer in two's complement, up to 8 bytes long. */
static aerie_status push_long(machine *m)
{
    uint64_t n = 0, v = 0;
    AE_TRY(take_number(m, 1, &n));
    if (n > 8) return FAIL(UNSUPPORTED, "%s: the pickle holds a number of %d bytes", m->path, (int)n);
    AE_TRY(take_number(m, (int)n, &v));
    if (n && n < 8 && v >> (8 * n - 1) & 1) v |= UINT64_MAX << (8 * n);
    return push(m, (value){.kind = WHOLE, .whole = (int64_t)v});
}

static aerie_status push_text(machine *m, int length_bytes)
{
    uint64_t n = 0;
    const uint8_t *p = NULL;
    AE_TRY(take_number(m, length_bytes, &n));
    if (n > (uint64_t)(m->end - m->p)) return FAIL(FORMAT, "%s: the pickle ends too early", m->path);
    AE_TRY(take(m, (size_t)n, &p));
    return push(m, (value){.kind = TEXT, .text = {(const char *)p, (size_t)n}});
}

/* ---- Functions ----------------------------------------------------------------------------------------- */

static bool is_text(ae_gguf_string s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.data, text, s.n) == 0;
}

static const struct {
    const char *name; /* as in the pickle: module and name, separated by a newline */
    function what;
    ae_st_dtype dtype;
} functions[] = {
    {"collections\nOrderedDict", ORDERED_DICT, AE_ST_DTYPE_COUNT},
    {"torch._utils\n_rebuild_tensor_v2", REBUILD_TENSOR, AE_ST_DTYPE_COUNT},
    {"torch._utils\n_rebuild_parameter", REBUILD_PARAMETER, AE_ST_DTYPE_COUNT},
    {"torch\nFloatStorage", STORAGE_TYPE, AE_ST_F32},
    {"torch\nDoubleStorage", STORAGE_TYPE, AE_ST_F64},
    {"torch\nHalfStorage", STORAGE_TYPE, AE_ST_F16},
    {"torch\nBFloat16Storage", STORAGE_TYPE, AE_ST_BF16},
    {"torch\nLongStorage", STORAGE_TYPE, AE_ST_I64},
    {"torch\nIntStorage", STORAGE_TYPE, AE_ST_I32},
    {"torch\nShortStorage", STORAGE_TYPE, AE_ST_I16},
    {"torch\nCharStorage", STORAGE_TYPE, AE_ST_I8},
    {"torch\nByteStorage", STORAGE_TYPE, AE_ST_U8},
    {"torch\nBoolStorage", STORAGE_TYPE, AE_ST_BOOL},
};

static aerie_status push_function(machine *m)
{
    ae_gguf_string module = {0}, name = {0};
    AE_TRY(take_line(m, &module));
    AE_TRY(take_line(m, &name));
    value v = {.kind = FUNCTION, .whole = UNKNOWN, .text = {module.data, module.n + 1 + name.n}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!is_text(v.text, functions[i].name)) continue;
        v.whole = functions[i].what;
        v.dtype = functions[i].dtype;
    }
    return push(m, v);
}

/* Replaces the tuple ('storage', type, key, device, elements) by a storage. */
static aerie_status push_storage(machine *m)
{
    value *v = NULL;
    AE_TRY(pop(m, &v));
    if (v->kind != TUPLE || v->whole != 5 || v->items[0]->kind != TEXT || !is_text(v->items[0]->text, "storage") ||
        v->items[1]->kind != FUNCTION || v->items[2]->kind != TEXT)
        return FAIL(UNSUPPORTED, "%s: the pickle has a persistent id that is not a tensor storage", m->path);
    if (v->items[1]->whole != STORAGE_TYPE)
        return FAIL(UNSUPPORTED, "%s: the storage type %.*s is unknown", m->path,
                    (int)(v->items[1]->text.n < 60 ? v->items[1]->text.n : 60), v->items[1]->text.data);
    return push(m, (value){.kind = STORAGE, .dtype = v->items[1]->dtype, .text = v->items[2]->text});
}

static const ae_zip_record *find_record(const machine *m, const char *between, ae_gguf_string key)
{
    char name[256];
    const int n = snprintf(name, sizeof name, "%.*s%s%.*s", (int)m->folder.n, m->folder.data, between,
                           key.n < 100 ? (int)key.n : 100, key.data);
    return n > 0 && (size_t)n < sizeof name && key.n < 100 ? ae_zip_find(&m->zip, name, (size_t)n) : NULL;
}

static aerie_status read_sizes(machine *m, const value *size, const value *stride, ae_st_tensor *t)
{
    uint64_t expected = 1;
    if (size->kind != TUPLE || stride->kind != TUPLE || size->whole != stride->whole)
        return FAIL(FORMAT, "%s: a tensor in the pickle has no sizes and strides", m->path);
    if (size->whole > AE_ST_MAX_DIMS)
        return FAIL(UNSUPPORTED, "%s: a tensor has %d dimensions; at most %d are supported", m->path,
                    (int)size->whole, AE_ST_MAX_DIMS);
    t->n_dims = (uint32_t)size->whole;
    for (uint32_t i = 0; i < AE_ST_MAX_DIMS; i++) t->shape[i] = 1;
    for (uint32_t i = t->n_dims; i-- > 0;) {
        const value *n = size->items[i], *step = stride->items[i];
        if (n->kind != WHOLE || step->kind != WHOLE || n->whole < 0)
            return FAIL(FORMAT, "%s: a size or stride in the pickle is not a valid integer", m->path);
        t->shape[i] = (uint64_t)n->whole;
        if (n->whole > 1 && (uint64_t)step->whole != expected)
            return FAIL(UNSUPPORTED, "%s: a tensor is not contiguous; save tensor.contiguous() instead", m->path);
        if (__builtin_mul_overflow(expected, t->shape[i], &expected))
            return FAIL(FORMAT, "%s: the number of elements of a tensor does not fit in 64 bits", m->path);
    }
    t->n = expected;
    return AERIE_OK;
}

/* Builds a tensor from the arguments (storage, offset, size, stride, ...). */
static aerie_status push_tensor(machine *m, const value *args)
{
    if (args->whole < 4 || args->items[0]->kind != STORAGE || args->items[1]->kind != WHOLE || args->items[1]->whole < 0)
        return FAIL(FORMAT, "%s: a tensor in the pickle has no storage and offset", m->path);
    const value *storage = args->items[0];
    const ae_zip_record *record = find_record(m, "/data/", storage->text);
    char quoted[AE_GGUF_QUOTE_BYTES];
    if (!record)
        return FAIL(FORMAT, "%s: record %s, the data of a tensor, is missing", m->path,
                    ae_gguf_quote(quoted, storage->text));
    ae_st_tensor *t = ae_arena_alloc(&m->st->arena, 1, sizeof *t);
    if (!t) return ae_fail_memory(m->error, "a tensor", sizeof *t);
    t->dtype = storage->dtype;
    AE_TRY(read_sizes(m, args->items[2], args->items[3], t));
    const size_t wide = ae_st_dtype_bytes(t->dtype), room = record->bytes / wide;
    const uint64_t first = (uint64_t)args->items[1]->whole;
    if (first > room || t->n > room - first)
        return FAIL(FORMAT, "%s: a tensor has %llu elements from %llu on, but record %s has only %zu", m->path,
                    (unsigned long long)t->n, (unsigned long long)first, ae_gguf_quote(quoted, storage->text), room);
    t->bytes = (size_t)t->n * wide;
    t->data = record->data + (size_t)first * wide;
    return push(m, (value){.kind = TENSOR, .tensor = t});
}

static aerie_status call(machine *m)
{
    value *args = NULL, *what = NULL;
    AE_TRY(pop(m, &args));
    AE_TRY(pop(m, &what));
    if (what->kind != FUNCTION || args->kind != TUPLE) return FAIL(FORMAT, "%s: the pickle calls a non-function", m->path);
    switch ((function)what->whole) {
    case ORDERED_DICT:
        if (args->whole == 0) return push(m, (value){.kind = TABLE});
        break;
    case REBUILD_TENSOR: return push_tensor(m, args);
    case REBUILD_PARAMETER:
        if (args->whole && args->items[0]->kind == TENSOR) return push_value(m, args->items[0]);
        break;
    case STORAGE_TYPE:
    case UNKNOWN: break;
    }
    char quoted[AE_GGUF_QUOTE_BYTES];
    return FAIL(UNSUPPORTED, "%s: the pickle calls %s, which no table of tensors needs; aerie does not run it", m->path,
                ae_gguf_quote(quoted, what->text));
}

/* ---- Tables ---------------------------------------------------------------------------------------------- */

static aerie_status set_pair(machine *m, value *table, const value *key, const value *content)
{
    pair *p = ae_arena_alloc(&m->st->arena, 1, sizeof *p);
    if (!p) return ae_fail_memory(m->error, "a pickle's values", sizeof *p);
    *p = (pair){key, content, NULL};
    if (table->last) table->last->next = p;
    else table->first = p;
    table->last = p;
    return AERIE_OK;
}

/* Adds n values from index `from` on, alternately keys and contents, to the table on top of the stack. */
static aerie_status set_pairs(machine *m, size_t from, size_t n)
{
    value *table = m->n_stack ? m->stack[m->n_stack - 1] : NULL;
    if (!table || table->kind != TABLE || n % 2) return FAIL(FORMAT, "%s: the pickle sets items of a non-dictionary", m->path);
    for (size_t i = 0; i < n; i += 2) AE_TRY(set_pair(m, table, m->stack[from + i], m->stack[from + i + 1]));
    return AERIE_OK;
}

static aerie_status remember(machine *m, uint64_t at)
{
    if (!m->n_stack) return fail_stack(m);
    /* picklers number memo entries from 0 on, so this check bounds the memo by the instructions run, not by their operands */
    if (at > m->n_kept++) return FAIL(FORMAT, "%s: the pickle does not number its memo entries from 0 on", m->path);
    if (at >= m->n_memo) {
        const size_t room = (size_t)at < 128 ? 256 : 2 * (size_t)at;
        value **grown = ae_realloc(m->memo, room, sizeof *grown);
        if (!grown) return ae_fail_memory(m->error, "a pickle's values", room * sizeof *grown);
        memset(grown + m->n_memo, 0, (room - m->n_memo) * sizeof *grown);
        m->memo = grown;
        m->n_memo = room;
    }
    m->memo[at] = m->stack[m->n_stack - 1];
    return AERIE_OK;
}

static aerie_status recall(machine *m, uint64_t at)
{
    if (at >= m->n_memo || !m->memo[at]) return FAIL(FORMAT, "%s: the pickle uses a memo entry that it did not set", m->path);
    return push_value(m, m->memo[at]);
}

/* ---- Steps ------------------------------------------------------------------------------------------------- */

static aerie_status step_more(machine *m, uint8_t code)
{
    size_t n = 0;
    uint64_t at = 0;
    value *ignored;
    const uint8_t *bytes;
    switch (code) {
    case 0x80: return take(m, 1, &bytes);                                   /* PROTO */
    case '}': return push(m, (value){.kind = TABLE});                       /* EMPTY_DICT */
    case ')': return take_tuple(m, 0);                                      /* EMPTY_TUPLE */
    case 0x85: return take_tuple(m, 1);                                     /* TUPLE1 */
    case 0x86: return take_tuple(m, 2);                                     /* TUPLE2 */
    case 0x87: return take_tuple(m, 3);                                     /* TUPLE3 */
    case 't': AE_TRY(pop_marked(m, &n)); return push_tuple(m, m->n_stack + 1, n); /* TUPLE */
    case ']': return take_tuple(m, 0);                                      /* EMPTY_LIST: lists are not kept */
    case 'a': return pop(m, &ignored);                                      /* APPEND */
    case 'e': return pop_marked(m, &n);                                     /* APPENDS */
    case 'u': AE_TRY(pop_marked(m, &n)); return set_pairs(m, m->n_stack + 1, n); /* SETITEMS */
    case 's':                                                               /* SETITEM */
        if (m->n_stack < 3) return fail_stack(m);
        m->n_stack -= 2;
        return set_pairs(m, m->n_stack, 2);
    case 'b': return pop(m, &ignored);                                      /* BUILD: attributes are ignored */
    case 'R': return call(m);                                               /* REDUCE */
    case 'c': return push_function(m);                                      /* GLOBAL */
    case 'Q': return push_storage(m);                                       /* BINPERSID */
    case 'q': AE_TRY(take_number(m, 1, &at)); return remember(m, at);       /* BINPUT */
    case 'r': AE_TRY(take_number(m, 4, &at)); return remember(m, at);       /* LONG_BINPUT */
    case 'h': AE_TRY(take_number(m, 1, &at)); return recall(m, at);         /* BINGET */
    case 'j': AE_TRY(take_number(m, 4, &at)); return recall(m, at);         /* LONG_BINGET */
    default:
        return FAIL(UNSUPPORTED, "%s: the pickle has an instruction 0x%02x, which no table of tensors needs", m->path, code);
    }
}

static aerie_status step(machine *m, uint8_t code)
{
    const uint8_t *bytes;
    switch (code) {
    case '(': return push(m, (value){.kind = MARK});
    case 'N': return push_value(m, &nothing);
    case 0x88: return push(m, (value){.kind = BOOLEAN, .whole = 1});
    case 0x89: return push(m, (value){.kind = BOOLEAN});
    case 'J': return push_whole(m, 4, true);  /* BININT */
    case 'K': return push_whole(m, 1, false); /* BININT1 */
    case 'M': return push_whole(m, 2, false); /* BININT2 */
    case 0x8a: return push_long(m);           /* LONG1 */
    case 'X': return push_text(m, 4);         /* BINUNICODE */
    case 0x8c: return push_text(m, 1);        /* SHORT_BINUNICODE */
    case 'G': AE_TRY(take(m, 8, &bytes)); return push_value(m, &nothing); /* BINFLOAT */
    default: return step_more(m, code);
    }
}

/* ---- The result --------------------------------------------------------------------------------------------- */

static bool has_tensors(const value *table)
{
    for (const pair *p = table->first; p; p = p->next)
        if (p->key->kind == TEXT && p->content->kind == TENSOR) return true;
    return false;
}

/* The table of tensors: the top value itself, or a table inside it under one of the names that training programs use. */
static const value *find_table(const value *top)
{
    static const char *const names[] = {"state_dict", "model", "module", "model_state_dict"};
    if (top->kind != TABLE) return NULL;
    if (has_tensors(top)) return top;
    for (const pair *p = top->first; p; p = p->next) {
        for (size_t i = 0; p->key->kind == TEXT && i < sizeof names / sizeof *names; i++)
            if (is_text(p->key->text, names[i]) && p->content->kind == TABLE && has_tensors(p->content)) return p->content;
    }
    return NULL;
}

static aerie_status collect(machine *m, const value *top)
{
    const value *table = find_table(top);
    size_t n = 0;
    if (!table) return FAIL(FORMAT, "%s: the pickle is not a table of tensors by name", m->path);
    for (const pair *p = table->first; p; p = p->next) n += p->key->kind == TEXT && p->content->kind == TENSOR;
    ae_st_tensor *list = ae_arena_alloc(&m->st->arena, n, sizeof *list);
    uint32_t *order = ae_arena_alloc(&m->st->arena, n, sizeof *order);
    if (!list || !order) return ae_fail_memory(m->error, "the list of tensors", n * sizeof *list);
    n = 0;
    for (const pair *p = table->first; p; p = p->next) {
        if (p->key->kind != TEXT || p->content->kind != TENSOR) continue;
        const ae_gguf_string name = p->key->text;
        char quoted[AE_GGUF_QUOTE_BYTES];
        if (!name.n || memchr(name.data, 0, name.n))
            return FAIL(FORMAT, "%s: tensor %s: the name is empty or contains a NUL", m->path, ae_gguf_quote(quoted, name));
        list[n] = *p->content->tensor;
        list[n].name = ae_arena_strndup(&m->st->arena, name.data, name.n);
        if (!list[n++].name) return ae_fail_memory(m->error, "a tensor's name", name.n);
    }
    AE_TRY(ae_st_sort(&m->st->arena, &list, n, order, m->error));
    for (size_t i = 1; i < n; i++)
        if (strcmp(list[i].name, list[i - 1].name) == 0)
            return FAIL(FORMAT, "%s: tensor \"%.60s\" occurs twice", m->path, list[i].name);
    m->file->tensors = list;
    m->file->n_tensors = n;
    return AERIE_OK;
}

static aerie_status run(machine *m)
{
    for (;;) {
        const uint8_t *code = NULL;
        AE_TRY(take(m, 1, &code));
        if (*code == '.') break;
        AE_TRY(step(m, *code));
    }
    value *top = NULL;
    AE_TRY(pop(m, &top));
    return collect(m, top);
}

/* Finds the pickle of the archive, "<folder>/data.pkl", and sets p and end to it. */
static aerie_status find_pickle(machine *m)
{
    static const char end[] = "/data.pkl";
    const size_t k = sizeof end - 1;
    const ae_zip_record *record = NULL;
    for (size_t i = 0; i < m->zip.n && !record; i++) {
        const ae_zip_record *r = &m->zip.records[i];
        if (r->name.n > k && r->name.n - k < 100 && memcmp(r->name.data + r->name.n - k, end, k) == 0) record = r;
    }
    if (!record) return FAIL(FORMAT, "%s: a zip archive without data.pkl, not a PyTorch checkpoint", m->path);
    if (record->bytes > MAX_PICKLE)
        return FAIL(LIMIT, "%s: its pickle has %zu bytes; at most %zu are read", m->path, record->bytes, MAX_PICKLE);
    m->folder = (ae_gguf_string){record->name.data, record->name.n - k};
    m->p = record->data;
    m->end = record->data + record->bytes;
    const ae_zip_record *order = find_record(m, "/byteorder", (ae_gguf_string){"", 0});
    if (order && order->bytes == 3 && memcmp(order->data, "big", 3) == 0)
        return FAIL(UNSUPPORTED, "%s: its numbers are big-endian", m->path);
    return AERIE_OK;
}

static aerie_status parse(ae_safetensors *st, ae_st_file *f, aerie_error *error)
{
    const char *dots;
    machine machine_ = {.st = st, .file = f, .error = error}, *m = &machine_;
    m->path = ae_gguf_path_end(f->path, &dots);
    const char *other = f->bytes >= 2 && memcmp(f->data, "PK", 2) ? ae_kind_data(f->data, f->bytes) : NULL;
    if (other) return FAIL(FORMAT, "%s: this is %s", m->path, other);
    if (f->bytes < 4 || memcmp(f->data, "PK", 2) != 0)
        return FAIL(UNSUPPORTED, "%s: not a PyTorch checkpoint of version 1.6 or later (a zip archive)", m->path);
    AE_TRY(ae_zip_read(&m->zip, &st->arena, f->data, f->bytes, f->path, error));
    AE_TRY(find_pickle(m));
    const aerie_status status = run(m);
    ae_free(m->stack);
    ae_free(m->memo);
    return status;
}

static aerie_status open_file(ae_safetensors **out, const char *path, const void *bytes, size_t n, aerie_error *error)
{
    ae_st_file *f;
    AE_TRY(ae_st_start(out, 1, error));
    AE_TRY(ae_st_add(*out, path, bytes, n, &f, error));
    return parse(*out, f, error);
}

aerie_status ae_torch_open(ae_safetensors **out, const char *path, aerie_error *error)
{
    *out = NULL;
    return ae_st_settle(out, open_file(out, path, NULL, 0, error));
}

aerie_status ae_torch_open_memory(ae_safetensors **out, const void *bytes, size_t n, const char *name, aerie_error *error)
{
    *out = NULL;
    return ae_st_settle(out, open_file(out, name, bytes ? bytes : "", n, error));
}
