#!/bin/sh
# Cross-builds the kernel checker for 64-bit ARM and runs it under qemu-user: every arm64 level must give the bits of
# the reference, and the reference the same bits as on this machine. On Debian, as root, it installs what it needs:
# the cross compiler, qemu-user and the arm64 libraries. About five minutes on 2 cores, so `make check` leaves it out.
#   scripts/check-arm64.sh [build folder for arm64 [build folder for this machine]]
set -eu
cd "$(dirname "$0")/.."
arm=${1:-build-arm64}
here=${2:-build}
jobs=$(nproc)
target=kernels_test_kernels

sh scripts/install-deps.sh
foreign=$(dpkg --print-foreign-architectures 2>/dev/null || true)
packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libcmocka-dev:arm64 libpcre2-dev:arm64
    libutf8proc-dev:arm64 libjansson-dev:arm64"
missing=""
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "please install as root, after dpkg --add-architecture arm64 and apt-get update:$missing" >&2
        exit 1
    fi
    echo "installing:$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    case " $foreign " in *arm64*) ;; *) dpkg --add-architecture arm64 ;; esac
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

cmake -S . -B "$here" -DAERIE_WERROR=ON -DAERIE_CUDA=OFF >/dev/null
cmake --build "$here" -j "$jobs" --target "$target" >/dev/null
cmake -S . -B "$arm" -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DAERIE_WERROR=ON -DAERIE_CUDA=OFF >/dev/null
cmake --build "$arm" -j "$jobs" --target "$target" >/dev/null

echo "every arm64 level against the reference (qemu-user)"
qemu-aarch64 -cpu max "$arm/tests/$target"

echo "the reference here and on arm64"
mine=$("$here/tests/$target" --hash 2>/dev/null | grep '^reference ')
theirs=$(qemu-aarch64 -cpu max "$arm/tests/$target" --hash 2>/dev/null | grep '^reference ')
echo "here:  $mine"
echo "arm64: $theirs"
[ -n "$mine" ] && [ "$mine" = "$theirs" ] || { echo "the reference differs between machines" >&2; exit 1; }
echo "equal"
