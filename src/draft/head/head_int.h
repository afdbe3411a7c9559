/* head_int.h - shared by dhead*.c. */
#ifndef AE_DRAFT_HEAD_HEAD_INT_H
#define AE_DRAFT_HEAD_HEAD_INT_H

#include "model/bind.h"
#include "draft/head/head.h"

/* Hyper-parameters: the keys, and the sizes that tensors' shapes say where no key does. */
aerie_status ae_dhead_read_hparams(ae_binder *b, ae_dhead *head);
/* The list of the target's layers that are tapped. */
aerie_status ae_dhead_read_taps(ae_binder *b, ae_dhead_hparams *h);
/* bind_block.c: all of a block drafter's file, which head->gguf is. */
aerie_status ae_dhead_bind_block(ae_dhead *head, const ae_arch *arch, aerie_error *error);
/* d2t, if there is one, as target ids: head->to_target. After the hyper-parameters. */
aerie_status ae_dhead_read_map(ae_binder *b, ae_dhead *head);
/* The tensor d2t under either of its names; NULL if there is none. */
ae_tensor_ref ae_dhead_find_map(const ae_gguf *gguf);

#endif
