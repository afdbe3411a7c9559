/* timing.c - times by size: recording, order statistics, interpolation (timing.h). */
#include "speculate/control/timing.h"

#define N_TRUSTED 3 /* measurements after which a time is trusted */
#define FRESH 512   /* rounds that a time is remembered for */
#define FRESH_FEW 64 /* the same, for a time that was measured less than N_TRUSTED times */
#define DOUBT 16.0f /* rounds after which a time that is not trusted has a quarter of its weight */
#define DOUBT_TRUSTED 192.0f /* the same for trusted times, so that a size that seems expensive is tried again */
#define STEP 0.03   /* share of the time that one more row adds: the guess while nothing larger was measured */
#define STEP_SHARE 0.5  /* the guess for large sizes, where STEP would be more: this share of proportional growth */
#define KNEE 16         /* beyond this size, and twice the largest measured one, time is assumed to grow in proportion */
#define APART 0.75      /* sizes whose ratio is at most this are far enough apart to show the slope of larger ones */
#define LEAST_SHARE 0.3 /* least slope of large sizes, as a share of proportional growth: arithmetic bounds them */

static uint32_t bin_of(uint32_t size)
{
    if (size <= AE_TIME_EXACT) return size ? size - 1 : 0;
    uint32_t octave = 0, top = AE_TIME_EXACT;
    while (size > 2 * top && octave < 12) top *= 2, octave++;
    const uint32_t width = top / 8, part = size > 2 * top ? 7 : (size - top - 1) / width;
    return AE_TIME_EXACT + 8 * octave + part;
}

/* Returns the lower quartile. */
static float typical_of(const float *x, uint32_t n)
{
    float sorted[AE_TIME_SAMPLES];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > x[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = x[i];
    }
    return sorted[n / 4];
}

void ae_curve_add(ae_curve *curve, uint32_t size, double seconds, uint32_t clock)
{
    if (!size || !(seconds > 0)) return;
    ae_times *t = &curve->bin[bin_of(size)];
    if (clock - t->last > FRESH) t->n_seen = 0; /* older times are not comparable */
    const uint32_t i = t->n_seen++ % AE_TIME_SAMPLES;
    t->seconds[i] = (float)seconds;
    t->size[i] = (float)size;
    t->last = clock;
    const uint32_t n = t->n_seen < AE_TIME_SAMPLES ? t->n_seen : AE_TIME_SAMPLES;
    float sum = 0;
    for (uint32_t j = 0; j < n; j++) sum += t->size[j];
    t->typical = typical_of(t->seconds, n);
    t->typical_size = sum / (float)n;
}

void ae_curve_forget(ae_curve *curve, uint32_t after, uint32_t except)
{
    for (uint32_t b = 0; b < AE_TIME_BINS; b++)
        if (b != bin_of(except) && curve->bin[b].last > after) curve->bin[b].n_seen = 0;
}

const ae_times *ae_curve_times(const ae_curve *curve, uint32_t size)
{
    return &curve->bin[bin_of(size)];
}

bool ae_times_trusted(const ae_times *t, uint32_t clock)
{
    return t->n_seen >= N_TRUSTED && clock - t->last <= FRESH;
}

/* Returns the seconds that one more adds, beyond the line's last point. */
static double slope_beyond(const ae_line *line)
{
    const uint32_t i = line->n - 1;
    const double size = (double)line->size[i], t = (double)line->seconds[i];
    double slope = STEP * t, least = 0;
    if (slope > STEP_SHARE * t / size) slope = STEP_SHARE * t / size;
    if (size < 16) slope = STEP * t;
    uint32_t j = i ? i - 1 : 0; /* the difference of two near sizes is mostly noise */
    while (j && (double)line->size[j] > APART * size) j--;
    if (i) slope = (size < AE_TIME_EXACT ? 0.5 : 1.0) * (t - (double)line->seconds[j]) / (size - (double)line->size[j]);
    if (size >= AE_TIME_EXACT) least = LEAST_SHARE * t / size;
    if (slope > t / size) slope = t / size; /* twice the work takes at most twice the time */
    return slope > least ? slope : least;
}

double ae_line_at(const ae_line *line, double size)
{
    if (!line->n) return 0;
    const double first = (double)line->size[0];
    if (size <= first) return (double)line->seconds[0] * (1 - 0.5 * (first - size) / first); /* halfway to proportional */
    uint32_t i = 1, end = line->n; /* of the first point that is not smaller */
    while (i < end) {
        const uint32_t middle = (i + end) / 2;
        if ((double)line->size[middle] < size) i = middle + 1;
        else end = middle;
    }
    if (i == line->n) {
        const double last = (double)line->size[i - 1], knee = 2 * last > KNEE ? 2 * last : KNEE;
        const double t = (double)line->seconds[i - 1] + slope_beyond(line) * ((size < knee ? size : knee) - last);
        return size < knee ? t : t * size / knee;
    }
    const double a = (double)line->size[i - 1], b = (double)line->size[i];
    const double low = (double)line->seconds[i - 1], high = (double)line->seconds[i];
    return low + (high - low) * (size - a) / (b - a);
}

/* Returns an upper bound: the work can be split into several runs of the line's last size. */
static float most_after(const ae_line *line, float size)
{
    const float last = line->size[line->n - 1], goes = size / last;
    return line->seconds[line->n - 1] * (goes > (float)(uint32_t)goes ? (float)(uint32_t)goes + 1 : goes);
}

static void make_line(const ae_curve *curve, uint32_t clock, bool doubt_first, bool doubt_old, ae_line *line)
{
    line->n = 0;
    for (uint32_t b = 0; b < AE_TIME_BINS; b++) {
        const ae_times *t = &curve->bin[b];
        if (!t->n_seen || clock - t->last > (t->n_seen < N_TRUSTED ? FRESH_FEW : FRESH)) continue;
        float seconds = t->typical;
        if (line->n || doubt_first) {
            const bool trusted = t->n_seen >= N_TRUSTED;
            const float hope = line->n ? (float)ae_line_at(line, (double)t->typical_size) : trusted ? seconds : seconds / 4;
            const float age = trusted && !doubt_old ? 0 : (float)(clock - t->last), doubt = trusted ? DOUBT_TRUSTED : DOUBT;
            const float young = doubt / (doubt + age);
            const float weight = (trusted ? 1.0f : t->n_seen == 2 ? 0.75f : 0.5f) * young * young;
            const float most = line->n && !trusted ? most_after(line, t->typical_size) : seconds;
            if (seconds > most) seconds = most;
            if (seconds > hope) seconds = hope + (seconds - hope) * weight;
        }
        line->size[line->n] = t->typical_size;
        line->seconds[line->n++] = seconds;
    }
    for (uint32_t i = line->n; i-- > 1;)
        if (line->seconds[i - 1] > line->seconds[i]) line->seconds[i - 1] = line->seconds[i];
}

void ae_curve_line(const ae_curve *curve, uint32_t clock, bool doubt_first, ae_line *line)
{
    make_line(curve, clock, doubt_first, true, line);
}

void ae_curve_sure_line(const ae_curve *curve, uint32_t clock, bool doubt_first, ae_line *line)
{
    make_line(curve, clock, doubt_first, false, line);
}

void ae_line_extend(ae_line *line, const ae_line *other)
{
    const double last = line->n ? (double)line->size[line->n - 1] : 0;
    const double ratio = line->n && other->n ? (double)line->seconds[line->n - 1] / ae_line_at(other, last) : 1;
    for (uint32_t i = 0; i < other->n && line->n < AE_TIME_BINS; i++) {
        if ((double)other->size[i] <= last) continue;
        line->size[line->n] = other->size[i];
        line->seconds[line->n++] = (float)(ratio * (double)other->seconds[i]);
    }
}

void ae_line_append(ae_line *line, const ae_line *other)
{
    for (uint32_t i = 0; i < other->n && line->n && line->n < AE_TIME_BINS; i++) {
        const uint32_t last = line->n - 1;
        if (other->size[i] < 2 * line->size[last] || other->seconds[i] < line->seconds[last]) continue;
        line->size[line->n] = other->size[i];
        line->seconds[line->n++] = other->seconds[i];
    }
}
