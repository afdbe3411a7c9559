#!/bin/bash
# gpu10.sh - ten minutes on a GPU: are the bits right, and how fast is it? Useful if it is cut at any minute.
#
#     bench/gpu10.sh OUT [DEVICE]
#
# OUT: a folder for logs and the table. DEVICE: as in --device (default: cuda; emu rehearses all of it without a GPU).
# From the environment, all optional:
#   BUILD        a build of this project (default: build): aerie, tests/, and mma_bench if it was made (bench/gpu/mma_bench.cu)
#   MODEL, HEAD  a real model and its drafter head (default: those of models/, if they are there; with SIZE=tiny a random
#                model)
#   PEER         llama-bench of a llama.cpp that was built for this GPU: it is timed in turn with ours
#   STEPS        which steps to run (default: all): facts ops laws real speed peer kinds drafters
#                long mma profile sanitizer
#   SIZE         tiny: small models, for the rehearsal (default for emu); large
#   TIMES        a factor of all limits in seconds (default: 1), for rehearsals on a busy machine
#   SCRATCH      a folder for random models of 5 GB (default: /tmp)
set -u
OUT=$(mkdir -p "${1:?usage: bench/gpu10.sh OUT [DEVICE]}" && cd "$1" && pwd) || exit 2
DEVICE=${2:-cuda}
cd "$(dirname "$0")/.." || exit 2
BUILD=$(cd "${BUILD:-build}" && pwd) || exit 2
SCRATCH=${SCRATCH:-/tmp} TIMES=${TIMES:-1} PEER=${PEER:-}
STEPS=${STEPS:-facts ops laws real speed peer kinds drafters long mma profile sanitizer}
SIZE=${SIZE:-$([ "$DEVICE" = emu ] && echo tiny || echo large)}
TINY_MODEL=$([ "$SIZE" = tiny ] && [ -z "${MODEL:-}" ] && echo 1)
MODEL=${MODEL:-models/smollm2-135m-instruct-q4_1.gguf} HEAD=${HEAD:-models/smollm2-135m-instruct-eagle3.gguf}
AERIE=$BUILD/aerie
TABLE=$OUT/table.txt
FAR=16384,65536 FAR_CTX=66560 FAR_CHARS=24000 KINDS="rwkv7-2.9b falcon-mamba-7b qwen3.5-4b" EACH=1
SHAPE=8b PROMPT=512 N=128 ROWS=1,2,4,8,16,32,64 CONTEXTS=0,4096 N_PROMPTS=200 N_TOKENS=64 TYPES="q4_0 q4_k" EVERY=32
N_TURN=48 EACH_OP=
if [ "$SIZE" = tiny ]; then
    SHAPE=tiny PROMPT=8 N=2 ROWS=1,2 CONTEXTS=0 N_PROMPTS=1 N_TOKENS=3 TYPES=q4_0 EVERY=100000
    N_TURN=6 EACH_OP=96
    FAR=64 FAR_CTX=128 FAR_CHARS=100 KINDS= EACH=48
fi
start=$(date +%s)
: > "$TABLE"

# say TEXT: a line of the table
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*" | tee -a "$TABLE"; }
# step NAME SECONDS COMMAND...: runs it with its output in OUT/NAME.log; says whether it went well
step()
{
    local name=$1 seconds=$2 status
    shift 2
    seconds=$((seconds * TIMES))
    timeout "$seconds" "$@" > "$OUT/$name.log" 2>&1 < /dev/null
    status=$?
    [ $status = 0 ] && return 0
    if [ $status = 124 ]; then
        say "$name: stopped after $seconds s"
    else
        say "$name: FAILED with status $status ($OUT/$name.log)"
    fi
    return $status
}
wants() { case " $STEPS " in *" $1 "*) return 0 ;; esac; return 1; }

facts()
{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,memory.total --format=csv,noheader 2>/dev/null |
        while read -r l; do say "$l"; done
    say "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2), $(nproc) cores"
    step devices 30 "$AERIE" --list-devices && while read -r l; do say "$l"; done < "$OUT/devices.log"
}

ops()
{
    [ -z "$EACH_OP" ] || export AERIE_TEST_EVERY=$EACH_OP
    AERIE_TEST_DEVICE=$DEVICE step ops 120 "$BUILD/tests/kernels_test_device_ops"
    say "operations: $(grep -c ' 0 differ' "$OUT/ops.log") of $(grep -c ' differ, ' "$OUT/ops.log") groups" \
        "without a differing bit" \
        "($(awk '/ cases, /{n += $2} END {print n + 0}' "$OUT/ops.log") cases)"
    AERIE_TEST_DEVICE=$DEVICE step draws 60 "$BUILD/tests/kernels_test_gpu_draws" &&
        say "draws and proposals: $(grep -c '  OK ' "$OUT/draws.log") groups passed," \
            "$(grep 'SKIPPED \] test' "$OUT/draws.log" | sort -u | wc -l) skipped"
    if [ "$SIZE" = large ]; then
        AERIE_TEST_DEVICE=$DEVICE AERIE_TEST_SIZE=large step ops_large 60 "$BUILD/tests/kernels_test_device_ops"
        say "operations, large: $(grep -c ' 0 differ' "$OUT/ops_large.log") of" \
            "$(grep -c ' differ, ' "$OUT/ops_large.log") groups"
    fi
}

laws()
{
    local t program
    for t in device_laws device_spec engine_laws spec_laws row_laws; do
        program=$BUILD/tests/laws_test_$t
        [ -x "$program" ] || continue
        (cd "$SCRATCH" && AERIE_TEST_DEVICE=$DEVICE AERIE_BACKEND=$DEVICE AERIE_TEST_EVERY=$EVERY \
            step "laws_$t" 40 "$program") &&
            say "laws, $t: $(grep -c '  OK ' "$OUT/laws_$t.log") passed"
    done
}

# Answers to the same prompts by the processor and by the device, plain and speculating: the tokens must be equal.
real()
{
    local a="$SCRATCH/gpu10"
    [ -f "$MODEL" ] || { say "real: skip: there is no $MODEL (make model brings it)"; return; }
    mkdir -p "$a" && rm -f "$a"/*
    step turns 60 "$AERIE" train-data turns -m "$MODEL" --device cpu -o "$a/turns.jsonl" \
        --n-turns $N_PROMPTS -np 32 -n $N_TURN --temp 1 -s 7 || return
    step real_cpu 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device cpu \
        -o "$a/cpu.jsonl" -np 16 -n $N_TOKENS --temp 0 -s 7 || return
    step real_plain 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device "$DEVICE" \
        -o "$a/plain.jsonl" -np 16 -n $N_TOKENS --temp 0 -s 7 &&
        say "real, plain: $(differing "$a/cpu.jsonl" "$a/plain.jsonl") of $N_PROMPTS answers differ from the processor's"
    step real_warm_cpu 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device cpu \
        -o "$a/warm_cpu.jsonl" -np 16 -n $N_TOKENS --temp 1 -s 7
    step real_warm 90 "$AERIE" train-data answers "$a/turns.jsonl" -m "$MODEL" --device "$DEVICE" \
        -o "$a/warm.jsonl" -np 16 -n $N_TOKENS --temp 1 -s 7 &&
        say "real, temperature 1: $(differing "$a/warm_cpu.jsonl" "$a/warm.jsonl") differ"
    speculates "$a"
}

# speculates FOLDER: the first prompts one by one, with n-grams and the head, against the processor's plain answer
speculates()
{
    local n=0 bad=0 cut=0 text most=40 seconds=$((20 * TIMES))
    [ "$SIZE" = tiny ] && most=1
    python3 -c 'import json, sys
for l in open(sys.argv[1]): print(json.dumps(json.loads(l)["text"]))' "$1/turns.jsonl" > "$1/texts" 2>/dev/null || return
    while read -r text && [ $((n + cut)) -lt $most ]; do
        text=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1]))' "$text")
        timeout $seconds "$AERIE" run -m "$MODEL" --device cpu --spec-type none -p "$text" \
            -n $N_TOKENS --temp 0 -q --ids < /dev/null > "$1/a" 2>/dev/null || { cut=$((cut + 1)); continue; }
        timeout $seconds "$AERIE" run -m "$MODEL" --device "$DEVICE" -p "$text" \
            -n $N_TOKENS --temp 0 -q --ids < /dev/null > "$1/b" 2>> "$OUT/speculates.log"
        [ $? = 124 ] && { cut=$((cut + 1)); continue; }
        n=$((n + 1))
        cmp -s "$1/a" "$1/b" || bad=$((bad + 1))
    done < "$1/texts"
    say "real, speculating (n-grams and the head): $bad of $n answers differ, $cut stopped after $seconds s"
}

# differing A B: lines of tokens that are not the same
differing()
{
    python3 -c 'import json, sys
read = lambda p: {j["id"]: j["tokens"] for j in map(json.loads, open(p))}
a, b = read(sys.argv[1]), read(sys.argv[2])
print(sum(a[i] != b.get(i) for i in a) if a else "no answers; all")' "$1" "$2" 2>/dev/null || echo "unknown"
}

model_of() # TYPE: a random model of the shape
{
    local f="$SCRATCH/gpu10-$SHAPE-$1.gguf"
    [ -f "$f" ] || "$BUILD/tests/mkmodel" --shape $SHAPE --type "$1" "$f" > /dev/null 2>&1
    echo "$f"
}

speed()
{
    local type f
    for type in $TYPES; do
        f=$(model_of "$type")
        step "speed_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "$SHAPE $type: $(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$OUT/speed_$type.log")"
        # Waits by asking the queue (a hung device is given up), which is the default, against CUDA's own wait
        AERIE_GPU_LIMIT=0 step "wait_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p 0 -n $N -r 3 &&
            say "$SHAPE $type, CUDA waits: $(awk '/^decode /{printf "%s tokens/s", $NF}' "$OUT/wait_$type.log")"
        step "verify_$type" 90 "$AERIE" bench verify -m "$f" --device "$DEVICE" -n $ROWS --contexts $CONTEXTS -r 3 &&
            say "$SHAPE $type: T(n) ms (over T(1))" \
                "$(awk '/^context/{printf "; behind %s: ", $2}
                    /^ +[0-9]+ /{printf "%s: %s (%s) ", $1, $2, $3}' "$OUT/verify_$type.log")"
    done
}

peer()
{
    local type f
    [ -x "$PEER" ] || { say "peer: skip: PEER names no llama-bench"; return; }
    for type in $TYPES; do
        f=$(model_of "$type")
        step "peer_$type" 90 "$PEER" -m "$f" -p $PROMPT -n $N -r 3 -ngl 99
        say "llama.cpp $SHAPE $type: $(grep -E 'pp|tg' "$OUT/peer_$type.log" |
            awk -F'|' '{printf "%s %s; ", $(NF-2), $(NF-1)}')"
        step "again_$type" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "ours again: $(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$OUT/again_$type.log")"
    done
}

# Every architecture: tiny models against the processor, bit for bit; then the speed of recurrent kinds in published shapes.
kinds()
{
    local shape f
    AERIE_TEST_DEVICE=$DEVICE AERIE_TEST_EVERY=$EACH step kinds_bits 90 \
        "$BUILD/tests/laws_test_device_laws" test_architectures
    say "kinds: $(grep -h ' architectures, ' "$OUT/kinds_bits.log" || echo 'not all')," \
        "$(grep -c 'logit .* is ' "$OUT/kinds_bits.log") of them differ"
    for shape in $KINDS; do
        f="$SCRATCH/gpu10-$shape.gguf"
        [ -f "$f" ] || step "make_$shape" 60 "$BUILD/tests/mkarch" --shape "$shape" --layers 16 "$f" || continue
        step "kinds_$shape" 60 "$AERIE" bench speed -m "$f" --device "$DEVICE" -p $PROMPT -n $N -r 3 &&
            say "$shape, 16 layers, q4_0:" \
                "$(awk '/^(prefill|decode) /{printf "%s %s tokens/s; ", $1, $NF}' "$OUT/kinds_$shape.log")"
        rm -f "$f"
    done
}

# Heads, MTP blocks, block drafters (DFlash, DFlash2, DSpark) and draft models: the laws on the device, then what drafts gain.
drafters()
{
    local t program
    for t in block_laws head_laws mtp_laws draft_laws recur_spec; do
        program=$BUILD/tests/laws_test_$t
        [ -x "$program" ] || continue
        (cd "$SCRATCH" && AERIE_TEST_DEVICE=$DEVICE AERIE_BACKEND=$DEVICE AERIE_TEST_EVERY=$EVERY \
            step "drafters_$t" 60 "$program") &&
            say "drafters, $t: $(grep -c '  OK ' "$OUT/drafters_$t.log") passed"
    done
    [ -f "$MODEL" ] || return
    step drafters_spec 90 "$AERIE" bench spec -m "$MODEL" --device "$DEVICE" -p "Why is the sky blue?" \
        -n $N_TOKENS -np 1,4 --temps 0,1 -r 3 && while read -r l; do say "spec: $l"; done < "$OUT/drafters_spec.log"
}

# Long contexts: T(n) far behind, and a long prompt's answer against the processor's.
long()
{
    local a="$SCRATCH/gpu10-long" f
    f=$(model_of "${TYPES%% *}")
    step long_verify 90 "$AERIE" bench verify -m "$f" --device "$DEVICE" -n 1,4,16 -p $PROMPT \
        --contexts $FAR -c $FAR_CTX -r 2 &&
        say "$SHAPE ${TYPES%% *}: T(n) ms" \
            "$(awk '/^context/{printf "; behind %s: ", $2} /^ +[0-9]+ /{printf "%s: %s (%s) ", $1, $2, $3}' \
                "$OUT/long_verify.log")"
    [ "$SIZE" = tiny ] || f=$MODEL
    [ -f "$f" ] || { say "long: skip: there is no $f"; return; }
    mkdir -p "$a"
    cat docs/*.md | head -c $FAR_CHARS > "$a/text"
    step long_cpu 90 "$AERIE" run -m "$f" --device cpu --spec-type none -f "$a/text" -n 16 --temp 0 -q --ids || return
    step long_device 60 "$AERIE" run -m "$f" --device "$DEVICE" -f "$a/text" -n 16 --temp 0 -q --ids || return
    if cmp -s "$OUT/long_cpu.log" "$OUT/long_device.log"; then
        say "long: a prompt of $FAR_CHARS characters: the same answer as the processor's"
    else
        say "long: a prompt of $FAR_CHARS characters: the answer DIFFERS ($OUT/long_cpu.log, long_device.log)"
    fi
}

mma()
{
    local program=$BUILD/mma_bench
    [ -x "$program" ] || { say "mma: skip: there is no $program (bench/gpu/mma_bench.cu says how to make it)"; return; }
    step mma 90 "$program" ${MMA_ARGUMENTS:---quick} && grep -h '#best' "$OUT/mma.log" | grep -E ' n (1|16|64):' |
        while read -r l; do say "$l"; done
}

profile()
{
    local ncu=${NCU:-$(command -v ncu)} f
    [ -n "$ncu" ] || { say "profile: skip: there is no ncu"; return; }
    f=$(model_of q4_0)
    AERIE_GPU_GRAPHS=0 step profile 60 "$ncu" --clock-control none --metrics gpu__time_duration.sum --csv -s 900 -c 700 \
        "$AERIE" bench speed \
        -m "$f" --device "$DEVICE" -p 0 -n 6 -r 1 || return
    python3 - "$OUT/profile.log" <<'END' | while read -r l; do say "$l"; done
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
        say "$kind: $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$OUT/sanitizer_$kind.log" | tail -1)"
    done
}

[ -z "$TINY_MODEL" ] || MODEL=$(model_of q4_0)
for s in $STEPS; do
    case $s in
    facts | ops | laws | real | speed | peer | kinds | drafters | long | mma | profile | sanitizer) wants "$s" && "$s" ;;
    *) echo "gpu10.sh: there is no step '$s'" >&2; exit 2 ;;
    esac
done
say "done"
echo
cat "$TABLE"
