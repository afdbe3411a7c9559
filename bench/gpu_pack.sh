#!/bin/bash
# gpu_pack.sh - what bench/gpu10.sh needs, in pieces for a machine that takes files of limited size and lends its GPU
# for minutes.
#
#     bench/gpu_pack.sh pack FOLDER          FOLDER gets pieces of at most PIECE_MB (60), their hashes, this script
#     FOLDER/gpu_pack.sh unpack FOLDER TO    checks and joins them to a tree in TO; then: cd TO && bench/gpu10.sh OUT
#
# Pieces may arrive by several copies, in any order. BUILD: a build with CUDA (default: build). Programs are stripped of their
# symbols; the real model and its head travel if they are in models/, unless MODELS=0.
set -eu

pack()
{
    local to build names="" name
    to=$(mkdir -p "$1" && cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    build=$(cd "${BUILD:-build}" && pwd)
    room=$(mktemp -d) && trap 'rm -rf "$room"' EXIT
    mkdir -p "$room/build/tests" "$room/bench" "$room/models"
    for name in $(grep -o 'BUILD/tests/[a-z_0-9]*' bench/gpu10.sh | sort -u | cut -d/ -f3) \
        laws_test_{device_laws,device_spec,engine_laws,spec_laws,row_laws} \
        laws_test_{block_laws,head_laws,mtp_laws,draft_laws,recur_spec}; do
        [ -f "$build/tests/$name" ] && names="$names tests/$name"
    done
    for name in aerie $names mma_bench; do
        [ -f "$build/$name" ] && strip -o "$room/build/$name" "$build/$name"
    done
    find "$build" -maxdepth 1 -name 'libaerie*.so*' -exec cp -P {} "$room/build/" \;
    cp -r bench/gpu10.sh bench/gpu "$room/bench/"
    [ -d bench/prompts ] && cp -r bench/prompts "$room/bench/"
    if [ "${MODELS:-1}" != 0 ]; then
        for name in models/smollm2-135m-instruct-q4_1.gguf models/smollm2-135m-instruct-eagle3.gguf; do
            [ -f "$name" ] && cp -L "$name" "$room/models/"
        done
    fi
    rm -f "$to"/piece-?? "$to/hashes"
    tar -C "$room" -cz . | split -d -a 2 -b "${PIECE_MB:-60}M" - "$to/piece-"
    (cd "$to" && sha256sum piece-?? > hashes)
    cp "bench/$(basename "$0")" "$to/"
    du -h "$to"/piece-?? | sed 's/\t.*\// /'
}

unpack()
{
    (cd "$1" && sha256sum --quiet -c hashes)
    mkdir -p "$2"
    cat "$1"/piece-?? | tar -C "$2" -xz
    echo "cd $2 && bench/gpu10.sh OUT"
}

case "${1:-}" in
pack) pack "${2:?a folder for the pieces}" ;;
unpack) unpack "${2:?the folder of the pieces}" "${3:?a folder for the tree}" ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
