/* framing.h - finds where requests begin and end in the bytes of a connection, strictly by RFC 9112.
 * libmicrohttpd is lenient: it takes 'Content-Length : 5' for a header of another name, ends a header at a line that begins
 * with a colon, takes a lone line feed for the end of a line, joins folded lines and ignores chunk extensions. A proxy in front
 * may read such bytes differently and see another end of the request, so that one of them takes as a body what the other takes
 * as the next request (request smuggling). So this parser reads the bytes before libmicrohttpd does. A request that is not
 * well-formed is refused and its connection closed, and so is a request that libmicrohttpd finds where this parser saw none
 * begin.
 * Owns only its state. Reads bytes in pieces of any size and does not change them. */
#ifndef AERIE_APP_SERVE_HTTP_FRAMING_H
#define AERIE_APP_SERVE_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct serve_framing {
    int state;
    uint64_t n_heads;  /* complete headers so far */
    uint64_t n_seen;   /* requests that libmicrohttpd has reported so far */
    uint64_t wrong_at; /* number, from 1, of the malformed request; 0: none so far */
    const char *wrong; /* what is wrong with it, in static storage */
    const char *ending; /* bytes that complete the header up to the error; NULL: the error is not in a header */
    /* the request that is being read */
    uint64_t n_left; /* bytes left of the body or chunk */
    unsigned n_hosts, n_lengths, n_encodings;
    bool is_old; /* HTTP/1.0 */
    bool in_body, in_trailer; /* a trailer is part of the body */
    /* its length so far */
    unsigned n; /* its bytes so far */
    unsigned n_digits;
    char text[32]; /* [n] its beginning, in lower case */
    int field;
} serve_framing;

/* Reads n bytes. Returns the number of bytes before the first wrong one; n if all are right. */
size_t serve_framing_feed(serve_framing *f, const char *bytes, size_t n);

#endif
