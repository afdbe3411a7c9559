/* framing.c - implements framing.h as a state machine. */
#include "serve/http/framing.h"

#include <string.h>

enum {
    BEFORE, /* the request line; empty lines may come first */
    BEFORE_LF,
    METHOD,
    TARGET,
    VERSION,
    VERSION_LF,
    LINE, /* the beginning of a header or trailer line */
    NAME,
    VALUE_BEGINS,
    VALUE,
    VALUE_LF,
    LAST_LF,
    BODY,
    SIZE, /* the size of a chunk */
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    LOST, /* an error was found; nothing more is read */
};

enum { FIELD_OTHER, FIELD_HOST, FIELD_LENGTH, FIELD_ENCODING };

/* Returns the bytes that complete the header in the current state and replace the input from the first wrong byte on; NULL:
 * none. */
static const char *ending_of(const serve_framing *f)
{
    if (f->in_body) return NULL;
    switch (f->state) {
    case BEFORE_LF: return "\nX / HTTP/1.1\r\n\r\n";
    case METHOD: return f->n ? " / HTTP/1.1\r\n\r\n" : "X / HTTP/1.1\r\n\r\n";
    case TARGET: return f->n ? " HTTP/1.1\r\n\r\n" : "/ HTTP/1.1\r\n\r\n";
    case VERSION: return "\r\n\r\n"; /* libmicrohttpd refuses a request with an incomplete version */
    case LINE:
    case NAME: return "x:\r\n\r\n";
    case VALUE_BEGINS: return f->field == FIELD_LENGTH ? "0\r\n\r\n" : "\r\n\r\n";
    case VALUE: return "\r\n\r\n";
    case VERSION_LF:
    case VALUE_LF: return "\n\r\n";
    case LAST_LF: return "\n";
    default: return NULL;
    }
}

static void refuse(serve_framing *f, const char *why)
{
    f->ending = ending_of(f);
    f->state = LOST;
    f->wrong = why;
    f->wrong_at = f->n_heads + (f->in_body ? 0 : 1);
}

/* Returns whether c may be part of a method or a field name (RFC 9110, 5.6.2). */
static bool is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static char lower(unsigned char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static void keep(serve_framing *f, unsigned char c)
{
    if (f->n < sizeof f->text) f->text[f->n] = lower(c);
    if (f->n < sizeof f->text + 1) f->n++;
}

static bool is_text(const serve_framing *f, const char *text)
{
    return f->n == strlen(text) && memcmp(f->text, text, f->n) == 0;
}

static void begin_part(serve_framing *f, int state)
{
    f->state = state;
    f->n = f->n_digits = 0;
}

static void begin_request(serve_framing *f)
{
    f->n_hosts = f->n_lengths = f->n_encodings = 0;
    f->n_left = 0;
    f->in_body = f->in_trailer = f->is_old = false;
    begin_part(f, BEFORE);
}

static void end_version(serve_framing *f)
{
    const bool ok = f->n == 8 && memcmp(f->text, "http/", 5) == 0 && f->text[5] >= '0' && f->text[5] <= '9' &&
                    f->text[6] == '.' && f->text[7] >= '0' && f->text[7] <= '9';
    if (!ok) {
        refuse(f, "the request line does not end with the version of HTTP");
        return;
    }
    f->is_old = memcmp(f->text + 5, "1.0", 3) == 0;
    f->state = VERSION_LF;
}

/* Reads the request line: method, target and version, separated by single spaces. */
static void read_request_line(serve_framing *f, unsigned char c)
{
    if (f->state == METHOD) {
        if (c == ' ' && f->n) begin_part(f, TARGET);
        else if (is_token(c)) keep(f, c);
        else refuse(f, "the request line does not begin with a method and a space");
    } else if (f->state == TARGET) {
        if (c == ' ' && f->n) begin_part(f, VERSION);
        else if (c > ' ' && c != 0x7f) keep(f, c);
        else refuse(f, "the request target contains a space or a control character, or no version follows it");
    } else if (c == '\r') {
        end_version(f);
    } else {
        keep(f, c);
        if (f->n > 8) refuse(f, "the request line does not end with the version of HTTP");
    }
}

static void begin_value(serve_framing *f)
{
    f->field = is_text(f, "host")                ? FIELD_HOST
               : is_text(f, "content-length")    ? FIELD_LENGTH
               : is_text(f, "transfer-encoding") ? FIELD_ENCODING
                                                 : FIELD_OTHER;
    if (f->in_trailer && f->field != FIELD_OTHER) {
        refuse(f, "Host, Content-Length and Transfer-Encoding may not follow a body");
        return;
    }
    f->n_hosts += f->field == FIELD_HOST;
    f->n_lengths += f->field == FIELD_LENGTH;
    f->n_encodings += f->field == FIELD_ENCODING;
    if (f->n_hosts > 1) refuse(f, "the request has several Host headers");
    else if (f->n_lengths > 1) refuse(f, "the request has several Content-Length headers");
    else if (f->n_encodings > 1) refuse(f, "the request has several Transfer-Encoding headers");
    else begin_part(f, VALUE_BEGINS);
}

static void end_value(serve_framing *f)
{
    if (f->field == FIELD_LENGTH && !f->n) refuse(f, "Content-Length has no number");
    else if (f->field == FIELD_ENCODING && !is_text(f, "chunked"))
        refuse(f, "the only supported transfer encoding is 'chunked'");
    else f->state = VALUE_LF;
}

static void read_length(serve_framing *f, unsigned char c)
{
    if (c < '0' || c > '9' || f->n == 18) { /* no body is so long that its length needs more than 18 digits */
        refuse(f, "Content-Length is not a number of bytes");
        return;
    }
    f->state = VALUE;
    f->n_left = f->n_left * 10 + (uint64_t)(c - '0');
    f->n++;
}

static void read_field(serve_framing *f, unsigned char c)
{
    if (f->state == NAME) {
        if (is_token(c)) keep(f, c);
        else if (c == ':') begin_value(f);
        else refuse(f, "a header name contains a character that is not allowed, or is not followed by a colon");
        return;
    }
    if (c == '\r') {
        end_value(f);
    } else if ((c < ' ' && c != '\t') || c == 0x7f) {
        refuse(f, "a header value contains a control character, or its line does not end with CR LF");
    } else if (f->state == VALUE_BEGINS && (c == ' ' || c == '\t')) {
        /* skip blanks before the value */
    } else if (f->field == FIELD_LENGTH) {
        read_length(f, c);
    } else {
        f->state = VALUE;
        keep(f, c); /* trailing blanks too: libmicrohttpd would not recognize an encoding that has them, so it is refused */
    }
}

/* Handles the empty line after the header or the trailer. */
static void end_fields(serve_framing *f)
{
    if (f->in_trailer) {
        begin_request(f);
        return;
    }
    if (f->n_lengths && f->n_encodings) {
        refuse(f, "the request has both Content-Length and Transfer-Encoding");
    } else if (f->n_encodings && f->is_old) {
        refuse(f, "HTTP/1.0 has no Transfer-Encoding");
    } else {
        f->n_heads++;
        f->in_body = f->n_encodings || f->n_left;
        if (f->n_encodings) begin_part(f, SIZE);
        else if (f->n_left) f->state = BODY;
        else begin_request(f);
    }
}

static int digit_of(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void read_size(serve_framing *f, unsigned char c)
{
    const int digit = digit_of(c);
    if (digit >= 0 && f->n_digits < 15) {
        f->n_left = f->n_left * 16 + (uint64_t)digit;
        f->n_digits++;
    } else if (c == '\r' && f->n_digits) {
        f->state = SIZE_LF;
    } else {
        refuse(f, c == ';' ? "chunk extensions are not supported" : "the size of a chunk is not a hexadecimal number");
    }
}

static void end_size(serve_framing *f)
{
    if (f->n_left) {
        f->state = CHUNK;
    } else {
        f->in_trailer = true;
        begin_part(f, LINE);
    }
}

/* Reads the line feed that must follow a carriage return. */
static void read_lf(serve_framing *f, unsigned char c)
{
    if (c != '\n') {
        refuse(f, "a carriage return is not followed by a line feed");
        return;
    }
    switch (f->state) {
    case BEFORE_LF: begin_part(f, BEFORE); break;
    case SIZE_LF: end_size(f); break;
    case LAST_LF: end_fields(f); break;
    case CHUNK_LF: begin_part(f, SIZE); break;
    default: begin_part(f, LINE); break; /* after the version or a field */
    }
}

static void read_one(serve_framing *f, unsigned char c)
{
    switch (f->state) {
    case BEFORE:
        if (c == '\r') {
            f->state = BEFORE_LF;
            break;
        }
        begin_part(f, METHOD);
        read_request_line(f, c);
        break;
    case METHOD:
    case TARGET:
    case VERSION: read_request_line(f, c); break;
    case LINE:
        if (c == '\r') {
            f->state = LAST_LF;
            break;
        }
        begin_part(f, NAME);
        if (is_token(c)) keep(f, c);
        else refuse(f, "a header line does not begin with a name");
        break;
    case NAME:
    case VALUE_BEGINS:
    case VALUE: read_field(f, c); break;
    case SIZE: read_size(f, c); break;
    case CHUNK_CR:
        f->state = CHUNK_LF;
        if (c != '\r') refuse(f, "a chunk is longer than its size says");
        break;
    default: read_lf(f, c); break;
    }
}

size_t serve_framing_feed(serve_framing *f, const char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n && f->state != LOST) {
        if (f->state != BODY && f->state != CHUNK) {
            read_one(f, (unsigned char)bytes[at]);
            at += f->state != LOST;
            continue;
        }
        const size_t part = f->n_left < n - at ? (size_t)f->n_left : n - at;
        at += part;
        f->n_left -= part;
        if (f->n_left) break;
        if (f->state == CHUNK) f->state = CHUNK_CR;
        else begin_request(f);
    }
    return at;
}
