#!/usr/bin/env python3
"""How bench/gpu10.sh ends when it is cut, and what bench/gpu_pack.sh packs.

usage: check_gpu10.py AERIE MKMODEL

gpu10.sh is given small programs in place of those of a build; they note what is asked of them, and one sleeps where a case
wants it. The pack is of two real programs, and starts in a folder of its own, without the libraries of this machine's build.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SCRIPT = TOP / "bench" / "gpu10.sh"
PROGRAM = """#!/bin/sh
name=${0##*/}
echo "$name $*${AERIE_TEST_SAMPLE:+ every $AERIE_TEST_EVERY sample $AERIE_TEST_SAMPLE}" >> "$ROOM/asked"
[ "$SLEEPER" = "$name" ] && { echo "it began"; echo $$ > "$ROOM/pid"; exec sleep 1000; }
[ "$name" = mkmodel ] && { for last; do :; done; echo model > "$last"; }
case "$*" in
*" -o "*)
    while [ "$1" != -o ]; do shift; done
    echo '{"id": 1, "text": "A question", "tokens": [1, 2]}' > "$2" ;;
esac
exit 0
"""


def room_of(folder):
    room = Path(folder) / "room"
    shutil.rmtree(room, ignore_errors=True)
    (room / "build" / "tests").mkdir(parents=True)
    (room / "scratch").mkdir()
    for name in ("aerie", "tests/mkmodel", "tests/mkhead", "tests/kernels_test_device_ops", "tests/kernels_test_gpu_draws",
                 "tests/laws_test_row_laws", "tests/laws_test_head_laws"):
        (room / "build" / name).write_text(PROGRAM)
        (room / "build" / name).chmod(0o755)
    return room


def begin(room, **how):
    env = {**os.environ, "ROOM": str(room), "BUILD": str(room / "build"), "SCRATCH": str(room / "scratch"), "SLEEPER": "",
           **how}
    for name in ("MODEL", "HEAD", "PEER"):
        if name not in how:
            env.pop(name, None)
    return subprocess.Popen(["bash", SCRIPT, room / "out", "emu"], env=env, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


def asked(room):
    path = room / "asked"
    return path.read_text() if path.exists() else ""


def wait_for(path, process):
    while not (path.is_file() and path.read_text().strip()):
        assert process.poll() is None, f"ended with {process.returncode}: {process.communicate()[0]}"
        time.sleep(0.02)
    return int(path.read_text())


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def check_unknown(folder):
    room = room_of(folder)
    process = begin(room, STEPS="facts fact")
    said = process.communicate()[0]
    assert process.returncode == 2 and "no step 'fact'" in said and not asked(room), f"{process.returncode}: {said}"


def check_signals(folder):
    """What was running ends with the script, also if the signal comes before the script has noted the process; and what was
    known by then is in the two files."""
    slow = Path(folder) / "slow"
    slow.write_text("set -T\ntrap 'case $BASH_COMMAND in running=?!) sleep 0.5 ;; esac' DEBUG\n")
    for sleeper, step, how in (("kernels_test_device_ops", "ops", {}), ("mkmodel", "make_q4_0", {}),
                               ("kernels_test_device_ops", "ops", {"BASH_ENV": str(slow)})):
        room = room_of(folder)
        process = begin(room, STEPS="facts ops", SLEEPER=sleeper, **how)
        pid = wait_for(room / "pid", process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[0]
        assert process.returncode == 143, f"{process.returncode}: {said}"
        assert not is_alive(pid), f"{sleeper} goes on"
        assert f"ended by a signal in {step}" in (room / "out" / "table.txt").read_text(), said
        assert "it began" in (room / "out" / "log.txt").read_text(), "the log lacks the step that was cut"
        assert sleeper != "mkmodel" or not list((room / "scratch").glob("*.gguf")), "half a model has the name of a whole one"


def check_minutes(folder):
    """Steps that begin too late ask for nothing."""
    room = room_of(folder)
    process = begin(room, MINUTES="0", STEPS="facts ops real")
    said = process.communicate()[0]
    assert process.returncode == 0 and "done" in said and not asked(room), f"{process.returncode}: {said}: {asked(room)}"


def check_head(folder):
    room = room_of(folder)
    (room / "own.gguf").write_text("model")
    (room / "head.gguf").write_text("head")
    process = begin(room, STEPS="real drafters", MODEL=str(room / "own.gguf"), HEAD=str(room / "head.gguf"))
    said = process.communicate()[0]
    for what in (" run ", " bench spec "):
        lines = [line for line in asked(room).splitlines() if what in line and "--device emu" in line]
        assert lines and all(f"-md {room}/head.gguf" in line for line in lines), f"{what}: {lines}: {said}"
    assert "0 answers differ" in said or "0 of 1 answers differ" in said, said


def check_samples(folder):
    """Long laws run as a sample, and where the device is fast once more without; others as they are."""
    for size, n_head in (("tiny", 1), ("large", 2)):
        room = room_of(folder)
        process = begin(room, STEPS="laws drafters", SIZE=size, MODEL="none")
        said = process.communicate()[0]
        lines = asked(room).splitlines()
        heads = [line for line in lines if line.startswith("laws_test_head_laws")]
        sampled = [" every 6 sample " in line for line in heads]
        assert sampled == [True, False][:n_head], f"{size}: {heads}: {said}"
        assert [line.strip() for line in lines if "row_laws" in line] == ["laws_test_row_laws"], f"{size}: {lines}"


def check_pack(folder, aerie, mkmodel):
    room = Path(folder) / "pack"
    (room / "build" / "tests").mkdir(parents=True)
    (room / "build" / "aerie").symlink_to(aerie)
    (room / "build" / "tests" / "mkmodel").symlink_to(mkmodel)
    env = {**os.environ, "BUILD": str(room / "build"), "MODELS": "0", "PIECE_MB": "1"}
    env.pop("PEER", None)
    done = subprocess.run(["bash", TOP / "bench" / "gpu_pack.sh", "pack", room / "pieces"], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    for name in ("tests/kernels_test_device_ops", "tests/laws_test_spec_laws", "tests/laws_test_block_laws", "tests/mkhead"):
        assert name in done.stderr, f"nobody says that {name} is missing: {done.stderr}"
    tree = room / "tree"
    subprocess.run(["bash", room / "pieces" / "gpu_pack.sh", "unpack", room / "pieces", tree], check=True,
                   stdout=subprocess.DEVNULL)
    assert (tree / "docs" / "text.md").stat().st_size >= 24000, "the long prompt has no text"
    shutil.rmtree(room / "build")
    bare = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{tree}/build:{tree}/build/lib"}
    needed = subprocess.run(["ldd", tree / "build" / "aerie"], env=bare, text=True, stdout=subprocess.PIPE, check=True).stdout
    assert "not found" not in needed, needed
    for line in needed.splitlines():
        path = line.split("=> ")[1].split(" ")[0] if "=> " in line else ""
        if any(part in path for part in ("libjansson", "libpcre2", "libutf8proc")):
            assert path.startswith(str(tree)), f"{line}: not of the pack"
    done = subprocess.run(["bash", tree / "bench" / "gpu10.sh", room / "out", "cpu"], text=True, stdout=subprocess.PIPE,
                          env={"PATH": os.environ["PATH"], "STEPS": "facts", "SCRATCH": str(room)})
    assert done.returncode == 0 and "cpu" in (room / "out" / "log.txt").read_text() and "FAILED" not in done.stdout, done.stdout


def main():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        check_unknown(folder)
        check_signals(folder)
        check_minutes(folder)
        check_head(folder)
        check_samples(folder)
        check_pack(folder, *(Path(p).resolve() for p in sys.argv[1:3]))


if __name__ == "__main__":
    main()
