/* mtmd_rows.c - the rows that llama.cpp's mtmd computes of a picture, for check_mtmd.py, which builds it. Not part of aerie's
 * build.
 *
 *     mtmd_rows MMPROJ MODEL WIDTH HEIGHT [PIXELS OUT]
 *
 * Prints the tokens of each chunk with rows. With PIXELS, a file of [height][width][3] bytes, OUT gets the rows as f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"
#include "mtmd.h"

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 7) return fputs("usage: mtmd_rows MMPROJ MODEL WIDTH HEIGHT [PIXELS OUT]\n", stderr), 2;
    const uint32_t w = (uint32_t)atoi(argv[3]), h = (uint32_t)atoi(argv[4]);
    unsigned char *rgb = calloc((size_t)w * h, 3);
    FILE *file = argc > 5 ? fopen(argv[5], "rb") : NULL;
    if (!rgb || (argc > 5 && (!file || fread(rgb, 3, (size_t)w * h, file) != (size_t)w * h))) return 1;
    llama_log_set(quiet, NULL);
    mtmd_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[2], llama_model_default_params());
    struct mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu = params.warmup = params.print_timings = false;
    params.n_threads = 1;
    mtmd_context *mtmd = model ? mtmd_init_from_file(argv[1], model, params) : NULL;
    if (!mtmd) return fputs("mtmd_rows: mtmd does not load these\n", stderr), 1;
    mtmd_bitmap *bitmap = mtmd_bitmap_init(w, h, file ? rgb : NULL);
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    const struct mtmd_input_text text = {mtmd_default_marker(), strlen(mtmd_default_marker()), false, true};
    const mtmd_bitmap *const bitmaps[] = {bitmap};
    if (mtmd_tokenize(mtmd, chunks, &text, bitmaps, 1)) return fputs("mtmd_rows: mtmd_tokenize fails\n", stderr), 1;
    FILE *out = argc > 6 ? fopen(argv[6], "wb") : NULL;
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
        const mtmd_input_chunk *chunk = mtmd_input_chunks_get(chunks, i);
        if (mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) continue;
        const size_t n = mtmd_input_chunk_get_n_tokens(chunk);
        printf("%zu ", n);
        if (!out) continue;
        if (mtmd_encode_chunk(mtmd, chunk)) return fputs("mtmd_rows: mtmd_encode_chunk fails\n", stderr), 1;
        fwrite(mtmd_get_output_embd(mtmd), sizeof(float), n * (size_t)llama_model_n_embd_inp(model), out);
    }
    putchar('\n');
    return out ? fclose(out) : 0;
}
