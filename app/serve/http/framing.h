/* framing.h - where requests begin and end in the bytes of a connection, by RFC 9112 to the letter.
 *
 * libmicrohttpd forgives: it takes 'Content-Length : 5' for a header of another name, ends a header at a line that begins
 * with a colon, takes a lone line feed for the end of a line, joins folded lines and passes over chunk extensions. A proxy
 * in front that reads such bytes otherwise sees another end of the request, and what is a body for one of them is the next
 * request for the other. So the bytes are followed here before libmicrohttpd has them. What is not well-formed is refused,
 * and its connection ends; a request that libmicrohttpd sees where none has begun here is none.
 *
 * Owns: nothing but its state. Reads bytes in any pieces; changes none.
 */
#ifndef AERIE_APP_SERVE_HTTP_FRAMING_H
#define AERIE_APP_SERVE_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct serve_framing {
    int state;
    uint64_t n_heads;  /* headers that are complete */
    uint64_t n_seen;   /* of these, how many libmicrohttpd has told of */
    uint64_t wrong_at; /* the number, from 1, of the request that is not well-formed; 0: there is none so far */
    const char *wrong; /* what is wrong with it; static storage */
    const char *ending; /* what makes a whole header of what was read before the fault; NULL: the fault is elsewhere */
    /* of the request that is being read */
    uint64_t n_left; /* bytes of a body or chunk */
    unsigned n_hosts, n_lengths, n_encodings;
    bool is_old; /* HTTP/1.0 */
    bool in_body, in_trailer; /* a trailer is part of the body */
    /* of the line that is being read */
    unsigned n; /* bytes of the part */
    unsigned n_digits;
    char text[32]; /* [n] its beginning, in lower case */
    int field;
} serve_framing;

/* Follows the bytes; n is any. How many there are before the one that is wrong. */
size_t serve_framing_feed(serve_framing *f, const char *bytes, size_t n);

#endif
