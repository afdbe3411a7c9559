/* grammar.c - aerie.h: grammars and JSON schemas, and whether a text matches one. */
#include <limits.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "text/grammar/match.h"

aerie_status aerie_grammar_create(aerie_grammar **grammar, const char *gbnf, size_t n, aerie_error *error)
{
    AE_NEED(grammar, error);
    *grammar = NULL;
    AE_NEED_IF(n, gbnf, error);
    return ae_grammar_from_gbnf(grammar, gbnf, n, error);
}

aerie_status aerie_grammar_create_schema(aerie_grammar **grammar, const char *json, size_t n, const aerie_schema_params *params,
                                         aerie_error *error)
{
    AE_NEED(grammar, error);
    *grammar = NULL;
    AE_NEED_IF(n, json, error);
    AE_STRUCT_TAKE(schema_params, own, params, error);
    ae_buf said = {0};
    aerie_status status = ae_grammar_from_schema_with(grammar, json, n, &own, own.log.call ? &said : NULL, error);
    if (status == AERIE_OK && said.failed) {
        ae_grammar_free(*grammar);
        *grammar = NULL;
        status = ae_fail_memory(error, "a warning", said.n);
    }
    if (status == AERIE_OK && said.n)
        ae_log_say(&own.log, AERIE_LOG_WARNING, "%.*s", (int)(said.n < INT_MAX ? said.n : INT_MAX), said.data);
    ae_buf_free(&said);
    return status;
}

aerie_status aerie_grammar_create_lazy(aerie_grammar **grammar, const aerie_lazy_params *params, aerie_error *error)
{
    AE_NEED(grammar, error);
    *grammar = NULL;
    AE_NEED(params, error);
    AE_STRUCT_TAKE(lazy_params, own, params, error);
    return ae_grammar_lazy(grammar, &own, error);
}

void aerie_grammar_free(aerie_grammar *grammar)
{
    ae_grammar_free(grammar);
}

aerie_status aerie_grammar_check(const aerie_grammar *grammar, const char *text, size_t n, bool *accepted, size_t *n_good,
                                 aerie_error *error)
{
    AE_NEED(grammar, error);
    AE_NEED(accepted, error);
    AE_NEED(n_good, error);
    AE_NEED_IF(n, text, error);
    ae_matcher m;
    AE_TRY(ae_matcher_init(&m, grammar, error));
    *n_good = 0;
    while (*n_good < n && ae_matcher_advance(&m, text + *n_good, 1)) (*n_good)++;
    *accepted = *n_good == n && ae_matcher_may_end(&m, m.current);
    const bool limit = m.limit_hit && *n_good < n;
    ae_matcher_free(&m);
    if (!limit) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_LIMIT, "the grammar has too many ways, or nests too deep, after byte %zu", *n_good);
}
