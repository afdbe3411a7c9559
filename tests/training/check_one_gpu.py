"""How training/one_gpu.sh ends: its status when training or a measurement fails, what `rehearse` finds missing, and no process
left by Ctrl-C or SIGTERM.
In place of Python and aerie it is given small programs that say what it asks of them, and fail or sleep as a case wants."""
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "training" / "one_gpu.sh"
PYTHON = """#!/bin/sh
case "$*" in
*" taps "*) echo 1,2,3 ;;
*" prompts "*)
    while [ "$1" != -o ]; do shift; done
    echo p > "$2" ;;
*" train "*)
    while [ "$1" != -o ]; do shift; done
    [ "$TRAINER" = fails ] && { echo "out of memory"; exit 9; }
    mkdir -p "$2/checkpoint" && echo '{}' > "$2/checkpoint/config.json"
    echo w > "$2/checkpoint/model.safetensors"
    [ "$TRAINER" = forgets ] || head -c 1500000 /dev/zero > "$2/checkpoint.pt"
    [ "$TRAINER" = sleeps ] && { echo $$ > "$PIDS/trainer"; exec sleep 1000; }
    exit 0 ;;
*) exec "%s" "$@" ;;
esac
""" % sys.executable
AERIE = """#!/bin/sh
case "$1 $2" in
"bench spec")
    [ "$ENGINE" = fails ] && exit 4
    [ "$ENGINE" = sleeps ] && { echo $$ > "$PIDS/engine"; exec sleep 1000; }
    echo "a figure" ;;
convert*) echo h > "$4" ;;
quantize*) echo h > "$3" ;;
inspect*) ;;
esac
"""


def packed(folder):
    (folder / "in").mkdir()
    for name, text in (("model.gguf", "m"), ("prompts.npz.xz", "p"), ("aerie", AERIE), ("own.jsonl", "{}\n")):
        (folder / "in" / name).write_text(text)
    (folder / "python").write_text(PYTHON)
    for name in ("python", "in/aerie"):
        (folder / name).chmod(0o755)
    subprocess.run("sha256sum -- * > sums.txt", shell=True, check=True, cwd=folder / "in")


def begin(folder, out, **how):
    env = {**os.environ, "PYTHON": str(folder / "python"), "KINDS": "eagle3", "PIDS": str(folder), **how}
    return subprocess.Popen(["bash", SCRIPT, "train", folder / "in", folder / out, "--cpu"], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


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


def check_statuses(folder):
    for how, status, text in (({}, 0, "done"), ({"TRAINER": "fails"}, 9, "training ended with 9"),
                              ({"ENGINE": "fails"}, 1, "bench spec ended with 4")):
        process = begin(folder, "out", **how)
        said = process.communicate()[0]
        assert process.returncode == status and text in said, f"{how}: {process.returncode}: {said}"
        assert text in (folder / "out" / "table.txt").read_text()


def check_rehearse(folder):
    """All steps, with checkpoint.pt in two parts; a file that training leaves out is named."""
    env = {**os.environ, "PYTHON": str(folder / "python"), "KINDS": "eagle3", "AERIE": str(folder / "in" / "aerie")}
    for how, status, text in (({}, 0, "all files are there"), ({"TRAINER": "forgets"}, 1, "\neagle3/checkpoint.pt\n")):
        out = folder / f"rehearsal-{status}"
        done = subprocess.run(["bash", SCRIPT, "rehearse", out, folder / "in" / "model.gguf"], env={**env, **how}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == status and text in done.stdout, f"{how}: {done.returncode}: {done.stdout}"
    parts = folder / "rehearsal-0" / "out" / "eagle3"
    assert sorted(p.name for p in parts.glob("checkpoint.pt*")) == ["checkpoint.pt", "checkpoint.pt.part-aa",
                                                                    "checkpoint.pt.part-ab"]


def check_signals(folder):
    """Ctrl-C reaches every process of the terminal's group; kill reaches the script alone."""
    for end, status in ((lambda p: os.killpg(p.pid, signal.SIGINT), 130), (lambda p: p.send_signal(signal.SIGTERM), 143)):
        for path in (folder / "trainer", folder / "engine"):
            path.unlink(missing_ok=True)
        process = begin(folder, "out", TRAINER="sleeps", ENGINE="sleeps")
        pids = [wait_for(folder / name, process) for name in ("trainer", "engine")]
        end(process)
        said = process.communicate()[0]
        assert process.returncode == status and "ended by a signal" in said, f"{process.returncode}: {said}"
        until = time.monotonic() + 20  # what is ending may take its time on a busy machine
        while any(map(is_alive, pids)) and time.monotonic() < until:
            time.sleep(0.02)
        left = [pid for pid in pids if is_alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"{status}: of {pids} {left} were left running: {said}"


def main():
    with tempfile.TemporaryDirectory(prefix="aerie-one-gpu-") as name:
        packed(Path(name))
        check_statuses(Path(name))
        check_rehearse(Path(name))
        check_signals(Path(name))


if __name__ == "__main__":
    main()
