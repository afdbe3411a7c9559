/* bound.c - which of a file's tensors are part of the model: scales that belong to weights, and tensors that were not read.
 *
 * If a tensor of a layer that runs, or of no layer, is not read, the program that wrote the file would compute something that
 * aerie does not. So there must be no such tensor, except for those in the lists below, which change nothing, and those that no
 * program uses. */
#include <stdio.h>
#include <string.h>

#include "model/bind.h"

aerie_status ae_bind_begin(ae_binder *b, ae_arena *arena)
{
    const size_t n = ae_gguf_n_tensors(b->gguf);
    b->bound = ae_arena_alloc(arena, n + 1, sizeof *b->bound);
    return b->bound ? AERIE_OK : ae_fail_memory(b->error, "the list of what was read", n * sizeof *b->bound);
}

static ae_bound *bound_of(const ae_gguf *gguf, const ae_bound *bound, const ae_gguf_tensor *t)
{
    return (ae_bound *)bound + (t - ae_gguf_tensor_at(gguf, 0));
}

void ae_bind_mark(ae_binder *b, ae_tensor_ref t)
{
    if (b->bound && t) bound_of(b->gguf, b->bound, t)->read = true;
}

ae_tensor_ref ae_model_scale(const ae_gguf *gguf, const ae_bound *bound, ae_tensor_ref weight)
{
    return bound ? bound_of(gguf, bound, weight)->scale : NULL;
}

ae_tensor_ref ae_model_output_scale(const ae_model *m)
{
    return m->output_scale ? m->output_scale : ae_model_scale(m->gguf, m->bound, m->output);
}

/* ---- Scales ---------------------------------------------------------------------------------------- */

static bool ends_with(ae_gguf_string name, const char *end)
{
    const size_t n = strlen(end);
    return name.n >= n && !memcmp(name.data + name.n - n, end, n);
}

aerie_status ae_bind_scale(ae_binder *b, ae_tensor_ref weight, uint32_t n_stack)
{
    static const char weight_end[] = ".weight", scale_end[] = ".scale";
    char name[80];
    const size_t n = weight->name.n - (sizeof weight_end - 1);
    if (!b->bound || !ends_with(weight->name, weight_end) || n + sizeof scale_end > sizeof name) return AERIE_OK;
    /* with experts in addition to a dense block, these names mean something else */
    const bool normed = b->arch->experts_beside && !b->arch->beside_plain && !b->arch->beside_input;
    if (normed && (ends_with(weight->name, ".ffn_gate_inp.weight") || ends_with(weight->name, ".ffn_down_exps.weight")))
        return AERIE_OK;
    memcpy(name, weight->name.data, n);
    memcpy(name + n, scale_end, sizeof scale_end);
    const ae_gguf_tensor *scale = ae_gguf_tensor_find(b->gguf, name);
    if (!scale) return AERIE_OK;
    const bool vector = scale->ne[1] * scale->ne[2] * scale->ne[3] == 1;
    if (!vector || (scale->ne[0] != 1 && scale->ne[0] != n_stack))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s has %lld numbers; one is expected%s", ae_gguf_path(b->gguf),
                       name, (long long)(scale->ne[0] * scale->ne[1] * scale->ne[2] * scale->ne[3]),
                       n_stack > 1 ? ", or one for each expert or head" : "");
    if (scale->type != AE_TYPE_F32 && scale->type != AE_TYPE_F16 && scale->type != AE_TYPE_BF16)
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s; F32 is expected", ae_gguf_path(b->gguf),
                       name, ae_type_name(scale->type));
    ae_bind_mark(b, scale);
    bound_of(b->gguf, b->bound, weight)->scale = scale;
    return AERIE_OK;
}

/* ---- What no program uses ------------------------------------------------------------------------- */

/* Tensors that llama.cpp loads and does not use, and that the models' published code does not have. llama.cpp's model saver
 * writes them. */
static const struct {
    const char *name; /* of the tensor, or of its part in a layer, which begins with a dot */
    const char *archs[4];
    bool optional;    /* layers of this architecture never read it, though the functions that bind them would */
} unused[] = {
    {".attn_q.bias", {"bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"}, false},
    {".attn_k.bias", {"bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"}, false},
    {".attn_v.bias", {"bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"}, false},
    {".attn_k_norm.weight", {"mpt"}, false}, /* both without attn_q_norm */
    {".attn_k_norm.bias", {"mpt"}, false},
    {".attn_output.bias", {"cogvlm"}, true},
    {".ffn_gate.bias", {"cogvlm"}, true},
    {".ffn_up.bias", {"cogvlm"}, true},
    {".ffn_down.bias", {"cogvlm"}, true},
    {"output.bias", {"dream", "qwen2vl"}, true},
    {"rope_freqs.weight", {"cogvlm", "falcon-h1", "llada"}, true},
};

/* Returns the index of the tensor in this list, or -1. */
static int find_unused(const ae_binder *b, const ae_gguf_tensor *t)
{
    ae_gguf_string part;
    ae_bind_block_of(ae_bind_prefix(b), t, &part);
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        if (strlen(unused[i].name) != part.n || memcmp(unused[i].name, part.data, part.n)) continue;
        for (size_t k = 0; k < 4 && unused[i].archs[k]; k++)
            if (!strcmp(unused[i].archs[k], b->arch->name)) return (int)i;
    }
    return -1;
}

bool ae_bind_is_unused(const ae_binder *b, ae_tensor_ref t)
{
    const int i = b->arch ? find_unused(b, t) : -1;
    return i >= 0 && unused[i].optional;
}

/* ---- What was not read ----------------------------------------------------------------------------- */

int ae_bind_block_of(const char *blocks, const ae_gguf_tensor *t, ae_gguf_string *part)
{
    int block = 0;
    size_t at = strlen(blocks) + 1;
    *part = t->name;
    if (t->name.n <= at || memcmp(t->name.data, blocks, at - 1) || t->name.data[at - 1] != '.') return -1;
    for (; at < t->name.n && t->name.data[at] >= '0' && t->name.data[at] <= '9' && block <= AE_MAX_LAYERS; at++)
        block = block * 10 + (t->name.data[at] - '0');
    *part = (ae_gguf_string){t->name.data + at, t->name.n - at};
    return block;
}

static bool begins_with(ae_gguf_string name, const char *start)
{
    const size_t n = strlen(start);
    return name.n >= n && !memcmp(name.data, start, n);
}

/* Returns whether a tensor outside of blocks changes nothing: frequencies that the keys give as well; the head of a reranker
 * that can also generate text; pictures and sound, which ollama keeps in the text model's file; the draft vocabulary and other
 * tensors of MTP blocks. */
static bool is_harmless(ae_gguf_string name)
{
    static const char *const starts[] = {"rope_freqs.weight", "rope_factors_", "v.", "mm.", "a.", "d2t", "t2d", "nextn.",
                                         "cls.output."};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (begins_with(name, starts[i])) return true;
    return ends_with(name, ".input_scale");
}

/* Returns whether a tensor belongs to the other half of a file that has an encoder and a decoder. */
static bool is_of_other_half(const ae_arch *arch, ae_gguf_string name)
{
    const bool encodes = arch->blocks && begins_with((ae_gguf_string){arch->blocks, strlen(arch->blocks)}, "enc.");
    return arch->blocks && begins_with(name, encodes ? "dec." : "enc.");
}

/* Returns whether a tensor in a layer changes nothing: scales for quantizing activations; frequencies; keys and values of
 * layers that read another layer's; the second of two forms of latent attention; indexes of layers that use another layer's
 * choice and of MTP blocks, which see everything; tensors that only images use. */
static bool is_harmless_in(const ae_arch *arch, const ae_layer *l, int block, ae_gguf_string part)
{
    if (arch->sees && begins_with(part, ".vis_")) return true;
    if (arch->token_experts && begins_with(part, ".exp_probs_b_vl")) return true;
    const bool dense = begins_with(part, ".ffn_gate.") || begins_with(part, ".ffn_up.") || begins_with(part, ".ffn_down.");
    /* every row uses the experts instead of the dense block */
    if (dense && arch->expert_by_tensor && l->router && !l->w_down) return true;
    if (arch->index && l->spec.index != AE_INDEX_OWN && begins_with(part, ".indexer.")) return true;
    if (ends_with(part, ".input_scale") || begins_with(part, ".attn_rot_embd") || begins_with(part, ".rope_freqs")) return true;
    if (l->spec.mixer == AE_MIXER_ATTENTION && l->spec.kv_from != block)
        return begins_with(part, ".attn_k.") || begins_with(part, ".attn_v.") || begins_with(part, ".attn_k_norm.");
    return l->mla.kv_b && (begins_with(part, ".attn_k_b.") || begins_with(part, ".attn_v_b."));
}

aerie_status ae_bind_end(ae_binder *b, const ae_layer *layers, uint32_t first, uint32_t n, bool outside)
{
    for (size_t i = 0; i < ae_gguf_n_tensors(b->gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(b->gguf, i);
        ae_gguf_string part;
        const int block = ae_bind_block_of(ae_bind_prefix(b), t, &part);
        if (b->bound[i].read) continue;
        if (block < 0 ? !outside : block < (int)first || block >= (int)(first + n)) continue;
        const ae_layer *l = block < 0 ? NULL : &layers[block - (int)first];
        if (find_unused(b, t) >= 0 && !(l && l->q_norm)) { /* attn_k_norm is used beside attn_q_norm */
            if (!b->n_unused++) b->unused = t;
            continue;
        }
        if (!l && (is_harmless(t->name) || is_of_other_half(b->arch, t->name))) continue;
        if (l && is_harmless_in(b->arch, l, block, part)) continue;
        if (b->unread) snprintf(b->unread, AE_MODEL_UNREAD, "%.*s", (int)t->name.n, t->name.data);
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: nothing reads tensor %.*s: in architecture %s aerie knows no "
                       "such part%s, so it would not compute what the file says", ae_gguf_path(b->gguf),
                       (int)(t->name.n < 100 ? t->name.n : 100), t->name.data, b->arch->name,
                       block < 0 ? "" : " of this layer");
    }
    return AERIE_OK;
}
