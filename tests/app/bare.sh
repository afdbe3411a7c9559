#!/bin/sh
# bare.sh - the program built without any optional library answers, and says what it lacks.
#
#     tests/app/bare.sh AERIE MKMODEL
set -eu
aerie=$1 mkmodel=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "bare.sh: $*" >&2; exit 1; }

"$mkmodel" --shape tiny --type q4_0 m.gguf > /dev/null
"$aerie" run -m m.gguf -p hello -n 4 --temp 0 -q --ids --ignore-eos > ids || fail "run ended with status $?"
[ "$(wc -w < ids)" = 4 ] || fail "run gave: $(cat ids)"
status=0
"$aerie" serve -m m.gguf 2> said || status=$?
[ $status = 1 ] && grep -q 'built without libmicrohttpd' said || fail "serve ended with status $status: $(cat said)"
status=0
"$aerie" pull hf:a/b 2> said || status=$?
[ $status = 1 ] && grep -q 'built without libcurl' said || fail "pull ended with status $status: $(cat said)"
"$aerie" --version > said || fail "--version ended with status $?"
echo ok
