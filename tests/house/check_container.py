#!/usr/bin/env python3
"""The steps of deploy/Containerfile without a container runtime: each stage runs by chroot in a copy of a fresh Debian 12, and
the image's program starts as the image's user and lists the GPU backends of the build. Not part of ctest: it needs root, the
package servers, and minutes to build.

usage: check_container.py FOLDER [--arg NAME=VALUE]... [--target NAME | --program FILE]
  FOLDER    `debootstrap --variant=minbase bookworm FOLDER`; the stages are built in FOLDER-0 and FOLDER-1, which are left there
  --arg     a build argument, as in podman's --build-arg
  --target  what to build instead of `aerie`, e.g. the kernels of one file, to look at compilers alone; ends after that stage
  --program a program built on a Debian 12, for the image; the first stage is left out

Does not own: what the base image has beside a minimal Debian (nothing that the steps use), nor what a runtime brings at the
start (devices, NVIDIA's driver).
"""
import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONTAINERFILE = os.path.join(ROOT, "deploy", "Containerfile")


def fail(text):
    sys.exit(f"check_container: {text}")


def instructions():
    """Pairs of an instruction and its text, continued lines joined."""
    text = re.sub(r"^#.*\n", "", open(CONTAINERFILE).read(), flags=re.M)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, rest = line.split(None, 1)
            yield name, rest.strip()


class Stage:
    """A root folder with the variables of ARG and ENV."""

    def __init__(self, folder, base):
        self.root, self.variables, self.user = folder, {}, "0"
        if os.path.exists(folder):
            fail(f"'{folder}' is there already; remove it")
        subprocess.run(["cp", "-a", base, folder], check=True)
        shutil.copy("/etc/resolv.conf", folder + "/etc/resolv.conf")
        self.passed = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.lower().endswith("_proxy")}
        certificates = self.passed.get("PIP_CERT")
        if certificates: # where no package writes
            shutil.copy(certificates, folder + "/root/certificates.crt")
            self.passed["PIP_CERT"] = "/root/certificates.crt"

    def run(self, command, user="0"):
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8",
                     "DEBIAN_FRONTEND": "noninteractive", **self.passed, **self.variables}
        return subprocess.run(["chroot", f"--userspec={user}", self.root, "/bin/sh", "-c", command], env=variables,
                              capture_output=True, text=True)

    def do(self, command):
        done = self.run(command)
        if done.returncode:
            fail(f"RUN {command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}exit status {done.returncode}")

    def filled(self, text):
        return re.sub(r"\$\{?(\w+)\}?", lambda m: self.variables.get(m[1], ""), text)


def copy_sources(stage, to):
    """What is in the repository, without the commit's name."""
    files = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True).stdout
    packed = subprocess.run(["tar", "--null", "-T", "-", "-cf", "-"], input=files, check=True, cwd=ROOT, capture_output=True)
    subprocess.run(["tar", "-xf", "-", "-C", stage.root + to], input=packed.stdout, check=True)


def copy(stages, stage, text):
    words = shlex.split(text)
    if words[0].startswith("--from="):
        build = stages[words[0].split("=", 1)[1]]
        found = [f for pattern in words[1:-1] for f in glob.glob(build.root + pattern)]
        if not found:
            fail(f"COPY {text}: there is none of these files")
        for file in found:
            shutil.copy(file, stage.root + words[-1])
    elif words == [".", "/source"]:
        os.makedirs(stage.root + words[1])
        copy_sources(stage, words[1])
    else:
        fail(f"COPY {text}: this check does not know that form")


def look_at_image(stage, cuda):
    """The program of the image, as its user."""
    version = stage.run("/usr/bin/aerie --version", stage.user)
    print(version.stdout, end="")
    drivers = re.search(r"^gpu drivers: (.*)$", version.stdout, re.M)
    if version.returncode or not drivers:
        fail(f"the program does not start: {version.stderr}")
    wanted = ["vulkan"] + (["cuda"] if cuda else [])
    if any(name not in drivers[1] for name in wanted):
        fail(f"the image's program has '{drivers[1]}', not {wanted}")
    devices = stage.run("/usr/bin/aerie --list-devices", stage.user)
    print(devices.stdout, end="")
    if devices.returncode or "cpu" not in devices.stdout or not re.search(r"^vulkan\d* (?!.*cannot be)", devices.stdout, re.M):
        fail(f"--list-devices: {devices.stdout}{devices.stderr}")
    served = stage.run("/usr/bin/aerie serve --host 0.0.0.0", stage.user)
    if served.returncode != 2 or "model" not in served.stderr:
        fail(f"the server without a model: status {served.returncode}, {served.stderr}")
    if stage.run("curl --version").returncode:
        fail("the health check's curl does not start")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--arg", action="append", default=[])
    parser.add_argument("--target")
    parser.add_argument("--program")
    given = parser.parse_args()
    given_args = dict(a.split("=", 1) for a in given.arg)
    stages, stage = {}, None
    for name, text in instructions():
        print(f"{name} {text[:110]}", flush=True)
        if given.program and name not in ("FROM", "ARG") and len(stages) == 1:
            continue
        if name == "FROM":
            if given.target and stages:
                return
            if not text.startswith("docker.io/library/debian:12-slim"):
                fail(f"FROM {text}: this check has a Debian 12 only")
            stage = Stage(f"{given.folder.rstrip('/')}-{len(stages)}", given.folder)
            stages[text.split()[-1] if " AS " in text else len(stages)] = stage
        elif name == "ARG":
            key, _, default = text.partition("=")
            stage.variables[key] = given_args.get(key, default)
        elif name == "ENV":
            stage.variables.update(pair.split("=", 1) for pair in shlex.split(stage.filled(text)))
        elif name == "RUN":
            stage.do(text.replace("--target aerie", f"--target {given.target}") if given.target else text)
        elif name == "COPY" and given.program:
            shutil.copy(given.program, stage.root + text.split()[-1] + "aerie")
        elif name == "COPY":
            copy(stages, stage, text)
        elif name == "USER":
            stage.user = stage.filled(text)
        elif name not in ("EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"):
            fail(f"{name}: this check does not know that instruction")
    look_at_image(stage, not given.program and stages["build"].variables["CUDA"] != "0")
    print(f"the {'image' if given.program else 'stages'} ran, the program starts and lists its backends")


if __name__ == "__main__":
    main()
