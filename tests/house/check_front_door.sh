#!/bin/sh
# A newcomer's commands are those that CI runs: README's two commands, the Makefile and .ci/run agree, and each script is run by
# the shell that it is written for, and links lead somewhere. Nothing is installed or built here.
set -eu
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$*"; bad=1; }

# README's commands are the first two lines of its first indented block, each without its comment.
commands=$(awk '/^    / {sub(/^    /, ""); sub(/ +# .*/, ""); print; seen = 1; next} seen {exit}' README.md)
first=$(printf '%s\n' "$commands" | sed -n 1p)
second=$(printf '%s\n' "$commands" | sed -n 2p)
install='apt-get update -qq && apt-get install -y -qq make'
[ "$first" = "$install && make demo" ] || complain "README's first command is: $first"
[ "$second" = "$install && make check" ] || complain "README's second command is: $second"
grep -q -x -F -e "$second" .ci/run || complain ".ci/run does not run README's second command as it stands there: $second"

# Wherever `sh FILE` or `bash FILE` stands.
for file in Makefile .ci/run scripts/*.sh; do
    for call in $(grep -o -w -E '(sh|bash) [a-z.][a-z0-9./_-]*' "$file" | tr ' ' ':' | sort -u); do
        shell=${call%%:*} script=${call#*:}
        [ -f "$script" ] || continue
        head -n 1 "$script" | grep -q -E "[/ ]$shell\$" ||
            complain "$file: '$shell $script', but that begins with: $(head -n 1 "$script")"
        "$shell" -n "$script" || complain "$file: '$shell $script', but $shell does not understand it"
    done
done

# Without PyPI the model's script says what would help, and leaves nothing.
offline=$(mktemp -d)
mkdir "$offline/scripts" && cp scripts/fetch-model.sh "$offline/scripts/"
if PIP_NO_INDEX=1 PIP_FIND_LINKS='' sh "$offline/scripts/fetch-model.sh" >"$offline/said" 2>&1; then
    complain "fetch-model.sh has a model without a network"
fi
for word in models/smollm2 HTTPS_PROXY PIP_CERT PIP_INDEX_URL SHA-256; do
    grep -q -e "$word" "$offline/said" ||
        complain "fetch-model.sh without a network does not name $word: $(cat "$offline/said")"
done
[ -z "$(ls -A "$offline/models")" ] || complain "fetch-model.sh without a network leaves: $(ls -A "$offline/models")"
rm -rf "$offline"

# What the texts link to is there.
for file in *.md docs/*.md models/*.md training/*.md bench/results/*/*.md; do
    for target in $(grep -o -E '\]\([^):# ]+' "$file" | cut -c 3-); do
        [ -e "$(dirname "$file")/$target" ] || complain "$file links to $target, which is not there"
    done
done

# make must have nothing to do before check.sh, which reports in CI's form whatever fails.
steps=$(make -n --no-print-directory check)
[ "$steps" = "bash scripts/check.sh" ] || complain "make check runs: $steps"

unset JOBS
# make -j N runs N jobs, without CMake's make complaining about it; a bare make runs as many as there are CPUs.
for jobs in 3 $(nproc); do
    flag=-j$jobs
    [ "$jobs" = 3 ] || flag=
    make -n --no-print-directory $flag all | grep -q -e "--build build -j $jobs " ||
        complain "make $flag runs: $(make -n --no-print-directory $flag all)"
done
calm=$(mktemp -d)
printf 'all:\n\t@cmake -E echo "flags:$$MAKEFLAGS"\n' >"$calm/last.mk"
printf 'include Makefile\ncalm:\n\t@$(MAKE) -f %s/last.mk all\n' "$calm" >"$calm/first.mk"
said=$(make -s -j3 -f "$calm/first.mk" calm 2>&1)
case $said in *jobserver* | *-j*) complain "make -j3 hands its flags on: $said" ;; esac
rm -rf "$calm"
exit $bad
