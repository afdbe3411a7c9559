/* tower.h - a vision encoder with its projector (an "mmproj" file), bound and checked: keys, tensors and its type.
 *
 * Owns: the file and its tables. Knows nothing of devices and pixels; engine/tower/ runs it. A type is a row of data in
 * tower_types.c; a type without a row is refused by name. Every tensor is checked against the keys, as a model's tensors are.
 * Source: the files that llama.cpp's converters write (their keys and names), and the published models' code for their meaning.
 */
#ifndef AE_MODEL_TOWER_H
#define AE_MODEL_TOWER_H

#include "model/model.h"

/* How patches become rows of the text model's width: the merge x merge patches of a token become one row, which goes through
 * one matrix, or through two with GELU between them. */
typedef enum ae_tower_merge {
    AE_TOWER_POOL,    /* their mean */
    AE_TOWER_SHUFFLE, /* side by side: by row, column, channel */
    AE_TOWER_UNFOLD,  /* side by side: by channel, row, column */
} ae_tower_merge;

/* How a picture is resized and cut for the encoder. */
typedef enum ae_tower_size {
    AE_TOWER_SQUARE, /* stretched to the encoder's square */
    /* put in the middle of a square of one colour, which is resized to the encoder's square; or, if the file has grids,
     * stretched to that square, and once more cut into tiles of it in the grid that wastes least, with black around it */
    AE_TOWER_PAD,
    /* the longer side is resized, then cut into tiles of the encoder's square; the whole picture is added as one more view */
    AE_TOWER_TILES,
    AE_TOWER_ANY,    /* keeps its own sides, up to the longest one */
    AE_TOWER_SMART,  /* keeps its own sides, with limits on the number of tokens */
    AE_TOWER_FIT,    /* keeps its own sides, reduced to a limit, with black at the right and bottom up to whole tokens */
    AE_TOWER_BUDGET, /* keeps its own ratio, with as many tokens as a budget allows */
    /* tiles of the encoder's square, in the grid with the nearest ratio; the whole picture is added as one more view */
    AE_TOWER_GRID,
    AE_TOWER_GRID_SMART, /* as SMART; if that would lose too much, as GRID, with the whole picture as SMART resizes it */
    /* the whole picture in its own ratio, with about the pixels of the encoder's square, and larger ones also in up to nine
     * slices */
    AE_TOWER_SLICES,
} ae_tower_size;

/* Learned positions that are added to the patches. */
typedef enum ae_tower_positions {
    AE_TOWER_POS_NONE,
    AE_TOWER_POS_TABLE,     /* a table with a row for each patch of the square */
    AE_TOWER_POS_ALIGNED,   /* a square table, bilinear, corners aligned */
    AE_TOWER_POS_BILINEAR,  /* a square table, bilinear, corners not aligned */
    AE_TOWER_POS_BICUBIC,   /* a square table, bicubic (a = -0.75), corners not aligned */
    AE_TOWER_POS_ANTIALIAS, /* a square table, bilinear with antialiasing, corners not aligned */
    AE_TOWER_POS_AXES,      /* two tables, of columns and of rows, added */
    AE_TOWER_POS_BUCKETS,   /* a square table, of which the nearest place above and to the left is taken */
} ae_tower_positions;

/* How queries and keys rotate: half of a head's pairs by the row, half by the column. */
typedef enum ae_tower_turn {
    AE_TOWER_TURN_NONE,
    AE_TOWER_TURN_SHARED, /* pairs (2i, 2i + 1); both halves share one series of frequencies */
    AE_TOWER_TURN_YX,     /* pairs (i, i + half); each half has the whole series, the row's half comes first */
    AE_TOWER_TURN_XY,     /* pairs within each half of the head, the column's half comes first */
    AE_TOWER_TURN_HALVES, /* pairs (2i, 2i + 1); each half has the whole series, the column's half comes first */
    AE_TOWER_TURN_MIXED,  /* pairs (2i, 2i + 1), rotated alternately by the column and by the row */
} ae_tower_turn;

/* What SMART does first with a picture that is narrower or lower than a token. */
typedef enum ae_tower_small {
    AE_TOWER_SMALL_KEEP,  /* nothing: the side may be rounded to 0 before the limits are checked */
    AE_TOWER_SMALL_FLOOR, /* nothing, but a side is at least a token */
    AE_TOWER_SMALL_BOTH,  /* both sides grow by the same factor, rounded down */
    AE_TOWER_SMALL_EACH,  /* the height grows to a token, then the width; the other side is rounded each time */
} ae_tower_small;

typedef struct ae_tower_type {
    const char *name; /* as in clip.projector_type */
    ae_tower_size size;
    ae_tower_merge merge;
    ae_tower_positions positions;
    ae_tower_turn turn;
    float turn_base;
    const char *merge_key; /* key of clip.vision with the patches per side of a token; NULL: it is always n_merge */
    uint32_t n_merge;      /* the default */
    uint32_t n_least, n_most; /* SMART, FIT, BUDGET: least and most tokens of a picture */
    ae_tower_small small;
    bool pixel_keys;         /* the file's keys image_min_pixels and image_max_pixels are limits too */
    uint8_t colour[3];       /* PAD: of the square */
    bool bicubic, lanczos;   /* neither: bilinear */
    bool rms, gated;         /* RMS norms; gated feed-forward blocks */
    bool frames;             /* patches have a second kernel, for a second frame; a still picture is used for both frames */
    bool cls;                /* there is one more row before the patches */
    bool cls_optional;       /* only if the file has it */
    bool last_but_one;       /* the last block of the published encoder is not used */
    bool positions_optional; /* files without learned positions have none */
    bool start_norm;         /* patches may be normed before positions are added (v.norm_embd) */
    bool windows;            /* most blocks see windows only (n_wa_pattern) */
    bool unit;               /* pixels are in -1 to 1, whatever the keys say */
    bool clamped;            /* products may have bounds, stored beside their weights */
    /* heads of queries and keys are normed with weights, those of values without; scores are not scaled */
    bool head_norms;
    bool bare;               /* there are no blocks: pieces as large as merge x merge patches are normed and projected */
    bool group;              /* rows of a picture see each other in the text model */
    bool deep;               /* blocks may have rows that are added after the text model's first layers (v.deepstack) */
    bool grid;               /* rows of a picture rotate by line and column, if the text model supports that */
    /* names of the projector's tensors; NULL: there is no such tensor */
    const char *post_norm;   /* norm after the last block; NULL: v.post_ln */
    const char *patch_norm;  /* norm of each patch */
    float patch_eps;         /* 0: an RMS norm with the file's epsilon; else a layer norm with a bias and this epsilon */
    const char *norm;        /* norm of merged rows; "": without weights */
    bool norm_layer, norm_optional; /* whether it is a layer norm with a bias and an epsilon of 1e-5; whether it may be
                                     * missing */
    const char *merger;      /* a matrix that comes first and merges patches */
    bool merger_kernel;      /* it is a kernel [n_out][n_embd][merge][merge] with a bias */
    const char *project, *project2;
    bool resampler;          /* a fixed number of queries attend to the patches in place of a merge (ae_tower_resampler) */
    bool gated_project;      /* after `project` a layer norm (mm.post_norm), GELU and a gated block (mm.gate, mm.up, mm.down) */
    const char *begin, *end; /* text before and after the rows of a picture */
    const char *placeholder[2]; /* what chat templates write for a picture: either of these */
} ae_tower_type;

/* Bounds of a product's input and result; -INFINITY and INFINITY: no bounds. */
typedef struct ae_tower_clamp {
    float in_least, in_most, out_least, out_most;
    bool set;
} ae_tower_clamp;

enum { AE_TOWER_Q, AE_TOWER_K, AE_TOWER_V, AE_TOWER_O, AE_TOWER_GATE, AE_TOWER_UP, AE_TOWER_DOWN, AE_TOWER_PRODUCTS };

/* The parts of a block that ae_layer does not have. */
typedef struct ae_tower_block {
    ae_tensor_ref scale[2]; /* [n_embd] factors of the outputs of attention and feed-forward block; or NULL */
    ae_tensor_ref out_scale; /* [n_embd] factors of the stream after the block; or NULL */
    ae_tower_clamp clamp[AE_TOWER_PRODUCTS];
    bool windowed;
    /* rows that are added to the text model's stream after its layer i_deep; deep_norm NULL: none */
    ae_tensor_ref deep_norm, deep_norm_b, deep_1, deep_1_b, deep_2, deep_2_b; /* [side] x 2, [side, side], [side], [n_out, side]
                                                                               * .. with side = merge * merge * n_embd */
    uint32_t i_deep;
} ae_tower_block;

/* A projector whose queries attend to the patches, with heads of AE_TOWER_HEAD elements; o is the text model's width. */
typedef struct ae_tower_resampler {
    ae_tensor_ref query;            /* [n_query][o] */
    ae_tensor_ref narrow;           /* [o, n_embd] what patches are multiplied with before they are normed */
    ae_tensor_ref norm[3], norm_b[3]; /* [o] of queries, of patches, of the result */
    ae_tensor_ref w[4], b[4];       /* [o, o] and [o]: queries, keys, values, output */
} ae_tower_resampler;

#define AE_TOWER_HEAD 128
#define AE_TOWER_GRIDS 64   /* most grids of a file */
#define AE_TOWER_FEATURES 8 /* most blocks whose outputs are projected */
#define AE_TOWER_DEEP 16 /* most blocks with deep rows */

typedef struct ae_tower_model {
    ae_gguf *gguf;    /* owned */
    ae_arena arena;
    const ae_tower_type *type;
    ae_hparams hparams; /* hyper-parameters of the encoder: widths, epsilon; n_vocab is 0 */
    ae_layer *layers;   /* [hparams.n_layers] */
    ae_tower_block *blocks; /* [hparams.n_layers] */
    /* image_size in pixels, patch in pixels, merge in patches, longest in pixels (AE_TOWER_TILES; 0: image_size) */
    uint32_t image_size, patch, merge, longest;
    uint32_t n_cls;            /* rows before the patches: 0 or 1 */
    uint32_t n_least, n_most;  /* least and most tokens of a picture, if the type has limits */
    double least_pixels, most_pixels; /* the same limits in pixels; the file's own limits need not be whole tokens */
    uint32_t tiles_least, tiles_most;
    uint32_t window;    /* tokens per side of a window */
    uint32_t n_out;     /* the text model's width */
    uint32_t n_deep;    /* blocks with deep rows; a token has [1 + n_deep][n_out] values */
    uint32_t n_positions; /* rows of a table; AXES: rows of each of the two */
    uint32_t n_mid;     /* width between the projector's two matrices */
    uint32_t n_gated;   /* width of the projector's gated block; 0: there is none */
    uint32_t n_query;   /* rows of a view, if its type has a resampler; else 0 */
    uint32_t n_grids, grids[AE_TOWER_GRIDS][2]; /* PAD: columns and rows of tiles that a picture may be cut into */
    bool unpad;         /* the tiles' rows come line by line of the picture, without what shows black alone, and with newline */
    /* the outputs of so many blocks lie side by side in a row that is projected: of block features[i] - 1, 0: what comes before
     * the first block; 1: of the last block alone */
    uint32_t n_features, features[AE_TOWER_FEATURES];
    bool nested;        /* SLICES: the text around slices is that of MiniCPM-V 2.5 */
    ae_tower_resampler resampler;
    float mean[3], std[3];
    ae_gguf_tensor patch_view, frame_view; /* the kernels, seen as matrices [n_embd][3 * patch * patch] */
    ae_gguf_tensor merger_view;            /* `merger` if it is a kernel, seen as a matrix */
    ae_tensor_ref patch_bias;  /* [n_embd], or NULL */
    ae_tensor_ref cls;         /* [n_embd] */
    ae_tensor_ref positions;   /* [n_positions][n_embd], AXES: two of these; or NULL */
    ae_tensor_ref start_norm, start_norm_b, pre_norm, pre_norm_b, post_norm, post_norm_b; /* [n_embd], or NULL */
    ae_tensor_ref bare_norm[3], bare_norm_b[3]; /* norms of pixels [3 * patch * patch], of the products [n_embd], and of the
                                                 * products plus positions [n_embd] */
    ae_tensor_ref patch_norm, patch_norm_b; /* [n_embd], or NULL */
    ae_tensor_ref norm, norm_b; /* [merged width] */
    ae_tensor_ref std_bias, std_scale; /* [n_embd] x 2 that standardise pooled rows; or NULL */
    ae_tensor_ref merger, merger_b; /* [n_embd, merge * merge * n_embd] (a kernel: [n_out, ..]), or NULL; [n_out], or NULL */
    ae_tensor_ref gated_norm, gated_norm_b; /* [n_out], or NULL */
    ae_tensor_ref gated[3], gated_b[3];     /* gate and up [n_gated, n_out], down [n_out, n_gated], or NULL; biases, or NULL */
    ae_tensor_ref project, project_b;   /* [n_mid or n_out, in] ("gemma3": [in, n_out]), bias or NULL */
    ae_tensor_ref project2, project2_b; /* [n_out, n_mid], or NULL */
    ae_tower_clamp clamp;      /* bounds of `project` */
    ae_tensor_ref newline;     /* [n_out] the row after each line of tiles, if `unpad` */
    ae_tensor_ref row_break;   /* [n_out] the row that follows each line of tokens except the last; or NULL */
} ae_tower_model;

/* Errors: those of ae_gguf_open; UNSUPPORTED: a file without a vision encoder, or of an unknown type (the message names it and
 * the known types); FORMAT: keys and tensors. index_only: tensors have no data in memory. */
aerie_status ae_tower_model_load(ae_tower_model **out, const char *path, bool index_only, aerie_error *error);
/* The same for an open file. Takes ownership of the file, also on failure. */
aerie_status ae_tower_model_bind(ae_tower_model **out, ae_gguf *gguf, aerie_error *error);
void ae_tower_model_free(ae_tower_model *model);

/* Sets a user's limits on the number of tokens of a picture; 0: the type's own. ARGUMENT: the type has no limits (its pictures
 * have one size), or the limits contradict each other or exceed 16,384. */
aerie_status ae_tower_model_limit(ae_tower_model *model, uint32_t n_least, uint32_t n_most, aerie_error *error);

/* tower_types.c: finds a type by name; NULL if it is unknown. */
const ae_tower_type *ae_tower_type_find(const char *name, size_t n);
/* Returns the names of all types, as in "gemma3, idefics3, ...". */
const char *ae_tower_known(void);

#endif
