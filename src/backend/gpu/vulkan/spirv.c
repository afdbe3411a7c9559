/* spirv.c - changes compiled shaders so that they keep the reference's arithmetic (vulkan.h).
 * The compiler of GLSL forbids contraction only where each variable is declared so, and which execution modes are allowed
 * depends on the device. So both are added here: every operation on floats is decorated with NoContraction, and the module gets
 * those modes of SPV_KHR_float_controls (rounding to nearest even; signed zeros, infinities and NaNs as in IEEE 754; subnormal
 * numbers) that the device has. Source: the SPIR-V specification, 1.6. Owns nothing. */
#include "backend/gpu/vulkan/vulkan.h"

#ifdef AE_GPU_VULKAN

#include <string.h>

#include "base/mem.h"

#define MAGIC 0x07230203u
#define HEADER 5 /* words */

enum { /* opcodes, and other numbers of the specification */
    OP_EXT_INST_IMPORT = 11, OP_EXT_INST = 12, OP_ENTRY_POINT = 15, OP_EXECUTION_MODE = 16, OP_CAPABILITY = 17,
    OP_EXECUTION_MODE_ID = 331, OP_DECORATE = 71, OP_GROUP_MEMBER_DECORATE = 75, OP_DECORATE_ID = 332,
    OP_FNEGATE = 127, OP_FADD = 129, OP_FSUB = 131, OP_FMUL = 133, OP_FDIV = 136,
    STD_SQRT = 31, STD_FMA = 50, NO_CONTRACTION = 42,
    CAP_DENORM_PRESERVE = 4464, CAP_SIGNED_ZERO = 4466, CAP_ROUND_EVEN = 4467,
    MODE_DENORM_PRESERVE = 4459, MODE_SIGNED_ZERO = 4461, MODE_ROUND_EVEN = 4462,
};

/* An execution mode for floats of some widths. */
typedef struct mode {
    uint32_t capability, id;
    bool width[3]; /* 16, 32, 64 bits */
} mode;

/* Returns the mode for the widths that the device supports. If widths depend on each other, it is set for all or for none. */
static mode mode_of(uint32_t capability, uint32_t id, VkBool32 has_16, VkBool32 has_32, VkBool32 has_64,
                    VkShaderFloatControlsIndependence independence)
{
    mode m = {capability, id, {has_16, has_32, has_64}};
    if (independence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE && !(has_16 && has_32 && has_64))
        m.width[0] = m.width[1] = m.width[2] = false;
    if (independence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY && !(has_16 && has_64))
        m.width[0] = m.width[2] = false;
    return m;
}

typedef struct writer {
    uint32_t *to;
    size_t n;
} writer;

static void put(writer *w, uint32_t opcode, uint32_t n_operands, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t words[] = {(n_operands + 1) << 16 | opcode, x, y, z};
    memcpy(w->to + w->n, words, (n_operands + 1) * sizeof *words);
    w->n += n_operands + 1;
}

static bool is_float_step(const uint32_t *at, uint32_t opcode, uint32_t n, uint32_t std)
{
    if (opcode == OP_EXT_INST) return n >= 5 && at[3] == std && (at[4] == STD_FMA || at[4] == STD_SQRT);
    return n >= 3 && (opcode == OP_FNEGATE || opcode == OP_FADD || opcode == OP_FSUB || opcode == OP_FMUL || opcode == OP_FDIV);
}

/* Positions of parts of a module, in words; 0: not found. */
typedef struct contents {
    uint32_t entry, std;      /* ids of the entry point and of the import GLSL.std.450 */
    size_t modes_at;          /* after the last entry point or execution mode */
    size_t decorations_at;    /* the first decoration */
    size_t n_steps;           /* operations of floats */
} contents;

static bool scan(const uint32_t *words, size_t n_words, contents *c)
{
    memset(c, 0, sizeof *c);
    if (n_words <= HEADER || words[0] != MAGIC) return false;
    for (size_t at = HEADER; at < n_words;) {
        const uint32_t opcode = words[at] & 0xffff, n = words[at] >> 16;
        if (!n || n > n_words - at) return false;
        if (opcode == OP_EXT_INST_IMPORT && n >= 3 && !memcmp(words + at + 2, "GLSL", 4)) c->std = words[at + 1];
        if (opcode == OP_ENTRY_POINT && n >= 3) c->entry = words[at + 2];
        if (opcode == OP_ENTRY_POINT || opcode == OP_EXECUTION_MODE || opcode == OP_EXECUTION_MODE_ID) c->modes_at = at + n;
        if (!c->decorations_at && ((opcode >= OP_DECORATE && opcode <= OP_GROUP_MEMBER_DECORATE) || opcode == OP_DECORATE_ID))
            c->decorations_at = at;
        c->n_steps += is_float_step(words + at, opcode, n, c->std);
        at += n;
    }
    return c->entry && c->modes_at && c->decorations_at >= c->modes_at;
}

static void put_modes(writer *w, const mode modes[3], uint32_t entry)
{
    for (int i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 3; j++)
            if (modes[i].width[j]) put(w, OP_EXECUTION_MODE, 3, entry, modes[i].id, 16u << j);
}

uint32_t *ae_vk_spirv_prepare(const uint32_t *words, size_t *n, const VkPhysicalDeviceFloatControlsProperties *floats,
                              aerie_error *error)
{
    const mode modes[3] = {
        mode_of(CAP_ROUND_EVEN, MODE_ROUND_EVEN, floats->shaderRoundingModeRTEFloat16, floats->shaderRoundingModeRTEFloat32,
                floats->shaderRoundingModeRTEFloat64, floats->roundingModeIndependence),
        mode_of(CAP_SIGNED_ZERO, MODE_SIGNED_ZERO, floats->shaderSignedZeroInfNanPreserveFloat16,
                floats->shaderSignedZeroInfNanPreserveFloat32, floats->shaderSignedZeroInfNanPreserveFloat64,
                VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL),
        mode_of(CAP_DENORM_PRESERVE, MODE_DENORM_PRESERVE, floats->shaderDenormPreserveFloat16,
                floats->shaderDenormPreserveFloat32, floats->shaderDenormPreserveFloat64, floats->denormBehaviorIndependence)};
    contents c;
    if (!scan(words, *n, &c)) {
        ae_fail(error, AERIE_ERROR_INTERNAL, "a shader of this build is not a module of SPIR-V");
        return NULL;
    }
    const size_t most = *n + 3 * (2 + 3 * 4) + c.n_steps * 3;
    writer w = {ae_alloc(most, sizeof *w.to), 0};
    if (!w.to) {
        ae_fail_memory(error, "a shader", most * sizeof *w.to);
        return NULL;
    }
    memcpy(w.to, words, HEADER * sizeof *words);
    w.n = HEADER;
    for (int i = 0; i < 3; i++)
        if (modes[i].width[0] || modes[i].width[1] || modes[i].width[2]) put(&w, OP_CAPABILITY, 1, modes[i].capability, 0, 0);
    for (size_t at = HEADER; at < *n; at += words[at] >> 16) {
        if (at == c.modes_at) put_modes(&w, modes, c.entry);
        if (at == c.decorations_at)
            for (size_t i = HEADER; i < *n; i += words[i] >> 16)
                if (is_float_step(words + i, words[i] & 0xffff, words[i] >> 16, c.std))
                    put(&w, OP_DECORATE, 2, words[i + 2], NO_CONTRACTION, 0);
        memcpy(w.to + w.n, words + at, (words[at] >> 16) * sizeof *words);
        w.n += words[at] >> 16;
    }
    *n = w.n;
    return w.to;
}

#endif
