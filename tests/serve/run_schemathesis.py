"""Requests made by schemathesis from docs/openapi.json, and answers checked against it: not a part of the test suite, since
schemathesis comes from PyPI (pip install schemathesis).

    tests/serve/run_schemathesis.py build/aerie build/tests/mkmodel [options of `schemathesis run`]

Left out is the check that every request of the right shape is accepted: a grammar may be no grammar, a prompt may be too long.
"""
import os
import subprocess
import sys

import rig

SPEC = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../docs/openapi.json"))


def run(options):
    with rig.Server("-np", "4", "-c", "128", "-n", "4", "--max-queue", "64", "--no-access-log",
                    "--chat-template-file", rig.template("tools"), model="tags.gguf") as s:
        command = [sys.executable, "-m", "schemathesis.cli", "run", SPEC, "--url", f"http://127.0.0.1:{s.port}", "--checks",
                   "all",
                   "--exclude-checks", "positive_data_acceptance", "--request-timeout", "60", *options]
        status = subprocess.run(command, cwd=rig.FOLDER).returncode  # where it leaves its own files
        assert s.get("/health").status == 200, s.log
    return status


def main():
    rig.AERIE, rig.MKMODEL = map(os.path.abspath, sys.argv[1:3])
    rig.FOLDER = rig.tempfile.mkdtemp(prefix="aerie-schema-")
    try:
        rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        return run(sys.argv[3:])
    finally:
        rig.shutil.rmtree(rig.FOLDER, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
