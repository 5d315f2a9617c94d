"""gpt2ctl topo, and tests/gpu/nodes on processors: two gpt2d as nodes of one machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from client import ctl, one_object
from engines import PROGRAM
from helpers import BUILD, Daemon, wait_for

SCRIPT = Path(__file__).resolve().parents[1] / "gpu/nodes"
real = pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built")


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
    end = subprocess.run([sys.executable, SCRIPT, BUILD, "--device", "cpu"], capture_output=True, text=True, timeout=300)
    assert (end.returncode, end.stdout.splitlines()[-1]) == (0, "8 passed, 0 failed"), end.stdout + end.stderr
