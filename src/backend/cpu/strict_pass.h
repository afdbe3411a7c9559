/* strict_pass.h - checks of passes for "cpu-strict": equal keys mean equal operations (backend.h). See strict_pass.c. */
#ifndef AE_BACKEND_CPU_STRICT_PASS_H
#define AE_BACKEND_CPU_STRICT_PASS_H

#include "backend/backend.h"

typedef struct ae_cpu_passes ae_cpu_passes;

void ae_cpu_passes_free(ae_cpu_passes *passes);
void ae_cpu_pass_check_begin(ae_stream *stream, uint64_t key);
void ae_cpu_pass_check_end(ae_stream *stream);
/* Whether a pass runs; then its operations are told. */
bool ae_cpu_pass_is_checked(const ae_stream *stream);
/* The next operation of the pass that runs. `name` has static storage. */
void ae_cpu_pass_check(ae_stream *stream, const char *name, uint64_t hash);
/* An operation that passes data between host and device: a fault, if a pass runs. */
void ae_cpu_pass_check_host(ae_stream *stream, const char *name);

/* Hashes of what a recording keeps of an operation's arguments. */
uint64_t ae_cpu_hash_matmul(const ae_matmul *args);
uint64_t ae_cpu_hash_head_matmul(const ae_head_matmul *args);
uint64_t ae_cpu_hash_norm(const ae_norm *args);
uint64_t ae_cpu_hash_axpy(const ae_axpy *args);
uint64_t ae_cpu_hash_map(const ae_map *args);
uint64_t ae_cpu_hash_moe(const ae_moe *args);
uint64_t ae_cpu_hash_rope_table(const ae_rope_table *args);
uint64_t ae_cpu_hash_rope_kv(const ae_rope_kv *args);
uint64_t ae_cpu_hash_attention(const ae_attention *args);
uint64_t ae_cpu_hash_copy(const ae_copy *args);
uint64_t ae_cpu_hash_conv(const ae_conv *args);
uint64_t ae_cpu_hash_recur(const ae_recur *args);
uint64_t ae_cpu_hash_gated_norm(const ae_gated_norm *args);
uint64_t ae_cpu_hash_state_absorb(const ae_state_pass *args);
uint64_t ae_cpu_hash_kv_commit(const ae_kv_commit_args *args);
uint64_t ae_cpu_hash_numbers(const uint64_t *numbers, size_t n);

#endif
