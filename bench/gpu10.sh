#!/bin/bash
# gpu10.sh - ten minutes on a GPU: are the bits right, and how fast is it? Useful if it is cut at any minute.
#
#     bench/gpu10.sh OUT [DEVICE]
#
# OUT: a folder for table.txt, which grows line by line, and log.txt, what every step printed, as far as it came. DEVICE: as in
# --device (default: cuda). `bench/gpu10.sh OUT emu` rehearses all of it without a GPU, `SIZE=tiny bench/gpu10.sh OUT vulkan` on
# Vulkan's software driver. A signal that ends the script ends the step that runs, too. From the environment, all optional:
#   BUILD        a build of this project (default: build): aerie, tests/, lib/ with libraries that this machine may lack, and
#                mma_bench if it was made (bench/gpu/mma_bench.cu)
#   MODEL, HEAD  a real model and its drafter head (default: those of models/, if they are there; with SIZE=tiny random ones)
#   PEER         llama-bench of a llama.cpp that was built for this GPU (default: peer/llama-bench): it is timed in turn with
#                ours
#   STEPS        which steps to run (default: all): facts ops laws real speed peer vulkan kinds drafters
#                long mma profile sanitizer
#   MINUTES      of the whole (default: no limit); steps that begin late are cut short or left out
#   SIZE         tiny: small models, for the rehearsal (default for emu); large
#   TIMES        a factor of all limits in seconds (default: 1), for rehearsals on a busy machine
#   SCRATCH      a folder for random models of 5 GB (default: /tmp)
#   LOGS         a folder for the logs of single steps (default: OUT/logs)
set -u
OUT=$(mkdir -p "${1:?usage: bench/gpu10.sh OUT [DEVICE]}" && cd "$1" && pwd) || exit 2
DEVICE=${2:-cuda}
cd "$(dirname "$0")/.." || exit 2
BUILD=$(cd "${BUILD:-build}" && pwd) || exit 2
SCRATCH=$(cd "${SCRATCH:-/tmp}" && pwd) || exit 2
LOGS=$(mkdir -p "${LOGS:-$OUT/logs}" && cd "${LOGS:-$OUT/logs}" && pwd) || exit 2
TIMES=${TIMES:-1} PEER=${PEER:-peer/llama-bench} MINUTES=${MINUTES:-}
ALL="facts ops laws real speed peer vulkan kinds drafters long mma profile sanitizer"
STEPS=${STEPS:-$ALL}
for s in $STEPS; do
    case " $ALL " in *" $s "*) ;; *) echo "gpu10.sh: there is no step '$s'; there are: $ALL" >&2; exit 2 ;; esac
done
case $MINUTES in *[!0-9]*) echo "gpu10.sh: MINUTES is '$MINUTES': a whole number is wanted" >&2; exit 2 ;; esac
[ -d "$BUILD/lib" ] && export LD_LIBRARY_PATH="$BUILD:$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
SIZE=${SIZE:-$([ "$DEVICE" = emu ] && echo tiny || echo large)}
TINY_MODEL=$([ "$SIZE" = tiny ] && [ -z "${MODEL:-}" ] && echo 1)
MODEL=${MODEL:-models/smollm2-135m-instruct-q4_1.gguf} HEAD=${HEAD:-models/smollm2-135m-instruct-eagle3.gguf}
AERIE=$BUILD/aerie
TABLE=$OUT/table.txt LOG=$OUT/log.txt
FAR=16384,65536 FAR_CTX=66560 FAR_CHARS=24000 KINDS="rwkv7-2.9b falcon-mamba-7b qwen3.5-4b" EACH=1
SHAPE=8b PROMPT=512 N=128 ROWS=1,2,4,8,16,32,64 CONTEXTS=0,4096 N_PROMPTS=200 N_TOKENS=64 TYPES="q4_0 q4_k" EVERY=32
N_TURN=48 EACH_OP='' VULKAN_ROWS=1,4,16
if [ "$SIZE" = tiny ]; then
    SHAPE=tiny PROMPT=8 N=2 ROWS=1,2 CONTEXTS=0 N_PROMPTS=1 N_TOKENS=3 TYPES=q4_0 EVERY=100000
    N_TURN=6 EACH_OP=96 VULKAN_ROWS=1,2
    FAR=64 FAR_CTX=128 FAR_CHARS=100 KINDS='' EACH=48
fi
start=$(date +%s)
: > "$TABLE"
: > "$LOG"

# say TEXT: a line of the table
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*" | tee -a "$TABLE"; }
# A shell waits for a foreground command before it runs a trap, so what takes long runs in the background.
running='' running_name=''
limited() # SECONDS COMMAND...: 124 if it was stopped after so many seconds, or when the MINUTES were used up
{
    local seconds=$(($1 * TIMES)) left
    shift
    if [ -n "$MINUTES" ]; then
        left=$((MINUTES * 60 - $(date +%s) + start))
        [ $left -ge 5 ] || return 124
        [ $left -ge $seconds ] || seconds=$left
    fi
    timeout -k 10 $seconds "$@" < /dev/null &
    running=$!
    wait $running
    set -- $?
    running=
    return "$1"
}
keep() # NAME: its log goes into the one of all steps
{
    [ -f "$LOGS/$1.log" ] && { echo "==> $1 <=="; cat "$LOGS/$1.log"; } >> "$LOG"
}
ended() # STATUS
{
    local job n
    trap '' INT TERM HUP
    for job in $(jobs -p); do # what runs may not be in $running yet
        kill "$job" 2> /dev/null
        kill -- "-$job" 2> /dev/null # timeout's group: if it has only just begun, it ends without ending its command
        wait "$job" 2> /dev/null
        for ((n = 0; n < 100; n++)); do kill -0 -- "-$job" 2> /dev/null || break; sleep 0.1; done
        kill -KILL -- "-$job" 2> /dev/null
    done
    [ -z "$running_name" ] || keep "$running_name"
    say "ended by a signal${running_name:+ in $running_name}"
    exit "$1"
}
trap 'ended 130' INT
trap 'ended 143' TERM HUP
# step NAME SECONDS COMMAND...: runs it with its output in LOGS/NAME.log; says whether it went well
step()
{
    local name=$1 seconds=$2 status from
    shift 2
    from=$(date +%s) running_name=$name
    : > "$LOGS/$name.log"
    limited "$seconds" "$@" > "$LOGS/$name.log" 2>&1
    status=$?
    running_name=
    keep "$name"
    [ $status = 0 ] && return 0
    if [ $status = 124 ]; then
        say "$name: stopped after $(($(date +%s) - from)) s"
    else
        say "$name: FAILED with status $status ($LOGS/$name.log)"
    fi
    return $status
}

facts()
{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,memory.total --format=csv,noheader 2>/dev/null |
        while read -r l; do say "$l"; done
    say "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2), $(nproc) cores"
    step devices 30 "$AERIE" --list-devices && while read -r l; do say "$l"; done < "$LOGS/devices.log"
}

ops()
{
    local every=()
    [ -z "$EACH_OP" ] || every=("AERIE_TEST_EVERY=$EACH_OP")
    step ops 120 env "${every[@]}" AERIE_TEST_DEVICE="$DEVICE" "$BUILD/tests/kernels_test_device_ops"
    say "operations: $(grep -c ' 0 differ' "$LOGS/ops.log") of $(grep -c ' differ, ' "$LOGS/ops.log") groups" \
        "without a differing bit" \
        "($(awk '/ cases, /{n += $2} END {print n + 0}' "$LOGS/ops.log") cases)"
    step draws 60 env "${every[@]}" AERIE_TEST_DEVICE="$DEVICE" "$BUILD/tests/kernels_test_gpu_draws" &&
        say "draws and proposals: $(grep -c '  OK ' "$LOGS/draws.log") groups passed," \
            "$(grep 'SKIPPED \] test' "$LOGS/draws.log" | sort -u | wc -l) skipped"
    if [ "$SIZE" = large ]; then
        AERIE_TEST_DEVICE=$DEVICE AERIE_TEST_SIZE=large step ops_large 60 "$BUILD/tests/kernels_test_device_ops"
        say "operations, large: $(grep -c ' 0 differ' "$LOGS/ops_large.log") of" \
            "$(grep -c ' differ, ' "$LOGS/ops_large.log") groups"
    fi
}

# sample_of LAW: AERIE_TEST_SAMPLE (tests/support/every.h) with which it takes less than a minute of CPU time on an emulated GPU
# and on lavapipe, but recur_spec three minutes (docs/gpu.md). None: laws that AERIE_TEST_EVERY alone makes short.
sample_of()
{
    case $1 in
    block_laws) echo 53 ;;
    head_laws) echo 97 ;;
    mtp_laws) echo 13 ;;
    draft_laws) echo 25 ;;
    recur_spec) echo 37 ;;
    spec_laws) echo 29 ;;
    engine_laws) echo 97 ;;
    esac
}

# law STEP SECONDS NAME: the program of tests/laws/test_NAME.c on the device. A long one runs as a sample, which ends in time
# everywhere, and on a GPU (SIZE large) also as far as it comes without.
law()
{
    local stage=$1 seconds=$2 t=$3 program=$BUILD/tests/laws_test_$3 sample
    local command=(env -C "$SCRATCH" "AERIE_TEST_DEVICE=$DEVICE" "AERIE_BACKEND=$DEVICE")
    [ -x "$program" ] || return
    sample=$(sample_of "$t")
    if [ -n "$sample" ]; then
        step "${stage}_${t}_sample" "$seconds" "${command[@]}" AERIE_TEST_EVERY=6 "AERIE_TEST_SAMPLE=$sample" "$program" &&
            say "$stage, $t: $(grep -c '  OK ' "$LOGS/${stage}_${t}_sample.log") passed" \
                "($(grep '^sampled:' "$LOGS/${stage}_${t}_sample.log"))"
        [ "$SIZE" = large ] || return
    fi
    step "${stage}_$t" "$seconds" "${command[@]}" "AERIE_TEST_EVERY=$EVERY" "$program" &&
        say "$stage, $t: $(grep -c '  OK ' "$LOGS/${stage}_$t.log") passed"
}

laws()
{
    local t
    for t in device_laws device_spec engine_laws spec_laws row_laws; do law laws 40 $t; done
}

# Answers to the same prompts by the CPU and by the device, plain and speculating: the tokens must be equal.
real()
{
    local a
    [ -f "$MODEL" ] || { say "real: skip: there is no $MODEL (make model brings it)"; return; }
    a=$(mktemp -d "$SCRATCH/gpu10-XXXXXX") || return
    answers "$a"
    rm -rf "$a"
}

answers() # FOLDER: where they are kept for a while
{
    local a=$1
    step turns 60 "$AERIE" train-data turns -m "$MODEL" --device cpu -o "$a/turns.jsonl" \
        --n-turns $N_PROMPTS -np 32 -n $N_TURN --temp 1 -s 7 || return
    step real_cpu 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device cpu \
        -o "$a/cpu.jsonl" -np 16 -n $N_TOKENS --temp 0 -s 7 || return
    step real_plain 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device "$DEVICE" \
        -o "$a/plain.jsonl" -np 16 -n $N_TOKENS --temp 0 -s 7 &&
        say "real, plain: $(differing "$a/cpu.jsonl" "$a/plain.jsonl") of $N_PROMPTS answers differ from the CPU's"
    step real_warm_cpu 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device cpu \
        -o "$a/warm_cpu.jsonl" -np 16 -n $N_TOKENS --temp 1 -s 7
    step real_warm 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device "$DEVICE" \
        -o "$a/warm.jsonl" -np 16 -n $N_TOKENS --temp 1 -s 7 &&
        say "real, temperature 1: $(differing "$a/warm_cpu.jsonl" "$a/warm.jsonl") differ"
    speculates "$a"
}

# speculates FOLDER: the first prompts one by one, with n-grams and the head, against the CPU's plain answer
speculates()
{
    local n=0 bad=0 cut=0 text most=40 seconds=20 from head=()
    [ "$SIZE" = tiny ] && most=1
    [ -f "$HEAD" ] && head=(-md "$HEAD")
    from=$(date +%s)
    : > "$LOGS/speculates.log"
    python3 -c 'import json, sys
for l in open(sys.argv[1]): print(json.dumps(json.loads(l)["text"]))' "$1/turns.jsonl" > "$1/texts" 2>/dev/null || return
    while read -r text && [ $((n + cut)) -lt $most ] && [ $(($(date +%s) - from)) -lt $((120 * TIMES)) ]; do
        text=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1]))' "$text")
        limited $seconds "$AERIE" run -m "$MODEL" --device cpu --spec-type none -p "$text" \
            -n $N_TOKENS --temp 0 -q --ids > "$1/a" 2>/dev/null || { cut=$((cut + 1)); continue; }
        limited $seconds "$AERIE" run -m "$MODEL" "${head[@]}" --device "$DEVICE" -p "$text" \
            -n $N_TOKENS --temp 0 -q --ids > "$1/b" 2>> "$LOGS/speculates.log"
        [ $? = 124 ] && { cut=$((cut + 1)); continue; }
        n=$((n + 1))
        cmp -s "$1/a" "$1/b" && continue
        bad=$((bad + 1))
        { echo "differs: $text"; cat "$1/a"; echo; cat "$1/b"; echo; } >> "$LOGS/speculates.log"
    done < "$1/texts"
    keep speculates
    say "real, speculating (n-grams${head:+ and the head}): $bad of $n answers differ," \
        "$cut stopped after $((seconds * TIMES)) s"
}

# differing A B: how many answers do not have the same tokens; the log of all steps gets those
differing()
{
    python3 -c 'import json, sys
read = lambda p: {j["id"]: j["tokens"] for j in map(json.loads, open(p))}
a, b = read(sys.argv[1]), read(sys.argv[2])
bad = [i for i in a if a[i] != b.get(i)]
for i in bad: print(f"differs: {i}: {a[i]}, {b.get(i)}", file=sys.stderr)
print(len(bad) if a else "no answers; all")' "$1" "$2" 2>> "$LOG" || echo "unknown"
}

random_model() # TYPE: $made becomes the name of a random model of the shape, which later runs find, too
{
    made="$SCRATCH/gpu10-$SHAPE-$1.gguf"
    [ -f "$made" ] && return
    step "make_$1" 120 "$BUILD/tests/mkmodel" --shape $SHAPE --type "$1" "$made.part" && mv "$made.part" "$made"
}

speed()
{
    local type f
    for type in $TYPES; do
        random_model "$type" && f=$made || return
        step "speed_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "$SHAPE $type: $(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$LOGS/speed_$type.log")"
        # Waits by asking the queue (a hung device is given up), which is the default, against CUDA's own wait
        AERIE_GPU_LIMIT=0 step "wait_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p 0 -n $N -r 3 &&
            say "$SHAPE $type, CUDA waits: $(awk '/^decode /{printf "%s tokens/s", $NF}' "$LOGS/wait_$type.log")"
        step "verify_$type" 90 "$AERIE" bench verify -m "$f" --device "$DEVICE" -n $ROWS -p $PROMPT --contexts $CONTEXTS -r 3 &&
            say "$SHAPE $type: T(n) ms (over T(1))" \
                "$(awk '/^context/{printf "; behind %s: ", $2}
                    /^ +[0-9]+ /{printf "%s: %s (%s) ", $1, $2, $3}' "$LOGS/verify_$type.log")"
    done
}

peer()
{
    local type f
    [ -x "$PEER" ] || { say "peer: skip: PEER names no llama-bench"; return; }
    for type in $TYPES; do
        random_model "$type" && f=$made || return
        step "peer_$type" 90 "$PEER" -m "$f" -p $PROMPT -n $N -r 3 -ngl 99
        say "llama.cpp $SHAPE $type: $(grep -E 'pp|tg' "$LOGS/peer_$type.log" |
            awk -F'|' '{printf "%s %s; ", $(NF-2), $(NF-1)}')"
        step "again_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "ours again: $(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$LOGS/again_$type.log")"
    done
}

# The same chip by Vulkan: bits of some operations, then decode and T(n) of the first type.
vulkan()
{
    local device f type=${TYPES%% *}
    case $DEVICE in vulkan*) return ;; esac
    [ -f "$LOGS/devices.log" ] || step devices 30 "$AERIE" --list-devices
    device=$(awk '/^vulkan/ && !/cannot be used/ {print $1; exit}' "$LOGS/devices.log")
    [ -n "$device" ] || { say "vulkan: skip: there is no device for Vulkan"; return; }
    random_model "$type" && f=$made || return
    step vulkan_ops 60 env AERIE_TEST_DEVICE="$device" AERIE_TEST_EVERY=${EACH_OP:-8} "$BUILD/tests/kernels_test_device_ops"
    say "vulkan, operations: $(grep -c ' 0 differ' "$LOGS/vulkan_ops.log") of" \
        "$(grep -c ' differ, ' "$LOGS/vulkan_ops.log") groups without a differing bit"
    step vulkan_speed 60 "$AERIE" bench speed -m "$f" --device "$device" -p 0 -n $N -r 3 &&
        say "vulkan, $SHAPE $type: $(awk '/^decode /{printf "%s tokens/s", $NF}' "$LOGS/vulkan_speed.log")"
    step vulkan_verify 60 "$AERIE" bench verify -m "$f" --device "$device" -n "$VULKAN_ROWS" -p $PROMPT --contexts 0 -r 3 &&
        say "vulkan, $SHAPE $type: T(n) ms (over T(1))" \
            "$(awk '/^ +[0-9]+ /{printf "%s: %s (%s) ", $1, $2, $3}' "$LOGS/vulkan_verify.log")"
}

# Every architecture: tiny models against the processor, bit for bit; then the speed of recurrent kinds in published shapes.
kinds()
{
    local shape f
    AERIE_TEST_DEVICE=$DEVICE AERIE_TEST_EVERY=$EACH step kinds_bits 90 \
        "$BUILD/tests/laws_test_device_laws" test_architectures
    say "kinds: $(grep -h ' architectures, ' "$LOGS/kinds_bits.log" || echo 'not all')," \
        "$(grep -c 'logit .* is ' "$LOGS/kinds_bits.log") of them differ"
    for shape in $KINDS; do
        f="$SCRATCH/gpu10-$shape.gguf"
        [ -f "$f" ] || step "make_$shape" 60 "$BUILD/tests/mkarch" --shape "$shape" --layers 16 "$f" || continue
        step "kinds_$shape" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "$shape, 16 layers, q4_0:" \
                "$(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$LOGS/kinds_$shape.log")"
        rm -f "$f"
    done
}

# Heads, MTP blocks, block drafters (DFlash, DFlash2, DSpark) and draft models: the laws on the device, then what drafts gain.
drafters()
{
    local t head=()
    for t in block_laws head_laws mtp_laws draft_laws recur_spec; do law drafters 60 $t; done
    [ -f "$MODEL" ] || return
    [ -f "$HEAD" ] && head=(-md "$HEAD")
    step drafters_spec 90 "$AERIE" bench spec -m "$MODEL" "${head[@]}" --device "$DEVICE" -p "Why is the sky blue?" \
        -n $N_TOKENS -np 1,4 --temps 0,1 -r 3 && while read -r l; do say "spec: $l"; done < "$LOGS/drafters_spec.log"
}

# Long contexts: T(n) far behind, and a long prompt's answer against the CPU's.
long()
{
    local text="$LOGS/long_text" f
    random_model "${TYPES%% *}" && f=$made || return
    step long_verify 90 "$AERIE" bench verify -m "$f" --device "$DEVICE" -n 1,4,16 -p $PROMPT \
        --contexts $FAR -c $FAR_CTX -r 2 &&
        say "$SHAPE ${TYPES%% *}: T(n) ms" \
            "$(awk '/^context/{printf "; behind %s: ", $2} /^ +[0-9]+ /{printf "%s: %s (%s) ", $1, $2, $3}' \
                "$LOGS/long_verify.log")"
    [ "$SIZE" = tiny ] || f=$MODEL
    [ -f "$f" ] || { say "long: skip: there is no $f"; return; }
    cat docs/*.md 2>/dev/null | head -c $FAR_CHARS > "$text"
    [ -s "$text" ] || { say "long: skip: there are no docs/*.md to read"; return; }
    step long_cpu 90 "$AERIE" run -m "$f" --device cpu --spec-type none -f "$text" -n 16 --temp 0 -q --ids || return
    step long_device 60 "$AERIE" run -m "$f" --device "$DEVICE" -f "$text" -n 16 --temp 0 -q --ids || return
    if cmp -s "$LOGS/long_cpu.log" "$LOGS/long_device.log"; then
        say "long: a prompt of $FAR_CHARS characters: the same answer as the CPU's"
    else
        say "long: a prompt of $FAR_CHARS characters: the answer DIFFERS ($LOGS/long_cpu.log, long_device.log)"
    fi
}

mma()
{
    local program=$BUILD/mma_bench
    [ -x "$program" ] || { say "mma: skip: there is no $program (bench/gpu/mma_bench.cu says how to make it)"; return; }
    step mma 90 "$program" ${MMA_ARGUMENTS:---quick} && grep -h '#best' "$LOGS/mma.log" | grep -E ' n (1|16|64):' |
        while read -r l; do say "$l"; done
}

profile()
{
    local ncu=${NCU:-$(command -v ncu)} f
    [ -n "$ncu" ] || { say "profile: skip: there is no ncu"; return; }
    random_model q4_0 && f=$made || return
    AERIE_GPU_GRAPHS=0 step profile 60 "$ncu" --clock-control none --metrics gpu__time_duration.sum --csv -s 900 -c 700 \
        "$AERIE" bench speed \
        -m "$f" --device "$DEVICE" -p 0 -n 6 -r 1 || return
    python3 - "$LOGS/profile.log" <<'END' | while read -r l; do say "$l"; done
import csv, sys
rows = [r for r in csv.reader(l for l in open(sys.argv[1]) if l.startswith('"'))]
head, sums = rows[0], {}
name, value, unit = head.index("Kernel Name"), head.index("Metric Value"), head.index("Metric Unit")
for r in rows[1:]:
    t = float(r[value].replace(",", "")) * {"ns": 1e-3, "us": 1, "usecond": 1, "nsecond": 1e-3, "ms": 1e3}.get(r[unit], 1)
    n, s = sums.get(r[name], (0, 0.0))
    sums[r[name]] = n + 1, s + t
for k, (n, s) in sorted(sums.items(), key=lambda i: -i[1][1]):
    print(f"kernel {k[:60]}: {n} launches, {s:.0f} us, {s / n:.2f} us each")
END
}

sanitizer()
{
    local tool=${SANITIZER:-$(command -v compute-sanitizer)} kind
    [ -n "$tool" ] || { say "sanitizer: skip: there is no compute-sanitizer"; return; }
    for kind in memcheck racecheck; do
        AERIE_TEST_DEVICE=$DEVICE AERIE_TEST_EVERY=64 step "sanitizer_$kind" 60 \
            "$tool" --tool $kind "$BUILD/tests/kernels_test_device_ops" ${SANITIZER_ONLY:-}
        say "$kind: $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$LOGS/sanitizer_$kind.log" | tail -1)"
    done
}

if [ -n "$TINY_MODEL" ]; then
    random_model q4_0 && MODEL=$made HEAD=$SCRATCH/gpu10-tiny-head.gguf
    step make_head 30 "$BUILD/tests/mkhead" --kind eagle3.1 "$MODEL" "$HEAD"
fi
for s in $STEPS; do "$s"; done
say "done"
echo
cat "$TABLE"
