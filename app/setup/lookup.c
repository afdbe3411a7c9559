/* lookup.c - implements lookup.h. */
#define _XOPEN_SOURCE 700
#include "setup/lookup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "aerie_extra.h"
#include "shared/app.h"

static int check_one(const char *option, const char *path, bool writes)
{
    struct stat there;
    if (!path) return APP_DONE;
    if (!*path) return app_error(APP_USAGE, "%s needs the name of a file; found ''", option);
    if (stat(path, &there)) {
        if (errno != ENOENT || !writes)
            return app_error(APP_BAD_FILE, "%s: cannot read '%s': %s", option, path, strerror(errno));
    } else if (!S_ISREG(there.st_mode)) {
        return app_error(APP_BAD_FILE, "%s: '%s' is not a regular file", option, path);
    }
    return writes ? app_check_writable(option, path) : APP_DONE;
}

int app_lookup_check(const app_options *o)
{
    const aerie_spec *spec = &o->session.spec;
    if ((o->lookup_static || o->lookup_dynamic) && (spec->type == AERIE_SPEC_NONE || !spec->ngram_memory))
        return app_error(APP_USAGE, "%s is for n-grams that remember, which %s turns off",
                         o->lookup_static ? "--lookup-cache-static" : "--lookup-cache-dynamic",
                         spec->type == AERIE_SPEC_NONE ? "--spec-type none" : "--spec-ngram-memory 0");
    const int bad = check_one("--lookup-cache-static", o->lookup_static, false);
    return bad ? bad : check_one("--lookup-cache-dynamic", o->lookup_dynamic, true);
}

static int load(aerie_session *session, const app_options *o, const char *option, const char *path, bool optional)
{
    struct stat there;
    app_text text = {0};
    aerie_error error = {0};
    size_t n_tokens = 0;
    /* an empty file, such as mktemp creates, counts as absent */
    if (!path || (optional && (stat(path, &there) || !there.st_size))) return APP_DONE;
    const int bad = app_read_data(&text, path);
    if (bad) return bad;
    const aerie_status status = aerie_session_ngrams_load(session, text.data, text.n, &n_tokens, &error);
    app_text_free(&text);
    if (status != AERIE_OK)
        return app_error(APP_BAD_FILE, "%s: '%s' cannot be used: %s; remove the file or name another one", option, path,
                         error.text);
    if (!o->quiet && o->verbose) app_note("%s: %zu tokens from '%s'", option, n_tokens, path);
    return APP_DONE;
}

int app_lookup_open(aerie_session *session, const app_options *o)
{
    int bad = load(session, o, "--lookup-cache-static", o->lookup_static, false);
    if (!bad) bad = load(session, o, "--lookup-cache-dynamic", o->lookup_dynamic, true);
    return bad;
}

int app_lookup_save(aerie_session *session, const app_options *o)
{
    void *data = NULL;
    size_t n = 0;
    aerie_error error = {0};
    if (!o->lookup_dynamic || !session) return APP_DONE;
    const aerie_status status = aerie_session_ngrams_save(session, &data, &n, &error);
    if (status != AERIE_OK) return app_error(APP_FAILED, "--lookup-cache-dynamic: %s", error.text);
    const int failed = app_replace_file(o->lookup_dynamic, data, n);
    aerie_free(data);
    if (!failed) return APP_DONE;
    return app_error(APP_FAILED, "--lookup-cache-dynamic: cannot write '%s': %s", o->lookup_dynamic, strerror(failed));
}
