/* head_int.h - how a head's file is read. Private to src/draft/head. */
#ifndef AE_DRAFT_HEAD_HEAD_INT_H
#define AE_DRAFT_HEAD_HEAD_INT_H

#include "model/bind.h"
#include "draft/head/head.h"

/* Reads hyper-parameters: from keys, and from the shapes of tensors if there is no key. */
aerie_status ae_dhead_read_hparams(ae_binder *b, ae_dhead *head);
/* Reads the list of the target's layers that are tapped. */
aerie_status ae_dhead_read_taps(ae_binder *b, ae_dhead_hparams *h);
/* bind_block.c: binds all of head->gguf, the file of a block drafter. */
aerie_status ae_dhead_bind_block(ae_dhead *head, const ae_arch *arch, aerie_error *error);
/* bind_lattice.c: binds the keys and tensors that LiLiCorr has in addition to DFlash's. */
aerie_status ae_dhead_bind_lattice(ae_binder *b, ae_dhead *head);
/* Reads d2t, if there is one, as target ids into head->to_target. Must be called after the hyper-parameters are read. */
aerie_status ae_dhead_read_map(ae_binder *b, ae_dhead *head);
/* Returns the tensor d2t under either of its names; NULL if there is none. */
ae_tensor_ref ae_dhead_find_map(const ae_gguf *gguf);

#endif
