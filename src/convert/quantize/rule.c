/* rule.c - implements rule.h with PCRE2, with memory from base/mem.h and a limit on the work of one match. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "convert/quantize/rule.h"

#include <pcre2.h>

#include "base/mem.h"

/* steps of a match; names are short, so only a pattern with exponential backtracking needs that many */
#define MOST_STEPS 100000

struct ae_rule_code {
    const char *pattern; /* borrowed */
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

static void *rule_alloc(size_t n, void *user)
{
    (void)user;
    return ae_alloc(n, 1);
}

static void rule_free(void *block, void *user)
{
    (void)user;
    ae_free(block);
}

static aerie_status compile(struct ae_rule_code *rule, pcre2_general_context *general, aerie_error *error)
{
    int reason = 0;
    PCRE2_SIZE at = 0;
    char text[128] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    if (!context) return ae_fail_memory(error, "a pattern", sizeof *rule);
    rule->code = pcre2_compile((PCRE2_SPTR)rule->pattern, PCRE2_ZERO_TERMINATED, PCRE2_CASELESS | PCRE2_NEVER_UTF,
                               &reason, &at, context);
    pcre2_compile_context_free(context);
    if (!rule->code && reason == PCRE2_ERROR_HEAP_FAILED) return ae_fail_memory(error, "a pattern", sizeof *rule);
    if (!rule->code) {
        pcre2_get_error_message(reason, (PCRE2_UCHAR *)text, sizeof text);
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "the pattern \"%.160s\" is not a regular expression: %s, at character %zu", rule->pattern, text,
                       (size_t)at);
    }
    rule->data = pcre2_match_data_create(1, general);
    rule->limits = pcre2_match_context_create(general);
    if (!rule->data || !rule->limits) return ae_fail_memory(error, "a pattern", sizeof *rule);
    pcre2_set_match_limit(rule->limits, MOST_STEPS);
    return AERIE_OK;
}

aerie_status ae_rules_compile(ae_rules *rules, const ae_rewrite_rule *from, size_t n, aerie_error *error)
{
    *rules = (ae_rules){0};
    if (!n) return AERIE_OK;
    rules->codes = ae_alloc(n, sizeof *rules->codes);
    pcre2_general_context *general = pcre2_general_context_create(rule_alloc, rule_free, NULL);
    aerie_status status = AERIE_OK;
    if (!rules->codes || !general) status = ae_fail_memory(error, "patterns", n * sizeof *rules->codes);
    for (size_t i = 0; i < n && status == AERIE_OK; i++) {
        rules->n = i + 1;
        rules->codes[i].pattern = from[i].pattern;
        status = compile(&rules->codes[i], general, error);
    }
    pcre2_general_context_free(general);
    return status;
}

void ae_rules_free(ae_rules *rules)
{
    for (size_t i = 0; i < rules->n; i++) {
        pcre2_match_context_free(rules->codes[i].limits);
        pcre2_match_data_free(rules->codes[i].data);
        pcre2_code_free(rules->codes[i].code);
    }
    ae_free(rules->codes);
    *rules = (ae_rules){0};
}

aerie_status ae_rules_first(ae_rules *rules, ae_gguf_string name, size_t *first, aerie_error *error)
{
    for (size_t i = 0; i < rules->n; i++) {
        struct ae_rule_code *rule = &rules->codes[i];
        const int found = pcre2_match(rule->code, (PCRE2_SPTR)name.data, name.n, 0, 0, rule->data, rule->limits);
        if (found == PCRE2_ERROR_NOMEMORY) return ae_fail_memory(error, "a pattern", sizeof *rule);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return ae_fail(error, AERIE_ERROR_ARGUMENT,
                           "the pattern \"%.160s\" takes too long on \"%.*s\"; a simpler one does not", rule->pattern,
                           (int)(name.n < 80 ? name.n : 80), name.data);
        if (found >= 0) {
            *first = i;
            return AERIE_OK;
        }
    }
    *first = rules->n;
    return AERIE_OK;
}
