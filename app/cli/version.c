/* version.c - the commit and the build, and two facts that aerie.h does not provide, taken from the library's internals: the
 * best kernel level of this machine, and the tensor type that takes most bytes of a model file. */
#include <stdio.h>

#include "backend/cpu/ref/kernels.h"
#include "formats/gguf.h"
#include "cli/commands.h"

#include <commit.h> /* written by cmake/commit.cmake */

const char *app_commit(void)
{
    return *AERIE_COMMIT ? AERIE_COMMIT : "unknown: built from a source archive, without git";
}

const char *app_build(void)
{
    return *AERIE_BUILD ? AERIE_BUILD : "without a build type";
}

const char *app_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "another compiler";
#endif
}

const char *app_cpu_level(void)
{
    ae_kernels kernels;
    bool supported;
    return ae_kernels_select(&kernels, NULL, &supported) ? kernels.level : "ref";
}

uint64_t app_main_type(const char *path, char out[16])
{
    uint64_t bytes[AE_TYPE_COUNT] = {0};
    ae_gguf *gguf;
    uint32_t best = 0;
    uint64_t all = 0;
    snprintf(out, 16, "?");
    if (ae_gguf_open(&gguf, path, NULL, NULL) != AERIE_OK) return 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *tensor = ae_gguf_tensor_at(gguf, i);
        bytes[tensor->type] += tensor->bytes;
        all += tensor->bytes;
        if (bytes[tensor->type] > bytes[best]) best = tensor->type;
    }
    if (bytes[best]) snprintf(out, 16, "%s", ae_type_name(best));
    ae_gguf_close(gguf);
    return all;
}
