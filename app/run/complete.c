/* complete.c - implements complete.h. */
#define _XOPEN_SOURCE 700
#include "run/complete.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST 10000 /* at most this many files of a folder are read */

bool app_choices_add(app_choices *choices, const char *word, size_t n, const char *end)
{
    const size_t n_end = strlen(end);
    char **grown = app_grow(choices->items, choices->n, &choices->capacity, sizeof *grown);
    if (!grown) return false;
    choices->items = grown;
    char *copy = malloc(n + n_end + 1);
    if (!copy) return false;
    memcpy(copy, word, n);
    memcpy(copy + n, end, n_end + 1);
    choices->items[choices->n++] = copy;
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void app_choices_sort(app_choices *choices)
{
    if (choices->n) qsort(choices->items, choices->n, sizeof *choices->items, compare);
}

void app_choices_free(app_choices *choices)
{
    for (size_t i = 0; i < choices->n; i++) free(choices->items[i]);
    free(choices->items);
    *choices = (app_choices){0};
}

size_t app_choices_common(const app_choices *choices)
{
    if (!choices->n) return 0;
    const char *first = choices->items[0];
    size_t n = strlen(first);
    for (size_t i = 1; i < choices->n; i++) {
        size_t k = 0;
        while (k < n && choices->items[i][k] == first[k]) k++;
        n = k;
    }
    while (n && ((unsigned char)first[n] & 0xc0) == 0x80) n--;
    return n;
}

/* Adds a file's name after `before`, if it should be offered. */
static bool add_file(app_choices *choices, const char *folder, const char *before, size_t n_before, const char *name)
{
    app_text path = {0}, word = {0};
    struct stat info;
    bool ok = app_text_add(&path, folder, strlen(folder)) && app_text_add(&path, "/", 1) &&
              app_text_add(&path, name, strlen(name)) && app_text_add(&word, before, n_before) &&
              app_text_add(&word, name, strlen(name));
    const bool is_folder = ok && stat(path.data, &info) == 0 && S_ISDIR(info.st_mode);
    ok = ok && app_choices_add(choices, word.data, word.n, is_folder ? "/" : "");
    app_text_free(&path);
    app_text_free(&word);
    return ok;
}

/* Returns whether a name has only characters that a line can show; others would corrupt the screen. */
static bool is_plain(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t c = 0;
        length = app_utf8_char(name + i, n - i, &c);
        if (!length || c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
    }
    return true;
}

bool app_choices_add_files(app_choices *choices, const char *path)
{
    const char *slash = strrchr(path, '/'), *home = getenv("HOME");
    const size_t n_before = slash ? (size_t)(slash + 1 - path) : 0, n_name = strlen(path) - n_before;
    const bool at_home = home && strncmp(path, "~/", 2) == 0;
    app_text folder = {0};
    bool ok = !at_home || app_text_add(&folder, home, strlen(home));
    if (n_before) ok = ok && app_text_add(&folder, path + at_home, n_before - at_home);
    else ok = ok && app_text_add(&folder, ".", 1);
    DIR *dir = ok ? opendir(folder.data) : NULL;
    const struct dirent *entry;
    for (size_t n = 0; dir && ok && n < MOST && (entry = readdir(dir)); n++) {
        const char *name = entry->d_name;
        if (strncmp(name, path + n_before, n_name) || !is_plain(name)) continue;
        if (name[0] == '.' && (!n_name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)) continue;
        ok = add_file(choices, folder.data, path, n_before, name);
    }
    if (dir) closedir(dir);
    app_text_free(&folder);
    return ok;
}
