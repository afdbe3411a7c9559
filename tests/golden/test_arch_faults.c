/* test_arch_faults.c - the models of the golden logits notice every broken rule.
 *
 * A rule is broken by changing the model's specification after the file was read. The resulting error must be far beyond any
 * rounding: otherwise the model does not test the rule, and must change. The table gives each rule a number
 * (tests/golden/arch/README.md has the list).
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch_rig.inc"

#define MIN_ERROR 1e-2

/* ---- Ways to break a rule: the body is done for each layer l of model m, s its specification ------------------- */

#define BREAK(name, ...)                                                                                                       \
    static void name(ae_model *m)                                                                                              \
    {                                                                                                                          \
        for (uint32_t i = 0; i < m->hparams.n_layers; i++) {                                                                   \
            ae_layer *l = &m->layers[i];                                                                                       \
            ae_layer_spec *s = &l->spec;                                                                                       \
            (void)l, (void)s;                                                                                                  \
            __VA_ARGS__;                                                                                                       \
        }                                                                                                                      \
    }
#define BREAK_MODEL(name, ...)                                                                                                 \
    static void name(ae_model *m)                                                                                              \
    {                                                                                                                          \
        ae_hparams *h = &m->hparams;                                                                                           \
        for (uint32_t i = 0; i < h->n_ropes; i++) {                                                                            \
            ae_rope *r = &h->ropes[i];                                                                                         \
            (void)r;                                                                                                           \
            __VA_ARGS__;                                                                                                       \
        }                                                                                                                      \
    }

/* rotation */
BREAK_MODEL(other_pairs, r->neox = !r->neox)
BREAK_MODEL(whole_rotation, r->n_rot = m->layers[0].spec.head_dim)
BREAK_MODEL(no_scaling, r->scaling = AE_ROPE_SCALING_NONE)
BREAK_MODEL(magnitude_one, r->yarn_log_mul = 1)
BREAK_MODEL(magnitude_log, r->yarn_log_mul = 0)
BREAK_MODEL(usual_beta, r->yarn_beta_fast = 32, r->yarn_beta_slow = 1)
BREAK_MODEL(no_divisors, r->divisors = r->divisors_long = NULL)
BREAK_MODEL(one_table, r->divisors_long = r->divisors)
BREAK_MODEL(other_table, if (r->divisors_long) r->divisors = r->divisors_long)
BREAK_MODEL(attention_factor, r->yarn_attn_factor = 1)
BREAK(ropes_swapped, if (s->rope != AE_NO_ROPE) s->rope = 1 - s->rope)
BREAK(rope_of_others, if (s->window) s->rope = 0; else if (s->rope == 0 && m->hparams.n_ropes > 1) s->rope = 1)
BREAK(no_biases, l->bias = NULL)
BREAK(first_biases, l->bias = m->layers[0].bias)
BREAK(biases_turned, static float turned[AE_MAX_HEADS * AE_BIAS_ROW];
      for (uint32_t k = 0; k < s->n_heads * AE_BIAS_ROW; k++)
          turned[k] = l->bias[k / AE_BIAS_ROW * AE_BIAS_ROW + AE_BIAS_ROW - 1 - k % AE_BIAS_ROW];
      l->bias = turned)
BREAK(rope_everywhere, if (s->rope == AE_NO_ROPE) s->rope = 0)
BREAK(rope_nowhere, s->rope = AE_NO_ROPE)

/* attention */
BREAK(no_window, s->window = 0)
BREAK(window_and_one, if (s->window) s->window++)
BREAK(windows_elsewhere, s->window = s->window ? 0 : 16)
BREAK(norm_other_side, s->qk_norm_last = !s->qk_norm_last)
BREAK(norm_of_heads, s->qk_norm = AE_QK_NORM_HEAD)
BREAK(no_qk_norm, s->qk_norm = AE_QK_NORM_NONE)
BREAK(scale_of_head, s->attn_scale = 1 / sqrtf((float)s->head_dim))
BREAK(no_attention_cap, s->attn_softcap = 0)
BREAK(no_v_norm, s->v_norm = false)
BREAK(no_temperature, s->temperature = false)
BREAK(no_sinks, l->sinks = NULL)
BREAK(no_qkv_bias, l->bq = l->bk = l->bv = l->bqkv = NULL)
BREAK(no_output_bias, l->bo = NULL)
BREAK(no_head_gate, if (s->out_gate == AE_OUT_GATE_HEAD) s->out_gate = AE_OUT_GATE_NONE)
BREAK(earlier_kv, if (s->kv_from != (int)i && s->window) s->kv_from = 2)

/* norms */
BREAK(no_post_norms, l->attn_post_norm = l->ffn_post_norm = NULL)
BREAK(norms_swapped, const ae_tensor_ref t = l->attn_post_norm; l->attn_post_norm = l->ffn_norm; l->ffn_norm = t)
BREAK(ffn_norm_as_post, l->attn_post_norm = l->ffn_norm)
BREAK(pre_not_post, l->attn_norm = l->attn_post_norm; l->ffn_norm = l->ffn_post_norm;
      l->attn_post_norm = l->ffn_post_norm = NULL)
static void rms_not_layer(ae_model *m)
{
    m->hparams.layer_norm = false;
}
static void in_series(ae_model *m)
{
    m->hparams.parallel = false;
}

BREAK(norms_swapped_pre, const ae_tensor_ref t = l->attn_norm; l->attn_norm = l->ffn_norm; l->ffn_norm = t)
BREAK(no_own_gate, if (s->out_gate == AE_OUT_GATE_OWN) s->out_gate = AE_OUT_GATE_NONE)
BREAK(rope_of_windows, if (!s->window) s->rope = AE_NO_ROPE)
BREAK(no_value_scale, s->value_scale = 1)
BREAK(no_clamp, s->clamp_qkv = 0)
BREAK(no_experts_scale, s->experts_scale = 1)
BREAK(no_sub_norms, l->attn_sub_norm = l->ffn_sub_norm = NULL)
BREAK(no_state_beside, s->recur_beside = false)
BREAK_MODEL(usual_base, r->base = 10000)
BREAK(experts_of_stream, s->experts_of_input = false)
BREAK(no_experts_norm, l->e_norm = NULL)
BREAK(no_linear, if (s->mixer == AE_MIXER_LINEAR) s->mixer = AE_MIXER_NONE)
BREAK(no_end_norm, s->normed_after = false)
BREAK(no_qk_norm_bias, l->q_norm_b = l->k_norm_b = NULL)
BREAK(no_norm_bias, l->attn_norm_b = l->ffn_norm_b = NULL)
static void no_slopes(ae_model *m)
{
    m->hparams.slopes = NULL;
}
BREAK(no_again_norm, l->again_norm = NULL)
BREAK(other_xielu, const float t = s->xielu[0]; s->xielu[0] = s->xielu[1]; s->xielu[1] = t)
BREAK(late_router, s->router_of_input = false)
BREAK(sigmoid_gate, s->softplus_gate = false)
static void no_positions(ae_model *m)
{
    m->positions = NULL;
}
BREAK(no_divisors_of_ff, l->ff_divisors = NULL)
static void only_back(ae_model *m)
{
    m->hparams.n_near = 0;
}
BREAK(no_bonus, l->wkv.first = NULL)
BREAK(no_start, l->out_scale = 0)
BREAK(start_by_one, l->out_scale = 1)
BREAK(no_gain, l->q_gain = NULL)
BREAK(no_wkv_norm, l->wkv.norm = l->wkv.norm_b = NULL)
BREAK(no_wkv_bias, l->wkv.norm_b = NULL)
BREAK(no_rescale, l->out_scale = 1)
BREAK(rates_swapped, const ae_tensor_ref t = l->wkv.k_k; l->wkv.k_k = l->wkv.k_a; l->wkv.k_a = t)
BREAK(no_rate, l->wkv.rate = NULL)
BREAK(no_decay, l->wkv.decay = NULL)
BREAK(no_blend, l->wkv.blend = l->wkv.blend_a = l->wkv.blend_b = NULL)
BREAK(lerps_swapped, const ae_tensor_ref t = l->wkv.channel_k; l->wkv.channel_k = l->wkv.channel_r; l->wkv.channel_r = t)
BREAK(no_key_bias, l->wkv.bias_k = NULL)
BREAK(no_wkv_gate, l->wkv.gate_a = l->wkv.gate_b = NULL)
static void no_carry(ae_model *m)
{
    m->hparams.carry_scale = 1;
}
BREAK(rates_of_others, if (s->mixer == AE_MIXER_RECUR) l->recur.rates = m->layers[i ? 0 : 1].recur.rates)
BREAK(carries_swapped, const ae_tensor_ref t = l->mixer_carry; l->mixer_carry = l->ffn_carry; l->ffn_carry = t)
static void no_chunks(ae_model *m)
{
    m->hparams.experts.chunk_scale = 0;
}
static void chunks_by_one(ae_model *m)
{
    m->hparams.experts.chunk_scale = 1;
}
BREAK(no_sparsity, s->sparse = false)
BREAK(sparse_everywhere, s->sparse = true)
BREAK(other_kv, if (s->kv_from != (int)i) s->kv_from = s->window ? 1 : 2)
BREAK(no_laurel, l->altup.laurel_norm = l->ple_post_norm)
BREAK(no_correct_scale, l->altup.correct_scale = l->ffn_norm)
BREAK(norm_of_router, l->altup.router_norm = l->attn_norm)
static void altup_swapped(ae_model *m)
{
    const ae_tensor_ref t = m->altup_proj;
    m->altup_proj = m->altup_unembd, m->altup_unembd = t;
}
static void no_embed_norm(ae_model *m)
{
    m->hparams.embed_norm_plain = false;
}

/* scalars */
static void no_embedding_scale(ae_model *m)
{
    m->hparams.embedding_scale = 1;
}
static void no_residual_scale(ae_model *m)
{
    m->hparams.residual_scale = 1;
}
static void inverse_logit_scale(ae_model *m)
{
    m->hparams.logit_scale = 1 / m->hparams.logit_scale;
}
static void no_logit_cap(ae_model *m)
{
    m->hparams.logit_softcap = 0;
}
static void temperature_later(ae_model *m)
{
    m->hparams.temp_offset += 8;
}
BREAK(no_output_scale, l->out_scale = 1)

/* feed-forward networks and experts */
BREAK(silu, s->activation = AE_ACTIVATION_SILU)
BREAK(gelu, s->activation = AE_ACTIVATION_GELU)
BREAK(no_limit, s->limit = s->shared_limit = INFINITY)
BREAK(limits_swapped, const float x = s->limit; s->limit = s->shared_limit; s->shared_limit = x)
BREAK(no_router_bias, l->router_b = NULL)
BREAK(no_choice_bias, l->router_bias = NULL)
BREAK(no_router_norm, l->router_norm = NULL)
BREAK(no_expert_biases, l->eb_gate = l->eb_up = l->eb_down = NULL)
BREAK(no_down_bias, l->eb_down = NULL)
BREAK(no_expert_scale, l->e_scale = NULL)
BREAK(no_shared_gate, l->s_router = NULL)
static void softmax_of_all(ae_model *m)
{
    m->hparams.experts.gate = AE_EXPERT_GATE_SOFTMAX;
}
static void sigmoid(ae_model *m)
{
    m->hparams.experts.gate = AE_EXPERT_GATE_SIGMOID;
}
static void other_renorm(ae_model *m)
{
    m->hparams.experts.renorm = !m->hparams.experts.renorm;
}
static void no_expert_factor(ae_model *m)
{
    m->hparams.experts.scale = 1;
}
static void weigh_result(ae_model *m)
{
    m->hparams.experts.weigh_input = false;
}
static void no_output_biases(ae_model *m)
{
    m->out_norm_b = m->output_b = NULL;
}
static void no_groups(ae_model *m)
{
    m->hparams.experts.n_groups = m->hparams.experts.n_groups_used = 0;
}

/* the index of sparse attention */
static void one_more_position(ae_model *m)
{
    m->hparams.index.n_most++;
}

static void one_more_block(ae_model *m)
{
    m->hparams.index.n_most += m->hparams.index.block;
}

static void other_blocks(ae_model *m)
{
    m->hparams.index.block /= 2; /* and twice as many */
}

static void no_local_blocks(ae_model *m)
{
    m->hparams.index.n_local = 1;
}

static void other_index_pairs(ae_model *m)
{
    m->hparams.index.neox = !m->hparams.index.neox;
}

/* compressed attention, hyper-connections */
BREAK(no_tokens_experts, l->router_table = NULL)
BREAK(no_compressed_rows, s->every = 0)
BREAK(ropes_of_windows, s->rope = 0)
BREAK(blocks_rotate_at_zero, if (s->every) s->late_rope = s->every == AE_COMPRESS_OVERLAP ? 3 : 2)
BREAK(norms_of_compressors, l->compress.rows.norm = l->mla.kv_a_norm)
BREAK(gates_are_values, l->compress.rows.gate = l->compress.rows.kv)
BREAK(gates_of_index_are_values, l->compress.index.gate = l->compress.index.kv)
BREAK(gates_of_pools_are_keys, if (l->compress.index.gate) l->compress.index.gate = l->mla.index_k)
BREAK(places_of_pools, if (l->compress.index.ape) l->compress.index.ape = l->mla.index_k)
BREAK(silu_of_delta, m->hparams.recur.sigmoid = false)
BREAK(keys_norm_as_index_queries, l->mla.index_k_norm = l->mla.index_q_norm)
BREAK(no_memory, l->memory.table = NULL)
BREAK(one_norm_of_halves, l->hyper_ffn.norm = l->hyper_mixer.norm)
BREAK(one_gate_of_halves, l->hyper_ffn.up = l->hyper_mixer.up)
BREAK(one_share_of_halves, l->hyper_ffn.inject = l->hyper_mixer.inject)
BREAK(keys_norm_as_queries, l->memory.norm_key = l->memory.norm_query)
BREAK(values_norm_as_queries, l->memory.norm_conv = l->memory.norm_query)
static void one_token_less(ae_model *m)
{
    m->hparams.memory.n_tokens = 2, m->hparams.memory.n_each *= 2;
}

static void other_end(ae_model *m)
{
    m->hparams.memory.end++;
}

static void one_tap_less(ae_model *m)
{
    m->hparams.memory.n_taps = 1;
}

static void other_factors(ae_model *m)
{
    const uint64_t f = m->hparams.memory.factors[0];
    m->hparams.memory.factors[0] = m->hparams.memory.factors[1], m->hparams.memory.factors[1] = f;
}

static void other_sizes(ae_model *m)
{
    m->hparams.memory.sizes[0] = 97;
}

static void means_at_own_positions(ae_model *m)
{
    m->hparams.index.pool_rope = 0;
}

static void one_more_pool(ae_model *m)
{
    m->hparams.index.n_most += m->hparams.index.pool;
}

BREAK(one_base_for_halves, l->hyper_ffn.base = l->hyper_mixer.base)

static void other_iterations(ae_model *m)
{
    m->hparams.hyper_iterations = 1;
}

static void larger_hyper_eps(ae_model *m)
{
    m->hparams.hyper_eps = 0.1f;
}

BREAK(no_index, s->index = AE_INDEX_NONE)
BREAK(all_see_all_but_owners, if (s->index == AE_INDEX_OTHER) s->index = AE_INDEX_NONE)
static void index_first(ae_model *m)
{
    m->hparams.index.late = false;
}

static void other_magnitude(ae_model *m)
{
    m->hparams.hyper_magnitude *= 0.5f;
}

static void bank_others(ae_model *m)
{
    m->hparams.bank_every = 2;
    m->hparams.n_banks = (m->hparams.n_layers + 1) / 2;
}

BREAK(one_score, l->ffn_score = l->mixer_score)
BREAK(no_up_limit, s->up_limit = 0)
BREAK(no_latent_norm, l->latent_norm = NULL)
BREAK(no_key_norm, l->k_norm = NULL)
BREAK(scale_of_full, s->attn_scale = m->layers[0].spec.attn_scale)
BREAK(no_index_bias, l->mla.index_k_norm_b = NULL)
static void one_low_cycle(ae_model *m)
{
    m->hparams.n_cycle = 2;
}

static void no_switches(ae_model *m)
{
    m->hparams.adapters.n = 0;
}

static void tokens_as_they_are(ae_model *m)
{
    m->hparams.adapters.substitute = m->hparams.adapters.activate;
}

static void faint_switches(ae_model *m)
{
    m->hparams.adapters.gain = 0.5f;
}

BREAK(never_normed, s->normed_after = false)
BREAK(no_index_norms, l->mla.index_q_norm = NULL)

/* recurrent layers */
BREAK(no_dt_bias, l->recur.dt_bias = NULL)
BREAK(no_conv_bias, l->recur.conv_bias = NULL)
BREAK(no_skip, l->recur.skip = NULL)
BREAK(one_norm_for_heads, if (l->q_norm) s->qk_norm = AE_QK_NORM_HEAD)
BREAK(no_dt_norm, l->recur.dt_norm = NULL)
BREAK(no_b_norm, l->recur.b_norm = NULL)
BREAK(no_c_norm, l->recur.c_norm = NULL)
BREAK(no_plain_step_norms, m->hparams.recur.plain_norms = false)
BREAK(weights_renormed, m->hparams.experts.renorm = true)
BREAK(bound_higher, m->hparams.recur.bound *= 0.5f)
BREAK(no_heads_gate, s->out_gate = AE_OUT_GATE_NONE)
BREAK(taps_swapped, const ae_tensor_ref t = l->recur.conv; l->recur.conv = l->recur.conv_k; l->recur.conv_k = t)
BREAK(taps_of_values, l->recur.conv_v = l->recur.conv_k)
BREAK(no_recur_norm, l->recur.norm = NULL)
BREAK(alpha_and_beta, const ae_tensor_ref t = l->recur.alpha; l->recur.alpha = l->recur.beta; l->recur.beta = t)
static void other_groups(ae_model *m)
{
    m->hparams.recur.tiled = !m->hparams.recur.tiled;
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

static const struct fault {
    const char *model, *rule;
    int trap;
    void (*apply)(ae_model *m);
} faults[] = {
    {"llama", "pairs of a rotation lie side by side", 5, other_pairs},
    {"llama", "frequencies are divided by rope_freqs", 4, no_divisors},
    {"llama-moe", "chosen weights are divided by their sum", 26, other_renorm},
    {"qwen2", "biases of q, k and v", 7, no_qkv_bias},
    {"qwen3", "q and k are normed before the rotation", 7, norm_other_side},
    {"qwen3-yarn", "YaRN", 1, no_scaling},
    {"qwen3-yarn", "YaRN's magnitude is 1 + 0.1 ln factor", 1, magnitude_one},
    {"mistral3", "YaRN's magnitude is 1 with a log multiplier of 1", 1, magnitude_log},
    {"mistral3", "YaRN's bounds are keys", 2, usual_beta},
    {"mistral3", "queries have a temperature", 27, no_temperature},
    {"mistral3", "temperature rises at multiples of the original context", 27, temperature_later},
    {"mistral3-nolog", "YaRN's magnitude is 1 + 0.1 ln factor", 1, magnitude_one},
    {"phi3", "long contexts take the long factors", 6, one_table},
    {"phi3-short", "short contexts take the short factors", 6, other_table},
    {"phi3", "attention factor", 6, attention_factor},
    {"phi3-short", "attention factor in short contexts too", 6, attention_factor},
    {"phi3", "halves of a rotation lie apart", 5, other_pairs},
    {"smollm3", "every fourth layer has no rotation", 31, rope_everywhere},
    {"minicpm", "what a layer adds is scaled", 28, no_residual_scale},
    {"minicpm-2024", "embeddings are scaled without a key", 28, no_embedding_scale},
    {"minicpm-2024", "what a layer adds is scaled without a key", 28, no_residual_scale},
    {"minicpm-2024", "logits are scaled without a key", 28, inverse_logit_scale},
    {"arcee", "square of ReLU", 30, gelu},
    {"maincoder", "q and k are normed after the rotation", 7, norm_other_side},
    {"chatglm", "half of a head rotates", 5, whole_rotation},
    {"exaone", "frequencies are divided by rope_freqs", 4, no_divisors},
    {"gemma", "GELU", 33, silu},
    {"gemma", "embeddings are scaled", 24, no_embedding_scale},
    {"phi2", "network and attention in parallel", 28, in_series},
    {"phi2", "half of a head rotates", 5, whole_rotation},
    {"phi2", "biases of the output", 28, no_output_biases},
    {"nemotron", "square of ReLU", 30, gelu},
    {"nemotron", "a norm that subtracts the mean", 28, rms_not_layer},
    {"codeshell", "GELU", 33, silu},
    {"orion", "a norm that subtracts the mean", 28, rms_not_layer},
    {"hy_v3", "sigmoid, not softmax", 26, softmax_of_all},
    {"hy_v3", "a bias for the choice alone", 26, no_choice_bias},
    {"exaone-moe", "no rotation in full layers", 5, rope_everywhere},
    {"exaone-moe", "window", 3, no_window},
    {"exaone-moe", "weights are scaled", 26, no_expert_factor},
    {"mellum", "windowed layers have no YaRN", 3, ropes_swapped},
    {"mellum", "window", 3, no_window},
    {"mellum", "chosen weights are divided by their sum", 26, other_renorm},
    {"bailingmoe2", "groups of experts", 25, no_groups},
    {"bailingmoe2", "half of a head rotates", 5, whole_rotation},
    {"minicpm3", "long contexts take the long factors", 6, one_table},
    {"minicpm3", "halves of a rotation lie apart", 25, other_pairs},
    {"minicpm3-turned", "halves of a rotation lie apart", 25, other_pairs},
    {"baichuan", "pairs of a rotation lie side by side", 5, other_pairs},
    {"deepseek2-ocr", "halves of a rotation lie apart", 5, other_pairs},
    {"plamo", "network and attention in parallel", 28, in_series},
    {"plamo3", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"plamo3", "norms after their blocks", 8, no_post_norms},
    {"spark2_5", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"spark2_5", "a gate for each head", 10, no_head_gate},
    {"bailingmoe", "weights are scaled", 26, no_expert_factor},
    {"plm", "pairs of a rotation lie side by side", 25, other_pairs},
    {"deepseek2-ocr", "weights are scaled", 26, no_expert_factor},
    {"mistral4", "queries have a temperature", 27, no_temperature},
    {"mistral4", "pairs of a rotation lie side by side", 25, other_pairs},
    {"afmoe", "a gate for each value", 10, no_own_gate},
    {"afmoe", "every fourth layer has no rotation", 31, rope_everywhere},
    {"afmoe", "norms after their blocks", 8, no_post_norms},
    {"muse-glimmer", "a gate for each value", 10, no_own_gate},
    {"muse-glimmer", "no rotation in full layers", 5, rope_everywhere},
    {"muse-glimmer", "the stream's start is normed", 24, no_embed_norm},
    {"cohere2moe", "what experts add is halved", 28, no_experts_scale},
    {"cohere2moe", "dense layers rotate although they see all", 5, rope_of_windows},
    {"cohere2moe", "a norm that subtracts the mean", 28, rms_not_layer},
    {"granite_swa", "which layers rotate", 31, rope_everywhere},
    {"granite_swa", "sinks", 21, no_sinks},
    {"granite_swa", "window", 3, no_window},
    {"mimo2", "values are scaled", 28, no_value_scale},
    {"mimo2", "sinks", 21, no_sinks},
    {"mimo2", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"hunyuan_vl", "the base is raised", 4, usual_base},
    {"modern-bert", "window", 3, no_window},
    {"modern-bert", "windows reach ahead", 3, only_back},
    {"modern-bert", "the first of three layers sees everything", 3, windows_elsewhere},
    {"modern-bert", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"modern-bert", "a norm that subtracts the mean", 28, rms_not_layer},
    {"modern-bert-silu", "an activation that the file names", 33, gelu},
    {"gemma-embedding", "windows reach ahead", 3, only_back},
    {"gemma-embedding", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"t5encoder", "biases by distance", 5, no_biases},
    {"t5encoder", "each bucket of distances has its bias", 5, biases_turned},
    {"t5encoder", "scores are not divided by the root of a head's size", 28, scale_of_head},
    {"t5encoder", "GELU", 33, silu},
    {"t5encoder-relu", "ReLU without a gate", 33, silu},
    {"t5", "biases by distance", 5, no_biases},
    {"t5", "logits of a head that is the embedding are scaled", 28, inverse_logit_scale},
    {"t5-flan", "scores are not divided by the root of a head's size", 28, scale_of_head},
    {"t5-umt5", "each layer has its biases", 5, first_biases},
    {"neo-bert", "pairs of a rotation lie side by side", 5, other_pairs},
    {"eurobert", "halves of a rotation lie apart", 5, other_pairs},
    {"nomic-bert-moe", "chosen weights are not divided by their sum", 26, other_renorm},
    {"gpt2", "positions from a table", 5, no_positions},
    {"gpt2", "GELU", 33, silu},
    {"starcoder", "a norm that subtracts the mean", 28, rms_not_layer},
    {"grok", "norms after their blocks", 8, no_post_norms},
    {"grok", "cap of attention", 24, no_attention_cap},
    {"grok", "embeddings are scaled without a key", 28, no_embedding_scale},
    {"grok", "logits are scaled without a key", 28, inverse_logit_scale},
    {"grok-2", "attention's scale is a key", 28, scale_of_head},
    {"grok-2", "cap of logits", 24, no_logit_cap},
    {"arctic", "experts take the layer's input", 28, experts_of_stream},
    {"arctic", "experts have a norm of their own", 8, no_experts_norm},
    {"deci", "frequencies are divided by rope_freqs", 4, no_divisors},
    {"deci", "a projection in place of attention", 30, no_linear},
    {"nanbeige", "a norm between two runs of the layers", 8, no_end_norm},
    {"chameleon", "norm of q and k", 7, no_qk_norm},
    {"chameleon", "biases of the norm of q and k", 7, no_qk_norm_bias},
    {"chameleon-34b", "norms stand after their blocks", 8, no_post_norms},
    {"phimoe", "norms have biases", 8, no_norm_bias},
    {"phimoe", "biases of the output", 28, no_output_biases},
    {"phimoe", "a norm that subtracts the mean", 28, rms_not_layer},
    {"phimoe", "a sparse mixer weighs experts", 26, softmax_of_all},
    {"phimoe", "magnitude of longrope", 1, attention_factor},
    {"bloom", "scores lose with distance", 5, no_slopes},
    {"bloom", "a norm that subtracts the mean", 28, rms_not_layer},
    {"mpt", "scores lose with distance", 5, no_slopes},
    {"mpt", "queries, keys and values are clamped", 28, no_clamp},
    {"mpt-positions", "positions from a table", 5, no_positions},
    {"mpt-positions", "the activation's results are divided", 33, no_divisors_of_ff},
    {"refact", "scores lose with distance", 5, no_slopes},
    {"jais", "attention's scale is one over the size", 28, scale_of_head},
    {"baichuan-13b", "scores lose with distance", 5, no_slopes},
    {"jina-bert-v2", "scores lose with distance", 5, no_slopes},
    {"jina-bert-v2-code", "a norm of the layer's input and the stream", 8, no_again_norm},
    {"jina-bert-v2-code", "norm of q and k", 7, no_qk_norm},
    {"apertus", "xIELU's factors", 33, other_xielu},
    {"smallthinker", "the router reads the layer's input", 26, late_router},
    {"smallthinker", "ReLU", 33, silu},
    {"smallthinker-windows", "no rotation in full layers", 5, rope_everywhere},
    {"maple", "limit of the activation", 21, no_limit},
    {"maple", "no rotation in full layers", 5, rope_everywhere},
    {"laguna", "a gate for each head", 10, no_head_gate},
    {"laguna", "the gate is a softplus", 10, sigmoid_gate},
    {"laguna", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"laguna", "the first of four layers sees everything", 3, windows_elsewhere},
    {"laguna-m", "the gate is a softplus", 10, sigmoid_gate},
    {"bitnet", "norms inside of blocks", 8, no_sub_norms},
    {"olmo", "queries, keys and values are clamped", 28, no_clamp},
    {"dbrx", "queries, keys and values are clamped", 28, no_clamp},
    {"dbrx", "a norm that subtracts the mean", 28, rms_not_layer},
    {"stablelm", "a quarter of a head rotates", 5, whole_rotation},
    {"stablelm-12b", "norm of q and k", 7, no_qk_norm},
    {"gptneox", "network and attention in parallel", 28, in_series},
    {"falcon-40b", "attention has a norm of its own", 8, norms_swapped_pre},
    {"mamba", "bias of the convolution", 11, no_conv_bias},
    {"mamba", "bias of the time step", 13, no_dt_bias},
    {"mamba", "channels themselves", 11, no_skip},
    {"falcon-mamba", "norms of step, B and C", 11, no_plain_step_norms},
    {"kimi-linear", "bias of the decay", 13, no_dt_bias},
    {"kimi-linear", "no rotation", 31, rope_everywhere},
    {"kimi-linear", "taps of queries and keys", 11, taps_swapped},
    {"kimi-linear", "taps of values", 11, taps_of_values},
    {"bailingmoe3", "bound of the decay", 13, bound_higher},
    {"bailingmoe3", "gates of heads", 10, no_heads_gate},
    {"bailingmoe3-clamped", "clamps", 33, no_limit},
    {"bailingmoe3-vl", "halves of a rotation lie apart", 5, other_pairs},
    {"minimax-01", "how much of the normed stream goes on", 28, no_carry},
    {"minimax-01", "rates fall from layer to layer", 13, rates_of_others},
    {"minimax-01", "which norm stands where", 8, carries_swapped},
    {"minimax-01", "chosen weights are divided by their sum", 26, other_renorm},
    {"grovemoe", "experts that others share", 26, no_chunks},
    {"grovemoe", "how much of what they add", 26, chunks_by_one},
    {"gemma3n", "small gates of some layers are dropped", 33, no_sparsity},
    {"gemma3n", "other layers keep all gates", 33, sparse_everywhere},
    {"gemma3n", "the last layers read another layer's keys and values", 3, other_kv},
    {"gemma3n", "norm of the path beside attention", 8, no_laurel},
    {"gemma3n", "scale of the first stream", 28, no_correct_scale},
    {"gemma3n", "norm of the router of streams", 8, norm_of_router},
    {"gemma3n", "projections of streams", 28, altup_swapped},
    {"gemma3n", "norm of values", 7, no_v_norm},
    {"talkie", "the start of the stream joins it after layers", 28, no_start},
    {"talkie", "how much of it", 28, start_by_one},
    {"talkie", "weights of queries' norms", 7, no_gain},
    {"talkie", "the start of the stream is normed", 28, no_embed_norm},
    {"rwkv6", "a row's own key counts for itself", 11, no_bonus},
    {"rwkv6", "norm of heads", 8, no_wkv_norm},
    {"rwkv6", "bias of the norm of heads", 8, no_wkv_bias},
    {"rwkv6", "the stream is halved every so many layers", 28, no_rescale},
    {"rwkv6", "what every key decays by", 13, no_decay},
    {"rwkv6", "weights of the row before in the channel mix", 11, lerps_swapped},
    {"rwkv6qwen2", "bias of keys", 21, no_key_bias},
    {"rwkv7", "a row's own key counts for itself", 11, no_bonus},
    {"rwkv7", "what is erased and what is written differ", 11, rates_swapped},
    {"rwkv7", "rates", 13, no_rate},
    {"rwkv7", "values of the first layer", 11, no_blend},
    {"arwkv7", "norm of heads", 8, no_wkv_norm},
    {"arwkv7", "the gate", 10, no_wkv_gate},
    {"plamo2", "norm of the time step", 11, no_dt_norm},
    {"plamo2", "norm of B", 11, no_b_norm},
    {"plamo2", "norm of C", 11, no_c_norm},
    {"plamo2", "channels themselves", 11, no_skip},
    {"plamo2", "norms of heads by themselves", 7, one_norm_for_heads},
    {"jamba", "norm of the time step", 11, no_dt_norm},
    {"jamba", "norm of B", 11, no_b_norm},
    {"jamba", "norm of C", 11, no_c_norm},
    {"jamba", "no rotation", 31, rope_everywhere},
    {"jamba-moe", "experts not weighed anew", 26, weights_renormed},
    {"falcon-h1", "a state beside attention", 30, no_state_beside},
    {"seed_oss", "post_attention_norm is the norm before the network", 8, ffn_norm_as_post},
    {"seed_oss", "biases of q, k and v", 7, no_qkv_bias},
    {"olmo2", "norms stand after their blocks", 8, pre_not_post},
    {"olmo2", "q and k are normed by the row", 7, norm_of_heads},
    {"olmo3", "windowed layers have no YaRN", 3, ropes_swapped},
    {"olmo3", "window", 3, no_window},
    {"olmo3", "every fourth layer is full", 3, windows_elsewhere},
    {"granite", "embeddings are scaled", 28, no_embedding_scale},
    {"granite", "what a layer adds is scaled", 28, no_residual_scale},
    {"granite", "logits are divided by their scale", 28, inverse_logit_scale},
    {"granite", "attention's scale is a key", 28, scale_of_head},
    {"granitemoe", "what experts add is scaled", 28, no_residual_scale},
    {"glm4", "half of a head rotates", 5, whole_rotation},
    {"glm4", "norms after their blocks", 8, no_post_norms},
    {"glm4", "which norm stands where", 8, norms_swapped},
    {"hunyuan-dense", "q and k are normed after the rotation", 7, norm_other_side},
    {"hunyuan-moe", "q and k are normed after the rotation", 7, norm_other_side},
    {"hunyuan-moe", "chosen weights are divided by their sum", 26, other_renorm},
    {"ernie4_5-moe", "a bias for the choice alone", 26, no_choice_bias},
    {"cohere2", "no rotation in full layers", 5, rope_everywhere},
    {"cohere2", "a norm that subtracts the mean", 28, rms_not_layer},
    {"cohere2", "network and attention in parallel", 28, in_series},
    {"cohere2", "logits are multiplied by their scale", 28, inverse_logit_scale},
    {"cohere2", "window", 3, no_window},
    {"cohere2", "one position more than the window", 3, window_and_one},
    {"command-r", "a norm that subtracts the mean", 28, rms_not_layer},
    {"command-r", "network and attention in parallel", 28, in_series},
    {"command-r-plus", "norm of q and k", 7, no_qk_norm},
    {"starcoder2", "a norm that subtracts the mean", 28, rms_not_layer},
    {"starcoder2", "GELU", 33, silu},
    {"starcoder2", "bias of attention's output", 28, no_output_bias},
    {"exaone4", "norms stand after their blocks", 8, pre_not_post},
    {"exaone4", "rotation in full layers of small models", 5, rope_nowhere},
    {"exaone4-32b", "no rotation in full layers", 5, rope_everywhere},
    {"exaone4-32b", "window", 3, no_window},
    {"gemma2", "cap of attention", 24, no_attention_cap},
    {"gemma2", "cap of logits", 24, no_logit_cap},
    {"gemma2", "window", 3, no_window},
    {"gemma2", "even layers are windowed", 3, windows_elsewhere},
    {"gemma2", "one position more than the window", 3, window_and_one},
    {"gemma2", "embeddings are scaled", 24, no_embedding_scale},
    {"gemma2", "norms after their blocks", 8, no_post_norms},
    {"gemma2", "GELU", 33, silu},
    {"gemma2-27b", "attention's scale by the row's share", 24, scale_of_head},
    {"gemma3", "full layers have another base and factor", 3, ropes_swapped},
    {"gemma3", "windowed layers have no factor", 3, rope_of_others},
    {"gemma3", "five windowed layers, then a full one", 3, windows_elsewhere},
    {"gemma3", "q and k are normed before the rotation", 7, norm_other_side},
    {"gemma3-cap", "cap of logits where the file has one", 24, no_logit_cap},
    {"gemma3-cap", "base of windowed layers from the file", 3, ropes_swapped},
    {"gemma3-27b", "attention's scale by the row's share", 24, scale_of_head},
    {"gemma4", "values are normed", 23, no_v_norm},
    {"gemma4", "divisors of full layers", 4, no_divisors},
    {"gemma4", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"gemma4", "which layer's keys and values are shared", 23, earlier_kv},
    {"gemma4", "scale of a layer's output", 23, no_output_scale},
    {"gemma4", "cap of logits", 24, no_logit_cap},
    {"gemma4-31b", "values are normed", 23, no_v_norm},
    {"gemma4-31b", "attention is not scaled", 23, scale_of_head},
    {"gemma4-moe", "scale of what experts give", 23, no_expert_scale},
    {"gemma4-moe", "the router has an input of its own", 23, no_router_norm},
    {"gemma4-moe", "window", 3, no_window},
    {"qwen2moe", "chosen weights are not divided by their sum", 26, other_renorm},
    {"qwen2moe", "the shared expert has a gate", 26, no_shared_gate},
    {"qwen3moe", "chosen weights are divided by their sum", 26, other_renorm},
    {"olmoe", "q and k are normed by the row", 7, norm_of_heads},
    {"deepseek", "weights are scaled", 26, no_expert_factor},
    {"dots1", "sigmoid, not softmax", 26, softmax_of_all},
    {"dots1", "a bias for the choice alone", 26, no_choice_bias},
    {"gpt-oss", "sinks", 21, no_sinks},
    {"gpt-oss", "softmax of the chosen, not of all", 26, softmax_of_all},
    {"gpt-oss", "bias of the router", 21, no_router_bias},
    {"gpt-oss", "biases of experts", 21, no_expert_biases},
    {"gpt-oss", "bias of ffn_down within the weights", 21, no_down_bias},
    {"gpt-oss", "activation", 21, silu},
    {"gpt-oss", "limit of the activation", 21, no_limit},
    {"gpt-oss", "even layers are windowed", 3, windows_elsewhere},
    {"gpt-oss", "one position more than the window", 3, window_and_one},
    {"gpt-oss", "bias of attention's output", 21, no_output_bias},
    {"gpt-oss", "YaRN's magnitude is 1 + 0.1 ln factor", 1, magnitude_one},
    {"gpt-oss", "post_attention_norm is the norm before the network", 8, ffn_norm_as_post},
    {"glm4moe", "half of a head rotates", 5, whole_rotation},
    {"glm4moe", "a bias for the choice alone", 26, no_choice_bias},
    {"glm4moe", "weights are scaled", 26, no_expert_factor},
    {"glm4moe", "norm of q and k where the file has it", 7, no_qk_norm},
    {"glm4moe", "post_attention_norm is the norm before the network", 8, ffn_norm_as_post},
    {"glm4moe-plain", "sigmoid where the file says nothing", 26, softmax_of_all},
    {"minimax-m2", "q and k are normed by the row", 7, norm_of_heads},
    {"minimax-m2", "half of a head rotates", 5, whole_rotation},
    {"minimax-m2", "sigmoid, not softmax", 26, softmax_of_all},
    {"llama4", "weights multiply what experts get", 27, weigh_result},
    {"llama4", "no rotation in full layers", 27, rope_everywhere},
    {"llama4", "norm of q and k", 27, no_qk_norm},
    {"llama4", "sigmoid, not softmax", 26, softmax_of_all},
    {"step35", "rotation by the kind of layer", 5, ropes_swapped},
    {"step35", "a gate for each head", 10, no_head_gate},
    {"step35", "limits of the activation", 21, no_limit},
    {"step35", "limits of experts and of the shared expert", 21, limits_swapped},
    {"step35", "window", 3, no_window},
    {"step35", "a bias for the choice alone", 26, no_choice_bias},
    {"deepseek32", "so many positions, not more", 32, one_more_position},
    {"deepseek32", "attention sees chosen positions alone", 32, no_index},
    {"deepseek32", "halves of an index's rotation lie apart", 32, other_index_pairs},
    {"deepseek32", "bias of the norm of index keys", 32, no_index_bias},
    {"glm-dsa", "pairs of an index's rotation lie side by side", 32, other_index_pairs},
    {"glm-dsa-shared", "layers that share a choice", 32, all_see_all_but_owners},
    {"hy_v4", "sinks", 21, no_sinks},
    {"hy_v4", "a gate for each value", 10, no_own_gate},
    {"hy_v4", "so many positions, not more", 32, one_more_position},
    {"hy_v4", "layers that share a choice", 32, all_see_all_but_owners},
    {"hy_v4", "the last values of index keys rotate", 32, index_first},
    {"hy_v4", "limits of experts", 21, no_limit},
    {"hy_v4", "how much streams take of a block", 35, other_magnitude},
    {"hy_v4", "both halves of a layer have their coefficients", 35, one_base_for_halves},
    {"kimi-k3", "rows are banked before every third layer", 28, bank_others},
    {"kimi-k3", "each half has scores of its own", 28, one_score},
    {"kimi-k3", "bound of both halves of the activation", 33, no_up_limit},
    {"kimi-k3", "SiTU, not SiLU", 33, silu},
    {"kimi-k3", "a norm of what experts add", 8, no_latent_norm},
    {"kimi-k3", "a gate for each value", 10, no_own_gate},
    {"kimi-k3", "bound of the decay", 13, bound_higher},
    {"glm5-next", "so many pools, not more", 32, one_more_pool},
    {"glm5-next", "attention sees chosen positions alone", 32, no_index},
    {"glm5-next", "layers that share a choice", 32, all_see_all_but_owners},
    {"glm5-next", "weights of a pool's positions", 34, gates_of_pools_are_keys},
    {"glm5-next", "numbers of a pool's places", 34, places_of_pools},
    {"glm5-next", "bias of the norm of index keys", 32, no_index_bias},
    {"glm5-next", "bound of the decay", 13, bound_higher},
    {"glm5-next", "bias of the decay", 13, no_dt_bias},
    {"glm5-next", "limits of the activation", 21, no_limit},
    {"glm5-next", "a bias for the choice alone", 26, no_choice_bias},
    {"glm5-next", "both halves of a layer have their coefficients", 35, one_base_for_halves},
    {"glm5-next", "iterations of the mixing matrix", 35, other_iterations},
    {"glm5-next", "epsilon of coefficients", 35, larger_hyper_eps},
    {"qwen4exp", "so many pools, not more", 32, one_more_pool},
    {"qwen4exp", "attention sees chosen positions alone", 32, no_index},
    {"qwen4exp", "means of keys rotate by their first position", 32, means_at_own_positions},
    {"qwen4exp", "norm of index keys", 32, keys_norm_as_index_queries},
    {"qwen4exp", "a sigmoid gates DeltaNet", 10, silu_of_delta},
    {"qwen4exp", "a gate of the shared expert", 26, no_shared_gate},
    {"qwen4exp", "both halves of a layer have their norms", 35, one_norm_of_halves},
    {"qwen4exp", "both halves of a layer have their gates", 35, one_gate_of_halves},
    {"qwen4exp", "both halves of a layer have their shares", 35, one_share_of_halves},
    {"qwen4exp", "one layer has a memory", 36, no_memory},
    {"qwen4exp", "hashes of two and of three tokens", 36, one_token_less},
    {"qwen4exp", "a token that ends n-grams", 36, other_end},
    {"qwen4exp", "earlier rows of a memory", 36, one_tap_less},
    {"qwen4exp", "each place has a factor", 36, other_factors},
    {"qwen4exp", "each hash has a size", 36, other_sizes},
    {"qwen4exp", "norm of a memory's keys", 36, keys_norm_as_queries},
    {"qwen4exp", "norm of a memory's values", 36, values_norm_as_queries},
    {"dots3note", "a norm of what rotates of a row", 7, no_key_norm},
    {"dots3note", "window", 3, no_window},
    {"dots3note", "attention sees chosen positions alone", 32, no_index},
    {"dots3note", "windowed and full layers rotate differently", 3, ropes_swapped},
    {"dots3note", "windowed layers scale scores by their own size", 28, scale_of_full},
    {"dots3note", "halves of an index's rotation lie apart", 32, other_index_pairs},
    {"dots3note", "a gate for each head", 10, no_head_gate},
    {"minimax-m3", "so many blocks, not more", 32, one_more_block},
    {"minimax-m3", "attention sees chosen blocks alone", 32, no_index},
    {"minimax-m3", "blocks are so long", 32, other_blocks},
    {"minimax-m3", "halves of an index's rotation lie apart", 32, other_index_pairs},
    {"minimax-m3", "norm of an index's queries", 32, no_index_norms},
    {"minimax-m3", "activation", 21, silu},
    {"minimax-m3-local", "the blocks before the row's own", 32, no_local_blocks},
    {"graniteswitch", "adapters that tokens choose", 30, no_switches},
    {"graniteswitch", "tokens in place of those that choose", 30, tokens_as_they_are},
    {"graniteswitch", "tokens that choose outweigh all others", 30, faint_switches},
    {"hrm_text", "which stacks belong to the high stream", 30, one_low_cycle},
    {"hrm_text", "stacks end with a norm, and begin with a sum", 30, never_normed},
    {"deepseek4", "so many compressed rows, not more", 32, one_more_position},
    {"deepseek4", "rows see compressed rows", 34, no_compressed_rows},
    {"deepseek4", "layers that compress rotate by another base", 34, ropes_of_windows},
    {"deepseek4", "blocks rotate by their first position", 34, blocks_rotate_at_zero},
    {"deepseek4", "norm of compressed rows", 34, norms_of_compressors},
    {"deepseek4", "weights of a block's positions", 34, gates_are_values},
    {"deepseek4", "the index has its own", 34, gates_of_index_are_values},
    {"deepseek4", "YaRN", 1, no_scaling},
    {"deepseek4", "sinks", 21, no_sinks},
    {"deepseek4", "windows", 4, window_and_one},
    {"deepseek4", "some layers' experts come from a table", 34, no_tokens_experts},
    {"deepseek4", "a bias for the choice alone", 26, no_choice_bias},
    {"deepseek4", "chosen weights are divided by their sum", 26, other_renorm},
    {"deepseek4", "square roots of softplus, not sigmoid", 26, sigmoid},
    {"deepseek4", "limits of the activation", 21, no_limit},
    {"deepseek4", "limits of experts and of the shared expert", 21, limits_swapped},
    {"deepseek4", "both halves of a layer have their coefficients", 35, one_base_for_halves},
    {"deepseek4", "iterations of the mixing matrix", 35, other_iterations},
    {"deepseek4", "epsilon of coefficients", 35, larger_hyper_eps},
    {"deepseek2", "groups of experts", 25, no_groups},
    {"deepseek2", "pairs of a rotation lie side by side", 25, other_pairs},
    {"deepseek2", "attention's scale has YaRN's magnitude twice", 25, scale_of_head},
    {"deepseek2", "a bias for the choice alone", 26, no_choice_bias},
    {"deepseek2", "YaRN", 1, no_scaling},
    {"deepseek2", "YaRN's magnitude is in attention's scale, not in the rotation", 1, magnitude_log},
    {"deepseek2", "sigmoid, not softmax", 26, softmax_of_all},
    {"deepseek2", "chosen weights are divided by their sum", 26, other_renorm},
    {"deepseek2", "weights are scaled", 26, no_expert_factor},
    {"deepseek2-fused", "softmax, not sigmoid", 26, sigmoid},
    {"deepseek2-fused", "pairs of a rotation lie side by side", 25, other_pairs},
    {"deepseek2-fused", "attention's scale has YaRN's magnitude twice", 25, scale_of_head},
    {"deepseek2-lite-fused", "pairs of a rotation lie side by side", 25, other_pairs},
    {"deepseek2-lite-fused", "attention's scale has YaRN's magnitude twice", 25, scale_of_head},
    {"deepseek2-lite", "weights are not divided by their sum", 26, other_renorm},
    {"nemotron_h", "square of ReLU", 30, gelu},
    {"nemotron_h_moe", "a bias for the choice alone", 26, no_choice_bias},
    {"nemotron_h_moe", "chosen weights are divided by their sum", 26, other_renorm},
    {"nemotron_h_moe", "weights are scaled", 26, no_expert_factor},
    {"nemotron_h_moe", "sigmoid, not softmax", 26, softmax_of_all},
    {"granitehybrid", "no rotation where the file says so", 28, rope_everywhere},
    {"granitehybrid-moe", "rotation where the file says so", 28, rope_nowhere},
    {"lfm2", "q and k are normed before the rotation", 7, norm_other_side},
    {"lfm2moe", "a bias for the choice alone", 26, no_choice_bias},
    {"qwen35", "a quarter or half of a head rotates", 5, whole_rotation},
    {"qwen35", "heads take groups in turn", 11, other_groups},
    {"qwen35", "which gate decays", 15, alpha_and_beta},
    {"qwen35", "bias of the decay", 15, no_dt_bias},
    {"qwen35moe", "heads take groups in turn", 11, other_groups},
    {"qwen3next", "neighbouring heads share a group", 11, other_groups},
    {"nemotron_h", "neighbouring heads share a group", 11, other_groups},
    {"nemotron_h", "bias of the decay", 15, no_dt_bias},
    {"nemotron_h", "bias of the convolution", 15, no_conv_bias},
    {"nemotron_h", "inputs pass by the state", 15, no_skip},
    {"granitehybrid", "neighbouring heads share a group", 11, other_groups},
    {"granitehybrid", "norm after the gate", 13, no_recur_norm},
    {"qwen3next", "chosen weights are divided by their sum", 26, other_renorm},
    {"qwen35moe", "the shared expert has a gate", 26, no_shared_gate},
};

/* The error, with a rule broken or (NULL) as it is; false: the engine lacks the architecture. */
static bool error_of(const char *name, void (*apply)(ae_model *m), const char *path, double *nmse)
{
    static golden g;
    static float logits[ROWS][MKARCH_VOCAB];
    aerie_error error = {0};
    ae_model *model;
    if (ae_model_load(&model, path, NULL, &error) != AERIE_OK) return false;
    read_golden(&g, name, ROWS);
    if (apply) apply(model);
    run_model(model, g.tokens, ROWS, logits);
    ae_model_free(model);
    *nmse = compare(logits, g.logits, ROWS).nmse;
    return true;
}

static bool is_noticed(const struct fault *fault, const char *path)
{
    double whole = 0, nmse = 0;
    if (!error_of(fault->model, NULL, path, &whole) || whole > MIN_ERROR ||
        !error_of(fault->model, fault->apply, path, &nmse)) {
        print_message("%-20s trap %2d  skip: engine lacks it  %s\n", fault->model, fault->trap, fault->rule);
        return true;
    }
    const bool noticed = !(nmse <= MIN_ERROR); /* not finite counts */
    print_message("%-20s trap %2d  error %.1e  %s%s\n", fault->model, fault->trap, nmse, fault->rule,
                  noticed ? "" : ": NOT NOTICED");
    return noticed;
}

static void test_broken_rules_are_noticed(void **state)
{
    uint32_t n_unnoticed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i += AE_TEST_EVERY > 4 ? 9 : 1) {
        const mkarch_spec *spec = mkarch_find(faults[i].model);
        aerie_error error = {0};
        char path[128];
        assert_non_null(spec);
        snprintf(path, sizeof path, "%s/%s.gguf", folder, spec->name);
        need(mkarch_write(spec, false, path, &error), &error);
        n_unnoticed += !is_noticed(&faults[i], path);
        unlink(path);
    }
    assert_int_equal(n_unnoticed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken_rules_are_noticed)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
