/* mpi.c - loads the module that links MPI, and ensures that no round takes forever (mpi.h).
 *
 * Owns the module's handle and the watching thread, which calls no MPI function until it gives up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"
#include "comm/mpi.h"
#include "comm/mpi_table.h"

typedef struct mpi_comm {
    ae_comm base;
    const ae_mpi_table *mpi;
    void *handle;
    ae_comm_last_words *last_words;
    void *user;
    _Atomic double limit; /* seconds per round; 0: no limit */
    _Atomic double began; /* start of the running round; 0: no round is running */
    atomic_bool ends;
    bool watches;
    pthread_t watch;
} mpi_comm;

static mpi_comm *of(ae_comm *comm)
{
    return (mpi_comm *)comm;
}

static void give_up(mpi_comm *c, const char *reason)
{
    if (c->last_words) c->last_words(c->user, reason);
    c->mpi->give_up(1);
}

static void fail(ae_comm *comm, const char *reason)
{
    give_up(of(comm), reason);
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to)
{
    char reason[AE_MPI_TEXT] = "";
    atomic_store(&of(comm)->began, ae_time_now());
    const int bad = of(comm)->mpi->exchange(packed, begin, (int)to.first, (int)(to.first + to.n), reason);
    atomic_store(&of(comm)->began, 0);
    if (bad) ae_comm_fail(comm, reason);
}

static void frame(ae_comm *comm, void *bytes)
{
    char reason[AE_MPI_TEXT] = "";
    if (of(comm)->mpi->frame(bytes, AE_COMM_FRAME, reason)) ae_comm_fail(comm, reason);
}

static void set_limit(ae_comm *comm, double seconds)
{
    atomic_store(&of(comm)->limit, seconds);
}

static void *watch(void *context)
{
    mpi_comm *c = context;
    const struct timespec nap = {0, 100000000};
    while (!atomic_load(&c->ends)) {
        char reason[160];
        nanosleep(&nap, NULL);
        const double began = atomic_load(&c->began), now = ae_time_now(), limit = atomic_load(&c->limit);
        if (limit <= 0 || began <= 0 || now - began <= limit) continue;
        snprintf(reason, sizeof reason, "rank %u has waited for %.0f s for another one, which hangs or cannot be reached",
                 c->base.rank, now - began);
        give_up(c, reason);
    }
    return NULL;
}

void ae_comm_mpi_host(const ae_comm *comm, char *name, size_t room)
{
    ((const mpi_comm *)comm)->mpi->host(name, room);
}

static void close_mpi(ae_comm *comm)
{
    mpi_comm *c = of(comm);
    atomic_store(&c->ends, true);
    if (c->watches) pthread_join(c->watch, NULL);
    c->mpi->end(); /* the module stays loaded: MPI may have left threads and exit handlers */
    ae_free(c);
}

/* ---- The module ---------------------------------------------------------------------------------------------------- */

static uint32_t number_of(const char *key)
{
    const char *said = getenv(key);
    const int n = said ? atoi(said) : 0;
    return n > 0 ? (uint32_t)n : 0;
}

uint32_t ae_comm_mpi_started(uint32_t *rank)
{
    static const char *const keys[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"},
                                          {"PMIX_SIZE", "PMIX_RANK"}, {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const uint32_t n = number_of(keys[i][0]);
        if (rank) *rank = number_of(keys[i][1]);
        if (n) return n;
    }
    if (rank) *rank = number_of("PMIX_RANK"); /* srun --mpi=pmix sets no size */
    return getenv("PMIX_RANK") ? number_of("SLURM_STEP_NUM_TASKS") : 0;
}

#define MODULE "libaerie-mpi.so"

/* Opens the module next to the library or program, or in the usual folder. */
static void *open_near(void)
{
    static const char *const places[] = {"", "lib/aerie/", "../lib/aerie/", "../lib/x86_64-linux-gnu/aerie/", "aerie/"};
    Dl_info info;
    char path[4096];
    if (!dladdr((const void *)(uintptr_t)ae_comm_mpi_started, &info) || !info.dli_fname) return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    const int n = slash ? (int)(slash - info.dli_fname) + 1 : 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int length = snprintf(path, sizeof path, "%.*s%s" MODULE, n, info.dli_fname, places[i]);
        if (length < 0 || (size_t)length >= sizeof path || !strchr(path, '/')) continue;
        void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* parts of Open MPI look up symbols of other parts */
        if (handle) return handle;
    }
    return NULL;
}

static void *open_module(const char *path)
{
    const char *said = getenv("AERIE_MPI_MODULE");
    if (!path && said && *said) path = said;
    if (path) return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *handle = open_near();
    return handle ? handle : dlopen(MODULE, RTLD_NOW | RTLD_GLOBAL);
}

static aerie_status load_module(mpi_comm *c, const char *path, aerie_error *error)
{
    ae_mpi_table_fn *get = NULL;
    c->handle = open_module(path);
    void *symbol = c->handle ? dlsym(c->handle, AE_MPI_SYMBOL) : NULL;
    if (!symbol)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "MPI cannot be loaded: %.200s. aerie has to be built where MPI is (Debian: "
                       "libopenmpi-dev), and AERIE_MPI_MODULE can name its " MODULE, dlerror());
    memcpy(&get, &symbol, sizeof get);
    c->mpi = get();
    if (c->mpi->version == AE_MPI_VERSION) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, MODULE " is of another version of aerie (%u, not %u)", c->mpi->version,
                   AE_MPI_VERSION);
}

static aerie_status start(mpi_comm *c, const ae_comm_mpi_options *o, aerie_error *error)
{
    char reason[AE_MPI_TEXT] = "";
    if (!o->insecure) AE_TRY(ae_comm_check_network(error));
    AE_TRY(load_module(c, o->module, error));
    if (c->mpi->start(&c->base.rank, &c->base.n_ranks, reason))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s", reason);
    c->watches = c->base.n_ranks > 1 && !pthread_create(&c->watch, NULL, watch, c);
    return AERIE_OK;
}

aerie_status ae_comm_mpi(ae_comm **out, const ae_comm_mpi_options *options, aerie_error *error)
{
    static const ae_comm_ops ops = {"mpi", close_mpi, exchange, frame, set_limit, fail};
    *out = NULL;
    mpi_comm *c = ae_alloc(1, sizeof *c);
    if (!c) return ae_fail_memory(error, "a group of ranks", sizeof *c);
    c->base.ops = &ops;
    c->last_words = options->last_words, c->user = options->user;
    const aerie_status status = start(c, options, error);
    if (status == AERIE_OK) *out = &c->base;
    else ae_free(c); /* if joining failed, the process ends, and MPI's state with it */
    return status;
}
