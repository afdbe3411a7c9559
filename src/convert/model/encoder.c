/* encoder.c - converts encoders of BERT's family, as transformers and sentence-transformers save them.
 * Reads config.json, the tensors, the vocabulary (wordpiece.c), and 1_Pooling/config.json if there is one. A family is a row of
 * a table: the names and shapes of its tensors, and the values of settings that a GGUF file implies. A classifier with one
 * label becomes a reranker of two layers: BERT's pooler and classifier, or the two of RoBERTa's classifier. Sources:
 * transformers' classes, and the own code of Nomic BERT, JinaBERT 2 and NeoBERT; names and keys are those that llama.cpp
 * reads. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "convert/model/vocab.h"
#include "convert/quantize/mix.h"
#include "quant/types.h"

enum { MAX_VOCAB = 1 << 22 };

/* ---- Families --------------------------------------------------------------------------------------- */

typedef enum width {
    ONE,
    EMBD,
    EMBD_3, /* queries, keys and values */
    FF,
    FF_2, /* gates and values */
    EXPERTS,
    VOCAB,
    POSITIONS,
    TYPES,
} width;

typedef enum kind {
    MATRIX,
    BIASED, /* a matrix with a bias */
    TABLE,  /* a table of numbers that are added, always F32, as other programs need it */
    NORM,   /* weight and bias with n_embd numbers each; old checkpoints call them gamma and beta */
    NORM_PLAIN, /* its weight alone */
    BY_HEAD,    /* queries, keys and values of one head after another */
    FIRST_HALF, /* the first half of the rows, or the second */
    SECOND_HALF,
    BIASED_DENSE, /* in layers without experts, as the following are in layers with them */
    STACK,   /* experts under one another: [experts * rows, columns] */
    STACK_T, /* [experts * columns, rows] */
    ROUTER,  /* a matrix that stays F32 */
} kind;

typedef struct part {
    const char *from, *to;
    kind kind;
    width rows, columns;
} part;

struct ae_convert_family {
    const char *model_type, *arch, *title, *marker; /* marker: a tensor that only this family has */
    const char *layer; /* prefix of the names of a layer's tensors */
    const part *outside, *inside;
    size_t n_outside, n_inside;
    const part *classifier; /* two layers; NULL: classifiers are not supported */
    bool special;    /* its marker says more than other families' markers that the checkpoint has, too */
    bool gelu;       /* the activation is GELU */
    bool rope, rms;
    bool one_type;   /* there is one type of tokens, unless config.json has a number of them */
    bool padded; /* the position table has additional rows at the beginning, up to that of the padding token */
    const char *bpe; /* name of the rules by which a byte-level BPE splits text */
    ae_pooling pooling; /* unless the folder has another one */
    /* settings of config.json that a GGUF file cannot express, with the value that it implies, as JSON */
    const struct fixed {
        const char *key, *value;
    } *fixed;
    size_t n_fixed;
};

static const part bert_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.position_embeddings", "position_embd", TABLE, POSITIONS, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
static const part bert_inside[] = {
    {"attention.self.query", "attn_q", BIASED, EMBD, EMBD},
    {"attention.self.key", "attn_k", BIASED, EMBD, EMBD},
    {"attention.self.value", "attn_v", BIASED, EMBD, EMBD},
    {"attention.output.dense", "attn_output", BIASED, EMBD, EMBD},
    {"attention.output.LayerNorm", "attn_output_norm", NORM, ONE, EMBD},
    {"intermediate.dense", "ffn_up", BIASED, FF, EMBD},
    {"output.dense", "ffn_down", BIASED, EMBD, FF},
    {"output.LayerNorm", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed bert_fixed[] = {{"position_embedding_type", "\"absolute\""}};
static const part bert_classifier[] = {{"pooler.dense", "cls", BIASED, EMBD, EMBD},
                                       {"classifier", "cls.output", BIASED, ONE, EMBD}};
static const part roberta_classifier[] = {{"classifier.dense", "cls", BIASED, EMBD, EMBD},
                                          {"classifier.out_proj", "cls.output", BIASED, ONE, EMBD}};

static const part distil_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.position_embeddings", "position_embd", TABLE, POSITIONS, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
static const part distil_inside[] = {
    {"attention.q_lin", "attn_q", BIASED, EMBD, EMBD},         {"attention.k_lin", "attn_k", BIASED, EMBD, EMBD},
    {"attention.v_lin", "attn_v", BIASED, EMBD, EMBD},         {"attention.out_lin", "attn_output", BIASED, EMBD, EMBD},
    {"sa_layer_norm", "attn_output_norm", NORM, ONE, EMBD},    {"ffn.lin1", "ffn_up", BIASED, FF, EMBD},
    {"ffn.lin2", "ffn_down", BIASED, EMBD, FF},                {"output_layer_norm", "layer_output_norm", NORM, ONE, EMBD},
};

static const struct fixed distil_fixed[] = {{"position_embedding_type", "\"absolute\""}};

static const part neo_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"layer_norm", "enc.output_norm", NORM_PLAIN, ONE, EMBD},
};
static const part neo_inside[] = {
    {"attention_norm", "attn_norm", NORM_PLAIN, ONE, EMBD}, {"qkv", "attn_qkv", BY_HEAD, EMBD_3, EMBD},
    {"wo", "attn_output", MATRIX, EMBD, EMBD},              {"ffn_norm", "ffn_norm", NORM_PLAIN, ONE, EMBD},
    {"ffn.w12", "ffn_up", MATRIX, FF_2, EMBD},              {"ffn.w3", "ffn_down", MATRIX, EMBD, FF},
};
static const struct fixed neo_fixed[] = {{"hidden_act", "\"SwiGLU\""}, {"rms_norm", "true"}, {"rope", "true"}};

static const part jina_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
#define JINA_ATTENTION                                                                                                         \
    {"attention.self.query", "attn_q", BIASED, EMBD, EMBD}, {"attention.self.key", "attn_k", BIASED, EMBD, EMBD},              \
        {"attention.self.value", "attn_v", BIASED, EMBD, EMBD},                                                                \
        {"attention.output.dense", "attn_output", BIASED, EMBD, EMBD},                                                         \
        {"attention.output.LayerNorm", "attn_output_norm", NORM, ONE, EMBD}
static const part jina_inside[] = {
    JINA_ATTENTION,
    {"mlp.gated_layers", "ffn_up", MATRIX, FF_2, EMBD}, /* gates first */
    {"mlp.wo", "ffn_down", BIASED, EMBD, FF},
    {"mlp.layernorm", "layer_output_norm", NORM, ONE, EMBD},
};
/* jina-embeddings-v2-base-code, whose gates are the second half */
static const part jina_code_inside[] = {
    JINA_ATTENTION,
    {"attention.self.layer_norm_q", "attn_q_norm", NORM, ONE, EMBD},
    {"attention.self.layer_norm_k", "attn_k_norm", NORM, ONE, EMBD},
    {"layer_norm_1", "attn_norm_2", NORM, ONE, EMBD},
    {"mlp.up_gated_layer", "ffn_up", FIRST_HALF, FF_2, EMBD},
    {"mlp.up_gated_layer", "ffn_gate", SECOND_HALF, FF_2, EMBD},
    {"mlp.down_layer", "ffn_down", BIASED, EMBD, FF},
    {"layer_norm_2", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed jina_fixed[] = {{"position_embedding_type", "\"alibi\""}, {"feed_forward_type", "\"geglu\""}};

/* names of nomic-ai, and of transformers' own class */
static const part nomic_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"emb_ln", "token_embd_norm", NORM, ONE, EMBD},
};
static const part nomic_inside[] = {
    {"attn.Wqkv", "attn_qkv", MATRIX, EMBD_3, EMBD}, {"attn.out_proj", "attn_output", MATRIX, EMBD, EMBD},
    {"norm1", "attn_output_norm", NORM, ONE, EMBD},  {"mlp.fc11", "ffn_up", MATRIX, FF, EMBD},
    {"mlp.fc12", "ffn_gate", MATRIX, FF, EMBD},      {"mlp.fc2", "ffn_down", MATRIX, EMBD, FF},
    {"norm2", "layer_output_norm", NORM, ONE, EMBD},
};
static const part nomic_moe_inside[] = {
    {"attn.Wqkv", "attn_qkv", BIASED, EMBD_3, EMBD}, {"attn.out_proj", "attn_output", BIASED, EMBD, EMBD},
    {"norm1", "attn_output_norm", NORM, ONE, EMBD},  {"mlp.fc1", "ffn_up", BIASED_DENSE, FF, EMBD},
    {"mlp.fc2", "ffn_down", BIASED_DENSE, EMBD, FF}, {"mlp.router.layer", "ffn_gate_inp", ROUTER, EXPERTS, EMBD},
    {"mlp.experts.mlp.w1", "ffn_up_exps.weight", STACK, FF, EMBD},
    {"mlp.experts.mlp.w2", "ffn_down_exps.weight", STACK_T, EMBD, FF},
    {"norm2", "layer_output_norm", NORM, ONE, EMBD},
};
static const part nomic_new_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
static const part nomic_new_inside[] = {
    {"self_attn.q_proj", "attn_q", MATRIX, EMBD, EMBD},
    {"self_attn.k_proj", "attn_k", MATRIX, EMBD, EMBD},
    {"self_attn.v_proj", "attn_v", MATRIX, EMBD, EMBD},
    {"self_attn.o_proj", "attn_output", MATRIX, EMBD, EMBD},
    {"post_attention_layernorm", "attn_output_norm", NORM, ONE, EMBD},
    {"mlp.up_proj", "ffn_up", MATRIX, FF, EMBD},
    {"mlp.gate_proj", "ffn_gate", MATRIX, FF, EMBD},
    {"mlp.down_proj", "ffn_down", MATRIX, EMBD, FF},
    {"post_mlp_layernorm", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed nomic_fixed[] = {
    {"activation_function", "\"swiglu\""}, {"hidden_act", "\"silu\""}, {"prenorm", "false"},
    {"parallel_block", "false"},           {"use_rms_norm", "false"},  {"causal", "false"},
    {"qkv_proj_bias", "false"},            {"mlp_fc1_bias", "false"},  {"mlp_fc2_bias", "false"},
    {"rotary_emb_fraction", "1.0"},        {"rotary_emb_interleaved", "false"},
    {"moe_every_n_layers", "0"},
};
static const struct fixed nomic_moe_fixed[] = {
    {"activation_function", "\"gelu\""}, {"prenorm", "false"}, {"parallel_block", "false"}, {"use_rms_norm", "false"},
    {"causal", "false"}, {"qkv_proj_bias", "true"}, {"mlp_fc1_bias", "true"}, {"mlp_fc2_bias", "true"},
    {"rotary_emb_fraction", "1.0"}, {"rotary_emb_interleaved", "false"}, {"moe_normalize_expert_weights", "false"},
    {"num_shared_experts", "0"}, {"expert_choice_router", "false"}, {"ffn_div", "1"},
};

/* jina-embeddings-v3: names of its own code, by which transformers saves it, too */
static const part jina3_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"emb_ln", "token_embd_norm", NORM, ONE, EMBD},
};
static const part jina3_inside[] = {
    {"mixer.Wqkv", "attn_qkv", BIASED, EMBD_3, EMBD}, {"mixer.out_proj", "attn_output", BIASED, EMBD, EMBD},
    {"norm1", "attn_output_norm", NORM, ONE, EMBD},   {"mlp.fc1", "ffn_up", BIASED, FF, EMBD},
    {"mlp.fc2", "ffn_down", BIASED, EMBD, FF},        {"norm2", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed jina3_fixed[] = {{"position_embedding_type", "\"rotary\""}};

#define LIST(name, list) .name = list, .n_##name = sizeof list / sizeof *list
static const ae_convert_family families[] = {
    {"bert", "bert", "BERT", "encoder.layer.0.attention.self.query.weight", "encoder.layer", LIST(outside, bert_outside),
     LIST(inside, bert_inside), .gelu = true, .classifier = bert_classifier, LIST(fixed, bert_fixed)},
    {"xlm-roberta", "bert", "XLM-RoBERTa", "encoder.layer.0.attention.self.query.weight", "encoder.layer",
     LIST(outside, bert_outside), LIST(inside, bert_inside), .gelu = true, .padded = true, .classifier = roberta_classifier,
     LIST(fixed, bert_fixed), .bpe = "roberta-bpe"},
    {"roberta", "bert", "RoBERTa", "encoder.layer.0.attention.self.query.weight", "encoder.layer",
     LIST(outside, bert_outside), LIST(inside, bert_inside), .gelu = true, .padded = true, .classifier = roberta_classifier,
     LIST(fixed, bert_fixed), .bpe = "roberta-bpe"},
    {"camembert", "bert", "CamemBERT", "encoder.layer.0.attention.self.query.weight", "encoder.layer",
     LIST(outside, bert_outside), LIST(inside, bert_inside), .gelu = true, .padded = true, .classifier = roberta_classifier,
     LIST(fixed, bert_fixed), .bpe = "roberta-bpe"},
    {"distilbert", "bert", "DistilBERT", "transformer.layer.0.attention.q_lin.weight", "transformer.layer",
     LIST(outside, distil_outside), LIST(inside, distil_inside), .gelu = true, .one_type = true, LIST(fixed, distil_fixed)},
    {"neobert", "neo-bert", "NeoBERT", "transformer_encoder.0.qkv.weight", "transformer_encoder", LIST(outside, neo_outside),
     LIST(inside, neo_inside), .rope = true, .rms = true, .one_type = true, .pooling = AE_POOLING_CLS, LIST(fixed, neo_fixed)},
    {"bert", "jina-bert-v2", "JinaBERT 2", "encoder.layer.0.mlp.gated_layers.weight", "encoder.layer",
     LIST(outside, jina_outside), LIST(inside, jina_inside), .special = true, .gelu = true, .bpe = "jina-v2-code",
     LIST(fixed, jina_fixed)},
    {"bert", "jina-bert-v2", "JinaBERT 2", "encoder.layer.0.mlp.up_gated_layer.weight", "encoder.layer",
     LIST(outside, jina_outside), LIST(inside, jina_code_inside), .special = true, .gelu = true, .bpe = "jina-v2-code",
     LIST(fixed, jina_fixed)},
    {"nomic_bert", "nomic-bert", "Nomic BERT", "encoder.layers.0.attn.Wqkv.weight", "encoder.layers",
     LIST(outside, nomic_outside), LIST(inside, nomic_inside), .rope = true, LIST(fixed, nomic_fixed)},
    {"nomic_bert", "nomic-bert-moe", "Nomic BERT 2", "encoder.layers.1.mlp.experts.mlp.w1", "encoder.layers",
     LIST(outside, nomic_outside), LIST(inside, nomic_moe_inside), .special = true, .rope = true, LIST(fixed, nomic_moe_fixed)},
    {"nomic_bert", "nomic-bert", "Nomic BERT", "layers.0.post_mlp_layernorm.weight", "layers", LIST(outside, nomic_new_outside),
     LIST(inside, nomic_new_inside), .rope = true, LIST(fixed, nomic_fixed)},
    {"xlm-roberta", "jina-bert-v3", "Jina embeddings 3", "encoder.layers.0.mixer.Wqkv.weight", "encoder.layers",
     LIST(outside, jina3_outside), LIST(inside, jina3_inside), .gelu = true, .rope = true, .padded = true, .one_type = true,
     .pooling = AE_POOLING_MEAN, LIST(fixed, jina3_fixed)},
    {"jina_embeddings_v3", "jina-bert-v3", "Jina embeddings 3", "encoder.layers.0.mixer.Wqkv.weight", "encoder.layers",
     LIST(outside, jina3_outside), LIST(inside, jina3_inside), .gelu = true, .rope = true, .padded = true, .one_type = true,
     .pooling = AE_POOLING_MEAN, LIST(fixed, jina3_fixed)},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* ---- Detecting -------------------------------------------------------------------------------------- */

aerie_status ae_convert_find_module(const ae_convert *c, const char *end, uint32_t nth, char name[256], bool *found)
{
    char *text = NULL, *path = ae_convert_path_in(c, "modules.json");
    const size_t n_end = strlen(end);
    size_t n = 0, i;
    json_t *modules = NULL, *module;
    aerie_status status = path ? AERIE_OK : ae_convert_no_memory(c, "a path");
    *found = false;
    if (path && ae_file_exists(path)) status = ae_convert_read_text(c, path, &text, &n);
    if (text) modules = json_loadb(text, n, 0, NULL);
    if (text && !json_is_array(modules))
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is not a JSON array", path);
    json_array_foreach(modules, i, module) {
        const char *type = json_string_value(json_object_get(module, "type")), *in;
        const size_t n_type = type ? strlen(type) : 0;
        if (n_type < n_end || strcmp(type + n_type - n_end, end) || nth--) continue;
        in = json_string_value(json_object_get(module, "path"));
        *found = in && strlen(in) < 200;
        if (*found) snprintf(name, 256, "%s%s", in, *in ? "/" : "");
        else
            status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the 'path' of \"%.40s\" must be the name of a folder", path,
                             type);
        break;
    }
    json_decref(modules);
    ae_free(text);
    ae_free(path);
    return status;
}

aerie_status ae_convert_read_pooling(const ae_convert *c, ae_pooling *pooling)
{
    static const struct {
        const char *key, *name;
        ae_pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", "cls", AE_POOLING_CLS}, {"pooling_mode_mean_tokens", "mean", AE_POOLING_MEAN},
                 {"pooling_mode_lasttoken", "lasttoken", AE_POOLING_LAST}};
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    char in[256] = "1_Pooling/", file[272];
    bool found;
    json_t *json;
    AE_TRY(ae_convert_find_module(c, "Pooling", 0, in, &found));
    snprintf(file, sizeof file, "%sconfig.json", in);
    AE_TRY(ae_convert_read_json(c, file, &json));
    const char *mode = json_string_value(json_object_get(json, "pooling_mode")); /* a name, since sentence-transformers 5 */
    uint32_t n = 0, n_known = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const bool named = mode && strcmp(mode, modes[i].name) == 0;
        n_known += named;
        if (!named && !json_is_true(json_object_get(json, modes[i].key))) continue;
        *pooling = modes[i].pooling;
        n++;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) n += json_is_true(json_object_get(json, others[i])) ? 2 : 0;
    json_decref(json);
    if (n > 1 || (mode && !n_known))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: %s specifies a pooling, or several at once, that a GGUF file cannot express; "
                       "mean, cls and last are supported",
                       c->path, file);
    return AERIE_OK;
}

/* Refuses settings that a GGUF file cannot express. */
static aerie_status check_settings(const ae_convert *c, const ae_convert_family *f)
{
    static const char *const keys[] = {"hidden_act", "activation"}; /* the latter is DistilBERT's */
    const char *type = ae_convert_text(c, "model_type");
    if (type && strcmp(type, f->model_type))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'model_type' is \"%.40s\"; of encoders, \"bert\", \"roberta\", \"xlm-roberta\", \"camembert\", "
                       "\"distilbert\", \"nomic_bert\", \"neobert\" and \"jina_embeddings_v3\" are supported", c->config_path,
                       type);
    for (size_t i = 0; i < 2 && f->gelu; i++) {
        const char *act = ae_convert_text(c, keys[i]);
        if (!act || strncmp(act, "gelu", 4) == 0) continue;
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is \"%.40s\"; \"gelu\" is supported", c->config_path,
                       keys[i], act);
    }
    for (size_t i = 0; i < f->n_fixed; i++) {
        json_t *meant = json_loads(f->fixed[i].value, JSON_DECODE_ANY, NULL);
        const aerie_status status = meant ? ae_convert_check_fixed(c, f->fixed[i].key, meant, f->title)
                                          : ae_convert_no_memory(c, "the settings");
        json_decref(meant);
        AE_TRY(status);
    }
    return AERIE_OK;
}

/* Reads a size by the first of its names that is there. */
static aerie_status read_size(const ae_convert *c, const char *const keys[4], uint32_t most, uint32_t *value)
{
    size_t i = 0;
    while (i < 3 && keys[i + 1] && !ae_convert_value(c, keys[i])) i++;
    return ae_convert_need_u32(c, ae_convert_value(c, keys[i]) ? keys[i] : keys[0], 1, most, value);
}

/* Reads the numbers of experts; NeoBERT's width is two thirds of the given one, in steps of 8. */
static aerie_status read_blocks(const ae_convert *c, ae_convert_encoder *b)
{
    if (strcmp(b->family->arch, "neo-bert") == 0) b->n_ff = (2 * b->n_ff / 3 + 7) / 8 * 8;
    if (strcmp(b->family->arch, "nomic-bert-moe")) return AERIE_OK;
    AE_TRY(ae_convert_need_u32(c, "num_experts", 2, AE_MAX_EXPERTS, &b->n_experts));
    AE_TRY(ae_convert_need_u32(c, "moe_top_k", 1, b->n_experts, &b->n_used));
    return ae_convert_need_u32(c, "moe_every_n_layers", 2, AE_MAX_LAYERS, &b->expert_step);
}

static aerie_status read_sizes(const ae_convert *c, ae_convert_encoder *b)
{
    static const char *const embd[4] = {"hidden_size", "n_embd", "dim"}, *const layers[4] = {"num_hidden_layers", "n_layer",
                                                                                            "n_layers"},
                             *const heads[4] = {"num_attention_heads", "n_head", "n_heads"},
                             *const ff[4] = {"intermediate_size", "n_inner", "hidden_dim"},
                             *const positions[4] = {"max_position_embeddings", "n_positions", "max_length"};
    const json_t *eps = ae_convert_value(c, "layer_norm_eps");
    AE_TRY(read_size(c, embd, AE_MAX_EMBD, &b->n_embd));
    AE_TRY(read_size(c, layers, AE_MAX_LAYERS, &b->n_layers));
    AE_TRY(read_size(c, heads, AE_MAX_HEADS, &b->n_heads));
    AE_TRY(read_size(c, ff, AE_MAX_FF, &b->n_ff));
    AE_TRY(read_size(c, positions, 1u << 20, &b->n_ctx));
    AE_TRY(ae_convert_need_u32(c, "vocab_size", 1, MAX_VOCAB, &b->n_vocab));
    AE_TRY(read_blocks(c, b));
    if (b->family->padded) {
        uint32_t padding = 1;
        AE_TRY(ae_convert_u32(c, "pad_token_id", 0, 1u << 20, &padding));
        if (padding + 1 >= b->n_ctx)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'max_position_embeddings' %u leaves no position after "
                           "'pad_token_id' %u", c->config_path, b->n_ctx, padding);
        b->n_skipped = padding + 1;
        b->n_ctx -= b->n_skipped;
    }
    b->n_types = b->family->one_type ? 1 : 2;
    AE_TRY(ae_convert_u32(c, "type_vocab_size", 1, 1u << 10, &b->n_types));
    b->norm_eps = b->family->rms ? 1e-5 : 1e-12;
    if (!eps) eps = ae_convert_value(c, b->family->rms ? "norm_eps" : "layer_norm_epsilon");
    AE_TRY(ae_convert_real(c, eps, "layer_norm_eps", 1e-30, 0.1, &b->norm_eps));
    if (b->n_embd % b->n_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' %u is not a multiple of '%s' %u", c->config_path, "hidden_size",
                       b->n_embd, "num_attention_heads", b->n_heads);
    return AERIE_OK;
}

/* Reads the rotation: one base, without scaling. Texts longer than the training context would need a scaling, so they are
 * refused. */
static aerie_status read_rotation(const ae_convert *c, ae_convert_encoder *b)
{
    const json_t *rope = ae_convert_value(c, "rope_parameters"), *base = json_object_get(rope, "rope_theta");
    const json_t *head_dim = ae_convert_value(c, "head_dim");
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    uint32_t trained = ae_convert_value(c, "n_positions") ? 2048 : b->n_ctx;
    if (rope && !json_is_object(rope))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_parameters' must be an object", c->config_path);
    if (type && strcmp(type, "default"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rope_type' is \"%.40s\"; for encoders, \"default\" is "
                       "supported",
                       c->config_path, type);
    if (head_dim && json_integer_value(head_dim) != b->n_embd / b->n_heads)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'head_dim' is not 'hidden_size' %u over 'num_attention_heads' %u", c->config_path, b->n_embd,
                       b->n_heads);
    if (ae_convert_value(c, "rotary_emb_scale_base"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rotary_emb_scale_base' (xPos) is not supported",
                       c->config_path);
    b->rope_base = 10000.0;
    if (!base) base = ae_convert_value(c, "rotary_emb_base");
    AE_TRY(ae_convert_real(c, base, "rotary_emb_base", 1.0, 1e12, &b->rope_base));
    AE_TRY(ae_convert_u32(c, "max_trained_positions", 1, 1u << 20, &trained));
    /* nomic-embed-text-v2-moe was trained with 512 positions, which its configuration does not say */
    if (b->n_experts && b->n_ctx == 2048 && trained == 2048) trained = 512;
    if (trained < b->n_ctx) b->n_ctx = trained;
    return AERIE_OK;
}

aerie_status ae_convert_check_modules(const ae_convert *c, const char *title)
{
    static const char *const others[] = {"Dense", "LayerNorm", "CNN", "LSTM", "WordWeights", "WeightedLayerPooling"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char in[256] = "";
        bool found;
        AE_TRY(ae_convert_find_module(c, others[i], 0, in, &found));
        if (!found || ae_convert_is_skipped(c, in)) continue;
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: modules.json has a layer \"%s\" (%s) after the encoder, which files of %s cannot hold: vectors "
                       "would be others; --skip %.200s makes a file without it", c->path, others[i], in, title, in);
    }
    return AERIE_OK;
}

static aerie_status read_classifier(ae_convert *c, ae_convert_encoder *b)
{
    const ae_convert_family *f = b->family;
    char name[64] = "classifier.weight";
    const ae_st_tensor *classifier = ae_convert_look(c, name);
    if (f->classifier) snprintf(name, sizeof name, "%s.weight", f->classifier[1].from);
    if (!classifier) classifier = ae_convert_look(c, name);
    if (classifier && (!f->classifier || !ae_convert_look(c, name)))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: classifiers of %s are not supported; --skip classifier makes a file without it", c->path,
                       f->title);
    if (classifier && (classifier->n_dims != 2 || classifier->shape[0] != 1))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: the classifier has several labels; rerankers have one, and --skip "
                       "classifier makes a file without it",
                       c->path);
    b->ranks = classifier != NULL;
    b->pooling = b->ranks ? AE_POOLING_RANK : f->pooling;
    if (b->ranks) return AERIE_OK;
    AE_TRY(ae_convert_check_modules(c, f->title));
    return ae_convert_read_pooling(c, &b->pooling);
}

/* Gives matrices that adapters change their plain names, and leaves the adapters out. */
static aerie_status settle_adapters(ae_convert *c)
{
    static const char by[] = ".parametrizations.weight.", *const ends[] = {"original", "0.lora_A", "0.lora_B"};
    size_t n_original = 0, n_left = 0;
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i];
        const char *at = strstr(e->name, by), *end = at ? at + strlen(by) : "";
        if (strcmp(end, ends[1]) == 0 || strcmp(end, ends[2]) == 0) {
            e->used = true;
            n_left++;
        } else if (strcmp(end, ends[0]) == 0) {
            char name[160];
            snprintf(name, sizeof name, "%.120s", e->name);
            if ((size_t)(at - e->name) > 120) continue;
            snprintf(name + (at - e->name), sizeof name - (size_t)(at - e->name), ".weight");
            e->name = ae_arena_strndup(&c->arena, name, strlen(name));
            if (!e->name) return ae_convert_no_memory(c, "the names of tensors");
            n_original++;
        }
    }
    if (n_left)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: the adapters for tasks are left out: vectors are those of the "
                   "model without a task", c->path);
    return n_original ? ae_convert_sort_names(c) : AERIE_OK;
}

static aerie_status encoder_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {{"bert.", ""}, {"nomic_bert.", ""}, {"roberta.", ""}, {"camembert.", ""},
                                                {"distilbert.", ""}, {"model.encoder.weight",
                                                                      "embeddings.word_embeddings.weight"},
                                                {"encoder.weight", "embeddings.word_embeddings.weight"},
                                                {"model.transformer_encoder.", "transformer_encoder."},
                                                {"model.layer_norm.", "layer_norm."}};
    ae_convert_encoder *b = &c->encoder;
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    AE_TRY(settle_adapters(c));
    const char *type = ae_convert_text(c, "model_type");
    for (size_t i = 0; i < N_FAMILIES; i++) { /* among families with the same tensors, choose by name */
        if (!ae_convert_look(c, families[i].marker)) continue;
        if (b->family && b->family->special) continue;
        if (!b->family || families[i].special || (type && strcmp(type, families[i].model_type) == 0)) b->family = &families[i];
    }
    *mine = b->family && ae_convert_look(c, "embeddings.word_embeddings.weight");
    if (!*mine) b->family = NULL;
    if (!*mine) return AERIE_OK;
    if (c->options.target)
        return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "%s: this is an encoder, which has no --target", c->path);
    AE_TRY(check_settings(c, b->family));
    AE_TRY(read_sizes(c, b));
    if (b->family->rope) AE_TRY(read_rotation(c, b));
    return read_classifier(c, b);
}

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* Takes a tensor; in old checkpoints norms are called gamma and beta. */
static const ae_st_tensor *take(ae_convert *c, const char *from, const char *what, const char *old, char name[128])
{
    snprintf(name, 128, "%s.%s", from, what);
    if (ae_convert_look(c, name)) return ae_convert_take(c, name);
    snprintf(name, 128, "%s.%s", from, old);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) snprintf(name, 128, "%s.%s", from, what);
    return t;
}

/* Adds a tensor [rows, columns], or with rows 0 [columns]. Tables of numbers that are added are always F32, as other programs
 * need it. */
static aerie_status add(ae_convert *c, const char *from, const char *to, const char *what, const char *old, uint64_t rows,
                        uint64_t columns, bool f32)
{
    char name[128];
    const ae_st_tensor *t = take(c, from, what, old, name);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    const uint64_t skipped = strcmp(to, "position_embd") ? 0 : c->encoder.n_skipped;
    AE_TRY(ae_convert_check_shape(c, t, rows + skipped, columns, "by config.json"));
    snprintf(name, sizeof name, "%s.%s", to, what);
    return ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .first = skipped * columns, .rows = rows,
                                                .columns = columns, .f32 = f32,
                                                .f16 = ae_mix_needs_floats((ae_gguf_string){name, strlen(name)})});
}

static uint64_t size_of(const ae_convert_encoder *b, width w)
{
    switch (w) {
    case EMBD: return b->n_embd;
    case EMBD_3: return 3 * (uint64_t)b->n_embd;
    case FF: return b->n_ff;
    case FF_2: return 2 * (uint64_t)b->n_ff;
    case EXPERTS: return b->n_experts;
    case VOCAB: return b->n_vocab;
    case POSITIONS: return b->n_ctx;
    case TYPES: return b->n_types;
    default: return 1;
    }
}

/* Adds a matrix whose rows are cut or in another order: queries, keys and values of each head, or half of all rows. */
static aerie_status add_reordered(ae_convert *c, const part *p, const char *from, const char *to)
{
    const ae_convert_encoder *b = &c->encoder;
    const uint64_t all = size_of(b, p->rows), n = p->kind == BY_HEAD ? all : all / 2, d = b->n_embd / b->n_heads;
    char name[128];
    const ae_st_tensor *t = take(c, from, "weight", "weight", name);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    AE_TRY(ae_convert_check_shape(c, t, all, b->n_embd, "by config.json"));
    uint32_t *order = ae_arena_alloc(&c->arena, n, sizeof *order);
    if (!order) return ae_convert_no_memory(c, "the order of rows");
    for (uint64_t r = 0; r < n; r++) {
        const uint64_t which = r / b->n_embd, head = r % b->n_embd / d;
        order[r] = (uint32_t)(p->kind == BY_HEAD ? (3 * head + which) * d + r % d : r + (p->kind == SECOND_HALF ? n : 0));
    }
    snprintf(name, sizeof name, "%s.weight", to);
    return ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .rows = n, .columns = b->n_embd, .row_from = order});
}

/* Adds a stack of experts, which the checkpoint has under one another. */
static aerie_status add_stack(ae_convert *c, const part *p, const char *from, const char *to)
{
    const uint64_t n = c->encoder.n_experts, rows = size_of(&c->encoder, p->rows), columns = size_of(&c->encoder, p->columns);
    const bool turned = p->kind == STACK_T;
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, from);
    AE_TRY(ae_convert_check_shape(c, t, n * (turned ? columns : rows), turned ? rows : columns, "by config.json"));
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .n_stack = n, .rows = rows, .columns = columns,
                                                .row_step = turned ? 1 : 0, .step = turned ? rows : 0,
                                                .stack_step = rows * columns});
}

static aerie_status add_part(ae_convert *c, const part *p, const char *from, const char *to)
{
    const uint64_t rows = size_of(&c->encoder, p->rows), columns = size_of(&c->encoder, p->columns);
    switch (p->kind) {
    case NORM:
        AE_TRY(add(c, from, to, "weight", "gamma", 0, columns, true));
        return add(c, from, to, "bias", "beta", 0, columns, true);
    case NORM_PLAIN: return add(c, from, to, "weight", "gamma", 0, columns, true);
    case BY_HEAD: case FIRST_HALF: case SECOND_HALF: return add_reordered(c, p, from, to);
    case STACK: case STACK_T: return add_stack(c, p, from, to);
    default: break;
    }
    AE_TRY(add(c, from, to, "weight", "weight", rows, columns, p->kind == TABLE || p->kind == ROUTER));
    return p->kind == BIASED || p->kind == BIASED_DENSE ? add(c, from, to, "bias", "bias", 0, rows, true) : AERIE_OK;
}

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const ae_convert_family *f = c->encoder.family;
    const bool sparse = c->encoder.expert_step && i % c->encoder.expert_step == 1;
    for (size_t k = 0; k < f->n_inside; k++) {
        char from[96], to[64];
        if (f->inside[k].kind >= BIASED_DENSE && sparse == (f->inside[k].kind == BIASED_DENSE)) continue;
        snprintf(from, sizeof from, "%s.%u.%s", f->layer, i, f->inside[k].from);
        snprintf(to, sizeof to, "blk.%u.%s", i, f->inside[k].to);
        AE_TRY(add_part(c, &f->inside[k], from, to));
    }
    return AERIE_OK;
}

/* Marks as used tensors of heads that were used only in training, and the bias of Nomic BERT's experts, which GGUF files
 * lack. */
static void pass_over(ae_convert *c)
{
    static const char *const starts[] = {"cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
                                         "decoder."};
    bool biased = false;
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i];
        for (size_t k = 0; k < sizeof starts / sizeof *starts; k++)
            if (strncmp(e->name, starts[k], strlen(starts[k])) == 0) e->used = true;
        if (!c->encoder.n_experts || !strstr(e->name, ".mlp.experts.bias")) continue;
        for (uint64_t k = 0; k < e->tensor->n && !biased; k++) {
            float x = 0;
            biased = !ae_convert_floats(e->tensor, k, &x, 1) || x < 0 || x > 0;
        }
        e->used = true;
    }
    if (biased)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: the bias of the experts' sums (mlp.experts.bias) is left out: GGUF "
                   "files of architecture %s have none", c->path, c->encoder.family->arch);
}

static aerie_status encoder_plan(ae_convert *c)
{
    static const char *const unneeded[] = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"};
    const ae_convert_encoder *b = &c->encoder;
    const ae_convert_family *f = b->family;
    const bool bf16 = ae_convert_look(c, "embeddings.word_embeddings.weight")->dtype == AE_ST_BF16;
    c->out_type = c->options.type != AE_CONVERT_TYPE_AUTO ? c->options.type : bf16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    for (size_t i = 0; i < f->n_outside; i++) AE_TRY(add_part(c, &f->outside[i], f->outside[i].from, f->outside[i].to));
    for (uint32_t i = 0; i < b->n_layers; i++) AE_TRY(plan_layer(c, i));
    for (const part *p = f->classifier; b->ranks && p < f->classifier + 2; p++) AE_TRY(add_part(c, p, p->from, p->to));
    pass_over(c);
    const ae_convert_entry *left = ae_convert_unused(c, unneeded, sizeof unneeded / sizeof *unneeded);
    if (!left) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s belongs to no part of a %s encoder; --skip leaves it out",
                   c->path, left->tensor->name, f->title);
}

/* ---- Keys and checks ---------------------------------------------------------------------------------- */

static aerie_status encoder_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_convert_encoder *b = &c->encoder;
    ae_convert_keys k = {.w = w, .arch = b->family->arch, .status = AERIE_OK, .error = c->error};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"block_count", b->n_layers},          {"context_length", b->n_ctx},
        {"embedding_length", b->n_embd},       {"feed_forward_length", b->n_ff},
        {"attention.head_count", b->n_heads},  {"vocab_size", b->n_vocab},
    };
    ae_convert_put_general(&k, c);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) ae_convert_put_u32(&k, numbers[i].key, numbers[i].value);
    ae_convert_put_f32(&k, b->family->rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                       b->norm_eps);
    if (b->n_experts) {
        ae_convert_put_u32(&k, "expert_count", b->n_experts);
        ae_convert_put_u32(&k, "expert_used_count", b->n_used);
        ae_convert_put_u32(&k, "moe_every_n_layers", b->expert_step);
    }
    if (b->family->rope) ae_convert_put_f32(&k, "rope.freq_base", b->rope_base);
    ae_convert_put_bool(&k, "attention.causal", false);
    if (b->pooling != AE_POOLING_NONE) ae_convert_put_u32(&k, "pooling_type", b->pooling);
    AE_TRY(k.status);
    return ae_convert_put_pieces(c, b->n_vocab, b->n_types, b->family->bpe, w);
}

static aerie_status encoder_check(ae_convert *c)
{
    ae_model *model;
    AE_TRY(ae_model_load(&model, ae_gguf_writer_part(c->writer), NULL, c->error));
    c->head_kind = c->encoder.ranks ? "BERT reranker"
                   : strncmp(c->encoder.family->arch, "nomic", 5) == 0 ? "Nomic BERT encoder" : "BERT encoder";
    ae_model_free(model);
    return AERIE_OK;
}

const ae_convert_kind ae_convert_encoder_kind = {encoder_detect, encoder_plan, encoder_keys, encoder_check};
