"""A device that fails in the middle of a run, as tests/gpu/run tests it on a GPU: here a processor whose context fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from engines import BUILD

PROGRAM = BUILD / "tests/gpu/poison_engine_cpu"
SCRIPT = Path(__file__).resolve().parents[1] / "gpu/poisoned"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_broken_device(ranks):
    end = subprocess.run([sys.executable, SCRIPT, BUILD, "--device", "cpu", "--gpus", str(ranks)],
        capture_output=True, text=True, timeout=300)
    assert (end.returncode, end.stdout.splitlines()[-1]) == (0, "28 passed, 0 failed"), end.stdout + end.stderr


def test_a_device_that_does_not_break(tmp_path):
    """The script does not accept a done run where one should fail."""
    engine = tmp_path / "tests/gpu/poison_engine_cpu"
    engine.parent.mkdir(parents=True)
    engine.symlink_to(BUILD / "engine/gpt2-engine-cpu")
    for room in ("daemon", "proto"):
        (tmp_path / room).symlink_to(BUILD / room)
    end = subprocess.run([sys.executable, SCRIPT, tmp_path, "--device", "cpu"], capture_output=True, text=True, timeout=300)
    assert (end.returncode, end.stdout.splitlines()[-1]) == (1, "6 passed, 22 failed"), end.stdout + end.stderr
