/* mkhead.c - see mkhead.h. Owns: which kind and schema has which keys and tensors, and their spread. */
#include "mkhead.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "formats/gguf_write.h"
#include "mkmodel.h"
#include "quant/types.h"

#define MAX_TENSORS (192 + AE_DHEAD_MAX_MEDUSA * (2 * AE_DHEAD_MAX_BLOCKS + 1))
#define MAX_SHAPE (1u << 17)

typedef enum fill_kind { FILL_MATRIX, FILL_NORM, FILL_BIAS, FILL_DIVISORS, FILL_MAP, FILL_CONV, FILL_WAVE } fill_kind;

typedef struct tensor {
    char name[48];
    fill_kind fill;
    uint32_t type, n_out, n_in; /* n_out 0: a vector; FILL_CONV: a pair of [n_out, n_in] */
    float sd;      /* FILL_MATRIX */
    uint32_t n_first; /* the first elements of each row have another spread */
    float sd_first;
    uint32_t phase; /* FILL_WAVE; there n_first elements of the wave come before */
} tensor;

typedef struct maker {
    const mkhead_options *o;
    aerie_error *error;
    ae_model *target;
    ae_gguf_writer *writer;
    uint32_t type;
    bool medusa, three, three_one, old, mtp, block, dspark, dflash2, dfly, lilicorr;
    char arch[16], prefix[32]; /* of keys: "eagle3", "eagle3.eagle3" */
    uint32_t e, et, ff, heads, kv_heads, head_dim, n_rot, n_draft, n_vocab, n_taps, taps[AERIE_MAX_TAPS], n_medusa, n_blocks;
    uint32_t n_layers, n_markov, mask; /* of block drafters */
    uint32_t n_conv, conv_group, n_pair, n_candidates, n_correct, lattice, lattice_heads, n_factors;
    uint32_t n_nextn, first; /* block of the first layer */
    int32_t *map; /* [n_draft] target ids, ascending; NULL: no d2t */
    tensor tensors[MAX_TENSORS];
    size_t n_tensors;
} maker;

/* ---- What it is -------------------------------------------------------------------------------------- */

static aerie_status set_kind(maker *m)
{
    const mkhead_options *o = m->o;
    const char *kind = o->kind ? o->kind : "eagle3", *schema = o->schema ? o->schema : "new",
        *type = o->type ? o->type : "q8_0";
    const ae_type_info *info = ae_type_by_name(type);
    m->medusa = !strcmp(kind, "medusa");
    m->three_one = !strcmp(kind, "eagle3.1");
    m->three = m->three_one || !strcmp(kind, "eagle3");
    m->mtp = !strcmp(kind, "mtp");
    m->dspark = !strcmp(kind, "dspark");
    m->dflash2 = !strcmp(kind, "dflash2");
    m->dfly = !strcmp(kind, "dfly");
    m->lilicorr = !strcmp(kind, "lilicorr");
    m->block = m->dspark || m->dflash2 || m->dfly || m->lilicorr || !strcmp(kind, "dflash");
    m->old = strcmp(schema, "new") != 0;
    if (!m->medusa && !m->three && !m->mtp && !m->block && strcmp(kind, "eagle"))
        return ae_fail(m->error, AERIE_ERROR_ARGUMENT,
                       "\"%s\" is not a kind of head; eagle, eagle3, eagle3.1, medusa, mtp, dflash, dspark, dflash2, dfly "
                       "and lilicorr are", kind);
    if (m->old && strcmp(schema, "old") && strcmp(schema, "double"))
        return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "\"%s\" is not a schema; new, old and double are", schema);
    if (!info || info->dot == AE_DOT_NONE)
        return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "\"%s\" is not a type for weights; q4_0, q8_0, q4_K, f16 ... are", type);
    m->type = info->type;
    const char *arch = m->medusa ? "medusa" : m->three ? "eagle3" : m->mtp ? m->target->hparams.arch
                       : m->block ? (o->arch ? o->arch : "dflash") : "eagle";
    snprintf(m->arch, sizeof m->arch, "%s", arch);
    snprintf(m->prefix, sizeof m->prefix, !strcmp(schema, "double") ? "%s.%s" : "%s", m->arch, m->arch);
    return AERIE_OK;
}

static uint32_t or_else(uint32_t value, uint32_t other)
{
    return value ? value : other;
}

static void set_taps(maker *m)
{
    const uint32_t n = m->target->hparams.n_layers;
    m->n_taps = m->three || m->block ? or_else(m->o->n_taps, 3) : 1;
    if (m->o->n_taps && m->o->n_taps <= AERIE_MAX_TAPS) {
        memcpy(m->taps, m->o->taps, sizeof m->taps);
        return;
    }
    m->taps[0] = n < 6 ? 1 : 2, m->taps[1] = n / 2, m->taps[2] = n < 6 ? n : n - 3;
}

static aerie_status set_shape(maker *m)
{
    const mkhead_options *o = m->o;
    const ae_hparams *t = &m->target->hparams;
    m->et = t->n_embd, m->n_vocab = t->n_vocab;
    m->e = or_else(o->n_embd, t->n_embd), m->ff = or_else(or_else(o->n_ff, t->n_ff), 96);
    m->heads = or_else(o->n_heads, t->n_heads), m->kv_heads = or_else(o->n_kv_heads, t->n_kv_heads);
    m->head_dim = m->n_rot = or_else(o->head_dim, t->head_dim);
    m->n_draft = or_else(o->n_draft, t->n_vocab);
    m->n_medusa = or_else(o->n_medusa, 4), m->n_blocks = or_else(o->n_blocks, 1);
    m->n_nextn = or_else(o->n_nextn, 1), m->first = m->mtp ? t->n_layers : 0;
    m->n_layers = or_else(o->n_layers, 2), m->n_markov = or_else(o->n_markov, 8), m->mask = t->n_vocab - 1;
    m->n_conv = or_else(o->n_conv, 2), m->conv_group = or_else(o->conv_group, m->e % 16 ? 1 : 16);
    m->n_correct = or_else(o->n_correct, m->e);
    m->n_pair = or_else(o->n_pair, 8), m->n_candidates = or_else(o->n_candidates, 6);
    m->lattice = or_else(o->n_lattice, 32), m->lattice_heads = or_else(o->lattice_heads, 2);
    m->n_factors = or_else(o->n_factors, 8);
    set_taps(m);
    const bool good = m->n_conv <= AE_DHEAD_MAX_CONV && m->e % m->conv_group == 0 &&
                      m->n_nextn <= AE_DHEAD_MAX_LAYERS && !((m->mtp || m->dfly) && m->e != m->et) && m->e <= MAX_SHAPE &&
                      m->ff <= MAX_SHAPE && m->heads <= AE_MAX_HEADS && m->head_dim <= AE_MAX_HEAD_DIM &&
                      m->head_dim % 2 == 0 && m->kv_heads <= m->heads && m->heads % m->kv_heads == 0 &&
                      m->n_draft <= t->n_vocab && m->n_taps <= AERIE_MAX_TAPS && m->n_medusa <= AE_DHEAD_MAX_MEDUSA &&
                      m->n_blocks <= AE_DHEAD_MAX_BLOCKS && !(!m->three && !m->block && m->e != m->et) &&
                      !(m->e != m->et && o->no_output) &&
                      !(m->three_one && o->norm_before_fc);
    if (!good)
        return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "no head has this shape: head counts must divide, the head dimension "
                       "be even, the draft vocabulary be part of the target's (%u), a head other than EAGLE-3 be as wide as "
                       "its target (%u), a head of another width have its own output, and norms before fc be of one kind",
                       t->n_vocab, t->n_embd);
    for (uint32_t i = 0; (m->three || m->block) && i < m->n_taps; i++)
        if (m->taps[i] > t->n_layers)
            return ae_fail(m->error, AERIE_ERROR_ARGUMENT, "tap %u is at layer %u; the target has %u", i, m->taps[i],
                           t->n_layers);
    if (!o->n_draft) return AERIE_OK;
    m->map = ae_alloc(m->n_draft, sizeof *m->map);
    if (!m->map) return ae_fail_memory(m->error, "the draft vocabulary", m->n_draft * sizeof *m->map);
    uint64_t state = o->seed ^ 0xd2d2d2d2d2d2d2d2u;
    for (uint32_t id = 0, n = 0; n < m->n_draft; id++) /* each subset is as likely; ascending */
        if (mk_random(&state) % (m->n_vocab - id) < m->n_draft - n) m->map[n++] = (int32_t)id;
    return AERIE_OK;
}

/* Root of the mean square of some rows of the target's embedding. */
static aerie_status embedding_rms(maker *m, float *rms)
{
    const ae_gguf_tensor *t = m->target->embedding;
    const size_t row = ae_type_row_bytes(t->type, m->et);
    uint8_t *blocks = ae_alloc(1, row);
    float *x = ae_alloc(m->et, sizeof *x);
    ae_gguf_reader reader = ae_gguf_reader_open(m->target->gguf);
    aerie_status status = blocks && x ? AERIE_OK : ae_fail_memory(m->error, "a row", row);
    double sum = 0;
    const uint32_t n = m->n_vocab < 64 ? m->n_vocab : 64;
    for (uint32_t i = 0; i < n && status == AERIE_OK; i++) {
        const size_t at = (size_t)i * (m->n_vocab / n);
        status = ae_gguf_read(&reader, t, at * row, blocks, row, m->error);
        if (status == AERIE_OK) ae_type_get(t->type)->decode(blocks, x, m->et);
        for (uint32_t k = 0; k < m->et; k++) sum += (double)x[k] * (double)x[k];
    }
    ae_gguf_reader_close(&reader);
    ae_free(blocks);
    ae_free(x);
    *rms = sum > 0 ? (float)sqrt(sum / ((double)n * m->et)) : 1.0f;
    return status;
}

/* ---- Its tensors --------------------------------------------------------------------------------------- */

static tensor *add(maker *m, fill_kind fill, uint32_t n_out, uint32_t n_in, float gain, const char *format, ...)
{
    tensor *t = &m->tensors[m->n_tensors++];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->fill = fill, t->n_out = n_out, t->n_in = n_in;
    t->sd = gain / sqrtf((float)n_in);
    t->type = n_out ? mk_type_for(m->type, n_in) : (uint32_t)AE_TYPE_F32;
    return t;
}

static void add_fc(maker *m, float rms)
{
    const uint32_t all = m->n_taps * m->et;
    if (m->three || m->block) {
        add(m, FILL_MATRIX, m->e, all, 1.0f, "fc.weight");
    } else { /* embedding and feature count alike, whatever the spread of the embedding */
        tensor *t = add(m, FILL_MATRIX, m->e, m->e + m->et, 0, "fc.weight");
        const float sd_embd = 0.7f / (sqrtf((float)m->e) * rms);
        t->sd = 0.5f / sqrtf((float)m->et);
        if (m->e % ae_type_block_elements(t->type) == 0) t->n_first = m->e, t->sd_first = sd_embd;
    }
    if (m->o->biases) add(m, FILL_BIAS, 0, m->e, 0, "fc.bias");
    if (m->o->norm_before_fc) add(m, FILL_NORM, 0, all, 0, m->old ? "fc_norm.weight" : "enc.output_norm.weight");
    if (m->three_one && m->o->whole_fc_norm) add(m, FILL_NORM, 0, all, 0, "fc_norm.weight");
    for (uint32_t i = 0; m->three_one && !m->o->whole_fc_norm && i < m->n_taps; i++)
        add(m, FILL_NORM, 0, m->et, 0, "fc_norm.%u.weight", i);
}

static void add_layer(maker *m, uint32_t i)
{
    const uint32_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim, in = m->three && !i ? 2 * m->e : m->e;
    if (m->three && i) {
        add(m, FILL_NORM, 0, m->e, 0, "blk.%u.attn_norm.weight", i);
    } else if (m->three) {
        add(m, FILL_NORM, 0, m->e, 0, "blk.%u.attn_norm.weight", i);
        add(m, FILL_NORM, 0, m->e, 0, m->old ? "blk.0.hidden_norm.weight" : "blk.0.attn_norm_2.weight");
    }
    add(m, FILL_MATRIX, q, in, 1.6f, "blk.%u.attn_q.weight", i);
    add(m, FILL_MATRIX, kv, in, 1.6f, "blk.%u.attn_k.weight", i);
    add(m, FILL_MATRIX, kv, in, 1.0f, "blk.%u.attn_v.weight", i);
    add(m, FILL_MATRIX, m->e, q, 0.7f, "blk.%u.attn_output.weight", i);
    if (m->o->biases) {
        add(m, FILL_BIAS, 0, q, 0, "blk.%u.attn_q.bias", i);
        add(m, FILL_BIAS, 0, kv, 0, "blk.%u.attn_k.bias", i);
        add(m, FILL_BIAS, 0, kv, 0, "blk.%u.attn_v.bias", i);
        add(m, FILL_BIAS, 0, m->e, 0, "blk.%u.attn_output.bias", i);
    }
    if (m->o->qk_norm) {
        add(m, FILL_NORM, 0, m->head_dim, 0, "blk.%u.attn_q_norm.weight", i);
        add(m, FILL_NORM, 0, m->head_dim, 0, "blk.%u.attn_k_norm.weight", i);
    }
    add(m, FILL_NORM, 0, m->e, 0, "blk.%u.ffn_norm.weight", i);
    add(m, FILL_MATRIX, m->ff, m->e, 1.0f, "blk.%u.ffn_gate.weight", i);
    add(m, FILL_MATRIX, m->ff, m->e, 1.0f, "blk.%u.ffn_up.weight", i);
    add(m, FILL_MATRIX, m->e, m->ff, 1.0f, "blk.%u.ffn_down.weight", i);
}

static void add_mtp(maker *m, uint32_t i, float rms)
{
    add(m, FILL_NORM, 0, m->e, 0, "blk.%u.attn_norm.weight", i);
    add_layer(m, i);
    add(m, FILL_MATRIX, m->e, 2 * m->e, 1.0f, "blk.%u.nextn.eh_proj.weight", i);
    add(m, FILL_NORM, 0, m->e, 0, "blk.%u.nextn.enorm.weight", i);
    add(m, FILL_NORM, 0, m->e, 0, "blk.%u.nextn.hnorm.weight", i);
    if (m->o->own_embedding)
        add(m, FILL_MATRIX, m->n_vocab, m->e, rms * sqrtf((float)m->e), "blk.%u.nextn.embed_tokens.weight", i);
    if (!m->o->own_output) return;
    add(m, FILL_NORM, 0, m->e, 0, "blk.%u.nextn.shared_head_norm.weight", i);
    add(m, FILL_MATRIX, m->n_draft, m->e, 3.0f, "blk.%u.nextn.shared_head_head.weight", i);
}

static void add_conv(maker *m, const char *part, uint32_t i)
{
    tensor *t = add(m, FILL_CONV, m->n_conv, m->e, 0, "blk.%u.%s_conv_base", i, part);
    t->type = AE_TYPE_F32;
    add(m, FILL_MATRIX, 2 * m->n_conv * (m->e / m->conv_group), m->e, 0.3f, "blk.%u.%s_conv_proj.weight", i, part);
}

static void add_pairs(maker *m)
{
    for (uint32_t i = 0; i < m->n_layers; i++) add_conv(m, "attn", i), add_conv(m, "ffn", i);
    add(m, FILL_MATRIX, m->n_pair, m->e, 1.0f, "selector_hidden.weight");
    add(m, FILL_MATRIX, m->n_vocab, m->n_pair, sqrtf((float)m->n_pair), "selector_predecessor.weight");
    add(m, FILL_MATRIX, m->n_vocab, m->n_pair, 2.0f, "selector_successor.weight");
}

static void add_fusion(maker *m)
{
    tensor *t = add(m, FILL_MATRIX, m->n_layers, m->n_taps, 2.0f, "layer_fusion");
    t->type = AE_TYPE_F32;
    if (m->o->no_correction) return;
    add(m, FILL_NORM, 0, m->e, 0, "hidden_correction.hidden_norm.weight");
    add(m, FILL_NORM, 0, m->e, 0, "hidden_correction.embed_norm.weight");
    add(m, FILL_MATRIX, m->n_correct, 2 * m->e, 1.0f, "hidden_correction.gate.weight");
    add(m, FILL_MATRIX, m->n_correct, 2 * m->e, 1.0f, "hidden_correction.up.weight");
    add(m, FILL_MATRIX, m->e, m->n_correct, 1.5f, "hidden_correction.down.weight");
}

static void add_lattice(maker *m); /* mkhead_lattice.inc */
static aerie_status write_wave(maker *m, const tensor *t);
static aerie_status write_lattice_keys(maker *m);
static bool good_lattice(const ae_dhead *head);

static void add_block(maker *m, float rms)
{
    const bool narrow = m->e != m->et;
    const mkhead_options *o = m->o;
    if (o->own_embedding || narrow) add(m, FILL_MATRIX, m->n_vocab, m->e, rms * sqrtf((float)m->e), "token_embd.weight");
    add_fc(m, rms);
    add(m, FILL_NORM, 0, m->e, 0, m->dfly ? "context_norm.weight" : "enc.output_norm.weight");
    for (uint32_t i = 0; i < m->n_layers; i++) {
        add(m, FILL_NORM, 0, m->e, 0, "blk.%u.attn_norm.weight", i);
        add_layer(m, i);
    }
    add(m, FILL_NORM, 0, m->e, 0, "output_norm.weight");
    if (o->own_output || narrow) add(m, FILL_MATRIX, m->n_draft, m->e, 3.0f, "output.weight");
    if (m->dflash2) add_pairs(m);
    if (m->dfly) add_fusion(m);
    if (m->lilicorr) add_lattice(m);
    if (!m->dspark) return;
    add(m, FILL_MATRIX, m->n_vocab, m->n_markov, sqrtf((float)m->n_markov), "markov_w1.weight");
    add(m, FILL_MATRIX, m->n_draft, m->n_markov, 2.0f, "markov_w2.weight");
    if (o->no_confidence) return;
    add(m, FILL_MATRIX, 1, o->plain_confidence ? m->e : m->e + m->n_markov, 1.0f, "conf_proj.weight");
    add(m, FILL_BIAS, 0, 1, 0, "conf_proj.bias");
}

static aerie_status list_tensors(maker *m)
{
    const mkhead_options *o = m->o;
    float rms;
    AE_TRY(embedding_rms(m, &rms));
    if (m->medusa) {
        for (uint32_t j = 0; j < m->n_medusa; j++) {
            for (uint32_t i = 0; i < m->n_blocks; i++) {
                add(m, FILL_MATRIX, m->e, m->e, 1.0f, "medusa.%u.%u.weight", j, i);
                if (o->biases) add(m, FILL_BIAS, 0, m->e, 0, "medusa.%u.%u.bias", j, i);
            }
            add(m, FILL_MATRIX, m->n_draft, m->e, 3.0f, "medusa.%u.output.weight", j);
        }
    } else if (m->block) {
        add_block(m, rms);
    } else if (m->mtp) {
        for (uint32_t i = m->first; i < m->first + m->n_nextn; i++) add_mtp(m, i, rms);
    } else {
        const bool narrow = m->e != m->et;
        if (o->own_embedding || narrow) add(m, FILL_MATRIX, m->n_vocab, m->e, rms * sqrtf((float)m->e), "token_embd.weight");
        if (o->rope_freqs) add(m, FILL_DIVISORS, 0, m->n_rot / 2, 0, "rope_freqs.weight");
        add_fc(m, rms);
        for (uint32_t i = 0; i < or_else(m->three ? o->n_layers : 0, 1); i++) add_layer(m, i);
        if (o->n_parallel) add(m, FILL_NORM, 0, m->n_taps * m->et, 0, "mask_hidden");
        if (m->three) add(m, FILL_NORM, 0, m->e, 0, "output_norm.weight");
        if (m->three ? !o->no_output : o->own_output) add(m, FILL_MATRIX, m->n_draft, m->e, 3.0f, "output.weight");
    }
    if (m->map) add(m, FILL_MAP, 0, m->n_draft, 0, "d2t")->type = o->map_i32 ? AE_TYPE_I32 : AE_TYPE_I64;
    return AERIE_OK;
}

/* ---- Writing --------------------------------------------------------------------------------------------- */

static aerie_status write_matrix(maker *m, const tensor *t)
{
    const size_t row = ae_type_row_bytes(t->type, t->n_in), first = t->n_first ? ae_type_row_bytes(t->type, t->n_first) : 0;
    uint64_t state = mk_stream(m->o->seed, t->name);
    uint8_t *blocks = ae_alloc(1, row);
    aerie_status status = blocks ? AERIE_OK : ae_fail_memory(m->error, "a row", row);
    for (uint32_t i = 0; i < t->n_out && status == AERIE_OK; i++) {
        if (t->n_first) mk_blocks(t->type, t->sd_first, false, &state, blocks, t->n_first);
        mk_blocks(t->type, t->sd, false, &state, blocks + first, t->n_in - t->n_first);
        status = ae_gguf_writer_data(m->writer, blocks, row, m->error);
    }
    ae_free(blocks);
    return status;
}

static aerie_status write_vector(maker *m, const tensor *t)
{
    uint64_t state = mk_stream(m->o->seed, t->name);
    for (uint32_t i = 0; i < t->n_in; i++) {
        const float u = (float)(mk_random(&state) >> 40) * 0x1p-24f;
        float x = t->fill == FILL_NORM ? 0.8f + 0.4f * u : 0.4f * (u - 0.5f);
        if (t->fill == FILL_DIVISORS) x = t->n_in > 1 ? 1.0f + 7.0f * (float)i / (float)(t->n_in - 1) : 1.0f;
        AE_TRY(ae_gguf_writer_data(m->writer, &x, sizeof x, m->error));
    }
    return AERIE_OK;
}

/* The row itself counts most. */
static aerie_status write_conv(maker *m, const tensor *t)
{
    uint64_t state = mk_stream(m->o->seed, t->name);
    for (uint32_t i = 0; i < 2 * t->n_out * t->n_in; i++) {
        const float u = (float)(mk_random(&state) >> 40) * 0x1p-24f;
        const float x = i / t->n_in % t->n_out ? 0.6f * (u - 0.5f) : 0.8f + 0.4f * u;
        AE_TRY(ae_gguf_writer_data(m->writer, &x, sizeof x, m->error));
    }
    return AERIE_OK;
}

static aerie_status write_map(maker *m, const tensor *t)
{
    for (uint32_t i = 0; i < t->n_in; i++) {
        const int64_t value = m->old ? m->map[i] - (int64_t)i : m->map[i];
        const int32_t narrow = (int32_t)value;
        if (t->type == AE_TYPE_I32) AE_TRY(ae_gguf_writer_data(m->writer, &narrow, sizeof narrow, m->error));
        else AE_TRY(ae_gguf_writer_data(m->writer, &value, sizeof value, m->error));
    }
    return AERIE_OK;
}

static aerie_status write_tensors(maker *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tensor *t = &m->tensors[i];
        const int64_t ne[3] = {t->n_in, t->n_out, 2};
        const uint32_t n_dims = t->fill == FILL_CONV ? 3 : t->n_out ? 2 : 1;
        AE_TRY(ae_gguf_writer_tensor(m->writer, t->name, t->type, n_dims, ne, m->error));
    }
    AE_TRY(ae_gguf_writer_begin(m->writer, m->error));
    for (size_t i = 0; i < m->n_tensors; i++) {
        const tensor *t = &m->tensors[i];
        AE_TRY(t->fill == FILL_MATRIX ? write_matrix(m, t)
               : t->fill == FILL_MAP  ? write_map(m, t)
               : t->fill == FILL_CONV ? write_conv(m, t)
               : t->fill == FILL_WAVE ? write_wave(m, t)
                                      : write_vector(m, t));
    }
    return ae_gguf_writer_finish(m->writer, m->error);
}

/* ---- Keys -------------------------------------------------------------------------------------------------- */

typedef struct key {
    char text[96];
} key;

static key key_of(const char *prefix, const char *suffix)
{
    key k;
    snprintf(k.text, sizeof k.text, "%s.%s", prefix, suffix);
    return k;
}

static aerie_status put_count(maker *m, const char *prefix, const char *suffix, uint32_t value)
{
    return ae_gguf_writer_u32(m->writer, key_of(prefix, suffix).text, value, m->error);
}

static aerie_status put_flag(maker *m, const char *suffix, bool value)
{
    return ae_gguf_writer_bool(m->writer, key_of(m->prefix, suffix).text, value, m->error);
}

static aerie_status put_text(maker *m, const char *suffix, const char *value)
{
    return ae_gguf_writer_string(m->writer, key_of(m->prefix, suffix).text, value, m->error);
}

static aerie_status write_layer_keys(maker *m)
{
    const struct {
        const char *suffix;
        uint32_t value;
    } counts[] = {
        {"block_count", m->block || (m->three && m->o->n_layers) ? m->n_layers : m->mtp ? m->first + m->n_nextn : 1},
        {"context_length", or_else(m->target->hparams.n_ctx_train, 2048)}, {"embedding_length", m->e},
        {"feed_forward_length", m->ff}, {"attention.head_count", m->heads}, {"attention.head_count_kv", m->kv_heads},
        {"attention.key_length", m->head_dim}, {"attention.value_length", m->head_dim}, {"rope.dimension_count", m->n_rot},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        AE_TRY(put_count(m, m->arch, counts[i].suffix, counts[i].value));
    AE_TRY(ae_gguf_writer_f32(m->writer, key_of(m->arch, "attention.layer_norm_rms_epsilon").text, 1e-5f, m->error));
    AE_TRY(ae_gguf_writer_f32(m->writer, key_of(m->arch, "rope.freq_base").text, m->target->hparams.ropes[0].base, m->error));
    if (m->mtp) AE_TRY(put_count(m, m->arch, "nextn_predict_layers", m->n_nextn));
    if (m->o->window) AE_TRY(put_count(m, m->prefix, "attention.window", m->o->window));
    if (m->o->n_sinks) AE_TRY(put_count(m, m->prefix, "attention.sinks", m->o->n_sinks));
    return AERIE_OK;
}

static aerie_status write_eagle3_keys(maker *m)
{
    AE_TRY(ae_gguf_writer_array(m->writer, key_of(m->prefix, m->old ? "extract_layers" : "target_layers").text,
                                m->old ? AE_GGUF_I32 : AE_GGUF_U32, m->taps, m->n_taps, m->error));
    AE_TRY(put_flag(m, "norm_before_residual", m->o->norm_before_residual));
    if (m->o->norm_before_fc) AE_TRY(put_flag(m, "norm_before_fc", true));
    if (m->o->n_parallel) {
        AE_TRY(put_count(m, m->prefix, "parallel_depth", m->o->n_parallel));
        AE_TRY(put_count(m, m->prefix, "mask_token_id", m->mask));
    }
    if (m->three_one && (m->old || m->o->whole_fc_norm)) AE_TRY(put_flag(m, "fc_norm", true));
    if (!m->old) return put_text(m, "feedback", m->three_one ? "post" : "pre");
    return m->three_one ? put_flag(m, "norm_output", true) : AERIE_OK;
}

static aerie_status write_block_keys(maker *m)
{
    const mkhead_options *o = m->o;
    AE_TRY(ae_gguf_writer_array(m->writer, key_of(m->arch, "target_layers").text, AE_GGUF_I32, m->taps, m->n_taps, m->error));
    AE_TRY(put_count(m, m->arch, "block_size", or_else(o->n_block, 8)));
    if (o->from_anchor) AE_TRY(put_flag(m, "sample_from_anchor", o->from_anchor > 0));
    if (o->causal) AE_TRY(put_flag(m, "attention.causal", true));
    if (o->sliding) AE_TRY(put_count(m, m->arch, "attention.sliding_window", o->sliding));
    if (m->lilicorr) AE_TRY(write_lattice_keys(m));
    if (m->dflash2 || (m->lilicorr && o->n_conv)) {
        AE_TRY(put_count(m, m->arch, "conv_kernel_size", m->n_conv));
        AE_TRY(put_count(m, m->arch, "conv_group_size", m->conv_group));
    }
    if (m->dflash2) {
        AE_TRY(put_count(m, m->arch, "selector_rank", m->n_pair));
        AE_TRY(put_count(m, m->arch, "selector_top_k", m->n_candidates));
    }
    return ae_gguf_writer_u32(m->writer, "tokenizer.ggml.mask_token_id", m->mask, m->error);
}

static aerie_status write_keys(maker *m)
{
    const ae_gguf *target = m->target->gguf;
    AE_TRY(ae_gguf_writer_string(m->writer, "general.architecture", m->arch, m->error));
    AE_TRY(ae_gguf_writer_string(m->writer, "general.name", "random head", m->error));
    if (!m->mtp) AE_TRY(put_count(m, m->prefix, "target_hidden_size", m->et));
    AE_TRY(put_count(m, m->arch, "vocab_size", m->n_vocab));
    if (!m->old && !m->mtp && !m->block) AE_TRY(put_count(m, m->prefix, "target_layer_count", m->target->hparams.n_layers));
    if (m->map && !m->old) AE_TRY(put_text(m, "draft_map", "absolute"));
    if (m->medusa) {
        AE_TRY(put_count(m, m->arch, "embedding_length", m->e));
        AE_TRY(put_count(m, m->arch, "head_count", m->n_medusa));
        AE_TRY(put_count(m, m->arch, "block_count", m->n_blocks));
    } else {
        AE_TRY(write_layer_keys(m));
    }
    if (m->three) AE_TRY(write_eagle3_keys(m));
    if (m->block) AE_TRY(write_block_keys(m));
    for (size_t i = 0; m->o->tokenizer && i < ae_gguf_n_kv(target); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(target, i);
        if (kv->key.n > 10 && !memcmp(kv->key.data, "tokenizer.", 10)) AE_TRY(ae_gguf_writer_copy(m->writer, kv, m->error));
    }
    return AERIE_OK;
}

static aerie_status make(maker *m, const char *target, const char *path)
{
    AE_TRY(ae_model_load(&m->target, target, &(ae_model_options){.no_mmap = true}, m->error));
    AE_TRY(set_kind(m));
    AE_TRY(set_shape(m));
    AE_TRY(list_tensors(m));
    AE_TRY(ae_gguf_writer_create(&m->writer, path, m->error));
    AE_TRY(write_keys(m));
    return write_tensors(m);
}

aerie_status mkhead_write(const mkhead_options *options, const char *target, const char *path, aerie_error *error)
{
    maker *m = ae_alloc(1, sizeof *m);
    if (!m) return ae_fail_memory(error, "a head", sizeof *m);
    m->o = options, m->error = error;
    const aerie_status status = make(m, target, path);
    ae_gguf_writer_free(m->writer);
    ae_model_free(m->target);
    ae_free(m->map);
    ae_free(m);
    return status;
}

/* ---- Checking --------------------------------------------------------------------------------------------------- */

/* Decodes every row, so that a sanitizer sees what lies outside. */
static bool readable(ae_tensor_ref t, uint32_t n_out, uint32_t n_in)
{
    float x[1024];
    if (t->ne[0] != n_in || t->ne[1] != (n_out ? n_out : 1) || t->ne[2] != 1 || t->ne[3] != 1) return false;
    const ae_type_info *info = ae_type_get(t->type);
    if (!info || !info->decode) return false;
    const size_t n = t->bytes / info->block_bytes; /* in blocks, of at most 256 elements */
    for (size_t i = 0; i < n; i++) info->decode(t->data + i * info->block_bytes, x, info->n_block);
    return true;
}

static bool good(ae_tensor_ref t, bool required, uint32_t n_out, uint32_t n_in)
{
    return t ? readable(t, n_out, n_in) : !required;
}

#include "mkhead_lattice.inc"

static bool good_layer(const ae_dhead *head, uint32_t i)
{
    const ae_hparams *h = &head->hparams.layer;
    const ae_layer *l = &head->layers[i];
    const uint32_t e = h->n_embd, q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const uint32_t in = head->hparams.kind == AE_DHEAD_EAGLE3 && !i ? 2 * e : e;
    const ae_rope *rope = &h->ropes[0];
    const bool sizes = h->n_layers == head->hparams.n_layers && e && e <= AE_MAX_EMBD && h->n_ff &&
                       h->n_ff <= AE_MAX_FF && h->n_kv_heads &&
                       h->n_heads <= AE_MAX_HEADS && h->n_heads % h->n_kv_heads == 0 && h->head_dim >= 2 &&
                       h->head_dim <= AE_MAX_HEAD_DIM && rope->n_rot % 2 == 0 && rope->n_rot >= 2 &&
                       rope->n_rot <= h->head_dim && h->norm_eps > 0 && h->norm_eps < 1 && rope->base > 1 &&
                       rope->base < INFINITY;
    return sizes && (i ? good(l->attn_norm, true, 0, e) : !l->attn_norm) && !l->router && !l->q_norm == !l->k_norm &&
           good(l->wq, true, q, in) && good(l->wk, true, kv, in) && good(l->wv, true, kv, in) && good(l->wo, true, e, q) &&
           good(l->bq, false, 0, q) && good(l->bk, false, 0, kv) && good(l->bv, false, 0, kv) && good(l->bo, false, 0, e) &&
           good(l->q_norm, false, 0, h->head_dim) && good(l->k_norm, false, 0, h->head_dim) && good(l->ffn_norm, true, 0, e) &&
           good(l->w_gate, true, h->n_ff, e) && good(l->w_up, true, h->n_ff, e) && good(l->w_down, true, e, h->n_ff) &&
           good(l->b_gate, false, 0, h->n_ff) && good(l->b_up, false, 0, h->n_ff) && good(l->b_down, false, 0, e);
}

static bool good_norms(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const bool whole = h->fc_norm == AE_FC_NORM_JOINT || (h->fc_norm == AE_FC_NORM_EACH && h->n_taps > 1 && !head->fc_norm[1]);
    if (h->fc_norm == AE_FC_NORM_NONE) return !head->fc_norm[0];
    if (whole) return good(head->fc_norm[0], true, 0, h->n_taps * h->n_target_embd);
    for (uint32_t i = 0; i < h->n_taps; i++)
        if (!good(head->fc_norm[i], true, 0, h->n_target_embd)) return false;
    return true;
}

static bool good_eagle(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const bool three = h->kind == AE_DHEAD_EAGLE3, narrow = h->layer.n_embd != h->n_target_embd;
    const uint32_t e = h->layer.n_embd, features = h->n_taps * h->n_target_embd;
    double freq[AE_MAX_HEAD_DIM / 2], magnitude;
    for (uint32_t i = 0; i < head->hparams.n_layers; i++)
        if (!good_layer(head, i)) return false;
    if (!good_norms(head) || (narrow && !three)) return false;
    if (h->n_parallel == 1 || h->n_parallel > AE_DHEAD_MAX_PARALLEL || h->mask < 0 ||
        !good(head->mask_hidden, h->n_parallel > 0, 0, h->n_taps * h->n_target_embd))
        return false;
    ae_model_rope_freqs(&h->layer.ropes[0], 0, freq, &magnitude);
    for (uint32_t i = 0; i < h->layer.ropes[0].n_rot / 2; i++)
        if (!isfinite(freq[i]) || !isfinite(magnitude)) return false;
    return good(head->embedding, narrow, h->n_vocab, e) && good(head->output, narrow, h->n_draft, e) &&
           good(head->fc, true, e, three ? features : e + features) && good(head->fc_bias, false, 0, e) &&
           good(head->embd_norm, three, 0, e) && good(head->hidden_norm, three, 0, e) && good(head->out_norm, three, 0, e) &&
           three == (head->out_norm != NULL);
}

static bool good_medusa(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd;
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        if (!good(head->medusa_out[j], true, h->n_draft, e)) return false;
        for (uint32_t i = 0; i < h->n_blocks; i++)
            if (!good(head->medusa_w[j][i], true, e, e) || !good(head->medusa_b[j][i], false, 0, e)) return false;
    }
    return h->n_medusa && h->n_medusa <= AE_DHEAD_MAX_MEDUSA && h->n_blocks && h->n_blocks <= AE_DHEAD_MAX_BLOCKS &&
           e == h->n_target_embd;
}

static bool good_mtp(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd;
    if (!h->n_layers || h->n_layers > AE_DHEAD_MAX_LAYERS || e != h->n_target_embd) return false;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_nextn *n = &head->mtp->nextn[i];
        const ae_layer *l = &ae_dhead_layers(head)[i];
        const uint32_t q = l->spec.n_heads * l->spec.head_dim;
        if (l->spec.kv_from != (int)(h->layer.n_layers + i)) return false;
        if (!good(n->eh_proj, true, e, 2 * e) || !good(n->enorm, true, 0, e) || !good(n->hnorm, true, 0, e) ||
            !good(n->embedding, false, h->n_vocab, e) || !good(n->head, false, h->n_draft, e) ||
            !good(n->head_norm, false, 0, e) || !good(l->attn_norm, true, 0, e))
            return false;
        const uint32_t wide = l->spec.value_dim ? l->spec.n_heads * l->spec.value_dim : q;
        if (l->spec.mixer == AE_MIXER_ATTENTION && !good(l->wo, true, e, wide))
            return false;
    }
    return !h->layer.hyper || good(head->mtp->hyper_end.fn, true, h->n_taps, h->n_taps * e);
}

/* The tensors that only DFlash2 has. */
static bool good_pairs(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd, k = h->n_pair;
    if (!k || !h->n_conv || h->n_conv > AE_DHEAD_MAX_CONV || !h->conv_group || e % h->conv_group || !h->n_candidates)
        return false;
    for (uint32_t i = 0; i < 2 * h->n_layers; i++) {
        const ae_dhead_conv *c = &head->conv[i / 2][i % 2];
        if (!good(c->proj, true, 2 * h->n_conv * (e / h->conv_group), e) || !c->base || c->base->ne[0] != e ||
            c->base->ne[1] != h->n_conv || c->base->ne[2] != 2)
            return false;
    }
    return good(head->pair_rows, true, k, e) && good(head->pair_before, true, h->n_vocab, k) &&
           good(head->pair_after, true, h->n_vocab, k);
}

static bool good_fusion(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd, n = h->n_correct;
    for (uint32_t i = 0; i < h->n_layers * h->n_taps; i++)
        if (!(head->fusion[i / h->n_taps][i % h->n_taps] >= 0)) return false;
    return h->n_target_embd == e && good(head->correct_hidden_norm, n > 0, 0, e) &&
           good(head->correct_embd_norm, n > 0, 0, e) && good(head->correct_gate, n > 0, n, 2 * e) &&
           good(head->correct_up, n > 0, n, 2 * e) && good(head->correct_down, n > 0, e, n);
}

static bool good_block(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const uint32_t e = h->layer.n_embd, k = h->n_markov;
    if (!h->n_layers || h->n_layers > AE_DHEAD_MAX_LAYERS || h->n_steps != 1 || !h->n_block ||
        h->n_block > AE_DHEAD_MAX_BLOCK ||
        !ae_dhead_n_foreseen(h) || h->mask < 0 || (uint32_t)h->mask >= h->n_vocab)
        return false;
    if (!good(head->fc, true, e, h->n_taps * h->n_target_embd) || !good(head->hidden_norm, true, 0, e) ||
        !good(head->out_norm, true, 0, e) || !good(head->embedding, false, h->n_vocab, e) ||
        !good(head->output, false, h->n_draft, e) || !good(head->markov_w1, k > 0, h->n_vocab, k) ||
        !good(head->markov_w2, k > 0, h->n_draft, k) || !good(head->conf, false, 1, h->conf_markov ? e + k : e) ||
        !good(head->conf_bias, false, 0, 1) || (h->kind == AE_DHEAD_DFLASH2 && !good_pairs(head)) ||
        (h->kind == AE_DHEAD_DFLY && !good_fusion(head)) || (h->kind == AE_DHEAD_LILICORR && !good_lattice(head)))
        return false;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_layer *l = &ae_dhead_layers(head)[i];
        const uint32_t q = l->spec.n_heads * l->spec.head_dim, kv = l->spec.n_kv_heads * l->spec.head_dim;
        if (l->spec.mixer != AE_MIXER_ATTENTION || l->spec.kv_from != (int)i || !good(l->attn_norm, true, 0, e) ||
            !good(l->wq, true, q, e) || !good(l->wk, true, kv, e) || !good(l->wv, true, kv, e) || !good(l->wo, true, e, q) ||
            !good(l->w_down, true, e, l->spec.n_ff))
            return false;
    }
    return true;
}

static bool good_assistant(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    const ae_model *m = head->mtp;
    const uint32_t e = h->layer.n_embd, t = h->n_target_embd;
    if (!h->n_layers || h->n_layers > AE_MAX_LAYERS || h->n_steps != 1) return false;
    if (!good(m->pre_projection, true, e, 2 * t) || !good(m->post_projection, true, t, e) || !good(m->out_norm, true, 0, e) ||
        !good(m->output, true, h->n_draft, e))
        return false;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const ae_layer *l = &ae_dhead_layers(head)[i];
        const uint32_t q = l->spec.n_heads * l->spec.head_dim;
        if (l->spec.mixer != AE_MIXER_ATTENTION || l->spec.kv_from != AE_KV_OTHER || l->wk || l->wv || l->wqkv) return false;
        if (!good(l->wq, true, q, e) || !good(l->wo, true, e, q) || !good(l->q_norm, true, 0, l->spec.head_dim)) return false;
    }
    return true;
}

const char *mkhead_check(const ae_dhead *head)
{
    const ae_dhead_hparams *h = &head->hparams;
    if (!h->n_target_embd || h->n_target_embd > AE_MAX_EMBD) return "the target's width";
    if (!h->n_taps || h->n_taps > AERIE_MAX_TAPS) return "the number of taps";
    const uint32_t last = h->n_target_layers ? h->n_target_layers : AE_MAX_LAYERS;
    for (uint32_t i = 0; i < h->n_taps; i++)
        if (h->kind == AE_DHEAD_EAGLE3 || ae_dhead_is_block(h) ? h->taps[i] > last
            : h->layer.hyper                                   ? h->taps[i] != AE_TAP_STREAM + i
                                       : h->taps[i] != AERIE_TAP_NORMED && (!head->mtp || h->taps[i] != last))
            return "a tap";
    if (!h->n_draft || h->n_draft > INT32_MAX || h->n_vocab > INT32_MAX || (h->n_vocab && h->n_draft > h->n_vocab))
        return "a vocabulary";
    if (!head->to_target && h->n_draft != h->n_vocab) return "a draft vocabulary without a map";
    for (uint32_t i = 0; head->to_target && i < h->n_draft; i++)
        if (head->to_target[i] < 0 || (h->n_vocab && (uint32_t)head->to_target[i] >= h->n_vocab)) return "an entry of the map";
    const bool right = h->kind == AE_DHEAD_MEDUSA      ? good_medusa(head)
                       : h->kind == AE_DHEAD_ASSISTANT ? good_assistant(head)
                       : ae_dhead_is_block(h)          ? good_block(head)
                       : head->mtp                     ? good_mtp(head)
                                                       : good_eagle(head);
    if (!right)
        return "a weight or a size";
    return ae_dhead_kind_name(head)[0] && head->name ? NULL : "the names";
}
