/* test_drafters.c - test_drafters.h: sessions with drafters for tests and benchmarks. The drafters themselves are in
 * draft/oracle.c and draft/random.c.
 */
#include <string.h>

#include "session/session_int.h"
#include "base/err.h"

static const struct {
    const char *name;
    aerie_spec_type type;
} drafters[] = {{"oracle", AE_SPEC_ORACLE}, {"random", AE_SPEC_RANDOM}};
#define N_DRAFTERS (sizeof drafters / sizeof drafters[0])

const char *ae_session_test_spec_name(aerie_spec_type type)
{
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (drafters[i].type == type) return drafters[i].name;
    return aerie_spec_type_name(type);
}

bool ae_session_test_spec_parse(const char *name, aerie_spec_type *type)
{
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (!strcmp(drafters[i].name, name)) {
            *type = drafters[i].type;
            return true;
        }
    return aerie_spec_type_parse(name, type);
}

const char *ae_session_test_spec_at(size_t i)
{
    size_t n_public = 0;
    while (aerie_spec_type_name((aerie_spec_type)n_public)) n_public++;
    if (i < n_public) return aerie_spec_type_name((aerie_spec_type)i);
    return i - n_public < N_DRAFTERS ? drafters[i - n_public].name : NULL;
}

aerie_status ae_session_create_for_test(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                        const ae_session_test *test, aerie_error *error)
{
    static const ae_session_test none;
    *session = NULL;
    if (!test) test = &none;
    if (!(test->oracle_error >= 0 && test->oracle_error <= 1)) /* NaN fails both comparisons */
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the oracle's error rate is %g; 0 to 1 are possible",
                       (double)test->oracle_error);
    return ae_session_create(session, model, params, test, error);
}

aerie_status ae_session_create_test_drafter(aerie_session *s, ae_drafter **drafter, aerie_error *error)
{
    const uint32_t n_vocab = (uint32_t)ae_vocab_n_tokens(s->model->vocab);
    if (s->params.spec.type == AE_SPEC_RANDOM) return ae_draft_random_create(drafter, n_vocab, s->test.seed, error);
    return ae_draft_oracle_create(drafter, s->params.n_seqs, n_vocab, s->test.oracle_error, s->test.seed, error);
}

void ae_session_test_answers(aerie_session *session, const ae_session_test_answer *answers, size_t n)
{
    session->known = answers;
    session->n_known = n;
}

void ae_session_test_tell(aerie_session *s, uint32_t slot, size_t id, size_t n_prompt)
{
    const ae_session_test_answer *a = id < s->n_known ? &s->known[id] : NULL;
    if (s->params.spec.type == AE_SPEC_ORACLE)
        ae_draft_oracle_tell(ae_spec_drafter(s->spec), slot, n_prompt, a ? a->tokens : NULL, a ? a->n_tokens : 0);
}
