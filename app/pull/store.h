/* store.h - the folder of pulled models.
 *   ROOT/hf/OWNER/REPO/...          as in the repository
 *   ROOT/ollama/OWNER/NAME/...
 *   ROOT/url/HOST/ID/...
 * Owns the location of ROOT, the lock of a model's folder, the record of what a reference meant when it was last pulled
 * (hidden,
 * JSON), listing and removing. Invariant: a record names only files that were complete under their names when it was written;
 * it is removed before one of them is replaced or removed. */
#ifndef AERIE_APP_PULL_STORE_H
#define AERIE_APP_PULL_STORE_H

#include <limits.h>

#include "pull/source.h"

/* Writes ROOT. Returns false if there is none (then out is "") or its path is too long. */
bool store_root(char out[PATH_MAX], const app_options *options);

typedef struct store_place {
    char *folder; /* owned */
    char *record; /* owned; its path */
    int lock;     /* -1: not taken */
} store_place;

/* Finds where the reference's files belong, without creating anything. plan: its folder must be set. */
int store_place_find(store_place *place, const source_plan *plan, const char *reference, const app_options *options);
/* Creates the folder and takes its lock, which may take as long as another pull; Ctrl-C ends the wait. */
int store_place_lock(store_place *place, bool quiet);
/* Removes the locked folder and those above it if they contain no record, and releases the lock. */
void store_place_clear(store_place *place);
void store_place_free(store_place *place);

/* Returns the path of one of the plan's files, which the caller frees; NULL: out of memory. */
char *store_path(const store_place *place, const char *path);
/* Reads files, sizes, hashes and ETags from the record. Returns false if there is none, or if it does not match the files. */
bool store_record_read(const store_place *place, source_plan *plan);
int store_record_write(const store_place *place, const char *reference, const source_plan *plan);
void store_record_remove(const store_place *place);

/* A record, and the model's folder that it belongs to. */
typedef struct store_entry {
    store_place place; /* without a lock */
    char *source;      /* the reference; owned */
    source_plan plan;  /* its files */
    bool whole;        /* all of them are there */
    double pulled;     /* seconds since 1970 */
} store_entry;

typedef struct store_entries {
    store_entry *items; /* [n], by source */
    size_t n, capacity;
} store_entries;

/* folder: that of a model, or NULL for all. A folder that does not exist has no records. */
int store_list(store_entries *entries, const char *folder, const app_options *options);
void store_list_free(store_entries *entries);

#endif
