/* kernels_amx.c - what the amx level improves over avx512: products of several rows with packed weights, attention over q8_0
 * caches. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_amx(ae_kernels *k)
{
    k->level = "amx";
    k->mm_tiles_32 = ae_amx_mm_p16_32;
    k->mm_tiles_256 = ae_amx_mm_p16_256;
    k->attention[AE_KV_Q8_0] = ae_amx_attention_q8;
    k->latent_write[AE_KV_F16] = ae_amx_latent_write_codes15;
    k->latent_write[AE_KV_Q8_0] = ae_amx_latent_write_q8;
    k->latent_attention[AE_KV_F16] = ae_amx_latent_attention_codes15;
    k->latent_attention[AE_KV_Q8_0] = ae_amx_latent_attention_q8;
    k->latent_unturn = ae_amx_latent_unturn;
}
