/* grammar.c - compiles the grammar of the answers from the options' text or file. */
#include <string.h>

#include "cli/options.h"

typedef struct source {
    const char *option, *text; /* the option, and its value: the grammar, or the path of its file */
    bool file, schema;
} source;

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    (void)level;
    app_note("%s: %s", (const char *)user, sentence);
}

static int compile(app_options *options, const source *s)
{
    app_text text = {0};
    aerie_error error = {0};
    if (s->file) {
        const int bad = app_read_file(&text, s->text);
        if (bad) {
            app_text_free(&text);
            return bad;
        }
    }
    const char *bytes = s->file ? text.data ? text.data : "" : s->text;
    const size_t n = s->file ? text.n : strlen(s->text);
    aerie_schema_params params = aerie_schema_params_default();
    params.strict = options->schema_strict;
    params.log = (aerie_log){on_log, (void *)(uintptr_t)(s->file ? s->text : s->option)};
    const aerie_status status =
        s->schema ? aerie_grammar_create_schema(&options->grammar, bytes, n, &params, &error)
                  : aerie_grammar_create(&options->grammar, bytes, n, &error);
    app_text_free(&text);
    if (status == AERIE_OK) return APP_DONE;
    if (status == AERIE_ERROR_MEMORY) return app_report(APP_WORKING, status, &error);
    if (s->file) return app_error(APP_BAD_FILE, "%s: %s", s->text, error.text);
    return app_error(APP_USAGE, "%s: %s", s->option, error.text);
}

int app_grammar_settle(app_options *options)
{
    const source sources[] = {
        {"--grammar", options->grammar_text, false, false},
        {"--grammar-file", options->grammar_file, true, false},
        {"--json-schema", options->schema_text, false, true},
        {"--json-schema-file", options->schema_file, true, true},
    };
    const source *given = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (!sources[i].text || (!sources[i].file && !sources[i].schema && !*sources[i].text)) continue; /* '': none */
        if (given) return app_error(APP_USAGE, "%s and %s exclude each other", given->option, sources[i].option);
        given = &sources[i];
    }
    return given ? compile(options, given) : APP_DONE;
}
