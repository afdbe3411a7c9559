#!/bin/sh
# Writes llama_drafts.txt, what llama.cpp drafts with the heads that tests/golden/test_block.c names:
#
#     llama_drafts.sh TESTS LLAMA_DRAFTS > tests/golden/block/llama_drafts.txt
#
# TESTS holds mkmodel and mkhead (build/tests). LLAMA_DRAFTS is llama_drafts.cpp of this folder, built against a checkout and a
# build of llama.cpp:
#
#     c++ -std=c++17 -Icommon -Iinclude -Iggml/include -Isrc -Ivendor llama_drafts.cpp -lllama-common -lllama -lggml -lggml-base
set -eu
tests=$1 llama=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$tests/mkmodel" --shape tiny --type f32 --seed 7 "$work/target.gguf"
one() { # name, type, tokens of a draft, options of mkhead
    name=$1 type=$2 n=$3
    shift 3
    "$tests/mkhead" "$@" --taps 1,2 --type f32 --qk-norm 1 --seed 3 --tokenizer 1 "$work/target.gguf" "$work/head.gguf"
    "$llama" "$work/target.gguf" "$work/head.gguf" "$type" "$n" "$name" 1 8 16 25 39 64
}
one dflash draft-dflash 7 --kind dflash --block 8
one dflash-causal draft-dflash 15 --kind dflash --block 16 --causal 1 --own-embedding 1 --own-output 1
one dflash2 draft-dflash 7 --kind dflash2 --block 8
one dspark draft-dspark 7 --kind dspark --block 7 --markov 16
one dspark-in-place draft-dspark 5 --kind dspark --block 6 --from-anchor 0 --markov 32 --no-confidence 1
