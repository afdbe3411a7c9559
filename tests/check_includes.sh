#!/bin/sh
# A folder of src/ includes only folders above it in this list (ARCHITECTURE.md: data flows one way); src/api* stand after all
# of them.
# app/ includes aerie.h and its own folders (common/ none of the others), but for the internals listed below.
# Also: nothing in src/ ends the process or prints, every header opens with its guard, and lines of code and scripts have at
# most 128 columns.
set -eu
cd "$(dirname "$0")/.."
order="base formats quant text model sample backend engine spec convert"
bad=0
allowed=""
for folder in $order; do
    allowed="$allowed $folder"
    for file in $(find "src/$folder" -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu'); do
        for target in $(sed -n 's|^[[:space:]]*#[[:space:]]*include "\([a-z_]*\)/.*|\1|p' "$file"); do
            case " $allowed " in
            *" $target "*) ;;
            *) echo "$file includes $target/, which stands below $folder/"; bad=1 ;;
            esac
        done
    done
done
# Each says in a comment, at the include or at the top, what aerie.h does not give it.
internals="
app/bench/bandwidth.c:base/os.h app/bench/bandwidth.c:base/pool.h
app/bench/bench_shapes.c:backend/backend.h app/bench/bench_shapes.c:base/os.h app/bench/bench_shapes.c:base/pool.h
app/bench/bench_shapes.c:quant/types.h
app/common/common.c:base/text.h app/common/common.c:base/number.h
app/common/cpus.c:base/os.h
app/common/options.h:api_test.h
app/common/version.c:backend/cpu/kernels.h app/common/version.c:formats/gguf.h
app/doctor/doctor.c:backend/cpu/kernels.h app/doctor/doctor.h:base/os.h app/doctor/machine.c:backend/cpu/kernels.h
app/convert/convert.c:convert/convert.h app/convert/convert.c:formats/type.h
app/perplexity/output.c:quant/imatrix.h
app/pull/fetch.c:base/os.h app/pull/fetch.c:formats/gguf.h
app/serve/memory.c:base/os.h
app/serve/models.c:formats/kind.h
app/serve/facts.c:formats/gguf.h app/serve/facts.c:quant/mix.h
app/tools/inspect.c:formats/gguf.h
app/tools/quantize.c:quant/rewrite.h
"
internals=" $(echo $internals) "
for file in src/api*.c src/api*.h; do
    for target in $(sed -n 's|^[[:space:]]*#[[:space:]]*include "\([^"]*\)".*|\1|p' "$file"); do
        case " $order " in *" ${target%%/*} "*) continue ;; esac
        case "$target" in aerie.h | api*.h) ;; *) echo "$file includes $target, which is no part of the library"; bad=1 ;; esac
    done
done
for file in $(find app -name '*.c' -o -name '*.h' -o -name '*.inc'); do
    folder=${file#app/} folder=${folder%%/*}
    for target in $(sed -n 's|^[[:space:]]*#[[:space:]]*include "\([^"]*\)".*|\1|p' "$file"); do
        [ "$target" != aerie.h ] || continue
        if [ -f "app/$target" ]; then
            case "$folder/${target%%/*}" in
            common/common) ;;
            common/*) echo "$file includes $target: common/ stands before it"; bad=1 ;;
            esac
            continue
        fi
        case "$internals" in
        *" $file:$target "*) internals=$(echo "$internals" | sed "s| $file:$target | |") ;;
        *) echo "$file includes $target; app/ uses aerie.h only"; bad=1 ;;
        esac
    done
done
if [ -n "$(echo $internals)" ]; then
    echo "listed as internals, but not included:$internals"
    bad=1
fi
calls='(^|[^a-zA-Z0-9_])(exit|abort|printf|puts|fputs|perror)[[:space:]]*\('
if grep -n -E "$calls" $(find src -name '*.c' -o -name '*.inc'); then
    echo "the library neither prints nor ends the process"
    bad=1
fi
for header in $(find src include -name '*.h'); do
    grep -q -E '^#ifndef A(E|ERIE)_' "$header" || { echo "$header has no include guard"; bad=1; }
done
# tests/unit/make_jinja_cases.py holds chat templates as their authors wrote them.
if LC_ALL=C.UTF-8 grep -n -E '^.{129}' Makefile CMakeLists.txt $(find src include app tests examples tools training scripts \
    bench bindings deploy cmake '(' -name '*.[ch]' -o -name '*.inc' -o -name '*.py' -o -name '*.sh' -o -name CMakeLists.txt -o \
    -name '*.cmake' ')' ! -name make_jinja_cases.py); then
    echo "lines have at most 128 columns (.clang-format)"
    bad=1
fi
exit $bad
