/* strict.h - the parts of "cpu-strict" (strict.c): checks of passes, and operations that run late.
 *
 * Owns nothing. */
#ifndef AE_BACKEND_CPU_STRICT_H
#define AE_BACKEND_CPU_STRICT_H

#include "backend/cpu/cpu.h"

/* ---- strict_pass.c: equal keys mean equal operations (backend.h) ---- */

typedef struct ae_cpu_passes ae_cpu_passes;

void ae_cpu_passes_free(ae_cpu_passes *passes);
void ae_cpu_pass_check_begin(ae_stream *stream, uint64_t key);
void ae_cpu_pass_check_end(ae_stream *stream);
/* Returns whether a pass runs; if so, its operations are recorded. */
bool ae_cpu_pass_is_checked(const ae_stream *stream);
/* Checks the next operation of the current pass. `name` has static storage. */
void ae_cpu_pass_check(ae_stream *stream, const char *name, uint64_t hash);
/* Reports an operation that passes data between host and device: a fault if a pass runs. */
void ae_cpu_pass_check_host(ae_stream *stream, const char *name);

/* Hashes of what a recording keeps of an operation's arguments. */
uint64_t ae_cpu_hash_matmul(const ae_matmul *args);
uint64_t ae_cpu_hash_head_matmul(const ae_head_matmul *args);
uint64_t ae_cpu_hash_norm(const ae_norm *args);
uint64_t ae_cpu_hash_axpy(const ae_axpy *args);
uint64_t ae_cpu_hash_map(const ae_map *args);
uint64_t ae_cpu_hash_mix(const ae_row_mix *args);
uint64_t ae_cpu_hash_hyper(const ae_hyper *args);
uint64_t ae_cpu_hash_rotate(const ae_rotate *args);
uint64_t ae_cpu_hash_compress(const ae_compress *args);
uint64_t ae_cpu_hash_ngrams(const ae_ngrams *args);
uint64_t ae_cpu_hash_trail(const ae_trail *args);
uint64_t ae_cpu_hash_accord(const ae_accord *args);
uint64_t ae_cpu_hash_moe(const ae_moe *args);
uint64_t ae_cpu_hash_rope_table(const ae_rope_table *args);
uint64_t ae_cpu_hash_rope_kv(const ae_rope_kv *args);
uint64_t ae_cpu_hash_attention(const ae_attention *args);
uint64_t ae_cpu_hash_select(const ae_select *args);
uint64_t ae_cpu_hash_copy(const ae_copy *args);
uint64_t ae_cpu_hash_conv(const ae_conv *args);
uint64_t ae_cpu_hash_recur(const ae_recur *args);
uint64_t ae_cpu_hash_gated_norm(const ae_gated_norm *args);
uint64_t ae_cpu_hash_state_absorb(const ae_state_pass *args);
uint64_t ae_cpu_hash_kv_commit(const ae_kv_commit_args *args);
uint64_t ae_cpu_hash_numbers(const uint64_t *numbers, size_t n);

/* ---- strict.c ---- */

/* Returns how often the host waited for operations that had not run, and how often it fetched data, since the stream began. */
ae_cpu_trips ae_cpu_strict_trips(const ae_stream *stream);

/* ---- strict_late.c: operations of a stream that have been called and have not run yet ---- */

typedef struct ae_cpu_late ae_cpu_late;

/* Runs an operation. args: a copy of what ae_cpu_late_add was given, which it may change; extra follows (ae_cpu_late_extra). */
typedef void ae_cpu_late_run(ae_stream *stream, void *args);

/* Copies args [n_args] and extra [n_extra] bytes, for the operation to read when it runs. */
void ae_cpu_late_add(ae_stream *stream, ae_cpu_late_run *run, const void *args, size_t n_args, const void *extra,
                     size_t n_extra);
void *ae_cpu_late_extra(void *args, size_t n_args);
/* Returns whether there are such operations. */
bool ae_cpu_late_waits(const ae_stream *stream);
/* Runs all of them, in order. */
void ae_cpu_late_flush(ae_stream *stream);
/* Frees the list. Operations that have not run are dropped: nobody waits for their results any more. */
void ae_cpu_late_free(ae_stream *stream);

#endif
