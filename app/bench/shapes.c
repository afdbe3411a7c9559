/* shapes.c - aerie bench shapes: T(n) of products with matrices of any shape, and the read bandwidth of the machine.
 * Owns the lists of shapes, the memory that their weights share, and the measurement. A shape is what a model multiplies with
 * one input: one matrix, or q, k and v, or gate and up. It is copied so often that the copies exceed the last cache several
 * times. A sample is the time of one product with each copy in turn, which is how a pass visits its layers: for each copy the
 * input is quantized and the threads meet. A round takes one sample of every n, and reads the bandwidth before each; figures
 * are medians over the rounds.
 * The bytes of all weights are 0x11, which is valid in every format, with scales far from subnormal numbers. The cost of a
 * product does not depend on its values. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/commands.h"

#include "backend/backend.h"
#include "device/device.h" /* products without a model, which aerie.h does not offer */
#include "base/os.h"         /* huge pages, which weights have, too */
#include "base/pool.h"       /* the threads of the backend's stream */
#include "quant/types.h"     /* names of tensor types */

#define MAX_JOINED 3        /* matrices of a shape */
#define MAX_TYPES 16
#define MAX_SHAPES 512
#define WEIGHT_BYTE 0x11
#define ALIGNMENT ((size_t)4096)

typedef struct shape {
    const char *model, *product; /* "" in a sweep */
    uint32_t n_in, n_joined, n_out[MAX_JOINED];
} shape;

/* Dense models as published. embd, ff, vocab: sizes; q, kv: outputs of the projections of queries and of keys. */
static const struct model {
    const char *name;
    uint32_t embd, q, kv, ff, vocab;
} models[] = {
    {"SmolLM2-135M", 576, 576, 192, 1536, 49152},     {"Gemma-3-270M", 640, 1024, 256, 2048, 262144},
    {"SmolLM2-360M", 960, 960, 320, 2560, 49152},     {"Qwen2.5-0.5B", 896, 896, 128, 4864, 151936},
    {"Qwen3-0.6B", 1024, 2048, 1024, 3072, 151936},   {"Gemma-3-1B", 1152, 1024, 256, 6912, 262144},
    {"Llama-3.2-1B", 2048, 2048, 512, 8192, 128256},  {"Qwen2.5-1.5B", 1536, 1536, 256, 8960, 151936},
    {"SmolLM2-1.7B", 2048, 2048, 2048, 8192, 49152},  {"Gemma-2-2B", 2304, 2048, 1024, 9216, 256000},
    {"Llama-3.2-3B", 3072, 3072, 1024, 8192, 128256}, {"Phi-3.5-mini", 3072, 3072, 3072, 8192, 32064},
    {"Qwen3-4B", 2560, 4096, 1024, 9728, 151936},     {"Gemma-3-4B", 2560, 2048, 1024, 10240, 262144},
    {"Mistral-7B", 4096, 4096, 1024, 14336, 32768},   {"Llama-3.1-8B", 4096, 4096, 1024, 14336, 128256},
    {"Gemma-2-9B", 3584, 4096, 2048, 14336, 256000},  {"Qwen2.5-14B", 5120, 5120, 1024, 13824, 152064},
    {"Qwen2.5-32B", 5120, 5120, 1024, 27648, 152064}, {"Llama-3.1-70B", 8192, 8192, 1024, 28672, 128256},
};

typedef struct shapes {
    const app_options *options;
    const ae_type_info *types[MAX_TYPES];
    size_t n_types;
    shape list[MAX_SHAPES];
    size_t n_shapes, n_skipped; /* n_skipped: shapes whose rows are not whole blocks of a type */
    uint32_t max_rows, max_in, max_out;
    app_reader *reader;
    ae_pool *pool;
    ae_backend *backend;
    ae_stream *stream;
    unsigned char *memory; /* [bytes] for all copies of a shape */
    size_t bytes;
    float *x, *y;          /* [max_rows][max_in], [max_rows][max_out] */
    json_t *json;          /* with --json: [...] */
} shapes;

/* The copies of a shape in one type. */
typedef struct copies {
    ae_weight **weights; /* [n * n_joined] owned */
    size_t n;
    size_t bytes; /* of one */
} copies;

typedef struct figures {
    app_samples ms[APP_MAX_NUMBERS]; /* [rows.n], per copy */
    app_samples readings;            /* bytes per second */
} figures;

/* ---- Lists ------------------------------------------------------------------------------------------------ */

static int add_shape(shapes *s, const shape *one)
{
    uint32_t n_out = 0;
    if (s->n_shapes == MAX_SHAPES)
        return app_error(APP_USAGE, "--n-in and --n-out make more than %d shapes; give shorter lists", MAX_SHAPES);
    s->list[s->n_shapes++] = *one;
    for (uint32_t i = 0; i < one->n_joined; i++) n_out += one->n_out[i];
    if (n_out > s->max_out) s->max_out = n_out;
    if (one->n_in > s->max_in) s->max_in = one->n_in;
    return APP_DONE;
}

static int list_shapes(shapes *s)
{
    const app_options *o = s->options;
    int bad = APP_DONE;
    if (!o->shapes.models) {
        for (size_t i = 0; !bad && i < o->shapes.n_in.n; i++) {
            for (size_t k = 0; !bad && k < o->shapes.n_out.n; k++)
                bad = add_shape(s, &(shape){"", "", o->shapes.n_in.items[i], 1, {o->shapes.n_out.items[k]}});
        }
        return bad;
    }
    for (size_t i = 0; !bad && i < sizeof models / sizeof *models; i++) {
        const struct model *m = &models[i];
        const shape list[] = {
            {m->name, "q k v", m->embd, 3, {m->q, m->kv, m->kv}}, {m->name, "attention out", m->q, 1, {m->embd}},
            {m->name, "gate up", m->embd, 2, {m->ff, m->ff}},     {m->name, "down", m->ff, 1, {m->embd}},
            {m->name, "output", m->embd, 1, {m->vocab}},
        };
        for (size_t k = 0; !bad && k < sizeof list / sizeof *list; k++) bad = add_shape(s, &list[k]);
    }
    return bad;
}

static int list_types(shapes *s)
{
    const char *text = s->options->shapes.types;
    for (const char *end = text; *end; text = end + (*end == ',')) {
        char name[32] = "";
        end = text + strcspn(text, ",");
        if ((size_t)(end - text) < sizeof name) memcpy(name, text, (size_t)(end - text));
        const ae_type_info *type = ae_type_by_name(name);
        if (!type || type->dot == AE_DOT_NONE)
            return app_error(APP_USAGE, "--types takes a list of tensor types of weights, such as q4_0,q4_k,q8_0; found '%s'",
                             s->options->shapes.types);
        if (s->n_types == MAX_TYPES) return app_error(APP_USAGE, "--types takes at most %d types", MAX_TYPES);
        s->types[s->n_types++] = type;
    }
    return s->n_types ? APP_DONE : app_error(APP_USAGE, "--types takes a list of tensor types; found ''");
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static ae_weight_source source_of(const ae_type_info *type, const shape *one, uint32_t i)
{
    return (ae_weight_source){.type = type->type, .n_out = one->n_out[i], .n_in = one->n_in, .use = AE_WEIGHT_MATMUL};
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Returns the size of one copy in memory; *weights: the bytes of its weights. */
static size_t copy_bytes(const shapes *s, const ae_type_info *type, const shape *one, size_t *weights)
{
    size_t all = 0;
    *weights = 0;
    for (uint32_t i = 0; i < one->n_joined; i++) {
        const ae_weight_source source = source_of(type, one, i);
        const size_t bytes = s->backend->ops->weight_bytes(s->backend, &source);
        *weights += bytes;
        all += aligned(bytes);
    }
    return all;
}

static void free_copies(const shapes *s, copies *c, const shape *one)
{
    for (size_t i = 0; c->weights && i < c->n * one->n_joined; i++) {
        if (c->weights[i]) s->backend->ops->weight_free(s->backend, c->weights[i]);
    }
    free(c->weights);
    *c = (copies){0};
}

static int make_copies(const shapes *s, const ae_type_info *type, const shape *one, copies *c)
{
    aerie_error error = {0};
    unsigned char *at = s->memory;
    c->n = s->bytes / copy_bytes(s, type, one, &c->bytes);
    c->weights = calloc(c->n * one->n_joined, sizeof(ae_weight *));
    if (!c->weights) return app_error_memory("the weights");
    for (size_t i = 0; i < c->n * one->n_joined; i++) {
        const ae_weight_source source = source_of(type, one, (uint32_t)(i % one->n_joined));
        const aerie_status status = s->backend->ops->weight_create(s->backend, &source, at, &c->weights[i], &error);
        if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
        at += aligned(s->backend->ops->weight_bytes(s->backend, &source));
    }
    return APP_DONE;
}

/* Allocates and writes memory for the largest shape, and for as much as the bandwidth is read over. */
static int make_memory(shapes *s)
{
    s->bytes = app_reader_bytes(s->reader);
    for (size_t t = 0; t < s->n_types; t++) {
        for (size_t i = 0; i < s->n_shapes; i++) {
            size_t weights;
            const size_t bytes = s->list[i].n_in % s->types[t]->n_block ? 0 : copy_bytes(s, s->types[t], &s->list[i], &weights);
            if (bytes > s->bytes) s->bytes = bytes;
        }
    }
    const uint64_t available = ae_os_memory_available();
    char wanted[32], there[32];
    if (available && s->bytes > available)
        return app_error(APP_FAILED, "the largest shape takes %s and %s are free; leave it out with --n-in and --n-out",
                         app_bytes(wanted, s->bytes), app_bytes(there, available));
    const size_t n_x = (size_t)s->max_rows * s->max_in, n_y = (size_t)s->max_rows * s->max_out;
    s->memory = s->bytes ? ae_os_pages_alloc(s->bytes) : NULL;
    s->x = malloc(n_x * sizeof *s->x);
    s->y = calloc(n_y, sizeof *s->y);
    if (!s->memory || !s->x || !s->y) return app_error_memory("the weights");
    memset(s->memory, WEIGHT_BYTE, s->bytes);
    uint32_t state = 1;
    for (size_t i = 0; i < n_x; i++) {
        state = state * 1664525u + 1013904223u;
        s->x[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
    return APP_DONE;
}

static int open_all(shapes *s)
{
    const app_options *o = s->options;
    aerie_error error = {0};
    aerie_status status = ae_backend_open(&s->backend, o->model_params.backend, o->model_params.cpu_level, &error);
    if (status == AERIE_OK) status = ae_pool_create(&s->pool, o->n_threads, &error);
    const ae_stream_options options = {.n_threads = o->n_threads, .max_rows = s->max_rows, .max_in = s->max_in,
                                       .pool = s->pool};
    if (status == AERIE_OK) status = s->backend->ops->stream_create(s->backend, &options, &s->stream, &error);
    if (status != AERIE_OK) return app_report(APP_LOADING, status, &error);
    const int bad = app_reader_open(&s->reader, o->n_threads, 0);
    return bad ? bad : make_memory(s);
}

static void close_all(shapes *s)
{
    if (s->stream) s->backend->ops->stream_free(s->stream);
    app_reader_free(s->reader);
    ae_pool_free(s->pool);
    ae_backend_close(s->backend);
    if (s->memory) ae_os_pages_free(s->memory, s->bytes);
    free(s->x);
    free(s->y);
}

/* ---- Measuring --------------------------------------------------------------------------------------------- */

/* Returns the milliseconds of a product over n rows with each copy, divided by the number of copies. */
static double visit(const shapes *s, const shape *one, const copies *c, uint32_t n)
{
    ae_matmul args = {.n_rows = n, .input = AE_INPUT_PLAIN, .x = s->x, .x_stride = one->n_in, .n_weights = one->n_joined};
    const double start = app_now();
    for (size_t i = 0; i < c->n; i++) {
        float *y = s->y;
        for (uint32_t k = 0; k < one->n_joined; k++) {
            args.out[k].weight = c->weights[i * one->n_joined + k];
            args.out[k].y = y;
            args.out[k].y_stride = s->max_out;
            y += one->n_out[k];
        }
        s->backend->ops->matmul(s->stream, &args);
    }
    return 1e3 * (app_now() - start) / (double)c->n;
}

static int measure(const shapes *s, const shape *one, const copies *c, figures *f)
{
    const app_numbers *rows = &s->options->shapes.n_rows;
    aerie_error error = {0};
    for (uint32_t round = 0; round <= s->options->bench.n_repetitions; round++) {
        for (size_t i = 0; i < rows->n; i++) {
            const double reading = app_reader_read(s->reader), ms = visit(s, one, c, rows->items[i]);
            if (app_interrupted()) return APP_INTERRUPTED;
            if (!round) continue; /* the first round warms up */
            if (!app_samples_add(&f->readings, reading) || !app_samples_add(&f->ms[i], ms))
                return app_error_memory("the figures");
        }
    }
    const aerie_status status = s->backend->ops->sync(s->stream, &error);
    return status == AERIE_OK ? APP_DONE : app_report(APP_WORKING, status, &error);
}

/* ---- Output ------------------------------------------------------------------------------------------------ */

static void outs(char text[64], const shape *one)
{
    size_t n = 0;
    for (uint32_t i = 0; i < one->n_joined; i++)
        n += (size_t)snprintf(text + n, 64 - n, "%s%u", i ? "+" : "", (unsigned)one->n_out[i]);
}

static void print_head(const shapes *s)
{
    const app_numbers *rows = &s->options->shapes.n_rows;
    if (s->options->json) return;
    if (s->options->csv) {
        app_print("type,level,threads,model,product,n_in,n_out,bytes,n,ms,best_ms,weights_gbs,bandwidth_gbs,of_bandwidth\n");
        return;
    }
    app_print("kernels %s, %u threads\n%-14s %-14s %-8s %7s %-18s %10s %8s %8s %6s", ae_backend_cpu_level(s->backend),
              (unsigned)s->options->n_threads, "model", "product", "type", "n_in", "n_out", "bytes", "T ms", "GB/s", "share");
    for (size_t i = 1; i < rows->n; i++) app_print("  T(%u)", (unsigned)rows->items[i]);
    app_print("\n");
}

static void print_shape(shapes *s, const ae_type_info *type, const shape *one, const copies *c, const figures *f)
{
    const app_numbers *rows = &s->options->shapes.n_rows;
    const double bandwidth = app_samples_summary(&f->readings).median;
    char text[64], bytes[32];
    outs(text, one);
    for (size_t i = 0; i < rows->n; i++) {
        const app_summary ms = app_samples_summary(&f->ms[i]);
        const double rate = app_rate(1e3 * (double)c->bytes, ms.median), share = app_rate(rate, bandwidth);
        if (s->options->json) {
            app_json_append(s->json, json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "type",
                                               type->name, "model", one->model, "product", one->product, "n_in",
                                               (json_int_t)one->n_in, "n_out", text, "bytes", (json_int_t)c->bytes, "n",
                                               (json_int_t)rows->items[i], "ms", ms.median, "best_ms", ms.min, "weights_gbs",
                                               rate / 1e9, "bandwidth_gbs", bandwidth / 1e9, "of_bandwidth", share));
        } else if (s->options->csv) {
            app_print("%s,%s,%u,%s,%s,%u,%s,%zu,%u,%.6f,%.6f,%.3f,%.3f,%.4f\n", type->name, ae_backend_cpu_level(s->backend),
                      (unsigned)s->options->n_threads, one->model, one->product, (unsigned)one->n_in, text, c->bytes,
                      (unsigned)rows->items[i], ms.median, ms.min, rate / 1e9, bandwidth / 1e9, share);
        } else if (i == 0) {
            app_print("%-14s %-14s %-8s %7u %-18s %10s %8.4f %8.1f %6.2f", one->model, one->product, type->name,
                      (unsigned)one->n_in, text, app_bytes(bytes, c->bytes), ms.median, rate / 1e9, share);
        } else {
            app_print(" %5.2f", app_rate(ms.median, app_samples_summary(&f->ms[0]).median));
        }
    }
    if (!s->options->json && !s->options->csv) app_print("\n");
    app_flush();
}

static int one_shape(shapes *s, const ae_type_info *type, const shape *one)
{
    if (one->n_in % type->n_block) {
        s->n_skipped++;
        return APP_DONE;
    }
    copies c = {0};
    figures f = {0};
    int bad = make_copies(s, type, one, &c);
    if (!bad) bad = measure(s, one, &c, &f);
    if (!bad) print_shape(s, type, one, &c, &f);
    for (size_t i = 0; i < s->options->shapes.n_rows.n; i++) app_samples_free(&f.ms[i]);
    app_samples_free(&f.readings);
    free_copies(s, &c, one);
    return bad;
}

static int all_shapes(shapes *s)
{
    int bad = APP_DONE;
    print_head(s);
    for (size_t t = 0; t < s->n_types; t++) {
        for (size_t i = 0; !bad && i < s->n_shapes; i++) bad = one_shape(s, s->types[t], &s->list[i]);
    }
    if (!bad && s->n_skipped && !s->options->quiet)
        app_note("shapes left out because their rows are not whole blocks of the type: %zu", s->n_skipped);
    if (!bad && s->options->json) {
        bad = app_print_json(json_pack("{s:s, s:I, s:O}", "level", ae_backend_cpu_level(s->backend), "threads",
                                       (json_int_t)s->options->n_threads, "shapes", s->json));
    }
    return bad;
}

int app_bench_shapes(const app_options *options)
{
    static shapes s; /* too large for a stack */
    s = (shapes){.options = options};
    for (size_t i = 0; i < options->shapes.n_rows.n; i++) {
        if (options->shapes.n_rows.items[i] > s.max_rows) s.max_rows = options->shapes.n_rows.items[i];
    }
    int bad = list_types(&s);
    if (!bad) bad = list_shapes(&s);
    if (!bad && options->json && !(s.json = json_array())) bad = app_error_memory("the figures");
    if (!bad) bad = open_all(&s);
    app_interrupt_arm();
    if (!bad) bad = all_shapes(&s);
    json_decref(s.json);
    close_all(&s);
    return bad;
}
