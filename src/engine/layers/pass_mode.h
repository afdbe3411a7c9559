/* pass_mode.h - how a pass departs from the model. Only drafts use it: all their rows are tentative and cannot be kept.
 *
 * The mode is data of a pass. Every buffer is planned for the whole model, so changing the mode allocates nothing.
 */
#ifndef AE_ENGINE_PASS_MODE_H
#define AE_ENGINE_PASS_MODE_H

#include <stdint.h>

struct ae_adapter;

#define AE_LACKS_EXPERTS 1u /* bit of a layer: its rows use only n_experts of the routed experts */
#define AE_LACKS_MIXER 2u   /* its attention is left out */
#define AE_LACKS_FFN 4u     /* its feed-forward block is left out */

typedef struct ae_pass_mode {
    uint32_t n_experts;   /* at most as many as the model uses; 0: only the shared expert */
    const uint8_t *lacks; /* [n_layers] AE_LACKS_ bits, the same in all such passes of an engine. Recurrent layers, and
                           * attention whose keys and values other layers read, cannot be left out. */
    const struct ae_adapter *adapter; /* added to the adapters of each sequence, with a scale of 1; NULL: none */
} ae_pass_mode;

#endif
