/* product_int.h - functions of products that product.c and moe.c share. */
#ifndef AE_BACKEND_GPU_PRODUCT_INT_H
#define AE_BACKEND_GPU_PRODUCT_INT_H

#include "backend/gpu/gpu.h"
#include "backend/gpu/weight.h"

#define AE_GPU_SPARE_TILES 8 /* kernels by matrix instructions read up to 64 rows past the last one */

static inline uint32_t ceil_div(size_t a, size_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

/* Lays out the memory of n_rows prepared rows of up to max_in columns. */
void ae_gpu_rows_layout(ae_layout *layout, size_t n_rows, size_t max_in, ae_gpu_rows *rows);
/* Returns n_rows rows of n_in columns in the memory of `room`. */
ae_gpu_rows ae_gpu_rows_of(const ae_gpu_rows *room, uint32_t n_rows, uint32_t n_in);

/* How rows are prepared; ae_gpu_activation_args explains the last fields. */
typedef struct ae_gpu_preparation {
    const ae_matmul *input;  /* only the fields of the input and n_rows are read */
    uint32_t want;           /* AE_GPU_WANT_..., or-ed */
    uint32_t n_heads;        /* 0: 1 */
    size_t x_step;           /* distance of x from head to head, in floats */
    const uint32_t *slots;
    uint32_t shares;
    const float *factor;
} ae_gpu_preparation;

void ae_gpu_prepare(ae_stream *stream, const ae_gpu_preparation *preparation, const ae_gpu_rows *rows);
/* Returns the forms in which the weights need their rows (AE_GPU_WANT_..., or-ed). */
uint32_t ae_gpu_wants(const ae_matmul *args);
/* Multiplies prepared rows by all weights of args, of which it reads only n_rows and the weights. */
void ae_gpu_multiply(ae_stream *stream, const ae_matmul *args, const ae_gpu_rows *rows);

/* A kernel for products, and the share of one of its blocks. */
typedef struct ae_gpu_form_kernel {
    ae_gpu_kernel kernel;
    uint32_t n_out, n_rows; /* of a block */
    uint32_t n_shared;
} ae_gpu_form_kernel;

/* Returns the kernel for experts of a generic form. */
ae_gpu_form_kernel ae_gpu_experts_kernel(ae_gpu_form form);

/* moe.c */
void ae_gpu_moe_layout(ae_layout *layout, const ae_stream_options *options, ae_gpu_product_scratch *scratch);

#endif
