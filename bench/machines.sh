#!/bin/bash
# machines.sh - several ranks on one machine, by shared memory: what the seam costs, what cutting costs, whether delays add up
# as computed, and what drafts are worth on a slow network. For a machine of two quiet cores; 5 to 8 minutes.
#
#     bench/machines.sh BUILD [PART...]     parts: seam shape delays drafts (default: all)
#
# BUILD has aerie, libaerie-mpi.so, tests/mkmodel and tests/inflate (cmake --build BUILD --target aerie mkmodel inflate). Takes
# models/smollm2-135m-instruct-q4_1.gguf and its head. ROUNDS=5: figures are medians of so many runs, by turns. A slow network
# is AERIE_COMM_SLOW (docs/machines.md). Writes tables of Markdown; needs mpirun and awk.
set -u
build=$(realpath "${1:?a build folder}")
shift
parts=${*:-seam shape delays drafts}
top=$(realpath "$(dirname "$0")/..")
rounds=${ROUNDS:-5}
model=$top/models/smollm2-135m-instruct-q4_1.gguf
head=$top/models/smollm2-135m-instruct-eagle3.gguf
work=$(mktemp -d /dev/shm/aerie-machines.XXXXXX)
trap 'rm -rf "$work"' EXIT
export AERIE_MPI_MODULE=$build/libaerie-mpi.so OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sentence='On day %d the keeper of the lighthouse wrote down what the sea had left on the rocks. '
# shellcheck disable=SC2059
text=$(for i in $(seq 40); do printf "$sentence" "$i"; done)

# run PROCESSES OPTIONS...: one run; 0 processes: without --machines. Its standard error lies in $work/err
run() {
    local processes=$1 shares=1 i
    shift
    set -- run -q -no-cnv --temp 0 --ignore-eos --stats "$@"
    for ((i = 1; i < processes; i++)); do shares=$shares,1; done
    if [ "$processes" = 0 ]; then
        "$build/aerie" "$@" > "$work/out" 2> "$work/err"
    else
        mpirun --oversubscribe --bind-to none -n "$processes" "$build/aerie" "$@" --machines split --split "$shares" \
            > "$work/out" 2> "$work/err"
    fi || { echo "failed: $*" >&2; head -3 "$work/err" >&2; exit 1; }
}
# figure prompt|generated: tokens/s of the last run
figure() {
    grep -o "$1 [0-9]* tokens[^;]*tokens/s" "$work/err" | tail -1 | grep -oE '[0-9.]+ tokens/s' | cut -d' ' -f1
}
median() { sort -n | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.3f", a / b}'; }

# compare NAME FIGURE PROCESSES_A PROCESSES_B THREADS_A THREADS_B OPTIONS...: a line of a table, medians by turns
compare() {
    local name=$1 what=$2 a=$3 b=$4 ta=$5 tb=$6 x y
    shift 6
    : > "$work/a"; : > "$work/b"
    for _ in $(seq "$rounds"); do
        run "$a" -t "$ta" "$@"; figure "$what" >> "$work/a"
        run "$b" -t "$tb" "$@"; figure "$what" >> "$work/b"
    done
    x=$(median < "$work/a") y=$(median < "$work/b")
    echo "| $name | $x | $y | $(ratio "$y" "$x") |"
}

seam() {
    printf '\n| one thread, tokens/s | without --machines | with, one process | ratio |\n|---|---|---|---|\n'
    compare "SmolLM2, decoding" generated 0 1 1 1 -m "$model" -p "Tell me about the sea." -n 192 --spec-type none
    compare "SmolLM2, prompt in passes of 8" prompt 0 1 1 1 -m "$model" -p "$text" -n 1 -ub 8 -b 8 --spec-type none
}

shape() {
    "$build/tests/mkmodel" --shape 1b --layers 8 --type q4_0 "$work/1b.gguf" > "$work/out" || exit 1
    printf '\n| tokens/s | 1 process, 2 threads | 2 processes, 1 thread each | ratio |\n|---|---|---|---|\n'
    compare "1B shape, 8 layers, T(1)" generated 0 2 2 1 -m "$work/1b.gguf" -p "some text" -n 96 --spec-type none
    compare "the same, T(8)" prompt 0 2 2 1 -m "$work/1b.gguf" -p "$text" -n 1 -ub 8 -b 8 --spec-type none
    rm "$work/1b.gguf"
}

# pass_ms ROWS: milliseconds of a pass over two ranks, by the network that AERIE_COMM_SLOW names
pass_ms() {
    if [ "$1" = 1 ]; then
        run 2 -t 1 -m "$model" -p "Tell me about the sea." -n 48 --spec-type none
        figure generated | awk '{printf "%.3f", 1000 / $1}'
    else
        run 2 -t 1 -m "$model" -p "$text" -n 1 -ub "$1" -b "$1" --spec-type none
        figure prompt | awk -v n="$1" '{printf "%.3f", 1000 * n / $1}'
    fi
}

delays() {
    local map r logits bytes n net base t
    map=$("$build/aerie" inspect "$model" --machines split:2)
    r=$(echo "$map" | grep -oE '[0-9]+ rounds' | cut -d' ' -f1)
    logits=$(echo "$map" | grep '^rank 1' | grep -oE '[0-9]+ rows of the output' | cut -d' ' -f1)
    bytes=$(($(echo "$map" | grep '^rank 0' | grep -oE 'receives [0-9]+' | cut -d' ' -f2) - 4 * logits))
    printf '\n%s rounds and a frame a pass, %s bytes a row without logits; compute: two ranks without delay\n' "$r" "$bytes"
    printf '\n| latency, bandwidth | rows | compute, ms | pass, ms | formula, ms | ratio |\n|---|---|---|---|---|---|\n'
    for n in 1 8 64; do
        for _ in $(seq "$rounds"); do pass_ms $n; echo; done > "$work/base$n"
    done
    for net in "50us 1250MB" "50us 125MB" "200us 1250MB" "200us 125MB" "1ms 1250MB" "1ms 125MB"; do
        set -- $net
        export AERIE_COMM_SLOW="latency=$1,bandwidth=$2"
        for n in 1 8 64; do
            base=$(median < "$work/base$n")
            for _ in 1 2 3; do pass_ms $n; echo; done > "$work/pass"
            t=$(median < "$work/pass")
            awk -v net="$net" -v n=$n -v c="$base" -v t="$t" -v r="$r" -v b="$bytes" 'BEGIN {
                split(net, p, " ")
                us = p[1] ~ /ms/ ? 1000 * p[1] : p[1] + 0
                f = c + (r + 1) * us / 1000 + n * b / (p[2] * 1e3)
                printf "| %s, %s/s | %d | %.2f | %.2f | %.2f | %.3f |\n", p[1], p[2], n, c, t, f, t / f }'
        done
        unset AERIE_COMM_SLOW
    done
}

drafts() {
    "$build/tests/inflate" -r 9 --type q4_0 "$model" "$work/inflated.gguf" > "$work/out" || exit 1
    printf '\n| inflated SmolLM2, 2 ranks, temperature 0 | plain, tokens/s | with its head | ratio | same text |\n'
    printf '|---|---|---|---|---|\n'
    for net in latency=1ms,bandwidth=1250MB latency=50us,bandwidth=1250MB latency=200us,bandwidth=125MB; do
        export AERIE_COMM_SLOW=$net
        for p in "Write a short story about a lighthouse." "Explain how a bicycle stays upright." \
            "List ten facts about water."; do
            run 2 -t 1 -m "$work/inflated.gguf" -p "$p" -n 80 --spec-type none
            plain=$(figure generated)
            cp "$work/out" "$work/plain"
            run 2 -t 1 -m "$work/inflated.gguf" -md "$head" --spec-type eagle3 -p "$p" -n 80
            same=no
            cmp -s "$work/plain" "$work/out" && same=yes
            echo "| $net, '$p' | $plain | $(figure generated) | $(ratio "$(figure generated)" "$plain") | $same |"
        done
        unset AERIE_COMM_SLOW
    done
    rm "$work/inflated.gguf"
}

date -u
uptime
for part in $parts; do
    case $part in
    seam | shape | delays | drafts) $part ;;
    *) echo "no part '$part'; there are seam, shape, delays and drafts" >&2; exit 2 ;;
    esac
done
