/* forward.h - forwards a request to a server, and its answer to the client.
 * Every request that generates an answer is sent with Aerie-Repeat (serve/http/http.h), so that the answer's bytes depend only
 * on the request. If the server is lost, the request starts again on another one: the first bytes of its answer are compared
 * with those that the client has received, and dropped; the rest goes to the client. If they differ, the answer ends with an
 * error, which is logged and counted, because the servers are not equal. One request in many (--canary) is answered a second
 * time and compared completely. The whole body of a request is kept until its answer is complete. */
#ifndef AERIE_APP_ROUTER_FORWARD_H
#define AERIE_APP_ROUTER_FORWARD_H

#include "router/router.h"

/* Handlers of paths: requests that generate an answer, and requests for information from a server. */
void router_forward(serve_call *call);
void router_ask(serve_call *call);
/* Answers with an error for requests that only a server itself could answer. */
void router_refuse(serve_call *call);

#endif
