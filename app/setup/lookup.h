/* lookup.h - files of what n-grams remember: --lookup-cache-static, --lookup-cache-dynamic.
 *
 * Owns nothing: the text is the session's. The static file is only read; the dynamic one is read if it is there, and
 * written when the session ends, whole or not at all. A file that is damaged, or of other tokens, is refused by name and
 * stays as it is.
 */
#ifndef AERIE_APP_SETUP_LOOKUP_H
#define AERIE_APP_SETUP_LOOKUP_H

#include "cli/options.h"

/* Before a model is loaded: whether the files could be read and written. APP_DONE, or a status and a message. */
int app_lookup_check(const app_options *options);
/* After the session was created. APP_DONE, or a status and a message. */
int app_lookup_open(aerie_session *session, const app_options *options);
/* Before it is freed, between steps. APP_DONE, or a status and a message. */
int app_lookup_save(aerie_session *session, const app_options *options);

#endif
