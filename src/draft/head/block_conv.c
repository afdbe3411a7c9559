/* block_conv.c - the layers of DFlash2: a convolution over the block's rows before and after each sublayer (head.h).
 *
 * A sublayer takes conv(0, x) of its normed input x, and what it gives joins the stream as conv(1, y). Both sides have
 * coefficients made of x, one for each tap and group of channels, beside constant ones for each channel:
 *
 *   conv(side, u) of row r = sum over taps t of base[side][t] * u[r - t] + c[side][t] * u[r - t]
 *
 * Rows before the block's first are 0; the context has no part in it. Sums are in this order, every step rounded.
 *
 * Owns nothing: the arrays are the engine's. It is written over operations that there are: a row that a tap sees is copied,
 * and rows that do not exist are copied from a row of zeros. The rows of a pass are whole blocks.
 *
 * Source: z-lab/dflash (model.py, MIT).
 */
#include "draft/head/pass.h"

void ae_dhead_conv_begin(ae_dhead_engine *e)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n = e->options.n_batch;
    for (uint32_t t = 0; t < h->n_conv; t++)
        for (uint32_t r = 0; r < e->n_rows; r++)
            e->conv_rows[(size_t)t * n + r] = r % h->n_block < t ? (int32_t)n : (int32_t)(r - t);
}

/* Copies to terms, for each row r, row r - t of u [n_batch + 1][n_embd]; if that is before the block, the last row of u, which
 * is zeros. */
static void fetch(ae_dhead_engine *e, const float *u, uint32_t t, float *terms)
{
    const uint32_t H = e->net->head->hparams.layer.n_embd;
    e->backend->ops->copy(e->stream, &(ae_copy){.n = e->n_rows, .dim = H, .x = u, .x_stride = H, .y = terms, .y_stride = H,
                                                .host_rows = t ? e->conv_rows + (size_t)t * e->options.n_batch : NULL});
}

/* Computes y = conv(side, u), or adds it to y. */
static void convolve(ae_dhead_engine *e, const float *base, uint32_t side, const float *u, float *y, bool add)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t n = e->n_rows, H = h->layer.n_embd, n_groups = H / h->conv_group, C = 2 * h->n_conv * n_groups;
    for (uint32_t t = 0; t < h->n_conv; t++) {
        const uint32_t at = side * h->n_conv + t;
        float *first = t || add ? e->conv_a : y;
        fetch(e, u, t, first);
        ops->map(e->stream, &(ae_map){.kind = AE_MAP_TIMES, .n_rows = n, .dim = H, .x = first, .x_stride = H,
                                      .x2 = base + (size_t)at * H, .x2_stride = 0});
        fetch(e, u, t, e->conv_b);
        ops->map(e->stream, &(ae_map){.kind = AE_MAP_GATE, .n_rows = n, .dim = H, .x = e->conv_b, .x_stride = H,
                                      .x2 = e->conv_c + (size_t)at * n_groups, .x2_stride = C, .n_groups = n_groups,
                                      .glu = AE_GLU_LINEAR});
        if (first != y) ops->axpy(e->stream, &(ae_axpy){n, H, 1.0f, first, H, y, H});
        ops->axpy(e->stream, &(ae_axpy){n, H, 1.0f, e->conv_b, H, y, H});
    }
}

static ae_matmul plain(const ae_dhead_engine *e, const float *x, size_t stride)
{
    return (ae_matmul){.n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = x, .x_stride = stride};
}

/* Computes conv_y, the sublayer's input, and conv_c, the coefficients of both sides. */
static void enter(ae_dhead_engine *e, const ae_block *b, const float *norm, const struct ae_dhead_net_conv *conv)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd, C = 2 * h->n_conv * (H / h->conv_group);
    ae_matmul m = plain(e, e->conv_in, H);
    b->ops->copy(b->stream, &(ae_copy){.n = e->n_rows, .dim = H, .x = b->x, .x_stride = H, .y = e->conv_in, .y_stride = H});
    b->ops->norm(b->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = H, .x = e->conv_in, .x_stride = H,
                                       .weight = norm, .eps = h->layer.norm_eps});
    ae_block_output(&m, conv->proj, NULL, e->conv_c, C, false);
    ae_block_matmul(b, &m);
    convolve(e, conv->base, 0, e->conv_in, e->conv_y, false);
}

void ae_dhead_conv_layer(ae_dhead_engine *e, const ae_block *block, uint32_t i)
{
    const ae_layer_spec *s = &ae_dhead_layers(e->net->head)[i].spec;
    const struct ae_dhead_net_conv *conv = e->net->conv[i];
    const uint32_t H = block->h->n_embd, F = s->n_ff;
    ae_net_layer layer = e->net->layers[i];
    ae_block inner = *block;
    enter(e, block, layer.attn_norm, &conv[0]);
    /* attention reads conv_y instead of its normed stream, and adds its output to rows of zeros */
    layer.attn_norm = NULL;
    inner.x = e->conv_out, inner.mixer_in = e->conv_y, inner.mixer_in_stride = H;
    block->ops->map(block->stream, &(ae_map){.kind = AE_MAP_ZERO, .n_rows = e->n_rows, .dim = H, .x = inner.x, .x_stride = H});
    ae_block_mixer(&inner, s, &layer);
    convolve(e, conv[0].base, 1, e->conv_out, block->x, true);

    enter(e, block, layer.ffn_norm, &conv[1]);
    ae_matmul m = plain(e, e->conv_y, H);
    ae_block_output(&m, layer.w_gate, layer.b_gate, block->gate, F, false);
    ae_block_output(&m, layer.w_up, layer.b_up, block->up, F, false);
    ae_block_matmul(block, &m);
    m = (ae_matmul){.n_rows = e->n_rows, .input = AE_INPUT_GLU, .x = block->gate, .x2 = block->up, .x_stride = F,
                    .glu = ae_block_glu(s->activation)};
    ae_block_output(&m, layer.w_down, layer.b_down, e->conv_out, H, false);
    ae_block_matmul(block, &m);
    convolve(e, conv[1].base, 1, e->conv_out, block->x, true);
}
