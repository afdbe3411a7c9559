/* llama_options.c - implements llama_options.h: the tables. */
#include <string.h>

#include "cli/llama_options.h"

static const app_foreign foreign_options[] = {
    /* Help and logs */
    {"--version", NULL, APP_OTHERWISE, "use 'aerie --version'"},
    {"--license", NULL, APP_OTHERWISE, "see the file LICENSE"},
    {"--completion-bash", NULL, APP_OTHERWISE, "use 'aerie --completion-bash'"},
    {"--verbose-prompt", NULL, APP_OTHERWISE,
     "use 'aerie tokenize' for the tokens of a prompt, or 'aerie template' for a conversation"},
    {"--display-prompt", NULL, APP_ABSENT, "standard output carries only the answer"},
    {"--no-display-prompt", NULL, APP_NO_EFFECT, "the prompt is never repeated"},
    {"-co --color", "[on|off|auto]", APP_NO_EFFECT, "the answer is not coloured, unless --color-drafts is given"},
    {"--perf --no-perf", NULL, APP_NO_EFFECT, "use --stats for figures"},
    {"--show-timings", NULL, APP_OTHERWISE, "use --stats"},
    {"--no-show-timings", NULL, APP_NO_EFFECT, "figures are printed only with --stats"},
    {"-ptc --print-token-count", "N", APP_OTHERWISE, "use --stats"},
    {"--log-file", "FNAME", APP_OTHERWISE, "redirect standard error: 2> FILE"},
    {"--log-colors", "[on|off|auto]", APP_NO_EFFECT, "messages are not coloured"},
    {"--log-verbose", NULL, APP_OTHERWISE, "use -v"},
    {"-lv --verbosity --log-verbosity", "N", APP_OTHERWISE, "use -v to see more, -q to see only errors and warnings"},
    {"--log-jsonl --log-prompts-dir", NULL, APP_ABSENT, "there is no log of prompts"},
    {"--no-log-jsonl", NULL, APP_NO_EFFECT, "there is no log of prompts"},
    {"--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", NULL, APP_NO_EFFECT,
     "lines of the server's log begin with the time, others have no prefix"},
    {"--simple-io", NULL, APP_NO_EFFECT, "lines can be edited only on a terminal"},

    /* Threads and memory */
    {"-tb --threads-batch", "N", APP_NO_EFFECT, "prompts and answers run on the same threads and CPUs"},
    {"--cpu-strict --prio --poll", "N", APP_NO_EFFECT, "threads wait and are placed in one way only"},
    {"-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch", "N", APP_NO_EFFECT,
     "prompts and answers run on the same threads and CPUs"},
    {"--mlock", NULL, APP_NO_EFFECT, "weights are repacked in memory; only --mmap leaves them in the file"},
    {"-dio --direct-io -ndio --no-direct-io", NULL, APP_NO_EFFECT, "aerie chooses how to read the file"},
    {"-lm --load-mode", "MODE", APP_OTHERWISE, "use --mmap or --no-mmap"},
    {"-lzm --lazy-mode", "MODE", APP_NO_EFFECT, "aerie chooses how to read the file"},
    {"--numa", "TYPE", APP_NO_EFFECT, "restrict the program to CPUs of one node by -C or numactl"},
    {"--repack -nr --no-repack", NULL, APP_NO_EFFECT, "weights are repacked, unless --mmap is given"},
    {"--check-tensors", NULL, APP_NO_EFFECT, "files are always checked"},
    {"--warmup --no-warmup", NULL, APP_NO_EFFECT, "there is no warm-up run"},

    /* GPUs and several machines */
    {"-sm --split-mode -mg --main-gpu", "X", APP_NO_EFFECT,
     "layers lie where --device, -ngl and --tensor-split say"},
    {"-kvo --kv-offload -nkvo --no-kv-offload --op-offload --no-op-offload --no-host", NULL, APP_NO_EFFECT,
     "the cache of a layer is where the layer is (--device, -ngl)"},
    {"-fit --fit", "on|off", APP_NO_EFFECT,
     "the memory needed is checked before loading; a context that does not fit is refused"},
    {"-fitp --fit-print", "on|off", APP_OTHERWISE, "use -v: it says how much memory is needed"},
    {"-fitt --fit-target", "LIST", APP_NO_EFFECT, "the memory needed is checked before loading"},
    {"-fitc --fit-ctx", "N", APP_OTHERWISE, "use -c; if a context does not fit, the error says which one would"},
    {"--rpc", "SERVERS", APP_OTHERWISE, "use mpirun and --machines"},

    /* Cache and context */
    {"--keep", "N", APP_NO_EFFECT, "the context is never shifted"},
    {"--no-context-shift", NULL, APP_NO_EFFECT, "the context is never shifted, unless 'serve' has --context-shift"},
    {"--swa-full", NULL, APP_NO_EFFECT, "aerie sizes the KV cache"},
    {"--kv-unified-per-slot", "N", APP_OTHERWISE, "use -c, the positions of each sequence"},
    {"-cms --checkpoint-min-step -dt --defrag-thold", "N", APP_NO_EFFECT,
     "checkpoints are made where turns end, and the KV cache needs no defragmentation"},
    {"-kvu --kv-unified -no-kvu --no-kv-unified", NULL, APP_NO_EFFECT, "each sequence has its own context"},
    {"-fa --flash-attn", "[on|off|auto]", APP_NO_EFFECT, "attention is computed in one way only"},
    {"-cb --cont-batching -nocb --no-cont-batching", NULL, APP_NO_EFFECT, "a prompt starts as soon as an answer ends"},
    {"-gan --grp-attn-n -gaw --grp-attn-w", "N", APP_ABSENT, "aerie does not extend contexts by grouping positions"},

    /* Prompts and chat */
    {"-sysf --system-prompt-file", "FNAME", APP_OTHERWISE, "use -sys \"$(cat FILE)\""},
    {"-bf --binary-file", "FNAME", APP_OTHERWISE, "use -f, which reads any bytes"},
    {"-i --interactive -if --interactive-first", NULL, APP_OTHERWISE,
     "leave out -p: 'aerie run -m FILE' on a terminal is a chat"},
    {"-mli --multiline-input", NULL, APP_NO_EFFECT, "in a chat, \"\"\" begins and ends a message of several lines"},
    {"--in-prefix --in-suffix", "STRING", APP_OTHERWISE,
     "the chat template writes the text around a message; -no-cnv continues raw text"},
    {"--in-prefix-bos", NULL, APP_OTHERWISE, "the chat template writes the text around a message"},
    {"--spm-infill", NULL, APP_NOT_YET,
     "gaps are filled in the order prefix, suffix, middle; -no-cnv takes other orders in the prompt"},
    {"--jinja", NULL, APP_NO_EFFECT, "chat templates are always rendered as Jinja"},
    {"--no-jinja", NULL, APP_NO_EFFECT, "chat templates are always rendered as Jinja; -no-cnv uses no template"},
    {"--skip-chat-parsing --no-skip-chat-parsing", NULL, APP_NO_EFFECT, "answers are printed as the model writes them"},
    {"--reasoning-preserve --no-reasoning-preserve", NULL, APP_NO_EFFECT,
     "the chat template decides which earlier reasoning the prompt repeats"},
    {"-ns --sequences", "N", APP_OTHERWISE, "give several -p or --prompts-file, and -np N to answer N of them at once"},

    /* Sampling */
    {"--adaptive-target --adaptive-decay", "N", APP_NOT_YET, "aerie does not have the adaptive-p sampler"},
    {"-bs --backend-sampling", NULL, APP_NO_EFFECT, "tokens are the same wherever they are drawn"},

    /* Speculation */
    {"--spec-default", NULL, APP_NO_EFFECT, "speculation is on by default"},
    {"--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft", "N", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft", "X", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft",
     "N", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft",
     "X", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft", "N", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-poll-batch --poll-batch-draft", "N", APP_NO_EFFECT,
     "the draft model runs on the same threads and CPUs as the model"},
    {"--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft", "TYPE", APP_NO_EFFECT,
     "the draft model's cache has the type of the model's (--kv-type)"},
    {"--spec-draft-override-tensor -otd --override-tensor-draft", "X", APP_NO_EFFECT,
     "the draft model is where the model is"},
    {"--spec-draft-cpu-moe -cmoed --cpu-moe-draft", NULL, APP_NO_EFFECT, "the draft model is where the model is"},
    {"--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", "N", APP_NO_EFFECT,
     "the draft model is where the model is"},
    {"--spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft",
     "X", APP_NO_EFFECT,
     "the draft model is where the model is (--device)"},
    {"--spec-draft-p-split --draft-p-split", "P", APP_NO_EFFECT, "the controller decides where a draft branches"},
    {"--spec-draft-sampling", "HOW", APP_NO_EFFECT,
     "drafts are verified against the tokens that plain sampling draws, so the output has the same bytes"},
    {"--spec-synth-len --spec-synth-rates", "X", APP_OTHERWISE, "use 'aerie bench spec' with --spec-types oracle"},
    {"--spec-draft-backend-sampling --no-spec-draft-backend-sampling", NULL, APP_NO_EFFECT,
     "tokens are the same wherever they are drawn"},
    {"--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match", "N", APP_NO_EFFECT,
     "the n-gram drafter chooses its own lengths, and the controller chooses how far to draft"},
    {"--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits", "N", APP_NO_EFFECT,
     "the n-gram drafter chooses its own lengths, and the controller chooses how far to draft"},
    {"--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits", "N", APP_NO_EFFECT,
     "the n-gram drafter chooses its own lengths, and the controller chooses how far to draft"},
    {"--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits", "N", APP_NO_EFFECT,
     "the n-gram drafter chooses its own lengths, and the controller chooses how far to draft"},
    {"--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", "N", APP_NO_EFFECT,
     "the n-gram drafter chooses its own lengths, and the controller chooses how far to draft"},

    /* Models from the network, adapters */
    {"-dr --docker-repo", "X", APP_NOT_YET,
     "models come from Hugging Face (-hf), ollama's registry (-m ollama:NAME) or an address (-m URL)"},
    {"-hfv -hfrv --hf-repo-v -hffv --hf-file-v", "X", APP_ABSENT, "aerie does not generate speech"},
    {"-cl --cache-list", NULL, APP_OTHERWISE, "use 'aerie list'"},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", "X", APP_NOT_YET,
     "aerie does not apply control vectors"},
    {"--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec",
     NULL, APP_OTHERWISE, "name the model: -hf OWNER/REPO"},
    {"--fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --embd-gemma-default", NULL, APP_OTHERWISE,
     "name the model: -hf OWNER/REPO"},
    {"--vision-gemma-4b-default --vision-gemma-12b-default", NULL, APP_OTHERWISE, "name the model: -hf OWNER/REPO"},
    {"--tts-oute-default", NULL, APP_NOT_YET, "aerie does not generate speech"},
    {"--eagle3 --nextn --dflash", NULL, APP_OTHERWISE, "use --spec-type; -hf also downloads a drafter in the repository"},

    /* Images, sound, embeddings */
    {"-mmu --mmproj-url --audio", "X", APP_NOT_YET,
     "aerie reads images from files (--image, --mmproj FILE), and no sound"},
    {"--video --video-fps --video-timestamp-interval --video-ffmpeg-dir --mtmd-batch-max-tokens", "X", APP_NOT_YET,
     "aerie reads images from files (--image, --mmproj FILE), but no video and no sound"},
    {"--mmproj-auto --mmproj-offload --no-mmproj-offload", NULL, APP_NO_EFFECT,
     "an mmproj file beside the model is found anyway, and is where the model is"},
    {"-mv --model-vocoder --tts-speaker-file --tts-lang", "FNAME", APP_ABSENT, "aerie does not generate speech"},
    {"--tts-use-guide-tokens", NULL, APP_ABSENT, "aerie does not generate speech"},
    {"--embedding --embeddings --rerank --reranking", NULL, APP_NO_EFFECT, "embeddings and reranking are always available"},
    {"--attention", "X", APP_NOT_YET, "the model's architecture decides whether attention is causal"},
    {"--cls-separator", "X", APP_OTHERWISE, "pairs of query and document are built from --query and the texts"},
    {"--context-file --chunk-size --chunk-separator", "X", APP_ABSENT, "aerie does not search documents"},

    /* Server */
    {"--path --api-prefix --tags --media-path", "X", APP_NOT_YET, "a reverse proxy can change paths"},
    {"--webui-config --ui-config --webui-config-file --ui-config-file", "X", APP_ABSENT,
     "the page keeps its settings in the browser"},
    {"--webui-mcp-proxy --ui-mcp-proxy", NULL, APP_ABSENT, "the server connects to nothing"},
    {"--no-webui-mcp-proxy --no-ui-mcp-proxy", NULL, APP_NO_EFFECT, "the server connects to nothing"},
    {"--webui --ui --metrics --slots --models-autoload --prefill-assistant", NULL, APP_NO_EFFECT, "it is on by default"},
    {"--no-models-autoload", NULL, APP_ABSENT, "models are loaded when a request names them"},
    {"--props", NULL, APP_ABSENT, "/props can be read, but not changed"},
    {"--reuse-port", NULL, APP_NOT_YET, "one process listens on a port; put a proxy in front of several"},
    {"--cache-prompt --no-cache-prompt --cache-idle-slots --no-cache-idle-slots", NULL, APP_NO_EFFECT,
     "prefixes of prompts are always shared, which never changes an answer"},
    {"--cache-reuse -sps --slot-prompt-similarity", "N", APP_NO_EFFECT, "prefixes are found by their exact tokens"},
    {"--cors-methods --cors-headers", "LIST", APP_NO_EFFECT,
     "pages of --cors-origins may use every method and header that the server knows"},
    {"--cors-credentials", NULL, APP_ABSENT, "keys are sent in headers, not in cookies"},
    {"--no-cors-credentials", NULL, APP_NO_EFFECT, "keys are sent in headers, not in cookies"},
    {"--tools-runtime --mcp-servers-config --mcp-servers-json", "X", APP_ABSENT, "the server runs no tools; clients do"},
    {"-ag --agent", NULL, APP_ABSENT, "the server runs no tools; clients do"},
    {"-no-ag --no-agent", NULL, APP_NO_EFFECT, "the server runs no tools"},
    {"--sse-ping-interval", "N", APP_NO_EFFECT, "the server decides when to send keep-alive comments"},
    {"--server-base", "URL", APP_OTHERWISE, "'aerie run' loads the model itself and connects to no server"},
    {"--ssl-key-file --ssl-cert-file", "FNAME", APP_ABSENT, "use a reverse proxy such as nginx for TLS"},
    {"--models-preset", "FILE", APP_NOT_YET, "all models are loaded with the same options"},

    /* Measuring, importance matrices, files */
    {"--winogrande", NULL, APP_NOT_YET, "'perplexity' scores --hellaswag and --multiple-choice"},
    {"--winogrande-tasks", "N", APP_NOT_YET, "'perplexity' scores --hellaswag and --multiple-choice"},
    {"--ppl-output-type", "N", APP_OTHERWISE, "use --json or --verbose"},
    {"--ppl --no-ppl --show-statistics", NULL, APP_ABSENT, "'imatrix' only collects the matrix"},
    {"--in-file -ofreq --output-frequency --output-format --save-frequency --chunk --from-chunk", "X", APP_NOT_YET,
     "'imatrix' reads its text from the beginning and writes one GGUF file at the end"},
    {"-pps -tgs", NULL, APP_OTHERWISE, "use 'aerie bench spec -np LIST' to measure several sequences at once"},
    {"-npp -ntg -npl", "LIST", APP_OTHERWISE, "use 'aerie bench spec -np LIST' to measure several sequences at once"},
    {"-oe --output-err", "FORMAT", APP_OTHERWISE, "use 'aerie bench speed -o FORMAT'"},
    {"--delay", "N", APP_NO_EFFECT, "benchmarks do not pause"},
    {"--save-logits", NULL, APP_OTHERWISE, "use 'aerie bench logits'"},
    {"--logits-output-dir", "PATH", APP_OTHERWISE, "use 'aerie bench logits'"},
    {"--check --tensor-filter", NULL, APP_ABSENT, "it is an option of llama.cpp's debugging tools"},
    {"--max-buffer-size", "MIB", APP_NO_EFFECT, "tensors are quantized in chunks of some MiB"},
    {"--stdin", NULL, APP_NO_EFFECT, "text is read from standard input when there is no -p"},

    /* Examples of llama.cpp that have no counterpart */
    {"--junk --pos", "N", APP_ABSENT, "it is an option of llama.cpp's passkey example"},
    {"--positive-file --negative-file --pca-batch --pca-iter --method", "X", APP_ABSENT,
     "aerie does not compute control vectors"},
    {"-lr --learning-rate -lr-min --learning-rate-min -decay-epochs --learning-rate-decay-epochs -wd --weight-decay",
     "X", APP_ABSENT,
     "aerie does not train models; training/ has the recipe for drafter heads"},
    {"-val-split --val-split -epochs --epochs -opt --optimizer", "X", APP_ABSENT,
     "aerie does not train models; training/ has the recipe for drafter heads"},

    /* Names of such options in ollama, vLLM, transformers and other programs */
    {"--max-tokens --max-new-tokens --max-length --num-predict --n-tokens --length", NULL, APP_OTHERWISE, "use -n N"},
    {"--num-ctx --n-ctx --ctx --context --context-size --context-length --max-model-len --max-context", NULL, APP_OTHERWISE,
     "use -c N"},
    {"--system --system-message --system-text", NULL, APP_OTHERWISE, "use -sys TEXT"},
    {"--prompt-file --input --input-file", NULL, APP_OTHERWISE, "use -f FILE"},
    {"--message --text --question", NULL, APP_OTHERWISE, "use -p TEXT"},
    {"--num-threads --num-thread --n-threads --nthreads --cpus", NULL, APP_OTHERWISE, "use -t N"},
    {"--model-file --model-path --gguf --weights", NULL, APP_OTHERWISE, "use -m FILE"},
    {"--draft-model --drafter --assistant-model --speculative-model --eagle --head", NULL, APP_OTHERWISE, "use -md FILE"},
    {"--num-speculative-tokens --speculative-tokens --num-draft-tokens --spec-n", NULL, APP_OTHERWISE,
     "use --spec-draft-n-max N"},
    {"--no-speculation --no-spec --no-draft", NULL, APP_OTHERWISE, "use --spec-type none"},
    {"--speculative --speculation --speculate", NULL, APP_OTHERWISE, "use --spec-type TYPE; speculation is on by default"},
    {"--lookup --prompt-lookup --ngram", NULL, APP_OTHERWISE, "use --spec-type ngram"},
    {"--greedy --deterministic", NULL, APP_OTHERWISE, "use --temp 0"},
    {"--repetition-penalty", NULL, APP_OTHERWISE, "use --repeat-penalty X"},
    {"--stop-sequence --stop-sequences --stop-string --stop-token", NULL, APP_OTHERWISE, "use --stop TEXT"},
    {"--batch --concurrency --max-num-seqs --num-parallel", NULL, APP_OTHERWISE, "use -np N"},
    {"--schema --format --response-format", NULL, APP_OTHERWISE, "use --json-schema SCHEMA"},
    {"--regex --guided-regex", NULL, APP_OTHERWISE, "use --grammar GBNF, or --json-schema with a \"pattern\""},
    {"--raw --no-chat --no-template --no-chat-template --completion", NULL, APP_OTHERWISE, "use -no-cnv"},
    {"--chat --repl", NULL, APP_OTHERWISE, "leave out -p: 'aerie run -m FILE' on a terminal is a chat"},
    {"--kv-cache-dtype --kv-cache-type --cache-type", NULL, APP_OTHERWISE, "use --kv-type TYPE"},
    {"--debug", NULL, APP_OTHERWISE, "use -v; AERIE_DEBUG=pass,tree shows each pass"},
    {"--silent --no-log", NULL, APP_OTHERWISE, "use -q"},
    {"--timings --benchmark --time", NULL, APP_OTHERWISE, "use --stats"},
    {"--think --thinking --enable-thinking", NULL, APP_OTHERWISE, "use --reasoning on"},
    {"--no-think --no-thinking", NULL, APP_OTHERWISE, "use --reasoning off"},
    {"--hidethinking", NULL, APP_NOT_YET,
     "'run' prints reasoning as the model writes it; 'serve' sends it in a separate field"},
    {"--gpu --cuda --num-gpu --gpus", NULL, APP_OTHERWISE, "use --device cuda"},
    {"--metal --vulkan --gpu-memory-utilization --tensor-parallel-size --pipeline-parallel-size --data-parallel-size", NULL,
     APP_NOT_YET, "aerie computes on the CPU and on GPUs, layer by layer (--device)"},
    {"--stream", NULL, APP_NO_EFFECT, "answers are always streamed"},
    {"--enable-prefix-caching --enable-chunked-prefill --enable-auto-tool-choice --enable-reasoning", NULL, APP_NO_EFFECT,
     "this is always on"},
    {"--trust-remote-code", NULL, APP_NO_EFFECT, "a model's file has no code"},
    {"--enforce-eager", NULL, APP_NO_EFFECT, "nothing is compiled when a model is loaded"},
    {"--dtype --quantization --load-format --tokenizer-mode --task --runner", "X", APP_NO_EFFECT,
     "the model's file decides it"},
    {"--tool-call-parser --reasoning-parser", "X", APP_NO_EFFECT, "the chat template decides how answers are parsed"},
    {"--max-num-batched-tokens", NULL, APP_OTHERWISE, "use -b N"},
    {"--cpu-offload-gb", NULL, APP_OTHERWISE, "use -ngl N; the other layers stay on the CPU"},
    {"--enable-lora --lora-modules", NULL, APP_OTHERWISE, "use --lora FILE"},
    {"--speculative-config", NULL, APP_OTHERWISE, "use -md FILE or --spec-type TYPE"},
    {"--allowed-origins", NULL, APP_OTHERWISE, "'aerie serve' has --cors-origins"},
    {"--keepalive --keep-alive", NULL, APP_OTHERWISE, "'aerie serve' has --sleep-idle-seconds N"},
    {"--nowordwrap", NULL, APP_OTHERWISE, "use --no-wrap"},
    {"--no-stream", NULL, APP_OTHERWISE, "use --json for the whole answer at once"},
};

static const app_foreign foreign_commands[] = {
    {"cli main llama llama-cli llama-run client chat completion complete llama-completion llama-simple llama-simple-chat "
     "generate gen infer prompt", NULL, APP_OTHERWISE,
     "use 'aerie run'"},
    {"speculative speculative-simple llama-speculative llama-speculative-simple lookup llama-lookup lookahead "
     "llama-lookahead", NULL, APP_OTHERWISE,
     "use 'aerie run', which speculates by default"},
    {"parallel batched llama-parallel llama-batched batch", NULL, APP_OTHERWISE,
     "use 'aerie run' with several prompts and -np N"},
    {"server llama-server start daemon api", NULL, APP_OTHERWISE, "use 'aerie serve'"},
    {"llama-bench benchmark llama-bench-speed", NULL, APP_OTHERWISE, "use 'aerie bench speed'"},
    {"batched-bench llama-batched-bench", NULL, APP_OTHERWISE, "use 'aerie bench spec -np LIST'"},
    {"eval evaluate ppl llama-perplexity", NULL, APP_OTHERWISE, "use 'aerie perplexity'"},
    {"llama-imatrix", NULL, APP_OTHERWISE, "use 'aerie imatrix'"},
    {"llama-quantize quant quantise", NULL, APP_OTHERWISE, "use 'aerie quantize'"},
    {"llama-tokenize encode tok", NULL, APP_OTHERWISE, "use 'aerie tokenize'"},
    {"detokenize decode", NULL, APP_OTHERWISE, "use 'aerie tokenize --decode'"},
    {"embedding embeddings llama-embedding", NULL, APP_OTHERWISE, "use 'aerie embed'"},
    {"rerank", NULL, APP_OTHERWISE, "use 'aerie embed --query TEXT'"},
    {"retrieval llama-retrieval", NULL, APP_ABSENT, "'aerie embed' computes the embeddings that a search needs"},
    {"show info dump metadata gguf gguf-dump llama-gguf", NULL, APP_OTHERWISE, "use 'aerie inspect FILE'"},
    {"render apply-template llama-template-analysis", NULL, APP_OTHERWISE, "use 'aerie template'"},
    {"gguf-split llama-gguf-split split", NULL, APP_ABSENT, "aerie reads split models, but does not split files"},
    {"merge", NULL, APP_OTHERWISE, "use 'aerie quantize' to write a split model as one file"},
    {"gguf-hash llama-gguf-hash hash", NULL, APP_ABSENT, "use sha256sum"},
    {"convert-hf convert_hf_to_gguf convert_hf_to_gguf.py", NULL, APP_OTHERWISE, "use 'aerie convert FOLDER -o FILE'"},
    {"lora", NULL, APP_OTHERWISE, "'aerie run --lora FILE' uses an adapter"},
    {"convert-lora convert_lora_to_gguf convert_lora_to_gguf.py", NULL, APP_OTHERWISE,
     "use 'aerie convert FOLDER -o ADAPTER.gguf --target MODEL.gguf'"},
    {"export-lora llama-export-lora", NULL, APP_NOT_YET, "adapters are used as they are: 'aerie run --lora FILE'"},
    {"download get fetch install add", NULL, APP_OTHERWISE, "use 'aerie pull'"},
    {"search", NULL, APP_ABSENT, "search at https://huggingface.co/models, and give the name to 'aerie pull'"},
    {"ls models ps", NULL, APP_OTHERWISE, "use 'aerie list'"},
    {"push signin signout login launch", NULL, APP_ABSENT, "there is no registry of models"},
    {"remove delete", NULL, APP_OTHERWISE, "use 'aerie rm NAME'"},
    {"cp copy stop create unload", NULL, APP_ABSENT, "pulled models are files in ~/.cache/aerie/models"},
    {"train finetune fine-tune llama-finetune", NULL, APP_OTHERWISE,
     "'aerie train-data' writes training data for a drafter head; training/ has the recipe"},
    {"fit-params llama-fit-params memory", NULL, APP_OTHERWISE, "'aerie run -v' says how much memory a model needs"},
    {"rpc-server llama-rpc-server rpc", NULL, APP_OTHERWISE,
     "mpirun starts 'aerie run' or 'aerie serve' with --machines on several machines"},
    {"mtmd mtmd-cli llama-mtmd-cli llava", NULL, APP_OTHERWISE,
     "use 'aerie run -m FILE --mmproj FILE --image FILE'; sound is not read"},
    {"tts llama-tts cvector-generator llama-cvector-generator passkey llama-passkey",
     NULL, APP_ABSENT,
     "aerie has nothing like it"},
    {"diffusion-cli llama-diffusion-cli", NULL, APP_OTHERWISE,
     "use 'aerie run'; --diffusion-steps and its kin are options of it"},
    {"license", NULL, APP_OTHERWISE, "see the file LICENSE"},
    {"man", NULL, APP_OTHERWISE, "use 'aerie --man'"},
    {"completion-bash completions", NULL, APP_OTHERWISE, "use 'aerie --completion-bash'"},
};

static const app_foreign *find(const app_foreign *rows, size_t n_rows, const char *name, size_t n)
{
    char known[64];
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t k = 0; app_name_at(rows[i].names, k, known); k++) {
            if (strlen(known) == n && memcmp(known, name, n) == 0) return &rows[i];
        }
    }
    return NULL;
}

size_t app_n_foreign_options(void)
{
    return sizeof foreign_options / sizeof *foreign_options;
}

const app_foreign *app_foreign_option_at(size_t i)
{
    return &foreign_options[i];
}

const app_foreign *app_foreign_option(const char *name, size_t n)
{
    return find(foreign_options, app_n_foreign_options(), name, n);
}

size_t app_n_foreign_commands(void)
{
    return sizeof foreign_commands / sizeof *foreign_commands;
}

const app_foreign *app_foreign_command_at(size_t i)
{
    return &foreign_commands[i];
}

const app_foreign *app_foreign_command(const char *name)
{
    return find(foreign_commands, app_n_foreign_commands(), name, strlen(name));
}
