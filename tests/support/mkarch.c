/* mkarch.c - see mkarch.h. Owns: reading a spec's lines, drawing weights, writing the file. */
#include "mkarch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"
#include "quant/types.h"

#define MAX_WORD 96
#define MAX_VALUES 64
#define MAX_CHUNK ((int64_t)1 << 20) /* elements drawn at a time, but a row at least */
#define SHAPE_CTX 32768              /* context_length of every shape */

static const mkarch_spec *find(const mkarch_spec *specs, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(specs[i].name, name)) return &specs[i];
    return NULL;
}

const mkarch_spec *mkarch_find(const char *name)
{
    const mkarch_spec *model = find(mkarch_specs, mkarch_n_specs, name);
    if (!model) model = find(mkarch_drafters, mkarch_n_drafters, name);
    return model ? model : find(mkarch_deciders, mkarch_n_deciders, name);
}

const mkarch_spec *mkarch_find_shape(const char *name)
{
    return find(mkarch_shapes, mkarch_n_shapes, name);
}

/* ---- Lines --------------------------------------------------------------------------------------- */

/* The next word of a line into out [MAX_WORD]; false at its end. A word that is too long is cut: nothing knows it then. */
static bool next_word(const char **at, char *out)
{
    while (**at == ' ') ++*at;
    const size_t n = strcspn(*at, " \n");
    snprintf(out, MAX_WORD, "%.*s", (int)(n < MAX_WORD ? n : MAX_WORD - 1), *at);
    *at += n;
    return n > 0;
}

static aerie_status bad_line(const mkarch_spec *spec, const char *line, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: what is meant by \"%.*s\"?", spec->name, (int)strcspn(line, "\n"), line);
}

typedef aerie_status line_fn(void *context, const char *line, aerie_error *error);

static aerie_status for_lines(const char *text, line_fn *fn, void *context, aerie_error *error)
{
    while (*text) {
        AE_TRY(fn(context, text, error));
        text += strcspn(text, "\n");
        if (*text) text++;
    }
    return AERIE_OK;
}

/* ---- Keys ---------------------------------------------------------------------------------------- */

typedef struct writing {
    const mkarch_spec *spec;
    bool decoded;
    uint32_t type; /* of matrices and embeddings */
    uint32_t n_ctx, n_vocab;
    size_t n_layers;
    ae_gguf_writer *writer;
} writing;

static aerie_status write_array(writing *w, const char *key, char type, const double *values, size_t n, aerie_error *error)
{
    int32_t i32[MAX_VALUES];
    float f32[MAX_VALUES];
    uint8_t u8[MAX_VALUES];
    uint64_t u64[MAX_VALUES];
    for (size_t i = 0; i < n; i++) {
        u64[i] = type == 'U' ? (uint64_t)values[i] : 0;
        i32[i] = type == 'I' ? (int32_t)values[i] : 0;
        f32[i] = (float)values[i];
        u8[i] = values[i] != 0;
    }
    if (type == 'I') return ae_gguf_writer_array(w->writer, key, AE_GGUF_I32, i32, n, error);
    if (type == 'U') return ae_gguf_writer_array(w->writer, key, AE_GGUF_U64, u64, n, error);
    if (type == 'B') return ae_gguf_writer_array(w->writer, key, AE_GGUF_BOOL, u8, n, error);
    return ae_gguf_writer_array(w->writer, key, AE_GGUF_F32, f32, n, error);
}

static aerie_status write_key(void *context, const char *line, aerie_error *error)
{
    writing *w = context;
    const char *at = line;
    char type[MAX_WORD], name[MAX_WORD], word[MAX_WORD], rest[MAX_WORD], key[2 * MAX_WORD], *end;
    double values[MAX_VALUES];
    if (!next_word(&at, type) || type[1] || !next_word(&at, name) || !next_word(&at, word))
        return bad_line(w->spec, line, error);
    if (*name == '.') snprintf(key, sizeof key, "%s", name + 1);
    else snprintf(key, sizeof key, "%s.%s", w->spec->arch, name);
    if (*type == 's')
        return next_word(&at, rest) ? bad_line(w->spec, line, error) : ae_gguf_writer_string(w->writer, key, word, error);
    size_t n = 0;
    do {
        values[n++] = strtod(word, &end);
        if (*end) return bad_line(w->spec, line, error);
    } while (n < MAX_VALUES && next_word(&at, word));
    if (n == strlen(w->spec->layers) && w->n_layers < n) n = w->n_layers;
    if (strchr("IUBF", *type)) return write_array(w, key, *type, values, n, error);
    if (n > 1) return bad_line(w->spec, line, error);
    if (*type == 'u') return ae_gguf_writer_u32(w->writer, key, (uint32_t)values[0], error);
    if (*type == 'f') return ae_gguf_writer_f32(w->writer, key, (float)values[0], error);
    if (*type == 'b') return ae_gguf_writer_bool(w->writer, key, values[0] != 0, error);
    return bad_line(w->spec, line, error);
}

static aerie_status write_keys(writing *w, aerie_error *error)
{
    const mkarch_spec *spec = w->spec;
    const mk_options vocab = {.n_vocab = w->n_vocab};
    char key[MAX_WORD];
    AE_TRY(ae_gguf_writer_string(w->writer, "general.architecture", spec->arch, error));
    AE_TRY(ae_gguf_writer_string(w->writer, "general.name", "random", error));
    snprintf(key, sizeof key, "%s.block_count", spec->arch);
    AE_TRY(ae_gguf_writer_u32(w->writer, key, (uint32_t)w->n_layers, error));
    snprintf(key, sizeof key, "%s.context_length", spec->arch);
    AE_TRY(ae_gguf_writer_u32(w->writer, key, w->n_ctx, error));
    AE_TRY(for_lines(spec->keys, write_key, w, error));
    return mk_vocab(&vocab, w->writer, error);
}

/* ---- Tensors ------------------------------------------------------------------------------------- */

typedef struct tensor {
    char layers[MAX_WORD], name[MAX_WORD];
    char init;
    float gain;
    uint32_t n_dims;
    int64_t ne[4];
} tensor;

static bool parse_tensor(const char *line, tensor *t)
{
    char word[MAX_WORD], *end;
    *t = (tensor){.gain = 1.0f, .ne = {1, 1, 1, 1}};
    if (!next_word(&line, t->layers) || !next_word(&line, t->name) || !next_word(&line, word)) return false;
    t->init = word[0];
    if (!strchr("weEnbsaocfFuxt", t->init)) return false;
    if (word[1]) t->gain = strtof(word + 1, &end);
    if (word[1] && *end) return false;
    while (t->n_dims < 4 && next_word(&line, word)) {
        t->ne[t->n_dims] = strtol(word, &end, 10);
        if (*end || t->ne[t->n_dims++] < 1) return false;
    }
    return t->n_dims > 0 && !next_word(&line, word);
}

/* About normal, from one draw: four uniform ones added. No logarithm, so that every machine has the same bits. */
static float normal(uint64_t *state)
{
    const uint64_t bits = mk_random(state);
    const int32_t sum = (int32_t)(bits & 65535) + (int32_t)(bits >> 16 & 65535) + (int32_t)(bits >> 32 & 65535) +
                        (int32_t)(bits >> 48);
    return (float)(sum - 131070) * (1.7320508f / 65536.0f);
}

static float uniform(uint64_t *state)
{
    return (float)(mk_random(state) >> 40) * 0x1p-24f;
}

/* The elements from `first` on of a tensor that has n_all of them. */
static void fill(const tensor *t, uint64_t *state, float *x, size_t first, size_t n, size_t n_all)
{
    const float sd = 1.2f * t->gain / sqrtf((float)t->ne[0]);
    for (size_t i = 0; i < n; i++) {
        const float part = n_all > 1 ? (float)(first + i) / (float)(n_all - 1) : 0.0f;
        switch (t->init) {
        case 'w': x[i] = sd * normal(state); break;
        case 'e': x[i] = t->gain * normal(state); break;
        case 'E': x[i] = t->gain * (0.5f + normal(state)); break;
        case 'n': x[i] = t->gain * (1.0f + 0.2f * normal(state)) * (mk_random(state) & 7 ? 1.0f : -1.0f); break;
        case 'b': x[i] = 0.3f * t->gain * normal(state); break;
        case 's': x[i] = t->gain * normal(state); break;
        case 'c': x[i] = 0.5f * t->gain * normal(state); break;
        case 'a': x[i] = -t->gain * (0.2f + 3.8f * uniform(state)); break;
        case 'o': x[i] = t->gain * (0.5f + uniform(state)); break;
        case 'f': x[i] = 1.0f + 7.0f * part; break;
        case 't': { /* different ones in a row, if the gain and 3 have no common divisor */
            const size_t row = (first + i) / (size_t)t->ne[0], k = (first + i) % (size_t)t->ne[0];
            x[i] = (float)((5 * row + row / 3 + 3 * k) % (size_t)t->gain);
            break;
        }
        case 'F': x[i] = 2 * (first + i) < n_all ? 1.0f : 1e30f; break;
        default: x[i] = 1.0f + t->gain * uniform(state);
        }
    }
}

typedef aerie_status tensor_fn(writing *w, const tensor *t, const char *name, aerie_error *error);

/* The type that a tensor's numbers are drawn in. */
static uint32_t type_drawn(const writing *w, const tensor *t)
{
    if (t->init == 'x') return AE_TYPE_MXFP4;
    if (t->init == 't') return AE_TYPE_I32;
    const bool matrix = strchr("we", t->init) && t->n_dims > 1 && strcmp(t->name, "ffn_gate_inp");
    return matrix ? mk_type_for(w->type, (uint32_t)t->ne[0]) : AE_TYPE_F32;
}

static uint32_t type_of(const writing *w, const tensor *t)
{
    return w->decoded && t->init != 't' ? AE_TYPE_F32 : type_drawn(w, t);
}

static aerie_status describe_one(writing *w, const tensor *t, const char *name, aerie_error *error)
{
    return ae_gguf_writer_tensor(w->writer, name, type_of(w, t), t->n_dims, t->ne, error);
}

static aerie_status write_one(writing *w, const tensor *t, const char *name, aerie_error *error)
{
    const uint32_t type = type_drawn(w, t);
    const size_t n_all = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    const size_t most = (size_t)(t->ne[0] * (t->ne[0] < MAX_CHUNK ? MAX_CHUNK / t->ne[0] : 1));
    float *x = ae_alloc(2 * (n_all < most ? n_all : most), sizeof *x);
    if (!x) return ae_fail_memory(error, "a tensor", 2 * most * sizeof *x);
    uint64_t state = mk_stream(1, name);
    aerie_status status = AERIE_OK;
    for (size_t done = 0, n; done < n_all && status == AERIE_OK; done += n) {
        n = n_all - done < most ? n_all - done : most;
        void *drawn = x + n;
        const float sd = t->gain * (t->init == 'e' ? 1.0f : 1.2f / sqrtf((float)t->ne[0]));
        if (type == AE_TYPE_F32 || type == AE_TYPE_I32) fill(t, &state, drawn, done, n, n_all);
        else mk_blocks(type, sd, w->type != AE_TYPE_F32, &state, drawn, n);
        for (size_t i = 0; type == AE_TYPE_I32 && i < n; i++) {
            const int32_t id = (int32_t)((float *)drawn)[i];
            memcpy((float *)drawn + i, &id, sizeof id);
        }
        if (type_of(w, t) == type) {
            status = ae_gguf_writer_data(w->writer, drawn, ae_type_row_bytes(type, n), error);
        } else {
            ae_type_get(type)->decode(drawn, x, n);
            status = ae_gguf_writer_data(w->writer, x, n * sizeof *x, error);
        }
    }
    ae_free(x);
    return status;
}

static aerie_status for_tensor(writing *w, const char *line, tensor_fn *fn, aerie_error *error)
{
    tensor t;
    char name[2 * MAX_WORD];
    if (!parse_tensor(line, &t)) return bad_line(w->spec, line, error);
    const size_t n = strlen(t.name);
    const bool bare = t.name[n - 1] == '.', weight = !strpbrk(t.name, ".") || !strncmp(t.name, "nextn.", 6) ||
                                                     !strncmp(t.name, "shortconv.", 10);
    const char *suffix = weight ? ".weight" : "";
    const int length = (int)(bare ? n - 1 : n);
    if (!strcmp(t.layers, "-")) {
        snprintf(name, sizeof name, "%.*s%s", length, t.name, suffix);
        return fn(w, &t, name, error);
    }
    for (size_t i = 0; i < w->n_layers; i++) {
        const bool encodes = !strncmp(t.name, "enc:", 4), decodes = !strncmp(t.name, "dec:", 4);
        const int skip = encodes || decodes ? 4 : 0;
        if (strcmp(t.layers, "*") && !strchr(t.layers, w->spec->layers[i])) continue;
        snprintf(name, sizeof name, "%sblk.%zu.%.*s%s", encodes ? "enc." : decodes ? "dec." : "", i, length - skip,
                 t.name + skip, suffix);
        AE_TRY(fn(w, &t, name, error));
    }
    return AERIE_OK;
}

static aerie_status describe(void *context, const char *line, aerie_error *error)
{
    return for_tensor(context, line, describe_one, error);
}

static aerie_status write_data(void *context, const char *line, aerie_error *error)
{
    return for_tensor(context, line, write_one, error);
}

static aerie_status write_model(writing *w, aerie_error *error)
{
    AE_TRY(write_keys(w, error));
    AE_TRY(for_lines(w->spec->tensors, describe, w, error));
    AE_TRY(ae_gguf_writer_begin(w->writer, error));
    AE_TRY(for_lines(w->spec->tensors, write_data, w, error));
    return ae_gguf_writer_finish(w->writer, error);
}

static aerie_status write_file(writing *w, const char *path, aerie_error *error)
{
    AE_TRY(ae_gguf_writer_create(&w->writer, path, error));
    const aerie_status status = write_model(w, error);
    ae_gguf_writer_free(w->writer);
    return status;
}

aerie_status mkarch_write(const mkarch_spec *spec, bool decoded, const char *path, aerie_error *error)
{
    writing w = {.spec = spec, .decoded = decoded, .type = AE_TYPE_F32, .n_ctx = MKARCH_CTX, .n_vocab = MKARCH_VOCAB,
                 .n_layers = strlen(spec->layers)};
    return write_file(&w, path, error);
}

/* How many rows the embedding has. */
static aerie_status find_vocab(void *context, const char *line, aerie_error *error)
{
    writing *w = context;
    tensor t;
    if (!parse_tensor(line, &t)) return bad_line(w->spec, line, error);
    if (!strcmp(t.name, "token_embd")) w->n_vocab = (uint32_t)t.ne[1];
    return AERIE_OK;
}

aerie_status mkarch_write_shape(const mkarch_spec *shape, const char *type, uint32_t n_layers, const char *path,
                                aerie_error *error)
{
    const ae_type_info *info = ae_type_by_name(type);
    writing w = {.spec = shape, .n_ctx = SHAPE_CTX, .n_layers = n_layers ? n_layers : strlen(shape->layers)};
    if (!info)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "\"%s\" is not a type for weights; q4_0, q8_0, q4_K, f16 ... are", type);
    if (w.n_layers > strlen(shape->layers))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s has %zu layers, not %u", shape->name, strlen(shape->layers), n_layers);
    w.type = info->type;
    AE_TRY(for_lines(shape->tensors, find_vocab, &w, error));
    return write_file(&w, path, error);
}
