/* options_table.c - the table of options (options.h describes its fields), and functions that search it. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

#define COMPARES (APP_BENCH_SPEC | APP_BENCH_STUDY)
#define PROMPTS (APP_RUN | COMPARES) /* commands that take their prompts from options */
#define SPECULATES (PROMPTS | APP_SERVE)
#define GENERATES (SPECULATES | APP_TRAIN_DATA)
#define LOADS APP_LOADS
#define ADAPTS (SPECULATES | APP_BENCH | APP_JUDGES)
#define READS APP_READS
#define ALL (READS | APP_CONVERT)
#define OVERRIDES ((READS & ~APP_INSPECT) | APP_QUANTIZE)

#define AT(field) offsetof(app_options, field)
#define QUANTIZE(field) APP_QUANTIZE, AT(quantize.field), 0, 0, "Quantize"

static const app_option options[] = {
    /* Model */
    {"-m --model", "FILE", APP_TEXT, READS & ~APP_SERVE, AT(model), 0, 0, "Model",
     "model file (GGUF); any part of a split model"},
    {"-m --model", "FILE|NAME=FILE", APP_TEXTS, APP_SERVE, AT(serve.models), 0, 0, "Model",
     "model file (GGUF); may be repeated, each with the name that requests call it by (NAME: the file's name without .gguf, "
     "unless it is given)"},
    {"-md --model-draft --spec-draft-model", "FILE", APP_TEXT, APP_IMATRIX, AT(draft_model), 0, 0, "Model",
     "make the importance matrix of this drafter head for the model"},
    {"-md --model-draft --spec-draft-model", "FILE", APP_TEXT, APP_BENCH_SPEC, AT(draft_model), 0, 0, "Model",
     "draft with a smaller model or with a drafter head for the model; may be repeated, and each --spec-types is measured with "
     "each file that it can use"},
    {"-md --model-draft --spec-draft-model", "FILE", APP_TEXT, SPECULATES & ~APP_BENCH_SPEC, AT(draft_model), 0, 0, "Model",
     "draft with a smaller model or with a drafter head for the model; a model with another vocabulary drafts the tokens that "
     "both share, if they share enough"},
    {"--mmap", NULL, APP_FLAG, READS, AT(model_params.mmap), 0, 0, "Model",
     "use the weights directly from the mapped file: starts at once, runs slower, same output. By default quantized weights "
     "are read and repacked in memory, and only tables and float weights are mapped"},
    {"--no-mmap", NULL, APP_FLAG, READS, AT(model_params.no_mmap), 0, 0, "Model",
     "map nothing; read tables and float weights into memory too"},
    {"-c --ctx-size", "N", APP_CTX, APP_JUDGES, AT(session.n_ctx), 0, APP_MAX_CTX, "Model",
     "tokens per window, or most tokens of a task (default: 512, for tasks 2048)"},
    {"-c --ctx-size", "N", APP_CTX, LOADS & ~APP_JUDGES, AT(session.n_ctx), 0, APP_MAX_CTX, "Model",
     "positions per sequence; 0: as many as the model was trained for (default: the trained number, but 8192 at most)"},
    {"-b --batch-size", "N", APP_U32, LOADS & ~APP_BENCH_SPEED, AT(n_batch_logical), 1, 1 << 20, "Model",
     "maximum number of prompt tokens per pass, like -ub; the smaller of the two applies"},
    {"-ub --ubatch-size", "N", APP_U32, LOADS & ~APP_BENCH_SPEED, AT(session.n_batch), 1, 1 << 16, "Model",
     "prompt tokens per pass"},
    {"-b --batch-size", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.batches), 1, 1 << 20, "Model",
     "maximum numbers of prompt tokens per pass, like -ub; the smaller of the two applies (default: 2048)"},
    {"-ub --ubatch-size", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.ubatches), 1, 1 << 16, "Model",
     "numbers of prompt tokens per pass (default: 512)"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints", "N", APP_U32, APP_GENERATES, AT(session.n_checkpoints), 0, 1024, "Model",
     "number of saved states of recurrent layers (Qwen3.5, Nemotron-H, Granite hybrids, LFM2), from which a prompt continues "
     "that begins like an earlier one; each takes memory, and with too few prompts are computed again. Models with sliding or "
     "chunked windows keep one window for every four of them"},
    {"-np --parallel", "LIST", APP_NUMBERS, APP_BENCH_SPEC, AT(bench.n_seqs), 1, 1024, "Model", "prompts answered at once"},
    {"-np --parallel", "N", APP_COUNT, APP_SERVE, AT(serve.n_seqs), 1, 1024, "Model", "answers generated at once; others wait"},
    {"-np --parallel", "N", APP_COUNT, APP_RUN | APP_TRAIN_DATA | APP_DOCTOR, AT(session.n_seqs), 1, 1024, "Model",
     "prompts answered at once"},
    {"-t --threads", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.threads), -1, 1024, "Model",
     "numbers of threads; -1 or 0: one per core that this process may use, fewer if a control group's quota is less"},
    {"-t --threads", "N", APP_COUNT, (APP_THREADS | APP_CONVERT) & ~APP_BENCH_SPEED, AT(n_threads), 0, 1024, "Model",
     "threads; -1 or 0: one per core that this process may use, fewer if a control group's quota is less"},
    {"-C --cpu-mask", "M", APP_TEXT, APP_THREADS, AT(cpu_mask), 0, 0, "Model",
     "run on these CPUs only: a number in hex, bit i for CPU i"},
    {"-Cr --cpu-range", "LO-HI", APP_TEXT, APP_THREADS, AT(cpu_range), 0, 0, "Model",
     "run on these CPUs only, and on those of --cpu-mask if that is given too"},
    {"--override-kv", "KEY=TYPE:VALUE[,...]", APP_OVERRIDES, OVERRIDES, AT(overrides), 0, 0, "Model",
     "replace a metadata value of the model file; TYPE is int, float, bool or str, e.g. "
     "tokenizer.ggml.add_bos_token=bool:false; may be repeated, or several with commas between"},
    {"--kv-type", "TYPE", APP_KV_TYPE, APP_GENERATES | APP_DOCTOR, AT(session.kv_type), 0, 0, "Model",
     "type of the cached keys and values: f16; q8_0 for half the memory and faster long contexts; i16, integers of 15 "
     "bits; q4_0, 4 bits, for a quarter of the memory; i16/q8_0, q8_0/i16, q8_0/q4_0 or i16/q4_0, keys and "
     "values of different types"},
    {"-ctk --cache-type-k", "TYPE", APP_TEXT, APP_GENERATES | APP_DOCTOR, AT(cache_type_k), 0, 0, "Model",
     "like --kv-type; -ctv must be the same, or the two a pair that --kv-type lists"},
    {"-ctv --cache-type-v", "TYPE", APP_TEXT, APP_GENERATES | APP_DOCTOR, AT(cache_type_v), 0, 0, "Model",
     "like --kv-type; -ctk must be the same, or the two a pair that --kv-type lists"},
    {"--cpu", "LEVEL", APP_TEXT, LOADS | APP_CONVERT | APP_BENCH_SHAPES, AT(model_params.cpu_level), 0, 0, "Model",
     "highest kernel level: ref, avx2, avxvnni, avx512, amx or neon, dotprod, i8mm; the bytes are the same "
     "(default: the best there is)"},
    {"-dev --device", "NAME[,NAME...]", APP_TEXT, LOADS | APP_BENCH_SHAPES, AT(device), 0, 0, "Model",
     "device that runs the model: cpu, cuda for the first NVIDIA GPU, vulkan for the first GPU by Vulkan; cuda0, vulkan1 and "
     "so on for one of several; a list with commas between spreads its layers; the bytes are the same (default: cpu)"},
    {"--list-devices", NULL, APP_FLAG, LOADS | APP_BENCH_SHAPES, AT(list_devices), 0, 0, "Model",
     "list the devices of this machine, and why one cannot be used; nothing else is done"},
    {"-ngl --gpu-layers --n-gpu-layers", "N", APP_TEXT, LOADS, AT(gpu_layers), 0, 0, "Model",
     "put the last N layers on the device and the others on the CPU; the output counts as the last layer; auto or all: the "
     "whole model; 0: nothing, whatever --device says"},
    {"-ts --tensor-split", "N,N,...", APP_TEXT, LOADS, AT(tensor_split), 0, 0, "Model",
     "the share of the layers that each of several devices gets, e.g. 3,1 (default: by free memory)"},
    {"-ot --override-tensor", "PATTERN=DEVICE[,...]", APP_PLACEMENTS, LOADS, AT(placements), 0, 0, "Model",
     "keep the feed-forward blocks (the experts, too) whose weights' names match a regular expression on a device: exps=CPU, "
     "or 'blk\\.(1|2)\\.ffn=cuda1'; may be given several times, and the first match decides"},
    {"-ncmoe --n-cpu-moe", "N", APP_U32, LOADS, AT(model_params.n_cpu_moe), 0, 1e5, "Model",
     "keep the experts of the first N layers on the CPU, whatever --device says"},
    {"-cmoe --cpu-moe", NULL, APP_FLAG, LOADS, AT(cpu_moe), 0, 0, "Model",
     "keep all experts on the CPU, whatever --device says"},
    {"-ncffn --n-cpu-ffn", "N", APP_U32, LOADS, AT(model_params.n_cpu_ffn), 0, 1e5, "Model",
     "keep the dense feed-forward blocks of the first N layers on the CPU"},

    {"--machines", "auto|split|pipeline|SxN", APP_TEXT, APP_RUN | APP_SERVE | APP_INSPECT, AT(machines), 0, 0, "Model",
     "several processes run the model together, started by mpirun or srun with the same options: each has rows of all matrices "
     "(split) or some of the layers (pipeline), or S stages of N processes each split some of the layers (2x2); auto: what "
     "takes least by the speeds and links measured at the start; the bytes are those of one. 'inspect' takes a number of "
     "processes, too, e.g. split:4, and shows what each would have"},
    {"--split", "N,N,...", APP_TEXT, APP_RUN | APP_SERVE | APP_INSPECT, AT(split), 0, 0, "Model",
     "the share of the model that each process of --machines gets, e.g. 3,2,2,1 (default: by speed and free "
     "memory, measured at the start)"},
    {"--machines-verify", NULL, APP_FLAG, APP_RUN | APP_SERVE, AT(machines_verify), 0, 0, "Model",
     "compare the whole model files of all processes at the start, instead of parts of each tensor"},
    {"--machines-limit", "SECONDS", APP_U32, APP_RUN | APP_SERVE, AT(machines_limit), 0, 1e6, "Model",
     "end all processes of --machines if one does not answer for this time, which must be more than -ub tokens of a prompt "
     "take; 0: never (default: 300)"},
    {"--machines-insecure", NULL, APP_FLAG, APP_RUN | APP_SERVE, AT(machines_insecure), 0, 0, "Model",
     "let --machines use public addresses, where anybody can take part: MPI has no authentication"},

    {"--lora", "FILE[,FILE...]", APP_LORAS, ADAPTS, AT(loras), 0, 0, "Model",
     "use a LoRA adapter (a GGUF file; 'aerie convert' makes one from a PEFT folder); may be repeated, all are used together"},
    {"--lora-scaled", "FILE:SCALE[,...]", APP_LORAS_SCALED, ADAPTS, AT(loras), 0, 0, "Model",
     "like --lora, with the adapter's effect multiplied by SCALE"},
    {"--lora-init-without-apply", NULL, APP_FLAG, APP_SERVE, AT(serve.lora_idle), 0, 0, "Model",
     "load the adapters, but use them only as a request's \"lora\" or POST /lora-adapters says"},

    {"-mm --mmproj", "FILE", APP_TEXT, APP_RUN | APP_SERVE | APP_DOCTOR | APP_CONVERT, AT(mmproj), 0, 0, "Model",
     "the model's vision encoder (an mmproj GGUF file); default: the only mmproj*.gguf beside the model. 'convert' writes it "
     "there, with the text model (-o) or alone"},
    {"--no-mmproj --no-mmproj-auto", NULL, APP_FLAG, APP_RUN | APP_SERVE | APP_PULL | APP_DOCTOR, AT(no_mmproj), 0, 0, "Model",
     "do not look for an mmproj file beside the model, and do not pull one with it"},
    {"--image-min-tokens", "N", APP_U32, APP_RUN | APP_SERVE | APP_DOCTOR, AT(image_min_tokens), 0, 16384, "Model",
     "enlarge smaller images to this many tokens, if the model takes images in their own shape; 0: the model's limit"},
    {"--image-max-tokens", "N", APP_U32, APP_RUN | APP_SERVE | APP_DOCTOR, AT(image_max_tokens), 0, 16384, "Model",
     "reduce larger images to this many tokens, for less time and less detail; 0: the model's limit"},

    /* Positions */
    {"--rope-scaling", "none|linear|yarn", APP_TEXT, LOADS, AT(rope_scaling), 0, 0, "Positions (RoPE)",
     "how to scale positions beyond the trained context (default: as the file says)"},
    {"--rope-scale", "N", APP_F32, LOADS, AT(rope.factor), 0, 1e5, "Positions (RoPE)",
     "stretch the context N times, linearly unless --rope-scaling or the file says otherwise; 0: as the file says"},
    {"--rope-freq-scale", "N", APP_F32, LOADS, AT(rope_freq_scale), 0, 1e5, "Positions (RoPE)",
     "the inverse of --rope-scale: 0.25 stretches the context 4 times; 0: as the file says"},
    {"--rope-freq-base", "N", APP_F32, LOADS, AT(rope.freq_base), 0, 1e11, "Positions (RoPE)",
     "base of the RoPE frequencies, above 1; 0: as the file says"},
    {"--yarn-orig-ctx", "N", APP_U32, LOADS, AT(rope.n_ctx_orig), 0, APP_MAX_CTX, "Positions (RoPE)",
     "YaRN: the context that the model was trained for; 0: as the file says"},
    {"--yarn-ext-factor", "X", APP_F32, LOADS, AT(rope.yarn_ext_factor), -1, 1, "Positions (RoPE)",
     "YaRN: how much fast pairs keep their frequency; 0: not at all; -1: as the file says"},
    {"--yarn-attn-factor", "X", APP_F32, LOADS, AT(rope.yarn_attn_factor), -1, 1e5, "Positions (RoPE)",
     "YaRN: multiply the attention factor by X; -1: as the file says"},
    {"--yarn-beta-fast", "X", APP_F32, LOADS, AT(rope.yarn_beta_fast), -1, 1e5, "Positions (RoPE)",
     "YaRN: pairs that turn more often than this keep their frequency; -1: as the file says"},
    {"--yarn-beta-slow", "X", APP_F32, LOADS, AT(rope.yarn_beta_slow), -1, 1e5, "Positions (RoPE)",
     "YaRN: pairs that turn less often than this are scaled fully; -1: as the file says"},

    /* Prompt */
    {"-p --prompt", "TEXT", APP_TEXTS, APP_JUDGES, AT(prompts), 0, 0, "Text", "the text itself"},
    {"-f --file", "FILE", APP_TEXT, APP_JUDGES, AT(file), 0, 0, "Text",
     "file of the text or the tasks, - is standard input; one newline at its end is dropped"},
    {"--chunks", "N", APP_I32, APP_JUDGES, AT(judge.n_chunks), -1, INT32_MAX, "Text", "read at most N windows; -1: all"},
    {"-p --prompt", "TEXT", APP_TEXTS, APP_RUN | APP_TOKENIZE | APP_EMBED | COMPARES, AT(prompts), 0, 0, "Prompt",
     "the prompt; run, embed and bench spec take several. run appends standard input to a single prompt"},
    {"-f --file", "FILE", APP_TEXT, APP_RUN | APP_TOKENIZE | APP_EMBED, AT(file), 0, 0, "Prompt",
     "read the prompt from a file, - is standard input; run drops one newline at its end, and for embed each line is a text"},
    {"--image", "FILE[,FILE...]", APP_FILES, APP_RUN, AT(images), 0, 0, "Prompt",
     "an image (JPEG, PNG or WebP) for the one prompt; may be repeated. Images come first, or where the text has <__media__>"},
    {"--prompts-file", "FILE", APP_TEXT, PROMPTS | APP_EMBED, AT(prompts_file), 0, 0, "Prompt",
     "a prompt on each line; empty lines are skipped. In a .jsonl file a line is JSON: a text, or an object with \"prompt\" or "
     "\"messages\""},
    {"--messages", "FILE", APP_TEXT, APP_RUN | APP_TEMPLATE, AT(chat.messages), 0, 0, "Prompt",
     "the conversation (JSON): a list of {role, content}, or an object with it as \"messages\"; - is standard input"},
    {"--prompts", "DIR|FILE", APP_TEXTS, COMPARES, AT(bench.prompt_paths), 0, 0, "Prompt",
     "groups of prompts: a .jsonl file, or a folder of them; may be repeated"},
    {"--groups", "LIST", APP_TEXT, COMPARES, AT(bench.groups), 0, 0, "Prompt", "only these groups of --prompts"},
    {"--held-out", "only|all|no", APP_TEXT, COMPARES, AT(bench.held_out), 0, 0, "Prompt",
     "which of --prompts: only those held out of training, all, or only the others (default: all)"},
    {"--per-group", "N", APP_U32, COMPARES, AT(bench.n_per_group), 0, 1 << 20, "Prompt",
     "maximum number of prompts per group; 0: all"},
    {"-sys --system-prompt", "TEXT", APP_TEXT, PROMPTS, AT(system_prompt), 0, 0, "Prompt",
     "system message of the conversation"},
    {"-cnv --conversation", NULL, APP_FLAG, APP_GENERATES & ~APP_SERVE, AT(conversation), 0, 0, "Prompt",
     "on a terminal: start a chat, with the prompt of -p or -f as its first message if there is one"},
    {"-no-cnv --no-conversation", NULL, APP_FLAG, PROMPTS | APP_TRAIN_DATA, AT(no_conversation), 0, 0, "Prompt",
     "continue the text as it is, without the chat template"},
    {"--prompt-cache", "FILE", APP_TEXT, APP_RUN, AT(run.prompt_cache), 0, 0, "Prompt",
     "save the KV cache of the prompt in FILE, and load from it the part that this prompt has in common with an earlier run's: "
     "the output is the same, but comes sooner. A file of another model or other settings is refused. Whoever can read the "
     "file can read the prompt"},
    {"--prompt-cache-all", NULL, APP_FLAG, APP_RUN, AT(run.prompt_cache_all), 0, 0, "Prompt",
     "with --prompt-cache: save the answer too, and in a chat the whole conversation"},
    {"--prompt-cache-ro", NULL, APP_FLAG, APP_RUN, AT(run.prompt_cache_ro), 0, 0, "Prompt",
     "with --prompt-cache: use the file, but do not write it"},
    {"-st --single-turn", NULL, APP_FLAG, APP_RUN, AT(single_turn), 0, 0, "Prompt", "end the chat after one answer"},
    {"-e --escape", NULL, APP_FLAG, APP_RUN | APP_TOKENIZE | COMPARES, AT(escape), 0, 0, "Prompt",
     "\\n, \\r, \\t, \\', \\\", \\\\ and \\xNN in -p and --stop stand for those characters, which is the default"},
    {"--no-escape", NULL, APP_FLAG_OFF, APP_RUN | APP_TOKENIZE | COMPARES, AT(escape), 0, 0, "Prompt",
     "leave those escapes as they are"},

    {"--chat-template", "TEXT|NAME", APP_TEXT, SPECULATES | APP_TEMPLATE, AT(chat.template_text), 0, 0, "Template",
     "use this chat template instead of the model's own: Jinja text, or a known name such as chatml, llama3 or gemma"},
    {"--chat-template-file", "FILE", APP_TEXT, SPECULATES, AT(chat.template_file), 0, 0, "Template",
     "read the chat template from a file; - is standard input"},
    {"--chat-template-kwargs", "JSON", APP_TEXT, SPECULATES | APP_TEMPLATE, AT(chat.template_kwargs), 0, 0, "Template",
     "set variables of the template, e.g. {\"enable_thinking\": false}; --set of 'template' overrides them"},
    {"-sp --special", NULL, APP_FLAG, APP_RUN | APP_SERVE, AT(special), 0, 0, "Generation",
     "show the model's control tokens in answers, except those that end them"},
    {"--special-in-messages", NULL, APP_FLAG, SPECULATES | APP_TEMPLATE, AT(special_in_messages), 0, 0, "Template",
     "control tokens spelled in messages and tools, such as <|im_end|>, become control tokens (default: they are text)"},
    {"--tools", "FILE", APP_TEXT, APP_RUN | APP_TEMPLATE, AT(chat.tools), 0, 0, "Template",
     "list of tools (JSON) for the template; replaces the one in the messages file, and an empty list means no tools"},
    {"--reasoning-budget", "N", APP_I32, SPECULATES, AT(chat.reasoning_budget), -1, INT32_MAX, "Template",
     "maximum number of tokens of reasoning in an answer, after which the text that closes it is inserted. 0: none; the "
     "template's variable that turns thinking off (enable_thinking, thinking) is set, too. -1: no limit"},
    {"-rea --reasoning", "on|off|auto", APP_TEXT, SPECULATES, AT(chat.reasoning), 0, 0, "Template",
     "turn thinking on or off, if the template has a variable for it (enable_thinking, thinking) (default: auto, as it says)"},
    {"--reasoning-effort", "LEVEL", APP_TEXT, SPECULATES, AT(chat.reasoning_effort), 0, 0, "Template",
     "set the template's variable reasoning_effort, such as low, medium or high; a request's own value takes precedence"},
    {"--reasoning-budget-message", "TEXT", APP_TEXT, SPECULATES, AT(chat.reasoning_message), 0, 0, "Template",
     "text to write before the reasoning is closed because --reasoning-budget is used up"},

    /* Generation */
    {"-n --predict --n-predict", "N", APP_I32, APP_IMATRIX, AT(n_predict), -1, 1 << 20, "Text",
     "with -md: number of tokens to generate after each window; -1: 128 (default: 128)"},
    {"-n --predict --n-predict", "N", APP_PREDICT, GENERATES & ~COMPARES, AT(n_predict), 0, 0, "Generation",
     "maximum number of tokens to generate; -1: until the answer ends or the context is full; -2: the same"},
    {"-n --predict --n-predict", "N", APP_PREDICT, COMPARES, AT(n_predict), 0, 0, "Generation",
     "maximum number of tokens of each answer (default: 128, for bench study --quick 48)"},
    {"--ignore-eos", NULL, APP_FLAG, SPECULATES, AT(ignore_eos), 0, 0, "Generation",
     "do not stop where the model ends its answer"},
    {"-r --stop --reverse-prompt", "TEXT", APP_TEXTS, APP_RUN, AT(stop), 0, 0, "Generation",
     "end the answer before this text; may be given several times"},
    {"--grammar", "GBNF", APP_TEXT, PROMPTS, AT(grammar_text), 0, 0, "Generation",
     "restrict the answer to this grammar, in llama.cpp's GBNF: 'root ::= \"yes\" | \"no\"'"},
    {"--grammar-file", "FILE", APP_TEXT, PROMPTS, AT(grammar_file), 0, 0, "Generation", "read the grammar from a file"},
    {"-j --json-schema", "SCHEMA", APP_TEXT, PROMPTS, AT(schema_text), 0, 0, "Generation",
     "restrict the answer to JSON that fits this schema; {}: any object"},
    {"-jf --json-schema-file", "FILE", APP_TEXT, PROMPTS, AT(schema_file), 0, 0, "Generation", "read the schema from a file"},
    {"--json-schema-strict", NULL, APP_FLAG, PROMPTS, AT(schema_strict), 0, 0, "Generation",
     "treat parts of a schema that a grammar cannot enforce (not, an unknown format) as errors; otherwise they are ignored "
     "with a warning"},

    /* Diffusion: models that denoise their answer */
    {"--diffusion-steps", "N", APP_U32, SPECULATES, AT(diffusion.n_steps), 1, 1 << 20, "Diffusion",
     "models that denoise (dream, llada, llada-moe, rnd1): steps for an answer, whose length is -n, or what the context has "
     "room for"},
    {"--diffusion-eps", "X", APP_F32, SPECULATES, AT(diffusion.eps), 0, 0.999999, "Diffusion",
     "all of the answer at once, by timesteps that end at X, as Dream does it; not with --diffusion-block-length "
     "(default: 0.001, for models whose rows predict the next token)"},
    {"--diffusion-block-length", "N", APP_U32, SPECULATES, AT(diffusion.block_length), 0, 1 << 24, "Diffusion",
     "blocks of N tokens one after the other, each with its share of the steps, as LLaDA does it (default: 32, for models "
     "whose rows predict their own token)"},
    {"--diffusion-algorithm", "N", APP_U32, SPECULATES, AT(diffusion.algorithm), 0, 4, "Diffusion",
     "which of the drawn tokens a step keeps: 0 and 3 any, at random; 1 where the entropy is least; 2 where the likeliest "
     "token is furthest from the second; 4 the likeliest"},
    {"--diffusion-alg-temp", "X", APP_F32, SPECULATES, AT(diffusion.alg_temp), 0, 1000, "Diffusion",
     "draw what a step keeps, with weights exp(confidence / X); 0: the most confident"},
    {"--diffusion-cfg-scale", "X", APP_F32, SPECULATES, AT(diffusion.cfg_scale), 0, 1000, "Diffusion",
     "classifier-free guidance: move away by X from what the model says without the prompt, in two passes a step; 0: off"},
    {"--diffusion-add-gumbel-noise", "X", APP_F32, SPECULATES, AT(diffusion_noise), -1e6, 1e6, "Diffusion",
     "no effect: with --temp above 0 tokens are always drawn by Gumbel noise"},
    {"--diffusion-visual", NULL, APP_FLAG, APP_RUN, AT(run.denoising_shown), 0, 0, "Diffusion",
     "show the answer on standard error before each step, with _ for tokens that are not known yet"},

    /* Sampling */
    {"-s --seed", "N", APP_SEED, GENERATES, AT(sampling.seed), 0, 0, "Sampling",
     "random seed; the same seed gives the same output, -1 a new seed each time (default: a new one each time)"},
    {"--temp --temperature", "T", APP_TEMP, GENERATES, AT(sampling.temperature), 0, 1000, "Sampling",
     "temperature; 0 or less: always the likeliest token"},
    {"--temps", "LIST", APP_REALS, APP_BENCH_SPEC, AT(bench.temperatures), 0, 1000, "Sampling",
     "temperatures to measure, instead of --temp"},
    {"--top-k", "N", APP_I32, GENERATES, AT(sampling.top_k), -1, INT32_MAX, "Sampling",
     "sample from the N likeliest tokens only; 0: off"},
    {"--top-p", "P", APP_F32, GENERATES, AT(sampling.top_p), 0, 1, "Sampling",
     "sample from the likeliest tokens whose probabilities add up to P; 1: off"},
    {"--min-p", "P", APP_F32, GENERATES, AT(sampling.min_p), 0, 1, "Sampling",
     "sample from tokens at least P times as likely as the likeliest; 0: off"},
    {"--repeat-penalty", "X", APP_F32, GENERATES, AT(sampling.repeat_penalty), 0.01, 100, "Sampling",
     "penalize tokens that occurred before: divide positive logits by X, multiply others; 1: off"},
    {"--presence-penalty", "X", APP_F32, GENERATES, AT(sampling.presence_penalty), -100, 100, "Sampling",
     "subtract X from the logit of every token that occurred before; 0: off"},
    {"--frequency-penalty", "X", APP_F32, GENERATES, AT(sampling.frequency_penalty), -100, 100, "Sampling",
     "subtract X for every time that a token occurred; 0: off"},
    {"--repeat-last-n", "N", APP_I32, GENERATES, AT(sampling.penalty_last_n), -1, INT32_MAX, "Sampling",
     "number of latest tokens that the penalties consider; 0: none, -1: all"},
    {"--dry-multiplier", "X", APP_F32, SPECULATES, AT(sampling.dry_multiplier), 0, 1000, "Sampling",
     "DRY: penalize a token that would extend a repetition of n tokens by X * base^(n - allowed length); 0: off"},
    {"--dry-base", "X", APP_F32, SPECULATES, AT(sampling.dry_base), 1, 1000, "Sampling", "DRY: base of the penalty"},
    {"--dry-allowed-length", "N", APP_I32, SPECULATES, AT(sampling.dry_allowed_length), 0, INT32_MAX, "Sampling",
     "DRY: repetitions shorter than N are not penalized"},
    {"--dry-penalty-last-n", "N", APP_I32, SPECULATES, AT(sampling.dry_penalty_last_n), -1, INT32_MAX, "Sampling",
     "DRY: number of latest tokens considered; 0: none, -1: all"},
    {"--dry-sequence-breaker", "TEXT", APP_TEXTS, SPECULATES, AT(dry_breakers), 0, 0, "Sampling",
     "DRY: a repetition ends at this text; the first one given replaces the defaults (newline, colon, quote, asterisk); "
     "'none': no text ends it"},
    {"--top-n-sigma --top-nsigma", "N", APP_F32, SPECULATES, AT(sampling.top_n_sigma), -1, 1e6, "Sampling",
     "sample from tokens whose logit is within N standard deviations of the highest; 0 or less: off"},
    {"--typical --typical-p", "P", APP_F32, SPECULATES, AT(sampling.typical_p), 0, 1, "Sampling",
     "locally typical sampling: tokens whose surprise is closest to the entropy, up to a total of P; 1: off"},
    {"--xtc-probability", "P", APP_F32, SPECULATES, AT(sampling.xtc_probability), 0, 1, "Sampling",
     "XTC: probability of removing the likeliest tokens; 0: off"},
    {"--xtc-threshold", "P", APP_F32, SPECULATES, AT(sampling.xtc_threshold), 0, 1, "Sampling",
     "XTC: of the tokens with a probability of at least P only the least likely stays; above 0.5: off"},
    {"--dynatemp-range", "X", APP_F32, SPECULATES, AT(sampling.dynatemp_range), 0, 1000, "Sampling",
     "dynamic temperature: from --temp - X to --temp + X, depending on the entropy; 0: off"},
    {"--dynatemp-exp", "X", APP_F32, SPECULATES, AT(sampling.dynatemp_exponent), 0, 1000, "Sampling",
     "dynamic temperature: the exponent X in (entropy / largest entropy)^X"},
    {"--mirostat", "N", APP_I32, SPECULATES, AT(sampling.mirostat), 0, 2, "Sampling",
     "2: mirostat 2.0, which replaces all steps but logit bias and temperature; 0: off"},
    {"--mirostat-ent", "X", APP_F32, SPECULATES, AT(sampling.mirostat_tau), 0, 1000, "Sampling",
     "mirostat: target surprise in bits"},
    {"--mirostat-lr", "X", APP_F32, SPECULATES, AT(sampling.mirostat_eta), 0, 1000, "Sampling", "mirostat: learning rate"},
    {"--min-keep", "N", APP_U32, SPECULATES, AT(sampling.min_keep), 0, INT32_MAX, "Sampling",
     "typical, top-p, min-p and XTC keep at least N tokens"},
    {"-l --logit-bias", "TOKEN(+|-)BIAS", APP_TEXTS, PROMPTS, AT(logit_bias), 0, 0, "Sampling",
     "add to the logit of a token: 15043+1, 15043-0.5, 15043-inf (never); may be repeated"},
    {"--samplers", "LIST", APP_TEXT, SPECULATES, AT(samplers), 0, 0, "Sampling",
     "sampling steps in their order (default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"},
    {"--sampling-seq --sampler-seq", "LETTERS", APP_TEXT, SPECULATES, AT(sampler_seq), 0, 0, "Sampling",
     "sampling steps as letters (default: edskypmxt)"},

    /* Speculation */
    {"--spec-type", "TYPE", APP_SPEC_TYPE, APP_RUN | APP_SERVE, AT(session.spec.type), 0, 0, "Speculation",
     "drafter: auto, none, ngram, draft, draft-eagle, draft-eagle3, draft-medusa, draft-mtp, draft-dflash, draft-dspark, "
     "moe, hier, nld; oracle and random are for tests. nld: the model itself, where it was trained to fill masks "
     "(Nemotron-Labs-Diffusion); moe: the model itself, with fewer experts (--moe-draft-experts) or "
     "blocks (--draft-skip-attn, --draft-skip-ffn); hier: the model of -md, for which another drafts (--hier-draft, "
     "--hier-type). auto uses the drafters that are available and, of several, the one that is fastest at the time (--stats "
     "says which): -md, the model's own MTP blocks or a drafter head beside it (MODEL-dspark.gguf, MODEL-dflash.gguf, "
     "MODEL-eagle3.gguf, MODEL-mtp.gguf), hier if the model of -md has a drafter, moe for models with experts; and n-grams"},
    {"--spec-draft-lora", "FILE", APP_TEXT, APP_RUN | APP_SERVE, AT(draft_lora), 0, 0, "Speculation",
     "nld: an adapter (GGUF) that is applied in drafts alone"},
    {"--spec-types", "LIST", APP_SPEC_TYPES, APP_BENCH_SPEC, AT(bench.spec_types), 0, 0, "Speculation",
     "drafters to compare with plain decoding (default: ngram, and -md, the model's MTP blocks or the drafter head beside it)"},
    {"--spec-draft-n-max --draft-max --draft --draft-n", "N", APP_U32, APP_RUN | APP_SERVE, AT(session.spec.n_max), 0,
     AERIE_MAX_DRAFT, "Speculation", "maximum number of tokens drafted ahead; 0: no drafts, as with --spec-type none"},
    {"--spec-draft-n-max --draft-max --draft --draft-n", "LIST", APP_NUMBERS, APP_BENCH_SPEC, AT(bench.n_maxes), 1,
     AERIE_MAX_DRAFT,
     "Speculation", "maximum number of tokens drafted ahead"},
    {"--spec-draft-n-min --draft-min --draft-n-min", "N", APP_U32, SPECULATES, AT(session.spec.n_min), 0, AERIE_MAX_DRAFT,
     "Speculation", "drop drafts shorter than N"},
    {"--spec-draft-p-min --draft-p-min", "P", APP_F32, SPECULATES, AT(session.spec.p_min), 0, 1, "Speculation",
     "do not draft tokens that the drafter finds less likely than P"},
    {"--spec-ngram-memory", "TOKENS", APP_U32, APP_RUN | APP_SERVE, AT(session.spec.ngram_memory), 0, 1 << 28, "Speculation",
     "how much text of ended requests with the same API key n-grams also draft from; the oldest is forgotten first; 0: none"},
    {"-lcs --lookup-cache-static", "FILE", APP_TEXT, APP_RUN | APP_SERVE, AT(lookup_static), 0, 0, "Speculation",
     "n-grams also draft from the text in FILE, which is only read. On a server with API keys, a request drafts only from what "
     "requests with its own key wrote"},
    {"-lcd --lookup-cache-dynamic", "FILE", APP_TEXT, APP_RUN | APP_SERVE, AT(lookup_dynamic), 0, 0, "Speculation",
     "n-grams also draft from the text in FILE, and what they remember at the end is saved there. Whoever can read FILE can "
     "read the prompts"},
    {"--spec-ngram", "on|off", APP_ON_OFF, SPECULATES, AT(session.spec.ngram), 0, 0, "Speculation",
     "use the n-gram drafter together with a head or draft model: their drafts share a tree, or, with --spec-tree off, the "
     "better chain is used"},
    {"--spec-tree", "SHAPE", APP_TREE, APP_RUN | APP_SERVE, AT(session.spec.tree), 0, 0, "Speculation",
     "shape of drafts: auto branches where that pays, off drafts chains; for heads also static (EAGLE-1's tree) and "
     "dynamic (EAGLE-2's)"},
    {"--spec-tree", "LIST", APP_TREES, APP_BENCH_SPEC, AT(bench.trees), 0, 0, "Speculation",
     "shapes of drafts: auto, off, static, dynamic; see run"},
    {"--spec-tree-nodes", "N", APP_U32, SPECULATES, AT(session.spec.n_nodes), 0, AERIE_MAX_DRAFT, "Speculation",
     "maximum number of tokens in a tree; 0: 64"},
    {"--spec-tree-top-k", "N", APP_U32, SPECULATES, AT(session.spec.top_k), 0, 16, "Speculation",
     "continuations considered for each token of a tree; 0: chosen by the drafter"},
    {"--spec-draft-window", "N", APP_U32, SPECULATES, AT(session.spec.window), 0, 1 << 24, "Speculation",
     "let a drafter head attend to the latest N positions only, in steps of 64; use it for heads trained on short texts; 0: as "
     "its file says"},
    {"--spec-draft-sinks", "N", APP_U32, SPECULATES, AT(session.spec.n_sinks), 0, 1 << 16, "Speculation",
     "with a window: let it also attend to the first N positions"},
    {"--spec-draft-vocab", "N", APP_U32, SPECULATES, AT(draft_vocab), 0, INT32_MAX, "Speculation",
     "let a head with the model's whole vocabulary draft from its first N tokens only; 0: all"},
    {"--moe-draft-experts", "N", APP_I32, SPECULATES, AT(session.spec.moe_experts), AERIE_MOE_TRIAL, 512, "Speculation",
     "moe: routed experts of a token in drafts; 0: the shared expert alone; -1: all that the model uses; -2: of none, one, a "
     "quarter and half of them what is fastest"},
    {"--moe-draft-layers", "LIST", APP_TEXT, SPECULATES, AT(session.spec.moe_layers), 0, 0, "Speculation",
     "moe: layers to which --moe-draft-experts applies, such as 0-3,7,20-; the others use all experts (default: every layer)"},
    {"--draft-skip-attn", "LIST", APP_TEXT, SPECULATES, AT(session.spec.skip_attn), 0, 0, "Speculation",
     "moe: layers that draft without their attention (default: none); recurrent layers keep theirs"},
    {"--draft-skip-ffn", "LIST", APP_TEXT, SPECULATES, AT(session.spec.skip_ffn), 0, 0, "Speculation",
     "moe: layers that draft without their feed-forward block (default: none)"},
    {"--hier-draft", "FILE", APP_TEXTS, SPECULATES, AT(hier.files), 0, 0, "Speculation",
     "hier: drafter of the model of -md: a drafter head or another model; given again: drafter of that model"},
    {"--hier-type", "TYPE", APP_SPEC_TYPE, SPECULATES, AT(hier.type), 0, 0, "Speculation",
     "hier: drafter of the last model, with the values of --spec-type (default: auto: the last --hier-draft, or n-grams)"},
    {"--spec-min-draft-length", "N", APP_U32, SPECULATES, AT(session.spec.min_draft_length), 0, AERIE_MAX_DRAFT, "Speculation",
     "hier: do not extend a draft that has N tokens; 0: 6"},
    {"--eagle-num-iter", "N", APP_U32, SPECULATES, AT(hier.n_iter), 1, AERIE_MAX_DRAFT, "Speculation",
     "hier: number of tokens drafted ahead for the model of -md"},
    {"--eagle-topk-per-iter", "N", APP_U32, SPECULATES, AT(hier.top_k), 0, AERIE_MAX_DRAFT, "Speculation",
     "hier: children of a node in the tree drafted for the model of -md; 0: chosen by the drafter"},
    {"--eagle-tree-size", "N", APP_U32, SPECULATES, AT(hier.n_nodes), 0, AERIE_MAX_DRAFT, "Speculation",
     "hier: maximum number of nodes in the tree drafted for the model of -md; 0: 64"},
    {"--spec-fixed", NULL, APP_FLAG, SPECULATES, AT(test.fixed), 0, 0, "Speculation",
     "verify everything that is drafted: turn the controller off"},
    {"--spec-oracle-error", "P", APP_F32, SPECULATES, AT(test.oracle_error), 0, 1, "Speculation",
     "oracle: share of drafted tokens that are wrong"},

    /* Server */
    {"--config", "FILE", APP_TEXT, APP_LISTENS, AT(serve.config), 0, 0, "Server",
     "read options from this file: one per line, 'max-queue = 64', with the long name of any option of this command; an option "
     "without a value takes on or off; lines that begin with # are skipped. The environment and the command line override it"},
    {"--host", "ADDRESS", APP_TEXT, APP_LISTENS, AT(serve.host), 0, 0, "Server",
     "address to listen on; a path that ends in .sock is a Unix socket (default: 127.0.0.1)"},
    {"--port", "N", APP_U32, APP_LISTENS, AT(serve.port), 0, 65535, "Server", "port to listen on; 0: a free one"},
    {"--api-key", "KEY[,KEY...]", APP_TEXTS, APP_LISTENS, AT(serve.api_keys), 0, 0, "Server",
     "require one of these keys (Authorization: Bearer KEY, or x-api-key: KEY). Others on this machine can see the command "
     "line; --api-key-file and AERIE_API_KEY hide it"},
    {"--api-key-file", "FILE", APP_TEXT, APP_LISTENS, AT(serve.api_key_file), 0, 0, "Server",
     "require one of the keys in this file, one per line; empty lines and lines that begin with # are skipped"},
    {"--metrics-key", "KEY", APP_TEXT, APP_LISTENS, AT(serve.metrics_key), 0, 0, "Server",
     "key for GET /metrics, which counts all requests, and for all slots in GET /slots; it gives no other access. Without "
     "--metrics-key an API key gives access to /metrics if it is the only one. AERIE_METRICS_KEY hides it from others on this "
     "machine"},
    {"--prefix-scope", "key|all", APP_TEXT, APP_SERVE, AT(serve.prefix_scope), 0, 0, "Server",
     "key: prompts share their prefixes in the KV cache only with prompts of the same API key, since response times would tell "
     "other keys what it contains; all: with prompts of every key (default: key)"},
    {"--allowed-hosts", "LIST", APP_TEXT, APP_LISTENS, AT(serve.allowed_hosts), 0, 0, "Server",
     "host names by which clients may call the server (Host header), separated by commas; *: any. Addresses and localhost are "
     "always allowed (default: only those when listening on a loopback address, otherwise any)"},
    {"--cors-origins", "LIST", APP_TEXT, APP_LISTENS, AT(serve.cors_origins), 0, 0, "Server",
     "origins (https://example.org) whose web pages may use the server, separated by commas; *: any, without credentials "
     "(default: the server's own page alone)"},
    {"-a --alias --served-model-name", "NAME", APP_TEXT, APP_SERVE, AT(serve.alias), 0, 0, "Server",
     "name of the model, if there is one -m only"},
    {"--models-dir", "DIR", APP_TEXT, APP_SERVE, AT(serve.models_dir), 0, 0, "Server",
     "also serve the GGUF files in this folder, by their names without .gguf"},
    {"--default-model", "NAME", APP_TEXT, APP_SERVE, AT(serve.default_model), 0, 0, "Server",
     "the model for requests that name none (default: the first -m; with --models-dir alone the one that was loaded last)"},
    {"--models-max", "N", APP_U32, APP_SERVE, AT(serve.models_max), 0, 1024, "Server",
     "maximum number of models loaded at once; the least recently used one makes room; 0: any number"},
    {"--models-memory", "MIB", APP_U32, APP_SERVE, AT(serve.models_memory), 0, INT32_MAX, "Server",
     "memory for all loaded models and their sessions; the least recently used one makes room; 0: what the machine has"},
    {"--sleep-idle-seconds", "SECONDS", APP_I32, APP_SERVE, AT(serve.sleep_idle), -1, INT32_MAX, "Server",
     "unload a model that has not been used for this time; the next request loads it again; -1: keep it"},
    {"--max-queue", "N", APP_U32, APP_SERVE, AT(serve.max_queue), 0, 1 << 20, "Server",
     "maximum number of requests that wait for one of the -np slots; others get 503 and Retry-After"},
    {"--max-pause", "MS", APP_U32, APP_SERVE, AT(session.max_pause), 0, 3600000, "Server",
     "milliseconds that running answers may wait for their next token while prompts are processed, which then get fewer rows "
     "of a pass, but at least 16; 0: as long as a full batch takes"},
    {"--max-turn", "N", APP_U32, APP_SERVE, AT(session.max_turn), 0, 1 << 24, "Server",
     "maximum number of tokens after which an answer gives its slot to one that waits, and continues later with the same "
     "bytes; slots are shared out to clients (API keys, else addresses) and to a client's requests in equal numbers while "
     "somebody waits; 0: answers begin in the order of arrival and keep their slots"},
    {"--max-connections", "N", APP_U32, APP_LISTENS, AT(serve.max_connections), 1, 1 << 16, "Server",
     "maximum number of open connections; when it is reached, the oldest connection without a request in progress is closed"},
    {"--max-connections-per-address", "N", APP_U32, APP_LISTENS, AT(serve.max_per_address), 0, 1 << 16, "Server",
     "maximum number of connections from one address, which is the first 64 bits of an IPv6 address; 0: no limit (default: "
     "half of --max-connections)"},
    {"--max-requests-per-key", "N", APP_U32, APP_LISTENS, AT(serve.max_per_key), 0, 1 << 16, "Server",
     "maximum number of answers at once for one API key; others get 429; 0: no limit"},
    {"--max-body", "MIB", APP_U32, APP_LISTENS, AT(serve.max_body), 1, 1024, "Server",
     "maximum size of a request's body (default: 8, or 64 where a model reads images)"},
    {"--max-images", "N", APP_U32, APP_SERVE, AT(serve.max_images), 1, 1024, "Server", "maximum number of images in a request"},
    {"--image-process", NULL, APP_FLAG, APP_SERVE, AT(serve.image_process), 0, 0, "Server",
     "decode each image in a separate process, which can open nothing and has limits of memory and time. It is the default "
     "with --image-url-hosts and with a --host that other machines reach"},
    {"--no-image-process", NULL, APP_FLAG, APP_SERVE, AT(serve.no_image_process), 0, 0, "Server",
     "decode images in the server itself"},
    {"--image-url-hosts", "LIST", APP_TEXT, APP_SERVE, AT(serve.image_url_hosts), 0, 0, "Server",
     "hosts from which the server fetches images that requests give by https: URLs: names separated by commas, *.NAME for all "
     "below NAME, NAME:PORT for another port than 443. Never from private addresses, nor after redirects to other hosts "
     "(default: none, images come as data: URLs)"},
    {"--image-url-http", NULL, APP_FLAG, APP_SERVE, AT(serve.image_url_http), 0, 0, "Server",
     "fetch by http: URLs, too (port 80), from the hosts of --image-url-hosts"},
    {"--max-request-memory", "MIB", APP_U32, APP_LISTENS, AT(serve.max_memory), 0, INT32_MAX, "Server",
     "memory that all requests in progress may hold together: bodies, their parsed contents and answers not yet sent; "
     "others get 503 and Retry-After; 0: half of what the machine and its control groups have left at the start"},
    {"--max-n", "N", APP_U32, APP_SERVE, AT(serve.max_n), 1, 128, "Server", "maximum number of answers to one request (\"n\")"},
    {"--max-logprobs", "N", APP_U32, APP_SERVE, AT(serve.max_logprobs), 0, AERIE_MAX_LOGPROBS, "Server",
     "maximum number of likeliest tokens returned with each token (\"top_logprobs\", \"n_probs\")"},
    {"--default-max-tokens", "N", APP_U32, APP_SERVE, AT(serve.default_max_tokens), 0, INT32_MAX, "Server",
     "maximum number of tokens of an answer whose request sets no maximum; 0: as many as fit the context"},
    {"--threads-http", "N", APP_COUNT, APP_SERVE, AT(serve.n_threads_http), 0, 1024, "Server",
     "number of requests that are parsed, templated and tokenized at once; 0: as many as there are threads"},
    {"-to --timeout", "SECONDS", APP_U32, APP_LISTENS, AT(serve.timeout), 1, 1 << 20, "Server",
     "close connections whose client reads nothing of an answer for this time"},
    {"--grace", "SECONDS", APP_U32, APP_LISTENS, AT(serve.grace), 0, 1 << 20, "Server",
     "time that running answers have to finish after SIGTERM or Ctrl-C"},
    {"--wait", "SECONDS", APP_U32, APP_ROUTER, AT(router.wait), 0, 86400, "Router",
     "how long a request waits for a server that can take it, or take it over: one that comes back, or another one"},
    {"--check-interval", "SECONDS", APP_U32, APP_ROUTER, AT(router.check), 1, 3600, "Router",
     "time between two checks (/health) of each server"},
    {"--check-limit", "SECONDS", APP_U32, APP_ROUTER, AT(router.limit), 1, 3600, "Router",
     "a server that does not answer a check within this time counts as lost, and its requests continue elsewhere"},
    {"--replays", "N", APP_U32, APP_ROUTER, AT(router.n_replays), 0, 100, "Router",
     "how many lost servers one request is replayed from; then it fails, since it may be the cause"},
    {"--canary", "SHARE", APP_F32, APP_ROUTER, AT(router.canary), 0, 1, "Router",
     "share of requests that a second server answers too, to compare the bytes; differences are logged and counted"},
    {"--server-key", "KEY", APP_TEXT, APP_ROUTER, AT(router.key), 0, 0, "Router",
     "API key for the router's own questions to the servers (default: its first API key). AERIE_SERVER_KEY hides it"},
    {"--mixed", NULL, APP_FLAG, APP_ROUTER, AT(router.mixed), 0, 0, "Router",
     "let servers take part whose model or build differs from the others': their bytes may differ too"},
    {"--stuck-after", "SECONDS", APP_U32, APP_SERVE, AT(serve.stuck), 1, 1 << 20, "Server",
     "/health answers 503 when there is work but no pass has ended for this time"},
    {"--context-shift", NULL, APP_FLAG, APP_SERVE, AT(serve.context_shift), 0, 0, "Server",
     "drop the oldest turns of a conversation that leaves no room for an answer, instead of refusing it; \"truncation\" does "
     "so for a single request"},
    {"-cram --cache-ram", "MIB", APP_I32, APP_SERVE, AT(serve.cache_ram), -1, INT32_MAX, "Server",
     "memory for conversations for which the KV cache has no room, so that they need not be computed again when they come "
     "back; at most a quarter of the memory that is free at the start; 0: none; -1: no limit"},
    {"--cache-disk", "DIR", APP_TEXT, APP_SERVE, AT(serve.cache_disk), 0, 0, "Server",
     "write such conversations to files in this folder too, and find them after a restart"},
    {"--cache-disk-limit", "MIB", APP_U32, APP_SERVE, AT(serve.cache_disk_limit), 0, INT32_MAX, "Server",
     "size of these files; the least recently used ones make room; 0: no limit"},
    {"--slot-save-path", "DIR", APP_TEXT, APP_SERVE, AT(serve.slot_save_path), 0, 0, "Server",
     "folder for /slots/N?action=save and restore, which are refused without it"},
    {"--reasoning-format", "none|auto|deepseek", APP_TEXT, APP_SERVE, AT(serve.reasoning_format), 0, 0, "Server",
     "none: reasoning stays in the content; auto, deepseek: it is in a separate field, reasoning_content (default: auto)"},
    {"--no-prefill-assistant", NULL, APP_FLAG, APP_SERVE, AT(serve.no_prefill), 0, 0, "Server",
     "treat a last message of the assistant as complete instead of continuing it"},
    {"--no-slots", NULL, APP_FLAG, APP_SERVE, AT(serve.no_slots), 0, 0, "Server", "do not answer /slots"},
    {"--no-metrics", NULL, APP_FLAG, APP_LISTENS, AT(serve.no_metrics), 0, 0, "Server", "do not answer /metrics"},
    {"--no-ui --no-webui", NULL, APP_FLAG, APP_SERVE, AT(serve.no_page), 0, 0, "Server", "do not serve the page at /"},
    {"--no-access-log", NULL, APP_FLAG, APP_LISTENS, AT(serve.no_access_log), 0, 0, "Server",
     "do not print a line on standard error for each request; prompts and answers are never printed"},

    /* Download */
    {"-hf -hfr --hf-repo", "OWNER/REPO[:QUANT]", APP_TEXT, READS, AT(pull.hf_repo), 0, 0, "Download",
     "the model is in this Hugging Face repository; short for -m hf:OWNER/REPO[:QUANT]"},
    {"-hff --hf-file", "NAME", APP_TEXT, READS, AT(pull.hf_file), 0, 0, "Download", "with -hf: this file of the repository"},
    {"-mu --model-url", "URL", APP_TEXT, READS, AT(pull.model_url), 0, 0, "Download", "the model is at this address"},
    {"-hfd -hfrd --hf-repo-draft --spec-draft-hf", "OWNER/REPO[:QUANT]", APP_TEXT, SPECULATES, AT(pull.hf_repo_draft), 0, 0,
     "Download", "the drafter is in this Hugging Face repository"},
    {"-hft --hf-token", "TOKEN", APP_TEXT, READS | APP_PULL, AT(pull.hf_token), 0, 0, "Download",
     "token for Hugging Face; better given as HF_TOKEN in the environment, where other users do not see it"},
    {"--ollama-registry", "URL", APP_TEXT, READS | APP_PULL, AT(pull.registry), 0, 0, "Download",
     "another registry with ollama's protocol (default: https://registry.ollama.ai)"},
    {"--cache-dir", "DIR", APP_TEXT, READS | APP_STORE, AT(pull.cache_dir), 0, 0, "Download",
     "folder for pulled models (default: aerie/models in $XDG_CACHE_HOME or ~/.cache)"},
    {"--offline", NULL, APP_FLAG, READS | APP_PULL, AT(pull.offline), 0, 0, "Download", "use only what was pulled before"},
    {"--no-drafter", NULL, APP_FLAG, READS | APP_PULL, AT(pull.no_drafter), 0, 0, "Download",
     "do not also download a drafter in the repository"},
    {"--sha256", "HASH", APP_TEXT, APP_PULL, AT(pull.sha256), 0, 0, "Download", "refuse a file of another SHA-256"},
    {"--stall", "SECONDS", APP_U32, APP_PULL, AT(pull.stall_seconds), 1, 3600, "Download",
     "close a connection on which no data arrives for this time, and try again"},
    {"--retries", "N", APP_U32, APP_PULL, AT(pull.n_retries), 0, 1000, "Download",
     "give up after N further attempts in a row in which no data arrived"},
    /* Embeddings */
    {"--pooling", "auto|mean|cls|last|rank", APP_POOLING, APP_EMBED | APP_SERVE, AT(embed.pooling), 0, 0, "Embeddings",
     "how the vector of a text is made from those of its tokens: their mean, the first, the last, or a reranker's score of "
     "the first; auto: as the model's file says"},
    {"--embd-normalize", "N", APP_I32, APP_EMBED, AT(embed.normalize), -1, 64, "Embeddings",
     "how to normalize vectors; 2: to length 1; 1: so that magnitudes add up to 1; 0: to a largest magnitude of 32760; another "
     "p: to p-norm 1; -1: not at all"},
    {"--embd-output-format", "lines|array|json|json+", APP_TEXT, APP_EMBED, AT(embed.format), 0, 0, "Embeddings",
     "lines: a line of numbers for each text; array: JSON, a list of lists; json: like OpenAI's API; json+: the same, with the "
     "cosine of each pair of texts (default: lines)"},
    {"--embd-separator", "TEXT", APP_TEXT, APP_EMBED, AT(embed.separator), 0, 0, "Embeddings",
     "separator between the texts of -f or of standard input (default: the end of a line)"},
    {"--cosine", NULL, APP_FLAG, APP_EMBED, AT(embed.cosine), 0, 0, "Embeddings",
     "instead of vectors print the cosine of each pair of texts, a line for each text"},
    {"--truncate", NULL, APP_FLAG, APP_EMBED, AT(embed.truncate), 0, 0, "Embeddings",
     "truncate texts that are too long for the model instead of refusing them; the token that ends a text is kept"},
    {"--query", "TEXT", APP_TEXT, APP_EMBED, AT(embed.query), 0, 0, "Embeddings",
     "score how well each text answers this query; needs a reranker"},

    /* Tokenize */
    {"--decode", NULL, APP_FLAG, APP_TOKENIZE, AT(tokenize.decode), 0, 0, "Tokenize", "convert ids to text"},
    {"--no-bos", NULL, APP_FLAG, APP_TOKENIZE, AT(tokenize.no_bos), 0, 0, "Tokenize",
     "do not add the tokens that the model puts around a text"},
    {"--no-parse-special", NULL, APP_FLAG, APP_TOKENIZE, AT(tokenize.no_parse_special), 0, 0, "Tokenize",
     "treat text like <|im_start|> as plain text"},
    {"--show-count", NULL, APP_FLAG, APP_TOKENIZE, AT(tokenize.show_count), 0, 0, "Tokenize",
     "print the number of tokens on standard error"},

    /* Template */
    {"--chat-template-file --file", "FILE", APP_TEXT, APP_TEMPLATE, AT(chat.template_file), 0, 0, "Template",
     "the template (Jinja); - is standard input (default: the model's own)"},
    {"--bos", "TEXT", APP_TEXT, APP_TEMPLATE, AT(render.bos), 0, 0, "Template",
     "bos_token for the template (default: the model's; empty without a model)"},
    {"--eos", "TEXT", APP_TEXT, APP_TEMPLATE, AT(render.eos), 0, 0, "Template",
     "eos_token for the template (default: the model's; empty without a model)"},
    {"--no-generation-prompt", NULL, APP_FLAG, APP_TEMPLATE, AT(render.no_generation_prompt), 0, 0, "Template",
     "do not append the beginning of an answer"},
    {"--set", "NAME=JSON", APP_TEXTS, APP_TEMPLATE, AT(render.variables), 0, 0, "Template",
     "set a variable of the template, e.g. enable_thinking=false; may be repeated"},
    {"--tokens", NULL, APP_FLAG, APP_TEMPLATE, AT(render.tokens), 0, 0, "Template",
     "print the token ids of the prompt instead, on one line; needs a model"},

    /* Inspect */
    {"--keys", NULL, APP_FLAG, APP_INSPECT, AT(inspect.keys), 0, 0, "Inspect", "show metadata without the totals"},
    {"--tensors", NULL, APP_FLAG, APP_INSPECT, AT(inspect.tensors), 0, 0, "Inspect",
     "show the tensors; with --json only the tensors"},
    {"--match", "TEXT", APP_TEXT, APP_INSPECT, AT(inspect.match), 0, 0, "Inspect",
     "show only keys and tensors whose names contain TEXT"},
    {"--full", NULL, APP_FLAG, APP_INSPECT, AT(inspect.full), 0, 0, "Inspect", "show arrays and strings in full"},

    {"--quick", NULL, APP_FLAG, APP_DOCTOR, AT(quick), 0, 0, "Doctor", "do not measure the read bandwidth"},

    /* Convert */
    {"-o --output --outfile", "FILE", APP_TEXT, APP_CONVERT, AT(convert.output), 0, 0, "Convert", "GGUF file to write"},
    {"--target", "FILE", APP_TEXT, APP_CONVERT, AT(convert.target), 0, 0, "Convert",
     "GGUF file of the model that the head drafts for, or that the LoRA adapter changes"},
    {"--outtype", "TYPE", APP_TEXT, APP_CONVERT, AT(convert.type), 0, 0, "Convert",
     "type of the matrices: f32, f16, bf16, q8_0 ...; auto: bf16 if the checkpoint is bf16, else f16; f32 of adapters "
     "(default: auto)"},
    {"--producer", "NAME", APP_TEXT, APP_CONVERT, AT(convert.producer), 0, 0, "Convert",
     "program that saved the checkpoint, on which the meaning of its config depends: official, specforge, angelslim, "
     "speculators, nvidia (default: detected)"},
    {"--taps", "input|output|LIST", APP_TEXT, APP_CONVERT, AT(convert.taps), 0, 0, "Convert",
     "EAGLE-3: whether the config's numbers of feature layers mean the layers' inputs or outputs, or a list of layers whose "
     "inputs are the features (default: detected)"},
    {"--feedback", "pre|post", APP_TEXT, APP_CONVERT, AT(convert.feedback), 0, 0, "Convert",
     "EAGLE-3: whether the next step starts from the output before or after the final norm (default: detected)"},
    {"--norm-before-residual", "on|off", APP_TEXT, APP_CONVERT, AT(convert.residual), 0, 0, "Convert",
     "EAGLE-3: whether the residual starts from the normalized feature (default: detected)"},
    {"--d2t", "offset|absolute", APP_TEXT, APP_CONVERT, AT(convert.d2t), 0, 0, "Convert",
     "whether the map of the draft vocabulary contains offsets or token ids (default: detected)"},
    {"--rope", "halves|pairs", APP_TEXT, APP_CONVERT, AT(convert.rope), 0, 0, "Convert",
     "order of the rows of q and k for RoPE: element i is rotated with i + n/2, or 2i with 2i + 1 (default: halves)"},
    {"--embedding", "auto|keep|drop", APP_TEXT, APP_CONVERT, AT(convert.embedding), 0, 0, "Convert",
     "whether to keep the head's own embedding; auto: if it differs from the target's or, without --target, in width"},
    {"--pre", "NAME", APP_TEXT, APP_CONVERT, AT(convert.pre), 0, 0, "Convert",
     "models: the pre-tokenizer, for folders whose pre-tokenizer is not known (default: detected)"},
    {"--mtp", NULL, APP_FLAG, APP_CONVERT, AT(convert.mtp), 0, 0, "Convert",
     "models: write the MTP blocks, which predict further ahead, even if llama.cpp cannot load such a file"},
    {"--skip", "TEXT", APP_TEXTS, APP_CONVERT, AT(convert.skip), 0, 0, "Convert",
     "leave out tensors whose names contain TEXT; may be repeated"},
    {"--config", "FILE", APP_TEXT, APP_CONVERT, AT(convert.config), 0, 0, "Convert",
     "config file (default: config.json beside the tensors)"},
    {"--window", "N", APP_U32, APP_CONVERT, AT(convert.window), 0, 1 << 24, "Convert",
     "let the head attend to the latest N rows only; use it for heads trained on short texts; 0: all"},
    {"--sinks", "N", APP_U32, APP_CONVERT, AT(convert.sinks), 0, 1 << 20, "Convert",
     "with --window: let it also attend to the first N rows"},
    {"--tokenizer", NULL, APP_FLAG, APP_CONVERT, AT(convert.tokenizer), 0, 0, "Convert",
     "copy the target's tokenizer too, which other programs need"},
    {"--self-check", NULL, APP_FLAG, APP_CONVERT, AT(convert.self_check), 0, 0, "Convert",
     "run the head and the target over a text; if another interpretation of feature layers, residual, rotation or feedback "
     "predicts the target clearly better, use it. Those given by options are kept"},
    {"--self-check-file", "FILE", APP_TEXT, APP_CONVERT, AT(convert.check_file), 0, 0, "Convert",
     "text for --self-check, of which up to 512 tokens are used (default: a built-in one)"},
    {"--name", "TEXT", APP_TEXT, APP_CONVERT, AT(convert.name), 0, 0, "Convert",
     "value of general.name (default: the folder's name)"},
    /* Perplexity and importance */
    {"--ppl-stride", "N", APP_U32, APP_PERPLEXITY, AT(judge.stride), 0, APP_MAX_CTX, "Perplexity",
     "let windows overlap: each begins N tokens after the previous one, and its last N tokens count; 0: windows do not "
     "overlap, and their second halves count"},
    {"--kl-divergence-base --save-all-logits", "FILE", APP_TEXT, APP_PERPLEXITY, AT(judge.kl_base), 0, 0, "Perplexity",
     "save the model's predictions to FILE, in llama.cpp's format: two bytes for each position and token of the vocabulary; "
     "with --kl-divergence read them"},
    {"--kl-divergence", NULL, APP_FLAG, APP_PERPLEXITY, AT(judge.kl_divergence), 0, 0, "Perplexity",
     "compare the model with the saved predictions, over the same text and windows"},
    {"--hellaswag", NULL, APP_FLAG, APP_PERPLEXITY, AT(judge.hellaswag), 0, 0, "Perplexity",
     "score tasks: six lines each, as llama.cpp has them, or lines of JSON"},
    {"--multiple-choice", NULL, APP_FLAG, APP_PERPLEXITY, AT(judge.multiple_choice), 0, 0, "Perplexity",
     "score tasks: lines of JSON, such as ARC's"},
    {"--hellaswag-tasks --multiple-choice-tasks", "N", APP_U32, APP_PERPLEXITY, AT(judge.n_tasks), 0, INT32_MAX, "Perplexity",
     "score the first N tasks; 0: all"},
    {"-o --output-file --output", "FILE", APP_TEXT, APP_IMATRIX, AT(judge.output), 0, 0, "Importance", "GGUF file to write"},
    {"--process-output", NULL, APP_FLAG, APP_IMATRIX, AT(judge.process_output), 0, 0, "Importance",
     "also collect for the output matrix, which computes the logits; a head's is always included"},
    {"--parse-special", NULL, APP_FLAG, APP_IMATRIX, AT(judge.parse_special), 0, 0, "Importance",
     "read text such as <|im_start|> as the control token; use it for a text of chats written with their template"},

    /* Quantize */
    {"--imatrix", "FILE", APP_TEXT, QUANTIZE(imatrix), "weight errors by this importance matrix (GGUF, or an older .dat)"},
    {"--include-weights", "TEXT", APP_TEXTS, QUANTIZE(included),
     "use the importance matrix only for weights whose names contain the text; may be repeated"},
    {"--exclude-weights", "TEXT", APP_TEXTS, QUANTIZE(excluded),
     "use the importance matrix only for weights whose names do not contain the text; may be repeated"},
    {"--output-tensor-type", "TYPE", APP_TEXT, QUANTIZE(output_type), "type of output.weight, or of embeddings used as output"},
    {"--token-embedding-type", "TYPE", APP_TEXT, QUANTIZE(embedding_type), "type of token_embd.weight"},
    {"--tensor-type", "PATTERN=TYPE", APP_TEXTS, QUANTIZE(tensor_types),
     "type of weights whose names match the regular expression; may be repeated, and the first match counts"},
    {"--tensor-type-file", "FILE", APP_TEXTS, QUANTIZE(tensor_type_files),
     "file with values of --tensor-type, separated by spaces or lines; those of --tensor-type itself come first"},
    {"--pure", NULL, APP_FLAG, QUANTIZE(pure), "use one type for all weights, including the embeddings and the output"},
    {"--leave-output-tensor", NULL, APP_FLAG, QUANTIZE(leave_output), "copy output.weight unchanged"},
    {"--allow-requantize", NULL, APP_FLAG, QUANTIZE(allow_requantize), "quantize again, which is worse than from the original"},
    {"--prune-layers", "LIST", APP_NUMBERS, APP_QUANTIZE, AT(quantize.pruned), 0, 4095, "Quantize",
     "leave out these layers (0,1,2 or 4-7); refused if the others would then compute something else"},
    {"--keep-split", NULL, APP_FLAG, QUANTIZE(keep_split), "write a split model as one of as many parts"},
    {"--dry-run", NULL, APP_FLAG, QUANTIZE(dry_run), "report the types of all tensors and the file's size, write nothing"},

    /* Bench */
    {"-p --n-prompt", "N", APP_U32, APP_BENCH_VERIFY, AT(bench.n_prompt), 0, 1 << 16, "Bench",
     "prompt tokens, in one pass; 0: skip"},
    {"-p --n-prompt", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.prompts), 0, 1 << 20, "Bench", "prompt tokens; 0: skip"},
    {"-n --n-gen", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.predicts), 0, 1 << 20, "Bench", "generated tokens; 0: skip"},
    {"-pg --n-pg", "N,N", APP_TEXTS, APP_BENCH_SPEED, AT(speed.pairs), 0, 0, "Bench",
     "also measure a prompt and generated tokens, timed together; may be repeated"},
    {"-d --n-depth", "LIST", APP_NUMBERS, APP_BENCH_SPEED, AT(speed.depths), 0, 1 << 20, "Bench",
     "number of tokens in the context before the prompt or the generated tokens"},
    {"-o --output", "FORMAT", APP_TEXT, APP_BENCH_SPEED, AT(speed.format), 0, 0, "Bench",
     "csv, json, jsonl, md or sql: print what llama-bench prints, with its names of columns (default: a table)"},
    {"--progress", NULL, APP_FLAG, APP_BENCH_SPEED, AT(speed.progress), 0, 0, "Bench",
     "say on standard error which test runs, and about how long the rest takes"},
    {"-n --n-rows", "LIST", APP_NUMBERS, APP_BENCH_VERIFY, AT(bench.rows), 1, 4096, "Bench", "numbers of rows per pass"},
    {"--contexts", "LIST", APP_NUMBERS, APP_BENCH_VERIFY, AT(bench.contexts), 0, 1 << 24, "Bench",
     "numbers of cached positions before the rows"},
    {"--contexts", "LIST", APP_NUMBERS, APP_BENCH_STUDY, AT(bench.contexts), 0, 1 << 24, "Bench",
     "numbers of tokens of text before the rows of a pass and before each prompt"},
    {"--context-text", "FILE", APP_TEXT, APP_BENCH_STUDY, AT(bench.context_text), 0, 0, "Bench",
     "the text of --contexts (default: the prompts, over and over)"},
    {"--kv-types", "LIST", APP_TEXT, APP_BENCH_STUDY, AT(study.kv_types), 0, 0, "Bench",
     "types of the cache, each measured (default: that of --kv-type)"},
    {"-r --repetitions", "N", APP_U32, APP_BENCH_SPEED | APP_BENCH_VERIFY | COMPARES | APP_BENCH_SHAPES,
     AT(bench.n_repetitions), 1,
     1000, "Bench", "number of repetitions"},
    {"--types", "LIST", APP_TEXT, APP_BENCH_STUDY, AT(study.types), 0, 0, "Bench",
     "types of aerie quantize; 'as-is': the file as it is (default: F16,Q8_0,Q6_K,Q4_K_M,Q4_0,Q3_K_M,Q2_K; with --quick "
     "Q8_0,Q4_0)"},
    {"-o --output", "DIR", APP_TEXT, APP_BENCH_STUDY, AT(study.output), 0, 0, "Bench",
     "folder for figures and tables, created if necessary (default: study)"},
    {"--quick", NULL, APP_FLAG, APP_BENCH_STUDY, AT(quick), 0, 0, "Bench", "a first impression in minutes"},
    {"--types", "LIST", APP_TEXT, APP_BENCH_SHAPES, AT(shapes.types), 0, 0, "Bench", "tensor types of the matrices"},
    {"--n-in", "LIST", APP_NUMBERS, APP_BENCH_SHAPES, AT(shapes.n_in), 32, 1 << 20, "Bench", "columns of the matrices"},
    {"--n-out", "LIST", APP_NUMBERS, APP_BENCH_SHAPES, AT(shapes.n_out), 1, 1 << 20, "Bench", "rows of the matrices"},
    {"-n --n-rows", "LIST", APP_NUMBERS, APP_BENCH_SHAPES, AT(shapes.n_rows), 1, 4096, "Bench", "numbers of rows of a product"},
    {"--models", NULL, APP_FLAG, APP_BENCH_SHAPES, AT(shapes.models), 0, 0, "Bench",
     "the matrices of twenty published models from 135M to 70B"},
    {"--resume", NULL, APP_FLAG, APP_BENCH_STUDY, AT(study.resume), 0, 0, "Bench",
     "keep the figures in the folder's study.csv of types that were measured with the same options"},
    {"--steep", "N:R", APP_TEXT, APP_BENCH_SPEC | APP_BENCH_STUDY, AT(bench.steep), 0, 0, "Bench",
     "delay passes so that one over N rows takes R times as long as one over one row, with times in between on a line: shows "
     "what would pay on such a machine (48:1.8 in the paper on HierSpec)"},
    {"--trace", "FILE", APP_TEXT, APP_BENCH_SPEC, AT(bench.trace), 0, 0, "Bench",
     "write a line of JSON for each pass of each drafter: what the controller expected of it, and what happened"},
    {"--in-turns", NULL, APP_FLAG, APP_BENCH_SPEC, AT(bench.in_turns), 0, 0, "Bench",
     "run plain decoding and each drafter in turns, pass by pass, so that other work on the machine slows all of them alike"},
    {"--ids-file", "FILE", APP_TEXT, APP_BENCH_LOGITS, AT(bench.ids_file), 0, 0, "Bench",
     "file of token ids, one window per line, separated by spaces; - is standard input"},

    /* Training */
    {"-o --output", "FILE", APP_TEXT, APP_TRAIN_DATA, AT(train.output), 0, 0, "Training",
     "file to write; items that it already contains are kept and not generated again"},
    {"--n-turns", "N", APP_U32, APP_TRAIN_DATA, AT(train.n_turns), 1, 1 << 24, "Training", "turns: number of user messages"},
    {"--features", "FILE", APP_TEXT, APP_TRAIN_DATA, AT(train.features), 0, 0, "Training",
     "answers: also write the features to FILE, so that the step 'features' is not needed"},
    {"--taps", "LIST", APP_NUMBERS, APP_TRAIN_DATA, AT(train.taps), 0, 4096, "Training",
     "features: record the hidden rows before these layers, from 0 to L, the number of layers (default: 2, L/2, L-3)"},
    {"--n-likely", "N", APP_U32, APP_TRAIN_DATA, AT(train.n_likely), 1, 64, "Training",
     "features: number of likeliest next tokens recorded per position"},

    /* Output */
    {"--ids", NULL, APP_FLAG, APP_RUN | APP_TOKENIZE, AT(ids), 0, 0, "Output",
     "print token ids instead of text, one line per prompt; tokenize always does"},
    {"--jsonl --json-lines", NULL, APP_FLAG, APP_RUN, AT(jsonl), 0, 0, "Output",
     "print one line of JSON per answer, in the order of the prompts, as soon as it is complete"},
    {"--json", NULL, APP_FLAG,
     (ALL & ~(APP_BENCH_LOGITS | APP_TRAIN_DATA | APP_SERVE)) | APP_QUANTIZE | APP_STORE | APP_BENCH_SHAPES, AT(json), 0, 0,
     "Output", "print one JSON object"},
    {"--csv", NULL, APP_FLAG, APP_BENCH_SPEED | APP_BENCH_VERIFY | APP_BENCH_SPEC | APP_BENCH_SHAPES, AT(csv), 0, 0, "Output",
     "print comma-separated values"},
    {"--logprobs --n-probs", "N", APP_U32, APP_RUN, AT(n_logprobs), 0, AERIE_MAX_LOGPROBS, "Output",
     "with --json: add the log-probabilities of each token and of the N likeliest, before sampling; 0: none"},
    {"--color-drafts", NULL, APP_FLAG, APP_RUN, AT(run.color_drafts), 0, 0, "Output",
     "on a terminal, color the answer's tokens by origin: decoded, or drafted and accepted at depth 1, 2, ... "
     "(not if NO_COLOR is set in the environment)"},
    {"--no-wrap", NULL, APP_FLAG, APP_RUN, AT(run.no_wrap), 0, 0, "Output",
     "on a terminal, do not break lines of the answer between words; the terminal then breaks long lines anywhere"},
    {"--no-history", NULL, APP_FLAG, APP_RUN, AT(run.no_history), 0, 0, "Output",
     "do not read or write the chat's input history ($XDG_STATE_HOME/aerie/history)"},
    {"--stats", NULL, APP_FLAG, APP_RUN, AT(stats), 0, 0, "Output",
     "print timing and acceptance figures on standard error at the end"},
    {"-v --verbose", NULL, APP_FLAG, ALL | APP_QUANTIZE | APP_STORE | APP_BENCH_SHAPES, AT(verbose), 0, 0, "Output",
     "print more on standard error"},
    {"-q --quiet --log-disable", NULL, APP_FLAG, ALL | APP_QUANTIZE | APP_STORE | APP_BENCH_SHAPES, AT(quiet), 0, 0, "Output",
     "print only errors and warnings on standard error"},
};

size_t app_n_options(void)
{
    return sizeof options / sizeof *options;
}

const app_option *app_option_at(size_t i)
{
    return &options[i];
}

const char *app_name_at(const char *names, size_t i, char out[64])
{
    const char *name = names;
    for (; i > 0 && name; i--) {
        name = strchr(name, ' ');
        if (name) name++;
    }
    if (!name) return NULL;
    const size_t n = strcspn(name, " ");
    snprintf(out, 64, "%.*s", (int)n, name);
    return out;
}

const char *app_option_name(const app_option *option, size_t i, char out[64])
{
    return app_name_at(option->names, i, out);
}

size_t app_option_find(const char *name, size_t n, unsigned bits)
{
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        char known[64];
        if (!(o->commands & bits)) continue;
        for (size_t k = 0; app_option_name(o, k, known); k++) {
            if (strlen(known) == n && memcmp(known, name, n) == 0) return i;
        }
    }
    return app_n_options();
}
