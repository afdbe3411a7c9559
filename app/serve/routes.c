/* routes.c - the table of paths of aerie serve, and how a service finds a path. */
#include <string.h>

#include "serve/dialects/handlers.h"

const serve_route serve_routes[] = {
    {"GET", "/", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/page.css", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/page.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/markdown.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/charts.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/origins.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/errors.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/context.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/pictures.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/panel.js", serve_get_page, SERVE_FOR_ALL},
    {"GET", "/health", serve_get_health, SERVE_FOR_ALL},
    {"GET", "/v1/health", serve_get_health, SERVE_FOR_ALL},
    {"GET", "/models", serve_get_models, SERVE_FOR_KEYS},
    {"GET", "/v1/models", serve_get_models, SERVE_FOR_KEYS},
    {"GET", "/v1/models/*", serve_get_model, SERVE_FOR_KEYS},
    {"POST", "/models/unload", serve_post_unload, SERVE_FOR_KEYS},
    {"POST", "/models/load", serve_post_load, SERVE_FOR_KEYS},
    {"GET", "/props", serve_get_props, SERVE_FOR_KEYS},
    {"GET", "/aerie/curve", serve_get_curve, SERVE_FOR_KEYS},
    {"GET", "/slots", serve_get_slots, SERVE_FOR_BOTH},
    {"POST", "/slots/*", serve_post_slot, SERVE_FOR_KEYS},
    {"GET", "/lora-adapters", serve_get_lora, SERVE_FOR_KEYS},
    {"POST", "/lora-adapters", serve_post_lora, SERVE_FOR_KEYS},
    {"GET", "/metrics", serve_get_metrics, SERVE_FOR_WATCHERS},
    {"POST", "/tokenize", serve_post_tokenize, SERVE_FOR_KEYS},
    {"POST", "/detokenize", serve_post_detokenize, SERVE_FOR_KEYS},
    {"POST", "/apply-template", serve_post_template, SERVE_FOR_KEYS},
    {"POST", "/v1/completions", serve_post_completion, SERVE_FOR_KEYS},
    {"POST", "/v1/chat/completions", serve_post_chat, SERVE_FOR_KEYS},
    {"POST", "/chat/completions", serve_post_chat, SERVE_FOR_KEYS},
    {"POST", "/v1/chat/completions/input_tokens", serve_post_chat_count, SERVE_FOR_KEYS},
    {"POST", "/chat/completions/input_tokens", serve_post_chat_count, SERVE_FOR_KEYS},
    {"POST", "/completions", serve_post_native, SERVE_FOR_KEYS},
    {"POST", "/completion", serve_post_native, SERVE_FOR_KEYS},
    {"POST", "/infill", serve_post_infill, SERVE_FOR_KEYS},
    {"POST", "/v1/responses", serve_post_responses, SERVE_FOR_KEYS},
    {"POST", "/v1/responses/input_tokens", serve_post_input_tokens, SERVE_FOR_KEYS},
    {"POST", "/responses", serve_post_responses, SERVE_FOR_KEYS},
    {"POST", "/responses/input_tokens", serve_post_input_tokens, SERVE_FOR_KEYS},
    {"POST", "/v1/messages", serve_post_messages, SERVE_FOR_KEYS},
    {"POST", "/v1/messages/count_tokens", serve_post_count, SERVE_FOR_KEYS},
    {"POST", "/api/chat", serve_post_ollama_chat, SERVE_FOR_KEYS},
    {"POST", "/api/generate", serve_post_ollama_generate, SERVE_FOR_KEYS},
    {"GET", "/api/tags", serve_get_tags, SERVE_FOR_KEYS},
    {"GET", "/api/ps", serve_get_running, SERVE_FOR_KEYS},
    {"POST", "/api/show", serve_post_show, SERVE_FOR_KEYS},
    {"POST", "/api/pull", serve_ollama_store, SERVE_FOR_KEYS},
    {"POST", "/api/push", serve_ollama_store, SERVE_FOR_KEYS},
    {"POST", "/api/create", serve_ollama_store, SERVE_FOR_KEYS},
    {"POST", "/api/copy", serve_ollama_store, SERVE_FOR_KEYS},
    {"DELETE", "/api/delete", serve_ollama_store, SERVE_FOR_KEYS},
    {"POST", "/api/blobs/*", serve_ollama_store, SERVE_FOR_KEYS},
    {"GET", "/api/version", serve_get_version, SERVE_FOR_KEYS},
    {"POST", "/api/embed", serve_post_ollama_embed, SERVE_FOR_KEYS},
    {"POST", "/api/embeddings", serve_post_ollama_embeddings, SERVE_FOR_KEYS},
    {"POST", "/embedding", serve_post_embedding, SERVE_FOR_KEYS},
    {"POST", "/embeddings", serve_post_embeddings, SERVE_FOR_KEYS},
    {"POST", "/v1/embeddings", serve_post_embeddings, SERVE_FOR_KEYS},
    {"POST", "/rerank", serve_post_rerank, SERVE_FOR_KEYS},
    {"POST", "/reranking", serve_post_rerank, SERVE_FOR_KEYS},
    {"POST", "/v1/rerank", serve_post_rerank, SERVE_FOR_KEYS},
    {"POST", "/v1/reranking", serve_post_rerank, SERVE_FOR_KEYS},
    {"POST", "/v1/systemone", serve_post_systemone, SERVE_FOR_KEYS},
};
const size_t serve_n_routes = sizeof serve_routes / sizeof *serve_routes;

static bool fits(const serve_route *route, const char *path)
{
    const size_t n = strlen(route->path);
    if (route->path[n - 1] != '*') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, n - 1) == 0 && path[n - 1];
}

const serve_route *serve_route_find(const serve_service *service, const char *method, const char *path, const char **allow)
{
    *allow = NULL;
    for (const serve_route *r = service->routes; r < service->routes + service->n_routes; r++) {
        if (!fits(r, path)) continue;
        if (strcmp(r->method, method) == 0) return r;
        *allow = *allow ? "GET, POST" : r->method;
    }
    return NULL;
}

const char *serve_route_nearest(const serve_service *service, const char *path)
{
    static const char base[] = "/v1";
    const size_t n_base = sizeof base - 1;
    const char *best = NULL, *rest = path + n_base;
    if (strncmp(path, base, n_base)) rest = NULL;
    for (const serve_route *r = service->routes; r < service->routes + service->n_routes; r++) {
        if (strchr(r->path, '*') || r->access == SERVE_FOR_ALL) continue;
        if (rest && strcmp(rest, r->path) == 0) return r->path; /* an address that ends in /v1, before a whole path */
        best = app_nearest(path, best, r->path);
    }
    return best;
}

const char *serve_route_instead(const char *path)
{
    static const char *const known[][2] = {
        {"/v1/batches", "the server has no batches; it answers many requests at once (-np), so send them side by side"},
        {"/v1/files", "the server keeps no files; send texts in messages, and pictures as image_url with a data: address"},
        {"/v1/uploads", "the server keeps no files; send texts in messages, and pictures as image_url with a data: address"},
        {"/v1/vector_stores", "the server keeps no documents; /v1/embeddings and /v1/rerank serve programs that do"},
        {"/v1/assistants", "the server keeps no assistants and threads; use /v1/responses or /v1/chat/completions"},
        {"/v1/threads", "the server keeps no assistants and threads; use /v1/responses or /v1/chat/completions"},
        {"/v1/conversations", "the server keeps no conversations; send the earlier messages again, which the prefix cache "
                              "makes fast"},
        {"/v1/fine_tuning", "the server trains no models; it applies LoRA adapters (--lora)"},
        {"/v1/images", "the models served here write text only"},
        {"/v1/videos", "the models served here write text only"},
        {"/v1/audio", "the models served here read and write no sound"},
        {"/v1/realtime", "the models served here read and write no sound; /v1/chat/completions streams text"},
        {"/v1/moderations", "no model here moderates; ask one in a chat, with a response_format"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t n = strlen(known[i][0]);
        if (strncmp(path, known[i][0], n) == 0 && (!path[n] || path[n] == '/')) return known[i][1];
    }
    return NULL;
}

serve_error_shape *serve_route_shape(const char *path)
{
    static const char messages[] = "/v1/messages";
    if (strncmp(path, "/api/", 5) == 0) return serve_ollama_error;
    return strncmp(path, messages, sizeof messages - 1) == 0 ? serve_messages_error : NULL;
}
