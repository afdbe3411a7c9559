/* dense.c - EmbeddingGemma: a Gemma 3 whose rows see each other, and the two dense layers that sentence-transformers applies to
 * the vector of a text (arch.h). The layers are in folders of their own, which modules.json names.
 * Sources: the published folder of embeddinggemma-300m, sentence-transformers' Dense; names and keys are llama.cpp's. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "convert/archs/arch.h"

static bool is_float(const ae_st_tensor *t)
{
    return t->dtype == AE_ST_F32 || t->dtype == AE_ST_F16 || t->dtype == AE_ST_BF16 || t->dtype == AE_ST_F64;
}

/* Returns the weights of a dense layer. UNSUPPORTED: it has a bias or an activation, which the file cannot express. */
static aerie_status take(ae_convert *c, uint32_t i, const char *in, const ae_st_tensor **t)
{
    char name[320]; /* `in` has up to 255 bytes */
    json_t *json;
    snprintf(name, sizeof name, "%sconfig.json", in);
    AE_TRY(ae_convert_read_json(c, name, &json));
    const char *act = json_string_value(json_object_get(json, "activation_function"));
    const size_t n = act ? strlen(act) : 0;
    const bool plain = !act || (n >= 8 && strcmp(act + n - 8, "Identity") == 0);
    json_decref(json);
    snprintf(name, sizeof name, "%smodel.safetensors", in);
    char *path = ae_convert_path_in(c, name);
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_safetensors_open(&c->dense[i], path, c->error);
    *t = status == AERIE_OK ? ae_safetensors_tensor_find(c->dense[i], "linear.weight") : NULL;
    if (status == AERIE_OK && (!plain || ae_safetensors_tensor_find(c->dense[i], "linear.bias")))
        status = ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: a dense layer must have neither a bias nor an activation",
                         path);
    if (status == AERIE_OK && (!*t || (*t)->n_dims != 2 || !is_float(*t) || (*t)->shape[0] > AE_MAX_EMBD ||
                               (*t)->shape[1] > AE_MAX_EMBD))
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor linear.weight must be a matrix of floats", path);
    ae_free(path);
    return status;
}

aerie_status ae_convert_finish_dense(ae_convert *c)
{
    const ae_st_tensor *t[2] = {NULL, NULL};
    bool found = true;
    for (uint32_t i = 0; i < 3; i++) {
        char in[256] = "";
        AE_TRY(ae_convert_find_module(c, "Dense", i, in, &found));
        if (found && i < 2) AE_TRY(take(c, i, in, &t[i]));
        if (found != (i < 2) && !(i == 0 && !found))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: modules.json has %s; none or two are supported",
                           c->path, found ? "more than two dense layers" : "one dense layer");
        if (!found) break;
    }
    if (!t[0]) return AERIE_OK;
    const uint64_t e = c->model.n_embd, wide = t[0]->shape[0];
    AE_TRY(ae_convert_check_shape(c, t[0], wide, e, "of the first dense layer, by 'hidden_size'"));
    AE_TRY(ae_convert_check_shape(c, t[1], e, wide, "of the second dense layer, by the first"));
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = "dense_2.weight", .from = t[0], .rows = wide, .columns = e}));
    return ae_convert_add(c, &(ae_convert_item){.name = "dense_3.weight", .from = t[1], .rows = e, .columns = wide});
}

aerie_status ae_convert_keys_dense(ae_convert_keys *k, const ae_convert *c)
{
    AE_TRY(ae_convert_keys_gemma(k, c));
    for (uint32_t i = 0; i < 2 && c->dense[1]; i++) {
        const ae_st_tensor *t = ae_safetensors_tensor_find(c->dense[i], "linear.weight");
        char key[32];
        snprintf(key, sizeof key, "dense_%u_feat_in", i + 2);
        ae_convert_put_u32(k, key, (uint32_t)t->shape[1]);
        snprintf(key, sizeof key, "dense_%u_feat_out", i + 2);
        ae_convert_put_u32(k, key, (uint32_t)t->shape[0]);
    }
    return k->status;
}
