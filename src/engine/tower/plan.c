/* plan.c - which pixels an encoder sees of a picture, and the text around its rows (tower.h). Owns nothing.
 *
 * Source: the published processors (transformers, PIL backend): Gemma3ImageProcessor, Gemma4ImageProcessor,
 * Idefics3ImageProcessor, PixtralImageProcessor, Qwen2VLImageProcessor, GotOcr2ImageProcessor (InternVL),
 * Lfm2VlImageProcessor, Glm4vImageProcessor, PaddleOCRVLImageProcessor, Kimi_K25ImageProcessor, and the prompts that their
 * processors write; LlavaNextImageProcessor; KimiVLImageProcessor, MiniCPMVImageProcessor and LLaVA's expand2square as their
 * authors publish them. */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "engine/tower.h"

#define MAX_VIEWS 256
#define MAX_PATCHES 65536u

/* Scales the sides so that the longer one is `longest`, as Idefics3 does: the other is rounded down and made even. */
static void to_longest(uint32_t w, uint32_t h, uint32_t longest, uint32_t *out_w, uint32_t *out_h)
{
    const double ratio = (double)w / h;
    if (w >= h) {
        *out_w = longest;
        *out_h = (uint32_t)(longest / ratio);
        *out_h += *out_h % 2;
    } else {
        *out_h = longest;
        *out_w = (uint32_t)(longest * ratio);
        *out_w += *out_w % 2;
    }
    if (!*out_w) *out_w = 1;
    if (!*out_h) *out_h = 1;
}

void ae_tower_longest(const ae_tower_model *m, uint32_t width, uint32_t height, uint32_t *to_width, uint32_t *to_height)
{
    to_longest(width, height, m->longest, to_width, to_height);
}

static uint32_t up_to(uint32_t x, uint32_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Rounds both sides up to whole numbers of tiles, the longer one first. */
static void to_tiles(uint32_t s, uint32_t *w, uint32_t *h)
{
    const double ratio = (double)*w / *h;
    if (*w >= *h) {
        *w = up_to(*w, s);
        *h = up_to((uint32_t)(*w / ratio), s);
    } else {
        *h = up_to(*h, s);
        *w = up_to((uint32_t)(*h * ratio), s);
    }
    if (!*w) *w = s;
    if (!*h) *h = s;
}

static void plan_tiles(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const uint32_t s = m->image_size;
    to_longest(width, height, m->longest, &p->width, &p->height);
    to_tiles(s, &p->width, &p->height);
    const uint32_t across = p->width / s, down = p->height / s;
    p->n_views = across * down;
    if (p->n_views <= 1) {
        p->n_views = 1;
        return;
    }
    p->n_across = across;
    p->n_down = down;
    p->n_views++;
}

static void plan_any(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const uint32_t unit = m->patch * m->merge, longer = width > height ? width : height;
    const double ratio = (double)longer / m->image_size;
    if (ratio > 1) {
        width = (uint32_t)floor(width / ratio);
        height = (uint32_t)floor(height / ratio);
    }
    p->width = p->view_width = up_to(width ? width : 1, unit);
    p->height = p->view_height = up_to(height ? height : 1, unit);
    p->n_views = 1;
}

/* Enlarges a picture that is narrower or lower than one token. */
static void enlarge_small(ae_tower_small how, uint32_t unit, uint32_t *width, uint32_t *height)
{
    const double w = *width, h = *height, f = unit;
    if (how == AE_TOWER_SMALL_BOTH && (w < f || h < f)) {
        const double scale = f / h > f / w ? f / h : f / w;
        *width = (uint32_t)(w * scale), *height = (uint32_t)(h * scale);
    } else if (how == AE_TOWER_SMALL_EACH) {
        if (*height < unit) *width = (uint32_t)rint(w * f / h), *height = unit;
        if (*width < unit) *height = (uint32_t)rint(*height * f / *width), *width = unit;
    }
}

/* Finds sides of about the picture's ratio that are multiples of `unit`, with a number of pixels within the limits
 * (smart_resize). Qwen's version may round a short side to 0 before it checks the limits. */
static void smart(uint32_t width, uint32_t height, uint32_t unit, double least, double most, ae_tower_small small, uint32_t *w,
                  uint32_t *h)
{
    const double f = unit;
    enlarge_small(small, unit, &width, &height);
    double down = rint(height / f) * f, across = rint(width / f) * f;
    if (small != AE_TOWER_SMALL_KEEP && down < f) down = f;
    if (small != AE_TOWER_SMALL_KEEP && across < f) across = f;
    if (down * across > most) {
        const double beta = sqrt((double)height * width / most);
        down = floor(height / beta / f) * f;
        across = floor(width / beta / f) * f;
    } else if (down * across < least) {
        const double beta = sqrt(least / ((double)height * width));
        down = ceil(height * beta / f) * f;
        across = ceil(width * beta / f) * f;
    }
    *w = across < f ? unit : (uint32_t)across;
    *h = down < f ? unit : (uint32_t)down;
}

static double token_pixels(const ae_tower_model *m)
{
    const double unit = m->patch * m->merge;
    return unit * unit;
}

static void plan_smart(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    smart(width, height, m->patch * m->merge, m->least_pixels, m->most_pixels, m->type->small, &p->width, &p->height);
    p->view_width = p->width, p->view_height = p->height;
}

enum { FIT_SIDE = 512 }; /* most patches along a side */

void ae_tower_fit(const ae_tower_model *m, uint32_t width, uint32_t height, uint32_t *to_width, uint32_t *to_height)
{
    const double across = width < m->patch ? 1 : width / m->patch, down = height < m->patch ? 1 : height / m->patch;
    const double side = FIT_SIDE * m->patch, longer = width > height ? width : height;
    double scale = sqrt(m->most_pixels / m->patch / m->patch / (across * down));
    if (scale > side / longer) scale = side / longer;
    if (scale > 1) scale = 1;
    *to_width = (uint32_t)(width * scale), *to_height = (uint32_t)(height * scale);
    if (!*to_width) *to_width = 1;
    if (!*to_height) *to_height = 1;
}

static void plan_fit(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    uint32_t w, h;
    ae_tower_fit(m, width, height, &w, &h);
    p->width = p->view_width = up_to(w, m->patch * m->merge);
    p->height = p->view_height = up_to(h, m->patch * m->merge);
}

/* Finds the largest sides with the picture's ratio whose tokens fit the budget. */
static void plan_budget(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    static const uint32_t budgets[] = {1120, 560, 280, 140, 70};
    uint32_t s = m->n_most;
    for (int i = 0; i < 5 && s >= 70; i++)
        if (budgets[i] <= m->n_most) {
            s = budgets[i];
            break;
        }
    const uint32_t unit = m->patch * m->merge;
    const double f = sqrt(s * token_pixels(m) / ((double)width * height));
    uint32_t w = (uint32_t)floor(f * width / unit), h = (uint32_t)floor(f * height / unit);
    if (!h) h = 1, w = width / height < s ? width / height : s;
    if (!w) w = 1, h = height / width < s ? height / width : s;
    p->width = p->view_width = (w ? w : 1) * unit;
    p->height = p->view_height = (h ? h : 1) * unit;
}

/* Finds the grid of `least` to `most` tiles with the nearest ratio. Among equally near grids a later one wins if its tiles have
 * at most twice the pixels of the picture. */
static void nearest_grid(uint32_t width, uint32_t height, uint32_t tile, uint32_t least, uint32_t most, uint32_t *across,
                         uint32_t *down)
{
    const double ratio = (double)width / height, area = (double)width * height;
    double best = INFINITY;
    *across = *down = 1;
    for (uint32_t n = least; n <= most; n++)
        for (uint32_t i = 1; i <= n; i++) {
            if (n % i) continue;
            const double off = fabs(ratio - (double)i / (n / i));
            if (off > best || (off == best && !(area > 0.5 * tile * tile * n))) continue;
            best = off;
            *across = i, *down = n / i;
        }
}

static void plan_grid(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const uint32_t s = m->image_size;
    uint32_t across, down;
    nearest_grid(width, height, s, m->tiles_least, m->tiles_most, &across, &down);
    p->width = across * s, p->height = down * s;
    p->view_width = p->view_height = s;
    if (across * down == 1) return;
    p->n_across = across, p->n_down = down;
    p->n_views = across * down + 1;
}

/* Rounds a length to patches, at least one. */
static double to_patches(double length, double patch)
{
    const double n = rint(length / patch) * patch;
    return n > patch ? n : patch;
}

/* Finds sides of a ratio that have about the pixels of the encoder's square, which is a side's length where it is 1. */
static void of_ratio(double width, double height, double side, double patch, bool enlarge, uint32_t *w, uint32_t *h)
{
    if (enlarge || width * height > side * side) {
        const double ratio = width / height;
        height = trunc(side / sqrt(ratio));
        width = trunc(height * ratio);
    }
    *w = (uint32_t)to_patches(width, patch);
    *h = (uint32_t)to_patches(height, patch);
}

enum { MOST_SLICES = 9 };

static void plan_slices(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const double side = m->image_size, ratio = ae_log((double)width / height);
    const double least = ceil((double)width * height / (side * side));
    const uint32_t multiple = least < MOST_SLICES ? (uint32_t)least : MOST_SLICES;
    double best = INFINITY;
    uint32_t across = 1, down = 1;
    of_ratio(width, height, side, m->patch, multiple <= 1, &p->whole_width, &p->whole_height);
    p->width = p->view_width = p->whole_width, p->height = p->view_height = p->whole_height;
    if (multiple <= 1) return;
    for (uint32_t n = multiple > 2 ? multiple - 1 : 2; n <= multiple + 1 && n <= MOST_SLICES; n++)
        for (uint32_t i = 1; i <= n; i++) {
            const double off = n % i ? INFINITY : fabs(ratio - ae_log((double)i / (n / i)));
            if (off < best) best = off, across = i, down = n / i;
        }
    of_ratio(to_patches(width, across) / across, to_patches(height, down) / down, side, m->patch, true, &p->view_width,
             &p->view_height);
    p->width = across * p->view_width, p->height = down * p->view_height;
    p->n_across = across, p->n_down = down;
    p->n_views = across * down + 1;
    p->whole_first = true;
}

static void plan_grid_smart(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const uint32_t unit = m->patch * m->merge;
    ae_tower_plan whole = *p;
    plan_smart(m, width, height, &whole);
    double w = rint((double)width / unit) * unit, h = rint((double)height / unit) * unit;
    if (w < m->patch) w = m->patch;
    if (h < m->patch) h = m->patch;
    if (w * h > 2.0 * m->n_most * token_pixels(m)) plan_grid(m, width, height, p);
    if (p->n_views == 1) *p = whole;
    p->whole_width = whole.width, p->whole_height = whole.height;
}

void ae_tower_grid_fit(uint32_t width, uint32_t height, const ae_tower_plan *p, uint32_t *to_width, uint32_t *to_height)
{
    const double across = (double)p->width / width, down = (double)p->height / height;
    const bool wide = across < down;
    const double other = ceil(wide ? height * across : width * down), most = wide ? p->height : p->width;
    *to_width = p->width, *to_height = p->height;
    *(wide ? to_height : to_width) = (uint32_t)(other < most ? other : most);
}

/* Tokens on each side of a length of n that the picture does not reach: `scale` times its own length is what it has. */
static uint32_t skipped(uint32_t n, double length, double scale)
{
    const double own = trunc(rint(length * scale * 1e7) / 1e7);
    return own < n ? (uint32_t)(n - own) / 2 : 0;
}

/* Chooses the grid that keeps most of the picture's pixels and, of several, has the fewest others; then counts the tokens
 * outside of the picture. */
static void plan_pinned(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p)
{
    const uint32_t s = m->image_size, side = s / (m->patch * m->merge);
    const double area = (double)width * height;
    double most = 0, least = INFINITY;
    p->n_across = m->grids[0][0], p->n_down = m->grids[0][1];
    for (uint32_t i = 0; i < m->n_grids; i++) {
        const double w = m->grids[i][0] * s, h = m->grids[i][1] * s;
        const double scale = w / width < h / height ? w / width : h / height;
        const double fitted = trunc(width * scale) * trunc(height * scale), kept = fitted < area ? fitted : area;
        const double wasted = w * h - kept;
        if (kept < most || (kept == most && !(wasted < least))) continue;
        most = kept, least = wasted;
        p->n_across = m->grids[i][0], p->n_down = m->grids[i][1];
    }
    p->width = p->n_across * s, p->height = p->n_down * s;
    p->n_views = p->n_across * p->n_down + 1;
    p->whole_first = true;
    if (!m->unpad) return;
    const uint32_t across = p->n_across * side, down = p->n_down * side;
    if ((double)width / height > (double)across / down) p->skip_down = skipped(down, height, (double)across / width);
    else p->skip_across = skipped(across, width, (double)down / height);
}

bool ae_tower_is_whole(const ae_tower_plan *p, uint32_t i)
{
    return p->n_views == 1 || i == (p->whole_first ? 0 : p->n_views - 1);
}

void ae_tower_view(const ae_tower_plan *p, uint32_t i, uint32_t *width, uint32_t *height)
{
    const bool whole = p->n_views > 1 && ae_tower_is_whole(p, i);
    *width = whole ? p->whole_width : p->view_width;
    *height = whole ? p->whole_height : p->view_height;
}

uint32_t ae_tower_view_rows(const ae_tower_model *m, const ae_tower_plan *p, uint32_t i)
{
    const uint32_t unit = m->patch * m->merge;
    uint32_t w, h;
    if (m->n_query) return m->n_query;
    ae_tower_view(p, i, &w, &h);
    if (m->unpad && i > 1) return 0;
    if (m->unpad && i == 1)
        return (p->width / unit - 2 * p->skip_across + 1) * (p->height / unit - 2 * p->skip_down);
    return w / unit * (h / unit) + (m->row_break ? h / unit - 1 : 0);
}

uint32_t ae_tower_plan_rows(const ae_tower_model *m, const ae_tower_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_views; i++) n += ae_tower_view_rows(m, p, i);
    return n;
}

static aerie_status check_plan(const ae_tower_model *m, uint32_t width, uint32_t height, const ae_tower_plan *p,
                               aerie_error *error)
{
    if (p->n_views > MAX_VIEWS)
        return ae_fail(error, AERIE_ERROR_LIMIT, "a picture of %u x %u pixels makes %u tiles; %d are possible", width, height,
                       p->n_views, MAX_VIEWS);
    for (uint32_t i = 0; i < p->n_views; i += p->n_views > 1 ? p->n_views - 1 : 1) {
        uint32_t w, h;
        ae_tower_view(p, i, &w, &h);
        w /= m->patch, h /= m->patch;
        const uint32_t side = w > h ? w : h;
        if ((uint64_t)w * h > MAX_PATCHES)
            return ae_fail(error, AERIE_ERROR_LIMIT, "a picture of %u x %u pixels makes %u x %u patches; %u are possible",
                           width, height, w, h, MAX_PATCHES);
        if (m->type->positions == AE_TOWER_POS_AXES && side > m->n_positions)
            return ae_fail(error, AERIE_ERROR_LIMIT, "a picture of %u x %u pixels makes %u patches in a line; the encoder "
                           "knows %u positions", width, height, side, m->n_positions);
    }
    return AERIE_OK;
}

aerie_status ae_tower_plan_make(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p, aerie_error *error)
{
    const uint32_t s = m->image_size, longer = width > height ? width : height, shorter = width > height ? height : width;
    *p = (ae_tower_plan){.width = s, .height = s, .n_views = 1, .view_width = s, .view_height = s, .whole_width = s,
                         .whole_height = s};
    if (!width || !height) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a picture without pixels (%u x %u)", width, height);
    if (longer / 200 > shorter)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a picture of %u x %u pixels; the longer side may be 200 times the shorter "
                       "one", width, height);
    switch (m->type->size) {
    case AE_TOWER_SQUARE: break;
    case AE_TOWER_PAD:
        if (m->n_grids) plan_pinned(m, width, height, p);
        break;
    case AE_TOWER_TILES: plan_tiles(m, width, height, p); break;
    case AE_TOWER_ANY: plan_any(m, width, height, p); break;
    case AE_TOWER_SMART: plan_smart(m, width, height, p); break;
    case AE_TOWER_FIT: plan_fit(m, width, height, p); break;
    case AE_TOWER_BUDGET: plan_budget(m, width, height, p); break;
    case AE_TOWER_GRID: plan_grid(m, width, height, p); break;
    case AE_TOWER_GRID_SMART: plan_grid_smart(m, width, height, p); break;
    case AE_TOWER_SLICES: plan_slices(m, width, height, p); break;
    }
    return check_plan(m, width, height, p, error);
}

static void tile_text(const ae_tower_plan *p, uint32_t i, const char *tile, const char *whole, ae_buf *out)
{
    if (i + 1 == p->n_views) ae_buf_adds(out, whole);
    else ae_buf_addf(out, "%s%u_col_%u%s", tile, i / p->n_across + 1, i % p->n_across + 1, strchr(tile, '|') ? "|>" : ">");
}

/* MiniCPM-V: the whole picture, then the slices with a line break after each row of them but the last; in 2.5 the slices are
 * marked like the whole picture, between one pair of marks. */
static void slice_text(const ae_tower_plan *p, uint32_t i, bool nested, ae_buf *out)
{
    const char *const begin = nested ? "<image>" : "<slice>", *const end = nested ? "</image>" : "</slice>";
    if (i == 0) ae_buf_adds(out, "<image>");
    if (i == 1) ae_buf_adds(out, "</image>");
    if (i == 1 && nested && p->n_across) ae_buf_adds(out, "<slice>");
    if (i > 1) ae_buf_adds(out, end);
    if (i > 1 && i < p->n_views && (i - 1) % p->n_across == 0) ae_buf_adds(out, "\n");
    if (i > 0 && i < p->n_views) ae_buf_adds(out, begin);
    if (i > 1 && i == p->n_views && nested) ae_buf_adds(out, "</slice>");
}

void ae_tower_text(const ae_tower_model *m, const ae_tower_plan *p, uint32_t i, ae_buf *out)
{
    if (i == 0) ae_buf_adds(out, m->type->begin);
    if (m->type->size == AE_TOWER_SLICES) {
        slice_text(p, i, m->nested, out);
    } else if (i == p->n_views) {
        ae_buf_adds(out, m->type->end);
    } else if (m->type->size == AE_TOWER_TILES) {
        if (i + 1 == p->n_views && p->n_across) ae_buf_adds(out, "\n\n");
        else if (i && i % p->n_across == 0) ae_buf_adds(out, "\n");
        tile_text(p, i, "<fake_token_around_image><row_", "<fake_token_around_image><global-img>", out);
    } else if (m->type->size == AE_TOWER_GRID_SMART && p->n_across) {
        tile_text(p, i, "<|img_row_", "<|img_thumbnail|>", out);
    }
}
