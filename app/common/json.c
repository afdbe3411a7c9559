/* json.c - reading JSON by jansson where memory may be short (common.h).
 *
 * jansson 2.14 frees a value twice if the object that it shall be put into cannot grow while a text is read, and it takes a
 * lack of memory for a wrong text in places. So, once app_json_watch has been called, an allocation that fails ends the reading
 * with a jump, and everything that was allocated for it is freed here. That needs a list of what was allocated; what jansson
 * frees meanwhile is freed at the end, so that no address is in the list twice. The library reads JSON as well, where nobody
 * may jump: there an allocation that fails is tried again for two seconds.
 */
#define _POSIX_C_SOURCE 200809L
#include "common/app.h"

#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

enum { N_TRIES = 100, TRY_NS = 20 * 1000 * 1000 };

typedef struct blocks {
    void **items; /* [n] */
    size_t n, capacity;
} blocks;

static _Thread_local struct {
    bool on;
    jmp_buf failed;
    blocks allocated, freed; /* since the reading began */
} reading;

static _Thread_local bool lacked;

static bool keep(blocks *list, void *block)
{
    void **grown = app_grow(list->items, list->n, &list->capacity, sizeof *grown);
    if (!grown) return false;
    list->items = grown;
    grown[list->n++] = block;
    return true;
}

static void forget(blocks *list, bool free_them)
{
    for (size_t i = 0; free_them && i < list->n; i++) free(list->items[i]);
    free(list->items);
    *list = (blocks){0};
}

static void *allocate_or_wait(size_t n)
{
    const struct timespec while_others_end = {0, TRY_NS};
    void *block = malloc(n);
    for (int i = 0; !block && i < N_TRIES; i++) {
        block = malloc(n);
        if (!block) nanosleep(&while_others_end, NULL);
    }
    if (!block) lacked = true;
    return block;
}

static void *allocate(size_t n)
{
    if (!reading.on) return allocate_or_wait(n);
    void *block = malloc(n);
    if (block && keep(&reading.allocated, block)) return block;
    free(block);
    lacked = true;
    longjmp(reading.failed, 1);
}

static void release(void *block)
{
    if (!reading.on) {
        free(block);
    } else if (block && !keep(&reading.freed, block)) {
        lacked = true;
        longjmp(reading.failed, 1);
    }
}

void app_json_watch(void)
{
    json_set_alloc_funcs(allocate, release);
}

bool app_json_lacked(void)
{
    const bool was = lacked;
    lacked = false;
    return was;
}

static json_t *read_all(const char *text, size_t n, size_t flags, json_error_t *why)
{
    if (setjmp(reading.failed)) {
        forget(&reading.freed, false);
        forget(&reading.allocated, true);
        return NULL;
    }
    json_t *json = json_loadb(text, n, flags, why);
    forget(&reading.allocated, false);
    forget(&reading.freed, true);
    return json;
}

json_t *app_json_load(const char *text, size_t n, size_t flags, json_error_t *why)
{
    reading.on = true;
    json_t *json = read_all(text, n, flags, why);
    reading.on = false;
    return json;
}
