/* kind.c - implements kind.h. */
#define _POSIX_C_SOURCE 200809L
#include "formats/kind.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

/* ---- Files ------------------------------------------------------------------------------------------ */

static const char old_imatrix[] = "an importance matrix in llama.cpp's old format; --imatrix of 'aerie quantize' takes it";
static const char peft_file[] = "the weights of a PEFT adapter; 'aerie convert FOLDER -o ADAPTER.gguf --target MODEL.gguf' "
                                "makes the GGUF file that --lora takes";

/* Returns whether `text` occurs in data. */
static bool holds(const uint8_t *data, size_t n, const char *text)
{
    const size_t k = strlen(text);
    for (size_t i = 0; i + k <= n; i++)
        if (data[i] == (uint8_t)*text && !memcmp(data + i, text, k)) return true;
    return false;
}

static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Format: int32 number of entries, then for each entry int32 length, name, int32 calls, int32 values, f32 [values]. */
bool ae_kind_is_old_imatrix(const void *data, size_t n)
{
    const uint8_t *p = data;
    if (n < 24 || u32_at(p) - 1 >= 1u << 20) return false;
    const uint32_t length = u32_at(p + 4);
    if (length < 6 || length > 256 || n < 8 + (size_t)length) return false;
    for (uint32_t i = 0; i < length; i++)
        if (p[8 + i] < 0x21 || p[8 + i] > 0x7E) return false;
    return holds(p + 8, length, "weight") || holds(p + 8, length, "blk.");
}

/* Format: u64 length of the JSON, then the JSON. */
static const char *safetensors_kind(const uint8_t *p, size_t n)
{
    if (n < 10 || u32_at(p + 4) || p[8] != '{') return NULL;
    if (holds(p, n, ".lora_A.") || holds(p, n, ".lora_B.")) return peft_file;
    return "safetensors, a part of a checkpoint; 'aerie convert FOLDER -o MODEL.gguf' converts it";
}

const char *ae_kind_bytes(const void *data, size_t n)
{
    static const struct {
        const char *start, *what;
    } known[] = {
        {"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"},
        {"tjgg", "a file of the old GGJT format; convert the model to GGUF"},
        {"lmgg", "a file of the old GGML format; convert the model to GGUF"},
        {"fmgg", "a file of the old GGMF format; convert the model to GGUF"},
        {"algg", "a LoRA adapter of the old GGLA format; convert the adapter again with llama.cpp's convert_lora_to_gguf.py"},
        {"\x1f\x8b", "a gzip archive; unpack it with gunzip"},
        {"\x28\xb5\x2f\xfd", "a Zstandard archive; unpack it with unzstd"},
        {"\xfd" "7zXZ", "an xz archive; unpack it with unxz"},
        {"BZh", "a bzip2 archive; unpack it with bunzip2"},
        {"PK\3\4", "a zip archive, perhaps a PyTorch model; convert it to GGUF"},
        {"aerieseq", "a saved sequence of aerie, as --prompt-cache writes it"},
        {"AEFEAT01", "training data of 'aerie train-data'"},
        {"_logits_", "logits that 'aerie perplexity --kl-divergence-base' saved"},
        {"{", "a JSON file; the weights are in another one"},
        {"<", "perhaps an HTML page saved in place of the file"},
    };
    if (n > AE_KIND_BYTES) n = AE_KIND_BYTES;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t k = strlen(known[i].start);
        if (n >= k && !memcmp(data, known[i].start, k)) return known[i].what;
    }
    return ae_kind_is_old_imatrix(data, n) ? old_imatrix : safetensors_kind(data, n);
}

bool ae_kind_is_pointer(const void *data, size_t n)
{
    static const char start[] = "version https://git-lfs";
    return n >= strlen(start) && !memcmp(data, start, strlen(start));
}

const char *ae_kind_data(const void *data, size_t n)
{
    return n >= 4 && !memcmp(data, "GGUF", 4) ? "a GGUF file; it needs no conversion" : ae_kind_bytes(data, n);
}

/* ---- Folders ------------------------------------------------------------------------------------------ */

/* Reads the beginning of a regular file into data[AE_KIND_BYTES]; returns the number of bytes read. */
static size_t read_start(const char *path, uint8_t *data)
{
    ae_file_id id;
    int fd;
    size_t n = 0;
    if (ae_file_open(&fd, &id, path, NULL) != AERIE_OK) return 0;
    n = id.bytes < AE_KIND_BYTES ? (size_t)id.bytes : AE_KIND_BYTES;
    if (ae_file_read(fd, path, 0, data, n, NULL) != AERIE_OK) n = 0;
    ae_file_close(fd);
    return n;
}

static bool has(const char *folder, const char *name)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && ae_file_exists(path);
}

static bool has_gguf(const char *folder)
{
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *e; dir && !found && (e = readdir(dir));) {
        const size_t n = strlen(e->d_name);
        found = n > 5 && !strcmp(e->d_name + n - 5, ".gguf");
    }
    if (dir) closedir(dir);
    return found;
}

const char *ae_kind_folder(const char *path)
{
    struct stat info;
    if (stat(path, &info) || !S_ISDIR(info.st_mode)) return NULL;
    if (has(path, "adapter_config.json"))
        return "the folder of a PEFT adapter; 'aerie convert FOLDER -o ADAPTER.gguf --target MODEL.gguf' makes the GGUF file "
               "that --lora takes";
    if (has_gguf(path)) return "a folder; give one of the GGUF files in it";
    if (has(path, "config.json"))
        return "the folder of a checkpoint; 'aerie convert FOLDER -o MODEL.gguf' makes a GGUF file of it";
    return NULL;
}

const char *ae_kind_path(const char *path)
{
    const char *folder = ae_kind_folder(path);
    if (folder) return folder;
    uint8_t *data = ae_alloc(AE_KIND_BYTES, 1);
    const size_t n = data ? read_start(path, data) : 0;
    const char *what = n ? ae_kind_data(data, n) : NULL;
    ae_free(data);
    return what;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static bool is(const ae_gguf *gguf, const char *key, const char *value)
{
    ae_gguf_string text = {0};
    if (ae_gguf_get_string(gguf, key, false, &text, NULL) != AERIE_OK || !text.data) return false;
    return text.n == strlen(value) && !memcmp(text.data, value, text.n);
}

static bool has_suffix(const ae_gguf *gguf, const char *suffix)
{
    const size_t n = strlen(suffix);
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_string name = ae_gguf_tensor_at(gguf, i)->name;
        if (name.n > n && !memcmp(name.data + name.n - n, suffix, n)) return true;
    }
    return false;
}

ae_role ae_role_of(const ae_gguf *gguf)
{
    if (is(gguf, "general.architecture", "controlvector")) return AE_ROLE_CONTROL_VECTOR;
    if (is(gguf, "general.type", "adapter") || has_suffix(gguf, ".weight.lora_a")) return AE_ROLE_ADAPTER;
    if (is(gguf, "general.type", "imatrix") || has_suffix(gguf, ".in_sum2")) return AE_ROLE_IMATRIX;
    if (is(gguf, "general.type", "mmproj") || is(gguf, "general.architecture", "clip")) return AE_ROLE_MMPROJ;
    return AE_ROLE_MODEL;
}

bool ae_role_is_other(const char *path)
{
    ae_gguf *gguf;
    if (ae_gguf_open(&gguf, path, &(ae_gguf_options){.index_only = true}, NULL) != AERIE_OK) return false;
    const bool other = ae_role_of(gguf) != AE_ROLE_MODEL;
    ae_gguf_close(gguf);
    return other;
}

aerie_status ae_role_need(const ae_gguf *gguf, ae_role wanted, aerie_error *error)
{
    static const char *const is_a[] = {
        [AE_ROLE_MODEL] = "a model or a drafter head; -m takes models, -md drafter heads and draft models",
        [AE_ROLE_ADAPTER] = "a LoRA adapter; --lora takes it, beside -m with the model that it was trained for",
        [AE_ROLE_IMATRIX] = "an importance matrix; --imatrix of 'aerie quantize' takes it",
        [AE_ROLE_MMPROJ] = ("a projector (mmproj) for pictures or sound; --mmproj takes it, beside -m with the model that it "
                            "belongs to"),
        [AE_ROLE_CONTROL_VECTOR] = "a control vector, which aerie cannot apply",
    };
    static const char *const not_a[] = {
        [AE_ROLE_MODEL] = "not a model", [AE_ROLE_ADAPTER] = "not a LoRA adapter",
        [AE_ROLE_IMATRIX] = "not an importance matrix", [AE_ROLE_MMPROJ] = "not a projector",
        [AE_ROLE_CONTROL_VECTOR] = "not a control vector",
    };
    const ae_role role = ae_role_of(gguf);
    if (role == wanted) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %s but %s", ae_gguf_path(gguf), not_a[wanted], is_a[role]);
}
