/* test_unusual_args.c - unusual command lines, each with the expected exit status and sentence: no crash, no silence, no
 * endless wait. */
#include "cli.h"

static int make_files(void **state)
{
    if (cli_setup_model(state)) return -1;
    cli("printf hello > text.txt; : > empty.gguf; gzip -c m.gguf > gz.gguf; head -c 5000 m.gguf > cut.gguf; "
        "cp cut.gguf m.gguf.part1of2; cp text.txt m.gguf-split-b; "
        "printf '\\010\\0\\0\\0\\0\\0\\0\\0{\"a\":1}' > x.safetensors; mkdir dir; cp m.gguf '\xc3\xbcn "
        "\xe6\xa8\xa1\xe5\x9e\x8b.gguf'; "
        "ln -s loop loop; head -c 100000 /dev/urandom | tr '\\000\\n' xx > noise; printf '<html>' > html.gguf; "
        "printf '\\050\\265\\057\\375x' > z.gguf; "
        "printf 'version https://git-lfs.github.com/spec/v1\\n' > lfs.gguf; yes 'word ' | head -c 300000 > long.txt");
    return 0;
}

static const struct {
    const char *command;
    int status;
    const char *part; /* of standard error; "": nothing stands there */
} cases[] = {
    /* models */
    {"run -m text.txt -p hi", 3, "text.txt: not a GGUF file"},
    {"run -m dir -p hi", 3, "dir: not a regular file but a directory"},
    {"run -m missing.gguf -p hi", 3, "missing.gguf: cannot open: No such file"},
    {"run -m empty.gguf -p hi", 3, "empty.gguf: the file is empty"},
    {"run -m cut.gguf -p hi", 3, "cut.gguf: "},
    {"run -m m.gguf.part1of2 -p hi", 3, "join all pieces in order"},
    {"run -m m.gguf-split-b -p hi", 3, "join all pieces in order"},
    {"run -m gz.gguf -p hi", 3, "gz.gguf: not a GGUF file but a gzip archive; unpack it with gunzip"},
    {"run -m z.gguf -p hi", 3, "z.gguf: not a GGUF file but a Zstandard archive"},
    {"run -m x.safetensors -p hi", 3, "safetensors, a part of a checkpoint; 'aerie convert FOLDER -o"},
    {"run -m html.gguf -p hi", 3, "perhaps an HTML page"},
    {"run -m lfs.gguf -p hi", 3, "a Git LFS pointer"},
    {"run -m noise -p hi", 3, "noise: not a GGUF file"},
    {"run -m *.gguf*", 2, "-m names the model"}, /* the shell splits it into many words */
    {"run -m '\xc3\xbcn \xe6\xa8\xa1\xe5\x9e\x8b.gguf' -p hi -n 2 -q", 0, ""},
    {"run -m loop -p hi", 3, "loop: cannot open: Too many levels"},
    {"run -m /dev/null -p hi", 3, "/dev/null: not a regular file"},
    {"run -m /dev/zero -p hi", 3, "/dev/zero: not a regular file"},
    {"run -m '' -p hi", 2, "-m names no file"},
    {"tokenize -m '' -p hi", 2, "-m names no file"},
    {"run -p hi", 2, "needs a model: -m FILE"},
    {"run", 2, "or aerie run FILE"},
    {"bench study", 2, "or aerie bench study FILE"},
    {"train-data turns -o x", 2, "needs a model: -m FILE (or AERIE_MODEL). FILE is"},
    {"inspect m.gguf -p hi", 2, "belongs to 'run', 'embed', 'tokenize'"},
    {"serve m.gguf -p hi", 2, "prompts come with the requests of clients"},
    {"run m.gguf", 2, "the prompt from standard input is empty"},
    {"run -m m.gguf -md text.txt -p hi", 3, "text.txt: not a GGUF file"},
    {"run -m m.gguf -md dir -p hi", 3, "dir: not a regular file but a directory"},
    {"run -m m.gguf -md m.gguf -p hi -n 2 -q", 0, ""},
    /* prompts */
    {"run -m m.gguf hello", 2, "found 'hello'"},
    {"run -m m.gguf -p ''", 2, "-p gives an empty prompt"},
    {"run -m m.gguf -p '   ' -n 2 -q", 0, ""},
    {"run -m m.gguf", 2, "the prompt from standard input is empty"},
    {"run -m m.gguf <&-", 3, "cannot read 'standard input'"},
    {"run -m m.gguf -p hi -n 2 -q <&-", 0, ""},
    {"run -m m.gguf -p 'a\\x00b' -n 2", 2, "NUL byte"},
    {"run -m m.gguf -p 'a\\x00b' -n 2 -no-cnv -q", 0, ""},
    {"run -m m.gguf -p \"$(printf '\\377\\376\\200')\" -n 2 -q", 0, ""},
    {"run -m m.gguf -f long.txt -n 2", 2, "tokens, but the context holds 2048"},
    {"run -m m.gguf -f missing.txt", 3, "cannot open 'missing.txt'"},
    {"run -m m.gguf -f dir", 3, "'dir'"},
    {"run -m m.gguf -f empty.gguf", 2, "the prompt from empty.gguf is empty"},
    {"run -m m.gguf --prompts-file dir", 3, "'dir'"},
    {"run -m m.gguf --prompts-file empty.gguf", 3, "contains no prompt"},
    {"run -m m.gguf --messages text.txt", 3, "text.txt: line 1"},
    {"run -m m.gguf --messages dir", 3, "'dir'"},
    {"run -m m.gguf -p hi --tools text.txt", 3, "text.txt: line 1"},
    {"run -m m.gguf -p hi --chat-template-file noise", 3, "noise: "},
    {"run -m m.gguf -p hi --chat-template llama5", 2, "llama3, llama4"},
    {"run m.gguf ''", 2, "the model 'm.gguf' is followed by its prompt; found ''"},
    {"run m.gguf -", 2, "-f - reads standard input"},
    {"run -hf a/b hi", 2, "-hf names the model; found 'hi' too (give a prompt by -p, or after a MODEL without -hf)"},
    {"run -mu http://x/y.gguf hi", 2, "-mu names the model; found 'hi' too"},
    {"perplexity -m m.gguf text.txt", 2, "-m names the model; found 'text.txt' too (a text is given by -p or -f)"},
    {"embed m.gguf hello", 2, "'embed' takes one model; found 'hello' too (a text is given by -p or -f)"},
    {"tokenize m.gguf -p hi", 0, ""},
    {"tokenize m.gguf --decode 65 66", 0, ""},
    {"tokenize m.gguf hi", 2, "takes a text by -p"},
    {"run m.gguf hi -n=3", 2, "unknown option '-n=3'; a value follows after a space: -n 3"},
    {"run m.gguf hi -ngl99", 2, "a value follows after a space: -ngl 99"},
    {"serve m.gguf --tokenizer x", 2, "a model's file has its tokenizer"},
    {"serve m.gguf --dtype auto --enable-prefix-caching --tool-call-parser hermes --port x", 2, "--port takes"},
    {"serve -m m.gguf m.gguf", 2, "each model needs its own -m"},
    {"serve m.gguf --grammar x", 2, "grammars and schemas come with the requests"},
    {"serve m.gguf -sys x", 2, "system messages come with the requests"},
    {"m.gguf", 2, "a model is run by 'aerie run m.gguf'"},
    {"hf:a/b -p hi", 2, "a model is run by 'aerie run hf:a/b'"},
    /* numbers */
    {"run -m m.gguf -p hi -n 0", 2, "-n takes a whole number from 1, or -1"},
    {"run -m m.gguf -p hi -n -1 -c 64 -q", 0, ""},
    {"run -m m.gguf -p hi -n -3", 2, "-n takes a whole number from 1, or -1 or -2: until the answer ends"},
    {"run -m m.gguf -p hi -n -2 -c 64 -q", 0, ""},
    {"imatrix -m m.gguf -f long.txt -o x -n 0", 2, "-n takes a whole number from 1, or -1"},
    {"run -m m.gguf -p hi -n 2 --draft-max 0 --draft-min 3 --stats", 0, "speculation: none"},
    {"run -m m.gguf -p hi -n 2 --spec-type ngram --draft-max 0 --stats", 0, "speculation: none"},
    {"bench spec -m m.gguf -p hi --draft-max 0", 2, "from 1 to 64; found '0'"},
    {"run -m m.gguf -p hi --spec-type draft-mtp", 2, "needs MTP blocks, but m.gguf has none"},
    {"run -m missing.gguf -p hi --spec-type draft-mtp", 3, "missing.gguf: cannot open"},
    {"run -m m.gguf -p hi -n 1e3", 2, "found '1e3'"},
    {"run -m m.gguf -p hi -n", 2, "-n needs a value"},
    {"run -m m.gguf -p hi -c -1", 2, "-c takes a whole number from 0"},
    {"run -m m.gguf -p hi -c 1", 2, "the context size is 1; 8 to"},
    {"run -m m.gguf -p hi -c 4k", 2, "found '4k'"},
    {"run -m m.gguf -p hi -c 99999999999", 2, "found '99999999999'"},
    {"run -m m.gguf -p hi -t 0 -n 2 -q", 0, ""},
    {"run -m m.gguf -p hi -t 100000", 2, "-t takes a whole number from 0 to 1024"},
    {"run -m m.gguf -p hi --temp nan", 2, "found 'nan'"},
    {"run -m m.gguf -p hi --temp inf", 2, "found 'inf'"},
    {"run -m m.gguf -p hi --temp 0,5", 2, "found '0,5'"},
    {"run -m m.gguf -p hi --top-k -5", 2, "found '-5'"},
    {"run -m m.gguf -p hi --seed -1 -n 2 -q", 0, ""},
    {"run -m m.gguf -p hi --seed abc", 2, "found 'abc'"},
    {"run -m m.gguf -p hi --seed 18446744073709551616", 2, "18446744073709551615"},
    {"run -m m.gguf -p hi --frobnicate", 2, "unknown option '--frobnicate'"},
    {"run -m m.gguf -p hi -C 0", 2, "none of the requested CPUs"},
    {"run -m m.gguf -p hi -j '{' -n 2", 2, "not JSON"},
    {"run -m m.gguf -p hi --grammar '' -n 2 -q", 0, ""},
    {"run -m m.gguf -p hi --grammar ' ' -n 2", 2, "no rule 'root'"},
    {"run -m m.gguf -p hi --temp -1 -n 2 -q", 0, ""},
    /* llama.cpp's command line also has underscores, and lists with commas */
    {"run -m m.gguf -p hi --n_predict 2 --ctx_size=64 --no_display_prompt -q", 0, ""},
    {"run -m m.gguf -p hi --frob_nicate", 2, "unknown option '--frob-nicate'"},
    {"run -m m.gguf -p hi -n 2 --override-kv tokenizer.ggml.add_bos_token=bool:true,llama.context_length=int:8", 2,
     "context holds 8"},
    {"tokenize -m m.gguf -p hi --override-kv 'general.name=str:a,b,llama.context_length=int:x'", 2,
     "llama.context_length=int:x"},
    {"run -m m.gguf -p hi --image missing.png,gone.png", 2, "this model reads text only"},
    {"run -m m.gguf -p hi --stop ''", 2, "--stop needs a text that is not empty"},
    /* ids that no token has, and a template that is empty */
    {"run -m m.gguf --override-kv tokenizer.ggml.padding_token_id=int:100000 -p hi -n 2", 0,
     "m.gguf: tokenizer.ggml.padding_token_id is 100000, but the vocabulary has"},
    {"run -m m.gguf --override-kv tokenizer.ggml.fim_mid_token_id=int:100000 -p hi -n 2", 0, "fim_mid_token_id is 100000"},
    {"run -m m.gguf --override-kv tokenizer.ggml.eom_token_id=int:100000 -p hi -n 2 -q", 0,
     "eom_token_id is 100000"}, /* -q hides no warnings */
    {"run -m m.gguf --override-kv tokenizer.ggml.bos_token_id=int:100000 --override-kv tokenizer.ggml.add_bos_token=bool:false "
     "-p hi -n 2 -q", 0, "bos_token_id is 100000"},
    {"run -m m.gguf --override-kv tokenizer.ggml.bos_token_id=int:100000 --override-kv tokenizer.ggml.add_bos_token=bool:true "
     "-p hi -n 2 -q", 3, "the id of the token to be added before every text is invalid"},
    {"run -m m.gguf --override-kv tokenizer.chat_template=str: -p hi -n 2", 0, "the model has no chat template"},
    {"run -m m.gguf --override-kv 'tokenizer.chat_template=str: ' -p hi -n 2", 0, "the model has no chat template"},
    /* streams */
    {"run -m m.gguf -p hi -n 4 -q >&-", 1, "cannot write to standard output"},
    {"run -m m.gguf -p hi -n 4 -q > /dev/full", 1, "cannot write to standard output: No space left"},
    {"run -m m.gguf -p hi -n 4 --json -q > /dev/full", 1, "cannot write to standard output: No space left"},
    {"run -m m.gguf -p hi -n 4 --jsonl -q > /dev/full", 1, "cannot write to standard output: No space left"},
    {"inspect m.gguf > /dev/full", 1, "cannot write to standard output: No space left"},
    /* the other commands */
    {"tokenize -m m.gguf --decode 99999999999", 2, "is not a token id"},
    {"tokenize -m m.gguf --decode abc", 2, "is not a token id"},
    {"tokenize -m m.gguf --decode 100000", 2, "token 0 is 100000"},
    {"tokenize -m m.gguf -f dir", 3, "'dir'"},
    {"tokenize -m m.gguf -p '' -q", 0, ""},
    {"template -m m.gguf", 2, "needs a conversation"},
    {"template -m m.gguf --messages empty.gguf", 3, "not JSON"},
    {"inspect", 2, "needs a model"},
    {"inspect dir", 3, "dir: not a regular file but a directory"},
    {"inspect m.gguf cut.gguf", 2, "takes one file"},
    {"inspect noise", 3, "not a GGUF file"},
    {"bench", 2, "needs the name of a benchmark"},
    {"bench speed -m missing", 3, "missing: cannot open"},
    {"bench speed -m m.gguf -p 0 -n 0", 2, "nothing to measure"},
    {"bench spec -m m.gguf --prompts dir", 3, "has no file"},
    {"bench logits -m m.gguf --ids-file text.txt", 3, "is not a token id"},
};

static void each_has_its_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("timeout 600 $A %s", cases[i].command);
        if (cli_last.status != cases[i].status || !strstr(cli_last.err, cases[i].part) || (!*cases[i].part && cli_last.n_err))
            fail_msg("aerie %s: expected status %d and '%s'; found %d and: %s", cases[i].command, cases[i].status,
                     cases[i].part, cli_last.status, cli_last.err);
        if (cli_last.status == 2 || cli_last.status == 3) assert_int_equal(cli_last.n_out, 0);
    }
}

/* A deleted model stays usable for a process that has it open; a truncated one ends the program with a message. */
static void models_that_go_away(void **state)
{
    (void)state;
    cli("rm -f ids; cp m.gguf gone.gguf; $A run -m gone.gguf -p hi -n 1500 --ignore-eos -q --ids > ids & P=$!; "
        "i=0; while [ ! -s ids ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done; rm gone.gguf; wait $P");
    assert_int_equal(cli_last.status, 0);
    cli("rm ids; cp m.gguf shrunk.gguf; $A run -m shrunk.gguf --mmap -p hi -c 1000000 --ignore-eos -q --ids > ids & P=$!; "
        "i=0; while [ ! -s ids ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done; : > shrunk.gguf; wait $P");
    if (cli_last.status != 3 || !strstr(cli_last.err, "was truncated")) fail_msg("%d: %s", cli_last.status, cli_last.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_answer),
        cmocka_unit_test(models_that_go_away),
    };
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}
