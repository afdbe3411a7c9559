/* pictures.c - aerie_extra.h: pictures, towers, and prompts with pictures.
 *
 * Owns: aerie_image, aerie_tower and aerie_prompt. A tower caches the rows of pictures that it has read, by the SHA-256 of
 * their pixels, and drops the least recently used. Threads: reading a picture holds the tower's lock, so pictures are read one
 * after the other. engine/tower/ computes the rows.
 */
#include <pthread.h>
#include <string.h>

#include "aerie_extra.h"
#include "api/chat_int.h"
#include "base/os.h"
#include "base/sha256.h"
#include "engine/tower.h"
#include "session/session_int.h"

struct aerie_image {
    ae_image image;
};

/* Cached rows of a picture; in a list, the most recently used first. */
typedef struct kept {
    struct kept *next;
    char digest[65];
    ae_tower_plan plan;
    size_t bytes;
    float rows[];
} kept;

struct aerie_tower {
    const aerie_model *model;
    ae_tower *tower;
    ae_pool *own_pool;
    pthread_mutex_t lock;
    kept *newest;
    size_t kept_bytes, most_bytes;
};

struct aerie_prompt {
    ae_arena arena; /* tokens and rows */
    ae_buf chunks;  /* aerie_chunk */
    size_t n_positions;
};

aerie_status aerie_model_chunk_tokens(const aerie_model *model, const aerie_chunk *chunks, size_t n_chunks, int32_t *tokens,
                                      aerie_error *error)
{
    AE_NEED(model, error);
    AE_NEED_IF(n_chunks, chunks, error);
    AE_NEED_IF(n_chunks, tokens, error);
    AE_TRY(ae_session_check_decoder(model->model, error));
    return ae_media_marks(chunks, n_chunks, &model->model->hparams, tokens, error);
}

/* ---- Pictures -------------------------------------------------------------------------------------------------- */

const char *aerie_image_formats(void)
{
    return ae_image_formats();
}

static ae_image_limits limits_of(const aerie_image_limits *l)
{
    return (ae_image_limits){l->max_bytes, l->max_pixels, l->max_side, l->max_ratio, l->max_memory};
}

aerie_status aerie_image_read(aerie_image **image, const void *data, size_t n, const aerie_image_limits *limits,
                              aerie_error *error)
{
    AE_NEED(image, error);
    *image = NULL;
    AE_NEED_IF(n, data, error);
    AE_STRUCT_TAKE(image_limits, own, limits, error);
    const ae_image_limits l = limits_of(&own);
    aerie_image *it = ae_alloc(1, sizeof *it);
    if (!it) return ae_fail_memory(error, "a picture", sizeof *it);
    const aerie_status status = ae_image_decode(&it->image, data, n, &l, error);
    if (status == AERIE_OK) *image = it;
    else ae_free(it);
    return status;
}

aerie_status aerie_image_copy(aerie_image **image, uint32_t width, uint32_t height, const uint8_t *rgb, aerie_error *error)
{
    AE_NEED(image, error);
    *image = NULL;
    AE_NEED(rgb, error);
    const ae_image_limits l = ae_image_limits_default();
    aerie_image *it = ae_alloc(1, sizeof *it);
    if (!it) return ae_fail_memory(error, "a picture", sizeof *it);
    const aerie_status status = ae_image_from_rgb(&it->image, width, height, rgb, &l, error);
    if (status == AERIE_OK) *image = it;
    else ae_free(it);
    return status;
}

void aerie_image_size(const aerie_image *image, uint32_t *width, uint32_t *height)
{
    if (width) *width = image ? image->image.width : 0;
    if (height) *height = image ? image->image.height : 0;
}

void aerie_image_free(aerie_image *image)
{
    if (!image) return;
    ae_image_free(&image->image);
    ae_free(image);
}

/* ---- Towers ---------------------------------------------------------------------------------------------------- */

static aerie_status load(aerie_tower *t, const char *path, const aerie_tower_params *p, aerie_error *error)
{
    const uint32_t n_threads = p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores();
    const uint32_t n_embd = t->model->model->hparams.n_embd;
    ae_tower_model *file;
    AE_TRY(ae_tower_model_load(&file, path, p->no_mmap, error));
    if (file->n_out != n_embd || file->n_deep != t->model->model->hparams.n_deepstack) {
        const uint32_t n_out = file->n_out, n_deep = file->n_deep;
        ae_tower_model_free(file);
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "%s: this mmproj belongs to another model: its rows have %u numbers and join %u layers, the "
                       "model's %u and %u", path, n_out, n_deep, n_embd, t->model->model->hparams.n_deepstack);
    }
    if (!p->pool) {
        const aerie_status status = ae_pool_create(&t->own_pool, n_threads, error);
        if (status != AERIE_OK) {
            ae_tower_model_free(file);
            return status;
        }
    }
    const ae_load_options how = {.n_threads = n_threads};
    const aerie_status limited = ae_tower_model_limit(file, p->min_tokens, p->max_tokens, error);
    if (limited != AERIE_OK) {
        ae_tower_model_free(file);
        return limited;
    }
    return ae_tower_create(&t->tower, file, t->model->backend, &how, p->pool ? p->pool->threads : t->own_pool, error);
}

aerie_status aerie_tower_load(aerie_tower **tower, const aerie_model *model, const char *path, const aerie_tower_params *params,
                              aerie_error *error)
{
    AE_NEED(tower, error);
    *tower = NULL;
    AE_NEED(model, error);
    AE_NEED(path, error);
    AE_STRUCT_TAKE(tower_params, own, params, error);
    if (!model->net) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a tower needs a model loaded with its weights");
    if (model->model->hparams.encoder)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "an encoder of texts cannot read pictures");
    aerie_tower *t = ae_alloc(1, sizeof *t);
    if (!t) return ae_fail_memory(error, "a tower", sizeof *t);
    t->model = model;
    t->most_bytes = own.cache_bytes;
    if (pthread_mutex_init(&t->lock, NULL)) {
        ae_free(t);
        return ae_fail_memory(error, "a lock", sizeof t->lock);
    }
    const aerie_status status = load(t, path, &own, error);
    if (status == AERIE_OK) *tower = t;
    else aerie_tower_free(t);
    return status;
}

void aerie_tower_free(aerie_tower *tower)
{
    if (!tower) return;
    for (kept *k; (k = tower->newest);) {
        tower->newest = k->next;
        ae_free(k);
    }
    ae_tower_free(tower->tower);
    ae_pool_free(tower->own_pool);
    pthread_mutex_destroy(&tower->lock);
    ae_free(tower);
}

const char *aerie_tower_type(const aerie_tower *tower)
{
    return tower ? ae_tower_model_of(tower->tower)->type->name : NULL;
}

aerie_status aerie_tower_n_rows(const aerie_tower *tower, uint32_t width, uint32_t height, uint32_t *n_rows, aerie_error *error)
{
    ae_tower_plan plan;
    AE_NEED(n_rows, error);
    *n_rows = 0;
    AE_NEED(tower, error);
    AE_TRY(ae_tower_plan_make(ae_tower_model_of(tower->tower), width, height, &plan, error));
    *n_rows = ae_tower_plan_rows(ae_tower_model_of(tower->tower), &plan);
    return AERIE_OK;
}

static aerie_status plan_tower(ae_tower_model *m, ae_backend *backend, const aerie_model_params *mp,
                               const aerie_tower_params *p, uint32_t width, uint32_t height, aerie_memory_plan *plan,
                               aerie_error *error)
{
    ae_tower_plan views;
    ae_load_options how = ae_session_net_options(mp);
    size_t weights, room;
    how.n_threads = p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores();
    how.in_place = false; /* as a tower is loaded */
    AE_TRY(ae_tower_model_limit(m, p->min_tokens, p->max_tokens, error));
    AE_TRY(ae_tower_plan_make(m, width ? width : 1024, height ? height : 1024, &views, error));
    AE_TRY(ae_tower_plan_bytes(m, backend, &how, &views, &weights, &room, error));
    plan->weight_bytes = weights;
    plan->session_bytes = room + (uint64_t)ae_tower_plan_rows(m, &views) * (1 + m->n_deep) * m->n_out * sizeof(float);
    return AERIE_OK;
}

aerie_status aerie_memory_plan_tower(const char *path, const aerie_model_params *model_params,
                                     const aerie_tower_params *tower_params, uint32_t width, uint32_t height,
                                     aerie_memory_plan *theirs, size_t plan_size, aerie_error *error)
{
    AE_NEED(path, error);
    AE_NEED(theirs, error);
    aerie_memory_plan own = {.available_bytes = ae_os_memory_available()}, *plan = &own;
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    AE_STRUCT_TAKE(model_params, mp, model_params, error);
    AE_STRUCT_TAKE(tower_params, tp, tower_params, error);
    ae_session_devices devices;
    ae_tower_model *m;
    AE_TRY(ae_session_open_devices(&devices, &mp, error));
    aerie_status status = ae_tower_model_load(&m, path, true, error);
    if (status == AERIE_OK) {
        plan->available_bytes = ae_session_available(devices.list[0]);
        status = plan_tower(m, devices.list[0], &mp, &tp, width, height, plan, error);
        ae_tower_model_free(m);
    }
    ae_struct_give(theirs, plan_size, plan, sizeof *plan);
    ae_session_close_devices(&devices);
    return status;
}

/* ---- Rows that are kept ---------------------------------------------------------------------------------------- */

static void digest_of(const ae_image *image, char out[65])
{
    const uint32_t sides[] = {image->width, image->height};
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, sides, sizeof sides);
    ae_sha256_add(&hash, image->rgb, (size_t)image->width * image->height * 3);
    ae_sha256_end(&hash, out);
}

static kept *find_kept(aerie_tower *t, const char *digest)
{
    for (kept **at = &t->newest, *k; (k = *at); at = &k->next) {
        if (memcmp(k->digest, digest, sizeof k->digest)) continue;
        *at = k->next;
        k->next = t->newest;
        return t->newest = k;
    }
    return NULL;
}

/* Drops the least recently used rows until the rest fits; the newest stays. */
static void drop_old(aerie_tower *t)
{
    while (t->kept_bytes > t->most_bytes && t->newest->next) {
        kept **at = &t->newest;
        while ((*at)->next) at = &(*at)->next;
        t->kept_bytes -= (*at)->bytes;
        ae_free(*at);
        *at = NULL;
    }
}

/* Computes the rows of the picture, or finds them; lent while the lock is held. */
static aerie_status read_rows(aerie_tower *t, const ae_image *image, aerie_progress *progress, void *user, const kept **out,
                              aerie_error *error)
{
    ae_tower_plan plan;
    char digest[65];
    digest_of(image, digest);
    kept *k = find_kept(t, digest);
    *out = k;
    if (k) return AERIE_OK;
    const ae_tower_model *m = ae_tower_model_of(t->tower);
    AE_TRY(ae_tower_plan_make(m, image->width, image->height, &plan, error));
    const size_t bytes = (size_t)ae_tower_plan_rows(m, &plan) * (1 + m->n_deep) * m->n_out * sizeof(float);
    k = ae_alloc(1, sizeof *k + bytes);
    if (!k) return ae_fail_memory(error, "the rows of a picture", bytes);
    memcpy(k->digest, digest, sizeof digest);
    k->plan = plan;
    k->bytes = bytes;
    const aerie_status status = ae_tower_run(t->tower, image, &plan, k->rows, progress, user, error);
    if (status != AERIE_OK) {
        ae_free(k);
        return status;
    }
    k->next = t->newest;
    t->newest = k;
    t->kept_bytes += bytes;
    drop_old(t);
    *out = k;
    return AERIE_OK;
}

/* ---- Prompts --------------------------------------------------------------------------------------------------- */

/* A prompt while it is made. */
typedef struct making {
    aerie_tower *tower;
    aerie_prompt *prompt;
    ae_buf text, plain; /* text that is not tokenized yet, and the stretches (ae_span) in which control tokens are plain text */
    bool begun;
    aerie_progress *progress;
    void *user;
} making;

static aerie_status add_chunk(making *m, const aerie_chunk *chunk, aerie_error *error)
{
    ae_buf_add(&m->prompt->chunks, chunk, sizeof *chunk);
    m->prompt->n_positions += chunk->n_tokens + chunk->n_rows;
    return m->prompt->chunks.failed ? ae_fail_memory(error, "a prompt", sizeof *chunk) : AERIE_OK;
}

/* Tokenizes the text so far. */
static aerie_status end_text(making *m, aerie_error *error)
{
    const ae_vocab *vocab = m->tower->model->vocab;
    const ae_encode_options options = {.add_special = !m->begun, .parse_special = true, .inside = m->begun,
                                       .plain = (const ae_span *)(const void *)m->plain.data,
                                       .n_plain = m->plain.n / sizeof(ae_span)};
    int32_t *tokens;
    size_t n, first = 0;
    if (m->text.failed || m->plain.failed) return ae_fail_memory(error, "a prompt", m->text.n);
    AE_TRY(ae_session_tokenize(m->tower->model, m->text.data ? m->text.data : "", m->text.n, options, &tokens, &n, error));
    if (!m->begun && ae_vocab_adds_bos(vocab) && n > 1 && tokens[0] == ae_vocab_bos(vocab) && tokens[1] == tokens[0]) first = 1;
    m->begun = true;
    ae_buf_clear(&m->text);
    ae_buf_clear(&m->plain);
    int32_t *own = ae_arena_alloc(&m->prompt->arena, n - first, sizeof *own);
    if (own && n > first) memcpy(own, tokens + first, (n - first) * sizeof *own);
    aerie_free(tokens);
    if (!own) return ae_fail_memory(error, "a prompt", n * sizeof *own);
    return n > first ? add_chunk(m, &(aerie_chunk){.tokens = own, .n_tokens = n - first}, error) : AERIE_OK;
}

/* Adds text [begin, end) of a rendered text whose `values` come from data. */
static void add_text(making *m, const char *text, size_t begin, size_t end, const ae_span *values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++) {
        const size_t from = values[i].begin > begin ? values[i].begin : begin, to = values[i].end < end ? values[i].end : end;
        if (from >= to) continue;
        const ae_span span = {m->text.n + from - begin, m->text.n + to - begin};
        ae_buf_add(&m->plain, &span, sizeof span);
    }
    ae_buf_add(&m->text, text + begin, end - begin);
}

/* Returns whether the rows of a picture see each other in the text model. The two smallest models of Gemma 4 read them one
 * after the other; no key says so, but their widths do. */
static bool are_grouped(const making *m, const ae_tower_model *tower)
{
    const ae_hparams *h = &m->tower->model->model->hparams;
    return tower->type->group && !(h->group_windows && (h->n_embd == 1536 || h->n_embd == 2560));
}

static aerie_status add_picture(making *m, const aerie_image *image, aerie_error *error)
{
    const ae_tower_model *model = ae_tower_model_of(m->tower->tower);
    const kept *k;
    aerie_status status;
    pthread_mutex_lock(&m->tower->lock);
    status = read_rows(m->tower, &image->image, m->progress, m->user, &k, error);
    float *rows = status == AERIE_OK ? ae_arena_alloc(&m->prompt->arena, 1, k->bytes) : NULL;
    ae_tower_plan plan = {0};
    if (status == AERIE_OK) plan = k->plan;
    if (rows) memcpy(rows, k->rows, k->bytes);
    pthread_mutex_unlock(&m->tower->lock);
    if (status != AERIE_OK) return status;
    if (!rows) return ae_fail_memory(error, "the rows of a picture", 0);
    for (uint32_t i = 0; i < plan.n_views; i++) {
        ae_tower_text(model, &plan, i, &m->text);
        const uint32_t n = ae_tower_view_rows(model, &plan, i), unit = model->patch * model->merge;
        if (!n) continue; /* its rows are among those of another view */
        if (m->text.n || !m->begun) AE_TRY(end_text(m, error));
        AE_TRY(add_chunk(m, &(aerie_chunk){.rows = rows, .n_rows = n, .group = are_grouped(m, model),
                                           .n_across = model->type->grid ? plan.view_width / unit : 0}, error));
        rows += (size_t)n * (1 + model->n_deep) * model->n_out;
    }
    ae_tower_text(model, &plan, plan.n_views, &m->text);
    return AERIE_OK;
}

static bool in_values(const ae_span *values, size_t n_values, size_t at)
{
    for (size_t i = 0; i < n_values; i++)
        if (at >= values[i].begin && at < values[i].end) return true;
    return false;
}

/* Returns the next mark from `at` on that a template or caller has written; n: there is none. */
static size_t find_mark(const char *text, size_t n, const char *mark, size_t at, const ae_span *values, size_t n_values)
{
    const size_t n_mark = strlen(mark);
    for (; at + n_mark <= n; at++)
        if (text[at] == mark[0] && !memcmp(text + at, mark, n_mark) && !in_values(values, n_values, at)) return at;
    return n;
}

/* anywhere: marks in values count too. */
static aerie_status fill(making *m, const char *text, size_t n, const char *mark, bool anywhere, const ae_span *values,
                         size_t n_values, const aerie_image *const *images, size_t n_images, aerie_error *error)
{
    size_t at = 0;
    for (size_t i = 0; i < n_images; i++) {
        const size_t found = mark ? find_mark(text, n, mark, at, values, anywhere ? 0 : n_values) : 0;
        add_text(m, text, at, found, values, n_values);
        AE_TRY(add_picture(m, images[i], error));
        at = found + (mark ? strlen(mark) : 0);
    }
    add_text(m, text, at, n, values, n_values);
    return m->text.n || !m->begun ? end_text(m, error) : AERIE_OK;
}

/* mark NULL: the pictures come first. */
static aerie_status make(aerie_tower *tower, const char *text, size_t n, const char *mark, bool anywhere, const ae_buf *values,
                         const aerie_image *const *images, size_t n_images, aerie_progress *progress, void *user,
                         aerie_prompt **prompt, aerie_error *error)
{
    making m = {.tower = tower, .progress = progress, .user = user, .prompt = ae_alloc(1, sizeof *m.prompt)};
    if (!m.prompt) return ae_fail_memory(error, "a prompt", sizeof *m.prompt);
    ae_arena_init(&m.prompt->arena, 4096);
    const ae_span *spans = values ? (const ae_span *)(const void *)values->data : NULL;
    const aerie_status status = fill(&m, text, n, mark, anywhere, spans, values ? values->n / sizeof *spans : 0, images,
                                     n_images, error);
    ae_buf_free(&m.text);
    ae_buf_free(&m.plain);
    if (status == AERIE_OK) *prompt = m.prompt;
    else aerie_prompt_free(m.prompt);
    return status;
}

static size_t count_marks(const char *text, size_t n, const char *mark, const ae_buf *values)
{
    const ae_span *spans = values ? (const ae_span *)(const void *)values->data : NULL;
    const size_t n_spans = values ? values->n / sizeof *spans : 0;
    size_t count = 0;
    for (size_t at = 0; (at = find_mark(text, n, mark, at, spans, n_spans)) < n; at += strlen(mark)) count++;
    return count;
}

static aerie_status check_images(const aerie_image *const *images, size_t n_images, aerie_error *error)
{
    AE_NEED_IF(n_images, images, error);
    for (size_t i = 0; i < n_images; i++)
        if (!images[i]) return ae_fail(error, AERIE_ERROR_ARGUMENT, "image %zu of %zu is NULL", i, n_images);
    return AERIE_OK;
}

aerie_status aerie_tower_prompt(aerie_tower *tower, const char *text, size_t n, const char *given,
                                const aerie_image *const *images, size_t n_images, aerie_progress *progress, void *user,
                                aerie_prompt **prompt, aerie_error *error)
{
    const char *mark = given && *given ? given : "<__media__>";
    AE_NEED(prompt, error);
    *prompt = NULL;
    AE_NEED(tower, error);
    AE_NEED_IF(n, text, error);
    AE_TRY(check_images(images, n_images, error));
    const size_t n_marks = count_marks(text, n, mark, NULL);
    if (n_marks && n_marks != n_images)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the prompt has %zu marks for %zu images", n_marks, n_images);
    return make(tower, n ? text : "", n, n_marks ? mark : NULL, true, NULL, images, n_images, progress, user, prompt, error);
}

aerie_status aerie_tower_chat(aerie_tower *tower, const aerie_chat *chat, const char *given,
                              const aerie_image *const *images, size_t n_images, aerie_progress *progress,
                              void *user, aerie_prompt **prompt, aerie_error *error)
{
    AE_NEED(prompt, error);
    *prompt = NULL;
    AE_NEED(tower, error);
    AE_NEED(chat, error);
    AE_TRY(check_images(images, n_images, error));
    AE_STRUCT_TAKE(chat, own, chat, error);
    const char *const *placeholders = ae_tower_model_of(tower->tower)->type->placeholder;
    const char *mark = given && *given ? given : placeholders[0];
    ae_buf values = {0};
    char *text;
    size_t n;
    aerie_status status = ae_api_render_chat(tower->model, &own, &values, &text, &n, error);
    if (status == AERIE_OK) {
        const ae_buf *plain = own.special_in_messages ? NULL : &values;
        size_t n_marks = count_marks(text, n, mark, given ? NULL : plain);
        if (!n_marks && !given && placeholders[1]) mark = placeholders[1], n_marks = count_marks(text, n, mark, plain);
        if (n_marks != n_images)
            status = ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                             "the chat template writes %s %zu times for %zu images; another template "
                             "(--chat-template) may show them", given ? "the mark" : mark, n_marks, n_images);
        else
            status = make(tower, text, n, mark, given != NULL, plain, images, n_images, progress, user,
                          prompt,
                          error);
    }
    aerie_free(text);
    ae_buf_free(&values);
    return status;
}

const aerie_chunk *aerie_prompt_chunks(const aerie_prompt *prompt, size_t *n)
{
    if (n) *n = prompt ? prompt->chunks.n / sizeof(aerie_chunk) : 0;
    return prompt ? (const aerie_chunk *)(const void *)prompt->chunks.data : NULL;
}

size_t aerie_prompt_n_positions(const aerie_prompt *prompt)
{
    return prompt ? prompt->n_positions : 0;
}

void aerie_prompt_free(aerie_prompt *prompt)
{
    if (!prompt) return;
    ae_buf_free(&prompt->chunks);
    ae_arena_free(&prompt->arena);
    ae_free(prompt);
}
