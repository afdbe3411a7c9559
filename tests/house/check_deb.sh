#!/bin/sh
# The packages of `make deb` in a fresh Debian 12: they install, run, serve to build the examples by pkg-config and by CMake,
# and are removed without a trace. Not part of ctest: it needs root and a folder made by debootstrap.
# usage: check_deb.sh ROOT_FOLDER [MODEL.gguf]      (ROOT_FOLDER: a fresh `debootstrap --variant=minbase bookworm ROOT_FOLDER`)
set -eu
cd "$(dirname "$0")/../.."
root=$1 model=${2:-}
failed() { echo "check_deb: $*" >&2; exit 1; }
inside() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}
files() {
    inside find / -xdev -path /proc -prune -o -path /sys -prune -o -path /var -prune -o -path /tmp -prune -o \
        -name '*aerie*' -print
}
[ -x "$root/usr/bin/dpkg" ] || failed "'$root' is not a Debian system"
mkdir -p "$root/tmp/debs" && cp build-deb/*.deb "$root/tmp/debs/"
install='apt-get install -y -qq --no-install-recommends'
inside sh -c "$install /tmp/debs/aerie_*.deb /tmp/debs/libaerie0_*.deb /tmp/debs/libaerie-dev_*.deb" >/dev/null ||
    failed "the packages do not install"
inside aerie --version || failed "the program does not run"
inside aerie help run >/dev/null || failed "the program has no help"
for file in /usr/lib/systemd/system/aerie.service /etc/aerie/serve.env /usr/share/doc/aerie/docs/serving.md \
    /usr/share/man/man1/aerie.1.gz /usr/share/bash-completion/completions/aerie \
    /usr/share/zsh/vendor-completions/_aerie \
    /usr/share/fish/vendor_completions.d/aerie.fish; do
    [ -s "$root$file" ] || [ -s "$root${file%.gz}" ] || inside dpkg -L aerie | grep -q "$file" || failed "$file is missing"
done
if [ -n "$model" ]; then
    cp "$model" "$root/tmp/m.gguf"
    inside aerie run -q -m /tmp/m.gguf -p 'a b' -n 8 --temp 0 -no-cnv >/dev/null || failed "the program does not answer"
fi
inside sh -c "$install gcc libc6-dev make cmake pkg-config" >/dev/null || failed "no compiler"
cp -r examples "$root/tmp/"
inside sh -c 'cd /tmp && cc examples/simple.c $(pkg-config --cflags --libs aerie) -o by-pkg-config &&
    ./by-pkg-config; [ $? = 2 ]' ||
    failed "the example does not build by pkg-config"
inside sh -c 'cd /tmp && cc examples/simple.c $(pkg-config --static --cflags --libs aerie) -o by-static
    ./by-static; [ $? = 2 ]' ||
    failed "the example does not build by pkg-config --static"
inside sh -c 'cd /tmp && cmake -S examples -B by-cmake >/dev/null && cmake --build by-cmake >/dev/null
    ./by-cmake/simple; [ $? = 2 ]' ||
    failed "the example does not build by CMake"
if [ -n "$model" ]; then
    inside sh -c '/tmp/by-pkg-config /tmp/m.gguf "a b" >/tmp/1 &&
        /tmp/by-cmake/simple /tmp/m.gguf "a b" >/tmp/2 && cmp /tmp/1 /tmp/2' ||
        failed "the examples do not answer the same"
fi
rm -rf "$root"/tmp/*
inside apt-get purge -y -qq aerie libaerie0 libaerie-dev >/dev/null || failed "the packages cannot be removed"
left=$(files)
[ -z "$left" ] || failed "left behind: $left"
echo "installed, ran, built the examples, removed"
