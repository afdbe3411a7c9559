/* tower.h - a vision encoder with its projector (an "mmproj" file), bound and checked: keys, tensors, and what its type is.
 *
 * Owns: the file, its tables. Knows no device and no pixels; engine/tower.c runs it. A type is a row of data in tower.c; a type
 * that has no row is refused by name. Every tensor is checked against the keys, as a model's are.
 * Source: the files that llama.cpp's converters write (their keys and names), and the published models' code for what they
 * mean.
 */
#ifndef AE_MODEL_TOWER_H
#define AE_MODEL_TOWER_H

#include "model/model.h"

/* How patches become rows of the text's width. */
typedef enum ae_tower_merge {
    AE_TOWER_POOL,    /* the mean of merge x merge patches, normed, times one matrix */
    AE_TOWER_SHUFFLE, /* merge x merge patches side by side (by row, column, channel), times one matrix */
    AE_TOWER_UNFOLD,  /* each patch normed, merge x merge of them side by side (by channel, row,
                                                                                column) times one matrix, then a
                       * second block: GELU between two matrices. Without merging only that */
} ae_tower_merge;

/* How a picture becomes what the encoder sees. */
typedef enum ae_tower_size {
    AE_TOWER_SQUARE, /* stretched to the encoder's square */
    AE_TOWER_TILES,  /* tiles of the encoder's square, and the whole picture once more */
    AE_TOWER_ANY,    /* its own sides, up to the longest one */
} ae_tower_size;

typedef struct ae_tower_type {
    const char *name; /* as in clip.projector_type */
    ae_tower_size size;
    ae_tower_merge merge;
    uint32_t n_merge;     /* patches of a token's side where the file says nothing */
    bool bicubic, lanczos; /* neither: bilinear */
    bool rms, gated;      /* norms and feed-forward blocks */
    bool group;           /* rows of a picture see each other in the text model */
    const char *begin, *end; /* text around the rows of a picture */
    const char *placeholder; /* what a chat template writes where a picture is */
} ae_tower_type;

typedef struct ae_tower_model {
    ae_gguf *gguf;    /* owned */
    ae_arena arena;
    const ae_tower_type *type;
    ae_hparams hparams; /* of the encoder: widths, epsilon; n_vocab is 0 */
    ae_layer *layers;   /* [hparams.n_layers] */
    uint32_t image_size, patch, merge, longest; /* pixels, pixels, patches, pixels (AE_TOWER_TILES; 0: image_size) */
    uint32_t n_out;     /* width of the text model */
    uint32_t n_positions;
    float mean[3], std[3];
    ae_gguf_tensor patch_view; /* the kernel as [n_embd][3 * patch * patch] */
    ae_tensor_ref patch_bias;  /* [n_embd], or NULL */
    ae_tensor_ref positions;   /* [n_positions][n_embd], or NULL: positions turn queries and keys */
    ae_tensor_ref pre_norm, pre_norm_b, post_norm, post_norm_b; /* [n_embd], or NULL */
    ae_tensor_ref in_norm;     /* [n_embd] AE_TOWER_POOL, UNFOLD: before the projector */
    ae_tensor_ref merger;      /* UNFOLD: [n_embd, merge * merge * n_embd], or NULL */
    ae_tensor_ref project, project_b;   /* POOL [n_embd][n_out] (by input); SHUFFLE, UNFOLD [n_out, in], bias or NULL */
    ae_tensor_ref project2, project2_b; /* UNFOLD [n_out, n_out] */
    ae_tensor_ref row_break;   /* [n_out] UNFOLD: the row that ends each line of tokens but the last, or NULL */
} ae_tower_model;

/* Errors: those of ae_gguf_open; UNSUPPORTED for a file without a vision encoder or of a type that is not known (named, with
 * the known); FORMAT for keys and tensors. index_only: tensors have no data in memory. */
aerie_status ae_tower_model_load(ae_tower_model **out, const char *path, bool index_only, aerie_error *error);
/* The same of an open file, which it takes over, also on failure. */
aerie_status ae_tower_model_bind(ae_tower_model **out, ae_gguf *gguf, aerie_error *error);
void ae_tower_model_free(ae_tower_model *model);

/* "gemma3, idefics3, ..." */
const char *ae_tower_known(void);

#endif
