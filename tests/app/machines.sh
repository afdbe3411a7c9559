#!/bin/sh
# Several processes that run one model give the ids of one, by MPI on this machine: split and pipeline, even and uneven, greedy
# and drawn; and what cannot be is refused with a sentence.
#     machines.sh AERIE MKMODEL MODULE
set -u
aerie=$1 mkmodel=$2
export AERIE_MPI_MODULE=$3 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v mpirun > /dev/null || { echo "skip: no mpirun"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$mkmodel" "$dir/a.gguf" > /dev/null 2>&1 || { echo "mkmodel failed"; exit 1; }
start() {
    n=$1
    shift
    timeout 900 mpirun --oversubscribe -n "$n" "$aerie" run "$dir/a.gguf" -q -t 1 --ids -n 24 "$@" 2> "$dir/err"
}
if ! mpirun --oversubscribe -n 1 true > /dev/null 2> "$dir/err"; then
    echo "skip: mpirun does not start: $(head -c 200 "$dir/err")"
    exit 77
fi
bad=0
timeout 900 mpirun --oversubscribe -n 4 "$aerie" run "$dir/a.gguf" -t 1 --ids -n 24 -p "some text" --machines auto --verbose \
    > "$dir/many" 2> "$dir/err"
[ "$(grep -c ' stages.* ms a row' "$dir/err")" = 3 ] && [ "$(grep -c ': chosen' "$dir/err")" = 1 ] ||
    { echo "auto does not choose one of three forms"; head -9 "$dir/err"; bad=1; }
# Each division with one way of drawing, in turn; one of them with all.
i=0
for how in "--temp 0" "--temp 0.9 --seed 3" "--temp 1.1 --seed 5 --top-k 0 --top-p 1 --min-p 0"; do
    # shellcheck disable=SC2086
    "$aerie" run "$dir/a.gguf" -q -t 1 --ids -n 24 -p "some text" $how > "$dir/one" 2> /dev/null
    [ -s "$dir/one" ] || { echo "one process gave nothing"; exit 1; }
    turn=$i
    for what in "1 split" "2 pipeline" "4 auto" "2 split" "4 2x2" "3 pipeline --split 0,1,1" "3 2x2 --split 0,2,1" \
        "3 split --split 3,2,1"; do
        turn=$((turn + 1))
        [ $((turn % 3)) = 0 ] || [ "$what" = "3 split --split 3,2,1" ] || continue
        # shellcheck disable=SC2086
        set -- $what
        n=$1; shift
        # shellcheck disable=SC2086
        start "$n" -p "some text" $how --machines "$@" > "$dir/many"
        cmp -s "$dir/one" "$dir/many" || { echo "$how, $what: other ids"; head -3 "$dir/err"; bad=1; }
    done
    i=$((i + 1))
done
# several texts at once, whose rows go through the stages in waves
for i in 1 2 3 4 5 6; do seq -s " " "$i" "$((8 * i + 20))"; done > "$dir/texts"
timeout 900 "$aerie" run "$dir/a.gguf" -q -t 1 --ids -n 24 -np 6 --prompts-file "$dir/texts" --temp 0 > "$dir/one" 2> "$dir/err"
[ "$(grep -c . "$dir/one")" -ge 6 ] || { echo "six texts give nothing"; head -3 "$dir/err"; bad=1; }
for what in "3 pipeline" "4 2x2"; do
    # shellcheck disable=SC2086
    set -- $what
    start "$1" -np 6 --prompts-file "$dir/texts" --temp 0 --machines "$2" > "$dir/many"
    cmp -s "$dir/one" "$dir/many" || { echo "six texts, $what: other ids"; head -3 "$dir/err"; bad=1; }
done
# what drafts lies on the first process alone: a head, and the model's own block
tools=$(dirname "$mkmodel")
"$tools/mkhead" --kind eagle3.1 "$dir/a.gguf" "$dir/head.gguf" > /dev/null 2>&1 || { echo "mkhead failed"; bad=1; }
"$tools/mkarch" qwen35-mtp "$dir/mtp.gguf" > /dev/null 2>&1 || { echo "mkarch failed"; bad=1; }
"$aerie" run "$dir/mtp.gguf" -q -t 1 --ids -n 24 -p "1 2 3" --temp 0 > "$dir/mtp" 2> /dev/null
"$aerie" run "$dir/a.gguf" -q -t 1 --ids -n 24 -p "some text" --temp 0 > "$dir/one" 2> /dev/null
for what in "2 split" "2 pipeline"; do
    # shellcheck disable=SC2086
    set -- $what
    start "$1" -p "some text" --temp 0 -md "$dir/head.gguf" --spec-type eagle3 --stats --machines "$2" > "$dir/many"
    cmp -s "$dir/one" "$dir/many" || { echo "a head, $what: other ids"; head -3 "$dir/err"; bad=1; }
    grep -q "speculation: draft-eagle3" "$dir/err" || { echo "a head, $what: it does not draft"; head -3 "$dir/err"; bad=1; }
    timeout 900 mpirun --oversubscribe -n "$1" "$aerie" run "$dir/mtp.gguf" -q -t 1 --ids -n 24 -p "1 2 3" --temp 0 \
        --spec-type mtp --machines "$2" > "$dir/many" 2> "$dir/err"
    cmp -s "$dir/mtp" "$dir/many" || { echo "MTP, $what: other ids"; head -3 "$dir/err"; bad=1; }
done
# a model that drafts for itself by filling masks, with an adapter for drafts: all processes run its drafts
"$tools/mkarch" dream-nld "$dir/nld.gguf" > /dev/null 2>&1 || { echo "mkarch failed"; bad=1; }
"$tools/mklora" --match attn_output "$dir/nld.gguf" "$dir/lora.gguf" > /dev/null 2>&1 || { echo "mklora failed"; bad=1; }
masks="run $dir/nld.gguf -q -t 1 --ids -n 40 -p 1_2_3 --temp 0.8 --seed 3"
# shellcheck disable=SC2086
"$aerie" $masks --spec-type none > "$dir/one" 2> /dev/null && [ -s "$dir/one" ] || { echo "dream-nld gives nothing"; bad=1; }
for what in "2 split" "3 pipeline"; do
    # shellcheck disable=SC2086
    set -- $what
    # shellcheck disable=SC2086
    timeout 900 mpirun --oversubscribe -n "$1" "$aerie" $masks --spec-draft-lora "$dir/lora.gguf" --spec-type nld --stats \
        --machines "$2" > "$dir/many" 2> "$dir/err"
    cmp -s "$dir/one" "$dir/many" || { echo "masks, $what: other ids"; head -3 "$dir/err"; bad=1; }
    grep -q "speculation: nld" "$dir/err" || { echo "masks, $what: it has no such drafts"; head -3 "$dir/err"; bad=1; }
done
# a process on a GPU, here its emulation: beside one on the CPU and beside another GPU they send numbers; two CPUs send codes
"$aerie" run --list-devices 2> /dev/null | grep -q '^emu ' && devices="cpu:cpu emu:cpu cpu:emu emu:emu" || devices=
"$tools/mkmodel" --shape tiny-gqa --embd 256 --ff 512 --heads 8 --kv-heads 4 --head-dim 64 "$dir/wide.gguf" > /dev/null 2>&1 ||
    { echo "mkmodel failed"; bad=1; }
wide="run $dir/wide.gguf -t 1 --ids -n 8 -p x --temp 0 --machines-limit 200"
[ "$devices" ] && { "$aerie" run "$dir/wide.gguf" -q -t 1 --ids -n 8 -p x --temp 0 > "$dir/one" 2> "$dir/err" &&
    [ -s "$dir/one" ] || { echo "the wide model gives nothing"; bad=1; }; }
codes=0
for what in $devices; do
    group="--machines split --split 1,1 --verbose"
    # shellcheck disable=SC2086
    timeout 900 mpirun --oversubscribe -n 1 "$aerie" $wide --device "${what%:*}" $group : \
        -n 1 "$aerie" $wide --device "${what#*:}" $group > "$dir/many" 2> "$dir/err"
    cmp -s "$dir/one" "$dir/many" || { echo "devices $what: other ids"; head -3 "$dir/err"; bad=1; }
    bytes=$(sed -n 's/.*rank 1 of 2.* and \([0-9]*\) bytes.*/\1/p' "$dir/err")
    [ "$what" = cpu:cpu ] && codes=${bytes:-0}
    [ "${bytes:-0}" -gt 0 ] && { [ "$what" = cpu:cpu ] || [ "$bytes" -gt "$codes" ]; } ||
        { echo "devices $what: rank 1 receives '$bytes' bytes a row, two CPUs $codes"; bad=1; }
done
# what a prompt leaves behind is kept: a group's file is that of one process, and either goes on from the other's
"$aerie" run "$dir/a.gguf" -q -t 1 --ids -n 24 -p "some text" --temp 0 --prompt-cache "$dir/alone" > "$dir/one" 2> /dev/null
for what in "2 split" "3 pipeline"; do
    # shellcheck disable=SC2086
    set -- $what
    rm -f "$dir/kept"
    start "$1" -p "some text" --temp 0 --prompt-cache "$dir/kept" --machines "$2" > "$dir/many"
    cmp -s "$dir/one" "$dir/many" || { echo "with a cache, $what: other ids"; head -3 "$dir/err"; bad=1; }
    cmp -s "$dir/alone" "$dir/kept" || { echo "$what: another cache file"; head -3 "$dir/err"; bad=1; }
    start "$1" -p "some text" --temp 0 --prompt-cache "$dir/alone" --prompt-cache-ro --stats --machines "$2" > "$dir/many"
    cmp -s "$dir/one" "$dir/many" || { echo "from a cache, $what: other ids"; head -3 "$dir/err"; bad=1; }
    grep -q "cached" "$dir/err" || { echo "from a cache, $what: nothing was cached"; head -5 "$dir/err"; bad=1; }
done
head -c 3000 "$dir/alone" > "$dir/short"
start 2 -p "some text" --temp 0 --prompt-cache "$dir/short" --machines split > "$dir/many" &&
    { echo "a cut cache file is taken"; bad=1; }
# a picture: the first process reads it, its rows go to all; rows that see each other, and rows that join several layers
if command -v python3 > /dev/null && python3 -c 'import struct, sys, zlib
rows = b"".join(b"\0" + bytes(range(y, y + 120)) for y in range(30))
chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)) +
                              chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))' "$dir/x.png"; then
    for seen in "gemma3-cap gemma3 3 split" "qwen3vl qwen3vl 2 split" "qwen3vl qwen3vl 2 pipeline"; do
        # shellcheck disable=SC2086
        set -- $seen
        "$tools/mkarch" "$1" "$dir/text.gguf" > /dev/null 2>&1 || { echo "mkarch failed"; bad=1; }
        "$tools/mkarch" "mmproj-$2:64" "$dir/eye.gguf" > /dev/null 2>&1 || { echo "mkarch failed"; bad=1; }
        deep=
        [ "$1" = qwen3vl ] && deep="--override-kv qwen3vl.n_deepstack_layers=int:2"
        look="run $dir/text.gguf -q -t 1 --ids -n 24 -p what? --temp 0 --mmproj $dir/eye.gguf --image $dir/x.png $deep"
        # shellcheck disable=SC2086
        "$aerie" $look > "$dir/one" 2> "$dir/err" && [ -s "$dir/one" ] ||
            { echo "$1 reads no picture"; head -3 "$dir/err"; bad=1; }
        # shellcheck disable=SC2086
        timeout 900 mpirun --oversubscribe -n "$3" "$aerie" $look --machines "$4" > "$dir/many" 2> "$dir/err"
        cmp -s "$dir/one" "$dir/many" || { echo "a picture, $seen: other ids"; head -3 "$dir/err"; bad=1; }
    done
fi
# mpirun gives each process a terminal of no known width: what is written there is the text as it is
spaces='root ::= "one  \n\n two  three  "'
"$aerie" run "$dir/a.gguf" -q -t 1 -p x --grammar "$spaces" -n 100 > "$dir/one" 2> /dev/null
timeout 900 mpirun --oversubscribe -n 1 "$aerie" run "$dir/a.gguf" -q -t 1 -p x --grammar "$spaces" -n 100 \
    > "$dir/many" 2> "$dir/err"
# whether the last line ends is the terminal's affair
[ "$(cat "$dir/one")" = "$(cat "$dir/many")" ] ||
    { echo "mpirun changes the text"; od -c "$dir/many" | head -5; bad=1; }
grep -q "one  $" "$dir/one" || { echo "the grammar's spaces are missing"; bad=1; }
refused() {
    wanted=$1
    shift
    "$@" > "$dir/out" 2>&1 && { echo "taken: $*"; bad=1; }
    grep -q -e "$wanted" "$dir/out" || { echo "no '$wanted' from: $*"; head -3 "$dir/out"; bad=1; }
}
two() { # FILE OPTIONS FILE OPTIONS
    # shellcheck disable=SC2086
    timeout 900 mpirun --oversubscribe -n 1 "$aerie" run -p x -m "$1" --machines $2 : \
        -n 1 "$aerie" run -p x -m "$3" --machines $4
}
refused "not started as one of several" "$aerie" run "$dir/a.gguf" -p x --machines split
refused "belongs to --machines" "$aerie" run "$dir/a.gguf" -p x --split 1,2
refused "whole numbers" "$aerie" run "$dir/a.gguf" -p x --machines split --split 1,x
refused "split or pipeline" "$aerie" run "$dir/a.gguf" -p x --machines row
refused "as 2x3 for 5 or 6" timeout 900 mpirun --oversubscribe -n 2 "$aerie" run "$dir/a.gguf" -p x --machines 2x2
refused "as 2x3 for 5 or 6" "$aerie" inspect "$dir/a.gguf" --machines 2x0
refused "3 shares" timeout 900 mpirun --oversubscribe -n 2 "$aerie" run "$dir/a.gguf" -p x --machines split --split 1,1,1
refused "other kinds of --machines" two "$dir/a.gguf" 2x1 "$dir/a.gguf" pipeline
refused "other kinds of --machines" two "$dir/a.gguf" split "$dir/a.gguf" pipeline
# a process that fails after it has joined ends the others, long before the limit
refused "no-such-lora" two "$dir/a.gguf" "split" "$dir/a.gguf" "split --lora $dir/no-such-lora.gguf"
cp "$dir/a.gguf" "$dir/b.gguf"
size=$(wc -c < "$dir/b.gguf")
printf 'x' | dd of="$dir/b.gguf" bs=1 seek=$((size - 100)) conv=notrunc 2> /dev/null
refused "rank 1 on .* model file" two "$dir/a.gguf" "split --machines-verify" "$dir/b.gguf" "split --machines-verify"
timeout 900 mpirun --oversubscribe -n 2 "$aerie" run "$dir/a.gguf" -t 1 -n 2 -p x --machines split --verbose > "$dir/many" \
    2> "$dir/err"
grep -q "by measured speed and free memory: --split [1-8],[1-8]$" "$dir/err" ||
    { echo "no measured shares"; head -5 "$dir/err"; bad=1; }
"$aerie" inspect "$dir/a.gguf" --machines 2x2:3 | grep -q "^rank 1: .*rows of the output" ||
    { echo "inspect shows no split stage"; bad=1; }
"$aerie" inspect "$dir/a.gguf" --machines split:2 | grep -q "^rank 1: " || { echo "inspect shows no ranks"; bad=1; }
exit $bad
