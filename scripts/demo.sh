#!/bin/sh
# The main job on a real model: the same prompt plain, with n-grams, with the drafting head that is kept in models/, and with both,
# which is what happens when nothing is said. Fails unless all outputs are equal.
set -eu
cd "$(dirname "$0")/.."
aerie=${AERIE:-build/aerie}
model=${AERIE_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}
head=${AERIE_HEAD:-models/smollm2-135m-instruct-eagle3.gguf}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prompt='Write a short story about an eagle that learns to guess the wind. Then write the same story again, word for word.'

answer() { # name, then options
    name=$1
    shift
    "$aerie" run -m "$model" -p "$prompt" -n 400 --temp 0 --stats --quiet "$@" >"$tmp/$name.txt" 2>"$tmp/$name.stats" ||
        { cat "$tmp/$name.stats" >&2; exit 1; }
}

answer plain --spec-type none
answer n-gram --spec-type ngram
answer EAGLE-3.1 --spec-type draft-eagle3 -md "$head" --spec-ngram off
answer both -md "$head"
echo "Prompt: $prompt"
echo
cat "$tmp/both.txt"
echo
for name in plain n-gram EAGLE-3.1 both; do
    printf '%-11s ' "$name:"
    cat "$tmp/$name.stats"
done
for name in n-gram EAGLE-3.1 both; do
    cmp -s "$tmp/plain.txt" "$tmp/$name.txt" && continue
    echo "same bytes: NO ($name) - this is a defect, please report it" >&2
    exit 1
done
echo "same bytes: yes, all $(wc -c <"$tmp/plain.txt") of them, four times"
