/* facts.c - implements facts.h. Reads the headers of files with the library's own reader, because aerie.h only reads models. */
#define _XOPEN_SOURCE 700
#include "serve/models/facts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/gguf.h"
#include "base/sha256.h"
#include "convert/quantize/mix.h"
#include "serve/models/models.h"

enum { N_PARTS = 64, PART_BYTES = 1 << 16 };

/* ---- The digest ------------------------------------------------------------------------------------------------- */

/* Finds the digest in a file name: "sha256-" or nothing, then 64 digits, then ".gguf" or nothing. Returns false if the name has
 * another form. */
static bool digest_by_name(const char *path, char out[65])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, "sha256-", 7) == 0) name += 7;
    const size_t n = strspn(name, "0123456789abcdef");
    if (n != 64 || (name[n] && strcmp(name + n, ".gguf"))) return false;
    memcpy(out, name, n);
    out[n] = '\0';
    return true;
}

static void digest_by_parts(const char *path, uint64_t n_bytes, char out[65])
{
    static const char purpose[] = "aerie digest of parts";
    unsigned char *part = malloc(PART_BYTES);
    const int fd = part ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ae_sha256 hash;
    ae_sha256_start(&hash);
    ae_sha256_add(&hash, purpose, sizeof purpose);
    for (int i = 0; i < 8; i++) ae_sha256_add(&hash, &(unsigned char){(unsigned char)(n_bytes >> 8 * i)}, 1);
    const uint64_t last = n_bytes > PART_BYTES ? n_bytes - PART_BYTES : 0;
    bool ok = fd >= 0;
    for (uint64_t i = 0; ok && i < N_PARTS && (last || !i); i++) {
        const ssize_t n = pread(fd, part, PART_BYTES, (off_t)(last * i / (N_PARTS - 1)));
        ok = n >= 0;
        if (ok) ae_sha256_add(&hash, part, (size_t)n);
    }
    if (ok) ae_sha256_end(&hash, out);
    if (fd >= 0) close(fd);
    free(part);
}

static void find_digest(const char *path, uint64_t n_bytes, char out[65])
{
    char *real = realpath(path, NULL);
    out[0] = '\0';
    if (!digest_by_name(path, out) && !(real && digest_by_name(real, out))) digest_by_parts(path, n_bytes, out);
    free(real);
}

/* ---- The head of the file --------------------------------------------------------------------------------------- */

static void copy_string(const ae_gguf *gguf, const char *key, char *out, size_t n)
{
    ae_gguf_string s = {0};
    if (ae_gguf_get_string(gguf, key, false, &s, NULL) != AERIE_OK || !s.data) return;
    snprintf(out, n, "%.*s", (int)(s.n < n ? s.n : n - 1), s.data);
}

static void find_type(const ae_gguf *gguf, serve_facts *f)
{
    uint64_t elements[AE_TYPE_COUNT] = {0};
    uint32_t type = 0, file_type = UINT32_MAX;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *tensor = ae_gguf_tensor_at(gguf, i);
        uint64_t n = 1;
        for (int d = 0; d < 4; d++) n *= (uint64_t)tensor->ne[d]; /* cannot overflow: the reader checked the product */
        elements[tensor->type] += n;
        f->n_params += n;
    }
    for (uint32_t i = 0; i < AE_TYPE_COUNT; i++)
        if (elements[i] > elements[type]) type = i;
    const char *name = f->n_params ? ae_type_get(type)->name : "";
    if (ae_gguf_get_u32(gguf, "general.file_type", false, &file_type, NULL) != AERIE_OK) file_type = UINT32_MAX;
    for (size_t i = 0; i < ae_mix_count(); i++)
        if (ae_mix_at(i)->type != AE_MIX_AS_IS && ae_mix_at(i)->file_type == file_type) name = ae_mix_at(i)->name;
    for (size_t i = 0; name[i] && i + 1 < sizeof f->quantization; i++)
        f->quantization[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
}

static serve_facts read_facts(const char *path, const struct stat *st)
{
    serve_facts f = {.changed = st->st_mtim, .n_bytes = st->st_size};
    ae_gguf *gguf = NULL;
    uint64_t n_bytes = (uint64_t)st->st_size;
    if (ae_gguf_open(&gguf, path, &(ae_gguf_options){.index_only = true}, NULL) == AERIE_OK) {
        n_bytes = ae_gguf_file_bytes(gguf);
        copy_string(gguf, "general.architecture", f.arch, sizeof f.arch);
        copy_string(gguf, "general.license", f.license, sizeof f.license);
        find_type(gguf, &f);
        ae_gguf_close(gguf);
    }
    find_digest(path, n_bytes, f.digest);
    return f;
}

serve_facts serve_facts_get(serve_model *m)
{
    struct stat st;
    if (stat(m->path, &st)) return (serve_facts){0};
    pthread_mutex_lock(&m->lock);
    serve_facts f = m->facts;
    pthread_mutex_unlock(&m->lock);
    if (f.digest[0] && f.n_bytes == st.st_size && f.changed.tv_sec == st.st_mtim.tv_sec &&
        f.changed.tv_nsec == st.st_mtim.tv_nsec)
        return f;
    f = read_facts(m->path, &st); /* read without the lock: another thread may do the same meanwhile */
    pthread_mutex_lock(&m->lock);
    m->facts = f;
    pthread_mutex_unlock(&m->lock);
    return f;
}
