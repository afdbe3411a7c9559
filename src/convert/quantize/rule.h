/* rule.h - regular expressions over tensor names. Private to src/convert/quantize. */
#ifndef AE_CONVERT_QUANTIZE_RULE_H
#define AE_CONVERT_QUANTIZE_RULE_H

#include "convert/quantize/rewrite.h"

typedef struct ae_rules {
    struct ae_rule_code *codes; /* [n] */
    size_t n;
} ae_rules;

/* Errors: ARGUMENT (which pattern, where and why), MEMORY. *rules has to be freed in any case. */
aerie_status ae_rules_compile(ae_rules *rules, const ae_rewrite_rule *from, size_t n, aerie_error *error);
void ae_rules_free(ae_rules *rules);
/* Finds the first rule that matches the name; *first is its index, or n. Errors: ARGUMENT (a pattern takes too long),
 * MEMORY. */
aerie_status ae_rules_first(ae_rules *rules, ae_gguf_string name, size_t *first, aerie_error *error);

#endif
