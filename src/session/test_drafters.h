/* test_drafters.h - what tests and `aerie bench` need from a session beyond aerie.h: drafters of a known quality, drafts that
 * are always verified, and passes with another machine's times. Not installed and not exported: only programs linked with the
 * static library have it.
 */
#ifndef AE_SESSION_TEST_DRAFTERS_H
#define AE_SESSION_TEST_DRAFTERS_H

#include "aerie.h"

/* Further values of aerie_spec.type, for ae_session_create_for_test only. */
#define AE_SPEC_ORACLE ((aerie_spec_type)1000) /* "oracle": knows the answers, and errs at a given rate */
#define AE_SPEC_RANDOM ((aerie_spec_type)1001) /* "random": proposes random tokens */

typedef struct ae_session_test {
    bool fixed;         /* without the controller: everything that is drafted is verified */
    float oracle_error; /* ORACLE: probability that a drafted token is wrong, 0 to 1 */
    uint64_t seed;      /* ORACLE, RANDOM */
    double least_seconds, least_row_seconds; /* a pass of the target over n rows lasts at least least_seconds + (n - 1) *
                                              * least_row_seconds; a drafter's passes are not slowed */
    double share[3];    /* seconds of a pass, a row and an attended position in a shared pass; all 0: as measured */
} ae_session_test;

/* The tokens with which the answer to a request continues its prompt. */
typedef struct ae_session_test_answer {
    const int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
} ae_session_test_answer;

/* Creates a session as aerie_session_create does. test NULL: all fields zero. A further error is ARGUMENT: an error rate out of
 * range. */
aerie_status ae_session_create_for_test(aerie_session **session, const aerie_model *model, const aerie_session_params *params,
                                        const ae_session_test *test, aerie_error *error);
/* ORACLE: sets the answers [n] by request id (its index in aerie_session_generate). They are lent until they are replaced or
 * the session is freed. Without an answer the oracle drafts nothing. Called by the stepping thread, outside of callbacks. */
void ae_session_test_answers(aerie_session *session, const ae_session_test_answer *answers, size_t n);

/* Like aerie_spec_type_name and aerie_spec_type_parse, but including these drafters. */
const char *ae_session_test_spec_name(aerie_spec_type type);
bool ae_session_test_spec_parse(const char *name, aerie_spec_type *type);
/* Returns the i-th of all names; NULL after the last one. */
const char *ae_session_test_spec_at(size_t i);

#endif
