/* product_place.glsl - arguments of the shaders for products, and what a work-group of them multiplies. */
#define WANT_X 1u
#define WANT_32 2u
#define WANT_256 4u
#define WANT_16 8u
#define FORM_32 1u
#define FORM_32_MIN 2u
#define FORM_32_TWO 3u
#define FORM_256 4u
#define FORM_256_MIN 5u
#define FORM_F32 6u
#define FORM_F16 7u
#define FORM_BF16 8u

#define TYPE_Q4_0 2u
#define TYPE_Q4_1 3u
#define TYPE_Q2_K 10u
#define TYPE_Q3_K 11u
#define TYPE_Q4_K 12u

/* Codes of 4 bits (is_narrow_type in weight_generic.c). */
bool is_narrow(uint type)
{
    return type == TYPE_Q4_0 || type == TYPE_Q4_1 || (type >= TYPE_Q2_K && type <= TYPE_Q4_K);
}

bool has_signed_codes(uint type)
{
    return type == TYPE_Q4_0 || type == TYPE_Q3_K;
}

struct Job { /* ae_gpu_job */
    uint64_t weight, bias, y, y_stride;
    uint type, n_out, first_row, n_rows, add, has_scale;
    float scale;
    uint first_block;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer ProductArgs { /* ae_gpu_product_args */
    Rows rows;
    uint n_jobs, n_heads, head_rows, unused;
    uint64_t y_step;
    Job job[4];
    uint64_t heads[64];
    float head_scale[64];
};

struct ExpertJob { /* ae_gpu_expert_job */
    uint64_t base, bias, y;
    uint n_out, first_block, end;
    uint offset[220];
    float scale[220];
    uint unused;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer ExpertArgs { /* ae_gpu_expert_args */
    Rows rows;
    uint64_t chosen, n_chosen; /* active, n_active */
    uint first_expert, n_jobs, one_row, n_records, group_bytes, type;
    ExpertJob job[2];
};

struct Place {
    uint64_t weight, bias, y, y_stride; /* y: of the job's first row */
    float scale;
    uint add, n_out;
    uint first_row, n_rows; /* the job's, among the prepared rows */
    uint type;
    uint out_, row;         /* the block's first output, and its first row, counted from first_row */
};

Place place_of_job(ProductArgs a, uint n_outs, uint n_rows)
{
    uint i = 0;
    while (i + 1 < a.n_jobs && BLOCK_X >= a.job[i + 1].first_block) i++;
    Place p;
    p.weight = a.n_heads != 0 ? a.heads[BLOCK_Z] : a.job[i].weight;
    p.bias = a.job[i].bias;
    p.y = a.job[i].y + uint64_t(BLOCK_Z) * a.y_step * 4ul;
    p.y_stride = a.job[i].y_stride;
    p.scale = a.n_heads != 0 ? a.head_scale[BLOCK_Z] : a.job[i].has_scale != 0 ? a.job[i].scale : 1.0;
    p.add = a.job[i].add;
    p.n_out = a.job[i].n_out;
    p.type = a.job[i].type;
    p.first_row = a.job[i].first_row + BLOCK_Z * a.head_rows;
    p.n_rows = a.job[i].n_rows;
    p.out_ = (BLOCK_X - a.job[i].first_block) * n_outs;
    p.row = BLOCK_Y * n_rows;
    return p;
}

/* With experts, n_rows is 0 where the work-group has none. */
Place place_of_expert(ExpertArgs a, uint n_outs, uint n_rows)
{
    const uint i = a.n_jobs > 1 && BLOCK_X >= a.job[1].first_block ? 1 : 0;
    Place p;
    p.n_rows = 0;
    p.row = BLOCK_Y * n_rows;
    if (BLOCK_Z >= U32(a.n_chosen).v[0]) return p;
    const uint expert = U32(a.chosen).v[3 * BLOCK_Z], first_row = U32(a.chosen).v[3 * BLOCK_Z + 1];
    const uint n = U32(a.chosen).v[3 * BLOCK_Z + 2], e = expert - a.first_expert;
    if (e >= 220 || p.row >= n) return p;
    p.weight = a.job[i].base + uint64_t(a.job[i].offset[e]) * 64ul;
    p.bias = a.job[i].bias != 0ul ? a.job[i].bias + uint64_t(expert) * a.job[i].n_out * 4ul : 0ul;
    p.y_stride = a.job[i].n_out;
    p.y = a.job[i].y + uint64_t(first_row) * a.job[i].n_out * 4ul;
    p.scale = a.job[i].scale[e];
    p.add = 0;
    p.n_out = a.job[i].n_out;
    p.type = a.type;
    p.first_row = a.one_row != 0 ? 0 : first_row;
    p.n_rows = n;
    p.out_ = (BLOCK_X - a.job[i].first_block) * n_outs;
    return p;
}

void store_result(Place p, uint row, uint out_, float acc)
{
    if (row >= p.n_rows || out_ >= p.n_out) return;
    F32 y = F32(p.y + (uint64_t(row) * p.y_stride + out_) * 4ul);
    acc = acc * p.scale;
    if (p.bias != 0ul) acc = acc + F32(p.bias).v[out_];
    y.v[0] = p.add != 0 ? y.v[0] + acc : acc;
}
