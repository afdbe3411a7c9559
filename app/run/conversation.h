/* conversation.h - the messages of a chat, and their files.
 *
 * Owns: the messages. Invariant: only the first one may be a system message; a turn is a message that is not the assistant's
 * and what follows it up to the next such message. Functions that return bool have said what is wrong, except for lack of
 * memory in those that say nothing of files.
 */
#ifndef AERIE_APP_CONVERSATION_H
#define AERIE_APP_CONVERSATION_H

#include <sys/types.h>
#include <time.h>

#include "shared/app.h"

typedef struct app_conversation {
    aerie_message *messages; /* [n], contents owned, roles static */
    size_t n, capacity;
} app_conversation;

bool app_conversation_insert(app_conversation *c, size_t at, const char *role, const char *content, size_t n);
/* Forgets n messages from `at` on. */
void app_conversation_drop(app_conversation *c, size_t at, size_t n);
void app_conversation_free(app_conversation *c);
/* Where the turns begin: after the system message, if there is one. */
size_t app_conversation_first(const app_conversation *c);
size_t app_conversation_turns(const app_conversation *c);
/* The message at which turn i begins, or the number of messages. */
size_t app_conversation_turn(const app_conversation *c, size_t i);

/* The file of the last save: it may be written again while nobody else has changed it. All zero: none. */
typedef struct app_saved {
    char *path;
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified;
} app_saved;

/* Writes [{"role", "content"}, ...] to a new file; `force` also replaces another one. */
bool app_conversation_save(const app_conversation *c, const char *path, bool force, app_saved *saved);
/* Replaces the conversation by the one in a file; leaves it alone when that is wrong. */
bool app_conversation_load(app_conversation *c, const char *path);

/* A whole regular file of at most `limit` bytes of UTF-8 without NUL bytes, added to the text. */
bool app_text_read(app_text *text, const char *path, size_t limit);

#endif
