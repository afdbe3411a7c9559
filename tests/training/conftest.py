import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "training"))
try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    pass
