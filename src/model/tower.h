/* tower.h - a vision encoder with its projector (an "mmproj" file), bound and checked: keys, tensors, and what its type is.
 *
 * Owns: the file, its tables. Knows no device and no pixels; engine/tower/ runs it. A type is a row of data in tower_types.c;
 * a type that has no row is refused by name. Every tensor is checked against the keys, as a model's are.
 * Source: the files that llama.cpp's converters write (their keys and names), and the published models' code for what they
 * mean.
 */
#ifndef AE_MODEL_TOWER_H
#define AE_MODEL_TOWER_H

#include "model/model.h"

/* How patches become rows of the text's width: merge x merge patches of a token become one row, which goes through one matrix
 * or, with GELU between them, through two. */
typedef enum ae_tower_merge {
    AE_TOWER_POOL,    /* their mean */
    AE_TOWER_SHUFFLE, /* side by side: by row, column, channel */
    AE_TOWER_UNFOLD,  /* side by side: by channel, row, column */
} ae_tower_merge;

/* How a picture becomes what the encoder sees. */
typedef enum ae_tower_size {
    AE_TOWER_SQUARE, /* stretched to the encoder's square */
    AE_TOWER_TILES,  /* tiles of the encoder's square, after its longer side, and the whole picture once more */
    AE_TOWER_ANY,    /* its own sides, up to the longest one */
    AE_TOWER_SMART,  /* its own sides, within limits of tokens */
    AE_TOWER_BUDGET, /* as many tokens as a budget allows, its own ratio */
    AE_TOWER_GRID,   /* tiles of the encoder's square in the grid of the nearest ratio, and the whole picture once more */
    AE_TOWER_GRID_SMART, /* SMART, or where that would lose much GRID with the whole picture as SMART has it */
} ae_tower_size;

/* Learned positions that join the patches. */
typedef enum ae_tower_positions {
    AE_TOWER_POS_NONE,
    AE_TOWER_POS_TABLE,     /* one for each patch of the square */
    AE_TOWER_POS_ALIGNED,   /* a square table, bilinear, corners aligned */
    AE_TOWER_POS_ANTIALIAS, /* a square table, bilinear with antialiasing, corners not aligned */
    AE_TOWER_POS_AXES,      /* two tables, of columns and of rows, added */
} ae_tower_positions;

/* What turns queries and keys: half of a head's pairs with the row, half with the column. */
typedef enum ae_tower_turn {
    AE_TOWER_TURN_NONE,
    AE_TOWER_TURN_SHARED, /* pairs (2i, 2i + 1); one series of frequencies for both halves together */
    AE_TOWER_TURN_YX,     /* pairs (i, i + half); a series for each, the row first */
    AE_TOWER_TURN_XY,     /* pairs within each half of the head, the column first */
} ae_tower_turn;

typedef struct ae_tower_type {
    const char *name; /* as in clip.projector_type */
    ae_tower_size size;
    ae_tower_merge merge;
    ae_tower_positions positions;
    ae_tower_turn turn;
    float turn_base;
    const char *merge_key; /* of clip.vision: patches of a token's side */
    uint32_t n_merge;      /* where the file says nothing */
    uint32_t n_least, n_most; /* SMART, BUDGET: tokens of a picture */
    bool bicubic, lanczos;   /* neither: bilinear */
    bool rms, gated;         /* norms and feed-forward blocks */
    bool frames;             /* patches have a second kernel, of a second frame: a still picture is both */
    bool cls;                /* a row of its own before the patches */
    bool windows;            /* most blocks see windows only (n_wa_pattern) */
    bool unit;               /* pixels are -1 to 1 whatever the keys say */
    bool clamped;            /* products may have bounds, beside their weights */
    bool head_norms;         /* queries and keys are normed by head with weights, values without; scores are not scaled */
    bool bare;               /* no blocks: patches of merge x merge patches' side are normed, and that is all */
    bool group;              /* rows of a picture see each other in the text model */
    bool deep;               /* blocks may have rows for the text's first layers (v.deepstack) */
    bool grid;               /* rows of a picture rotate by line and column in a text model that can */
    /* of the projector; NULL: there is none */
    const char *patch_norm;  /* RMS of each patch */
    const char *norm;        /* of merged rows; "": without weights */
    bool norm_layer, norm_optional; /* the layer norm, with a bias and an epsilon of 1e-5; it may be missing */
    const char *merger;      /* a matrix before the others, where patches are merged */
    const char *project, *project2;
    const char *begin, *end; /* text around the rows of a picture */
    const char *placeholder[2]; /* what a chat template writes where a picture is: one of them */
} ae_tower_type;

/* Bounds of a product's input and result; all as they are: -INFINITY, INFINITY. */
typedef struct ae_tower_clamp {
    float in_least, in_most, out_least, out_most;
    bool set;
} ae_tower_clamp;

enum { AE_TOWER_Q, AE_TOWER_K, AE_TOWER_V, AE_TOWER_O, AE_TOWER_GATE, AE_TOWER_UP, AE_TOWER_DOWN, AE_TOWER_PRODUCTS };

/* What a block has beside its layer. */
typedef struct ae_tower_block {
    ae_tensor_ref scale[2]; /* [n_embd] of what attention and feed-forward block add, or NULL */
    ae_tensor_ref out_scale; /* [n_embd] of the stream after the block, or NULL */
    ae_tower_clamp clamp[AE_TOWER_PRODUCTS];
    bool windowed;
    /* rows of the picture's tokens that join the text after its layer number i_deep; deep_norm NULL: none */
    ae_tensor_ref deep_norm, deep_norm_b, deep_1, deep_1_b, deep_2, deep_2_b; /* [side] x 2, [side, side], [side], [n_out, side]
                                                                               * .. with side = merge * merge * n_embd */
    uint32_t i_deep;
} ae_tower_block;

#define AE_TOWER_DEEP 16 /* blocks with deep rows, at most */

typedef struct ae_tower_model {
    ae_gguf *gguf;    /* owned */
    ae_arena arena;
    const ae_tower_type *type;
    ae_hparams hparams; /* of the encoder: widths, epsilon; n_vocab is 0 */
    ae_layer *layers;   /* [hparams.n_layers] */
    ae_tower_block *blocks; /* [hparams.n_layers] */
    uint32_t image_size, patch, merge, longest; /* pixels, pixels, patches, pixels (AE_TOWER_TILES; 0: image_size) */
    uint32_t n_least, n_most;  /* tokens of a picture, where the type has limits */
    uint32_t tiles_least, tiles_most;
    uint32_t window;    /* tokens of a window's side */
    uint32_t n_out;     /* width of the text model */
    uint32_t n_deep;    /* blocks with deep rows: a token's row is [1 + n_deep][n_out] */
    uint32_t n_positions; /* rows of a table; of AXES those of one of the two */
    uint32_t n_mid;     /* width between two matrices of the projector */
    float mean[3], std[3];
    ae_gguf_tensor patch_view, frame_view; /* the kernels as [n_embd][3 * patch * patch] */
    ae_tensor_ref patch_bias;  /* [n_embd], or NULL */
    ae_tensor_ref cls;         /* [n_embd] */
    ae_tensor_ref positions;   /* [n_positions][n_embd]; AXES: two of them; or NULL */
    ae_tensor_ref pre_norm, pre_norm_b, post_norm, post_norm_b; /* [n_embd], or NULL */
    ae_tensor_ref bare_norm[3], bare_norm_b[3]; /* of pixels [3 * patch * patch], then of
                                                 * products and of their sums with positions [n_embd] */
    ae_tensor_ref patch_norm;  /* [n_embd] */
    ae_tensor_ref norm, norm_b; /* [merged width] */
    ae_tensor_ref std_bias, std_scale; /* [n_embd] of pooled rows, or NULL */
    ae_tensor_ref merger;      /* [n_embd, merge * merge * n_embd], or NULL */
    ae_tensor_ref project, project_b;   /* [n_mid or n_out, in] ("gemma3": [in, n_out]), bias or NULL */
    ae_tensor_ref project2, project2_b; /* [n_out, n_mid], or NULL */
    ae_tower_clamp clamp;      /* of project */
    ae_tensor_ref row_break;   /* [n_out] the row that ends each line of tokens but the last, or NULL */
} ae_tower_model;

/* Errors: those of ae_gguf_open; UNSUPPORTED for a file without a vision encoder or of a type that is not known (named, with
 * the known); FORMAT for keys and tensors. index_only: tensors have no data in memory. */
aerie_status ae_tower_model_load(ae_tower_model **out, const char *path, bool index_only, aerie_error *error);
/* The same of an open file, which it takes over, also on failure. */
aerie_status ae_tower_model_bind(ae_tower_model **out, ae_gguf *gguf, aerie_error *error);
void ae_tower_model_free(ae_tower_model *model);

/* Limits of a picture's tokens that a user gives, 0: those of the type. ARGUMENT: the type has no limits (its pictures have one
 * size), or these contradict each other or go beyond 16,384. */
aerie_status ae_tower_model_limit(ae_tower_model *model, uint32_t n_least, uint32_t n_most, aerie_error *error);

/* tower_types.c. NULL: unknown. */
const ae_tower_type *ae_tower_type_find(const char *name, size_t n);
/* "gemma3, idefics3, ..." */
const char *ae_tower_known(void);

#endif
