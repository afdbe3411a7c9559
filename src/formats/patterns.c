/* patterns.c - implements patterns.h with PCRE2, with memory from base/mem.h and a limit on the work of one match. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/patterns.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"

/* steps of a match; names are short, so only a pattern with exponential backtracking needs that many */
#define MOST_STEPS 100000
#define SHOWN 160 /* bytes of a pattern in messages */

struct ae_pattern {
    char shown[SHOWN + 1]; /* its beginning */
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

static void *pattern_alloc(size_t n, void *user)
{
    (void)user;
    return ae_alloc(n, 1);
}

static void pattern_free(void *block, void *user)
{
    (void)user;
    ae_free(block);
}

static aerie_status compile(struct ae_pattern *pattern, const char *source, size_t n, pcre2_general_context *general,
                            aerie_error *error)
{
    int reason = 0;
    PCRE2_SIZE at = 0;
    char text[128] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    if (!context) return ae_fail_memory(error, "a pattern", sizeof *pattern);
    pattern->code = pcre2_compile((PCRE2_SPTR)source, n, PCRE2_CASELESS | PCRE2_NEVER_UTF, &reason, &at, context);
    pcre2_compile_context_free(context);
    if (!pattern->code && reason == PCRE2_ERROR_HEAP_FAILED) return ae_fail_memory(error, "a pattern", sizeof *pattern);
    if (!pattern->code) {
        pcre2_get_error_message(reason, (PCRE2_UCHAR *)text, sizeof text);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the pattern \"%s\" is not a regular expression: %s, at character %zu",
                       pattern->shown, text, (size_t)at);
    }
    pattern->data = pcre2_match_data_create(1, general);
    pattern->limits = pcre2_match_context_create(general);
    if (!pattern->data || !pattern->limits) return ae_fail_memory(error, "a pattern", sizeof *pattern);
    pcre2_set_match_limit(pattern->limits, MOST_STEPS);
    return AERIE_OK;
}

static aerie_status grow(ae_patterns *patterns, aerie_error *error)
{
    const size_t room = patterns->room ? 2 * patterns->room : 8;
    struct ae_pattern *list = ae_alloc(room, sizeof *list);
    if (!list) return ae_fail_memory(error, "patterns", room * sizeof *list);
    if (patterns->n) memcpy(list, patterns->list, patterns->n * sizeof *list);
    ae_free(patterns->list);
    patterns->list = list;
    patterns->room = room;
    return AERIE_OK;
}

aerie_status ae_patterns_add(ae_patterns *patterns, const char *text, size_t n, aerie_error *error)
{
    if (patterns->n == patterns->room) AE_TRY(grow(patterns, error));
    pcre2_general_context *general = pcre2_general_context_create(pattern_alloc, pattern_free, NULL);
    if (!general) return ae_fail_memory(error, "a pattern", sizeof *patterns->list);
    struct ae_pattern *pattern = &patterns->list[patterns->n++];
    *pattern = (struct ae_pattern){0};
    memcpy(pattern->shown, text, n < SHOWN ? n : SHOWN);
    const aerie_status status = compile(pattern, text, n, general, error);
    pcre2_general_context_free(general);
    return status;
}

void ae_patterns_free(ae_patterns *patterns)
{
    for (size_t i = 0; i < patterns->n; i++) {
        pcre2_match_context_free(patterns->list[i].limits);
        pcre2_match_data_free(patterns->list[i].data);
        pcre2_code_free(patterns->list[i].code);
    }
    ae_free(patterns->list);
    *patterns = (ae_patterns){0};
}

aerie_status ae_patterns_match(const ae_patterns *patterns, size_t i, ae_gguf_string name, bool *found, aerie_error *error)
{
    struct ae_pattern *pattern = &patterns->list[i];
    const int result = pcre2_match(pattern->code, (PCRE2_SPTR)name.data, name.n, 0, 0, pattern->data, pattern->limits);
    if (result == PCRE2_ERROR_NOMEMORY) return ae_fail_memory(error, "a pattern", sizeof *pattern);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the pattern \"%s\" takes too long on \"%.*s\"; a simpler one does not",
                       pattern->shown, (int)(name.n < 80 ? name.n : 80), name.data);
    *found = result >= 0;
    return AERIE_OK;
}

aerie_status ae_patterns_first(const ae_patterns *patterns, ae_gguf_string name, size_t *first, aerie_error *error)
{
    bool found = false;
    for (*first = 0; *first < patterns->n; ++*first) {
        AE_TRY(ae_patterns_match(patterns, *first, name, &found, error));
        if (found) return AERIE_OK;
    }
    return AERIE_OK;
}
