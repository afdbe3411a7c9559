/* pretok.h - cuts text into the words within which byte-level BPE merges.
 *
 * Owns: the rules of each `tokenizer.ggml.pre`, and the compiled patterns of those that need them.
 * A rule is a list of steps; each step cuts every part that the one before it left, and sees that
 * part alone (look-ahead ends at its end), as a Sequence of Splits does in Hugging Face tokenizers.
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

/* Where the words go; text[begin, end) is never empty. */
typedef aerie_status ae_pretok_word(void *context, size_t begin, size_t end);

/* Errors: UNSUPPORTED (name unknown; lists the known), MEMORY. */
aerie_status ae_pretok_init(ae_pretok *pretok, const char *name, size_t n, aerie_error *error);
void ae_pretok_free(ae_pretok *pretok);
const char *ae_pretok_name(const ae_pretok *pretok); /* of the family */
bool ae_pretok_ignores_merges(const ae_pretok *pretok);
bool ae_pretok_adds_bos(const ae_pretok *pretok);

/* What patterns need while they run. Zero-initialise; of one ae_pretok only. */
typedef struct ae_pretok_memory {
    void *general, *limits;      /* pcre2_general_context, pcre2_match_context */
    void *data[AE_PRETOK_STEPS]; /* pcre2_match_data, which keeps the frames of its matches */
    ae_buf copy;                 /* of an ill-formed text */
} ae_pretok_memory;

/* All that texts of n bytes take, as far as trying some can tell (frames depend on the text). */
aerie_status ae_pretok_memory_reserve(ae_pretok_memory *memory, const ae_pretok *pretok, size_t n, aerie_error *error);
void ae_pretok_memory_free(ae_pretok_memory *memory);

/* Stack bounded; time linear in n. memory NULL: that of this call only. Errors: the callback's, MEMORY, LIMIT. */
aerie_status ae_pretok_run(const ae_pretok *pretok, ae_pretok_memory *memory, const char *text, size_t n,
                           ae_pretok_word *word, void *context, aerie_error *error);

/* The names of the rule that cuts text as these expressions do, each cutting every piece that the one before it left; with
 * spaces between, the first names the family. ignore_merges: words that are tokens are not merged. NULL: none is known. */
const char *ae_pretok_match(const char *const *patterns, size_t n, bool ignore_merges);

/* For tests: the rule of `name` with the scanner of its last step replaced by the pattern that it
 * stands for. ARGUMENT if it has none. */
aerie_status ae_pretok_init_oracle(ae_pretok *pretok, const char *name, aerie_error *error);

#endif
