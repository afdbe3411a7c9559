/* conversation.h - the messages of a chat with their pictures, and their files.
 * Owns the messages and pictures. Invariants: only the first message may be a system message; a turn is a message that is
 * not the assistant's, with all that follows up to the next such message. Functions that return bool print a message on
 * failure, except for lack of memory in those that do not handle files. */
#ifndef AERIE_APP_CONVERSATION_H
#define AERIE_APP_CONVERSATION_H

#include <sys/types.h>
#include <time.h>

#include "aerie_extra.h"
#include "shared/app.h"

/* A picture in a message. */
typedef struct app_picture {
    char *path;      /* owned, absolute */
    char sha256[65]; /* of the file */
    aerie_image *image;
} app_picture;

typedef struct app_pictures {
    app_picture *items;
    size_t n, capacity;
} app_pictures;

/* Reads a picture from a regular file and adds it. Returns false after a message if it cannot be read. */
bool app_pictures_add(app_pictures *pictures, const char *path);
void app_pictures_free(app_pictures *pictures);
/* Returns the mark that stands at the beginning of a message's text, once for each of its pictures: bytes drawn when the
 * program starts. */
const char *app_picture_mark(void);

typedef struct app_conversation {
    aerie_message *messages; /* [n], contents owned, roles static */
    app_pictures *pictures;  /* [n] of each message */
    size_t n, capacity, pictures_capacity;
} app_conversation;

bool app_conversation_insert(app_conversation *c, size_t at, const char *role, const char *content, size_t n);
/* The same for a user's message with pictures, which come before its text. Takes ownership of them, also on failure. */
bool app_conversation_show(app_conversation *c, const char *content, size_t n, app_pictures *pictures);
/* Removes n messages from `at` on. */
void app_conversation_drop(app_conversation *c, size_t at, size_t n);
void app_conversation_free(app_conversation *c);
/* Returns where the turns begin: after the system message, if there is one. */
size_t app_conversation_first(const app_conversation *c);
size_t app_conversation_turns(const app_conversation *c);
/* Returns the index of the message that begins turn i, or the number of messages. */
size_t app_conversation_turn(const app_conversation *c, size_t i);

/* The last file that was saved, which may be overwritten as long as nobody else has changed it. All zero: none. */
typedef struct app_saved {
    char *path;
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified;
} app_saved;

/* Writes [{"role", "content"}, ...] to a new file, with pictures as the paths and SHA-256 of their files; `force` also replaces
 * another file. */
bool app_conversation_save(const app_conversation *c, const char *path, bool force, app_saved *saved);
/* Replaces the conversation by the one in a file. If the file is invalid, the conversation stays as it is. */
bool app_conversation_load(app_conversation *c, const char *path);

/* Appends a whole regular file to the text: at most `limit` bytes of UTF-8 without NUL bytes. */
bool app_text_read(app_text *text, const char *path, size_t limit);

#endif
