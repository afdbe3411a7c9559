/* facts.h - facts about a model from its file, for lists of models; the model need not be loaded.
 * The header of the file is read when it is first needed, and again when the file has changed. Facts that a broken file lacks
 * are empty. */
#ifndef AERIE_APP_SERVE_MODELS_FACTS_H
#define AERIE_APP_SERVE_MODELS_FACTS_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

typedef struct serve_facts {
    char arch[48], license[64];
    char quantization[24]; /* such as "Q4_K_M"; if the file does not say it, the type of most of its weights */
    uint64_t n_params;
    char digest[65]; /* SHA-256 of the file if its name, or that of a link's target, contains it, as in the caches of ollama and
                      * Hugging Face; else
                      * the SHA-256 of its size and of 64 parts of it */
    struct timespec changed; /* of the file then, ... */
    off_t n_bytes;           /* ... and its size */
} serve_facts;

struct serve_model;
serve_facts serve_facts_get(struct serve_model *model);

#endif
