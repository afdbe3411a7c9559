/* slots.c - what runs where, and sequences saved to files and restored (/slots). */
#include <stdlib.h>
#include <string.h>

#include "serve/handlers.h"

/* ---- The list ------------------------------------------------------------------------------------------------------ */

/* Under the model's lock. No text of a request is told. */
static json_t *slot_entry(const serve_model *m, uint32_t i)
{
    const serve_choice *c = m->slots[i].running;
    json_t *json =
        json_pack("{s:i, s:I, s:b, s:b}", "id", (int)i, "n_ctx", (json_int_t)aerie_session_n_ctx(m->session), "speculative",
                  (int)(strcmp(aerie_session_spec_name(m->session), "none") != 0), "is_processing", (int)(c != NULL));
    if (!c || !json) return json;
    const unsigned n = atomic_load(&c->n_told);
    json_t *running = json_pack("{s:I, s:I, s:b, s:[{s:b, s:i, s:i}]}", "id_task", (json_int_t)c->job->id, "n_prompt_tokens",
                                (json_int_t)c->n_prompt, "stream", (int)c->job->streams, "next_token", "has_next_token", 1,
                                "n_remain", c->job->n_predict ? (int)(c->job->n_predict - n) : -1, "n_decoded", (int)n);
    if (!running || json_object_update(json, running)) {
        json_decref(json);
        json = NULL;
    }
    json_decref(running);
    return json;
}

void serve_get_slots(serve_call *call)
{
    serve_error error = {0};
    serve_models *models = call->server->models;
    const char *on_none = serve_call_query(call, "fail_on_no_slot");
    if (call->server->o->no_slots) {
        serve_fail(&error, 501, "", "/slots is off: --no-slots");
        serve_reply_error(call, &error);
        return;
    }
    serve_model *m = serve_models_take(models, serve_call_query(call, "model"), call, &error);
    json_t *list = m ? json_array() : NULL;
    bool ok = list != NULL, idle = false;
    if (m) pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; ok && i < m->n_seqs; i++) {
        idle = idle || !m->slots[i].running;
        ok = !json_array_append_new(list, slot_entry(m, i));
    }
    if (m) pthread_mutex_unlock(&m->lock);
    serve_models_give(models, m);
    if (m && on_none && !idle) serve_fail(&error, 503, "", "no slot is free");
    if (error.status == 499) return;
    if (error.status) {
        json_decref(list);
        serve_reply_error(call, &error);
        return;
    }
    if (!ok) json_decref(list);
    serve_reply_json(call, 200, ok ? list : NULL);
}

void serve_post_slot(serve_call *call)
{
    serve_error error = {0};
    serve_fail(&error, 501, "", "slots cannot be saved yet");
    serve_reply_error(call, &error);
}
