/* alloc_fail.h - the message for memory that a backend's alloc did not give. */
#ifndef AE_BACKEND_ALLOC_FAIL_H
#define AE_BACKEND_ALLOC_FAIL_H

#include "backend/backend.h"

/* Fills in MEMORY and a sentence, and returns it: there is too little for `what`, or `bytes` are more than one block of the
 * backend's memory may have. */
aerie_status ae_backend_fail_alloc(const ae_backend *backend, const char *what, size_t bytes, aerie_error *error);

#endif
