/* shares.c - which share of a model each process of a group gets if the user does not say: by the speed of a product of its
 * weights' type, measured at the start, and by its free memory.
 *
 * Any shares give the same bytes, so a bad measurement costs speed alone. Shares are small whole numbers: machines whose speeds
 * differ by less than a sixteenth get equal ones. Owns nothing.
 */
#include "session/group/shares.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"
#include "quant/types.h"

#define STEPS 8       /* share of the fastest machine */
#define N_OUT 4096u   /* rows of the product: its weights take 8 MiB or more, which hardly fit the caches between core and
                       * memory */
#define N_IN 4096u
#define SECONDS 0.05  /* for which it is repeated */

void ae_group_shares(const ae_group_speed *all, uint32_t n, uint64_t bytes, uint32_t *shares)
{
    double best = 0;
    uint64_t sum = 0;
    for (uint32_t r = 0; r < n; r++) best = all[r].rows > best ? all[r].rows : best;
    for (uint32_t r = 0; r < n; r++) {
        const double share = best > 0 ? STEPS * all[r].rows / best : STEPS;
        shares[r] = share < 1 ? 1 : (uint32_t)(share + 0.5);
        sum += shares[r];
    }
    /* a process with too little memory passes shares to the others; if none has enough, loading says so */
    for (uint32_t r = 0; r < n; r++) {
        const uint64_t room = all[r].memory - all[r].memory / 8;
        while (all[r].memory && shares[r] > 0 && (double)bytes * shares[r] / (double)sum > (double)room) shares[r]--, sum--;
        if (!sum) break;
    }
    for (uint32_t r = 0; r < n && !sum; r++) shares[r] = 1;
}

/* Returns the type that has the most bytes of the model. */
static uint32_t main_type(const ae_gguf *gguf)
{
    uint64_t most = 0;
    uint32_t type = 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        if (t->n_dims < 2 || t->bytes < most) continue;
        most = t->bytes, type = t->type;
    }
    return type;
}

double ae_group_reading(const ae_group_speed *all, uint32_t n, const ae_gguf *gguf, uint64_t bytes)
{
    double rows = 0;
    for (uint32_t r = 0; r < n; r++) rows += all[r].rows;
    return rows > 0 ? (double)bytes / (rows * (double)ae_type_row_bytes(main_type(gguf), N_IN)) : 0;
}

/* Repeats the product; returns rows of weights per second. */
static double repeat(ae_backend *b, ae_stream *stream, const ae_weight *weight, float *x, float *y)
{
    const ae_matmul m = {.n_rows = 1, .input = AE_INPUT_PLAIN, .x = x, .x_stride = N_IN, .n_weights = 1,
                         .out = {{weight, NULL, y, N_OUT, false}}};
    double best = 0;
    const double end = ae_time_now() + SECONDS;
    do {
        const double start = ae_time_now();
        b->ops->matmul(stream, &m);
        if (b->ops->sync(stream, NULL) != AERIE_OK) return 0;
        const double seconds = ae_time_now() - start;
        if (seconds > 0 && N_OUT / seconds > best) best = N_OUT / seconds;
    } while (ae_time_now() < end);
    return best;
}

void ae_group_measure(ae_backend *b, const ae_gguf *gguf, uint32_t n_threads, ae_group_speed *own)
{
    const ae_weight_source source = {.type = main_type(gguf), .n_out = N_OUT, .n_in = N_IN, .use = AE_WEIGHT_MATMUL};
    const size_t row = ae_type_row_bytes(source.type, N_IN), bytes = b->ops->weight_bytes(b, &source);
    const size_t x_bytes = (N_IN + N_OUT) * sizeof(float);
    void *memory = bytes ? b->ops->alloc(b, bytes) : NULL, *rows = ae_alloc(AE_WEIGHT_ROWS, row);
    float *x = b->ops->alloc(b, x_bytes);
    ae_weight *weight = NULL;
    ae_stream *stream = NULL;
    ae_pool *pool = NULL;
    *own = (ae_group_speed){.memory = ae_os_memory_available(), .takes_blocks = b->ops->takes_blocks};
    bool ok = memory && rows && x && ae_pool_create(&pool, n_threads, NULL) == AERIE_OK;
    const ae_stream_options options = {.n_threads = n_threads, .max_rows = 1, .max_in = N_IN, .pool = pool};
    ok = ok && b->ops->weight_create(b, &source, memory, &weight, NULL) == AERIE_OK;
    for (uint32_t i = 0; ok && i < N_OUT; i += AE_WEIGHT_ROWS)
        ok = b->ops->weight_fill(b, weight, rows, i, AE_WEIGHT_ROWS, NULL) == AERIE_OK;
    ok = ok && b->ops->stream_create(b, &options, &stream, NULL) == AERIE_OK;
    if (ok) own->rows = repeat(b, stream, weight, x, x + N_IN);
    if (stream) b->ops->stream_free(stream);
    if (weight) b->ops->weight_free(b, weight);
    if (memory) b->ops->free(b, memory, bytes);
    if (x) b->ops->free(b, x, x_bytes);
    ae_pool_free(pool);
    ae_free(rows);
}
