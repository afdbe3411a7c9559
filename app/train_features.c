/* train_features.c - aerie train-data features: answers through the target once more, what a head is trained on kept.
 *
 * The file (little-endian; training/README.md, "Features"): a header of 64 bytes, then a record per conversation: four
 * u32 (n_tokens, n_prompt, bytes of the id, 0), the id padded with NULs to a multiple of 4, tokens i32 [n_tokens],
 * likeliest next tokens i32 [n_tokens][n_likely], their log-probabilities f32 [n_tokens][n_likely], features f16
 * [n_tokens][n_taps][n_embd]. Values beyond f16 are clamped.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "train_data.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "features are written as they lie in memory, which must be little-endian"
#endif

typedef struct file_header {
    char magic[8]; /* "AEFEAT01" */
    uint32_t n_embd, n_taps, n_likely, n_vocab;
    uint32_t taps[AERIE_MAX_TAPS]; /* input indices: the residual stream before this layer */
    uint32_t zero[2];
} file_header;
_Static_assert(sizeof(file_header) == 64, "64 bytes in the file");

typedef struct record_header {
    uint32_t n_tokens, n_prompt, n_id, zero;
} record_header;

typedef struct exporter {
    const app_models *models;
    const app_options *options;
    const char *path;  /* of the answers */
    aerie_session *session;
    uint32_t n_ctx;
    file_header header;
    json_t *done;      /* ids that the output holds */
    FILE *out;
    size_t n_lines;    /* of the answers */
    /* the conversation being exported */
    size_t capacity;   /* tokens */
    int32_t *tokens;   /* [n_tokens] */
    int32_t *likely;   /* [n_tokens][n_likely] */
    float *log_p;      /* [n_tokens][n_likely] */
    uint16_t *features; /* f16 [n_tokens][n_taps][n_embd] */
    app_progress_line progress;
} exporter;

static size_t padded(size_t n)
{
    return (n + 3) / 4 * 4;
}

/* ---- The file ------------------------------------------------------------------------------------------ */

static int cannot_write(const exporter *e)
{
    return app_error(APP_FAILED, "cannot write '%s': %s", e->options->output, strerror(errno));
}

static uint64_t record_bytes(const file_header *h, const record_header *r)
{
    const uint64_t row = sizeof(int32_t) + (uint64_t)h->n_likely * (sizeof(int32_t) + sizeof(float)) +
                         (uint64_t)h->n_taps * h->n_embd * sizeof(uint16_t);
    return sizeof *r + padded(r->n_id) + r->n_tokens * row;
}

/* Ids of the whole records; *end is where the last of them ends. */
static int scan_records(exporter *e, FILE *file, uint64_t size, uint64_t *end)
{
    enum { MAX_ID = 4096 };
    char id[MAX_ID + 1];
    record_header r;
    for (*end = sizeof(file_header); *end + sizeof r <= size;) {
        if (fseeko(file, (off_t)*end, SEEK_SET) || fread(&r, sizeof r, 1, file) != 1) break;
        const uint64_t bytes = record_bytes(&e->header, &r);
        if (r.n_id > MAX_ID || r.n_tokens > INT32_MAX || bytes > size - *end || fread(id, 1, r.n_id, file) != r.n_id) break;
        id[r.n_id] = '\0';
        if (json_object_set_new(e->done, id, json_true())) return app_error_memory("the ids");
        *end += bytes;
    }
    return APP_DONE;
}

/* Opens the output behind its last whole record, or begins it. */
static int open_output(exporter *e)
{
    const char *path = e->options->output;
    file_header found;
    uint64_t end = sizeof found;
    int bad = APP_DONE;
    FILE *file = fopen(path, "rb");
    const bool exists = file != NULL;
    e->done = json_object();
    if (!e->done) bad = app_error_memory("the ids");
    if (!bad && exists) {
        fseeko(file, 0, SEEK_END);
        const uint64_t size = (uint64_t)ftello(file);
        rewind(file);
        if (size && (fread(&found, sizeof found, 1, file) != 1 || memcmp(&found, &e->header, sizeof found)))
            bad = app_error(APP_BAD_FILE, "'%s' exists, but does not hold features with these taps of this model; "
                            "name another file, or remove it", path);
        else if (size) bad = scan_records(e, file, size, &end);
    }
    if (file) fclose(file);
    if (bad) return bad;
    if (exists && json_object_size(e->done) && truncate(path, (off_t)end)) return cannot_write(e);
    e->out = fopen(path, json_object_size(e->done) ? "ab" : "wb");
    if (!e->out) return cannot_write(e);
    if (json_object_size(e->done) == 0 && fwrite(&e->header, sizeof e->header, 1, e->out) != 1) return cannot_write(e);
    return APP_DONE;
}

static int write_record(exporter *e, const char *id, const record_header *r)
{
    static const char zeros[4];
    const size_t n = r->n_tokens, k = e->header.n_likely, row = (size_t)e->header.n_taps * e->header.n_embd;
    const size_t n_zeros = padded(r->n_id) - r->n_id;
    const bool ok = fwrite(r, sizeof *r, 1, e->out) == 1 && fwrite(id, 1, r->n_id, e->out) == r->n_id &&
                    fwrite(zeros, 1, n_zeros, e->out) == n_zeros && fwrite(e->tokens, sizeof *e->tokens, n, e->out) == n &&
                    fwrite(e->likely, k * sizeof *e->likely, n, e->out) == n &&
                    fwrite(e->log_p, k * sizeof *e->log_p, n, e->out) == n &&
                    fwrite(e->features, row * sizeof *e->features, n, e->out) == n && fflush(e->out) == 0;
    return ok ? APP_DONE : cannot_write(e);
}

/* ---- One position ------------------------------------------------------------------------------------------ */

/* Nearest f16, ties to even, clamped to finite values. NaN becomes 0. */
static uint16_t to_f16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (isnan(x)) return 0;
    bits &= 0x7fffffff;
    if (bits >= 0x477ff000) return sign | 0x7bff; /* 65520 and more */
    if (bits < 0x38800000) {                      /* below 2^-14: multiples of 2^-24, rounded by the addition */
        const float magic = 0.5f;
        float small;
        uint32_t out;
        memcpy(&small, &bits, sizeof small);
        small += magic;
        memcpy(&out, &small, sizeof out);
        return sign | (uint16_t)(out - 0x3f000000);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}

/* The k largest logits, largest first, and their log-probabilities. */
static void likeliest(const float *logits, size_t n_vocab, size_t k, int32_t *ids, float *log_p)
{
    enum { NEGLIGIBLE = 30 }; /* e^-30 of the largest does not change the sum */
    size_t n = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (n == k && !(logits[i] > log_p[k - 1])) continue;
        size_t at = n < k ? n++ : k - 1;
        for (; at > 0 && logits[i] > log_p[at - 1]; at--) {
            log_p[at] = log_p[at - 1];
            ids[at] = ids[at - 1];
        }
        log_p[at] = logits[i];
        ids[at] = (int32_t)i;
    }
    const float top = log_p[0];
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (logits[i] > top - NEGLIGIBLE) sum += (double)expf(logits[i] - top);
    }
    for (size_t i = 0; i < k; i++) log_p[i] -= top + (float)log(sum);
}

static bool on_position(void *user, size_t position, const float *logits, const float *features)
{
    exporter *e = user;
    const size_t k = e->header.n_likely, row = (size_t)e->header.n_taps * e->header.n_embd;
    likeliest(logits, e->header.n_vocab, k, e->likely + position * k, e->log_p + position * k);
    for (size_t i = 0; i < row; i++) e->features[position * row + i] = to_f16(features[i]);
    e->progress.n_tokens++;
    app_progress_say(&e->progress, false);
    return !app_interrupted();
}

/* ---- One conversation ------------------------------------------------------------------------------------------ */

static bool grow(void **items, size_t n, size_t size)
{
    if (n > SIZE_MAX / size) return false;
    void *grown = realloc(*items, n * size);
    if (grown) *items = grown;
    return grown != NULL;
}

static int reserve(exporter *e, size_t n)
{
    const file_header *h = &e->header;
    if (n <= e->capacity) return APP_DONE;
    if (!grow((void **)&e->tokens, n, sizeof *e->tokens) || !grow((void **)&e->likely, n, h->n_likely * sizeof *e->likely) ||
        !grow((void **)&e->log_p, n, h->n_likely * sizeof *e->log_p) ||
        !grow((void **)&e->features, n, (size_t)h->n_taps * h->n_embd * sizeof *e->features))
        return app_error_memory("the features of a conversation");
    e->capacity = n;
    return APP_DONE;
}

static int read_tokens(exporter *e, json_t *object, size_t line, record_header *r)
{
    json_t *list = json_object_get(object, "tokens"), *item, *n_prompt = json_object_get(object, "n_prompt");
    const size_t n = json_array_size(list);
    size_t i;
    if (n == 0 || !json_is_integer(n_prompt) || json_integer_value(n_prompt) < 0 || (size_t)json_integer_value(n_prompt) > n) {
        return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"tokens\", a list of ids, and \"n_prompt\", how many of them "
                         "are the prompt; is this the output of 'train-data answers'?", e->path, line);
    }
    if (n > e->n_ctx) {
        return app_error(APP_USAGE, "'%s', line %zu: %zu tokens, but the context has %u positions; see -c", e->path, line, n,
                         (unsigned)e->n_ctx);
    }
    const int bad = reserve(e, n);
    if (bad) return bad;
    json_array_foreach(list, i, item) {
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= (json_int_t)e->header.n_vocab)
            return app_error(APP_BAD_FILE, "'%s', line %zu: token %zu is none of the model's %u", e->path, line, i,
                             (unsigned)e->header.n_vocab);
        e->tokens[i] = (int32_t)id;
    }
    *r = (record_header){.n_tokens = (uint32_t)n, .n_prompt = (uint32_t)json_integer_value(n_prompt)};
    return APP_DONE;
}

static int export_line(void *user, json_t *object, size_t line)
{
    exporter *e = user;
    record_header r;
    aerie_error error = {0};
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!id || strlen(id) > 1024) return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"id\", a text", e->path, line);
    e->progress.n_done++;
    if (json_object_get(e->done, id)) return APP_DONE;
    int bad = read_tokens(e, object, line, &r);
    if (bad) return bad;
    r.n_id = (uint32_t)strlen(id);
    const aerie_status status = aerie_eval_features(e->session, e->tokens, r.n_tokens, on_position, e, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    if (app_interrupted()) return APP_INTERRUPTED;
    return write_record(e, id, &r);
}

static int count_line(void *user, json_t *object, size_t line)
{
    size_t *n = user;
    (void)object;
    *n = line;
    return APP_DONE;
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

static int open_session(exporter *e)
{
    const app_options *o = e->options;
    const aerie_model_info *info = &e->models->info;
    const uint32_t usual[] = {2, info->n_layers / 2, info->n_layers - 3};
    aerie_session_params params = o->session;
    aerie_error error = {0};
    params.spec.type = AERIE_SPEC_NONE;
    params.n_seqs = 1;
    if (o->taps.n > AERIE_MAX_TAPS)
        return app_error(APP_USAGE, "--taps takes at most %d layers; found %zu", AERIE_MAX_TAPS, o->taps.n);
    if (o->taps.n == 0 && info->n_layers < 5)
        return app_error(APP_USAGE, "the model has %u layers, too few for the usual taps: name them by --taps", (unsigned)info->n_layers);
    params.n_taps = o->taps.n ? (uint32_t)o->taps.n : 3;
    memcpy(params.taps, o->taps.n ? o->taps.items : usual, params.n_taps * sizeof *params.taps);
    e->header = (file_header){.magic = "", .n_embd = info->n_embd, .n_taps = params.n_taps,
                              .n_likely = o->n_likely < info->n_vocab ? o->n_likely : info->n_vocab, .n_vocab = info->n_vocab};
    memcpy(e->header.magic, "AEFEAT01", sizeof e->header.magic);
    memcpy(e->header.taps, params.taps, params.n_taps * sizeof *params.taps);
    const int bad = app_report(APP_WORKING, aerie_session_create(&e->session, e->models->model, &params, &error), &error);
    if (!bad) e->n_ctx = aerie_session_n_ctx(e->session);
    return bad;
}

int app_train_features(const app_models *models, const app_options *options, const char *answers)
{
    exporter e = {.models = models, .options = options, .path = answers};
    int bad = open_session(&e);
    if (!bad) bad = open_output(&e);
    if (!bad) bad = app_records_read(answers, count_line, &e.n_lines);
    if (!bad) {
        e.progress = (app_progress_line){.what = "features", .n_total = e.n_lines, .start = app_now(), .quiet = options->quiet};
        app_interrupt_arm();
        bad = app_records_read(answers, export_line, &e);
        if (!bad) app_progress_say(&e.progress, true);
    }
    if (e.out && fclose(e.out) && !bad) bad = cannot_write(&e);
    aerie_session_free(e.session);
    json_decref(e.done);
    free(e.tokens);
    free(e.likely);
    free(e.log_p);
    free(e.features);
    return bad;
}
