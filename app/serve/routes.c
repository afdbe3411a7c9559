/* routes.c - which path is what. */
#include <string.h>

#include "serve/handlers.h"

static const serve_route routes[] = {
    {"GET", "/", serve_get_page, true, NULL},
    {"GET", "/page.css", serve_get_page, true, NULL},
    {"GET", "/page.js", serve_get_page, true, NULL},
    {"GET", "/markdown.js", serve_get_page, true, NULL},
    {"GET", "/charts.js", serve_get_page, true, NULL},
    {"GET", "/health", serve_get_health, true, NULL},
    {"GET", "/v1/health", serve_get_health, true, NULL},
    {"GET", "/models", serve_get_models, false, NULL},
    {"GET", "/v1/models", serve_get_models, false, NULL},
    {"GET", "/v1/models/*", serve_get_model, false, NULL},
    {"GET", "/props", serve_get_props, false, NULL},
    {"GET", "/aerie/curve", serve_get_curve, false, NULL},
    {"GET", "/slots", serve_get_slots, false, NULL},
    {"POST", "/slots/*", serve_post_slot, false, NULL},
    {"GET", "/lora-adapters", serve_get_lora, false, NULL},
    {"POST", "/lora-adapters", serve_post_lora, false, NULL},
    {"GET", "/metrics", serve_get_metrics, false, NULL},
    {"POST", "/tokenize", serve_post_tokenize, false, NULL},
    {"POST", "/detokenize", serve_post_detokenize, false, NULL},
    {"POST", "/apply-template", serve_post_template, false, NULL},
    {"POST", "/v1/completions", serve_post_completion, false, NULL},
    {"POST", "/v1/chat/completions", serve_post_chat, false, NULL},
    {"POST", "/chat/completions", serve_post_chat, false, NULL},
    {"POST", "/completions", serve_post_native, false, NULL},
    {"POST", "/completion", serve_post_native, false, NULL},
    {"POST", "/infill", serve_post_infill, false, NULL},
    {"POST", "/v1/responses", serve_post_responses, false, NULL},
    {"POST", "/v1/messages", serve_post_messages, false, serve_messages_error},
    {"POST", "/v1/messages/count_tokens", serve_post_count, false, serve_messages_error},
    {"POST", "/api/chat", serve_post_ollama_chat, false, serve_ollama_error},
    {"POST", "/api/generate", serve_post_ollama_generate, false, serve_ollama_error},
    {"GET", "/api/tags", serve_get_tags, false, serve_ollama_error},
    {"GET", "/api/ps", serve_get_running, false, serve_ollama_error},
    {"POST", "/api/show", serve_post_show, false, serve_ollama_error},
    {"GET", "/api/version", serve_get_version, false, serve_ollama_error},
    {"POST", "/api/embed", serve_post_ollama_embed, false, serve_ollama_error},
    {"POST", "/api/embeddings", serve_post_ollama_embeddings, false, serve_ollama_error},
    {"POST", "/embeddings", serve_post_embeddings, false, NULL},
    {"POST", "/v1/embeddings", serve_post_embeddings, false, NULL},
    {"POST", "/rerank", serve_post_rerank, false, NULL},
    {"POST", "/reranking", serve_post_rerank, false, NULL},
    {"POST", "/v1/rerank", serve_post_rerank, false, NULL},
    {"POST", "/v1/reranking", serve_post_rerank, false, NULL},
};

static bool fits(const serve_route *route, const char *path)
{
    const size_t n = strlen(route->path);
    if (route->path[n - 1] != '*') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, n - 1) == 0 && path[n - 1];
}

const serve_route *serve_route_find(const char *method, const char *path, const char **allow)
{
    *allow = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!fits(&routes[i], path)) continue;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
        *allow = *allow ? "GET, POST" : routes[i].method;
    }
    return NULL;
}
