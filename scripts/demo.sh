#!/bin/sh
# The main job on a real model: the same prompt plain and with n-gram speculation. Fails unless both outputs are equal.
set -eu
cd "$(dirname "$0")/.."
aerie=${AERIE:-build/aerie}
model=${AERIE_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prompt='Write a short story about an eagle that learns to guess the wind. Then write the same story again, word for word.'

for kind in none ngram; do
    "$aerie" run -m "$model" -p "$prompt" -n 400 --temp 0 --spec-type $kind --stats --quiet >"$tmp/$kind.txt" 2>"$tmp/$kind.stats" ||
        { cat "$tmp/$kind.stats" >&2; exit 1; }
done
echo "Prompt: $prompt"
echo
cat "$tmp/ngram.txt"
echo
printf 'plain:      '; cat "$tmp/none.stats"
printf 'n-gram:     '; cat "$tmp/ngram.stats"
if cmp -s "$tmp/none.txt" "$tmp/ngram.txt"; then
    echo "same bytes: yes, all $(wc -c <"$tmp/none.txt") of them"
else
    echo "same bytes: NO - this is a defect, please report it" >&2
    exit 1
fi
