#!/bin/bash
# one_gpu.sh - an EAGLE head and a DSpark head for one target within 12 minutes on one GPU, or overnight on a CPU, with figures.
#
#     training/one_gpu.sh pack  DIR MODEL [TEXTS]   where aerie is: prompts, model and program, in files of at most 60 MiB
#     training/one_gpu.sh train DIR OUT [--cpu]     where the GPU is; needs Python with torch, numpy, gguf and safetensors
#     training/one_gpu.sh join  OUT FILE            puts the parts of OUT/FILE together again
#     training/one_gpu.sh rehearse DIR [MODEL]      all three on this machine's CPU, in DIR/pack and DIR/out; needs aerie, too
#
# TEXTS: a folder of text and HTML files to be asked about. What train leaves in OUT is useful when it is cut at any minute:
#   table.txt            what happened, and the figures so far
#   KIND/checkpoint.pt   the best weights so far, from the first measurement on
#   KIND.gguf            the head as a file, from the end of its training on; KIND-f16.gguf beside it
#   KIND-spec.txt        drafted and accepted by group on the held-out prompts, and the speed, by the engine
# Files of more than 60 MiB end up in parts. The EAGLE head is converted and measured while the DSpark head is trained.
# train ends with 0 when every head was trained, converted and measured, with the trainer's status when that failed, with 1 when
# anything else did; Ctrl-C and SIGTERM end the trainer and the measurements too. rehearse takes four minutes, with a tiny
# random model or MODEL, makes parts of 1 MiB, and ends with 0 if every file named above is there, and whole once joined.
# From the environment, all optional:
#   PYTHON    python3                    MINUTES  of the whole: 12; with --cpu 600
#   COUNT     prompts: 60000             KINDS    eagle3,dspark          SHARES  of the time for training: 0.45,0.55
#   START     a head that eagle3 goes on from (pack)                     EXTRA   more options of gpu_head.py train
#   PROMPTS   folder of prompts to measure on: bench/prompts             AERIE   the program (pack): build/aerie
#   PART_MIB  size of the parts: 60
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(dirname "$HERE")
PYTHON=${PYTHON:-python3} KINDS=${KINDS:-eagle3,dspark} SHARES=${SHARES:-0.45,0.55} PROMPTS=${PROMPTS:-$ROOT/bench/prompts}
PART_MIB=${PART_MIB:-60}

die() { echo "one_gpu.sh: $*" >&2; exit 2; }
start=$(date +%s)
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*" | tee -a "$OUT/table.txt"; }

# A shell ignores SIGINT in its background jobs, and waits for a foreground command before it runs a trap. So what takes long
# runs in the background, and whoever is told to end ends it.
end_jobs()
{
    trap '' INT TERM HUP
    # shellcheck disable=SC2046 # one word for each process
    kill $(jobs -p) 2> /dev/null
    wait
}
ended_by() { end_jobs; say "ended by a signal"; exit "$1"; }

# whole FILE: joins FILE.part-* to FILE if it is not there
whole()
{
    [ -f "$1" ] && return 0
    ls "$1".part-* > /dev/null 2>&1 || return 1
    cat "$1".part-* > "$1.new" && mv "$1.new" "$1"
}
# parts FILE: a file of more than PART_MIB becomes FILE.part-aa, -ab, ...
parts()
{
    [ "$(stat -c %s "$1")" -le $((PART_MIB << 20)) ] && return 0
    rm -f "$1".part-*
    split -b "${PART_MIB}m" "$1" "$1.part-" && rm -f "$1"
}

pack()
{
    local dir=$1 model=$2 texts=${3:-} held=() aerie=${AERIE:-$ROOT/build/aerie} f
    [ -f "$model" ] || die "there is no model '$model'"
    [ -x "$aerie" ] || die "there is no program '$aerie': build it, or name it by AERIE"
    mkdir -p "$dir" || die "cannot make '$dir'"
    for f in "$PROMPTS"/*.jsonl; do held+=(--test "$f"); done
    "$PYTHON" "$HERE/gpu_head.py" prompts -m "$model" -o "$dir/prompts.npz.xz" --count "${COUNT:-60000}" \
        "${held[@]}" ${texts:+--texts "$texts"} || die "no prompts were made"
    cp "$model" "$dir/model.gguf" && cp "$aerie" "$dir/aerie" && cp "$PROMPTS"/*.jsonl "$dir/" || die "cannot copy to '$dir'"
    if [ "${START:-}" ]; then cp "$START" "$dir/start.gguf" || die "there is no head '$START'"; fi
    for f in "$dir"/*; do parts "$f"; done
    (cd "$dir" && rm -rf sums.txt bench && sha256sum -- * > sums.txt && ls -l)
}

# figures KIND SECONDS: GGUF of a checkpoint, and what the engine says of it within that time. Runs in a process of its own.
figures()
{
    local kind=$1 reading=() f type=draft-$1 limit=$2 status
    trap 'end_jobs; exit 143' INT TERM HUP
    [ "$kind" = eagle3 ] && reading=(--producer official --taps "$TAPS" --feedback post --norm-before-residual off)
    f=$OUT/$kind-f16.gguf
    if ! "$AERIE" convert "$OUT/$kind/checkpoint" -o "$f" --target "$DIR/model.gguf" --outtype f16 "${reading[@]}" \
        > "$OUT/$kind-convert.log" 2>&1; then
        say "$kind: could not be converted ($OUT/$kind-convert.log)"
        return 1
    fi
    "$AERIE" quantize "$f" "$OUT/$kind.gguf" Q5_0 --output-tensor-type q5_1 >> "$OUT/$kind-convert.log" 2>&1 ||
        say "$kind: could not be quantized ($OUT/$kind-convert.log)"
    parts "$f"
    [ -f "$OUT/$kind.gguf" ] || return 1
    say "$kind: $(stat -c %s "$OUT/$kind.gguf") bytes"
    timeout "$limit" "$AERIE" bench spec -m "$DIR/model.gguf" -md "$OUT/$kind.gguf" --spec-types "$type" \
        --prompts "$DIR/bench" --held-out only --temps 0 -n "${TOKENS:-96}" -np 8 -r 1 --spec-fixed --spec-ngram off \
        --spec-tree off --spec-draft-n-max 8 > "$OUT/$kind-spec.txt" 2> "$OUT/$kind-spec.log" &
    wait $!
    status=$?
    [ $status -eq 0 ] || say "$kind: bench spec ended with $status ($OUT/$kind-spec.log)"
    tail -n 3 "$OUT/$kind-spec.txt" | while read -r l; do say "$kind: $l"; done
    return $status
}

train()
{
    DIR=$(cd "$1" && pwd) || die "there is no folder '$1'"
    OUT=$(mkdir -p "$2" && cd "$2" && pwd) || die "cannot make '$2'"
    local cpu=${3:-} minutes where f options=() kind last pids=() status failed=0
    [ -z "$cpu" ] || [ "$cpu" = --cpu ] || die "'$cpu': only --cpu can stand here"
    minutes=${MINUTES:-$([ "$cpu" ] && echo 600 || echo 12)}
    case $minutes in
    '' | *[!0-9]*) die "MINUTES is '$minutes': a whole number is wanted" ;;
    esac
    [ "$minutes" -ge 3 ] || die "MINUTES is $minutes: 3 at least are wanted"
    (cd "$DIR" && sha256sum --quiet -c sums.txt) || die "files of '$DIR' are missing or damaged"
    : > "$OUT/table.txt"
    for kind in ${KINDS//,/ }; do rm -rf "${OUT:?}/$kind/checkpoint"; done
    where=$OUT
    case $KINDS in *,*) ;; *) where=$OUT/$KINDS ;; esac
    for f in model.gguf prompts.npz.xz aerie; do whole "$DIR/$f" || die "'$DIR/$f' is missing: pack makes it"; done
    whole "$DIR/start.gguf" && options+=(--start-from "$DIR/start.gguf")
    mkdir -p "$DIR/bench" && cp "$DIR"/*.jsonl "$DIR/bench/"
    AERIE=$DIR/aerie
    chmod +x "$AERIE"
    [ "$cpu" ] && options+=(-np 32 --batch 512 --eval-every 10 --no-kernel --no-graphs)
    [ "$cpu" ] && export CUDA_VISIBLE_DEVICES=
    # the end is for the last kind's figures, an eighth of the whole, two minutes at most; starting takes some time, too
    last=$("$PYTHON" -c "print(min(120, int($minutes * 7.5)))")
    TAPS=$("$PYTHON" "$HERE/gpu_head.py" taps -m "$DIR/model.gguf") || die "the model cannot be read"
    nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2> /dev/null | while read -r l; do say "$l"; done
    say "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2), $(nproc) cores; $minutes minutes, $KINDS"
    trap 'ended_by 130' INT
    trap 'ended_by 143' TERM HUP
    "$PYTHON" "$HERE/gpu_head.py" train -m "$DIR/model.gguf" -p "$DIR/prompts.npz.xz" -o "$where" --kinds "$KINDS" \
        --minutes "$("$PYTHON" -c "print($minutes - $last / 60 - 0.3)")" --shares "$SHARES" "${options[@]}" ${EXTRA:-} \
        > "$OUT/train.log" 2>&1 &
    local trainer=$!
    for kind in ${KINDS//,/ }; do
        until [ -f "$OUT/$kind/checkpoint/config.json" ]; do
            if ! kill -0 $trainer 2> /dev/null; then break; fi
            sleep 0.5
        done
        [ -f "$OUT/$kind/checkpoint/config.json" ] || { say "$kind: not trained ($OUT/train.log)"; failed=1; continue; }
        sleep 0.5
        say "$kind: $(grep -E 'first|last:|mean:' "$OUT/train.log" | tail -n 1 | cut -c1-160)"
        if kill -0 $trainer 2> /dev/null; then
            figures "$kind" 600 &
            pids+=($!)
        else
            figures "$kind" "$last" &
            wait $! || failed=1
        fi
    done
    wait $trainer
    status=$?
    say "training ended with $status"
    for f in "${pids[@]}"; do wait "$f" || failed=1; done
    for f in "$OUT"/*/checkpoint.pt "$OUT"/*/checkpoint/model.safetensors; do [ -f "$f" ] && parts "$f"; done
    [ $status -ne 0 ] || status=$failed
    if [ $status -eq 0 ]; then say "done"; else say "done, but something failed: see above"; fi
    return $status
}

# missing OUT: a line for each file that train should have left in OUT but did not, joining those that are in parts
missing()
{
    local kind f files=(table.txt)
    for kind in ${KINDS//,/ }; do
        files+=("$kind/checkpoint.pt" "$kind/checkpoint/model.safetensors" "$kind/checkpoint/config.json")
        files+=("$kind.gguf" "$kind-f16.gguf" "$kind-spec.txt")
    done
    for f in "${files[@]}"; do
        whole "$1/$f"
        [ -s "$1/$f" ] || echo "$f"
    done
    for f in "$1"/*.gguf; do "$AERIE" inspect -m "$f" > /dev/null || echo "$f: not a GGUF file"; done
}

rehearse()
{
    local dir=$1 model=${2:-} status lost f
    export AERIE=${AERIE:-$ROOT/build/aerie} PART_MIB=1 KINDS SHARES
    mkdir -p "$dir/prompts" || die "cannot make '$dir'"
    for f in "$PROMPTS"/*.jsonl; do head -n 2 "$f" > "$dir/prompts/$(basename "$f")"; done # they are answered before all others
    export PROMPTS=$dir/prompts
    if [ -z "$model" ]; then
        model=$dir/random.gguf
        "$(dirname "$AERIE")/tests/mkmodel" --shape tiny --type q4_0 "$model" || die "no random model was made: build the tests"
    fi
    COUNT=${COUNT:-100} "$BASH" "$0" pack "$dir/pack" "$model" || return
    MINUTES=${MINUTES:-4} TOKENS=${TOKENS:-8} EXTRA=${EXTRA:---tokens 24 --depths 2 --block 4 --anchors 4 --eval-every 0.3} \
        "$BASH" "$0" train "$dir/pack" "$dir/out" --cpu
    status=$?
    [ $status -eq 0 ] || { echo "rehearse: train ended with $status" >&2; return $status; }
    lost=$(missing "$dir/out")
    [ -z "$lost" ] || { printf 'rehearse: missing in %s/out:\n%s\n' "$dir" "$lost" >&2; return 1; }
    echo "rehearse: all files are there and whole: $(cd "$dir/out" && ls | tr '\n' ' ')"
}

case "${1:-}" in
pack) [ $# -ge 3 ] || die "usage: pack DIR MODEL [TEXTS]"; pack "$2" "$3" "${4:-}" ;;
train) [ $# -ge 3 ] || die "usage: train DIR OUT [--cpu]"; train "$2" "$3" "${4:-}" ;;
join) [ $# -eq 3 ] || die "usage: join OUT FILE"; whole "$2/$3" || die "there is neither '$2/$3' nor parts of it" ;;
rehearse) [ $# -ge 2 ] || die "usage: rehearse DIR [MODEL]"; rehearse "$2" "${3:-}" ;;
*) sed -n '2,23p' "$0" | cut -c3-; exit 2 ;;
esac
