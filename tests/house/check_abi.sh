#!/bin/sh
# What programs built with aerie.h and aerie_extra.h rely on, against the list in tests/golden/abi.txt: exported symbols,
# declarations of functions, sizes of structs and offsets of their fields, values of enumerators. Symbols of aerie_measure.h are
# left out, since it promises no ABI. A symbol that no public header declares is an error.
#
#     check_abi.sh LIBRARY CC [--update]
#
# A field may be added at the end of a struct that begins with its size, a function anywhere: then --update, and the list's
# change is part of the commit. Anything else breaks programs that exist: it needs another SOVERSION.
set -eu
cd "$(dirname "$0")/../.."
library=$1 cc=$2
golden=tests/golden/abi.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in nm readelf; do
    command -v $tool > /dev/null || { echo "skip: $tool is missing (binutils)"; exit 77; }
done
echo '#include "aerie_extra.h"' > "$work/header.c"
declarations() { # one a line
    echo "#include \"$1\"" | $cc -std=c11 -Iinclude -E -P -x c - | tr '\n' ' ' | sed 's/;/;\n/g; s/}/}\n/g' |
        grep '__attribute__((visibility("default")))' |
        sed 's/__attribute__((visibility("default")))//; s/[[:space:]][[:space:]]*/ /g; s/^ *//; s/ *(/(/g' |
        LC_ALL=C sort | sed 's/^/function /'
}
names() { sed -n 's/^function .*[ *]\(aerie_[a-z0-9_]*\)(.*/\1/p' | LC_ALL=C sort -u; }
declarations aerie_extra.h > "$work/functions"
{ cat "$work/functions"; declarations aerie_measure.h; } | names > "$work/declared"
nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort > "$work/exported"
if LC_ALL=C comm -13 "$work/declared" "$work/exported" | grep .; then
    echo "the library exports symbols that no public header declares"
    exit 1
fi
if LC_ALL=C comm -23 "$work/declared" "$work/exported" | grep .; then
    echo "these functions are declared, but the library does not export them"
    exit 1
fi
$cc -std=c11 -Iinclude -gdwarf-4 -fno-eliminate-unused-debug-types -c "$work/header.c" -o "$work/header.o"
{
    echo "# Made by tests/house/check_abi.sh --update. 64-bit machines."
    cat "$work/functions"
    # types: tags at level 1 with their members or enumerators at level 2
    readelf --debug-dump=info "$work/header.o" | awk '
        function flush() {
            if (tag != "" && name ~ /^(aerie_|AERIE_)/ && keep)
                printf "%s %s%s\n%s", tag, name, size == "" ? "" : " " size, body
            tag = name = size = body = ""; keep = 0
        }
        function leaf() { if (member != "") { body = body "    " member " " value "\n"; member = value = "" } }
        /Abbrev Number/ {
            leaf()
            if ($1 ~ /^<1>/) {
                flush()
                if (/DW_TAG_structure_type/) tag = "struct"; else if (/DW_TAG_enumeration_type/) tag = "enum"
                top = 1
            }
            else top = 0
            inside = /DW_TAG_member/ || /DW_TAG_enumerator/
            next
        }
        /DW_AT_name/ { if (top) name = $NF; else if (inside) member = $NF }
        /DW_AT_byte_size/ { if (top) { size = $NF; keep = 1 } }
        /DW_AT_data_member_location/ || /DW_AT_const_value/ { if (inside) value = $NF }
        END { leaf(); flush() }' > "$work/types"
    # blocks in the order of their names
    awk '/^[a-z]/ { head = $1 " " $2 } { print head "\t" NR "\t" $0 }' "$work/types" |
        LC_ALL=C sort -t "$(printf '\t')" -k1,1 -k2,2n |
        cut -f3-
} > "$work/abi.txt"
if [ "${3:-}" = --update ]; then
    cp "$work/abi.txt" $golden
    exit 0
fi
diff -u $golden "$work/abi.txt" || { echo "the ABI has changed; tests/house/check_abi.sh says what may"; exit 1; }
