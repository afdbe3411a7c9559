/* train_data.h - aerie train-data: what the training of a drafting head needs from its target, written by the target itself.
 *
 * Three steps, each resumable: what an interrupted run left is kept, a torn end is cut off, the rest follows.
 *   turns     user turns: the target continues its own chat template's user turn
 *   answers   the target answers prompts
 *   features  the answers run through the target once more: tapped hidden rows and the likeliest next tokens
 * The formats (JSON lines, and a binary file of features) are described in training/README.md.
 */
#ifndef AERIE_APP_TRAIN_DATA_H
#define AERIE_APP_TRAIN_DATA_H

#include "load.h"

/* ---- train_data.c: files of JSON lines -------------------------------------------------------------- */

/* Calls back with every line's object (borrowed) and its number from 1; a status other than APP_DONE ends it. */
typedef int app_line_callback(void *user, json_t *object, size_t line);
int app_records_read(const char *path, app_line_callback *callback, void *user);
/* The file to append lines to; what stands behind its last newline (an interrupted write) is cut off. */
int app_records_open(FILE **file, const char *path);
/* One line; the object is released. NULL (out of memory) is a failure. */
int app_records_write(FILE *file, const char *path, json_t *object);

/* Progress on standard error, now and then: "what: done of total, rate tokens/s". */
typedef struct app_progress_line {
    const char *what;
    size_t n_total, n_done, n_tokens;
    double start, said;
    bool quiet;
} app_progress_line;
void app_progress_say(app_progress_line *progress, bool last);

/* ---- train_features.c --------------------------------------------------------------------------------- */

int app_train_features(const app_models *models, const app_options *options, const char *answers);

#endif
