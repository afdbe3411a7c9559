"""Runs the tests of training/ by pytest; exit status 77 says that something they need is missing."""
import sys
from pathlib import Path

missing = []
for module in ("pytest", "numpy", "torch", "safetensors", "gguf"):
    try:
        __import__(module)
    except ImportError:
        missing.append(module)
if missing:
    print("skip: Python lacks " + ", ".join(missing))
    sys.exit(77)
import pytest  # noqa: E402

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).resolve().parent)]))
