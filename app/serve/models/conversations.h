/* conversations.h - conversations that come back: what the KV cache held of them, kept in memory and in files.
 *
 * The session's prefix tree forgets the conversations that have not been used for longest when their pages are needed. Here
 * they are kept beyond that: as saved sequences (aerie_session_prefix_save) in memory (--cache-ram), and as files that outlive
 * the server (--cache-disk). A request that begins as one of them gets it back before it runs: the same bytes as if they had
 * been computed, or nothing.
 *
 * Owns: the list of conversations of one model, its files, the thread that writes them. Does not own the session.
 * Invariants: a conversation is found only by requests of its own scope and adapters, so no client can tell by time what
 * another key has sent. Entries that are not yet copied belong to the stepping thread; all others to whoever holds the lock.
 * Files that are damaged, or of another model, are removed when that is found out, and the prompt is computed.
 * What is not kept: adapters' conversations on disk (a file cannot name an adapter of the next run).
 */
#ifndef AERIE_APP_SERVE_MODELS_CONVERSATIONS_H
#define AERIE_APP_SERVE_MODELS_CONVERSATIONS_H

#include "aerie_extra.h"

#define SERVE_CONVERSATION_LEAST 128 /* tokens: shorter ones are computed again as fast */

typedef struct serve_conversations serve_conversations;

typedef struct serve_conversation_limits {
    uint64_t ram, disk; /* bytes; ram 0: nothing is kept; disk 0: no limit but the disk's */
    const char *folder; /* NULL: no files */
    const char *model;  /* path of its file: files of other models lie in other folders */
} serve_conversation_limits;

typedef struct serve_conversation_figures {
    uint64_t n, ram_bytes, disk_bytes;
    uint64_t n_restored, n_restored_tokens; /* requests that got some back, and how many tokens the cache did not have before */
    uint64_t n_damaged;                     /* files that could not be used */
} serve_conversation_figures;

/* Tokens, and the scope and adapters that they were computed with. tokens [n] and adapters [n_adapters] are lent. */
typedef struct serve_conversation_key {
    uint64_t scope;
    const aerie_adapter_use *adapters;
    size_t n_adapters;
    const int32_t *tokens;
    size_t n;
} serve_conversation_key;

/* Creates the list and finds the files of earlier runs. NULL: no memory, or the thread could not be started. */
serve_conversations *serve_conversations_open(const serve_conversation_limits *limits);
/* Waits until everything that can be written has been written. NULL is allowed. */
void serve_conversations_close(serve_conversations *c);

/* Notes that a sequence has ended; a later serve_conversations_keep copies it out of the KV cache. Stepping thread. */
void serve_conversations_note(serve_conversations *c, const serve_conversation_key *key);
/* Between two steps: if noted sequences have more than n_most tokens, copies one of them out of the cache for about so many
 * seconds; the next call goes on with it. Returns whether there is more to copy. The stepping thread. */
bool serve_conversations_keep(serve_conversations *c, aerie_session *session, size_t n_most, double seconds);

/* A conversation that a request gets back. In this order: find, wanted, prepare, restore until it returns false, free. */
typedef struct serve_conversation_return serve_conversation_return;

/* Returns NULL if no kept conversation begins as this request does. What the key points to is lent until the return is freed.
 * Any thread but the stepping one: it waits until another return has been freed. */
serve_conversation_return *serve_conversations_find(serve_conversations *c, const serve_conversation_key *key);
/* Whether the KV cache holds less of it. The stepping thread. */
bool serve_conversation_wanted(serve_conversation_return *r, aerie_session *session);
/* Reads its file if necessary, checks and copies it. Any thread. Returns false if it cannot be used. */
bool serve_conversation_prepare(serve_conversation_return *r, aerie_session *session);
/* Puts it into the KV cache for about so many seconds. Returns true if there is more to do. The stepping thread, between two
 * steps. */
bool serve_conversation_restore(serve_conversation_return *r, aerie_session *session, double seconds);
void serve_conversation_return_free(serve_conversation_return *r);
serve_conversation_figures serve_conversations_count(serve_conversations *c);

#endif
