"""Engines on several nodes (nodes_hosts.py), driven without gpt2d: bootstrap, equal losses, data, faults."""

import csv
import hashlib
import json
import signal
import sys
import time
from pathlib import Path

import pytest

import nodes_hosts
from engines import PROGRAM, Rank, Ranks, metrics, spec

IMPOSSIBLE = nodes_hosts.impossible()
pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="no engine was built"),
    pytest.mark.skipif(bool(IMPOSSIBLE), reason=IMPOSSIBLE or "no reason"),
]
NODES = [0, 0, 1, 1]
TOKENS = b"\x01\x00\x02\x00\x05\x00" * 4000


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with nodes_hosts.Hosts(2, tmp_path_factory.mktemp("nodes", numbered=True)) as hosts:
        yield hosts


def world(nodes, *options, env=None):
    """Two ranks on each of two nodes."""
    return Ranks(4, env=env, options=("--interface", "eth0", *options), nodes=NODES, inside=[nodes[n].enter for n in NODES])


def put(node, name, data):
    """A file in the node's own /dev/shm; its path there."""
    (Path(f"/proc/{node.first}/root/dev/shm") / name).write_bytes(data)
    return f"/dev/shm/{name}"


def losses(directory):
    return metrics(directory)["gpt2d"]["losses"], metrics(directory)["gpt2d"]["loss_hash"]


def test_the_losses_of_one_node(two, folders):
    """Bit for bit, with both ZeRO stages; the artifacts name nodes, ranks and network."""
    runs = [spec(4, zero_optimization={"stage": stage, "reduce_bucket_size": 4096, "overlap_comm": True}) for stage in (0, 1)]
    alone = []
    with Ranks(4) as ranks:
        for run in runs:
            directory = folders()
            ranks.train(run, directory)
            alone.append(losses(directory))
        hardware = metrics(directory)["hardware"]
        assert (hardware["world_size"], hardware["nodes"], hardware["ranks_per_node"]) == (4, 1, 4)
        assert metrics(directory)["gpt2d"]["network"] == {"name": "UCX", "devices": None, "paths": "self,posix,cma",
            "gpu_direct_rdma": None}
    with world(two) as ranks:
        assert [hello["local_rank"] for hello in ranks.hellos] == [0, 1, 2, 3]
        for run, expected in zip(runs, alone):
            directory = folders()
            ranks.train(run, directory)
            assert losses(directory) == expected
        found = metrics(directory)
        hardware, ours = found["hardware"], found["gpt2d"]
        assert (hardware["world_size"], hardware["nodes"], hardware["ranks_per_node"]) == (4, 2, 2)
        assert hardware["gpu_count_visible"] == 0
        assert [rank["node"] for rank in ours["ranks"]] == NODES
        assert ours["network"] == {"name": "UCX", "devices": "eth0", "paths": "self,posix,cma,tcp", "gpu_direct_rdma": None}
        with (directory / "rank_times.csv").open() as rows:
            assert {row["rank"] for row in csv.DictReader(rows)} == set("0123")
        # a run of one node's ranks alone
        directory = folders()
        ranks.train(spec(2), directory, world=2)
        assert metrics(directory)["hardware"]["nodes"] == 1
        for rank in ranks:
            rank.send("engine.exit")
        assert [rank.end() for rank in ranks] == [0] * 4


def test_only_the_named_interface_listens(two):
    """Within a node the ranks share memory; UCX opens ports on eth0 and nowhere else."""
    with world(two):
        for node in (two[0], two[1]):
            table = Path(f"/proc/{node.first}/net/tcp").read_text().splitlines()[1:]
            listening = {row.split()[1].split(":")[0] for row in table if row.split()[3] == "0A"}
            number = "".join(f"{int(part):02X}" for part in reversed(node.address.split(".")))
            assert listening == {number}


GARBAGE = """
import socket, sys
for port in sys.argv[2:]:
    for data in bytes(64), b"\\xff" * 4096, b"GET / HTTP/1.1\\r\\n\\r\\n":
        with socket.create_connection((sys.argv[1], int(port)), timeout=5) as connection:
            connection.sendall(data)
"""


def test_garbage_on_every_port(two, folders):
    """An engine may end of it, and its peers then; the next ones train."""
    with world(two) as ranks:
        ranks.start(spec(4, work={"optimizer_steps": 1000000}), folders())
        ranks[0].wait("segment.step")
        for host in two:
            table = Path(f"/proc/{host.first}/net/tcp").read_text().splitlines()[1:]
            ports = [str(int(row.split()[1].split(":")[1], 16)) for row in table if row.split()[3] == "0A"]
            assert len(ports) == 2
            host.run([sys.executable, "-c", GARBAGE, host.address, *ports])
        for rank in ranks:
            rank.drain()
        if all(rank.process.poll() is None for rank in ranks):
            ranks[0].wait("segment.step")
    with world(two) as ranks:
        ranks.train(spec(4), folders())


def test_data_is_what_the_files_hold(two, folders):
    """Copies differ in device, inode and times, which the ranks of one node alone compare."""
    path = put(two[0], "train.bin", TOKENS)
    put(two[1], "train.bin", TOKENS)
    run = spec(4, data={"train": path, "val": path})
    with world(two) as ranks:
        directory = folders()
        ranks.train(run, directory)
        assert metrics(directory)["gpt2d"]["train_sha256"] == hashlib.sha256(TOKENS).hexdigest()
        reported = ranks[0].all("segment.started")[-1]["data"]
        ranks.train(run, folders(), data=reported)
        put(two[1], "train.bin", TOKENS[:-2] + b"\x06\x00")
        segment = ranks.start(run, folders(), data=reported)
        for rank in ranks:
            _, failed = rank.wait("segment.failed", segment=segment)
            assert failed["reason"] == "spec_mismatch" and path in failed["message"]
            assert "the node of rank 2 has a file with other content than the node of rank 0" in failed["message"]
        put(two[1], "train.bin", TOKENS)
        ranks.train(run, folders(), data=reported)
        (Path(f"/proc/{two[1].first}/root/dev/shm") / "train.bin").unlink()
        segment = ranks.start(run, folders(), data=reported)
        _, failed = ranks[2].wait("segment.failed", segment=segment)
        assert failed["reason"] == "data" and path in failed["message"]


def test_checkpoints_are_in_a_folder_that_all_nodes_share(two, folders, tmp_path):
    """The other nodes must have the folder that rank 0 makes."""
    saving = lambda **more: spec(4, checkpoint={"every_steps": 4, **more})
    shared = tmp_path / "shared"
    shared.mkdir()
    (Path(f"/proc/{two[0].first}/root/dev/shm") / "alone").mkdir(exist_ok=True)
    with world(two) as ranks:
        segment = ranks.start(saving(dir="/dev/shm/alone"), folders())
        _, failed = ranks[2].wait("segment.failed", segment=segment)
        assert failed["reason"] == "checkpoint" and "rank 2 cannot write to /dev/shm/alone/1-tiny" in failed["message"]
        ranks.train(saving(dir=str(shared)), folders())
        assert {path.name for path in (shared / "1-tiny").iterdir()} == {"step-8", "step-12"}
        directory = folders()
        ranks.train(spec(4, resume_from=str(shared / "1-tiny/step-8"), name="on"), directory)
        assert "resumed from" in (directory / "train.log").read_text()


def test_all_ranks_stop_after_the_same_step(two, folders):
    """A request that reaches one rank of the other node stops all."""
    with world(two) as ranks:
        segment = ranks.start(spec(4, work={"optimizer_steps": 1000000}), folders())
        ranks[0].wait("segment.step")
        ranks[3].send("segment.cancel", run=1, segment=segment)
        _, cancelled = ranks[0].wait("segment.cancelled", segment=segment)
        assert 0 < cancelled["step"] < 1000000
        ranks.train(spec(4), folders())


def test_a_killed_rank_of_another_node(two, folders):
    """Its peers notice at once and name both addresses; nobody watches processes of another node."""
    with world(two) as ranks:
        ranks.start(spec(4, work={"optimizer_steps": 1000000}), folders())
        ranks[0].wait("segment.step")
        began = time.monotonic()
        ranks[3].process.send_signal(signal.SIGKILL)
        texts = []
        for rank in list(ranks)[:3]:
            _, failed = rank.wait("segment.failed")
            assert failed["reason"] == "peer_lost" and "rank 3: " in failed["message"]
            texts.append(failed["message"])
        assert [rank.end() for rank in list(ranks)[:3]] == [70] * 3
        assert time.monotonic() - began < 10
        assert any(f"({two[0].address}%eth0 -> {two[1].address}%eth0)" in text or "its process ended" in text for text in texts)
    with world(two) as ranks:
        ranks.train(spec(4), folders())


def test_a_node_out_of_reach_at_the_start(two):
    """The error names all pairs without a connection."""
    ranks = [Rank("--role", "connect", "--rank", r, "--ranks", 4, "--interface", "eth0", "--silence", 3, inside=two[n].enter)
        for r, n in enumerate(NODES)]
    try:
        hellos = [rank.wait("engine.hello")[1] for rank in ranks]
        two[1].cut()
        for rank in ranks:
            rank.send("engine.connect", addresses=[hello["address"] for hello in hellos], nodes=NODES)
        _, said = ranks[0].wait("engine.log", level="error")
        pair = f"({two[0].address}%eth0 -> {two[1].address}%eth0)"
        assert f"rank 2 {pair}" in said["message"] and "rank 1" not in said["message"]
        assert [rank.end() for rank in ranks] == [73] * 4
    finally:
        two[1].mend()
        for rank in ranks:
            rank.kill()


@pytest.mark.parametrize("env, problem", [
    (None, "interface eth7: no such interface on this node; usable here: lo, eth0"),
    ({"UCX_NET_DEVICES": "eth8"}, "interface eth7: no such interface"),
])
def test_an_interface_that_is_not_there(two, env, problem):
    rank = Rank("--role", "rank", "--rank", 0, "--ranks", 2, "--threads", 1, "--interface", "eth7", env=env, inside=two[0].enter)
    try:
        _, said = rank.wait("engine.log")
        assert said["level"] == "error" and problem in said["message"]
        assert rank.end() == 73
    finally:
        rank.kill()


def test_an_idle_communicator_is_tested(two, folders):
    """A node that was lost meanwhile does not affect the next run: no rank reports a failure of it."""
    with world(two, "--idle-test", 1, "--silence", 2) as ranks:
        ranks.train(spec(4), folders())
        time.sleep(1.2)  # idle, by the limit above
        directory = folders()
        ranks.train(spec(4), directory)
        assert "the communicator was idle and answers" in (directory / "train.log").read_text()
        time.sleep(1.2)
        two[1].cut()
        try:
            ranks.start(spec(4), folders())
            assert [rank.end() for rank in ranks] == [70] * 4
        finally:
            two[1].mend()
        for rank in ranks:
            assert not [failed for failed in rank.all("segment.failed") if failed["segment"] > 2]
        warnings = [said["message"] for rank in ranks for said in rank.all("engine.log") if said["level"] == "warning"]
        assert any("the communicator was idle and does not answer" in text for text in warnings)


def test_memory_is_counted_by_node(two):
    """A check counts the ranks of the fullest node; without nodes, all."""
    rank = Rank("--role", "check")
    try:
        rank.wait("engine.ready")
        planned = []
        for nodes in (None, [0, 0, 1, 1], [0, 1, 2, 3]):
            more = {"nodes": nodes} if nodes else {}
            rank.send("check", token=1, world=4, arm="run", spec=json.dumps(spec(4)), **more)
            planned.append(rank.wait("check.reply")[1]["check"]["memory"])
        assert [memory["planned_bytes"] // memory["total_bytes"] for memory in planned] == [4, 2, 1]
        rank.send("check", token=2, world=4, arm="run", spec=json.dumps(spec(4)), nodes=[0, 1])
        assert not rank.wait("check.reply")[1]["ok"]
    finally:
        rank.kill()
