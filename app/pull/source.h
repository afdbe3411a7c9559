/* source.h - resolves a reference to a model on the network: its files, their addresses, their sizes and hashes.
 *   hf:OWNER/REPO[:QUANT]      the file with that quantization in a Hugging Face repository
 *   hf:OWNER/REPO/FILE.gguf    that file of the repository
 *   ollama:NAME[:TAG]          a model in ollama's registry; NAME may be OWNER/NAME
 *   http://... https://...     a file
 * Owns the syntax, the two services' lists of files, and the choice among them. A name from the network becomes a path only if
 * each part of it is a plain name. */
#ifndef AERIE_APP_PULL_SOURCE_H
#define AERIE_APP_PULL_SOURCE_H

#include "cli/options.h"
#include "pull/fetch.h"

typedef struct source_file {
    char *url, *path; /* path: relative to the folder, with '/' between its parts */
    uint64_t bytes;   /* 0: unknown */
    char sha256[65];  /* "": unknown */
    char etag[FETCH_MAX_ETAG];
    bool optional;     /* a drafter or vision encoder that the user did not ask for */
    const char *wrong; /* why the service's entry is invalid, in static storage; NULL: it is valid */
} source_file;

typedef struct source_plan {
    char *folder;       /* folder relative to ROOT (store.h), such as "hf/OWNER/REPO" */
    source_file *files; /* [n]; the first is the model, or the first part of a split model */
    size_t n, capacity;
} source_plan;

/* Returns whether the text is a reference, not a path. */
bool source_is_remote(const char *text);
/* Determines only the folder, without the network. Prints a message if the reference is malformed. */
int source_folder(source_plan *plan, const char *reference, const app_options *options);
/* Asks the service for the files. */
int source_resolve(source_plan *plan, const char *reference, const app_options *options, const fetch_settings *settings);
/* Returns the token that may be sent to the source, or NULL. */
const char *source_token(const char *reference, const app_options *options);
/* Returns the file that a quantization means in a list of paths; "": the default choice, or NULL. Borrowed from the list, which
 * it sorts. */
const source_file *source_choose(source_plan *files, const char *quant);
/* Returns whether the name is a model's, and not that of a later part, a drafter or a vision encoder. */
bool source_is_model(const char *path);
void source_free(source_plan *plan);
/* Returns whether each part of the path is a plain name: not "..", not hidden, no control character. */
bool source_path_is_plain(const char *path);

#endif
