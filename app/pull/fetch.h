/* fetch.h - fetches one text or one file over HTTP.
 * Owns the transfer, its retries and its resumption, the check of size and hash, and the renaming of the file.
 * Invariants: under its final name there is only a complete file whose hash was compared, or, if the hash is unknown, whose
 * length and GGUF tables agree. A body of unknown length is not read beyond the end that its tables give. Incomplete bytes are
 * in a hidden part file whose name says which file they belong to, so they are never continued with bytes of another file.
 * Does not own the choice of the file (source.h), or locks and folders (store.h). */
#ifndef AERIE_APP_PULL_FETCH_H
#define AERIE_APP_PULL_FETCH_H

#include "shared/app.h"

typedef struct fetch_settings {
    const char *token;      /* bearer token, sent only to the first host; NULL: none */
    uint32_t stall_seconds; /* seconds without a byte after which the transfer is stopped and tried again */
    uint32_t n_retries;     /* most retries in a row without new bytes */
    bool quiet, verbose;
} fetch_settings;

#define FETCH_MAX_ETAG 256

typedef struct fetch_file {
    const char *url, *path;    /* path: the final name */
    uint64_t bytes;            /* 0: unknown; set to the actual size */
    char sha256[65];           /* "": unknown; set to the actual hash */
    char etag[FETCH_MAX_ETAG]; /* ETag of the file at path, "": unknown; set to the new one */
    bool present;              /* a file exists at path, so it is fetched only if the server's ETag differs */
} fetch_file;

/* Returns whether the program was built with libcurl. */
bool fetch_possible(void);

/* accept: the media type, or NULL. *next (may be NULL): the address of the next page, which the caller frees. */
int fetch_text(app_text *out, char **next, const char *url, const char *accept, const fetch_settings *settings);
/* Returns how many bytes an earlier call left of a file of known hash; the next call continues after them. */
uint64_t fetch_bytes_kept(const fetch_file *file);
int fetch_file_get(fetch_file *file, const fetch_settings *settings);

#endif
