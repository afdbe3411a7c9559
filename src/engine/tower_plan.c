/* tower_plan.c - which pixels an encoder sees of a picture, and the text around its rows (tower.h). Owns nothing.
 *
 * Source: the published processors (transformers, PIL backend): Gemma3ImageProcessor, Idefics3ImageProcessor,
 * PixtralImageProcessor, and the prompts that their processors write. */
#include <math.h>

#include "engine/tower.h"

#define MAX_VIEWS 256

/* Sides after the longer one has become `longest`, as Idefics3 counts: the other is cut to a whole number and made even. */
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

/* Both sides become whole numbers of tiles, the longer one first. */
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

aerie_status ae_tower_plan_make(const ae_tower_model *m, uint32_t width, uint32_t height, ae_tower_plan *p, aerie_error *error)
{
    const uint32_t s = m->image_size;
    *p = (ae_tower_plan){.width = s, .height = s, .n_views = 1, .view_width = s, .view_height = s};
    if (!width || !height) return ae_fail(error, AERIE_ERROR_ARGUMENT, "a picture without pixels (%u x %u)", width, height);
    if (m->type->size == AE_TOWER_TILES) plan_tiles(m, width, height, p);
    if (m->type->size == AE_TOWER_ANY) plan_any(m, width, height, p);
    if (p->n_views > MAX_VIEWS)
        return ae_fail(error, AERIE_ERROR_LIMIT, "a picture of %u x %u pixels makes %u tiles; %d are possible", width, height,
                       p->n_views, MAX_VIEWS);
    const uint32_t unit = m->patch * m->merge, across = p->view_width / unit, down = p->view_height / unit;
    p->n_rows = across * down + (m->row_break ? down - 1 : 0);
    return AERIE_OK;
}

void ae_tower_text(const ae_tower_model *m, const ae_tower_plan *p, uint32_t i, ae_buf *out)
{
    if (m->type->size != AE_TOWER_TILES) {
        if (i == 0) ae_buf_adds(out, m->type->begin);
        if (i == p->n_views) ae_buf_adds(out, m->type->end);
        return;
    }
    if (i == p->n_views) {
        ae_buf_adds(out, m->type->end);
    } else if (i + 1 == p->n_views) {
        if (p->n_across) ae_buf_adds(out, "\n\n");
        ae_buf_adds(out, "<fake_token_around_image><global-img>");
    } else {
        if (i && i % p->n_across == 0) ae_buf_adds(out, "\n");
        ae_buf_addf(out, "<fake_token_around_image><row_%u_col_%u>", i / p->n_across + 1, i % p->n_across + 1);
    }
}
