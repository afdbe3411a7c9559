#!/bin/sh
# What `make deb` does: libaerie0, libaerie-dev and aerie as Debian packages in build-deb/, and with --tar a folder that may be
# moved anywhere, with the libraries it needs, as build-tar/aerie-VERSION-ARCHITECTURE.tar.xz. Both, and `make wheel`, are built
# in build-package/; AERIE_PACKAGE_TREE names a release build that is there already and is used in its place.
# Reproducible: SOURCE_DATE_EPOCH, else the last commit's time, is the time of all files. DEBFULLNAME and DEBEMAIL name the
# maintainer, else the last commit's author.
# usage: make-deb.sh [--tar] [cmake options]
set -eu
cd "$(dirname "$0")/.."
kind=deb
[ "${1:-}" = --tar ] && kind=tar && shift
out=${BUILD:-build}-$kind
tree=${AERIE_PACKAGE_TREE:-${BUILD:-build}-package}
jobs=${JOBS:-$(nproc)}
version=$(sed -n 's/^project(aerie VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
command -v dpkg-architecture >/dev/null && triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH) || triplet=$(uname -m)
command -v dpkg >/dev/null && arch=$(dpkg --print-architecture) || arch=$(uname -m)
mkdir -p "$out"
root=$(cd "$out" && pwd)/root
rm -rf "$root" "$out"/pkg-*
stamp() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

# Where files will lie is part of a configuration, not of what is compiled. A build of somebody else's gets its own back.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$tree/CMakeCache.txt"; }
configure() { # prefix, folder of libraries; more options
    cmake -S . -B "$tree" -DCMAKE_INSTALL_PREFIX="$1" -DCMAKE_INSTALL_LIBDIR="$2" >"$out/configure.log" || {
        cat "$out/configure.log" >&2
        exit 1
    }
}
if [ -n "${AERIE_PACKAGE_TREE:-}" ]; then
    case $(cached CMAKE_BUILD_TYPE)$(cached AERIE_SANITIZE) in Release | '') ;; *)
        echo "packages are made of release builds; '$tree' is none" >&2
        exit 1 ;;
    esac
    old_prefix=$(cached CMAKE_INSTALL_PREFIX) old_libdir=$(cached CMAKE_INSTALL_LIBDIR)
    trap 'configure "$old_prefix" "$old_libdir"' EXIT
else
    cmake -S . -B "$tree" -DCMAKE_BUILD_TYPE=Release -DAERIE_TESTS=OFF "$@" >/dev/null
fi

if [ $kind = tar ]; then
    name=aerie-$version-$(uname -m)
    configure /usr/local lib
    cmake --build "$tree" -j "$jobs" --target aerie aerie_static aerie_shared aerie_portable aerie_portable_shared >&2
    cmake --install "$tree" --prefix "$root" >/dev/null
    rm -rf "${out:?}/$name" "$root/lib/systemd" # units name the place of a program
    mv "$root" "$out/$name"
    cp -P "$tree"/portable/lib/libaerie.so* "$out/$name/lib/"
    cp "$tree/portable/bin/aerie" "$out/$name/bin/"
    strip "$out/$name/bin/aerie"
    strip --strip-unneeded "$out/$name/lib"/libaerie.so.*.*
    [ ! -f "$out/$name/lib/aerie/libaerie-mpi.so" ] || strip --strip-unneeded "$out/$name/lib/aerie/libaerie-mpi.so"
    strip --strip-debug --enable-deterministic-archives "$out/$name/lib/libaerie.a"
    # all libraries but the C library's, which belongs to the system
    ldd "$out/$name/bin/aerie" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
        case ${library##*/} in libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | libresolv.so.* | ld-linux*) ;;
        *) cp -L "$library" "$out/$name/lib/" ;; esac
    done
    cp LICENSE README.md "$out/$name/"
    stamp "$out/$name"
    tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$out/$name.tar.xz" "$name"
    echo "$out/$name.tar.xz"
    exit 0
fi

for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
    command -v $tool >/dev/null || { echo "make deb needs $tool (Debian's dpkg-dev and binutils)" >&2; exit 1; }
done
libdir=lib/$triplet
configure /usr "$libdir"
cmake --build "$tree" -j "$jobs" --target aerie aerie_static aerie_shared >&2
DESTDIR=$root cmake --install "$tree" >/dev/null
strip --remove-section=.comment --remove-section=.note "$root/usr/bin/aerie"
mpi= # the module for several machines, where MPI was there to build it
[ ! -f "$root/usr/$libdir/aerie/libaerie-mpi.so" ] || mpi=usr/$libdir/aerie/libaerie-mpi.so
strip --remove-section=.comment --remove-section=.note --strip-unneeded "$root/usr/$libdir"/libaerie.so.*.* ${mpi:+"$root/$mpi"}
strip --strip-debug --enable-deterministic-archives "$root/usr/$libdir/libaerie.a"
date=$(date -R -u -d "@$SOURCE_DATE_EPOCH")
authors="aerie's authors"
maintainer="${DEBFULLNAME:-$authors} <${DEBEMAIL:-$(git log -1 --format=%ae 2>/dev/null || echo root@localhost)}>"

# move PACKAGE PATH...: from the installed tree into a package's
move() {
    package=$1
    shift
    for path; do
        mkdir -p "$out/pkg-$package/$(dirname "$path")"
        mv "$root/$path" "$out/pkg-$package/$path"
    done
}

# pack PACKAGE SECTION DEPENDS DESCRIPTION; more of the description on standard input
pack() {
    folder=$out/pkg-$1
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
        # the libraries of GPUs and of MPI are looked for when a GPU or several machines are asked for, and not needed otherwise
        [ "$1" != aerie ] || printf 'Suggests: mesa-vulkan-drivers | vulkan-icd, libcuda1%s\n' "${mpi_needs:+, $mpi_needs}"
        [ "$1" != libaerie-dev ] || printf 'Multi-Arch: same\n'
        [ "$1" != libaerie0 ] || printf 'Multi-Arch: same\n'
        printf 'Section: %s\nPriority: optional\nDescription: %s\n' "$2" "$4"
        sed 's/^/ /'
    } >"$folder/DEBIAN/control"
    find "$folder" -type d -exec chmod 755 {} +
    find "$folder" -type f ! -path '*/usr/bin/*' -exec chmod 644 {} +
    stamp "$folder"
    dpkg-deb --root-owner-group -Zxz --build "$folder" "$out/$1_${version}_$arch.deb" >/dev/null
    echo "$out/$1_${version}_$arch.deb"
}

# The packages that the libraries of these programs come from.
needs() {
    mkdir -p "$out/debian"
    printf 'Source: aerie\n\nPackage: aerie\nArchitecture: any\n' >"$out/debian/control"
    (cd "$out" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

about='Speculation guesses the next tokens with something cheap and has the model
check all of them in one pass; the output is the same to the byte, whatever
drafter, number of threads or load.'
(cd "$root" && for f in "usr/$libdir"/libaerie.so.*; do echo "$f"; done) >"$out/files"
# shellcheck disable=SC2046 # a list of files
move libaerie0 $(cat "$out/files")
move libaerie-dev usr/include "usr/$libdir/libaerie.so" "usr/$libdir/libaerie.a" "usr/$libdir/cmake" "usr/$libdir/pkgconfig"
mkdir -p "$out/pkg-libaerie0/DEBIAN" "$out/pkg-aerie"
printf 'libaerie 0 libaerie0 (>= %s)\n' "$version" >"$out/pkg-libaerie0/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$out/pkg-libaerie0/DEBIAN/triggers"
gzip -9n "$root"/usr/share/man/man1/*.1
mv "$root/usr" "$out/pkg-aerie/usr"
mkdir -p "$out/pkg-aerie/etc/aerie" "$out/pkg-aerie/DEBIAN"
cat >"$out/pkg-aerie/etc/aerie/serve.env" <<'END'
# Options of the server that aerie.service starts, by their environment variables ("aerie help serve --all" lists them).
# AERIE_MODEL=/var/lib/aerie/model.gguf
# AERIE_HOST=127.0.0.1
# AERIE_API_KEY_FILE=/etc/aerie/keys
END
echo /etc/aerie/serve.env >"$out/pkg-aerie/DEBIAN/conffiles"
library=$(echo "$out/pkg-libaerie0/usr/$libdir"/libaerie.so.*.*)
echo "$about" | pack libaerie0 libs "$(needs "$root/../${library#"$out"/}")" "LLM inference with speculative decoding: library"
printf '%s\n.\nThis package has the header, the static library and what pkg-config and CMake\nneed to find them.\n' "$about" |
    pack libaerie-dev libdevel "libaerie0 (= $version), libpcre2-dev, libutf8proc-dev, \
libjansson-dev, libjpeg62-turbo-dev, libpng-dev, libwebp-dev" \
        "LLM inference with speculative decoding: development files"
drivers=$("$root/../pkg-aerie/usr/bin/aerie" --version 2>/dev/null | sed -n 's/^gpu drivers: //p') || true
echo "GPU drivers inside: ${drivers:-unknown}" >&2
mpi_needs=
[ -z "$mpi" ] || mpi_needs=$(needs "$root/../pkg-aerie/$mpi" | sed 's/libc6 ([^)]*),* *//')
printf '%s\n.\nThis package has the program: answers, a chat, a server, tools for models.\n' "$about" |
    pack aerie utils "$(needs "$root/../pkg-aerie/usr/bin/aerie"), ca-certificates" \
        "LLM inference with speculative decoding: program"
