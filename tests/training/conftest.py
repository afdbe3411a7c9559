import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "training"))
import pytest  # noqa: E402

try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    pass


@pytest.fixture
def steady_clock(monkeypatch):
    """A clock for headtrain.gpu that each reading advances by 10 ms: the number of steps does not depend on the machine."""
    from headtrain import gpu

    class Clock:
        now = 0.0

        @classmethod
        def monotonic(cls):
            cls.now += 0.01
            return cls.now

    monkeypatch.setattr(gpu, "time", Clock)
    return Clock
