/* speed.h - what the files of aerie bench speed share: tests and their measurements.
 * Owns the data structures: speed.c measures, speed_formats.c prints as llama-bench does. */
#ifndef AERIE_APP_SPEED_H
#define AERIE_APP_SPEED_H

#include "bench/bench.h"

/* A prompt of n_prompt tokens after n_depth others, then n_gen generated tokens. If both are given, they are timed together. */
typedef struct speed_test {
    uint32_t n_threads, n_batch, n_ubatch, n_depth, n_prompt, n_gen;
    char time[24];     /* when it began, UTC, in ISO 8601 */
    app_samples rates; /* tokens per second, in order of measurement */
} speed_test;

/* Writes "pp512", "tg128" or "pp512+tg128 @ d4096". */
const char *speed_test_name(const speed_test *test, char out[64]);

/* ---- speed_formats.c ---- */

typedef enum speed_format { SPEED_TABLE, SPEED_CSV, SPEED_JSON, SPEED_JSONL, SPEED_MD, SPEED_SQL } speed_format;

/* Parses the format's name; NULL means SPEED_TABLE. */
int speed_format_parse(const char *text, speed_format *format);

/* Prints the tests one after another, in any format but SPEED_TABLE. */
typedef struct speed_printer {
    speed_format format;
    const app_options *options;
    const app_models *models;
    char type[16];
    uint64_t tensor_bytes;
    json_t *tests; /* SPEED_JSON: printed at the end; owned */
    bool begun;
} speed_printer;

int speed_print_test(speed_printer *printer, const speed_test *test);
/* Prints the end of the output. */
int speed_print_end(speed_printer *printer);
void speed_printer_free(speed_printer *printer);

#endif
