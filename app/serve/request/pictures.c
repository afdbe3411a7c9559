/* pictures.c - images in conversations: takes them from data: URLs and puts them into the prompt (request.h).
 * In a message's text a mark stands for an image. It consists of 128 random bits, drawn for the first image, so no client can
 * write one. Other URLs are refused, unless --image-url-hosts names their host (remote.h). The memory for fetching and decoding
 * is counted for the request before it is allocated. Owns the mark. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/request/apart.h"
#include "serve/request/remote.h"
#include "serve/request/request.h"

enum { FETCH_MILLISECONDS = 10000, FETCH_BYTES = 20 << 20 };

/* ---- The mark -------------------------------------------------------------------------------------------------- */

static char mark[48];
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw_mark(void)
{
    unsigned char bits[16] = {0};
    if (getrandom(bits, sizeof bits, 0) != sizeof bits) memset(bits, 0x5a, sizeof bits);
    char *at = mark + sprintf(mark, "\xEE\x80\x80"); /* characters for private use around it */
    for (size_t i = 0; i < sizeof bits; i++) at += sprintf(at, "%02x", bits[i]);
    sprintf(at, "\xEE\x80\x81");
}

const char *serve_pictures_mark(void)
{
    pthread_once(&drawn, draw_mark);
    return mark;
}

/* ---- Out of the request ---------------------------------------------------------------------------------------- */

bool serve_is_image(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && (strcmp(type, "image_url") == 0 || strcmp(type, "input_image") == 0);
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 with or without padding to out [n / 4 * 3 + 3]. Returns SIZE_MAX if the text is not base64. */
static size_t decode_base64(const char *text, size_t n, uint8_t *out)
{
    size_t n_out = 0;
    uint32_t bits = 0, n_bits = 0;
    while (n && text[n - 1] == '=') n--;
    if (n % 4 == 1) return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0) return SIZE_MAX;
        bits = (bits << 6 | (uint32_t)digit) & 0xFFFFFF;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[n_out++] = (uint8_t)(bits >> n_bits);
    }
    return n_out;
}

/* Reserves memory for a picture: as much as a large one takes, or what is left of the limit; returns 0 if that is too little
 * for a small one. */
static uint64_t reserve(serve_use *use)
{
    static const uint64_t sizes[] = {(uint64_t)900 << 20, 256 << 20, 64 << 20, 16 << 20, 4 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (serve_use_add(use, sizes[i])) return sizes[i];
    return 0;
}

typedef struct taking {
    const serve_ask *ask;
    size_t counted; /* bytes of the pixels that are being received */
} taking;

static bool is_wanted(void *user)
{
    const taking *t = user;
    return !serve_call_gone(t->ask->call);
}

static bool may_take(void *user, size_t bytes)
{
    taking *t = user;
    if (!serve_use_add(t->ask->use, bytes)) return false;
    t->counted += bytes;
    return true;
}

/* Whether images are decoded in processes of their own: those that may come from strangers, unless options say otherwise. */
static bool decodes_apart(const serve_server *server)
{
    const app_serve_options *o = server->o;
    if (o->image_process || o->no_image_process) return !o->no_image_process;
    return !server->loopback || o->image_url_hosts;
}

static bool add_image(serve_ask *ask, const uint8_t *data, size_t n, const char *where, serve_error *error)
{
    aerie_image_limits limits = aerie_image_limits_default();
    aerie_error why = {0};
    aerie_image *image = NULL;
    uint32_t w, h;
    aerie_image **grown = app_grow(ask->images.items, ask->images.n, &ask->images.capacity, sizeof *grown);
    if (!grown) return serve_fail_memory(error);
    ask->images.items = grown;
    limits.max_memory = reserve(ask->use);
    if (!limits.max_memory) return serve_fail_memory(error);
    taking t = {.ask = ask};
    const aerie_status status = decodes_apart(ask->model->server)
                                    ? apart_decode(&image, data, n, &limits, is_wanted, may_take, &t, &why)
                                    : aerie_image_read(&image, data, n, &limits, &why);
    serve_use_drop(ask->use, limits.max_memory + t.counted);
    if (status == AERIE_ERROR_MEMORY) return serve_fail_memory(error);
    if (status != AERIE_OK) return serve_fail(error, 400, "messages", "%s: %s", where, why.text);
    aerie_image_size(image, &w, &h);
    serve_use_force(ask->use, (size_t)w * h * 3);
    ask->images.items[ask->images.n++] = image;
    return true;
}

/* ---- By URL ---------------------------------------------------------------------------------------------------- */

typedef struct fetching {
    const serve_ask *ask;
    size_t counted; /* bytes */
} fetching;

static bool may_grow(void *user, size_t n)
{
    fetching *f = user;
    if (serve_call_gone(f->ask->call) || !serve_use_add(f->ask->use, n)) return false;
    f->counted += n;
    return true;
}

/* Fetches an image. Meanwhile other requests can work; only a limited number fetch at a time. */
static bool fetch_image(serve_ask *ask, const char *url, const char *where, serve_error *error)
{
    serve_server *server = ask->model->server;
    fetching f = {.ask = ask};
    const remote_settings settings = {.hosts = server->o->image_url_hosts, .plain = server->o->image_url_http,
                                      .max_bytes = FETCH_BYTES, .milliseconds = FETCH_MILLISECONDS, .may_grow = may_grow,
                                      .user = &f};
    char why[160];
    size_t n = 0;
    sem_post(ask->call->work);
    sem_wait(&server->fetch_work);
    uint8_t *data = remote_get(url, &settings, &n, why);
    sem_post(&server->fetch_work);
    sem_wait(ask->call->work);
    bool ok = data || serve_fail(error, 400, "messages", "%s: %s", where, why);
    if (!ok && atomic_load(&ask->use->refused)) serve_fail_memory(error);
    if (ok) ok = add_image(ask, data, n, where, error);
    free(data);
    serve_use_drop(ask->use, f.counted);
    return ok;
}

/* ---- Images of messages ---------------------------------------------------------------------------------------- */

static bool take_data(serve_ask *ask, const char *url, const char *where, serve_error *error)
{
    const char *comma = strchr(url, ',');
    if (!comma || comma - url < 12 || strncasecmp(comma - 7, ";base64", 7))
        return serve_fail(error, 400, "messages", "%s: the data: URL of an image must be \"data:image/TYPE;base64,...\"",
                          where);
    const size_t n_text = strlen(comma + 1), n_room = n_text / 4 * 3 + 3;
    if (!serve_use_add(ask->use, n_room)) return serve_fail_memory(error);
    uint8_t *data = malloc(n_room);
    const size_t n = data ? decode_base64(comma + 1, n_text, data) : 0;
    bool ok = data || serve_fail_memory(error);
    if (ok && n == SIZE_MAX) ok = serve_fail(error, 400, "messages", "%s: the image is not base64", where);
    if (ok) ok = add_image(ask, data, n, where, error);
    free(data);
    serve_use_drop(ask->use, n_room);
    return ok;
}

static bool take_image(serve_ask *ask, const json_t *given, const char *where, serve_error *error)
{
    if (json_is_object(given)) given = json_object_get(given, "url");
    const char *url = json_string_value(given);
    if (!ask->model->tower)
        return serve_fail(error, 400, "messages",
                          "%s: the model '%s' reads text only; an image_url needs an mmproj file (--mmproj)", where,
                          ask->model->name);
    const uint32_t most = ask->model->server->o->max_images;
    if (ask->images.n >= most)
        return serve_fail(error, 400, "messages", "%s: more than %u images (--max-images)", where, most);
    if (!url) return serve_fail(error, 400, "messages", "%s: an image needs 'image_url' with a 'url'", where);
    if (strncasecmp(url, "data:", 5) == 0) return take_data(ask, url, where, error);
    if (strlen(url) != json_string_length(given))
        return serve_fail(error, 400, "messages", "%s: the URL of an image has a byte 0", where);
    if (ask->model->server->o->image_url_hosts) return fetch_image(ask, url, where, error);
    return serve_fail(error, 400, "messages", "%s: this server does not fetch images; send a data: URL", where);
}

bool serve_pictures_take_one(serve_ask *ask, const json_t *image, const char *where, serve_error *error)
{
    if (take_image(ask, image, where, error)) return true;
    if (*error->param) snprintf(error->param, sizeof error->param, "%.*s", (int)strcspn(where, ".["), where);
    return false;
}

bool serve_pictures_unseen(const serve_ask *ask, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return !ask->model->tower && role && strcmp(role, "tool") == 0;
}

bool serve_pictures_take(serve_ask *ask, const json_t *messages, serve_error *error)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (serve_pictures_unseen(ask, json_array_get(messages, i))) continue;
        for (size_t k = 0; ok && k < json_array_size(content); k++) {
            char where[64];
            if (!serve_is_image(json_array_get(content, k))) continue;
            snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, k);
            ok = serve_pictures_take_one(ask, json_object_get(json_array_get(content, k), "image_url"), where, error);
        }
    }
    return ok;
}

void serve_pictures_free(serve_images *images)
{
    for (size_t i = 0; i < images->n; i++) aerie_image_free(images->items[i]);
    free(images->items);
    *images = (serve_images){0};
}

/* ---- Into the prompt ------------------------------------------------------------------------------------------- */

/* Returns whether the client still waits; called between the steps of an image. */
static bool still_wanted(void *user, uint64_t done, uint64_t total)
{
    const serve_ask *ask = user;
    (void)done, (void)total;
    return !serve_call_gone(ask->call);
}

/* Counts the memory for the rows of all images, of which the prompt and the session hold a copy each. */
static aerie_status count_rows(serve_ask *ask, aerie_error *why)
{
    size_t bytes = 0;
    for (size_t i = 0; i < ask->images.n; i++) {
        uint32_t w, h, n;
        aerie_image_size(ask->images.items[i], &w, &h);
        if (aerie_tower_n_rows(ask->model->tower, w, h, &n, NULL) != AERIE_OK) continue; /* which is told later */
        bytes += 2 * (size_t)n * ask->model->models.info.n_embd * sizeof(float);
    }
    if (serve_use_add(ask->use, bytes)) return AERIE_OK;
    why->status = AERIE_ERROR_MEMORY;
    snprintf(why->text, sizeof why->text,
             "there is not enough memory for requests (--max-request-memory) for these images");
    return why->status;
}

/* Lets the positions of ask->pictured be the prompt's tokens. */
static aerie_status take_tokens(serve_ask *ask, aerie_error *why)
{
    const size_t n = aerie_prompt_n_positions(ask->pictured);
    size_t n_chunks;
    const aerie_chunk *chunks = aerie_prompt_chunks(ask->pictured, &n_chunks);
    int32_t *tokens = calloc(n ? n : 1, sizeof *tokens);
    if (!tokens) {
        why->status = AERIE_ERROR_MEMORY;
        snprintf(why->text, sizeof why->text, "not enough memory for the prompt");
        return why->status;
    }
    const aerie_status marked = aerie_model_chunk_tokens(ask->model->models.model, chunks, n_chunks, tokens, why);
    if (marked != AERIE_OK) {
        free(tokens);
        return marked;
    }
    serve_use_force(ask->use, n * sizeof *tokens);
    aerie_free(ask->tokens);
    ask->tokens = tokens;
    ask->n_tokens = ask->tokens_capacity = n;
    return AERIE_OK;
}

aerie_status serve_pictures_encode(serve_ask *ask, const aerie_chat *chat, aerie_error *why)
{
    aerie_prompt_free(ask->pictured);
    ask->pictured = NULL;
    aerie_status status = count_rows(ask, why);
    if (status == AERIE_OK)
        status = aerie_tower_chat(ask->model->tower, chat, serve_pictures_mark(),
                                  (const aerie_image *const *)ask->images.items, ask->images.n, still_wanted, ask,
                                  &ask->pictured, why);
    return status == AERIE_OK ? take_tokens(ask, why) : status;
}

aerie_status serve_pictures_encode_text(serve_ask *ask, const char *text, size_t n, aerie_error *why)
{
    const aerie_status status = ask->pictured ? AERIE_OK : count_rows(ask, why); /* one prompt after another */
    aerie_prompt_free(ask->pictured);
    ask->pictured = NULL;
    if (status != AERIE_OK) return status;
    return aerie_tower_prompt(ask->model->tower, text, n, serve_pictures_mark(), (const aerie_image *const *)ask->images.items,
                              ask->images.n, still_wanted, ask, &ask->pictured, why);
}

size_t serve_pictures_n_chunks(const serve_ask *ask)
{
    size_t n;
    (void)aerie_prompt_chunks(ask->pictured, &n);
    return n + (ask->n_tokens > aerie_prompt_n_positions(ask->pictured));
}

void serve_pictures_chunks(const serve_ask *ask, aerie_chunk *chunks)
{
    size_t n;
    const aerie_chunk *own = aerie_prompt_chunks(ask->pictured, &n);
    const size_t n_own = aerie_prompt_n_positions(ask->pictured);
    for (size_t i = 0; i < n; i++) chunks[i] = own[i];
    if (ask->n_tokens > n_own) chunks[n] = (aerie_chunk){.tokens = ask->tokens + n_own, .n_tokens = ask->n_tokens - n_own};
}
