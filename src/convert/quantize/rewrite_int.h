/* rewrite_int.h - the state that rewrite.c and rows.c share. Private to src/convert/quantize. */
#ifndef AE_CONVERT_QUANTIZE_REWRITE_INT_H
#define AE_CONVERT_QUANTIZE_REWRITE_INT_H

#include "formats/gguf_write.h"
#include "convert/quantize/rewrite.h"
#include "base/mem.h"

/* prune.c: which layers are left out. All zero: none. */
typedef struct ae_prune {
    const uint32_t *out; /* [n] ascending */
    size_t n;
    uint32_t n_layers;   /* of the file that is read */
    char arch[64];
} ae_prune;

/* Reads the number of layers. Errors: ARGUMENT (a layer that the file lacks; all layers), FORMAT. */
aerie_status ae_prune_read(ae_prune *p, const ae_gguf *gguf, const uint32_t *out, size_t n, aerie_error *error);
/* *name: the tensor's name in the file that is read, and then in the new one. Returns false if the tensor is left out, and also
 * if memory is short, with *failed. */
bool ae_prune_name(const ae_prune *p, ae_arena *arena, ae_gguf_string *name, bool *failed);
/* Writes a key that has a number for each layer, or counts layers; *done: it was one of these. */
aerie_status ae_prune_key(const ae_prune *p, ae_gguf_writer *writer, const ae_gguf_kv *kv, bool *done, aerie_error *error);
/* Compares the layers that stay with those of the new model, whose files are parts[n_parts]. ARGUMENT: they compute something
 * else. *checked: false if the model is of a kind that cannot be loaded here. */
aerie_status ae_prune_check(const ae_prune *p, const char *path, const char *const *parts, uint32_t n_parts, bool *checked,
                            aerie_error *error);

struct ae_rewrite {
    const ae_gguf *gguf;
    ae_rewrite_settings settings; /* the pointers in it are not used after ae_rewrite_begin */
    ae_mix_model model;
    ae_rewrite_tensor *tensors; /* [n_tensors] in the file's order */
    size_t n_tensors;
    size_t *rule_uses; /* [settings.n_rules] */
    uint64_t total;    /* bytes of all tensors as written */
    ae_gguf_writer **writers; /* [n_writers], one for each new file */
    uint32_t n_writers;
    uint32_t *part_of; /* [number of files that are read] the new file that gets the tensors of each */
    ae_gguf_writer *writer; /* of the current tensor */
    ae_prune layers;
    bool checked; /* the layers that stayed were compared */
    ae_arena arena; /* new names of tensors and keys */
};

/* Fails with "<file>: tensor <name> <what>". */
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
aerie_status
ae_rewrite_fail(const ae_gguf *gguf, const ae_gguf_tensor *tensor, aerie_error *error, aerie_status status,
                const char *format, ...);

#endif
