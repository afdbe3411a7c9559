/* device.h - the devices that a model can run on, by name.
 *
 * Owns the list: a backend is entered in device.c and nowhere else. What a backend offers is in backend/backend.h.
 */
#ifndef AE_DEVICE_DEVICE_H
#define AE_DEVICE_DEVICE_H

#include "backend/backend.h"

/* A backend by name:
 *   cpu         this machine's processor
 *   cpu-strict  the same, but only operations can touch device memory: anything else that does is stopped by a signal.
 *               For tests. Weights that are used where they lie in the file are not covered.
 * NULL or "": what the environment variable AERIE_BACKEND says, or cpu. cpu_level names the highest kernel level of
 * the processor to use ("ref", "avx2", "avx512", ...); NULL or "" = the best it has. ARGUMENT for an unknown name or level (the
 * known ones are listed), and for one that this machine lacks. */
aerie_status ae_backend_open(ae_backend **out, const char *name, const char *cpu_level, aerie_error *error);
/* "cpu, cpu-strict". Static storage. */
const char *ae_backend_names(void);

#endif
