/* stops.c - one matcher for each stop string, and the bytes held back (stops.h). */
#include "text/stops.h"

typedef struct matcher {
    const char *text; /* [n] */
    uint32_t *border; /* [n] length of the longest proper border of the first i + 1 bytes */
    uint32_t n, at;   /* at: bytes matched so far */
} matcher;

struct ae_stops {
    matcher *matchers; /* [n] */
    size_t n;
    char *texts;       /* owned, one after another */
    uint32_t *borders; /* owned */
    char *held;        /* [capacity] the newest bytes that may belong to a match */
    uint32_t n_held, capacity;
    bool found;
};

aerie_status ae_stops_check(const char *const *texts, size_t n, aerie_error *error)
{
    if (n > AERIE_MAX_STOPS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "there are %zu stop strings; at most %d are possible", n, AERIE_MAX_STOPS);
    if (n && !texts)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "there should be %zu stop strings, but the list is NULL", n);
    for (size_t i = 0; i < n; i++) {
        if (!texts[i] || !*texts[i])
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "stop string %zu is empty; a text is needed", i + 1);
        if (strlen(texts[i]) > AERIE_MAX_STOP_BYTES)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "stop string %zu has %zu bytes; at most %d are possible", i + 1,
                           strlen(texts[i]), AERIE_MAX_STOP_BYTES);
    }
    return AERIE_OK;
}

static void matcher_init(matcher *m, const char *text, uint32_t n, uint32_t *border)
{
    *m = (matcher){.text = text, .border = border, .n = n};
    for (uint32_t i = 1, k = 0; i < n; i++) {
        while (k && text[i] != text[k]) k = border[k - 1];
        if (text[i] == text[k]) k++;
        border[i] = k;
    }
}

aerie_status ae_stops_create(ae_stops **out, const char *const *texts, size_t n, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_stops_check(texts, n, error));
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(texts[i]);
    ae_stops *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "the stop strings", sizeof *s);
    s->n = n;
    s->matchers = ae_alloc(n, sizeof *s->matchers);
    s->texts = ae_alloc(bytes, 1);
    s->borders = ae_alloc(bytes, sizeof *s->borders);
    for (size_t i = 0; i < n; i++)
        if (strlen(texts[i]) > s->capacity) s->capacity = (uint32_t)strlen(texts[i]);
    s->held = ae_alloc(s->capacity, 1);
    if (n && (!s->matchers || !s->texts || !s->borders || !s->held)) {
        ae_stops_free(s);
        return ae_fail_memory(error, "the stop strings", bytes * (1 + sizeof *s->borders));
    }
    for (size_t i = 0, at = 0; i < n; i++) {
        const uint32_t length = (uint32_t)strlen(texts[i]);
        memcpy(s->texts + at, texts[i], length);
        matcher_init(&s->matchers[i], s->texts + at, length, s->borders + at);
        at += length;
    }
    *out = s;
    return AERIE_OK;
}

void ae_stops_free(ae_stops *s)
{
    if (!s) return;
    ae_free(s->matchers);
    ae_free(s->texts);
    ae_free(s->borders);
    ae_free(s->held);
    ae_free(s);
}

/* Returns how many bytes match after c. A complete match ends the stream, so it is never continued. */
static uint32_t step(matcher *m, char c)
{
    while (m->at && m->text[m->at] != c) m->at = m->border[m->at - 1];
    if (m->text[m->at] == c) m->at++;
    return m->at;
}

/* Passes on the oldest held bytes. */
static void release(ae_stops *s, uint32_t n, ae_buf *out)
{
    ae_buf_add(out, s->held, n);
    memmove(s->held, s->held + n, s->n_held - n);
    s->n_held -= n;
}

bool ae_stops_feed(ae_stops *s, const char *bytes, size_t n, ae_buf *out)
{
    for (size_t i = 0; i < n && !s->found; i++) {
        uint32_t under_way = 0, complete = 0;
        for (size_t k = 0; k < s->n; k++) {
            const uint32_t at = step(&s->matchers[k], bytes[i]);
            if (at > under_way) under_way = at;
            if (at == s->matchers[k].n && at > complete) complete = at;
        }
        s->found = complete > 0;
        /* the newest byte is held too if any match continues; no match is longer than the held bytes and the newest one */
        const uint32_t keep = s->found ? complete : under_way;
        if (!keep) {
            release(s, s->n_held, out);
            ae_buf_add(out, &bytes[i], 1);
            continue;
        }
        release(s, s->n_held + 1 - keep, out);
        if (s->found) s->n_held = 0;
        else s->held[s->n_held++] = bytes[i];
    }
    return s->found;
}

void ae_stops_end(ae_stops *s, ae_buf *out)
{
    if (!s->found) ae_buf_add(out, s->held, s->n_held);
    s->n_held = 0;
}
