/* order.h - rows that files store in another order than the engine's, as runs of rows. Private to net.c.
 *
 * A product's output element is one chain of operations, so the order of rows changes no bits. Owns nothing.
 */
#ifndef AE_ENGINE_WEIGHTS_ORDER_H
#define AE_ENGINE_WEIGHTS_ORDER_H

#include "engine/weights/net.h"

/* Returns whether a mixer's projection and its gate are one tensor. */
static inline bool ae_order_has_gate(const ae_recur_layer *l)
{
    return l->gate && l->gate == l->in;
}

/* Returns the sizes of this rank's recurrent mixers, for which by_part is. */
const ae_recur_hparams *ae_order_recur(const ae_net *net);

/* Sets by_index and by_part. MEMORY. */
aerie_status ae_order_rows(ae_net *net, aerie_error *error);

#endif
