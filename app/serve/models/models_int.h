/* models_int.h - what models.c and lost.c share. */
#ifndef AERIE_APP_SERVE_MODELS_MODELS_INT_H
#define AERIE_APP_SERVE_MODELS_MODELS_INT_H

#include "serve/models/models.h"

enum { SERVE_RETRY_SECONDS = 15 }; /* before a model that failed is loaded again */

/* Load or unload a model. Called under the lock, which is released meanwhile. */
void serve_models_load(serve_models *models, serve_model *model);
void serve_models_unload(serve_models *models, serve_model *model);
/* Returns whether the model is loaded, but its passes fail. Called under the lock. */
bool serve_model_is_lost(const serve_model *model);

#endif
