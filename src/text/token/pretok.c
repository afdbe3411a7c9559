/* pretok.c - runs the steps of a rule: scanners for the common patterns, PCRE2 for the rest.
 *
 * Each part passes all steps before the next part is cut, so only the position in each step is kept,
 * and calls nest as deep as there are steps. Patterns run in PCRE2's interpreter (its JIT has a
 * small stack of its own), whose frames are in heap memory, under a limit that grows with the
 * length of the part: enough for a linear match, far too little for a quadratic one.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "text/token/pretok_int.h"

static void *match_alloc(size_t bytes, void *context)
{
    (void)context;
    return ae_alloc(bytes, 1);
}

static void match_free(void *block, void *context)
{
    (void)context;
    ae_free(block);
}

static bool names_have(const char *names, const char *name, size_t n)
{
    for (const char *at = names; *at;) {
        size_t n_word = strcspn(at, " ");
        if (n_word == n && memcmp(at, name, n) == 0) return true;
        at += n_word;
        at += strspn(at, " ");
    }
    return false;
}

static aerie_status fail_unknown(const char *name, size_t n, aerie_error *error)
{
    char known[400];
    size_t n_known = 0;
    for (const ae_pretok_rule *r = ae_pretok_rules; r->names; r++) {
        size_t n_word = strcspn(r->names, " ");
        if (n_known + n_word + 3 > sizeof known) break;
        if (n_known) {
            memcpy(known + n_known, ", ", 2);
            n_known += 2;
        }
        memcpy(known + n_known, r->names, n_word);
        n_known += n_word;
    }
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                   "tokenizer.ggml.pre is \"%.*s\", which aerie does not know; families it knows: %.*s",
                   (int)(n > 40 ? 40 : n), name, (int)n_known, known);
}

static aerie_status compile(ae_pretok *pretok, int i_step, const char *pattern, aerie_error *error)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_general_context *general = pcre2_general_context_create(match_alloc, match_free, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (context) {
        pretok->code[i_step] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                                             &at, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (pretok->code[i_step]) {
        pretok->has_pattern = true;
        return AERIE_OK;
    }
    if (!context || code == PCRE2_ERROR_HEAP_FAILED) return ae_fail_memory(error, "a pre-tokenizer", strlen(pattern));
    return ae_fail(error, AERIE_ERROR_INTERNAL, "pre-tokenizer %s: PCRE2 refuses the pattern (error %d at %zu)",
                   ae_pretok_name(pretok), code, (size_t)at);
}

static aerie_status init(ae_pretok *pretok, const ae_pretok_rule *rule, bool oracle, aerie_error *error)
{
    *pretok = (ae_pretok){.rule = rule};
    for (int i = 0; i < AE_PRETOK_STEPS && rule->steps[i].kind != AE_STEP_END; i++) {
        if (rule->steps[i].kind != AE_STEP_PATTERN && !(oracle && rule->steps[i].pattern)) continue;
        aerie_status status = compile(pretok, i, rule->steps[i].pattern, error);
        if (status != AERIE_OK) {
            ae_pretok_free(pretok);
            return status;
        }
    }
    return AERIE_OK;
}

aerie_status ae_pretok_init(ae_pretok *pretok, const char *name, size_t n, aerie_error *error)
{
    for (const ae_pretok_rule *r = ae_pretok_rules; r->names; r++) {
        if (names_have(r->names, name, n)) return init(pretok, r, false, error);
    }
    return fail_unknown(name, n, error);
}

aerie_status ae_pretok_init_oracle(ae_pretok *pretok, const char *name, aerie_error *error)
{
    for (const ae_pretok_rule *r = ae_pretok_rules; r->names; r++) {
        if (!names_have(r->names, name, strlen(name))) continue;
        for (int i = 0; i < AE_PRETOK_STEPS; i++) {
            const ae_step *step = &r->steps[i];
            if (step->kind != AE_STEP_PATTERN && step->pattern) return init(pretok, r, true, error);
        }
    }
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "pre-tokenizer %s has no scanner with a pattern", name);
}

void ae_pretok_free(ae_pretok *pretok)
{
    for (int i = 0; i < AE_PRETOK_STEPS; i++) pcre2_code_free(pretok->code[i]);
    *pretok = (ae_pretok){0};
}

const char *ae_pretok_name(const ae_pretok *pretok)
{
    return pretok->rule ? pretok->rule->names : "";
}

bool ae_pretok_ignores_merges(const ae_pretok *pretok)
{
    return pretok->rule && (pretok->rule->flags & AE_RULE_IGNORE_MERGES);
}

bool ae_pretok_adds_bos(const ae_pretok *pretok)
{
    return pretok->rule && (pretok->rule->flags & AE_RULE_BOS);
}

typedef struct run {
    const ae_pretok *pretok;
    const char *text;    /* the text as given, for the scanners */
    const char *matched; /* the text made well-formed, for the patterns */
    ae_pretok_word *word;
    void *context;
    ae_pretok_memory *memory; /* NULL without patterns */
    aerie_error *error;
} run;

static aerie_status run_step(run *r, int i_step, size_t begin, size_t end);

/* Cuts text[begin, end) into the matches of the step's pattern and the parts between them. */
static aerie_status run_pattern(run *r, int i_step, size_t begin, size_t end)
{
    size_t n = end - begin, limit = 100000 + 64 * n;
    pcre2_match_data *data = r->memory->data[i_step];
    pcre2_set_match_limit(r->memory->limits, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    for (size_t pos = begin; pos < end;) {
        int rc = pcre2_match(r->pretok->code[i_step], (PCRE2_SPTR)r->matched + begin, n, pos - begin,
                             PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, r->memory->limits);
        if (rc == PCRE2_ERROR_NOMATCH) return run_step(r, i_step + 1, pos, end);
        if (rc == PCRE2_ERROR_NOMEMORY) return ae_fail_memory(r->error, "a pre-tokenizer's match", n);
        if (rc < 0) {
            return ae_fail(r->error, AERIE_ERROR_LIMIT,
                           "pre-tokenizer %s gives up on a stretch of %zu bytes (PCRE2 error %d)",
                           ae_pretok_name(r->pretok), n, rc);
        }
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(data);
        size_t from = begin + at[0], to = begin + at[1];
        if (from > pos) AE_TRY(run_step(r, i_step + 1, pos, from));
        AE_TRY(run_step(r, i_step + 1, from, to));
        pos = to;
    }
    return AERIE_OK;
}

/* Cuts the runs of digits in text[begin, end) into groups of three that end where the run ends. */
static aerie_status run_threes(run *r, int i_step, size_t begin, size_t end)
{
    const ae_threes which = (ae_threes)r->pretok->rule->steps[i_step].scan.threes;
    size_t cut = begin, pos = begin, n_digits, stop;
    for (size_t at; (at = ae_scan_threes(r->text, pos, end, which, &n_digits, &stop)) < end; pos = stop) {
        for (size_t i = 0; i < n_digits; i++) {
            uint32_t n;
            if ((n_digits - i) % 3 == 0 || (i == 0 && which != AE_THREES_BEFORE)) {
                if (at > cut) AE_TRY(run_step(r, i_step + 1, cut, at));
                cut = at;
            }
            ae_uni_class_at(r->text + at, end - at, &n);
            at += n;
        }
        if (which == AE_THREES_BEFORE) continue;
        AE_TRY(run_step(r, i_step + 1, cut, stop));
        cut = stop;
    }
    return cut < end ? run_step(r, i_step + 1, cut, end) : AERIE_OK;
}

static aerie_status run_step(run *r, int i_step, size_t begin, size_t end)
{
    const ae_step *step = i_step < AE_PRETOK_STEPS ? &r->pretok->rule->steps[i_step] : NULL;
    if (!step || step->kind == AE_STEP_END) return r->word(r->context, begin, end);
    if (r->pretok->code[i_step]) return run_pattern(r, i_step, begin, end);
    if (step->kind == AE_STEP_TRAILING) {
        size_t middle = ae_scan_trailing(r->text, begin, end);
        if (middle > begin) AE_TRY(run_step(r, i_step + 1, begin, middle));
        return middle < end ? run_step(r, i_step + 1, middle, end) : AERIE_OK;
    }
    if (step->kind == AE_STEP_THREES) return run_threes(r, i_step, begin, end);
    size_t clean = begin;
    for (size_t pos = begin, next; pos < end; pos = next) {
        switch (step->kind) {
        case AE_STEP_GPT2: next = ae_scan_gpt2(r->text, pos, end); break;
        case AE_STEP_LLAMA3: next = ae_scan_llama3(r->text, pos, end, &step->scan, &clean); break;
        case AE_STEP_CAMEL: next = ae_scan_camel(r->text, pos, end, &step->scan); break;
        case AE_STEP_LINES: next = ae_scan_lines(r->text, pos, end); break;
        case AE_STEP_NUMBERS: next = ae_scan_numbers(r->text, pos, end, step->scan.n_numbers); break;
        default: next = ae_scan_newlines(r->text, pos, end); break;
        }
        AE_ASSERT(next > pos && next <= end);
        AE_TRY(run_step(r, i_step + 1, pos, next));
    }
    return AERIE_OK;
}

/* Returns a copy in which each ill-formed byte is replaced by the control character 1, so that offsets stay the same; NULL: no
 * memory. */
static const char *well_formed(ae_buf *copy, const char *text, size_t n)
{
    ae_buf_clear(copy);
    ae_buf_add(copy, text, n);
    for (size_t i = 0; !copy->failed && i < n;) {
        uint32_t n_bytes;
        if (ae_uni_decode(text + i, n - i, &n_bytes) == AE_UNI_BAD) copy->data[i] = 1;
        i += n_bytes;
    }
    return copy->failed ? NULL : copy->data;
}

/* ---- Memory of the patterns --------------------------------------------------------------- */

/* Creates the PCRE2 objects that do not exist yet. Returns false if memory is short. */
static bool complete(ae_pretok_memory *m, const ae_pretok *pretok)
{
    if (!m->general) m->general = pcre2_general_context_create(match_alloc, match_free, NULL);
    if (m->general && !m->limits) m->limits = pcre2_match_context_create(m->general);
    bool ok = m->limits != NULL;
    for (int i = 0; ok && i < AE_PRETOK_STEPS; i++) {
        if (pretok->code[i] && !m->data[i]) ok = (m->data[i] = pcre2_match_data_create(1, m->general)) != NULL;
    }
    return ok;
}

void ae_pretok_memory_free(ae_pretok_memory *m)
{
    for (int i = 0; i < AE_PRETOK_STEPS; i++) pcre2_match_data_free(m->data[i]);
    pcre2_match_context_free(m->limits);
    pcre2_general_context_free(m->general);
    ae_buf_free(&m->copy);
    *m = (ae_pretok_memory){0};
}

static aerie_status no_word(void *context, size_t begin, size_t end)
{
    (void)context, (void)begin, (void)end;
    return AERIE_OK;
}

aerie_status ae_pretok_memory_reserve(ae_pretok_memory *memory, const ae_pretok *pretok, size_t n, aerie_error *error)
{
    static const char *const units[] = {"a", " ", "1", "!", "\n", "Aa ", "a1", "e\xcc\x81", "\xe4\xb8\xad", "\xff"};
    aerie_status status = AERIE_OK;
    ae_buf text = {0};
    if (!pretok->has_pattern) return AERIE_OK;
    for (size_t i = 0; status == AERIE_OK && i < sizeof units / sizeof *units; i++) {
        ae_buf_clear(&text);
        while (!text.failed && text.n < n) ae_buf_adds(&text, units[i]);
        status = text.failed ? ae_fail_memory(error, "a pre-tokenizer", n)
                             : ae_pretok_run(pretok, memory, text.data, text.n, no_word, NULL, error);
    }
    ae_buf_free(&text);
    return status;
}

aerie_status ae_pretok_run(const ae_pretok *pretok, ae_pretok_memory *memory, const char *text, size_t n,
                           ae_pretok_word *word, void *context, aerie_error *error)
{
    if (n == 0) return AERIE_OK;
    if (!pretok->rule) return word(context, 0, n);
    run r = {.pretok = pretok, .text = text, .matched = text, .word = word, .context = context, .error = error};
    if (!pretok->has_pattern) return run_step(&r, 0, 0, n);

    ae_pretok_memory own = {0};
    r.memory = memory ? memory : &own;
    if (!ae_uni_is_valid(text, n)) r.matched = well_formed(&r.memory->copy, text, n);
    aerie_status status = r.matched && complete(r.memory, pretok) ? run_step(&r, 0, 0, n)
                                                                  : ae_fail_memory(error, "a pre-tokenizer", n);
    if (r.memory->copy.failed) ae_buf_free(&r.memory->copy); /* only freeing clears a failure */
    ae_pretok_memory_free(&own);
    return status;
}
