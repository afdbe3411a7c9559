#!/bin/sh
# What `make deb` does: libaerie0, libaerie-dev and aerie as Debian packages in build-deb/, and with --tar a folder that may be
# moved anywhere, with the libraries it needs, as aerie-VERSION-ARCHITECTURE.tar.xz. Reproducible: SOURCE_DATE_EPOCH, else the
# last commit's time, is the time of all files. DEBFULLNAME and DEBEMAIL name the maintainer, else the last commit's author.
# usage: make-deb.sh [--tar] [cmake options]
set -eu
cd "$(dirname "$0")/.."
tar_only=no
[ "${1:-}" = --tar ] && tar_only=yes && shift
build=${BUILD:-build}-deb
jobs=${JOBS:-$(nproc)}
version=$(sed -n 's/^project(aerie VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
prefix=/usr libdir=lib
command -v dpkg-architecture >/dev/null && triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH) || triplet=$(uname -m)
command -v dpkg >/dev/null && arch=$(dpkg --print-architecture) || arch=$(uname -m)
links="-Wl,-z,relro,-z,now"
if [ $tar_only = yes ]; then
    build=${BUILD:-build}-tar prefix=/
    links="$links -Wl,-rpath,'\$ORIGIN/../lib',--disable-new-dtags" # also for what the libraries need
else
    libdir=lib/$triplet
fi
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DAERIE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$prefix \
    -DCMAKE_INSTALL_LIBDIR="$libdir" \
    -DCMAKE_EXE_LINKER_FLAGS="$links" -DCMAKE_SHARED_LINKER_FLAGS="$links" "$@" >/dev/null
cmake --build "$build" -j "$jobs" --target aerie aerie_static aerie_shared
root=$PWD/$build/root
rm -rf "$root" "$build"/pkg-*
DESTDIR=$root cmake --install "$build" >/dev/null
stamp() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

if [ $tar_only = yes ]; then
    name=aerie-$version-$(uname -m)
    rm -rf "${build:?}/$name"
    mv "$root" "$build/$name"
    strip "$build/$name/bin/aerie"
    strip --strip-unneeded "$build/$name/$libdir"/libaerie.so.*.*
    # all libraries but the C library's, which belongs to the system
    ldd "$build/$name/bin/aerie" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
        case ${library##*/} in libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | libresolv.so.* | ld-linux*) ;;
        *) cp -L "$library" "$build/$name/lib/" ;; esac
    done
    cp LICENSE README.md "$build/$name/"
    stamp "$build/$name"
    tar -C "$build" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$build/$name.tar.xz" "$name"
    echo "$build/$name.tar.xz"
    exit 0
fi

for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
    command -v $tool >/dev/null || { echo "make deb needs $tool (Debian's dpkg-dev and binutils)" >&2; exit 1; }
done
strip --remove-section=.comment --remove-section=.note "$root/usr/bin/aerie"
strip --remove-section=.comment --remove-section=.note --strip-unneeded "$root/usr/$libdir"/libaerie.so.*.*
strip --strip-debug --enable-deterministic-archives "$root/usr/$libdir/libaerie.a"
date=$(date -R -u -d "@$SOURCE_DATE_EPOCH")
authors="aerie's authors"
maintainer="${DEBFULLNAME:-$authors} <${DEBEMAIL:-$(git log -1 --format=%ae 2>/dev/null || echo root@localhost)}>"

# move PACKAGE PATH...: from the installed tree into a package's
move() {
    package=$1
    shift
    for path; do
        mkdir -p "$build/pkg-$package/$(dirname "$path")"
        mv "$root/$path" "$build/pkg-$package/$path"
    done
}

# pack PACKAGE SECTION DEPENDS DESCRIPTION; more of the description on standard input
pack() {
    folder=$build/pkg-$1
    doc=$folder/usr/share/doc/$1
    mkdir -p "$doc" "$folder/DEBIAN"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: aerie\n\n'
        printf "Files: *\nCopyright: 2026 aerie's authors\nLicense: Apache-2.0\n"
        printf " On Debian systems the text of the Apache License, version 2.0, is in\n"
        printf ' /usr/share/common-licenses/Apache-2.0.\n'
    } >"$doc/copyright"
    printf 'aerie (%s) unstable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n' \
        "$version" "$version" "$maintainer" "$date" |
        gzip -9n >"$doc/changelog.gz"
    (cd "$folder" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$folder/DEBIAN/md5sums"
    {
        printf 'Package: %s\nSource: aerie\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' \
            "$1" "$version" "$arch" "$maintainer"
        printf 'Installed-Size: %s\n' "$(du -sk --apparent-size "$folder/usr" | cut -f1)"
        [ -z "$3" ] || printf 'Depends: %s\n' "$3"
        [ "$1" != libaerie-dev ] || printf 'Multi-Arch: same\n'
        [ "$1" != libaerie0 ] || printf 'Multi-Arch: same\n'
        printf 'Section: %s\nPriority: optional\nDescription: %s\n' "$2" "$4"
        sed 's/^/ /'
    } >"$folder/DEBIAN/control"
    find "$folder" -type d -exec chmod 755 {} +
    find "$folder" -type f ! -path '*/usr/bin/*' -exec chmod 644 {} +
    stamp "$folder"
    dpkg-deb --root-owner-group -Zxz --build "$folder" "$build/$1_${version}_$arch.deb" >/dev/null
    echo "$build/$1_${version}_$arch.deb"
}

# The packages that the libraries of these programs come from.
needs() {
    mkdir -p "$build/debian"
    printf 'Source: aerie\n\nPackage: aerie\nArchitecture: any\n' >"$build/debian/control"
    (cd "$build" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

about='Speculation guesses the next tokens with something cheap and has the model
check all of them in one pass; the output is the same to the byte, whatever
drafter, number of threads or load.'
(cd "$root" && for f in "usr/$libdir"/libaerie.so.*; do echo "$f"; done) >"$build/files"
# shellcheck disable=SC2046 # a list of files
move libaerie0 $(cat "$build/files")
move libaerie-dev usr/include "usr/$libdir/libaerie.so" "usr/$libdir/libaerie.a" "usr/$libdir/cmake" "usr/$libdir/pkgconfig"
mkdir -p "$build/pkg-libaerie0/DEBIAN" "$build/pkg-aerie"
printf 'libaerie 0 libaerie0 (>= %s)\n' "$version" >"$build/pkg-libaerie0/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$build/pkg-libaerie0/DEBIAN/triggers"
gzip -9n "$root"/usr/share/man/man1/*.1
mv "$root/usr" "$build/pkg-aerie/usr"
library=$(echo "$build/pkg-libaerie0/usr/$libdir"/libaerie.so.*.*)
echo "$about" | pack libaerie0 libs "$(needs "$PWD/$library")" "LLM inference with speculative decoding: library"
printf '%s\n.\nThis package has the header, the static library and what pkg-config and CMake\nneed to find them.\n' "$about" |
    pack libaerie-dev libdevel "libaerie0 (= $version), libpcre2-dev, libutf8proc-dev, libjansson-dev" \
        "LLM inference with speculative decoding: development files"
printf '%s\n.\nThis package has the program: answers, a chat, a server, tools for models.\n' "$about" |
    pack aerie utils "$(needs "$PWD/$build/pkg-aerie/usr/bin/aerie"), ca-certificates" \
        "LLM inference with speculative decoding: program"
