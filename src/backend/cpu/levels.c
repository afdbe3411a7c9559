/* levels.c - which kernels this CPU gets: the overlay ladder and its names. */
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "backend/cpu/ref/ref.h"
#include "base/os.h"

void ae_kernels_latent(ae_kernels *k, ae_latent_write_fn *write15, ae_latent_write_fn *write8, ae_attention_fn *attention15,
                       ae_attention_fn *attention8)
{
    for (int type = 0; type < AE_KV_TUNED; type++) {
        const bool wide = ae_latent_planes((ae_kv_type)type) == 2;
        k->latent_write[type] = wide ? write15 : write8;
        k->latent_attention[type] = wide ? attention15 : attention8;
    }
}

void ae_kernels_index(ae_kernels *k, ae_index_scores_fn *scores15, ae_index_scores_fn *scores8)
{
    for (int type = 0; type < AE_KV_TUNED; type++)
        k->index_scores[type] = ae_latent_planes((ae_kv_type)type) == 2 ? scores15 : scores8;
}

void ae_kernels_ref(ae_kernels *k)
{
    *k = (ae_kernels){
        .level = "ref",
        .rmsnorm = ae_ref_rmsnorm,
        .layernorm = ae_ref_layernorm,
        .glu = {[AE_GLU_SILU] = ae_ref_glu_silu, [AE_GLU_GELU] = ae_ref_glu_gelu, [AE_GLU_RELU2] = ae_ref_glu_relu2,
                [AE_GLU_SIGMOID] = ae_ref_glu_sigmoid, [AE_GLU_OAI] = ae_ref_glu_oai,
                [AE_GLU_SILU_CLAMPED] = ae_ref_glu_silu_clamped, [AE_GLU_RELU] = ae_ref_glu_relu,
                [AE_GLU_SILU_LIMITED] = ae_ref_glu_silu_limited, [AE_GLU_SOFTPLUS] = ae_ref_glu_softplus,
                [AE_GLU_GELU_ERF] = ae_ref_glu_gelu_erf, [AE_GLU_LINEAR] = ae_ref_glu_linear,
                [AE_GLU_SITU] = ae_ref_glu_situ},
        .softcap = ae_ref_softcap,
        .axpy = ae_ref_axpy,
        .cutoff = ae_ref_cutoff,
        .match = ae_ref_match,
        .mix = ae_ref_mix,
        .quant32 = ae_ref_quant32,
        .quant256 = ae_ref_quant256,
        .mm_plain = ae_ref_mm_plain,
        .mm_f32 = ae_ref_mm_float,
        .mm_f16 = ae_ref_mm_float,
        .mm_bf16 = ae_ref_mm_float,
        .rope = ae_ref_rope,
        .kv_write = {[AE_KV_F16] = ae_ref_kv_write_f16, [AE_KV_Q8_0] = ae_ref_kv_write_q8,
                     [AE_KV_I16] = ae_ref_kv_write_i16, [AE_KV_I16_Q8_0] = ae_ref_kv_write_i16_q8,
                     [AE_KV_Q8_0_I16] = ae_ref_kv_write_q8_i16, [AE_KV_Q4_0] = ae_ref_kv_write_q4,
                     [AE_KV_Q8_0_Q4_0] = ae_ref_kv_write_q8_q4, [AE_KV_I16_Q4_0] = ae_ref_kv_write_i16_q4,
                     [AE_KV_F32] = ae_ref_kv_write_f32},
        .attention = {[AE_KV_F16] = ae_ref_attention_f16, [AE_KV_Q8_0] = ae_ref_attention_q8,
                      [AE_KV_I16] = ae_ref_attention_i16, [AE_KV_I16_Q8_0] = ae_ref_attention_i16_q8,
                      [AE_KV_Q8_0_I16] = ae_ref_attention_q8_i16, [AE_KV_Q4_0] = ae_ref_attention_q4,
                      [AE_KV_Q8_0_Q4_0] = ae_ref_attention_q8_q4, [AE_KV_I16_Q4_0] = ae_ref_attention_i16_q4,
                      [AE_KV_F32] = ae_ref_attention_f32},
        .attention_merge = ae_ref_attention_merge,
        .index_scores[AE_KV_F32] = ae_ref_index_scores_f32,
        .latent_write[AE_KV_F32] = ae_ref_latent_write_f32,
        .latent_attention[AE_KV_F32] = ae_ref_latent_attention_f32,
        .latent_unturn = ae_ref_latent_unturn,
        .l2norm = ae_ref_l2norm,
        .conv = ae_ref_conv,
        .state_absorb = ae_ref_state_absorb,
        .state_step = ae_ref_state_step,
        .scan_delta = ae_ref_scan_delta,
        .scan_absorb = ae_ref_scan_absorb,
        .scan_step = ae_ref_scan_step,
        .keyed_decay = ae_ref_keyed_decay,
        .keyed_absorb = ae_ref_keyed_absorb,
        .keyed_step = ae_ref_keyed_step,
        .lerp = ae_ref_lerp,
        .blend = ae_ref_blend,
        .wkv_decay = ae_ref_wkv_decay,
        .wkv_keys = ae_ref_wkv_keys,
        .wkv_bonus = ae_ref_wkv_bonus,
        .wkv6_step = ae_ref_wkv6_step,
        .wkv7_step = ae_ref_wkv7_step,
        .wkv7_absorb = ae_ref_wkv7_absorb,
    };
    ae_kernels_latent(k, ae_ref_latent_write_codes15, ae_ref_latent_write_q8, ae_ref_latent_attention_codes15,
                      ae_ref_latent_attention_q8);
    ae_kernels_index(k, ae_ref_index_scores_codes15, ae_ref_index_scores_q8);
}

#if defined(__x86_64__)
/* clang 14 does not know "f16c" here. The test for avx2 also checks that the system saves the registers. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* Bit 4 of EAX of the second part of leaf 7, if that part exists: some CPUs with AVX-512 VNNI lack it. */
static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a >> 4 & 1);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Bits 24 and 25 of leaf 7's EDX (not every compiler has names for them), bit 8 of its ECX (GFNI, which unpacks codes and which
 * every CPU with tiles has), and permission from the operating system. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    const unsigned tiles = 1u << 24 | 1u << 25;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles) == tiles && (c >> 8 & 1) &&
           ae_os_ask_for_tiles();
}
#elif defined(__aarch64__)
/* Uses the Linux kernel's bits; elsewhere what the compiler may assume. */
static bool has_dotprod(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#elif defined(__ARM_FEATURE_DOTPROD)
    return true;
#else
    return false;
#endif
}

static bool has_i8mm(void)
{
#if defined(__linux__)
    return has_dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); /* HWCAP2_I8MM */
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    return has_dotprod();
#else
    return false;
#endif
}
#endif

static bool always(void)
{
    return true;
}

static const struct level {
    const char *name;
    bool (*has)(void);
    void (*fill)(ae_kernels *kernels);
} levels[] = {
    {"ref", always, ae_kernels_ref},
#if defined(__x86_64__)
    {"avx2", has_avx2, ae_kernels_avx2},
    {"avxvnni", has_avxvnni, ae_kernels_avxvnni},
    {"avx512", has_avx512, ae_kernels_avx512},
    {"amx", has_amx, ae_kernels_amx},
#elif defined(__aarch64__)
    {"neon", always, ae_kernels_neon},
    {"dotprod", has_dotprod, ae_kernels_dotprod},
    {"i8mm", has_i8mm, ae_kernels_i8mm},
#endif
};

bool ae_kernels_select(ae_kernels *kernels, const char *name, bool *supported)
{
    const size_t n = sizeof levels / sizeof levels[0];
    size_t top = n - 1;
    if (name && *name) {
        for (top = 0; top < n && strcmp(levels[top].name, name); top++) {}
        if (top == n) return false;
    }
    *supported = !name || !*name || levels[top].has();
    for (size_t i = 0; i <= top; i++)
        if (levels[i].has()) levels[i].fill(kernels); /* a CPU may lack a level below one that it has */
    return true;
}

const char *ae_kernels_known(void)
{
#if defined(__x86_64__)
    return "ref, avx2, avxvnni, avx512, amx";
#elif defined(__aarch64__)
    return "ref, neon, dotprod, i8mm";
#else
    return "ref";
#endif
}
