#!/bin/sh
# Counts the instructions of products over several rows on 64-bit ARM, under qemu-user with a plugin: what a block of 16
# outputs and 32 columns takes, and T(n)/T(1) in instructions. They show how the kernels' work grows with the rows where no
# such machine is at hand; they say nothing about memory or about what an instruction costs. Run scripts/check-arm64.sh first:
# it installs the emulator and builds the checker.
#   scripts/count-arm64.sh [levels [types [columns [build folder for arm64]]]]
set -eu
cd "$(dirname "$0")/.."
levels=${1:-neon dotprod i8mm}
types=${2:-q4_0 q8_0 q4_k q6_k}
columns=${3:-2048}
program=${4:-build-arm64}/tests/kernels_test_kernels
command -v qemu-aarch64 >/dev/null || { echo "no qemu-aarch64: please run scripts/check-arm64.sh first" >&2; exit 1; }
[ -x "$program" ] || { echo "no $program: please run scripts/check-arm64.sh first" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -O2 -shared -fPIC -o "$folder/count.so" tests/kernels/count_insns.c

# count LEVEL TYPE ROWS CALLS: instructions of the whole program
count() {
    qemu-aarch64 -cpu max -plugin "$folder/count.so" -d plugin "$program" --calls "$1" "$2" "$3" "$columns" "$4" \
        2>"$folder/count" >"$folder/blocks" || { cat "$folder/count" >&2; exit 1; }
    sed -n 's/^instructions: //p' "$folder/count"
}

echo "instructions for a block of 16 outputs x 32 columns, rows of $columns columns; in brackets over those of one row"
for level in $levels; do
    for type in $types; do
        line=$(printf '%-8s %-6s' "$level" "$type")
        first=
        for rows in 1 4 8 16; do
            one=$(count "$level" "$type" "$rows" 1)
            five=$(count "$level" "$type" "$rows" 5)
            blocks=$(sed -n 's/^blocks.*: //p' "$folder/blocks")
            line="$line $(awk -v n=$((five - one)) -v b=$((4 * blocks)) -v f="${first:-0}" -v r="$rows" \
                'BEGIN { printf r == 1 ? "  %d: %.1f" : "  %d: %.1f (%.2f)", r, n / b, f ? n / f : 1 }')"
            first=${first:-$((five - one))}
        done
        echo "$line"
    done
done
