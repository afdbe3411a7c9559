/* forward.h - passing a request on to a server, and its answer back.
 *
 * Every request that makes an answer is sent with Aerie-Repeat
 * (serve/http/http.h), so the answer's bytes are a function of the request. If
 * the server is lost, the request is begun again on another one: its first
 * bytes are compared with those that the client has got, and dropped, and what
 * follows goes on to the client. If they differ, the answer ends with an error,
 * is logged and counted: then the servers are not equal. One request in many
 * (--canary) is answered a second time and compared whole. The whole body of a
 * request is kept until its answer is complete.
 */
#ifndef AERIE_APP_ROUTER_FORWARD_H
#define AERIE_APP_ROUTER_FORWARD_H

#include "router/router.h"

/* Handlers of paths: what makes an answer, and what asks a server something. */
void router_forward(serve_call *call);
void router_ask(serve_call *call);
/* Answers with an error where only a server itself could answer. */
void router_refuse(serve_call *call);

#endif
