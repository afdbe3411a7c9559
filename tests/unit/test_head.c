/* test_head.c - files of drafter heads: every schema and variant loads with the right values, and whatever is missing,
 * misshapen or contradictory is refused with a sentence that names it. */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_make.h"
#include "mkhead.h"
#include "mkmodel.h"

/* A target of 4 layers, 64 wide, 320 tokens; a head for it. */
static char target_path[] = "/tmp/aerie_head_XXXXXX", head_path[] = "/tmp/aerie_head_XXXXXX";

static void write_target(uint32_t n_layers, uint32_t n_embd, uint32_t n_vocab)
{
    mk_options o;
    aerie_error error;
    assert_true(mk_shape("tiny", &o));
    o.n_layers = n_layers, o.n_embd = n_embd, o.n_vocab = n_vocab;
    if (mk_model(&o, target_path, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static int make_paths(void **state)
{
    (void)state;
    const int a = mkstemp(target_path), b = mkstemp(head_path);
    if (a < 0 || b < 0) return 1;
    close(a), close(b);
    write_target(4, 64, 320);
    return 0;
}

static int drop_paths(void **state)
{
    (void)state;
    return unlink(target_path) | unlink(head_path);
}

static ae_dhead *make(mkhead_options o)
{
    aerie_error error = {0};
    ae_dhead *head = NULL;
    o.seed = 7;
    if (!o.type) o.type = "f32";
    if (mkhead_write(&o, target_path, head_path, &error) != AERIE_OK || ae_dhead_load(&head, head_path, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    return head;
}

/* ---- What loads ---------------------------------------------------------------------------------- */

static void shape_is(ae_tensor_ref t, int64_t n_out, int64_t n_in)
{
    assert_non_null(t);
    assert_int_equal(t->ne[0], n_in);
    assert_int_equal(t->ne[1], n_out ? n_out : 1);
}

static void name_is(ae_tensor_ref t, const char *name)
{
    assert_non_null(t);
    assert_int_equal(t->name.n, strlen(name));
    assert_memory_equal(t->name.data, name, t->name.n);
}

static void fits(const ae_dhead *head)
{
    ae_model *target;
    aerie_error error = {0};
    if (ae_model_load(&target, target_path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (ae_dhead_fits(head, target, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_model_free(target);
}

static void test_eagle3_in_every_schema(void **state)
{
    (void)state;
    static const char *const schemas[] = {"new", "old", "double"};
    int32_t first[3][100];
    for (int i = 0; i < 3; i++)
        for (int i32 = 0; i32 < 2; i32++) {
            ae_dhead *head = make((mkhead_options){.schema = schemas[i], .n_draft = 100, .map_i32 = i32,
                                                  .norm_before_residual = i32, .n_taps = 3, .taps = {0, 3, 4}});
            const ae_dhead_hparams *h = &head->hparams;
            assert_int_equal(h->kind, AE_DHEAD_EAGLE3);
            assert_string_equal(ae_dhead_kind_name(head), "EAGLE-3");
            assert_string_equal(head->name, "random head");
            assert_int_equal(h->n_target_embd, 64);
            assert_int_equal(h->n_target_layers, i ? 0 : 4);
            assert_int_equal(h->n_taps, 3);
            assert_int_equal(h->taps[0], 0);
            assert_int_equal(h->taps[1], 3);
            assert_int_equal(h->taps[2], 4);
            assert_int_equal(h->n_vocab, 320);
            assert_int_equal(h->n_draft, 100);
            assert_int_equal(h->fc_norm, AE_FC_NORM_NONE);
            assert_int_equal(h->norm_before_residual, i32);
            assert_false(h->feedback_normed);
            assert_int_equal(h->layer.n_layers, 1);
            assert_int_equal(h->layer.n_embd, 64);
            assert_int_equal(h->layer.n_ff, 128);
            assert_int_equal(h->layer.n_heads, 4);
            assert_int_equal(h->layer.n_kv_heads, 2);
            assert_int_equal(h->layer.head_dim, 32);
            assert_int_equal(h->layer.n_vocab, 100);
            assert_int_equal(h->layer.ropes[0].n_rot, 32);
            assert_false(h->layer.ropes[0].neox);
            assert_null(head->layers->q_norm);
            assert_float_equal(h->layer.attn_scale, 1 / sqrt(32), 1e-7);
            assert_null(head->embedding);
            shape_is(head->fc, 64, 192);
            assert_null(head->fc_bias);
            assert_null(head->fc_norm[0]);
            name_is(head->embd_norm, "blk.0.attn_norm.weight");
            name_is(head->hidden_norm, i ? "blk.0.hidden_norm.weight" : "blk.0.attn_norm_2.weight");
            assert_null(head->layers->attn_norm);
            shape_is(head->layers->wq, 128, 128);
            shape_is(head->layers->wk, 64, 128);
            shape_is(head->layers->wv, 64, 128);
            shape_is(head->layers->wo, 64, 128);
            shape_is(head->layers->w_down, 64, 128);
            name_is(head->layers->ffn_norm, "blk.0.ffn_norm.weight");
            name_is(head->out_norm, "output_norm.weight");
            shape_is(head->output, 100, 64);
            assert_non_null(head->to_target);
            for (int k = 1; k < 100; k++) assert_true(head->to_target[k] > head->to_target[k - 1]);
            assert_in_range(head->to_target[99], 99, 319);
            memcpy(first[i], head->to_target, sizeof first[i]);
            if (i == 0) { /* ids as in the file */
                int64_t id = 0;
                memcpy(&id, ae_gguf_tensor_find(head->gguf, "d2t")->data + 99 * (i32 ? 4 : 8), i32 ? 4 : 8);
                assert_int_equal(id, head->to_target[99]);
            }
            assert_true(head->n_params > 0);
            fits(head);
            ae_dhead_free(head);
        }
    assert_memory_equal(first[0], first[1], sizeof first[0]);
    assert_memory_equal(first[0], first[2], sizeof first[0]);
}

static void test_norms_before_fc(void **state)
{
    (void)state;
    static const char *const schemas[] = {"new", "old", "double"};
    for (int i = 0; i < 3; i++) {
        ae_dhead *head = make((mkhead_options){.kind = "eagle3.1", .schema = schemas[i]});
        assert_int_equal(head->hparams.fc_norm, AE_FC_NORM_EACH);
        assert_true(head->hparams.feedback_normed);
        assert_string_equal(ae_dhead_kind_name(head), "EAGLE-3.1");
        for (int k = 0; k < 3; k++) shape_is(head->fc_norm[k], 0, 64);
        name_is(head->fc_norm[2], "fc_norm.2.weight");
        assert_null(head->fc_norm[3]);
        assert_null(head->to_target);
        assert_int_equal(head->hparams.n_draft, 320);
        assert_int_equal(head->hparams.taps[0], 1); /* of four layers: 1, 2, 4 */
        assert_int_equal(head->hparams.taps[2], 4);
        fits(head);
        ae_dhead_free(head);
        head = make((mkhead_options){.kind = "eagle3.1", .schema = schemas[i], .whole_fc_norm = true, .n_taps = 2,
                                     .taps = {4, 4}});
        assert_int_equal(head->hparams.fc_norm, AE_FC_NORM_EACH);
        shape_is(head->fc_norm[0], 0, 128);
        assert_null(head->fc_norm[1]);
        ae_dhead_free(head);
        head = make((mkhead_options){.schema = schemas[i], .norm_before_fc = true});
        assert_int_equal(head->hparams.fc_norm, AE_FC_NORM_JOINT);
        assert_false(head->hparams.feedback_normed);
        name_is(head->fc_norm[0], i ? "fc_norm.weight" : "enc.output_norm.weight");
        shape_is(head->fc_norm[0], 0, 192);
        assert_string_equal(ae_dhead_kind_name(head), "EAGLE-3");
        ae_dhead_free(head);
    }
}

static void test_variants(void **state)
{
    (void)state;
    ae_dhead *head = make((mkhead_options){.n_embd = 32, .n_ff = 96, .n_heads = 3, .n_kv_heads = 3, .head_dim = 16,
                                          .biases = true, .rope_freqs = true, .qk_norm = true, .window = 5, .n_sinks = 2});
    const ae_dhead_hparams *h = &head->hparams;
    assert_int_equal(h->layer.n_embd, 32);
    assert_int_equal(h->n_target_embd, 64);
    assert_non_null(head->layers->q_norm);
    assert_int_equal(h->window, 5);
    assert_int_equal(h->n_sinks, 2);
    shape_is(head->embedding, 320, 32); /* narrower than the target, with an embedding of its own */
    shape_is(head->output, 320, 32);
    shape_is(head->fc, 32, 192);
    shape_is(head->fc_bias, 0, 32);
    shape_is(head->layers->bq, 0, 48);
    shape_is(head->layers->bv, 0, 48);
    shape_is(head->layers->bo, 0, 32);
    shape_is(head->layers->q_norm, 0, 16);
    assert_float_equal(head->hparams.layer.ropes[0].divisors[0], 1, 0);
    assert_float_equal(head->hparams.layer.ropes[0].divisors[7], 8, 0);
    fits(head);
    ae_dhead_free(head);
    head = make((mkhead_options){.own_embedding = true, .no_output = true});
    shape_is(head->embedding, 320, 64);
    assert_null(head->output);
    assert_int_equal(head->hparams.n_draft, 320);
    ae_dhead_free(head);
    head = make((mkhead_options){.no_output = true, .n_draft = 9}); /* rows of the target's output */
    assert_null(head->output);
    assert_int_equal(head->hparams.n_draft, 9);
    fits(head);
    ae_dhead_free(head);
}

static void test_eagle_and_medusa(void **state)
{
    (void)state;
    static const char *const schemas[] = {"new", "old", "double"};
    for (int i = 0; i < 3; i++) {
        ae_dhead *head = make((mkhead_options){.kind = "eagle", .schema = schemas[i], .n_draft = 50, .biases = true});
        assert_int_equal(head->hparams.kind, AE_DHEAD_EAGLE);
        assert_string_equal(ae_dhead_kind_name(head), "EAGLE-1/2");
        assert_int_equal(head->hparams.n_taps, 1);
        assert_true(head->hparams.taps[0] == AERIE_TAP_NORMED);
        assert_int_equal(head->hparams.n_target_embd, 64);
        assert_int_equal(head->hparams.n_draft, 50);
        shape_is(head->fc, 64, 128);
        shape_is(head->layers->wq, 128, 64);
        assert_null(head->output);
        assert_null(head->out_norm);
        assert_null(head->embd_norm);
        assert_null(head->hidden_norm);
        fits(head);
        ae_dhead_free(head);
        head = make((mkhead_options){.kind = "eagle", .schema = schemas[i], .own_embedding = true, .own_output = true});
        shape_is(head->embedding, 320, 64);
        shape_is(head->output, 320, 64);
        fits(head);
        ae_dhead_free(head);
        head = make((mkhead_options){.kind = "medusa", .schema = schemas[i], .n_draft = 50, .n_medusa = 3, .n_blocks = 2,
                                     .biases = true});
        assert_int_equal(head->hparams.kind, AE_DHEAD_MEDUSA);
        assert_string_equal(ae_dhead_kind_name(head), "Medusa");
        assert_int_equal(head->hparams.n_medusa, 3);
        assert_int_equal(head->hparams.n_blocks, 2);
        assert_int_equal(head->hparams.layer.n_embd, 64);
        assert_true(head->hparams.taps[0] == AERIE_TAP_NORMED);
        shape_is(head->medusa_w[2][1], 64, 64);
        shape_is(head->medusa_b[2][1], 0, 64);
        shape_is(head->medusa_out[2], 50, 64);
        assert_null(head->medusa_w[3][0]);
        fits(head);
        ae_dhead_free(head);
    }
}

static void test_types_that_rows_do_not_suit(void **state)
{
    (void)state;
    static const char *const types[] = {"f16", "q8_0", "q4_K", "q3_K", "q2_K", "q4_0"};
    static const char *const kinds[] = {"eagle", "eagle3", "eagle3.1", "medusa"};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++) ae_dhead_free(make((mkhead_options){.kind = kinds[k], .type = types[i], .n_draft = 33}));
}

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* members that an edit or a case leaves out are 0 */

/* ---- Edited files ---------------------------------------------------------------------------------- */

typedef enum edit_kind { NONE, DROP, RENAME, U32, F32, BOOL, TEXT, LIST, SHAPE, NEW, MAP, MAP32 } edit_kind;

/* An edit of the key or tensor `name`: a value of that type, a list of i32, another shape or a new tensor [b, a] (f32), a d2t
 * with other values. */
typedef struct edit {
    edit_kind kind;
    const char *name;
    int64_t a, b;
    double f;
    const char *text;
    const int64_t *list; /* [a] */
} edit;

#define N_EDITS 4

static const edit *edit_of(const edit *edits, ae_gguf_string name, size_t *i)
{
    for (*i = 0; *i < N_EDITS; ++*i)
        if (edits[*i].kind && strlen(edits[*i].name) == name.n && !memcmp(edits[*i].name, name.data, name.n)) return &edits[*i];
    return NULL;
}

static bool is_key(edit_kind kind)
{
    return kind >= U32 && kind <= LIST;
}

static void put_key(ae_buf *out, const edit *e)
{
    const uint32_t u = (uint32_t)e->a;
    const float f = (float)e->f;
    int32_t list[16];
    switch (e->kind) {
    case U32: gguf_make_kv_u32(out, e->name, u); break;
    case F32: gguf_make_kv(out, e->name, AE_GGUF_F32, &f, 4); break;
    case BOOL: gguf_make_kv(out, e->name, AE_GGUF_BOOL, &u, 1); break;
    case TEXT: gguf_make_kv_string(out, e->name, e->text); break;
    default:
        for (int64_t i = 0; i < e->a; i++) list[i] = (int32_t)e->list[i];
        gguf_make_kv_array(out, e->name, AE_GGUF_I32, (uint64_t)e->a, list, (size_t)e->a * 4);
    }
}

static uint64_t copy_keys(ae_buf *out, const ae_gguf *gguf, const edit *edits)
{
    uint64_t n = 0;
    size_t at;
    for (size_t i = 0; i < ae_gguf_n_kv(gguf); i++) {
        const ae_gguf_kv *kv = ae_gguf_kv_at(gguf, i);
        const edit *e = edit_of(edits, kv->key, &at);
        char name[96] = {0};
        if (e && e->kind != RENAME) continue;
        if (e) snprintf(name, sizeof name, "%s", e->text);
        else memcpy(name, kv->key.data, kv->key.n);
        if (kv->type == AE_GGUF_ARRAY) gguf_make_kv_array(out, name, kv->element_type, kv->n, kv->data, kv->bytes);
        else gguf_make_kv(out, name, kv->type, kv->data, kv->bytes);
        n++;
    }
    for (size_t i = 0; i < N_EDITS; i++)
        if (is_key(edits[i].kind)) put_key(out, &edits[i]), n++;
    return n;
}

/* Adds the tensor's description to out and its bytes to data. */
static void put_tensor(ae_buf *out, ae_buf *data, const char *name, uint64_t a, uint64_t b, uint64_t c, uint32_t type,
                       const void *bytes, size_t n)
{
    const uint64_t ne[3] = {a, b ? b : 1, c};
    const size_t all = (size_t)(ne[0] * ne[1] * ne[2]) * ae_type_block_bytes(type) / ae_type_block_elements(type);
    gguf_make_pad(data, 32);
    gguf_make_tensor(out, name, c > 1 ? 3 : b ? 2 : 1, ne, type, data->n);
    ae_buf_add(data, bytes, n < all ? n : all);
    gguf_make_zeros(data, n < all ? all - n : 0);
}

static void put_edited(ae_buf *out, ae_buf *data, const edit *e)
{
    int32_t narrow[16];
    if (e->kind == NEW || e->kind == SHAPE)
        put_tensor(out, data, e->name, (uint64_t)e->a, (uint64_t)e->b, 1, AE_TYPE_F32, "", 0);
    if (e->kind == MAP) put_tensor(out, data, e->name, (uint64_t)e->a, 0, 1, AE_TYPE_I64, e->list, (size_t)e->a * 8);
    for (int64_t i = 0; e->kind == MAP32 && i < e->a; i++) narrow[i] = (int32_t)e->list[i];
    if (e->kind == MAP32) put_tensor(out, data, e->name, (uint64_t)e->a, 0, 1, AE_TYPE_I32, narrow, (size_t)e->a * 4);
}

static uint64_t copy_tensors(ae_buf *out, ae_buf *data, const ae_gguf *gguf, const edit *edits)
{
    uint64_t n = 0;
    size_t at;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        const edit *e = edit_of(edits, t->name, &at);
        char name[96] = {0};
        if (e && e->kind != RENAME) continue;
        if (e) snprintf(name, sizeof name, "%s", e->text);
        else memcpy(name, t->name.data, t->name.n);
        put_tensor(out, data, name, (uint64_t)t->ne[0], t->n_dims > 1 ? (uint64_t)t->ne[1] : 0, (uint64_t)t->ne[2], t->type,
                   t->data, t->bytes);
        n++;
    }
    for (size_t i = 0; i < N_EDITS; i++)
        if (edits[i].kind > LIST) put_edited(out, data, &edits[i]), n++;
    return n;
}

/* The file at head_path with the edits, as bytes. */
static ae_buf edited(const edit *edits)
{
    ae_gguf *gguf;
    aerie_error error = {0};
    ae_buf out = {0}, data = {0};
    if (ae_gguf_open(&gguf, head_path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    gguf_make_header(&out, 3, 0, 0);
    const uint64_t n_kv = copy_keys(&out, gguf, edits), n_tensors = copy_tensors(&out, &data, gguf, edits);
    memcpy(out.data + 8, &n_tensors, 8);
    memcpy(out.data + 16, &n_kv, 8);
    gguf_make_pad(&out, 32);
    ae_buf_add(&out, data.data, data.n);
    ae_buf_free(&data);
    ae_gguf_close(gguf);
    return out;
}

static aerie_status bind_bytes(ae_dhead **head, const ae_buf *bytes, aerie_error *error)
{
    ae_gguf *gguf;
    *head = NULL;
    if (ae_gguf_open_memory(&gguf, bytes->data, bytes->n, "h.gguf", error) != AERIE_OK) fail_msg("%s", error->text);
    return ae_dhead_bind(head, gguf, error);
}

static ae_dhead *loads(const edit *edits, ae_buf *bytes)
{
    ae_dhead *head;
    aerie_error error = {0};
    *bytes = edited(edits);
    if (bind_bytes(&head, bytes, &error) != AERIE_OK) fail_msg("%s", error.text);
    return head;
}

static void is_refused(const edit *edits, aerie_status status, const char *sentence)
{
    ae_dhead *head;
    aerie_error error = {0};
    ae_buf bytes = edited(edits);
    const aerie_status found = bind_bytes(&head, &bytes, &error);
    if (found == AERIE_OK) fail_msg("it was accepted, without \"%s\"", sentence);
    assert_null(head);
    if (!strstr(error.text, sentence) || strncmp(error.text, "h.gguf: ", 8))
        fail_msg("it says \"%s\", not \"%s\"", error.text, sentence);
    if (found != status) fail_msg("\"%s\": status %d", error.text, (int)found);
    ae_buf_free(&bytes);
}

#define L(...) (const int64_t[]){__VA_ARGS__}

static void test_names_that_differ(void **state)
{
    (void)state;
    ae_buf bytes;
    ae_dhead_free(make((mkhead_options){.n_draft = 40}));
    /* every alias, every default */
    ae_dhead *head = loads((edit[N_EDITS]){{RENAME, "eagle3.target_layers", .text = "eagle3.target_layer_ids"},
                                          {RENAME, "d2t", .text = "d2t.weight"}, {DROP, "eagle3.target_hidden_size"},
                                          {DROP, "eagle3.block_count"}}, &bytes);
    assert_int_equal(head->hparams.n_target_embd, 64);
    assert_int_equal(head->hparams.n_taps, 3);
    assert_non_null(head->to_target);
    ae_dhead_free(head), ae_buf_free(&bytes);
    head = loads((edit[N_EDITS]){{DROP, "eagle3.target_layers"}, {DROP, "eagle3.vocab_size"}, {DROP, "eagle3.feedback"},
                                 {DROP, "eagle3.norm_before_residual"}}, &bytes);
    assert_int_equal(head->hparams.taps[0], 2); /* 2, L/2, L-3 of 4 */
    assert_int_equal(head->hparams.taps[1], 2);
    assert_int_equal(head->hparams.taps[2], 1);
    assert_int_equal(head->hparams.n_vocab, 0); /* the file does not say it */
    assert_false(head->hparams.norm_before_residual);
    fits(head);
    ae_dhead_free(head), ae_buf_free(&bytes);
    head = loads((edit[N_EDITS]){{DROP, "eagle3.feedback"}, {BOOL, "eagle3.norm_output", .a = 1}}, &bytes);
    assert_true(head->hparams.feedback_normed);
    ae_dhead_free(head), ae_buf_free(&bytes);
    /* the single key wins over the doubled */
    head = loads((edit[N_EDITS]){{BOOL, "eagle3.eagle3.norm_before_residual", .a = 1},
                                 {U32, "eagle3.eagle3.attention.window", .a = 9}}, &bytes);
    assert_false(head->hparams.norm_before_residual);
    assert_int_equal(head->hparams.window, 9);
    ae_dhead_free(head), ae_buf_free(&bytes);
    /* encoder norm without a key */
    head = loads((edit[N_EDITS]){{NEW, "enc.output_norm.weight", .a = 192}}, &bytes);
    assert_int_equal(head->hparams.fc_norm, AE_FC_NORM_JOINT);
    ae_dhead_free(head), ae_buf_free(&bytes);
    ae_dhead_free(make((mkhead_options){.kind = "eagle"}));
    head = loads((edit[N_EDITS]){{DROP, "eagle.target_hidden_size"}}, &bytes);
    assert_int_equal(head->hparams.n_target_embd, 64);
    ae_dhead_free(head), ae_buf_free(&bytes);
    ae_dhead_free(make((mkhead_options){.kind = "medusa"}));
    head = loads((edit[N_EDITS]){{DROP, "medusa.target_hidden_size"}, {DROP, "medusa.embedding_length"},
                                 {DROP, "medusa.block_count"}, {DROP, "medusa.vocab_size"}}, &bytes);
    assert_int_equal(head->hparams.n_target_embd, 64);
    assert_int_equal(head->hparams.n_blocks, 1);
    assert_int_equal(head->hparams.n_vocab, 320);
    ae_dhead_free(head), ae_buf_free(&bytes);
}

static void map_is(const edit *edits, const int32_t *ids, size_t n)
{
    ae_buf bytes;
    ae_dhead *head = loads(edits, &bytes);
    assert_int_equal(head->hparams.n_draft, n);
    for (size_t i = 0; i < n; i++)
        if (head->to_target[i] != ids[i]) fail_msg("entry %zu is %d, not %d", i, head->to_target[i], ids[i]);
    ae_dhead_free(head), ae_buf_free(&bytes);
}

static void test_draft_maps(void **state)
{
    (void)state;
    ae_dhead_free(make((mkhead_options){.n_draft = 4}));
#define MAPS(kind, key, ...) (edit[N_EDITS]){{kind, "d2t", .a = 4, .list = L(__VA_ARGS__)}, key}
    const edit drop = {DROP, "eagle3.draft_map"}, offset = {TEXT, "eagle3.draft_map", .text = "offset"};
    for (edit_kind kind = MAP; kind <= MAP32; kind++) {
        map_is(MAPS(kind, drop, 0, 0, 5, 5), (int32_t[]){0, 1, 7, 8}, 4);         /* values repeat: offsets */
        map_is(MAPS(kind, drop, 0, 4, 7, 9), (int32_t[]){0, 4, 7, 9}, 4);         /* distinct: ids */
        map_is(MAPS(kind, drop, 300, 4, 7, 0), (int32_t[]){300, 4, 7, 0}, 4);     /* in any order */
        map_is(MAPS(kind, drop, 5, 3, -2, -1), (int32_t[]){5, 4, 0, 2}, 4);       /* distinct, but no ids: offsets */
        map_is(MAPS(kind, offset, 0, 4, 7, 9), (int32_t[]){0, 5, 9, 12}, 4);      /* the key decides */
        map_is(MAPS(kind, ((edit){NONE}), 3, 2, 1, 0), (int32_t[]){3, 2, 1, 0}, 4);
    }
}

/* ---- What is refused -------------------------------------------------------------------------------- */

typedef struct bad {
    edit edits[N_EDITS];
    const char *sentence;
    aerie_status status; /* 0: FORMAT */
} bad;

static void all_refused(mkhead_options o, const bad *cases, size_t n)
{
    ae_dhead_free(make(o));
    for (size_t i = 0; i < n; i++)
        is_refused(cases[i].edits, cases[i].status ? cases[i].status : AERIE_ERROR_FORMAT, cases[i].sentence);
}

#define ALL_REFUSED(o, cases) all_refused(o, cases, sizeof cases / sizeof cases[0])

static void test_bad_keys(void **state)
{
    (void)state;
    const bad cases[] = {
        {{{TEXT, "general.architecture", .text = "llama"}}, "architecture \"llama\" is a model of its own, not a drafter head",
         AERIE_ERROR_UNSUPPORTED},
        {{{TEXT, "general.architecture", .text = "domino"}}, "architecture \"domino\" is unknown, not a drafter head",
         AERIE_ERROR_UNSUPPORTED},
        {{{DROP, "general.architecture"}}, "general.architecture"},
        {{{U32, "eagle3.block_count", .a = 2}}, "blk.1.attn_norm.weight"},
        {{{U32, "eagle3.block_count", .a = 9}}, "eagle3.block_count is 9; aerie runs heads of this kind with 8 at most",
         AERIE_ERROR_UNSUPPORTED},
        {{{U32, "eagle3.block_count", .a = 0}}, "eagle3.block_count is 0; 1 to 512 are possible"},
        {{{DROP, "eagle3.embedding_length"}}, "key \"eagle3.embedding_length\" is missing"},
        {{{U32, "eagle3.embedding_length", .a = 4294967295}},
         "eagle3.embedding_length is 4294967295; 1 to 131072 are possible"},
        {{{DROP, "eagle3.attention.head_count"}}, "key \"eagle3.attention.head_count\" is missing"},
        {{{U32, "eagle3.attention.head_count", .a = 0}}, "eagle3.attention.head_count is 0"},
        {{{U32, "eagle3.attention.head_count_kv", .a = 3}}, "4 attention heads cannot share 3 KV heads evenly"},
        {{{U32, "eagle3.attention.value_length", .a = 16}}, "keys of 32 and values of 16", AERIE_ERROR_UNSUPPORTED},
        {{{F32, "eagle3.attention.layer_norm_rms_epsilon", .f = NAN}}, "the norm's epsilon is nan"},
        {{{F32, "eagle3.attention.layer_norm_rms_epsilon", .f = INFINITY}}, "the norm's epsilon is inf"},
        {{{F32, "eagle3.attention.layer_norm_rms_epsilon", .f = 0}}, "the norm's epsilon is 0"},
        {{{F32, "eagle3.rope.freq_base", .f = NAN}}, "rope base nan"},
        {{{F32, "eagle3.rope.freq_base", .f = INFINITY}}, "rope base inf"},
        {{{F32, "eagle3.rope.scaling.factor", .f = -1}}, "factor -1 is out of range"},
        {{{TEXT, "eagle3.rope.scaling.type", .text = "longrope"}}, "tensor rope_factors_short.weight is missing",
         AERIE_ERROR_FORMAT},
        {{{U32, "eagle3.rope.dimension_count", .a = 64}}, "eagle3.rope.dimension_count is 64; 2 to 32 are possible"},
        {{{U32, "eagle3.rope.dimension_count", .a = 7}}, "eagle3.rope.dimension_count is 7, an odd number"},
        {{{U32, "eagle3.target_layer_count", .a = 0}}, "eagle3.target_layer_count is 0"},
        {{{U32, "eagle3.target_hidden_size", .a = 0}}, "eagle3.target_hidden_size is 0"},
        {{{U32, "eagle3.target_hidden_size", .a = 65}}, "tensor fc.weight has shape [192, 64, 1, 1], expected [195, 64]"},
        {{{DROP, "eagle3.target_layers"}, {DROP, "eagle3.target_layer_count"}}, "neither eagle3.target_layers"},
        {{{DROP, "eagle3.target_layers"}, {U32, "eagle3.target_layer_count", .a = 2}},
         "a target of 2 layers has no usual ones"},
        {{{U32, "eagle3.target_layers", .a = 2}}, "eagle3.target_layers is a single u32; a list of layers is needed"},
        {{{LIST, "eagle3.target_layers", .a = 0, .list = L(0)}}, "eagle3.target_layers lists 0 layers; 1 to 8 are possible"},
        {{{LIST, "eagle3.target_layers", .a = 9, .list = L(0, 1, 2, 3, 4, 0, 1, 2, 3)}}, "lists 9 layers"},
        {{{LIST, "eagle3.target_layers", .a = 3, .list = L(1, -1, 2)}},
         "eagle3.target_layers[1] is layer -1, but the target has only 0 to 4"},
        {{{LIST, "eagle3.target_layers", .a = 3, .list = L(1, 2, 5)}},
         "eagle3.target_layers[2] is layer 5, but the target has only 0 to 4"},
        {{{LIST, "eagle3.target_layers", .a = 2, .list = L(1, 2)}},
         "tensor fc.weight has shape [192, 64, 1, 1], expected [128, 64]"},
        {{{LIST, "eagle3.target_layers", .a = 5, .list = L(1, 2, 3, 4, 0)}, {DROP, "eagle3.target_hidden_size"}},
         "rows of fc.weight have 192 elements; 0 for the token's embedding and 5 equal parts"},
        {{{TEXT, "eagle3.feedback", .text = "before"}}, "eagle3.feedback is \"before\"; pre and post are known"},
        {{{BOOL, "eagle3.norm_output", .a = 1}}, "eagle3.feedback is \"pre\", but norm_output is true"},
        {{{U32, "eagle3.norm_before_residual", .a = 1}}, "\"eagle3.norm_before_residual\": the value is of type u32; a bool "
         "is needed"},
        {{{U32, "eagle3.eagle3.attention.window", .a = 4294967295}}, "eagle3.eagle3.attention.window is 4294967295"},
        {{{U32, "eagle3.eagle3.attention.window", .a = 2147483647}, {U32, "eagle3.eagle3.attention.sinks", .a = 2147483647}},
         "attention.window (2147483647) and attention.sinks (2147483647) are together more than the 2147483647 positions"},
        {{{U32, "eagle3.vocab_size", .a = 0}}, "eagle3.vocab_size is 0"},
        {{{U32, "eagle3.vocab_size", .a = 30}}, "output.weight has 40 rows, but the target only 30 tokens"},
        {{{TEXT, "eagle3.draft_map", .text = "relative"}}, "eagle3.draft_map is \"relative\"; absolute and offset are known"},
    };
    ALL_REFUSED(((mkhead_options){.n_draft = 40}), cases);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const char *const needed[] = {"fc.weight", "blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight",
                                         "blk.0.attn_q.weight",
                                         "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
                                         "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
                                         "blk.0.ffn_down.weight", "output_norm.weight"};
    const bad cases[] = {
        {{{SHAPE, "fc.weight", .a = 192, .b = 63}}, "tensor fc.weight has shape [192, 63, 1, 1], expected [192, 64]"},
        {{{SHAPE, "blk.0.attn_q.weight", .a = 64, .b = 128}}, "tensor blk.0.attn_q.weight has shape [64, 128, 1, 1], expected "
         "[128, 128]"},
        {{{SHAPE, "blk.0.attn_norm_2.weight", .a = 63}}, "tensor blk.0.attn_norm_2.weight has shape [63, 1, 1, 1], expected "
         "[64, 1]"},
        {{{NEW, "fc.bias", .a = 63}}, "tensor fc.bias has shape [63, 1, 1, 1], expected [64, 1]"},
        {{{NEW, "blk.0.attn_q.bias", .a = 64}}, "tensor blk.0.attn_q.bias has shape [64, 1, 1, 1], expected [128, 1]"},
        {{{NEW, "blk.0.attn_q_norm.weight", .a = 32}}, "blk.0.attn_k_norm.weight is missing; norms of queries and keys come "
         "together"},
        {{{NEW, "blk.0.attn_k_norm.weight", .a = 32}}, "blk.0.attn_q_norm.weight is missing"},
        {{{NEW, "token_embd.weight", .a = 64, .b = 300}}, "tensor token_embd.weight has shape [64, 300, 1, 1], expected [64, "
         "320]"},
        {{{NEW, "rope_freqs.weight", .a = 15}}, "tensor rope_freqs.weight has shape [15, 1, 1, 1], expected [16, 1]"},
        {{{NEW, "rope_freqs.weight", .a = 16}}, "rope_freqs.weight[0] is 0; a number other than 0 is expected"},
        {{{DROP, "d2t"}}, "output.weight has 40 rows for a vocabulary of 320 tokens, and no d2t says which they are"},
        {{{SHAPE, "d2t", .a = 40}}, "tensor d2t has type F32; token ids are I32 or I64", AERIE_ERROR_UNSUPPORTED},
        {{{MAP, "d2t", .a = 3, .list = L(1, 2, 3)}}, "tensor d2t has shape [3, 1, 1, 1], expected [40]"},
        {{{NEW, "fc_norm.weight", .a = 192}}, "neither fc_norm (by tap) nor norm_before_fc (all taps together) is true"},
        {{{NEW, "fc_norm.weight", .a = 192}, {BOOL, "eagle3.fc_norm", .a = 1}, {BOOL, "eagle3.norm_before_fc", .a = 1}},
         "are both true"},
        {{{NEW, "fc_norm.weight", .a = 192}, {NEW, "fc_norm.0.weight", .a = 64}},
         "norms for each tap (fc_norm.0.weight) and one for all"},
        {{{NEW, "fc_norm.0.weight", .a = 64}, {BOOL, "eagle3.fc_norm", .a = 0}},
         "fc_norm is false, but there is a tensor fc_norm.0.weight"},
        {{{NEW, "fc_norm.0.weight", .a = 64}, {BOOL, "eagle3.norm_before_fc", .a = 1}}, "but the norms are of each tap"},
        {{{NEW, "enc.output_norm.weight", .a = 192}, {BOOL, "eagle3.norm_before_fc", .a = 0}},
         "norm_before_fc is false, but there"},
        {{{NEW, "enc.output_norm.weight", .a = 192}, {BOOL, "eagle3.fc_norm", .a = 1}},
         "fc_norm is true, but the norm is of all taps"},
        {{{NEW, "enc.output_norm.weight", .a = 192}, {NEW, "fc_norm.weight", .a = 192}}, "are both there"},
        {{{NEW, "fc_norm.weight", .a = 64}, {BOOL, "eagle3.fc_norm", .a = 1}},
         "tensor fc_norm.weight has shape [64, 1, 1, 1], expected [192"},
        {{{BOOL, "eagle3.fc_norm", .a = 1}}, "tensor fc_norm.0.weight is missing"},
        {{{BOOL, "eagle3.norm_before_fc", .a = 1}}, "tensor enc.output_norm.weight is missing"},
        {{{NEW, "fc_norm.0.weight", .a = 64}, {NEW, "fc_norm.1.weight", .a = 64}}, "tensor fc_norm.2.weight is missing"},
        {{{NEW, "fc_norm.0.weight", .a = 64}, {NEW, "fc_norm.1.weight", .a = 64}, {NEW, "fc_norm.2.weight", .a = 64},
          {NEW, "fc_norm.3.weight", .a = 64}}, "there is a tensor fc_norm.3.weight, but only 3 layers of the target are "
              "tapped"},
        {{{DROP, "output.weight"}, {DROP, "d2t"}, {DROP, "eagle3.vocab_size"}},
         "the size of the draft vocabulary is unknown"},
    };
    ALL_REFUSED(((mkhead_options){.n_draft = 40}), cases);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "tensor %s is missing; architecture eagle3 needs it", needed[i]);
        is_refused((edit[N_EDITS]){{DROP, needed[i]}}, AERIE_ERROR_FORMAT, sentence);
    }
    const bad narrow[] = {
        {{{DROP, "output.weight"}}, "tensor output.weight is missing; the target's, 64 wide, does not suit a head that is 32 "
         "wide"},
        {{{DROP, "token_embd.weight"}}, "tensor token_embd.weight is missing; the target's, 64 wide, does not suit"},
    };
    ALL_REFUSED(((mkhead_options){.n_embd = 32}), narrow);
}

static void test_bad_maps(void **state)
{
    (void)state;
#define MAP4(...) {MAP, "d2t", .a = 4, .list = L(__VA_ARGS__)}
    const bad cases[] = {
        {{MAP4(0, 1, 2, 320)}, "d2t[3] is 320; the target's tokens are 0 to 319"},
        {{MAP4(0, 1, 2, -1)}, "d2t[3] is -1; the target's tokens are 0 to 319"},
        {{MAP4(0, 7, 2, 7)}, "d2t[1] and d2t[3] both stand for token 7"},
        {{MAP4(0, 1, 2, INT64_MAX)}, "d2t[3] is 9223372036854775807; the target's"},
        {{MAP4(0, 1, 2, 4294967299)}, "d2t[3] is 4294967299; the target's"},
        {{MAP4(0, 0, 0, 317), {TEXT, "eagle3.draft_map", .text = "offset"}},
         "d2t[3] is 317; added to its place it is not a token:"},
        {{MAP4(0, 0, 0, INT64_MAX), {TEXT, "eagle3.draft_map", .text = "offset"}}, "d2t[3] is 9223372036854775807; added"},
        {{MAP4(0, 0, 0, -4), {DROP, "eagle3.draft_map"}}, "d2t[3] is -4; added to its place"},
        {{MAP4(5, 5, 3, 2), {DROP, "eagle3.draft_map"}}, "d2t[0] and d2t[2] both stand for token 5"},
        {{MAP4(0, 1, 2, 400), {DROP, "eagle3.draft_map"}}, "d2t[3] is 400, not one of the target's tokens (0 to 319), and the "
         "values are"},
        {{MAP4(0, 1, 2, INT64_MIN), {DROP, "eagle3.vocab_size"}}, "d2t[3] is -9223372036854775808"},
    };
    ALL_REFUSED(((mkhead_options){.n_draft = 4}), cases);
}

static void test_bad_eagle_and_medusa(void **state)
{
    (void)state;
    const bad eagle[] = {
        {{{NEW, "output_norm.weight", .a = 64}}, "tensor output_norm.weight is not part of an EAGLE-1/2 head"},
        {{{NEW, "blk.0.attn_norm.weight", .a = 64}}, "tensor blk.0.attn_norm.weight is not part of an EAGLE-1/2 head"},
        {{{BOOL, "eagle.norm_before_residual", .a = 1}}, "eagle.norm_before_residual is true"},
        {{{TEXT, "eagle.feedback", .text = "post"}}, "a normed feedback is asked for"},
        {{{SHAPE, "fc.weight", .a = 192, .b = 64}}, "tensor fc.weight has shape [192, 64, 1, 1], expected [128, 64]"},
        {{{SHAPE, "fc.weight", .a = 96, .b = 64}, {DROP, "eagle.target_hidden_size"}},
         "takes its own output for a feature, but embedding_length is 64 and target_hidden_size 32"},
        {{{SHAPE, "fc.weight", .a = 64, .b = 64}, {DROP, "eagle.target_hidden_size"}},
         "rows of fc.weight have 64 elements; 64 for the"},
        {{{DROP, "fc.weight"}, {DROP, "eagle.target_hidden_size"}}, "tensor fc.weight is missing; architecture eagle needs it"},
        {{{DROP, "eagle.vocab_size"}}, "the size of the draft vocabulary is unknown: one of eagle.vocab_size"},
    };
    const bad medusa[] = {
        {{{DROP, "medusa.head_count"}}, "key \"medusa.head_count\" is missing"},
        {{{U32, "medusa.head_count", .a = 17}}, "medusa.head_count is 17; 1 to 16 are possible"},
        {{{U32, "medusa.head_count", .a = 3}}, "tensor medusa.2.0.weight is missing"},
        {{{U32, "medusa.block_count", .a = 5}}, "medusa.block_count is 5; 1 to 4 are possible"},
        {{{U32, "medusa.block_count", .a = 1}}, "there is a tensor medusa.0.1.weight, but medusa.block_count is 1"},
        {{{U32, "medusa.target_hidden_size", .a = 32}}, "a Medusa head is as wide as its target"},
        {{{DROP, "medusa.1.output.weight"}}, "tensor medusa.1.output.weight is missing"},
        {{{SHAPE, "medusa.1.output.weight", .a = 64, .b = 21}},
         "tensor medusa.1.output.weight has shape [64, 21, 1, 1], expected [64, 20]"},
        {{{SHAPE, "medusa.1.1.weight", .a = 32, .b = 64}}, "tensor medusa.1.1.weight has shape [32, 64, 1, 1], expected [64, "
         "64]"},
        {{{DROP, "medusa.0.0.weight"}, {DROP, "medusa.embedding_length"}, {DROP, "medusa.target_hidden_size"}},
         "tensor medusa.0.0.weight is missing"},
    };
    ALL_REFUSED(((mkhead_options){.kind = "eagle"}), eagle);
    ALL_REFUSED(((mkhead_options){.kind = "medusa", .n_medusa = 2, .n_blocks = 2, .n_draft = 20}), medusa);
}

/* ---- With a target ------------------------------------------------------------------------------------ */

static void does_not_fit(const ae_dhead *head, uint32_t n_layers, uint32_t n_embd, uint32_t n_vocab, const char *sentence)
{
    ae_model *target;
    aerie_error error = {0};
    write_target(n_layers, n_embd, n_vocab);
    if (ae_model_load(&target, target_path, NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(ae_dhead_fits(head, target, &error), AERIE_ERROR_FORMAT);
    const char *path = ae_gguf_path(head->gguf);
    if (!strstr(error.text, sentence) || !strstr(error.text, target_path) || strncmp(error.text, path, strlen(path)))
        fail_msg("it says \"%s\", not \"%s\"", error.text, sentence);
    ae_model_free(target);
    write_target(4, 64, 320);
}

static void test_heads_of_other_targets(void **state)
{
    (void)state;
    ae_buf bytes;
    ae_dhead *head = make((mkhead_options){.schema = "old", .n_draft = 40});
    does_not_fit(head, 4, 96, 320, "with an embedding length of 64; ");
    does_not_fit(head, 4, 96, 320, " has 96");
    does_not_fit(head, 4, 64, 321, "with a vocabulary of 320; ");
    does_not_fit(head, 3, 64, 320, "the head reads layer 4 of its target; ");
    ae_dhead_free(head);
    head = make((mkhead_options){.n_draft = 40});
    does_not_fit(head, 5, 64, 320, "with a layer count of 4; ");
    ae_dhead_free(head);
    head = loads((edit[N_EDITS]){{DROP, "eagle3.vocab_size"}}, &bytes);
    does_not_fit(head, 4, 64, 260, "of the output stands for token ");
    ae_dhead_free(head), ae_buf_free(&bytes);
}

static void test_bad_blocks(void **state)
{
    (void)state;
    static const int64_t five[] = {0, 1, 2, 3, 4};
    static const bad cases[] = {
        {{{DROP, "dflash.target_layers"}}, "neither dflash.target_layers"},
        {{{LIST, "dflash.target_layers", .a = 5, .list = five}}, "5 equal parts"},
        {{{DROP, "tokenizer.ggml.mask_token_id"}}, "nor dflash.mask_token_id names"},
        {{{U32, "tokenizer.ggml.mask_token_id", .a = 320}}, "the vocabulary has 320 tokens"},
        {{{U32, "dflash.block_size", .a = 33}}, "block_size"}, {{{U32, "dflash.block_size", .a = 0}}, "block_size"},
        {{{U32, "dflash.block_count", .a = 0}}, "block_count"},
        {{{U32, "dflash.block_count", .a = 3}}, "blk.2.attn_norm"},
        {{{U32, "dflash.hyper_connection.count", .a = 4}}, "DeepSeek-V4", AERIE_ERROR_UNSUPPORTED},
        {{{NEW, "layer_fusion", .a = 4}}, "DFly", AERIE_ERROR_UNSUPPORTED},
        {{{TEXT, "dflash.hidden_activation", .text = "gelu"}}, "another activation", AERIE_ERROR_UNSUPPORTED},
        {{{F32, "dflash.attention.value_scale", .f = 2}}, "value_scale", AERIE_ERROR_UNSUPPORTED},
        {{{SHAPE, "fc.weight", .a = 64, .b = 191}}, "equal parts"}, {{{DROP, "fc.weight"}}, "fc.weight"},
        {{{DROP, "enc.output_norm.weight"}}, "enc.output_norm.weight"},
        {{{DROP, "markov_w2.weight"}}, "markov_w2.weight"},
        {{{SHAPE, "markov_w1.weight", .a = 319, .b = 8}}, "markov_w1.weight"},
        {{{SHAPE, "conf_proj.weight", .a = 1, .b = 71}}, "conf_proj.weight"},
        {{{NEW, "strange.weight", .a = 4}}, "nothing reads tensor strange.weight", AERIE_ERROR_UNSUPPORTED},
    };
    ALL_REFUSED(((mkhead_options){.kind = "dspark", .type = "f32"}), cases);
    static const bad pairs[] = {
        {{{DROP, "dflash.conv_kernel_size"}}, "conv_kernel_size"},
        {{{U32, "dflash.conv_kernel_size", .a = 0}}, "conv_kernel_size"},
        {{{U32, "dflash.conv_kernel_size", .a = 9}}, "conv_kernel_size"},
        {{{U32, "dflash.conv_kernel_size", .a = 3}}, "blk.0.attn_conv_base"},
        {{{U32, "dflash.conv_group_size", .a = 0}}, "conv_group_size"},
        {{{U32, "dflash.conv_group_size", .a = 48}}, "does not divide the width 64"},
        {{{U32, "dflash.conv_group_size", .a = 8}}, "blk.0.attn_conv_proj.weight"},
        {{{U32, "dflash.selector_top_k", .a = 17}}, "selector_top_k"},
        {{{U32, "dflash.selector_top_k", .a = 0}}, "selector_top_k"},
        {{{U32, "dflash.selector_rank", .a = 9}}, "selector_hidden.weight"},
        {{{DROP, "blk.1.ffn_conv_base"}}, "blk.1.ffn_conv_base"},
        {{{SHAPE, "selector_predecessor.weight", .a = 319, .b = 8}}, "selector_predecessor.weight"},
        {{{DROP, "selector_successor.weight"}}, "selector_successor.weight"},
    };
    ALL_REFUSED(((mkhead_options){.kind = "dflash2", .type = "f32"}), pairs);
    static const bad fly[] = {
        {{{DROP, "context_norm.weight"}}, "context_norm.weight"},
        {{{SHAPE, "layer_fusion", .a = 3, .b = 3}}, "layer_fusion"},
        {{{SHAPE, "hidden_correction.gate.weight", .a = 64, .b = 64}}, "hidden_correction.gate.weight"},
        {{{DROP, "hidden_correction.gate.weight"}}, "nothing reads tensor hidden_correction", AERIE_ERROR_UNSUPPORTED},
        {{{DROP, "hidden_correction.up.weight"}}, "hidden_correction.up.weight"},
        {{{DROP, "hidden_correction.down.weight"}}, "hidden_correction.down.weight"},
        {{{DROP, "hidden_correction.embed_norm.weight"}}, "hidden_correction.embed_norm.weight"},
        {{{NEW, "selector_hidden.weight", .a = 4}}, "a head of another kind", AERIE_ERROR_UNSUPPORTED},
        {{{NEW, "blk.0.attn_k_target.weight", .a = 4}}, "nothing reads tensor", AERIE_ERROR_UNSUPPORTED},
    };
    ALL_REFUSED(((mkhead_options){.kind = "dfly", .type = "f32"}), fly);
    static const bad parallel[] = {
        {{{U32, "eagle3.parallel_depth", .a = 1}}, "eagle3.parallel_depth is 1; 2 to 16"},
        {{{U32, "eagle3.parallel_depth", .a = 17}}, "eagle3.parallel_depth is 17; 2 to 16"},
        {{{DROP, "eagle3.mask_token_id"}}, "mask_token_id"},
        {{{U32, "eagle3.mask_token_id", .a = 100000}}, "eagle3.mask_token_id is 100000"},
        {{{DROP, "mask_hidden"}}, "not the tensor mask_hidden"},
        {{{SHAPE, "mask_hidden", .a = 7, .b = 1}}, "mask_hidden"},
        {{{TEXT, "eagle3.feedback", .text = "post"}}, "feeds nothing back"},
        {{{DROP, "blk.1.attn_norm.weight"}}, "blk.1.attn_norm.weight"},
        {{{U32, "eagle3.block_count", .a = 1}}, "but eagle3.block_count is 1"},
        {{{NEW, "blk.1.attn_norm_2.weight", .a = 4}}, "nothing reads tensor blk.1.attn_norm_2", AERIE_ERROR_UNSUPPORTED},
    };
    ALL_REFUSED(((mkhead_options){.kind = "eagle3", .type = "f32", .n_parallel = 5, .n_layers = 2}), parallel);
    static const bad lattice[] = {
        {{{DROP, "dflash.lilicorr.embedding_length"}}, "lilicorr.embedding_length"},
        {{{U32, "dflash.lilicorr.embedding_length", .a = 33}}, "lilicorr.head_count 2"},
        {{{U32, "dflash.lilicorr.embedding_length", .a = 0}}, "lilicorr.embedding_length"},
        {{{U32, "dflash.lilicorr.block_count", .a = 5}}, "lilicorr.block_count"},
        {{{U32, "dflash.lilicorr.block_count", .a = 1}}, "nothing reads tensor lilicorr.blk.1", AERIE_ERROR_UNSUPPORTED},
        {{{U32, "dflash.lilicorr.head_count", .a = 64}}, "lilicorr.head_count 64"},
        {{{U32, "dflash.lilicorr.top_k", .a = 17}}, "lilicorr.top_k"},
        {{{U32, "dflash.lilicorr.factor_length", .a = 9}}, "lilicorr.factor_out.weight"},
        {{{U32, "dflash.lilicorr.feed_forward_length", .a = 65}}, "lilicorr.blk.0.ffn_up.weight"},
        {{{F32, "dflash.lilicorr.vector_epsilon", .f = 0}}, "lilicorr.vector_epsilon"},
        {{{F32, "dflash.lilicorr.logit_scale", .f = -1}}, "lilicorr.logit_scale"},
        {{{U32, "dflash.block_size", .a = 7}}, "lilicorr.slot_embd.weight"},
        {{{BOOL, "dflash.attention.causal", .a = 1}}, "attention.causal"},
        {{{BOOL, "dflash.sample_from_anchor", .a = 1}}, "sample_from_anchor"},
        {{{DROP, "lilicorr.token_proj.weight"}}, "lilicorr.token_proj.weight"},
        {{{DROP, "lilicorr.token_proj.bias"}}, "lilicorr.token_proj.bias"},
        {{{DROP, "lilicorr.same_slot_bias"}}, "lilicorr.same_slot_bias"},
        {{{DROP, "lilicorr.blk.1.attn_v.bias"}}, "lilicorr.blk.1.attn_v.bias"},
        {{{SHAPE, "lilicorr.slot_bias.weight", .a = 14, .b = 2}}, "lilicorr.slot_bias.weight"},
        {{{U32, "dflash.conv_kernel_size", .a = 2}}, "conv_group_size"},
        {{{NEW, "blk.0.ffn_conv_base", .a = 4}}, "nothing reads tensor blk.0.ffn_conv_base", AERIE_ERROR_UNSUPPORTED},
        {{{NEW, "selector_hidden.weight", .a = 4}}, "a head of another kind", AERIE_ERROR_UNSUPPORTED},
    };
    ALL_REFUSED(((mkhead_options){.kind = "lilicorr", .type = "f32"}), lattice);
    const mkhead_options deep = {.kind = "dflash", .type = "f32", .n_layers = 9};
    aerie_error error = {0};
    ae_dhead *head;
    assert_int_equal(mkhead_write(&deep, target_path, head_path, &error), AERIE_OK);
    assert_int_equal(ae_dhead_load(&head, head_path, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "8 layers at most"));
}

static void test_a_head_is_no_model(void **state)
{
    (void)state;
    static const char *const kinds[] = {"eagle", "eagle3", "medusa"};
    for (int i = 0; i < 3; i++) {
        ae_model *model;
        aerie_error error = {0};
        char sentence[64];
        ae_dhead_free(make((mkhead_options){.kind = kinds[i]}));
        assert_int_equal(ae_model_load(&model, head_path, NULL, &error), AERIE_ERROR_UNSUPPORTED);
        assert_null(model);
        snprintf(sentence, sizeof sentence, "\"%s\" is a drafter's head, not a model of its own", kinds[i]);
        if (!strstr(error.text, sentence)) fail_msg("it says \"%s\"", error.text);
        assert_true(ae_dhead_is_arch(kinds[i], strlen(kinds[i])));
    }
    assert_false(ae_dhead_is_arch("llama", 5));
    assert_false(ae_dhead_is_arch("eagle", 4));
    assert_false(ae_dhead_is_arch(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eagle3_in_every_schema),
        cmocka_unit_test(test_norms_before_fc),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_eagle_and_medusa),
        cmocka_unit_test(test_types_that_rows_do_not_suit),
        cmocka_unit_test(test_names_that_differ),
        cmocka_unit_test(test_draft_maps),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_bad_maps),
        cmocka_unit_test(test_bad_eagle_and_medusa),
        cmocka_unit_test(test_heads_of_other_targets),
        cmocka_unit_test(test_bad_blocks),
        cmocka_unit_test(test_a_head_is_no_model),
    };
    return cmocka_run_group_tests_name("heads", tests, make_paths, drop_paths);
}
