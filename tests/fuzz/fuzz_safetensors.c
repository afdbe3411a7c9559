/* fuzz_safetensors.c - any bytes opened as a safetensors file (fuzz_st.inc). */
#include "fuzz_st.inc"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_opened(ae_safetensors_open_memory, "fuzz.safetensors", data, size);
}
