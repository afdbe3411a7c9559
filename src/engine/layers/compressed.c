/* compressed.c - DeepSeek-V4's attention: a window, and rows that each stand for a block of positions (ae_compress_hparams).
 *
 * A position keeps its row, in layers that compress also what blocks are compressed from (as long as a block needs it), and at
 * the last position of a block its compressed row and index key. All of it is in the pages of the KV cache in the position's
 * slot, so drafts, rollback and shared prefixes have it as they have keys and values. Only the compressed rows and index keys
 * in the slots of last positions are ever read.
 *
 * In layers that compress, rows of the window and compressed rows are keys and values at once (ae_kv_layer.one_row): each is
 * stored once. Layers that do not compress, and MTP blocks, store keys and values as other models do.
 *
 * 3 of 4, or 127 of 128, of the slots for compressed rows and index keys are reserved for nothing (docs/loading.md has
 * figures). A smaller layout, not built:
 *   pages     such a layer (ae_kv_layer.every) has max(1, 64 / every) places in a page; the row at the last position p of a
 *             block is in place p % 64 / every of p's page. A block of 128 is in the page of its last position.
 *   drafts    slots of a tree are not positions, and siblings at the same last position need a place each: a sequence has one
 *             more page in these layers, of 64 places, for the slots after the chain. ae_places tells a row's place in it.
 *   commit    moves the accepted rows that end a block from there, also those that stay where they are in other layers, so
 *             these layers have a list of moves of their own, as those with windows have. Chains need no move.
 *   reading   `select` and ae_attention_more name slots: position p in place is place p % 64 / every of page p / 64; a draft is
 *             in the sequence's page for drafts. Index scores walk places, not positions.
 *   writing   rope_kv leaves out rows that end no block; `compress` need not set them to 0.
 *   saving    a position's bytes then depend on whether it ends a block: ae_kv_bytes, group_bytes.c and the sections of saved
 *             sequences count places of a page apart from positions. Copies of whole pages stay as they are.
 * All of it on each device: cpu/kv.c, gpu/kernels/kv_layout.h, and Vulkan's kv_form.glsl.
 * Owns nothing. */
#include "engine/layers/block.h"

static uint32_t n_parts_of(const ae_layer_spec *s)
{
    return s->every == AE_COMPRESS_OVERLAP ? 2 : 1;
}

static void norm(const ae_block *b, float *x, uint32_t n_groups, uint32_t dim, const float *weight)
{
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = n_groups, .dim = dim, .x = x,
                                       .x_stride = (size_t)n_groups * dim, .weight = weight, .eps = b->h->norm_eps});
}

/* Rotates the last values of each head. */
static void rotate(const ae_block *b, int rope, float *x, uint32_t n_heads, uint32_t dim, bool back)
{
    const uint32_t n_rot = b->h->ropes[rope].n_rot;
    b->ops->rotate(b->stream, &(ae_rotate){.n_rows = b->n_rows, .n_heads = n_heads, .head_dim = dim, .first = dim - n_rot,
                                           .n_rot = n_rot, .kind = AE_ROPE_NORM, .back = back, .cos = b->cos[rope],
                                           .sin = b->sin[rope], .x = x});
}

/* Adds the outputs of a compressor to a product. */
static void add_compressor(ae_matmul *m, const ae_net_compressor *c, uint32_t n, float *y)
{
    ae_block_output(m, c->kv, NULL, y, 2 * (size_t)n, false);
    ae_block_output(m, c->gate, NULL, y + n, 2 * (size_t)n, false);
}

static void project(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_index_hparams *x = &b->h->index;
    const uint32_t q_dim = s->n_heads * s->head_dim, n_parts = n_parts_of(s);
    const bool indexed = s->index == AE_INDEX_OWN;
    ae_matmul m = ae_block_input(b, l->attn_norm, NULL);
    ae_block_output(&m, l->mla.q_a, NULL, b->mla_q, b->h->compress.n_q, false);
    ae_block_output(&m, l->wk, NULL, b->k, s->head_dim, false);
    if (s->every) add_compressor(&m, &l->compress.rows, n_parts * s->head_dim, b->compress->rows);
    ae_block_matmul(b, &m);
    if (indexed) {
        m = ae_block_input(b, l->attn_norm, NULL);
        add_compressor(&m, &l->compress.index, n_parts * x->head_dim, b->compress->index);
        ae_block_output(&m, l->mla.index_weight, NULL, b->selection->weight, x->n_heads, false);
        ae_block_matmul(b, &m);
    }
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_RMSNORM, .x = b->mla_q, .x_stride = b->h->compress.n_q,
                    .norm = l->mla.q_a_norm, .norm_eps = b->h->norm_eps};
    ae_block_output(&m, l->mla.q_b, NULL, b->q, q_dim, false);
    if (indexed)
        ae_block_output(&m, l->mla.index_q, NULL, b->selection->q, (size_t)x->n_heads * x->head_dim, false);
    ae_block_matmul(b, &m);
    norm(b, b->q, s->n_heads, s->head_dim, b->ones);
    norm(b, b->k, 1, s->head_dim, l->mla.kv_a_norm);
    rotate(b, s->rope, b->q, s->n_heads, s->head_dim, false);
    rotate(b, s->rope, b->k, 1, s->head_dim, false);
}

/* Writes rows, which are keys and values, to the pages of a layer. */
static void store(const ae_block *b, const ae_places *places, ae_kv_store *kv, uint32_t layer, uint32_t dim, float *x)
{
    b->ops->rope_kv(b->stream, &(ae_rope_kv){.places = places, .kv = kv, .layer = layer, .n_kv_heads = 1, .head_dim = dim,
                                             .q = x, .k = x, .v = x});
}

/* Compresses rows of d values to x, normed and rotated. */
static void compress(const ae_block *b, const ae_layer_spec *s, const ae_net_compressor *c, const float *from, uint32_t d,
                     float *x)
{
    b->ops->compress(b->stream, &(ae_compress){.places = b->part_places, .kv = b->kv_parts, .layer = c->kept, .dim = d,
                                               .n_parts = n_parts_of(s), .every = s->every, .x = from, .ape = c->ape, .y = x});
    norm(b, x, 1, d, c->norm);
    rotate(b, s->late_rope, x, 1, d, false);
}

/* Stores compressed rows, and lists those that rows attend to. */
static void choose(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_index_hparams *x = &b->h->index;
    const ae_selection *to = b->selection;
    const bool indexed = s->index == AE_INDEX_OWN;
    compress(b, s, &l->compress.rows, b->compress->rows, s->head_dim, b->k);
    store(b, b->places, b->kv, l->compress.kv_rows, s->head_dim, b->k);
    if (indexed) {
        compress(b, s, &l->compress.index, b->compress->index, x->head_dim, to->k);
        store(b, b->places, b->kv, l->kv_index, x->head_dim, to->k);
        rotate(b, s->rope, to->q, x->n_heads, x->head_dim, false);
    }
    b->ops->select(b->stream, &(ae_select){
        .places = b->places, .kv = b->kv, .layer = indexed ? l->kv_index : l->compress.kv_rows,
        .n_heads = indexed ? x->n_heads : 0, .n_most = indexed ? b->compress->n_most_chosen : to->n_most, .every = s->every,
        .q = to->q, .weight = to->weight, .pos = to->pos, .n_inplace = to->n_inplace, .path = to->path});
}

void ae_block_compressed(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, bool to_y)
{
    const ae_compress_hparams *c = &b->h->compress;
    const ae_selection *chosen = b->selection;
    const uint32_t width = s->n_heads * s->head_dim, n_out = c->n_groups * c->n_out;
    const ae_places *places = l->windowed ? b->part_places : b->places; /* an MTP block keeps all rows */
    ae_kv_store *kv = l->windowed ? b->kv_parts : b->kv;
    ae_attention_more more = {0};
    project(b, s, l);
    store(b, places, kv, l->kv, s->head_dim, b->k);
    if (s->every) {
        choose(b, s, l);
        more = (ae_attention_more){
            .pos = chosen->pos, .path = chosen->path,
            .path_stride = s->index == AE_INDEX_OWN ? b->compress->n_most_chosen : chosen->n_most,
            .tables = b->places->tables, .kv = b->kv, .layer = l->compress.kv_rows};
    }
    b->ops->attention(b->stream, &(ae_attention){
        .places = places, .kv = kv, .layer = l->kv, .n_heads = s->n_heads, .n_kv_heads = 1,
        .head_dim = s->head_dim, .scale = s->attn_scale, .window = s->window, .sinks = l->sinks,
        .more = s->every ? &more : NULL, .q = b->q, .y = b->attn});
    rotate(b, s->rope, b->attn, s->n_heads, s->head_dim, true);
    b->ops->head_matmul(b->stream, &(ae_head_matmul){
        .n_rows = b->n_rows, .n_heads = c->n_groups, .x = b->attn, .x_stride = width, .x_step = width / c->n_groups,
        .weights = l->compress.out_a, .y = b->compress->grouped, .y_stride = n_out, .y_step = c->n_out});
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->compress->grouped, .x_stride = n_out};
    ae_block_output(&m, l->wo, NULL, to_y ? b->y : b->x, b->h->n_embd, !to_y);
    ae_block_matmul(b, &m);
}
