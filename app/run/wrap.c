/* wrap.c - implements wrap.h. */
#define _DEFAULT_SOURCE
#include "run/wrap.h"

#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#define NARROWEST 20 /* in narrower windows, words would not fit */

static size_t terminal_width(void)
{
    const int n = app_terminal_columns(STDOUT_FILENO);
    return n < NARROWEST ? 0 : (size_t)n;
}

/* Returns the width of n bytes of UTF-8 in columns. */
static size_t width_of(const char *text, size_t n)
{
    size_t width = 0;
    for (size_t i = 0, length; i < n; i += length ? length : 1) {
        uint32_t c = 0;
        length = app_utf8_char(text + i, n - i, &c);
        const int columns = length ? utf8proc_charwidth((utf8proc_int32_t)c) : 1;
        width += columns > 0 ? (size_t)columns : 0;
    }
    return width;
}

/* Whether a fence without the name of a language begins a block after a line that ends so: what precedes a block is an empty
 * line or a sentence. Otherwise it ends a block that the prompt began. */
static bool opens(char last)
{
    return !last || strchr(":.!?*)", last);
}

/* Notes that a block of code begins or ends, if the first word of a line is ``` or ~~~. A word with more of these marks inside
 * does not count. */
static void note_fence(app_wrap *w)
{
    size_t from = 0, n = 0;
    while (from < w->n_word && w->word[from] == '\033') /* a colour */
        while (from < w->n_word && w->word[from++] != 'm') continue;
    const char *word = w->word + from, mark = from < w->n_word ? *word : '\0';
    const size_t n_word = w->n_word - from;
    if (mark != '`' && mark != '~') return;
    while (n < n_word && word[n] == mark) n++;
    if (n < 3) return;
    if (w->fence == mark && n >= w->n_fence && (n == n_word || word[n] == '\033')) w->fence = '\0';
    else if (!w->fence && !memchr(word + n, '`', n_word - n) && (opens(w->before) || (n < n_word && word[n] != '\033')))
        w->fence = mark, w->n_fence = n;
}

/* Writes the gap and the word, or a newline and the word. */
static void put_word(app_wrap *w)
{
    if (!w->n_word) return;
    if (!w->in_line) note_fence(w);
    if (w->width && w->column >= w->width) w->column = w->column % w->width ? w->column % w->width : w->width;
    const bool fits = w->column + w->gap_width + w->word_width <= w->width || !w->in_line || !w->width || w->fence ||
                      w->goes_on;
    if (fits) app_write(w->gap, w->n_gap);
    else app_write("\n", 1);
    app_write(w->word, w->n_word);
    if (w->word_width) w->last = w->word[w->n_word - 1];
    w->column = (fits ? w->column + w->gap_width : 0) + w->word_width;
    w->in_line = w->in_line || w->word_width;
    w->n_gap = w->n_word = w->gap_width = w->word_width = 0;
    w->goes_on = false;
}

static void put_newline(app_wrap *w)
{
    put_word(w);
    if (w->fence || !w->width) app_write(w->gap, w->n_gap); /* code and unwrapped text keep trailing spaces */
    app_write("\n", 1);
    w->column = w->n_gap = w->gap_width = 0;
    w->before = w->last;
    w->last = '\0';
    w->in_line = false;
}

static void add_space(app_wrap *w, char c)
{
    put_word(w);
    if (w->n_gap == sizeof w->gap) {
        app_write(w->gap, w->n_gap);
        w->column += w->gap_width;
        w->n_gap = w->gap_width = 0;
    }
    w->gap[w->n_gap++] = c;
    w->gap_width += c == '\t' ? 8 - (w->column + w->gap_width) % 8 : 1;
}

static void add_bytes(app_wrap *w, const char *bytes, size_t n, size_t width)
{
    const bool is_long = w->width && w->word_width + width > w->width; /* it is longer than a line, so the terminal breaks it */
    if (w->n_word + n > sizeof w->word || is_long) {
        put_word(w);
        w->goes_on = true;
    }
    memcpy(w->word + w->n_word, bytes, n);
    w->n_word += n;
    w->word_width += width;
}

/* Returns whether a character is wide (Chinese, Japanese) and may begin a line. */
static bool begins_word(const char *text, size_t n)
{
    static const uint32_t closing[] = {0x3001, 0x3002, 0x3009, 0x300b, 0x300d, 0x300f, 0x3011, 0xff01,
                                       0xff09, 0xff0c, 0xff0e, 0xff1a, 0xff1b, 0xff1f};
    uint32_t c = 0;
    if (!app_utf8_char(text, n, &c)) return false;
    for (size_t i = 0; i < sizeof closing / sizeof *closing; i++)
        if (c == closing[i]) return false;
    return utf8proc_charwidth((utf8proc_int32_t)c) == 2;
}

void app_wrap_text(app_wrap *w, const char *text, size_t n)
{
    w->width = terminal_width();
    for (size_t i = 0, length; i < n; i += length) {
        char shown[16];
        const size_t n_shown = app_terminal_char(text + i, n - i, &length, shown);
        if (text[i] == '\n') {
            put_newline(w);
        } else if (text[i] == ' ' || text[i] == '\t') {
            add_space(w, text[i]);
        } else {
            if (begins_word(shown, n_shown)) put_word(w);
            add_bytes(w, shown, n_shown, width_of(shown, n_shown));
        }
    }
}

void app_wrap_mark(app_wrap *w, const char *mark)
{
    add_bytes(w, mark, strlen(mark), 0);
}

void app_wrap_end(app_wrap *w)
{
    put_word(w);
    if (!w->width) app_write(w->gap, w->n_gap);
    *w = (app_wrap){0};
}
