/* conversations_int.h - declarations that conversations.c and conversation_files.c share. */
#ifndef AERIE_APP_SERVE_MODELS_CONVERSATIONS_INT_H
#define AERIE_APP_SERVE_MODELS_CONVERSATIONS_INT_H

#include <pthread.h>

#include "serve/models/conversations.h"

#define SERVE_CONVERSATION_PATH 4096

typedef struct entry {
    struct entry *next;
    uint64_t scope;
    aerie_adapter_use adapters[AERIE_MAX_ADAPTERS]; /* [n_adapters] */
    size_t n_adapters;
    int32_t *tokens; /* [n] owned */
    size_t n;
    bool kept;       /* it was copied out of the KV cache */
    void *data;      /* [n_data] a saved sequence; NULL if it is only on disk, or not yet kept */
    size_t n_data;
    bool on_disk, writing, unwritable;
    uint32_t n_readers; /* threads that read `data` without the lock */
    uint64_t file_bytes;
    char name[40];   /* base name of its files; "" before it has any */
    uint64_t used;   /* by the clock of the list */
} entry;

struct serve_conversations {
    serve_conversation_limits limits;
    pthread_mutex_t lock;
    pthread_mutex_t returning; /* only one conversation is restored at a time, since each needs a copy; taken before `lock` */
    pthread_cond_t changed; /* signals that there may be something to write, or that the list is being closed */
    entry *first;
    aerie_saving *saving;   /* copies `saved`, one of these entries; NULL: no copy is running; used by the stepping thread
                             * only */
    entry *saved;
    uint64_t clock;
    size_t vain_cut;        /* restoring was useless for an entry that continued for this many tokens or more after the part
                             * shared with a request: the state
                             * of recurrent layers is that of its end, and windows hold its last positions. SIZE_MAX: has not
                             * happened */
    serve_conversation_figures figures;
    char folder[SERVE_CONVERSATION_PATH / 2]; /* of this model */
    pthread_t writer;
    bool has_writer, ending, disk_failed;
};

/* conversations.c */
/* Removes the entries that this one contains: earlier turns of the same conversation. Their files are removed only once this
 * entry has a file. */
void serve_conversation_forget_contained(serve_conversations *c, const entry *whole);
entry *serve_conversation_add(serve_conversations *c, const serve_conversation_key *key);

/* conversation_files.c */
bool serve_conversation_files_open(serve_conversations *c);
void serve_conversation_files_close(serve_conversations *c);
void serve_conversation_path(const serve_conversations *c, uint64_t scope, const char *name, const char *end,
                             char out[SERVE_CONVERSATION_PATH]);
/* Reads a whole file, which the caller frees. Returns NULL if it cannot be read. */
void *serve_conversation_read(const char *path, size_t *n);
/* Called under the lock; the entry stays. */
void serve_conversation_remove_file(serve_conversations *c, entry *e);

#endif
