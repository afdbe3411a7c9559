/* conversations.h - earlier conversations: what the KV cache held of them, kept in memory and in files.
 * The session's prefix tree drops the least recently used conversations when their pages are needed. This module keeps them
 * longer: as saved sequences (aerie_session_prefix_save) in memory (--cache-ram), and as files that outlive the server
 * (--cache-disk). If a request begins like one of them, the sequence is restored before the request runs. The result is the
 * same bytes as a computation would give, or nothing.
 * Owns the list of conversations of one model, its files, and the thread that writes them. Does not own the session.
 * Invariants: a conversation is found only by requests of its own scope and adapters, so no client can tell from timing what
 * another key has sent. Entries that are not yet copied belong to the stepping thread; all others to the holder of the lock.
 * Damaged files and files of another model are removed when they are found, and the prompt is computed.
 * Not kept: conversations with adapters on disk, because a file cannot name an adapter of a later run. */
#ifndef AERIE_APP_SERVE_MODELS_CONVERSATIONS_H
#define AERIE_APP_SERVE_MODELS_CONVERSATIONS_H

#include "aerie_extra.h"

#define SERVE_CONVERSATION_LEAST 128 /* in tokens: computing shorter ones again is as fast */

typedef struct serve_conversations serve_conversations;

typedef struct serve_conversation_limits {
    uint64_t ram, disk; /* limits in bytes; ram 0: nothing is kept; disk 0: limited only by the disk */
    const char *folder; /* NULL: no files */
    const char *model;  /* path of the model's file; other models have other folders */
} serve_conversation_limits;

typedef struct serve_conversation_figures {
    uint64_t n, ram_bytes, disk_bytes;
    uint64_t n_restored, n_restored_tokens; /* requests for which a conversation was restored; tokens that this added to the
                                             * cache */
    uint64_t n_noted;                       /* tokens of conversations that are still to be copied out of the KV cache */
    uint64_t n_damaged;                     /* files that could not be used */
} serve_conversation_figures;

/* Tokens, with the scope and adapters that they were computed with. tokens [n] and adapters [n_adapters] are borrowed. */
typedef struct serve_conversation_key {
    uint64_t scope;
    const aerie_adapter_use *adapters;
    size_t n_adapters;
    const int32_t *tokens;
    size_t n;
} serve_conversation_key;

/* Creates the list and finds the files of earlier runs. Returns NULL if memory is short or the thread could not be started. */
serve_conversations *serve_conversations_open(const serve_conversation_limits *limits);
/* Waits until everything is written that can be, then frees the list. NULL is allowed. */
void serve_conversations_close(serve_conversations *c);

/* Notes that a sequence has ended; serve_conversations_keep will copy it out of the KV cache. Stepping thread only. */
void serve_conversations_note(serve_conversations *c, const serve_conversation_key *key);
/* Called by the stepping thread between two steps. If noted sequences have more than n_most tokens, copies one of them out of
 * the cache for about this many seconds; the next call continues. Returns whether there is more to copy. */
bool serve_conversations_keep(serve_conversations *c, aerie_session *session, size_t n_most, double seconds);

/* A conversation that is restored for a request. Call in this order: find, wanted, prepare, restore until it returns false,
 * free. */
typedef struct serve_conversation_return serve_conversation_return;

/* Returns NULL if no kept conversation begins like this request. What the key points to is borrowed until the result is freed.
 * Any thread except the stepping one: it waits until another result has been freed. */
serve_conversation_return *serve_conversations_find(serve_conversations *c, const serve_conversation_key *key);
/* Returns whether the KV cache holds less of the conversation. Stepping thread only. */
bool serve_conversation_wanted(serve_conversation_return *r, aerie_session *session);
/* Reads the conversation's file if necessary, checks and copies it. Any thread. Returns false if it cannot be used. */
bool serve_conversation_prepare(serve_conversation_return *r, aerie_session *session);
/* Restores the conversation to the KV cache for about this many seconds. Returns true if more remains. Stepping thread only,
 * between two steps. */
bool serve_conversation_restore(serve_conversation_return *r, aerie_session *session, double seconds);
void serve_conversation_return_free(serve_conversation_return *r);
serve_conversation_figures serve_conversations_count(serve_conversations *c);

#endif
