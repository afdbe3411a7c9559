/* json.c - reads JSON with jansson when memory may be short, and counts what jansson allocates (app.h).
 * While it reads a text, jansson 2.14 frees a value twice if the object that should receive it cannot grow, and in places it
 * reports a lack of memory as an invalid text. So once app_json_watch has been called, an allocation that fails ends the
 * reading by a jump, and everything that was allocated for it is freed here. That needs a list of the allocations. When jansson
 * frees blocks meanwhile, small ones are freed at the end and large ones at once, so that no address is in the list twice. The
 * library reads JSON, too, where a jump is not possible: there an allocation that fails is tried again for two seconds, and the
 * account cannot refuse it. */
#define _POSIX_C_SOURCE 200809L
#include "shared/app.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

enum { N_TRIES = 100, TRY_NS = 20 * 1000 * 1000, LARGE_BYTES = 4096 };

typedef struct blocks {
    void **items; /* [n] */
    size_t n, capacity;
} blocks;

static _Thread_local struct {
    bool on;
    jmp_buf failed;
    blocks allocated, freed; /* since the reading began */
    size_t n_looked_at;      /* entries of `allocated` that free_large has searched */
} reading;

static _Thread_local bool lacked;

static _Thread_local struct {
    app_json_change *change; /* NULL: nobody counts */
    void *user;
} account;

static bool count(ptrdiff_t bytes, bool must)
{
    return !account.change || account.change(account.user, bytes, must);
}

static void uncount(void *block)
{
    if (account.change && block) account.change(account.user, -(ptrdiff_t)malloc_usable_size(block), true);
}

static bool keep(blocks *list, void *block)
{
    const size_t before = list->capacity;
    void **grown = app_grow(list->items, list->n, &list->capacity, sizeof *grown);
    if (!grown) return false;
    list->items = grown;
    if (list->capacity > before && !count((ptrdiff_t)((list->capacity - before) * sizeof *grown), false)) {
        list->capacity = before; /* the rest was not counted, so freeing it must not be either */
        return false;
    }
    grown[list->n++] = block;
    return true;
}

static void forget(blocks *list, bool free_them)
{
    for (size_t i = 0; free_them && i < list->n; i++) {
        uncount(list->items[i]);
        free(list->items[i]);
    }
    count(-(ptrdiff_t)(list->capacity * sizeof *list->items), true);
    free(list->items);
    *list = (blocks){0};
}

/* Removes a large block from the list and frees it, unless such searches have cost too much already. */
static bool free_large(void *block)
{
    blocks *list = &reading.allocated;
    if (malloc_usable_size(block) < LARGE_BYTES || reading.n_looked_at / 64 > list->n) return false;
    size_t i = list->n;
    while (i && list->items[i - 1] != block) i--;
    reading.n_looked_at += list->n - i;
    if (!i) return false; /* from before the reading */
    list->items[i - 1] = NULL;
    uncount(block);
    free(block);
    return true;
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
    else if (account.change) count((ptrdiff_t)malloc_usable_size(block), true);
    return block;
}

static void *allocate(size_t n)
{
    if (!reading.on) return allocate_or_wait(n);
    void *block = malloc(n);
    if (block && count((ptrdiff_t)malloc_usable_size(block), false)) {
        if (keep(&reading.allocated, block)) return block;
        uncount(block);
    }
    free(block);
    lacked = true;
    longjmp(reading.failed, 1);
}

static void release(void *block)
{
    if (!reading.on) {
        uncount(block);
        free(block);
    } else if (block && !free_large(block) && !keep(&reading.freed, block)) {
        lacked = true;
        longjmp(reading.failed, 1);
    }
}

void app_json_free(char *text)
{
    release(text);
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

void app_json_account(app_json_change *change, void *user)
{
    account.change = change;
    account.user = user;
}

static app_json_status read_all(json_t **json, const char *text, size_t n, size_t flags, json_error_t *why)
{
    *json = NULL;
    if (setjmp(reading.failed)) {
        forget(&reading.freed, false);
        forget(&reading.allocated, true);
        return APP_JSON_NO_MEMORY;
    }
    *json = json_loadb(text, n, flags, why);
    forget(&reading.allocated, false);
    forget(&reading.freed, true);
    return *json ? APP_JSON_OK : APP_JSON_WRONG;
}

app_json_status app_json_read(json_t **json, const char *text, size_t n, size_t flags, json_error_t *why)
{
    reading.on = true;
    reading.n_looked_at = 0;
    const app_json_status status = read_all(json, text ? text : "", n, flags, why);
    reading.on = false;
    return status;
}
