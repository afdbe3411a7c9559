/* exam.h - the examination's inputs and results: for exam.c, and for tests. No device is needed. */
#ifndef AE_BACKEND_GPU_VULKAN_EXAM_H
#define AE_BACKEND_GPU_VULKAN_EXAM_H

#include "backend/gpu/vulkan/vulkan.h"

#define AE_VK_EXAM_N 8192u          /* elements */
#define AE_VK_EXAM_OPERATIONS 19u   /* of shaders/exam.comp, in its order */

/* Writes bit patterns for three operands, [AE_VK_EXAM_N] each. */
void ae_vk_exam_inputs(uint32_t *a, uint32_t *b, uint32_t *c);
/* Computes the expected results [AE_VK_EXAM_OPERATIONS][AE_VK_EXAM_N] on the CPU. */
void ae_vk_exam_expect(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *results);
/* Returns the operations of which any result differs, as bits. All NaNs are equal. */
uint32_t ae_vk_exam_compare(const uint32_t *want, const uint32_t *got);
/* Returns the name of operation i, for messages. */
const char *ae_vk_exam_name(uint32_t i);
/* Returns which repairs the differences call for: 1 for fma, 2 for division and square roots. */
uint32_t ae_vk_exam_repairs(uint32_t differing);

#endif
