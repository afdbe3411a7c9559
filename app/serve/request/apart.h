/* apart.h - decodes an image in a process of its own, so that a fault in a decoder does not reach the server's memory.
 *
 * The child is this program, started anew with one socket: it reads the image's bytes and sends back pixels or a sentence. It
 * can open no file and no socket, and use memory and processor time up to limits; the parent kills it when nobody wants the
 * image any more.
 * Owns: the child's life, and what goes through the socket. Does not own: decoding. Invariants: what the child says is checked
 * as a file would be; pixels are those that decoding within the server gives; no child outlives its request.
 */
#ifndef AERIE_APP_SERVE_REQUEST_APART_H
#define AERIE_APP_SERVE_REQUEST_APART_H

#include "aerie_extra.h"

/* As aerie_image_read; FORMAT also if the child ended without an answer. wanted: asked while the child works, false kills it
 * (CANCELLED). may_take: called with the bytes of the pixels before they are kept. */
aerie_status apart_decode(aerie_image **image, const uint8_t *data, size_t n, const aerie_image_limits *limits,
                          bool (*wanted)(void *user), bool (*may_take)(void *user, size_t bytes), void *user,
                          aerie_error *error);

#endif
