/* spec_types.c - parses names of drafters on the command line, both aerie's and llama.cpp's, and lists of them. */
#include <string.h>

#include "cli/options.h"

/* llama.cpp's names (common/speculative.cpp) and common short names, with aerie's. */
static const struct {
    const char *theirs, *name;
} others[] = {
    {"draft-simple", "draft"},
    {"ngram-simple", "ngram"},
    {"ngram-map-k", "ngram"},
    {"ngram-map-k4v", "ngram"},
    {"ngram-mod", "ngram"},
    {"ngram-cache", "ngram"},
    {"n-gram", "ngram"},
    {"lookup", "ngram"},
    {"eagle", "draft-eagle"},
    {"eagle3", "draft-eagle3"},
    {"medusa", "draft-medusa"},
    {"mtp", "draft-mtp"},
    {"off", "none"},
    {"draft-nld", "nld"},
    {"dflash", "draft-dflash"},
    {"dspark", "draft-dspark"},
};

int app_spec_type_parse(const char *name, const char *word, aerie_spec_type *type)
{
    char known[512] = "";
    if (ae_session_test_spec_parse(word, type)) return APP_DONE;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i].theirs, word)) continue;
        ae_session_test_spec_parse(others[i].name, type);
        return APP_DONE;
    }
    for (size_t i = 0; ae_session_test_spec_at(i); i++) {
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ae_session_test_spec_at(i));
    }
    return app_error(APP_USAGE, "%s takes one of %s, or one of llama.cpp's names for them; found '%s'", name, known, word);
}

int app_spec_list_parse(const char *name, const char *text, aerie_spec_type *type, bool *ngram)
{
    bool any_ngram = false, any_other = false;
    aerie_spec_type other = AERIE_SPEC_NONE;
    if (!strchr(text, ',')) return app_spec_type_parse(name, text, type);
    for (const char *p = text;; p++) {
        char word[64];
        aerie_spec_type one;
        const size_t n = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < 63 ? n : 63), p);
        const int bad = app_spec_type_parse(name, word, &one);
        if (bad) return bad;
        if (one == AERIE_SPEC_NONE) { /* as in llama.cpp, none turns off every other drafter of the list */
            *type = one;
            return APP_DONE;
        }
        if (one == AERIE_SPEC_NGRAM) any_ngram = true;
        else other = any_other && other != one ? AERIE_SPEC_AUTO : one, any_other = true;
        p += n;
        if (!*p) break;
    }
    *type = any_other ? other : AERIE_SPEC_NGRAM;
    if (any_other) *ngram = any_ngram; /* with another drafter, --spec-ngram turns n-grams on and off */
    return APP_DONE;
}
