/* pass_mode.h - how a pass departs from the model: for drafts, whose rows are all tentative and which nobody can keep.
 *
 * The mode is data of a pass. Every buffer is planned for the whole model, so nothing is allocated or built again for it.
 */
#ifndef AE_ENGINE_PASS_MODE_H
#define AE_ENGINE_PASS_MODE_H

#include <stdint.h>

#define AE_LACKS_EXPERTS 1u /* bits of a layer: its rows use n_experts of the routed experts */
#define AE_LACKS_MIXER 2u   /* its attention is left out */
#define AE_LACKS_FFN 4u     /* its feed-forward block is left out */

typedef struct ae_pass_mode {
    uint32_t n_experts;   /* 0 to those that the model uses; 0: the shared expert alone */
    const uint8_t *lacks; /* [n_layers]; the same ones in all such passes of an engine. Attention whose keys and values other
                           * layers read, and recurrent layers, cannot be left out */
} ae_pass_mode;

#endif
