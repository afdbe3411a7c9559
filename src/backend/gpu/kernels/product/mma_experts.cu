/* mma_experts.cu - products of experts by mma: the kernels of mma.h over the experts that rows have chosen. */
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/product/mma.h"

/* Fills in the jobs of an expert, which only the device knows. Returns false if this block has nothing to do. */
AE_DEV bool experts_jobs(const ae_gpu_expert_args &a, const uint8_t *x, uint32_t block_rows, ae_mma_args *m)
{
    if (ae_block_z() >= *a.n_active) return false;
    const ae_gpu_active active = a.active[ae_block_z()];
    const uint32_t e = active.expert - a.first_expert;
    if (e >= AE_GPU_EXPERTS || ae_block_x() * block_rows >= active.n_rows) return false;
    m->n_jobs = a.n_jobs;
    m->n_rows = active.n_rows;
    m->n_records = a.n_records;
    m->group_bytes = a.group_bytes;
    m->each = 1;
    m->early = 0;
    AE_UNROLL
    for (uint32_t j = 0; j < 2; j++) {
        const ae_gpu_expert_job &from = a.job[j];
        ae_mma_job *to = &m->job[j];
        to->weight = from.base + (size_t)from.offset[e] * 64;
        to->rows = x + (size_t)(a.one_row ? 0 : active.first_row / AE_GPU_TILE) * a.group_bytes;
        to->y = from.y + (size_t)active.first_row * from.n_out;
        to->bias = from.bias ? from.bias + (size_t)active.expert * from.n_out : NULL;
        to->n_out = to->y_stride = from.n_out;
        to->end = from.end;
        to->add = 0;
        to->has_scale = 1;
        to->scale = from.scale[e];
    }
    return true;
}

#define KERNEL(name, NAME, c, team, run, stages) \
    AE_KERNEL(experts_mma_##name##_##c, ae_gpu_expert_args, AE_MMA_THREADS) \
    { \
        AE_SHARED(shared); \
        ae_mma_args m = {}; \
        if (!experts_jobs(a, ae_mma_form<AE_MMA_##NAME>::wide ? a.rows.r256 : a.rows.r32, 8 * c, &m)) return; \
        ae_mma_product<AE_MMA_##NAME, c, run, team, stages>(&m, shared); \
    }
/* Experts have few rows each: of the variants, the one for 8 rows with four warps of a team, and that for 32 rows. */
#define KERNEL_1_8(...)
#define KERNEL_1_4(...) KERNEL(__VA_ARGS__)
#define KERNEL_1_1(...)
#define KERNEL_2_2(...)
#define KERNEL_2_1(...)
#define KERNEL_4_1(...) KERNEL(__VA_ARGS__)
#define VARIANT(name, NAME, c, team, run, stages, most) KERNEL_##c##_##team(name, NAME, c, team, run, stages)

AE_MMA_ALL_32(VARIANT)
AE_MMA_ALL_256(VARIANT)
