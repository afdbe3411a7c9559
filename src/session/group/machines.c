/* machines.c - aerie_extra.h: a model that several processes run together: joining, comparing and following.
 *
 * Owns a model's part of its group: communicator, map of ranks, commands. Weights are never sent: each process reads its own
 * copy of the file. Everything that must be equal in all processes is compared before any of them loads weights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "base/hash.h"
#include "base/os.h"
#include "comm/mpi.h"
#include "session/group/forms.h"
#include "session/group/shares.h"
#include "session/session_int.h"

static const char *const kinds[] = {"auto", "split", "pipeline"};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

const char *aerie_machines_kind_name(aerie_machines_kind kind)
{
    return (uint32_t)kind < N_KINDS ? kinds[kind] : NULL;
}

bool aerie_machines_kind_parse(const char *name, aerie_machines_kind *kind)
{
    for (uint32_t i = 0; name && kind && i < N_KINDS; i++) {
        if (strcmp(name, kinds[i])) continue;
        *kind = (aerie_machines_kind)i;
        return true;
    }
    return false;
}

uint32_t aerie_machines_started(uint32_t *rank)
{
    return ae_comm_mpi_started(rank);
}

uint32_t aerie_model_rank(const aerie_model *model, uint32_t *n)
{
    const ae_comm *comm = model ? model->comm : NULL;
    if (n) *n = comm ? comm->n_ranks : 1;
    return comm ? comm->rank : 0;
}

aerie_status ae_session_check_alone(const aerie_model *model, const char *what, aerie_error *error)
{
    if (!model->ranks) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: not supported for a model that several machines run (--machines)",
                   what);
}

/* ---- What all must have ---------------------------------------------------------------------------------------- */

/* The facts that each process sends to the others when it joins. */
typedef struct record {
    uint64_t version, file, bytes, settings, adapter;
    uint32_t kind, n_stages, n_shares, shares[AE_MAX_RANKS];
    char host[64];
} record;

#define WORDS (sizeof(record) / sizeof(float))
_Static_assert(sizeof(record) % sizeof(float) == 0, "a record is whole words");

/* Returns the name of the first fact that differs although it must be equal, for a message; NULL: none differs. */
static const char *difference(const record *a, const record *b)
{
    if (a->version != b->version) return "other versions of aerie";
    if (a->adapter != b->adapter) return "other adapters in this place";
    if (a->file != b->file) return "other model files";
    if (a->bytes != b->bytes) return "model files with other bytes (one of them is damaged, or only one has --machines-verify)";
    if (a->settings != b->settings) return "other options for positions or metadata";
    if (a->kind != b->kind || a->n_stages != b->n_stages) return "other kinds of --machines";
    if (a->n_shares != b->n_shares || memcmp(a->shares, b->shares, sizeof a->shares)) return "other values of --split";
    return NULL;
}

static aerie_status compare(const ae_comm *comm, const record *all, aerie_error *error)
{
    for (uint32_t r = 1; r < comm->n_ranks; r++) {
        const char *what = difference(&all[0], &all[r]);
        if (what)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "rank %u on %.63s and rank 0 on %.63s have %s; all ranks of a group "
                           "need the same", r, all[r].host, all[0].host, what);
    }
    return AERIE_OK;
}

static aerie_status exchange(ae_comm *comm, const record *own, aerie_error *error)
{
    ae_slices slices = {{0}, {0}};
    for (uint32_t r = 0; r < comm->n_ranks; r++) slices.first[r] = (uint32_t)(r * WORDS), slices.n[r] = WORDS;
    record *all = ae_alloc(comm->n_ranks, sizeof *all);
    if (!all) return ae_fail_memory(error, "what ranks exchange", comm->n_ranks * sizeof *all);
    all[comm->rank] = *own;
    aerie_status status = ae_comm_reserve(comm, comm->n_ranks * sizeof *all, error);
    if (status == AERIE_OK) {
        ae_comm_gather(comm, &(ae_comm_part){all, comm->n_ranks * WORDS, sizeof(uint32_t), 1, &slices}, 1, ae_to_all(comm));
        status = ae_comm_status(comm, error);
    }
    if (status == AERIE_OK) status = compare(comm, all, error);
    ae_free(all);
    return status;
}

/* Hashes all bytes of all tensors in the order of the file. */
static aerie_status hash_bytes(const ae_gguf *gguf, uint64_t *hash, aerie_error *error)
{
    static const size_t piece = 1 << 20;
    uint8_t *buffer = ae_alloc(1, piece);
    if (!buffer) return ae_fail_memory(error, "a buffer to read into", piece);
    ae_gguf_reader reader = ae_gguf_reader_open(gguf);
    aerie_status status = AERIE_OK;
    *hash = 1;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        for (uint64_t at = 0; status == AERIE_OK && at < t->bytes; at += piece) {
            const size_t n = t->bytes - at < piece ? (size_t)(t->bytes - at) : piece;
            status = ae_gguf_read(&reader, t, at, buffer, n, error);
            if (status == AERIE_OK) *hash = ae_hash64(*hash, buffer, n);
        }
    }
    ae_gguf_reader_close(&reader);
    ae_free(buffer);
    return status;
}

aerie_status ae_session_same_adapter(const aerie_model *m, const ae_gguf *gguf, float alpha, aerie_error *error)
{
    record own = {0};
    if (!m->commands) return AERIE_OK;
    if (!m->comm->rank && ae_commands_began(m->commands))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s: a group of machines loads its adapters before its first session",
                       ae_gguf_path(gguf));
    AE_TRY(hash_bytes(gguf, &own.adapter, error));
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        own.adapter = ae_hash64(own.adapter, t->name.data, t->name.n);
    }
    own.adapter = ae_hash64(own.adapter, (const char *)&alpha, sizeof alpha);
    ae_comm_mpi_host(m->comm, own.host, sizeof own.host);
    return exchange(m->comm, &own, error);
}

static aerie_status check_same(aerie_model *m, const aerie_machines *o, aerie_error *error)
{
    const char *version = aerie_version();
    record own = {.version = ae_hash64(0, version, strlen(version)), .file = m->fingerprint, .settings = m->settings,
                  .kind = (uint32_t)o->kind, .n_stages = o->n_stages, .n_shares = (uint32_t)o->n_shares};
    for (size_t i = 0; i < o->n_shares && i < AE_MAX_RANKS; i++) own.shares[i] = o->shares[i];
    ae_comm_mpi_host(m->comm, own.host, sizeof own.host);
    if (o->verify) AE_TRY(hash_bytes(m->model->gguf, &own.bytes, error));
    return exchange(m->comm, &own, error);
}

/* ---- Joining ------------------------------------------------------------------------------------------------------- */

static void last_words(void *user, const char *reason)
{
    const aerie_model *m = user;
    ae_log_say(&m->log, AERIE_LOG_WARNING, "rank %u of %u ends the group: %s", m->comm ? m->comm->rank : 0,
               m->comm ? m->comm->n_ranks : 0, reason);
}

static aerie_status check_machines(const aerie_machines *o, aerie_error *error)
{
    if (!aerie_machines_kind_name(o->kind) || o->n_shares > AE_MAX_RANKS || !(o->limit >= 0))
        return ae_fail(error, AERIE_ERROR_ARGUMENT,
                       "machines of kind %u, %zu shares, a limit of %g s; there are the kinds of aerie_machines_kind, and up "
                       "to %d shares",
                       (uint32_t)o->kind, o->n_shares, o->limit, AE_MAX_RANKS);
    if (o->n_stages && o->kind != AERIE_MACHINES_PIPELINE)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u stages of a group of kind %s; a pipeline has stages", o->n_stages,
                       aerie_machines_kind_name(o->kind));
    return AERIE_OK;
}

/* Where a rank's parts cannot be cut, every process would hold them whole and a split would gain nothing: a pipeline saves more
 * memory. */
static aerie_status map_ranks(ae_ranks **ranks, const ae_model *model, ae_comm *comm, const aerie_machines *o,
                              aerie_error *error)
{
    const bool pipeline = o->kind == AERIE_MACHINES_PIPELINE;
    const uint32_t n = comm->n_ranks, n_stages = !pipeline ? AE_RANKS_SPLIT : o->n_stages ? o->n_stages : n;
    const uint32_t *shares = o->n_shares ? o->shares : NULL;
    if (o->n_shares && (o->n_shares != comm->n_ranks || !o->shares))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a split into %zu shares (--split), but %u processes", o->n_shares,
                       comm->n_ranks);
    AE_TRY(ae_ranks_create(ranks, model, comm, n_stages, shares, error));
    if (o->kind != AERIE_MACHINES_AUTO || !(*ranks)->n_whole) return AERIE_OK;
    ae_ranks_free(*ranks);
    return ae_ranks_create(ranks, model, comm, n, shares, error);
}

/* If AERIE_COMM_SLOW is set, wraps the network in one with that latency and bandwidth, for tests and measurements. */
static aerie_status slow_down(ae_comm **comm, aerie_error *error)
{
    const char *text = getenv("AERIE_COMM_SLOW");
    ae_comm_delay delay;
    if (!text || !*text) return AERIE_OK;
    AE_TRY(ae_comm_delay_parse(text, &delay, error));
    ae_comm *inner = *comm;
    return ae_comm_slow(comm, inner, &delay, error);
}

/* Measures what each process can compute: speeds of all [AE_MAX_RANKS]; *bytes: of all weights. */
static aerie_status measure_speeds(const aerie_model *m, const aerie_model_params *p, ae_group_speed *all, size_t *bytes,
                                   aerie_error *error)
{
    ae_comm *comm = m->comm;
    ae_slices slices = {{0}, {0}};
    const ae_load_options options = {.n_threads = 1};
    const size_t room = AE_MAX_RANKS * sizeof *all;
    for (uint32_t r = 0; r < comm->n_ranks; r++) slices.first[r] = r, slices.n[r] = 1;
    AE_TRY(ae_net_plan_bytes(bytes, m->model, m->devices.list[0], &options, error));
    ae_group_measure(m->devices.list[0], m->model->gguf, p->n_threads ? p->n_threads : (uint32_t)ae_os_n_cores(),
                     &all[comm->rank]);
    AE_TRY(ae_comm_reserve(comm, room, error));
    ae_comm_gather(comm, &(ae_comm_part){all, comm->n_ranks, sizeof *all, 1, &slices}, 1, ae_to_all(comm));
    return ae_comm_status(comm, error);
}

static void tell_shares(const aerie_model *m, const uint32_t *shares)
{
    ae_buf text = {0};
    for (uint32_t r = 0; r < m->comm->n_ranks; r++) ae_buf_addf(&text, "%s%u", r ? "," : "", shares[r]);
    if (!m->comm->rank && !text.failed)
        ae_log_say(&m->log, AERIE_LOG_INFO, "shares by measured speed and free memory: --split %s", text.data);
    ae_buf_free(&text);
}

/* Replaces `auto` by the form that takes least for a row, by the links between the processes and their speeds. */
static aerie_status choose_form(const aerie_model *m, aerie_machines *o, const ae_group_speed *all, size_t bytes,
                                aerie_error *error)
{
    ae_group_form forms[AE_GROUP_FORMS];
    uint32_t n;
    bool codes = true;
    const double reading = ae_group_reading(all, m->comm->n_ranks, m->model->gguf, bytes);
    for (uint32_t r = 0; r < m->comm->n_ranks; r++) codes = codes && all[r].takes_blocks;
    const uint32_t *shares = o->n_shares == m->comm->n_ranks ? o->shares : NULL;
    AE_TRY(ae_group_list_forms(forms, &n, m->model, m->comm->n_ranks, shares, codes, error));
    AE_TRY(ae_group_measure_links(m->comm, forms, n, error));
    const ae_group_form *best = ae_group_best_form(forms, n, reading);
    for (uint32_t i = 0; i < n && !m->comm->rank; i++)
        ae_log_say(&m->log, AERIE_LOG_INFO, "%u stages%s: %.3f ms a row (rounds of %.0f us)%s", forms[i].n_stages,
                   forms[i].is_cut ? "" : ", which hold layers that cannot be cut",
                   1e3 * ae_group_seconds(&forms[i], reading, &forms[0].link), 1e6 * forms[i].link.latency,
                   &forms[i] == best ? ": chosen" : "");
    o->kind = best && best->n_stages > 1 ? AERIE_MACHINES_PIPELINE : AERIE_MACHINES_SPLIT;
    o->n_stages = o->kind == AERIE_MACHINES_PIPELINE ? best->n_stages : 0;
    return AERIE_OK;
}

/* Sets what the user has left open: shares [AE_MAX_RANKS], and whether to split. */
static aerie_status decide(const aerie_model *m, const aerie_model_params *p, aerie_machines *o, uint32_t *shares,
                           aerie_error *error)
{
    ae_group_speed all[AE_MAX_RANKS] = {{0}};
    size_t bytes = 0;
    if (m->comm->n_ranks == 1 || (o->n_shares && o->kind != AERIE_MACHINES_AUTO)) return AERIE_OK;
    AE_TRY(measure_speeds(m, p, all, &bytes, error));
    if (!o->n_shares) {
        ae_group_shares(all, m->comm->n_ranks, bytes, shares);
        tell_shares(m, shares);
        o->shares = shares, o->n_shares = m->comm->n_ranks;
    }
    if (o->kind != AERIE_MACHINES_AUTO) return AERIE_OK;
    return choose_form(m, o, all, bytes, error);
}

/* Inputs of products are sent as codes if all ranks' devices can make them and take them. */
static aerie_status agree_on_codes(aerie_model *m, aerie_error *error)
{
    ae_comm *comm = m->comm;
    uint32_t all[AE_MAX_RANKS] = {0};
    ae_slices slices = {{0}, {0}};
    for (uint32_t r = 0; r < comm->n_ranks; r++) slices.first[r] = r, slices.n[r] = 1;
    all[comm->rank] = m->devices.list[0]->ops->takes_blocks;
    AE_TRY(ae_comm_reserve(comm, sizeof all, error));
    ae_comm_gather(comm, &(ae_comm_part){all, comm->n_ranks, sizeof *all, 1, &slices}, 1, ae_to_all(comm));
    m->ranks->codes = true;
    for (uint32_t r = 0; r < comm->n_ranks; r++) m->ranks->codes = m->ranks->codes && all[r];
    return ae_comm_status(comm, error);
}

/* "split", "pipeline", or "pipeline of 2 stages", which are split. */
static void add_kind(ae_buf *text, const ae_ranks *r)
{
    ae_buf_addf(text, "%s", r->n_stages == AE_RANKS_SPLIT ? "split" : "pipeline");
    if (r->n_stages > AE_RANKS_SPLIT && r->n_stages < r->n) ae_buf_addf(text, " of %u stages", r->n_stages);
}

static void tell(const aerie_model *m)
{
    const ae_ranks *r = m->ranks;
    const ae_ranks_counts c = ae_ranks_count(r, m->model, r->codes);
    ae_buf text = {0};
    add_kind(&text, r);
    if (!text.failed)
        ae_log_say(&m->log, AERIE_LOG_INFO, "rank %u of %u, %s: %u rounds and %llu bytes for a row%s", r->own, r->n, text.data,
                   c.n_own, (unsigned long long)c.row_bytes,
                   r->n_whole ? "; layers that cannot be cut are computed by every rank" : "");
    ae_buf_free(&text);
}

aerie_status ae_session_join(aerie_model *m, const aerie_model_params *p, aerie_error *error)
{
    if (!p->machines) return AERIE_OK;
    AE_STRUCT_TAKE(machines, o, p->machines, error);
    AE_TRY(check_machines(&o, error));
    if (!ae_comm_mpi_started(NULL))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this process was not started as one of several: mpirun -n 4 aerie ... "
                       "--machines %s (docs/machines.md)", aerie_machines_kind_name(o.kind));
    const ae_comm_mpi_options options = {.insecure = o.insecure, .last_words = last_words, .user = m};
    AE_TRY(ae_comm_mpi(&m->comm, &options, error));
    AE_TRY(check_same(m, &o, error));
    AE_TRY(slow_down(&m->comm, error));
    uint32_t shares[AE_MAX_RANKS];
    AE_TRY(decide(m, p, &o, shares, error));
    AE_TRY(map_ranks(&m->ranks, m->model, m->comm, &o, error));
    AE_TRY(agree_on_codes(m, error));
    AE_TRY(ae_commands_open(&m->commands, m->comm, error));
    tell(m);
    return AERIE_OK;
}

aerie_status ae_session_joined(const aerie_model *m, const aerie_model_params *p, aerie_error *error)
{
    if (!m->comm) return AERIE_OK;
    AE_STRUCT_TAKE(machines, o, p->machines, error);
    ae_slices slices = {{0}, {0}};
    float one[AE_MAX_RANKS] = {0};
    for (uint32_t r = 0; r < m->comm->n_ranks; r++) slices.first[r] = r, slices.n[r] = 1;
    AE_TRY(ae_comm_reserve(m->comm, sizeof one, error));
    ae_comm_gather(m->comm, &(ae_comm_part){one, m->comm->n_ranks, sizeof *one, 1, &slices}, 1, ae_to_all(m->comm));
    ae_comm_limit(m->comm, o.limit);
    return ae_comm_status(m->comm, error);
}

void ae_session_leave(aerie_model *m)
{
    ae_commands_close(m->commands);
    ae_ranks_free(m->ranks);
    ae_comm_close(m->comm);
}

aerie_status aerie_model_follow(const aerie_model *model, uint32_t n_threads, aerie_error *error)
{
    AE_NEED(model, error);
    if (!model->commands || !model->comm->rank)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "this process is %s, so it follows nobody",
                       model->commands ? "the first one of its group" : "alone");
    return ae_commands_follow(model->commands, model->net, n_threads ? n_threads : (uint32_t)ae_os_n_cores(), error);
}

/* ---- What each would have -------------------------------------------------------------------------------------------- */

static uint64_t weights_of(const ae_model *model, const ae_ranks *ranks, ae_backend *backend, aerie_status *status,
                           aerie_error *error)
{
    const ae_load_options options = {.n_threads = 1, .ranks = ranks};
    size_t bytes = 0;
    if (*status == AERIE_OK) *status = ae_net_plan_bytes(&bytes, model, backend, &options, error);
    return bytes;
}

static void describe_rank(ae_buf *text, const ae_model *model, const ae_ranks *ranks, uint64_t bytes)
{
    const uint32_t stage = ranks->stage, at = ranks->begin[stage], end = ranks->begin[stage + 1];
    ae_buf_addf(text, "rank %u: %.1f MiB of weights, receives %llu bytes a row", ranks->own, ae_session_mib(bytes),
                (unsigned long long)ae_ranks_count(ranks, model, ranks->codes).row_bytes);
    if (ranks->n_stages > AE_RANKS_SPLIT)
        ae_buf_addf(text, ", layers %u to %u%s", at, end, stage || ae_ranks_cuts(ranks) ? "" : " and the output");
    if (ae_ranks_cuts(ranks) && at < end)
        ae_buf_addf(text, ", of layer %u %u heads and %u feed-forward rows", at, ranks->layers[at].own.n_heads,
                    ranks->layers[at].own.n_ff);
    if (ae_ranks_cuts(ranks) && !stage) ae_buf_addf(text, ", %u rows of the output", ranks->vocab.n[ranks->own]);
    ae_buf_addf(text, "\n");
}

static aerie_status describe(ae_buf *text, const ae_model *model, ae_backend *backend, const aerie_machines *o, uint32_t n,
                             aerie_error *error)
{
    aerie_status status = AERIE_OK;
    ae_ranks *all[AE_MAX_RANKS] = {0};
    uint32_t n_rounds = 0;
    bool whole = false;
    for (uint32_t r = 0; r < n && status == AERIE_OK; r++) {
        ae_comm comm = {.rank = r, .n_ranks = n};
        status = map_ranks(&all[r], model, &comm, o, error);
        if (status != AERIE_OK) break;
        all[r]->codes = backend->ops->takes_blocks;
        const ae_ranks_counts c = ae_ranks_count(all[r], model, all[r]->codes);
        n_rounds += (all[r]->first[all[r]->stage] == r ? c.n_inner : 0) + (r ? 0 : c.n_handed);
        whole |= all[r]->n_whole > 0;
    }
    if (status == AERIE_OK) add_kind(text, all[0]);
    if (status == AERIE_OK)
        ae_buf_addf(text, " over %u machines: %u rounds a pass%s\n", n, n_rounds,
                    whole ? "; layers that cannot be cut are computed by each" : "");
    for (uint32_t r = 0; r < n && status == AERIE_OK; r++) {
        const uint64_t bytes = weights_of(model, all[r], backend, &status, error);
        describe_rank(text, model, all[r], bytes);
    }
    for (uint32_t r = 0; r < n; r++) ae_ranks_free(all[r]);
    return status;
}

aerie_status aerie_machines_describe(char **text, const char *path, const aerie_machines *machines, uint32_t n,
                                     aerie_error *error)
{
    AE_NEED(text, error);
    *text = NULL;
    AE_NEED(path, error);
    AE_STRUCT_TAKE(machines, o, machines, error);
    AE_TRY(check_machines(&o, error));
    if (!n || n > AE_MAX_RANKS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u machines; 1 to %d are possible", n, AE_MAX_RANKS);
    ae_session_devices devices;
    ae_model *model = NULL;
    ae_buf buf = {0};
    size_t length;
    const aerie_model_params params = aerie_model_params_default();
    AE_TRY(ae_session_open_devices(&devices, &params, error));
    aerie_status status = ae_model_load(&model, path, NULL, error);
    if (status == AERIE_OK) status = describe(&buf, model, devices.list[0], &o, n, error);
    ae_model_free(model);
    ae_session_close_devices(&devices);
    if (status == AERIE_OK) return ae_session_give_text(&buf, text, &length, error);
    ae_buf_free(&buf);
    return status;
}
