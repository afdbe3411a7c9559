/* heap.h - one step of a heap in an array, for any type of item and any order.
 *
 * Owns: the step. The callers keep the array, fill it, and build their lists and queues of it.
 */
#ifndef AE_BASE_HEAP_H
#define AE_BASE_HEAP_H

#include <stddef.h>

/* Defines static void name(type *heap, size_t n, size_t i, const void *context): the item at i sinks until it stands above all
 * its children; those below i + 1 are heaps already. Node i has `ways` children, from ways * i + 1 on.
 * above(context, a, b), pointers to items: whether a must stand above b. */
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
