/* devices.c - opens the devices that a model is to be on, and decides which of its layers lie where (aerie_model_params).
 *
 * Owns nothing: the backends that are opened here belong to the caller. The map itself is engine/weights/split.h.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/device.h"
#include "formats/patterns.h"
#include "session/session_int.h"

#define MAX_NAMES 256 /* longest list of devices, in bytes */

void ae_session_close_devices(ae_session_devices *d)
{
    for (uint32_t i = 0; i < d->n; i++) ae_backend_close(d->list[i]);
    *d = (ae_session_devices){0};
}

static aerie_status open_one(ae_session_devices *d, const char *name, const char *cpu_level, aerie_error *error)
{
    if (d->n == AE_MAX_DEVICES)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a model can use at most %d devices; \"%s\" is one too many",
                       AE_MAX_DEVICES, name);
    AE_TRY(ae_backend_open(&d->list[d->n], name, cpu_level, error));
    d->n++;
    return AERIE_OK;
}

/* Opens the devices of a comma-separated list of names. */
static aerie_status open_list(ae_session_devices *d, const char *names, const char *cpu_level, aerie_error *error)
{
    char text[MAX_NAMES];
    if (strlen(names) >= sizeof text)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the list of devices has %zu bytes; the devices are %s", strlen(names),
                       ae_backend_names());
    snprintf(text, sizeof text, "%s", names);
    for (char *name = text, *next; name; name = next) {
        next = strchr(name, ',');
        if (next) *next++ = '\0';
        if (!*name) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the list of devices \"%s\" has an empty name", names);
        for (const char *other = text; other < name; other += strlen(other) + 1)
            if (!strcmp(other, name)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "device %s is named twice", name);
        AE_TRY(open_one(d, name, cpu_level, error));
    }
    return AERIE_OK;
}

static bool is_cpu(const ae_backend *backend)
{
    return !strcmp(backend->ops->name, "cpu");
}

/* Returns whether some layers may be on the CPU even if the list does not name it. */
static bool wants_cpu(const aerie_model_params *p)
{
    return p->n_gpu_layers || p->n_cpu_moe || p->n_cpu_ffn || p->n_placements;
}

static aerie_status open_all(ae_session_devices *d, const aerie_model_params *p, aerie_error *error)
{
    const bool listed = p->backend && strchr(p->backend, ',');
    AE_TRY(listed ? open_list(d, p->backend, p->cpu_level, error) : open_one(d, p->backend, p->cpu_level, error));
    d->n_named = d->n;
    d->cpu = 0;
    while (d->cpu < d->n && !is_cpu(d->list[d->cpu])) d->cpu++;
    if (d->n_named > 1 && p->n_gpu_layers && d->cpu < d->n)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the CPU is among the devices \"%s\", and a number of layers on them "
                       "(-ngl) leaves the others to the CPU too: give one or the other", p->backend);
    return d->cpu == d->n && wants_cpu(p) ? open_one(d, "cpu", p->cpu_level, error) : AERIE_OK;
}

aerie_status ae_session_open_devices(ae_session_devices *d, const aerie_model_params *p, aerie_error *error)
{
    *d = (ae_session_devices){0};
    const aerie_status status = open_all(d, p, error);
    if (status != AERIE_OK) ae_session_close_devices(d);
    return status;
}

aerie_status aerie_model_try_devices(const aerie_model *model, aerie_error *error)
{
    AE_NEED(model, error);
    const ae_session_devices *d = &model->devices;
    const ae_stream_options smallest = {.n_threads = 1, .max_rows = 1, .max_in = 32};
    for (uint32_t i = 0; i < d->n; i++) {
        const ae_backend_ops *ops = d->list[i]->ops;
        ae_stream *stream;
        if (is_cpu(d->list[i])) continue;
        AE_TRY(ops->stream_create(d->list[i], &smallest, &stream, error));
        const aerie_status status = ops->sync(stream, error); /* waits for all that the device was given */
        ops->stream_free(stream);
        if (status != AERIE_OK) return status;
    }
    return AERIE_OK;
}

/* ---- Feed-forward blocks whose device is chosen by the names of their weights ----------------------------------- */

/* A block lies whole on one device: on the one that placements (aerie_model_params.placements) give most of its bytes to.
 * Weights that no placement names do not count. Source: llama.cpp's --override-tensor, which places single weights. The first
 * pattern that matches a name decides there, too. */

/* Returns the layer whose feed-forward block has the weight, or UINT32_MAX. Source: names as in "blk.3.ffn_up_exps.weight". */
static uint32_t layer_of(ae_gguf_string name)
{
    static const char before[] = "blk.", after[] = ".ffn_";
    const size_t n_before = sizeof before - 1, n_after = sizeof after - 1;
    size_t at = n_before;
    uint32_t layer = 0;
    if (name.n < n_before || memcmp(name.data, before, n_before)) return UINT32_MAX;
    for (; at < name.n && isdigit((unsigned char)name.data[at]) && layer < AE_MAX_LAYERS; at++)
        layer = 10 * layer + (uint32_t)(name.data[at] - '0');
    if (at == n_before || name.n - at < n_after || memcmp(name.data + at, after, n_after)) return UINT32_MAX;
    return layer;
}

/* Returns whether two names of devices are equal, whatever their case; "cuda" is "cuda0". */
static bool is_same_device(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) return false;
    if (n_a == n_b) return true;
    const char *longer = n_a > n_b ? a : b;
    return n && (n_a > n_b ? n_a : n_b) == n + 1 && longer[n] == '0' && !isdigit((unsigned char)longer[n - 1]);
}

/* Finds the number, in the list of devices, of the one that a placement names after its last '='. */
static aerie_status find_device(const ae_session_devices *d, const aerie_model_params *p, const char *placement,
                                uint32_t *device, aerie_error *error)
{
    const char *name = strrchr(placement, '='), *names = p->backend ? p->backend : "";
    if (!name || name == placement || !name[1])
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the placement \"%.160s\" is not PATTERN=DEVICE, as in \"exps=CPU\"",
                       placement);
    const size_t n = strlen(++name);
    *device = d->cpu;
    if (is_same_device(name, n, "cpu", 3)) return AERIE_OK;
    *device = 0;
    for (const char *at = names, *end; *device < d->n_named; at = end + 1, ++*device) {
        end = at + strcspn(at, ",");
        if (is_same_device(name, n, at, (size_t)(end - at))) return AERIE_OK;
        if (!*end) break;
    }
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "the placement \"%.160s\" names a device that the model is not on; it is on "
                   "the CPU%s%s", placement, *names ? " and " : "", names);
}

static aerie_status compile(ae_patterns *patterns, const aerie_model_params *p, aerie_error *error)
{
    for (size_t i = 0; i < p->n_placements; i++) {
        const char *text = p->placements[i];
        AE_TRY(ae_patterns_add(patterns, text, (size_t)(strrchr(text, '=') - text), error));
    }
    return AERIE_OK;
}

/* Adds the bytes of each weight to those that its layer's block has on the device of its placement. */
static aerie_status weigh(const ae_model *m, const ae_patterns *patterns, const uint32_t *device,
                          uint64_t (*bytes)[AE_MAX_DEVICES], aerie_error *error)
{
    size_t first;
    for (size_t i = 0; i < ae_gguf_n_tensors(m->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(m->gguf, i);
        const uint32_t layer = layer_of(t->name);
        if (layer >= m->hparams.n_layers) continue;
        AE_TRY(ae_patterns_first(patterns, t->name, &first, error));
        if (first < patterns->n) bytes[layer][device[first]] += t->bytes;
    }
    return AERIE_OK;
}

static aerie_status place(ae_split *split, const ae_session_devices *d, const ae_model *m,
                          const uint64_t (*bytes)[AE_MAX_DEVICES], aerie_error *error)
{
    for (uint32_t layer = 0; layer < m->hparams.n_layers; layer++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < d->n; i++)
            if (bytes[layer][i] > bytes[layer][best]) best = i;
        if (bytes[layer][best] && split->devices[split->ffn[layer]] != d->list[best])
            AE_TRY(ae_split_set_ffn(split, m, layer, d->list[best], error));
    }
    return AERIE_OK;
}

static aerie_status place_by_name(ae_split *split, const ae_session_devices *d, const ae_model *m, const aerie_model_params *p,
                                  aerie_error *error)
{
    ae_patterns patterns = {0};
    aerie_status status = AERIE_OK;
    if (!p->n_placements) return AERIE_OK;
    uint64_t(*bytes)[AE_MAX_DEVICES] = ae_alloc(m->hparams.n_layers + 1, sizeof *bytes);
    uint32_t *device = ae_alloc(p->n_placements, sizeof *device);
    if (!bytes || !device) status = ae_fail_memory(error, "placements", (m->hparams.n_layers + 1) * sizeof *bytes);
    for (size_t i = 0; i < p->n_placements && status == AERIE_OK; i++)
        status = find_device(d, p, p->placements[i], &device[i], error);
    if (status == AERIE_OK) status = compile(&patterns, p, error);
    if (status == AERIE_OK) status = weigh(m, &patterns, device, bytes, error);
    if (status == AERIE_OK) status = place(split, d, m, (const uint64_t(*)[AE_MAX_DEVICES])bytes, error);
    ae_patterns_free(&patterns);
    ae_free(device);
    ae_free(bytes);
    return status;
}

bool ae_session_placement_is_idle(const ae_model *m, const aerie_model_params *p, size_t i)
{
    ae_patterns one = {0};
    bool found = false;
    const char *text = p->placements[i];
    aerie_status status = ae_patterns_add(&one, text, (size_t)(strrchr(text, '=') - text), NULL);
    for (size_t k = 0; status == AERIE_OK && !found && k < ae_gguf_n_tensors(m->gguf); k++) {
        const ae_gguf_string name = ae_gguf_tensor_at(m->gguf, k)->name;
        if (layer_of(name) < m->hparams.n_layers) status = ae_patterns_match(&one, 0, name, &found, NULL);
    }
    ae_patterns_free(&one);
    return status == AERIE_OK && !found;
}

/* ---- Which layers lie where --------------------------------------------------------------------------------- */

/* Computes the share of the layers that each named device gets: as asked for, or in proportion to free memory. The shares sum
 * to 1. */
static aerie_status share_out(const ae_session_devices *d, const aerie_model_params *p, double *share, aerie_error *error)
{
    double sum = 0;
    uint64_t total;
    if (p->n_tensor_split && (p->n_tensor_split != d->n_named || !p->tensor_split))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a split into %zu shares (--tensor-split), but %u devices (--device)",
                       p->n_tensor_split, d->n_named);
    for (uint32_t i = 0; i < d->n_named; i++) {
        uint64_t n_free = 0;
        d->list[i]->ops->memory_info(d->list[i], &n_free, &total);
        share[i] = p->n_tensor_split ? (double)p->tensor_split[i] : n_free ? (double)n_free : 1.0;
        if (!(share[i] >= 0 && share[i] < 1e30))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "share %u of --tensor-split is %g; numbers from 0 on are possible", i,
                           share[i]);
        sum += share[i];
    }
    if (!(sum > 0)) return ae_fail(error, AERIE_ERROR_ARGUMENT, "all shares of --tensor-split are 0; one must be more");
    for (uint32_t i = 0; i < d->n_named; i++) share[i] /= sum;
    return AERIE_OK;
}

/* Puts the last n of the layers and the output (which counts as a layer) on the named devices in order, and earlier layers on
 * the CPU. The rule is llama.cpp's: layer k of these n is on the first device up to which the shares sum to more than k
 * / n. */
static void list_layers(const ae_session_devices *d, const ae_model *m, uint32_t n, const double *share, ae_split *split)
{
    ae_backend *devices[AE_MAX_DEVICES + 1];
    uint32_t begin[AE_MAX_DEVICES + 1], n_devices = 0;
    const uint32_t n_all = m->hparams.n_layers + 1;
    if (n < n_all) devices[n_devices] = d->list[d->cpu], begin[n_devices++] = 0;
    double before = 0;
    for (uint32_t i = 0; i < d->n_named; before += share[i++]) {
        uint32_t k = 0;
        while (k < n && (double)k / n < before - 1e-9) k++;
        devices[n_devices] = d->list[i], begin[n_devices++] = i ? n_all - n + k : n_all - n;
    }
    ae_split_layers(split, m, devices, begin, n_devices);
}

aerie_status ae_session_place(ae_split *split, const ae_session_devices *d, const ae_model *m, const aerie_model_params *p,
                              aerie_error *error)
{
    double share[AE_MAX_DEVICES];
    const uint32_t n_all = m->hparams.n_layers + 1;
    const bool all = !p->n_gpu_layers || p->n_gpu_layers >= n_all || (d->n_named == 1 && is_cpu(d->list[0]));
    AE_TRY(share_out(d, p, share, error));
    list_layers(d, m, all ? n_all : p->n_gpu_layers, share, split);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const bool experts = m->layers[i].spec.ffn == AE_FFN_EXPERTS || m->layers[i].spec.ffn == AE_FFN_BOTH;
        const uint32_t n = experts ? p->n_cpu_moe : m->layers[i].spec.ffn == AE_FFN_DENSE ? p->n_cpu_ffn : 0;
        if (i >= n || split->devices[split->ffn[i]] == d->list[d->cpu]) continue;
        AE_TRY(ae_split_set_ffn(split, m, i, d->list[d->cpu], error));
    }
    return place_by_name(split, d, m, p, error);
}

void ae_session_describe_split(const ae_split *split, uint32_t n_layers, char *text, size_t room)
{
    size_t n = 0;
    for (uint32_t begin = 0, end; begin <= 2 * n_layers && n < room; begin = end) {
        end = ae_split_run_end(split, n_layers, begin);
        const char *name = split->devices[ae_split_device(split, n_layers, begin)]->ops->name;
        const char *comma = n ? ", " : "";
        const uint32_t first = begin / 2, last = (end - 1) / 2;
        if (begin == 2 * n_layers) n += (size_t)snprintf(text + n, room - n, "%sthe output on %s", comma, name);
        else if (end > 2 * n_layers && first == n_layers - 1 && begin % 2)
            n += (size_t)snprintf(text + n, room - n, "%sthe feed-forward block of layer %u and the output on %s", comma, first,
                                  name);
        else if (end > 2 * n_layers)
            n += (size_t)snprintf(text + n, room - n, "%slayers from %u on and the output on %s", comma, first, name);
        else if (end - begin == 1)
            n += (size_t)snprintf(text + n, room - n, "%sthe %s of layer %u on %s", comma,
                                  begin % 2 ? "feed-forward block" : "mixer", first, name);
        else n += (size_t)snprintf(text + n, room - n, "%slayers %u to %u on %s", comma, first, last, name);
    }
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

aerie_status ae_session_check_split(const ae_split *split, const char *what, const size_t *on, const char *advice,
                                    aerie_error *error)
{
    char text[96];
    for (uint32_t i = 0; i < split->n_devices; i++) {
        snprintf(text, sizeof text, "%s, on %s,", what, split->devices[i]->ops->name);
        AE_TRY(ae_session_check_memory(split->devices[i], text, on[i], advice, error));
    }
    return AERIE_OK;
}

aerie_status ae_session_check_engine(const ae_model *model, const ae_split *split, const ae_engine_options *o, const char *what,
                                     const char *advice, aerie_error *error)
{
    size_t on[AE_MAX_DEVICES];
    if (split->n_devices == 1)
        return ae_session_check_memory(split->devices[0], what, ae_session_bytes(model, split, o), advice, error);
    if (ae_engine_plan_split(model, split, o, on) == SIZE_MAX)
        return ae_fail(error, AERIE_ERROR_MEMORY, "%s needs more memory than can be counted; %s", what, advice);
    return ae_session_check_split(split, what, on, advice, error);
}

uint64_t ae_session_available_split(const ae_split *split)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < split->n_devices; i++) {
        const uint64_t n = ae_session_available(split->devices[i]);
        if (!n) return 0;
        sum += n;
    }
    return sum;
}
