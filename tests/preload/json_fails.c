/* json_fails.c - preloaded, makes the JSON_FAILS_AT-th addition to a JSON object or list fail, as without memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jansson.h>
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN int json_array_append_new(json_t *array, json_t *value);
SHOWN int json_object_set_new(json_t *object, const char *key, json_t *value);

static int counts(json_t *value)
{
    static int n;
    const char *at = getenv("JSON_FAILS_AT");
    if (!at || ++n != atoi(at)) return 0;
    json_decref(value);
    return 1;
}

int json_array_append_new(json_t *array, json_t *value)
{
    int (*next)(json_t *, json_t *);
    *(void **)&next = dlsym(RTLD_NEXT, "json_array_append_new");
    return counts(value) ? -1 : next(array, value);
}

int json_object_set_new(json_t *object, const char *key, json_t *value)
{
    int (*next)(json_t *, const char *, json_t *);
    *(void **)&next = dlsym(RTLD_NEXT, "json_object_set_new");
    return counts(value) ? -1 : next(object, key, value);
}
