#!/bin/sh
# Embedding the library as examples/simple.c and README say: by the compile line of the example's first comment, and from an
# installed prefix by pkg-config and by CMake, shared and static. Each program must answer the same, with the head beside
# the model and without it.
# usage: check_install.sh BUILD_FOLDER COMPILER CMAKE MKMODEL MKHEAD
set -eu
cd "$(dirname "$0")/../.."
build=$1 cc=$2 cmake=$3 mkmodel=$4 mkhead=$5
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed() { echo "$*"; exit 1; }

"$mkmodel" --shape tiny --seed 3 "$tmp/m-q4_0.gguf"
"$mkhead" --kind eagle3 "$tmp/m-q4_0.gguf" "$tmp/m-eagle3.gguf"
answers() { # program: the same as those before it?
    "$1" "$tmp/m-q4_0.gguf" "a b c a b c" >"$tmp/answer" 2>"$tmp/figures" || failed "$1: $(cat "$tmp/figures")"
    grep -q "no drafter head" "$tmp/figures" && failed "$1: $(cat "$tmp/figures")"
    [ -s "$tmp/answer" ] || failed "$1 answers nothing"
    [ -f "$tmp/first" ] || cp "$tmp/answer" "$tmp/first"
    cmp "$tmp/first" "$tmp/answer" || failed "$1 answers something else"
}

# The compile line, run with this compiler, this build folder and another name for the program.
line=$(sed -n 's|^ \*  *cc \(examples/simple.c -Iinclude .*\) -o simple$|\1|p' examples/simple.c)
[ -n "$line" ] || failed "examples/simple.c does not say how it is compiled"
# shellcheck disable=SC2046,SC2086 # lists of words
"$cc" $(echo "$line" | sed "s|build/|$build/|g") -o "$tmp/by-line"
answers "$tmp/by-line"

# The linker's cache is renewed (without it a program that pkg-config helped to link does not start), but not for a package.
mkdir "$tmp/bin"
printf '#!/bin/sh\necho renewed >>"%s/ldconfig"\n' "$tmp" >"$tmp/bin/ldconfig"
chmod +x "$tmp/bin/ldconfig"
DESTDIR=$tmp/package PATH=$tmp/bin:$PATH "$cmake" --install "$build" --prefix /usr >"$tmp/log" 2>&1 ||
    failed "$(cat "$tmp/log")"
[ ! -f "$tmp/ldconfig" ] || failed "installing into a package's folder runs ldconfig"
rm -rf "$tmp/package"
PATH=$tmp/bin:$PATH "$cmake" --install "$build" --prefix "$tmp/elsewhere" >"$tmp/log" 2>&1 || failed "$(cat "$tmp/log")"
[ -f "$tmp/ldconfig" ] || failed "installing does not run ldconfig"
mv "$tmp/elsewhere" "$tmp/prefix" # an installation may be moved
# what the program says of itself, as it says it, and as the shells read it
said=$tmp/prefix/share
"$tmp/prefix/bin/aerie" --man | cmp - "$said/man/man1/aerie.1" || failed "the manual page is another"
bash -n "$said/bash-completion/completions/aerie" || failed "bash cannot read its completion"
for shell in zsh fish; do
    script=$(find "$said/$shell" -type f)
    grep -q -e 'spec-type' "$script" || failed "$script does not know --spec-type"
    if command -v $shell >/dev/null; then $shell -n "$script" || failed "$shell cannot read its completion"; fi
done
config=$(find "$tmp/prefix" -name aerie.pc)
[ -f "$config" ] || failed "aerie.pc was not installed"
PKG_CONFIG_PATH=$(dirname "$config")
libraries=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # lists of words
"$cc" examples/simple.c $(pkg-config --cflags --libs aerie) -Wl,-rpath,"$libraries" -o "$tmp/by-pkg-config"
answers "$tmp/by-pkg-config"
mkdir "$tmp/hidden" && mv "$libraries"/libaerie.so* "$tmp/hidden/"
# shellcheck disable=SC2046 # lists of words
"$cc" examples/simple.c $(pkg-config --static --cflags --libs aerie) -o "$tmp/by-pkg-config-static"
mv "$tmp"/hidden/* "$libraries/"
answers "$tmp/by-pkg-config-static"

unset PKG_CONFIG_PATH
cp -r examples "$tmp/examples"
for target in aerie::aerie aerie::aerie_static; do
    sed "s|PRIVATE aerie::aerie)|PRIVATE $target)|" examples/CMakeLists.txt >"$tmp/examples/CMakeLists.txt"
    { "$cmake" -S "$tmp/examples" -B "$tmp/by-cmake" -DCMAKE_PREFIX_PATH="$tmp/prefix" -DCMAKE_C_COMPILER="$cc" &&
        "$cmake" --build "$tmp/by-cmake"; } >"$tmp/log" 2>&1 || failed "$target: $(cat "$tmp/log")"
    answers "$tmp/by-cmake/simple"
done
answers "$tmp/by-line"
rm "$tmp/m-eagle3.gguf"
answers "$tmp/by-line"
