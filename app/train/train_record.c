/* train_record.c - the file of features: opening and continuing it, rows of a conversation, records (train_data.h).
 * The file (little-endian; training/README.md, "Features") is a header of 64 bytes, then a record per conversation: four
 * u32 (n_tokens, n_prompt, bytes of the id, 0), the id padded with NULs to a multiple of 4, tokens i32 [n_tokens],
 * likeliest next tokens i32 [n_tokens][n_likely], their log-probabilities f32 [n_tokens][n_likely], features f16
 * [n_tokens][n_taps][n_embd]. Values beyond f16 are clamped. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "train/train_data.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "features are written as they are in memory, which must be little-endian"
#endif

_Static_assert(sizeof(app_feature_header) == 64, "64 bytes in the file");

typedef struct record_header {
    uint32_t n_tokens, n_prompt, n_id, zero;
} record_header;

static size_t padded(size_t n)
{
    return (n + 3) / 4 * 4;
}

/* ---- The file ------------------------------------------------------------------------------------------ */

static int cannot_write(const app_feature_file *f)
{
    return app_error(APP_FAILED, "cannot write '%s': %s", f->path, strerror(errno));
}

static uint64_t record_bytes(const app_feature_header *h, const record_header *r)
{
    const uint64_t row = sizeof(int32_t) + (uint64_t)h->n_likely * (sizeof(int32_t) + sizeof(float)) +
                         (uint64_t)h->n_taps * h->n_embd * sizeof(uint16_t);
    return sizeof *r + padded(r->n_id) + r->n_tokens * row;
}

/* Reads the ids of the whole records; *end is the end of the last one. */
static int scan_records(app_feature_file *f, FILE *file, uint64_t size, uint64_t *end)
{
    char id[APP_MAX_ID + 1];
    record_header r;
    for (*end = sizeof f->header; *end + sizeof r <= size;) {
        if (fseeko(file, (off_t)*end, SEEK_SET) || fread(&r, sizeof r, 1, file) != 1) break;
        const uint64_t bytes = record_bytes(&f->header, &r);
        if (r.n_id > APP_MAX_ID || r.n_tokens > INT32_MAX || bytes > size - *end || fread(id, 1, r.n_id, file) != r.n_id) break;
        id[r.n_id] = '\0';
        if (json_object_set_new(f->done, id, json_true())) return app_error_memory("the ids");
        *end += bytes;
    }
    return APP_DONE;
}

/* Opens the output after its last whole record, or begins it. */
static int open_output(app_feature_file *f)
{
    app_feature_header found;
    uint64_t end = sizeof found;
    int bad = APP_DONE;
    FILE *file = fopen(f->path, "rb");
    const bool exists = file != NULL;
    f->done = json_object();
    if (!f->done) bad = app_error_memory("the ids");
    if (!bad && exists) {
        fseeko(file, 0, SEEK_END);
        const uint64_t size = (uint64_t)ftello(file);
        rewind(file);
        if (size && (fread(&found, sizeof found, 1, file) != 1 || memcmp(&found, &f->header, sizeof found)))
            bad = app_error(APP_BAD_FILE, "'%s' exists, but does not hold features of this model with these taps; "
                            "name another file or remove it", f->path);
        else if (size) bad = scan_records(f, file, size, &end);
    }
    if (file) fclose(file);
    if (bad) return bad;
    if (exists && json_object_size(f->done) && truncate(f->path, (off_t)end)) return cannot_write(f);
    f->out = fopen(f->path, json_object_size(f->done) ? "ab" : "wb");
    if (!f->out) return cannot_write(f);
    if (json_object_size(f->done) == 0 && fwrite(&f->header, sizeof f->header, 1, f->out) != 1) return cannot_write(f);
    return APP_DONE;
}

int app_feature_taps(const app_models *models, const app_options *o, aerie_session_params *params)
{
    const aerie_model_info *info = &models->info;
    const uint32_t usual[] = {2, info->n_layers / 2, info->n_layers - 3};
    if (o->train.taps.n > AERIE_MAX_TAPS)
        return app_error(APP_USAGE, "--taps takes at most %d layers; found %zu", AERIE_MAX_TAPS, o->train.taps.n);
    if (o->train.taps.n == 0 && info->n_layers < 5)
        return app_error(APP_USAGE, "the model has %u layers, too few for the usual taps; name the layers by --taps",
                         (unsigned)info->n_layers);
    params->n_taps = o->train.taps.n ? (uint32_t)o->train.taps.n : 3;
    memcpy(params->taps, o->train.taps.n ? o->train.taps.items : usual, params->n_taps * sizeof *params->taps);
    return APP_DONE;
}

int app_feature_open(app_feature_file *f, const char *path, const app_models *models, const app_options *o,
                     const aerie_session_params *params)
{
    const aerie_model_info *info = &models->info;
    *f = (app_feature_file){.path = path,
                            .header = {.magic = "", .n_embd = info->n_embd, .n_taps = params->n_taps, .n_vocab = info->n_vocab,
                                       .n_likely = o->train.n_likely < info->n_vocab ? o->train.n_likely : info->n_vocab}};
    memcpy(f->header.magic, "AEFEAT01", sizeof f->header.magic);
    memcpy(f->header.taps, params->taps, params->n_taps * sizeof *params->taps);
    return open_output(f);
}

int app_feature_close(app_feature_file *f)
{
    const bool failed = f->out && fclose(f->out);
    f->out = NULL;
    json_decref(f->done);
    f->done = NULL;
    return failed ? cannot_write(f) : APP_DONE;
}

int app_feature_write(app_feature_file *f, const app_feature_rows *rows, const char *id, const int32_t *tokens,
                      size_t n_tokens, size_t n_prompt)
{
    static const char zeros[4];
    const record_header r = {(uint32_t)n_tokens, (uint32_t)n_prompt, (uint32_t)strlen(id), 0};
    const size_t n = n_tokens, k = f->header.n_likely, row = (size_t)f->header.n_taps * f->header.n_embd;
    const size_t n_zeros = padded(r.n_id) - r.n_id;
    const bool ok = fwrite(&r, sizeof r, 1, f->out) == 1 && fwrite(id, 1, r.n_id, f->out) == r.n_id &&
                    fwrite(zeros, 1, n_zeros, f->out) == n_zeros && fwrite(tokens, sizeof *tokens, n, f->out) == n &&
                    fwrite(rows->likely, k * sizeof *rows->likely, n, f->out) == n &&
                    fwrite(rows->log_p, k * sizeof *rows->log_p, n, f->out) == n &&
                    fwrite(rows->features, row * sizeof *rows->features, n, f->out) == n && fflush(f->out) == 0;
    return ok ? APP_DONE : cannot_write(f);
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

static bool grow(void **items, size_t n, size_t size)
{
    if (n > SIZE_MAX / size) return false;
    void *grown = realloc(*items, n * size);
    if (grown) *items = grown;
    return grown != NULL;
}

int app_feature_reserve(const app_feature_file *f, app_feature_rows *rows, size_t n)
{
    const app_feature_header *h = &f->header;
    if (n <= rows->capacity) return APP_DONE;
    if (!grow((void **)&rows->likely, n, h->n_likely * sizeof *rows->likely) ||
        !grow((void **)&rows->log_p, n, h->n_likely * sizeof *rows->log_p) ||
        !grow((void **)&rows->features, n, (size_t)h->n_taps * h->n_embd * sizeof *rows->features))
        return app_error_memory("the features of a conversation");
    rows->capacity = n;
    return APP_DONE;
}

void app_feature_rows_free(app_feature_rows *rows)
{
    free(rows->likely);
    free(rows->log_p);
    free(rows->features);
    *rows = (app_feature_rows){0};
}

/* Returns the nearest f16, ties to even, clamped to finite values. NaN becomes 0. */
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

/* Returns e^x for x <= 0 with an error below 1e-6, computed by products and sums that compilers vectorize; about 0 below
 * -80. */
static inline float exp_below(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23, which rounds to an integer when added */
    const float t = (x > -80.0f ? x : -80.0f) * 1.44269504f, rounded = t + magic, f = t - (rounded - magic);
    const float p = 1.0f + f * (0.69314718f + f * (0.24022651f + f * (0.05550411f + f * (0.00961813f + f * 0.00133336f))));
    uint32_t bits;
    float scale;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits - 0x4b400000u + 127u) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* Finds the k largest logits, largest first (the lower id first if equal), and their log-probabilities. Most blocks contain
 * none of them, which a vectorized pass finds out. */
static void likeliest(const float *logits, size_t n_vocab, size_t k, int32_t *ids, float *log_p)
{
    enum { BLOCK = 64, N_SUMS = 16 };
    size_t n = 0;
    for (size_t at = 0; at < n_vocab; at += BLOCK) {
        const size_t end = n_vocab - at < BLOCK ? n_vocab : at + BLOCK;
        int above = n < k;
        for (size_t i = at; i < end && n == k; i++) above |= logits[i] > log_p[k - 1];
        for (size_t i = at; i < end && above; i++) {
            if (n == k && !(logits[i] > log_p[k - 1])) continue;
            size_t to = n < k ? n++ : k - 1;
            for (; to > 0 && logits[i] > log_p[to - 1]; to--) {
                log_p[to] = log_p[to - 1];
                ids[to] = ids[to - 1];
            }
            log_p[to] = logits[i];
            ids[to] = (int32_t)i;
        }
    }
    const float top = log_p[0];
    float sums[N_SUMS] = {0};
    double sum = 0;
    size_t at = 0;
    for (; at + N_SUMS <= n_vocab; at += N_SUMS)
        for (size_t j = 0; j < N_SUMS; j++) sums[j] += exp_below(logits[at + j] - top);
    for (; at < n_vocab; at++) sum += (double)exp_below(logits[at] - top);
    for (size_t j = 0; j < N_SUMS; j++) sum += (double)sums[j];
    for (size_t i = 0; i < k; i++) log_p[i] -= top + (float)log(sum);
}

void app_feature_row(const app_feature_file *f, app_feature_rows *rows, size_t position, const float *logits,
                     const float *features)
{
    const size_t k = f->header.n_likely, row = (size_t)f->header.n_taps * f->header.n_embd;
    likeliest(logits, f->header.n_vocab, k, rows->likely + position * k, rows->log_p + position * k);
    for (size_t i = 0; i < row; i++) rows->features[position * row + i] = to_f16(features[i]);
}
