/* commands.h - the subcommands. Each returns the program's exit status. */
#ifndef AERIE_APP_CLI_COMMANDS_H
#define AERIE_APP_CLI_COMMANDS_H

#include "cli/options.h"

int app_run(const app_options *options);
int app_chat(const app_options *options); /* aerie run calls it on a terminal without a prompt */
void app_print_chat_commands(void);       /* prints the list of /help in a chat to standard output */
int app_serve(const app_options *options);
/* The word with which the program starts itself to decode an image for the server. Returns the exit status. */
#define APP_DECODE_IMAGE "--decode-image"
int app_decode_image(void);
int app_router(const app_options *options);
int app_embed(const app_options *options);
int app_tokenize(const app_options *options);
int app_template(const app_options *options);
int app_inspect(const app_options *options);
int app_convert(const app_options *options);
int app_pull(const app_options *options);
int app_list(const app_options *options);
int app_remove(const app_options *options);
int app_perplexity(const app_options *options);
int app_imatrix(const app_options *options);
int app_quantize(const app_options *options);
bool app_quantize_knows(const char *type); /* whether quantize has this mix or type; bench study checks --types with it */
/* Quantizes the model of the options to the file `out`, without a report. */
int app_quantize_file(const app_options *options, const char *out, const char *type);
void app_quantize_types(void); /* prints the list of mixes and types at the end of quantize's --help */
int app_bench_speed(const app_options *options);
int app_bench_verify(const app_options *options);
int app_bench_spec(const app_options *options);
int app_bench_study(const app_options *options);
int app_bench_shapes(const app_options *options);
int app_bench_logits(const app_options *options);
int app_train_data(const app_options *options);
int app_doctor(const app_options *options);

/* pull.c: replaces the references (hf:..., ollama:..., addresses) in -m, -md, -hf, -hfd, -mu and inspect's argument with paths
 * of files, and pulls those that are missing. The options own the paths. */
int app_pull_models(app_options *options);

/* version.c: returns the best kernel level on this machine, such as "avx2". */
const char *app_cpu_level(void);
/* version.c: returns the commit of this build, or a few words if it is unknown. */
const char *app_commit(void);
/* version.c: returns CMake's build type. */
const char *app_build(void);
/* machine.c: writes the CPU's name as the system reports it into out [n]; "" if it is unknown. */
void app_cpu_name(char *out, size_t n);
/* version.c: writes the tensor type that takes most bytes, or "?". Returns the bytes of all tensors in the file, 0 if it cannot
 * be read. */
uint64_t app_main_type(const char *path, char out[16]);
/* version.c: returns the compiler and its version. */
const char *app_compiler(void);
/* inspect.c: returns about how many bytes of weights are read to decode one token; 0: the file cannot be read. */
uint64_t app_bytes_per_token(const char *path);

#endif
