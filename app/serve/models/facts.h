/* facts.h - what the file of a model says of it, whether or not the model is loaded: for lists of models.
 *
 * The head of the file is read when it is first asked for, and again when the file has changed. What a broken file does not
 * tell is empty.
 */
#ifndef AERIE_APP_SERVE_MODELS_FACTS_H
#define AERIE_APP_SERVE_MODELS_FACTS_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

typedef struct serve_facts {
    char arch[48], license[64];
    char quantization[24]; /* "Q4_K_M"; where the file does not say it, the type that holds most weights */
    uint64_t n_params;
    char digest[65]; /* SHA-256 of the file where its name or that of what it is a link to says it, as in the caches of ollama
                      * and Hugging Face; else of its size and of 64 parts of it */
    struct timespec changed; /* of the file then, ... */
    off_t n_bytes;           /* ... and its size */
} serve_facts;

struct serve_model;
serve_facts serve_facts_get(struct serve_model *model);

#endif
