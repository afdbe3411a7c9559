/* emu_kernels.h - kernels that test the emulation (emu_kernels.cu): the arguments of each. */
#ifndef EMU_KERNELS_H
#define EMU_KERNELS_H

#include <stdint.h>

typedef struct emu_mma_args {
    const int8_t *a; /* [16][k] */
    const int8_t *b; /* [8][k]: columns */
    int32_t *c;      /* [16][8] */
    uint32_t k;      /* 16 or 32 */
} emu_mma_args;

typedef struct emu_words_args {
    const uint32_t *in; /* as the kernel says */
    uint32_t *out;
    uint32_t n, what;
} emu_words_args;

/* X(name, struct of arguments, threads of a block) */
#define EMU_KERNELS(X)              \
    X(t_mma, emu_mma_args, 32)      \
    X(t_shfl, emu_words_args, 64)   \
    X(t_words, emu_words_args, 32)  \
    X(t_blocks, emu_words_args, 1)  \
    X(t_sync, emu_words_args, 128)  \
    X(t_bad, emu_words_args, 128)   \
    X(t_few, emu_words_args, 48)    \
    X(t_copy, emu_words_args, 64)   \
    X(t_bars, emu_words_args, 128)  \
    X(t_plain, emu_words_args, 256)

/* what of t_sync: the barrier is there, or forgotten. */
enum { SYNC_RIGHT, SYNC_FORGOTTEN };
/* what of t_bad: rules to break. */
enum { BAD_LINES, BAD_RETURN, BAD_LANE, BAD_KINDS, BAD_ALIGN, BAD_COPY, BAD_BAR, BAD_POST, BAD_COUNT, BAD_NONE };
/* what of t_copy. */
enum { COPY_RIGHT, COPY_TWO_GROUPS, COPY_NOT_WAITED, COPY_NOT_SYNCED };
/* what of t_words. */
enum { WORDS_HALF, WORDS_TO_HALF, WORDS_PERM, WORDS_DP4A, WORDS_FMA };

#endif
