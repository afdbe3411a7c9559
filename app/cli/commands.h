/* commands.h - the subcommands. Each returns the program's exit status. */
#ifndef AERIE_APP_CLI_COMMANDS_H
#define AERIE_APP_CLI_COMMANDS_H

#include "cli/options.h"

int app_run(const app_options *options);
int app_chat(const app_options *options); /* app_run on a terminal without a prompt */
void app_print_chat_commands(void);       /* what /help in a chat lists, to standard output */
int app_serve(const app_options *options);
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
bool app_quantize_knows(const char *type); /* of --types of bench study */
int app_quantize_file(const app_options *options, const char *out, const char *type); /* the model, quietly */
void app_quantize_types(void); /* the list of mixes and types that ends quantize's --help */
int app_bench_speed(const app_options *options);
int app_bench_verify(const app_options *options);
int app_bench_spec(const app_options *options);
int app_bench_study(const app_options *options);
int app_bench_shapes(const app_options *options);
int app_bench_logits(const app_options *options);
int app_train_data(const app_options *options);
int app_doctor(const app_options *options);

/* pull.c: replaces references (hf:..., ollama:..., addresses) of -m, -md, -hf, -hfd, -mu and inspect's argument by the paths of
 * files, which are pulled unless they are there. The paths are owned by the options. */
int app_pull_models(app_options *options);

/* Needs of internals, apart from inspect's: names for reports. */
const char *app_cpu_level(void);
/* The commit that was built, in words where it is not known; CMake's type of build. */
const char *app_commit(void);
const char *app_build(void);                    /* version.c: the best kernels on this machine */
/* machine.c: the processor as the system names it, or "". */
void app_cpu_name(char *out, size_t n);
/* version.c: the tensor type that takes most bytes, or "?"; returns the bytes of all tensors in the file, 0 of none */
uint64_t app_main_type(const char *path, char out[16]);
const char *app_compiler(void);
/* inspect.c: bytes of weights that decoding a token reads, about; 0: the file cannot be read. */
uint64_t app_bytes_per_token(const char *path);

#endif
