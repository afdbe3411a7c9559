/* limit.h - how long the GPU drivers wait for a device that may hang.
 * Owns nothing; stream.c defines the functions. A driver waits until the queue is empty, or until the device has made no
 * progress for the limit. Then it gives the device up: calls fail, and memory that the device may still write to is not freed
 * as long as the device hangs. */
#ifndef AE_BACKEND_GPU_LIMIT_H
#define AE_BACKEND_GPU_LIMIT_H

#include <stdbool.h>

#include "base/err.h"

#define AE_GPU_LIMIT 120.0 /* seconds; for devices other than the CPU */

/* Returns the limit in seconds, 0 for none: the value of AERIE_GPU_LIMIT if it is set, else `otherwise`. */
double ae_gpu_limit(double otherwise);
/* Pauses between two looks at a device that the caller has been waiting for since `start` (ae_time_now): returns at once in the
 * first 20 ms, later it sleeps for a moment. Returns false once the limit is over. */
bool ae_gpu_pause(double start, double limit);
/* Fills *error with "the device made no progress for 120 s and is given up ..." and returns INTERNAL. */
aerie_status ae_gpu_hung(double limit, aerie_error *error);

#endif
