/* fetch.h - one text or one file over HTTP.
 *
 * Owns: the transfer, its retries and its resumption, the check of size and hash, the file's move to its final name.
 * Invariants: a final name never shows anything but a whole file whose hash was compared, or, where nobody knows the hash,
 * whose length and GGUF tables fit; a body whose length nobody tells is not read beyond the end that its tables tell; bytes
 * that are not complete lie in a hidden part file whose name says what they are a part of, so that they are never continued
 * with those of another file.
 * Does not own: which file it is (source.h), locks and folders (store.h).
 */
#ifndef AERIE_APP_PULL_FETCH_H
#define AERIE_APP_PULL_FETCH_H

#include "shared/app.h"

typedef struct fetch_settings {
    const char *token;      /* Bearer token, sent to the first host only; NULL: none */
    uint32_t stall_seconds; /* without a byte: the transfer is broken off, and tried again */
    uint32_t n_retries;     /* in a row that bring no new bytes */
    bool quiet, verbose;
} fetch_settings;

#define FETCH_MAX_ETAG 256

typedef struct fetch_file {
    const char *url, *path;    /* path: the final name */
    uint64_t bytes;            /* 0: unknown; set to what it is */
    char sha256[65];           /* "": unknown; set to what it is */
    char etag[FETCH_MAX_ETAG]; /* of the file that lies at path, "": unknown; set to the new one's */
    bool present;              /* a file exists at path: it is fetched only if the server's ETag differs */
} fetch_file;

/* Whether the program can: it was built with libcurl. */
bool fetch_possible(void);

/* accept: the media type, may be NULL. *next: the address of the next page, released by free; may be NULL. */
int fetch_text(app_text *out, char **next, const char *url, const char *accept, const fetch_settings *settings);
/* Returns the bytes of a file of known hash that an earlier call left, with which the next one goes on. */
uint64_t fetch_bytes_kept(const fetch_file *file);
int fetch_file_get(fetch_file *file, const fetch_settings *settings);

#endif
