/* pretok_match.c - finds the known pre-tokenizer that cuts text as the expressions of a tokenizer.json do.
 *
 * The same expression can be spelled in many ways, so expressions are not compared: both are run on a probe text, and their
 * cuts are compared. The probe has the texts that the known rules cut differently: digits in runs of one to five, contractions
 * in both cases, words in camel case, marks, scripts without spaces, punctuation before line ends and slashes, and runs of each
 * kind of white space.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/token/pretok_int.h"

static const char probe[] =
    "Hello world, it's WE'LL I'M don't 'twas 's x'S\n\n  camelCase HTTPServer ABCdef Ab aB 1 12 123 1234 12345 a1b22c333 3.14"
    "\t\tif (x == y) {\r\n  return foo->bar[3]; // done\n}\n/path/to/file.txt/\n !!!\n/// ... --- $5.00 +1 <= => ^~ `code` 100%"
    "   \n \t\n  trailing   spaces   \xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c"
    "abc\xe4\xb8\xad"
    "12\xe3\x81\xb2\xe3\x82\x89"
    "\xe3\x82\xab\xe3\x83\x8a \xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 e\xcc\x81"
    "ecole "
    "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\x82\xe0\xa4\xa6\xe0\xa5\x80 \xd9\xa3\xd9\xa4\xd9\xa5 \xc2\xbd \xe2\x85\xa7 na\xc3\xafve "
    "\xf0\x9f\x98\x80\xf0\x9f\x8e\x89 "
    "\xc3\x89"
    "COLE \xc7\x85x \xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c(a)(b) 're'VE 'D #tag @at &amp; \xe2\x82\xac"
    "5 x\xc2\xb2\n\n\n\nEnd  ";

enum { MAX_WORDS = 1024 };

typedef struct cuts {
    size_t end[MAX_WORDS];
    size_t n;
} cuts;

static aerie_status add_cut(void *context, size_t begin, size_t end)
{
    cuts *c = context;
    (void)begin;
    if (c->n < MAX_WORDS) c->end[c->n++] = end;
    return AERIE_OK;
}

/* Cuts each piece of `in` into the matches of the expression and the gaps between them. False if PCRE2 fails. */
static bool cut_by(const char *pattern, const cuts *in, cuts *out)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_match_data *data = re ? pcre2_match_data_create_from_pattern(re, NULL) : NULL;
    bool ok = data != NULL;
    out->n = 0;
    for (size_t i = 0, begin = 0; i < in->n && ok; begin = in->end[i++]) {
        for (size_t pos = begin; pos < in->end[i];) {
            const int rc =
                pcre2_match(re, (PCRE2_SPTR)probe + begin, in->end[i] - begin, pos - begin, PCRE2_NOTEMPTY, data, NULL);
            ok = rc > 0 || rc == PCRE2_ERROR_NOMATCH;
            const PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
            const size_t from = rc > 0 ? begin + v[0] : in->end[i], to = rc > 0 ? begin + v[1] : in->end[i];
            if (from > pos) add_cut(out, pos, from);
            if (to > from) add_cut(out, from, to);
            pos = ok ? to : in->end[i];
        }
    }
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    return ok;
}

const char *ae_pretok_match(const char *const *patterns, size_t n, bool ignore_merges)
{
    cuts ours[2] = {{.end = {sizeof probe - 1}, .n = 1}, {.n = 0}}, theirs;
    for (size_t i = 0; i < n; i++)
        if (!cut_by(patterns[i], &ours[i % 2], &ours[1 - i % 2])) return NULL;
    const cuts *cut = &ours[n % 2];
    for (const ae_pretok_rule *r = ae_pretok_rules; r->names; r++) {
        ae_pretok pretok;
        const size_t n_name = strcspn(r->names, " ");
        theirs.n = 0;
        if (((r->flags & AE_RULE_IGNORE_MERGES) != 0) != ignore_merges) continue;
        if (ae_pretok_init(&pretok, r->names, n_name, NULL) != AERIE_OK) return NULL;
        const aerie_status status = ae_pretok_run(&pretok, NULL, probe, sizeof probe - 1, add_cut, &theirs, NULL);
        ae_pretok_free(&pretok);
        if (status == AERIE_OK && theirs.n == cut->n && memcmp(theirs.end, cut->end, cut->n * sizeof *cut->end) == 0)
            return r->names;
    }
    return NULL;
}
