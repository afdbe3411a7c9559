"""What hatchling asks for when it builds the package: libaerie, by CMake, and the public declarations for cffi.

AERIE_LIBRARY names a libaerie.so.0 that is there and is taken in place of one built here. JOBS: compilers at once.
"""
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "source")
if not os.path.isdir(ROOT):
    ROOT = os.path.dirname(os.path.dirname(HERE))


def version():
    if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
        raise SystemExit(f"aerie: {HERE} is a copy of the package alone, without the sources of the library; install from a "
                         "whole source tree of aerie (pip install ./bindings/python there), from a source archive or a wheel")
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(aerie VERSION ([0-9.]+)", file.read()).group(1)


def declarations():
    """aerie_extra.h, which includes aerie.h, as cffi reads it: without the system's headers and inline functions."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stdbool.h", "stddef.h", "stdint.h"):
            open(os.path.join(empty, name), "w").close()
        text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-nostdinc", "-I", empty, "-U__GNUC__",
                               "-DUINT32_MAX=4294967295", os.path.join(ROOT, "include", "aerie_extra.h")],
                              check=True, capture_output=True, text=True).stdout
    text, n = re.subn(r"static inline [^{;]*\{[^}]*\}", "", text)
    if not n or "inline" in text:
        raise RuntimeError("the headers have inline functions of a kind that hatch_build.py does not know")
    return text


def build_library(folder):
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DAERIE_TESTS=OFF", "-DAERIE_HTTP=OFF",
                    "-DAERIE_CURL=OFF", "-DAERIE_LIBEDIT=OFF"], check=True)
    subprocess.run(["cmake", "--build", folder, "-j", os.environ.get("JOBS", str(os.cpu_count())), "--target", "aerie_shared"],
                   check=True)
    return os.path.join(folder, "libaerie.so.0")


def put_files(folder):
    """The library and _cdef.py in `folder`, which is the caller's."""
    library = os.environ.get("AERIE_LIBRARY") or build_library(os.path.join(folder, "build"))
    shutil.copyfile(library, os.path.join(folder, "libaerie.so.0"))
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", os.path.join(folder, "libaerie.so.0")], check=True)
    with open(os.path.join(folder, "_cdef.py"), "w", encoding="utf-8") as file:
        file.write("CDEF = " + repr(declarations()) + "\n")


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # read for version() alone
    BuildHookInterface = object


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):  # pylint: disable=unused-argument
        if self.target_name != "wheel":
            return
        self.folder = tempfile.mkdtemp(prefix="aerie-wheel-")
        put_files(self.folder)
        for name in ("libaerie.so.0", "_cdef.py"):
            build_data["force_include"][os.path.join(self.folder, name)] = f"aerie/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def finalize(self, version, build_data, artifact_path):  # pylint: disable=unused-argument
        if self.target_name == "wheel":
            shutil.rmtree(self.folder, ignore_errors=True)
