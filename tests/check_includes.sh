#!/bin/sh
# A folder of src/ includes only folders above it in this list (DESIGN: data flows one way).
# Also: nothing in src/ ends the process or prints, and every header opens with its guard.
set -eu
cd "$(dirname "$0")/.."
order="base formats quant text model backend engine sample spec"
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
calls='(^|[^a-zA-Z0-9_])(exit|abort|printf|puts|fputs|perror)[[:space:]]*\('
if grep -n -E "$calls" $(find src -name '*.c' -o -name '*.inc'); then
    echo "the library neither prints nor ends the process"
    bad=1
fi
for header in $(find src include -name '*.h'); do
    grep -q -E '^#ifndef A(E|ERIE)_' "$header" || { echo "$header has no include guard"; bad=1; }
done
exit $bad
