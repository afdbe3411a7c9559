/* caches.h - the models that other programs keep on this machine: ollama's store and Hugging Face's cache. Owns where they are,
 * how they are laid out, and the lists of what they have. Only reads them. */
#ifndef AERIE_APP_PULL_CACHES_H
#define AERIE_APP_PULL_CACHES_H

#include "pull/store.h"

/* Writes the path of the i-th folder in which ollama may keep models. Returns false if there are no more. */
bool cache_ollama_folder(size_t i, char out[PATH_MAX]);
/* Finds the blob of the only file of weights in a manifest. Returns false if there is none, or if it is missing. */
bool cache_ollama_blob(const char *folder, const char *manifest, char out[PATH_MAX]);

bool cache_hf_folder(char out[PATH_MAX]);
/* Parses "models--OWNER--REPO". Returns false if the folder has another name. */
bool cache_hf_repo(const char *folder, char owner[128], char repo[128]);
/* Finds the snapshot of a repository's folder that `main` names, else the newest one. */
bool cache_hf_snapshot(const char *repo, char out[PATH_MAX]);
/* Lists the GGUF files of a snapshot. Returns false if memory is short. */
bool cache_hf_files(source_plan *files, const char *snapshot);

/* Lists the models that name_find finds there, by name: `source` is the name, `pulled` the time of the file. */
int cache_ollama_list(store_entries *entries);
int cache_hf_list(store_entries *entries);

#endif
