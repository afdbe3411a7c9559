/* rule.h - internal to src/quant: regular expressions over tensor names. */
#ifndef AE_CONVERT_QUANTIZE_RULE_H
#define AE_CONVERT_QUANTIZE_RULE_H

#include "convert/quantize/rewrite.h"

typedef struct ae_rules {
    struct ae_rule_code *codes; /* [n] */
    size_t n;
} ae_rules;

/* Errors: ARGUMENT (which pattern, where and why), MEMORY. To be freed in any case. */
aerie_status ae_rules_compile(ae_rules *rules, const ae_rewrite_rule *from, size_t n, aerie_error *error);
void ae_rules_free(ae_rules *rules);
/* Index of the first that matches the name, or n. Errors: ARGUMENT (a pattern that takes too long), MEMORY. */
aerie_status ae_rules_first(ae_rules *rules, ae_gguf_string name, size_t *first, aerie_error *error);

#endif
