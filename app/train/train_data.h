/* train_data.h - aerie train-data: generates the data for training a drafter head with its target.
 * Three steps, each resumable: the output of an interrupted run stays, without its incomplete end, and the rest is added.
 *   turns     user turns: the target continues its own chat template's user turn
 *   answers   the target answers prompts; with --features, the same passes also write the output of the next step
 *   features  the answers run through the target again, for tapped hidden rows and the likeliest next tokens
 * training/README.md describes the formats (JSON lines, and a binary file of features). */
#ifndef AERIE_APP_TRAIN_DATA_H
#define AERIE_APP_TRAIN_DATA_H

#include "setup/load.h"

/* ---- train_data.c: files of JSON lines -------------------------------------------------------------- */

/* Called with the object of every line (borrowed) and its number from 1; a status other than APP_DONE ends the reading. */
typedef int app_line_callback(void *user, json_t *object, size_t line);
int app_records_read(const char *path, app_line_callback *callback, void *user);

/* Prints progress on standard error from time to time: "what: done of total, rate tokens/s". */
typedef struct app_progress_line {
    const char *what;
    size_t n_total, n_done, n_tokens;
    double start, said;
    bool quiet;
} app_progress_line;
void app_progress_say(app_progress_line *progress, bool last);

/* ---- train_record.c: the file of features ------------------------------------------------------------ */

enum { APP_MAX_ID = 1024 }; /* most bytes of a conversation's id */

typedef struct app_feature_header {
    char magic[8]; /* "AEFEAT01" */
    uint32_t n_embd, n_taps, n_likely, n_vocab;
    uint32_t taps[AERIE_MAX_TAPS]; /* indices of layers whose input, the residual stream, is exported */
    uint32_t zero[2];
} app_feature_header;

typedef struct app_feature_file {
    const char *path;
    app_feature_header header;
    FILE *out;
    json_t *done; /* ids of the records in the file */
} app_feature_file;

/* The rows of a conversation's positions; freed by app_feature_rows_free. */
typedef struct app_feature_rows {
    size_t capacity;    /* positions */
    int32_t *likely;    /* [n_tokens][n_likely] */
    float *log_p;       /* [n_tokens][n_likely] */
    uint16_t *features; /* f16 [n_tokens][n_taps][n_embd] */
} app_feature_rows;

/* Sets the taps in a session's parameters: those of the options, or the default ones. */
int app_feature_taps(const app_models *models, const app_options *options, aerie_session_params *params);
/* Opens the file after its last whole record, or begins it. Must be closed even after a failure. */
int app_feature_open(app_feature_file *file, const char *path, const app_models *models, const app_options *options,
                     const aerie_session_params *params);
int app_feature_close(app_feature_file *file);
int app_feature_reserve(const app_feature_file *file, app_feature_rows *rows, size_t n_tokens);
/* Stores the row of one position, for which there is room. */
void app_feature_row(const app_feature_file *file, app_feature_rows *rows, size_t position, const float *logits,
                     const float *features);
int app_feature_write(app_feature_file *file, const app_feature_rows *rows, const char *id, const int32_t *tokens,
                      size_t n_tokens, size_t n_prompt);
void app_feature_rows_free(app_feature_rows *rows);

/* ---- train_features.c --------------------------------------------------------------------------------- */

int app_train_features(const app_models *models, const app_options *options, const char *answers);

#endif
