/* fuzz_torch.c - any bytes opened as a PyTorch checkpoint (fuzz_st.inc). */
#include "fuzz_st.inc"

#include "formats/torch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_opened(ae_torch_open_memory, "fuzz.pt", data, size);
}
