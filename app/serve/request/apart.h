/* apart.h - decodes an image in a separate process, so that a fault in a decoder does not reach the server's memory.
 * The child is this program, started again with one socket: it reads the image's bytes and sends back pixels or an error. It
 * cannot open files or sockets, and its memory and CPU time are limited; the parent kills it when nobody wants the image
 * any more.
 * Owns the child process and the protocol on the socket. Does not own decoding. Invariants: the child's answer is checked like
 * a file; the pixels are those that decoding inside the server would give; no child outlives its request. */
#ifndef AERIE_APP_SERVE_REQUEST_APART_H
#define AERIE_APP_SERVE_REQUEST_APART_H

#include "aerie_extra.h"

/* Like aerie_image_read; FORMAT also if the child ended without an answer. wanted: called while the child works; false kills it
 * (CANCELLED). may_take: called with the size of the pixels before they are stored. */
aerie_status apart_decode(aerie_image **image, const uint8_t *data, size_t n, const aerie_image_limits *limits,
                          bool (*wanted)(void *user), bool (*may_take)(void *user, size_t bytes), void *user,
                          aerie_error *error);

#endif
