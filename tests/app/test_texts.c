/* test_texts.c - files of text as Windows writes them, wherever the program reads text: a byte order mark and the line ends
 * CR LF make no difference, UTF-16 and UTF-32 get a sentence. */
#include "cli.h"

/* $F is the file that is read. */
static const struct {
    const char *command, *text; /* the text's lines end in \n */
} readers[] = {
    {"$A tokenize -m m.gguf -f $F", "one two\nthree\n"},
    {"$A tokenize -m m.gguf < $F", "one two\nthree\n"},
    {"$A tokenize -m m.gguf --decode -f $F", "30 31\n32\n"},
    {"$A run -m m.gguf -no-cnv --ids -q -n 4 --temp 0 -f $F", "one two\nthree\n"},
    {"$A run -m m.gguf -no-cnv --ids -q -n 4 --temp 0 < $F", "one\n\ntwo\n"},
    {"$A run -m m.gguf -no-cnv --ids -q -n 4 --temp 0 -p first -f - < $F", "one\ntwo\n"},
    {"$A run -m m.gguf -no-cnv --ids -q -n 4 --temp 0 --prompts-file $F", "one\ntwo\n"},
    {"cp $F p.jsonl; $A run -m m.gguf -no-cnv --ids -q -n 4 --temp 0 --prompts-file p.jsonl",
     "\"one\"\n{\"prompt\": \"two\"}\n"},
    {"$A run -m m.gguf -no-cnv -q -n 8 --temp 0 -p a --grammar-file $F", "root ::= x\nx ::= \"ab\" |\n  \"c\"\n"},
    {"$A run -m m.gguf -no-cnv -q -n 8 --temp 0 -p a --json-schema-file $F", "{\"enum\":\n[1]}\n"},
    {"$A template --file $F --messages c.json", "{% for m in messages %}\n{{ m.content }}\n{% endfor %}\nend\n"},
    {"$A template --file t.jinja --messages $F", "[{\"role\": \"user\",\n\"content\": \"hello\"}]\n"},
    {"$A template --file t.jinja --messages c.json --tools $F", "[{\"name\":\n\"f\"}]\n"},
    {"$A perplexity -m m.gguf --json -c 16 -f $F > p.json; grep -v seconds p.json",
     "one two three four five six\nseven eight nine ten\neleven twelve one two three\n"
     "four five six seven\none two three four five six\nseven eight nine ten\n"},
    {"$A imatrix -m m.gguf -o i.gguf -c 16 -f $F; sha256sum i.gguf",
     "one two three four five six\nseven eight nine ten\neleven twelve one two three\n"
     "one two three four five six\nseven eight\n"},
    {"$A train-data answers $F -o o.jsonl -m m.gguf -q -n 4 --temp 0; cat o.jsonl; rm o.jsonl",
     "{\"id\": \"a\", \"text\": \"hello\"}\n{\"id\": \"b\", \"text\": \"you\"}\n"},
};

/* Writes the text with these line ends and the mark before it to the file "f". */
static void write_text(const char *text, const char *mark, bool windows)
{
    char out[4096];
    size_t n = strlen(mark);
    memcpy(out, mark, n);
    for (; *text && n + 2 < sizeof out; text++) {
        if (windows && *text == '\n') out[n++] = '\r';
        out[n++] = *text;
    }
    cli_write("f", out, n);
}

/* Each character as `width` bytes, the character first or last. */
static void write_wide(const char *text, const char *mark, size_t n_mark, size_t width, bool first)
{
    char out[8192];
    size_t n = n_mark;
    memcpy(out, mark, n_mark);
    for (; *text && n + width < sizeof out; text++) {
        memset(out + n, 0, width);
        out[first ? n : n + width - 1] = *text;
        n += width;
    }
    cli_write("f", out, n);
}

static void run(size_t i)
{
    cli("F=f; %s", readers[i].command);
}

static void windows_makes_no_difference(void **state)
{
    (void)state;
    static char wanted[1 << 18];
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        write_text(readers[i].text, "", false);
        run(i);
        if (cli_last.status || !cli_last.n_out) fail_msg("%s: %d %s", readers[i].command, cli_last.status, cli_last.err);
        memcpy(wanted, cli_last.out, cli_last.n_out + 1);
        for (int k = 1; k < 4; k++) {
            write_text(readers[i].text, k & 1 ? "\xef\xbb\xbf" : "", k & 2);
            run(i);
            if (cli_last.status || strcmp(cli_last.out, wanted))
                fail_msg("%s: %s%s: '%s', not '%s' %s", readers[i].command, k & 1 ? "a mark " : "", k & 2 ? "CR LF" : "",
                         cli_last.out, wanted, cli_last.err);
        }
    }
}

static void other_encodings_get_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const char *text = readers[i].text;
        if (strncmp(readers[i].command, "cp ", 3) == 0) continue; /* the same function */
        for (int k = 0; k < 6; k++) {
            if (k == 0) write_wide(text, "\xff\xfe", 2, 2, true);
            if (k == 1) write_wide(text, "\xfe\xff", 2, 2, false);
            if (k == 2) write_wide(text, "", 0, 2, true);
            if (k == 3) write_wide(text, "", 0, 2, false);
            if (k == 4) write_wide(text, "\xff\xfe\0\0", 4, 4, true);
            if (k == 5) write_wide(text, "\0\0\xfe\xff", 4, 4, false);
            cli("F=f; %.*s", (int)strcspn(readers[i].command, ";"), readers[i].command);
            cli_refused(3, k < 4 ? "is encoded in UTF-16" : "is encoded in UTF-32", "iconv -f UTF-");
        }
    }
}

/* Other files are unchanged, except for the one line end after the text. */
static void other_carriage_returns_stay(void **state)
{
    (void)state;
    static const struct {
        const char *file, *prompt; /* in the syntax of printf */
    } cases[] = {{"a\\rb\\n", "a\\rb"}, {"a\\r\\nb\\nc\\r\\n", "a\\r\\nb\\nc"}, {"a\\r\\r\\nb\\r\\n", "a\\r\\nb"},
                 {"a\\r", "a\\r"}, {"a\\r\\n", "a"}};
    char first[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 2; k++) {
            cli("printf '%s' > f; $A run -m m.gguf -no-cnv -q -n 3 --temp 0 --spec-type none --json %s > o; "
                "grep -v -e seconds -e per_second o | head -12", k ? cases[i].prompt : cases[i].file,
                k ? "-p \"$(cat f)\"" : "-f f");
            assert_true(cli_last.n_out > 0 && strstr(cli_last.out, "n_prompt"));
            if (k && strcmp(first, cli_last.out)) fail_msg("'%s': %s, not %s", cases[i].file, first, cli_last.out);
            snprintf(first, sizeof first, "%.4000s", cli_last.out);
        }
    }
}

static int setup(void **state)
{
    if (cli_setup_model(state)) return -1;
    static const char conversation[] = "[{\"role\": \"user\", \"content\": \"hi\"}]\n",
                      template[] = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}";
    cli_write("c.json", conversation, strlen(conversation));
    cli_write("t.jinja", template, strlen(template));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_makes_no_difference),
        cmocka_unit_test(other_encodings_get_a_sentence),
        cmocka_unit_test(other_carriage_returns_stay),
    };
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}
