/* test_convert_check.c - aerie convert --self-check finds taps, residual, rotation and feedback that were read the wrong way.
 *
 * The target predicts one token, X, after any text. The head predicts X only if everything is read right: each wrong reading
 * turns its output into the code of another token.
 *   taps      fc makes code u of the right taps, u1 of those one layer off
 *   residual  normed it would be u * w_h instead of u
 *   feedback  normed it would be u * w_out
 *   rotation  the text alternates; one attention head sees the row itself, another the row before, and their values cancel
 */
#include "convert_rig.inc"
#include "device/device.h"

#include "engine/engine.h"
#include "text/token/vocab.h"

#define H 64u
#define V 300u
#define X 290 /* the token that the target always predicts */
#define TAPS 3u
#define WIDE (TAPS * H)
#define RHO 2.0 /* length of an element that fc makes */

static const char text[] = "QZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZQZ";

typedef struct features {
    float at[3][2][WIDE]; /* taps one lower, right, one higher; of two letters */
} features;

static float sign(const char *key, uint32_t i)
{
    return st_value(key, i) < 0 ? -1.0f : 1.0f;
}

/* ---- The target ------------------------------------------------------------------------------------- */

static void patch(const char *path, const ae_gguf *gguf, const char *name, const float *values, uint64_t first, uint64_t n)
{
    const ae_gguf_tensor *t = ae_gguf_tensor_find(gguf, name);
    if (!t) fail_msg("%s is missing", name);
    assert_int_equal(t->type, AE_TYPE_F32);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(t->offset + 4 * first), SEEK_SET), 0);
    assert_int_equal(fwrite(values, 4, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Without attention; all rows share one direction, and the letters differ in a second one. */
static void make_dull_target(const char *path, const int32_t letters[2])
{
    mk_options o;
    aerie_error error = {0};
    float *zeros = calloc(V * H, 4), row[H] = {8.0f};
    char name[64];
    assert_true(mk_shape("tiny", &o));
    o.n_layers = 8, o.n_embd = H, o.n_ff = 96, o.n_heads = 4, o.n_kv_heads = 2, o.head_dim = 16, o.n_vocab = V;
    o.tied = false, o.biases = false;
    o.type = "f32";
    if (mk_model(&o, path, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_gguf *gguf;
    if (ae_gguf_open(&gguf, path, &(ae_gguf_options){.no_mmap = true}, &error) != AERIE_OK) fail_msg("%s", error.text);
    for (uint32_t i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "blk.%u.attn_output.weight", i);
        patch(path, gguf, name, zeros, 0, H * H);
    }
    patch(path, gguf, "output.weight", zeros, 0, V * H);
    row[1] = 0;
    patch(path, gguf, "output.weight", row, X * H, H);
    for (uint32_t i = 0; i < V; i++) {
        row[1] = (int32_t)i == letters[0] ? 2.0f : (int32_t)i == letters[1] ? -2.0f : 0.0f;
        patch(path, gguf, "token_embd.weight", row, i * H, H);
    }
    ae_gguf_close(gguf);
    free(zeros);
}

/* The letters' ids; the same in every such vocabulary. */
static void find_letters(int32_t letters[2])
{
    mk_options o;
    char path[256];
    ae_gguf *gguf = NULL;
    ae_vocab *vocab = NULL;
    aerie_error error = {0};
    ae_tokens tokens = {0};
    snprintf(path, sizeof path, "%s/letters.gguf", cli_folder);
    assert_true(mk_shape("tiny", &o));
    o.n_vocab = V;
    if (mk_model(&o, path, &error) != AERIE_OK || ae_gguf_open(&gguf, path, NULL, &error) != AERIE_OK ||
        ae_vocab_create(&vocab, gguf, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    assert_int_equal(ae_vocab_encode(vocab, text, 4, (ae_encode_options){.add_special = false}, &tokens, &error),
                     AERIE_OK);
    assert_int_equal(tokens.n, 4); /* a token each */
    letters[0] = tokens.data[0];
    letters[1] = tokens.data[1];
    ae_tokens_free(&tokens);
    ae_vocab_free(vocab);
    ae_gguf_close(gguf);
}

/* Runs the target over both letters; checks that it says X. */
static void read_features(const char *path, const int32_t letters[2], features *out)
{
    ae_backend *backend = NULL;
    ae_model *model = NULL;
    ae_net *net = NULL;
    ae_engine *engine = NULL;
    aerie_error error = {0};
    uint32_t first;
    const ae_engine_options options = {
        .n_ctx = 64, .n_seqs = 1, .n_batch = 8, .n_outputs = 8, .n_threads = 1, .n_taps = 7, .taps = {2, 3, 4, 5, 6, 7, 8}};
    if (ae_backend_open(&backend, NULL, "ref", &error) != AERIE_OK || ae_model_load(&model, path, NULL, &error) != AERIE_OK ||
        ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, &error) != AERIE_OK ||
        ae_engine_create(&engine, net, &options, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    ae_engine_rows_clear(engine);
    assert_int_equal(ae_engine_add_chain(engine, 0, letters, 2, AE_EXPORT_ALL, &first, &error), AERIE_OK);
    assert_int_equal(ae_engine_pass(engine, &error), AERIE_OK);
    for (uint32_t letter = 0; letter < 2; letter++) {
        float x[7 * H];
        backend->ops->download(ae_engine_stream(engine), x, ae_engine_features(engine, first + letter), sizeof x);
        assert_true(ae_engine_logits(engine, first + letter)[X] > 0.1f);
        for (uint32_t way = 0; way < 3; way++) {
            for (uint32_t tap = 0; tap < TAPS; tap++)
                memcpy(&out->at[way][letter][tap * H], &x[(2 * tap + way) * H], H * sizeof *x);
        }
    }
    ae_engine_free(engine);
    ae_net_free(net);
    ae_model_free(model);
    ae_backend_close(backend);
}

/* ---- The head -------------------------------------------------------------------------------------------- */

/* Solves a [n][n + 1] in place; the last column becomes the solution. */
static void solve(double a[6][7])
{
    for (int k = 0; k < 6; k++) {
        int top = k;
        for (int i = k + 1; i < 6; i++) top = fabs(a[i][k]) > fabs(a[top][k]) ? i : top;
        for (int j = 0; j < 7; j++) {
            const double swap = a[k][j];
            a[k][j] = a[top][j];
            a[top][j] = swap;
        }
        assert_true(fabs(a[k][k]) > 1e-9);
        for (int i = 0; i < 6; i++) {
            const double factor = i == k ? 0 : a[i][k] / a[k][k];
            for (int j = k; j < 7; j++) a[i][j] -= factor * a[k][j];
        }
    }
    for (int k = 0; k < 6; k++) a[k][6] /= a[k][k];
}

/* out [WIDE]: its product with the features of the right taps (or with those of the wrong ones) is 1, with the others 0. */
static void dual(const features *f, bool right, double out[WIDE])
{
    double a[6][7];
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 6; j++) {
            a[i][j] = 0;
            for (uint32_t k = 0; k < WIDE; k++) a[i][j] += (double)f->at[i / 2][i % 2][k] * (double)f->at[j / 2][j % 2][k];
        }
        a[i][6] = (i / 2 == 1) == right;
    }
    solve(a);
    for (uint32_t k = 0; k < WIDE; k++) {
        out[k] = 0;
        for (int i = 0; i < 6; i++) out[k] += a[i][6] * (double)f->at[i / 2][i % 2][k];
    }
}

static void add(st_make *m, const char *name, uint64_t rows, uint64_t columns, const float *values)
{
    char shape[64];
    if (rows) snprintf(shape, sizeof shape, "[%u,%u]", (unsigned)rows, (unsigned)columns);
    else snprintf(shape, sizeof shape, "[%u]", (unsigned)columns);
    st_make_raw(m, name, "F32", shape, values, (rows ? rows : 1) * columns * 4);
}

static void add_attention(st_make *m, bool pairs)
{
    float *w = calloc(H * 2 * H, 4), b[H] = {0};
    /* two pairs, of frequency 1 and 0.1: together they repeat only after 63 positions */
    const uint32_t at[2][2] = {{0, pairs ? 1 : 8}, {pairs ? 4 : 2, pairs ? 5 : 10}};
    const float loud = 15.5f, turn[2] = {1.0f, 0.1f};
    add(m, "midlayer.self_attn.q_proj.weight", H, 2 * H, w);
    add(m, "midlayer.self_attn.k_proj.weight", 32, 2 * H, w);
    b[at[0][0]] = b[at[1][0]] = loud;
    add(m, "midlayer.self_attn.k_proj.bias", 0, 32, b);
    for (int i = 0; i < 2; i++) { /* head 1 is one position behind */
        b[16 + at[i][0]] = loud * cosf(turn[i]);
        b[16 + at[i][1]] = -loud * sinf(turn[i]);
    }
    add(m, "midlayer.self_attn.q_proj.bias", 0, H, b);
    w[1] = 1; /* the letter: +1 or -1 in element 1 of its normed embedding, about 2 after the norm */
    add(m, "midlayer.self_attn.v_proj.weight", 32, 2 * H, w);
    w[1] = 0;
    for (uint32_t i = 0; i < H; i++) w[i * H] = w[i * H + 16] = 8 * sign("u2", i);
    add(m, "midlayer.self_attn.o_proj.weight", H, H, w);
    free(w);
}

static void add_output(st_make *m)
{
    float *rows = calloc(V * H, 4);
    for (uint32_t i = 0; i < H; i++) {
        const float u = sign("u", i), u1 = sign("u1", i), u2 = sign("u2", i), w_h = sign("w_h", i), w_out = sign("w_out", i);
        rows[X * H + i] = u * w_out;
        rows[270 * H + i] = u1 * w_out;
        rows[271 * H + i] = u2 * w_out;
        rows[272 * H + i] = -u2 * w_out;
        rows[273 * H + i] = u * w_h * w_out;
        rows[274 * H + i] = u;
        rows[275 * H + i] = u1 * w_h * w_out;
    }
    add(m, "lm_head.weight", V, H, rows);
    free(rows);
}

static void write_sharp_head(const char *folder, const features *f, bool pairs, const char *config)
{
    st_make m = {0};
    float *w = calloc(WIDE * H, 4), ones[H], w_h[H], w_out[H];
    double right[WIDE], wrong[WIDE];
    dual(f, true, right);
    dual(f, false, wrong);
    for (uint32_t i = 0; i < H; i++) {
        ones[i] = 1, w_h[i] = sign("w_h", i), w_out[i] = sign("w_out", i);
        for (uint32_t k = 0; k < WIDE; k++)
            w[i * WIDE + k] = (float)(RHO * ((double)sign("u", i) * right[k] + (double)sign("u1", i) * wrong[k]));
    }
    add(&m, "fc.weight", H, WIDE, w);
    add_attention(&m, pairs);
    memset(w, 0, WIDE * H * 4);
    add(&m, "midlayer.mlp.gate_proj.weight", 96, H, w);
    add(&m, "midlayer.mlp.up_proj.weight", 96, H, w);
    add(&m, "midlayer.mlp.down_proj.weight", H, 96, w);
    add(&m, "midlayer.input_layernorm.weight", 0, H, ones);
    add(&m, "midlayer.post_attention_layernorm.weight", 0, H, ones);
    add(&m, "midlayer.hidden_norm.weight", 0, H, w_h);
    add(&m, "norm.weight", 0, H, w_out);
    add_output(&m);
    free(w);
    write_checkpoint(folder, &m, config);
}

/* ---- Findings ----------------------------------------------------------------------------------------- */

#define HEAD(more) "{" LAYER_CONFIG "," more "}"

static void finds_what_is_wrong(void **state)
{
    static const struct {
        const char *config, *options, *says; /* says: the expected remark; NULL: nothing is changed */
        bool pairs;
    } cases[] = {
        {HEAD("\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "", NULL, false},
        {HEAD("\"eagle_aux_hidden_state_layer_ids\":[2,4,6]"), "", "taps are one layer higher", false},
        {HEAD("\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[3,5,7]}"), "", "taps are one layer lower", false},
        {HEAD("\"norm_before_residual\":true,\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "", "residual starts from the raw",
         false},
        {HEAD("\"norm_output\":true,\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "", "fed back before", false},
        {HEAD("\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "", "neighbours already", true},
        {HEAD("\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "--rope pairs", NULL, true},
        {HEAD("\"eagle_aux_hidden_state_layer_ids\":[3,5,7]"), "--rope pairs", "are rotated by halves", false},
    };
    static const uint32_t taps[] = {3, 5, 7};
    static features f;
    int32_t letters[2];
    char path[256];
    (void)state;
    find_letters(letters);
    snprintf(path, sizeof path, "%s/t.gguf", cli_folder);
    make_dull_target(path, letters);
    read_features(path, letters, &f);
    cli_write("text", text, sizeof text - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool given = cases[i].says && cases[i].options[0]; /* a reading that an option gives is not searched */
        write_sharp_head("h", &f, cases[i].pairs, cases[i].config);
        cli("$A convert h --target t.gguf -o h.gguf --outtype f32 --self-check --self-check-file text --json %s",
            cases[i].options);
        if (cli_last.status) fail_msg("case %zu: %s", i, cli_last.err);
        json_t *json = json_loads(cli_last.out, 0, NULL), *check = json_object_get(json, "self_check");
        const bool changed = json_is_true(json_object_get(check, "changed"));
        const double first = json_real_value(json_array_get(json_object_get(check, "agreement"), 0));
        const double third = json_real_value(json_array_get(json_object_get(check, "agreement"), 2));
        double before = 1; /* two wrong signs cancel: not every depth shows every mistake */
        for (size_t d = 0; d < 3; d++)
            before = fmin(before, json_real_value(json_array_get(json_object_get(check, "before"), d)));
        json_decref(json);
        if (given ? changed || first > 0.2 : changed != (cases[i].says != NULL) || first < 0.9 || third < 0.9)
            fail_msg("case %zu: %d, %g, %g: %s", i, changed, first, third, cli_last.err);
        if (given) continue;
        if (cases[i].says && (!strstr(cli_last.err, cases[i].says) || before > 0.2))
            fail_msg("case %zu: before %g: %s", i, before, cli_last.err);
        ae_gguf *gguf = open_file("h.gguf");
        key_taps(gguf, taps, TAPS);
        key_bool(gguf, "eagle3.norm_before_residual", false);
        key_text(gguf, "eagle3.feedback", "pre");
        const float *bias = floats(gguf, "blk.0.attn_q.bias", 0, H);
        assert_true(bias[16] > 8.0f && bias[17] < -12.0f); /* neighbours, whatever order the checkpoint had */
        ae_gguf_close(gguf);
    }
    cli("ls | grep -c -e turned -e part");
    assert_string_equal(cli_last.out, "0\n"); /* no file is left */
}

static void asks_for_what_it_needs(void **state)
{
    (void)state;
    cli("$A convert h -o x.gguf --self-check");
    cli_refused(2, "--self-check", "--target");
    cli("$A convert h -o x.gguf --self-check-file text");
    cli_refused(2, "--self-check-file", "--self-check");
    cli("printf QZQZ > few && printf old > x.gguf && "
        "$A convert h --target t.gguf -o x.gguf --self-check --self-check-file few");
    cli_refused(2, "too few", "32");
    cli("test \"$(cat x.gguf)\" = old && ! ls | grep -e part -e turned"); /* the file gets its name only after all checks */
    assert_int_equal(cli_last.status, 0);
    cli("$A convert h --target t.gguf -o x.gguf --self-check --self-check-file none");
    cli_refused(3, "none", "");
    cli("$A convert h --target t.gguf -o x.gguf --rope sideways");
    cli_refused(2, "halves or pairs", "'sideways'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_is_wrong), cmocka_unit_test(asks_for_what_it_needs)};
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
