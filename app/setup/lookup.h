/* lookup.h - files of n-gram statistics: --lookup-cache-static, --lookup-cache-dynamic.
 * Owns nothing: the session has the text. The static file is only read. The dynamic one is read if it exists, and written when
 * the session ends, whole or not at all. A file that is damaged, or made with other tokens, is refused by name and stays as it
 * is. */
#ifndef AERIE_APP_SETUP_LOOKUP_H
#define AERIE_APP_SETUP_LOOKUP_H

#include "cli/options.h"

/* Checks, before a model is loaded, whether the files can be read and written. Returns APP_DONE, or a status after a
 * message. */
int app_lookup_check(const app_options *options);
/* Reads the files into a new session. Returns APP_DONE, or a status after a message. */
int app_lookup_open(aerie_session *session, const app_options *options);
/* Writes the dynamic file. Called before the session is freed, between steps. Returns APP_DONE, or a status after a message. */
int app_lookup_save(aerie_session *session, const app_options *options);

#endif
