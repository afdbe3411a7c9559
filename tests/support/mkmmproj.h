/* mkmmproj.h - tiny random vision encoders (mmproj files) of every type that aerie knows, of F32 weights.
 *
 * Same arguments, same bytes, on every machine. The shapes are such that a broken rule shows: heads of 24 of a width of 48, a
 * feed-forward width that is not a multiple of 32, pictures of 4 x 4 tokens. */
#ifndef AE_TEST_MKMMPROJ_H
#define AE_TEST_MKMMPROJ_H

#include "base/err.h"

/* type: "gemma3", "gemma4v", "gemma4uv", "idefics3", "internvl", "lfm2", "pixtral", "pixtral-merge", "qwen2vl", "qwen2.5vl",
 * "qwen3vl" (rows that join two layers of the text), "qwen35" (none that do). n_out: width of the text model. ARGUMENT: no
 * such type. */
aerie_status mkmmproj_write(const char *type, uint32_t n_out, const char *path, aerie_error *error);

#endif
