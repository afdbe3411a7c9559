/* source.h - what a reference to a model on the network means: which files, where they lie, what they must be.
 *
 *   hf:OWNER/REPO[:QUANT]      the file of that quantization in a Hugging Face repository
 *   hf:OWNER/REPO/FILE.gguf    that file of it
 *   ollama:NAME[:TAG]          a model of ollama's registry; NAME may be OWNER/NAME
 *   http://... https://...     a file
 *
 * Owns: the syntax, the two services' lists of files, the choice among them. Names that come from the network become
 * paths only if every part of them is a plain name.
 */
#ifndef AERIE_APP_PULL_SOURCE_H
#define AERIE_APP_PULL_SOURCE_H

#include "cli/options.h"
#include "pull/fetch.h"

typedef struct source_file {
    char *url, *path; /* path: below the folder, with '/' between its parts */
    uint64_t bytes;   /* 0: unknown */
    char sha256[65];  /* "": unknown */
    char etag[FETCH_MAX_ETAG];
    bool optional;     /* a drafter or vision encoder that nobody asked for */
    const char *wrong; /* why the service's entry is invalid, static; NULL: it is valid */
} source_file;

typedef struct source_plan {
    char *folder;       /* folder below ROOT (store.h), such as "hf/OWNER/REPO" */
    source_file *files; /* [n]; the first is the model's, or the first of a split model's */
    size_t n, capacity;
} source_plan;

/* Whether the text is a reference and not a path. */
bool source_is_remote(const char *text);
/* The folder alone: needs no network. Prints a message for a malformed reference. */
int source_folder(source_plan *plan, const char *reference, const app_options *options);
/* Asks the service which files they are. */
int source_resolve(source_plan *plan, const char *reference, const app_options *options, const fetch_settings *settings);
/* Returns the token that may be shown to the source, or NULL. */
const char *source_token(const char *reference, const app_options *options);
/* Returns the file of a list of paths that a quantization means, "" the usual ones; NULL: there is none. Lent from the list,
 * which it sorts. */
const source_file *source_choose(source_plan *files, const char *quant);
void source_free(source_plan *plan);
/* Whether every part of the path is a plain name: no "..", nothing hidden, no control character. */
bool source_path_is_plain(const char *path);

#endif
