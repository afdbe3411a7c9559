/* head_int.h - shared by head*.c. */
#ifndef AE_MODEL_HEAD_INT_H
#define AE_MODEL_HEAD_INT_H

#include "model/bind.h"
#include "model/head.h"

/* Hyper-parameters: the keys, and the sizes that tensors' shapes say where no key does. */
aerie_status ae_head_read_hparams(ae_binder *b, ae_head *head);
/* d2t, if there is one, as target ids: head->to_target. After the hyper-parameters. */
aerie_status ae_head_read_map(ae_binder *b, ae_head *head);
/* The tensor d2t under either of its names; NULL if there is none. */
ae_tensor_ref ae_head_find_map(const ae_gguf *gguf);

#endif
