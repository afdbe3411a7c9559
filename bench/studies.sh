#!/bin/sh
# studies.sh - the tables of docs/studies.md, one command each: makes the files that a study needs in build/studies and runs it.
#
#     bench/studies.sh heads [OPTIONS]      acceptance by depth of a drafter head in several quantizations
#     bench/studies.sh experts [OPTIONS]    a model that drafts for itself with fewer experts, in several quantizations
#     bench/studies.sh hier [OPTIONS]       HierSpec beside EAGLE-2 where verifying 48 rows takes 1.8 times as long as one
#
# OPTIONS go to `aerie bench spec` (heads, hier) or `aerie bench study` (experts), after those given here; MODEL in the
# environment names another model, HEAD another head of it. Owns nothing but build/studies. Source: docs/studies.md.
set -eu
cd "$(dirname "$0")/.."
aerie=${AERIE_BUILD:-build}/aerie tools=${AERIE_BUILD:-build}/tests out=build/studies
what=${1:-}
[ $# -eq 0 ] || shift
case $what in heads | experts | hier) ;; *) sed -n '4,6p' "$0" | sed 's/^# *//' >&2; exit 2 ;; esac
model=${MODEL:-models/smollm2-135m-instruct-q4_1.gguf}
head=${HEAD:-models/smollm2-135m-instruct-eagle3.gguf}
need() { [ -f "$1" ] || { echo "studies.sh: there is no $1: $2" >&2; exit 3; }; }
need "$aerie" "make builds it"
mkdir -p $out

# Made once; a run that was cut off leaves no half file.
made() { [ -s "$1" ] || { "$2" "$1.part" && mv "$1.part" "$1"; }; }

case $what in
heads)
    need "$model" "make model brings SmolLM2, MODEL=FILE names another"
    heads=
    for type in F16 Q8_0 Q5_0 Q4_0 Q3_K Q2_K; do
        one() { "$aerie" quantize -q --allow-requantize "$head" "$1" "$type" >&2; }
        made $out/head-$type.gguf one
        heads="$heads -md $out/head-$type.gguf"
    done
    # shellcheck disable=SC2086 # a list of options
    exec "$aerie" bench spec -m "$model" $heads --spec-types draft-eagle3 --spec-ngram off --spec-tree off --spec-fixed \
        --spec-draft-n-max 1,3,5 --prompts bench/prompts --held-out only --per-group 1 -n 32 -r 1 --temp 0 "$@" ;;
experts)
    if [ -z "${MODEL:-}" ]; then
        need "$tools/mkarch" "cmake --build build --target mkarch"
        one() { "$tools/mkarch" qwen2moe "$1" >&2; }
        made $out/experts.gguf one
        model=$out/experts.gguf
    fi
    exec "$aerie" bench study -m "$model" -o $out/experts --types F16,Q8_0,Q4_0,Q2_K -n 24 -r 1 "$@" ;;
hier)
    need "$model" "make model brings SmolLM2, MODEL=FILE names another"
    need "$tools/inflate" "cmake --build build --target inflate"
    one() { "$tools/inflate" -r 9 --type q4_0 "$model" "$1" >&2; }
    made $out/inflated.gguf one
    exec "$aerie" bench spec -m $out/inflated.gguf -md "$head" -md "$model" --hier-draft "$head" --in-turns \
        --spec-types draft-eagle3,draft,hier --spec-ngram off --spec-fixed --spec-tree dynamic,off --spec-tree-nodes 48 \
        --spec-tree-top-k 8 --spec-draft-n-max 6 --steep 48:1.8 --prompts bench/prompts --groups chat,math --held-out only \
        --per-group 1 -n 32 -r 1 --temp 0 "$@" ;;
esac
