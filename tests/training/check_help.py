"""training/train_head.py --help, which needs no packages: it shows each default that is informative, and no other."""
import re
import subprocess
import sys
from pathlib import Path

program = Path(__file__).resolve().parent.parent.parent / "training" / "train_head.py"
text = " ".join(subprocess.run([sys.executable, program, "--help"], capture_output=True, check=True, text=True).stdout.split())
bad = re.findall(r"\(default: ?(?:None|\[\])?\)", text)
if bad:
    sys.exit(f"--help says {bad}")
for words in ("written head; F16: as converted (default: Q5_0)", "(default: q5_1 with --type Q5_0, else the same type)"):
    if words not in text:
        sys.exit(f"--help does not say: {words}")
