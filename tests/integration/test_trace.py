"""A training's losses and gradient norms beside PyTorch's from the same parameters, as tests/gpu/run compares them on a GPU."""

import array
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from engines import BUILD

PROGRAM = BUILD / "tests/gpu/trace_cpu"
GPU = Path(__file__).resolve().parents[1] / "gpu"
REFERENCE = GPU / "torch_trace.py"

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch"),
]


def test_losses_beside_pytorch(tmp_path):
    subprocess.run([PROGRAM, tmp_path, "small"], check=True, timeout=120)
    end = subprocess.run([sys.executable, REFERENCE, tmp_path, "cpu"], capture_output=True, text=True, timeout=300)
    assert end.stdout.splitlines()[-1] == "4 passed, 0 failed", end.stdout + end.stderr


def test_without_pytorch_nothing_passes(tmp_path):
    """A machine that lacks it (here: no site-packages) has not compared anything."""
    end = subprocess.run([sys.executable, "-I", "-S", REFERENCE, tmp_path], capture_output=True, text=True, timeout=60)
    assert (end.returncode, end.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed"), end.stdout + end.stderr
    assert end.stdout.startswith("no PyTorch: ")


def test_real_text_beside_pytorch(tmp_path):
    """The program that trains GPT-2 124M on a GPU for some minutes, with a small model: bytes of this project as tokens."""
    text = b"".join(sorted(path.read_bytes() for path in GPU.glob("*.c")))
    (tmp_path / "text.bin").write_bytes(array.array("H", list(text)).tobytes())
    end = subprocess.run([sys.executable, GPU / "real_text", BUILD, tmp_path / "text.bin", "30", "small"], capture_output=True,
                         text=True, timeout=300)
    assert end.stdout.splitlines()[-1] == "2 passed, 0 failed", end.stdout + end.stderr


def test_gradients_of_two_engines(tmp_path):
    """The comparison of a GPU's first gradients with the CPU engine's: one wrong element fails it."""
    for name in ("want", "got"):
        (tmp_path / name).mkdir()
        subprocess.run([PROGRAM, tmp_path / name, "small", "steps", "1"], check=True, timeout=120)
    compare = [sys.executable, GPU / "gradients", tmp_path / "want", tmp_path / "got"]
    end = subprocess.run(compare, capture_output=True, text=True, timeout=120)
    assert end.stdout.splitlines()[-1] == "3 passed, 0 failed", end.stdout + end.stderr
    gradients = array.array("f", (tmp_path / "got/grads.fp32").read_bytes())
    gradients[0] += 1e-3 * max(gradients)
    (tmp_path / "got/grads.fp32").write_bytes(gradients.tobytes())
    end = subprocess.run(compare, capture_output=True, text=True, timeout=120)
    assert end.stdout.splitlines()[-1] == "2 passed, 1 failed", end.stdout + end.stderr
