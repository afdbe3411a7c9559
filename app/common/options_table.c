/* options_table.c - the table of commands and the table of options (options.h says what they mean), and finding names in
 * them.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/options.h"

static const app_command commands[] = {
    {APP_RUN, "run", "", "one answer, or a chat on a terminal",
     "Answers the prompt given by -p, -f or standard input and prints the answer, nothing else, to\n"
     "standard output. Without a prompt, on a terminal, it chats: /help there says how.\n"
     "The prompt is put into the model's chat template, if it has one; -no-cnv continues raw text.\n"
     "Several prompts (-p repeated, --prompts-file) are answered in their order, -np N at once.\n"
     "Speculation is on by default and never changes a byte of the output.\n"
     "\n"
     "  aerie run -m model.gguf -p 'Why is the sky blue?'\n"
     "  aerie run -m model.gguf -no-cnv -p 'Once upon a time' -n 64 --temp 0 --stats\n"},
    {APP_TOKENIZE, "tokenize", "[ID ...]", "text to token ids and back",
     "Reads text from -p, -f or standard input and prints its token ids, one line, spaces between.\n"
     "With --decode it reads ids (arguments, -p, -f or standard input) and prints their exact bytes,\n"
     "control tokens spelled out. Files that hold a vocabulary only are enough.\n"
     "\n"
     "  aerie tokenize -m model.gguf -p 'Hello world'\n"
     "  aerie tokenize -m model.gguf --decode 9906 1917\n"},
    {APP_TEMPLATE, "template", "", "a conversation as a chat template writes it",
     "Renders the messages of a JSON file by a chat template, a file's or a model's own, and prints the prompt,\n"
     "every byte of it and no more. The template sees what Hugging Face transformers shows to it: messages, tools,\n"
     "documents, add_generation_prompt, bos_token, eos_token, and what --set adds.\n"
     "The file holds a list of messages, or an object with the list as \"messages\" and perhaps \"tools\" and\n"
     "\"chat_template_kwargs\", as chat APIs take it; what else is in the object is passed over.\n"
     "\n"
     "  aerie template -m model.gguf --messages chat.json\n"
     "  aerie template --file qwen3.jinja --messages - --tools tools.json --set enable_thinking=false < chat.json\n"},
    {APP_INSPECT, "inspect", "[FILE]", "what a model file holds",
     "Prints metadata, tensors and totals of a GGUF file, also of one that aerie cannot run.\n"
     "\n"
     "  aerie inspect model.gguf\n"
     "  aerie inspect model.gguf --keys --match tokenizer\n"},
    {APP_CONVERT, "convert", "DIR|FILE", "a drafting head's checkpoint to GGUF",
     "Turns an EAGLE-1, 2, 3 or 3.1 or a Medusa checkpoint (safetensors or PyTorch's, and config.json, as EAGLE,\n"
     "SpecForge, AngelSlim, speculators, ModelOpt and Medusa save it) into a GGUF file, and says what it took it for.\n"
     "With the target, sizes are checked and tables that are only copies of the target's are left out.\n"
     "\n"
     "  aerie convert EAGLE3-LLaMA3.1-Instruct-8B/ --target llama-3.1-8b.gguf -o eagle3.gguf\n"
     "  aerie convert head/ -o head.gguf --outtype q8_0 --taps output --feedback post\n"},
    {APP_QUANTIZE, "quantize", "IN.gguf OUT.gguf TYPE [THREADS]", "the same model in another tensor type",
     "Writes IN again with its weights in TYPE: a mix of types under llama.cpp's names and by its rules\n"
     "(Q4_K_M, Q4_0, Q8_0, F16 ...; --help ends with the list). Norms, vectors, routers and tables of\n"
     "numbers stay as they are, and so does all metadata. Of a split model any part brings all of it, and OUT\n"
     "is one file. Drafting heads work too: all their weights get the type.\n"
     "Rows that are not whole blocks of a type get the next larger one, and it is said how many.\n"
     "\n"
     "  aerie quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
     "  aerie quantize model-f16.gguf model-q4_0.gguf Q4_0 --tensor-type 'ffn_down=q6_K' --dry-run\n"},
    {APP_BENCH_SPEED, "bench speed", "", "tokens per second of prompt and generation",
     "Measures prefill of a prompt and plain decoding, without speculation.\n"},
    {APP_BENCH_VERIFY, "bench verify", "", "what a pass over n rows costs",
     "Measures T(n), the time of one target pass over n rows, and of a pass over a prompt, in turn, with\n"
     "the machine's read bandwidth between them. Medians over all repetitions; --json and --csv have\n"
     "the bests too. One kernel level a call (--cpu); bench/peers.py takes several in turn.\n"
     "\n"
     "  aerie bench verify -m model.gguf --contexts 0,4096 --csv > verify.csv\n"},
    {APP_BENCH_SPEC, "bench spec", "", "speculation against plain decoding",
     "Answers prompts plainly and with each kind of speculation, in alternating runs, and reports for\n"
     "each drafter, temperature and group of prompts (and all groups together) tokens/s with and\n"
     "without speculation, what was drafted and accepted, and whether the output was the same, which\n"
     "it must be: exit status 1 if not.\n"
     "--prompts reads a group from each .jsonl file, named like the file: a line is one object with\n"
     "\"id\", \"prompt\" and \"held_out\" (true or false: not for training). Lists (--spec-types,\n"
     "--spec-draft-n-max, --spec-tree, --temps, -np) are measured in all combinations.\n"
     "tokens/s are tokens over the seconds of generation, prompts being in the cache: each prompt's\n"
     "median over -r runs, and over a group all tokens by all those seconds. 'per pass' and 'per\n"
     "round': accepted tokens per target pass, and per pass that verified a draft; 'rows': rows per\n"
     "pass and sequence; 'T/T1': what a pass cost, in plain ones; 'drafting': its share of the time.\n"
     "Acceptance by depth: rounds that accepted so deep over all rounds, and, in brackets, over the\n"
     "rounds that got as far as to try it. Without --seed it is 0, so that runs can be compared.\n"
     "\n"
     "  aerie bench spec -m model.gguf --prompts bench/prompts --held-out only --temps 0,1 --json\n"},
    {APP_BENCH_LOGITS, "bench logits", "", "raw logits of token windows",
     "Reads windows of token ids, one per line, and writes little-endian float32 logits, a row\n"
     "[n_vocab] for every token of every window, to standard output. Each window starts at position 0.\n"
     "\n"
     "  aerie bench logits -m model.gguf --ids-file windows.txt > logits.f32\n"},
    {APP_TRAIN_DATA, "train-data", "STEP [FILE]", "data to train a drafting head with",
     "The target model writes what its head is trained on, in three steps: user turns that it makes up\n"
     "itself, answers to prompts, and features (hidden rows, likeliest next tokens) of the answers. Each\n"
     "step goes on where an interrupted one stopped. The formats are in training/README.md.\n"
     "\n"
     "  aerie train-data turns -m model.gguf -o turns.jsonl --n-turns 1000 -np 32 -n 128 --temp 1\n"
     "  aerie train-data answers turns.jsonl -m model.gguf -o answers.jsonl -np 32 -n 256 --temp 0\n"
     "  aerie train-data features answers.jsonl -m model.gguf -o features.bin\n"},
};

#define SPECULATES (APP_RUN | APP_BENCH_SPEC)
#define GENERATES (SPECULATES | APP_TRAIN_DATA)
#define LOADS APP_LOADS
#define READS APP_READS
#define ALL (READS | APP_CONVERT)

#define AT(field) offsetof(app_options, field)

static const app_option options[] = {
    /* Model */
    {"-m --model", "FILE", APP_TEXT, READS, AT(model), 0, 0, "Model", "model file (GGUF); of a split model any part"},
    {"-md --model-draft --spec-draft-model", "FILE", APP_TEXT, SPECULATES, AT(draft_model), 0, 0, "Model",
     "a small model, or a drafting head made for the model, that drafts; with another vocabulary it drafts with the "
     "tokens that both share, if these are enough"},
    {"--mmap", NULL, APP_FLAG, READS, AT(model_params.mmap), 0, 0, "Model",
     "start at once: use the weights as they lie in the file, which stays mapped; same output, slower. "
     "Otherwise quantized weights are read and repacked in memory, and only tables and float weights are mapped"},
    {"--no-mmap", NULL, APP_FLAG, READS, AT(model_params.no_mmap), 0, 0, "Model",
     "map nothing: read tables and float weights into memory too"},
    {"-c --ctx-size", "N", APP_U32, LOADS, AT(session.n_ctx), 0, 1 << 24, "Model",
     "positions per sequence; 0: the smaller of 8192 and what the model was trained for"},
    {"-b --batch-size", "N", APP_U32, LOADS, AT(n_batch_logical), 1, 1 << 20, "Model",
     "prompt tokens per pass at most, as -ub; the smaller of both counts"},
    {"-ub --ubatch-size", "N", APP_U32, LOADS, AT(session.n_batch), 1, 1 << 16, "Model", "prompt tokens per pass"},
    {"-np --parallel", "LIST", APP_NUMBERS, APP_BENCH_SPEC, AT(n_seqs), 1, 1024, "Model", "prompts answered at once"},
    {"-np --parallel", "N", APP_U32, APP_RUN | APP_TRAIN_DATA, AT(session.n_seqs), 1, 1024, "Model",
     "prompts answered at once"},
    {"-t --threads", "N", APP_U32, APP_THREADS | APP_CONVERT, AT(n_threads), 0, 1024, "Model",
     "threads; 0: one per core that this process may use, fewer if a control group's quota is less"},
    {"-C --cpu-mask", "M", APP_TEXT, APP_THREADS, AT(cpu_mask), 0, 0, "Model",
     "run on these CPUs only: a number in hex, bit i for CPU i"},
    {"-Cr --cpu-range", "LO-HI", APP_TEXT, APP_THREADS, AT(cpu_range), 0, 0, "Model",
     "run on these CPUs only; with --cpu-mask on those of both"},
    {"--kv-type", "TYPE", APP_KV_TYPE, LOADS, AT(session.kv_type), 0, 0, "Model",
     "how keys and values are cached: f16, or q8_0 for half the memory and faster long contexts"},
    {"-ctk --cache-type-k", "TYPE", APP_TEXT, LOADS, AT(cache_type_k), 0, 0, "Model", "as --kv-type; needs the same -ctv"},
    {"-ctv --cache-type-v", "TYPE", APP_TEXT, LOADS, AT(cache_type_v), 0, 0, "Model", "as --kv-type; needs the same -ctk"},
    {"--cpu", "LEVEL", APP_TEXT, LOADS | APP_CONVERT, AT(model_params.cpu_level), 0, 0, "Model",
     "highest kernel level: ref, avx2, avxvnni, avx512, amx or neon, dotprod, i8mm; the bytes are the same "
     "(default: the best there is)"},

    /* Prompt */
    {"-p --prompt", "TEXT", APP_TEXTS, APP_RUN | APP_TOKENIZE | APP_BENCH_SPEC, AT(prompts), 0, 0, "Prompt",
     "the prompt; run and bench spec take several"},
    {"-f --file", "FILE", APP_TEXT, APP_RUN | APP_TOKENIZE, AT(file), 0, 0, "Prompt",
     "read it from a file, - is standard input; run drops one newline at its end"},
    {"--prompts-file", "FILE", APP_TEXT, SPECULATES, AT(prompts_file), 0, 0, "Prompt",
     "a prompt on each line; empty lines are skipped"},
    {"--prompts", "DIR|FILE", APP_TEXTS, APP_BENCH_SPEC, AT(prompt_paths), 0, 0, "Prompt",
     "groups of prompts: a .jsonl file, or a folder of them; may be repeated"},
    {"--groups", "LIST", APP_TEXT, APP_BENCH_SPEC, AT(groups), 0, 0, "Prompt", "only these groups of --prompts"},
    {"--held-out", "only|all|no", APP_TEXT, APP_BENCH_SPEC, AT(held_out), 0, 0, "Prompt",
     "of --prompts only those held out of training, all, or only the others (default: all)"},
    {"--per-group", "N", APP_U32, APP_BENCH_SPEC, AT(n_per_group), 0, 1 << 20, "Prompt",
     "prompts of a group at most; 0: all"},
    {"-sys --system-prompt", "TEXT", APP_TEXT, SPECULATES, AT(system_prompt), 0, 0, "Prompt",
     "system message of the conversation"},
    {"-no-cnv --no-conversation", NULL, APP_FLAG, GENERATES, AT(no_conversation), 0, 0, "Prompt",
     "continue the text as it is, without the chat template"},
    {"-st --single-turn", NULL, APP_FLAG, APP_RUN, AT(single_turn), 0, 0, "Prompt", "end the chat after one answer"},
    {"-e --escape", NULL, APP_FLAG, APP_RUN | APP_TOKENIZE | APP_BENCH_SPEC, AT(escape), 0, 0, "Prompt",
     "\\n, \\r, \\t, \\', \\\", \\\\ and \\xNN in -p stand for those characters"},
    {"--no-escape", NULL, APP_FLAG_OFF, APP_RUN | APP_TOKENIZE | APP_BENCH_SPEC, AT(escape), 0, 0, "Prompt",
     "they stand for themselves, which is the default"},

    /* Generation */
    {"-n --predict --n-predict", "N", APP_I32, GENERATES, AT(n_predict), -2, INT32_MAX, "Generation",
     "tokens to generate at most; -1: until the answer ends or the context is full"},
    {"--ignore-eos", NULL, APP_FLAG, SPECULATES, AT(ignore_eos), 0, 0, "Generation",
     "do not stop where the model ends its answer"},
    {"-r --stop --reverse-prompt", "TEXT", APP_TEXTS, APP_RUN, AT(stop), 0, 0, "Generation",
     "end the answer before this text; may be given several times"},
    {"--grammar", "GBNF", APP_TEXT, SPECULATES, AT(grammar_text), 0, 0, "Generation",
     "the answer is a text of this grammar, in llama.cpp's GBNF: 'root ::= \"yes\" | \"no\"'"},
    {"--grammar-file", "FILE", APP_TEXT, SPECULATES, AT(grammar_file), 0, 0, "Generation", "the grammar is read from a file"},
    {"-j --json-schema", "SCHEMA", APP_TEXT, SPECULATES, AT(schema_text), 0, 0, "Generation",
     "the answer is JSON that fits this JSON schema; {}: any object"},
    {"-jf --json-schema-file", "FILE", APP_TEXT, SPECULATES, AT(schema_file), 0, 0, "Generation",
     "the schema is read from a file"},

    /* Sampling */
    {"-s --seed", "N", APP_SEED, GENERATES, AT(sampling.seed), 0, 0, "Sampling",
     "same seed, same output; -1: another one each time (default: -1)"},
    {"--temp --temperature", "T", APP_F32, GENERATES, AT(sampling.temperature), 0, 1000, "Sampling",
     "temperature; 0 is greedy"},
    {"--temps", "LIST", APP_REALS, APP_BENCH_SPEC, AT(temperatures), 0, 1000, "Sampling",
     "several temperatures, in place of --temp"},
    {"--top-k", "N", APP_I32, GENERATES, AT(sampling.top_k), -1, INT32_MAX, "Sampling",
     "only the N most likely tokens; 0: off"},
    {"--top-p", "P", APP_F32, GENERATES, AT(sampling.top_p), 0, 1, "Sampling",
     "only the most likely tokens that together reach P; 1: off"},
    {"--min-p", "P", APP_F32, GENERATES, AT(sampling.min_p), 0, 1, "Sampling",
     "only tokens at least P times as likely as the best; 0: off"},
    {"--repeat-penalty", "X", APP_F32, GENERATES, AT(sampling.repeat_penalty), 0.01, 100, "Sampling",
     "weakens tokens seen before; 1: off"},
    {"--presence-penalty", "X", APP_F32, GENERATES, AT(sampling.presence_penalty), -100, 100, "Sampling",
     "subtracted from the logit of a token seen before; 0: off"},
    {"--frequency-penalty", "X", APP_F32, GENERATES, AT(sampling.frequency_penalty), -100, 100, "Sampling",
     "subtracted for each time a token was seen; 0: off"},
    {"--repeat-last-n", "N", APP_I32, GENERATES, AT(sampling.penalty_last_n), -1, INT32_MAX, "Sampling",
     "how many of the newest tokens count as seen; 0: none, -1: all"},
    {"--dry-multiplier", "X", APP_F32, SPECULATES, AT(sampling.dry_multiplier), 0, 1000, "Sampling",
     "DRY weakens what would prolong a repetition of n tokens by X * base^(n - allowed length); 0: off"},
    {"--dry-base", "X", APP_F32, SPECULATES, AT(sampling.dry_base), 1, 1000, "Sampling", "DRY's base"},
    {"--dry-allowed-length", "N", APP_I32, SPECULATES, AT(sampling.dry_allowed_length), 0, INT32_MAX, "Sampling",
     "shorter repetitions are not weakened"},
    {"--dry-penalty-last-n", "N", APP_I32, SPECULATES, AT(sampling.dry_penalty_last_n), -1, INT32_MAX, "Sampling",
     "how many of the newest tokens DRY looks at; 0: none, -1: all"},
    {"--dry-sequence-breaker", "TEXT", APP_TEXTS, SPECULATES, AT(dry_breakers), 0, 0, "Sampling",
     "no repetition reaches over this text; the first one given replaces newline, colon, quote and asterisk; none: no text "
     "does"},
    {"--top-n-sigma --top-nsigma", "N", APP_F32, SPECULATES, AT(sampling.top_n_sigma), -1, 1e6, "Sampling",
     "only tokens whose logit is within N standard deviations of the best; 0 or less: off"},
    {"--typical --typical-p", "P", APP_F32, SPECULATES, AT(sampling.typical_p), 0, 1, "Sampling",
     "only the tokens of most typical surprise that together reach P; 1: off"},
    {"--xtc-probability", "P", APP_F32, SPECULATES, AT(sampling.xtc_probability), 0, 1, "Sampling",
     "how often XTC takes the likeliest tokens away; 0: never"},
    {"--xtc-threshold", "P", APP_F32, SPECULATES, AT(sampling.xtc_threshold), 0, 1, "Sampling",
     "XTC leaves one of the tokens at least as likely as P; above 0.5: off"},
    {"--dynatemp-range", "X", APP_F32, SPECULATES, AT(sampling.dynatemp_range), 0, 1000, "Sampling",
     "the temperature follows the entropy, from --temp - X to --temp + X; 0: off"},
    {"--dynatemp-exp", "X", APP_F32, SPECULATES, AT(sampling.dynatemp_exponent), 0, 1000, "Sampling",
     "how: (entropy / largest entropy)^X"},
    {"--mirostat", "N", APP_I32, SPECULATES, AT(sampling.mirostat), 0, 2, "Sampling",
     "2: mirostat 2.0, with logit bias and temperature as the only other steps; 0: off"},
    {"--mirostat-ent", "X", APP_F32, SPECULATES, AT(sampling.mirostat_tau), 0, 1000, "Sampling",
     "the surprise that mirostat aims at, in bits"},
    {"--mirostat-lr", "X", APP_F32, SPECULATES, AT(sampling.mirostat_eta), 0, 1000, "Sampling", "how fast it learns"},
    {"--min-keep", "N", APP_U32, SPECULATES, AT(sampling.min_keep), 0, INT32_MAX, "Sampling",
     "typical, top-p, min-p and XTC leave at least N tokens"},
    {"-l --logit-bias", "TOKEN(+|-)BIAS", APP_TEXTS, SPECULATES, AT(logit_bias), 0, 0, "Sampling",
     "changes a token's logit: 15043+1, 15043-0.5, 15043-inf (never); may be given several times"},
    {"--samplers", "LIST", APP_TEXT, SPECULATES, AT(samplers), 0, 0, "Sampling",
     "steps in their order (default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"},
    {"--sampling-seq --sampler-seq", "LETTERS", APP_TEXT, SPECULATES, AT(sampler_seq), 0, 0, "Sampling",
     "the same by letters (default: edskypmxt)"},

    /* Speculation */
    {"--spec-type", "TYPE", APP_SPEC_TYPE, APP_RUN, AT(session.spec.type), 0, 0, "Speculation",
     "auto, none, ngram, draft, draft-eagle, draft-eagle3, draft-medusa; for tests oracle, random. auto: what -md is, or "
     "a drafting head beside the model (MODEL-eagle3.gguf), else n-gram"},
    {"--spec-types", "LIST", APP_SPEC_TYPES, APP_BENCH_SPEC, AT(spec_types), 0, 0, "Speculation",
     "kinds to compare with none (default: ngram, and what -md is, or the drafting head beside the model)"},
    {"--spec-draft-n-max --draft-max --draft --draft-n", "N", APP_U32, APP_RUN, AT(session.spec.n_max), 1,
     AERIE_MAX_DRAFT, "Speculation", "tokens drafted ahead at most"},
    {"--spec-draft-n-max --draft-max --draft --draft-n", "LIST", APP_NUMBERS, APP_BENCH_SPEC, AT(n_maxes), 1,
     AERIE_MAX_DRAFT, "Speculation", "tokens drafted ahead at most"},
    {"--spec-draft-n-min --draft-min --draft-n-min", "N", APP_U32, SPECULATES, AT(session.spec.n_min), 0,
     AERIE_MAX_DRAFT, "Speculation", "shorter drafts are not verified"},
    {"--spec-draft-p-min --draft-p-min", "P", APP_F32, SPECULATES, AT(session.spec.p_min), 0, 1, "Speculation",
     "continuations less likely than P are not drafted"},
    {"--spec-ngram", "on|off", APP_ON_OFF, SPECULATES, AT(session.spec.ngram), 0, 0, "Speculation",
     "a head or draft model drafts beside the n-gram drafter, in one tree (auto) or the better chain of the two (off)"},
    {"--spec-tree", "SHAPE", APP_TREE, APP_RUN, AT(session.spec.tree), 0, 0, "Speculation",
     "auto: drafts branch where that pays; off: chains; of heads also static (EAGLE-1's tree), dynamic (EAGLE-2's)"},
    {"--spec-tree", "LIST", APP_TREES, APP_BENCH_SPEC, AT(trees), 0, 0, "Speculation",
     "shapes of drafts: auto, off, static, dynamic, as for run"},
    {"--spec-tree-nodes", "N", APP_U32, SPECULATES, AT(session.spec.n_nodes), 0, AERIE_MAX_DRAFT, "Speculation",
     "tokens of a drafted tree at most; 0: 64"},
    {"--spec-tree-top-k", "N", APP_U32, SPECULATES, AT(session.spec.top_k), 0, 16, "Speculation",
     "continuations looked at per token of a tree; 0: as the kind of drafts wants"},
    {"--spec-draft-window", "N", APP_U32, SPECULATES, AT(session.spec.window), 0, 1 << 24, "Speculation",
     "a drafting head sees the newest N positions only, in steps of 64: for one trained on short texts; 0: as it says"},
    {"--spec-draft-sinks", "N", APP_U32, SPECULATES, AT(session.spec.n_sinks), 0, 1 << 16, "Speculation",
     "with a window: the first N positions stay in sight"},
    {"--spec-draft-vocab", "N", APP_U32, SPECULATES, AT(draft_vocab), 0, INT32_MAX, "Speculation",
     "a head that drafts from the model's whole vocabulary looks at its first N tokens only; 0: at all"},
    {"--spec-fixed", NULL, APP_FLAG, SPECULATES, AT(session.spec.fixed), 0, 0, "Speculation",
     "verify all that is drafted: the controller is off"},
    {"--spec-oracle-error", "P", APP_F32, SPECULATES, AT(session.spec.oracle_error), 0, 1, "Speculation",
     "oracle: the share of drafted tokens that are wrong"},

    /* Tokenize */
    {"--decode", NULL, APP_FLAG, APP_TOKENIZE, AT(decode), 0, 0, "Tokenize", "ids to text"},
    {"--no-bos", NULL, APP_FLAG, APP_TOKENIZE, AT(no_bos), 0, 0, "Tokenize",
     "do not add the tokens that the model wants around a text"},
    {"--no-parse-special", NULL, APP_FLAG, APP_TOKENIZE, AT(no_parse_special), 0, 0, "Tokenize",
     "text like <|im_start|> is plain text"},
    {"--show-count", NULL, APP_FLAG, APP_TOKENIZE, AT(show_count), 0, 0, "Tokenize",
     "the number of tokens, on standard error"},

    /* Template */
    {"--chat-template-file --file", "FILE", APP_TEXT, APP_TEMPLATE, AT(template_file), 0, 0, "Template",
     "the template (Jinja); - is standard input (default: the model's own)"},
    {"--messages", "FILE", APP_TEXT, APP_TEMPLATE, AT(messages), 0, 0, "Template",
     "the conversation (JSON); - is standard input"},
    {"--tools", "FILE", APP_TEXT, APP_TEMPLATE, AT(tools), 0, 0, "Template",
     "a list of tools (JSON), in place of the one that may be in the messages' file; an empty list is none"},
    {"--bos", "TEXT", APP_TEXT, APP_TEMPLATE, AT(bos), 0, 0, "Template",
     "what the template sees as bos_token (default: the model's; without a model nothing)"},
    {"--eos", "TEXT", APP_TEXT, APP_TEMPLATE, AT(eos), 0, 0, "Template",
     "what it sees as eos_token (default: the model's; without a model nothing)"},
    {"--no-generation-prompt", NULL, APP_FLAG, APP_TEMPLATE, AT(no_generation_prompt), 0, 0, "Template",
     "end behind the last message, not where the answer begins"},
    {"--set", "NAME=JSON", APP_TEXTS, APP_TEMPLATE, AT(variables), 0, 0, "Template",
     "a variable for the template, e.g. enable_thinking=false; may be given several times"},
    {"--chat-template-kwargs", "JSON", APP_TEXT, APP_TEMPLATE, AT(template_kwargs), 0, 0, "Template",
     "several of them as an object; --set replaces"},
    {"--tokens", NULL, APP_FLAG, APP_TEMPLATE, AT(tokens), 0, 0, "Template",
     "print the prompt's token ids in its place, one line; needs a model"},

    /* Inspect */
    {"--keys", NULL, APP_FLAG, APP_INSPECT, AT(keys), 0, 0, "Inspect", "metadata only"},
    {"--tensors", NULL, APP_FLAG, APP_INSPECT, AT(tensors), 0, 0, "Inspect", "tensors only"},
    {"--match", "TEXT", APP_TEXT, APP_INSPECT, AT(match), 0, 0, "Inspect",
     "only keys and tensors whose name holds TEXT"},
    {"--full", NULL, APP_FLAG, APP_INSPECT, AT(full), 0, 0, "Inspect", "whole arrays and strings"},

    /* Convert */
    {"-o --output --outfile", "FILE", APP_TEXT, APP_CONVERT, AT(convert_output), 0, 0, "Convert", "the GGUF file to write"},
    {"--target", "FILE", APP_TEXT, APP_CONVERT, AT(convert_target), 0, 0, "Convert",
     "the model (GGUF) that the head drafts for"},
    {"--outtype", "TYPE", APP_TEXT, APP_CONVERT, AT(convert_type), 0, 0, "Convert",
     "type of the matrices: f32, f16, bf16, q8_0 or another; auto: bf16 from bf16, else f16 (default: auto)"},
    {"--producer", "NAME", APP_TEXT, APP_CONVERT, AT(convert_producer), 0, 0, "Convert",
     "who saved it, which decides what its config means: official, specforge, angelslim, speculators, nvidia "
     "(default: found out)"},
    {"--taps", "input|output|LIST", APP_TEXT, APP_CONVERT, AT(convert_taps), 0, 0, "Convert",
     "EAGLE-3: the layers of the config count by what they take in or put out; or a list, by what they take in "
     "(default: found out)"},
    {"--feedback", "pre|post", APP_TEXT, APP_CONVERT, AT(convert_feedback), 0, 0, "Convert",
     "EAGLE-3: what the next step starts from, the output before or after the final norm (default: found out)"},
    {"--norm-before-residual", "on|off", APP_TEXT, APP_CONVERT, AT(convert_residual), 0, 0, "Convert",
     "EAGLE-3: the residual starts from the normed feature (default: found out)"},
    {"--d2t", "offset|absolute", APP_TEXT, APP_CONVERT, AT(convert_d2t), 0, 0, "Convert",
     "what the map of the draft vocabulary holds (default: found out)"},
    {"--rope", "halves|pairs", APP_TEXT, APP_CONVERT, AT(convert_rope), 0, 0, "Convert",
     "how the checkpoint's rows of q and k are rotated: element i with i + n/2, or 2i with 2i + 1 (default: halves)"},
    {"--embedding", "auto|keep|drop", APP_TEXT, APP_CONVERT, AT(convert_embedding), 0, 0, "Convert",
     "the head's own embedding; auto: kept if the target's is another one or, without --target, of another width"},
    {"--skip", "TEXT", APP_TEXTS, APP_CONVERT, AT(convert_skip), 0, 0, "Convert",
     "leave out tensors whose name holds TEXT; may be given several times"},
    {"--config", "FILE", APP_TEXT, APP_CONVERT, AT(convert_config), 0, 0, "Convert",
     "the config (default: config.json beside the tensors)"},
    {"--window", "N", APP_U32, APP_CONVERT, AT(convert_window), 0, 1 << 24, "Convert",
     "the head sees N rows back, as it was trained on short texts; 0: all"},
    {"--sinks", "N", APP_U32, APP_CONVERT, AT(convert_sinks), 0, 1 << 20, "Convert", "with --window: and the first N rows"},
    {"--tokenizer", NULL, APP_FLAG, APP_CONVERT, AT(convert_tokenizer), 0, 0, "Convert",
     "copy the target's tokenizer as well, which other programs want"},
    {"--self-check", NULL, APP_FLAG, APP_CONVERT, AT(convert_self_check), 0, 0, "Convert",
     "compare the head with the target over a text, and read taps, residual, rotation and feedback another way where that is "
     "clearly closer to the target; what options settle stays"},
    {"--self-check-file", "FILE", APP_TEXT, APP_CONVERT, AT(convert_check_file), 0, 0, "Convert",
     "the text to compare them over, up to 512 tokens (default: a built-in one)"},
    {"--name", "TEXT", APP_TEXT, APP_CONVERT, AT(convert_name), 0, 0, "Convert", "general.name (default: that of the folder)"},
    /* Quantize */
    {"--output-tensor-type", "TYPE", APP_TEXT, APP_QUANTIZE, AT(output_type), 0, 0, "Quantize",
     "of output.weight, or of the embeddings where they are the output too"},
    {"--token-embedding-type", "TYPE", APP_TEXT, APP_QUANTIZE, AT(embedding_type), 0, 0, "Quantize", "of token_embd.weight"},
    {"--tensor-type", "PATTERN=TYPE", APP_TEXTS, APP_QUANTIZE, AT(tensor_types), 0, 0, "Quantize",
     "of weights whose name matches the regular expression; may be given several times, the first that matches counts"},
    {"--pure", NULL, APP_FLAG, APP_QUANTIZE, AT(pure), 0, 0, "Quantize",
     "no mix: all weights in one type, also the embeddings and the output"},
    {"--leave-output-tensor", NULL, APP_FLAG, APP_QUANTIZE, AT(leave_output), 0, 0, "Quantize", "output.weight stays as it is"},
    {"--allow-requantize", NULL, APP_FLAG, APP_QUANTIZE, AT(allow_requantize), 0, 0, "Quantize",
     "quantize what is quantized already, which is worse than quantizing the original"},
    {"--dry-run", NULL, APP_FLAG, APP_QUANTIZE, AT(dry_run), 0, 0, "Quantize",
     "say what each tensor would become and how large the file, and write nothing"},

    /* Bench */
    {"-p --n-prompt", "N", APP_U32, APP_BENCH_SPEED | APP_BENCH_VERIFY, AT(bench_prompt), 0, 1 << 16, "Bench",
     "prompt tokens; 0: skip. bench verify takes them in one pass"},
    {"-n --n-gen", "N", APP_U32, APP_BENCH_SPEED, AT(bench_predict), 0, 1 << 20, "Bench", "generated tokens; 0: skip"},
    {"-n --n-rows", "LIST", APP_NUMBERS, APP_BENCH_VERIFY, AT(rows), 1, 4096, "Bench", "rows per pass"},
    {"--contexts", "LIST", APP_NUMBERS, APP_BENCH_VERIFY, AT(contexts), 0, 1 << 24, "Bench",
     "cached positions before the rows"},
    {"-r --repetitions", "N", APP_U32, APP_BENCH_SPEED | APP_BENCH_VERIFY | APP_BENCH_SPEC, AT(n_repetitions), 1, 1000,
     "Bench", "how often each figure is taken"},
    {"--ids-file", "FILE", APP_TEXT, APP_BENCH_LOGITS, AT(ids_file), 0, 0, "Bench",
     "token ids, one window per line, spaces between; - is standard input"},

    /* Training */
    {"-o --output", "FILE", APP_TEXT, APP_TRAIN_DATA, AT(output), 0, 0, "Training",
     "what is written; what it holds already is kept and not made again"},
    {"--n-turns", "N", APP_U32, APP_TRAIN_DATA, AT(n_turns), 1, 1 << 24, "Training", "turns: how many"},
    {"--features", "FILE", APP_TEXT, APP_TRAIN_DATA, AT(features), 0, 0, "Training",
     "answers: write the features, too, while the answers are made; saves the step 'features'"},
    {"--taps", "LIST", APP_NUMBERS, APP_TRAIN_DATA, AT(taps), 0, 4096, "Training",
     "features: the hidden rows before these layers (0 to the number of layers); default 2, L/2, L-3 of L layers"},
    {"--n-likely", "N", APP_U32, APP_TRAIN_DATA, AT(n_likely), 1, 64, "Training",
     "features: how many of the likeliest next tokens are kept for every position"},

    /* Output */
    {"--ids", NULL, APP_FLAG, APP_RUN | APP_TOKENIZE, AT(ids), 0, 0, "Output",
     "token ids instead of text, a line per prompt; tokenize does so anyway"},
    {"--json", NULL, APP_FLAG, (ALL & ~(APP_BENCH_LOGITS | APP_TRAIN_DATA)) | APP_QUANTIZE, AT(json), 0, 0, "Output",
     "one JSON object"},
    {"--csv", NULL, APP_FLAG, APP_BENCH_SPEED | APP_BENCH_VERIFY | APP_BENCH_SPEC, AT(csv), 0, 0, "Output",
     "comma separated values"},
    {"--logprobs --n-probs", "N", APP_U32, APP_RUN, AT(n_logprobs), 0, AERIE_MAX_LOGPROBS, "Output",
     "with --json: log-probabilities of each token and of the N likeliest, before sampling; 0: none"},
    {"--color-drafts", NULL, APP_FLAG, APP_RUN, AT(color_drafts), 0, 0, "Output",
     "on a terminal, colour the answer's tokens by origin: decoded, or drafted and accepted at depth 1, 2, ... "
     "(NO_COLOR in the environment: never)"},
    {"--no-history", NULL, APP_FLAG, APP_RUN, AT(no_history), 0, 0, "Output",
     "the chat neither reads nor writes its history of lines ($XDG_STATE_HOME/aerie/history)"},
    {"--stats", NULL, APP_FLAG, APP_RUN, AT(stats), 0, 0, "Output", "a line of figures on standard error at the end"},
    {"-v --verbose", NULL, APP_FLAG, ALL | APP_QUANTIZE, AT(verbose), 0, 0, "Output", "say more on standard error"},
    {"-q --quiet", NULL, APP_FLAG, ALL | APP_QUANTIZE, AT(quiet), 0, 0, "Output", "nothing but errors on standard error"},
};

size_t app_n_commands(void)
{
    return sizeof commands / sizeof *commands;
}

const app_command *app_command_at(size_t i)
{
    return &commands[i];
}

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
