/* lanes_plain.c - the searches of lanes.h for any machine: sixteen floats as four vectors of four, for which compilers use SSE2
 * or NEON registers. */
#include <math.h>
#include <string.h>

#include "quant/encode/lanes.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif
#define LEVEL(name) name##_plain
#define LEVEL_NAME "plain"

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

typedef struct v16 {
    f4 a, b, c, d;
} v16;
typedef struct m16 { /* -1 or 0 in each lane */
    i4 a, b, c, d;
} m16;

/* applies f to each quarter of x, of x and y, or of three vectors */
#define EACH1(type, f, x) ((type){f(x.a), f(x.b), f(x.c), f(x.d)})
#define EACH2(type, f, x, y) ((type){f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)})
#define EACH3(type, f, x, y, z) ((type){f(x.a, y.a, z.a), f(x.b, y.b, z.b), f(x.c, y.c, z.c), f(x.d, y.d, z.d)})

INLINE f4 select4(i4 m, f4 x, f4 y) { return (f4)((m & (i4)x) | (~m & (i4)y)); }
#define ADD4(x, y) ((x) + (y))
#define SUB4(x, y) ((x) - (y))
#define MUL4(x, y) ((x) * (y))
#define DIV4(x, y) ((x) / (y))
#define MAX4(x, y) select4((x) > (y), x, y)
#define MIN4(x, y) select4((x) < (y), x, y)
#define GT4(x, y) ((x) > (y))
#define GE4(x, y) ((x) >= (y))
#define EQ4(x, y) ((x) == (y))
#define AND4(x, y) ((x) & (y))
#define OR4(x, y) ((x) | (y))
#define NOT4(x) (~(x))
#define ABS4(x) ((f4)((i4)(x) & INT32_MAX))
#define ADD_IF4(x, m, y) ((x) + (f4)((m) & (i4)(y)))

INLINE f4 floor4(f4 x) /* for numbers in the range of int32 */
{
    const f4 whole = __builtin_convertvector(__builtin_convertvector(x, i4), f4);
    return whole - (f4)((whole > x) & (i4)(f4){1.0f, 1.0f, 1.0f, 1.0f});
}

INLINE f4 load4(const float *p)
{
    f4 x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE v16 v_set1(float x)
{
    const f4 all = {x, x, x, x};
    return (v16){all, all, all, all};
}
INLINE v16 v_load(const float *p) { return (v16){load4(p), load4(p + 4), load4(p + 8), load4(p + 12)}; }
INLINE void v_store(float *p, v16 x) { memcpy(p, &x, sizeof x); }
INLINE v16 v_add(v16 x, v16 y) { return EACH2(v16, ADD4, x, y); }
INLINE v16 v_sub(v16 x, v16 y) { return EACH2(v16, SUB4, x, y); }
INLINE v16 v_mul(v16 x, v16 y) { return EACH2(v16, MUL4, x, y); }
INLINE v16 v_div(v16 x, v16 y) { return EACH2(v16, DIV4, x, y); }
INLINE v16 v_abs(v16 x) { return EACH1(v16, ABS4, x); }
/* x > y ? x : y and x < y ? x : y, so y where either is NaN */
INLINE v16 v_max(v16 x, v16 y) { return EACH2(v16, MAX4, x, y); }
INLINE v16 v_min(v16 x, v16 y) { return EACH2(v16, MIN4, x, y); }
INLINE v16 v_floor(v16 x) { return EACH1(v16, floor4, x); }
INLINE m16 v_gt(v16 x, v16 y) { return EACH2(m16, GT4, x, y); }
INLINE m16 v_ge(v16 x, v16 y) { return EACH2(m16, GE4, x, y); }
INLINE m16 v_eq(v16 x, v16 y) { return EACH2(m16, EQ4, x, y); }
INLINE m16 m_and(m16 x, m16 y) { return EACH2(m16, AND4, x, y); }
INLINE m16 m_or(m16 x, m16 y) { return EACH2(m16, OR4, x, y); }
INLINE m16 m_not(m16 x) { return EACH1(m16, NOT4, x); }
INLINE bool m_any(m16 x)
{
    const i4 any = x.a | x.b | x.c | x.d;
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}
/* x where m, else y; x + y where m, else x */
INLINE v16 v_select(m16 m, v16 x, v16 y) { return EACH3(v16, select4, m, x, y); }
INLINE v16 v_add_if(v16 x, m16 m, v16 y) { return EACH3(v16, ADD_IF4, x, m, y); }

/* table[(int)i] for indices 0 to 15 */
INLINE v16 v_look_up(const float *table, v16 i)
{
    float out[16];
    v_store(out, i);
    for (int l = 0; l < 16; l++) out[l] = table[(int)out[l]];
    return v_load(out);
}

/* Stores integers as bytes. */
INLINE void v_store_bytes(int8_t *p, v16 x)
{
    float whole[16];
    v_store(whole, x);
    for (int l = 0; l < 16; l++) p[l] = (int8_t)whole[l];
}

INLINE v16 v_load_bytes(const int8_t *p)
{
    float out[16];
    for (int l = 0; l < 16; l++) out[l] = p[l];
    return v_load(out);
}

#include "quant/encode/lane_search.inc"
