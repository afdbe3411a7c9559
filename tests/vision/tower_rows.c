/* tower_rows.c - the rows that a vision encoder computes of a picture, for comparing with other programs (check_towers.py).
 *
 *     tower_rows MMPROJ WIDTH HEIGHT [PIXELS OUT [LEVEL [THREADS]]]
 *
 * PIXELS: a file of [height][width][3] bytes. OUT gets the rows as f32. Prints views, rows, numbers of a row; without PIXELS
 * only these. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"
#include "device/device.h"
#include "engine/tower.h"

static int failed(const aerie_error *error)
{
    fprintf(stderr, "tower_rows: %s\n", error->text);
    return 1;
}

static int count(const char *path, uint32_t w, uint32_t h)
{
    aerie_error error = {0};
    ae_tower_model *model;
    ae_tower_plan plan;
    if (ae_tower_model_load(&model, path, true, &error) != AERIE_OK) return failed(&error);
    if (ae_tower_plan_make(model, w, h, &plan, &error) != AERIE_OK) return failed(&error);
    printf("%u %u %u\n", plan.n_views, ae_tower_plan_rows(model, &plan), model->n_out * (1 + model->n_deep));
    ae_tower_model_free(model);
    return 0;
}

int main(int argc, char **argv)
{
    aerie_error error = {0};
    ae_tower_model *model;
    ae_tower_plan plan;
    ae_backend *backend;
    ae_pool *pool;
    ae_tower *tower;
    ae_image image;
    if (argc == 4) return count(argv[1], (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    if (argc < 6 || argc > 8) return fputs("usage: tower_rows MMPROJ WIDTH HEIGHT [PIXELS OUT [LEVEL [THREADS]]]\n", stderr), 2;
    const uint32_t w = (uint32_t)atoi(argv[2]), h = (uint32_t)atoi(argv[3]), n_threads = argc > 7 ? (uint32_t)atoi(argv[7]) : 2;
    const ae_image_limits limits = ae_image_limits_default();
    uint8_t *rgb = calloc((size_t)w * h, 3);
    FILE *f = fopen(argv[4], "rb");
    if (!rgb || !f || fread(rgb, 3, (size_t)w * h, f) != (size_t)w * h) return fputs("tower_rows: no such pixels\n", stderr), 1;
    fclose(f);
    if (ae_image_from_rgb(&image, w, h, rgb, &limits, &error) != AERIE_OK) return failed(&error);
    if (ae_tower_model_load(&model, argv[1], false, &error) != AERIE_OK) return failed(&error);
    if (ae_tower_plan_make(model, w, h, &plan, &error) != AERIE_OK) return failed(&error);
    const uint32_t n_rows = ae_tower_plan_rows(model, &plan), n_out = model->n_out * (1 + model->n_deep);
    if (ae_backend_open(&backend, NULL, argc > 6 ? argv[6] : "", &error) != AERIE_OK) return failed(&error);
    if (ae_pool_create(&pool, n_threads, &error) != AERIE_OK) return failed(&error);
    const ae_load_options how = {.n_threads = n_threads};
    if (ae_tower_create(&tower, model, backend, &how, pool, &error) != AERIE_OK) return failed(&error);
    const size_t n = (size_t)n_rows * n_out;
    float *rows = calloc(n, sizeof *rows);
    if (!rows || ae_tower_run(tower, &image, &plan, rows, NULL, NULL, &error) != AERIE_OK) return failed(&error);
    f = fopen(argv[5], "wb");
    if (!f || fwrite(rows, sizeof *rows, n, f) != n || fclose(f)) return fputs("tower_rows: cannot write\n", stderr), 1;
    printf("%u %u %u\n", plan.n_views, n_rows, n_out);
    ae_tower_free(tower);
    ae_pool_free(pool);
    ae_backend_close(backend);
    ae_image_free(&image);
    free(rows);
    free(rgb);
    return 0;
}
