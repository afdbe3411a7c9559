#!/bin/sh
# What `make deb`, `make tar`, `make install` and `make uninstall` make of a build: unpacked somewhere, each is used. Nothing is
# compiled but two programs that are linked once more. tests/house/check_deb.sh installs the packages in a system of their own;
# tests/bindings/check_python.py uses the Python package.
# usage: check_packages.sh BUILD_FOLDER COMPILER MKMODEL MKHEAD
set -eu
cd "$(dirname "$0")/../.."
build=$1 cc=$2 mkmodel=$3 mkhead=$4
unset PKG_CONFIG_PATH LD_LIBRARY_PATH DESTDIR
export XZ_OPT=-0 DPKG_DEB_COMPRESSOR_LEVEL=0 # what compression takes is most of the time
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed() { echo "$*"; exit 1; }

"$mkmodel" --shape tiny --seed 3 "$tmp/m-q4_0.gguf" >/dev/null
"$mkhead" --kind eagle3 "$tmp/m-q4_0.gguf" "$tmp/m-eagle3.gguf" >/dev/null
answers() { # library path, program: the answer of the build?
    env -i PATH=/usr/bin:/bin HOME="$tmp" LD_LIBRARY_PATH="$1" "$2" run -q -m "$tmp/m-q4_0.gguf" -p 'a b c a b' -n 20 --temp 0 \
        -no-cnv -c 256 </dev/null >"$tmp/answer" 2>"$tmp/said" || failed "$2: $(cat "$tmp/said")"
    [ -s "$tmp/answer" ] || failed "$2 answers nothing"
    [ -f "$tmp/first" ] || cp "$tmp/answer" "$tmp/first"
    cmp "$tmp/first" "$tmp/answer" || failed "$2 answers something else"
}
embeds() { # folder with include and the libraries' folder in it: the example over the library
    "$cc" examples/simple.c -I"$1/include" -L"$2" -laerie -Wl,-rpath,"$2" -Wl,--allow-shlib-undefined -o "$tmp/simple" ||
        failed "the example does not build with $1"
    "$tmp/simple" "$tmp/m-q4_0.gguf" "a b c" >"$tmp/out" 2>&1 || failed "the example does not run with $1: $(cat "$tmp/out")"
}
has() { # what, folder, files in it
    what=$1 folder=$2
    shift 2
    for file; do [ -s "$folder/$file" ] || failed "$what lacks $file"; done
}
answers '' "$build/aerie"
documents="README.md CHANGELOG.md docs/serving.md docs/pulling.md docs/openapi.json deploy/README.md deploy/nginx.conf"

# A folder that may lie anywhere
AERIE_PACKAGE_TREE=$build BUILD=$tmp/p sh scripts/make-deb.sh --tar >"$tmp/log" 2>&1 || failed "make tar: $(cat "$tmp/log")"
mkdir "$tmp/any where"
tar -C "$tmp/any where" -xf "$(tail -n 1 "$tmp/log")" || failed "make tar made no archive"
folder=$(echo "$tmp/any where"/*)
answers '' "$folder/bin/aerie"
if [ "$(uname)" = Linux ]; then # all libraries but the C library's are those beside it
    for file in "$folder/bin/aerie" "$folder/lib/libaerie.so.0"; do
        strange=$(ldd "$file" | grep ' => ' | grep -v -F "=> $folder/" |
            grep -v -E '(libc|libm|libpthread|libdl|libresolv|librt)\.so') || true
        [ -z "$strange" ] || failed "make tar: '$file' needs $strange"
    done
fi
embeds "$folder" "$folder/lib"
# shellcheck disable=SC2086 # a list of files
has "make tar" "$folder" LICENSE share/man/man1/aerie.1 share/aerie/grammars/json.gbnf lib/libaerie.a

# What an installation brings goes again
"$(command -v cmake)" --install "$build" --prefix "$tmp/usr" >"$tmp/log" 2>&1 || failed "make install: $(cat "$tmp/log")"
answers "" "$tmp/usr/bin/aerie"
has "make install" "$tmp/usr" lib/systemd/system/aerie.socket
grep -q -x "ExecStart=$tmp/usr/bin/aerie serve" "$tmp/usr/lib/systemd/system/aerie.service" ||
    failed "the unit starts another program than the one that was installed"
touch "$tmp/usr/share/aerie/grammars/mine.gbnf" # of the user
make -s uninstall BUILD="$build" >"$tmp/log" 2>&1 || failed "make uninstall: $(cat "$tmp/log")"
left=$(find "$tmp/usr" -name '*aerie*' ! -type d ; find "$tmp/usr" -type f -o -type l)
[ "$left" = "$tmp/usr/share/aerie/grammars/mine.gbnf" ] || failed "make uninstall leaves $left"
[ ! -d "$tmp/usr/share/doc/aerie" ] || failed "make uninstall leaves $(find "$tmp/usr/share/doc/aerie")"

# Debian packages
if ! command -v dpkg-shlibdeps >/dev/null; then
    echo "skip: no dpkg-dev for Debian packages; the other packages are right"
    exit 77
fi
AERIE_PACKAGE_TREE=$build BUILD=$tmp/p sh scripts/make-deb.sh >"$tmp/log" 2>&1 || failed "make deb: $(cat "$tmp/log")"
for package in "$tmp"/p-deb/*.deb; do dpkg-deb -x "$package" "$tmp/root" || failed "$package cannot be unpacked"; done
libraries=$(dirname "$(find "$tmp/root" -name 'libaerie.so.0')")
answers '' "$tmp/root/usr/bin/aerie"
embeds "$tmp/root/usr" "$libraries"
# shellcheck disable=SC2046,SC2086 # lists of files
has "make deb" "$tmp/root/usr" share/man/man1/aerie.1.gz lib/systemd/system/aerie.socket \
    $(printf "share/doc/aerie/%s " $documents)
grep -q -x "ExecStart=/usr/bin/aerie serve" "$tmp/root/usr/lib/systemd/system/aerie.service" ||
    failed "the unit starts something else"
has "make deb" "$tmp/root" etc/aerie/serve.env
dpkg-deb -f "$tmp"/p-deb/aerie_*.deb Depends | grep -q libc6 || failed "the package needs no C library"
# The drivers of the build are inside, and nothing of theirs is needed to install or to start
drivers() { env -i PATH=/usr/bin:/bin HOME="$tmp" "$1" --version | grep '^gpu drivers: '; }
[ "$(drivers "$tmp/root/usr/bin/aerie")" = "$(drivers "$build/aerie")" ] ||
    failed "make deb: other GPU drivers than in the build"
for field in Depends Pre-Depends Recommends; do
    ! dpkg-deb -f "$tmp"/p-deb/aerie_*.deb $field | grep -q -i -E 'cuda|nvidia|vulkan|mesa' ||
        failed "$field names a GPU's driver"
done
! ldd "$tmp/root/usr/bin/aerie" | grep -q -i -E 'cuda|nvidia|vulkan' || failed "the program is linked with a GPU's driver"
env -i PATH=/usr/bin:/bin HOME="$tmp" "$tmp/root/usr/bin/aerie" --list-devices >"$tmp/devices" 2>&1 ||
    failed "--list-devices fails"
grep -q '^cpu' "$tmp/devices" || failed "--list-devices lacks the CPU: $(cat "$tmp/devices")"
for driver in $(drivers "$build/aerie" | sed 's/^[^:]*: //; s/([^)]*)//g; s/,/ /g'); do # a device, or why there is none
    [ "$driver" = none ] || grep -q "^$driver" "$tmp/devices" || failed "--list-devices says nothing of $driver"
done
if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/bin/aerie|$tmp/root/usr/bin/aerie|" "$tmp/root/usr/lib/systemd/system/aerie.service" >"$tmp/aerie.service"
    systemd-analyze verify "$tmp/aerie.service" >"$tmp/log" 2>&1 || failed "the unit: $(cat "$tmp/log")"
fi
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$tmp"/p-deb/*.deb || failed "lintian complains"
fi
