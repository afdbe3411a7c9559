/* heap.h - the sift-down step of a heap in an array, for any item type and any order.
 *
 * Owns: the step. Does not own: the array; the callers fill it and build their lists and queues from it.
 */
#ifndef AE_BASE_HEAP_H
#define AE_BASE_HEAP_H

#include <stddef.h>

/* Defines static void name(type *heap, size_t n, size_t i, const void *context), which moves the item at i down until it is
 * above all its children. The subtrees below i must be heaps already. Node i has `ways` children, from ways * i + 1 on.
 * above(context, a, b) gets pointers to two items and says whether a must be above b. */
#define AE_HEAP_SINK(name, type, ways, above)                                   \
    static void name(type *heap, size_t n, size_t i, const void *context)       \
    {                                                                           \
        const type sinking = heap[i];                                           \
        (void)context;                                                          \
        for (size_t child; (child = (ways) * i + 1) < n;) {                     \
            const size_t end = child + (ways) < n ? child + (ways) : n;         \
            size_t rising = child;                                              \
            while (++child < end)                                               \
                if (above(context, &heap[child], &heap[rising])) rising = child; \
            if (!above(context, &heap[rising], &sinking)) break;                \
            heap[i] = heap[rising];                                             \
            i = rising;                                                         \
        }                                                                       \
        heap[i] = sinking;                                                      \
    }

#endif
