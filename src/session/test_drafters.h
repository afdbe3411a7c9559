/* test_drafters.h - what tests and `aerie bench` ask of a session beyond aerie.h: drafters of a known quality, and drafts that
 * are
 * always verified, and passes of another machine's times. Neither installed nor exported: programs that are linked with the
 * static library alone have it.
 */
#ifndef AE_SESSION_TEST_DRAFTERS_H
#define AE_SESSION_TEST_DRAFTERS_H

#include "aerie.h"

/* Drafters: further values of aerie_spec.type, for ae_session_create_for_test alone. */
#define AE_SPEC_ORACLE ((aerie_spec_type)1000) /* "oracle": knows the answers, errs at a given rate */
#define AE_SPEC_RANDOM ((aerie_spec_type)1001) /* "random": proposes anything */

typedef struct ae_session_test {
    bool fixed;         /* no controller: all that is drafted is verified */
    float oracle_error; /* ORACLE: probability that a drafted token is wrong, 0 to 1 */
    uint64_t seed;      /* ORACLE, RANDOM */
    double least_seconds, least_row_seconds; /* a pass of the target over n rows waits until the first and n - 1 of the second
                                              * are over; not the passes of what drafts for it */
} ae_session_test;

/* How the answer to a request goes on after its prompt. */
typedef struct ae_session_test_answer {
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
} ae_session_test_answer;

/* aerie_session_create with these; test NULL: all zeros. Errors also: ARGUMENT (an error rate out of range). */
aerie_status ae_session_create_for_test(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                        const ae_session_test *test, aerie_error *error);
/* ORACLE: answers [n] by the id of their request (its index in aerie_session_generate), lent until they are replaced or the
 * session is freed. Without an answer the oracle drafts nothing. The stepping thread, outside of callbacks. */
void ae_session_test_answers(aerie_session *session, const ae_session_test_answer *answers, size_t n);

/* As aerie_spec_type_name and aerie_spec_type_parse, for these drafters too. */
const char *ae_session_test_spec_name(aerie_spec_type type);
bool ae_session_test_spec_parse(const char *name, aerie_spec_type *type);
/* Name i of all of them; NULL after the last. */
const char *ae_session_test_spec_at(size_t i);

#endif
