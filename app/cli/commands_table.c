/* commands_table.c - the table of commands (options.h says what they mean). */
#include "cli/options.h"

static const app_command commands[] = {
    {APP_RUN, "run", "[MODEL [PROMPT ...]]", "one answer, or a chat on a terminal",
     "Answers the prompt given by -p, -f or standard input and prints the answer, nothing else, to\n"
     "standard output. Without a prompt, on a terminal, it starts a chat; /help lists the chat's commands.\n"
     "The prompt is put into the model's chat template, if it has one; -no-cnv continues the text as it is.\n"
     "Several prompts (-p repeated, --prompts-file) are answered in their order, -np N at once, each after a\n"
     "line that names it (not with -q); --jsonl prints a line of JSON for each. Standard input, if it is a\n"
     "file or a pipe, is appended to a single -p.\n"
     "With --grammar or --json-schema an answer that ends too early, for instance because of -n, gives exit status 1.\n"
     "Speculation is on by default and never changes a byte of the output.\n"
     "\n"
     "MODEL is a file, hf:OWNER/REPO[:QUANT] or a name. A name is looked up among the pulled models, then among those that\n"
     "ollama and Hugging Face's tools keep on this machine; otherwise it is pulled from ollama's library. -m MODEL means the\n"
     "same.\n"
     "\n"
     "  aerie run model.gguf -p 'Why is the sky blue?'\n"
     "  aerie run llama3.2 'Why is the sky blue?'\n"
     "  aerie run -m model.gguf -p 'Summarize this text:' < text.txt\n"
     "  aerie run -m model.gguf -no-cnv -p 'Once upon a time' -n 64 --temp 0 --stats\n"},
    {APP_SERVE, "serve", "[MODEL ...]", "an HTTP server for many clients at once",
     "Answers requests over HTTP in the formats of OpenAI (chat completions, completions, responses), Anthropic (messages),\n"
     "llama.cpp's server (completion, infill, slots) and ollama (chat, generate), and serves a chat page at /.\n"
     "Every answer has the same bytes as if the request were the only one, whatever else the server does at the time.\n"
     "Speculation is on by default, for every request. After SIGTERM or Ctrl-C running answers may finish (--grace); a second\n"
     "one ends the server at once.\n"
     "To serve several models, repeat -m or give --models-dir. A request's \"model\" chooses one, and it is loaded on demand.\n"
     "\n"
     "  aerie serve model.gguf\n"
     "  aerie serve -m model.gguf --host 0.0.0.0 --port 8000 --api-key-file keys.txt -np 16 -c 8192\n"
     "  aerie serve --models-dir models --models-max 2\n"},
    {APP_ROUTER, "router", "URL ...", "one address for several servers, which may fail",
     "Forwards requests to servers started by 'aerie serve' with the same model, and returns their answers. A\n"
     "URL is http://HOST:PORT, https://HOST:PORT or unix:PATH. Requests with a common beginning go to the same server, whose\n"
     "cache has it, unless that server is too busy. If a server is lost, its requests are replayed on another one, or on\n"
     "the same one once it is back (--wait); since answers have the same bytes everywhere, clients only see a pause.\n"
     "It has no options for models: give those, and the same API keys, to the servers.\n"
     "\n"
     "  aerie router http://10.0.0.1:8080 http://10.0.0.2:8080 --host 0.0.0.0 --port 8000 --api-key-file keys.txt\n"
     "  aerie router unix:/run/aerie/group.sock   # in front of a group of machines (mpirun ... aerie serve)\n"},
    {APP_EMBED, "embed", "[MODEL]", "embeddings of texts, or scores of documents for a query",
     "Prints the embedding of each text as a line of numbers. The model is an encoder (such as BERT) or any other model.\n"
     "Texts come from -p (repeated), from the lines of -f or of standard input, or from --prompts-file, also as JSON.\n"
     "With --query the model, a reranker, scores how well each text answers the query: one number per text, higher is better.\n"
     "The vector of a text depends only on the model and the text, not on the other texts, the threads or the CPU level.\n"
     "\n"
     "  aerie embed -m all-minilm.gguf -p 'A cat sits' -p 'A dog runs' --cosine\n"
     "  aerie embed -m all-minilm.gguf -f lines.txt --embd-output-format json > vectors.json\n"
     "  aerie embed -m reranker.gguf --query 'capital of France' -f documents.txt\n"},
    {APP_TOKENIZE, "tokenize", "[MODEL] [ID ...]", "text to token ids and back",
     "Reads text from -p, -f or standard input and prints its token ids on one line, separated by spaces.\n"
     "With --decode it reads ids (arguments, -p, -f or standard input) and prints their exact bytes,\n"
     "control tokens spelled out. A file with only a vocabulary is enough.\n"
     "\n"
     "  aerie tokenize -m model.gguf -p 'Hello world'\n"
     "  aerie tokenize model.gguf --decode 9906 1917\n"},
    {APP_TEMPLATE, "template", "[MODEL]", "a conversation rendered by a chat template",
     "Renders the messages of a JSON file with a chat template, from a file or the model, and prints the prompt byte\n"
     "for byte. The template sees the same variables as in Hugging Face transformers: messages, tools, documents,\n"
     "add_generation_prompt, bos_token, eos_token, and the variables that --set adds.\n"
     "The file contains a list of messages, or an object with \"messages\" and optionally \"tools\" and\n"
     "\"chat_template_kwargs\", as in chat APIs; other members of the object are ignored.\n"
     "\n"
     "  aerie template -m model.gguf --messages chat.json\n"
     "  aerie template --file qwen3.jinja --messages - --tools tools.json --set enable_thinking=false < chat.json\n"},
    {APP_INSPECT, "inspect", "[FILE]", "what a model file contains",
     "Prints the totals and metadata of a GGUF file, and with --tensors its tensors, even if aerie cannot run the model.\n"
     "\n"
     "  aerie inspect model.gguf\n"
     "  aerie inspect model.gguf --keys --match tokenizer\n"},
    {APP_CONVERT, "convert", "DIR|FILE", "converts a model, an encoder, a drafter head or a LoRA adapter to GGUF",
     "Writes a GGUF file from a model folder in Hugging Face's layout (with tokenizer, chat template and generation\n"
     "settings), a BERT encoder (with tokenizer and pooling), or an EAGLE-1, 2, 3 or 3.1 or a Medusa checkpoint, and\n"
     "reports what it detected. It reads safetensors files with their config.json. Heads may have been saved by\n"
     "EAGLE, SpecForge, AngelSlim, speculators, ModelOpt or Medusa. Given a head's target, it checks the sizes and leaves out\n"
     "tables that are copies of the target's. The folder of a LoRA adapter as PEFT saves it becomes a file for --lora; it\n"
     "needs --target, the model that it changes.\n"
     "\n"
     "  aerie convert SmolLM2-135M-Instruct/ -o smollm2.gguf --outtype q8_0\n"
     "  aerie convert EAGLE3-LLaMA3.1-Instruct-8B/ --target llama-3.1-8b.gguf -o eagle3.gguf\n"
     "  aerie convert head/ -o head.gguf --outtype q8_0 --taps output --feedback post\n"
     "  aerie convert peft-adapter/ --target model.gguf -o adapter.gguf\n"},
    {APP_PULL, "pull", "SOURCE ...", "downloads models",
     "Downloads models into the cache, checks their SHA-256 and prints the path of each. A SOURCE is\n"
     "  hf:OWNER/REPO[:QUANT]    a Hugging Face repository; without QUANT: Q4_K_M, else Q8_0, else the first file\n"
     "  hf:OWNER/REPO/FILE.gguf  a file of that repository\n"
     "  ollama:NAME[:TAG]        a model of ollama's registry\n"
     "  https://...              a file\n"
     "  NAME[:TAG]               the model pulled under that name, else ollama:NAME:TAG; hf.co/OWNER/REPO is hf:OWNER/REPO\n"
     "The other parts of a split model, and a drafter in the repository, are downloaded too. -m, -md and -hf of other\n"
     "commands also take a SOURCE and pull it if it is missing; 'pull' also looks for a newer version. An interrupted\n"
     "download is continued. HF_TOKEN sets the token, HF_ENDPOINT another hub, HTTPS_PROXY a proxy.\n"
     "\n"
     "  aerie pull hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n"
     "  aerie run -m ollama:smollm2:135m -p 'Why is the sky blue?'\n"
     "  aerie serve -hf ggml-org/gemma-3-1b-it-GGUF\n"},
    {APP_LIST, "list", "", "lists the models on this machine",
     "Lists the models that 'aerie pull' downloaded, and those in ollama's store and Hugging Face's cache, which are only\n"
     "read: their names (for -m NAME), sizes, dates and sources. --json adds files and hashes.\n"
     "\n"
     "  aerie list\n"
     "  aerie run -m ollama:smollm2:135m -p 'Why is the sky blue?'\n"},
    {APP_RM, "rm", "NAME ...", "removes pulled models",
     "Removes pulled models by the names that 'aerie list' prints. A file that another name also refers to is kept. Programs\n"
     "that have a model open can use it until they end.\n"
     "\n"
     "  aerie rm hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n"},
    {APP_DOCTOR, "doctor", "[MODEL]", "a report on this machine and on what makes answers slow",
     "Prints what matters for speed and for a bug report: version and build, CPU, cores and limits, memory, its read\n"
     "bandwidth (measured in about a second; longer if the caches are large), backends, optional libraries, the folder of\n"
     "pulled models, and warnings about what makes answers slow. Given a model, it also prints how much memory that needs\n"
     "with -c and -np, whether it fits, and the tokens/s that the bandwidth allows. A value that cannot be determined is\n"
     "printed as unknown and is not an error; an unusable model file gives exit status 3.\n"
     "The report contains no keys and no prompts; the home folder is written as ~, and the user's name in a path as USER.\n"
     "\n"
     "  aerie doctor\n"
     "  aerie doctor -m model.gguf -c 8192 -np 4\n"},
    {APP_PERPLEXITY, "perplexity", "[MODEL]", "how well a model predicts a text",
     "Cuts the text of -f into windows and prints the perplexity of the tokens in the second half of each, with its standard\n"
     "error. Windows and figures are those of llama.cpp. With --kl-divergence-base the predictions are saved too. With\n"
     "--kl-divergence a model, usually the same one quantized, is compared with the saved predictions: KL divergence, how\n"
     "often both have the same likeliest token, and percentiles. --hellaswag and --multiple-choice score tasks instead: a\n"
     "task is solved if the right answer is the likeliest per token. docs/evaluating.md describes the files.\n"
     "\n"
     "  aerie perplexity -m model-f16.gguf -f text.txt --kl-divergence-base base.kld\n"
     "  aerie perplexity -m model-q4_k_m.gguf --kl-divergence-base base.kld --kl-divergence\n"
     "  aerie perplexity -m model.gguf -f hellaswag_val.jsonl --hellaswag --hellaswag-tasks 400\n"},
    {APP_IMATRIX, "imatrix", "[MODEL]", "computes an importance matrix, for 'quantize'",
     "Reads the text of -f in windows and writes how much each column of each weight is used, separately for each expert,\n"
     "to a GGUF file that llama.cpp reads too. 'quantize --imatrix' weights errors by it. With -md the file is made for a\n"
     "drafter head while it drafts for its target: each window is a prompt, and -n tokens are generated after it.\n"
     "\n"
     "  aerie imatrix -m model-f16.gguf -f text.txt -o imatrix.gguf\n"
     "  aerie imatrix -m model.gguf -md eagle3.gguf -f text.txt -o head-imatrix.gguf\n"},
    {APP_QUANTIZE, "quantize", "IN.gguf OUT.gguf TYPE [THREADS]", "the same model in another tensor type",
     "Writes IN to OUT with its weights in TYPE. A TYPE is a mix of tensor types with llama.cpp's names and rules\n"
     "(Q4_K_M, Q4_0, Q8_0, F16 ...; the list follows the options). Norms, vectors, routers, tables of numbers and\n"
     "the metadata are copied unchanged. IN may be any part of a split model; OUT is a single file, or the same\n"
     "parts with --keep-split, without those that --prune-layers leaves empty. In a drafter head all weights get\n"
     "the type. A tensor whose rows are not whole blocks of its type gets the next larger type; the number of such\n"
     "tensors is reported. An importance matrix (--imatrix, see 'aerie help imatrix') reduces the loss of quality;\n"
     "the types below 3 bits (IQ1, IQ2) lose much without one.\n"
     "\n"
     "  aerie quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
     "  aerie quantize model-f16.gguf model-q4_0.gguf Q4_0 --tensor-type 'ffn_down=q6_K' --dry-run\n"},
    {APP_BENCH_SPEED, "bench speed", "[MODEL]", "tokens per second of prompt and generation",
     "Measures prefill of a prompt and plain decoding, without speculation. Lists (-t, -b, -ub, -d, -p, -n) are measured in\n"
     "all combinations; a list may have ranges (1-4, 128-512+128, 64-1024*2), and a repeated option extends its list. -pg\n"
     "times a prompt and its answer as one. -o prints what llama-bench prints, with the same names of columns and JSON\n"
     "fields, for scripts that read it; a rate there is the mean with its standard deviation. Fields that do not apply to\n"
     "aerie (such as gpu_info and split_mode) are \"\", none or 0.\n"
     "\n"
     "  aerie bench speed -m model.gguf -p 64,512 -n 32 -t 1,2 -d 0,4096 -o md\n"},
    {APP_BENCH_VERIFY, "bench verify", "[MODEL]", "the time of a pass over n rows",
     "Measures T(n), the time of one target pass over n rows, and the time of a pass over a prompt. The passes\n"
     "alternate with measurements of the machine's read bandwidth. Prints medians over all repetitions; --json\n"
     "and --csv also give the best times. Each call measures one kernel level (--cpu).\n"
     "\n"
     "  aerie bench verify -m model.gguf --contexts 0,4096 --csv > verify.csv\n"},
    {APP_BENCH_SPEC, "bench spec", "[MODEL]", "speculation compared with plain decoding",
     "Answers the prompts without speculation and with each kind of speculation, in alternating runs. For each\n"
     "drafter, temperature and group of prompts, and for all groups together, it reports tokens/s with\n"
     "and without speculation, the numbers of drafted and accepted tokens, and whether the output was\n"
     "the same. If any output differs, the exit status is 1.\n"
     "--prompts reads one group from each .jsonl file and names it after the file. Each line is an\n"
     "object with \"id\", \"prompt\" and \"held_out\" (true: the prompt was kept out of training). Lists\n"
     "(--spec-types, --spec-draft-n-max, --spec-tree, --temps, -np) are measured in all combinations.\n"
     "-md may be given several times, such as a head in two quantizations and a draft model: each type is\n"
     "measured with each file that it can use, and the column 'file' names it.\n"
     "tokens/s counts generation only; the prompt is in the cache. The time of a prompt is the median\n"
     "of -r runs; the rate of a group is its total tokens over its total time. Columns: 'per pass' and\n"
     "'per round' are accepted tokens per target pass and per pass that verified a draft; 'rows' is\n"
     "rows per pass and sequence; 'T/T1' is the time of a pass relative to a plain one; 'drafting' is\n"
     "the drafter's share of the time. Acceptance by depth is the share of all rounds that accepted a\n"
     "token at that depth; in brackets is the share of those rounds that drafted one there. The default\n"
     "seed is 0, so that runs can be compared.\n"
     "\n"
     "  aerie bench spec -m model.gguf --prompts bench/prompts --held-out only --temps 0,1 --json\n"
     "  aerie bench spec -m model.gguf -md model-eagle3.gguf -md small.gguf --spec-types draft-eagle3,draft,hier\n"},
    {APP_BENCH_STUDY, "bench study", "[MODEL]", "how quantizations and kinds of speculation combine",
     "Quantizes the model to each type of --types, one after another in the folder of -o. For each type it measures the time\n"
     "of a pass over 1 to 64 rows and the speed of each kind of speculation:\n"
     "  with a drafter head (-md, or beside the model): chains, EAGLE-2's tree, and trees cut to the nodes that pay;\n"
     "  with a draft model (-md): the draft model alone, and with its own drafter (hier);\n"
     "  with a model that has experts: self-drafts by number of experts, by draft length and by layers.\n"
     "With -md MODEL the head beside the model is measured too. Each kind is compared with plain decoding that alternates\n"
     "with it. If any output differs, the exit status is 1.\n"
     "The folder gets study.csv with all figures, which bench/plot.py draws, and study.md with tables. A type's figures and\n"
     "tables are written when it is complete; --resume measures the missing types.\n"
     "--quick takes minutes on two cores for a small model: two types, few prompts and short answers.\n"
     "A file that is already quantized is quantized again; where that matters, start with F16 or Q8_0.\n"
     "With --contexts and --kv-types all is measured after each number of tokens and with each type of cache.\n"
     "\n"
     "  aerie bench study -m model.gguf --types as-is --contexts 0,4096,16384 --kv-types f16,q8_0,i16 -o study\n"
     "  aerie bench study -m model-f16.gguf -md model-eagle3.gguf -o study --prompts bench/prompts\n"},
    {APP_BENCH_SHAPES, "bench shapes", "", "the time of products with matrices of each shape",
     "Measures T(n), the time of a product over n rows, for matrices of n_in columns and n_out rows read from memory,\n"
     "in all combinations of --types, --n-in and --n-out, and the read bandwidth of the machine. 'share' is the rate at which\n"
     "the product over the first number of rows of -n reads its weights, as a share of that bandwidth. --models measures the\n"
     "matrices of twenty published models instead; matrices that share an input are measured together. No model file is\n"
     "needed. bench/plot.py draws what --csv prints.\n"
     "\n"
     "  aerie bench shapes --types q4_0 --csv > shapes.csv\n"
     "  aerie bench shapes --models --types q4_k -n 1\n"},
    {APP_BENCH_LOGITS, "bench logits", "[MODEL]", "raw logits of token windows",
     "Reads windows of token ids, one per line. For every token of every window it writes one row of\n"
     "n_vocab little-endian float32 logits to standard output. Each window starts at position 0.\n"
     "\n"
     "  aerie bench logits -m model.gguf --ids-file windows.txt > logits.f32\n"},
    {APP_TRAIN_DATA, "train-data", "STEP [FILE]", "training data for a drafter head",
     "Lets the target model write the training data of its drafter head, in three steps: 'turns' generates\n"
     "user messages, 'answers' answers them, and 'features' records the hidden rows and the likeliest next\n"
     "tokens of the answers. An interrupted step continues where it stopped. training/README.md describes\n"
     "the formats.\n"
     "\n"
     "  aerie train-data turns -m model.gguf -o turns.jsonl --n-turns 1000 -np 32 -n 128 --temp 1\n"
     "  aerie train-data answers turns.jsonl -m model.gguf -o answers.jsonl -np 32 -n 256 --temp 0\n"
     "  aerie train-data features answers.jsonl -m model.gguf -o features.bin\n"},
};

size_t app_n_commands(void)
{
    return sizeof commands / sizeof *commands;
}

const app_command *app_command_at(size_t i)
{
    return &commands[i];
}
