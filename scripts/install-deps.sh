#!/bin/sh
# Installs the Debian packages that building, testing and the demo need; asks nothing of apt when all are there.
#   scripts/install-deps.sh [check]    check: also what `make check` alone needs: compilers that read the sources once more, MPI
set -eu
packages="build-essential cmake pkg-config libpcre2-dev libutf8proc-dev libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev
    libjpeg62-turbo-dev libpng-dev libwebp-dev
    libedit-dev tmux
    glslang-tools libvulkan-dev mesa-vulkan-drivers vulkan-validationlayers
    libcmocka-dev
    python3 python3-pip python3-venv python3-jinja2 python3-jsonschema python3-numpy unzip ca-certificates"
[ "${1:-}" = check ] && packages="$packages clang gcc-aarch64-linux-gnu libc6-dev-arm64-cross libopenmpi-dev openmpi-bin"
missing=""
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "these packages (Debian's names) seem to be missing:$missing" >&2
    exit 0 # another system may have them under other names; the build will tell
fi
if [ "$(id -u)" != 0 ]; then
    echo "please install as root:  apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
apt-get install -y -qq --no-install-recommends $missing >/dev/null
