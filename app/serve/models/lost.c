/* lost.c - models whose device failed (models.h): they are loaded again, and rest if that does not help. */
#define _POSIX_C_SOURCE 200809L
#include "aerie_extra.h"
#include "serve/models/models_int.h"

/* A failed pass is either that of a device that was lost, or the fault of a request, whose passes fail three times at most
 * (serve_ask_may_try). The device is tried to tell which. */
enum {
    MOST_POINTS = 4,  /* of failed passes in a row: for these the model is loaded again */
    POINTS_WORKS = 1, /* if the device works all the same */
    POINTS_UNKNOWN = 2, /* if it could not be tried */
    MOST_RELOADS = 3  /* without an answer */
};

bool serve_model_fails(const serve_model *m)
{
    return atomic_load(&m->failed_points) >= MOST_POINTS && !m->server->options->machines;
}

bool serve_model_is_lost(const serve_model *m)
{
    return m->state == SERVE_READY && serve_model_fails(m);
}

void serve_model_note_pass(serve_model *m, aerie_status status)
{
    unsigned n = atomic_load(&m->failed_points);
    while (status == AERIE_OK && n && n < MOST_POINTS && !atomic_compare_exchange_weak(&m->failed_points, &n, 0)) {}
    if (status != AERIE_ERROR_INTERNAL || n >= MOST_POINTS) return;
    const aerie_status tried = aerie_model_try_devices(m->models.model, NULL);
    const unsigned points = tried == AERIE_OK ? POINTS_WORKS : tried == AERIE_ERROR_INTERNAL ? MOST_POINTS : POINTS_UNKNOWN;
    atomic_fetch_add(&m->failed_points, points);
}

void serve_model_note_answer(serve_model *m)
{
    atomic_store(&m->n_lost, 0);
}

/* Returns whether the model is to be loaded again now. Called under the lock. */
static bool wants_mending(const serve_model *m)
{
    if (serve_model_is_lost(m)) return !m->n_users;
    const bool waited = m->state == SERVE_FAILED && app_now() - m->failed_at >= SERVE_RETRY_SECONDS;
    return m->lost && (m->state == SERVE_UNLOADED || waited);
}

/* Unloads a lost model. If it is to rest, it has then failed as if it could not be loaded. Called under the lock. */
static void unload_lost(serve_models *models, serve_model *m)
{
    const unsigned n_reloads = atomic_fetch_add(&m->n_lost, 1);
    if (!n_reloads) m->lost_at = app_now();
    m->lost = true;
    m->rests = n_reloads >= MOST_RELOADS;
    if (m->rests)
        app_note("'%s': passes fail one after the other, after %u reloads without an answer; the model is loaded again in %d s",
                 m->name, n_reloads, SERVE_RETRY_SECONDS);
    else app_note("'%s': passes fail one after the other, so the model is loaded again", m->name);
    serve_models_unload(models, m);
    if (!m->rests) return;
    m->state = SERVE_FAILED;
    m->failed_at = app_now();
}

static void *mend(void *user)
{
    serve_models *models = user;
    for (size_t i = 0; i < models->n; i++)
        if (serve_model_fails(&models->items[i])) serve_calls_let_go(models->server, &models->items[i]);
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n && !atomic_load(&models->server->draining); i++) {
        serve_model *m = &models->items[i];
        if (!wants_mending(m)) continue;
        if (m->state == SERVE_READY) unload_lost(models, m);
        if (wants_mending(m)) serve_models_load(models, m);
    }
    pthread_mutex_unlock(&models->lock);
    atomic_store(&models->mended, true);
    return NULL;
}

void serve_models_mend(serve_models *models)
{
    bool wanted = false;
    if (models->has_mender && !atomic_load(&models->mended)) return;
    if (models->has_mender) pthread_join(models->mender, NULL);
    models->has_mender = false;
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++)
        wanted = wanted || wants_mending(&models->items[i]) || serve_model_is_lost(&models->items[i]);
    pthread_mutex_unlock(&models->lock);
    if (!wanted) return;
    atomic_store(&models->mended, false);
    models->has_mender = pthread_create(&models->mender, NULL, mend, models) == 0; /* else the next tick tries */
}

/* Returns since when all models that were loaded are lost; 0: one is not. unproven: those that rested and have not answered
 * since are lost, too. */
static double lost_since(serve_models *models, bool unproven)
{
    double since = 0;
    bool sound = false;
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++) {
        const serve_model *m = &models->items[i];
        const unsigned n_lost = atomic_load(&m->n_lost);
        if (m->lost || serve_model_is_lost(m) || (unproven && n_lost > MOST_RELOADS)) {
            const double at = m->lost || n_lost ? m->lost_at : app_now();
            since = !since || at < since ? at : since;
        } else {
            sound = sound || m->state == SERVE_READY;
        }
    }
    pthread_mutex_unlock(&models->lock);
    return sound ? 0 : since;
}

bool serve_models_lost(serve_models *models)
{
    return lost_since(models, false) > 0;
}

double serve_models_step_age(serve_models *models)
{
    double most = -1;
    pthread_mutex_lock(&models->lock);
    for (size_t i = 0; i < models->n; i++) {
        serve_model *m = &models->items[i];
        if (m->state != SERVE_READY) continue;
        pthread_mutex_lock(&m->lock);
        const bool works = m->n_active > 0;
        pthread_mutex_unlock(&m->lock);
        const double age = app_now() - atomic_load(&m->last_step);
        if (works && age > most) most = age;
    }
    pthread_mutex_unlock(&models->lock);
    return most;
}

bool serve_models_stuck(serve_models *models)
{
    const double since = lost_since(models, true);
    return serve_models_step_age(models) > models->server->o->stuck ||
           (since > 0 && app_now() - since > models->server->o->stuck); /* loading again did not help, or has not ended */
}
