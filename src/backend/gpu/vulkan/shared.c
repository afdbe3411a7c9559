/* shared.c - the devices of the driver "vulkan" that are open, which the models of a process share: Vulkan's device, its queue,
 * and the pipelines, so that a shader is compiled once and not for each model. See vulkan.h.
 *
 * Owns the list of open devices. Invariants: a device is in the list while it has users; one that was lost or given up gets no
 * more users. Lock order: the list, a user, `compiling` and the queue. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static ae_vk_shared *list;

/* Results of examinations. A device computes in the same way as long as the process lives, and the examination takes longer
 * than the rest of opening it. Protected by the lock of the list. */
static struct {
    char key[sizeof list->key];
    uint32_t fma, div;
} examined[AE_VK_MAX_DEVICES];
static uint32_t n_examined;

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static void destroy(ae_vk_shared *s)
{
    ae_gpu_device *d = &s->common;
    if (d->device && d->call.DeviceWaitIdle) {
        (void)d->call.DeviceWaitIdle(d->device);
        for (uint32_t i = 0; i < AE_GPU_N_KERNELS; i++)
            if (s->pipelines[i]) d->call.DestroyPipeline(d->device, s->pipelines[i], NULL);
        if (d->layout) d->call.DestroyPipelineLayout(d->device, d->layout, NULL);
        if (d->semaphore) d->call.DestroySemaphore(d->device, d->semaphore, NULL);
        d->call.DestroyDevice(d->device, NULL);
    }
    ae_vk_library_release(&d->library);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->compiling);
    ae_free(s);
}

/* Examines the device, by a user of its own, unless it has passed before. *stuck: it hangs, and nothing may be freed. */
static aerie_status examine(ae_vk_shared *s, bool *stuck, aerie_error *error)
{
    ae_gpu_device *d;
    for (uint32_t i = 0; i < n_examined; i++)
        if (!strcmp(examined[i].key, s->key)) {
            s->common.fma = examined[i].fma, s->common.div = examined[i].div;
            return AERIE_OK;
        }
    AE_TRY(ae_vk_user_create(s, &d, error));
    const aerie_status status = ae_vk_exam(d, s->facts.name, error);
    s->common.fma = d->fma, s->common.div = d->div;
    *stuck = !ae_vk_user_destroy(d);
    if (status != AERIE_OK || n_examined == AE_VK_MAX_DEVICES) return status;
    memcpy(examined[n_examined].key, s->key, sizeof s->key);
    examined[n_examined].fma = s->common.fma, examined[n_examined++].div = s->common.div;
    return AERIE_OK;
}

static aerie_status open_device(uint32_t i, const char *key, ae_vk_shared **out, aerie_error *error)
{
    bool stuck = false;
    *out = NULL;
    ae_vk_shared *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a Vulkan device", sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->compiling, NULL);
    snprintf(s->key, sizeof s->key, "%s", key);
    aerie_status status = ae_vk_set_up(s, i, error);
    if (status == AERIE_OK) status = examine(s, &stuck, error);
    if (status != AERIE_OK) {
        if (!stuck) destroy(s);
        return status;
    }
    const size_t n = strlen(s->facts.name);
    if (s->common.fma) snprintf(s->facts.name + n, sizeof s->facts.name - n, ", fma by doubles");
    *out = s;
    return AERIE_OK;
}

aerie_status ae_vk_shared_get(uint32_t i, ae_vk_shared **out, aerie_error *error)
{
    char key[sizeof list->key];
    aerie_status status = AERIE_OK;
    snprintf(key, sizeof key, "%u %.30s %.30s %.30s", i, setting("AERIE_VULKAN_MAP"), setting("AERIE_VULKAN_BLOCK"),
             setting("AERIE_VULKAN_REPAIRS"));
    pthread_mutex_lock(&list_mutex);
    ae_vk_shared *s = list;
    while (s && (strcmp(s->key, key) != 0 || atomic_load(&s->is_dead))) s = s->next;
    if (!s && (status = open_device(i, key, &s, error)) == AERIE_OK) {
        s->next = list;
        list = s;
    }
    if (s) s->n_users++;
    pthread_mutex_unlock(&list_mutex);
    *out = s;
    return status;
}

void ae_vk_shared_release(ae_vk_shared *s)
{
    pthread_mutex_lock(&list_mutex);
    const bool last = !--s->n_users;
    if (last) {
        ae_vk_shared **at = &list;
        while (*at != s) at = &(*at)->next;
        *at = s->next;
    }
    pthread_mutex_unlock(&list_mutex);
    if (last) destroy(s);
}

aerie_status ae_vk_shared_pipeline(ae_gpu_device *d, uint32_t i, const ae_vk_variant *variant, VkPipeline *out,
                                   aerie_error *error)
{
    ae_vk_shared *s = d->shared;
    aerie_status status = AERIE_OK;
    pthread_mutex_lock(&s->compiling);
    if (!s->pipelines[i]) status = ae_vk_pipeline_create(d, variant, &s->pipelines[i], error);
    *out = s->pipelines[i];
    pthread_mutex_unlock(&s->compiling);
    return status;
}

#endif
