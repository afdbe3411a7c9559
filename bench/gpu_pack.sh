#!/bin/bash
# gpu_pack.sh - what bench/gpu10.sh needs, in pieces for a machine that takes files of limited size, has no network and lends
# its GPU for minutes.
#
#     bench/gpu_pack.sh pack FOLDER          FOLDER gets pieces of at most PIECE_MB (60), their hashes, this script
#     FOLDER/gpu_pack.sh unpack FOLDER TO    checks and joins them to a tree in TO; then: cd TO && bench/gpu10.sh OUT
#     bench/gpu_pack.sh peer SOURCE TO       builds llama-bench of llama.cpp's sources for PEER_ARCH (90) in TO, by nvcc, cmake
#                                            and the headers of cuBLAS, which takes hours; PEER=TO/bin/llama-bench packs it
#
# Pieces may arrive by several copies, in any order. BUILD: a build with CUDA (default: build). Programs are stripped of their
# symbols; libraries that they need travel in build/lib, but for the C and C++ libraries and CUDA's, which are those of the
# machine. The real model and its head travel if they are in models/, unless MODELS=0.
set -eu

# libraries FOLDER PROGRAM...: copies those that the programs load and that machines may lack
libraries()
{
    local to=$1 path
    shift
    mkdir -p "$to"
    ldd "$@" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r path; do
        case ${path##*/} in
        libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
        libstdc++.so.* | libgcc_s.so.* | libgomp.so.* | libcu*.so* | libnv*.so* | libaerie*) ;;
        *) [ -e "$to/${path##*/}" ] || cp -L "$path" "$to/" ;;
        esac
    done
}

pack()
{
    local to build name programs=() missing=()
    to=$(mkdir -p "$1" && cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    build=$(cd "${BUILD:-build}" && pwd)
    [ -x "$build/aerie" ] || { echo "gpu_pack.sh: there is no $build/aerie" >&2; exit 2; }
    room=$(mktemp -d) && trap 'rm -rf "$room"' EXIT
    mkdir -p "$room/build/tests" "$room/bench" "$room/models" "$room/docs"
    # the programs that gpu10.sh names, and those of its loops over laws
    laws=$(sed -n 's/^ *for t in \([a-z_0-9 ]*\); do.*/\1/p' bench/gpu10.sh | tr ' ' '\n' | sed 's/^/tests\/laws_test_/')
    for name in aerie $(grep -o 'BUILD/tests/[a-z_0-9]*[a-z0-9]"' bench/gpu10.sh | cut -d/ -f2- | tr -d '"' | sort -u) \
        $laws mma_bench; do
        if [ -f "$build/$name" ]; then
            strip -o "$room/build/$name" "$build/$name"
            programs+=("$build/$name")
        else
            missing+=("$name")
        fi
    done
    [ ${#missing[@]} = 0 ] || echo "not in the build: ${missing[*]}" >&2
    find "$build" -maxdepth 1 -name 'libaerie*.so*' -exec cp -P {} "$room/build/" \;
    libraries "$room/build/lib" "${programs[@]}"
    cp -r bench/gpu10.sh bench/gpu "$room/bench/"
    [ -d bench/prompts ] && cp -r bench/prompts "$room/bench/"
    cat docs/*.md | head -c 100000 > "$room/docs/text.md" # the text of gpu10.sh's long prompt
    if [ "${MODELS:-1}" != 0 ]; then
        for name in models/smollm2-135m-instruct-q4_1.gguf models/smollm2-135m-instruct-eagle3.gguf; do
            if [ -f "$name" ]; then cp -L "$name" "$room/models/"; fi
        done
    fi
    if [ -n "${PEER:-}" ]; then
        mkdir "$room/peer"
        strip -o "$room/peer/llama-bench" "$PEER"
        libraries "$room/build/lib" "$PEER"
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

# Without FlashAttention, whose kernels take most of the time of the build.
peer()
{
    cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON -DGGML_CUDA_FA=OFF -DGGML_NATIVE=OFF \
        -DCMAKE_CUDA_ARCHITECTURES="${PEER_ARCH:-90}" -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF
    cmake --build "$2" -j "${JOBS:-$(nproc)}" --target llama-bench
    echo "$2/bin/llama-bench"
}

case "${1:-}" in
pack) pack "${2:?a folder for the pieces}" ;;
unpack) unpack "${2:?the folder of the pieces}" "${3:?a folder for the tree}" ;;
peer) peer "${2:?the folder of sources}" "${3:?a folder for the build}" ;;
*) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
