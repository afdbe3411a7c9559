/* limit.h - how long the GPU drivers wait for a device, which may hang.
 *
 * Owns nothing; stream.c has the functions. A driver waits until the queue is empty, or until the device has made no progress
 * for the limit. After that it gives the device up: calls fail, and what the device may still be writing to is not given back
 * while it does.
 */
#ifndef AE_BACKEND_GPU_LIMIT_H
#define AE_BACKEND_GPU_LIMIT_H

#include <stdbool.h>

#include "base/err.h"

#define AE_GPU_LIMIT 120.0 /* seconds, for devices that are not the processor */

/* Returns the limit in seconds; 0: none. AERIE_GPU_LIMIT says, or `otherwise` holds. */
double ae_gpu_limit(double otherwise);
/* Between two looks at a device that the caller has waited for since `start` (ae_time_now): returns at once in the first 20 ms,
 * and sleeps for a moment later. Returns false if the limit is over. */
bool ae_gpu_pause(double start, double limit);
/* Returns the failure: INTERNAL, "the device made no progress for 120 s and is given up ...". */
aerie_status ae_gpu_hung(double limit, aerie_error *error);

#endif
