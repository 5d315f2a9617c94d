"""Programs of tests/gpu on processors, as tests/gpu/run starts them on GPUs, and gpt2ctl topo."""

import array
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from client import ctl, one_object
from engines import PROGRAM
from helpers import BUILD, Daemon, wait_for

GPU = Path(__file__).resolve().parents[1] / "gpu"
TRACE = BUILD / "tests/gpu/trace_cpu"

real = pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")
torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")


def last_line(*command):
    end = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    return end.returncode, end.stdout.splitlines()[-1], end.stdout + end.stderr


# ---- a device that fails in the middle of a run: here a processor whose context fails ----

@real
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_broken_device(ranks):
    status, counts, text = last_line(GPU / "poisoned", BUILD, "--device", "cpu", "--gpus", str(ranks))
    assert (status, counts) == (0, "28 passed, 0 failed"), text


@real
def test_a_device_that_does_not_break(tmp_path):
    """The script does not accept a done run where one should fail."""
    engine = tmp_path / "tests/gpu/poison_engine_cpu"
    engine.parent.mkdir(parents=True)
    engine.symlink_to(PROGRAM)
    for room in ("daemon", "proto"):
        (tmp_path / room).symlink_to(BUILD / room)
    status, counts, text = last_line(GPU / "poisoned", tmp_path, "--device", "cpu")
    assert (status, counts) == (1, "6 passed, 22 failed"), text


# ---- losses and gradients compared with PyTorch's, from the same parameters ----

@real
@torch
def test_losses_beside_pytorch(tmp_path):
    subprocess.run([TRACE, tmp_path, "small"], check=True, timeout=120)
    _, counts, text = last_line(GPU / "torch_trace.py", tmp_path, "cpu")
    assert counts == "4 passed, 0 failed", text


def test_without_pytorch_nothing_passes(tmp_path):
    """A machine that lacks it (here: no site-packages) has not compared anything."""
    status, counts, text = last_line("-I", "-S", GPU / "torch_trace.py", tmp_path)
    assert (status, counts) == (1, "0 passed, 1 failed") and text.startswith("no PyTorch: "), text


@real
@torch
def test_real_text_beside_pytorch(tmp_path):
    """The program that trains GPT-2 124M on a GPU for some minutes, with a small model: bytes of this project as tokens."""
    text = b"".join(sorted(path.read_bytes() for path in GPU.glob("*.c")))
    (tmp_path / "text.bin").write_bytes(array.array("H", list(text)).tobytes())
    _, counts, text = last_line(GPU / "real_text", BUILD, tmp_path / "text.bin", "30", "small")
    assert counts == "2 passed, 0 failed", text


@real
@torch
def test_gradients_of_two_engines(tmp_path):
    """The comparison of a GPU's first gradients with the CPU engine's: one wrong element fails it."""
    for name in ("want", "got"):
        (tmp_path / name).mkdir()
        subprocess.run([TRACE, tmp_path / name, "small", "steps", "1"], check=True, timeout=120)
    compare = GPU / "gradients", tmp_path / "want", tmp_path / "got"
    assert last_line(*compare)[1] == "3 passed, 0 failed"
    gradients = array.array("f", (tmp_path / "got/grads.fp32").read_bytes())
    gradients[0] += 1e-3 * max(gradients)
    (tmp_path / "got/grads.fp32").write_bytes(gradients.tobytes())
    assert last_line(*compare)[1] == "2 passed, 1 failed"


# ---- topology ----

@real
def test_a_node_is_shown_and_saved(tmp_path):
    with Daemon(2, PROGRAM) as d, d.client() as c:
        nodes = wait_for(lambda: (n := c.call("topo")["nodes"])[0]["topology"] and n, "the topology")
        assert [node["node"] for node in nodes] == [0]
        topology = nodes[0]["topology"]
        assert topology["hostname"] == socket.gethostname()
        assert topology["cpu"]["threads"] == os.sysconf("SC_NPROCESSORS_CONF")
        assert "127.0.0.1" in [interface["address"] for interface in topology["interfaces"]]
        assert one_object(ctl("topo", "--json", path=d.socket).stdout)["nodes"] == nodes
        shown = ctl("topo", "--copy", tmp_path, path=d.socket)
        assert shown.returncode == 0 and shown.stdout.startswith(f"node 0: {socket.gethostname()}, Linux ")
        assert (tmp_path / "topo-node0.txt").read_text() == shown.stdout
        c.call("release")
        assert c.call("topo")["nodes"] == nodes
        missing = ctl("topo", "--copy", tmp_path / "none", path=d.socket)
        assert missing.returncode == 1 and f"{tmp_path}/none/topo-node0.txt: No such file or directory" in missing.stderr


def test_engines_that_do_not_report_it():
    with Daemon() as d:
        assert ctl("topo", path=d.socket).stdout == "node 0: its engines have not reported yet\n"


@real
def test_two_nodes_on_one_machine():
    status, counts, text = last_line(GPU / "nodes", BUILD, "--device", "cpu")
    assert (status, counts) == (0, "8 passed, 0 failed"), text
