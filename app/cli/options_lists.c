/* options_lists.c - values that are lists with commas between, as llama.cpp takes them: --override-kv,
 * --override-tensor and --image.
 *
 * The items are copies, which the options own. Invariant: a value that has a meaning as a whole keeps it: an override's text
 * may have commas in it, and so may a file's name.
 */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"

static int append(app_texts *texts, const char *text)
{
    const char **grown = app_grow(texts->items, texts->n, &texts->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the options");
    texts->items = grown;
    grown[texts->n++] = text;
    return APP_DONE;
}

static int append_copy(app_options *options, app_texts *texts, const char *text, size_t n)
{
    char *copy = strndup(text, n);
    int bad = copy ? append(&options->list_items, copy) : app_error_memory("the options");
    if (bad) free(copy);
    return bad ? bad : append(texts, copy);
}

/* Returns whether the text begins like KEY=TYPE:. */
static bool begins_override(const char *text)
{
    static const char *const types[] = {"int:", "float:", "bool:", "str:"};
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("._-", text[n]))) n++;
    if (!n || text[n] != '=') return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(text + n + 1, types[i], strlen(types[i])) == 0) return true;
    return false;
}

int app_overrides_add(app_options *options, const char *text)
{
    for (const char *end = text;; end++) {
        end += strcspn(end, ",");
        if (*end && !begins_override(end + 1)) continue;
        const int bad = append_copy(options, &options->overrides, text, (size_t)(end - text));
        if (bad || !*end) return bad;
        text = end + 1;
    }
}

int app_placements_add(app_options *options, const char *text)
{
    for (const char *next = text; next; text = next + 1) {
        next = strchr(text, ',');
        const size_t n = next ? (size_t)(next - text) : strlen(text);
        const char *equals = memchr(text, '=', n);
        if (!equals || equals == text || text[n - 1] == '=')
            return app_error(APP_USAGE, "--override-tensor takes PATTERN=DEVICE, several of them with commas, as in exps=CPU; "
                             "found '%.*s'", (int)n, text);
        const int bad = append_copy(options, &options->placements, text, n);
        if (bad) return bad;
    }
    return APP_DONE;
}

int app_files_add(app_options *options, app_texts *files, const char *text)
{
    const bool whole = !strchr(text, ',') || access(text, F_OK) == 0;
    for (;; text++) {
        const size_t n = whole ? strlen(text) : strcspn(text, ",");
        const int bad = append_copy(options, files, text, n);
        text += n;
        if (bad || !*text) return bad;
    }
}

void app_lists_free(app_options *options)
{
    for (size_t i = 0; i < options->list_items.n; i++) free((char *)options->list_items.items[i]);
    free(options->list_items.items);
}
