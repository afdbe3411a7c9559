#!/usr/bin/env python3
"""Rules of the source tree (ARCHITECTURE.md) that can be checked in the sources. A module is a folder with its source files.

  * Data flows one way: a module of src/ includes only itself and modules before it in ORDER, so there are no cycles.
  * The same for app/: APP. It includes the public headers and its own modules; INTERNALS lists exceptions.
  * Nothing in src/ prints or ends the process. Every header opens with its guard, named after its path, every file with a
    comment that names it and says what it is.
  * A line has at most 128 columns, a file 800 lines, a folder 25 files.

usage: check_includes.py [--modules] [--arrows]
  --modules  print each module with its files and lines
  --arrows   print each pair of modules of which one includes the other, and how often
"""
import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ORDER = """
base base/math image formats quant quant/encode quant/encode/x86
text/token/search text/token text/template text text/grammar text/schema draw
model comm comm/module
backend backend/cpu/ref backend/cpu/simd backend/cpu/x86 backend/cpu/x86/product backend/cpu/arm backend/cpu
backend/gpu/emu backend/gpu/kernels backend/gpu/kernels/attention backend/gpu/kernels/product backend/gpu
backend/gpu/emu/driver backend/gpu/cuda backend/gpu/vulkan device sample cache engine/weights engine/layers engine engine/tower
draft draft/head speculate/control speculate convert/quantize convert/checkpoint convert/head convert/tower convert/archs
convert/model convert session session/group api""".split()
APP = """shared cli setup serve/page serve/parse serve/http serve/models serve/request serve/dialects serve router run bench
files perplexity pull train doctor""".split()
# What the public headers do not give the program; each says why at the include or at the top of its file.
INTERNALS = """
app/bench/bandwidth.c:base/os.h app/bench/bandwidth.c:base/pool.h
app/cli/devices.c:device/device.h
app/bench/shapes.c:backend/backend.h app/bench/shapes.c:device/device.h app/bench/shapes.c:base/os.h
app/bench/shapes.c:base/pool.h app/bench/shapes.c:quant/types.h
app/shared/app.c:base/text.h app/shared/app.c:base/number.h app/cli/cpus.c:base/os.h
app/serve/http/memory.c:base/os.h app/serve/models/models.c:formats/kind.h
app/serve/models/facts.c:formats/gguf.h app/serve/models/facts.c:convert/quantize/mix.h
app/cli/options.h:session/test_drafters.h
app/cli/version.c:backend/cpu/ref/kernels.h app/cli/version.c:formats/gguf.h
app/files/convert.c:convert/convert.h app/files/convert.c:formats/tensor_type.h
app/perplexity/output.c:convert/quantize/imatrix.h
app/pull/fetch.c:base/os.h app/pull/fetch.c:formats/gguf.h
app/doctor/doctor.c:backend/cpu/ref/kernels.h app/doctor/doctor.h:base/os.h
app/doctor/machine.c:backend/cpu/ref/kernels.h
app/files/inspect.c:formats/gguf.h app/files/inspect.c:formats/kind.h app/files/inspect.c:engine/tower.h
app/pull/source.c:base/sha256.h app/pull/caches.c:base/sha256.h app/pull/fetch.c:base/sha256.h app/pull/store.c:base/sha256.h
app/run/conversation.c:base/sha256.h app/pull/pull.c:base/sha256.h app/serve/models/conversation_files.c:base/sha256.h
app/serve/http/keys.c:base/sha256.h app/serve/models/facts.c:base/sha256.h
app/serve/request/apart.c:image/image.h
app/files/quantize.c:convert/quantize/rewrite.h
"""
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
CALLS = re.compile(r"(?<![A-Za-z0-9_])(exit|abort|printf|puts|fputs|perror)[ \t]*\(")
bad = []


def fail(text):
    bad.append(text)
    print(text)


def sources(top, endings=(".c", ".h", ".inc", ".cu")):
    for folder, folders, files in os.walk(os.path.join(ROOT, top)):
        folders.sort()
        for name in sorted(files):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def module_of(path):
    return os.path.dirname(path).split("/", 1)[1] if "/" in os.path.dirname(path) else ""


def resolve(path, target, known):
    for root in (os.path.dirname(path), "src", "app", "include"):
        found = os.path.normpath(os.path.join(root, target))
        if found in known:
            return found
    return None


def check_arrows(texts):
    """Includes of src/ and app/. Returns {(module, module): count}, modules with src/ or app/ before them."""
    arrows = {}
    internals = set(INTERNALS.split())
    for path, text in texts.items():
        top = path.split("/", 1)[0]
        if top == "include":
            continue
        order = ORDER if top == "src" else APP
        module = module_of(path)
        if module not in order:
            fail(f"{path}: the module {top}/{module} is not in ORDER or APP of this check")
            continue
        for target in INCLUDE.findall(text):
            found = resolve(path, target, texts)
            if not found:
                if top == "src":
                    fail(f"{path} includes {target}, which is not part of the library")
                continue
            if found.startswith("include/"):
                continue
            to_top, to = found.split("/", 1)[0], module_of(found)
            if to_top != top:
                if f"{path}:{target}" not in internals:
                    fail(f"{path} includes {target}; app/ uses the public headers only" if top == "app"
                         else f"{path} includes {found}")
                internals.discard(f"{path}:{target}")
                continue
            if to != module:
                arrows[top + "/" + module, top + "/" + to] = arrows.get((top + "/" + module, top + "/" + to), 0) + 1
                if to in order and order.index(to) > order.index(module):
                    fail(f"{path} includes {target}: {to}/ comes after {module}/ in the order of modules")
    for left in sorted(internals):
        fail(f"listed as internals, but not included: {left}")
    return arrows


def circles(arrows):
    """Include cycles: groups of modules that reach each other."""
    to = {}
    for a, b in arrows:
        to.setdefault(a, set()).add(b)
    reach = {}
    for a in to:
        seen, todo = set(), [a]
        while todo:
            for b in to.get(todo.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    todo.append(b)
        reach[a] = seen
    found = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}
    return [sorted(group) for group in found if len(group) > 1]


def check_files(texts):
    for path, text in texts.items():
        name = os.path.basename(path)
        if path.startswith("src/") and not path.endswith(".h"):
            for i, line in enumerate(text.split("\n"), 1):
                if CALLS.search(line):
                    fail(f"{path}:{i}: the library neither prints nor ends the process")
        if path.endswith(".h") and not path.startswith("tests/"):
            guard = re.search(r"^#ifndef (A(?:E|ERIE)\w*_H)$", text, re.M)
            if not guard:
                fail(f"{path} has no include guard")
        if path.startswith(("src/", "app/")) and not re.match(r"/\* " + re.escape(name) + r" - ", text):
            fail(f"{path} does not open with a comment that names it: /* {name} - what it is")
        if text.count("\n") > 800:
            fail(f"{path} has {text.count(chr(10))} lines; files have at most 800")


def check_lines():
    """Files of our own in every language."""
    names = re.compile(r"\.(c|h|inc|cu|py|sh|cmake)$|(^|/)(CMakeLists\.txt|Makefile)$")
    for top in ("src", "include", "app", "tests", "examples", "tools", "training", "scripts", "bench", "bindings", "deploy",
                "cmake", "Makefile", "CMakeLists.txt"):
        paths = [top] if os.path.isfile(os.path.join(ROOT, top)) else sources(top, ("",))
        for path in paths:
            # templates as their authors wrote them
            if not names.search(path) or path.endswith("make_jinja_cases.py") or "__pycache__" in path:
                continue
            for i, line in enumerate(read(path).split("\n"), 1):
                if len(line) > 128:
                    fail(f"{path}:{i}: lines have at most 128 columns")


def check_modules(texts, show):
    modules = {}
    for path, text in texts.items():
        modules.setdefault(os.path.dirname(path), []).append(text.count("\n"))
    for module in sorted(modules):
        if show:
            print(f"{module:<28} {len(modules[module]):>3} files {sum(modules[module]):>6} lines")
        if len(modules[module]) > 25:
            fail(f"{module} has {len(modules[module])} files; folders have at most 25")


def main():
    texts = {path: read(path) for top in ("include", "src", "app") for path in sources(top)}
    arrows = check_arrows(texts)
    if "--arrows" in sys.argv[1:]:
        for (a, b), n in sorted(arrows.items()):
            print(f"{a:<28} -> {b:<28} {n:>3}")
    found = circles(arrows)
    for group in found:
        fail("modules that include each other in a cycle: " + ", ".join(group))
    check_files(texts)
    check_lines()
    check_modules(texts, "--modules" in sys.argv[1:])
    if "--modules" in sys.argv[1:] or "--arrows" in sys.argv[1:]:
        n_modules = len({os.path.dirname(path) for path in texts})
        print(f"{n_modules} modules, {len(texts)} files, {len(arrows)} arrows, {len(found)} cycles")
    return 1 if bad else 0


sys.exit(main())
