/* rewrite_int.h - the state that rewrite.c and rows.c share. Private to src/convert/quantize. */
#ifndef AE_CONVERT_QUANTIZE_REWRITE_INT_H
#define AE_CONVERT_QUANTIZE_REWRITE_INT_H

#include "formats/gguf_write.h"
#include "convert/quantize/rewrite.h"
#include "convert/quantize/rule.h"

struct ae_rewrite {
    const ae_gguf *gguf;
    ae_rewrite_settings settings; /* the pointers in it are not used after ae_rewrite_begin */
    ae_mix_model model;
    ae_rewrite_tensor *tensors; /* [n_tensors] in the file's order */
    size_t n_tensors;
    size_t *rule_uses; /* [settings.n_rules] */
    uint64_t total;    /* bytes of all tensors as written */
    ae_gguf_writer *writer;
};

/* Fails with "<file>: tensor <name> <what>". */
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
aerie_status
ae_rewrite_fail(const ae_gguf *gguf, const ae_gguf_tensor *tensor, aerie_error *error, aerie_status status,
                const char *format, ...);

#endif
