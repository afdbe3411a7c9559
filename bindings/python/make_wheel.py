#!/usr/bin/env python3
"""Makes the wheel: the package, the declarations of aerie.h for cffi, libaerie and the libraries that it needs but the C
library.

    make wheel        or        bindings/python/make_wheel.py [--library build/libaerie.so.0] [-o FOLDER]

The wheel is for any Python 3.9 or newer on machines with at least this C library; to install it takes no compiler. Without
--library the library is built in build-wheel, so that it finds its own libraries beside itself.
"""
import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SYSTEM = re.compile(r"^(lib(c|m|pthread|dl|rt)\.so|ld-linux|linux-vdso)")


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(aerie VERSION ([0-9.]+)", file.read()).group(1)


def declarations():
    """aerie.h as cffi reads it: preprocessed, without the system's headers and inline functions."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stdbool.h", "stddef.h", "stdint.h"):
            open(os.path.join(empty, name), "w").close()
        text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-nostdinc", "-I", empty, "-U__GNUC__",
                               "-DUINT32_MAX=4294967295",
                               os.path.join(ROOT, "include", "aerie.h")], check=True, capture_output=True, text=True).stdout
    text, n = re.subn(r"static inline [^{;]*\{[^}]*\}", "", text)
    if not n or "inline" in text:
        sys.exit("aerie.h has inline functions of a kind that make_wheel.py does not know")
    return text


def build():
    folder = os.path.join(ROOT, os.environ.get("BUILD", "build") + "-wheel")
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DAERIE_TESTS=OFF",
                    "-DCMAKE_BUILD_RPATH=$ORIGIN",
                    "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "-j", os.environ.get("JOBS", str(os.cpu_count())), "--target", "aerie_shared"],
                   check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(folder, "libaerie.so.0"), folder


def needed(library):
    """The libraries that it loads, by the names that it loads them by."""
    found = {}
    for line in subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not SYSTEM.match(match.group(1)):
            found[match.group(1)] = match.group(2)
    return found


def write_wheel(path, tag, files):
    info = f"aerie-{version()}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: aerie\nVersion: {version()}\nSummary: Language models with speculative decoding "
                                 "that never changes the output\nLicense: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: "
                                 "cffi>=1.15\n").encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
        files[f"{info}/LICENSE"] = file.read()
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(files):
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(files[name])}")
            item = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            item.external_attr, item.compress_type = (0o100755 if ".so" in name else 0o100644) << 16, zipfile.ZIP_DEFLATED
            out.writestr(item, files[name])
        out.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2026, 1, 1, 0, 0, 0)), "\n".join([*record, f"{info}/RECORD,,", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="a libaerie.so.0 that is there; what it needs is then left to the system")
    parser.add_argument("-o", "--output", help="folder for the wheel (default: build-wheel)")
    args = parser.parse_args()
    library, folder = (os.path.realpath(args.library), None) if args.library else build()
    output = args.output or folder or os.getcwd()
    files = {"aerie/_cdef.py": ("CDEF = " + repr(declarations()) + "\n").encode()}
    for name in ("__init__.py", "_aerie.py", "py.typed"):
        with open(os.path.join(HERE, "aerie", name), "rb") as file:
            files[f"aerie/{name}"] = file.read()
    libraries = {"libaerie.so.0": library, **(needed(library) if folder else {})}
    for name, path in libraries.items():
        with tempfile.NamedTemporaryFile() as stripped:
            shutil.copyfile(path, stripped.name)
            if name.startswith("libaerie") and shutil.which("strip"):
                subprocess.run(["strip", "--strip-unneeded", stripped.name], check=True)
            with open(stripped.name, "rb") as file:
                files[f"aerie/{name}"] = file.read()
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    os.makedirs(output, exist_ok=True)
    wheel = os.path.join(output, f"aerie-{version()}-{tag}.whl")
    write_wheel(wheel, tag, files)
    print(wheel)


if __name__ == "__main__":
    main()
