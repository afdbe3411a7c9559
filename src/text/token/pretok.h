/* pretok.h - cuts text into the words within which byte-level BPE merges.
 *
 * Owns: the rules of each `tokenizer.ggml.pre`, and the compiled patterns of the rules that need them.
 * A rule is a list of steps; each step cuts every part that the step before it left, and sees only
 * that part (look-ahead ends at its end), as a Sequence of Splits does in Hugging Face tokenizers.
 * Invariant: the words joined are the text, whatever bytes it holds. Ill-formed bytes count as
 * control characters, one each.
 */
#ifndef AE_TEXT_PRETOK_H
#define AE_TEXT_PRETOK_H

#include "base/mem.h"

enum { AE_PRETOK_STEPS = 6 };

typedef struct ae_pretok {
    const struct ae_pretok_rule *rule; /* NULL: the text is one word */
    void *code[AE_PRETOK_STEPS];       /* pcre2_code of the steps that are patterns */
    bool has_pattern;
} ae_pretok;

/* Called for each word in order; text[begin, end) is never empty. A failure ends the run. */
typedef aerie_status ae_pretok_word(void *context, size_t begin, size_t end);

/* Errors: UNSUPPORTED (unknown name; the message lists the known ones), MEMORY. */
aerie_status ae_pretok_init(ae_pretok *pretok, const char *name, size_t n, aerie_error *error);
void ae_pretok_free(ae_pretok *pretok);
const char *ae_pretok_name(const ae_pretok *pretok); /* the family's name */
bool ae_pretok_ignores_merges(const ae_pretok *pretok);
bool ae_pretok_adds_bos(const ae_pretok *pretok);

/* Working memory of one ae_pretok's patterns. Zero-initialise. */
typedef struct ae_pretok_memory {
    void *general, *limits;      /* pcre2_general_context, pcre2_match_context */
    void *data[AE_PRETOK_STEPS]; /* pcre2_match_data, which keeps the frames of its matches */
    ae_buf copy;                 /* a well-formed copy of an ill-formed text */
} ae_pretok_memory;

/* Reserves memory for texts of n bytes by running sample texts. The size of PCRE2's frames depends on the text, so some texts
 * may need more. */
aerie_status ae_pretok_memory_reserve(ae_pretok_memory *memory, const ae_pretok *pretok, size_t n, aerie_error *error);
void ae_pretok_memory_free(ae_pretok_memory *memory);

/* Cuts text[0..n). Stack bounded; time linear in n. memory NULL: allocated for this call. Errors: the callback's, MEMORY,
 * LIMIT. */
aerie_status ae_pretok_run(const ae_pretok *pretok, ae_pretok_memory *memory, const char *text, size_t n,
                           ae_pretok_word *word, void *context, aerie_error *error);

/* Returns the names of the known rule that cuts text as the expressions [n] do, or NULL. Each expression cuts every piece that
 * the one before it left. Names are separated by spaces; the first names the family. ignore_merges: words that are tokens are
 * not merged. */
const char *ae_pretok_match(const char *const *patterns, size_t n, bool ignore_merges);

/* For tests: the rule of `name` with the scanner of its last step replaced by the pattern that it
 * implements. Errors: ARGUMENT if it has none, else those of ae_pretok_init. */
aerie_status ae_pretok_init_oracle(ae_pretok *pretok, const char *name, aerie_error *error);

#endif
